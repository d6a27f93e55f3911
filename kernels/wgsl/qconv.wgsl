// Convolution of bytes less their zero points: a product of weights [m, k] with windows [k, pixel] over tiles, else one output at a
// time; the sum, or what follows it.
#if scale
#include epilogue
#include quantised
#endif

fn weight_zero(channel: i32) -> i32 {
#if wzero
  return i32(wzero_get(u32($wzero_off + channel * $wzero_ms)));
#else
  return 0;
#endif
}

fn input_zero() -> i32 {
#if xzero
  return i32(xzero_get(u32($xzero_off)));
#else
  return 0;
#endif
}

fn finish(channel: i32, at: u32, sum: i32) -> y_t {
#if scale
  var v = f32(sum) * scale_get(u32($scale_off + channel * $scale_ms));
#if bias
  v += bias_get(u32($bias_off + channel));
#endif
#if residual after
  v += residual_get(at + u32($residual_off));
#endif
  v = activate(v);
#if residual !after
  v += residual_get(at + u32($residual_off));
#endif
  return result(v);
#else
  return sum;
#endif
}

#if tiled
#include byte_tiles

var<private> group_of: i32;

fn left_less(m: i32) -> i32 {
  let zero = weight_zero(group_of * $mg + min(m, $mg - 1));
#if w.uint8
  return zero - 128;
#else
  return zero;
#endif
}

fn right_less(column: i32) -> i32 {
#if x.uint8
  return input_zero() - 128;
#else
  return input_zero();
#endif
}

// Weights k to k + 3 of a channel.
fn left(m: i32, k: i32) -> u32 {
  if (m >= $mg || k >= $k) { return 0u; }
  let at = (group_of * $mg + m) * $k + k + $w_off;
  var word = 0u;
#if w4
  word = w_word(u32(at));
#else
  for (var e = 0; e < min(4, $k - k); e++) { word |= (u32(w_get(u32(at + e))) & 255u) << u32(8 * e); }
#endif
#if w.uint8
  word ^= 0x80808080u;
#endif
  return first_bytes(word, $k - k);
}

// What the window of a pixel has at k to k + 3, k counting (channel, tap).
fn right(column: i32, k: i32) -> u32 {
  if (column >= $columns || k >= $k) { return 0u; }
  let pixel = column % $pixels;
  let images = (column / $pixels * $c + group_of * $cg) * $image + $x_off;
  var word = 0u;
#if pointwise
  let at = images + k * $image + pixel;
  for (var e = 0; e < min(4, $k - k); e++) { word |= (u32(x_get(u32(at + e * $image))) & 255u) << u32(8 * e); }
#else
  let d0 = pixel / ($out[1] * $out[2]) * $stride[0] - $pad[0];
  let h0 = pixel / $out[2] % $out[1] * $stride[1] - $pad[1];
  let w0 = pixel % $out[2] * $stride[2] - $pad[2];
  var channel = k / $taps;
  var kd = k / ($kernel[1] * $kernel[2]) % $kernel[0];
  var kh = k / $kernel[2] % $kernel[1];
  var kw = k % $kernel[2];
  for (var e = 0; e < min(4, $k - k); e++) {
    let d = d0 + kd * $dilation[0];
    let h = h0 + kh * $dilation[1];
    let w = w0 + kw * $dilation[2];
    var v = u32(input_zero());
    if (d >= 0 && d < $in[0] && h >= 0 && h < $in[1] && w >= 0 && w < $in[2]) {
      v = u32(x_get(u32(images + channel * $image + (d * $in[1] + h) * $in[2] + w)));
    }
    word |= (v & 255u) << u32(8 * e);
    kw++;
    if (kw == $kernel[2]) { kw = 0; kh++; }
    if (kh == $kernel[1]) { kh = 0; kd++; }
    if (kd == $kernel[0]) { kd = 0; channel++; }
  }
#endif
#if x.uint8
  word ^= 0x80808080u;
#endif
  return first_bytes(word, $k - k);
}

fn store(m: i32, column: i32, sum: vec4<i32>) {
  if (m >= $mg || column >= $columns) { return; }
  let channel = group_of * $mg + m;
#if words
  let at = u32((column / $pixels * $m + channel) * $pixels + column % $pixels);
  var bits = 0u;
  for (var j = 0u; j < 4u; j++) { bits |= y_bits(finish(channel, at + j, sum[j])) << (8u * j); }
  y_put_word(at / 4u, bits);
#else
  for (var j = 0; j < min(4, $columns - column); j++) {
    let one = column + j;
    let at = u32((one / $pixels * $m + channel) * $pixels + one % $pixels);
    y_put(at + u32($y_off), finish(channel, at, sum[j]));
  }
#endif
}

@compute @workgroup_size(${lanes})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  group_of = i32(g.z);
  multiply(g.y * SIDE, g.x * SIDE, $k, index);
}
#else
fn element(at: u32) -> y_t {
  let pixel = i32(at % u32($pixels));
  let plane = i32(at / u32($pixels));
  let channel = plane % $m;
  let images = (plane / $m * $c + channel / $mg * $cg) * $image + $x_off;
  let weights = channel * $k + $w_off;
  let d0 = pixel / ($out[1] * $out[2]) * $stride[0] - $pad[0];
  let h0 = pixel / $out[2] % $out[1] * $stride[1] - $pad[1];
  let w0 = pixel % $out[2] * $stride[2] - $pad[2];
  let zx = input_zero();
  let zw = weight_zero(channel);
  var sum = 0;
  for (var kd = 0; kd < $kernel[0]; kd++) {
    let d = d0 + kd * $dilation[0];
    if (d < 0 || d >= $in[0]) { continue; }
    for (var kh = 0; kh < $kernel[1]; kh++) {
      let h = h0 + kh * $dilation[1];
      if (h < 0 || h >= $in[1]) { continue; }
      for (var kw = 0; kw < $kernel[2]; kw++) {
        let w = w0 + kw * $dilation[2];
        if (w < 0 || w >= $in[2]) { continue; }
        var x_at = images + (d * $in[1] + h) * $in[2] + w;
        var w_at = weights + (kd * $kernel[1] + kh) * $kernel[2] + kw;
        for (var c = 0; c < $cg; c++) {
          sum += (i32(x_get(u32(x_at))) - zx) * (i32(w_get(u32(w_at))) - zw);
          x_at += $image;
          w_at += $taps;
        }
      }
    }
  }
  return finish(channel, at, sum);
}
#include elements
#endif
