// What is multiplied, and how a block of it lies in scratch memory.
#pragma once
#include "epilogue.h"
#include "qgemm/tile.h"

namespace qgemm {

// A packed block of `a`, which every panel passes over: stays in a level-2 cache.
#if defined(__wasm__)
constexpr isize A_BYTES = 256 << 10;
#else
constexpr isize A_BYTES = 192 << 10;
#endif

// Steps of four bytes whose products are added up in int16 together, in long runs, and in short ones of half a segment or of a window
// (runs.h).
constexpr isize SEGMENT = 16, WINDOW = 4;
inline isize windows(isize steps) { return (steps + WINDOW - 1) / WINDOW; }
inline isize segments(isize steps) { return (steps + SEGMENT - 1) / SEGMENT; }
// Sums of squares of what one lane adds up, by segment: of the whole, the largest of its halves and the largest of its windows; three
// rows of as many floats, of which those past the last segment are 0. Then the mean of the first, and of a panel what the absolute numbers
// of a column add up to at most.
constexpr isize SUMMARY = 4;
inline isize norms_row(isize steps) { return round_up(segments(steps), 4); }
inline isize norms_count(isize steps) { return 3 * norms_row(steps) + SUMMARY; }
// What is known of a panel: its norms, and by segment which steps saturate, as bits.
inline isize measure_count(isize steps) { return norms_count(steps) + norms_row(steps); }
inline Size whole_columns(i64 n) { return round_up(Size(n), 16); }
inline isize panel_at(isize column) { return (column + NR - 1) / NR; }
inline Size measures_count(i64 k, i64 n) { return (ceil_div(whole_columns(n), 12) + 1) * (round_up(ceil_div(k, 64), 4) * 4 + SUMMARY); }

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
  const i32* packed_sums;  // where b was packed before: the sums of its columns, and its panels; else nullptr
  const int8_t* packed;
  const float* measures;  // of its panels, where they were taken

  void set_packed(const int8_t* panels, const i32* sums, i64 count) {
    packed = panels, packed_sums = sums;
    const Size columns = whole_columns(n);
    if ((columns + measures_count(k, n)).within(count)) measures = reinterpret_cast<const float*>(sums + columns.value());
  }
  void set_result(const float* to_scale, i32 zero) { y_scale = *to_scale, y_reciprocal = 1 / y_scale, y_zero = zero; }
  // Bytes that follow from a sum by one scale, one bias and a clamp for the whole row.
  bool plain_rows() const {
    return (dtype == U8 || dtype == I8) && scale_ns == 0 && !e.res && e.alpha == 1 && e.act <= Act::CLIP && (!e.bias || e.bias_ns == 0);
  }

  i32 zero_a(isize i) const { return !za ? 0 : a_signed ? int8_t(za[i * za_s]) : za[i * za_s]; }
  // What packing adds to a, so that its bytes have the sign that the machine multiplies.
  i32 shift_a(Quads kind) const { return kind == Quads::SIGNED ? (a_signed ? 0 : -128) : a_signed ? 128 : 0; }
  // Panels hold b as int8: an unsigned b less 128, and its zero point likewise; where all are 0, there is nothing to take off.
  i32 zero_b(isize j) const { return (!zb ? 0 : b_signed ? int8_t(zb[j * zb_s]) : zb[j * zb_s]) - (b_signed ? 0 : 128); }
  bool zeros_b() const {
    for (isize j = 0; j < (zb_s ? n : least(n, 1)); j++)
      if (zero_b(j)) return true;
    return false;
  }
};

inline isize lanes_bytes(isize segments) { return round_up((segments * (SEGMENT / WINDOW) + 1) * NR * 4, 64); }

struct Layout {
  isize unit, depth, rows, a_rs;  // rows of b side by side; k rounded up to them; rows of a block and bytes of one
  isize a_bytes, b_bytes, sums_bytes, runs_bytes, norms_bytes, bytes;
  Quads kind;
};
inline Layout layout(isize m, isize k) {
  Layout s{};
  s.kind = quads();
  s.unit = s.kind == Quads::NONE ? 2 : 4;
  s.depth = round_up(k, s.unit);
  s.a_rs = s.depth * (s.unit == 4 ? 1 : 2);
  const isize held = most(A_BYTES / most(s.a_rs, 1) / ROWS, 1) * ROWS, blocks = most((m + held - 1) / held, 1);
  s.rows = least(held, round_up((m + blocks - 1) / blocks, ROWS));
  s.a_bytes = round_up((s.rows + 1) * s.a_rs, 64);  // and a row of ones
  s.b_bytes = round_up(s.depth * NR, 64);
  s.sums_bytes = round_up((s.rows + NR) * 4, 64);
  s.bytes = s.a_bytes + s.b_bytes + s.sums_bytes;
  // Of products that saturate: steps of a panel apart, as int16 at most, which steps these are, norms and sums by segments (runs.h), and rows as int16.
  if (s.kind == Quads::SATURATING) {
    const isize spans = segments(s.depth / 4);
    s.runs_bytes = round_up(s.depth + 4, 64), s.norms_bytes = round_up((norms_count(s.depth / 4) * (s.rows / ROWS) + measure_count(s.depth / 4)) * 4, 64);
    s.bytes += 2 * (s.b_bytes + s.runs_bytes) + s.norms_bytes + lanes_bytes(spans) + round_up(s.rows * s.depth * 2, 64);
  }
  return s;
}
// Weights that were packed before (qpack.cpp): panels, each at its first column times the depth, and the sums of the columns
// and what is known of the panels. No vectors
// or products of a machine need more room.
inline Size packed_bytes(i64 k, i64 n) { return whole_columns(n) * round_up(Size(k), 4); }
inline Size scratch_bytes(isize m, isize k, int threads) { return Size(layout(m, k).bytes) * threads; }

}  // namespace qgemm
