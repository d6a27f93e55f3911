// How large the numbers are that products of bytes add up (runs.h): of panels of weights, and of rows.
#pragma once
#include "qgemm/product.h"

namespace qgemm {

inline const float* measures_at(const Product& p, isize column) { return p.measures + panel_at(column) * measure_count(round_up(p.k, 4) / 4); }
inline float& absolute(float* measure, isize k) { return measure[3 * norms_row(round_up(k, 4) / 4) + 1]; }
inline float absolute(const float* measure, isize k) { return measure[3 * norms_row(round_up(k, 4) / 4) + 1]; }
// Of a segment: which of its steps saturate.
inline i32* saturating(float* measure, isize steps) { return reinterpret_cast<i32*>(measure) + norms_count(steps); }
inline const i32* saturating(const float* measure, isize steps) { return reinterpret_cast<const i32*>(measure) + norms_count(steps); }

// The largest product of the norms of a row and of a column whose products add up to int16 (Cauchy, Schwarz), less
// what floats round.
constexpr float MOST = 32767.0f * 32767 * 0.999999f;
inline bool fits(float x, float y) { return x * y <= MOST; }

#if defined(__wasm_relaxed_simd__)
// Sums of two products of bytes of -128..127 by bytes of 0..127.
inline v128_t dot_pairs(v128_t a, v128_t b) { return wasm_i16x8_relaxed_dot_i8x16_i7x16(a, b); }
// Magnitudes of bytes, of -128 less by one.
inline v128_t magnitude(v128_t b) { return wasm_i8x16_max(b, wasm_i8x16_sub_sat(wasm_i8x16_splat(0), b)); }

inline v128_t ones_kept() {
  v128_t ones = wasm_i8x16_splat(1);
  pin(ones);
  return ones;
}

inline i32 largest(v128_t v) {
  v = wasm_i32x4_max(v, wasm_i32x4_shuffle(v, v, 2, 3, 0, 1));
  return wasm_i32x4_extract_lane(wasm_i32x4_max(v, wasm_i32x4_shuffle(v, v, 1, 0, 3, 2)), 0);
}
inline i32 largest_of_eight(v128_t v) { return largest(wasm_i32x4_max(wasm_u32x4_extend_low_u16x8(v), wasm_u32x4_extend_high_u16x8(v))); }

// What follows the rows of norms, which are complete with it.
inline void summarise(float* norms, isize steps) {
  const isize row = norms_row(steps), count = segments(steps);
  for (isize n = 0; n < 3; n++)
    for (isize s = count; s < row; s++) norms[n * row + s] = 0;
  float sum = 0;
  for (isize s = 0; s < count; s++) sum += norms[s];
  norms[3 * row] = sum / float(most(count, 1));
}

// Sums of the squares of a panel's weights by lanes of int16, which hold them a quarter, an eighth and a sixteenth as large, rounded up.
template <int V> struct Squares {
  v128_t window[V]{}, half[V]{}, whole[V]{}, windows{}, halves{};

  void add(int v, v128_t squares) { window[v] = wasm_i16x8_add(window[v], wasm_u16x8_shr(squares, 2)); }
  void end_window() {
    for (int v = 0; v < V; v++) {
      const v128_t sum = wasm_i16x8_add(window[v], wasm_i16x8_splat(WINDOW));
      windows = wasm_i16x8_max(windows, sum);
      half[v] = wasm_i16x8_add(half[v], wasm_u16x8_shr(wasm_i16x8_add(sum, wasm_i16x8_splat(1)), 1));
      whole[v] = wasm_i16x8_add(whole[v], wasm_u16x8_shr(wasm_i16x8_add(sum, wasm_i16x8_splat(3)), 2));
      window[v] = wasm_i16x8_splat(0);
    }
  }
  void end_half() {
    for (int v = 0; v < V; v++) halves = wasm_i16x8_max(halves, half[v]), half[v] = wasm_i16x8_splat(0);
  }
  void end_segment(float* to, isize row) {
    v128_t most = whole[0];
    for (int v = 1; v < V; v++) most = wasm_i16x8_max(most, whole[v]);
    auto norm = [](v128_t lanes, float unit) { return float(largest_of_eight(lanes)) * unit; };
    constexpr float MOST = 128.0f * 128 / (127 * 127);  // the square of -128, too, was taken as that of 127
    to[0] = norm(most, 16 * MOST), to[row] = norm(halves, 8 * MOST), to[2 * row] = norm(windows, 4 * MOST);
    *this = {};
  }
};

inline v128_t halved(v128_t b) { return wasm_i8x16_shr(b, 1); }

// Steps that saturate are measured as what is left of them when they are split.
template <int V> void measure_panel(const int8_t* from, isize steps, float* to) {
  const v128_t ones = ones_kept();
  const isize row = norms_row(steps);
  Squares<V> squares;
  i32 apart = 0, *const parts = saturating(to, steps);
  __builtin_memset(to, 0, size_t(measure_count(steps)) * 4);
  for (isize s = 0; s < steps; s++, from += V * 16) {
    v128_t b[V], most = wasm_i16x8_splat(0);
    for (int v = 0; v < V; v++) {
      b[v] = wasm_v128_load(from + v * 16);
      most = wasm_i16x8_max(most, wasm_i16x8_add(dot_pairs(ones, magnitude(b[v])), wasm_i16x8_abs(dot_pairs(b[v], ones))));
    }
    // Two products may leave int16 where the weights of either sign add up to more than 128: sizes and sums together to more than twice that.
    const bool saturates = wasm_v128_any_true(wasm_i16x8_gt(most, wasm_i16x8_splat(256)));
    apart |= saturates << s % SEGMENT;
    for (int v = 0; v < V; v++) {
      const v128_t size = magnitude(saturates ? halved(b[v]) : b[v]);
      squares.add(v, dot_pairs(size, size));
    }
    const isize next = s + 1 == steps ? 0 : s + 1;
    if (next % WINDOW == 0) squares.end_window();
    if (next % (SEGMENT / 2) == 0) squares.end_half();
    if (next % SEGMENT == 0) {
      squares.end_segment(to + s / SEGMENT, row);
      parts[s / SEGMENT] = apart, apart = 0;
    }
  }
  summarise(to, steps);
}
[[gnu::noinline]] inline void measure(const int8_t* from, isize vectors, isize steps, float* to) {
  vectors == 3 ? measure_panel<3>(from, steps, to) : vectors == 2 ? measure_panel<2>(from, steps, to) : measure_panel<1>(from, steps, to);
}

// What bytes are about, which is closest to 0 without it: of some of the rows.
[[gnu::noinline]] inline i32 middle(const char* at, isize step, isize count, isize depth) {
  constexpr isize ENOUGH = 16;
  const isize next = count / ENOUGH + 1;
  i64 sum = 0, of = 0;
  for (isize r = 0; r < count; r += next, of += depth) {
    v128_t total = wasm_i32x4_splat(0);
    isize k = 0;
    for (; k + 16 <= depth; k += 16)
      total = wasm_i32x4_add(total, wasm_u32x4_extadd_pairwise_u16x8(wasm_u16x8_extadd_pairwise_u8x16(wasm_v128_load(at + r * step + k))));
    for (int lane = 0; lane < 4; lane++) sum += reinterpret_cast<const i32*>(&total)[lane];
    for (; k < depth; k++) sum += uint8_t(at[r * step + k]);
  }
  return of ? i32((sum + of / 2) / of) : 0;
}

// By tile of rows and segment: of unsigned bytes less `center`.
[[gnu::noinline]] inline void row_norms(const char* at, isize step, isize count, isize depth, i32 center, float* out) {
  const v128_t c = wasm_i16x8_splat(int16_t(center)), c4 = wasm_i64x2_shuffle(c, wasm_i64x2_splat(0), 0, 2);
  const isize row = norms_row(depth / 4);
  for (isize i = 0; i < count; i += ROWS, out += norms_count(depth / 4)) {
    for (isize begin = 0; begin < depth; begin += 4 * SEGMENT) {
      const isize end = least(begin + 4 * SEGMENT, depth);
      v128_t most[3]{};
      for (isize r = i; r < least(i + ROWS, count); r++) {
        v128_t whole{}, half{};
        const char* from = at + r * step;
        auto end_window = [&](v128_t sum, isize next) {
          whole = wasm_i32x4_add(whole, sum), half = wasm_i32x4_add(half, sum);
          most[2] = wasm_i32x4_max(most[2], sum), most[1] = wasm_i32x4_max(most[1], half);
          if ((next - begin) % (2 * SEGMENT) == 0) half = wasm_i32x4_splat(0);
        };
        isize k = begin;
        for (; k + 16 <= end; k += 16) {
          const v128_t bytes = wasm_v128_load(from + k), low = wasm_i16x8_sub(wasm_u16x8_extend_low_u8x16(bytes), c);
          const v128_t high = wasm_i16x8_sub(wasm_u16x8_extend_high_u8x16(bytes), c);
          const v128_t sum = wasm_i32x4_add(wasm_i32x4_dot_i16x8(low, low), wasm_i32x4_dot_i16x8(high, high));
          end_window(wasm_i32x4_add(sum, wasm_i32x4_shuffle(sum, sum, 2, 3, 0, 1)), k + 16);
        }
        v128_t sum{};
        for (; k < end; k += 4) {
          const v128_t low = wasm_i16x8_sub(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(from + k)), c4);
          sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(low, low));
        }
        end_window(sum, end);
        most[0] = wasm_i32x4_max(most[0], whole);
      }
      for (isize n = 0; n < 3; n++) out[n * row + begin / (4 * SEGMENT)] = float(largest(most[n]));
    }
    summarise(out, depth / 4);
  }
}
#else
inline void measure(const int8_t*, isize, isize, float*) {}
inline i32 middle(const char*, isize, isize, isize) { return 0; }
inline void row_norms(const char*, isize, isize, isize, i32, float*) {}
#endif

}  // namespace qgemm
