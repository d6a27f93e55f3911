#include math

// Teams of TEAM neighbouring lanes in a workgroup of 256 bring their values together. Every lane of the workgroup takes part.
const TEAM = ${team}u;
const TEAMS = 256u / TEAM;
var<workgroup> shelf: array<vec2<f32>, 256>;

fn team_sum(v: vec2<f32>, index: u32) -> vec2<f32> {
  shelf[index] = v;
  workgroupBarrier();
  for (var half = TEAM / 2u; half > 0u; half /= 2u) {
    if (index % TEAM < half) { shelf[index] += shelf[index + half]; }
    workgroupBarrier();
  }
  let sum = shelf[index - index % TEAM];
  workgroupBarrier();
  return sum;
}

fn team_max(v: f32, index: u32) -> f32 {
  shelf[index].x = v;
  workgroupBarrier();
  for (var half = TEAM / 2u; half > 0u; half /= 2u) {
    if (index % TEAM < half) { shelf[index].x = max_nan(shelf[index].x, shelf[index + half].x); }
    workgroupBarrier();
  }
  let top = shelf[index - index % TEAM].x;
  workgroupBarrier();
  return top;
}
