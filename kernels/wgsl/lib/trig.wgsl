// x * 2 / pi for x of 2^15 and more, as the number of quarter turns, modulo 4, and the angle that is left: Payne and Hanek 1983, of the
// 190 first bits of 2 / pi the 128 that matter.
fn high_product(a: u32, b: u32) -> u32 {
  let al = a & 0xffffu; let ah = a >> 16u; let bl = b & 0xffffu; let bh = b >> 16u;
  let mid = ah * bl + ((al * bl) >> 16u);
  let cross = al * bh + (mid & 0xffffu);
  return ah * bh + (mid >> 16u) + (cross >> 16u);
}
fn far_angle(x: f32) -> vec2<f32> {
  let bits = bitcast<u32>(x);
  let mantissa = ((bits & 0x7fffffu) | 0x800000u) << 8u;
  let skip = ((bits >> 23u) & 0xffu) - 126u;
  var words = array<u32, 7>(0u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u);
  let word = skip >> 5u;
  let s = skip & 31u;
  var a = words[word];
  var b = words[word + 1u];
  var c = words[word + 2u];
  if (s != 0u) {
    a = (a << s) | (b >> (32u - s));
    b = (b << s) | (c >> (32u - s));
    c = (c << s) | (words[word + 3u] >> (32u - s));
  }
  // Two bits of quarters and 62 of a fraction.
  let carried = mantissa * b + high_product(mantissa, c);
  var low = carried;
  var high = mantissa * a + high_product(mantissa, b) + select(0u, 1u, carried < mantissa * b);
  var quarters = high >> 30u;
  high &= 0x3fffffffu;
  let over = (high & 0x20000000u) != 0u;
  if (over) {
    quarters += 1u;
    low = ~low + 1u;
    high = (0x40000000u - high) - select(0u, 1u, low != 0u);
  }
  let angle = (f32(high) * 4294967296.0 + f32(low)) * 3.4061215800304e-19;  // pi / 2 / 2^62
  return vec2<f32>(f32(quarters & 3u), select(angle, -angle, over));
}
// The quarter turns, modulo 4, and the angle that is left, at most pi / 4; WGSL promises sines of no more than pi.
fn angle_of(x: f32) -> vec2<f32> {
  if (abs(x) < 32768.0) {
    let turns = round(x * 0.63661975);
    let rest = ((x - turns * 1.5703125) - turns * 4.8351288e-4) - turns * 3.1385570e-7 - turns * 6.0771005e-11;
    return vec2<f32>(turns - 4.0 * floor(turns * 0.25), rest);
  }
  let far = far_angle(abs(x));
  return select(far, vec2<f32>((4.0 - far.x) % 4.0, -far.y), x < 0.0);
}
// Cephes, sinf and cosf: within pi / 4.
fn sine_near(r: f32) -> f32 {
  let z = r * r;
  return r + r * z * (-0.16666654611 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
}
fn cosine_near(r: f32) -> f32 {
  let z = r * r;
  return 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
}
fn turned(x: f32, more: f32) -> f32 {
  if (is_nan(x) || is_inf(x)) { return from_bits(0x7fc00000u); }
  let angle = angle_of(x);
  let quarter = (angle.x + more) % 4.0;
  let y = select(cosine_near(angle.y), sine_near(angle.y), quarter == 0.0 || quarter == 2.0);
  return select(y, -y, quarter >= 2.0);
}
fn sin_f(x: f32) -> f32 { return select(turned(x, 0.0), x, abs(x) < 1e-4); }
fn cos_f(x: f32) -> f32 { return turned(x, 1.0); }
fn tan_f(x: f32) -> f32 { return sin_f(x) / cos_f(x); }
