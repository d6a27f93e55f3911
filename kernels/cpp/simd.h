// One vector width per build: VF holds W floats. Everything else is clang vector arithmetic; with -ffp-contract=fast a*b+c is one
// fused instruction wherever the target has one (f32x4.relaxed_madd in WebAssembly).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__) || defined(__AVX__)
#include <immintrin.h>
#elif defined(__wasm__)
#include <wasm_simd128.h>
#endif

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

typedef float VF __attribute__((ext_vector_type(W)));
typedef int32_t VI __attribute__((ext_vector_type(W)));
typedef float VF4 __attribute__((ext_vector_type(4)));

inline VF splat(float x) { return (VF)x; }
inline VI splat_i(int32_t x) { return (VI)x; }

inline VF load(const float* p) { VF v; __builtin_memcpy(&v, p, sizeof v); return v; }
inline void store(float* p, VF v) { __builtin_memcpy(p, &v, sizeof v); }
inline VI load_i(const int32_t* p) { VI v; __builtin_memcpy(&v, p, sizeof v); return v; }
inline void store_i(int32_t* p, VI v) { __builtin_memcpy(p, &v, sizeof v); }
inline VF4 load4(const float* p) { VF4 v; __builtin_memcpy(&v, p, sizeof v); return v; }
inline void store4(float* p, VF4 v) { __builtin_memcpy(p, &v, sizeof v); }

// a before b; .even and .odd are every second element.
typedef float VFF __attribute__((ext_vector_type(2 * W)));
inline void join(VFF& v, VF a, VF b) {
  const VF both[2] = {a, b};
  __builtin_memcpy(&v, both, sizeof v);
}

// The first n lanes (0 <= n <= W); the others read as zero, are not written, and their memory is never touched.
inline VF load_part(const float* p, auto n) {
#if defined(__AVX512F__)
  return (VF)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#elif defined(__AVX__)
  alignas(32) static const int32_t lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return (VF)_mm256_maskload_ps(p, _mm256_loadu_si256((const __m256i*)(lanes + 8 - n)));
#else
  if (n >= W) return load(p);
  VF v = splat(0);
  if (n > 0) v[0] = p[0];
  if (n > 1) v[1] = p[1];
  if (n > 2) v[2] = p[2];
  return v;
#endif
}

inline void store_part(float* p, VF v, auto n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#elif defined(__AVX__)
  // Not by a mask, with which some processors store a number at a time, but by two ends that overlap.
  if (n >= W) return store(p, v);
  alignas(32) static const int32_t lanes[12] = {0, 1, 2, 3, 4, 5, 6, 7};
  const __m128 low = _mm256_castps256_ps128((__m256)v);
  auto last = [&](int count) {
    return _mm256_castps256_ps128(_mm256_permutevar8x32_ps((__m256)v, _mm256_loadu_si256((const __m256i*)(lanes + n - count))));
  };
  if (n >= 4) _mm_storeu_ps(p, low), _mm_storeu_ps(p + n - 4, last(4));
  else if (n >= 2) _mm_storel_pi((__m64*)p, low), _mm_storel_pi((__m64*)(p + n - 2), last(2));
  else if (n == 1) _mm_store_ss(p, low);
#else
  if (n >= W) return store(p, v);
  if (n > 0) p[0] = v[0];
  if (n > 1) p[1] = v[1];
  if (n > 2) p[2] = v[2];
#endif
}

inline VF as_f(VI v) { return __builtin_bit_cast(VF, v); }
inline VI as_i(VF v) { return __builtin_bit_cast(VI, v); }
inline VF fma(VF a, VF b, VF c) { return a * b + c; }

// Keeps a value where it is computed, in WebAssembly and AVX2: otherwise LLVM loads all that a step needs before it
// multiplies, and it or the engine, which keeps that order, spills.
template <class T> inline void pin([[maybe_unused]] T& value) {
#if defined(__wasm__)
  asm volatile("" : "+r"(value)::"memory");
#elif defined(__AVX__) && !defined(__AVX512F__)
  if constexpr (__is_pointer(T)) asm volatile("" : "+r"(value)::"memory");
  else asm volatile("" : "+x"(value)::"memory");
#endif
}

// `fetch` asks for the cache line at p, which need not exist: into the level-2 cache, where it drives nothing out of the first. WebAssembly
// cannot; there `touch` reads it, which must exist, and a processor that sees lines read one after the other fetches the next by itself.
#if defined(__wasm__)
constexpr bool FETCHES = false;
inline void fetch(const void*) {}
inline void touch(const void* p) { asm volatile("local.get %0\n i32.load8_u 0\n drop" ::"r"(p)); }
#else
constexpr bool FETCHES = true;
inline void fetch(const void* p) { __builtin_prefetch(p, 0, 2); }
inline void touch(const void*) {}
#endif

// Lane masks (all ones or all zeros) come from comparisons; select(mask, a, b) takes a where the mask is set.
inline VF select(VI mask, VF a, VF b) { return as_f((mask & as_i(a)) | (~mask & as_i(b))); }

// vmax(v, lo) = v < lo ? lo : v and vmin(v, hi) = v > hi ? hi : v: a NaN in v survives, one in the bound does not count.
// Always through these: with relaxed SIMD, LLVM turns any `a < b ? b : a`, however written, into f32x4.relaxed_max, whose NaNs are
// undefined.
template <class V> inline V vmax(V v, V lo) {
#if defined(__wasm__)
  return __builtin_wasm_pmax_f32x4(v, lo);
#else
  return v < lo ? lo : v;
#endif
}
template <class V> inline V vmin(V v, V hi) {
#if defined(__wasm__)
  return __builtin_wasm_pmin_f32x4(v, hi);
#else
  return v > hi ? hi : v;
#endif
}

// Whether a lane of a mask is set.
inline bool any_lane(VI mask) {
#if defined(__wasm__)
  return wasm_v128_any_true((v128_t)mask);
#elif defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask);
#elif defined(__AVX__)
  return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#else
  return __builtin_reduce_or(mask) != 0;
#endif
}

inline float sum_lanes(VF v) {
  float s[W];
  __builtin_memcpy(s, &v, sizeof v);
  for (int n = W / 2; n; n /= 2)
    for (int i = 0; i < n; i++) s[i] += s[i + n];
  return s[0];
}

typedef float VF16 __attribute__((ext_vector_type(16)));
typedef uint8_t VB16 __attribute__((ext_vector_type(16)));

// LLVM converts bytes one by one for WebAssembly.
inline VF16 floats(VB16 bytes) {
#if defined(__wasm__)
  const v128_t b = (v128_t)bytes, low = wasm_u16x8_extend_low_u8x16(b), high = wasm_u16x8_extend_high_u8x16(b);
  const v128_t four[4] = {
      wasm_f32x4_convert_i32x4(wasm_u32x4_extend_low_u16x8(low)), wasm_f32x4_convert_i32x4(wasm_u32x4_extend_high_u16x8(low)),
      wasm_f32x4_convert_i32x4(wasm_u32x4_extend_low_u16x8(high)), wasm_f32x4_convert_i32x4(wasm_u32x4_extend_high_u16x8(high))};
  VF16 v;
  __builtin_memcpy(&v, four, sizeof v);
  return v;
#else
  return __builtin_convertvector(bytes, VF16);
#endif
}
