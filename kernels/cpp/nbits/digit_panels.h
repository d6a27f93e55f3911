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
constexpr int PANEL_ROWS = 3;        // with two digits and two vectors twelve sums, which hide the latency of an instruction

struct DigitPanels {
  const Weights& w;
  isize m, depth;
  int8_t* rows;         // [m, 2 * depth]
  float *units, *sums;  // [m, blocks]

  DigitPanels(char* memory, const Weights& from, isize rows_given) : w(from), m(rows_given), depth(w.count * w.block) {
    units = reinterpret_cast<float*>(memory), sums = units + m * w.count;
    rows = reinterpret_cast<int8_t*>(sums + m * w.count);
  }
  static Size bytes(const MatmulNbitsParams& p) {
    return round_up(Size(p.m) * blocks(p) * 8 + Size(p.m) * blocks(p) * p.block * 2, 64);
  }
  // Of a thread: a panel; scales and offsets of its columns; two groups; a row of int16 while rows are taken.
  static Size own_bytes(const MatmulNbitsParams& p) {
    const Size panel = Size(steps(p.block)) * p.block * PANEL, factors = round_up(Size(blocks(p)) * PANEL * 8, 64);
    return round_up(Size(std::max((panel + factors + Group::bytes(blocks(p), p.bits, p.block) * 2).value(), (Size(blocks(p)) * p.block * 2).value())), 64);
  }
  static isize steps(i64 block) { return block >= PANEL_DEPTH ? 1 : PANEL_DEPTH / proven(block); }

  static bool fit(const MatmulNbitsParams& p) {
    return p.rounded > 1 && p.block % 32 == 0 && p.block <= 512 && grouped(p.bits, p.block) && !in_pairs();
  }

  // False where a number is not finite, or a block too small to be scaled. own: of own_bytes for each thread.
  bool take(Call& call, const float* a, isize a_rs, isize k, char* own, isize each) {
    bool good = true;
    parallel_for(call.pool, m, (1 << 14) / (k + 1) + 1, [&](i64 begin, i64 end, int thread) {
      int16_t* row = reinterpret_cast<int16_t*>(own + thread * each);
      for (isize i = proven(begin); i < proven(end); i++)
        if (round_row(w, a + i * a_rs, k, row, units + i * w.count, sums + i * w.count))
          spread_digits(row, nullptr, depth, w.bits, 2, rows + i * depth * 2);
        else
          __atomic_store_n(&good, false, __ATOMIC_RELAXED);
    });
    return good;
  }
};

struct DigitTile {
  const int8_t* a;
  isize length, count;  // from row to row: bytes of a, elements of units and sums
  const float *units, *sums;
  const Bytes* panel;
  const float *scales, *offsets;  // [blocks, PANEL]; without offsets the middle code is taken off
  float zero, flipped;            // what is taken off the codes for it, and what was
  isize blocks, block;
  float* y;  // [M, PANEL], added to
};

template <int M> [[gnu::noinline]] PWX_QUADS void digit_tile(const DigitTile& t) {
  typedef int32_t Quad __attribute__((may_alias));
  const Bytes* panel = t.panel;
  VF zero = splat(t.zero), flipped = splat(t.flipped);
  pin(zero), pin(flipped);  // LLVM would multiply what lies beside them too, and pointers are subnormal
  const Quad* a[M];
  for (int i = 0; i < M; i++) a[i] = reinterpret_cast<const Quad*>(t.a + i * t.length);
  for (isize b = 0; b < t.blocks; b++) {
    VI acc[M][2][2];
#pragma unroll
    for (int i = 0; i < M; i++) acc[i][0][0] = acc[i][0][1] = acc[i][1][0] = acc[i][1][1] = splat_i(0);
    for (isize k = 0; k < t.block; k += 8) {
#pragma unroll
      for (int p = 0; p < 2; p++) {
        const Bytes codes[2] = {panel[2 * p], panel[2 * p + 1]};
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
          for (int d = 0; d < 2; d++) {
            const int32_t digits = a[i][2 * p + d];
#pragma unroll
            for (int v = 0; v < 2; v++) acc[i][d][v] = digit_dot(acc[i][d][v], codes[v], digits), pin(acc[i][d][v]);
          }
      }
      panel += 4;
      pin(panel);
#pragma unroll
      for (int i = 0; i < M; i++) {
        a[i] += 4;
        pin(a[i]);
      }
    }
    const float *scales = t.scales + b * PANEL, *offsets = t.offsets + b * PANEL;
#pragma unroll
    for (int i = 0; i < M; i++) {
      const VF unit = splat(t.units[i * t.count + b]), all = splat(t.sums[i * t.count + b]);
#pragma unroll
      for (int v = 0; v < 2; v++) {
        float* y = t.y + i * PANEL + v * W;
        const VF sum = __builtin_convertvector(acc[i][0][v] + (acc[i][1][v] << splat_i(8)), VF) * unit;
        if (t.offsets) store(y, load(y) + load(scales + v * W) * (sum + all * flipped) - load(offsets + v * W) * all);
        else store(y, load(y) + load(scales + v * W) * (sum - all * zero));
      }
    }
  }
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
  const isize at = j / TOGETHER;
  const Group groups[2] = {{w, at, own}, {w, n > TOGETHER ? at + 1 : at, own + each}};
  for (isize b = 0; b < w.count; b++)
    for (int v = 0; v < 2; v++) {
      store(scales + b * PANEL + v * W, groups[v].scale(w, b));
      if (w.shifts) store(offsets + b * PANEL + v * W, groups[v].offset(w, b));
    }
  for (isize b = 0; b < w.count; b += steps) {
    DigitTile t{};
    t.blocks = least(steps, w.count - b), t.block = w.block, t.length = p.depth * 2, t.count = w.count, t.panel = panel;
    t.flipped = flips(w.bits) ? 128 : 0, t.zero = float(1 << (w.bits - 1)) - t.flipped;
    t.scales = scales + b * PANEL, t.offsets = w.shifts ? offsets + b * PANEL : nullptr;
    take_apart(groups, w.bits, b * w.block, t.blocks * w.block, panel);
    for (isize i = 0, rows; i < p.m; i += rows) {
      float sums[PANEL_ROWS * PANEL] = {};
      rows = least(PANEL_ROWS, p.m - i);
      t.a = p.rows + i * t.length + b * w.block * 2, t.units = p.units + i * w.count + b, t.sums = p.sums + i * w.count + b, t.y = sums;
      float* y = q.y + i * q.y_rs + j;
      if (b)
        for (isize r = 0; r < rows; r++) __builtin_memcpy(sums + r * PANEL, y + r * q.y_rs, size_t(n) * 4);
      if (rows == 3) digit_tile<3>(t);
      else if (rows == 2) digit_tile<2>(t);
      else digit_tile<1>(t);
      for (isize r = 0; r < rows; r++) {
        __builtin_memcpy(y + r * q.y_rs, sums + r * PANEL, size_t(n) * 4);
        if (b + steps >= w.count) q.e.finish(i + r, j, n, y + r * q.y_rs, false);
      }
    }
  }
}

// False where the rows cannot be rounded; nothing is done then. all, own: bytes of scratch of all threads, and of each.
inline bool panels(Call& call, DigitPanels p, const gemm::Product& q, isize all, isize own) {
  const isize each = proven(Group::bytes(p.w.count, p.w.bits, p.w.block).value());
  if (!p.take(call, q.a, q.a_rs, q.k, call.scratch + all, own)) return false;
  const isize count = (q.n + PANEL - 1) / PANEL;
  parallel_for(call.pool, count, gemm::MIN_FLOPS / (2 * q.m * q.k * PANEL + 1) + 1, [&](i64 begin, i64 end, int thread) {
    for (isize at = proven(begin) * PANEL; at < least(proven(end) * PANEL, q.n); at += PANEL)
      digit_panel(p, q, at, least(PANEL, q.n - at), call.scratch + all + thread * own, each);
  });
  return true;
}

}  // namespace nbits
#endif
