#include index

fn element(i: u32) -> y_t {
  let inner = u32($inner);
  let row = i / inner;
  let at = index_at(row % u32($count) + u32($indices_off), $n_rows);
  if (at < 0) { return y_t(); }
  return x_get((row / u32($count) * u32($n_rows) + u32(at)) * inner + i % inner + u32($x_off));
}
#include elements
