// The functions of doubles for which libc brings 9 KB of tables, without: in WebAssembly they take the place of libc's, for those of its
// functions that call them too. Errors stay below 1 ulp (exp, sin, cos, pow), 1.5 (expm1) and 2.5 (sinh, cosh, tanh, tan). Float exceptions
// are not told.
#if defined(__wasm__)
#include <cstdint>

namespace {

using u64 = uint64_t;
constexpr double INF = __builtin_inf();
constexpr double LOG2E = 1.4426950408889634, LN2 = 0.69314718055994531;
constexpr double LN2_HIGH = 0x1.62e42feep-1, LN2_LOW = 0x1.a39ef35793c76p-33;  // the first of 32 bits: times 2^11 it is exact
constexpr double PI_2 = 0x1.921fb54442d18p0, PI_2_LOW = 0x1.1a62633145c07p-54;

u64 bits(double x) { return __builtin_bit_cast(u64, x); }
double power_of_two(int64_t k) { return __builtin_bit_cast(double, u64(k + 1023) << 52); }
// x * 2^k with one rounding, for x near 1 and |k| below 1500.
double scaled(double x, int64_t k) {
  const double most = k > 0 ? 0x1p700 : 0x1p-700;
  return x * power_of_two(k > 0 ? k - 700 : k + 700) * most;
}

// A sum of two doubles that overlap in no bit.
struct Pair {
  double high, low;
};
Pair fast_sum(double a, double b) {
  const double s = a + b;
  return {s, b - (s - a)};
}
Pair product(double a, double b) {  // there is no fused multiply-add
  const double p = a * b, ah = __builtin_bit_cast(double, bits(a) & ~u64(0x7ffffff)), bh = __builtin_bit_cast(double, bits(b) & ~u64(0x7ffffff));
  const double al = a - ah, bl = b - bh;
  return {p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}
Pair operator*(Pair a, Pair b) {
  const Pair p = product(a.high, b.high);
  return fast_sum(p.high, p.low + (a.high * b.low + a.low * b.high));
}

// Horner's rule over coefficients from the highest power on.
template <int N> double poly(double x, const double (&c)[N]) {
  double p = c[0];
  for (int i = 1; i < N; i++) p = p * x + c[i];
  return p;
}

// e^(r + low) - 1 for |r| <= ln(2) / 2
double small_expm1(double r, double low) {
  static constexpr double C[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                                 1.0 / 5040,       1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      1.0 / 2};
  return r + (r * r * poly(r, C) + (low + low * r));
}

// e^x is 2^k (1 + the result)
double reduced_expm1(double x, int64_t& k) {
  const double n = __builtin_rint(x * LOG2E);
  k = int64_t(n);
  const double high = x - n * LN2_HIGH, low = n * LN2_LOW, r = high - low;
  return small_expm1(r, (high - r) - low);
}

double exponential(double x) {
  if (!(x < 710)) return x + INF;
  if (x < -746) return 0;
  int64_t k;
  const double p = reduced_expm1(x, k);
  return scaled(1 + p, k);
}

double exponential_less_one(double x) {
  if (!(x < 710)) return x + INF;
  if (x < -40) return -1;
  if (__builtin_fabs(x) < 0x1p-54) return x;
  int64_t k;
  const double p = reduced_expm1(x, k);
  if (k == 0) return p;
  if (k > 60) return scaled(1 + p, k);
  const double two = power_of_two(k);
  return p * two + (two - 1);
}

// The logarithm of a positive number to base 2, to 2^-65 of its size.
Pair log2_pair(double x) {
  constexpr u64 one = 0x3ff0000000000000, sqrt_half = 0x3fe6a09e667f3bcd;
  const bool tiny = x < 0x1p-1022;
  const u64 i = bits(tiny ? x * 0x1p54 : x) + (one - sqrt_half);
  const double e = double(int64_t(i >> 52) - 1023 - (tiny ? 54 : 0));
  const double m = __builtin_bit_cast(double, (i & 0xfffffffffffff) + sqrt_half);  // in [sqrt(1/2), sqrt(2))
  // s = (m - 1) / (m + 1); log(m) = 2/3 s (3 + s^2 + 3/5 s^4 + 3/7 s^6 ...)
  const double f = m - 1, d = m + 1, d_low = m - (d - 1), high = f / d;
  const Pair back = product(high, d);
  const Pair s{high, ((f - back.high) - back.low - high * d_low) / d};
  const Pair square = s * s;
  static constexpr double C[] = {3.0 / 27, 3.0 / 25, 3.0 / 23, 3.0 / 21, 3.0 / 19, 3.0 / 17, 3.0 / 15, 3.0 / 13, 3.0 / 11, 3.0 / 9, 3.0 / 7, 3.0 / 5};
  const double z = square.high;
  const Pair three = fast_sum(3, z);
  const Pair w = fast_sum(three.high, three.low + (square.low + z * z * poly(z, C)));
  constexpr Pair factor{0x1.ec709dc3a03fdp-1, 0x1.d27f05548af0cp-55};  // 2 / (3 ln 2)
  const Pair l = s * w * factor;
  if (e == 0) return l;
  const Pair sum = fast_sum(e, l.high);
  return fast_sum(sum.high, sum.low + l.low);
}

double raised(double x, double y) {
  const double a = __builtin_fabs(x), b = __builtin_fabs(y);
  if (x == 1 || y == 0) return 1;
  if (x != x || y != y) return x + y;
  const bool whole = __builtin_rint(y) == y, odd = whole && b < 0x1p53 && (int64_t(b) & 1);
  const double sign = odd ? __builtin_copysign(1.0, x) : 1;
  if (a == 0 || a == INF || b == INF || a == 1) {
    if (b == INF) return a == 1 ? 1 : (a > 1) == (y > 0) ? INF : 0;
    if (a == 1) return whole ? sign : __builtin_nan("");
    return sign * ((a > 1) == (y > 0) ? INF : 0);
  }
  if (x < 0 && !whole) return __builtin_nan("");
  const Pair l = log2_pair(a);
  const double about = y * l.high;
  if (about >= 1025) return sign * INF;
  if (about <= -1080) return sign * 0;
  const Pair t = product(y, l.high);
  const double n = __builtin_rint(t.high);
  const Pair f = fast_sum(t.high - n, t.low + y * l.low), r = product(f.high, LN2);
  return sign * scaled(1 + small_expm1(r.high, r.low + (f.high * 0x1.abc9e3b39803fp-56 + f.low * LN2)), int64_t(n));
}

// 64 bits of 0, then 2 / pi.
constexpr u64 TWO_BY_PI[] = {0,
                             0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c,
                             0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
                             0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08,
                             0x56033046fc7b6bab};

// x less `quarter` times pi/2, which is at most pi/4. By Payne and Hanek: of the products of 2/pi's bits only those that are no multiples of 4 count.
Pair reduced(double x, int& quarter) {
  const double a = __builtin_fabs(x);
  if (a <= PI_2 / 2) return quarter = 0, Pair{x, 0};
  if (a < 0x1p20) {
    constexpr double first = 0x1.921fb544p0, second = 0x1.0b4611a4p-34, third = 0x1.13198a2e03707p-65;  // the first two of 31 bits
    const double n = __builtin_rint(x * (2 / 3.14159265358979323846));
    const double high = x - n * first, t = n * second, u = high - t;
    const double low = n * third;
    if (__builtin_fabs(u) > 0x1p-20) {
      const double r = u - low;
      return quarter = int(n) & 3, Pair{r, ((high - u) - t) + ((u - r) - low)};
    }
  }
  const int exponent = int(bits(a) >> 52), start = exponent - 1023 + 10, word = start / 64, shift = start % 64;
  const u64 m = (bits(a) & 0xfffffffffffff) | 0x10000000000000;
  auto piece = [&](int k) { return shift ? TWO_BY_PI[word + k] << shift | TWO_BY_PI[word + k + 1] >> (64 - shift) : TWO_BY_PI[word + k]; };
  using Wide = unsigned __int128;
  const Wide middle = Wide(piece(1)) * m + u64(Wide(piece(2)) * m >> 64);
  const u64 top = piece(0) * m + u64(middle >> 64);  // two bits of quarters, then the fraction
  u64 rest = u64(middle);
  const u64 q = (top + (u64(1) << 61)) >> 62;
  u64 fraction = top - (q << 62);
  const bool below = int64_t(fraction) < 0;
  if (below) fraction = ~fraction, rest = ~rest;
  const int zeros = fraction ? __builtin_clzll(fraction) : 64;
  fraction = zeros == 64 ? rest : zeros ? fraction << zeros | rest >> (64 - zeros) : fraction;
  const double scale = power_of_two(-62 - zeros);
  const bool minus = (x < 0) != below;
  const Pair f{double(fraction & ~u64(0x7ff)) * scale, double(fraction & 0x7ff) * scale};
  Pair r = f * Pair{PI_2, PI_2_LOW};
  quarter = int(x < 0 ? 4 - q : q) & 3;
  if (minus) r = {-r.high, -r.low};
  return r;
}

double sine(Pair x) {
  static constexpr double C[] = {1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6};
  const double z = x.high * x.high;
  return x.high + (z * x.high * poly(z, C) + x.low * (1 - z / 2));
}

double cosine(Pair x) {
  static constexpr double C[] = {-1.0 / 6402373705728000, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24};
  const double z = x.high * x.high, half = z / 2, w = 1 - half;
  return w + (((1 - w) - half) + (z * z * poly(z, C) - x.high * x.low));
}

double trigonometric(double x, int quarter) {
  if (!(__builtin_fabs(x) < INF)) return __builtin_nan("");
  int found;
  const Pair r = reduced(x, found);
  quarter += found;
  const double y = quarter & 1 ? cosine(r) : sine(r);
  return quarter & 2 ? -y : y;
}

}  // namespace

extern "C" {
double exp(double x) { return exponential(x); }
double expm1(double x) { return exponential_less_one(x); }
double pow(double x, double y) { return raised(x, y); }
double sin(double x) { return x == 0 ? x : trigonometric(x, 0); }
double cos(double x) { return trigonometric(x, 1); }
double tan(double x) { return x == 0 ? x : trigonometric(x, 0) / trigonometric(x, 1); }
double sinh(double x) {
  const double a = __builtin_fabs(x);
  if (!(a < 700)) {
    const double e = exponential(a / 2);
    return __builtin_copysign(e / 2 * e, x);
  }
  const double t = exponential_less_one(a);
  return __builtin_copysign((t + t / (t + 1)) / 2, x);
}
double cosh(double x) {
  const double a = __builtin_fabs(x), e = exponential(a < 700 ? a : a / 2);
  return a < 700 ? e / 2 + 0.5 / e : e / 2 * e;
}
double tanh(double x) {
  const double t = exponential_less_one(2 * __builtin_fabs(x));
  return x == 0 ? x : __builtin_copysign(t > 1 ? 1 - 2 / (t + 2) : t / (t + 2), x);
}
}
#endif
