// Groups of codes of 4 bits against digits (nbits/digits.h) where one instruction sums two products of bytes, in 16 bits.
#pragma once
#include "nbits/digits.h"

#if defined(PWX_PAIRS)

namespace nbits {

// Sums of two products, and what two of them are together, times `by`.
#if defined(__wasm__)
inline Bytes pair_dot(Bytes codes, int32_t digits) { return wasm_i16x8_relaxed_dot_i8x16_i7x16(wasm_i32x4_splat(digits), codes); }
inline Bytes pairs_sum(Bytes a, Bytes b) { return wasm_i16x8_add(a, b); }
inline VI pairs_added(Bytes sum) { return (VI)wasm_i32x4_extadd_pairwise_i16x8(sum); }
inline VI pairs_added(Bytes sum, int16_t by) { return (VI)wasm_i32x4_dot_i16x8(sum, wasm_i16x8_splat(by)); }
#elif defined(__AVX512F__)
inline Bytes pair_dot(Bytes codes, int32_t digits) { return _mm512_maddubs_epi16(codes, _mm512_set1_epi32(digits)); }
inline Bytes pairs_sum(Bytes a, Bytes b) { return _mm512_add_epi16(a, b); }
inline VI pairs_added(Bytes sum, int16_t by = 1) { return (VI)_mm512_madd_epi16(sum, _mm512_set1_epi16(by)); }
#else
inline Bytes pair_dot(Bytes codes, int32_t digits) { return _mm256_maddubs_epi16(codes, _mm256_set1_epi32(digits)); }
inline Bytes pairs_sum(Bytes a, Bytes b) { return _mm256_add_epi16(a, b); }
inline VI pairs_added(Bytes sum, int16_t by = 1) { return (VI)_mm256_madd_epi16(sum, _mm256_set1_epi16(by)); }
#endif

// `quad_sums` of codes of 4 bits. Sums of two products are summed in 16 bits: 8 of them, those of four words, are at most 8 * 2 * 15 * 128.
// ONCE: blocks have as many words.
template <int G, int M, int DIGITS, int WORDS = 4, bool ONCE = false>
[[gnu::noinline]] void pair_sums(const Weights& w, const Group* groups, const DigitRows& rows, VF* total) {
  typedef int32_t Quad __attribute__((may_alias));
  const Bytes mask = low_nibbles();
  const Halves wide;
  const isize block = w.block, apart = w.count;
  const bool half = w.scales.dtype == F16;
  VF sums[G][M];
  const char *codes[G], *scales[G];
#pragma unroll
  for (int g = 0; g < G; g++) {
    codes[g] = groups[g].codes, scales[g] = groups[g].scales;
#pragma unroll
    for (int i = 0; i < M; i++) sums[g][i] = total[g * M + i];
  }
  const Quad* a[M];
#pragma unroll
  for (int i = 0; i < M; i++) a[i] = reinterpret_cast<const Quad*>(rows.a + i * rows.length);
  const int32_t* begin = rows.begin;
  const float* units = rows.units;
  for (isize b = 0; b < apart; b++) {
    VI low[G][M], high[G][M];  // of the first two digits; of the third
#pragma unroll
    for (int i = 0; i < M; i++) {
      const int32_t* from = begin + i * apart * DIGITS;
#pragma unroll
      for (int g = 0; g < G; g++) {
        low[g][i] = splat_i(from[0] + from[1] * 256);
        if constexpr (DIGITS == 3) high[g][i] = splat_i(from[2]);
      }
    }
    isize left = block;
    do {
      Bytes pairs[G][M][DIGITS];
#pragma unroll
      for (int word = 0; word < WORDS; word++)
#pragma unroll
        for (int p = 0; p < 2; p++) {
          Bytes taken[G];
#pragma unroll
          for (int g = 0; g < G; g++) taken[g] = some_codes<4>(codes[g], word, p, mask);
#pragma unroll
          for (int i = 0; i < M; i++)
#pragma unroll
            for (int d = 0; d < DIGITS; d++) {
              const int32_t digits = a[i][(word * 2 + p) * DIGITS + d];
#pragma unroll
              for (int g = 0; g < G; g++) {
                Bytes& sum = pairs[g][i][d];
                const Bytes found = pair_dot(taken[g], digits);
                sum = word || p ? pairs_sum(sum, found) : found;
                pin(sum);
              }
            }
        }
#pragma unroll
      for (int g = 0; g < G; g++)
#pragma unroll
        for (int i = 0; i < M; i++) {
          low[g][i] += pairs_added(pairs[g][i][0]) + pairs_added(pairs[g][i][1], 256);
          if constexpr (DIGITS == 3) high[g][i] += pairs_added(pairs[g][i][2]);
        }
#pragma unroll
      for (int i = 0; i < M; i++) {
        a[i] += 2 * WORDS * DIGITS;
        pin(a[i]);
      }
#pragma unroll
      for (int g = 0; g < G; g++) {
        codes[g] += WORDS * sizeof(Bytes);
        pin(codes[g]);
      }
      left -= 8 * WORDS;
    } while (!ONCE && left);
#pragma unroll
    for (int g = 0; g < G; g++) {
      const VF scale = next_scale(scales[g], half, wide);
#pragma unroll
      for (int i = 0; i < M; i++) {
        VF sum = __builtin_convertvector(low[g][i], VF);
        if constexpr (DIGITS == 3) sum += __builtin_convertvector(high[g][i], VF) * splat(65536);
        sums[g][i] += sum * (scale * splat(units[i * apart]));
      }
    }
    begin += DIGITS, units++;
    pin(begin), pin(units);
  }
#pragma unroll
  for (int g = 0; g < G; g++)
#pragma unroll
    for (int i = 0; i < M; i++) total[g * M + i] = sums[g][i];
}

}  // namespace nbits
#endif
