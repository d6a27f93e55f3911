#include tuple

fn element(i: u32) -> y_t {
  let inner = u32($inner);
  let row = i / inner;
  let at = tuple_at(row * u32($depth) + u32($indices_off));
  if (at < 0) { return y_t(); }
  return x_get((row / u32($count) * u32($span) + u32(at)) * inner + i % inner + u32($x_off));
}
#include elements
