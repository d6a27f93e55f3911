// Products of bytes less their zero points, one output per lane; the sum, or what follows it.
#if scale
#include epilogue
#endif

fn element(at: u32) -> y_t {
  var rest = i32(at);
  let j = rest % $columns;
  rest /= $columns;
  let i = rest % $rows;
  rest /= $rows;
  var a_at = $aoff + i * $a_rs;
  var b_at = $boff + j * $b_cs;
#if residual
  var residual_at = $res_off + i * $res_rs + j;
#endif
#if batched
  for (var d = ${nb} - 1; d >= 0; d--) {
    let c = rest % $batch[d];
    rest /= $batch[d];
    a_at += c * $abatch[d];
    b_at += c * $bbatch[d];
#if residual
    residual_at += c * $resbatch[d];
#endif
  }
#endif
  var za = 0;
  var zb = 0;
#if azero
  za = i32(azero_get(u32($azero_off + i * $azero_ms)));
#endif
#if bzero
  zb = i32(bzero_get(u32($bzero_off + j * $bzero_ns)));
#endif
  var sum = 0;
  for (var k = 0; k < $depth; k++) {
    sum += (i32(a_get(u32(a_at))) - za) * (i32(b_get(u32(b_at))) - zb);
    a_at += $a_cs;
    b_at += $b_rs;
  }
#if scale
  var v = $alpha * (f32(sum) * scale_get(u32($scale_off + i * $scale_ms + j * $scale_ns)));
#if bias
  v += bias_get(u32($bias_off + i * $bias_ms + j * $bias_ns));
#endif
#if residual after
  v += residual_get(u32(residual_at));
#endif
  v = activate(v);
#if residual !after
  v += residual_get(u32(residual_at));
#endif
  return v;
#else
  return sum;
#endif
}
#include elements
