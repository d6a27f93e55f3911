#include index

fn element(i: u32) -> y_t {
  let inner = u32($inner);
  let row = i / inner;
#if part
  // The table is bound in parts: the first sets what no part has to zero, the others leave it.
  let at = index_at(row % u32($count) + u32($indices_off), $total) - $first;
  if (at < 0 || at >= $n_rows) {
    if ($first == 0) { return y_t(); }
    return y_get(i + u32($y_off));
  }
#else
  let at = index_at(row % u32($count) + u32($indices_off), $n_rows);
  if (at < 0) { return y_t(); }
#endif
  return x_get((row / u32($count) * u32($n_rows) + u32(at)) * inner + i % inner + u32($x_off));
}
#include elements
