// Transforms of whole matrices on vectors of four: a vector is four tiles, or four channels of weights.
#pragma once
#include "winograd/strided.h"

namespace winograd {

using gemm::transpose;

// Output channels [m0, m1) of `of` that lie in u[plane][m, block, c].
template <class F> void weights(const Shape& s, const float* w, isize m0, isize m1, isize of, float* u) {
  float* planes[F::PLANES];
  for (isize k = 0; k < F::PLANES; k++) planes[k] = u + F::before(k, of * s.c) + m0 * F::blocks(k) * s.c;
  for (isize m = m0; m < m1; m++) {
    for (isize next = 0; next < s.c; next += W) {
      const isize c = least(next, s.c - W);  // the last vector takes channels again
      const float* from[W];
      for (int l = 0; l < W; l++) from[l] = w + (m * s.c + c + l) * 9;
      VF g[9];
      taps(from, 0, g);
      spread(F{}, g, [&](auto at, VF v) { store(planes[at.plane] + at.block * s.c + c, v); });
    }
    for (isize k = 0; k < F::PLANES; k++) planes[k] += F::blocks(k) * s.c;
  }
}

// Transforms tiles [t0, t0 + n) of channels [c0, c1); v[plane] holds panels as gemm packs them. `image`: r.plane floats and r.places int32, for
// the rows of a channel with their padding, and where in them tiles begin.
template <class F>
void inputs(const Shape& s, const float* x, isize c0, isize c1, isize t0, isize n, const Cut& r, float* v, float* image) {
  constexpr isize STEP = 4 * F::STRIDE;
  const isize first = t0 / s.across(), high = STEP * ((t0 + n - 1) / s.across() - first) + F::SIDE;
  int32_t* places = reinterpret_cast<int32_t*>(image + r.plane);
  for (isize t = 0; t < n; t++) {
    const Place at(s, t0 + t);
    places[t] = int32_t(((at.h - 4 * first) * r.pitch + at.w) * F::STRIDE);
  }
  gemm::fill_zero(image, r.plane);
  float* planes[F::PLANES];
  for (isize k = 0; k < F::PLANES; k++) planes[k] = v + F::before(k, s.c * r.block);
  for (isize c = c0; c < c1; c++) {
    padded<F>(s, r.pitch, x, c, first, high, image);
    for (isize j = 0, columns; j < n; j += columns) {
      columns = gemm::panel_columns(n - j);
      const isize width = round_up(columns, W), panel = j * s.c, block = s.c * width;
      for (isize q = 0; q < width; q += W) {
        const float* at[W];
        for (int l = 0; l < W; l++) at[l] = image + places[j + least(q + l, columns - 1)];
        const isize to = c * width + q;
        tile_points(F{}, at, r.pitch, [&](auto spot, VF value) {
          store(planes[spot.plane] + F::blocks(spot.plane) * panel + spot.block * block + to, value);
        });
      }
    }
  }
}

constexpr isize DEPTH = 512;  // of products at a time: a panel stays in a level-1 cache

// Products of all planes: rows [m0, m1) of weights u, which are laid out for `of` rows, by `tiles` tiles.
template <class F>
void products(const Shape& s, const Cut& r, const float* u, isize of, isize m0, isize m1, const float* v, isize tiles, float* points) {
  gemm::Product p{};
  p.n = tiles;
  p.y_rs = r.block;
  for (isize k = 0; k < F::PLANES; k++) {
    p.k = p.a_rs = F::blocks(k) * s.c;
    const float *rows = u + F::before(k, of * s.c) + m0 * p.k, *all = v + F::before(k, s.c * r.block);
    p.y = points + k * plane_floats(r.rows * r.block);
    for (isize j = 0, columns; j < tiles; j += columns) {
      columns = gemm::panel_columns(tiles - j);
      for (isize k0 = 0, depth; k0 < p.k; k0 += depth) {
        depth = F::STRIDE == 1 ? p.k : least(p.k - k0, DEPTH);
        p.a = rows + k0;
        gemm::panel_product(p, all + j * p.k + k0 * round_up(columns, W), 0, m1 - m0, j, columns, k0, depth);
      }
    }
  }
}

// Where row i of the l-th tile of a vector lies: those of four tiles side by side.
inline isize row_of(isize l, isize i) { return 16 * i + 4 * l; }

// Writes `count` tiles that begin at rows h and columns v, into one channel.
inline void write_tiles(const Shape& s, const float* tile, const isize* h, const isize* v, isize count, const Epilogue& e, const float* res,
                        float* y) {
  auto put = [&](const float* made, isize to, isize columns) {
    VF o = load(made);
    if (res) o += load_part(res + to, columns);
    if (res && e.after) o = activate(e.act, o, splat(e.act_a), splat(e.act_b));
    store_part(y + to, o, columns);
  };
  for (isize l = 0; l < count;) {
    const isize tall = least(4, s.oh - h[l]);
    if (l % 4 == 0 && l + 4 <= count && v[l] + 16 <= s.ow) {  // four side by side
      for (isize i = 0; i < tall; i++)
        for (isize k = 0; k < 16; k += W) put(tile + row_of(l, i) + k, (h[l] + i) * s.ow + v[l] + k, W);
      l += 4;
    } else {
      const isize columns = least(4, s.ow - v[l]);
      for (isize i = 0; i < tall; i++) put(tile + row_of(l, i), (h[l] + i) * s.ow + v[l], columns);
      l++;
    }
  }
}

// Output channels [m0, m1) of tiles [t0, t0 + n) from their transforms; x and y are one image, e its rows.
template <class F>
void outputs(const Shape& s, const float* x, const float* w, const float* points, isize m0, isize m1, isize t0, isize n,
                    const Cut& r, float* y, const Epilogue& e) {
  const isize plane = plane_floats(r.rows * r.block);
  const bool late = e.res && e.after;
  for (isize q = 0; q < n; q += W) {
    const isize count = least(W, n - q);
    isize h[W], v[W];
    for (int l = 0; l < W; l++) {
      const Place at(s, t0 + q + l);
      h[l] = at.h, v[l] = at.w;
    }
    for (isize m = m0; m < m1; m++) {
      const float* from = points + (m - m0) * r.block + q;
      VF rows[24], out[4];
      load_points(F{}, from, plane, rows);
      float tile[16 * W + W];
      const float start = e.start(m, 0, 1)[0];
      VF check = splat(0);
      for (int i = 0; i < 4; i++) {
        output_points(F{}, rows + 6 * i, out);
        for (int k = 0; k < 4; k++) check += 0.f * out[k], out[k] += start;
        VF columns[4];
        transpose(out, columns);
        for (int k = 0; k < 4; k++) store(tile + row_of(k, i), columns[k]);
      }
      float sum = 0;  // of tiles that exist; the others are whatever memory held
      if (count == W) sum = sum_lanes(check);
      else
        for (isize l = 0; l < count; l++) sum += check[l];
      if (sum != sum)
        for (isize l = 0; l < count; l++)
          recompute<F>(s, x, w + m * s.c * 9, h[l], v[l], start, [&](isize i) { return tile + row_of(l, i); });
      if (!late) finish_tile(e, tile);
      write_tiles(s, tile, h, v, count, e, e.res ? e.res + m * e.res_rs : nullptr, y + m * s.oh * s.ow);
    }
  }
}

}  // namespace winograd
