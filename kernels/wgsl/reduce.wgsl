// Reductions of a strided view: a team of lanes per output, or 8 lanes per output where outputs are neighbours in memory.
#include math
#include int64

fn from_input(v: x_t) -> part { return ${load}; }
fn merge(a: part, v: part) -> part { return ${merge}; }
fn to_output(v: part) -> y_t { return ${result}; }

fn kept(i: u32) -> u32 {  // where the elements of output i start
${kept}
}
fn reduced(i: u32) -> u32 {  // how far the i-th of them is from there
${reduced}
}

alias part = ${part};
const AHEAD = 8u;  // loads that are on their way at once
const RUN = 256u;  // elements that are merged one after another before they join the rest
#if across
const TEAM = 8u;
const STRIDE = 32u;  // lanes of one team are that far apart
#else
const TEAM = ${team}u;
const STRIDE = 1u;
#endif
const TEAMS = 256u / TEAM;
var<workgroup> shelf: array<part, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
#if across
  let lane = index / 32u;
  let output = g.x * TEAMS + index % 32u;
#else
  let lane = index % TEAM;
  let output = g.x * TEAMS + index / TEAM;
#endif
  let there = output < u32($outputs);
  let n = select(0u, u32($n), there);
  var start = u32($xoff);
  if (there) { start += kept(output); }
  var all = ${none};
  for (var first = lane; first < n; first += TEAM * RUN) {
    var run = ${none};
    let end = min(n, first + TEAM * RUN);
    var i = first;
    for (; i + (AHEAD - 1u) * TEAM < end; i += AHEAD * TEAM) {
#for k 8
      let v${k} = x_get(start + reduced(i + ${k}u * TEAM));
#end
#for k 8
      run = merge(run, from_input(v${k}));
#end
    }
    for (; i < end; i += TEAM) { run = merge(run, from_input(x_get(start + reduced(i)))); }
    all = merge(all, run);
  }
  shelf[index] = all;
  workgroupBarrier();
  for (var half = TEAM / 2u; half > 0u; half /= 2u) {
    if (lane < half) { shelf[index] = merge(shelf[index], shelf[index + half * STRIDE]); }
    workgroupBarrier();
  }
  if (there && lane == 0u) { y_put(output, to_output(shelf[index])); }
}
