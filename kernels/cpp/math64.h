// Logarithms of doubles by way of log1p, which needs no table: libc's log brings 4 KB. Errors stay below 2 ulp.
#pragma once
#include <cstdint>

namespace math64 {
constexpr double LN2 = 0.693147180559945309417;

inline double log(double x) {
  constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
  constexpr int64_t one = 0x3ff0000000000000, sqrt_half = 0x3fe6a09e667f3bcd;
  if (!(x > 0)) return x == 0 ? -__builtin_inf() : __builtin_nan("");
  if (x == __builtin_inf()) return x;
  const bool tiny = x < 0x1p-1022;
  const int64_t i = __builtin_bit_cast(int64_t, tiny ? x * 0x1p54 : x) + (one - sqrt_half);
  const double e = double((i >> 52) - 1023 - (tiny ? 54 : 0));
  const double m = __builtin_bit_cast(double, (i & 0xfffffffffffff) + sqrt_half);  // in [sqrt(1/2), sqrt(2))
  return e * ln2_high + (e * ln2_low + __builtin_log1p(m - 1));
}

inline double asinh(double x) {
  const double a = __builtin_fabs(x);
  const double y = a > 0x1p28 ? log(a) + LN2 : __builtin_log1p(a + a * a / (1 + __builtin_sqrt(a * a + 1)));
  return __builtin_copysign(y, x);
}

inline double acosh(double x) {
  if (x > 0x1p28) return log(x) + LN2;
  const double t = x - 1;
  return x < 1 ? __builtin_nan("") : __builtin_log1p(t + __builtin_sqrt(2 * t + t * t));
}
}  // namespace math64
