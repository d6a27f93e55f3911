#include tuple
#include combine

fn element(i: u32) -> y_t {
  let inner = u32($inner);
  let own = i32(i / inner);
  let from_row = i % inner + u32($updates_off);
  var v = x_get(i + u32($x_off));
  // Updates in their order; of those that replace, the last one counts.
#if replace
  for (var k = u32($count); k > 0u; k--) {
    if (tuple_at((k - 1u) * u32($depth) + u32($indices_off)) == own) { return updates_get((k - 1u) * inner + from_row); }
  }
#else
  for (var k = 0u; k < u32($count); k++) {
    if (tuple_at(k * u32($depth) + u32($indices_off)) == own) { v = combined(v, updates_get(k * inner + from_row)); }
  }
#endif
  return v;
}
#include elements
