// Running sums and products along an axis: one lane per line.
#include math
#if wide
#include int64
#endif

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let i = item(wid, nwg, lane);
  let inner = u32($inner);
  if (i >= u32($lines)) { return; }
  let n = u32($n);
  let base = (i / inner) * n * inner + i % inner;
  var total: x_t = ${none};
  for (var k = 0u; k < n; k++) {
#if reverse
    let at = base + (n - 1u - k) * inner;
#else
    let at = base + k * inner;
#endif
    let a = total;
    let b = x_get(at);
    total = ${join};
#if exclusive
    y_put(at, a);
#else
    y_put(at, total);
#endif
  }
}
