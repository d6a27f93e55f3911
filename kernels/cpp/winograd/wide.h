// Transforms of whole matrices on vectors of 8 or 16: groups of four lanes are transposed at once. Lane 4 g + r of a vector is tile
// r * GROUPS + g of its W, so that rows of neighbouring tiles come out of that side by side; of weights it is channel 4 g + r.
#pragma once
#include "strips.h"
#include "winograd/points.h"

namespace winograd {

using gemm::high, gemm::highs, gemm::lows, gemm::transpose;

constexpr int GROUPS = W / 4;

// u[point, m / W, c, W] for output channels [m0, m1) of `of`; m0 is a multiple of W, and the last channel fills up a vector.
template <class F> void weights(const Shape& s, const float* w, isize m0, isize m1, isize of, float* u) {
  for (isize m = m0; m < m1; m += W) weight_block(s, w, m, m1 - 1, 0, s.c, plane_floats(laid(of) * s.c), u + m * s.c);
}

// M rows of W of a block of u, by a panel of V vectors of tiles.
template <int M, int V> [[gnu::noinline]] void product(const float* u, const float* v, isize c, float* y, isize y_rs) {
  VF acc[M][V];
#pragma unroll
  for (int i = 0; i < M; i++)
#pragma unroll
    for (int k = 0; k < V; k++) acc[i][k] = splat(0);
  for (; c > 0; c--, u += W, v += V * W) {
    if (V == 1) __builtin_prefetch(u + 16 * W);
    VF b[V];
#pragma unroll
    for (int k = 0; k < V; k++) {
      b[k] = load(v + k * W);
      pin(b[k]);
    }
#pragma unroll
    for (int i = 0; i < M; i++) {
      const VF a = splat(u[i]);
#pragma unroll
      for (int k = 0; k < V; k++) {
        acc[i][k] = fma(a, b[k], acc[i][k]);
        pin(acc[i][k]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < M; i++)
#pragma unroll
    for (int k = 0; k < V; k++) store(y + i * y_rs + k * W, acc[i][k]);
}

// Products of all points: rows [m0, m1) of u, which is laid out for `of` rows, by `tiles` tiles, in whole vectors.
template <class F>
void products(const Shape& s, const Cut& r, const float* u, isize of, isize m0, isize m1, const float* v, isize tiles, float* points) {
  const isize plane = plane_floats(laid(of) * s.c), rows = m1 - m0;
  u += m0 * s.c;
  for (isize k = 0; k < F::PLANES; k++, u += plane, v += plane_floats(s.c * r.block), points += plane_floats(r.rows * r.block))
    for (isize j = 0, columns; j < tiles; j += columns) {
      columns = gemm::panel_columns(round_up(tiles, W) - j);
      auto rest = [&]<int M, int V>() {
        for (isize m = 0; m < rows; m += M)
          product<M, V>(u + m / W * W * s.c + m % W, v + j * s.c, s.c, points + m * r.block + j, r.block);
      };
      if (columns == 3 * W) rest.template operator()<W / 2, 3>();
      else if (columns == 2 * W) rest.template operator()<W / 2, 2>();
      else rest.template operator()<W, 1>();
    }
}

// Six neighbours of W tiles that begin `places` floats from p, as columns. `beside`: GROUPS of them lie in a row.
inline void six(const float* p, const int32_t* places, const bool* beside, VF* d) {
  VF a[4], b[4];
  for (int r = 0; r < 4; r++) {
    const int32_t* at = places + r * GROUPS;
    if (beside[r]) {
      a[r] = load(p + at[0]);
      b[r] = load(p + at[0] + 2);
    } else {
      a[r] = gather([&](int g) { return p + at[g]; });
      b[r] = gather([&](int g) { return p + 2 + at[g]; });
    }
  }
  transpose(a, d);
  const VF e = high(b[0], b[1]), f = high(b[2], b[3]);
  d[4] = lows(e, f), d[5] = highs(e, f);
}

// All points of W tiles, from rows of which the columns are transformed; planes lie `plane` apart.
inline void store_points(const VF* rows, float* to, isize plane) {
  VF out[6];
  for (int k = 0; k < 6; k++) {
    input_points(rows + k, 6, out, 1);
    for (int i = 0; i < 6; i++) store(to + (6 * i + k) * plane, out[i]);
  }
}

// Transforms tiles [t0, t0 + n) of channels [c0, c1); v[point] holds panels as gemm packs them, of whole vectors. `image`: r.plane floats
// and r.places int32, for the rows of a channel with their padding, and where in them tiles begin.
template <class F>
void inputs(const Shape& s, const float* x, isize c0, isize c1, isize t0, isize n, const Cut& r, float* v, float* image) {
  const isize plane = plane_floats(s.c * r.block), first = t0 / s.across(), tall = 4 * ((t0 + n - 1) / s.across() - first) + 6;
  const isize all = round_up(n, W);
  int32_t* places = reinterpret_cast<int32_t*>(image + r.plane);
  for (isize t = 0; t < all; t++) {
    const Place at(s, t0 + least(t, n - 1));
    places[t] = int32_t((at.h - 4 * first) * r.pitch + at.w);
  }
  gemm::fill_zero(image, r.plane);
  for (isize c = c0; c < c1; c++) {
    padded<F>(s, r.pitch, x, c, first, tall, image);
    for (isize j = 0, columns; j < all; j += columns) {
      columns = gemm::panel_columns(all - j);
      for (isize q = 0; q < columns; q += W) {
        const int32_t* at = places + j + q;
        bool beside[4];
        for (int k = 0; k < 4; k++) beside[k] = at[k * GROUPS + GROUPS - 1] - at[k * GROUPS] == 4 * (GROUPS - 1);
        VF d[6], rows[F::PLANES];
        for (int i = 0; i < 6; i++) {
          six(image + i * r.pitch, at, beside, d);
          input_points(d, 1, rows + 6 * i, 1);
        }
        store_points(rows, v + j * s.c + c * columns + q, plane);
      }
    }
  }
}

// Row i of the l-th tile of a vector, in what `transpose` made.
inline isize row_of(isize l, isize i) { return (l / GROUPS * 4 + i) * W + l % GROUPS * 4; }

// Output channels [m0, m1) of tiles [t0, t0 + n) from their transforms; x and y are one image, e its rows.
template <class F>
void outputs(const Shape& s, const float* x, const float* w, const float* points, isize m0, isize m1, isize t0, isize n,
                    const Cut& r, float* y, const Epilogue& e) {
  const isize plane = plane_floats(r.rows * r.block);
  const bool late = e.res && e.after, clamp = e.act == Act::RELU || e.act == Act::CLIP, curved = e.act > Act::CLIP;
  const VF lowest = splat(e.low()), highest = splat(e.high()), a = splat(e.act_a), b = splat(e.act_b);
  for (isize q = 0; q < n; q += W) {
    const isize count = least(W, n - q);
    isize h[W], v[W];
    bool beside[4];
    for (int l = 0; l < W; l++) {
      const Place at(s, t0 + q + l);
      h[l] = at.h, v[l] = at.w;
    }
    for (int k = 0; k < 4; k++) beside[k] = k * GROUPS + GROUPS <= count && h[k * GROUPS] == h[k * GROUPS + GROUPS - 1];
    for (isize m = m0; m < m1; m++) {
      const float* from = points + (m - m0) * r.block + q;
      VF rows[24], out[4];
      load_points(F{}, from, plane, rows);
      alignas(64) float tile[16 * W + W];
      const VF start = e.start(m, 0, W);
      VF check = splat(0);
      for (int i = 0; i < 4; i++) {
        output_points(rows + 6 * i, 1, out, 1);
        for (int k = 0; k < 4; k++) check += 0.f * out[k], out[k] += start;
        VF made[4];
        transpose(out, made);
        for (int k = 0; k < 4; k++) store(tile + row_of(k * GROUPS, i), made[k]);
      }
      if (strips::any(strips::unordered(check, check)))  // lanes past the last tile repeat it
        for (isize l = 0; l < count; l++)
          recompute<F>(s, x, w + m * s.c * 9, h[l], v[l], start[0], [&](isize i) { return tile + row_of(l, i); });
      if (curved && !late) {
        if (has_all(e.act)) act_all(e.act, e.act_a, tile, 1, 0, 16 * W);
        else
          for (int k = 0; k < 16 * W; k += W) store(tile + k, activate(e.act, load(tile + k), a, b));
      }
      const float* res = e.res ? e.res + m * e.res_rs : nullptr;
      float* to = y + m * s.oh * s.ow;
      auto put = [&](isize l, isize columns) __attribute__((always_inline)) {
        const isize height = least(4, s.oh - h[l]);
        for (isize i = 0, at = h[l] * s.ow + v[l]; i < height; i++, at += s.ow) {
          VF o = ::load(tile + row_of(l, i));
          if (clamp && !late) o = vmin(vmax(o, lowest), highest);
          if (res) o += load_part(res + at, columns);
          if (late) o = clamp ? vmin(vmax(o, lowest), highest) : curved ? activate(e.act, o, a, b) : o;
          store_part(to + at, o, columns);
        }
      };
      for (isize k = 0; k < 4; k++) {
        if (beside[k]) put(k * GROUPS, least(W, s.ow - v[k * GROUPS]));
        else
          for (isize l = k * GROUPS; l < least(k * GROUPS + GROUPS, count); l++) put(l, least(4, s.ow - v[l]));
      }
    }
  }
}

}  // namespace winograd
