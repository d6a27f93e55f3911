// Running sums or products along the middle axis of [outer, n, inner].
#include int64

fn merge(a: x_t, b: x_t) -> x_t { return ${merge}; }

#if rows
// A workgroup per row takes 256 elements at a time, which meet in doubling steps.
var<workgroup> shelf: array<x_t, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  let n = u32($n);
  let base = g.x * n;
  var carry = ${none};
  for (var first = 0u; first < n; first += 256u) {
    let i = first + lane;
    let at = base + select(i, n - 1u - i, $reverse != 0);
    var v = ${none};
    if (i < n) { v = x_get(at); }
    shelf[lane] = v;
    workgroupBarrier();
    for (var step = 1u; step < 256u; step *= 2u) {
      if (lane >= step) { v = merge(shelf[lane - step], v); }
      workgroupBarrier();
      shelf[lane] = v;
      workgroupBarrier();
    }
    var before = ${none};
    if (lane > 0u) { before = shelf[lane - 1u]; }
    if (i < n) { y_put(at, merge(carry, select(v, before, ${exclusive}))); }
    carry = merge(carry, shelf[255]);
    workgroupBarrier();
  }
}
#else
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let column = item(wid, nwg, lane);
  if (column >= u32($outer * $inner)) { return; }
  let n = u32($n);
  let step = u32($inner);
  let base = column / step * n * step + column % step;
  var sum = ${none};
  for (var i = 0u; i < n; i++) {
    let at = base + select(i, n - 1u - i, $reverse != 0) * step;
    let next = merge(sum, x_get(at));
    y_put(at, select(next, sum, ${exclusive}));
    sum = next;
  }
}
#endif
