// 64-bit integers as (low, high); two's complement.
fn i64_of(v: i32) -> vec2<u32> { return vec2<u32>(bitcast<u32>(v), select(0u, 0xffffffffu, v < 0)); }
fn u64_of(v: u32) -> vec2<u32> { return vec2<u32>(v, 0u); }
fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
fn neg64(a: vec2<u32>) -> vec2<u32> { return add64(~a, vec2<u32>(1u, 0u)); }
fn sub64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x)); }
fn mul32(a: u32, b: u32) -> vec2<u32> {
  let al = a & 0xffffu; let ah = a >> 16u; let bl = b & 0xffffu; let bh = b >> 16u;
  let ll = al * bl;
  let mid = ah * bl + (ll >> 16u);
  let cross = al * bh + (mid & 0xffffu);
  return vec2<u32>((ll & 0xffffu) | (cross << 16u), ah * bh + (mid >> 16u) + (cross >> 16u));
}
fn mul64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let p = mul32(a.x, b.x);
  return vec2<u32>(p.x, p.y + a.x * b.y + a.y * b.x);
}
fn ltu64(a: vec2<u32>, b: vec2<u32>) -> bool { return a.y < b.y || (a.y == b.y && a.x < b.x); }
fn lts64(a: vec2<u32>, b: vec2<u32>) -> bool {
  let ah = bitcast<i32>(a.y); let bh = bitcast<i32>(b.y);
  return ah < bh || (ah == bh && a.x < b.x);
}
fn eq64(a: vec2<u32>, b: vec2<u32>) -> bool { return all(a == b); }
fn neg_sign64(a: vec2<u32>) -> bool { return (a.y & 0x80000000u) != 0u; }
fn abs64(a: vec2<u32>) -> vec2<u32> { return select(a, neg64(a), neg_sign64(a)); }
fn sign64(a: vec2<u32>) -> vec2<u32> { return select(select(vec2<u32>(1u, 0u), vec2<u32>(0u), eq64(a, vec2<u32>(0u))), vec2<u32>(0xffffffffu), neg_sign64(a)); }
fn shl64(a: vec2<u32>, n: u32) -> vec2<u32> {
  if (n >= 64u) { return vec2<u32>(0u); }
  if (n == 0u) { return a; }
  if (n >= 32u) { return vec2<u32>(0u, a.x << (n - 32u)); }
  return vec2<u32>(a.x << n, (a.y << n) | (a.x >> (32u - n)));
}
fn shru64(a: vec2<u32>, n: u32) -> vec2<u32> {
  if (n >= 64u) { return vec2<u32>(0u); }
  if (n == 0u) { return a; }
  if (n >= 32u) { return vec2<u32>(a.y >> (n - 32u), 0u); }
  return vec2<u32>((a.x >> n) | (a.y << (32u - n)), a.y >> n);
}
fn shrs64(a: vec2<u32>, n: u32) -> vec2<u32> {
  let fill = select(0u, 0xffffffffu, neg_sign64(a));
  if (n >= 64u) { return vec2<u32>(fill); }
  let r = shru64(a, n);
  return select(r, r | ~shru64(vec2<u32>(0xffffffffu), n), fill != 0u);
}
fn divmodu64(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {  // quotient, remainder
  if (a.y == 0u && b.y == 0u) { return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u); }
  var q = vec2<u32>(0u);
  var r = vec2<u32>(0u);
  for (var k = 0u; k < 64u; k++) {
    let top = shru64(a, 63u - k).x & 1u;
    r = shl64(r, 1u) | vec2<u32>(top, 0u);
    q = shl64(q, 1u);
    if (!ltu64(r, b)) { r = sub64(r, b); q.x |= 1u; }
  }
  return vec4<u32>(q, r);
}
fn divu64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { if (eq64(b, vec2<u32>(0u))) { return b; } return divmodu64(a, b).xy; }
fn modu64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { if (eq64(b, vec2<u32>(0u))) { return b; } return divmodu64(a, b).zw; }
fn divs64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (eq64(b, vec2<u32>(0u))) { return b; }
  let q = divmodu64(abs64(a), abs64(b)).xy;
  return select(q, neg64(q), neg_sign64(a) != neg_sign64(b));
}
fn fmods64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (eq64(b, vec2<u32>(0u))) { return b; }
  let r = divmodu64(abs64(a), abs64(b)).zw;
  return select(r, neg64(r), neg_sign64(a));
}
fn mods64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let r = fmods64(a, b);
  return select(r, add64(r, b), !eq64(r, vec2<u32>(0u)) && neg_sign64(r) != neg_sign64(b));
}
fn i64_to_f32(a: vec2<u32>) -> f32 {
  if (all(a == i64_of(bitcast<i32>(a.x)))) { return f32(bitcast<i32>(a.x)); }
  let m = abs64(a);
  let y = f32(m.y) * 4294967296.0 + f32(m.x);
  return select(y, -y, neg_sign64(a));
}
fn u64_to_f32(a: vec2<u32>) -> f32 { return f32(a.y) * 4294967296.0 + f32(a.x); }
fn f32_to_i64(x: f32) -> vec2<u32> {
  if ((bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u) { return vec2<u32>(0u); }
  let a = trunc(abs(x));
  if (a >= 9223372036854775808.0) { return vec2<u32>(0u, 0x80000000u); }
  let high = floor(a / 4294967296.0);
  let m = vec2<u32>(u32(a - high * 4294967296.0), u32(high));
  return select(m, neg64(m), x < 0.0);
}
fn mins64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(b, a, lts64(a, b)); }
fn maxs64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, lts64(a, b)); }
fn minu64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(b, a, ltu64(a, b)); }
fn maxu64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, ltu64(a, b)); }
fn pow64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let one = vec2<u32>(1u, 0u);
  if (neg_sign64(b)) {
    if (eq64(a, one)) { return one; }
    return select(vec2<u32>(0u), select(one, a, (b.x & 1u) == 1u), eq64(a, vec2<u32>(0xffffffffu)));
  }
  var y = one;
  var base = a;
  for (var n = b; any(n != vec2<u32>(0u)); n = shru64(n, 1u)) {
    if ((n.x & 1u) == 1u) { y = mul64(y, base); }
    base = mul64(base, base);
  }
  return y;
}
