// Windows of K x K over an image where it lies, for vectors whose loads can be masked: a strip of up to W columns of outputs is walked from
// the top down, and an input row is read once for all the windows that hold it.
#pragma once
#include "kernel.h"
#include "simd.h"

#if defined(__AVX__)
namespace strips {

#if defined(__AVX512F__)
constexpr bool MASKS_COST = false;
typedef __mmask16 Mask;
inline Mask lanes(isize lo, isize hi) {
  auto below = [](isize n) { return (1u << (n < 0 ? 0 : n > W ? W : n)) - 1; };
  return Mask(below(hi) & ~below(lo));
}
inline Mask raised(Mask m) { return Mask(m << W / 2); }
inline VF load(const float* p, Mask m, VF other) { return (VF)_mm512_mask_loadu_ps((__m512)other, m, p); }
inline VF upper(VF v) { return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15); }
inline Mask unordered(VF a, VF b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q); }
inline bool any(Mask m) { return m; }
#else
constexpr bool MASKS_COST = true;
typedef VI Mask;
inline Mask lanes(isize lo, isize hi) {
  const VI lane = {0, 1, 2, 3, 4, 5, 6, 7};
  auto within = [](isize n) { return splat_i(n < 0 ? 0 : n > W ? W : int32_t(n)); };
  return (lane >= within(lo)) & (lane < within(hi));
}
inline Mask raised(Mask m) { return __builtin_shufflevector(m, splat_i(0), 8, 8, 8, 8, 0, 1, 2, 3); }
inline VF load(const float* p, Mask m, VF other) { return as_f((VI)_mm256_maskload_ps(p, (__m256i)m) | (~m & as_i(other))); }
inline VF upper(VF v) { return __builtin_shufflevector(v, v, 4, 5, 6, 7, 4, 5, 6, 7); }
inline Mask unordered(VF a, VF b) { return (a != a) | (b != b); }
inline bool any(Mask m) { return _mm256_movemask_epi8((__m256i)m) != 0; }
#endif

struct Strip {
  const float* x;
  isize ih, iw;     // rows and columns that there are
  isize top, left;  // where the first window begins
  isize rows, columns, pitch;  // of outputs
  float* y;
};

// How a strip's vectors lie: inside the image, so that nothing needs a mask; over its sides; or with two rows of outputs, of which the
// upper half is one of the lower half of the image.
enum class Lie { INSIDE, MASKED, HALVED };

// What is read where there is no row.
template <bool LOWEST> struct Outside {
  static constexpr float VALUE = LOWEST ? -__builtin_inff() : 0;
  float row[2 * W + 8];
  constexpr Outside() : row() {
    for (float& v : row) v = VALUE;
  }
};
template <bool LOWEST> alignas(64) inline constexpr Outside<LOWEST> outside;

// Reads the columns of K windows that a vector holds: element t of a result is what tap t reads.
template <int K, int S, Lie L, bool LOWEST> struct Reader {
  static constexpr bool HALF = L == Lie::HALVED;
  Mask in[K + 1], upper[HALF && S == 1 ? K : 1];

  explicit Reader(const Strip& s) {
    for (int t = 0; t < K + 1; t++) {
      const isize from = s.left + (S == 1 ? t : HALF ? t / 2 * 2 : t / 2 * 2 + t % 2 * W);
      in[t] = lanes(-from, s.iw - from);
      if constexpr (HALF && S == 1) {
        in[t] &= lanes(0, W / 2);
        if (t < K) upper[t] = raised(in[t]);
      }
    }
  }

  static VF read(const float* p, Mask m, VF other) { return L == Lie::INSIDE ? ::load(p) : load(p, m, other); }
  const float* row(const Strip& s, isize h) const {
    return size_t(h) < size_t(s.ih) ? s.x + h * s.iw + s.left : outside<LOWEST>.row;
  }

  // Row h, in the upper half of vectors row `second`.
  void operator()(const Strip& s, isize h, isize second, VF (&x)[K]) const {
    const float *a = row(s, h), *b = HALF ? row(s, second) : a + W;
    const VF other = splat(Outside<LOWEST>::VALUE);
    for (int t = 0; t < K; t += S) {
      if constexpr (S == 1) {
        x[t] = read(a + t, in[t], other);
        if constexpr (HALF) x[t] = load(b + t - W / 2, upper[t], x[t]);
      } else {
        VFF v;
        join(v, read(a + t, in[t], other), read(b + t, in[HALF ? t : t + 1], other));
        x[t] = v.even;
        if (t + 1 < K) x[t + 1] = v.odd;
      }
    }
  }
};

// `windows` has `start`, what a window begins with; row(x), what a row of K taps is to all windows; add(sum, row, i), a sum after row i of
// its window; and end(sum), what is written.
template <int K, int S, Lie L, class Windows> [[gnu::always_inline]] inline void walk_lying(const Strip s, Windows& windows) {
  constexpr bool HALF = L == Lie::HALVED;
  constexpr int LIVE = (K + S - 1) / S;  // windows that share an input row; in turn, they are the one that ends
  const Reader<K, S, L, Windows::LOWEST> read(s);
  const isize steps = HALF ? (s.rows + 1) / 2 : s.rows;
  const isize columns = s.columns < W ? s.columns : W;
  VF sum[LIVE];
  for (VF& v : sum) v = windows.start;
  isize h = s.top;
  auto step = [&](int turn, isize r) __attribute__((always_inline)) {
#pragma unroll
    for (int i = 0; i < S; i++, h++) {
      VF x[K];
      read(s, h, h + steps * S, x);
      const auto row = windows.row(x);
#pragma unroll
      for (int q = 0; q < LIVE; q++)
        if ((LIVE - 1 - q) * S + i < K) sum[(q + turn) % LIVE] = windows.add(sum[(q + turn) % LIVE], row, (LIVE - 1 - q) * S + i);
    }
    VF& last = sum[turn];
    if (r >= 0) {
      const VF v = windows.end(last);
      if constexpr (L == Lie::INSIDE) ::store(s.y + r * s.pitch, v);
      else store_part(s.y + r * s.pitch, v, columns);
      if constexpr (HALF)
        if (r + steps < s.rows) store_part(s.y + (r + steps) * s.pitch, upper(v), columns);
    }
    last = windows.start;
  };
  for (isize r = 1 - LIVE; r < steps; r += LIVE) {
#pragma unroll
    for (int turn = 0; turn < LIVE; turn++)
      if (r + turn < steps) step(turn, r + turn);
  }
}

template <int K, int S, class Windows> [[gnu::always_inline]] inline void walk(const Strip& s, Windows& windows) {
  const bool inside = s.left >= 0 && s.left + S * W + K <= s.iw && s.columns >= W;
  if (s.columns <= W / 2) walk_lying<K, S, Lie::HALVED>(s, windows);
  else if (MASKS_COST && inside) walk_lying<K, S, Lie::INSIDE>(s, windows);
  else walk_lying<K, S, Lie::MASKED>(s, windows);
}

}  // namespace strips
#endif
