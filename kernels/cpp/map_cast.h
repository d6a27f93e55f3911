// Conversion of a run of elements between any two dtypes, through i64, f32 or f64 as a middle step.
#pragma once
#include "half.h"

#pragma clang diagnostic ignored "-Wpass-failed"  // loops over library functions stay scalar
// Iterations are independent even where the destination is an operand.
#define PWX_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")

namespace cast {
constexpr i64 CHUNK = 128;

template <class D, class S, class F> inline void each(void* d, const void* s, i64 n, F f) {
  auto* to = static_cast<D*>(d);
  auto* from = static_cast<const S*>(s);
  PWX_VECTORIZE
  for (i64 i = 0; i < n; i++) to[i] = f(from[i]);
}
template <class D, class S> inline void plain(void* d, const void* s, i64 n) {
  each<D, S>(d, s, n, [](S v) { return D(v); });
}

// NaN gives 0; what i64 cannot hold gives its minimum, as on x86.
template <class T> inline i64 to_i64(T x) { return x != x ? 0 : x >= T(-0x1p63) && x < T(0x1p63) ? i64(x) : INT64_MIN; }
template <class T> inline uint64_t to_u64(T x) { return x >= T(0x1p63) && x < T(0x1p64) ? uint64_t(x) : uint64_t(to_i64(x)); }

inline bool is_f8(int32_t t) { return (t >= F8E4M3FN && t <= F8E5M2FNUZ) || t == F8E8M0; }
inline bool is_small_float(int32_t t) { return t == F16 || t == BF16 || is_f8(t); }
inline bool is_float(int32_t t) { return t == F32 || t == F64 || is_small_float(t); }
inline bool is_int(int32_t t) { return t == I8 || t == U8 || t == I16 || t == U16 || t == I32 || t == U32 || t == I64 || t == U64; }
inline bool known(int32_t t) { return is_float(t) || is_int(t) || t == BOOL; }

inline void small_to_f32(void* d, const void* s, i64 n, int32_t from) {
  if (from == F16) return each<float, uint16_t>(d, s, n, half_to_float);
  if (from == BF16) return each<float, uint16_t>(d, s, n, bf16_to_float);
  for (i64 i = 0; i < n; i++) static_cast<float*>(d)[i] = f8_to_float(static_cast<const uint8_t*>(s)[i], from);
}
inline void f32_to_small(void* d, const void* s, i64 n, int32_t to, int32_t mode) {
  if (to == F16) return each<uint16_t, float>(d, s, n, float_to_half);
  if (to == BF16) return each<uint16_t, float>(d, s, n, float_to_bf16);
  for (i64 i = 0; i < n; i++) static_cast<uint8_t*>(d)[i] = float_to_f8(static_cast<const float*>(s)[i], to, !(mode & 1), mode >> 1);
}

inline void to_wide(void* d, const void* s, i64 n, int32_t from) {  // integers to i64 (u64 keeps its bits)
  switch (from) {
    case BOOL: case U8: return plain<i64, uint8_t>(d, s, n);
    case I8: return plain<i64, int8_t>(d, s, n);
    case U16: return plain<i64, uint16_t>(d, s, n);
    case I16: return plain<i64, int16_t>(d, s, n);
    case U32: return plain<i64, uint32_t>(d, s, n);
    case I32: return plain<i64, int32_t>(d, s, n);
    default: return plain<i64, i64>(d, s, n);
  }
}
inline void from_wide(void* d, const void* s, i64 n, int32_t to) {
  if (to == BOOL) return each<uint8_t, i64>(d, s, n, [](i64 v) { return uint8_t(v != 0); });
  switch (dtype_size(to)) {
    case 1: return plain<uint8_t, i64>(d, s, n);
    case 2: return plain<uint16_t, i64>(d, s, n);
    case 4: return plain<uint32_t, i64>(d, s, n);
    default: return plain<i64, i64>(d, s, n);
  }
}

// Integers of up to 32 bits to int32; false for the others.
inline bool to_int(void* d, const void* s, i64 n, int32_t from) {
  switch (from) {
    case BOOL: case U8: return plain<int32_t, uint8_t>(d, s, n), true;
    case I8: return plain<int32_t, int8_t>(d, s, n), true;
    case U16: return plain<int32_t, uint16_t>(d, s, n), true;
    case I16: return plain<int32_t, int16_t>(d, s, n), true;
    case I32: return plain<int32_t, int32_t>(d, s, n), true;
    default: return false;
  }
}
inline void from_int(void* d, const void* s, i64 n, int32_t to) {
  switch (dtype_size(to)) {
    case 1: return plain<uint8_t, int32_t>(d, s, n);
    case 2: return plain<uint16_t, int32_t>(d, s, n);
    default: return plain<uint32_t, int32_t>(d, s, n);
  }
}

// Where every float fits int32, narrowing its integer part is what going through i64 gives.
inline bool all_fit_int(const float* s, i64 n) {
  int32_t fit = -1;
  PWX_VECTORIZE
  for (i64 i = 0; i < n; i++) fit &= -int32_t(__builtin_fabsf(s[i]) < 0x1p31f);
  return fit;
}

inline void chunk(void* d, int32_t to, const void* s, int32_t from, i64 n, int32_t mode) {
  alignas(64) char mid[CHUNK * 8], mid2[CHUNK * 8];
  if (is_small_float(from)) {
    small_to_f32(to == F32 ? d : mid, s, n, from);
    return to == F32 ? void() : chunk(d, to, mid, F32, n, mode);
  }
  if (is_small_float(to)) {
    if (from != F32) {
      if (from != F64) chunk(mid2, F64, s, from, n, 0), s = mid2;
      each<float, double>(mid, s, n, double_to_float_odd);
      s = mid;
    }
    return f32_to_small(d, s, n, to, mode);
  }
  if (is_float(from)) {
    bool single = from == F32;
    if (to == BOOL) return single ? each<uint8_t, float>(d, s, n, [](float v) { return uint8_t(v != 0); }) : each<uint8_t, double>(d, s, n, [](double v) { return uint8_t(v != 0); });
    if (to == F32) return plain<float, double>(d, s, n);
    if (to == F64) return plain<double, float>(d, s, n);
    if (to == U64) return single ? each<uint64_t, float>(d, s, n, to_u64<float>) : each<uint64_t, double>(d, s, n, to_u64<double>);
    if (single && dtype_size(to) <= 4 && all_fit_int(static_cast<const float*>(s), n)) {
      plain<int32_t, float>(mid, s, n);
      return from_int(d, mid, n, to);
    }
    single ? each<i64, float>(mid, s, n, to_i64<float>) : each<i64, double>(mid, s, n, to_i64<double>);
    return from_wide(d, mid, n, to);
  }
  if (to == F32) {
    if (to_int(mid, s, n, from)) return plain<float, int32_t>(d, mid, n);
    if (from == U64) return plain<float, uint64_t>(d, s, n);
    to_wide(mid, s, n, from);
    return plain<float, i64>(d, mid, n);
  }
  if (to == F64) {
    if (from == U64) return plain<double, uint64_t>(d, s, n);
    to_wide(mid, s, n, from);
    return plain<double, i64>(d, mid, n);
  }
  if (to != BOOL && dtype_size(to) <= 4 && to_int(mid, s, n, from)) return from_int(d, mid, n, to);
  to_wide(mid, s, n, from);
  from_wide(d, mid, n, to);
}

// mode (8-bit floats): bit 0 overflow does not saturate, bits 1.. the rounding of F8E8M0. d may be s when the sizes are equal.
inline void convert(void* d, int32_t to, const void* s, int32_t from, i64 n, int32_t mode = 0) {
  i64 ds = dtype_size(to), ss = dtype_size(from);
  if (to == from) return void(d != s && n ? __builtin_memmove(d, s, size_t(n * ds)) : d);
  for (i64 i = 0; i < n; i += CHUNK)
    chunk(static_cast<char*>(d) + i * ds, to, static_cast<const char*>(s) + i * ss, from, n - i < CHUNK ? n - i : CHUNK, mode);
}
}  // namespace cast
