// One column against few rows, 64 bytes of codes at a time (AVX-512). Where a is rounded and the processor adds up products of four bytes
// (VNNI): a's int16 as two signed bytes, each with the codes as they lie. Else floats, with codes of up to 4 bits looked up in a register.
#pragma once
#include "nbits/weights.h"

#if defined(__AVX512F__)
#include "qgemm/tile.h"

namespace nbits {

constexpr isize STEP = 64;    // bytes of codes
constexpr isize GROUP = 16;   // of which a block has whole ones
constexpr isize AHEAD = 1536;  // bytes of codes that are asked for before they are met: processors do not look beyond a page

// Whether blocks share steps in a way that `Quads` knows, and rows are long enough for what is made of a to fit where its floats were.
inline bool quads_fit(const Weights& w) {
  const isize groups = w.block * w.bits / 8 / GROUP;
  const bool even = w.block * w.bits / 8 % GROUP == 0 && (groups <= 2 || groups % 4 == 0);
  return even && w.count * w.block >= 4 * STEP && qgemm::quads() != qgemm::Quads::NONE;
}

// From a row of int16 by chunks (of GROUP bytes' codes, in planes): for each step the high bytes by plane, then the low ones, with zeros
// behind the last.
inline void split_row(const int16_t* from, int8_t* out, isize row_bytes, isize planes) {
  const isize steps = (row_bytes + STEP - 1) / STEP;
  if (row_bytes % STEP) __builtin_memset(out + (steps - 1) * planes * 2 * STEP, 0, size_t(planes * 2 * STEP));
  for (isize c = 0; c < row_bytes / GROUP; c++)
    for (isize t = 0; t < planes; t++, from += GROUP) {
      int8_t* high = out + c / 4 * planes * 2 * STEP + t * STEP + c % 4 * GROUP;
      int8_t* low = high + planes * STEP;
      for (isize l = 0; l < GROUP; l++) {
        const int32_t h = (from[l] + 128) >> 8;
        high[l] = int8_t(h), low[l] = int8_t(from[l] - h * 256);
      }
    }
}

// Whether floats may be looked up; their rows are those of `split_row` in length, and so is the processor that they ask for.
inline bool lookup_fits(const Weights& w) { return w.bits <= 4 && quads_fit(w); }

// From a row of k numbers: for each step and place of a code in a word of four bytes, those of its 16 words; zeros behind the last.
inline isize spread_length(isize depth) { return gemm::round_up(depth, STEP * 4); }
inline void spread_row(const float* from, isize k, float* out, isize row_bytes, isize places) {
  const isize each = 16 * places;
  for (isize at = 0; at < row_bytes * places / 4; at += each, out += each)
    for (isize word = 0; word < 16; word++)
      for (isize t = 0; t < places; t++) out[t * 16 + word] = at + word * places + t < k ? from[at + word * places + t] : 0;
}

inline __mmask16 first(isize n) { return __mmask16((1u << n) - 1); }  // n <= 16

// Scales of n <= 16 blocks, and what is taken off the codes of each.
inline VF scales_at(const Weights& w, isize at, isize n) {
  if (w.scales.dtype == F16) return (VF)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), w.scales.as<uint16_t>() + at));
  return (VF)_mm512_maskz_loadu_ps(first(n), w.scales.as<float>() + at);
}
inline VF offsets_at(const Weights& w, isize at, isize n, VF scale) {
  if (w.shifts.dtype == F32) return (VF)_mm512_maskz_loadu_ps(first(n), w.shifts.as<float>() + at);
  if (w.shifts.dtype == F16) return (VF)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), w.shifts.as<uint16_t>() + at));
  if (w.shifts.dtype != U8) return scale * splat(float(1 << (w.bits - 1)));
  return scale * (VF)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first(n), w.shifts.as<uint8_t>() + at)));
}

// What a step of codes gives, a sum in each lane: from rows of `split_row`, and of `spread_row`.
template <int BITS> PWX_QUADS inline __m512 times(__m512i bytes, const int8_t* a) {
  constexpr isize PLANES = 8 / BITS;
  const __m512i mask = _mm512_set1_epi8(char((1 << BITS) - 1));
  __m512i high = _mm512_setzero_si512(), low = high;
  for (isize t = 0; t < PLANES; t++) {
    const __m512i plane = BITS == 8 ? bytes : _mm512_and_si512(_mm512_srli_epi16(bytes, unsigned(t * BITS)), mask);
    high = _mm512_dpbusd_epi32(high, plane, _mm512_loadu_si512(a + t * STEP));
    low = _mm512_dpbusd_epi32(low, plane, _mm512_loadu_si512(a + (PLANES + t) * STEP));
  }
  return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low));
}
template <int BITS> PWX_QUADS inline __m512 times(__m512i words, const float* a) {
  constexpr int MASK = (1 << BITS) - 1;
  const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512 table = _mm512_cvtepi32_ps(_mm512_and_si512(lanes, _mm512_set1_epi32(MASK)));
  __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int t = 0; t < 32 / BITS; t++) {
    const __m512 codes = _mm512_permutexvar_ps(_mm512_srli_epi32(words, unsigned(t * BITS)), table);  // which looks at four bits
    sum[t % 2] = _mm512_fmadd_ps(codes, _mm512_loadu_ps(a + t * 16), sum[t % 2]);
  }
  return _mm512_add_ps(sum[0], sum[1]);
}

// y[0..M) of column j. a: of split_row or spread_row, M rows a_rs elements apart; units, sums: by row and block, `factor` holds M of the
// like. BLOCK: groups of a block; 4 for more as well.
template <int M, int BITS, int BLOCK, class A>
PWX_QUADS inline void column_steps(
    const Weights& w, const A* a, isize a_rs, const float* units, const float* sums, float* factor, isize j, float* y
) {
  constexpr isize EACH = STEP * (8 / BITS) * (sizeof(A) == 1 ? 2 : 1);  // elements of a for a step
  const isize count = w.count;
  VF total[M];
  for (int i = 0; i < M; i++) total[i] = splat(0);
  for (isize b = 0; b < count; b += W) {
    const isize n = least(W, count - b);
    const VF scale = scales_at(w, j * count + b, n), offset = offsets_at(w, j * count + b, n, scale);
    for (int i = 0; i < M; i++) {
      const isize at = i * count + b;
      _mm512_mask_storeu_ps(factor + at, first(n), (__m512)(scale * (VF)_mm512_maskz_loadu_ps(first(n), units + at)));
      total[i] -= offset * (VF)_mm512_maskz_loadu_ps(first(n), sums + at);
    }
  }
  const uint8_t* codes = w.codes + j * w.row;
  const __m512i pick = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
  const __m512i halves = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
  auto step = [&](isize s, isize groups, __m512i bytes) PWX_QUADS {
    for (int i = 0; i < M; i++) {
      const __m512 sum = times<BITS>(bytes, a + i * a_rs + s * EACH);
      const float* f = factor + i * count;
      __m512 by;
      if constexpr (BLOCK == 1) {
        const __m128 four = groups >= 4 ? _mm_loadu_ps(f + s * 4) : _mm_maskz_loadu_ps(__mmask8((1 << groups) - 1), f + s * 4);
        by = _mm512_permutevar_ps(_mm512_broadcast_f32x4(four), pick);
      } else if constexpr (BLOCK == 2) {
        const __m128 two = _mm_maskz_loadu_ps(groups >= 4 ? 3 : 1, f + s * 2);
        by = _mm512_permutevar_ps(_mm512_broadcast_f32x4(two), halves);
      } else {
        by = _mm512_set1_ps(f[s * STEP * (8 / BITS) / w.block]);
      }
      total[i] = (VF)_mm512_fmadd_ps(sum, by, (__m512)total[i]);
    }
  };
  const isize whole = w.row / STEP;
  for (isize s = 0; s < whole; s++, codes += STEP) {
    _mm_prefetch(reinterpret_cast<const char*>(codes) + AHEAD, _MM_HINT_T0);
    step(s, 4, _mm512_loadu_si512(codes));
  }
  if (const isize rest = w.row % STEP) step(whole, rest / GROUP, _mm512_maskz_loadu_epi32(first(rest / 4), codes));
  for (int i = 0; i < M; i++) y[i] = _mm512_reduce_add_ps((__m512)total[i]);
}

// Columns [begin, end) of y, whose rows are y_rs apart.
template <int BITS, int BLOCK, class A>
PWX_QUADS void columns_steps(
    const Weights& w, const A* a, isize a_rs, const float* units, const float* sums, float* factor, isize m, isize begin, isize end,
    float* y, isize y_rs
) {
  for (isize j = begin; j < end; j++) {
    auto some = [&]<int M>(isize i) PWX_QUADS {
      float found[M];
      column_steps<M, BITS, BLOCK>(w, a + i * a_rs, a_rs, units + i * w.count, sums + i * w.count, factor, j, found);
      for (int r = 0; r < M; r++) y[(i + r) * y_rs + j] = found[r];
    };
    isize i = 0;
    if (m == 4) some.template operator()<4>(i), i = 4;
    for (; i + 2 <= m; i += 2) some.template operator()<2>(i);
    if (i < m) some.template operator()<1>(i);
  }
}

}  // namespace nbits
#endif
