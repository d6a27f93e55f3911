// The k largest or smallest elements along the middle axis of [outer, n, inner], in order; ties go to the lower index, NaN is the
// largest number. A workgroup per line finds them one after another: the best of those that come after the one before.
#include math
#include int64

// Whether element v at i comes before m at j.
fn before(v: x_t, i: u32, m: x_t, j: u32) -> bool {
#if float
  let nan = is_nan(v);
  if (nan != is_nan(m)) { return ${nan}; }
  if (nan || v == m) { return i < j; }
#elif wide
  if (all(v == m)) { return i < j; }
#else
  if (v == m) { return i < j; }
#endif
  return ${before};
}

const NONE = 0xffffffffu;
var<workgroup> bests: array<x_t, 256>;
var<workgroup> places: array<u32, 256>;  // NONE: no element is left for this lane

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  let n = u32($n);
  let step = u32($inner);
  let from_base = g.x / step * n * step + g.x % step;
  let to_base = g.x / step * u32($k) * step + g.x % step;
  var value = x_t();
  var place = NONE;
  for (var r = 0u; r < u32($k); r++) {
    var best = x_t();
    var found = NONE;
    for (var j = lane; j < n; j += 256u) {
      let v = x_get(from_base + j * step);
      if (r > 0u && !before(value, place, v, j)) { continue; }
      if (found == NONE || before(v, j, best, found)) {
        best = v;
        found = j;
      }
    }
    bests[lane] = best;
    places[lane] = found;
    workgroupBarrier();
    for (var half = 128u; half > 0u; half /= 2u) {
      if (lane < half) {
        let other = places[lane + half];
        if (other != NONE && (places[lane] == NONE || before(bests[lane + half], other, bests[lane], places[lane]))) {
          bests[lane] = bests[lane + half];
          places[lane] = other;
        }
      }
      workgroupBarrier();
    }
    value = bests[0];
    place = places[0];
    if (lane == 0u) {
      values_put(to_base + r * step, value);
      indices_put(to_base + r * step, vec2<u32>(place, 0u));
    }
    workgroupBarrier();
  }
}
