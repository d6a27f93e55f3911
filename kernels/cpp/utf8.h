// Code points of UTF-8. What is none is U+FFFD, one byte of it.
#pragma once
#include "text.h"

inline bool continues(const Text& t, i64 at) { return at < t.size && (uint8_t(t.data[at]) & 0xc0) == 0x80; }

// The code point at `at`, and `at` behind it.
inline uint32_t next_code(const Text& t, i64& at) {
  const auto byte = [&](i64 k) { return uint32_t(uint8_t(t.data[k])); };
  const uint32_t first = byte(at++);
  if (first < 0x80) return first;
  const int more = first >= 0xf0 && first < 0xf8 ? 3 : first >= 0xe0 && first < 0xf0 ? 2 : first >= 0xc2 && first < 0xe0 ? 1 : 0;
  uint32_t code = first & (0x3fu >> more);
  for (int k = 0; k < more; k++)
    if (!continues(t, at + k)) return 0xfffd;
  for (int k = 0; k < more; k++) code = code << 6 | (byte(at + k) & 0x3f);
  constexpr uint32_t least[] = {0xffffffff, 0x80, 0x800, 0x10000};
  if (code < least[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0xfffd;
  at += more;
  return code;
}

inline int code_bytes(uint32_t code) { return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4; }

// Writes `code_bytes(code)` bytes.
inline void put_code(char* to, uint32_t code) {
  const int n = code_bytes(code);
  if (n == 1) return void(*to = char(code));
  constexpr uint32_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (int k = n - 1; k > 0; k--) to[k] = char(0x80 | (code & 0x3f)), code >>= 6;
  *to = char(lead[n] | code);
}

// What Unicode calls white space, and the separators U+001C to U+001F.
inline bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}
