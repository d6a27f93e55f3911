// How to go about a product, its scratch, and its division among threads. Where packed columns come from is the packer's business: a
// strided matrix (pack_matrix), the windows of an image (conv.cpp), blocks of few bits (matmul_nbits.cpp).
#include "gemm.h"

#include <algorithm>

#include "gemm/row.h"
#include "gemm/rows.h"

namespace gemm {

void run_packed(Call& call, const Product& base, const Batch& batch, isize unit, const Packer& packer) {
  const int threads = pool_threads(call.pool), wanted = threads == 1 ? 1 : 4 * threads;
  const Blocks s = blocks_of(base, unit);
  const isize groups = (base.n + s.group - 1) / s.group;
  const isize parts = least(proven((wanted + batch.count * groups - 1) / (batch.count * groups)), (base.m + 31) / 32);
  const isize part_rows = round_up((base.m + parts - 1) / parts, TILE_ROWS[NV]), splits = (base.m + part_rows - 1) / part_rows;
  const double flops = 2.0 * double(least(part_rows, base.m)) * double(least(s.group, base.n)) * double(base.k);
  const isize each = s.packed_floats + (base.a_cs == 1 ? 0 : s.rows_floats);
  parallel_for(call.pool, batch.count * splits * groups, i64(MIN_FLOPS / (flops + 1)) + 1, [&](i64 begin, i64 end, int thread) {
    float* packed = reinterpret_cast<float*>(call.scratch) + thread * each;
    for (i64 i = begin; i < end;) {
      const isize g = proven(i % groups), run = proven(std::min<i64>(end - i, groups - g)), row = proven(i / groups % splits * part_rows);
      const Product p = batch.at(base, i / groups / splits);
      const isize row_end = least(row + part_rows, p.m), column_end = least((g + run) * s.group, p.n);
      product_range(p, packer, row, row_end, g * s.group, column_end, s, packed, packed + s.packed_floats);
      i += run;
    }
  });
}

enum class Way { DOT_ROWS, DOT_COLUMNS, STREAM, PACKED };

// How to go about a product; only sizes and strides count, so that scratch can be told beforehand.
PWX_SMALL static Way way(const Product& p) {
  if (p.band) return Way::PACKED;
  if (p.b_rs == 1 && (p.b_cs != 1 || p.n == 1) && p.m <= 8) return Way::DOT_ROWS;
  if (p.b_cs == 1 && p.m <= 4) return Way::STREAM;
  if (p.a_cs == 1 && p.n <= most(W / 2, 1) && p.k >= W) return Way::DOT_COLUMNS;
  return Way::PACKED;
}

Size scratch_bytes(const Product& p, int threads) {
  const Size bytes = Size(4) * threads;
  switch (way(p)) {
    case Way::STREAM: return 0;
    case Way::DOT_ROWS: return p.a_cs == 1 ? 0 : bytes * p.m * p.k;
    case Way::DOT_COLUMNS: return p.b_rs == 1 ? 0 : bytes * p.n * p.k;
    case Way::PACKED: break;
  }
  const Blocks s = blocks_of(p, 1);
  return bytes * (s.packed_floats + (p.a_cs == 1 ? 0 : s.rows_floats));
}

void run(Call& call, const Product& base, const Batch& batch) {
  const Way w = way(base);
  if (w == Way::PACKED) return run_packed(call, base, batch, 1, {nullptr, pack_matrix});
  const isize length = w == Way::DOT_COLUMNS ? base.m : base.n, few = w == Way::DOT_COLUMNS ? base.n : base.m;
  const isize unit = w == Way::STREAM ? 64 : 4, units = (length + unit - 1) / unit;
  const double flops = 2.0 * double(few) * double(unit) * double(base.k);
  parallel_for(call.pool, batch.count * units, i64(MIN_FLOPS / (flops + 1)) + 1, [&](i64 begin, i64 end, int thread) {
    float* copy = reinterpret_cast<float*>(call.scratch) + i64(thread) * few * base.k;
    for (i64 i = begin; i < end;) {
      const isize u = proven(i % units), run = proven(std::min<i64>(end - i, units - u)), from = u * unit, to = least((u + run) * unit, length);
      const Product p = batch.at(base, i / units);
      i += run;
      if (w == Way::STREAM) {
        stream(p, from, to);
      } else if (w == Way::DOT_ROWS) {
        if (p.a_cs != 1) copy_matrix(p.a, p.a_rs, p.a_cs, copy, p.k, p.m, p.k);
        dot_rows(p.a_cs == 1 ? p.a : copy, p.a_cs == 1 ? p.a_rs : p.k, p.m, p.b, p.b_cs, from, to, p.k, p.y, p.y_rs, 1);
        for (isize r = 0; r < p.m; r++) p.e.finish(r, from, to - from, p.y + r * p.y_rs + from, false);
      } else {
        if (p.b_rs != 1) copy_matrix(p.b, p.b_cs, p.b_rs, copy, p.k, p.n, p.k);
        dot_rows(p.b_rs == 1 ? p.b : copy, p.b_rs == 1 ? p.b_cs : p.k, p.n, p.a, p.a_rs, from, to, p.k, p.y, 1, p.y_rs);
        for (isize r = from; r < to; r++) p.e.finish(r, 0, p.n, p.y + r * p.y_rs, false);
      }
    }
  });
}

PWX_SMALL void run_row(Call& call, const Product& p) {
  const Blocks s = blocks_of(p, 1);
  const isize each = s.packed_floats + (p.a_cs == 1 ? 0 : s.rows_floats);
  const double flops = 2.0 * NR * double(p.k);
  parallel_for(call.pool, (p.n + NR - 1) / NR, i64(MIN_FLOPS / (flops + 1)) + 1, [&](i64 begin, i64 end, int thread) __attribute__((minsize)) {
    float* packed = reinterpret_cast<float*>(call.scratch) + thread * each;
    const isize last = least(proven(end) * NR, p.n), rest = row_panels(p, proven(begin) * NR, last);
    product_range(p, {nullptr, pack_matrix}, 0, 1, rest, last, s, packed, packed + s.packed_floats);
  });
}

}  // namespace gemm
