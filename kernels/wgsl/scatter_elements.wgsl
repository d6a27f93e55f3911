#include index
#include combine

fn element(i: u32) -> y_t {
  var v = x_get(i + u32($x_off));
${body}
  // Updates in their order; of those that replace, the last one counts.
#if replace
  for (var k = $updates_n - 1; k >= 0; k--) {
    if (index_at(u32(first + k * $step + $indices_off), $axis_n) == own) { return updates_get(u32(first + k * $step + $updates_off)); }
  }
#else
  for (var k = 0; k < $updates_n; k++) {
    if (index_at(u32(first + k * $step + $indices_off), $axis_n) == own) { v = combined(v, updates_get(u32(first + k * $step + $updates_off))); }
  }
#endif
  return v;
}
#include elements
