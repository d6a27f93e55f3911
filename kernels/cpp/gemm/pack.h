// Copies of strided matrices into the layout that tiles read: panels of up to NR columns, row by row.
#pragma once
#include "gemm/tile.h"

namespace gemm {

inline void transpose(const VF4* v, VF4* out) {
  const VF4 ab0 = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5), ab1 = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
  const VF4 cd0 = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5), cd1 = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  out[0] = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5), out[1] = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
  out[2] = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5), out[3] = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
}

#if defined(__AVX__)
// Within groups of four lanes: a0 b0 a1 b1; a2 b2 a3 b3; a0 a1 b0 b1; a2 a3 b2 b3.
#if defined(__AVX512F__)
inline VF low(VF a, VF b) { return (VF)_mm512_unpacklo_ps((__m512)a, (__m512)b); }
inline VF high(VF a, VF b) { return (VF)_mm512_unpackhi_ps((__m512)a, (__m512)b); }
inline VF lows(VF a, VF b) { return (VF)_mm512_unpacklo_pd((__m512d)a, (__m512d)b); }
inline VF highs(VF a, VF b) { return (VF)_mm512_unpackhi_pd((__m512d)a, (__m512d)b); }
#else
inline VF low(VF a, VF b) { return (VF)_mm256_unpacklo_ps((__m256)a, (__m256)b); }
inline VF high(VF a, VF b) { return (VF)_mm256_unpackhi_ps((__m256)a, (__m256)b); }
inline VF lows(VF a, VF b) { return (VF)_mm256_unpacklo_pd((__m256d)a, (__m256d)b); }
inline VF highs(VF a, VF b) { return (VF)_mm256_unpackhi_pd((__m256d)a, (__m256d)b); }
#endif

inline void transpose(const VF* v, VF* out) {
  const VF a = low(v[0], v[1]), b = high(v[0], v[1]), c = low(v[2], v[3]), d = high(v[2], v[3]);
  out[0] = lows(a, c), out[1] = highs(a, c), out[2] = lows(b, d), out[3] = highs(b, d);
}
#endif

// Four floats from from(group) for each group of four lanes.
inline VF gather(auto from) {
#if defined(__AVX512F__)
  __m512 v = _mm512_castps128_ps512((__m128)load4(from(0)));
  v = _mm512_insertf32x4(v, (__m128)load4(from(1)), 1);
  v = _mm512_insertf32x4(v, (__m128)load4(from(2)), 2);
  return (VF)_mm512_insertf32x4(v, (__m128)load4(from(3)), 3);
#elif defined(__AVX__)
  return (VF)_mm256_insertf128_ps(_mm256_castps128_ps256((__m128)load4(from(0))), (__m128)load4(from(1)), 1);
#else
  return load(from(0));
#endif
}

// Four neighbours from each of W places, as columns.
inline void quads(const float* const* p, isize at, VF* out) {
  VF v[4];
  for (int r = 0; r < 4; r++) v[r] = gather([&](int g) { return p[4 * g + r] + at; });
  transpose(v, out);
}

inline void transpose4(const float* src, isize stride, float* dst, isize width) {
  VF4 v[4], out[4];
  for (int i = 0; i < 4; i++) v[i] = load4(src + i * stride);
  transpose(v, out);
  for (int i = 0; i < 4; i++) store4(dst + i * width, out[i]);
}

inline void copy_floats(const float* src, float* dst, isize n) {
  if (n < W) return store_part(dst, load_part(src, n), n);
  for (isize i = 0; i + W < n; i += W) store(dst + i, load(src + i));
  store(dst + n - W, load(src + n - W));
}

inline void fill_zero(float* dst, isize n) {
  if (n < W) return store_part(dst, splat(0), n);
  for (isize i = 0; i + W < n; i += W) store(dst + i, splat(0));
  store(dst + n - W, splat(0));
}

// p[0], p[2], p[4], p[6], and nothing behind them.
inline VF4 load4_even(const float* p) { return __builtin_shufflevector(load4(p), load4(p + 3), 0, 2, 5, 7); }

// dst[i] = src[i * stride]
inline void copy_strided(const float* src, isize stride, float* dst, isize n) {
  if (stride == 1) return copy_floats(src, dst, n);
  isize i = 0;
  if (stride == 2)
    for (; i + 4 <= n; i += 4) store4(dst + i, load4_even(src + 2 * i));
  for (; i < n; i++) dst[i] = src[i * stride];
}

// The i in [0, n) for which from + i * stride lies in [0, size) are [lo, hi).
struct Span {
  isize lo, hi;
  Span(isize from, isize stride, isize size, isize n) : lo(0), hi(n) {
    if (from < 0) lo = least(n, stride == 1 ? -from : (-from + stride - 1) / stride);
    if (from + (n - 1) * stride >= size) hi = from >= size ? lo : stride == 1 ? size - from : (size - from + stride - 1) / stride;
    hi = most(hi, lo);
  }
};

// dst[r * dst_rs + c] = src[r * rs + c * cs]
void copy_matrix(const float* src, isize rs, isize cs, float* dst, isize dst_rs, isize rows, isize columns);

}  // namespace gemm
