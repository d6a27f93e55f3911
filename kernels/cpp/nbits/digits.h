// Groups of codes of 4 or 8 bits (nbits/groups.h) against few rows (relaxed SIMD): each number of a row is given as signed bytes, its digits
// in base 256, whose products with four codes of each of four columns are summed by one instruction. Groups that lie far apart are read side
// by side: memory answers several runs sooner than one, as it waits for the addresses of each page.
#pragma once
#include "nbits/groups.h"

#if defined(__wasm_relaxed_simd__)

namespace nbits {

constexpr int SET = 4;         // groups that are summed at once
constexpr int RUNS = 4 * SET;  // and read side by side
constexpr isize SHARE = 8;     // groups of which threads take several
constexpr isize TURN = 128;    // codes of each of their columns at a time, or a block

// For each word of codes the digits of each number of a row that its bytes stand for, of `high * 2^15 + low`, or of `high` alone where `low`
// is missing; of 4 bits, those of their low halves, then of the others. For each digit, the lowest first, four bytes. A digit is the byte of
// its place once what rounds the lower ones to it is added.
[[gnu::noinline]] inline void spread_digits(const int16_t* high, const int16_t* low, isize depth, isize bits, int digits, int8_t* out) {
  const v128_t round = wasm_i16x8_splat(0x80), round_low = wasm_i32x4_splat(0x80), round_both = wasm_i32x4_splat(0x8080);
  for (isize at = 0; at < depth; at += 8, out += 8 * digits) {
    const v128_t h = wasm_v128_load(high + at);
    if (digits == 2) {
      const v128_t next = wasm_i16x8_add(h, round);
      const v128_t found = bits == 4 ? wasm_i8x16_shuffle(h, next, 0, 4, 8, 12, 17, 21, 25, 29, 2, 6, 10, 14, 19, 23, 27, 31)
                                     : wasm_i8x16_shuffle(h, next, 0, 2, 4, 6, 17, 19, 21, 23, 8, 10, 12, 14, 25, 27, 29, 31);
      wasm_v128_store(out, found);
      continue;
    }
    const v128_t l = wasm_v128_load(low + at);
    auto whole = [](v128_t highs, v128_t lows) { return wasm_i32x4_add(wasm_i32x4_shl(highs, 15), lows); };
    const v128_t a = whole(wasm_i32x4_extend_low_i16x8(h), wasm_i32x4_extend_low_i16x8(l));
    const v128_t b = whole(wasm_i32x4_extend_high_i16x8(h), wasm_i32x4_extend_high_i16x8(l));
    // A digit of numbers at even places as a word, then of those at odd ones.
    auto bytes = [](v128_t first, v128_t second, unsigned digit) {
      const v128_t x = wasm_u32x4_shr(first, 8 * digit), y = wasm_u32x4_shr(second, 8 * digit);
      return wasm_i8x16_shuffle(x, y, 0, 8, 16, 24, 4, 12, 20, 28, 0, 0, 0, 0, 0, 0, 0, 0);
    };
    const v128_t lowest = bytes(a, b, 0);
    const v128_t middle = bytes(wasm_i32x4_add(a, round_low), wasm_i32x4_add(b, round_low), 1);
    const v128_t highest = bytes(wasm_i32x4_add(a, round_both), wasm_i32x4_add(b, round_both), 2);
    const v128_t two = wasm_i32x4_shuffle(lowest, middle, 0, 4, 1, 5);
    wasm_v128_store(out, wasm_i32x4_shuffle(two, highest, 0, 1, 4, 2));
    wasm_v128_store64_lane(out + 16, wasm_i32x4_shuffle(two, highest, 3, 5, 0, 0), 0);
  }
}

// For each block what its sums begin with, that what stands for 0 is taken off its codes: `zero` times the sum of each digit.
inline void begin_sums(const int8_t* digits, isize count, isize block, int each, int zero, int32_t* out) {
  auto quads = [&](isize at) {
    return wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_extadd_pairwise_i8x16(wasm_v128_load(digits + at)));
  };
  for (isize b = 0; b < count; b++, out += each, digits += block * each) {
    int32_t lanes[12];
    v128_t total[3] = {wasm_i32x4_splat(0), wasm_i32x4_splat(0), wasm_i32x4_splat(0)};
    for (isize at = 0; at < block * each; at += 16 * each)
      for (int v = 0; v < each; v++) total[v] = wasm_i32x4_add(total[v], quads(at + 16 * v));
    for (int v = 0; v < each; v++) wasm_v128_store(lanes + 4 * v, total[v]);
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

// Adds products of M rows with `count` blocks of G groups, from `first` on, to `total`.
template <int G, int M, int DIGITS, int BITS>
[[gnu::noinline]] void group_sums(const Weights& w, const Group* groups, const DigitRows& rows, isize first, isize count, VF* total) {
  typedef int32_t Quad __attribute__((may_alias));
  uint8_t constant = 15;
  asm("" : "+r"(constant));  // V8 puts a constant vector together from four instructions
  const v128_t mask = wasm_i8x16_splat(int8_t(constant));
  const isize block = w.block, apart = w.count;
  const bool half = w.scales.dtype == F16;
  VF sums[G][M];
  const v128_t* codes[G];
  const char* scales[G];
#pragma unroll
  for (int g = 0; g < G; g++) {
    codes[g] = groups[g].codes + first * block * BITS / 32, scales[g] = groups[g].scales + first * (half ? 8 : 16);
#pragma unroll
    for (int i = 0; i < M; i++) sums[g][i] = total[g * M + i];
  }
  const Quad* a[M];
#pragma unroll
  for (int i = 0; i < M; i++) a[i] = reinterpret_cast<const Quad*>(rows.a + i * rows.length + first * block * DIGITS);
  const int32_t* begin = rows.begin + first * DIGITS;
  const float* units = rows.units + first;
  for (isize b = 0; b < count; b++) {
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
      for (int word = 0; word < 4; word++) {
        v128_t taken[G][2];
#pragma unroll
        for (int g = 0; g < G; g++) {
          if (BITS == 4) {
            const v128_t all = codes[g][word];
            taken[g][0] = all & mask, taken[g][1] = wasm_u16x8_shr(all, 4) & mask;
          } else {
            taken[g][0] = codes[g][2 * word], taken[g][1] = codes[g][2 * word + 1];
          }
        }
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
          for (int p = 0; p < 2; p++)
#pragma unroll
            for (int d = 0; d < DIGITS; d++) {
              const v128_t digits = wasm_i32x4_splat(a[i][(word * 2 + p) * DIGITS + d]);
#pragma unroll
              for (int g = 0; g < G; g++) {
                VI& sum = acc[g][i][d];
                sum = (VI)wasm_i32x4_relaxed_dot_i8x16_i7x16_add(digits, taken[g][p], (v128_t)sum);
                pin(sum);
              }
            }
      }
#pragma unroll
      for (int i = 0; i < M; i++) {
        a[i] += 8 * DIGITS;
        pin(a[i]);
      }
#pragma unroll
      for (int g = 0; g < G; g++) {
        codes[g] += BITS;
        pin(codes[g]);
      }
      left -= 32;
    } while (left);
    VF scale[G];
#pragma unroll
    for (int g = 0; g < G; g++) {
      scale[g] = half ? halves(reinterpret_cast<const uint16_t*>(scales[g])) : load(reinterpret_cast<const float*>(scales[g]));
      scales[g] += half ? 8 : 16;
      pin(scales[g]);
    }
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

struct DigitSums {
  using Sums = void (*)(const Weights&, const Group*, const DigitRows&, isize, isize, VF*);
  Sums one, two;  // rows: of a set, of half a set

  template <int DIGITS, int BITS> static DigitSums of() {
    return {group_sums<SET, 1, DIGITS, BITS>, group_sums<SET / 2, 2, DIGITS, BITS>};
  }
};

// How far groups lie apart that are read side by side, of n: the most of them with which the fewest are summed in vain.
inline isize apart_of(isize n) {
  isize best = 0, least_sums = 0;
  for (isize runs = RUNS; runs > 0; runs -= SET) {
    const isize apart = (n + runs - 1) / runs, sums = gemm::round_up(n / apart, SET) * apart + (n % apart && n / apart % SET == 0 ? n % apart * SET : 0);
    if (!best || sums < least_sums) best = apart, least_sums = sums;
  }
  return best;
}

// Groups [first, last) of columns of q. Numbers are of so many digits. memory: of a set of groups, of `each` bytes.
inline void digit_groups(const Weights& w, const DigitRows& rows, int digits, const gemm::Product& q, isize first, isize last, char* memory,
                         isize each) {
  const DigitSums sums = digits == 3 ? DigitSums::of<3, 4>() : w.bits == 4 ? DigitSums::of<2, 4>() : DigitSums::of<2, 8>();
  const isize apart = w.packed ? apart_of(last - first) : (last - first + SET - 1) / SET, deep = gemm::most(TURN / w.block, 1);
  const isize whole = w.packed ? w.n / TOGETHER : 0;
  for (isize s = first; s < first + apart; s++) {
    Group groups[RUNS];
    isize at[RUNS];
    int n = 0;
    for (isize g = s; g < last; g += apart, n++)
      at[n] = g, groups[n] = g < whole ? Group::at(w, g) : Group(w, g, w.packed ? memory : memory + n * each);
    for (; n % SET; n++) at[n] = at[n - 1], groups[n] = groups[n - 1];
    for (isize i = 0, taken; i < q.m; i += taken) {
      taken = q.m - i >= 2 ? 2 : 1;
      const DigitRows some = rows.from(i, digits);
      VF total[RUNS * 2] = {};
      if (w.shifts)
        for (int g = 0; g < n; g++) take_off(w, groups[g], some, taken, total + g * taken);
      for (isize b = 0, blocks; b < w.count; b += blocks) {
        blocks = least(deep, w.count - b);
        for (int g = 0; g < n; g += SET / taken)
          (taken == 1 ? sums.one : sums.two)(w, groups + g, some, b, blocks, total + g * taken);
      }
      for (int g = 0; g < n; g++)
        for (isize r = 0; r < taken; r++) {
          const isize j = at[g] * TOGETHER;
          store_part(q.y + (i + r) * q.y_rs + j, total[g * taken + r], least(TOGETHER, q.n - j));
        }
    }
  }
  const isize j = first * TOGETHER;
  for (isize i = 0; i < q.m; i++) q.e.finish(i, j, least(last * TOGETHER, q.n) - j, q.y + i * q.y_rs + j, false);
}

}  // namespace nbits
#endif
