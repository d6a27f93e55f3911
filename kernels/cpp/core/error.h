// How the core reports: one struct of the caller, filled with a code, the step and a text.
#pragma once
#include "../kernel.h"

struct Error {
  int32_t code;  // 0: fine, else one of Code
  int32_t step, message, detail;
  char text[240];
};

enum Code : int32_t { MALFORMED = 1, UNKNOWN_KERNEL = 2, CHECK_FAILED = 3, BAD_BIND = 4, NO_MEMORY = 5, BAD_DATA = 6, MISUSE = 7, LIMIT = 8, CANCELLED = 9 };

struct Text {
  char* at;
  char* end;
  Text& operator<<(const char* s) {
    while (*s && at < end) *at++ = *s >= 32 && *s < 127 ? *s : '?', s++;
    return *this;
  }
  Text& operator<<(i64 v) {
    char digits[24], *d = digits + 23;
    *d = 0;
    uint64_t u = v < 0 ? 0 - uint64_t(v) : uint64_t(v);
    do *--d = char('0' + u % 10);
    while (u /= 10);
    if (v < 0) *--d = '-';
    return *this << d;
  }
};

// A part of a message: a text or an integer.
struct Part {
  const char* text;
  i64 number = 0;
  Part(const char* text) : text(text) {}
  Part(i64 number) : text(nullptr), number(number) {}
};

[[gnu::noinline]] inline int32_t fail_with(Error* e, Code code, int32_t step, const Part* parts, int n) {
  if (!e) return code;
  e->code = code, e->step = step, e->message = e->detail = -1;
  Text t{e->text, e->text + sizeof e->text - 1};
  for (int i = 0; i < n; i++) parts[i].text ? t << parts[i].text : t << parts[i].number;
  *t.at = 0;
  return code;
}

// Fills the error and returns its code. Parts are texts and integers.
template <class... Parts> int32_t fail(Error* e, Code code, int32_t step, Parts... parts) {
  const Part all[] = {Part(parts)...};
  return fail_with(e, code, step, all, sizeof...(parts));
}
