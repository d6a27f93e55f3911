// Matrix products of 8-bit integers: sum_k (a[i, k] - za[i]) * (b[k, j] - zb[j]), exact in int32, and what follows the sum.
// Columns of `b` are packed into panels of bytes, `unit` rows of b side by side. Rows of `a` are packed with their zero point taken
// off as pairs of int16 (`pmaddwd`, `i32x4.dot_i16x8_s`), or as groups of four bytes where the processor multiplies those (VNNI).
#pragma once
#include "epilogue.h"
#include "gemm.h"
#if defined(__wasm__)
#include <wasm_simd128.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace qgemm {

using gemm::least;
using gemm::most;
using gemm::NR;
using gemm::NV;
using gemm::round_up;
using i32 = int32_t;

#if defined(__AVX512F__)
constexpr int ROWS = 8;
#elif defined(__AVX__) || defined(__aarch64__)
constexpr int ROWS = 4;
#else
constexpr int ROWS = 3;
#endif
constexpr isize A_BYTES = 192 << 10;  // a packed block of `a`, which every panel passes over: stays in a level-2 cache
constexpr isize GROUP = 8 * NR;       // columns of one item of work
constexpr i64 MAX_DEPTH = i64(1) << 24;  // terms of a sum, so that packed panels have an index of 32 bits

// Two rows of b, W columns, side by side as int16; and a step that adds a[0] * b[0][j] + a[1] * b[1][j], the pair of `a` given as one word.
#if defined(__wasm__)
using Pairs = v128_t;
inline Pairs widen(const int8_t* b) { return wasm_i16x8_load8x8(b); }
inline VI dot(VI acc, i32 a, Pairs b) { return acc + (VI)wasm_i32x4_dot_i16x8(wasm_i32x4_splat(a), b); }
#elif defined(__AVX512F__)
using Pairs = __m512i;
inline Pairs widen(const int8_t* b) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)b)); }
inline VI dot(VI acc, i32 a, Pairs b) { return acc + (VI)_mm512_madd_epi16(_mm512_set1_epi32(a), b); }
#elif defined(__AVX2__)
using Pairs = __m256i;
inline Pairs widen(const int8_t* b) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)b)); }
inline VI dot(VI acc, i32 a, Pairs b) { return acc + (VI)_mm256_madd_epi16(_mm256_set1_epi32(a), b); }
#elif defined(__x86_64__)
using Pairs = __m128i;
inline Pairs widen(const int8_t* b) { return _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i*)b)); }
inline VI dot(VI acc, i32 a, Pairs b) { return acc + (VI)_mm_madd_epi16(_mm_set1_epi32(a), b); }
#else
typedef int16_t Pairs __attribute__((ext_vector_type(2 * W)));
typedef int8_t PairBytes __attribute__((ext_vector_type(2 * W)));
inline Pairs widen(const int8_t* b) {
  PairBytes v;
  __builtin_memcpy(&v, b, sizeof v);
  return __builtin_convertvector(v, Pairs);
}
inline VI dot(VI acc, i32 a, Pairs b) {
  return acc + splat_i(int16_t(a)) * __builtin_convertvector(b.even, VI) + splat_i(a >> 16) * __builtin_convertvector(b.odd, VI);
}
#endif

struct Tile {
  const char* a;  // packed rows, a_rs bytes apart
  isize a_rs;
  const int8_t* b;  // one packed panel
  isize steps;      // groups of `unit` rows of b
  i32* out;         // [M, V * W]
  // Steps whose weights are halved lest sums of two products saturate: the other halves, and which steps.
  const int8_t* halves;
  const i32* halves_at;
  isize n_halves;
};

template <int M, int V> [[gnu::noinline]] void tile_pairs(const Tile& t) {
  VI acc[M][V];
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) acc[i][v] = splat_i(0);
  const int8_t* b = t.b;
  const char* a[M];
  for (int i = 0; i < M; i++) a[i] = t.a + i * t.a_rs;
  auto step = [&](int u) {
    Pairs bv[V];
    for (int v = 0; v < V; v++) bv[v] = widen(b + (u * V + v) * W * 2);
    for (int i = 0; i < M; i++) {
      i32 pair;
      __builtin_memcpy(&pair, a[i] + 4 * u, 4);
      for (int v = 0; v < V; v++) acc[i][v] = dot(acc[i][v], pair, bv[v]);
      for (int v = 0; v < V; v++) gemm::pin(acc[i][v]);  // row by row: more splats at a time would be spilled
    }
  };
  isize k = t.steps;
  for (; k >= 2; k -= 2) {
    step(0);
    step(1);
    b += 2 * V * W * 2;
    gemm::pin(b);
    for (int i = 0; i < M; i++) {
      a[i] += 8;
      gemm::pin(a[i]);
    }
  }
  if (k) step(0);
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) store_i(t.out + (i * V + v) * W, acc[i][v]);
}

// Which products of four bytes the machine adds up, a byte of `a` with one of `b`, the latter signed.
enum class Quads {
  NONE,
  UNSIGNED,    // a unsigned (VNNI)
  SATURATING,  // a unsigned, and sums of two products saturate to int16 (relaxed SIMD on x86 without VNNI)
  SIGNED,      // a signed (relaxed SIMD on Arm)
};

#if defined(__AVX512F__)
inline Quads probe() {
  unsigned a, b, c = 0, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & (1u << 11)) ? Quads::UNSIGNED : Quads::NONE;  // AVX512_VNNI
}
#define PWX_QUADS __attribute__((target("avx512vnni")))
using Bytes = __m512i;
template <bool> PWX_QUADS inline VI dot_quads(VI acc, i32 a, Bytes b) { return (VI)_mm512_dpbusd_epi32((__m512i)acc, _mm512_set1_epi32(a), b); }
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
// V8 makes the vector of ones anew in every sum of four products: two instructions with one that is kept are faster.
template <bool IN_TWO> inline VI dot_quads(VI acc, i32 a, Bytes b) {
  if constexpr (!IN_TWO) return (VI)wasm_i32x4_relaxed_dot_i8x16_i7x16_add(b, wasm_i32x4_splat(a), (v128_t)acc);
  return acc + (VI)wasm_i32x4_dot_i16x8(wasm_i16x8_relaxed_dot_i8x16_i7x16(b, wasm_i32x4_splat(a)), wasm_i16x8_splat(1));
}
#else
inline Quads probe() { return Quads::NONE; }
#endif

inline Quads quads() {
  static int found = -1;  // no guard of the C++ runtime, which the library does without
  int known = __atomic_load_n(&found, __ATOMIC_RELAXED);
  if (known < 0) {
    known = int(probe());
    __atomic_store_n(&found, known, __ATOMIC_RELAXED);
  }
  return Quads(known);
}

#if defined(PWX_QUADS)
template <int M, int V, bool IN_TWO> [[gnu::noinline]] PWX_QUADS void tile_quads(const Tile& t) {
  VI acc[M][V];
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) acc[i][v] = VI{};
  const char* a[M];
  for (int i = 0; i < M; i++) a[i] = t.a + i * t.a_rs;
  auto step = [&](const int8_t* b, isize at) PWX_QUADS {
    Bytes bv[V];
    for (int v = 0; v < V; v++) __builtin_memcpy(&bv[v], b + v * W * 4, W * 4);
    for (int i = 0; i < M; i++) {
      i32 quad;
      __builtin_memcpy(&quad, a[i] + at, 4);
      for (int v = 0; v < V; v++) acc[i][v] = dot_quads<IN_TWO>(acc[i][v], quad, bv[v]);
      for (int v = 0; v < V; v++) gemm::pin(acc[i][v]);
    }
  };
  const isize n_halves = t.n_halves;
  for (isize k = 0; k < n_halves; k++) step(t.halves + k * V * W * 4, t.halves_at[k] * 4);
  const int8_t* b = t.b;
  isize k = t.steps;
  for (; k >= 2; k -= 2) {
    step(b, 0);
    step(b + V * W * 4, 4);
    b += 2 * V * W * 4;
    gemm::pin(b);
    for (int i = 0; i < M; i++) {
      a[i] += 8;
      gemm::pin(a[i]);
    }
  }
  if (k) step(b, 0);
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) store_i(t.out + (i * V + v) * W, acc[i][v]);
}
#else
template <int M, int V, bool IN_TWO> void tile_quads(const Tile&) {}
#endif

template <int V> inline isize tile_rows(const Tile& t, Quads kind, isize rows) {
  auto one = [&]<int M>() -> isize {
    if (kind == Quads::SATURATING) tile_quads<M, V, true>(t);
    else if (kind != Quads::NONE) tile_quads<M, V, false>(t);
    else tile_pairs<M, V>(t);
    return M;
  };
  if (rows >= ROWS) return one.template operator()<ROWS>();
  if constexpr (ROWS > 4)
    if (rows >= 4) return one.template operator()<4>();
  if (rows >= 2) return one.template operator()<2>();
  return one.template operator()<1>();
}

struct Product {
  isize m, n, k;
  const uint8_t *a, *b;  // bytes, signed or not
  isize a_rs, a_cs, b_rs, b_cs;
  bool a_signed, b_signed;
  const uint8_t *za, *zb;  // zero points of the operand's type; nullptr: 0
  isize za_s, zb_s;        // steps from row to row of a, from column to column of b
  void* y;
  isize y_rs;
  int dtype;           // I32: the sum; F32, U8, I8: behind the scale and the epilogue
  const float* scale;  // element (i, j) is scale[i * scale_ms + j * scale_ns]
  isize scale_ms, scale_ns;
  float y_scale, y_reciprocal;
  i32 y_zero;
  Epilogue e;

  void set_result(const float* to_scale, i32 zero) { y_scale = *to_scale, y_reciprocal = 1 / y_scale, y_zero = zero; }
  // Bytes that follow from a sum by one scale, one bias and a clamp for the whole row.
  bool plain_rows() const {
    return (dtype == U8 || dtype == I8) && scale_ns == 0 && !e.res && e.alpha == 1 && e.act <= Act::CLIP && (!e.bias || e.bias_ns == 0);
  }

  i32 zero_a(isize i) const { return !za ? 0 : a_signed ? int8_t(za[i * za_s]) : za[i * za_s]; }
  // What packing adds to a, so that its bytes have the sign that the machine multiplies.
  i32 shift_a(Quads kind) const { return kind == Quads::SIGNED ? (a_signed ? 0 : -128) : a_signed ? 128 : 0; }
  // Panels hold b as int8: an unsigned b less 128, and its zero point likewise.
  i32 zero_b(isize j) const { return (!zb ? 0 : b_signed ? int8_t(zb[j * zb_s]) : zb[j * zb_s]) - (b_signed ? 0 : 128); }
  bool zeros_b() const { return zb || !b_signed; }
};

struct Layout {
  isize unit, depth, rows, a_rs;  // rows of b side by side; k rounded up to them; rows of a block and bytes of one
  isize a_bytes, b_bytes, sums_bytes, bytes;
  Quads kind;
};
inline Layout layout(isize m, isize k) {
  Layout s;
  s.kind = quads();
  s.unit = s.kind == Quads::NONE ? 2 : 4;
  s.depth = round_up(k, s.unit);
  s.a_rs = s.depth * (s.unit == 4 ? 1 : 2);
  s.rows = least(most(A_BYTES / most(s.a_rs, 1) / ROWS, 1) * ROWS, round_up(m, ROWS));
  s.a_bytes = round_up((s.rows + 1) * s.a_rs, 64);  // and a row of ones
  s.b_bytes = round_up(s.depth * NR, 64);
  s.sums_bytes = round_up((s.rows + NR) * 4, 64);
  const isize halves = s.kind == Quads::SATURATING ? s.b_bytes + round_up(s.depth, 64) : 0;
  s.bytes = s.a_bytes + s.b_bytes + s.sums_bytes + halves;
  return s;
}
inline Size scratch_bytes(isize m, isize k, int threads) { return Size(layout(m, k).bytes) * threads; }

// Packs rows [i0, i1) of a; sums[i - i0] becomes the sum of a row less its zero point, where `sum` asks for it.
inline void pack_rows(const Product& p, const Layout& s, isize i0, isize i1, char* out, i32* sums, bool sum) {
  for (isize i = i0; i < i1; i++, out += s.a_rs) {
    const uint8_t* a = p.a + i * p.a_rs;
    const i32 zero = p.zero_a(i);
    if (s.unit == 4) {
      const uint8_t flip = p.a_signed == (s.kind == Quads::SIGNED) ? 0 : 0x80;
      uint8_t* d = reinterpret_cast<uint8_t*>(out);
      if (p.a_cs == 1)
        for (isize k = 0; k < p.k; k++) d[k] = a[k] ^ flip;
      else
        for (isize k = 0; k < p.k; k++) d[k] = a[k * p.a_cs] ^ flip;
      for (isize k = p.k; k < s.depth; k++) d[k] = 0;
      if (sum) {
        i32 total = 0;
        if (s.kind == Quads::SIGNED)
          for (isize k = 0; k < p.k; k++) total += int8_t(d[k]);
        else
          for (isize k = 0; k < p.k; k++) total += d[k];
        sums[i - i0] = total - i32(p.k) * (zero + p.shift_a(s.kind));
      }
      continue;
    }
    int16_t* d = reinterpret_cast<int16_t*>(out);
    const int16_t z = int16_t(zero);
    auto widen = [&]<class T>(const T* from) {
      if (p.a_cs == 1)
        for (isize k = 0; k < p.k; k++) d[k] = int16_t(from[k] - z);
      else
        for (isize k = 0; k < p.k; k++) d[k] = int16_t(from[k * p.a_cs] - z);
    };
    if (p.a_signed) widen(reinterpret_cast<const int8_t*>(a));
    else widen(a);
    for (isize k = p.k; k < s.depth; k++) d[k] = 0;
    if (sum) {
      i32 total = 0;
      for (isize k = 0; k < p.k; k++) total += d[k];
      sums[i - i0] = total;
    }
  }
}

typedef uint8_t B4 __attribute__((ext_vector_type(4)));
typedef uint8_t B8 __attribute__((ext_vector_type(8)));
typedef uint8_t B16 __attribute__((ext_vector_type(16)));
template <class V> inline V load_bytes(const uint8_t* p) { V v; __builtin_memcpy(&v, p, sizeof v); return v; }
template <class V> inline void store_bytes(uint8_t* p, V v) { __builtin_memcpy(p, &v, sizeof v); }

// Packs `columns` columns of a strided matrix: one panel of round_up(columns, W) columns, [k / unit, width, unit].
inline void pack_panel(const uint8_t* b, isize rs, isize cs, isize k, isize columns, isize width, isize unit, uint8_t flip, uint8_t* out) {
  const isize steps = (k + unit - 1) / unit, whole = k / unit;
  if (columns < width || whole < steps) __builtin_memset(out, 0, size_t(steps * width * unit));
  if (cs == 1) {
    for (isize step = 0; step < steps; step++, out += width * unit) {
      const uint8_t* row = b + step * unit * rs;
      const isize rows = least(unit, k - step * unit);
      isize j = 0;
      if (rows == 2 && unit == 2)
        for (; j + 4 <= columns; j += 4) {
          const B4 r0 = load_bytes<B4>(row + j) ^ (B4)flip, r1 = load_bytes<B4>(row + rs + j) ^ (B4)flip;
          store_bytes(out + j * 2, __builtin_shufflevector(r0, r1, 0, 4, 1, 5, 2, 6, 3, 7));
        }
      if (rows == 4)
        for (; j + 16 <= columns; j += 16) {
          const B16 f = (B16)flip, r0 = load_bytes<B16>(row + j) ^ f, r1 = load_bytes<B16>(row + rs + j) ^ f;
          const B16 r2 = load_bytes<B16>(row + 2 * rs + j) ^ f, r3 = load_bytes<B16>(row + 3 * rs + j) ^ f;
          const B16 lo0 = __builtin_shufflevector(r0, r1, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
          const B16 lo1 = __builtin_shufflevector(r2, r3, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
          const B16 hi0 = __builtin_shufflevector(r0, r1, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
          const B16 hi1 = __builtin_shufflevector(r2, r3, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
          uint8_t* d = out + j * 4;
          store_bytes(d, __builtin_shufflevector(lo0, lo1, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23));
          store_bytes(d + 16, __builtin_shufflevector(lo0, lo1, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31));
          store_bytes(d + 32, __builtin_shufflevector(hi0, hi1, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23));
          store_bytes(d + 48, __builtin_shufflevector(hi0, hi1, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31));
        }
      if (rows == 4)
        for (; j + 4 <= columns; j += 4) {
          B16 four;
          for (isize r = 0; r < 4; r++) __builtin_memcpy(reinterpret_cast<char*>(&four) + 4 * r, row + r * rs + j, 4);
          four ^= (B16)flip;
          store_bytes(out + j * 4, __builtin_shufflevector(four, four, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
        }
      for (; j < columns; j++)
        for (isize r = 0; r < rows; r++) out[j * unit + r] = row[r * rs + j] ^ flip;
    }
    return;
  }
  for (isize j = 0; j < columns; j++) {
    const uint8_t* column = b + j * cs;
    uint8_t* d = out + j * unit;
    isize step = 0;
    if (rs == 1 && unit == 2)
      for (; step < whole; step++, d += width * 2) {
        d[0] = column[step * 2] ^ flip;
        d[1] = column[step * 2 + 1] ^ flip;
      }
    else if (rs == 1)
      for (; step < whole; step++, d += width * 4) {
        uint32_t quad;
        __builtin_memcpy(&quad, column + step * 4, 4);
        quad ^= flip * 0x01010101u;
        __builtin_memcpy(d, &quad, 4);
      }
    for (isize at = step * unit; at < k; at++) {
      d[at % unit] = column[at * rs] ^ flip;
      if (at % unit == unit - 1) d += width * unit;
    }
  }
}

struct PackMatrix {
  const uint8_t* b;
  isize rs, cs, k;
  bool is_signed;

  void operator()(isize j, isize columns, isize width, isize unit, uint8_t* out) const {
    pack_panel(b + j * cs, rs, cs, k, columns, width, unit, is_signed ? 0 : 0x80, out);
  }
};

// Whether no two neighbours add up to more than 128 in size.
inline bool within_int16(const int8_t* b, isize n) {
#if defined(__wasm__)
  v128_t most = wasm_i16x8_splat(0);
  for (isize j = 0; j < n; j += 16) most = wasm_i16x8_max(most, wasm_i16x8_abs(wasm_i16x8_extadd_pairwise_i8x16(wasm_v128_load(b + j))));
  return !wasm_v128_any_true(wasm_i16x8_gt(most, wasm_i16x8_splat(128)));
#else
  for (isize j = 0; j < n; j += 2)
    if (b[j] + b[j + 1] > 128 || b[j] + b[j + 1] < -128) return false;
  return true;
#endif
}

// Halves the weights of the steps in which two neighbours, both times 255, would pass int16; returns how many there are.
inline isize halve(int8_t* b, isize steps, isize width, int8_t* halves, i32* at) {
  isize n = 0;
  for (isize s = 0; s < steps; s++, b += width * 4) {
    if (within_int16(b, width * 4)) continue;
    int8_t* h = halves + n * width * 4;
    for (isize j = 0; j < width * 4; j++) {
      const int8_t half = int8_t(b[j] >> 1);
      h[j] = int8_t(b[j] - half);
      b[j] = half;
    }
    at[n++] = i32(s);
  }
  return n;
}

typedef uint8_t BW __attribute__((ext_vector_type(W)));

inline bool any(VI mask) {
#if defined(__wasm__)
  return wasm_v128_any_true((v128_t)mask);
#else
  return __builtin_reduce_or(mask) != 0;
#endif
}

// round(v / scale), ties to even, within [first, first + 255]. The product with the reciprocal is off by less than NEAR for what the
// bounds leave, so only what lies so close to a tie is divided.
inline VF quotient(VF v, float scale, VF reciprocal, float first) {
  constexpr float NEAR = 1e-4f;
  const VF low = splat(first), high = splat(first + 255);
  VF t = vmin(vmax(low, v * reciprocal), high);
  VF r = __builtin_elementwise_roundeven(t);
  if (reciprocal[0] > 0x1p126f || any(__builtin_elementwise_abs(t - r) > splat(0.5f - NEAR)))
    r = vmin(vmax(low, __builtin_elementwise_roundeven(v / splat(scale))), high);
  return r;
}

inline void store_codes(const Product& p, VF rounded, uint8_t* y, isize n) {
  const BW code = __builtin_convertvector(__builtin_convertvector(rounded, VI) + splat_i(p.y_zero), BW);
  if (n == W) __builtin_memcpy(y, &code, W);
  else
    for (isize l = 0; l < n; l++) y[l] = code[l];
}

// What follows n sums of a row, for which `plain_rows` holds.
template <class Sums> inline void finish_plain(const Product& p, isize i, isize j, isize n, const Sums& sums) {
  const VF scale = splat(p.scale[i * p.scale_ms]), bias = splat(p.e.bias ? p.e.bias[i * p.e.bias_ms] : 0), reciprocal = splat(p.y_reciprocal);
  const VF low = splat(p.e.act == Act::NONE ? -__builtin_inff() : p.e.low()), high = splat(p.e.act == Act::NONE ? __builtin_inff() : p.e.high());
  const float first = float((p.dtype == I8 ? -128 : 0) - p.y_zero);
  uint8_t* y = static_cast<uint8_t*>(p.y) + i * p.y_rs + j;
  for (isize c = 0; c < n; c += W)
    store_codes(p, quotient(vmin(vmax(sums(c) * scale + bias, low), high), p.y_scale, reciprocal, first), y + c, least(W, n - c));
}

// What follows n sums of row i from column j: scale, epilogue and the result's type. sums(c) gives W of them.
template <class Sums> inline void finish_sums(const Product& p, isize i, isize j, isize n, const Sums& sums) {
  if (p.dtype == I32) {
    i32* y = static_cast<i32*>(p.y) + i * p.y_rs + j;
    for (isize c = 0; c < n; c += W) store_part(reinterpret_cast<float*>(y + c), as_f(__builtin_convertvector(sums(c), VI)), least(W, n - c));
    return;
  }
  if (p.plain_rows()) return finish_plain(p, i, j, n, sums);
  const Epilogue& e = p.e;
  const float* scale = p.scale + i * p.scale_ms + j * p.scale_ns;
  const float* bias = e.bias ? e.bias + i * e.bias_ms + j * e.bias_ns : nullptr;
  const float* res = e.res ? e.res + i * e.res_rs + j : nullptr;
  const VF low = splat(e.act_a), high = splat(e.act_b), alpha = splat(e.alpha);
  const float first = float((p.dtype == I8 ? -128 : 0) - p.y_zero);
  const VF reciprocal = splat(p.y_reciprocal);
  auto along = [&](const float* v, isize step, isize c, isize w) {
    if (step == 0) return splat(*v);
    if (step == 1) return load_part(v + c, w);
    VF t = splat(0);
    for (isize l = 0; l < w; l++) t[l] = v[(c + l) * step];
    return t;
  };
  for (isize c = 0; c < n; c += W) {
    const isize w = least(W, n - c);
    VF v = sums(c) * along(scale, p.scale_ns, c, w);
    if (e.alpha != 1) v *= alpha;
    if (bias) v += along(bias, e.bias_ns, c, w);
    if (res && e.after) v += load_part(res + c, w);
    if (e.act != Act::NONE) v = activate(e.act, v, low, high);
    if (res && !e.after) v += load_part(res + c, w);
    if (p.dtype == F32) {
      store_part(static_cast<float*>(p.y) + i * p.y_rs + j + c, v, w);
      continue;
    }
    store_codes(p, quotient(v, p.y_scale, reciprocal, first), static_cast<uint8_t*>(p.y) + i * p.y_rs + j + c, w);
  }
}

// n results of row i from column j: takes the zero points off and does the rest.
inline void finish(const Product& p, isize i, isize j, isize n, const i32* sum, i32 row, Quads kind, const i32* columns) {
  const i32 za = kind == Quads::NONE ? 0 : p.zero_a(i) + p.shift_a(kind);
  const bool each = p.zb_s && row;  // the zero point of b differs from column to column
  const VI same = splat_i(p.zeros_b() && !each ? p.zero_b(0) * row : 0), by = splat_i(za);
  auto exact = [&](isize c) {
    VI v = load_i(sum + c) - same;
    if (za) v -= by * load_i(columns + c);
    if (each)
      for (isize l = 0; l < least(W, n - c); l++) v[l] -= p.zero_b(j + c + l) * row;
    return v;
  };
  if (p.dtype != I32) return finish_sums(p, i, j, n, [&](isize c) { return __builtin_convertvector(exact(c), VF); });
  i32* y = static_cast<i32*>(p.y) + i * p.y_rs + j;
  for (isize c = 0; c < n; c += W) store_part(reinterpret_cast<float*>(y + c), as_f(exact(c)), least(W, n - c));
}

// Rows [i0, i1) by columns [j0, j1).
template <class Pack> void range(const Product& p, const Pack& pack, const Layout& s, isize i0, isize i1, isize j0, isize j1, char* scratch) {
  const bool by_quads = s.kind != Quads::NONE;
  char* a = scratch;
  uint8_t* b = reinterpret_cast<uint8_t*>(scratch + s.a_bytes);
  i32 *row_sums = reinterpret_cast<i32*>(scratch + s.a_bytes + s.b_bytes), *column_sums = row_sums + s.rows;
  int8_t* halves = reinterpret_cast<int8_t*>(scratch + s.a_bytes + s.b_bytes + s.sums_bytes);
  i32* halves_at = reinterpret_cast<i32*>(halves + s.b_bytes);
  char* ones = a + s.rows * s.a_rs;
  if (by_quads) __builtin_memset(ones, 1, size_t(s.depth));
  alignas(64) i32 sums[ROWS * NR];
  for (isize block = i0; block < i1; block += s.rows) {
    const isize end = least(block + s.rows, i1);
    pack_rows(p, s, block, end, a, row_sums, p.zeros_b());
    for (isize j = j0, n; j < j1; j += n) {
      n = gemm::panel_columns(j1 - j);
      const isize width = round_up(n, W), vectors = width / W;
      pack(j, n, width, s.unit, b);
      Tile t{ones, s.a_rs, reinterpret_cast<int8_t*>(b), s.depth / s.unit, column_sums, halves, halves_at, 0};
      if (s.kind == Quads::SATURATING) t.n_halves = halve(reinterpret_cast<int8_t*>(b), t.steps, width, halves, halves_at);
      if (by_quads) vectors == 3 ? tile_rows<3>(t, s.kind, 1) : vectors == 2 ? tile_rows<2>(t, s.kind, 1) : tile_rows<1>(t, s.kind, 1);
      t.out = sums;
      for (isize i = block; i < end;) {
        t.a = a + (i - block) * s.a_rs;
        const isize rows = vectors == 3   ? tile_rows<3>(t, s.kind, end - i)
                           : vectors == 2 ? tile_rows<2>(t, s.kind, end - i)
                                          : tile_rows<1>(t, s.kind, end - i);
        for (isize r = 0; r < rows; r++) finish(p, i + r, j, n, sums + r * width, p.zeros_b() ? row_sums[i + r - block] : 0, s.kind, column_sums);
        i += rows;
      }
    }
  }
}

// Runs `batches` products on the pool: product_at(batch) and pack_at(product, memory) give each, the latter with `extra` bytes for packing.
template <class At, class PackAt>
void run(Call& call, i64 batches, const Product& size, isize extra, const At& product_at, const PackAt& pack_at) {
  const Layout s = layout(size.m, size.k);
  const int threads = pool_threads(call.pool), wanted = threads == 1 ? 1 : 4 * threads;
  const isize groups = (size.n + GROUP - 1) / GROUP;
  const i64 items = batches * groups;
  const isize parts = least(proven((wanted + items - 1) / items), (size.m + 31) / 32);
  const isize part = round_up((size.m + parts - 1) / most(parts, 1), ROWS), splits = (size.m + part - 1) / part;
  const double flops = 2.0 * double(least(part, size.m)) * double(least(GROUP, size.n)) * double(size.k);
  parallel_for(call.pool, batches * splits * groups, i64(gemm::MIN_FLOPS / (flops + 1)) + 1, [&](i64 begin, i64 end, int thread) {
    char* scratch = call.scratch + thread * (s.bytes + extra);
    for (i64 i = begin; i < end;) {
      const isize g = proven(i % groups), run = proven(std::min<i64>(end - i, groups - g)), row = proven(i / groups % splits * part);
      const Product p = product_at(i / groups / splits);
      range(p, pack_at(p, scratch + s.bytes), s, row, least(row + part, p.m), g * GROUP, least((g + run) * GROUP, p.n), scratch);
      i += run;
    }
  });
}

}  // namespace qgemm
