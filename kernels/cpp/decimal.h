// Numbers as decimal text, exact both ways: the shortest digits that give the number back (Steele and White, "How to Print Floating-Point
// Numbers Accurately"), and the number nearest to any digits (Clinger, "How to Read Floating Point Numbers Accurately"), over integers that
// are as long as it takes.
#pragma once
#include <cmath>

#include "text.h"

// A natural number below 2^6400.
struct Natural {
  static constexpr int LIMBS = 200;
  uint32_t limb[LIMBS];
  int n = 0;

  explicit Natural(uint64_t v = 0) {
    for (; v; v >>= 32) limb[n++] = uint32_t(v);
  }
  void push(uint32_t v) {
    if (n == LIMBS) __builtin_trap();
    limb[n++] = v;
  }
  // this = this * m + a
  void scale(uint32_t m, uint32_t a = 0) {
    uint64_t carry = a;
    for (int i = 0; i < n; i++) carry += uint64_t(limb[i]) * m, limb[i] = uint32_t(carry), carry >>= 32;
    if (carry) push(uint32_t(carry));
  }
  void scale_ten(int power) {
    for (; power >= 9; power -= 9) scale(1000000000);
    for (; power > 0; power--) scale(10);
  }
  void shift(int bits) {
    for (; bits >= 32; bits -= 32) {
      if (!n) return;
      push(0);
      for (int i = n - 1; i > 0; i--) limb[i] = limb[i - 1];
      limb[0] = 0;
    }
    if (bits) scale(uint32_t(1) << bits);
  }
  void halve() {
    for (int i = 0; i < n; i++) limb[i] = limb[i] >> 1 | (i + 1 < n ? limb[i + 1] << 31 : 0);
    while (n && !limb[n - 1]) n--;
  }
  int bits() const { return n ? 32 * n - __builtin_clz(limb[n - 1]) : 0; }
  static int compare(const Natural& a, const Natural& b) {
    if (a.n != b.n) return a.n < b.n ? -1 : 1;
    for (int i = a.n - 1; i >= 0; i--)
      if (a.limb[i] != b.limb[i]) return a.limb[i] < b.limb[i] ? -1 : 1;
    return 0;
  }
  void add(const Natural& b) {
    uint64_t carry = 0;
    for (int i = 0; i < n || i < b.n || carry; i++) {
      if (i == n) push(0);
      carry += uint64_t(limb[i]) + (i < b.n ? b.limb[i] : 0);
      limb[i] = uint32_t(carry), carry >>= 32;
    }
  }
  // b is not larger.
  void subtract(const Natural& b) {
    int64_t borrow = 0;
    for (int i = 0; i < n; i++) {
      const int64_t v = int64_t(limb[i]) - (i < b.n ? b.limb[i] : 0) + borrow;
      limb[i] = uint32_t(v), borrow = v >> 32;
    }
    while (n && !limb[n - 1]) n--;
  }
};

// Of a binary format: bits of the significand with the leading one, and the exponent of the last bit of the smallest numbers.
struct Format {
  int precision, least;
};
constexpr Format HALF{11, -24}, BRAIN{8, -133}, SINGLE{24, -149}, DOUBLE{53, -1074};

// The shortest digits of a finite v > 0 that give it back; returns how many, and where the point is behind the first `point` of them.
inline int shortest_digits(double v, const Format& format, char* digits, int& point) {
  int e = 0;
  std::frexp(v, &e);
  e = e - format.precision < format.least ? format.least : e - format.precision;
  const uint64_t f = uint64_t(std::ldexp(v, -e));
  const bool even = !(f & 1), narrow = f == uint64_t(1) << (format.precision - 1) && e > format.least;
  Natural r(f), s(1), above(1), below(1);
  r.shift((e > 0 ? e : 0) + 1 + narrow);
  s.shift((e < 0 ? -e : 0) + 1 + narrow);
  below.shift(e > 0 ? e : 0);
  above.shift((e > 0 ? e : 0) + narrow);
  point = int(std::ceil((Natural(f).bits() - 1 + e) * 0.30102999566398120 - 1e-10));
  if (point > 0) s.scale_ten(point);
  else r.scale_ten(-point), above.scale_ten(-point), below.scale_ten(-point);
  const auto reaches = [&] {
    Natural top = r;
    top.add(above);
    const int c = Natural::compare(top, s);
    return c > 0 || (c == 0 && even);
  };
  if (reaches()) point++;
  else r.scale(10), above.scale(10), below.scale(10);
  for (int n = 0;; r.scale(10), above.scale(10), below.scale(10)) {
    char digit = '0';
    while (Natural::compare(r, s) >= 0) r.subtract(s), digit++;
    const int c = Natural::compare(r, below);
    const bool low = c < 0 || (c == 0 && even), high = reaches();
    if (!low && !high) {
      digits[n++] = digit;
      continue;
    }
    Natural twice = r;
    twice.shift(1);
    const int half = Natural::compare(twice, s);
    if (high && (!low || half > 0 || (half == 0 && digit & 1))) digit++;
    digits[n++] = digit;
    return n;
  }
}

// The number of the format nearest to 0.d1d2...dn * 10^point, ties to even; `more`: further digits follow, which are not all 0.
inline double nearest(const char* digits, int count, i64 point, bool more, const Format& format) {
  if (point > 310) return INFINITY;
  if (point < -400) return 0;
  Natural value, by(1);
  for (int i = 0; i < count; i++) {
    if (value.n || digits[i] != '0') value.n ? value.scale(10, uint32_t(digits[i] - '0')) : value.push(uint32_t(digits[i] - '0'));
  }
  if (!value.n) return 0;
  if (more) value.scale(10, 1), count++;
  const int ten = int(point) - count;
  if (ten > 0) value.scale_ten(ten);
  else by.scale_ten(-ten);
  // A quotient of `precision` bits, perhaps one more, over 2^scale.
  int scale = format.precision - (value.bits() - by.bits());
  if (scale > -format.least) scale = -format.least;
  if (scale > 0) value.shift(scale);
  else by.shift(-scale);
  uint64_t q = 0;
  by.shift(format.precision + 1);
  for (int i = 0; i <= format.precision + 1; i++, by.halve()) {
    q <<= 1;
    if (Natural::compare(value, by) >= 0) value.subtract(by), q |= 1;
    if (i == format.precision + 1) break;
  }
  bool up;
  if (q >> format.precision) {
    up = (q & 1) && (value.n || q & 2);
    q >>= 1, scale--;
  } else {
    value.shift(1);
    const int c = Natural::compare(value, by);
    up = c > 0 || (c == 0 && q & 1);
  }
  return std::ldexp(double(q + up), -scale);
}
