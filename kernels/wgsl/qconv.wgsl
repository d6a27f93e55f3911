// Convolution of bytes less their zero points, one output per lane; the sum, or what follows it.
#if scale
#include epilogue
#endif

fn element(at: u32) -> y_t {
  let pixel = i32(at % u32($pixels));
  let plane = i32(at / u32($pixels));
  let channel = plane % $m;
  let images = (plane / $m * $c + channel / $mg * $cg) * $image + $x_off;
  let weights = channel * $cg * $taps + $w_off;
  let d0 = pixel / ($out[1] * $out[2]) * $stride[0] - $pad[0];
  let h0 = pixel / $out[2] % $out[1] * $stride[1] - $pad[1];
  let w0 = pixel % $out[2] * $stride[2] - $pad[2];
  var zx = 0;
  var zw = 0;
#if xzero
  zx = i32(xzero_get(u32($xzero_off)));
#endif
#if wzero
  zw = i32(wzero_get(u32($wzero_off + channel * $wzero_ms)));
#endif
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
  return v;
#else
  return sum;
#endif
}
#include elements
