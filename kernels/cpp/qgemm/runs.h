// Products of four bytes where a sum of two saturates to int16 (Quads::SATURATING). Weights of which a step could saturate are split into
// two steps. The rest is added up in int16, whose sums are exact modulo 2^16, and are the sums themselves as long as these lie within
// int16: by Cauchy and Schwarz they do where the product of the norms of a column and of a row does, of whose bytes their mean is taken
// off. Where whole segments of steps are small enough, as many as are follow one another in such sums; else half a segment does, or a
// window of four steps, or none: these are widened step by step. Where many steps would be split, those are multiplied as pairs of int16
// instead, apart from the others; and all of them, where they lie, where there are few rows.
#pragma once
#include "qgemm/matrices.h"
#include "qgemm/norms.h"

namespace qgemm {

// How a panel is multiplied, and the memory that it takes.
struct Arranged {
  int8_t *memory, *other;  // of the panel; second parts of steps that were split, or those of MIXED as int16
  i32 *at, *other_at;      // which steps these are; the former of MIXED, whose panel has no others
  float* measured;         // measure_count(steps), where nobody has measured before
  int16_t* lanes;          // by window: sums of the weights of each lane before it, modulo 2^16
  const int8_t* b;         // the panel
  const float* measure;
  isize n, n_other;
  Way way;
  alignas(64) i32 other_sums[NR];  // of the columns of `other`
};
#if defined(__wasm_relaxed_simd__)
constexpr bool MAY_SATURATE = true;
// Rows 0, 1 of a step by columns, then rows 2, 3.
inline v128_t in_pairs(v128_t b) { return wasm_i16x8_shuffle(b, b, 0, 2, 4, 6, 1, 3, 5, 7); }

template <int V> void arrange_mixed(const int8_t* from, isize steps, Arranged& to) {
  int8_t *d = to.memory, *other = to.other;
  const i32* const apart = saturating(to.measure, steps);
  for (isize s = 0; s < steps; s++, from += V * 16) {
    if (!(apart[s / SEGMENT] >> s % SEGMENT & 1)) {
      __builtin_memcpy(d, from, V * 16);
      d += V * 16, to.at[to.n++] = i32(s);
      continue;
    }
    for (int v = 0; v < V; v++) {
      const v128_t both = in_pairs(wasm_v128_load(from + v * 16));
      wasm_v128_store(other + v * 16, wasm_i16x8_extend_low_i8x16(both));
      wasm_v128_store(other + (V + v) * 16, wasm_i16x8_extend_high_i8x16(both));
    }
    other += V * 32, to.other_at[to.n_other++] = i32(s);
  }
  to.b = to.memory;
}

// Where no step saturates, the panel is multiplied as it lies.
template <int V> void keep_panel(const int8_t* from, isize steps, Arranged& to) {
  const v128_t ones = ones_kept();
  v128_t lanes[V]{};
  int16_t* out = to.lanes;
  to.b = from;
  for (isize left = steps; left > 0; left -= WINDOW, out += V * 8) {
    __builtin_memcpy(out, lanes, sizeof lanes);
    for (isize s = least(WINDOW, left); s > 0; s--)
      for (int v = 0; v < V; v++, from += 16) lanes[v] = wasm_i16x8_add(lanes[v], dot_pairs(wasm_v128_load(from), ones));
  }
  __builtin_memcpy(out, lanes, sizeof lanes);
  __builtin_memset(to.other_sums, 0, sizeof to.other_sums);
}

template <int V> void arrange_split(const int8_t* from, isize steps, Arranged& to) {
  const v128_t ones = ones_kept();
  v128_t lanes[V]{}, others[V]{};
  int8_t *other = to.other, *d = to.memory;
  const i32* const apart = saturating(to.measure, steps);
  for (isize s = 0; s < steps; s++, from += V * 16, d += V * 16) {
    if (s % WINDOW == 0) __builtin_memcpy(to.lanes + s / WINDOW * V * 8, lanes, sizeof lanes);
    v128_t b[V];
    for (int v = 0; v < V; v++) b[v] = wasm_v128_load(from + v * 16);
    if (apart[s / SEGMENT] >> s % SEGMENT & 1) {
      for (int v = 0; v < V; v++, other += 16) {
        const v128_t rest = wasm_i8x16_sub(b[v], halved(b[v]));
        wasm_v128_store(other, rest);
        others[v] = wasm_i32x4_add(others[v], wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_extadd_pairwise_i8x16(rest)));
        b[v] = halved(b[v]);
      }
      to.other_at[to.n_other++] = i32(s);
    }
    for (int v = 0; v < V; v++) {
      wasm_v128_store(d + v * 16, b[v]);
      lanes[v] = wasm_i16x8_add(lanes[v], dot_pairs(b[v], ones));
    }
  }
  __builtin_memcpy(to.lanes + windows(steps) * V * 8, lanes, sizeof lanes);
  __builtin_memcpy(to.other_sums, others, sizeof others);
  to.b = to.memory;
}

template <int V> void arrange(const int8_t* from, isize steps, isize rows, bool may_pair, const float* measured, Arranged& to) {
  to.n = to.n_other = 0;
  to.way = may_pair && rows <= ROWS ? Way::WIDE : Way::SPLIT;
  to.b = from;
  if (to.way == Way::WIDE) return;
  to.measure = measured;
  if (!measured) {
    measure(from, V, steps, to.measured);
    to.measure = to.measured;
  }
  isize many = 0;
  for (isize s = 0; s < segments(steps); s++) many += __builtin_popcount(uint32_t(saturating(to.measure, steps)[s]));
  constexpr isize FEW = 12;  // rows, of which it is less work to widen weights again and again than to move them
  if (may_pair && 4 * many > steps) to.way = rows <= FEW ? Way::WIDE : Way::MIXED;
  if (to.way == Way::WIDE) return;
  if (!many) keep_panel<V>(from, steps, to);
  else if (to.way == Way::MIXED) arrange_mixed<V>(from, steps, to);
  else arrange_split<V>(from, steps, to);
}

// V8 makes the vector of ones anew in every sum of four products: two instructions with one that is kept are faster.
inline VI add_wide(VI sum, v128_t products) { return sum + (VI)wasm_i32x4_dot_i16x8(products, wasm_i16x8_splat(1)); }

// How many steps follow one another in all of a tile's sums of int16, so that a processor predicts them: 0 where these differ, as they do
// where most segments fit as a whole.
[[gnu::noinline]] inline isize even_runs(const Tile& t) {
  const isize row = norms_row(t.steps);
  if (fits(t.a_norms[3 * row], t.norms[3 * row])) return 0;
  for (isize n = 1; n < 3; n++) {
    v128_t most = wasm_f32x4_splat(0);
    for (isize s = n * row; s < (n + 1) * row; s += 4)
      most = wasm_f32x4_max(most, wasm_f32x4_mul(wasm_v128_load(t.a_norms + s), wasm_v128_load(t.norms + s)));
    if (!wasm_v128_any_true(wasm_f32x4_gt(most, wasm_f32x4_splat(MOST)))) return SEGMENT >> n;
  }
  return 0;
}

// Of the segments from `at` on, which is where the next ones begin then: how many steps follow one another, 0: none.
inline isize next_runs(const Tile& t, isize count, isize& at) {
  const isize from = at, row = norms_row(t.steps);
  float x = 0, y = 0;
  for (; t.a_norms && at < count; at++) {
    x += t.a_norms[at], y += t.norms[at];
    if (!fits(x, y)) break;
  }
  if (at > from) return (at - from) * SEGMENT;
  at++;
  for (isize n = 1; t.a_norms && n < 3; n++)
    if (fits(t.a_norms[n * row + from], t.norms[n * row + from])) return SEGMENT >> n;
  return 0;
}

template <int M, int V> [[gnu::noinline]] void tile_runs(const Tile& t) {
  VI acc[M][V];
  const char* a[M];
  const int8_t* b;
  auto step = [&](int at, auto add) __attribute__((always_inline)) {
    v128_t bv[V];
    for (int v = 0; v < V; v++) bv[v] = wasm_v128_load(b + (at * V + v) * 16);
    for (int i = 0; i < M; i++) {
      const v128_t quad = wasm_v128_load32_splat(a[i] + at * 4);
      for (int v = 0; v < V; v++) acc[i][v] = add(acc[i][v], wasm_i16x8_relaxed_dot_i8x16_i7x16(bv[v], quad));
      for (int v = 0; v < V; v++) pin(acc[i][v]);
    }
  };
  auto steps = [&](isize count, auto add) __attribute__((always_inline)) {
    auto on = [&](int steps) {
      b += steps * V * 16;
      pin(b);
      for (int i = 0; i < M; i++) {
        a[i] += steps * 4;
        pin(a[i]);
      }
    };
    for (; count >= WINDOW; count -= WINDOW) {
      step(0, add), step(1, add), step(2, add), step(3, add);
      on(WINDOW);
    }
    for (; count > 0; count--) {
      step(0, add);
      on(1);
    }
  };
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) acc[i][v] = t.start ? load_i(t.start + v * W) : splat_i(0);
  const char* from[M];
  for (int i = 0; i < M; i++) from[i] = t.a + t.row(i) * t.a_rs;
  b = t.other;
  for (isize r = 0; r < t.n_other; r++, b += V * 16) {
    for (int i = 0; i < M; i++) a[i] = from[i] + t.other_at[r] * 4;
    step(0, add_wide);
  }
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) store_i(t.out + (i * V + v) * W, acc[i][v]);
  b = t.b;
  for (int i = 0; i < M; i++) a[i] = from[i];
  const v128_t center = wasm_i16x8_splat(int16_t(t.center));
  i32* const out = t.out;
  const int16_t* lanes = t.lanes;
  // What the center of a row is multiplied by in `count` windows.
  auto less = [&](isize count, v128_t (&to)[V]) __attribute__((always_inline)) {
    for (int v = 0; v < V; v++) to[v] = wasm_i16x8_sub(wasm_v128_load(lanes + v * 8), wasm_v128_load(lanes + (count * V + v) * 8));
    lanes += count * V * 8;
  };
  const isize count = segments(t.steps);
  const isize even = t.a_norms ? even_runs(t) : 0;
  isize left = t.steps;
  for (isize done = 0; done < count;) {
    const isize from = done, run = even ? even : next_runs(t, count, done);
    if (even) done = count;
    isize all = least(done * SEGMENT - from * SEGMENT, left);
    left -= all;
    v128_t centers[V];
    if (!run) {
      less(windows(all), centers);
      for (int i = 0; i < M; i++)
        for (int v = 0; v < V; v++) acc[i][v] = load_i(out + (i * V + v) * W) + (VI)wasm_i32x4_dot_i16x8(centers[v], center);
      steps(all, add_wide);
      for (int i = 0; i < M; i++)
        for (int v = 0; v < V; v++) store_i(out + (i * V + v) * W, acc[i][v]);
    }
    for (; run && all > 0; all -= run) {
      const isize some = least(run, all);
      less(windows(some), centers);
      for (int i = 0; i < M; i++)
        for (int v = 0; v < V; v++) acc[i][v] = (VI)wasm_i16x8_mul(centers[v], center);
      steps(some, [](VI sum, v128_t products) { return (VI)wasm_i16x8_add((v128_t)sum, products); });
      for (int i = 0; i < M; i++)
        for (int v = 0; v < V; v++) {
          i32* to = out + (i * V + v) * W;
          store_i(to, load_i(to) + (VI)wasm_i32x4_extadd_pairwise_i16x8((v128_t)acc[i][v]));
        }
    }
  }
}

// Rows of int16 by a panel as it lies: of each column, rows 0, 1 and rows 2, 3 of all steps are added up apart; of more than one row, two
// columns of a vector after the other two, whose sums take all registers.
template <int M, int V> [[gnu::noinline]] void tile_wide(const Tile& t) {
  constexpr int HALVES = M == 1 ? 2 : 1;
  VI sums[2][M][V];
  for (int first = 0; first < 2; first += HALVES) {
    VI acc[HALVES][M][V]{};
    const int8_t* b = t.b + first * 8;
    const char* a[M];
    for (int i = 0; i < M; i++) a[i] = t.wide + t.row(i) * t.wide_rs;
    for (isize s = t.steps; s > 0; s--) {
      v128_t rows[M];
      for (int i = 0; i < M; i++) rows[i] = wasm_v128_load64_splat(a[i]);
#pragma unroll
      for (int v = 0; v < V; v++)
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
          const v128_t weights = wasm_i16x8_load8x8(b + v * 16 + half * 8);
          for (int i = 0; i < M; i++) acc[half][i][v] += (VI)wasm_i32x4_dot_i16x8(weights, rows[i]);
          for (int i = 0; i < M; i++) pin(acc[half][i][v]);
        }
      b += V * 16;
      pin(b);
      for (int i = 0; i < M; i++) {
        a[i] += 8;
        pin(a[i]);
      }
    }
    __builtin_memcpy(sums[first], acc, sizeof acc);
  }
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) {
      const VI low = sums[0][i][v], high = sums[1][i][v];
      const VI sum = __builtin_shufflevector(low, high, 0, 2, 4, 6) + __builtin_shufflevector(low, high, 1, 3, 5, 7);
      store_i(t.out + (i * V + v) * W, t.start ? sum + load_i(t.start + v * W) : sum);
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
  const char *a[M], *bytes[M], *wide[M];
  for (int i = 0; i < M; i++) bytes[i] = t.a + t.row(i) * t.a_rs, wide[i] = t.wide + t.row(i) * t.wide_rs;
  auto rows = [&](const char* const (&from)[M], isize at) {
    for (int i = 0; i < M; i++) {
      a[i] = from[i] + at;
      pin(a[i]);
    }
  };
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) acc[i][v] = t.start ? load_i(t.start + v * W) : splat_i(0);
  auto pairs = [](VI sum, v128_t b, v128_t a) { return sum + (VI)wasm_i32x4_dot_i16x8(a, b); };
  for (isize s = 0; s < t.n_other; s++) {
    rows(wide, t.other_at[s] * 8);
    step(b, a, 0, pairs);
    step(b + V * 16, a, 4, pairs);
    on(2);
  }
  b = t.b;
  auto quads = [](VI sum, v128_t b, v128_t a) { return add_wide(sum, wasm_i16x8_relaxed_dot_i8x16_i7x16(b, a)); };
  for (isize s = 0; s < t.n; s++) {
    rows(bytes, t.at[s] * 4);
    step(b, a, 0, quads);
    on(1);
  }
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) store_i(t.out + (i * V + v) * W, acc[i][v]);
}
#else
constexpr bool MAY_SATURATE = false;
template <int V> void arrange(const int8_t*, isize, isize, bool, const float*, Arranged&) {}
template <int M, int V> void tile_runs(const Tile&) {}
template <int M, int V> void tile_mixed(const Tile&) {}
template <int M, int V> void tile_wide(const Tile&) {}
#endif

template <int V> inline isize tile_saturating(const Tile& t) {
  if (t.way == Way::WIDE) t.rows > 1 ? tile_wide<ROWS, V>(t) : tile_wide<1, V>(t);
  else if (t.way == Way::MIXED) t.rows > 1 ? tile_mixed<ROWS, V>(t) : tile_mixed<1, V>(t);
  else t.rows > 1 ? tile_runs<ROWS, V>(t) : tile_runs<1, V>(t);
  return t.rows;
}

template <int V> inline isize tile_rows(const Tile& t, Quads kind, isize rows) {
  if (MAY_SATURATE && kind == Quads::SATURATING) return tile_saturating<V>(t);
  auto one = [&]<int M>() -> isize {
    if constexpr (M % 2 == 0)
      if (by_matrices() && kind == Quads::SIGNED) return tile_matrices<M, V>(t), M;
    if (kind != Quads::NONE) tile_quads<M, V>(t);
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
