// The innermost product: a tile of y held in registers, over packed columns of b.
#pragma once
#include "epilogue.h"

namespace gemm {

// A tile is up to TILE_ROWS rows by up to NV vectors of y held in registers. WebAssembly engines have 15 usable on x86: twelve sums, which
// hide the latency of a multiply-add, two vectors of b and a number of a.
#if defined(__AVX512F__)
constexpr int NV = 3, TILE_ROWS[NV + 1] = {0, 8, 8, 8}, KC = 256;
#elif defined(__AVX__)
constexpr int NV = 3, TILE_ROWS[NV + 1] = {0, 8, 6, 4}, KC = 256;
#elif defined(__aarch64__)
constexpr int NV = 3, TILE_ROWS[NV + 1] = {0, 8, 8, 6}, KC = 320;
#else
constexpr int NV = 2, TILE_ROWS[NV + 1] = {0, 6, 6}, KC = 384;
#endif
constexpr int NR = NV * W;
constexpr int MC_BYTES = 512 << 10;  // the block of `a` that every panel passes over: about half of a level-2 cache
constexpr int MIN_FLOPS = 1 << 18;   // less than this is not worth another thread
constexpr int RUNS = 4;              // a processor reads small pages side by side faster than one by one
constexpr bool APART = W == 16;      // tiles may read b where it lies: with 24 sums a step waits for no load, though it crosses cache lines

inline isize round_up(isize x, isize to) { return (x + to - 1) / to * to; }
inline isize least(isize a, isize b) { return a < b ? a : b; }
inline isize most(isize a, isize b) { return a > b ? a : b; }

struct Tile {
  const float* a;
  isize a_rs;
  const float* b;  // packed: [kc, V * W]; or rows that lie b_rs apart, where this is not 0
  isize b_rs;
  isize kc;
  float* y;
  isize y_rs;
  isize last;         // lanes of the last vector that exist, 1..W
  const float* from;  // the sum starts from 0 (nullptr), from from[i * from_rs] (splat), or from from[i * from_rs + j]
  isize from_rs;
  bool from_splat;
  bool clamp;
  const float* res;
  isize res_rs;
  float low, high;
  const float* ahead;  // what the tile asks memory for as it goes,
  isize lines;         // so many cache lines, or rows that lie apart, in four rows of b; one of each run in 4 * RUNS, where they are touched
  isize run;           // from one of RUNS that are touched side by side to the next
};

[[gnu::noinline]] inline void touch_runs(const float* from, isize run) {
  for (int r = 0; r < RUNS; r++) touch(from + r * run);
}

template <int M, int V, bool STRIDED> [[gnu::noinline]] void tile(const Tile& t) {
  VF acc[M][V];
  auto lanes = [&](int v) { return v == V - 1 ? t.last : W; };
  if (!t.from) {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int v = 0; v < V; v++) acc[i][v] = splat(0);
  } else if (t.from_splat) {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int v = 0; v < V; v++) acc[i][v] = splat(t.from[i * t.from_rs]);
  } else {
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int v = 0; v < V; v++) {
        const float* p = t.from + i * t.from_rs + v * W;
        acc[i][v] = v == V - 1 ? load_part(p, lanes(v)) : load(p);
      }
  }
  const float *b = t.b, *ahead = t.ahead;
  const float* a[M];
#pragma unroll
  for (int i = 0; i < M; i++) a[i] = t.a + i * t.a_rs;
  auto step = [&](int u) {
    VF bv[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
      const float* from = b + (STRIDED ? v : u * V + v) * W;
      bv[v] = STRIDED && v == V - 1 ? load_part(from, lanes(v)) : load(from);
      pin(bv[v]);
    }
    if (STRIDED) b += t.b_rs;
#pragma unroll
    for (int i = 0; i < M; i++) {
      const VF av = splat(a[i][u]);
#pragma unroll
      for (int v = 0; v < V; v++) {
        acc[i][v] = fma(av, bv[v], acc[i][v]);
        pin(acc[i][v]);
      }
    }
  };
  isize k = t.kc;
  for (; k >= 4; k -= 4) {
    if constexpr (FETCHES)
      for (isize i = t.lines; i > 0; i--, ahead += STRIDED ? t.b_rs : 16)
        for (int l = 0; l <= (STRIDED ? V * W / 16 : 0); l++) fetch(ahead + l * 16);
    else if (t.lines && !(k & 12))
      touch_runs(ahead, t.run), ahead += 16;
    step(0);
    step(1);
    step(2);
    step(3);
    if (!STRIDED) b += 4 * V * W;
    pin(b);
#pragma unroll
    for (int i = 0; i < M; i++) {
      a[i] += 4;
      pin(a[i]);
    }
  }
  for (; k > 0; k--) {
    step(0);
    if (!STRIDED) b += V * W;
#pragma unroll
    for (int i = 0; i < M; i++) a[i]++;
  }
  if (t.res)
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int v = 0; v < V; v++) {
        const float* p = t.res + i * t.res_rs + v * W;
        acc[i][v] += v == V - 1 ? load_part(p, lanes(v)) : load(p);
      }
  if (t.clamp)
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int v = 0; v < V; v++) acc[i][v] = vmin(vmax(acc[i][v], splat(t.low)), splat(t.high));
  const bool whole = t.last == W;
#pragma unroll
  for (int i = 0; i < M; i++) {
    float* p = t.y + i * t.y_rs;
#pragma unroll
    for (int v = 0; v < V - 1; v++) store(p + v * W, acc[i][v]);
    if (whole) store(p + (V - 1) * W, acc[i][V - 1]);
  }
  if (whole) return;
#pragma unroll
  for (int i = 0; i < M; i++) store_part(t.y + i * t.y_rs + (V - 1) * W, acc[i][V - 1], t.last);
}

// The tile of `rows` rows, which are at most M.
template <int V, int M = TILE_ROWS[V]> inline void tile_of(const Tile& t, isize rows) {
  if constexpr (M > 1)
    if (rows < M) return tile_of<V, M - 1>(t, rows);
  if constexpr (APART)
    if (t.b_rs) return tile<M, V, true>(t);
  tile<M, V, false>(t);
}

// Rows [i, end) by tiles that are about equally high; done(i, rows) after each of them.
template <int V, class F> [[gnu::always_inline]] inline void tiles(const Tile& t, isize i, isize end, F done) {
  isize left = (end - i + TILE_ROWS[V] - 1) / TILE_ROWS[V];
  const isize rows = left > 1 ? (end - i) / left : end - i;
  for (isize higher = end - i - rows * left, some; left > 0; left--, i += some) {
    some = rows + (higher-- > 0);
    tile_of<V>(t, some);
    done(i, some);
  }
}

// How many of the columns that are left the next panel takes. Its rows are packed at round_up(that, W) floats. Of panels of three vectors
// a single one left over would leave the arithmetic units waiting, so the last four are two panels of two; a single column does not need one.
template <int VECTORS = NV> inline isize panel_columns(isize left) {
  return VECTORS == 3 && left > 3 * W + 1 && left <= 4 * W ? 2 * W : least(left, VECTORS * W);
}

}  // namespace gemm
