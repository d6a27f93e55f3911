// Codes of 4 bits against few rows of int16, 32 bytes of codes at a time (AVX2). A word of 16 bits has four codes; masks and shifts take
// one out of every word at once, so that nothing is widened.
#pragma once
#include "nbits/weights.h"

#if defined(__AVX2__) && !defined(__AVX512F__)
namespace nbits {

constexpr isize STEP = 64;     // codes
constexpr isize AHEAD = 1536;  // bytes of codes that are asked for before they are met: processors do not look beyond a page

inline bool nibbles_fit(const Weights& w) { return w.bits == 4 && (w.block == 32 || w.block % STEP == 0); }
inline isize nibbles_length(isize depth) { return gemm::round_up(depth, STEP); }

typedef int16_t VS64 __attribute__((ext_vector_type(64)));

// Of a row of int16: for each step every fourth number, from the first on, from the second on, and so forth; zeros behind the last.
inline void spread_nibbles(const int16_t* from, isize depth, int16_t* out) {
  for (isize at = 0; at < depth; at += STEP, out += STEP) {
    VS64 v = (VS64)int16_t(0);
    __builtin_memcpy(&v, from + at, size_t(2 * least(STEP, depth - at)));
    typedef int16_t VS32 __attribute__((ext_vector_type(32)));
    typedef int16_t VS16 __attribute__((ext_vector_type(16)));
    const VS32 even = v.even, odd = v.odd;
    const VS16 planes[4] = {even.even, odd.even, even.odd, odd.odd};
    __builtin_memcpy(out, planes, sizeof planes);
  }
}

// Scales of n <= W blocks, and what is taken off the codes of each.
inline VF scales_at(const Weights& w, isize at, isize n) {
  if (w.scales.dtype == F32) return load_part(w.scales.as<float>() + at, n);
  uint16_t part[W] = {};
  const uint16_t* from = w.scales.as<uint16_t>() + at;
  return halves(n == W ? from : static_cast<uint16_t*>(__builtin_memcpy(part, from, size_t(2 * n))));
}
inline VF offsets_at(const Weights& w, isize at, isize n, VF scale) {
  if (w.shifts.dtype == F32) return load_part(w.shifts.as<float>() + at, n);
  if (w.shifts.dtype == F16) {
    uint16_t part[W] = {};
    return halves(static_cast<uint16_t*>(__builtin_memcpy(part, w.shifts.as<uint16_t>() + at, size_t(2 * n))));
  }
  if (w.shifts.dtype != U8) return scale * splat(float(1 << (w.bits - 1)));
  uint64_t part = 0;
  __builtin_memcpy(&part, w.shifts.as<uint8_t>() + at, size_t(n));
  return scale * (VF)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(int64_t(part))));
}

// What a step of codes gives, a sum in each lane: the first half of the codes in the first half of the lanes.
inline VI nibbles_times(__m256i bytes, const int16_t* a) {
  const __m256i mask = _mm256_set1_epi16(15), *from = reinterpret_cast<const __m256i*>(a);
  auto times = [&](__m256i codes, int plane) { return (VI)_mm256_madd_epi16(codes, _mm256_loadu_si256(from + plane)); };
  return (times(_mm256_and_si256(bytes, mask), 0) + times(_mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask), 1)) +
         (times(_mm256_and_si256(_mm256_srli_epi16(bytes, 8), mask), 2) + times(_mm256_srli_epi16(bytes, 12), 3));
}

inline __m256i nibbles_half(const uint8_t* codes) {
  return _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
}

// y[0..M) of column j. a: of spread_nibbles, M rows a_rs apart; units, sums: by row and block. SHORT: blocks of 32.
template <int M, bool SHORT>
inline void nibbles_column(const Weights& w, const int16_t* a, isize a_rs, const float* units, const float* sums, isize j, float* y) {
  const uint8_t* codes = w.codes + j * w.row;
  VF total[M];
  for (int i = 0; i < M; i++) total[i] = splat(0);
  for (isize b = 0; b < w.count; b += W) {
    const isize n = least(W, w.count - b);
    const VF scale = scales_at(w, j * w.count + b, n), offset = offsets_at(w, j * w.count + b, n, scale);
    VF factor[M];
    for (int i = 0; i < M; i++) {
      const isize at = i * w.count + b;
      factor[i] = scale * load_part(units + at, n);
      total[i] -= offset * load_part(sums + at, n);
    }
    if constexpr (SHORT) {
      auto step = [&](int s, __m256i bytes) {
        const VI pick = VI{0, 0, 0, 0, 1, 1, 1, 1} + splat_i(2 * s);
        for (int i = 0; i < M; i++) {
          const VF by = (VF)_mm256_permutevar8x32_ps((__m256)factor[i], (__m256i)pick);
          total[i] = fma(__builtin_convertvector(nibbles_times(bytes, a + i * a_rs), VF), by, total[i]);
        }
        a += STEP, codes += STEP / 2;
      };
      auto load = [&] {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
      };
      _mm_prefetch(reinterpret_cast<const char*>(codes) + AHEAD, _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(codes) + AHEAD + 64, _MM_HINT_T0);
      if (n == W) {
        step(0, load()), step(1, load()), step(2, load()), step(3, load());
      } else {
        int s = 0;
        for (; 2 * s + 2 <= n; s++) step(s, load());
        if (n % 2) step(s, nibbles_half(codes));
      }
    } else {
      for (isize t = 0; t < n; t++) {
        VI sum[M];
        for (int i = 0; i < M; i++) sum[i] = splat_i(0);
        _mm_prefetch(reinterpret_cast<const char*>(codes) + AHEAD, _MM_HINT_T0);
        for (isize s = 0; s < w.block; s += STEP, a += STEP, codes += STEP / 2) {
          const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
          for (int i = 0; i < M; i++) sum[i] += nibbles_times(bytes, a + i * a_rs);
        }
        const VI pick = splat_i(int32_t(t));
        for (int i = 0; i < M; i++) {
          const VF by = (VF)_mm256_permutevar8x32_ps((__m256)factor[i], (__m256i)pick);
          total[i] = fma(__builtin_convertvector(sum[i], VF), by, total[i]);
        }
      }
    }
  }
  for (int i = 0; i < M; i++) y[i] = sum_lanes(total[i]);
}

// Columns [begin, end) of m rows of y, which are y_rs apart.
inline void nibbles_columns(
    const Weights& w, const int16_t* a, isize a_rs, const float* units, const float* sums, isize m, isize begin, isize end, float* y,
    isize y_rs
) {
  auto go = [&]<bool SHORT>() {
    for (isize j = begin; j < end; j++) {
      auto some = [&]<int M>(isize i) {
        float found[M];
        nibbles_column<M, SHORT>(w, a + i * a_rs, a_rs, units + i * w.count, sums + i * w.count, j, found);
        for (int r = 0; r < M; r++) y[(i + r) * y_rs + j] = found[r];
      };
      isize i = 0;
      for (; i + 2 <= m; i += 2) some.template operator()<2>(i);
      if (i < m) some.template operator()<1>(i);
    }
  };
  if (w.block == 32) go.template operator()<true>();
  else go.template operator()<false>();
}

}  // namespace nbits
#endif
