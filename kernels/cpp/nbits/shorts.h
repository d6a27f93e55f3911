// Groups of codes of 8 bits (nbits/groups.h) against few rows of int16, where sums of products of bytes saturate.
#pragma once
#include "nbits/digits.h"

#if defined(PWX_PAIRS)

namespace nbits {

// Four codes of each column of half a group as int16, and their products with four numbers: two sums of two for each column.
#if defined(__wasm__)
typedef v128_t Shorts;
inline Bytes nothing() {
  int32_t zero = 0;
  asm("" : "+r"(zero));  // V8 clears a register at each use of a constant, and at each extension of a high half
  return wasm_i32x4_splat(zero);
}
inline Shorts first_half(Bytes v) { return wasm_u16x8_extend_low_u8x16(v); }
inline Shorts second_half(Bytes v, Bytes zero) {
  return wasm_i8x16_shuffle(v, zero, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
inline VI short_dot(VI sum, Shorts codes, const int16_t* four) { return sum + (VI)wasm_i32x4_dot_i16x8(codes, wasm_v128_load64_splat(four)); }
#elif defined(__AVX512F__)
typedef __m512i Shorts;
inline Shorts first_half(Bytes v) { return _mm512_cvtepu8_epi16(_mm512_castsi512_si256(v)); }
inline Bytes nothing() { return Bytes(); }
inline Shorts second_half(Bytes v, Bytes) { return _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(v, 1)); }
inline VI short_dot(VI sum, Shorts codes, const int16_t* four) { return sum + (VI)_mm512_madd_epi16(codes, _mm512_set1_epi64(load_as<int64_t>(four))); }
#else
typedef __m256i Shorts;
inline Shorts first_half(Bytes v) { return _mm256_cvtepu8_epi16(_mm256_castsi256_si128(v)); }
inline Bytes nothing() { return Bytes(); }
inline Shorts second_half(Bytes v, Bytes) { return _mm256_cvtepu8_epi16(_mm256_extracti128_si256(v, 1)); }
inline VI short_dot(VI sum, Shorts codes, const int16_t* four) { return sum + (VI)_mm256_madd_epi16(codes, _mm256_set1_epi64x(load_as<int64_t>(four))); }
#endif

inline VI neighbours_added(VI first, VI second) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
         __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif defined(__AVX2__)
  return __builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14) + __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15);
#else
  return __builtin_shufflevector(first, second, 0, 2, 4, 6) + __builtin_shufflevector(first, second, 1, 3, 5, 7);
#endif
}

// As quad_sums, of rows of int16.
template <int G, int M>
[[gnu::noinline]] void short_sums(const Weights& w, const Group* groups, const DigitRows& rows, VF* total) {
  constexpr int WORDS = 4;  // of each column at a time
  const isize block = w.block, apart = w.count;
  const bool half = w.scales.dtype == F16;
  const Bytes zero = nothing();
  const Halves wide;
  VF sums[G][M];
  const char *codes[G], *scales[G];
#pragma unroll
  for (int g = 0; g < G; g++) {
    codes[g] = groups[g].codes, scales[g] = groups[g].scales;
#pragma unroll
    for (int i = 0; i < M; i++) sums[g][i] = total[g * M + i];
  }
  const int16_t* a[M];
#pragma unroll
  for (int i = 0; i < M; i++) a[i] = reinterpret_cast<const int16_t*>(rows.a + i * rows.length);
  const int32_t* begin = rows.begin;
  const float* units = rows.units;
  for (isize b = 0; b < apart; b++) {
    VI acc[G][M][2] = {};
    for (isize left = block; left > 0; left -= 4 * WORDS) {
#pragma unroll
      for (int word = 0; word < WORDS; word++)
#pragma unroll
        for (int g = 0; g < G; g++) {
          if (FETCHES) fetch(codes[g] + word * sizeof(Bytes) + AHEAD_OF_GROUPS);
          const Bytes all = load_as<Bytes>(codes[g] + word * sizeof(Bytes));
          const Shorts low = first_half(all), high = second_half(all, zero);
#pragma unroll
          for (int i = 0; i < M; i++) {
            acc[g][i][0] = short_dot(acc[g][i][0], low, a[i] + 4 * word);
            acc[g][i][1] = short_dot(acc[g][i][1], high, a[i] + 4 * word);
            pin(acc[g][i][0]), pin(acc[g][i][1]);
          }
        }
#pragma unroll
      for (int i = 0; i < M; i++) {
        a[i] += 4 * WORDS;
        pin(a[i]);
      }
#pragma unroll
      for (int g = 0; g < G; g++) {
        codes[g] += WORDS * sizeof(Bytes);
        pin(codes[g]);
      }
    }
#pragma unroll
    for (int g = 0; g < G; g++) {
      const VF scale = next_scale(scales[g], half, wide);
#pragma unroll
      for (int i = 0; i < M; i++) {
        const VI sum = neighbours_added(acc[g][i][0], acc[g][i][1]) + splat_i(begin[i * apart]);
        sums[g][i] += __builtin_convertvector(sum, VF) * (scale * splat(units[i * apart]));
      }
    }
    begin++, units++;
    pin(begin), pin(units);
  }
#pragma unroll
  for (int g = 0; g < G; g++)
#pragma unroll
    for (int i = 0; i < M; i++) total[g * M + i] = sums[g][i];
}

// For each block what its sums begin with: `zero` times the sum of its numbers taken off.
inline void begin_shorts(const int16_t* row, isize count, isize block, int zero, int32_t* out) {
  for (isize b = 0; b < count; b++, row += block) {
    int32_t sum = 0;
    for (isize k = 0; k < block; k++) sum += row[k];
    out[b] = -zero * sum;
  }
}

}  // namespace nbits
#endif
