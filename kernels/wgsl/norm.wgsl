// Rows of n neighbours: y = (x - mean) / sqrt(variance + eps) * scale + bias; a team of lanes per row.
#include team

// Sums of squares that float32 holds, and powers of two that bring others between them.
const MOST = 1e38;
const LEAST = 1e-30;
const SMALLER = 0x1p-77;
const LARGER = 0x1p+76;

var<workgroup> raised: atomic<u32>;
var<workgroup> known: u32;  // not bool, which NVIDIA's Vulkan driver loses in workgroup memory

// Whether it holds for any lane of the workgroup, every lane of which asks once more only where it did.
fn any_lane(holds: bool, index: u32) -> bool {
  if (holds) { atomicStore(&raised, 1u); }
  workgroupBarrier();
  if (index == 0u) { known = atomicLoad(&raised); }
  return workgroupUniformLoad(&known) != 0u;
}

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
  let there = row < u32($rows);
  let lane = index % TEAM;
  let n = select(0u, u32($n), there);
  let base = row * u32($n);
  let per = 1.0 / f32($n);

  // What squares beyond float32, or below it, is looked at once more, smaller or larger by a power of two.
  var unit = 1.0;
  // The mean in two parts, so that a mean far above the spread costs no precision.
  var mean = 0.0;
  var rest = 0.0;
  var inverse = 0.0;
  for (var look = 0u; look < 2u; look++) {
#if !rms
    var total = vec2<f32>(0.0);
#if wide
    for (var j = lane * 4u; j < n; j += TEAM * 4u) { total.x += dot(x_get4((base + j) / 4u) * unit, vec4<f32>(1.0)); }
#else
    for (var j = lane; j < n; j += TEAM) { total.x += x_get(base + j) * unit; }
#endif
    mean = team_sum(total, index).x * per;
#endif
    var moments = vec2<f32>(0.0);
#if wide
    for (var j = lane * 4u; j < n; j += TEAM * 4u) {
      let v = x_get4((base + j) / 4u) * unit - mean;
      moments += vec2<f32>(dot(v, vec4<f32>(1.0)), dot(v, v));
    }
#else
    for (var j = lane; j < n; j += TEAM) {
      let v = x_get(base + j) * unit - mean;
      moments += vec2<f32>(v, v * v);
    }
#endif
    moments = team_sum(moments, index);
    let seen = moments.y;
    moments *= per;
#if !rms
    rest = moments.x;
#endif
    inverse = 1.0 / sqrt(moments.y - rest * rest + $eps * unit * unit);
    let large = !lt_f(seen, MOST);
    let small = there & (moments.y + $eps < LEAST);
    if (!any_lane((look == 0u) & (large | small), index)) { break; }
    if (large) { unit = SMALLER; } else if (small) { unit = LARGER; }
  }
  if (!there) { return; }
#if mean
  if (lane == 0u) { mean_put(row, (mean + rest) / unit); }
#endif
#if inv_std
  if (lane == 0u) { inv_std_put(row, inverse * unit); }
#endif
  let first = row % u32($row_mod) * u32($row_mul);
#if wide
  for (var j = lane * 4u; j < n; j += TEAM * 4u) {
    var v = (x_get4((base + j) / 4u) * unit - mean - rest) * inverse;
#if each
#if scale
    v *= scale_get4((first + j) / 4u);
#endif
#if bias
    v += bias_get4((first + j) / 4u);
#endif
#else
#if scale
    v *= scale_get(first + j / u32($inner));
#endif
#if bias
    v += bias_get(first + j / u32($inner));
#endif
#endif
    y_put4((base + j) / 4u, v);
  }
#else
  for (var j = lane; j < n; j += TEAM) {
    var v = (x_get(base + j) * unit - mean - rest) * inverse;
#if scale
    v *= scale_get(first + j / u32($inner));
#endif
#if bias
    v += bias_get(first + j / u32($inner));
#endif
    y_put(base + j, v);
  }
#endif
}
