#if tile
// Batches of transposes: y[b, i, j] = x[b, j, i], through 32 x 32 tiles, so that both sides move whole rows.
var<workgroup> tile: array<y_t, 1056>;  // rows of 33: a column touches every bank

@compute @workgroup_size(32, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  let i = g.z;
${batch}
  let i0 = g.y * 32u;
  let j0 = g.x * 32u;
  for (var r = lane.y; r < 32u; r += 8u) {
    if (i0 + lane.x < u32($m) && j0 + r < u32($k)) { tile[r * 33u + lane.x] = x_get(from_base + (j0 + r) * u32($x_row) + i0 + lane.x); }
  }
  workgroupBarrier();
  for (var r = lane.y; r < 32u; r += 8u) {
    if (i0 + r < u32($m) && j0 + lane.x < u32($k)) { y_put(to_base + (i0 + r) * u32($y_row) + j0 + lane.x, tile[lane.x * 33u + r]); }
  }
}
#else
fn element(i: u32) -> y_t {
${body}
}
#include elements
#endif
