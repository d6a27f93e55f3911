// Products of bytes less their zero points: tiles of words of four bytes along k where there is enough, else one output per lane.
#if scale
#include epilogue
#include quantised
#endif

fn left_zero(i: i32) -> i32 {
#if azero
  return i32(azero_get(u32($azero_off + i * $azero_ms)));
#else
  return 0;
#endif
}

fn right_zero(j: i32) -> i32 {
#if bzero
  return i32(bzero_get(u32($bzero_off + j * $bzero_ns)));
#else
  return 0;
#endif
}

fn finish(i: i32, j: i32, residual_at: i32, sum: i32) -> y_t {
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
  return result(v);
#else
  return sum;
#endif
}

#if tiled
#include byte_tiles
var<private> a_base: i32;
var<private> b_base: i32;
var<private> y_base: i32;
#if residual
var<private> residual_base: i32;
#endif

fn enter(batch: i32) {
  a_base = $aoff;
  b_base = $boff;
  y_base = batch * $rows * $columns;
#if residual
  residual_base = $res_off;
#endif
#if batched
  var rest = batch;
  for (var d = ${nb} - 1; d >= 0; d--) {
    let c = rest % $batch[d];
    rest /= $batch[d];
    a_base += c * $abatch[d];
    b_base += c * $bbatch[d];
#if residual
    residual_base += c * $resbatch[d];
#endif
  }
#endif
}

fn left_less(i: i32) -> i32 {
#if a.uint8
  return left_zero(i) - 128;
#else
  return left_zero(i);
#endif
}

fn right_less(j: i32) -> i32 {
#if b.uint8
  return right_zero(j) - 128;
#else
  return right_zero(j);
#endif
}

// Bytes k to k + 3 of a row of a.
fn left(row: i32, k: i32) -> u32 {
  if (row >= $rows || k >= $depth) { return 0u; }
  let at = a_base + row * $a_rs + k * $a_cs;
  var word = 0u;
#if a4
  word = a_word(u32(at));
#else
  for (var e = 0; e < min(4, $depth - k); e++) { word |= (u32(a_get(u32(at + e * $a_cs))) & 255u) << u32(8 * e); }
#endif
#if a.uint8
  word ^= 0x80808080u;
#endif
  return first_bytes(word, $depth - k);
}

// Bytes k to k + 3 of a column of b.
fn right(column: i32, k: i32) -> u32 {
  if (column >= $columns || k >= $depth) { return 0u; }
  let at = b_base + k * $b_rs + column * $b_cs;
  var word = 0u;
#if b4
  word = b_word(u32(at));
#else
  for (var e = 0; e < min(4, $depth - k); e++) { word |= (u32(b_get(u32(at + e * $b_rs))) & 255u) << u32(8 * e); }
#endif
#if b.uint8
  word ^= 0x80808080u;
#endif
  return first_bytes(word, $depth - k);
}

fn store(i: i32, j: i32, sum: vec4<i32>) {
  if (i >= $rows) { return; }
#if residual
  let residual_at = residual_base + i * $res_rs + j;
#else
  let residual_at = 0;
#endif
#if words
  if (j >= $columns) { return; }
  var bits = 0u;
  for (var c = 0; c < 4; c++) { bits |= y_bits(finish(i, j + c, residual_at + c, sum[c])) << u32(8 * c); }
  y_put_word(u32(y_base + i * $columns + j) / 4u, bits);
#else
  for (var c = 0; c < min(4, $columns - j); c++) {
    y_put(u32($y_off + y_base + i * $columns + j + c), finish(i, j + c, residual_at + c, sum[c]));
  }
#endif
}

@compute @workgroup_size(${lanes})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  enter(i32(g.z));
  multiply(g.y * SIDE, g.x * SIDE, $depth, index);
}
#else
fn element(at: u32) -> y_t {
  var rest = i32(at);
  let j = rest % $columns;
  rest /= $columns;
  let i = rest % $rows;
  rest /= $rows;
  var a_at = $aoff + i * $a_rs;
  var b_at = $boff + j * $b_cs;
  var residual_at = 0;
#if residual
  residual_at = $res_off + i * $res_rs + j;
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
  let za = left_zero(i);
  let zb = right_zero(j);
  var sum = 0;
  for (var k = 0; k < $depth; k++) {
    sum += (i32(a_get(u32(a_at))) - za) * (i32(b_get(u32(b_at))) - zb);
    a_at += $a_cs;
    b_at += $b_rs;
  }
  return finish(i, j, residual_at, sum);
}
#include elements
#endif
