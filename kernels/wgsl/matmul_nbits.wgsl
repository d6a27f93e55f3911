// y = act(alpha a b + bias) + residual with weights of ${bits} bits: halves, or codes in words, in blocks along k with a scale each.
// Through tiles, or for few rows in one sweep over the words.
#include epilogue

#if scale
const PER = 32 / ${bits};
const MASK = (1u << ${bits}u) - 1u;

// What a code is less, times the scale where it is a float.
fn zero_of(block: u32) -> f32 {
#if shift
  return f32(shift_get(block));
#else
  return f32(1u << (${bits}u - 1u));
#endif
}

// What is taken off the codes of a block, times the scale.
fn offset_of(zero: f32, scale: f32) -> f32 {
#if shift !shift.uint8
  return zero;
#else
  return zero * scale;
#endif
}
#else
fn weight(k: i32, column: i32) -> f32 { return b_get(u32(column * $depth + k)); }
#endif

fn finish(i: i32, j: i32, sum: f32) -> f32 {
  var v = $alpha * sum;
#if bias
  v += bias_get(u32(i * $bias_ms + j * $bias_ns));
#endif
#if residual after
  v += residual_get(u32($res_off + i * $res_rs + j));
#endif
  v = activate(v);
#if residual !after
  v += residual_get(u32($res_off + i * $res_rs + j));
#endif
  return v;
}

#if tiled
#include tiles

fn left(row: i32, k: i32) -> vec4<f32> {
  var v = vec4<f32>(0.0);
  if (row >= $rows) { return v; }
  let at = u32($aoff + row * $a_rs + k);
#if a4
  if (k < $depth) { v = a_get4(at / 4u); }
#else
  if (k < $depth) { v.x = a_get(at); }
  if (k + 1 < $depth) { v.y = a_get(at + 1u); }
  if (k + 2 < $depth) { v.z = a_get(at + 2u); }
  if (k + 3 < $depth) { v.w = a_get(at + 3u); }
#endif
  return v;
}

#if scale
// A word of codes, its scale, and what holds its zero, from a bit on. Nothing is done with them yet, as they are still on their way.
// Of the loads of a lane, those that follow each other share a word.
const SHARE = min(u32(PER) / 4u, ${right_loads}u);
var<private> fetched: vec4<u32>;

fn right(load: u32, k: i32, column: i32) -> vec4<u32> {
  if (load % SHARE > 0u) { return fetched; }
  fetched = vec4<u32>(0u);
  if (k < $depth && column < $columns) {
    let block = u32(column * $blocks + k / ${block});
    fetched.x = b_get(u32(column * $words + k / PER));
    fetched.y = bitcast<u32>(scale_get(block));
#if shift.uint8
    fetched.z = shift_word(block);
    fetched.w = (block + u32($shift_at)) % 4u * 8u;
#else
    fetched.z = bitcast<u32>(zero_of(block));
#endif
  }
  return fetched;
}

// Weights k to k + 3.
fn decoded(k: i32, v: vec4<u32>) -> vec4<f32> {
  let codes = (vec4<u32>(v.x >> u32(k % PER * ${bits})) >> (vec4<u32>(0u, 1u, 2u, 3u) * ${bits}u)) & vec4<u32>(MASK);
  let scale = bitcast<f32>(v.y);
#if shift.uint8
  let zero = f32((v.z >> v.w) & 255u);
#else
  let zero = bitcast<f32>(v.z);
#endif
  let weights = vec4<f32>(codes) * scale - offset_of(zero, scale);
#if a4
  return weights;
#else
  return select(weights, vec4<f32>(0.0), vec4<i32>(k) + vec4<i32>(0, 1, 2, 3) >= vec4<i32>($depth));
#endif
}
#else
fn right(load: u32, k: i32, column: i32) -> vec4<f32> {
  var v = vec4<f32>(0.0);
  if (column >= $columns) { return v; }
  if (k < $depth) { v.x = weight(k, column); }
  if (k + 1 < $depth) { v.y = weight(k + 1, column); }
  if (k + 2 < $depth) { v.z = weight(k + 2, column); }
  if (k + 3 < $depth) { v.w = weight(k + 3, column); }
  return v;
}
#endif

fn store(i: i32, j: i32, sum: f32) {
  if (i < $rows && j < $columns) { y_put(u32($yoff + i * $y_rs + j), finish(i, j, sum)); }
}

@compute @workgroup_size(${lanes})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  multiply(g.y * BM, g.x * BN, $depth, index);
}
#elif packs
// TEAM lanes share a column: each takes a pack of codes within one block, a word or a vector of them, of COLUMNS columns and LINES
// rows, and TURNS packs at the same time.
const LINES = ${lines}u;
const COLUMNS = ${columns}u;
const TEAM = ${team}u;
const TURNS = ${turns}u;
const GROUPS = 256u / TEAM;
const PACK = 4 * ${vectors};
const OUTPUTS = GROUPS * COLUMNS * LINES;
const FOLD = TEAM / 8u;
var<workgroup> sums: array<f32, (TEAM + 1u) * OUTPUTS>;  // rows of one more than TEAM: a column touches every bank

fn left(line: i32, k: i32) -> vec4<f32> {
  let there = k < $depth;
  return select(vec4<f32>(0.0), a_get4(u32(select(0, $aoff + min(line, $rows - 1) * $a_rs + k, there)) / 4u), there);
}

// Four codes from a bit of a word on, as weights but for the scale: `zero` is what a code is less.
fn four(word: u32, bit: u32, scale: f32, zero: f32) -> vec4<f32> {
  let codes = vec4<f32>((vec4<u32>(word) >> (vec4<u32>(0u, ${bits}u, 2u * ${bits}u, 3u * ${bits}u) + bit)) & vec4<u32>(MASK));
#if shift !shift.uint8
  return codes * scale - zero;
#else
  return codes - zero;
#endif
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  let lane = index % TEAM;
  let team = index / TEAM;
  let first = g.x * GROUPS * COLUMNS;
  let line = i32(g.y * LINES);
#for c ${columns}
  let column${c} = min(i32(first + ${c}u * GROUPS + team), $columns - 1);
#for r ${lines}
  var sum${r}_${c} = 0.0;
#end
#end
  let packs = $depth / PACK + i32($depth % PACK > 0);
  for (var pack = i32(lane); pack < packs; pack += i32(TEAM * TURNS)) {
#for u ${turns}
    let k${u} = (pack + ${u} * i32(TEAM)) * PACK;
    let there${u} = k${u} < $depth;
    let at${u} = min(pack + ${u} * i32(TEAM), packs - 1);
#for c ${columns}
#if vectors
    let words${u}_${c} = b_get4(u32(column${c} * ($words / 4) + at${u}));
#else
    let words${u}_${c} = vec4<u32>(b_get(u32(column${c} * $words + at${u})));
#endif
    let block${u}_${c} = u32(column${c} * $blocks + at${u} * PACK / ${block});
    let scale${u}_${c} = select(0.0, scale_get(block${u}_${c}), there${u});
    let zero${u}_${c} = select(0.0, zero_of(block${u}_${c}), there${u});
#end
#for r ${lines}
#for i ${vectors}
    let a${u}_${r}_${i} = left(line + ${r}, k${u} + ${i} * 4);
#end
#end
#end
#for u ${turns}
#for c ${columns}
#for r ${lines}
    var part${u}_${r}_${c} = 0.0;
#end
#for i ${vectors}
    let b${u}_${c}_${i} = four(words${u}_${c}[${i}u * ${bits}u / 8u], ${i}u * ${bits}u % 8u * 4u, scale${u}_${c}, zero${u}_${c});
#for r ${lines}
    part${u}_${r}_${c} += dot(a${u}_${r}_${i}, b${u}_${c}_${i});
#end
#end
#for r ${lines}
#if shift !shift.uint8
    sum${r}_${c} += part${u}_${r}_${c};
#else
    sum${r}_${c} += part${u}_${r}_${c} * scale${u}_${c};
#endif
#end
#end
#end
  }
#for c ${columns}
#for r ${lines}
  sums[((${r}u * COLUMNS + ${c}u) * GROUPS + team) * (TEAM + 1u) + lane] = sum${r}_${c};
#end
#end
  workgroupBarrier();
  for (var at = index; at < OUTPUTS * FOLD; at += 256u) {
    let place = at / FOLD * (TEAM + 1u) + at % FOLD;
    var sum = 0.0;
    for (var i = 0u; i < 8u; i++) { sum += sums[place + i * FOLD]; }
    sums[place] = sum;
  }
  workgroupBarrier();
  for (var at = index; at < OUTPUTS; at += 256u) {
    let column = i32(first + at % (GROUPS * COLUMNS));
    let row = line + i32(at / (GROUPS * COLUMNS));
    if (column < $columns && row < $rows) {
      var sum = 0.0;
      for (var i = 0u; i < FOLD; i++) { sum += sums[at * (TEAM + 1u) + i]; }
      y_put(u32($yoff + row * $y_rs + column), finish(row, column, sum));
    }
  }
}
#else
// LINES rows with 8 columns, each shared by 8 lanes.
const LINES = ${lines};
var<workgroup> sums: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  let column = i32(g.x * 8u + index / 8u);
  let row = i32(g.y) * LINES;
  var acc: array<f32, LINES>;
  if (column < $columns) {
#if scale
    for (var word = i32(index % 8u); word * PER < $depth; word += 8) {
      let codes = b_get(u32(column * $words + word));
      let block = u32(column * $blocks + word * PER / ${block});
      let scale = scale_get(block);
      let offset = offset_of(zero_of(block), scale);
      for (var i = 0; i < min(PER, $depth - word * PER); i++) {
        let w = f32((codes >> u32(i * ${bits})) & MASK) * scale - offset;
        for (var r = 0; r < LINES; r++) { acc[r] += w * a_get(u32($aoff + min(row + r, $rows - 1) * $a_rs + word * PER + i)); }
      }
    }
#else
    for (var k = i32(index % 8u); k < $depth; k += 8) {
      let w = weight(k, column);
      for (var r = 0; r < LINES; r++) { acc[r] += w * a_get(u32($aoff + min(row + r, $rows - 1) * $a_rs + k)); }
    }
#endif
  }
  for (var r = 0; r < LINES; r++) {
    sums[index] = acc[r];
    workgroupBarrier();
    if (index % 8u == 0u && column < $columns && row + r < $rows) {
      var sum = 0.0;
      for (var i = 0u; i < 8u; i++) { sum += sums[index + i]; }
      y_put(u32($yoff + (row + r) * $y_rs + column), finish(row + r, column, sum));
    }
    workgroupBarrier();
  }
}
#endif
