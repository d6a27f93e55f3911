// What the numbers of a softmax are made of.
#pragma once
#include "vmath.h"

constexpr i64 TERMS = 64;  // that are added up by themselves: what a sum loses of each term grows with it

// The sum of e^(x - top), where no x is beyond the top; y may be x, and is left alone unless they are to be kept. SIDE vectors hide each
// other's latencies.
template <int SIDE> inline double sum_of_powers(const float* x, float* y, i64 n, float top, bool keep) {
  double sum = 0;
  i64 i = 0;
  while (i + SIDE * W <= n) {
    const i64 end = n - i < TERMS * W ? n : i + TERMS * W;
    VF part = splat(0);
    for (; i + SIDE * W <= end; i += SIDE * W) {
      VF e[SIDE];
#pragma unroll
      for (int u = 0; u < SIDE; u++) e[u] = top - load(x + i + u * W);
      vfalling_each(e);
#pragma unroll
      for (int u = 0; u < SIDE; u++) {
        if (keep) store(y + i + u * W, e[u]);
        part += e[u];
      }
    }
    sum += double(sum_lanes(part));
  }
  for (; i < n; i += W) {
    const i64 some = n - i < W ? n - i : W;
    VF e[1] = {top - load_part(x + i, some)};
    vfalling_each(e);
    if (keep) store_part(y + i, e[0], some);
    for (i64 u = 0; u < some; u++) sum += double(e[0][u]);
  }
  return sum;
}
