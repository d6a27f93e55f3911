// Strided copy: rows by memcpy, transposes in register tiles, the rest element by element.
#include "params.h"
#include "strided.h"

namespace {

constexpr i64 GRAIN = 1 << 15;  // bytes worth waking a thread for

i64 items_per_task(i64 bytes) { return bytes >= GRAIN ? 1 : GRAIN / (bytes > 0 ? bytes : 1); }

// Transposes an N x N tile, N elements being 16 bytes: log2(N) rounds of interleaving row i with row i + N/2.
template <class T> inline void transpose_tile(T* y, i64 y_row, const T* x, i64 x_row) {
  constexpr int N = 16 / sizeof(T);
  using V = T __attribute__((ext_vector_type(N)));
  V a[N], b[N];
  for (int i = 0; i < N; i++) __builtin_memcpy(&a[i], x + i * x_row, 16);
  for (int round = 1; round < N; round *= 2) {
    for (int i = 0; i < N / 2; i++) {
      V u = a[i], v = a[i + N / 2];
      if constexpr (N == 2) {
        b[0] = __builtin_shufflevector(u, v, 0, 2), b[1] = __builtin_shufflevector(u, v, 1, 3);
      } else if constexpr (N == 4) {
        b[2 * i] = __builtin_shufflevector(u, v, 0, 4, 1, 5), b[2 * i + 1] = __builtin_shufflevector(u, v, 2, 6, 3, 7);
      } else if constexpr (N == 8) {
        b[2 * i] = __builtin_shufflevector(u, v, 0, 8, 1, 9, 2, 10, 3, 11);
        b[2 * i + 1] = __builtin_shufflevector(u, v, 4, 12, 5, 13, 6, 14, 7, 15);
      } else {
        b[2 * i] = __builtin_shufflevector(u, v, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        b[2 * i + 1] = __builtin_shufflevector(u, v, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
      }
    }
    for (int i = 0; i < N; i++) a[i] = b[i];
  }
  for (int i = 0; i < N; i++) __builtin_memcpy(y + i * y_row, &a[i], 16);
}

template <class T> constexpr i64 LINE = 64 / sizeof(T);

// y[i, j] = x[j, i] for i, j < LINE. Each cache line is touched once, through a local tile: with strides that are powers of two
// the lines of a block compete for the same cache set.
template <class T> [[gnu::noinline]] void transpose_block(T* y, i64 y_row, const T* x, i64 x_row) {
  constexpr i64 N = 16 / sizeof(T), L = LINE<T>;
  alignas(64) T tile[L * L];
  for (i64 j = 0; j < L; j++) __builtin_memcpy(tile + j * L, x + j * x_row, 64);
  for (i64 i = 0; i < L; i += N)
    for (i64 j = 0; j < L; j += N) transpose_tile(y + i * y_row + j, y_row, tile + j * L + i, L);
}

// The same for blocks of any size m x n.
template <class T> [[gnu::noinline]] void transpose_edge(T* y, i64 y_row, const T* x, i64 x_row, i64 m, i64 n) {
  for (i64 i = 0; i < m; i++)
#pragma clang loop vectorize(disable)
    for (i64 j = 0; j < n; j++) y[i * y_row + j] = x[j * x_row + i];
}

template <class T> [[gnu::noinline]] void copy_row_strided(T* y, i64 ys, const T* x, i64 xs, i64 n) {
  if (ys == 1 && xs == 1) return copy_row(y, x, n);
  if (ys == 1 && xs == 0) {
    for (i64 i = 0; i < n; i++) y[i] = *x;
    return;
  }
#pragma clang loop vectorize(disable)
  for (i64 i = 0; i < n; i++) y[i * ys] = x[i * xs];
}

template <class T> void copy_rows(Pool* pool, T* y, const T* x, const Nest& t) {
  const i64 last = t.rank - 1, n = t.shape[last], xs = t.xs[last], ys = t.ys[last];
  if (last == 0) {
    parallel_for(pool, n, GRAIN / i64(sizeof(T)), [=](i64 b, i64 e, int) { copy_row_strided(y + b * ys, ys, x + b * xs, xs, e - b); });
    return;
  }
  parallel_for(pool, t.outer(), items_per_task(n * i64(sizeof(T))), [&](i64 b, i64 e, int) {
    Walk w(t, last, b);
    for (; b < e; b++, w.next()) copy_row_strided(y + w.y, ys, x + w.x, xs, n);
  });
}

// The last dimension is y's unit stride, `axis` is x's: panels of some cache lines' width along `axis`.
template <class T> void copy_transposed(Pool* pool, T* y, const T* x, Nest t, i64 axis) {
  constexpr i64 L = LINE<T>;
  const i64 last = t.rank - 1, m = t.shape[axis], n = t.shape[last], y_row = t.ys[axis], x_row = t.xs[last];
  const i64 width = n < L ? 16 * L : 4 * L;
  t.shape[axis] = t.shape[last - 1], t.xs[axis] = t.xs[last - 1], t.ys[axis] = t.ys[last - 1];
  t.shape[last - 1] = (m + width - 1) / width, t.xs[last - 1] = width, t.ys[last - 1] = width * y_row;
  parallel_for(pool, t.outer(), items_per_task(n * width * i64(sizeof(T))), [&](i64 b, i64 e, int) {
    Walk w(t, last, b);
    for (; b < e; b++, w.next()) {
      const i64 left = m - w.at[last - 1] * width, rows = left < width ? left : width;
      for (i64 j = 0; j < n; j += L) {
        const i64 columns = n - j < L ? n - j : L;
        const T* from = x + w.x + j * x_row;
        T* to = y + w.y + j;
        i64 i = 0;
        if (columns == L)
          for (; i + L <= rows; i += L) {
            if (j + 2 * L <= n)
              for (i64 k = 0; k < L; k++) __builtin_prefetch(from + i + (L + k) * x_row), __builtin_prefetch(to + (i + k) * y_row + L, 1);
            transpose_block(to + i * y_row, y_row, from + i, x_row);
          }
        transpose_edge(to + i * y_row, y_row, from + i, x_row, rows - i, columns);
      }
    }
  });
}

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const CopyParams*>(call.params);
  auto& b = *reinterpret_cast<const CopyBufs*>(call.bufs);
  if (p.rank < 0 || p.rank > MAX_RANK) return "rank out of range";
  if (b.x.dtype != b.y.dtype || !dtype_size(b.x.dtype)) return "dtypes differ or are packed";
  if (!view_fits(p.rank, p.shape, p.xstride, p.xoff, b.x.count())) return "x is smaller than its view";
  if (!view_fits(p.rank, p.shape, p.ystride, p.yoff, b.y.count())) return "y is smaller than its view";
  proof.operations = product(p.shape, p.rank);
  proof.writes(0, dense(p.rank, p.shape, p.ystride, p.yoff));
  return nullptr;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const CopyParams*>(call.params);
  auto& b = *reinterpret_cast<const CopyBufs*>(call.bufs);
  if (product(p.shape, p.rank) == 0) return;
  const i64 size = dtype_size(b.x.dtype);
  copy_view(call.pool, size, b.y.data + p.yoff * size, b.x.data + p.xoff * size, p.rank, p.shape, p.xstride, p.ystride);
}

}  // namespace

void copy_view(Pool* pool, i64 size, char* y, const char* x, i64 rank, const i64* shape, const i64* xs, const i64* ys) {
  const Nest t = coalesce(rank, shape, xs, ys, true);
  const i64 last = t.rank - 1;
  i64 axis = -1;
  if (t.ys[last] == 1 && t.xs[last] != 1 && t.xs[last] != 0)
    for (i64 d = 0; d < last; d++)
      if (t.xs[d] == 1) axis = d;
  with_bits(size, [&](auto bits) {
    using T = decltype(bits);
    if (axis >= 0)
      copy_transposed(pool, reinterpret_cast<T*>(y), reinterpret_cast<const T*>(x), t, axis);
    else
      copy_rows(pool, reinterpret_cast<T*>(y), reinterpret_cast<const T*>(x), t);
  });
}

KERNEL(copy, check, no_scratch, run)
