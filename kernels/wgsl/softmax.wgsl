// Softmax, or its logarithm, along the middle axis of [outer, n, inner].
#include math

#if rows
#include team

@compute @workgroup_size(256)
#if subgroups
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(subgroup_size) size: u32,
        @builtin(subgroup_invocation_id) id: u32) {
  let index = place(size, id);
#else
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
#endif
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  let row = g.x * TEAMS + index / TEAM;
  let lane = index % TEAM;
  let n = select(0u, u32($n), row < u32($outer));
  let base = row * u32($n);
  var top = from_bits(0xff800000u);
  for (var j = lane; j < n; j += TEAM) { top = max_nan(top, x_get(base + j)); }
  top = team_max(top, index);
  var total = vec2<f32>(0.0);
  for (var j = lane; j < n; j += TEAM) { total.x += exp_f(x_get(base + j) - top); }
  total = team_sum(total, index);
#if log
  let shift = log(total.x);
  for (var j = lane; j < n; j += TEAM) { y_put(base + j, x_get(base + j) - top - shift); }
#else
  let scale = 1.0 / total.x;
  for (var j = lane; j < n; j += TEAM) { y_put(base + j, exp_f(x_get(base + j) - top) * scale); }
#endif
}
#else
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let column = item(wid, nwg, lane);
  if (column >= u32($outer * $inner)) { return; }
  let step = u32($inner);
  let base = column / step * u32($n) * step + column % step;
  var top = from_bits(0xff800000u);
  for (var j = 0u; j < u32($n); j++) { top = max_nan(top, x_get(base + j * step)); }
  var total = 0.0;
  for (var j = 0u; j < u32($n); j++) { total += exp_f(x_get(base + j * step) - top); }
#if log
  let shift = log(total);
  for (var j = 0u; j < u32($n); j++) { y_put(base + j * step, x_get(base + j * step) - top - shift); }
#else
  for (var j = 0u; j < u32($n); j++) { y_put(base + j * step, exp_f(x_get(base + j * step) - top) / total); }
#endif
}
#endif
