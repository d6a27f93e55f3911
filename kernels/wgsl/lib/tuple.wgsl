#include index

// The row-major place of the index tuple that starts at element k; -1 when one index is out of range.
fn tuple_at(k: u32) -> i32 {
  var place = 0;
  for (var d = 0u; d < u32($depth); d++) {
    let at = index_at(k + d, $dims[d]);
    if (at < 0) { return -1; }
    place = place * $dims[d] + at;
  }
  return place;
}
