// Text as numbers: decimal integers and floats, INF and NaN in any case, white space around them.
#include "decimal.h"
#include "params.h"
#include "small.h"

namespace {

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const StringParseParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringParseBufs*>(call.bufs);
  if (!is_pool(b.pool)) return "a dtype is wrong";
  if (b.y.dtype != F32 && b.y.dtype != F64 && b.y.dtype != I64 && b.y.dtype != U64) return "y is neither float32, float64, int64 nor uint64";
  if (!are_spans(b.x, p.n) || p.n > b.y.count()) return "x or y is too small";
  proof.operations = Size(p.n) * 256 + b.pool.bytes;
  proof.writes(0, {0, p.n});
  return nullptr;
}

constexpr int DIGITS = 800;  // more than a number halfway between two doubles has

struct Decimal {
  bool negative = false, number = false, whole = false;  // whole: digits alone, all of them held
  char digits[DIGITS];
  int count = 0;
  i64 point = 0;
  bool more = false;
  double special = 0;  // infinite or NaN, where it is no decimal
};

bool is_blank(char c) { return c == ' ' || (c >= 9 && c <= 13); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c | 32) : c; }

bool is(const char* at, const char* end, const char* word) {
  while (at < end && *word && lower(*at) == *word) at++, word++;
  return at == end && !*word;
}

void read(const Text& t, Decimal& d) {
  const char *at = t.data, *end = t.data + t.size;
  while (at < end && is_blank(*at)) at++;
  while (at < end && is_blank(end[-1])) end--;
  if (at < end && (*at == '+' || *at == '-')) d.negative = *at++ == '-';
  if (is(at, end, "inf") || is(at, end, "infinity")) return d.special = INFINITY, d.number = true, void();
  if (is(at, end, "nan")) return d.special = NAN, d.number = true, void();
  bool any = false, behind = false;
  d.whole = true;
  for (; at < end; at++) {
    if (*at == '.' && !behind) {
      behind = true, d.whole = false;
      continue;
    }
    if (*at < '0' || *at > '9') break;
    any = true;
    if (behind) d.point -= d.count == 0 && *at == '0';
    if (d.count == 0 && *at == '0') continue;
    if (d.count < DIGITS) d.digits[d.count++] = *at;
    else d.more |= *at != '0', d.whole = false;
    if (!behind) d.point++;
  }
  if (!any) return;
  if (at < end && lower(*at) == 'e') {
    d.whole = false;
    bool negative = false;
    if (++at < end && (*at == '+' || *at == '-')) negative = *at++ == '-';
    if (at == end) return;
    i64 power = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++) power = power > 1 << 20 ? power : 10 * power + (*at - '0');
    d.point += negative ? -power : power;
  }
  d.number = at == end;
}

double as_double(const Decimal& d) {
  if (d.special != 0) return d.special;
  if (d.count <= 15 && !d.more) {  // both exact: one rounding
    constexpr double TEN[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    i64 v = 0;
    for (int k = 0; k < d.count; k++) v = 10 * v + (d.digits[k] - '0');
    const i64 power = d.point - d.count;
    if (v == 0) return 0;
    if (power >= 0 && power <= 22) return double(v) * TEN[power];
    if (power < 0 && power >= -22) return double(v) / TEN[-power];
  }
  return nearest(d.digits, d.count, d.point, d.more, DOUBLE);
}

float as_float(const Decimal& d) {
  const double v = as_double(d);
  uint64_t bits;
  __builtin_memcpy(&bits, &v, 8);
  // Rounded twice is rounded once but where the first ended halfway between two floats, or these have fewer bits.
  if ((bits & 0x1fffffff) != 0x10000000 && (v == 0 || v >= 0x1p-126)) return float(v);
  if (d.special != 0) return float(v);
  const double near = nearest(d.digits, d.count, d.point, d.more, SINGLE);
  return near > 3.4028234663852886e38 ? INFINITY : float(near);
}

// Cuts what is behind the point off; false where 64 bits do not hold it.
bool as_integer(const Decimal& d, uint64_t& v) {
  v = 0;
  if (d.special != 0) return false;
  for (i64 k = 0; k < d.point; k++) {
    const uint64_t digit = k < d.count ? uint64_t(d.digits[k] - '0') : 0;
    if (!d.count) break;
    if (__builtin_mul_overflow(v, uint64_t(10), &v) || __builtin_add_overflow(v, digit, &v)) return false;
  }
  return true;
}

const char* put(const Decimal& d, const Buf& y, i64 i) {
  if (!d.number) return "a string is no number";
  const double sign = d.negative ? -1 : 1;
  if (y.dtype == F64) return y.as<double>()[i] = std::copysign(as_double(d), sign), nullptr;
  if (y.dtype == F32) return y.as<float>()[i] = std::copysign(as_float(d), float(sign)), nullptr;
  uint64_t v;
  const bool fits = as_integer(d, v) && (y.dtype == U64 ? true : v <= uint64_t(INT64_MAX) + d.negative);
  if (!fits) return "a string is no number that an integer of 64 bits holds";
  y.as<uint64_t>()[i] = d.negative ? 0 - v : v;
  return nullptr;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const StringParseParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringParseBufs*>(call.bufs);
  parallel_for(call.pool, p.n, 1 << 8, [&](i64 begin, i64 end, int) {
    bool ok = true;
    for (i64 i = begin; i < end; i++) {
      Decimal d;
      read(text_at(b.x.as<i64>()[i], b.pool, ok), d);
      if (!ok) return call.fail(SPAN_OUTSIDE);
      if (const char* wrong = put(d, b.y, i)) return call.fail(wrong);
    }
  });
}

}  // namespace

KERNEL(string_parse, check, no_scratch, run)
