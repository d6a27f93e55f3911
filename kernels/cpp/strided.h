// Walking strided views: two views over one index space, coalesced into as few dimensions as possible.
#pragma once
#include "kernel.h"

constexpr i64 MAX_RANK = 8;

struct Nest {
  i64 rank = 0;
  i64 shape[MAX_RANK], xs[MAX_RANK], ys[MAX_RANK];

  i64 outer() const {  // iterations of all dimensions but the last
    i64 n = 1;
    for (i64 d = 0; d + 1 < rank; d++) n *= shape[d];
    return n;
  }
};

inline i64 stride_size(i64 s) { return s < 0 ? -s : s; }

// Drops dimensions of size 1, merges those that step as one. `reorder` sorts by y's strides first, the smallest last.
// The result has at least one dimension; the sizes must not contain 0.
[[gnu::noinline]] PWX_SMALL inline Nest coalesce(i64 rank, const i64* shape, const i64* xs, const i64* ys, bool reorder) {
  Nest t;
  for (i64 d = 0; d < rank; d++) {
    if (shape[d] == 1) continue;
    i64 at = t.rank++;
    if (reorder)
      for (; at > 0 && stride_size(t.ys[at - 1]) < stride_size(ys[d]); at--)
        t.shape[at] = t.shape[at - 1], t.xs[at] = t.xs[at - 1], t.ys[at] = t.ys[at - 1];
    t.shape[at] = shape[d], t.xs[at] = xs[d], t.ys[at] = ys[d];
  }
  i64 n = 0;
  for (i64 d = 1; d < t.rank; d++) {
    if (t.xs[n] == t.shape[d] * t.xs[d] && t.ys[n] == t.shape[d] * t.ys[d]) {
      t.shape[n] *= t.shape[d], t.xs[n] = t.xs[d], t.ys[n] = t.ys[d];
    } else {
      n++;
      t.shape[n] = t.shape[d], t.xs[n] = t.xs[d], t.ys[n] = t.ys[d];
    }
  }
  if (t.rank == 0) t.shape[0] = t.xs[0] = t.ys[0] = 1;
  t.rank = n + 1;
  return t;
}

// A row-major walk over the first `rank` dimensions of a nest, from any starting point.
struct Walk {
  const Nest& nest;
  i64 rank, x = 0, y = 0, at[MAX_RANK];

  Walk(const Nest& nest, i64 rank, i64 start) : nest(nest), rank(rank) {
    if (rank > 0) place(start);
  }
  [[gnu::noinline]] PWX_SMALL void place(i64 start) {
    for (i64 d = rank; d-- > 0; start /= nest.shape[d]) {
      at[d] = start % nest.shape[d];
      x += at[d] * nest.xs[d], y += at[d] * nest.ys[d];
    }
  }
  void next() {
    for (i64 d = rank; d-- > 0;) {
      x += nest.xs[d], y += nest.ys[d];
      if (++at[d] < nest.shape[d]) return;
      x -= at[d] * nest.xs[d], y -= at[d] * nest.ys[d];
      at[d] = 0;
    }
  }
};

// Copies n contiguous elements; short rows do not pay for a call.
template <class T> inline void copy_row(T* y, const T* x, i64 n) {
  constexpr i64 STEP = 16 / sizeof(T);
  if (n * i64(sizeof(T)) > 256) {
    __builtin_memcpy(y, x, size_t(n) * sizeof(T));
    return;
  }
  i64 i = 0;
  for (; i + STEP <= n; i += STEP) {
    char t[16];
    __builtin_memcpy(t, x + i, 16);
    __builtin_memcpy(y + i, t, 16);
  }
  if (i < n && n > STEP) {  // the last ones, some of them again
    char t[16];
    __builtin_memcpy(t, x + n - STEP, 16);
    __builtin_memcpy(y + n - STEP, t, 16);
    return;
  }
#pragma clang loop vectorize(disable) unroll(disable)
  for (; i < n; i++) y[i] = x[i];
}

// Calls f with a value of the unsigned type of that size in bytes (1, 2, 4 or 8).
template <class F> inline void with_bits(i64 size, F&& f) {
  switch (size) {
    case 1: f(uint8_t()); break;
    case 2: f(uint16_t()); break;
    case 4: f(uint32_t()); break;
    case 8: f(uint64_t()); break;
  }
}

// y[index] = x[index] over an index space that is not empty; `size` is the element's bytes. Defined in copy.cpp.
void copy_view(Pool* pool, i64 size, char* y, const char* x, i64 rank, const i64* shape, const i64* xs, const i64* ys);
