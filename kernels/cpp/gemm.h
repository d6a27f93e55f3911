// Matrix products of f32 over a batch: y[i, j] = sum_k a[i, k] * b[k, j].
#pragma once
#include "gemm/pack.h"

namespace gemm {

struct Product {
  isize m, n, k;
  const float* a;
  isize a_rs, a_cs;
  const float* b;
  isize b_rs, b_cs;
  float* y;
  isize y_rs;
  isize band;  // rows of b in each of the bands that pack.cpp made; 0 where b lies by its strides
  Epilogue e;

  // The same from row i on.
  Product rows_from(isize i) const {
    Product p = *this;
    p.a += i * a_rs;
    p.y += i * y_rs;
    if (p.e.res) p.e.res += i * e.res_rs;
    if (p.e.bias) p.e.bias += i * e.bias_ms;
    return p;
  }
};

// Rows [m0, m1) of one packed panel (columns [j, j + columns), rows [k0, k0 + kc) of b), or of a column. p.a begins at column k0.
// `ahead`: a panel that will be wanted next and may not be in cache. b_rs: of a panel that is not packed, and of the next.
void panel_product(const Product& p, const float* b, isize m0, isize m1, isize j, isize columns, isize k0, isize kc, bool column = false,
                   const float* ahead = nullptr, isize b_rs = 0);

// What stays in cache: `rows` x `depth` of a, `depth` x `group` of b.
struct Blocks {
  isize depth, rows, group, packed_floats, rows_floats;
};
Blocks blocks(isize m, isize n, isize k, isize unit);
// The blocks of a product whose b lies by its strides, or in bands: of these a group is one panel, and few rows pass over no panel twice.
Blocks blocks_of(const Product& p, isize unit);

// Where packed columns come from: puts rows [k0, k0 + kc) of columns [j, j + columns) of p's b into `out`, panel by panel.
struct Packer {
  const void* source;
  void (*pack)(const void* source, const Product& p, isize k0, isize kc, isize j, isize columns, float* out);
};

// Of a matrix that lies by its strides.
void pack_matrix(const void*, const Product& p, isize k0, isize kc, isize j, isize columns, float* out);

// Rows [m0, m1) and columns [n0, n1) of y. Without a unit column stride in a, its blocks are copied to `rows`.
void product_range(const Product& p, const Packer& packer, isize m0, isize m1, isize n0, isize n1, const Blocks& s, float* packed,
                   float* rows);

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
void run_packed(Call& call, const Product& base, const Batch& batch, isize unit, const Packer& packer);

// A product of strided matrices, and of bands.
void run(Call& call, const Product& base, const Batch& batch);
Size scratch_bytes(const Product& p, int threads);

// One row times packed weights. Scratch as `run` wants it.
void run_row(Call& call, const Product& p);

}  // namespace gemm
