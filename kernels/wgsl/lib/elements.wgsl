// Lanes that write one element each, or a word of neighbours where elements share words. A kernel defines element(i) -> y_t.
#if words
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let w = item(wid, nwg, lane);
  let n = u32($n);
  let first = w * ${per}u;
  if (first >= n) { return; }
  var bits = 0u;
  for (var k = 0u; k < ${per}u; k++) {
    if (first + k < n) { bits |= y_bits(element(first + k)) << (k * (32u / ${per}u)); }
  }
  y_put_word(w, bits);
}
#else
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let i = item(wid, nwg, lane);
  if (i >= u32($n)) { return; }
  y_put(i + u32($y_off), element(i));
}
#endif
