// Convolution as a product of weights [m, k] with windows [k, pixel], k counting (channel, tap) of one group, pixels those of all images.
#include epilogue

fn finish(m: u32, at: u32, sum: f32) -> f32 {
  var v = sum;
#if bias
  v += bias_get(m + u32($bias_off));
#endif
#if residual after
  v += residual_get(at + u32($residual_off));
#endif
  v = activate(v);
#if residual !after
  v += residual_get(at + u32($residual_off));
#endif
  return v;
}

#if tiled
// 4 x 4 outputs per lane. Tiles of BM channels by BN pixels; SLICES teams of lanes share the sum of one tile where there are few.
const BM = ${bm}u;
const BN = ${bn}u;
const BK = ${bk}u;
const SLICES = ${slices}u;
const TEAM = BM * BN / 16u;
const WEIGHTS = SLICES * BK * BM / 4u;
var<workgroup> tile: array<vec4<f32>, ${vectors}>;

// The inputs that four windows read at one tap (kd, kh, kw) of a channel.
fn windows(c: i32, tap: vec3<i32>, base: vec4<i32>, d0: vec4<i32>, h0: vec4<i32>, w0: vec4<i32>) -> vec4<f32> {
  var v = vec4<f32>(0.0);
  if (c >= $cg) { return v; }
#if pointwise
  let at = base + c * $image;
  let ok = d0 >= vec4<i32>(0);
#else
  let d = d0 + tap.x * $dilation[0];
  let h = h0 + tap.y * $dilation[1];
  let w = w0 + tap.z * $dilation[2];
  let zero = vec4<i32>(0);
  let ok = (d >= zero) & (d < vec4<i32>($in[0])) & (h >= zero) & (h < vec4<i32>($in[1])) & (w >= zero) & (w < vec4<i32>($in[2]));
  let at = base + c * $image + (d * $in[1] + h) * $in[2] + w;
#endif
  if (ok.x) { v.x = x_get(u32(at.x)); }
  if (ok.y) { v.y = x_get(u32(at.y)); }
  if (ok.z) { v.z = x_get(u32(at.z)); }
  if (ok.w) { v.w = x_get(u32(at.w)); }
  return v;
}

fn store(m: u32, column: u32, v: vec4<f32>) {
  if (m >= u32($mg)) { return; }
  let channel = group_of * u32($mg) + m;
#if vec4
  if (column >= u32($columns)) { return; }
  let at = (column / u32($pixels) * u32($m) + channel) * u32($pixels) + column % u32($pixels);
  y_put4(at / 4u, vec4<f32>(finish(channel, at, v.x), finish(channel, at + 1u, v.y), finish(channel, at + 2u, v.z), finish(channel, at + 3u, v.w)));
#else
  for (var j = 0u; j < 4u && column + j < u32($columns); j++) {
    let at = ((column + j) / u32($pixels) * u32($m) + channel) * u32($pixels) + (column + j) % u32($pixels);
    y_put(at + u32($y_off), finish(channel, at, v[j]));
  }
#endif
}

var<private> group_of: u32;

@compute @workgroup_size(${lanes})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  group_of = g.z;
  let lane = index % TEAM;
  let slice = index / TEAM;
  let tx = lane % (BN / 4u);
  let ty = lane / (BN / 4u);
  let m0 = g.y * BM;

  // What this lane loads: four weights of one k, and four neighbouring windows of one k.
  let a_k = lane % BK;
  let a_m = lane / BK;
  let b_k = lane / (BN / 4u);
  let first = g.x * BN + tx * 4u;
  let column = vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u);
  let pixel = vec4<i32>(column % vec4<u32>(u32($pixels)));
  let base = (vec4<i32>(column / vec4<u32>(u32($pixels))) * $c + i32(g.z) * $cg) * $image + $x_off;
  let missing = column >= vec4<u32>(u32($columns));
  let far = vec4<i32>(-0x40000000);
#if pointwise
  let place = base + pixel;
  let d0 = select(vec4<i32>(0), far, missing);
  let h0 = d0;
  let w0 = d0;
#else
  let place = base;
  let d0 = select(pixel / ($out[1] * $out[2]) * $stride[0] - $pad[0], far, missing);
  let h0 = pixel / $out[2] % $out[1] * $stride[1] - $pad[1];
  let w0 = pixel % $out[2] * $stride[2] - $pad[2];
#endif
  let weights = (g.z * u32($mg) + m0 + a_m * 4u) * u32($k) + u32($w_off);
  let rows = i32($mg) - i32(m0 + a_m * 4u);

  // The channel and the tap of this lane's k, kept by addition: divisions in the loop would cost as much as its products.
  let k_first = i32(slice * BK + b_k);
  var channel = k_first / $taps;
  var tap = vec3<i32>(k_first / ($kernel[1] * $kernel[2]) % $kernel[0], k_first / $kernel[2] % $kernel[1], k_first % $kernel[2]);
  let step = vec4<i32>($k_step[0], $k_step[1], $k_step[2], $k_step[3]);

  var acc0 = vec4<f32>(0.0);
  var acc1 = vec4<f32>(0.0);
  var acc2 = vec4<f32>(0.0);
  var acc3 = vec4<f32>(0.0);
  for (var k0 = 0u; k0 < u32($k); k0 += BK * SLICES) {
    let from_k = k0 + slice * BK;
    var a = vec4<f32>(0.0);
    if (from_k + a_k < u32($k)) {
      let at = weights + from_k + a_k;
      if (rows > 0) { a.x = w_get(at); }
      if (rows > 1) { a.y = w_get(at + u32($k)); }
      if (rows > 2) { a.z = w_get(at + 2u * u32($k)); }
      if (rows > 3) { a.w = w_get(at + 3u * u32($k)); }
    }
    tile[(slice * BK + a_k) * (BM / 4u) + a_m] = a;
#if pointwise vec4
    var b = vec4<f32>(0.0);
    if (from_k + b_k < u32($k) && first < u32($columns)) { b = x_get4(u32(place.x + i32(from_k + b_k) * $image) / 4u); }
    tile[WEIGHTS + (slice * BK + b_k) * (BN / 4u) + tx] = b;
#else
    tile[WEIGHTS + (slice * BK + b_k) * (BN / 4u) + tx] = windows(channel, tap, place, d0, h0, w0);
#endif
    tap += step.yzw;
    if (tap.z >= $kernel[2]) { tap.z -= $kernel[2]; tap.y++; }
    if (tap.y >= $kernel[1]) { tap.y -= $kernel[1]; tap.x++; }
    if (tap.x >= $kernel[0]) { tap.x -= $kernel[0]; channel++; }
    channel += step.x;
    workgroupBarrier();
    for (var k = 0u; k < BK; k++) {
      let p = tile[(slice * BK + k) * (BM / 4u) + ty];
      let q = tile[WEIGHTS + (slice * BK + k) * (BN / 4u) + tx];
      acc0 += p.x * q;
      acc1 += p.y * q;
      acc2 += p.z * q;
      acc3 += p.w * q;
    }
    workgroupBarrier();
  }
#if sliced
  for (var half = SLICES / 2u; half > 0u; half /= 2u) {
    let to = ((slice % half) * 4u) * TEAM + lane;
    if (slice >= half && slice < 2u * half) {
      tile[to] = acc0;
      tile[to + TEAM] = acc1;
      tile[to + 2u * TEAM] = acc2;
      tile[to + 3u * TEAM] = acc3;
    }
    workgroupBarrier();
    if (slice < half) {
      acc0 += tile[to];
      acc1 += tile[to + TEAM];
      acc2 += tile[to + 2u * TEAM];
      acc3 += tile[to + 3u * TEAM];
    }
    workgroupBarrier();
  }
  if (slice > 0u) { return; }
#endif
  let m = m0 + ty * 4u;
  store(m, first, acc0);
  store(m + 1u, first, acc1);
  store(m + 2u, first, acc2);
  store(m + 3u, first, acc3);
}
#elif patches
// One channel per workgroup, 32 x 8 outputs, from a patch of the input in workgroup memory.
const PATCH = 3840u;
var<workgroup> cells: array<f32, PATCH>;

@compute @workgroup_size(32, 8)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>,
        @builtin(local_invocation_index) index: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  let channel = g.z % u32($m);
  let h0 = i32(g.y) * 8 * $stride[1] - $pad[1];
  let w0 = i32(g.x) * 32 * $stride[2] - $pad[2];
  let base = i32(g.z / u32($m) * u32($c) + channel / u32($mg)) * $image + $x_off;
  let width = u32($patch[1]);
  for (var i = index; i < u32($patch[0]) * width; i += 256u) {
    let h = h0 + i32(i / width);
    let w = w0 + i32(i % width);
    var v = 0.0;
    if (h >= 0 && h < $in[1] && w >= 0 && w < $in[2]) { v = x_get(u32(base + h * $in[2] + w)); }
    cells[i] = v;
  }
  workgroupBarrier();
  let oh = g.y * 8u + lane.y;
  let ow = g.x * 32u + lane.x;
  if (oh >= u32($out[1]) || ow >= u32($out[2])) { return; }
  var sum = 0.0;
  var tap = channel * u32($k) + u32($w_off);
  var row = lane.y * u32($stride[1]) * width + lane.x * u32($stride[2]);
  for (var kh = 0; kh < $kernel[1]; kh++) {
    var at = row;
    for (var kw = 0; kw < $kernel[2]; kw++) {
      sum += w_get(tap) * cells[at];
      tap++;
      at += u32($dilation[2]);
    }
    row += u32($dilation[1]) * width;
  }
  let at = g.z * u32($pixels) + oh * u32($out[2]) + ow;
  y_put(at + u32($y_off), finish(channel, at, sum));
}
#else
// One output per lane: groups of few channels.
fn element(i: u32) -> y_t {
  let pixel = i32(i % u32($pixels));
  let plane = i / u32($pixels);
  let channel = plane % u32($m);
  let d0 = pixel / ($out[1] * $out[2]) * $stride[0] - $pad[0];
  let h0 = pixel / $out[2] % $out[1] * $stride[1] - $pad[1];
  let w0 = pixel % $out[2] * $stride[2] - $pad[2];
  var tap = channel * u32($k) + u32($w_off);
  var base = i32(plane / u32($m) * u32($c) + channel / u32($mg) * u32($cg)) * $image + $x_off;
  var sum = 0.0;
  for (var c = 0; c < $cg; c++) {
    for (var kd = 0; kd < $kernel[0]; kd++) {
      let d = d0 + kd * $dilation[0];
      for (var kh = 0; kh < $kernel[1]; kh++) {
        let h = h0 + kh * $dilation[1];
        if (d >= 0 && d < $in[0] && h >= 0 && h < $in[1]) {
          let row = base + (d * $in[1] + h) * $in[2];
          for (var kw = 0; kw < $kernel[2]; kw++) {
            let w = w0 + kw * $dilation[2];
            if (w >= 0 && w < $in[2]) { sum += w_get(tap + u32(kw)) * x_get(u32(row + w)); }
          }
        }
        tap += u32($kernel[2]);
      }
    }
    base += $image;
  }
  return finish(channel, i, sum);
}
#include elements
#endif
