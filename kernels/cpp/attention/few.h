// A few rows of queries against keys and values where they lie. Both come from memory, as weights have passed through the caches since the
// token before: for all rows at once, and in runs side by side, as memory answers several streams sooner than one.
#pragma once
#include "gemm/pack.h"

namespace attention {

using gemm::least;

constexpr isize RUNS = 16;  // of keys, side by side
constexpr int SET = 4;      // of them at once
constexpr isize CHUNK = 4;  // keys of each run for all rows, before the next: they stay in the first-level cache
constexpr isize RUN = 64;   // values of a run

typedef float Four __attribute__((ext_vector_type(4)));

// The sums of four vectors' lanes, in the order of `sum_lanes`.
inline Four sums_of(const VF (&v)[4]) {
  Four f[4];
  for (int i = 0; i < 4; i++) {
    float lanes[W];
    __builtin_memcpy(lanes, &v[i], sizeof lanes);
    for (int n = W / 2; n >= 4; n /= 2)
      for (int l = 0; l < n; l++) lanes[l] += lanes[l + n];
    __builtin_memcpy(&f[i], lanes, sizeof f[i]);
  }
  auto two = [](Four a, Four b) {
    return __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  };
  const Four low = two(f[0], f[1]), high = two(f[2], f[3]);
  return __builtin_shufflevector(low, high, 0, 1, 4, 5) + __builtin_shufflevector(low, high, 2, 3, 6, 7);
}

struct Rows {
  isize count, depth;  // of queries, and of their numbers
  const float* q;
  isize q_step;
  float* scores;
  isize pitch;
};

// Scores of M rows, from `first` on, and a key of each of four runs.
template <int M> void four_keys(const Rows& r, isize first, const float* k, isize apart, float* out, isize out_apart) {
  VF acc[M][4];
  const float* key[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    key[j] = k + j * apart;
#pragma unroll
    for (int i = 0; i < M; i++) acc[i][j] = splat(0);
  }
  const float* q = r.q + first * r.q_step;
  isize t = 0;
  for (; t + W <= r.depth; t += W) {
    VF x[M];
#pragma unroll
    for (int i = 0; i < M; i++) x[i] = load(q + i * r.q_step + t);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const VF row = load(key[j] + t);
#pragma unroll
      for (int i = 0; i < M; i++) acc[i][j] = fma(x[i], row, acc[i][j]);
    }
  }
#pragma unroll
  for (int i = 0; i < M; i++) {
    const Four sums = sums_of(acc[i]);
    for (int j = 0; j < 4; j++) {
      float sum = sums[j];
      for (isize u = t; u < r.depth; u++) sum += q[i * r.q_step + u] * key[j][u];
      out[i * r.pitch + j * out_apart] = sum;
    }
  }
}

inline float one_key(const float* q, const float* k, isize depth) {
  VF acc = splat(0);
  isize t = 0;
  for (; t + W <= depth; t += W) acc = fma(load(q + t), load(k + t), acc);
  float sum = sum_lanes(acc);
  for (; t < depth; t++) sum += q[t] * k[t];
  return sum;
}

// Scores of all rows and n keys `step` apart, whose numbers lie side by side.
inline void score(const Rows& r, const float* k, isize step, isize n) {
  auto side_by_side = [&](isize at, isize run, isize end) {
    for (isize j0 = at; j0 < at + run; j0 += CHUNK)
      for (isize i = 0, rows; i < r.count; i += rows) {
        rows = least(2, r.count - i);
        for (isize j = j0; j < least(j0 + CHUNK, at + run); j++)
          for (isize key = j; key < end; key += run * SET) {
            float* out = r.scores + i * r.pitch + key;
            if (rows == 2) four_keys<2>(r, i, k + key * step, run * step, out, run);
            else four_keys<1>(r, i, k + key * step, run * step, out, run);
          }
      }
  };
  const isize run = n / RUNS, most = run * RUNS, sets = (n - most) / SET;
  side_by_side(0, run, most);
  side_by_side(most, sets, most + sets * SET);
  for (isize j = most + sets * SET; j < n; j++)
    for (isize i = 0; i < r.count; i++) r.scores[i * r.pitch + j] = one_key(r.q + i * r.q_step, k + j * step, r.depth);
}

// Adds to out[M, N vectors] the products of s[M] with `keys` values of each of so many runs, run by run.
template <int M, int N>
void values(const float* s, isize pitch, const float* v, isize step, isize runs, isize keys, float* out, isize out_pitch) {
  VF acc[M][N];
#pragma unroll
  for (int i = 0; i < M; i++)
#pragma unroll
    for (int c = 0; c < N; c++) acc[i][c] = load(out + i * out_pitch + c * W);
  for (isize run = 0; run < runs; run++, s += RUN, v += RUN * step) {
    const float* from = v;
    for (isize j = 0; j < keys; j++, from += step) {
      VF x[M];
#pragma unroll
      for (int i = 0; i < M; i++) x[i] = splat(s[i * pitch + j]);
#pragma unroll
      for (int c = 0; c < N; c++) {
        const VF row = load(from + c * W);
#pragma unroll
        for (int i = 0; i < M; i++) {
          acc[i][c] = fma(x[i], row, acc[i][c]);
          pin(acc[i][c]);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < M; i++)
#pragma unroll
    for (int c = 0; c < N; c++) store(out + i * out_pitch + c * W, acc[i][c]);
}

// What all rows' scores give of n values [width], `step` apart; width: a multiple of W, as `out_pitch` is. In an order that more values
// behind them leave as it is: a row gives the same alone and with later ones.
inline void weighted(const Rows& r, const float* v, isize step, isize n, isize width, float* out, isize out_pitch) {
  for (isize i = 0; i < r.count; i++) __builtin_memset(out + i * out_pitch, 0, size_t(width) * sizeof(float));
  auto add = [&](isize at, isize runs, isize keys) {
    for (isize i = 0, rows; i < r.count; i += rows) {
      rows = least(2, r.count - i);
      auto go = [&]<int M, int N>(isize row, isize t) {
        values<M, N>(r.scores + row * r.pitch + at, r.pitch, v + at * step + t, step, runs, keys, out + row * out_pitch + t, out_pitch);
      };
      isize t = 0;
      for (; t + 4 * W <= width; t += 4 * W) {
        if (rows == 2) go.template operator()<2, 4>(i, t);
        else go.template operator()<1, 4>(i, t);
      }
      for (; t < width; t += W)
        for (isize row = i; row < i + rows; row++) go.template operator()<1, 1>(row, t);
    }
  };
  for (isize window = 0; window < n; window += RUNS * RUN) {
    const isize runs = least(RUNS, (n - window) / RUN), rest = runs < RUNS ? n - window - runs * RUN : 0;
    for (isize j = 0; j < RUN; j += CHUNK) {
      const isize begun = least(rest - j, CHUNK), all = runs + (begun == CHUNK);
      if (all) add(window + j, all, CHUNK);
      if (begun > 0 && begun < CHUNK) add(window + runs * RUN + j, 1, begun);
    }
  }
}

}  // namespace attention
