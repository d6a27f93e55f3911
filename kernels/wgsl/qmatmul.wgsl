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
#include bytes
// 32 rows by 32 columns per workgroup, 4 by 4 of them a lane's; a step takes 16 of k.
const SIDE = 32u;
const DEEP = 4u;
var<workgroup> lefts: array<u32, 128>;  // by (k / 4, row)
var<workgroup> rights: array<u32, 128>;  // by (k / 4, column)

// Bytes k to k + 3 of a row of a.
fn left(base: i32, row: i32, k: i32) -> u32 {
  if (row >= $rows || k >= $depth) { return 0u; }
  let at = base + row * $a_rs + k * $a_cs;
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
fn right(base: i32, column: i32, k: i32) -> u32 {
  if (column >= $columns || k >= $depth) { return 0u; }
  let at = base + k * $b_rs + column * $b_cs;
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

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($batches)) { return; }
  var a_base = $aoff;
  var b_base = $boff;
#if residual
  var residual_base = $res_off;
#endif
#if batched
  var rest = i32(g.z);
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
  let i0 = i32(g.y * SIDE);
  let j0 = i32(g.x * SIDE);
  let tx = lane % 8u;
  let ty = lane / 8u;
#for r 4
  var s${r} = vec4<i32>(0);
#end
  var rows = vec4<i32>(0);  // sums of a alone, and of b, which zero points multiply
  var columns = vec4<i32>(0);
  for (var k0 = 0; k0 < $depth; k0 += 16) {
    for (var at = lane; at < DEEP * SIDE; at += 64u) {
#if b_across
      let column = at % SIDE;
      let v = at / SIDE;
#else
      let column = at / DEEP;
      let v = at % DEEP;
#endif
      rights[v * SIDE + column] = right(b_base, j0 + i32(column), k0 + i32(4u * v));
      lefts[at % DEEP * SIDE + at / DEEP] = left(a_base, i0 + i32(at / DEEP), k0 + i32(4u * (at % DEEP)));
    }
    workgroupBarrier();
    for (var v = 0u; v < DEEP; v++) {
      let p = v * SIDE + ty * 4u;
      let q = v * SIDE + tx * 4u;
#for c 4
      let b${c} = rights[q + ${c}u];
      columns[${c}] += dot4(b${c}, 0x01010101u);
#end
#for r 4
      let a${r} = lefts[p + ${r}u];
      rows[${r}] += dot4(a${r}, 0x01010101u);
      s${r} += vec4<i32>(dot4(a${r}, b0), dot4(a${r}, b1), dot4(a${r}, b2), dot4(a${r}, b3));
#end
    }
    workgroupBarrier();
  }
  let sums = array<vec4<i32>, 4>(s0, s1, s2, s3);
  for (var r = 0u; r < 4u; r++) {
    let i = i0 + i32(ty * 4u + r);
    if (i >= $rows) { break; }
    var za = left_zero(i);
#if a.uint8
    za -= 128;
#endif
    for (var c = 0u; c < 4u; c++) {
      let j = j0 + i32(tx * 4u + c);
      if (j >= $columns) { break; }
      var zb = right_zero(j);
#if b.uint8
      zb -= 128;
#endif
      let sum = sums[r][c] - za * columns[c] - zb * rows[r] + $depth * za * zb;
#if residual
      let residual_at = residual_base + i * $res_rs + j;
#else
      let residual_at = 0;
#endif
      y_put(u32($y_off + (i32(g.z) * $rows + i) * $columns + j), finish(i, j, residual_at, sum));
    }
  }
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
