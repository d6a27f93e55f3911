// Many rows against panels of columns whose codes of 4 or 8 bits are laid out once for all rows, where one instruction sums products of four
// bytes: exact sums of integers in each block, of rows as they are for few (nbits/digits.h).
#pragma once
#include <algorithm>

#include "nbits/digits.h"
#include "nbits/take.h"

#if defined(PWX_GROUPS)

namespace nbits {

constexpr int PANEL = 2 * TOGETHER;  // columns
constexpr isize PANEL_DEPTH = 1024;  // codes of a column that are taken apart at a time, or a block
constexpr isize PANELS_FINISHED = 4;  // at a time: activations take four vectors of a row side by side
constexpr int PANEL_ROWS = 3;        // with two digits and two vectors twelve sums, which hide the latency of an instruction

// What is known of a block of a tile's rows.
struct RowBlocks {
  int32_t begin[PANEL_ROWS][2];  // of each digit's sums: the code that stands for 0 is taken off
  float units[PANEL_ROWS], sums[PANEL_ROWS];
};

struct DigitPanels {
  const Weights& w;
  isize m, depth;
  RowBlocks* known;  // [m / PANEL_ROWS, blocks]
  int8_t* rows;      // [m, 2 * depth]

  DigitPanels(char* memory, const Weights& from, isize rows_given)
      : w(from), m(rows_given), depth(w.count * w.block), known(reinterpret_cast<RowBlocks*>(memory)) {
    rows = reinterpret_cast<int8_t*>(known + (m + PANEL_ROWS - 1) / PANEL_ROWS * w.count);
  }
  static Size bytes(const MatmulNbitsParams& p) {
    return round_up(ceil_div(p.m, PANEL_ROWS) * blocks(p) * sizeof(RowBlocks) + Size(p.m) * blocks(p) * p.block * 2, 64);
  }
  // Of a thread: a panel; scales and offsets of its columns; two groups; while rows are taken, one of int16 and what is known of it.
  static Size own_bytes(const MatmulNbitsParams& p) {
    const Size panel = Size(steps(p.block)) * p.block * PANEL, factors = round_up(Size(blocks(p)) * PANEL * 8, 64);
    const Size groups = Group::bytes(blocks(p), p.bits, p.block) * 2, row = Size(blocks(p)) * (Size(p.block) * 2 + 16);
    return round_up(Size(std::max((panel + factors + groups).value(), row.value())), 64);
  }
  static isize steps(i64 block) { return block >= PANEL_DEPTH ? 1 : PANEL_DEPTH / proven(block); }

  static bool fit(const MatmulNbitsParams& p) {
    return p.rounded > 1 && p.block % 32 == 0 && p.block <= 512 && grouped(p.bits, p.block) && !in_pairs();
  }
  // What the codes that are read are more than those that are meant, where 0 is one of them.
  float flipped() const { return flips(w.bits) ? 128 : 0; }
  int zero() const { return w.shifts ? 0 : (1 << (w.bits - 1)) - int(flipped()); }

  // False where a number is not finite, or a block too small to be scaled. own: of own_bytes for each thread.
  bool take(Call& call, const float* a, isize a_rs, isize k, char* own, isize each) {
    bool good = true;
    parallel_for(call.pool, m, (1 << 14) / (k + 1) + 1, [&](i64 begin, i64 end, int thread) {
      float *units = reinterpret_cast<float*>(own + thread * each), *sums = units + w.count;
      int32_t* starts = reinterpret_cast<int32_t*>(sums + w.count);
      int16_t* row = reinterpret_cast<int16_t*>(starts + w.count * 2);
      for (isize i = proven(begin); i < proven(end); i++) {
        if (!round_row(w, a + i * a_rs, k, row, units, sums)) {
          __atomic_store_n(&good, false, __ATOMIC_RELAXED);
          continue;
        }
        int8_t* to = rows + i * depth * 2;
        spread_digits(row, nullptr, depth, w.bits, 2, to);
        begin_sums(to, w.count, w.block, 2, zero(), starts);
        const isize at = i % PANEL_ROWS;
        for (isize b = 0; b < w.count; b++) {
          RowBlocks& block = known[i / PANEL_ROWS * w.count + b];
          block.begin[at][0] = starts[b * 2], block.begin[at][1] = starts[b * 2 + 1];
          block.units[at] = units[b], block.sums[at] = sums[b];
        }
      }
    });
    return good;
  }
};

struct DigitTile {
  const int8_t* a;
  isize length;  // bytes of a from row to row
  const RowBlocks* known;
  const Bytes* panel;
  const float *scales, *offsets;  // [blocks, PANEL]
  isize blocks, block;
  float* y;  // [M, PANEL], added to
};

// SHIFTED: there are offsets.
template <int M, bool SHIFTED> [[gnu::noinline]] PWX_QUADS void digit_tile(const DigitTile& given) {
  typedef int32_t Quad __attribute__((may_alias));
  DigitTile t = given;
  const Quad* a[M];
  for (int i = 0; i < M; i++) a[i] = reinterpret_cast<const Quad*>(t.a + i * t.length);
  for (isize b = 0; b < t.blocks; b++) {
    VI acc[M][2][2];
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int d = 0; d < 2; d++) acc[i][d][0] = acc[i][d][1] = splat_i(SHIFTED ? 0 : t.known->begin[i][d]);
    for (isize k = 0; k < t.block; k += 8) {
#pragma unroll
      for (int p = 0; p < 2; p++) {
        const Bytes codes[2] = {t.panel[2 * p], t.panel[2 * p + 1]};
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
          for (int d = 0; d < 2; d++) {
            const int32_t digits = a[i][2 * p + d];
#pragma unroll
            for (int v = 0; v < 2; v++) acc[i][d][v] = digit_dot(acc[i][d][v], codes[v], digits), pin(acc[i][d][v]);
          }
      }
      t.panel += 4;
      pin(t.panel);
#pragma unroll
      for (int i = 0; i < M; i++) {
        a[i] += 4;
        pin(a[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < M; i++) {
      const VF unit = splat(t.known->units[i]);
#pragma unroll
      for (int v = 0; v < 2; v++) {
        float* y = t.y + i * PANEL + v * W;
        const VF sum = __builtin_convertvector(acc[i][0][v] + (acc[i][1][v] << splat_i(8)), VF) * unit;
        VF whole = load(y) + load(t.scales + v * W) * sum;
        if (SHIFTED) whole -= load(t.offsets + v * W) * splat(t.known->sums[i]);
        store(y, whole);
      }
    }
    t.known++, t.scales += PANEL, t.offsets += PANEL;
    pin(t.known), pin(t.scales), pin(t.offsets);
  }
}

template <bool SHIFTED> void digit_tile_of(const DigitTile& t, isize rows) {
  if (rows == 3) digit_tile<3, SHIFTED>(t);
  else if (rows == 2) digit_tile<2, SHIFTED>(t);
  else digit_tile<1, SHIFTED>(t);
}

// Codes [from, from + n) of the columns of two groups, as the tile reads them, four of each column at a time: of 4 bits, for each word the
// low halves of its bytes, then the others.
[[gnu::noinline]] inline void take_apart(const Group (&groups)[2], isize bits, isize from, isize n, Bytes* panel) {
  const Bytes mask = low_nibbles();
  for (int v = 0; v < 2; v++) {
    const char* words = groups[v].codes + from * bits / 8 * TOGETHER;
    Bytes* out = panel + v;
    for (isize k = 0; k < n; k += 32 / bits) {
      const Bytes all = load_as<Bytes>(words);
      words += sizeof(Bytes);
      if (bits == 8) *out = all, out += 2;
      else out[0] = all & mask, out[2] = shifted(all) & mask, out += 4;
    }
  }
}

// Columns [j, j + n) of all rows of q, n <= PANEL, of which j + n are asked for in all. memory: of own_bytes; each: bytes of a group.
inline void digit_panel(const DigitPanels& p, const gemm::Product& q, isize j, isize n, char* memory, isize each) {
  const Weights& w = p.w;
  const isize steps = DigitPanels::steps(w.block);
  Bytes* panel = reinterpret_cast<Bytes*>(memory);
  float *scales = reinterpret_cast<float*>(memory + steps * w.block * PANEL), *offsets = scales + w.count * PANEL;
  char* own = memory + steps * w.block * PANEL + gemm::round_up(w.count * PANEL * 8, 64);
  const auto tile = w.shifts ? digit_tile_of<true> : digit_tile_of<false>;
  const isize at = j / TOGETHER;
  const Group groups[2] = {{w, at, own}, {w, n > TOGETHER ? at + 1 : at, own + each}};
  for (isize b = 0; b < w.count; b++)
    for (int v = 0; v < 2; v++) {
      const VF scale = groups[v].scale(w, b);
      store(scales + b * PANEL + v * W, scale);
      if (w.shifts) store(offsets + b * PANEL + v * W, groups[v].offset(w, b) - scale * splat(p.flipped()));
    }
  for (isize b = 0; b < w.count; b += steps) {
    DigitTile t{};
    t.blocks = least(steps, w.count - b), t.block = w.block, t.length = p.depth * 2, t.panel = panel;
    t.scales = scales + b * PANEL, t.offsets = offsets + b * PANEL;
    take_apart(groups, w.bits, b * w.block, t.blocks * w.block, panel);
    for (isize i = 0, rows; i < p.m; i += rows) {
      float sums[PANEL_ROWS * PANEL];
      rows = least(PANEL_ROWS, p.m - i);
      t.a = p.rows + i * t.length + b * w.block * 2, t.known = p.known + i / PANEL_ROWS * w.count + b, t.y = sums;
      float* y = q.y + i * q.y_rs + j;
      auto each = [&](auto f) __attribute__((always_inline)) {
        for (isize r = 0; r < rows; r++)
#pragma unroll
          for (int v = 0; v < 2; v++) f(r, v * W, gemm::most(least(n - v * W, W), 0), sums + r * PANEL + v * W);
      };
      if (b) each([&](isize r, int c, isize some, float* sum) { store(sum, load_part(y + r * q.y_rs + c, some)); });
      else each([&](isize r, int c, isize some, float* sum) { store(sum, q.e.start(i + r, j + c, some)); });
      tile(t, rows);
      each([&](isize r, int c, isize some, const float* sum) { store_part(y + r * q.y_rs + c, load(sum), some); });
    }
  }
}

// False where the rows cannot be rounded; nothing is done then. all, own: bytes of scratch of all threads, and of each.
inline bool panels(Call& call, DigitPanels p, const gemm::Product& q, isize all, isize own) {
  const isize each = proven(Group::bytes(p.w.count, p.w.bits, p.w.block).value());
  if (!p.take(call, q.a, q.a_rs, q.k, call.scratch + all, own)) return false;
  const isize count = (q.n + PANEL - 1) / PANEL;
  parallel_for(call.pool, count, gemm::MIN_FLOPS / (2 * q.m * q.k * PANEL + 1) + 1, [&](i64 begin, i64 end, int thread) {
    const isize last = least(proven(end) * PANEL, q.n);
    for (isize first = proven(begin) * PANEL, n; first < last; first += n) {
      n = least(PANELS_FINISHED * PANEL, last - first);
      for (isize at = first; at < first + n; at += PANEL)
        digit_panel(p, q, at, least(PANEL, q.n - at), call.scratch + all + thread * own, each);
      q.e.finish_rows(0, q.m, first, n, q.y + first, q.y_rs);
    }
  });
  return true;
}

}  // namespace nbits
#endif
