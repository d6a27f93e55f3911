#include math

fn reached(start: i32, axis: u32, low: i32, high: i32) -> i32 {  // taps of a window that fall into [low, high)
  let step = $dilation[axis];
  let first = max((low - start + step - 1) / step, 0);
  let end = min((high - start + step - 1) / step, $kernel[axis]);
  return max(select(end, 0, high <= start) - select(first, 0, low <= start), 0);
}

fn element(i: u32) -> y_t {
  let pixel = i32(i % u32($pixels));
  let plane = i32(i / u32($pixels));
  let d0 = pixel / ($out[1] * $out[2]) * $stride[0] - $pad[0];
  let h0 = pixel / $out[2] % $out[1] * $stride[1] - $pad[1];
  let w0 = pixel % $out[2] * $stride[2] - $pad[2];
  var best = ${lowest};
  var place = -1;
  for (var kd = 0; kd < $kernel[0]; kd++) {
    let d = d0 + kd * $dilation[0];
    if (d < 0 || d >= $in[0]) { continue; }
    for (var kh = 0; kh < $kernel[1]; kh++) {
      let h = h0 + kh * $dilation[1];
      if (h < 0 || h >= $in[1]) { continue; }
      let row = plane * $image + (d * $in[1] + h) * $in[2];
      for (var kw = 0; kw < $kernel[2]; kw++) {
        let w = w0 + kw * $dilation[2];
        if (w < 0 || w >= $in[2]) { continue; }
        let v = x_get(u32(row + w + $x_off));
#if max float
        let better = v > best || (is_nan(v) && !is_nan(best)) || place < 0;
        best = select(best, v, better);
        place = select(place, (d * $in[1] + h) * $in[2] + w, better);
#elif max
        let better = v > best || place < 0;
        best = select(best, v, better);
        place = select(place, (d * $in[1] + h) * $in[2] + w, better);
#elif average
        best += v;
#elif square
        best += v * v;
#else
        best += pow_f(abs(v), $p);
#endif
      }
    }
  }
#if indices
  var where_to = place;
#if column_major
  where_to = ((place % $in[2]) * $in[1] + place / $in[2] % $in[1]) * $in[0] + place / ($in[1] * $in[2]);
#endif
  let at = select(plane * $image + where_to, -1, place < 0);
  indices_put(i + u32($indices_off), vec2<u32>(bitcast<u32>(at), select(0u, 0xffffffffu, at < 0)));
#endif
#if average
#if whole
  let count = reached(d0, 0u, -$pad[0], $in[0] + $pad_end[0]) * reached(h0, 1u, -$pad[1], $in[1] + $pad_end[1])
    * reached(w0, 2u, -$pad[2], $in[2] + $pad_end[2]);
#else
  let count = reached(d0, 0u, 0, $in[0]) * reached(h0, 1u, 0, $in[1]) * reached(w0, 2u, 0, $in[2]);
#endif
  if (count == 0) { return 0.0; }
  return best / f32(count);
#elif square
  return sqrt(best);
#elif power
  return pow_f(best, 1.0 / $p);
#else
  return best;
#endif
}
#include elements
