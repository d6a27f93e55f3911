// Index of the greatest or least element along an axis: one lane per output.
#include math
#if wide
#include int64
#endif

// NaN comes before every number.
fn before(a: x_t, b: x_t) -> bool { return ${before}; }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let i = item(wid, nwg, lane);
  let inner = u32($inner);
  if (i >= u32($outputs)) { return; }
  let base = (i / inner) * u32($n) * inner + i % inner;
  var best = x_get(base);
  var at = 0u;
  for (var k = 1u; k < u32($n); k++) {
    let v = x_get(base + k * inner);
#if last
    if (!before(best, v)) {
#else
    if (before(v, best)) {
#endif
      best = v;
      at = k;
    }
  }
  y_put(i, vec2<u32>(at, 0u));
}
