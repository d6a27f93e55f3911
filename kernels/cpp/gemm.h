// Matrix products of f32 over a batch: y[i, j] = sum_k a[i, k] * b[k, j]. How to go about one, its scratch, and its division among threads.
// Where packed columns come from is the packer's business: a strided matrix (gemm/pack.h), the windows of an image (conv.cpp).
#pragma once
#include <algorithm>

#include "gemm/product.h"
#include "gemm/rows.h"

namespace gemm {

struct Batch {
  int rank = 0;
  i64 count = 1, size[6], a[6], b[6], y[6], res[6], bias[6];

  void add(i64 n, i64 a_step, i64 b_step, i64 y_step, i64 res_step, i64 bias_step) {
    size[rank] = n, a[rank] = a_step, b[rank] = b_step, y[rank] = y_step, res[rank] = res_step, bias[rank] = bias_step;
    rank++;
    count *= n;
  }
  Product at(Product p, i64 index) const {
    for (int d = rank; d-- > 0; index /= size[d]) {
      const i64 i = index % size[d];
      p.a += i * a[d];
      p.b += i * b[d];
      p.y += i * y[d];
      if (p.e.res) p.e.res += i * res[d];
      if (p.e.bias) p.e.bias += i * bias[d];
    }
    return p;
  }
};

// Cuts batch x splits of the rows x groups of panels into items, and runs them on the pool.
[[gnu::noinline]] inline void run_packed(Call& call, const Product& base, const Batch& batch, isize unit, const Packer& packer) {
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
[[gnu::noinline]] PWX_SMALL inline Way way(const Product& p) {
  if (p.band) return Way::PACKED;
  if (p.b_rs == 1 && (p.b_cs != 1 || p.n == 1) && p.m <= 8) return Way::DOT_ROWS;
  if (p.b_cs == 1 && p.m <= 4) return Way::STREAM;
  if (p.a_cs == 1 && p.n <= most(W / 2, 1) && p.k >= W) return Way::DOT_COLUMNS;
  return Way::PACKED;
}

inline Size scratch_bytes(const Product& p, int threads) {
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

inline void run(Call& call, const Product& base, const Batch& batch) {
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

}  // namespace gemm
