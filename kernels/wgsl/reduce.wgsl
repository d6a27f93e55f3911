// Reductions over any axes of a strided view: one lane per output, or one workgroup where there is much to reduce.
#include math
#if wide
#include int64
#endif

alias acc_t = ${acc};

fn load(i: u32) -> acc_t {
  let v = acc_t(x_get(i));
#if sumsq
  return ${square};
#elif sumabs
  return ${abs};
#else
  return v;
#endif
}

fn join(a: acc_t, b: acc_t) -> acc_t { return ${join}; }

fn base_of(output: u32) -> i32 {
  var rest = output;
  var at = $xoff;
  for (var d = ${rank_keep} - 1; d >= 0; d--) {
    let size = u32($keep_shape[d]);
    at += i32(rest % size) * $keep_stride[d];
    rest /= size;
  }
  return at;
}

fn term(base: i32, index: u32) -> acc_t {
#if row
  return load(u32(base + i32(index) * $red_stride[0]));
#else
  var rest = index;
  var at = base;
  for (var d = ${rank_red} - 1; d >= 0; d--) {
    let size = u32($red_shape[d]);
    at += i32(rest % size) * $red_stride[d];
    rest /= size;
  }
  return load(u32(at));
#endif
}

fn finish(output: u32, total: acc_t) {
#if mean
  y_put(output, total / f32($reduced));
#else
  y_put(output, y_t(total));
#endif
}

#if team
var<workgroup> parts: array<acc_t, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let output = wid.x + wid.y * nwg.x;
  if (output >= u32($n)) { return; }
  let base = base_of(output);
  var total: acc_t = ${none};
  for (var i = lane; i < u32($reduced); i += 256u) { total = join(total, term(base, i)); }
  parts[lane] = total;
  for (var half = 128u; half > 0u; half >>= 1u) {
    workgroupBarrier();
    if (lane < half) { parts[lane] = join(parts[lane], parts[lane + half]); }
  }
  if (lane == 0u) { finish(output, parts[0]); }
}
#else
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let output = item(wid, nwg, lane);
  if (output >= u32($n)) { return; }
  let base = base_of(output);
  // Blocks of 64 keep the error of long sums small.
  var total: acc_t = ${none};
  for (var i = 0u; i < u32($reduced); i += 64u) {
    var part: acc_t = ${none};
    for (var k = i; k < min(i + 64u, u32($reduced)); k++) { part = join(part, term(base, k)); }
    total = join(total, part);
  }
  finish(output, total);
}
#endif
