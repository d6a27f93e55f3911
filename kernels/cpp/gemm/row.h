// One row of a times packed weights (pack.cpp), which stream from memory once.
#pragma once
#include "gemm.h"

namespace gemm {

constexpr int UNROLLED = 4;  // steps between which nothing but addresses is counted

// Columns of y from j on, over as many whole panels as divide into equal runs. These are read side by side: memory answers several runs
// faster than one. Returns the first column that is left.
[[gnu::noinline]] inline isize row_panels(const Product& p, isize j, isize end) {
  const isize run = (end - j) / (RUNS * NR) * NR, count = RUNS * run;
  const bool started = p.e.bias_first();
  if (started)
    for (isize c = j; c < j + count; c += NR) panel_product(p, nullptr, 0, 1, c, NR, 0, 0);  // what the sums start from
  for (isize k0 = 0; k0 < p.k; k0 += p.band) {
    const isize kc = least(p.band, p.k - k0), step = run * kc;
    for (isize c = j; c < j + run; c += NR) {
      VF acc[RUNS][NV];
      float* y = p.y + c;
#pragma unroll
      for (int i = 0; i < RUNS; i++)
        for (int v = 0; v < NV; v++) acc[i][v] = k0 || started ? load(y + i * run + v * W) : splat(0);
      const float *a = p.a + k0 * p.a_cs, *b[RUNS];
#pragma unroll
      for (int i = 0; i < RUNS; i++) b[i] = p.b + k0 * p.n + c * kc + i * step;
      auto add = [&](int u, const float* at) __attribute__((always_inline)) {
        const VF s = splat(*at);
#pragma unroll
        for (int i = 0; i < RUNS; i++) {
          for (int v = 0; v < NV; v++) acc[i][v] = fma(s, load(b[i] + u * NR + v * W), acc[i][v]);
          for (int v = 0; v < NV; v++) pin(acc[i][v]);
        }
      };
      auto go = [&](isize n) __attribute__((always_inline)) {
        a += n * p.a_cs, pin(a);
#pragma unroll
        for (int i = 0; i < RUNS; i++) b[i] += n * NR, pin(b[i]);
      };
      isize k = kc;
      if (p.a_cs == 1)
        for (; k >= UNROLLED; k -= UNROLLED, go(UNROLLED)) {
#pragma unroll
          for (int u = 0; u < UNROLLED; u++) add(u, a + u);
        }
      for (; k > 0; k--, go(1)) add(0, a);
#pragma unroll
      for (int i = 0; i < RUNS; i++)
        for (int v = 0; v < NV; v++) store(y + i * run + v * W, acc[i][v]);
    }
  }
  p.e.finish(0, j, count, p.y + j);
  return j + count;
}

}  // namespace gemm
