#include math

// Teams of TEAM neighbouring lanes in a workgroup of 256 bring their values together. Every lane of the workgroup takes part.
const TEAM = ${team}u;
const TEAMS = 256u / TEAM;
#if subgroups
var<workgroup> shelf: array<vec2<f32>, 64>;  // subgroups have at least four lanes

// Lanes of a subgroup exchange registers; what the subgroups of a team have found meets in workgroup memory.
var<private> subgroup: u32;
var<workgroup> placed: atomic<u32>;

// A lane's place in the workgroup, such that those of a subgroup are neighbours: how adapters number lanes is left open. Each subgroup
// takes a number; from whichever they begin, for not every driver begins with 0, as many as there are differ.
fn place(size: u32, id: u32) -> u32 {
  subgroup = size;
  var taken = 0u;
  if (id == 0u) { taken = atomicAdd(&placed, 1u); }
  return subgroupBroadcastFirst(taken) % (256u / size) * size + id;
}

fn team_sum(v: vec2<f32>, index: u32) -> vec2<f32> {
#if whole
  let width = subgroup;
  var sum = subgroupAdd(v);
#else
  let width = min(subgroup, 32u);
  var sum = v;
  for (var step = 1u; step < 32u; step *= 2u) { sum += select(vec2<f32>(0.0), subgroupShuffleXor(sum, step), step < width); }
#endif
  if (index % width == 0u) { shelf[index / width] = sum; }
  workgroupBarrier();
  let first = index / TEAM * (TEAM / width);
  sum = shelf[first];
  for (var k = 1u; k < TEAM / width; k++) { sum += shelf[first + k]; }
  workgroupBarrier();
  return sum;
}

fn team_max(v: f32, index: u32) -> f32 {
  let width = min(subgroup, 32u);
  var top = v;
  for (var step = 1u; step < 32u; step *= 2u) { top = select(top, max_nan(top, subgroupShuffleXor(top, step)), step < width); }
  if (index % width == 0u) { shelf[index / width].x = top; }
  workgroupBarrier();
  let first = index / TEAM * (TEAM / width);
  top = shelf[first].x;
  for (var k = 1u; k < TEAM / width; k++) { top = max_nan(top, shelf[first + k].x); }
  workgroupBarrier();
  return top;
}
#else
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
#endif
