// Numbers as text: integers in decimal, floats by their shortest digits. Each has its own piece of the pool.
#include "decimal.h"
#include "half.h"
#include "params.h"
#include "small.h"

namespace {

constexpr i64 ROOM = 32;  // bytes of the pool per number

bool is_known(int32_t t) {
  switch (t) {
    case BOOL: case U8: case I8: case U16: case I16: case U32: case I32: case U64: case I64: case F16: case BF16: case F32: case F64: return true;
    default: return false;
  }
}

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const StringFormatParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringFormatBufs*>(call.bufs);
  if (!is_pool(b.pool) || !is_known(b.x.dtype)) return "a dtype is wrong";
  if (!are_spans(b.y, p.n) || p.n > b.x.count()) return "x or y is too small";
  if (p.n > INT32_MAX / ROOM || p.n * ROOM > b.pool.count()) return "the pool is too small, or takes 2 GB and more";
  proof.operations = Size(p.n) * 256;
  proof.writes(0, {0, p.n});
  proof.writes(1, {0, p.n * ROOM});
  return nullptr;
}

int put_word(char* to, const char* word) {
  int n = 0;
  while (word[n]) to[n] = word[n], n++;
  return n;
}

int put_integer(char* to, uint64_t v) {
  char reversed[20];
  int n = 0;
  do reversed[n++] = char('0' + v % 10);
  while (v /= 10);
  for (int k = 0; k < n; k++) to[k] = reversed[n - 1 - k];
  return n;
}

// As C's %g with `most` digits would lay the digits out: 0.001, 100, 1e+16.
int put_float(char* to, double v, const Format& format, int most) {
  if (v != v) return put_word(to, "NaN");
  int n = 0;
  if (std::signbit(v)) to[n++] = '-', v = -v;
  if (std::isinf(v)) return n + put_word(to + n, "INF");
  if (v == 0) return to[n++] = '0', n;
  char digits[20];
  int point = 0;
  const int count = shortest_digits(v, format, digits, point), power = point - 1;
  if (power < -4 || power >= most) {
    to[n++] = digits[0];
    if (count > 1) to[n++] = '.';
    for (int k = 1; k < count; k++) to[n++] = digits[k];
    to[n++] = 'e', to[n++] = power < 0 ? '-' : '+';
    const int size = power < 0 ? -power : power;
    if (size < 10) to[n++] = '0';
    return n + put_integer(to + n, uint64_t(size));
  }
  if (point <= 0) {
    n += put_word(to + n, "0.");
    for (int k = point; k < 0; k++) to[n++] = '0';
  }
  for (int k = 0; k < count || k < point; k++) {
    if (k == point && point > 0) to[n++] = '.';
    to[n++] = k < count ? digits[k] : '0';
  }
  return n;
}

int put_signed(char* to, i64 v) {
  if (v >= 0) return put_integer(to, uint64_t(v));
  *to = '-';
  return 1 + put_integer(to + 1, 0 - uint64_t(v));
}

int put(char* to, const Buf& x, i64 i) {
  switch (x.dtype) {
    case BOOL: return put_integer(to, x.as<uint8_t>()[i] != 0);
    case U8: return put_integer(to, x.as<uint8_t>()[i]);
    case U16: return put_integer(to, x.as<uint16_t>()[i]);
    case U32: return put_integer(to, x.as<uint32_t>()[i]);
    case U64: return put_integer(to, x.as<uint64_t>()[i]);
    case I8: return put_signed(to, x.as<int8_t>()[i]);
    case I16: return put_signed(to, x.as<int16_t>()[i]);
    case I32: return put_signed(to, x.as<int32_t>()[i]);
    case I64: return put_signed(to, x.as<i64>()[i]);
    case F16: return put_float(to, double(half_to_float(x.as<uint16_t>()[i])), HALF, 8);
    case BF16: return put_float(to, double(bf16_to_float(x.as<uint16_t>()[i])), BRAIN, 8);
    case F32: return put_float(to, double(x.as<float>()[i]), SINGLE, 8);
    default: return put_float(to, x.as<double>()[i], DOUBLE, 16);
  }
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const StringFormatParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringFormatBufs*>(call.bufs);
  parallel_for(call.pool, p.n, 1 << 8, [&](i64 begin, i64 end, int) {
    if (end > begin) __builtin_memset(b.pool.data + begin * ROOM, 0, size_t((end - begin) * ROOM));
    for (i64 i = begin; i < end; i++) b.y.as<i64>()[i] = (i * ROOM) << 32 | put(b.pool.data + i * ROOM, b.x, i);
  });
}

}  // namespace

KERNEL(string_format, check, no_scratch, run)
