// The innermost product: a tile of y held in registers, over packed columns of b.
#pragma once
#include "epilogue.h"

namespace gemm {

// A tile is MR rows by NV vectors of y held in registers. WebAssembly engines have 15 usable on x86, hence the 3 x 3.
#if defined(__AVX512F__)
constexpr int TILE_ROWS[4] = {0, 8, 8, 8}, KC = 256;
#elif defined(__AVX__)
constexpr int TILE_ROWS[4] = {0, 8, 6, 4}, KC = 256;
#elif defined(__aarch64__)
constexpr int TILE_ROWS[4] = {0, 8, 8, 6}, KC = 320;
#else
constexpr int TILE_ROWS[4] = {0, 4, 4, 3}, KC = 384;
#endif
constexpr int NV = 3, NR = NV * W;
constexpr int MC_BYTES = 512 << 10;  // the block of `a` that every panel passes over: about half of a level-2 cache
constexpr int MIN_FLOPS = 1 << 18;   // less than this is not worth another thread

inline isize round_up(isize x, isize to) { return (x + to - 1) / to * to; }
inline isize least(isize a, isize b) { return a < b ? a : b; }
inline isize most(isize a, isize b) { return a > b ? a : b; }

struct Tile {
  const float* a;
  isize a_rs;
  const float* b;  // packed: [kc, NV * W]
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
};

// Keeps a value where it is computed: otherwise LLVM lowers a chain of multiply-adds for WebAssembly as one tree with all its loads first,
// and the engine spills them.
template <class T> inline void pin([[maybe_unused]] T& value) {
#if defined(__wasm__)
  asm volatile("" : "+r"(value)::"memory");
#endif
}

template <int M, int V> [[gnu::noinline]] void tile(const Tile& t) {
  VF acc[M][V];
  auto lanes = [&](int v) { return v == V - 1 ? t.last : W; };
  if (!t.from) {
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) acc[i][v] = splat(0);
  } else if (t.from_splat) {
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) acc[i][v] = splat(t.from[i * t.from_rs]);
  } else {
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) {
        const float* p = t.from + i * t.from_rs + v * W;
        acc[i][v] = v == V - 1 ? load_part(p, lanes(v)) : load(p);
      }
  }
  const float* b = t.b;
  const float* a[M];
  for (int i = 0; i < M; i++) a[i] = t.a + i * t.a_rs;
  auto step = [&](int u) {
    VF bv[V];
    for (int v = 0; v < V; v++) bv[v] = load(b + (u * V + v) * W);
    for (int i = 0; i < M; i++) {
      const VF av = splat(a[i][u]);
      for (int v = 0; v < V; v++) acc[i][v] = fma(av, bv[v], acc[i][v]);
    }
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) pin(acc[i][v]);
  };
  isize k = t.kc;
  for (; k >= 4; k -= 4) {
    step(0);
    step(1);
    step(2);
    step(3);
    b += 4 * V * W;
    pin(b);
    for (int i = 0; i < M; i++) {
      a[i] += 4;
      pin(a[i]);
    }
  }
  for (; k > 0; k--) {
    step(0);
    b += V * W;
    for (int i = 0; i < M; i++) a[i]++;
  }
  if (t.res)
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) {
        const float* p = t.res + i * t.res_rs + v * W;
        acc[i][v] += v == V - 1 ? load_part(p, lanes(v)) : load(p);
      }
  if (t.clamp)
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) acc[i][v] = vmin(vmax(acc[i][v], splat(t.low)), splat(t.high));
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) {
      float* p = t.y + i * t.y_rs + v * W;
      if (v == V - 1) store_part(p, acc[i][v], lanes(v));
      else store(p, acc[i][v]);
    }
}

// The tile for as many of `rows` as one takes; returns how many.
template <int V> inline isize tile_rows(const Tile& t, isize rows) {
  constexpr int M = TILE_ROWS[V];
  if (M == 3 && rows == 4) return tile<2, V>(t), 2;
  if (rows >= M) return tile<M, V>(t), M;
  if constexpr (M > 4)
    if (rows >= 4) return tile<4, V>(t), 4;
  if constexpr (M == 4)
    if (rows == 3) return tile<3, V>(t), 3;
  if (rows >= 2) return tile<2, V>(t), 2;
  return tile<1, V>(t), 1;
}

// How many of the columns that are left the next panel takes. Its rows are packed at round_up(that, W) floats. A single vector left over
// would leave the arithmetic units waiting, so the last four vectors are two panels of two.
inline isize panel_columns(isize left) { return left > NR && left <= NR + W ? 2 * W : least(left, NR); }

}  // namespace gemm
