// softmax(softcap(scale q k') + mask) v in one sweep over the keys: the largest score so far, the sum and the outputs are kept up to date.
#include math

var<private> q_base: i32;
var<private> k_base: i32;
var<private> v_base: i32;
var<private> y_base: i32;
#if mask
var<private> m_base: i32;
#endif

fn enter(head: u32) {
  let b = i32(head) / $heads;
  let h = i32(head) % $heads;
  q_base = $qoff + b * $q_b + h * $q_h;
  k_base = $koff + b * $k_b + h / $rep * $k_h;
  v_base = $voff + b * $v_b + h / $rep * $v_h;
  y_base = $yoff + b * $y_b + h * $y_h;
#if mask
  m_base = $moff + b * $m_b + h * $m_h;
#endif
}

fn lowest() -> f32 { return from_bits(0xff800000u); }

// The score of key j for query i, from their product. Without branches, so `&` and not `&&`: a lane has
// sixteen of them, and SwiftShader takes minutes to compile as many conditional blocks.
fn score(i: i32, j: i32, product: f32) -> f32 {
#if causal
  let there = (i < $sq) & (j < $sk) & (j <= i + $past);
#else
  let there = (i < $sq) & (j < $sk);
#endif
  var s = product * $scale;
#if capped
  s = $softcap * tanh_f(s / $softcap);
#endif
#if mask
  s += mask_get(select(0u, u32(m_base + i * $m_q + j * $m_k), there));
#endif
  return select(lowest(), s, there);
}

// exp_f(s - top); 0 for a key that is masked with -infinity, also while every key is.
fn weight(s: f32, top: f32) -> f32 { return select(exp_f(s - top), 0.0, bitcast<u32>(s) == 0xff800000u); }

// What a row is multiplied by when all its keys are masked.
fn hidden() -> f32 {
#if nan_rows
  return select(0.0, from_bits(0x7fc00000u), $sk > 0);
#else
  return 0.0;
#endif
}

// Loads without branches, so that many are on their way at once.
fn query4(i: i32, t: i32) -> vec4<f32> {
  let there = i < $sq;
  let at = q_base + i * $q_s + t;
#if q4
  let ok = there & (t < $d);
  return select(vec4<f32>(0.0), q_get4(u32(select(0, at, ok)) / 4u), ok);
#else
  let ok = vec4<bool>(there) & (vec4<i32>(t) + vec4<i32>(0, 1, 2, 3) < vec4<i32>($d));
  let e = vec4<u32>(select(vec4<i32>(0), vec4<i32>(at) + vec4<i32>(0, 1, 2, 3), ok));
  return select(vec4<f32>(0.0), vec4<f32>(q_get(e.x), q_get(e.y), q_get(e.z), q_get(e.w)), ok);
#endif
}

fn key4(j: i32, t: i32) -> vec4<f32> {
  let there = j < $sk;
  let at = k_base + j * $k_s + t * $k_d;
#if k4
  let ok = there & (t < $d);
  return select(vec4<f32>(0.0), k_get4(u32(select(0, at, ok)) / 4u), ok);
#else
  let ok = vec4<bool>(there) & (vec4<i32>(t) + vec4<i32>(0, 1, 2, 3) < vec4<i32>($d));
  let e = vec4<u32>(select(vec4<i32>(0), vec4<i32>(at) + vec4<i32>(0, 1, 2, 3) * $k_d, ok));
  return select(vec4<f32>(0.0), vec4<f32>(k_get(e.x), k_get(e.y), k_get(e.z), k_get(e.w)), ok);
#endif
}

fn value4(j: i32, c: i32, end: i32) -> vec4<f32> {
  let there = j < end;
  let at = v_base + j * $v_s + c;
#if v4
  let ok = there & (c < $dv);
  return select(vec4<f32>(0.0), v_get4(u32(select(0, at, ok)) / 4u), ok);
#else
  let ok = vec4<bool>(there) & (vec4<i32>(c) + vec4<i32>(0, 1, 2, 3) < vec4<i32>($dv));
  let e = vec4<u32>(select(vec4<i32>(0), vec4<i32>(at) + vec4<i32>(0, 1, 2, 3), ok));
  return select(vec4<f32>(0.0), vec4<f32>(v_get(e.x), v_get(e.y), v_get(e.z), v_get(e.w)), ok);
#endif
}

fn store(i: i32, c: i32, v: vec4<f32>) {
  let there = i < $sq;
  let at = u32(y_base + i * $y_s + c);
#if y4
  if (there & (c < $dv)) { y_put4(at / 4u, v); }
#else
  if (there & (c < $dv)) { y_put(at, v.x); }
  if (there & (c + 1 < $dv)) { y_put(at + 1u, v.y); }
  if (there & (c + 2 < $dv)) { y_put(at + 2u, v.z); }
  if (there & (c + 3 < $dv)) { y_put(at + 3u, v.w); }
#endif
}

#if few
// LINES queries per workgroup, KEYS keys at a time: eight lanes bring in a key, WIDE lanes a value. These are a team, which has keys of
// its own, every TEAMS-th one, and for them the largest scores, the sums and the outputs: teams meet at the end.
const LINES = ${lines}u;
const KEYS = 256u / LINES;
const WIDE = ${wide}u;
const TEAMS = 256u / WIDE;
const OWN = KEYS / TEAMS;
const CHUNKS = ${chunks}u;  // of 4 * WIDE outputs
// Products of a query and an eighth of a key, by (key % 32, eighth), in rows of nine: neighbours touch every bank; then outputs.
var<workgroup> shelf: array<vec4<f32>, 576>;
// By (key / 32, query, key % 32); then, by (query, team), what teams found.
var<workgroup> scores: array<f32, 256>;
var<workgroup> weights: array<f32, 256>;

fn place_of(team: u32, own: u32, query: u32) -> u32 {
  let key = team + own * TEAMS;
  return (key / 32u * LINES + query) * 32u + key % 32u;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  enter(g.z);
  let i0 = i32(g.y * LINES);
  let team = lane / WIDE;
  let member = lane % WIDE;
  let c0 = i32((g.x * CHUNKS * WIDE + member) * 4u);
#if k_columns
  let key = lane % 32u;
  let part = lane / 32u;
#else
  let key = lane / 8u;
  let part = lane % 8u;
#endif
  var end = $sk;
#if causal
  end = min(end, i0 + i32(LINES) + $past);
#endif
#for q ${lines}
  var top${q} = lowest();
  var total${q} = 0.0;
#for c ${chunks}
  var out${q}_${c} = vec4<f32>(0.0);
#end
#end
  for (var j0 = 0; j0 < end; j0 += i32(KEYS)) {
    var products = array<f32, 8>();  // not left to the declaration: naga clears that once, not per turn
    for (var t = i32(part * 4u); t < $d; t += 32) {
#for i ${rounds}
      let k${i} = key4(j0 + i32(key) + ${i} * 32, t);
#end
#for q ${lines}
      let q${q} = query4(i0 + ${q}, t);
#for i ${rounds}
      products[${i}u * LINES + ${q}u] += dot(q${q}, k${i});
#end
#end
    }
    shelf[key * 9u + part] = vec4<f32>(products[0], products[1], products[2], products[3]);
    shelf[(key + 32u) * 9u + part] = vec4<f32>(products[4], products[5], products[6], products[7]);
    workgroupBarrier();
    let n = lane / 32u;
    var product = 0.0;
    for (var p = 0u; p < 8u; p++) { product += shelf[(n / 4u * 32u + lane % 32u) * 9u + p][n % 4u]; }
    scores[lane] = score(i0 + i32(n % LINES), j0 + i32(n / LINES * 32u + lane % 32u), product);
    workgroupBarrier();
    var peak = lowest();
#for q ${lines}
    var now${q} = top${q};
    for (var m = 0u; m < OWN; m++) { now${q} = max_nan(now${q}, scores[place_of(team, m, ${q}u)]); }
    let fade${q} = weight(top${q}, now${q});
    top${q} = now${q};
    total${q} *= fade${q};
#for c ${chunks}
    out${q}_${c} *= fade${q};
#end
    peak = select(peak, now${q}, member % LINES == ${q}u);
#end
    let mine = place_of(team, member / LINES, member % LINES);
    weights[mine] = weight(scores[mine], peak);
    workgroupBarrier();
    for (var m = 0u; m < OWN && j0 + i32(team + m * TEAMS) < end; m += ${loads}u) {
#for u ${loads}
#for c ${chunks}
      let v${u}_${c} = value4(j0 + i32(team + (m + ${u}u) * TEAMS), c0 + i32(${c}u * 4u * WIDE), end);
#end
#end
#for u ${loads}
#for q ${lines}
      let w${u}_${q} = weights[place_of(team, m + ${u}u, ${q}u)];
      total${q} += w${u}_${q};
#for c ${chunks}
      out${q}_${c} += w${u}_${q} * v${u}_${c};
#end
#end
#end
    }
  }
  if (member == 0u) {
#for q ${lines}
    scores[${q}u * TEAMS + team] = top${q};
#end
  }
  workgroupBarrier();
#for q ${lines}
  var best${q} = lowest();
  for (var o = 0u; o < TEAMS; o++) { best${q} = max_nan(best${q}, scores[${q}u * TEAMS + o]); }
  let share${q} = weight(top${q}, best${q});
  if (member == 0u) { weights[${q}u * TEAMS + team] = total${q} * share${q}; }
#for c ${chunks}
  out${q}_${c} *= share${q};
#end
#end
  for (var half = TEAMS / 2u; half > 0u; half /= 2u) {
    let at = team % half * WIDE + member;
    if (team >= half && team < 2u * half) {
#for q ${lines}
#for c ${chunks}
      shelf[(${q}u * CHUNKS + ${c}u) * half * WIDE + at] = out${q}_${c};
#end
#end
    }
    workgroupBarrier();
    if (team < half) {
#for q ${lines}
#for c ${chunks}
      out${q}_${c} += shelf[(${q}u * CHUNKS + ${c}u) * half * WIDE + at];
#end
#end
    }
    workgroupBarrier();
  }
  if (team > 0u) { return; }
#for q ${lines}
  var sum${q} = 0.0;
  for (var o = 0u; o < TEAMS; o++) { sum${q} += weights[${q}u * TEAMS + o]; }
  let inverse${q} = select(1.0 / sum${q}, hidden(), sum${q} == 0.0);
#for c ${chunks}
  store(i0 + ${q}, c0 + i32(${c}u * 4u * WIDE), out${q}_${c} * inverse${q});
#end
#end
}
#else
// 32 queries per workgroup, 32 keys at a time; a lane has 4 x 4 of their scores, and 4 rows of 4 outputs in every chunk of 32.
const CHUNKS = ${chunks}u;
const KEYS = 128u;
// First queries by (element / 4, query), and from KEYS on keys by (element / 4, key); then values by (place of the key in weights,
// output / 4).
var<workgroup> tile: array<vec4<f32>, 256>;
// By (key % 8, query): keys 8 apart; before that, by lane, what the lanes of four queries found.
var<workgroup> weights: array<vec4<f32>, 256>;

fn scores(i: i32, j: i32, p: vec4<f32>) -> vec4<f32> {
  return vec4<f32>(score(i, j, p.x), score(i, j + 8, p.y), score(i, j + 16, p.z), score(i, j + 24, p.w));
}
fn largest(v: vec4<f32>) -> f32 { return max_nan(max_nan(v.x, v.y), max_nan(v.z, v.w)); }
fn weights_of(s: vec4<f32>, top: f32) -> vec4<f32> {
  return vec4<f32>(weight(s.x, top), weight(s.y, top), weight(s.z, top), weight(s.w, top));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let g = group(wid, nwg);
  if (g.z >= u32($grid_z)) { return; }
  enter(g.z);
  let tx = lane % 8u;
  let ty = lane / 8u;
  let i0 = i32(g.y * 32u);
  let c0 = i32(g.x * CHUNKS * 32u);
  let row = vec4<u32>(ty, ty + 8u, ty + 16u, ty + 24u);
  var end = $sk;
#if causal
  end = min(end, i0 + 32 + $past);
#endif
  var out: array<vec4<f32>, 4u * CHUNKS>;
  var top = vec4<f32>(lowest());
  var total = vec4<f32>(0.0);
  for (var j0 = 0; j0 < end; j0 += 32) {
    var s0 = vec4<f32>(0.0);
    var s1 = vec4<f32>(0.0);
    var s2 = vec4<f32>(0.0);
    var s3 = vec4<f32>(0.0);
    for (var t = 0; t < $d; t += 16) {
      for (var e = lane; e < 128u; e += 64u) {
        tile[e % 4u * 32u + e / 4u] = query4(i0 + i32(e / 4u), t + i32(e % 4u * 4u));
#if k_columns
        tile[KEYS + e] = key4(j0 + i32(e % 32u), t + i32(e / 32u * 4u));
#else
        tile[KEYS + e % 4u * 32u + e / 4u] = key4(j0 + i32(e / 4u), t + i32(e % 4u * 4u));
#endif
      }
      workgroupBarrier();
      for (var v = 0u; v < 128u; v += 32u) {
        let k0 = tile[KEYS + v + tx];
        let k1 = tile[KEYS + v + tx + 8u];
        let k2 = tile[KEYS + v + tx + 16u];
        let k3 = tile[KEYS + v + tx + 24u];
        let q0 = tile[v + row.x];
        s0 += vec4<f32>(dot(q0, k0), dot(q0, k1), dot(q0, k2), dot(q0, k3));
        let q1 = tile[v + row.y];
        s1 += vec4<f32>(dot(q1, k0), dot(q1, k1), dot(q1, k2), dot(q1, k3));
        let q2 = tile[v + row.z];
        s2 += vec4<f32>(dot(q2, k0), dot(q2, k1), dot(q2, k2), dot(q2, k3));
        let q3 = tile[v + row.w];
        s3 += vec4<f32>(dot(q3, k0), dot(q3, k1), dot(q3, k2), dot(q3, k3));
      }
      workgroupBarrier();
    }
    let j = j0 + i32(tx);
    s0 = scores(i0 + i32(row.x), j, s0);
    s1 = scores(i0 + i32(row.y), j, s1);
    s2 = scores(i0 + i32(row.z), j, s2);
    s3 = scores(i0 + i32(row.w), j, s3);
    weights[lane] = vec4<f32>(largest(s0), largest(s1), largest(s2), largest(s3));
    workgroupBarrier();
    var now = top;
    for (var x = 0u; x < 8u; x++) {
      let found = weights[ty * 8u + x];
      now = vec4<f32>(max_nan(now.x, found.x), max_nan(now.y, found.y), max_nan(now.z, found.z), max_nan(now.w, found.w));
    }
    workgroupBarrier();
    let fade = vec4<f32>(weight(top.x, now.x), weight(top.y, now.y), weight(top.z, now.z), weight(top.w, now.w));
    top = now;
    s0 = weights_of(s0, now.x);
    s1 = weights_of(s1, now.y);
    s2 = weights_of(s2, now.z);
    s3 = weights_of(s3, now.w);
    weights[tx * 32u + row.x] = s0;
    weights[tx * 32u + row.y] = s1;
    weights[tx * 32u + row.z] = s2;
    weights[tx * 32u + row.w] = s3;
    let one = vec4<f32>(1.0);
    total = total * fade + vec4<f32>(dot(s0, one), dot(s1, one), dot(s2, one), dot(s3, one));
    for (var c = 0u; c < CHUNKS; c++) {
      for (var e = lane; e < 256u; e += 64u) {
        tile[e] = value4(j0 + i32(e / 32u + e / 8u % 4u * 8u), c0 + i32(c * 32u + e % 8u * 4u), $sk);
      }
      workgroupBarrier();
      var o0 = out[4u * c] * fade.x;
      var o1 = out[4u * c + 1u] * fade.y;
      var o2 = out[4u * c + 2u] * fade.z;
      var o3 = out[4u * c + 3u] * fade.w;
      for (var k = 0u; k < 8u; k++) {
        let w0 = weights[k * 32u + row.x];
        let w1 = weights[k * 32u + row.y];
        let w2 = weights[k * 32u + row.z];
        let w3 = weights[k * 32u + row.w];
        for (var u = 0u; u < 4u; u++) {
          let v = tile[(k * 4u + u) * 8u + tx];
          o0 += w0[u] * v;
          o1 += w1[u] * v;
          o2 += w2[u] * v;
          o3 += w3[u] * v;
        }
      }
      out[4u * c] = o0;
      out[4u * c + 1u] = o1;
      out[4u * c + 2u] = o2;
      out[4u * c + 3u] = o3;
      workgroupBarrier();
    }
  }
  weights[lane] = total;
  workgroupBarrier();
  total = vec4<f32>(0.0);
  for (var x = 0u; x < 8u; x++) { total += weights[ty * 8u + x]; }
  let inverse = select(1.0 / total, vec4<f32>(hidden()), total == vec4<f32>(0.0));
  for (var c = 0u; c < CHUNKS; c++) {
    let column = c0 + i32(c * 32u + tx * 4u);
    store(i0 + i32(row.x), column, out[4u * c] * inverse.x);
    store(i0 + i32(row.y), column, out[4u * c + 1u] * inverse.y);
    store(i0 + i32(row.z), column, out[4u * c + 2u] * inverse.z);
    store(i0 + i32(row.w), column, out[4u * c + 3u] * inverse.w);
  }
}
#endif
