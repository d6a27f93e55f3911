// Elementary functions on f32 vectors, without tables; only sin, cos and tan beyond 2^28 call the library. Worst errors in ulp: exp, log 1;
// tanh, erf, sigmoid, sin, cos, softplus, elu, atan, asin, acos, sinh, cosh 2.5; tan 4; pow 0.51; gelu 2e-7 absolute. NaN stays NaN,
// infinities are right, results below FLT_MIN may be 0, but for exp_gradual and softplus. Argument reduction as in Cephes and musl;
// coefficients are Lawson minimax fits of the reduced functions.
#pragma once
#include "simd.h"
#pragma clang diagnostic ignored "-Wpsabi"  // two-register vectors never cross a call that is not inlined

typedef double VD __attribute__((ext_vector_type(W)));
typedef int64_t VL __attribute__((ext_vector_type(W)));

inline VF vabs(VF x) { return as_f(as_i(x) & 0x7fffffff); }
inline VF vcopysign(VF x, VF s) { return as_f((as_i(x) & 0x7fffffff) | (as_i(s) & INT32_MIN)); }

namespace vmath {
// V8 puts a constant vector together from four instructions; one that is spread from memory is one.
struct Table {
  const float* at;
  explicit Table(const float* values) : at(values) {
#if defined(__wasm__)
    asm("" : "+r"(at));
#endif
  }
  VF operator[](int i) const { return splat(at[i]); }
};
}  // namespace vmath

// Horner's rule, highest power first.
template <int N> inline VF poly(VF x, const vmath::Table& table) {
  VF p = table[0];
#pragma unroll
  for (int i = 1; i < N; i++) p = p * x + table[i];
  return p;
}
template <int N> inline VF poly(VF x, const float (&c)[N]) { return poly<N>(x, vmath::Table(c)); }
template <class... C> inline VD poly(VD x, double first, C... rest) {
  VD p = VD(first);
  ((p = p * x + VD(rest)), ...);
  return p;
}

namespace vmath {
// Last: 1.5 * 2^23, which rounds to an integer in the low bits where it is added; the largest number whose e^x is finite, and the least
// whose e^x is not below FLT_MIN.
constexpr float EXP[] = {0.0013813144760206342f, 0.008369418792426586f, 0.04166845604777336f, 0.16666515171527863f, 0.4999999403953552f, 1,
                         1.44269504f, 0.693359375f, 2.12194440e-4f, 12582912.0f, 88.7228317f, -87.3365402f, __builtin_inff()};

constexpr float LOG[] = {
    0.06746640801429749f, -0.11675652116537094f, 0.11888162046670914f, -0.1240558922290802f, 0.14219552278518677f,
    -0.1666799634695053f, 0.2000211924314499f, -0.25000008940696716f, 0.3333331346511841f};
constexpr float TANH[] = {-0.005704987794160843f, 0.0206390880048275f, -0.05373971536755562f, 0.13331441581249237f, -0.3333328068256378f};
constexpr float ERFC[] = {
    2.9182990601839265e-06f, -4.8609075747663155e-05f, 0.00032469668073637366f, -0.0009400146664120257f, -0.000814322498627007f,
    0.01989644765853882f, -0.10308410227298737f, 0.3634410500526428f, -1.1283835172653198f, 4.9236813737252305e-08f};
constexpr float ERF[] = {
    7.853888382669538e-05f, -0.0008010202436707914f, 0.005188328679651022f, -0.026853812858462334f, 0.1128358542919159f,
    -0.3761262595653534f, 1.1283791065216064f};
// (atan(x) / x - 1) / x^2 of x^2 up to 1, and as much of asin of x^2 up to 1/4; (sinh(x) / x - 1) / x^2 of x^2 up to 1.
constexpr float ATAN[] = {0.0029745898209512234f, -0.016581181436777115f, 0.043553534895181656f, -0.07580577582120895f, 0.10678940266370773f,
                          -0.14214208722114563f,  0.19994136691093445f,   -0.3333316743373871f};
constexpr float ASIN[] = {0.04221856966614723f, 0.024147599935531616f, 0.04547709971666336f, 0.07495241612195969f, 0.16666753590106964f};
constexpr float SINH[] = {0.0002037740487139672f, 0.008330211043357849f, 0.166667178273201f};
constexpr float SIN[] = {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f};
constexpr float COS[] = {2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f};

// (e^r - 1 - r) / r^2 for |r| <= ln(2)/2
inline VF exp_tail(VF r, const Table& table) { return poly<5>(r, table); }
inline VF exp_tail(VF r) { return exp_tail(r, Table(EXP)); }

// The bits of e^x, whose exponent may lie outside of what a float has.
inline VI exp_bits(VF x, const Table& table) {
  const VF magic = table[9];
  VF t = x * table[6] + magic, n = t - magic;
  VF r = x - n * table[7] + n * table[8];
  VF p = exp_tail(r, table) * (r * r) + r + table[5];
  return as_i(p) + (as_i(t) << 23);
}
inline VI exp_bits(VF x) { return exp_bits(x, Table(EXP)); }
}  // namespace vmath

// e^x, 0 in place of subnormal numbers: for what adds it to 1, or subtracts 1.
inline VF vexp(VF x, const vmath::Table& table) {
  VF y = as_f(vmath::exp_bits(x, table));
  y = x <= table[10] ? y : x + table[12];
  return as_f(as_i(y) & ~(x < table[11]));
}
inline VF vexp(VF x) { return vexp(x, vmath::Table(vmath::EXP)); }

// e^x to the smallest subnormal number. What is 0 is not multiplied into it: processors take a detour where a product vanishes.
inline VF vexp_gradual(VF x) {
  VI bits = vmath::exp_bits(x), small = x < -87.3365402f;
  VF y = (x < -103.972084f ? VF(0.0f) : as_f(bits + (small & (32 << 23)))) * (small ? VF(0x1p-32f) : VF(1.0f));
  return x <= 88.7228317f ? y : x + __builtin_inff();
}

inline VF vlog(VF x) {
  VI tiny = x < 0x1p-126f;
  VI i = as_i(tiny ? x * 0x1p23f : x) + (0x3f800000 - 0x3f3504f3);
  VF e = __builtin_convertvector((i >> 23) - 127 - (tiny & 23), VF);
  VF f = as_f((i & 0x007fffff) + 0x3f3504f3) - 1.0f, z = f * f;  // 1 + f in [sqrt(1/2), sqrt(2))
  VF p = poly(f, vmath::LOG);
  VF y = e * 0.693359375f + (f + (p * f * z - e * 2.12194440e-4f - 0.5f * z));
  y = x < __builtin_inff() ? y : x;
  y = x == 0.0f ? VF(-__builtin_inff()) : y;
  return x < 0.0f ? VF(__builtin_nanf("")) : y;
}

inline VF vtanh(VF x) {
  VF a = vabs(x), z = x * x;
  VF p = poly(z, vmath::TANH);
  VF small = p * z * x + x, large = 1.0f - 2.0f / (as_f(vmath::exp_bits(vmin(a + a, VF(20.0f)))) + 1.0f);
  return vcopysign(a >= 0.625f ? large : small, x);
}

namespace vmath {
// 1 - erf(a) for a >= 0: exp(-a^2 + P(a)), P fitted on [0, 3.5]; beyond, where erfc < 1e-6, it keeps the decay.
inline VF erfc(VF a) {
  VF c = vmin(a, VF(3.5f));
  VF p = poly(c, vmath::ERFC);
  return vexp(p - a * a);
}
}  // namespace vmath

inline VF verf(VF x) {
  VF a = vabs(x), z = x * x;
  VF p = poly(z, vmath::ERF);
  return a < 1.0f ? p * x : vcopysign(1.0f - vmath::erfc(a), x);
}

namespace vmath {
// As EXP, of -q, whose low bits hold an exponent where 1.5 * 2^23 + 127 is added; bounds: of an exponent for infinity, and for 0.
constexpr float FALLING[] = {0.0013813144760206342f, -0.008369418792426586f, 0.04166845604777336f, -0.16666515171527863f,
                             0.4999999403953552f, -1, 1, -1.44269504f, 0.693359375f, -2.12194440e-4f, 12583039.0f, -88.7f, 88};

// e^-x, 0 from 2^-126.5 on, of what is not negative; or 1 + e^-x, infinite from 2^127.5 on, for what is divided by it.
template <bool LOGISTIC, int N> inline void falling(const VF (&x)[N], VF (&y)[N]) {
  const Table table(FALLING);
  auto each = [&](auto f) __attribute__((always_inline)) {
#pragma unroll
    for (int i = 0; i < N; i++) f(i);
  };
  VF t[N], q[N];
  VF c = table[11], d = table[12];
  each([&](int i) { q[i] = vmin(LOGISTIC ? vmax(x[i], c) : x[i], d), pin(q[i]); });
  c = table[7], d = table[10];
  each([&](int i) { t[i] = q[i] * c + d, pin(t[i]); });
  c = table[8];
  each([&](int i) { q[i] += (t[i] - d) * c, pin(q[i]); });
  c = table[9];
  each([&](int i) { q[i] += (t[i] - d) * c, pin(q[i]); });
  c = table[0], d = table[1];
  each([&](int i) { y[i] = c * q[i] + d, pin(y[i]); });
#pragma unroll
  for (int k = 2; k < 7; k++) {
    c = table[k];
    each([&](int i) { y[i] = y[i] * q[i] + c, pin(y[i]); });
  }
  c = table[6];
  each([&](int i) {
    const VF power = as_f(as_i(t[i]) << 23);
    y[i] = LOGISTIC ? y[i] * power + c : y[i] * power, pin(y[i]);
  });
}

inline VF alone(VF x, auto f) {
  VF v[1] = {x};
  f(v);
  return v[0];
}
}  // namespace vmath

// Vectors side by side, which share a table and hide each other's latencies: 1 + e^-x; and e^-x of what is not negative.
template <int N> inline void vlogistic_each(const VF (&x)[N], VF (&y)[N]) { vmath::falling<true>(x, y); }
template <int N> inline void vfalling_each(VF (&x)[N]) {
  VF y[N];
  vmath::falling<false>(x, y);
#pragma unroll
  for (int i = 0; i < N; i++) x[i] = y[i];
}

template <int N> inline void vsigmoid_each(VF (&x)[N]) {
  VF y[N];
  vlogistic_each(x, y);
#pragma unroll
  for (int i = 0; i < N; i++) x[i] = 1.0f / y[i];
}
template <int N> inline void vsilu_each(VF (&x)[N]) {
  VF y[N];
  vlogistic_each(x, y);
#pragma unroll
  for (int i = 0; i < N; i++) x[i] = x[i] / y[i];
}
// x / 2 (1 + tanh u) = x sigmoid(2u), which keeps its precision where tanh nears -1.
template <int N> inline void vgelu_tanh_each(VF (&x)[N]) {
  VF u[N], y[N];
#pragma unroll
  for (int i = 0; i < N; i++) u[i] = x[i] * (1.59576912f + 0.0713548163f * (x[i] * x[i]));
  vlogistic_each(u, y);
#pragma unroll
  for (int i = 0; i < N; i++) x[i] = x[i] / y[i];
}

namespace vmath {
constexpr float GELU[] = {
    1.6474803032906493e-07f, -3.936599568987731e-06f, 3.755548823392019e-05f, -0.00015189316764008254f, -0.00025380245642736554f,
    0.007245223503559828f,   -0.052636388689279556f,  0.26218947768211365f,   -1.1511118412017822f,     -0.9999998807907104f,
    0.001327647129073739f,   0.009675540961325169f,   0.05550713092088699f,   0.24022120237350464f,     0.6931469440460205f,
    1,                       4.95f,                   0.7213475204f,          -127,                     12582912.0f};
}  // namespace vmath
// x Phi(x), where Phi(-a) = 2^(P(a) - a^2 log2(e)/2), P fitted on [0, 4.95]. Vectors side by side, which share the table and hide each
// other's latencies.
template <int N> inline void vgelu_each(VF (&x)[N]) {
  const vmath::Table table(vmath::GELU);
  auto each = [&](auto f) __attribute__((always_inline)) {
#pragma unroll
    for (int i = 0; i < N; i++) f(i);
  };
  VF a[N], z[N], t[N], p[N];
  VF c = table[16], d;
  each([&](int i) { a[i] = vmin(vabs(x[i]), c); });
  // Even and odd powers beside each other: a sum waits for half as many before it.
  c = table[0], d = table[1];
  each([&](int i) { z[i] = a[i] * a[i], pin(z[i]); });
  each([&](int i) { t[i] = c, p[i] = d; });
#pragma unroll
  for (int k = 2; k < 10; k += 2) {
    c = table[k], d = table[k + 1];
    each([&](int i) { t[i] = t[i] * z[i] + c, pin(t[i]); });
    each([&](int i) { p[i] = p[i] * z[i] + d, pin(p[i]); });
  }
  each([&](int i) { t[i] = t[i] * a[i] + p[i], pin(t[i]); });
  c = table[17];
  each([&](int i) { t[i] -= c * (x[i] * x[i]), pin(t[i]); });
  c = table[18];
  each([&](int i) { t[i] = vmax(t[i], c); });
  c = table[19];
  each([&](int i) { a[i] = t[i] + c, t[i] -= a[i] - c; });  // a: the whole part in its low bits
  c = table[10];
  each([&](int i) { p[i] = c; });
#pragma unroll
  for (int k = 11; k < 16; k++) {
    c = table[k];
    each([&](int i) { p[i] = p[i] * t[i] + c, pin(p[i]); });
  }
  each([&](int i) {
    const VF tail = as_f(as_i(p[i]) + (as_i(a[i]) << 23));
    x[i] = x[i] * (x[i] < 0.0f ? tail : 1.0f - tail);
  });
}

// One vector.
inline VF vsigmoid(VF x) { return vmath::alone(x, [](VF(&v)[1]) { vsigmoid_each(v); }); }
inline VF vsilu(VF x) { return vmath::alone(x, [](VF(&v)[1]) { vsilu_each(v); }); }
inline VF vgelu(VF x) { return vmath::alone(x, [](VF(&v)[1]) { vgelu_each(v); }); }
inline VF vgelu_tanh(VF x) { return vmath::alone(x, [](VF(&v)[1]) { vgelu_tanh_each(v); }); }

inline VF vrelu(VF x) { return vmax(x, VF(0.0f)); }
inline VF velu(VF x, VF alpha) {
  VF m = x > -0.34f ? vmath::exp_tail(x) * (x * x) + x : vexp(x) - 1.0f;  // e^x - 1 without cancellation
  return x < 0.0f ? alpha * m : x;
}
inline VF vhardsigmoid(VF x, VF a, VF b) {
  return vmin(vmax(x * a + b, VF(0.0f)), VF(1.0f));
}
inline VF vhardswish(VF x) { return x * vhardsigmoid(x, VF(1.0f / 6), VF(0.5f)); }
inline VF vsoftplus(VF x) {
  VF e = vexp_gradual(-vabs(x)), u = 1.0f + e;
  VF l = vlog(u) - ((u - 1.0f) - e) / u;
  return vrelu(x) + l;
}

// Of what is beyond 1 the inverse, whose arc is the other part of a quarter.
inline VF vatan(VF x) {
  VF a = vabs(x), q = a > 1.0f ? 1.0f / a : a, z = q * q;
  VF p = poly(z, vmath::ATAN) * z * q + q;
  return vcopysign(a > 1.0f ? 1.57079637f - p : p, x);
}

namespace vmath {
// asin(a), or of half the chord of what is left to a quarter beyond 1/2: asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)). NaN beyond 1.
inline VF half_arc(VF a) {
  VF z = a > 0.5f ? 0.5f - 0.5f * a : a * a, s = a > 0.5f ? __builtin_elementwise_sqrt(z) : a;
  return poly(z, ASIN) * z * s + s;
}
// e^a / 2 for a >= 0, infinite where that is.
inline VF half_exp(VF a) {
  return a <= 89.4159851f ? as_f(exp_bits(a) - (1 << 23)) : a + __builtin_inff();
}
}  // namespace vmath

inline VF vasin(VF x) {
  VF a = vabs(x), r = vmath::half_arc(a);
  return vcopysign(a > 0.5f ? 1.57079637f - 2.0f * r : r, x);
}
inline VF vacos(VF x) {
  VF a = vabs(x), r = vmath::half_arc(a);
  VF far = x < 0.0f ? 3.14159274f - 2.0f * r : 2.0f * r;
  return a > 0.5f ? far : 1.57079637f - vcopysign(r, x);
}
inline VF vsinh(VF x) {
  VF a = vabs(x), z = x * x, h = vmath::half_exp(a);
  return a < 1.0f ? poly(z, vmath::SINH) * z * x + x : vcopysign(h - 0.25f / h, x);
}
inline VF vcosh(VF x) {
  VF h = vmath::half_exp(vabs(x));
  return h + 0.25f / h;
}

namespace vmath {
struct Quarters {
  VF sin, cos;  // of what is left of x, at most pi/4 either way
  VI count;     // of pi/2 in x
};
inline Quarters quarters(VF x) {
  constexpr double magic = 6755399441055744.0;  // 1.5 * 2^52
  VD d = __builtin_convertvector(x, VD), t = d * 0.63661977236758134308 + magic, n = t - magic;
  VF r = __builtin_convertvector(d - n * 1.57079631090164184570 - n * 1.58932547735281966916e-08, VF), z = r * r;
  VF sin = vcopysign(poly(z, vmath::SIN) * z * r + r, r), cos = poly(z, vmath::COS) * (z * z) - 0.5f * z + 1.0f;
  return {sin, cos, __builtin_convertvector(__builtin_bit_cast(VL, t), VI)};
}
// sin(x + quarter * pi/2)
inline VF sin_quarter(VF x, int quarter) {
  const Quarters q = quarters(x);
  VI k = q.count + quarter;
  VF y = (k & 1) == 0 ? q.sin : q.cos;
  return as_f(as_i(y) ^ (k << 30 & INT32_MIN));
}
// Beyond 2^28 the two-part pi/2 runs out of bits.
template <float (*far)(float)> inline VF trig(VF x, VF y) {
  for (int i = 0; i < W; i++)
    if (__builtin_fabsf(x[i]) >= 0x1p28f) [[unlikely]] y[i] = far(x[i]);
  return y;
}
}  // namespace vmath

inline VF vsin(VF x) { return vmath::trig<[](float v) { return float(__builtin_sin(double(v))); }>(x, vmath::sin_quarter(x, 0)); }
inline VF vcos(VF x) { return vmath::trig<[](float v) { return float(__builtin_cos(double(v))); }>(x, vmath::sin_quarter(x, 1)); }
inline VF vtan(VF x) {
  const vmath::Quarters q = vmath::quarters(x);
  const VF y = (q.count & 1) == 0 ? q.sin / q.cos : -q.cos / q.sin;
  return vmath::trig<[](float v) { return float(__builtin_tan(double(v))); }>(x, y);
}

// C's pow. log2 and exp2 in f64, so that the product y * log2(x) keeps enough bits.
inline VF vpow(VF x, VF y) {
  VF a = vabs(x);
  VL i = __builtin_bit_cast(VL, __builtin_convertvector(a, VD)) + (0x3ff0000000000000 - 0x3fe6a09e667f3bcd);
  VD e = __builtin_convertvector((i >> 52) - 1023, VD);
  VD m = __builtin_bit_cast(VD, (i & 0xfffffffffffff) + 0x3fe6a09e667f3bcd);
  VD s = (m - 1.0) / (m + 1.0), w = s * s;
  VD l = e + 2.88539008177792681472 * s * poly(w, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1.0);
  VF far = a == 0.0f ? VF(-__builtin_inff()) : a;  // log2 of 0, inf and NaN
  VI plain = (a > 0.0f) & (a < __builtin_inff());
  l = __builtin_convertvector(plain, VL) != 0 ? l : __builtin_convertvector(far, VD);
  VD t = __builtin_convertvector(y, VD) * l;
  t = t > 200.0 ? VD(200.0) : t;
  t = t < -200.0 ? VD(-200.0) : t;
  constexpr double magic = 6755399441055744.0;
  VD u = t + magic, f = (t - (u - magic)) * 0.69314718055994530942;
  VD p = poly(f, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
  VD scale = __builtin_bit_cast(VD, (__builtin_bit_cast(VL, u) + 1023) << 52);
  VF r = __builtin_convertvector(p * scale, VF);
  // Integers are where rounding by 2^23 changes nothing; odd ones keep the low bit.
  VF b = vabs(y), k = (b + 0x1p23f) - 0x1p23f;
  VI whole = (b >= 0x1p23f) | (k == b);
  VI odd = whole & (b < 0x1p24f) & (((b >= 0x1p23f ? as_i(b) : as_i(b + 0x1p23f)) & 1) != 0);
  r = as_f(as_i(r) ^ (odd & as_i(x) & INT32_MIN));
  r = ((x < 0.0f) & (a < __builtin_inff()) & ~whole) != 0 ? VF(__builtin_nanf("")) : r;
  r = ((x != x) | (y != y)) != 0 ? x + y : r;
  return ((x == 1.0f) | (y == 0.0f) | ((x == -1.0f) & (b == __builtin_inff()))) != 0 ? VF(1.0f) : r;
}
