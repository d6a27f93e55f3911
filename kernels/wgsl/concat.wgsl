#if apart
// Into a view with gaps; what lies in front of the first input stays.
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let i = item(wid, nwg, lane);
  if (i >= u32($n)) { return; }
${body}
}
#else
fn element(i: u32) -> y_t {
${body}
}
#include elements
#endif
