// y = act(alpha a b + bias) + residual, for a batch: large products through tiles, thin ones in one sweep over the large operand.
#include epilogue

var<private> a_base: i32;
var<private> b_base: i32;
var<private> y_base: i32;
#if residual
var<private> residual_base: i32;
#endif

fn enter(batch: u32) {
  a_base = $aoff;
  b_base = $boff;
  y_base = $yoff;
#if residual
  residual_base = $res_off;
#endif
#if batched
  var rest = i32(batch);
  for (var d = ${nb} - 1; d >= 0; d--) {
    let c = rest % $batch[d];
    rest /= $batch[d];
    a_base += c * $abatch[d];
    b_base += c * $bbatch[d];
    y_base += c * $ybatch[d];
#if residual
    residual_base += c * $resbatch[d];
#endif
  }
#endif
}

#if y.float32
fn finish(i: i32, j: i32, sum: f32) -> f32 {
#if scaled
  var v = $alpha * sum;
#else
  var v = sum;
#endif
#if bias
  v += bias_get(u32(i * $bias_ms + j * $bias_ns));
#endif
#if residual after
  v += residual_get(u32(residual_base + i * $res_rs + j));
#endif
  v = activate(v);
#if residual !after
  v += residual_get(u32(residual_base + i * $res_rs + j));
#endif
  return v;
}
#endif

#if tiled
#include tiles

// Four neighbours along k of one row of a.
fn left(row: i32, k: i32) -> vec4<f32> {
  var v = vec4<f32>(0.0);
  if (row >= $m) { return v; }
  let at = a_base + row * $a_rs + k * $a_cs;
#if a4
  if (k < $k) { v = a_get4(u32(at) / 4u); }
#else
  if (k < $k) { v.x = a_get(u32(at)); }
  if (k + 1 < $k) { v.y = a_get(u32(at + $a_cs)); }
  if (k + 2 < $k) { v.z = a_get(u32(at + 2 * $a_cs)); }
  if (k + 3 < $k) { v.w = a_get(u32(at + 3 * $a_cs)); }
#endif
  return v;
}

#if along
// Four neighbours along k of one column of b.
fn right(load: u32, k: i32, column: i32) -> vec4<f32> {
  var v = vec4<f32>(0.0);
  if (column >= $n) { return v; }
  let at = b_base + k + column * $b_cs;
#if b4
  if (k < $k) { v = b_get4(u32(at) / 4u); }
#else
  if (k < $k) { v.x = b_get(u32(at)); }
  if (k + 1 < $k) { v.y = b_get(u32(at + 1)); }
  if (k + 2 < $k) { v.z = b_get(u32(at + 2)); }
  if (k + 3 < $k) { v.w = b_get(u32(at + 3)); }
#endif
  return v;
}

fn store(i: i32, j: i32, sum: f32) {
  if (i < $m && j < $n) { y_put(u32(y_base + i * $y_rs + j), finish(i, j, sum)); }
}
#else
// Four neighbouring columns of one row of b.
fn right(load: u32, k: i32, column: i32) -> vec4<f32> {
  var v = vec4<f32>(0.0);
  if (k >= $k) { return v; }
  let at = b_base + k * $b_rs + column * $b_cs;
#if b4
  if (column < $n) { v = b_get4(u32(at) / 4u); }
#else
  if (column < $n) { v.x = b_get(u32(at)); }
  if (column + 1 < $n) { v.y = b_get(u32(at + $b_cs)); }
  if (column + 2 < $n) { v.z = b_get(u32(at + 2 * $b_cs)); }
  if (column + 3 < $n) { v.w = b_get(u32(at + 3 * $b_cs)); }
#endif
  return v;
}

fn store(i: i32, j: i32, sum: vec4<f32>) {
  if (i >= $m || j >= $n) { return; }
  let at = u32(y_base + i * $y_rs + j);
#if y4
  var v: vec4<f32>;
  for (var c = 0; c < 4; c++) { v[c] = finish(i, j + c, sum[c]); }
  y_put4(at / 4u, v);
#else
  for (var c = 0; c < min(4, $n - j); c++) { y_put(at + u32(c), finish(i, j + c, sum[c])); }
#endif
}
#endif

@compute @workgroup_size(${lanes})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  enter(g.z);
  multiply(g.y * BM, g.x * BN, $k, index);
}
#elif sweep
// LINES rows (columns) of the thin operand with a block of columns (rows) of the large one: ${large} is read once, whole segments at
// a time, and the sums of its slices along k meet in workgroup memory.
const LINES = ${lines}u;

// Loads have no branches, so that those of TURNS steps are on their way at once.
const TURNS = ${turns}u;

fn thin(line: i32, k: i32) -> f32 {
  let v = ${thin}_get(u32(${thin}_base + min(line, $lines - 1) * $thin_step + min(k, $k - 1) * $thin_k));
  return select(0.0, v, k < $k);
}

fn put(line: i32, at: i32, sum: f32) {
  if (line >= $lines || at >= $length) { return; }
#if rows
  y_put(u32(y_base + line * $y_rs + at), finish(line, at, sum));
#else
  y_put(u32(y_base + at * $y_rs + line), finish(at, line, sum));
#endif
}

#if across
// Neighbours of the block lie side by side: SPAN of them per workgroup.
const SPAN = ${span}u;
const WIDE = ${wide}u;
const LANES = SPAN / WIDE;
const SLICES = 256u / LANES;
alias part = ${part};
const FOLDED = 256u / SPAN;
var<workgroup> sums: array<part, 256>;  // of one line after the other
var<workgroup> folds: array<f32, 256>;

fn large(at: i32, k: i32) -> part {
  let there = (at < $length) & (k < $k);
  let place = u32(select(${large}_base, ${large}_base + at + k * $large_k, there));
#if wide
  return select(part(0.0), ${large}_get4(place / 4u), there);
#else
  return select(part(0.0), ${large}_get(place), there);
#endif
}

// What every FOLDED-th slice from the first on has of a column.
fn folded(column: u32, first: u32) -> f32 {
  var sum = 0.0;
  for (var s = first; s < SLICES; s += FOLDED) {
#if wide
    sum += sums[s * LANES + column / 4u][column % 4u];
#else
    sum += sums[s * LANES + column];
#endif
  }
  return sum;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  enter(g.z);
  let tx = index % LANES;
  let slice = index / LANES;
  let at = i32(g.x * SPAN + tx * WIDE);
  let line = i32(g.y * LINES);
#for r ${lines}
  var acc${r} = part(0.0);
#end
  for (var k = i32(slice); k < $k; k += i32(TURNS * SLICES)) {
#for u ${turns}
    let w${u} = large(at, k + i32(${u}u * SLICES));
#for r ${lines}
    let t${u}_${r} = thin(line + ${r}, k + i32(${u}u * SLICES));
#end
#end
#for u ${turns}
#for r ${lines}
    acc${r} += t${u}_${r} * w${u};
#end
#end
  }
#for r ${lines}
  sums[index] = acc${r};
  workgroupBarrier();
  folds[index] = folded(index % SPAN, index / SPAN);
  workgroupBarrier();
  if (index < SPAN) {
    var sum = 0.0;
    for (var f = 0u; f < FOLDED; f++) { sum += folds[f * SPAN + index]; }
    put(line + ${r}, i32(g.x * SPAN + index), sum);
  }
#end
}
#else
// The sums run along segments: 8 of them per workgroup, 32 lanes each.
var<workgroup> sums: array<f32, 264u * LINES>;  // rows of 33: a column touches every bank

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  enter(g.z);
  let lane = index % 32u;
  let c = index / 32u;
  let at = i32(g.x * 8u + c);
  let line = i32(g.y * LINES);
  let row = ${large}_base + min(at, $length - 1) * $large_step;
#for r ${lines}
  var acc${r} = 0.0;
#end
#if wide
  for (var k0 = i32(lane * 4u); k0 < $k; k0 += i32(128u * TURNS)) {
#for u ${turns}
    let k${u} = k0 + ${u} * 128;
    let w${u} = ${large}_get4(u32(row + select(0, k${u}, k${u} < $k)) / 4u);
#for r ${lines}
#if thin4
    let v${u}_${r} = ${thin}_get4(u32(${thin}_base + min(line + ${r}, $lines - 1) * $thin_step + select(0, k${u}, k${u} < $k)) / 4u);
#else
    let v${u}_${r} =
      vec4<f32>(thin(line + ${r}, k${u}), thin(line + ${r}, k${u} + 1), thin(line + ${r}, k${u} + 2), thin(line + ${r}, k${u} + 3));
#endif
#end
#end
#for u ${turns}
#for r ${lines}
    acc${r} += select(0.0, dot(v${u}_${r}, w${u}), k${u} < $k);
#end
#end
  }
#else
  for (var k0 = i32(lane); k0 < $k; k0 += i32(32u * TURNS)) {
#for u ${turns}
    let k${u} = k0 + ${u} * 32;
    let w${u} = ${large}_get(u32(row + min(k${u}, $k - 1) * $large_k));
#for r ${lines}
    let v${u}_${r} = thin(line + ${r}, k${u});
#end
#end
#for u ${turns}
#for r ${lines}
    acc${r} += select(0.0, v${u}_${r} * w${u}, k${u} < $k);
#end
#end
  }
#endif
#for r ${lines}
  sums[(${r}u * 8u + c) * 33u + lane] = acc${r};
#end
  workgroupBarrier();
  if (index < 32u * LINES) {
    let place = index / 4u * 33u + index % 4u;
    var sum = 0.0;
    for (var s = 0u; s < 32u; s += 4u) { sum += sums[place + s]; }
    sums[place] = sum;
  }
  workgroupBarrier();
  if (index >= 8u * LINES) { return; }
  var sum = 0.0;
  for (var s = 0u; s < 4u; s++) { sum += sums[index * 33u + s]; }
  put(line + i32(index / 8u), i32(g.x * 8u + index % 8u), sum);
}
#endif
#else
// One output per lane: small products, and those of integers.
#if wide
#include int64
#endif
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let at = item(wid, nwg, lane);
  if (at >= u32($count)) { return; }
  let j = i32(at % u32($n));
  let i = i32(at / u32($n) % u32($m));
  enter(at / (u32($n) * u32($m)));
  let p = a_base + i * $a_rs;
  let q = b_base + j * $b_cs;
  var sum = y_t();
  for (var k = 0; k < $k; k++) {
#if wide
    sum = add64(sum, mul64(a_get(u32(p + k * $a_cs)), b_get(u32(q + k * $b_rs))));
#else
    sum += a_get(u32(p + k * $a_cs)) * b_get(u32(q + k * $b_rs));
#endif
  }
#if y.float32
  sum = finish(i, j, sum);
#elif wide
#if bias
  sum = add64(sum, bias_get(u32(i * $bias_ms + j * $bias_ns)));
#endif
#if residual
  sum = add64(sum, residual_get(u32(residual_base + i * $res_rs + j)));
#endif
#else
#if bias
  sum += bias_get(u32(i * $bias_ms + j * $bias_ns));
#endif
#if residual
  sum += residual_get(u32(residual_base + i * $res_rs + j));
#endif
#endif
  y_put(u32(y_base + i * $y_rs + j), sum);
}
#endif
