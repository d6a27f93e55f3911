// Depthwise convolution of bytes with channels last: all taps of 16 channels at a time, two taps to a step.
#pragma once
#include "qgemm/finish.h"

namespace qgemm {

constexpr isize LANES = 16;  // channels of a step

// Weights by taps: for two taps at a time [channels, 2]; and for each channel what its taps add up to.
inline Size taps_count(i64 taps, i64 n) { return whole_columns(n) * round_up(Size(taps), 2); }
struct Taps {
  isize pairs, columns;
  i32* sums;
  int16_t* weights;
  Taps(isize taps, isize n, const Buf& w, const Buf& s)
      : pairs((taps + 1) / 2), columns(round_up(n, LANES)), sums(s.as<i32>()), weights(w.as<int16_t>()) {}
  void set(isize tap, isize column, int v) const {
    weights[(tap / 2 * columns + column) * 2 + tap % 2] = int16_t(v);
    sums[column] += v;
  }
};

// Two rows of 16 bytes side by side as int16, W columns of them from column part * W.
inline Pairs side_by_side(VB16 a, VB16 b, [[maybe_unused]] int part) {
#if defined(__AVX512F__)
  const __m128i low = _mm_unpacklo_epi8((__m128i)a, (__m128i)b), high = _mm_unpackhi_epi8((__m128i)a, (__m128i)b);
  return _mm512_cvtepu8_epi16(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
#elif defined(__AVX2__)
  return _mm256_cvtepu8_epi16(part ? _mm_unpackhi_epi8((__m128i)a, (__m128i)b) : _mm_unpacklo_epi8((__m128i)a, (__m128i)b));
#else
  const VB16 both = part < 2 ? __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
                             : __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#if defined(__wasm__)
  return part % 2 ? wasm_u16x8_extend_high_u8x16((v128_t)both) : wasm_u16x8_extend_low_u8x16((v128_t)both);
#elif defined(__x86_64__)
  const __m128i zero = _mm_setzero_si128();
  return part % 2 ? _mm_unpackhi_epi8((__m128i)both, zero) : _mm_unpacklo_epi8((__m128i)both, zero);
#else
  typedef uint8_t B8x __attribute__((ext_vector_type(8)));
  return __builtin_convertvector(part % 2 ? B8x(both.hi) : B8x(both.lo), Pairs);
#endif
#endif
}

// sums[16] = start + the taps' products; tap(t) is what tap t reads. PAIRS: how many there are, 0 for any.
template <int PAIRS, class Tap>
inline void sum_taps(const Tap& tap, isize pairs, uint8_t flip, const int16_t* w, isize columns, const i32* start, i32* sums) {
  constexpr int PARTS = LANES / W;
  VI acc[PARTS];
  for (int v = 0; v < PARTS; v++) acc[v] = load_i(start + v * W);
  const VB16 f = (VB16)flip;
  auto step = [&](isize t) {
    VB16 a, b;
    __builtin_memcpy(&a, tap(2 * t), sizeof a);
    __builtin_memcpy(&b, tap(2 * t + 1), sizeof b);
    a ^= f, b ^= f;
#pragma unroll
    for (int v = 0; v < PARTS; v++) {
      Pairs weights;
      __builtin_memcpy(&weights, w + (t * columns + v * W) * 2, sizeof weights);
      acc[v] = dot(acc[v], side_by_side(a, b, v), weights);
    }
  };
  if constexpr (PAIRS > 0) {
#pragma unroll
    for (int t = 0; t < PAIRS; t++) step(t);
  } else {
    for (isize t = 0; t < pairs; t++) step(t);
  }
  for (int v = 0; v < PARTS; v++) store_i(sums + v * W, acc[v]);
}

}  // namespace qgemm
