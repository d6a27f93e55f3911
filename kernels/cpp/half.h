// Conversions between f32 and the 16 and 8-bit floats, round to nearest even. The 16-bit ones are branch-free, so loops vectorise.
#pragma once
#include "kernel.h"

namespace half_detail {
inline uint32_t bits(float x) { return __builtin_bit_cast(uint32_t, x); }
inline float from_bits(uint32_t x) { return __builtin_bit_cast(float, x); }
}  // namespace half_detail

// After F. Giesen, "Half to float done quick" and "Float to half, round to nearest even".
inline float half_to_float(uint16_t h) {
  using namespace half_detail;
  uint32_t m = uint32_t(h & 0x7fff) << 13, e = m & 0x0f800000, sign = uint32_t(h & 0x8000) << 16;
  uint32_t normal = m + 0x38000000 + (e == 0x0f800000 ? 0x38000000 : 0);
  uint32_t tiny = bits(from_bits(m + 0x38800000) - from_bits(0x38800000));
  return from_bits((e == 0 ? tiny : normal) | sign);
}

inline uint16_t float_to_half(float f) {
  using namespace half_detail;
  uint32_t u = bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  uint32_t special = a > 0x7f800000 ? 0x7e00 : 0x7c00;
  uint32_t tiny = bits(from_bits(a < 0x38800000 ? a : 0) + 0.5f) - 0x3f000000;  // the adder rounds at 2^-24
  uint32_t normal = (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13;
  return uint16_t(sign | (a >= 0x47800000 ? special : a < 0x38800000 ? tiny : normal));
}

inline float bf16_to_float(uint16_t h) { return half_detail::from_bits(uint32_t(h) << 16); }

inline uint16_t float_to_bf16(float f) {
  uint32_t u = half_detail::bits(f);
  uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  return uint16_t((u & 0x7fffffff) > 0x7f800000 ? (u >> 16 | 0x40) : rounded);
}

// Rounds to odd, so that a second rounding to 16 or 8 bits is correct.
inline float double_to_float_odd(double d) {
  float f = float(d);
  uint32_t u = half_detail::bits(f);
  if (__builtin_fabs(double(f)) > __builtin_fabs(d)) u--;
  if (double(half_detail::from_bits(u)) != d && d == d) u |= 1;
  return half_detail::from_bits(u);
}

struct F8Format {
  int mantissa, bias;
  uint8_t max, inf, nan;  // inf: what overflow gives without saturation
  bool unsigned_zero;     // FNUZ: 0x80 is the only NaN, there is no -0
};

inline const F8Format* f8_format(int32_t dtype) {
  static constexpr F8Format formats[] = {
      {3, 7, 0x7e, 0x7f, 0x7f, false}, {3, 8, 0x7f, 0x80, 0x80, true}, {2, 15, 0x7b, 0x7c, 0x7f, false}, {2, 16, 0x7f, 0x80, 0x80, true}};
  return dtype >= F8E4M3FN && dtype <= F8E5M2FNUZ ? &formats[dtype - F8E4M3FN] : nullptr;
}

inline float f8_to_float(uint8_t v, int32_t dtype) {
  using namespace half_detail;
  if (dtype == F8E8M0) return v == 255 ? __builtin_nanf("") : v == 0 ? 0x1p-127f : from_bits(uint32_t(v) << 23);
  const F8Format& f = *f8_format(dtype);
  uint32_t a = v & 0x7f;
  if (f.unsigned_zero ? v == 0x80 : a > f.max && (a != f.inf || f.inf == f.nan)) return __builtin_nanf("");
  int e = int(a >> f.mantissa), m = int(a & ((1u << f.mantissa) - 1));
  float x = a == f.inf && !f.unsigned_zero ? __builtin_inff()
            : e ? float(m + (1 << f.mantissa)) * from_bits(uint32_t(127 + e - f.bias - f.mantissa) << 23)
                : float(m) * from_bits(uint32_t(127 + 1 - f.bias - f.mantissa) << 23);
  return v & 0x80 ? -x : x;
}

// saturate: overflow and infinities give the largest finite value. F8E8M0 (powers of two) rounds the magnitude up (round 0), down (1) or to nearest, ties up (2).
inline uint8_t float_to_f8(float x, int32_t dtype, bool saturate, int round = 0) {
  using namespace half_detail;
  uint32_t u = bits(x), a = u & 0x7fffffff;
  if (dtype == F8E8M0) {
    if (a > 0x7f800000) return 255;
    if (a == 0x7f800000) return saturate ? 254 : 255;
    uint32_t e = a >> 23, m = a & 0x7fffff;
    bool up = e == 0 ? m > 0x400000 && round != 1 : round == 0 ? m != 0 : round == 2 && m >= 0x400000;
    e += up;
    return e > 254 ? (saturate ? 254 : 255) : uint8_t(e);
  }
  const F8Format& f = *f8_format(dtype);
  uint8_t sign = u >> 24 & 0x80;
  if (a > 0x7f800000) return f.unsigned_zero ? f.nan : f.nan | sign;
  int e = int(a >> 23) - 127;
  if (e < 1 - f.bias) e = 1 - f.bias;
  uint32_t code = 0x80;
  if (e <= 16) {
    float q = from_bits(a) * from_bits(uint32_t(127 + f.mantissa - e) << 23);
    code = (uint32_t(e + f.bias - 1) << f.mantissa) + uint32_t(q + 0x1p23f - 0x1p23f);
  }
  if (code > f.max) code = saturate ? f.max : f.inf;
  return uint8_t(f.unsigned_zero ? (code == 0 || code == 0x80 ? code : code | sign) : code | sign);
}
