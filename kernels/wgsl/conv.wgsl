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
#include tiles

var<private> group_of: u32;
var<private> place: vec4<i32>;  // where the windows of a lane's four columns begin
#if !pointwise
var<private> d0: vec4<i32>;
var<private> h0: vec4<i32>;
var<private> w0: vec4<i32>;
// Channel, then kernel position, of each load; kept by addition, as divisions would cost as much as the products.
var<private> taps: array<vec4<i32>, ${right_loads}>;
#elif !vec4
var<private> there: vec4<bool>;
#endif

// What a lane loads: windows of the same columns throughout, of a k that grows by BK * SLICES.
fn prepare(column: u32, index: u32) {
  let at = vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u);
  let pixel = vec4<i32>(at % vec4<u32>(u32($pixels)));
  let missing = at >= vec4<u32>(u32($columns));
  place = (vec4<i32>(at / vec4<u32>(u32($pixels))) * $c + i32(group_of) * $cg) * $image + $x_off;
#if pointwise
  place += pixel;
#if !vec4
  there = !missing;
#endif
#else
  d0 = select(pixel / ($out[1] * $out[2]) * $stride[0] - $pad[0], vec4<i32>(-0x40000000), missing);
  h0 = pixel / $out[2] % $out[1] * $stride[1] - $pad[1];
  w0 = pixel % $out[2] * $stride[2] - $pad[2];
#for e ${right_loads}
  {
    let k = i32(index / TEAM * BK + (index % TEAM + ${e}u * TEAM) / WIDE);
    taps[${e}] = vec4<i32>(k / $taps, k / ($kernel[1] * $kernel[2]) % $kernel[0], k / $kernel[2] % $kernel[1], k % $kernel[2]);
  }
#end
#endif
}

fn left(m: i32, k: i32) -> vec4<f32> {
  var v = vec4<f32>(0.0);
  if (m >= $mg || k >= $k) { return v; }
  let at = (group_of * u32($mg) + u32(m)) * u32($k) + u32(k + $w_off);
#if w4
  v = w_get4(at / 4u);
#else
  v.x = w_get(at);
  if (k + 1 < $k) { v.y = w_get(at + 1u); }
  if (k + 2 < $k) { v.z = w_get(at + 2u); }
  if (k + 3 < $k) { v.w = w_get(at + 3u); }
#endif
  return v;
}

#if pointwise vec4
fn right(load: u32, k: i32, column: i32) -> vec4<f32> {
  if (k >= $k || column >= $columns) { return vec4<f32>(0.0); }
  return x_get4(u32(place.x + k * $image) / 4u);
}
#else
fn right(load: u32, k: i32, column: i32) -> vec4<f32> {
  var v = vec4<f32>(0.0);
#if pointwise
  let ok = there;
  let at = place + k * $image;
#else
  var tap = taps[load];
  let d = d0 + tap.y * $dilation[0];
  let h = h0 + tap.z * $dilation[1];
  let w = w0 + tap.w * $dilation[2];
  let zero = vec4<i32>(0);
  let ok = (d >= zero) & (d < vec4<i32>($in[0])) & (h >= zero) & (h < vec4<i32>($in[1])) & (w >= zero) & (w < vec4<i32>($in[2]));
  let at = place + tap.x * $image + (d * $in[1] + h) * $in[2] + w;
  tap += vec4<i32>($k_step[0], $k_step[1], $k_step[2], $k_step[3]);
  if (tap.w >= $kernel[2]) { tap.w -= $kernel[2]; tap.z++; }
  if (tap.z >= $kernel[1]) { tap.z -= $kernel[1]; tap.y++; }
  if (tap.y >= $kernel[0]) { tap.y -= $kernel[0]; tap.x++; }
  taps[load] = tap;
#endif
  if (k >= $k) { return v; }
  if (ok.x) { v.x = x_get(u32(at.x)); }
  if (ok.y) { v.y = x_get(u32(at.y)); }
  if (ok.z) { v.z = x_get(u32(at.z)); }
  if (ok.w) { v.w = x_get(u32(at.w)); }
  return v;
}
#endif

fn store(m: i32, column: i32, sum: vec4<f32>) {
  if (m >= $mg || column >= $columns) { return; }
  let channel = group_of * u32($mg) + u32(m);
#if vec4
  let at = (u32(column) / u32($pixels) * u32($m) + channel) * u32($pixels) + u32(column) % u32($pixels);
  var v: vec4<f32>;
  for (var j = 0u; j < 4u; j++) { v[j] = finish(channel, at + j, sum[j]); }
  y_put4(at / 4u, v);
#else
  for (var j = 0u; j < min(4u, u32($columns - column)); j++) {
    let one = u32(column) + j;
    let at = (one / u32($pixels) * u32($m) + channel) * u32($pixels) + one % u32($pixels);
    y_put(at + u32($y_off), finish(channel, at, sum[j]));
  }
#endif
}

@compute @workgroup_size(${lanes})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  group_of = g.z;
  prepare(g.x * BN + index % WIDE * 4u, index);
  multiply(g.y * BM, g.x * BN, $k, index);
}
#elif rows
// Four neighbouring outputs of a row per lane: an input is read once for all of them and for all taps of its row.
const STRIDE = ${stride};
const DILATION = ${dilation};

fn cell(at: i32, there: bool) -> f32 { return select(0.0, x_get(u32(select($x_off, at, there))), there); }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let i = item(wid, nwg, lane);
  if (i >= u32($count)) { return; }
  let ow = i % u32($quads) * 4u;
  let oh = i / u32($quads) % u32($out[1]);
  let plane = i / (u32($quads) * u32($out[1]));
  let channel = plane % u32($m);
  let top = i32(oh) * $stride[1] - $pad[1];
  let left = i32(ow) * STRIDE - $pad[2];
  let corner = i32(plane / u32($m) * u32($c) + channel / u32($mg)) * $image + $x_off + top * $in[2] + left;
  let tap = channel * u32($k) + u32($w_off);
  var x: array<f32, ${reach}>;
  var sum = vec4<f32>(0.0);
#for t ${reach}
  let in${t} = (left + ${t} >= 0) & (left + ${t} < $in[2]);
#end
#for kh ${height}
  let h${kh} = ${kh} * $dilation[1];
  let row${kh} = (top + h${kh} >= 0) & (top + h${kh} < $in[1]);
#for t ${reach}
  x[${t}] = cell(corner + h${kh} * $in[2] + ${t}, row${kh} & in${t});
#end
#for kw ${width}
  sum += w_get(tap + ${kh}u * ${width}u + ${kw}u) *
    vec4<f32>(x[${kw} * DILATION], x[${kw} * DILATION + STRIDE], x[${kw} * DILATION + 2 * STRIDE], x[${kw} * DILATION + 3 * STRIDE]);
#end
#end
  let at = plane * u32($pixels) + oh * u32($out[2]) + ow;
#for j 4
  if (ow + ${j}u < u32($out[2])) { y_put(at + ${j}u + u32($y_off), finish(channel, at + ${j}u, sum[${j}])); }
#end
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
