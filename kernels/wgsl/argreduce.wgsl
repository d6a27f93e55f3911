// The place of the largest or smallest element along the middle axis of [outer, n, inner]; NaN beats every number.
#include math
#include int64

// Whether element v at i comes before m at j.
fn beats(v: x_t, i: u32, m: x_t, j: u32) -> bool {
#if float
  let nan = is_nan(v);
  if (nan != is_nan(m)) { return nan; }
  let same = nan || v == m;
#elif wide
  let same = all(v == m);
#else
  let same = v == m;
#endif
#if last
  if (same) { return i > j; }
#else
  if (same) { return i < j; }
#endif
  return ${beats};
}

#if rows
const TEAM = ${team}u;
const TEAMS = 256u / TEAM;
#if x.bool
alias held = u32;
#else
alias held = x_t;
#endif
var<workgroup> values: array<held, 256>;
var<workgroup> places: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  let row = g.x * TEAMS + index / TEAM;
  let lane = index % TEAM;
  let n = u32($n);
  let there = row < u32($outer);
  let base = select(0u, row, there) * n;
  var place = min(lane, n - 1u);
  var best = x_get(base + place);
  for (var j = lane + TEAM; j < n; j += TEAM) {
    let v = x_get(base + j);
    if (beats(v, j, best, place)) {
      best = v;
      place = j;
    }
  }
  values[index] = held(best);
  places[index] = place;
  workgroupBarrier();
  for (var half = TEAM / 2u; half > 0u; half /= 2u) {
    if (lane < half && beats(x_t(values[index + half]), places[index + half], x_t(values[index]), places[index])) {
      values[index] = values[index + half];
      places[index] = places[index + half];
    }
    workgroupBarrier();
  }
  if (there && lane == 0u) { y_put(row, vec2<u32>(places[index], 0u)); }
}
#else
fn element(i: u32) -> y_t {
  let step = u32($inner);
  let base = i / step * u32($axis) * step + i % step;
  var place = 0u;
  var best = x_get(base);
  for (var j = 1u; j < u32($axis); j++) {
    let v = x_get(base + j * step);
    if (beats(v, j, best, place)) {
      best = v;
      place = j;
    }
  }
  return vec2<u32>(place, 0u);
}
#include elements
#endif
