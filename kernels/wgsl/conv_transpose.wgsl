// The input coordinate that reaches output o through tap k along an axis; -1 where none does.
fn source(o: i32, k: i32, axis: u32) -> i32 {
  let at = o + $pad[axis] - k * $dilation[axis];
  let i = at / $stride[axis];
  return select(-1, i, at >= 0 && i * $stride[axis] == at && i < $in[axis]);
}

fn element(i: u32) -> y_t {
  let pixel = i32(i % u32($pixels));
  let plane = i32(i / u32($pixels));
  let channel = plane % $m;
  let first = channel / $mg * $cg;  // of the group's input channels
  let images = (plane / $m * $c + first) * $image + $x_off;
  let weights = (first * $mg + channel % $mg) * $taps + $w_off;
  let od = pixel / ($out[1] * $out[2]);
  let oh = pixel / $out[2] % $out[1];
  let ow = pixel % $out[2];
  var sum = 0.0;
#if bias
  sum = bias_get(u32(channel + $bias_off));
#endif
  for (var kd = 0; kd < $kernel[0]; kd++) {
    let d = source(od, kd, 0u);
    if (d < 0) { continue; }
    for (var kh = 0; kh < $kernel[1]; kh++) {
      let h = source(oh, kh, 1u);
      if (h < 0) { continue; }
      for (var kw = 0; kw < $kernel[2]; kw++) {
        let w = source(ow, kw, 2u);
        if (w < 0) { continue; }
        var x_at = images + (d * $in[1] + h) * $in[2] + w;
        var w_at = weights + (kd * $kernel[1] + kh) * $kernel[2] + kw;
        for (var c = 0; c < $cg; c++) {
          sum += x_get(u32(x_at)) * w_get(u32(w_at));
          x_at += $image;
          w_at += $mg * $taps;
        }
      }
    }
  }
  return sum;
}
#include elements
