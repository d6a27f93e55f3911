// Matrix products of 8-bit integers: sum_k (a[i, k] - za[i]) * (b[k, j] - zb[j]), exact in int32, and what follows the sum.
// Columns of `b` are packed into panels of bytes, `unit` rows of b side by side. Rows of `a` are packed with their zero point taken
// off as pairs of int16 (`pmaddwd`, `i32x4.dot_i16x8_s`), or as groups of four bytes where the processor multiplies those (VNNI).
#pragma once
#include <algorithm>

#include "qgemm/check.h"
#include "qgemm/finish.h"
#include "qgemm/pack.h"
#include "qgemm/runs.h"

namespace qgemm {

constexpr isize GROUP = 8 * NR;       // columns of one item of work
// How many columns the panel from column j takes of those before `end`: none reaches over into the next item.
inline isize columns_from(isize j, isize end) { return panel_columns(least(end, (j / GROUP + 1) * GROUP) - j); }
constexpr i64 MAX_DEPTH = i64(1) << 24;  // terms of a sum, so that packed panels have an index of 32 bits

// Rows of unsigned bytes as int16.
[[gnu::noinline]] inline void widen_rows(const Rows& rows, isize count, isize depth, uint16_t* out) {
  for (isize i = 0; i < count; i++, out += depth) {
    const uint8_t* a = reinterpret_cast<const uint8_t*>(rows.at + i * rows.step);
    for (isize k = 0; k < depth; k++) out[k] = a[k];
  }
}

// Rows [i0, i1) by columns [j0, j1).
inline void range(const Product& p, const Operands& operands, const Layout& s, isize i0, isize i1, isize j0, isize j1, char* scratch) {
  char* memory = scratch + s.bytes;
  const bool by_quads = s.kind != Quads::NONE, started = by_quads && p.za_s == 0;
  uint8_t* b = reinterpret_cast<uint8_t*>(scratch + s.a_bytes);
  i32 *row_sums = reinterpret_cast<i32*>(scratch + s.a_bytes + s.b_bytes), *column_sums = row_sums + s.rows;
  char* more = scratch + s.a_bytes + s.b_bytes + s.sums_bytes;
  Arranged plan{};
  plan.memory = reinterpret_cast<int8_t*>(b), plan.other = reinterpret_cast<int8_t*>(more);
  more += 2 * s.b_bytes, plan.at = reinterpret_cast<i32*>(more);
  more += s.runs_bytes, plan.other_at = reinterpret_cast<i32*>(more);
  more += s.runs_bytes, plan.measured = reinterpret_cast<float*>(more);
  const isize spans = segments(s.depth / s.unit);
  float* const norms = plan.measured + measure_count(s.depth / s.unit);
  more += s.norms_bytes, plan.lanes = reinterpret_cast<int16_t*>(more);
  more += lanes_bytes(spans);
  uint16_t* wide = reinterpret_cast<uint16_t*>(more);
  char* ones = scratch + s.rows * s.a_rs;
  if (by_quads && !p.packed) __builtin_memset(ones, 1, size_t(s.depth));
  Finisher finisher(p, started || !by_quads ? Quads::NONE : s.kind);
  const i32 zero = started ? p.zero_a(0) + p.shift_a(s.kind) : 0;
  alignas(64) i32 sums[ROWS * NR], start[NR], zeros[NR];
  const bool with_zeros = p.zeros_b(), saturates = MAY_SATURATE && s.kind == Quads::SATURATING;
  for (isize block = i0; block < i1; block += s.rows) {
    const isize end = least(block + s.rows, i1);
    const Rows packed = operands.rows(p, s, block, end, scratch, memory);
    if (with_zeros) sum_rows(p, s, packed, block, end, row_sums);
    bool widened = false, normed = false;
    i32 center = 0;  // of the rows, taken off where they are added up in int16
    for (isize j = j0, n; j < j1; j += n) {
      n = columns_from(j, j1);
      const isize width = round_up(n, W), vectors = width / W;
      Tile t{};
      t.steps = s.depth / s.unit;
      t.b = reinterpret_cast<int8_t*>(b);
      const i32* columns = column_sums;
      if (p.packed) columns = p.packed_sums + j, t.b = p.packed + j * s.depth;
      else operands.panel(p, j, n, width, s.unit, b, memory);
      if (saturates) {
        const float* measured = p.packed && p.measures ? measures_at(p, j) : nullptr;
        auto arranged = [&]<int V>() { arrange<V>(t.b, t.steps, end - block, p.packed, measured, plan); };
        vectors == 3 ? arranged.template operator()<3>() : vectors == 2 ? arranged.template operator()<2>() : arranged.template operator()<1>();
        t.b = plan.b, t.other = plan.other, t.other_at = plan.other_at, t.n_other = plan.n_other, t.norms = plan.measure, t.lanes = plan.lanes;
      }
      if (!p.packed && by_quads) {
        Tile ones_by_b = t;
        ones_by_b.a = ones, ones_by_b.rows = 1, ones_by_b.out = column_sums;
        vectors == 3 ? tile_rows<3>(ones_by_b, s.kind, 1) : vectors == 2 ? tile_rows<2>(ones_by_b, s.kind, 1) : tile_rows<1>(ones_by_b, s.kind, 1);
      }
      if (saturates) {
        bool& done = plan.way == Way::SPLIT ? normed : widened;
        if (!done && plan.way == Way::SPLIT) {
          center = middle(packed.at, packed.step, end - block, s.depth);
          row_norms(packed.at, packed.step, end - block, s.depth, center, norms);
        } else if (!done) widen_rows(packed, end - block, s.depth, wide);
        done = true;
      }
      const bool by_runs = saturates && plan.way == Way::SPLIT;
      t.way = plan.way, t.at = plan.at, t.n = plan.n, t.wide_rs = s.depth * 2;
      t.a_rs = packed.step;
      t.center = by_runs ? center : 0;
      if (zero || t.center) {
        for (isize c = 0; c < width; c++) {
          const uint32_t centered = by_runs ? uint32_t(columns[c]) - uint32_t(plan.other_sums[c]) : 0;
          start[c] = i32(uint32_t(t.center) * centered - uint32_t(zero) * uint32_t(columns[c]));
        }
        t.start = start;
      }
      for (isize c = 0; with_zeros && c < width; c++) zeros[c] = c < n ? p.zero_b(j + c) : 0;
      finisher.columns(j, n);
      t.out = sums;
      for (isize i = block; i < end;) {
        t.a = packed.at + (i - block) * packed.step, t.a_norms = norms + (i - block) / ROWS * norms_count(t.steps);
        t.rows = least(ROWS, end - i), t.wide = reinterpret_cast<const char*>(wide + (i - block) * s.depth);
        const isize count = vectors == 3   ? tile_rows<3>(t, s.kind, end - i)
                            : vectors == 2 ? tile_rows<2>(t, s.kind, end - i)
                                           : tile_rows<1>(t, s.kind, end - i);
        if (with_zeros) take_zeros(sums, count, width, row_sums + (i - block), zeros);
        finisher.rows(i, j, n, count, sums, columns);
        i += count;
      }
    }
  }
}

// Runs `batches` products on the pool, which have `extra` bytes of memory to pack their operands.
inline void run(Call& call, i64 batches, isize extra, const Operands& operands) {
  const Product& size = operands.size;
  const Layout s = layout(size.m, size.k);
  const int threads = pool_threads(call.pool), wanted = threads == 1 ? 1 : 4 * threads;
  const isize groups = (size.n + GROUP - 1) / GROUP;
  const i64 items = batches * groups;
  const isize parts = least(proven((wanted + items - 1) / items), (size.m + 31) / 32);
  const isize part = round_up((size.m + parts - 1) / most(parts, 1), ROWS), splits = (size.m + part - 1) / part;
  const double flops = 2.0 * double(least(part, size.m)) * double(least(GROUP, size.n)) * double(size.k);
  parallel_for(call.pool, batches * splits * groups, i64(gemm::MIN_FLOPS / (flops + 1)) + 1, [&](i64 begin, i64 end, int thread) {
    char* scratch = call.scratch + thread * (s.bytes + extra);
    for (i64 i = begin; i < end;) {
      const isize g = proven(i % groups), run = proven(std::min<i64>(end - i, groups - g)), row = proven(i / groups % splits * part);
      const Product p = operands.at(i / groups / splits);
      range(p, operands, s, row, least(row + part, p.m), g * GROUP, least((g + run) * GROUP, p.n), scratch);
      i += run;
    }
  });
}

}  // namespace qgemm
