// Four columns of codes of 4 or 8 bits against few rows (relaxed SIMD): each number of a row is given as signed bytes, its digits in base
// 256, whose products with four codes are summed by one instruction, where it is one on this machine: of three, `dot` of nbits/rows.h needs
// fewer. Codes of 8 bits are taken as the machine takes bytes with their top bit set.
#pragma once
#include "nbits/weights.h"

#if defined(__wasm_relaxed_simd__)
#include "qgemm/tile.h"

namespace nbits {

constexpr isize TOGETHER = 4;  // columns, one to each lane of a sum

// Whether one instruction adds products of four bytes, of which those of one operand may be signed and the others have 8 bits.
inline bool whole_bytes() { return qgemm::quads() == qgemm::Quads::UNSIGNED || qgemm::quads() == qgemm::Quads::SIGNED; }
// What makes codes of 8 bits less 128 signed bytes, where they have to be.
inline uint8_t flips(isize bits) { return bits == 8 && qgemm::quads() == qgemm::Quads::SIGNED ? 128 : 0; }

// Whether it pays, and sums of a block stay below 2^31.
inline bool digits_fit(isize bits, isize block) {
  return (bits == 4 || (bits == 8 && block <= 256)) && whole_bytes();
}

// From a row of high * 2^15 + low, or of high alone where `low` is missing: for each word of codes the digits of the numbers that its bytes
// stand for; of 4 bits, those of their low halves, then of the others. For each digit, the lowest first, four bytes.
template <int DIGITS> [[gnu::noinline]] void spread_digits(const int16_t* high, const int16_t* low, isize depth, isize bits, int8_t* out) {
  const isize planes = 8 / bits;
  for (isize at = 0; at < depth; at += 4 * planes)
    for (isize plane = 0; plane < planes; plane++, out += 4 * DIGITS)
      for (isize l = 0; l < 4; l++) {
        const isize k = at + planes * l + plane;
        int32_t v = low ? high[k] * 32768 + low[k] : high[k];
        for (int d = 0; d < DIGITS; d++) {
          const int8_t digit = int8_t(v);
          out[d * 4 + l] = digit;
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

// Rows of a: of `spread_digits`, `length` bytes each, with their units and sums by block.
struct DigitRows {
  const int8_t* a;
  isize length;
  const float *units, *sums;
};

// Sums of M rows in the columns.
template <int M, int DIGITS, int BITS> [[gnu::noinline]] void digit_sums(const Columns& columns, const DigitRows& rows, VF* y) {
  constexpr int PLANES = 8 / BITS;
  const Weights& w = columns.w;
  const isize count = w.count;
  const uint8_t* codes[TOGETHER];
  for (isize c = 0; c < TOGETHER; c++) codes[c] = columns.codes(c);
  typedef int32_t Quad __attribute__((may_alias));
  const Quad* a[M];
  VF total[M];
  for (int i = 0; i < M; i++) a[i] = reinterpret_cast<const Quad*>(rows.a + i * rows.length), total[i] = splat(0);
  const uint8_t flip = flips(BITS);
  uint8_t constant = BITS == 4 ? 15 : flip;
  asm("" : "+r"(constant));  // V8 puts a constant vector together from four instructions
  const v128_t mask = wasm_i8x16_splat(int8_t(constant));
  const bool middle = !w.shifts;
  const VF zero = splat(float((1 << (BITS - 1)) - flip)), flipped = splat(float(flip));
  for (isize b0 = 0; b0 < count; b0 += 4) {
    VF scale[4], offset[4];
    const isize blocks = least(4, count - b0);
    columns.read(b0, blocks, scale, offset);
    for (isize n = 0; n < blocks; n++) {
      VI acc[M][DIGITS];
      for (auto& row : acc)
        for (VI& sum : row) sum = splat_i(0);
      for (isize k = 0; k < w.block; k += 16 * PLANES) {
        VF words[4];
        for (isize c = 0; c < TOGETHER; c++) {
          words[c] = load(reinterpret_cast<const float*>(codes[c]));
          codes[c] += 16;
        }
        transpose(words);
#pragma unroll
        for (int word = 0; word < 4; word++) {
          const v128_t all = (v128_t)words[word];
          const v128_t taken[2] = {BITS == 8 ? all ^ mask : all & mask, BITS == 8 ? all : wasm_u16x8_shr(all, 4) & mask};
#pragma unroll
          for (int p = 0; p < PLANES; p++)
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
              for (int d = 0; d < DIGITS; d++) {
                VI& sum = acc[i][d];
                const v128_t digits = wasm_i32x4_splat(a[i][(word * PLANES + p) * DIGITS + d]);
                sum = (VI)wasm_i32x4_relaxed_dot_i8x16_i7x16_add(digits, taken[p], (v128_t)sum);
                pin(sum);
              }
        }
        for (int i = 0; i < M; i++) {
          a[i] += 4 * PLANES * DIGITS;
          pin(a[i]);
        }
      }
      for (int i = 0; i < M; i++) {
        VF sum = __builtin_convertvector(acc[i][0] + (acc[i][1] << splat_i(8)), VF);
        if constexpr (DIGITS == 4) sum += __builtin_convertvector(acc[i][2] + (acc[i][3] << splat_i(8)), VF) * splat(65536);
        const isize block = i * count + b0 + n;
        const VF unit = splat(rows.units[block]), all = splat(rows.sums[block]);
        if (middle) total[i] += scale[n] * (sum * unit - all * zero);
        else total[i] += scale[n] * (sum * unit + all * flipped) - offset[n] * all;
      }
    }
  }
  for (int i = 0; i < M; i++) y[i] = total[i];
}

// Columns [begin, end) of y, whose rows are y_rs apart.
template <int DIGITS, int BITS> void digit_columns(const Weights& w, const DigitRows& rows, isize m, isize begin, isize end, float* y, isize y_rs) {
  const isize ahead = TOGETHER * (TOUCHED / gemm::most(TOGETHER * w.row, 1) + 1);
  for (isize j = begin; j < end; j += TOGETHER) {
    if ((j - begin) % ahead == 0) w.touch(j, least(j + ahead, end));
    const Columns columns(w, j, end);
    DigitRows some = rows;
    for (isize i = 0; i < m;) {
      const isize two = m - i >= 2 ? 2 : 1;
      VF found[2];
      if (two == 2) digit_sums<2, DIGITS, BITS>(columns, some, found);
      else digit_sums<1, DIGITS, BITS>(columns, some, found);
      for (isize r = 0; r < two; r++) store_part(y + (i + r) * y_rs + j, found[r], least(TOGETHER, end - j));
      some.a += two * some.length, some.units += two * w.count, some.sums += two * w.count;
      i += two;
    }
  }
}

}  // namespace nbits
#endif
