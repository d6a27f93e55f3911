// The machine's dot products of bytes and int16, and register tiles of them.
#pragma once
#include "gemm.h"
#if defined(__wasm__)
#include <wasm_simd128.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_WIN32)
extern "C" __declspec(dllimport) int IsProcessorFeaturePresent(unsigned long);
#endif
#endif

namespace qgemm {

using gemm::least;
using gemm::most;
using gemm::round_up;
using i32 = int32_t;

// Vectors of a panel and rows of a tile. With 16 registers, of which a product takes one before it is added, 6 x 2.
#if defined(__AVX512F__)
constexpr int NV = 3, ROWS = 8;
#elif defined(__AVX__)
constexpr int NV = 2, ROWS = 6;
#elif defined(__aarch64__)
constexpr int NV = 3, ROWS = 4;
#else
constexpr int NV = 3, ROWS = 3;
#endif
constexpr int NR = NV * W;  // columns of a panel
inline isize panel_columns(isize left) { return gemm::panel_columns<NV>(left); }

// Two rows of b, W columns, side by side as int16; one pair for all columns; the sums of two products; a step that adds these, modulo 2^32.
#if defined(__wasm__)
using Pairs = v128_t;
inline Pairs widen(const int8_t* b) { return wasm_i16x8_load8x8(b); }
inline Pairs pair(i32 a) { return wasm_i32x4_splat(a); }
inline VI multiply(Pairs a, Pairs b) { return (VI)wasm_i32x4_dot_i16x8(a, b); }
#elif defined(__AVX512F__)
using Pairs = __m512i;
inline Pairs widen(const int8_t* b) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)b)); }
inline Pairs pair(i32 a) { return _mm512_set1_epi32(a); }
inline VI multiply(Pairs a, Pairs b) { return (VI)_mm512_madd_epi16(a, b); }
#elif defined(__AVX2__)
using Pairs = __m256i;
inline Pairs widen(const int8_t* b) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)b)); }
inline Pairs pair(i32 a) { return _mm256_set1_epi32(a); }
inline VI multiply(Pairs a, Pairs b) { return (VI)_mm256_madd_epi16(a, b); }
#elif defined(__x86_64__)
using Pairs = __m128i;
inline Pairs widen(const int8_t* b) { return _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i*)b)); }
inline Pairs pair(i32 a) { return _mm_set1_epi32(a); }
inline VI multiply(Pairs a, Pairs b) { return (VI)_mm_madd_epi16(a, b); }
#else
typedef int16_t Pairs __attribute__((ext_vector_type(2 * W)));
typedef int8_t PairBytes __attribute__((ext_vector_type(2 * W)));
inline Pairs widen(const int8_t* b) {
  PairBytes v;
  __builtin_memcpy(&v, b, sizeof v);
  return __builtin_convertvector(v, Pairs);
}
inline Pairs pair(i32 a) { return __builtin_bit_cast(Pairs, splat_i(a)); }
inline VI multiply(Pairs a, Pairs b) {
  return __builtin_convertvector(a.even, VI) * __builtin_convertvector(b.even, VI) +
         __builtin_convertvector(a.odd, VI) * __builtin_convertvector(b.odd, VI);
}
#endif
inline Pairs widen(const int16_t* b) {
  Pairs v;
  __builtin_memcpy(&v, b, sizeof v);
  return v;
}
typedef uint32_t VU __attribute__((ext_vector_type(W)));
inline VI dot(VI acc, Pairs a, Pairs b) { return (VI)((VU)acc + (VU)multiply(a, b)); }
inline VI dot(VI acc, i32 a, Pairs b) { return dot(acc, pair(a), b); }

// How products are added up that saturate (runs.h): as bytes, all rows as int16, or those steps alone.
enum class Way { SPLIT, WIDE, MIXED };

struct Tile {
  const char* a;  // packed rows, a_rs bytes apart
  isize a_rs;
  const int8_t* b;  // one packed panel
  isize steps;      // groups of `unit` rows of b
  i32* out;         // [M, V * W]
  const i32* start;  // what each column's sum begins with; nullptr: 0
  // Where sums of two products would saturate (Arranged): and the norms of the rows; nullptr: none are known.
  const int8_t* other;
  const i32 *at, *other_at;
  const float *norms, *a_norms;
  const int16_t* lanes;
  isize n, n_other;
  Way way;
  isize rows;  // that there are; others may repeat the last
  const char* wide;  // the rows as int16
  isize wide_rs;
  i32 center;  // what is taken off the rows before their norms

  isize row(isize i) const { return i < rows ? i : rows - 1; }
};

// Rows of int16 by panels of bytes or int16; `add` is a step of a pair of two rows.
template <int M, int V, class B> [[gnu::always_inline]] inline void add_pairs(const Tile& t, auto add) {
  VI acc[M][V];
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) acc[i][v] = t.start ? load_i(t.start + v * W) : splat_i(0);
  const B* b = reinterpret_cast<const B*>(t.b);
  const char* a[M];
  for (int i = 0; i < M; i++) a[i] = t.a + i * t.a_rs;
  auto step = [&](int u) __attribute__((always_inline)) {
    Pairs bv[V];
    for (int v = 0; v < V; v++) bv[v] = widen(b + (u * V + v) * W * 2);
#pragma unroll
    for (int i = 0; i < M; i++) {
      i32 pair;
      __builtin_memcpy(&pair, a[i] + 4 * u, 4);
#pragma unroll
      for (int v = 0; v < V; v++) acc[i][v] = add(acc[i][v], pair, bv[v]);
      for (int v = 0; v < V; v++) pin(acc[i][v]);  // row by row: more splats at a time would be spilled
    }
  };
  isize k = t.steps;
  for (; k >= 2; k -= 2) {
    step(0);
    step(1);
    b += 2 * V * W * 2;
    pin(b);
    for (int i = 0; i < M; i++) {
      a[i] += 8;
      pin(a[i]);
    }
  }
  if (k) step(0);
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) store_i(t.out + (i * V + v) * W, acc[i][v]);
}
template <int M, int V, class B = int8_t> [[gnu::noinline]] void tile_pairs(const Tile& t) {
  add_pairs<M, V, B>(t, [](VI acc, i32 a, Pairs b) __attribute__((always_inline)) { return dot(acc, a, b); });
}

// Which products of four bytes the machine adds up, a byte of `a` with one of `b`, the latter signed.
enum class Quads {
  NONE,
  UNSIGNED,    // a unsigned (VNNI)
  SATURATING,  // a unsigned, and sums of two products saturate to int16 (relaxed SIMD on x86 without VNNI)
  SIGNED,      // a signed (Arm)
};

#if defined(__AVX512F__)
inline Quads probe() {
  unsigned a, b, c = 0, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & (1u << 11)) ? Quads::UNSIGNED : Quads::NONE;  // AVX512_VNNI
}
#define PWX_QUADS __attribute__((target("avx512vnni")))
using Bytes = __m512i;
PWX_QUADS inline VI dot_quads(VI acc, i32 a, Bytes b) { return (VI)_mm512_dpbusd_epi32((__m512i)acc, _mm512_set1_epi32(a), b); }
#elif defined(__AVX2__)
inline Quads probe() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4)) ? Quads::UNSIGNED : Quads::NONE;  // AVX_VNNI
}
#define PWX_QUADS __attribute__((target("avxvnni")))
using Bytes = __m256i;
PWX_QUADS inline VI dot_quads(VI acc, i32 a, Bytes b) { return (VI)_mm256_dpbusd_avx_epi32((__m256i)acc, _mm256_set1_epi32(a), b); }
#elif defined(__wasm_relaxed_simd__)
// The standard leaves open what becomes of `a` with its top bit set: https://github.com/WebAssembly/relaxed-simd
inline Quads probe() {
  volatile int8_t most = 127, all = -1;
  const i32 sum = wasm_i32x4_extract_lane(
      wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_i8x16_splat(most), wasm_i8x16_splat(all), wasm_i32x4_splat(0)), 0);
  return sum == 4 * 127 * 255 ? Quads::UNSIGNED : sum == 2 * 32767 ? Quads::SATURATING : sum == -4 * 127 ? Quads::SIGNED : Quads::NONE;
}
#define PWX_QUADS
using Bytes = v128_t;
inline VI dot_quads(VI acc, i32 a, Bytes b) { return (VI)wasm_i32x4_relaxed_dot_i8x16_i7x16_add(b, wasm_i32x4_splat(a), (v128_t)acc); }
#elif defined(__aarch64__)
// FEAT_DotProd, of which Linux and Windows tell, and which all Macs have.
inline Quads probe() {
#if defined(__linux__)
  constexpr unsigned long ASIMDDP = 1 << 20;
  return getauxval(AT_HWCAP) & ASIMDDP ? Quads::SIGNED : Quads::NONE;
#elif defined(_WIN32)
  constexpr unsigned long ARM_V82_DP = 43;
  return IsProcessorFeaturePresent(ARM_V82_DP) ? Quads::SIGNED : Quads::NONE;
#else
  return Quads::SIGNED;
#endif
}
#define PWX_QUADS __attribute__((target("dotprod")))
using Bytes = int8x16_t;
PWX_QUADS inline VI dot_quads(VI acc, i32 a, Bytes b) { return (VI)vdotq_s32((int32x4_t)acc, vreinterpretq_s8_s32(vdupq_n_s32(a)), b); }
#else
inline Quads probe() { return Quads::NONE; }
#endif

// What PROBE finds, which is asked once.
template <auto PROBE> inline int probed() {
  static int found = -1;  // no guard of the C++ runtime, which the library does without
  int known = __atomic_load_n(&found, __ATOMIC_RELAXED);
  if (known < 0) {
    known = int(PROBE());
    __atomic_store_n(&found, known, __ATOMIC_RELAXED);
  }
  return known;
}

inline Quads quads() { return Quads(probed<probe>()); }

#if defined(PWX_QUADS)
template <int M, int V> [[gnu::noinline]] PWX_QUADS void tile_quads(const Tile& t) {
  VI acc[M][V];
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) acc[i][v] = t.start ? load_i(t.start + v * W) : VI{};
  const char* a[M];
  for (int i = 0; i < M; i++) a[i] = t.a + i * t.a_rs;
  auto step = [&](const int8_t* b, isize at) PWX_QUADS {
    Bytes bv[V];
    for (int v = 0; v < V; v++) __builtin_memcpy(&bv[v], b + v * W * 4, W * 4);
    for (int i = 0; i < M; i++) {
      i32 quad;
      __builtin_memcpy(&quad, a[i] + at, 4);
      for (int v = 0; v < V; v++) acc[i][v] = dot_quads(acc[i][v], quad, bv[v]);
      for (int v = 0; v < V; v++) pin(acc[i][v]);
    }
  };
  const int8_t* b = t.b;
  isize k = t.steps;
  for (; k >= 2; k -= 2) {
    step(b, 0);
    step(b + V * W * 4, 4);
    b += 2 * V * W * 4;
    pin(b);
    for (int i = 0; i < M; i++) {
      a[i] += 8;
      pin(a[i]);
    }
  }
  if (k) step(b, 0);
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) store_i(t.out + (i * V + v) * W, acc[i][v]);
}
#else
template <int M, int V> void tile_quads(const Tile&) {}
#endif

// Rows and panels of int16 where quads() is UNSIGNED: one instruction multiplies and adds, which LLVM would take apart again.
#if defined(__AVX2__)
constexpr bool ADDS_PAIRS = true;
template <int M, int V> [[gnu::noinline]] PWX_QUADS void tile_words(const Tile& t) {
  add_pairs<M, V, int16_t>(t, [](VI acc, i32 a, Pairs b) __attribute__((always_inline)) {
#if defined(__AVX512F__)
    asm("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(b), "v"(pair(a)));
#else
    asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(acc) : "x"(b), "x"(pair(a)));
#endif
    return acc;
  });
}
#else
constexpr bool ADDS_PAIRS = false;
template <int M, int V> void tile_words(const Tile&) {}
#endif

}  // namespace qgemm
