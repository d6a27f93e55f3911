// Products of four bytes where a sum of two saturates to int16 (Quads::SATURATING). Weights of which a step could saturate are split into
// two steps. The rest is added up in int16, whose sums are exact modulo 2^16, and are the sums themselves as long as these lie within int16:
// by Cauchy and Schwarz they do where the product of the norms of a row less its zero point and of a column does. Segments of steps whose norms
// are small enough follow one another in such sums, others are widened step by step. Where many steps would be split, those are multiplied as
// pairs of int16 instead, apart from the others; and all of them where there are few rows.
#pragma once
#include "qgemm/matrices.h"
#include "qgemm/product.h"

namespace qgemm {

enum class Way { SPLIT, PAIRS, MIXED };

// How a panel is multiplied, and the memory that it takes.
struct Arranged {
  int8_t *b, *other;  // the panel; the second parts of steps that were split, or steps in pairs: bytes of all of them, or int16 of MIXED
  i32 *at, *other_at;  // which steps these are; the former of MIXED, whose panel has no others
  i32* norms;          // by segment: the largest sum of squares of the weights that one lane of int16 adds up
  int16_t* lanes;      // by segment: sums of the weights of each lane before it, modulo 2^16
  isize n, n_other;
  Way way;
  alignas(64) i32 other_sums[NR];  // of the columns of `other`
};

#if defined(__wasm_relaxed_simd__)
constexpr bool MAY_SATURATE = true;
constexpr isize SAMPLE = 16;  // steps that tell how many saturate

// Sums of two products of bytes of -128..127 by bytes of 0..127.
inline v128_t dot_pairs(v128_t a, v128_t b) { return wasm_i16x8_relaxed_dot_i8x16_i7x16(a, b); }
// Magnitudes of bytes, of -128 less by one.
inline v128_t magnitude(v128_t b) { return wasm_i8x16_max(b, wasm_i8x16_sub_sat(wasm_i8x16_splat(0), b)); }

// A step of a panel, and what there is to know of it.
template <int V> struct Step {
  v128_t b[V], size[V], sum[V];  // sums of pairs
  bool saturates;

  Step(const int8_t* from, v128_t ones) {
    v128_t most = wasm_i16x8_splat(0);
    for (int v = 0; v < V; v++) {
      b[v] = wasm_v128_load(from + v * 16);
      measure(v, ones);
      most = wasm_i16x8_max(most, wasm_i16x8_add(dot_pairs(ones, size[v]), wasm_i16x8_abs(sum[v])));
    }
    // Two products may leave int16 where the weights of either sign add up to more than 128: sizes and sums together to more than twice that.
    saturates = wasm_v128_any_true(wasm_i16x8_gt(most, wasm_i16x8_splat(256)));
  }
  void measure(int v, v128_t ones) { size[v] = magnitude(b[v]), sum[v] = dot_pairs(b[v], ones); }
};
inline v128_t ones_kept() {
  v128_t ones = wasm_i8x16_splat(1);
  pin(ones);
  return ones;
}

template <int V> PWX_SMALL Way way_of(const int8_t* from, isize steps, isize rows) {
  if (rows <= ROWS) return Way::PAIRS;
  const v128_t ones = ones_kept();
  isize many = 0;
  for (isize s = 0; s < least(steps, SAMPLE); s++, from += V * 16) many += Step<V>(from, ones).saturates;
  return 4 * many > least(steps, SAMPLE) ? Way::MIXED : Way::SPLIT;
}

inline i32 largest(v128_t v) {
  v = wasm_i32x4_max(v, wasm_i32x4_shuffle(v, v, 2, 3, 0, 1));
  return wasm_i32x4_extract_lane(wasm_i32x4_max(v, wasm_i32x4_shuffle(v, v, 1, 0, 3, 2)), 0);
}

// Rows 0, 1 of a step by columns, then rows 2, 3.
inline v128_t in_pairs(v128_t b) { return wasm_i16x8_shuffle(b, b, 0, 2, 4, 6, 1, 3, 5, 7); }

template <int V> void arrange_pairs(const int8_t* from, isize steps, Arranged& to) {
  int8_t* d = to.other;
  for (isize s = 0; s < steps; s++, d += V * 16)
    for (int v = 0; v < V; v++, from += 16) {
      const v128_t both = in_pairs(wasm_v128_load(from));
      wasm_v128_store64_lane(d + v * 8, both, 0);
      wasm_v128_store64_lane(d + (V + v) * 8, both, 1);
    }
}

template <int V> void arrange_mixed(const int8_t* from, isize steps, Arranged& to) {
  const v128_t ones = ones_kept();
  int8_t *d = to.b, *other = to.other;
  for (isize s = 0; s < steps; s++) {
    const Step<V> step(from + s * V * 16, ones);
    if (!step.saturates) {
      __builtin_memcpy(d, step.b, sizeof step.b);
      d += V * 16, to.at[to.n++] = i32(s);
      continue;
    }
    for (int v = 0; v < V; v++) {
      const v128_t both = in_pairs(step.b[v]);
      wasm_v128_store(other + v * 16, wasm_i16x8_extend_low_i8x16(both));
      wasm_v128_store(other + (V + v) * 16, wasm_i16x8_extend_high_i8x16(both));
    }
    other += V * 32, to.other_at[to.n_other++] = i32(s);
  }
}

template <int V> void arrange_split(const int8_t* from, isize steps, Arranged& to) {
  const v128_t ones = ones_kept();
  v128_t lanes[V]{}, others[V]{}, squares[2]{};
  int8_t* other = to.other;
  for (isize s = 0; s < steps; s++) {
    Step<V> step(from + s * V * 16, ones);
    if (s % SEGMENT == 0) __builtin_memcpy(to.lanes + s / SEGMENT * V * 8, lanes, sizeof lanes);
    if (step.saturates) {
      for (int v = 0; v < V; v++, other += 16) {
        const v128_t half = wasm_i8x16_shr(step.b[v], 1), rest = wasm_i8x16_sub(step.b[v], half);
        wasm_v128_store(other, rest);
        others[v] = wasm_i32x4_add(others[v], wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_extadd_pairwise_i8x16(rest)));
        step.b[v] = half;
        step.measure(v, ones);
      }
      to.other_at[to.n_other++] = i32(s);
    }
    v128_t most = wasm_i16x8_splat(0);
    for (int v = 0; v < V; v++) {
      wasm_v128_store(to.b + (s * V + v) * 16, step.b[v]);
      lanes[v] = wasm_i16x8_add(lanes[v], step.sum[v]);
      most = wasm_i16x8_max(most, dot_pairs(step.size[v], step.size[v]));
    }
    squares[0] = wasm_i32x4_add(squares[0], wasm_u32x4_extend_low_u16x8(most));
    squares[1] = wasm_i32x4_add(squares[1], wasm_u32x4_extend_high_u16x8(most));
    if (s % SEGMENT == SEGMENT - 1 || s == steps - 1) {
      const i32 norm = largest(wasm_i32x4_max(squares[0], squares[1]));
      to.norms[s / SEGMENT] = norm + norm / 32 + 1;  // of -128, too, whose square was taken as that of 127
      squares[0] = squares[1] = wasm_i32x4_splat(0);
    }
  }
  __builtin_memcpy(to.lanes + segments(steps) * V * 8, lanes, sizeof lanes);
  __builtin_memcpy(to.other_sums, others, sizeof others);
}

template <int V> void arrange(const int8_t* from, isize steps, isize rows, bool may_pair, Arranged& to) {
  to.n = to.n_other = 0;
  to.way = may_pair ? way_of<V>(from, steps, rows) : Way::SPLIT;
  if (to.way == Way::PAIRS) arrange_pairs<V>(from, steps, to);
  else if (to.way == Way::MIXED) arrange_mixed<V>(from, steps, to);
  else arrange_split<V>(from, steps, to);
}

// By tile of rows and segment: the largest sum of squares, of what one lane adds up, of unsigned bytes less `center`.
[[gnu::noinline]] inline void row_norms(const char* at, isize step, isize count, isize depth, i32 center, i32* out) {
  const v128_t c = wasm_i16x8_splat(int16_t(center)), c4 = wasm_i64x2_shuffle(c, wasm_i64x2_splat(0), 0, 2);
  for (isize i = 0; i < count; i += ROWS)
    for (isize begin = 0; begin < depth; begin += 4 * SEGMENT) {
      const isize end = least(begin + 4 * SEGMENT, depth);
      v128_t most = wasm_i32x4_splat(0);
      for (isize r = i; r < least(i + ROWS, count); r++) {
        v128_t sum = wasm_i32x4_splat(0);
        const char* from = at + r * step;
        isize k = begin;
        for (; k + 16 <= end; k += 16) {
          const v128_t bytes = wasm_v128_load(from + k), low = wasm_i16x8_sub(wasm_u16x8_extend_low_u8x16(bytes), c);
          const v128_t high = wasm_i16x8_sub(wasm_u16x8_extend_high_u8x16(bytes), c);
          sum = wasm_i32x4_add(sum, wasm_i32x4_add(wasm_i32x4_dot_i16x8(low, low), wasm_i32x4_dot_i16x8(high, high)));
        }
        for (; k < end; k += 4) {
          const v128_t low = wasm_i16x8_sub(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(from + k)), c4);
          sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(low, low));
        }
        most = wasm_i32x4_max(most, wasm_i32x4_add(sum, wasm_i32x4_shuffle(sum, sum, 2, 3, 0, 1)));
      }
      *out++ = largest(most);
    }
}

// V8 makes the vector of ones anew in every sum of four products: two instructions with one that is kept are faster.
inline VI add_wide(VI sum, v128_t products) { return sum + (VI)wasm_i32x4_dot_i16x8(products, wasm_i16x8_splat(1)); }

template <int M, int V> [[gnu::noinline]] void tile_runs(const Tile& t) {
  constexpr i64 MOST = i64(32767) * 32767;
  VI acc[M][V];
  const char* a[M];
  auto step = [&](const int8_t* b, isize at, auto add) __attribute__((always_inline)) {
    v128_t bv[V];
    for (int v = 0; v < V; v++) bv[v] = wasm_v128_load(b + v * 16);
    for (int i = 0; i < M; i++) {
      const v128_t quad = wasm_v128_load32_splat(a[i] + at);
      for (int v = 0; v < V; v++) acc[i][v] = add(acc[i][v], wasm_i16x8_relaxed_dot_i8x16_i7x16(bv[v], quad));
      for (int v = 0; v < V; v++) pin(acc[i][v]);
    }
  };
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) acc[i][v] = t.start ? load_i(t.start + v * W) : splat_i(0);
  for (int i = 0; i < M; i++) a[i] = t.a + i * t.a_rs;
  const int8_t* b = t.other;
  for (isize r = 0; r < t.n_other; r++, b += V * 16) step(b, t.other_at[r] * 4, add_wide);
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) store_i(t.out + (i * V + v) * W, acc[i][v]);
  const isize count = segments(t.steps);
  for (isize done = 0; done < count;) {
    const isize from = done;
    i64 x = 0, y = 0;
    for (; t.a_norms && done < count; done++) {
      x += t.a_norms[done], y += t.norms[done];
      if (x * y > MOST) break;
    }
    const bool wide = done == from;
    done += wide;
    isize steps = least(done * SEGMENT, t.steps) - from * SEGMENT;
    b = t.b + from * SEGMENT * V * 16;
    for (int i = 0; i < M; i++) a[i] = t.a + i * t.a_rs + from * SEGMENT * 4;
    auto each = [&](auto add) __attribute__((always_inline)) {
      for (; steps >= 2; steps -= 2) {
        step(b, 0, add);
        step(b + V * 16, 4, add);
        b += 2 * V * 16;
        pin(b);
        for (int i = 0; i < M; i++) {
          a[i] += 8;
          pin(a[i]);
        }
      }
      if (steps) step(b, 0, add);
    };
    const v128_t center = wasm_i16x8_splat(int16_t(t.center));
    v128_t less[V];  // what the center of a row is multiplied by, and then its products
    for (int v = 0; v < V; v++) less[v] = wasm_i16x8_sub(wasm_v128_load(t.lanes + (from * V + v) * 8), wasm_v128_load(t.lanes + (done * V + v) * 8));
    if (wide) {
      for (int v = 0; v < V; v++) less[v] = wasm_i32x4_dot_i16x8(less[v], center);
      for (int i = 0; i < M; i++)
        for (int v = 0; v < V; v++) acc[i][v] = load_i(t.out + (i * V + v) * W) + (VI)less[v];
      each(add_wide);
      for (int i = 0; i < M; i++)
        for (int v = 0; v < V; v++) store_i(t.out + (i * V + v) * W, acc[i][v]);
    } else {
      for (int v = 0; v < V; v++) less[v] = wasm_i16x8_mul(less[v], center);
      for (int i = 0; i < M; i++)
        for (int v = 0; v < V; v++) acc[i][v] = (VI)less[v];
      each([](VI sum, v128_t products) { return (VI)wasm_i16x8_add((v128_t)sum, products); });
      for (int i = 0; i < M; i++)
        for (int v = 0; v < V; v++) {
          i32* out = t.out + (i * V + v) * W;
          store_i(out, load_i(out) + (VI)wasm_i32x4_extadd_pairwise_i16x8((v128_t)acc[i][v]));
        }
    }
  }
}

// Steps without saturation as bytes, the others as pairs of int16.
template <int M, int V> [[gnu::noinline]] void tile_mixed(const Tile& t) {
  VI acc[M][V];
  auto step = [&](const int8_t* b, const char* const (&a)[M], int at, auto add) __attribute__((always_inline)) {
    v128_t bv[V];
    for (int v = 0; v < V; v++) bv[v] = wasm_v128_load(b + v * 16);
    for (int i = 0; i < M; i++) {
      const v128_t quad = wasm_v128_load32_splat(a[i] + at);
      for (int v = 0; v < V; v++) acc[i][v] = add(acc[i][v], bv[v], quad);
      for (int v = 0; v < V; v++) pin(acc[i][v]);
    }
  };
  const int8_t* b = t.other;
  auto on = [&](int steps) {
    b += steps * V * 16;
    pin(b);
  };
  auto rows = [](const char* at, isize step, const char* (&a)[M]) {
    for (int i = 0; i < M; i++) {
      a[i] = at + i * step;
      pin(a[i]);
    }
  };
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) acc[i][v] = t.start ? load_i(t.start + v * W) : splat_i(0);
  const char* a[M];
  auto pairs = [](VI sum, v128_t b, v128_t a) { return sum + (VI)wasm_i32x4_dot_i16x8(a, b); };
  for (isize s = 0; s < t.n_other; s++) {
    rows(t.wide + t.other_at[s] * 8, t.wide_rs, a);
    step(b, a, 0, pairs);
    step(b + V * 16, a, 4, pairs);
    on(2);
  }
  b = t.b;
  auto quads = [](VI sum, v128_t b, v128_t a) { return add_wide(sum, wasm_i16x8_relaxed_dot_i8x16_i7x16(b, a)); };
  for (isize s = 0; s < t.n; s++) {
    rows(t.a + t.at[s] * 4, t.a_rs, a);
    step(b, a, 0, quads);
    on(1);
  }
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) store_i(t.out + (i * V + v) * W, acc[i][v]);
}
#else
constexpr bool MAY_SATURATE = false;
template <int V> void arrange(const int8_t*, isize, isize, bool, Arranged&) {}
inline void row_norms(const char*, isize, isize, isize, i32, i32*) {}
template <int M, int V> void tile_runs(const Tile&) {}
template <int M, int V> void tile_mixed(const Tile&) {}
#endif

template <int V> inline isize tile_rows(const Tile& t, Quads kind, isize rows) {
  auto one = [&]<int M>() -> isize {
    if constexpr (M % 2 == 0)
      if (by_matrices() && kind == Quads::SIGNED) return tile_matrices<M, V>(t), M;
    if (kind == Quads::SATURATING && t.wide) tile_mixed<M, V>(t);
    else if (kind == Quads::SATURATING) tile_runs<M, V>(t);
    else if (kind != Quads::NONE) tile_quads<M, V>(t);
    else tile_pairs<M, V>(t);
    return M;
  };
  if (rows >= ROWS) return one.template operator()<ROWS>();
  if constexpr (ROWS > 4)
    if (rows >= 4) return one.template operator()<4>();
  if constexpr (ROWS > 3)
    if (rows >= 2) return one.template operator()<2>();
  return one.template operator()<1>();
}

}  // namespace qgemm
