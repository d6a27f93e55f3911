// A few rows of queries against keys and values where they lie. Both come from memory, as weights have passed through the caches since the
// token before: for all rows at once, and in runs side by side, as memory answers several streams sooner than one.
#pragma once
#include "gemm/pack.h"

namespace attention {

using gemm::least;

constexpr isize RUNS = 4;   // of keys, or values, side by side
constexpr isize CHUNK = 4;  // keys of each run for all rows, before the next: they stay in the first-level cache
constexpr isize RUN = 64;   // values of a run
constexpr isize LINE = 16;  // numbers of a cache line
// Rows at once.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int MOST = 4;
#else
constexpr int MOST = 2;
#endif

typedef float Four __attribute__((ext_vector_type(4)));

template <int... I> struct Lanes {};
template <int N, int... I> struct FirstLanes : FirstLanes<N - 1, N - 1, I...> {};
template <int... I> struct FirstLanes<0, I...> { typedef Lanes<I...> type; };
constexpr FirstLanes<W>::type ALL;

// The lanes of two vectors, by each four: what PATTERN takes of the first's four and, as 4 to 7, of the second's.
template <int... PATTERN, int... I> VF by_fours(VF a, VF b, Lanes<I...>) {
  constexpr int pattern[] = {PATTERN...};
  return __builtin_shufflevector(a, b, (I / 4 * 4 + pattern[I % 4] % 4 + (pattern[I % 4] < 4 ? 0 : W))...);
}

// The sums of four vectors' lanes.
inline Four sums_of(const VF (&v)[4]) {
  auto two = [](VF a, VF b) { return by_fours<0, 4, 1, 5>(a, b, ALL) + by_fours<2, 6, 3, 7>(a, b, ALL); };
  const VF low = two(v[0], v[1]), high = two(v[2], v[3]);
  const VF all = by_fours<0, 1, 4, 5>(low, high, ALL) + by_fours<2, 3, 6, 7>(low, high, ALL);
  Four f[W / 4];
  __builtin_memcpy(f, &all, sizeof f);
  for (int n = W / 8; n > 0; n /= 2)
    for (int i = 0; i < n; i++) f[i] += f[i + n];
  return f[0];
}

// Calls f<rows>.
template <int M = MOST, class F> void of_rows(isize rows, const F& f) {
  if constexpr (M > 1)
    if (rows < M) return of_rows<M - 1>(rows, f);
  f.template operator()<M>();
}

// Rows that are read next: asked for while others are computed with, as memory would idle. Nothing where `data` is null.
struct Next {
  const float* data;
  isize step, width;
  void fetch_rows(isize first, isize n, isize apart) const {
    if (!FETCHES || !data) return;
    for (isize j = 0; j < n; j++)
      for (isize t = 0; t < width; t += LINE) fetch(data + (first + j * apart) * step + t);
  }
};

struct Rows {
  isize count, depth;  // of queries, and of their numbers
  const float* q;
  isize q_step;
  float* scores;
  isize pitch;
};

// Scores of M rows, from `first` on, and of POSITIONS neighbouring keys of each of four runs.
template <int M, int POSITIONS>
void some_keys(const Rows& r, isize first, const float* k, isize step, isize apart, float* out, isize out_apart) {
  static_assert(RUNS == 4);  // `sums_of`
  constexpr int KEYS = 4 * POSITIONS;
  VF acc[M * POSITIONS][4];
  const float* key[KEYS];
#pragma unroll
  for (int j = 0; j < KEYS; j++) {
    key[j] = k + j / 4 * step + j % 4 * apart;
#pragma unroll
    for (int i = 0; i < M; i++) acc[j / 4 * M + i][j % 4] = splat(0);
  }
  const float* q = r.q + first * r.q_step;
  isize t = 0;
  for (; t + W <= r.depth; t += W) {
    VF x[M];
#pragma unroll
    for (int i = 0; i < M; i++) x[i] = load(q + i * r.q_step + t);
#pragma unroll
    for (int j = 0; j < KEYS; j++) {
      const VF row = load(key[j] + t);
#pragma unroll
      for (int i = 0; i < M; i++) acc[j / 4 * M + i][j % 4] = fma(x[i], row, acc[j / 4 * M + i][j % 4]);
    }
  }
#pragma unroll
  for (int s = 0; s < M * POSITIONS; s++) {
    const Four sums = sums_of(acc[s]);
    const int i = s % M, position = s / M;
    for (int j = 0; j < 4; j++) {
      float sum = sums[j];
      for (isize u = t; u < r.depth; u++) sum += q[i * r.q_step + u] * key[4 * position + j][u];
      out[i * r.pitch + position + j * out_apart] = sum;
    }
  }
}

inline float one_key(const float* q, const float* k, isize depth) {
  VF acc[4] = {splat(0), splat(0), splat(0), splat(0)};
  isize t = 0;
  for (; t + W <= depth; t += W) acc[0] = fma(load(q + t), load(k + t), acc[0]);
  float sum = sums_of(acc)[0];
  for (; t < depth; t++) sum += q[t] * k[t];
  return sum;
}

// Scores of all rows and n keys `step` apart, whose numbers lie side by side.
inline void score(const Rows& r, const float* k, isize step, isize n, const Next& next) {
  const isize run = n / RUNS;
  for (isize j0 = 0; j0 < run; j0 += CHUNK)
    for (isize i = 0, rows; i < r.count; i += rows) {
      rows = least(MOST, r.count - i);
      const isize last = least(j0 + CHUNK, run);
      for (isize j = j0, positions; j < last; j += positions) {
        positions = rows == 1 && j + 1 < last ? 2 : 1;
        for (isize key = j; i == 0 && key < j + positions; key++) next.fetch_rows(key, RUNS, run);
        auto go = [&]<int M, int POSITIONS>() {
          some_keys<M, POSITIONS>(r, i, k + j * step, step, run * step, r.scores + i * r.pitch + j, run);
        };
        if (positions == 2) go.template operator()<1, 2>();
        else of_rows(rows, [&]<int M>() { go.template operator()<M, 1>(); });
      }
    }
  for (isize j = run * RUNS; j < n; j++)
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
inline void weighted(const Rows& r, const float* v, isize step, isize n, isize width, float* out, isize out_pitch, const Next& next) {
  for (isize i = 0; i < r.count; i++) __builtin_memset(out + i * out_pitch, 0, size_t(width) * sizeof(float));
  auto add = [&](isize at, isize runs, isize keys) {
    for (isize run = 0; run < runs; run++) next.fetch_rows(at + run * RUN, keys, 1);
    for (isize i = 0, rows; i < r.count; i += rows) {
      rows = least(MOST, r.count - i);
      auto go = [&]<int M, int N>(isize row, isize t) {
        values<M, N>(r.scores + row * r.pitch + at, r.pitch, v + at * step + t, step, runs, keys, out + row * out_pitch + t, out_pitch);
      };
      isize t = 0;
      for (; rows == 1 && t + 8 * W <= width; t += 8 * W) go.template operator()<1, 8>(i, t);
      for (; t + 4 * W <= width; t += 4 * W) of_rows(rows, [&]<int M>() { go.template operator()<M, 4>(i, t); });
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
