fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn is_inf(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
// x - x, which compilers of shaders take for 0 whatever x is.
fn nothing_of(x: f32) -> f32 { return select(0.0, from_bits(0x7fc00000u), (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u); }
// x / 0, which compilers of shaders that know the divisor take for anything; the sign is that of the zero.
fn over_zero(x: f32, sign: u32) -> f32 {
  let b = bitcast<u32>(x);
  let size = b & 0x7fffffffu;
  return from_bits(select(((b ^ sign) & 0x80000000u) | 0x7f800000u, 0x7fc00000u, size == 0u || size > 0x7f800000u));
}
// x * 0, which they take for 0; the sign is that of the zero.
fn times_zero(x: f32, sign: u32) -> f32 {
  let b = bitcast<u32>(x);
  return from_bits(select((b ^ sign) & 0x80000000u, 0x7fc00000u, (b & 0x7f800000u) == 0x7f800000u));
}
// Constant expressions may not be infinite or NaN; arguments may.
fn from_bits(b: u32) -> f32 { return bitcast<f32>(b); }
fn bf16_round(x: f32) -> f32 {
  let b = bitcast<u32>(x);
  return select(bitcast<f32>((b + 0x7fffu + ((b >> 16u) & 1u)) & 0xffff0000u), x, is_nan(x));
}
// WGSL leaves it to the implementation what a NaN does in comparisons, min, max and clamp.
fn min_nan(a: f32, b: f32) -> f32 { return select(select(select(b, a, a < b), b, is_nan(b)), a, is_nan(a)); }
fn max_nan(a: f32, b: f32) -> f32 { return select(select(select(b, a, a > b), b, is_nan(b)), a, is_nan(a)); }
fn eq_f(a: f32, b: f32) -> bool { return a == b && !is_nan(a) && !is_nan(b); }
fn lt_f(a: f32, b: f32) -> bool { return a < b && !is_nan(a) && !is_nan(b); }
fn le_f(a: f32, b: f32) -> bool { return a <= b && !is_nan(a) && !is_nan(b); }
fn clamp_nan(x: f32, lo: f32, hi: f32) -> f32 {
  var y = select(x, lo, lt_f(x, lo));
  y = select(y, hi, lt_f(hi, y));
  return select(y, x, is_nan(x));
}
// A normal number in two of 12 bits, by its bits: what made a number may be contracted with what is done to it, also the product that
// a quotient is, which then is not the one that was rounded.
fn head_of(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }
fn tail_of(x: f32) -> f32 {
  let b = bitcast<u32>(x);
  return f32(b & 0xfffu) * bitcast<f32>((b & 0xff800000u) - (23u << 23u));
}
// a - q b without rounding where they are of one size.
fn rest_of(a: f32, q: f32, b: f32) -> f32 {
  return a - head_of(q) * head_of(b) - head_of(q) * tail_of(b) - tail_of(q) * head_of(b) - tail_of(q) * tail_of(b);
}
// Finite, and from 2^-64 on: tails and products of them are normal.
fn has_tail(x: f32) -> bool { return ((bitcast<u32>(x) >> 23u) & 0xffu) - 63u < 192u; }
// The nearest quotient: WGSL's may be 2.5 units off, enough to round to another integer.
fn div_f(a: f32, b: f32) -> f32 {
  let q = a / b;
  let better = head_of(q) + tail_of(q) + rest_of(a, q, b) / b;
  return select(q, better, has_tail(a) && has_tail(b) && has_tail(q));
}
// The exponent and the logarithm of the rest, from ln(1/2) / 2 to ln(2) / 2, of a normal x > 0; fitted as in kernels/cpp/vmath.h. WGSL's
// own logarithm is good to 2^-21, also where it is near 0.
fn log_split(x: f32) -> vec2<f32> {
  let i = bitcast<i32>(x) + 0x004afb0d;
  let f = bitcast<f32>((i & 0x007fffff) + 0x3f3504f3) - 1.0;
  let z = f * f;
  let high = 0.14219552 + f * (-0.12405589 + f * (0.11888162 + f * (-0.11675652 + f * 0.06746641)));
  let p = 0.33333313 + f * (-0.2500001 + f * (0.20002119 + f * (-0.16667996 + f * high)));
  return vec2<f32>(f32((i >> 23u) - 127), f + (p * f * z - 0.5 * z));
}
// WGSL promises neither infinities nor subnormal numbers, and not every adapter has them: those are read by their bits.
fn log_f(x: f32) -> f32 {
  let b = bitcast<u32>(x);
  if ((b & 0x7fffffffu) == 0u) { return from_bits(0xff800000u); }
  if (b > 0x7f800000u) { return from_bits(0x7fc00000u); }
  if (b == 0x7f800000u) { return x; }
  let small = b < 0x00800000u;
  let parts = log_split(select(x, f32(b), small));
  let exponent = parts.x - select(0.0, 149.0, small);
  return exponent * 0.69335938 + (parts.y - exponent * 0.00021219444);
}
// What the built-in functions make of a NaN is left to the implementation too.
fn exp_f(x: f32) -> f32 { return select(exp(x), x, is_nan(x)); }
fn sign_nan(x: f32) -> f32 { return select(select(select(x, -1.0, x < 0.0), 1.0, x > 0.0), x, is_nan(x)); }
fn relu_f(x: f32) -> f32 { return select(select(x, 0.0, x < 0.0), x, is_nan(x)); }
fn sigmoid_f(x: f32) -> f32 { return 1.0 / (1.0 + exp_f(-x)); }
fn silu_f(x: f32) -> f32 { return x / (1.0 + exp(-x)); }
// log(1 + u) for u from 0 to 1: twice the area tangent of u / (2 + u).
fn log1p_near(u: f32) -> f32 {
  let t = u / (2.0 + u);
  let s = t * t;
  let tail = 0.14285715 + s * (0.11111111 + s * (0.09090909 + s * (0.07692308 + s * 0.06666667)));
  return 2.0 * t * (1.0 + s * (0.33333334 + s * (0.2 + s * tail)));
}
fn softplus_f(x: f32) -> f32 { return max_nan(x, 0.0) + log1p_near(exp_f(-abs(x))); }
fn hardswish_f(x: f32) -> f32 { return x * clamp_nan(x / 6.0 + 0.5, 0.0, 1.0); }
fn elu_f(x: f32, alpha: f32) -> f32 { return select(x, alpha * expm1_f(x), x < 0.0); }

fn expm1_f(x: f32) -> f32 {
  if (abs(x) < 0.25) { return x * (1.0 + x * (0.5 + x * (0.16666667 + x * (0.041666668 + x * (0.008333334 + x * 0.0013888889))))); }
  return exp_f(x) - 1.0;
}

fn tanh_f(x: f32) -> f32 {
  let a = abs(x);
  if (a < 0.25) {
    let s = x * x;
    return x * (1.0 + s * (-0.33333334 + s * (0.13333334 + s * (-0.053968254 + s * 0.021869488))));
  }
  let t = exp_f(-2.0 * a);
  let y = (1.0 - t) / (1.0 + t);
  return select(y, -y, x < 0.0);
}

// erfc of x >= 0: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
fn erfc_positive(x: f32) -> f32 {
  let t = 1.0 / (1.0 + 0.3275911 * x);
  return t * (0.2548296 + t * (-0.28449672 + t * (1.4214138 + t * (-1.4531521 + t * 1.0614054)))) * exp_f(-x * x);
}
// The fits of kernels/cpp/vmath.h: near 0, and of the logarithm of 1 - erf, which has decayed beyond 3.5.
fn erf_f(x: f32) -> f32 {
  let a = abs(x);
  if (a < 1.0) {
    let z = x * x;
    let high = 0.0051883287 + z * (-0.00080102024 + z * 7.8538884e-05);
    return x * (1.1283791 + z * (-0.37612626 + z * (0.112835854 + z * (-0.026853813 + z * high))));
  }
  let c = min(a, 3.5);
  let high = -0.0008143225 + c * (-0.00094001467 + c * (0.00032469668 + c * (-4.8609076e-05 + c * 2.918299e-06)));
  let p = 4.9236814e-08 + c * (-1.1283835 + c * (0.36344105 + c * (-0.1030841 + c * (0.019896448 + c * high))));
  let y = 1.0 - exp_f(p - a * a);
  return select(y, -y, x < 0.0);
}
fn gelu_f(x: f32) -> f32 {
  if (x > 6.0) { return x; }
  if (abs(x) < 0.7) { return 0.5 * x * (1.0 + erf_f(x * 0.70710677)); }
  let half = 0.5 * x * erfc_positive(abs(x) * 0.70710677);
  return select(x - half, half, x < 0.0);
}
fn gelu_tanh_f(x: f32) -> f32 { return x / (1.0 + exp(-1.5957692 * (x + 0.044715 * x * x * x))); }

// Cephes, asinf: (asin(x) - x) / x^3 in x^2 up to 1/4.
fn asin_tail(z: f32) -> f32 {
  return 0.16666752 + z * (0.074953003 + z * (0.045470026 + z * (0.024181311 + z * 0.042163199)));
}
fn asin_f(x: f32) -> f32 {
  let a = abs(x);
  if (is_nan(x) || a > 1.0) { return from_bits(0x7fc00000u); }
  if (a <= 0.5) { return x + x * x * x * asin_tail(x * x); }
  let z = 0.5 * (1.0 - a);
  let s = sqrt(z);
  let y = 1.5707964 - 2.0 * (s + s * z * asin_tail(z));
  return select(y, -y, x < 0.0);
}
fn acos_f(x: f32) -> f32 {
  let a = abs(x);
  if (is_nan(x) || a > 1.0) { return from_bits(0x7fc00000u); }
  if (a <= 0.5) { return 1.5707964 - (x + x * x * x * asin_tail(x * x)); }
  let z = 0.5 * (1.0 - a);
  let s = sqrt(z);
  let y = 2.0 * (s + s * z * asin_tail(z));
  return select(y, 3.1415927 - y, x < 0.0);
}

fn sinh_f(x: f32) -> f32 {
  if (abs(x) < 0.5) { let s = x * x; return x * (1.0 + s * (0.16666667 + s * (0.008333334 + s * 0.0001984127))); }
  let e = exp_f(abs(x) - 0.6931472);
  let y = e - 0.25 / e;
  return select(y, -y, x < 0.0);
}
fn cosh_f(x: f32) -> f32 { let e = exp_f(abs(x) - 0.6931472); return e + 0.25 / e; }
// log(1 + t) for t >= 0: of the first bits of 1 + t, and of what they leave. Compilers of shaders take 1 + t - 1 for t.
fn log1p_f(t: f32) -> f32 {
  let u = head_of(1.0 + t);
  let rest = (t - (u - 1.0)) / u;
  return log_f(u) + select(rest * (1.0 - 0.5 * rest), 0.0, is_inf(t));
}
fn asinh_f(x: f32) -> f32 {
  let a = abs(x);
  let y = select(log1p_f(a + a * a / (1.0 + sqrt(a * a + 1.0))), log_f(a) + 0.6931472, a > 1e9);
  return select(y, -y, x < 0.0);
}
fn acosh_f(x: f32) -> f32 {
  if (is_nan(x) || x < 1.0) { return from_bits(0x7fc00000u); }
  return select(log(x + sqrt((x - 1.0) * (x + 1.0))), log_f(x) + 0.6931472, x > 1e9);
}
// Cephes, atanf: two reductions and a minimax polynomial.
fn atan_f(x: f32) -> f32 {
  let a = abs(x);
  var base = 0.0;
  var t = a;
  if (a > 2.4142137) {
    base = 1.5707964;
    t = select(-1.0 / a, 0.0, is_inf(a));
  } else if (a > 0.41421357) {
    base = 0.7853982;
    t = (a - 1.0) / (a + 1.0);
  }
  let z = t * t;
  let y = base + (t + t * z * (-0.33332950 + z * (0.19977711 + z * (-0.13877686 + z * 0.080537446))));
  return select(y, -y, x < 0.0);
}
fn atanh_f(x: f32) -> f32 {
  let a = abs(x);
  let y = select(0.5 * log1p_f(2.0 * a / (1.0 - a)), from_bits(0x7f800000u), a == 1.0);
  return select(y, -y, x < 0.0);
}

// a^b of a > 0: the whole part of b log2(a) is kept apart, so that the rest has all bits.
fn exp2_of_product(a: f32, b: f32) -> f32 {
  if (is_inf(a)) { return select(a, 0.0, b < 0.0); }
  let bits = bitcast<u32>(a);
  let small = bits < 0x00800000u;
  let parts = log_split(select(a, f32(bits), small));
  let exponent = parts.x - select(0.0, 149.0, small);
  let most = head_of(b) * exponent;
  let whole = round(most);
  let rest = (most - whole) + (b - head_of(b)) * exponent + b * (parts.y * 1.442695);
  let n = i32(clamp(whole + round(rest), -252.0, 254.0));
  let scale = vec2<i32>(n >> 1u, n - (n >> 1u)) + 127;
  return exp2(rest - round(rest)) * bitcast<f32>(scale.x << 23u) * bitcast<f32>(scale.y << 23u);
}
fn pow_f(a: f32, b: f32) -> f32 {
  if (b == 0.0) { return 1.0; }
  let whole = trunc(b) == b;
  if (whole && abs(b) <= 16.0) {
    var y = 1.0;
    for (var k = 0; k < i32(abs(b)); k++) { y *= a; }
    return select(y, 1.0 / y, b < 0.0);
  }
  if (a == 1.0) { return 1.0; }
  if (is_nan(a) || is_nan(b)) { return from_bits(0x7fc00000u); }
  if (a == 0.0) { return select(0.0, from_bits(0x7f800000u), b < 0.0); }
  if (a < 0.0 && !whole) { return select(from_bits(0x7fc00000u), select(from_bits(0x7f800000u), 0.0, b < 0.0), is_inf(a)); }
  let y = exp2_of_product(abs(a), clamp(b, -0x1p33, 0x1p33));
  let odd = whole && abs(b) < 16777216.0 && (i32(abs(b)) & 1) == 1;
  return select(y, -y, a < 0.0 && odd);
}
fn fmod_f(a: f32, b: f32) -> f32 {
  if (is_inf(b) && !is_inf(a)) { return a; }
  let scale = select(1.0, 0x1p+64, abs(b) < 0x1p-60);
  let x = a * scale;
  let y = b * scale;
  let q = trunc(x / y);
  let r = select(x - y * q, rest_of(x, q, y), has_tail(y) && !is_inf(q));
  let step = select(abs(y), -abs(y), x < 0.0);
  let right = select(select(r, r - step, abs(r) >= abs(y)), r + step, r != 0.0 && (r < 0.0) != (x < 0.0));
  return right / scale;
}
fn mod_f(a: f32, b: f32) -> f32 {
  let r = fmod_f(a, b);
  if (r == 0.0) { return select(0.0, -0.0, b < 0.0); }
  return select(r, r + b, (r < 0.0) != (b < 0.0));
}

fn div_i(a: i32, b: i32) -> i32 {
  if (b == 0) { return 0; }
  if (b == -1) { return -a; }
  return a / b;
}
// Remainders of magnitudes: not every language that WGSL is translated to has them for negative numbers.
fn fmod_i(a: i32, b: i32) -> i32 {
  if (b == 0) { return 0; }
  let r = bitcast<i32>(bitcast<u32>(abs(a)) % bitcast<u32>(abs(b)));
  return select(r, -r, a < 0);
}
fn mod_i(a: i32, b: i32) -> i32 {
  let r = fmod_i(a, b);
  return select(r, r + b, r != 0 && (r < 0) != (b < 0));
}
fn div_u(a: u32, b: u32) -> u32 { if (b == 0u) { return 0u; } return a / b; }
fn mod_u(a: u32, b: u32) -> u32 { if (b == 0u) { return 0u; } return a % b; }
fn pow_i(a: i32, b: i32) -> i32 {
  if (b < 0) { return select(select(0, select(1, -1, (b & 1) == 1), a == -1), 1, a == 1); }
  var y = 1;
  var base = a;
  for (var n = b; n > 0; n >>= 1u) {
    if ((n & 1) == 1) { y *= base; }
    base *= base;
  }
  return y;
}
fn shl_u(a: u32, b: u32, width: u32) -> u32 { return select(a << (b & 31u), 0u, b >= width); }
fn shr_u(a: u32, b: u32, width: u32) -> u32 { return select(a >> (b & 31u), 0u, b >= width); }
fn shr_i(a: i32, b: i32, width: u32) -> i32 { return select(a >> (u32(b) & 31u), select(0, -1, a < 0), u32(b) >= width); }
fn to_i32(x: f32) -> i32 {
  if (is_nan(x)) { return 0; }
  if (x >= 2147483648.0) { return bitcast<i32>(0x80000000u); }
  return i32(x);
}
fn to_u32(x: f32) -> u32 {
  if (is_nan(x)) { return 0u; }
  if (x < 0.0) { return bitcast<u32>(to_i32(x)); }
  return u32(x);
}
