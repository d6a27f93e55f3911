// Four columns of codes of 4 or 8 bits against few rows (relaxed SIMD): each number of a row is given as signed bytes, its digits in base
// 256, whose products with four codes are summed by one instruction, where it is one on this machine: of three, `dot` of nbits/rows.h needs
// fewer. Columns go by turns: the sums of one wait while another's are made. Codes of 8 bits are taken as the machine takes bytes with their
// top bit set.
#pragma once
#include "nbits/weights.h"

#if !defined(__wasm_relaxed_simd__)

namespace nbits {
constexpr isize DIGIT_FACTORS = 0;
inline bool digits_fit(isize, isize) { return false; }
}  // namespace nbits

#else
#include "qgemm/tile.h"

namespace nbits {

constexpr isize TOGETHER = 4;                  // columns at once
constexpr isize DIGIT_FACTORS = 4 * TOGETHER;  // floats for each block that `digit_sums` keeps for itself

// Whether one instruction adds products of four bytes, of which those of one operand may be signed and the others have 8 bits.
inline bool whole_bytes() { return qgemm::quads() == qgemm::Quads::UNSIGNED || qgemm::quads() == qgemm::Quads::SIGNED; }
// What makes codes of 8 bits less 128 signed bytes, where they have to be.
inline uint8_t flips(isize bits) { return bits == 8 && qgemm::quads() == qgemm::Quads::SIGNED ? 128 : 0; }

// Whether it pays, and sums of a block stay below 2^31.
inline bool digits_fit(isize bits, isize block) {
  return (bits == 4 || (bits == 8 && block <= 256)) && whole_bytes();
}

// For each word of codes the two digits of each number of a row that its bytes stand for; of 4 bits, those of their low halves, then of the
// others. For each digit, the lower first, four bytes.
[[gnu::noinline]] inline void spread_digits(const int16_t* row, isize depth, isize bits, int8_t* out) {
  const isize planes = 8 / bits;
  for (isize at = 0; at < depth; at += 4 * planes)
    for (isize plane = 0; plane < planes; plane++, out += 8)
      for (isize l = 0; l < 4; l++) {
        const int32_t v = row[at + planes * l + plane];
        out[l] = int8_t(v), out[4 + l] = int8_t((v - int8_t(v)) >> 8);
      }
}

// For each 32 numbers of a row, high * 2^15 + low, or high alone where `low` is missing, the digits of those that stand at the low halves of
// 16 bytes of codes and of those at their high ones; of 8 bits, of the first 16 and of the next. For each digit, the lowest first, 16 bytes.
[[gnu::noinline]] inline void spread_planes(const int16_t* high, const int16_t* low, isize depth, isize bits, int digits, int8_t* out) {
  for (isize at = 0; at < depth; at += 32)
    for (isize plane = 0; plane < 2; plane++, out += 16 * digits)
      for (isize l = 0; l < 16; l++) {
        const isize k = bits == 4 ? at + 2 * l + plane : at + 16 * plane + l;
        int32_t v = low ? high[k] * 32768 + low[k] : high[k];
        for (int d = 0; d < digits; d++) {
          const int8_t digit = int8_t(v);
          out[d * 16 + l] = digit;
          v = (v - digit) >> 8;
        }
      }
}

inline void transpose(VF (&v)[4]) {
  const VF ab0 = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5), ab1 = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
  const VF cd0 = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5), cd1 = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5), v[1] = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5), v[3] = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
}

// Columns whose numbers are summed at once; those behind the last are it once more.
struct Columns {
  const Weights& w;
  isize column[TOGETHER];

  Columns(const Weights& from, isize j, isize end) : w(from) {
    for (isize c = 0; c < TOGETHER; c++) column[c] = least(j + c, end - 1);
  }
  const uint8_t* codes(isize c) const { return w.codes + column[c] * w.row; }

  // Of n <= 4 blocks from b on, a vector of the columns for each: scales; and offsets, where they are not the middle code's.
  void read(isize b, isize n, VF (&scale)[4], VF (&offset)[4]) const {
    numbers(w.scales, b, n, scale);
    if (!w.shifts) return;
    numbers(w.shifts, b, n, offset);
    if (w.shifts.dtype == U8)
      for (int i = 0; i < 4; i++) offset[i] *= scale[i];
  }

  void numbers(const Buf& from, isize b, isize n, VF (&out)[4]) const {
    for (isize c = 0; c < TOGETHER; c++) {
      const isize at = column[c] * w.count + b;
      if (from.dtype == F32) {
        out[c] = load_part(from.as<float>() + at, n);
      } else if (from.dtype == F16) {
        out[c] = n == 4 ? halves(from.as<uint16_t>() + at) : halves(Few<uint16_t>(from.as<uint16_t>() + at, n).four);
      } else {
        const Few<uint8_t> codes(from.as<uint8_t>() + at, n);
        for (int i = 0; i < 4; i++) out[c][i] = codes.four[i];
      }
    }
    transpose(out);
  }
  template <class T> struct Few {
    T four[4] = {};
    Few(const T* from, isize n) {
      for (isize i = 0; i < n; i++) four[i] = from[i];
    }
  };
};

// Rows of a: of `spread_planes`, `length` bytes each, with their units and sums by block.
struct DigitRows {
  const int8_t* a;
  isize length;
  const float *units, *sums;
};

// For each block and of M rows, what the sums in the columns are multiplied with, columns side by side. What offsets take off, by blocks mod
// 4, is taken off `total`.
template <int M, bool HALF>
[[gnu::noinline]] void factors(const Columns& columns, const DigitRows& rows, float zero, float flipped, float* own, float* out,
                               VF (&total)[TOGETHER][M]) {
  using Scale = __typeof__(__builtin_choose_expr(HALF, uint16_t(), float()));
  const Weights& w = columns.w;
  const isize count = w.count;
  const Scale* scale[TOGETHER];
  const float* offset[TOGETHER];
  const bool shifts = bool(w.shifts);
  for (isize c = 0; c < TOGETHER; c++) {
    scale[c] = w.scales.as<Scale>() + columns.column[c] * count;
    offset[c] = own + 2 * c * count;
    if (shifts) w.read(columns.column[c], 0, count, own + (2 * c + 1) * count, own + 2 * c * count);
  }
  VF zeros = splat(zero), flips = splat(flipped);
  pin(zeros), pin(flips);
  auto some = [&](isize b, auto read, auto put) {
    VF scales[TOGETHER], offsets[TOGETHER];
#pragma unroll
    for (isize c = 0; c < TOGETHER; c++) {
      scales[c] = read(scale[c] + b);
      offsets[c] = shifts ? read(offset[c] + b) - scales[c] * flips : scales[c] * zeros;
    }
#pragma unroll
    for (int i = 0; i < M; i++) {
      const VF unit = read(rows.units + i * count + b), sum = read(rows.sums + i * count + b);
      VF factor[4];
#pragma unroll
      for (isize c = 0; c < TOGETHER; c++) {
        factor[c] = scales[c] * unit;
        total[c][i] -= offsets[c] * sum;
      }
      transpose(factor);
      put(out + (b * M + i) * 4, factor);
    }
  };
  struct Whole {
    VF operator()(const float* at) const { return load(at); }
    VF operator()(const uint16_t* at) const { return halves(at); }
  };
  struct Part {
    isize n;
    VF operator()(const float* at) const { return load_part(at, n); }
    VF operator()(const uint16_t* at) const { return halves(Columns::Few<uint16_t>(at, n).four); }
  };
  isize b = 0;
  for (; b + 4 <= count; b += 4)
    some(b, Whole(), [](float* to, const VF (&factor)[4]) {
#pragma unroll
      for (int q = 0; q < 4; q++) store(to + q * M * 4, factor[q]);
    });
  if (b < count)
    some(b, Part{count - b}, [&](float* to, const VF (&factor)[4]) {
      for (int q = 0; q < count - b; q++) store(to + q * M * 4, factor[q]);
    });
}

// Sums of M rows in the columns. ONE: a block is 32 codes. own: of DIGIT_FACTORS for each block.
template <int M, int DIGITS, int BITS, bool ONE> [[gnu::noinline]] void digit_sums(const Columns& columns, const DigitRows& rows, float* own, VF* y) {
  const Weights& w = columns.w;
  const uint8_t flip = flips(BITS);
  uint8_t constant = BITS == 4 ? 15 : flip;
  asm("" : "+r"(constant));  // V8 puts a constant vector together from four instructions
  const v128_t mask = wasm_i8x16_splat(int8_t(constant));
  float upper = 65536;
  pin(upper);
  const VF next = splat(upper);
  VF total[TOGETHER][M], taken_off[TOGETHER][M] = {};
  const float* factor = own + 2 * TOGETHER * w.count;
  (w.scales.dtype == F16 ? factors<M, true> : factors<M, false>)(columns, rows, float((1 << (BITS - 1)) - flip), float(flip), own,
                                                                 const_cast<float*>(factor), taken_off);
#pragma unroll
  for (isize c = 0; c < TOGETHER; c++)
#pragma unroll
    for (int i = 0; i < M; i++) total[c][i] = taken_off[c][i];
  const uint8_t* codes[TOGETHER];
  for (isize c = 0; c < TOGETHER; c++) codes[c] = columns.codes(c);
  const v128_t* a[M];
#pragma unroll
  for (int i = 0; i < M; i++) a[i] = reinterpret_cast<const v128_t*>(rows.a + i * rows.length);
  for (isize b = 0; b < w.count; b++) {
#pragma unroll
    for (isize c = 0; c < TOGETHER; c++) {
      VI acc[M][DIGITS];
#pragma unroll
      for (int i = 0; i < M; i++)
#pragma unroll
        for (int d = 0; d < DIGITS; d++) acc[i][d] = splat_i(0);
      const uint8_t* from = codes[c];
      const v128_t* to[M];
#pragma unroll
      for (int i = 0; i < M; i++) to[i] = a[i];
      isize left = ONE ? 32 : w.block;
      do {
        v128_t taken[2];
        const v128_t all = wasm_v128_load(from);
        if (BITS == 4) taken[0] = all & mask, taken[1] = wasm_u16x8_shr(all, 4) & mask;
        else taken[0] = all ^ mask, taken[1] = wasm_v128_load(from + 16) ^ mask;
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
          for (int p = 0; p < 2; p++)
#pragma unroll
            for (int d = 0; d < DIGITS; d++) {
              const v128_t digits = to[i][p * DIGITS + d];
              acc[i][d] = (VI)wasm_i32x4_relaxed_dot_i8x16_i7x16_add(digits, taken[p], (v128_t)acc[i][d]);
              pin(acc[i][d]);
            }
        from += 4 * BITS;
#pragma unroll
        for (int i = 0; i < M; i++) to[i] += 2 * DIGITS;
        left -= 32;
      } while (!ONE && left);
      codes[c] = from;
#pragma unroll
      for (int i = 0; i < M; i++) {
        const VI low = acc[i][0] + (acc[i][1] << splat_i(8));
        VF sum;
        if constexpr (DIGITS == 2) sum = __builtin_convertvector(low, VF);
        else if constexpr (ONE) sum = __builtin_convertvector(low + (acc[i][2] << splat_i(16)), VF);
        else sum = __builtin_convertvector(low, VF) + __builtin_convertvector(acc[i][2], VF) * next;
        total[c][i] += sum * splat(factor[4 * i + c]);
      }
    }
#pragma unroll
    for (int i = 0; i < M; i++) a[i] += (ONE ? 2 : w.block / 16) * DIGITS;
    factor += 4 * M;
    pin(factor);
  }
#pragma unroll
  for (int i = 0; i < M; i++) {
    VF lanes[4];
#pragma unroll
    for (isize c = 0; c < TOGETHER; c++) lanes[c] = total[c][i];
    transpose(lanes);
    y[i] = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  }
}

struct DigitSums {
  using Sums = void (*)(const Columns&, const DigitRows&, float*, VF*);
  Sums one, two, any;  // for blocks of 32 codes one row or two, for others one

  template <int DIGITS, int BITS> static DigitSums of() {
    return {digit_sums<1, DIGITS, BITS, true>, digit_sums<2, DIGITS, BITS, true>, digit_sums<1, DIGITS, BITS, false>};
  }
};

// Columns [begin, end) of y, whose rows are y_rs apart. Numbers are of three digits, or of two.
inline void digit_columns(const Weights& w, DigitRows rows, bool three, isize m, isize begin, isize end, float* own, float* y, isize y_rs) {
  const DigitSums sums = three ? DigitSums::of<3, 4>() : w.bits == 4 ? DigitSums::of<2, 4>() : DigitSums::of<2, 8>();
  const isize ahead = TOGETHER * (TOUCHED / gemm::most(TOGETHER * w.row, 1) + 1);
  for (isize j = begin; j < end; j += TOGETHER) {
    if ((j - begin) % ahead == 0) w.touch(j, least(j + ahead, end));
    const Columns columns(w, j, end);
    DigitRows some = rows;
    for (isize i = 0; i < m;) {
      const isize taken = m - i >= 2 && w.block == 32 ? 2 : 1;
      VF found[2];
      (taken == 2 ? sums.two : w.block == 32 ? sums.one : sums.any)(columns, some, own, found);
      for (isize r = 0; r < taken; r++) store_part(y + (i + r) * y_rs + j, found[r], least(TOGETHER, end - j));
      some.a += taken * some.length, some.units += taken * w.count, some.sums += taken * w.count;
      i += taken;
    }
  }
}

}  // namespace nbits
#endif
