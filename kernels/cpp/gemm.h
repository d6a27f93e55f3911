// Matrix products of f32: y[i, j] = sum_k a[i, k] * b[k, j]. Rows of `a` are read in place and broadcast; columns of `b` are packed, a few
// panels at a time, into scratch that stays in cache while all rows pass over it. Where `b` comes from is the packer's business: a strided
// matrix here, the windows of an image in conv.cpp.
#pragma once
#include "epilogue.h"

namespace gemm {

// A tile is MR rows by NV vectors of y held in registers. WebAssembly engines have 15 usable on x86, hence the 3 x 3.
#if defined(__AVX512F__)
constexpr int TILE_ROWS[4] = {0, 8, 8, 8}, KC = 256;
#elif defined(__AVX__)
constexpr int TILE_ROWS[4] = {0, 8, 6, 4}, KC = 256;
#elif defined(__aarch64__)
constexpr int TILE_ROWS[4] = {0, 8, 8, 6}, KC = 320;
#else
constexpr int TILE_ROWS[4] = {0, 4, 4, 3}, KC = 384;
#endif
constexpr int NV = 3, NR = NV * W;
constexpr isize MC_BYTES = 512 << 10;  // the block of `a` that every panel passes over: about half of a level-2 cache
constexpr isize MIN_FLOPS = 1 << 18;   // less than this is not worth another thread

inline isize round_up(isize x, isize to) { return (x + to - 1) / to * to; }
inline isize least(isize a, isize b) { return a < b ? a : b; }
inline isize most(isize a, isize b) { return a > b ? a : b; }

struct Tile {
  const float* a;
  isize a_rs;
  const float* b;  // packed: [kc, NV * W]
  isize kc;
  float* y;
  isize y_rs;
  isize last;         // lanes of the last vector that exist, 1..W
  const float* from;  // the sum starts from 0 (nullptr), from from[i * from_rs] (splat), or from from[i * from_rs + j]
  isize from_rs;
  bool from_splat;
  bool clamp;
  const float* res;
  isize res_rs;
  float low, high;
};

// Keeps a value where it is computed: otherwise LLVM lowers a chain of multiply-adds for WebAssembly as one tree with all its loads first,
// and the engine spills them.
template <class T> inline void pin([[maybe_unused]] T& value) {
#if defined(__wasm__)
  asm volatile("" : "+r"(value)::"memory");
#endif
}

template <int M, int V> [[gnu::noinline]] void tile(const Tile& t) {
  VF acc[M][V];
  auto lanes = [&](int v) { return v == V - 1 ? t.last : W; };
  if (!t.from) {
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) acc[i][v] = splat(0);
  } else if (t.from_splat) {
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) acc[i][v] = splat(t.from[i * t.from_rs]);
  } else {
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) {
        const float* p = t.from + i * t.from_rs + v * W;
        acc[i][v] = v == V - 1 ? load_part(p, lanes(v)) : load(p);
      }
  }
  const float* b = t.b;
  const float* a[M];
  for (int i = 0; i < M; i++) a[i] = t.a + i * t.a_rs;
  auto step = [&](int u) {
    VF bv[V];
    for (int v = 0; v < V; v++) bv[v] = load(b + (u * V + v) * W);
    for (int i = 0; i < M; i++) {
      const VF av = splat(a[i][u]);
      for (int v = 0; v < V; v++) acc[i][v] = fma(av, bv[v], acc[i][v]);
    }
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) pin(acc[i][v]);
  };
  isize k = t.kc;
  for (; k >= 4; k -= 4) {
    step(0);
    step(1);
    step(2);
    step(3);
    b += 4 * V * W;
    pin(b);
    for (int i = 0; i < M; i++) {
      a[i] += 4;
      pin(a[i]);
    }
  }
  for (; k > 0; k--) {
    step(0);
    b += V * W;
    for (int i = 0; i < M; i++) a[i]++;
  }
  if (t.res)
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) {
        const float* p = t.res + i * t.res_rs + v * W;
        acc[i][v] += v == V - 1 ? load_part(p, lanes(v)) : load(p);
      }
  if (t.clamp)
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) acc[i][v] = vmin(vmax(acc[i][v], splat(t.low)), splat(t.high));
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) {
      float* p = t.y + i * t.y_rs + v * W;
      if (v == V - 1) store_part(p, acc[i][v], lanes(v));
      else store(p, acc[i][v]);
    }
}

// The tile for as many of `rows` as one takes; returns how many.
template <int V> inline isize tile_rows(const Tile& t, isize rows) {
  constexpr int M = TILE_ROWS[V];
  if (M == 3 && rows == 4) return tile<2, V>(t), 2;
  if (rows >= M) return tile<M, V>(t), M;
  if constexpr (M > 4)
    if (rows >= 4) return tile<4, V>(t), 4;
  if constexpr (M == 4)
    if (rows == 3) return tile<3, V>(t), 3;
  if (rows >= 2) return tile<2, V>(t), 2;
  return tile<1, V>(t), 1;
}

// How many of the columns that are left the next panel takes. Its rows are packed at round_up(that, W) floats. A single vector left over
// would leave the arithmetic units waiting, so the last four vectors are two panels of two.
inline isize panel_columns(isize left) { return left > NR && left <= NR + W ? 2 * W : least(left, NR); }

struct Product {
  isize m, n, k;
  const float* a;
  isize a_rs, a_cs;
  const float* b;
  isize b_rs, b_cs;
  float* y;
  isize y_rs;
  Epilogue e;
};

// Rows [m0, m1) of one packed panel (columns [j, j + columns), rows [k0, k0 + kc) of b).
inline void panel_product(const Product& p, const float* b, isize m0, isize m1, isize j, isize columns, isize k0, isize kc) {
  const bool first = k0 == 0, final = k0 + kc == p.k, simple = p.e.simple();
  const isize vectors = (columns + W - 1) / W;
  Tile t{};
  t.a_rs = p.a_rs;
  t.b = b;
  t.kc = kc;
  t.y_rs = p.y_rs;
  t.last = columns - (vectors - 1) * W;
  t.clamp = final && simple && p.e.act != Act::NONE;
  t.low = p.e.low();
  t.high = p.e.high();
  t.res_rs = p.e.res_rs;
  if (!first) t.from_rs = p.y_rs;
  else if (p.e.bias_first()) t.from_rs = p.e.bias_ms, t.from_splat = p.e.bias_ns == 0;
  for (isize i = m0; i < m1;) {
    t.a = p.a + i * p.a_rs + k0;
    t.y = p.y + i * p.y_rs + j;
    if (!first) t.from = t.y;
    else if (p.e.bias_first()) t.from = p.e.bias + i * p.e.bias_ms + j * p.e.bias_ns;
    if (final && simple && p.e.res) t.res = p.e.res + i * p.e.res_rs + j;
    const isize rows = vectors == 3 ? tile_rows<3>(t, m1 - i) : vectors == 2 ? tile_rows<2>(t, m1 - i) : tile_rows<1>(t, m1 - i);
    if (final && !simple)
      for (isize r = 0; r < rows; r++) p.e.finish(i + r, j, columns, t.y + r * p.y_rs);
    i += rows;
  }
}

// Splits k into equal blocks of at most KC, multiples of `unit` where they can be.
inline isize block_depth(isize k, isize unit) {
  if (k <= KC) return k;
  const isize blocks = (k + KC - 1) / KC, even = round_up((k + blocks - 1) / blocks, 4);
  return unit > 1 && unit <= KC ? least(round_up(even, unit), KC / unit * unit) : least(even, KC);
}

// What stays in cache: `rows` x `depth` of a, `depth` x `group` of b.
struct Blocks {
  isize depth, rows, group, packed_floats, rows_floats;
};
inline Blocks blocks(isize m, isize n, isize k, isize unit) {
  Blocks s;
  s.depth = block_depth(k, unit);
  s.rows = most(round_up(MC_BYTES / 4 / most(s.depth, 1), 24), 24);
  const isize most_columns = (unit == 1 ? 8 : 4) * NR, groups = (n + most_columns - 1) / most_columns;
  s.group = round_up((n + groups - 1) / groups, W);
  s.packed_floats = round_up(least(s.group, round_up(n, W)) * s.depth, 16);
  s.rows_floats = round_up(least(s.rows, m) * s.depth, 16);
  return s;
}

// ---- packing of strided matrices ----

inline void transpose4(const float* src, isize stride, float* dst, isize width) {
  const VF4 a = load4(src), b = load4(src + stride), c = load4(src + 2 * stride), d = load4(src + 3 * stride);
  const VF4 ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const VF4 cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  store4(dst, __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5));
  store4(dst + width, __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7));
  store4(dst + 2 * width, __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5));
  store4(dst + 3 * width, __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7));
}

inline void copy_floats(const float* src, float* dst, isize n) {
  if (n < W) return store_part(dst, load_part(src, n), n);
  for (isize i = 0; i + W < n; i += W) store(dst + i, load(src + i));
  store(dst + n - W, load(src + n - W));
}

inline void fill_zero(float* dst, isize n) {
  if (n < W) return store_part(dst, splat(0), n);
  for (isize i = 0; i + W < n; i += W) store(dst + i, splat(0));
  store(dst + n - W, splat(0));
}

// p[0], p[2], p[4], p[6], and nothing behind them.
inline VF4 load4_even(const float* p) { return __builtin_shufflevector(load4(p), load4(p + 3), 0, 2, 5, 7); }

// dst[i] = src[i * stride]
inline void copy_strided(const float* src, isize stride, float* dst, isize n) {
  if (stride == 1) return copy_floats(src, dst, n);
  isize i = 0;
  if (stride == 2)
    for (; i + 4 <= n; i += 4) store4(dst + i, load4_even(src + 2 * i));
  for (; i < n; i++) dst[i] = src[i * stride];
}

// The i in [0, n) for which from + i * stride lies in [0, size) are [lo, hi).
struct Span {
  isize lo, hi;
  Span(isize from, isize stride, isize size, isize n) : lo(0), hi(n) {
    if (from < 0) lo = least(n, stride == 1 ? -from : (-from + stride - 1) / stride);
    if (from + (n - 1) * stride >= size) hi = from >= size ? lo : stride == 1 ? size - from : (size - from + stride - 1) / stride;
    hi = most(hi, lo);
  }
};

// dst[r * dst_rs + c] = src[r * rs + c * cs]
inline void copy_matrix(const float* src, isize rs, isize cs, float* dst, isize dst_rs, isize rows, isize columns) {
  if (cs == 1) {
    for (isize r = 0; r < rows; r++) copy_floats(src + r * rs, dst + r * dst_rs, columns);
    return;
  }
  isize r = 0;
  if (rs == 1)
    for (; r + 4 <= rows; r += 4) {
      isize c = 0;
      for (; c + 4 <= columns; c += 4) transpose4(src + r + c * cs, cs, dst + r * dst_rs + c, dst_rs);
      for (; c < columns; c++)
        for (isize i = 0; i < 4; i++) dst[(r + i) * dst_rs + c] = src[r + i + c * cs];
    }
  for (; r < rows; r++)
    for (isize c = 0; c < columns; c++) dst[r * dst_rs + c] = src[r * rs + c * cs];
}

// Rows [m0, m1) and columns [n0, n1) of y. pack(k0, kc, j, columns, out) packs columns [j, j + columns) of b panel by panel.
// Without a unit column stride in a, its blocks are copied to `rows`.
template <class Pack>
void product_range(const Product& p, const Pack& pack, isize m0, isize m1, isize n0, isize n1, const Blocks& s, float* packed,
                   float* rows) {
  for (isize mb = m0; mb < m1; mb += s.rows) {
    const isize me = least(mb + s.rows, m1);
    isize k0 = 0;
    do {
      const isize kc = least(s.depth, p.k - k0);
      Product q = p;
      if (p.a_cs != 1) {
        copy_matrix(p.a + mb * p.a_rs + k0 * p.a_cs, p.a_rs, p.a_cs, rows, s.depth, me - mb, kc);
        q.a_rs = s.depth;
        q.a = rows - mb * s.depth - k0;
      }
      for (isize g = n0; g < n1; g += s.group) {
        const isize ge = least(g + s.group, n1);
        pack(k0, kc, g, ge - g, packed);
        const float* b = packed;
        for (isize j = g, n; j < ge; j += n) {
          n = panel_columns(ge - j);
          panel_product(q, b, mb, me, j, n, k0, kc);
          b += round_up(n, W) * kc;
        }
      }
      k0 += kc;
    } while (k0 < p.k);
  }
}

struct PackMatrix {
  const float* b;
  isize rs, cs;

  void operator()(isize k0, isize kc, isize j, isize columns, float* out) const {
    const float* src = b + k0 * rs + j * cs;
    if (cs == 1) {
      isize whole = 0;
      while (panel_columns(columns - whole * NR) == NR) whole++;
      for (isize k = 0; k < kc; k++)
        for (isize p = 0; p < whole; p++) {
          const float* s = src + k * rs + p * NR;
          float* d = out + (p * kc + k) * NR;
          for (int v = 0; v < NV; v++) store(d + v * W, load(s + v * W));
        }
      src += whole * NR;
      out += whole * NR * kc;
      columns -= whole * NR;
    }
    for (isize n; columns > 0; columns -= n) {
      n = panel_columns(columns);
      const isize width = round_up(n, W);
      if (n < width) __builtin_memset(out, 0, size_t(width * kc) * 4);
      copy_matrix(src, rs, cs, out, width, kc, n);
      src += n * cs;
      out += width * kc;
    }
  }
};

// ---- few rows: no packing ----

// y[i, j0..j1) for rows of `b` that are contiguous: several rows of b at a time pass over a strip of y that stays in cache.
template <int M, int K>
inline void stream_rows(const float* a, isize a_rs, isize a_cs, const float* b, isize b_rs, float* y, isize y_rs, isize n) {
  VF s[M][K];
  for (int i = 0; i < M; i++)
    for (int k = 0; k < K; k++) s[i][k] = splat(a[i * a_rs + k * a_cs]);
  isize j = 0;
  for (; j + W <= n; j += W) {
    VF bv[K];
    for (int k = 0; k < K; k++) bv[k] = load(b + k * b_rs + j);
    for (int i = 0; i < M; i++) {
      VF v = load(y + i * y_rs + j);
      for (int k = 0; k < K; k++) v = fma(s[i][k], bv[k], v);
      store(y + i * y_rs + j, v);
    }
  }
  if (j < n)
    for (int i = 0; i < M; i++) {
      VF v = load_part(y + i * y_rs + j, n - j);
      for (int k = 0; k < K; k++) v = fma(s[i][k], load_part(b + k * b_rs + j, n - j), v);
      store_part(y + i * y_rs + j, v, n - j);
    }
}

inline void stream(const Product& p, isize n0, isize n1) {
  const isize strip = 4096 / p.m;
  for (isize j = n0; j < n1; j += strip) {
    const isize n = least(strip, n1 - j);
    for (isize i = 0; i < p.m; i++)
      for (isize c = 0; c < n; c += W) store_part(p.y + i * p.y_rs + j + c, p.e.start(i, j + c, least(W, n - c)), least(W, n - c));
    auto pass = [&]<int K>(isize k) {
      const float *a = p.a + k * p.a_cs, *b = p.b + k * p.b_rs + j;
      float* y = p.y + j;
      isize i = 0;
      for (; i + 2 <= p.m; i += 2)
        stream_rows<2, (K < 4 ? K : 4)>(a + i * p.a_rs, p.a_rs, p.a_cs, b, p.b_rs, y + i * p.y_rs, p.y_rs, n);
      if (i < p.m) stream_rows<1, K>(a + i * p.a_rs, p.a_rs, p.a_cs, b, p.b_rs, y + i * p.y_rs, p.y_rs, n);
    };
    isize k = 0;
    if (p.m == 1)
      for (; k + 8 <= p.k; k += 8) pass.template operator()<8>(k);
    for (; k + 4 <= p.k; k += 4) pass.template operator()<4>(k);
    for (; k < p.k; k++) pass.template operator()<1>(k);
    for (isize i = 0; i < p.m; i++) p.e.finish(i, j, n, p.y + i * p.y_rs + j);
  }
}

// out[i * out_is + j * out_js] = dot(u[i], v[j]) for M rows of u and C of v, all contiguous along k.
template <int M, int C>
inline void dots(const float* u, isize u_rs, const float* v, isize v_rs, isize k, float* out, isize out_is, isize out_js) {
  constexpr int U = M * C < 8 ? 2 : 1;  // enough sums in flight to hide the latency of an addition
  VF acc[U][M][C];
  for (int x = 0; x < U; x++)
    for (int i = 0; i < M; i++)
      for (int j = 0; j < C; j++) acc[x][i][j] = splat(0);
  isize c = 0;
  for (; c + U * W <= k; c += U * W)
    for (int x = 0; x < U; x++) {
      VF uv[M];
      for (int i = 0; i < M; i++) uv[i] = load(u + i * u_rs + c + x * W);
      for (int j = 0; j < C; j++) {
        const VF vv = load(v + j * v_rs + c + x * W);
        for (int i = 0; i < M; i++) acc[x][i][j] = fma(uv[i], vv, acc[x][i][j]);
      }
    }
  for (; c < k; c += W)
    for (int j = 0; j < C; j++) {
      const VF vv = load_part(v + j * v_rs + c, least(W, k - c));
      for (int i = 0; i < M; i++) acc[0][i][j] = fma(load_part(u + i * u_rs + c, least(W, k - c)), vv, acc[0][i][j]);
    }
  for (int i = 0; i < M; i++)
    for (int j = 0; j < C; j++) {
      VF s = acc[0][i][j];
      for (int x = 1; x < U; x++) s += acc[x][i][j];
      out[i * out_is + j * out_js] = sum_lanes(s);
    }
}

// `few` rows of u against rows [r0, r1) of v, which stream from memory once.
inline void dot_rows(const float* u, isize u_rs, isize few, const float* v, isize v_rs, isize r0, isize r1, isize k, float* out,
                     isize out_is, isize out_js) {
  for (isize r = r0; r < r1;) {
    const bool four = r + 4 <= r1;
    const float* vr = v + r * v_rs;
    float* o = out + r * out_js;
    isize i = 0;
    for (; i + 2 <= few; i += 2) {
      if (four) dots<2, 4>(u + i * u_rs, u_rs, vr, v_rs, k, o + i * out_is, out_is, out_js);
      else dots<2, 1>(u + i * u_rs, u_rs, vr, v_rs, k, o + i * out_is, out_is, out_js);
    }
    if (i < few) {
      if (four) dots<1, 4>(u + i * u_rs, u_rs, vr, v_rs, k, o + i * out_is, out_is, out_js);
      else dots<1, 1>(u + i * u_rs, u_rs, vr, v_rs, k, o + i * out_is, out_is, out_js);
    }
    r += four ? 4 : 1;
  }
}

// ---- a whole product, over a batch ----

struct Batch {
  isize rank = 0, count = 1;
  isize size[6], a[6], b[6], y[6], res[6], bias[6];

  void add(isize n, isize a_step, isize b_step, isize y_step, isize res_step, isize bias_step) {
    size[rank] = n, a[rank] = a_step, b[rank] = b_step, y[rank] = y_step, res[rank] = res_step, bias[rank] = bias_step;
    rank++;
    count *= n;
  }
  Product at(Product p, isize index) const {
    for (isize d = rank; d-- > 0; index /= size[d]) {
      const isize i = index % size[d];
      p.a += i * a[d];
      p.b += i * b[d];
      p.y += i * y[d];
      if (p.e.res) p.e.res += i * res[d];
      if (p.e.bias) p.e.bias += i * bias[d];
    }
    return p;
  }
};

// Cuts batch x splits of the rows x groups of panels into items, and runs them on the pool. pack_at(product) makes the packer.
template <class PackAt> void run_packed(Call& call, const Product& base, const Batch& batch, isize unit, const PackAt& pack_at) {
  const isize threads = pool_threads(call.pool);
  const Blocks s = blocks(base.m, base.n, base.k, unit);
  const isize groups = (base.n + s.group - 1) / s.group, wanted = threads == 1 ? 1 : 4 * threads;
  const isize parts = least((wanted + batch.count * groups - 1) / (batch.count * groups), (base.m + 31) / 32);
  const isize part_rows = round_up((base.m + parts - 1) / parts, TILE_ROWS[NV]), splits = (base.m + part_rows - 1) / part_rows;
  const double flops = 2.0 * double(least(part_rows, base.m)) * double(least(s.group, base.n)) * double(base.k);
  const isize each = s.packed_floats + (base.a_cs == 1 ? 0 : s.rows_floats);
  parallel_for(call.pool, batch.count * splits * groups, isize(MIN_FLOPS / (flops + 1)) + 1, [&](i64 begin, i64 end, int thread) {
    float* packed = reinterpret_cast<float*>(call.scratch) + thread * each;
    for (isize i = isize(begin); i < isize(end);) {
      const isize g = i % groups, run = least(isize(end) - i, groups - g), row = i / groups % splits * part_rows;
      const Product p = batch.at(base, i / groups / splits);
      const isize row_end = least(row + part_rows, p.m), column_end = least((g + run) * s.group, p.n);
      product_range(p, pack_at(p), row, row_end, g * s.group, column_end, s, packed, packed + s.packed_floats);
      i += run;
    }
  });
}

enum class Way { DOT_ROWS, DOT_COLUMNS, STREAM, PACKED };

// How to go about a product; only sizes and strides count, so that scratch can be told beforehand.
inline Way way(const Product& p) {
  if (p.b_rs == 1 && (p.b_cs != 1 || p.n == 1) && p.m <= 8) return Way::DOT_ROWS;
  if (p.b_cs == 1 && p.m <= 4) return Way::STREAM;
  if (p.a_cs == 1 && p.n <= most(W / 2, 1) && p.k >= W) return Way::DOT_COLUMNS;
  return Way::PACKED;
}

inline i64 scratch_bytes(const Product& p, int threads) {
  switch (way(p)) {
    case Way::STREAM: return 0;
    case Way::DOT_ROWS: return p.a_cs == 1 ? 0 : i64(p.m) * p.k * 4 * threads;
    case Way::DOT_COLUMNS: return p.b_rs == 1 ? 0 : i64(p.n) * p.k * 4 * threads;
    case Way::PACKED: break;
  }
  const Blocks s = blocks(p.m, p.n, p.k, 1);
  return i64(s.packed_floats + (p.a_cs == 1 ? 0 : s.rows_floats)) * 4 * threads;
}

inline void run(Call& call, const Product& base, const Batch& batch) {
  const Way w = way(base);
  if (w == Way::PACKED) return run_packed(call, base, batch, 1, [](const Product& p) { return PackMatrix{p.b, p.b_rs, p.b_cs}; });
  const isize length = w == Way::DOT_COLUMNS ? base.m : base.n, few = w == Way::DOT_COLUMNS ? base.n : base.m;
  const isize unit = w == Way::STREAM ? 64 : 4, units = (length + unit - 1) / unit;
  const double flops = 2.0 * double(few) * double(unit) * double(base.k);
  parallel_for(call.pool, batch.count * units, isize(MIN_FLOPS / (flops + 1)) + 1, [&](i64 begin, i64 end, int thread) {
    float* copy = reinterpret_cast<float*>(call.scratch) + thread * few * base.k;
    for (isize i = isize(begin); i < isize(end);) {
      const isize u = i % units, run = least(isize(end) - i, units - u), from = u * unit, to = least((u + run) * unit, length);
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
