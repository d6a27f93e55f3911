// Groups of codes of 4 or 8 bits (nbits/groups.h) against few rows: each number of a row is given as signed bytes, its digits in base 256,
// whose products with four codes of each column of a group are summed by one instruction.
#pragma once
#include "nbits/groups.h"

#if defined(PWX_GROUPS)

namespace nbits {

// Groups that are read side by side, each from one end to the other: a processor fetches long runs ahead by itself, and WebAssembly cannot ask
// it to. Threads take as many.
constexpr int SET = 4;
constexpr isize AHEAD_OF_GROUPS = 512;  // bytes of a group's codes, where memory can be asked for them

using qgemm::Bytes;
typedef int8_t Digits16 __attribute__((ext_vector_type(16)));
typedef int16_t Shorts8 __attribute__((ext_vector_type(8)));
typedef int32_t Words4 __attribute__((ext_vector_type(4)));

template <class V> inline V load_as(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

#if defined(__wasm__)
inline Bytes low_nibbles() {
  uint8_t constant = 15;
  asm("" : "+r"(constant));  // V8 puts a constant vector together from four instructions
  return wasm_i8x16_splat(int8_t(constant));
}
inline Bytes shifted(Bytes v) { return wasm_u16x8_shr(v, 4); }
inline VI digit_dot(VI sum, Bytes codes, int32_t digits) {
  return (VI)wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_i32x4_splat(digits), codes, (v128_t)sum);
}
inline Words4 sums_of_fours(Digits16 v) { return (Words4)wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_extadd_pairwise_i8x16((v128_t)v)); }
#elif defined(__AVX512F__)
inline Bytes low_nibbles() { return _mm512_set1_epi8(15); }
inline Bytes shifted(Bytes v) { return _mm512_srli_epi16(v, 4); }
PWX_QUADS inline VI digit_dot(VI sum, Bytes codes, int32_t digits) { return (VI)_mm512_dpbusd_epi32((__m512i)sum, codes, _mm512_set1_epi32(digits)); }
#elif defined(__aarch64__)
inline Bytes low_nibbles() { return vdupq_n_s8(15); }
inline Bytes shifted(Bytes v) { return vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(v), 4)); }
PWX_QUADS inline VI digit_dot(VI sum, Bytes codes, int32_t digits) { return qgemm::dot_quads(sum, digits, codes); }
inline Words4 sums_of_fours(Digits16 v) { return (Words4)vpaddlq_s16(vpaddlq_s8((int8x16_t)v)); }
#else
inline Bytes low_nibbles() { return _mm256_set1_epi8(15); }
inline Bytes shifted(Bytes v) { return _mm256_srli_epi16(v, 4); }
PWX_QUADS inline VI digit_dot(VI sum, Bytes codes, int32_t digits) { return (VI)_mm256_dpbusd_avx_epi32((__m256i)sum, codes, _mm256_set1_epi32(digits)); }
#endif
#if defined(__x86_64__)
inline Words4 sums_of_fours(Digits16 v) {
  return (Words4)_mm_madd_epi16(_mm_maddubs_epi16(_mm_set1_epi8(1), (__m128i)v), _mm_set1_epi16(1));
}
#endif

// For each word of codes the digits of each number of a row that its bytes stand for, of `high * 2^15 + low`, or of `high` alone where `low`
// is missing; of 4 bits, those of their low halves, then of the others. For each digit, the lowest first, four bytes. A digit is the byte of
// its place once what rounds the lower ones to it is added.
[[gnu::noinline]] inline void spread_digits(const int16_t* high, const int16_t* low, isize depth, isize bits, int digits, int8_t* out) {
  for (isize at = 0; at < depth; at += 8, out += 8 * digits) {
    const Shorts8 h = load_as<Shorts8>(high + at);
    if (digits == 2) {
      const Digits16 first = (Digits16)h, next = (Digits16)(h + int16_t(0x80));
      const Digits16 found = bits == 4 ? __builtin_shufflevector(first, next, 0, 4, 8, 12, 17, 21, 25, 29, 2, 6, 10, 14, 19, 23, 27, 31)
                                       : __builtin_shufflevector(first, next, 0, 2, 4, 6, 17, 19, 21, 23, 8, 10, 12, 14, 25, 27, 29, 31);
      __builtin_memcpy(out, &found, sizeof found);
      continue;
    }
    const Shorts8 l = load_as<Shorts8>(low + at);
    auto whole = [](auto highs, auto lows) { return (__builtin_convertvector(highs, Words4) << 15) + __builtin_convertvector(lows, Words4); };
    const Words4 a = whole(__builtin_shufflevector(h, h, 0, 1, 2, 3), __builtin_shufflevector(l, l, 0, 1, 2, 3));
    const Words4 b = whole(__builtin_shufflevector(h, h, 4, 5, 6, 7), __builtin_shufflevector(l, l, 4, 5, 6, 7));
    // A digit of numbers at even places as a word, then of those at odd ones.
    auto bytes = [](Words4 first, Words4 second) {
      return (Words4)__builtin_shufflevector((Digits16)first, (Digits16)second, 0, 8, 16, 24, 4, 12, 20, 28, 0, 0, 0, 0, 0, 0, 0, 0);
    };
    const Words4 lowest = bytes(a, b), middle = bytes((a + 0x80) >> 8, (b + 0x80) >> 8), highest = bytes((a + 0x8080) >> 16, (b + 0x8080) >> 16);
    const int32_t found[6] = {lowest[0], middle[0], highest[0], lowest[1], middle[1], highest[1]};
    __builtin_memcpy(out, found, sizeof found);
  }
}

// For each block what its sums begin with, that what stands for 0 is taken off its codes: `zero` times the sum of each digit.
inline void begin_sums(const int8_t* digits, isize count, isize block, int each, int zero, int32_t* out) {
  for (isize b = 0; b < count; b++, out += each, digits += block * each) {
    Words4 total[3] = {};
    for (isize at = 0; at < block * each; at += 16 * each)
      for (int v = 0; v < each; v++) total[v] += sums_of_fours(load_as<Digits16>(digits + at + 16 * v));
    int32_t lanes[12];
    __builtin_memcpy(lanes, total, sizeof lanes);
    for (int d = 0; d < each; d++) {
      int32_t sum = 0;
      for (int l = d; l < 4 * each; l += each) sum += lanes[l];
      out[d] = -zero * sum;
    }
  }
}

// Rows of a: of `spread_digits`, `length` bytes each, with what is known of their blocks, `count` each.
struct DigitRows {
  const int8_t* a;
  isize length, count;
  const int32_t* begin;  // of `begin_sums`
  const float *units, *sums;

  DigitRows from(isize i, int digits) const {
    return {a + i * length, length, count, begin + i * count * digits, units + i * count, sums + i * count};
  }
};

// Of a word of eight codes of each column of a group, the first four of each or the others, a byte each. Words of codes of 4 bits are read
// for both: kept, they would be stored and read for want of registers.
template <int BITS> [[gnu::always_inline]] inline Bytes some_codes(const char*& codes, int word, int part, Bytes mask) {
  const isize at = (BITS == 8 ? 2 * word + part : word) * int(sizeof(Bytes));
  if (FETCHES && (BITS == 8 || !part)) fetch(codes + at + AHEAD_OF_GROUPS);
  pin(codes);
  const Bytes all = load_as<Bytes>(codes + at);
  return BITS == 8 ? all : (part ? shifted(all) : all) & mask;
}

// Scales of a group's columns in one block; on to the next block's.
[[gnu::always_inline]] inline VF next_scale(const char*& scales, bool half, const Halves& wide) {
  const VF scale = half ? wide(reinterpret_cast<const uint16_t*>(scales)) : load(reinterpret_cast<const float*>(scales));
  scales += (half ? 2 : 4) * TOGETHER;
  pin(scales);
  return scale;
}

// Adds products of M rows with G groups to `total`, WORDS of eight codes of each column at a time.
template <int G, int M, int DIGITS, int BITS, int WORDS = 4>
[[gnu::noinline]] PWX_QUADS void quad_sums(const Weights& w, const Group* groups, const DigitRows& rows, VF* total) {
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
    VI acc[G][M][DIGITS];
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int d = 0; d < DIGITS; d++)
#pragma unroll
        for (int g = 0; g < G; g++) acc[g][i][d] = splat_i(begin[i * apart * DIGITS + d]);
    isize left = block;
    do {
#pragma unroll
      for (int word = 0; word < WORDS; word++)
#pragma unroll
        for (int p = 0; p < 2; p++) {
          Bytes taken[G];
#pragma unroll
          for (int g = 0; g < G; g++) taken[g] = some_codes<BITS>(codes[g], word, p, mask);
#pragma unroll
          for (int i = 0; i < M; i++)
#pragma unroll
            for (int d = 0; d < DIGITS; d++) {
              const int32_t digits = a[i][(word * 2 + p) * DIGITS + d];
#pragma unroll
              for (int g = 0; g < G; g++) acc[g][i][d] = digit_dot(acc[g][i][d], taken[g], digits), pin(acc[g][i][d]);
            }
        }
#pragma unroll
      for (int i = 0; i < M; i++) {
        a[i] += 2 * WORDS * DIGITS;
        pin(a[i]);
      }
#pragma unroll
      for (int g = 0; g < G; g++) {
        codes[g] += WORDS * (BITS / 4) * sizeof(Bytes);
        pin(codes[g]);
      }
      left -= 8 * WORDS;
    } while (left);
    VF scale[G];
#pragma unroll
    for (int g = 0; g < G; g++) scale[g] = next_scale(scales[g], half, wide);
#pragma unroll
    for (int i = 0; i < M; i++) {
      const VF unit = splat(units[i * apart]);
#pragma unroll
      for (int g = 0; g < G; g++) {
        const VI low = acc[g][i][0] + (acc[g][i][1] << splat_i(8));
        VF sum = __builtin_convertvector(low, VF);
        if constexpr (DIGITS == 3) sum += __builtin_convertvector(acc[g][i][2], VF) * splat(65536);
        sums[g][i] += sum * (scale[g] * unit);
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

// What shifts take off the products of m rows with a group.
[[gnu::noinline]] inline void take_off(const Weights& w, const Group& group, const DigitRows& rows, isize m, VF* total) {
  for (isize b = 0; b < w.count; b++) {
    const VF offset = group.offset(w, b);
    for (isize i = 0; i < m; i++) total[i] -= offset * splat(rows.sums[i * w.count + b]);
  }
}

}  // namespace nbits
#endif
