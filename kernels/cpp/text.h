// Strings as spans of a pool of bytes: an i64 holds where a string begins, times 2^32, and how many bytes it has.
#pragma once
#include "kernel.h"

struct Text {
  const char* data;
  i64 size;
};

constexpr i64 TEXT_LENGTH = (i64(1) << 32) - 1;

// The bytes of a span. One that leaves the pool is empty and clears `ok`: spans are data.
inline Text text_at(i64 span, const Buf& pool, bool& ok) {
  const i64 start = span >> 32, size = span & TEXT_LENGTH;
  if (start < 0 || start + size > pool.bytes) return ok = false, Text{nullptr, 0};
  return {pool.data + start, size};
}

inline int compare_bytes(Text a, Text b) {
  const i64 n = a.size < b.size ? a.size : b.size;
  if (n)
    if (const int c = __builtin_memcmp(a.data, b.data, size_t(n))) return c;
  return a.size < b.size ? -1 : a.size > b.size;
}

inline bool same_bytes(Text a, Text b) { return a.size == b.size && (!a.size || !__builtin_memcmp(a.data, b.data, size_t(a.size))); }

inline constexpr const char* SPAN_OUTSIDE = "a string lies outside its bytes";

// For `check`: spans are int64, `n` of them at least, and a pool is bytes.
inline bool are_spans(const Buf& b, i64 n) { return b.dtype == I64 && n >= 0 && n <= b.count(); }
inline bool is_pool(const Buf& b) { return b.dtype == U8; }
