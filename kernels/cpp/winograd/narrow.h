// Transforms of whole matrices on vectors of four: a vector is four tiles, or four channels of weights.
#pragma once
#include "winograd/points.h"

namespace winograd {

using gemm::transpose;

// The nine taps of four channels, whose weights lie one behind the other.
inline void taps(const float* w, VF* g) {
  VF v[4];
  for (int k = 0; k < 8; k += 4) {
    for (int l = 0; l < 4; l++) v[l] = load(w + k + 9 * l);
    transpose(v, g + k);
  }
  g[8] = VF{w[8], w[17], w[26], w[35]};
}

// u[point, m, c] for output channels [m0, m1), points `plane` floats apart.
inline void weights(const Shape& s, const float* w, isize m0, isize m1, float* u, isize plane) {
  for (isize m = m0; m < m1; m++)
    for (isize c = 0; c < s.c; c += W) {
      const isize n = least(W, s.c - c);
      VF g[9], rows[18], out[6];
      const float* from = w + (m * s.c + c) * 9;
      if (n == W) taps(from, g);
      else
        for (int k = 0; k < 9; k++)
          for (int l = 0; l < W; l++) g[k][l] = l < n ? from[l * 9 + k] : 0;
      for (int j = 0; j < 3; j++) weight_points(g[j], g[3 + j], g[6 + j], rows + j, 3);
      float* to = u + m * s.c + c;
      for (int i = 0; i < 6; i++) {
        weight_points(rows[3 * i], rows[3 * i + 1], rows[3 * i + 2], out, 1);
        for (int k = 0; k < 6; k++, to += plane) store_part(to, out[k], n);
      }
    }
}

// Six neighbours in each of four rows, as columns.
inline void six(const float* const* p, isize at, VF* d) {
  VF lo[4], hi[4], last[4];
  for (int l = 0; l < 4; l++) {
    lo[l] = load(p[l] + at);
    hi[l] = load(p[l] + at + 2);
  }
  transpose(lo, d);
  transpose(hi, last);
  d[4] = last[2], d[5] = last[3];
}

// Transforms tiles [t0, t0 + n) of channels [c0, c1); v[point] holds panels as gemm packs them. `image`: r.plane floats and r.places int32, for
// the rows of a channel with their padding, and where in them tiles begin.
inline void inputs(const Shape& s, const float* x, isize c0, isize c1, isize t0, isize n, const Cut& r, float* v, float* image) {
  const isize plane = plane_floats(s.c * r.block), first = t0 / s.across(), high = 4 * ((t0 + n - 1) / s.across() - first) + 6;
  int32_t* places = reinterpret_cast<int32_t*>(image + r.plane);
  for (isize t = 0; t < n; t++) {
    const Place at(s, t0 + t);
    places[t] = int32_t((at.h - 4 * first) * r.pitch + at.w);
  }
  gemm::fill_zero(image, r.plane);
  for (isize c = c0; c < c1; c++) {
    padded(s, r, x, c, first, high, image);
    for (isize j = 0, columns; j < n; j += columns) {
      columns = gemm::panel_columns(n - j);
      const isize width = round_up(columns, W);
      for (isize q = 0; q < width; q += W) {
        const float* at[W];
        for (int l = 0; l < W; l++) at[l] = image + places[j + least(q + l, columns - 1)];
        VF d[6], rows[POINTS];
        for (int i = 0; i < 6; i++) {
          six(at, i * r.pitch, d);
          input_points(d, 1, rows + 6 * i, 1);
        }
        store_points(rows, v + j * s.c + c * width + q, plane);
      }
    }
  }
}

// Products of all points: `rows` rows of weights u whose points are `plane` apart, by `columns` tiles.
inline void products(const Shape& s, const Cut& r, const float* u, isize plane, const float* v, isize rows, isize tiles, float* points) {
  gemm::Product p{};
  p.n = tiles, p.k = p.a_rs = s.c;
  p.y_rs = r.block;
  for (isize k = 0; k < POINTS; k++) {
    p.a = u + k * plane;
    p.y = points + k * plane_floats(r.rows * r.block);
    for (isize j = 0, columns; j < tiles; j += columns) {
      columns = gemm::panel_columns(tiles - j);
      gemm::panel_product(p, v + k * plane_floats(s.c * r.block) + j * s.c, 0, rows, j, columns, 0, s.c);
    }
  }
}

inline void finish_tile(const Epilogue& e, float* tile) {
  if (e.act == Act::NONE) return;
  if (has_all(e.act)) return act_all(e.act, e.act_a, tile, 1, 0, 16 * W);
  if (e.act <= Act::CLIP) {
    const VF low = splat(e.low()), high = splat(e.high());
    for (int k = 0; k < 16 * W; k += W) store(tile + k, vmin(vmax(load(tile + k), low), high));
    return;
  }
  for (int k = 0; k < 16 * W; k += W) store(tile + k, activate(e.act, load(tile + k), splat(e.act_a), splat(e.act_b)));
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
inline void outputs(const Shape& s, const float* x, const float* w, const float* points, isize m0, isize m1, isize t0, isize n,
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
      load_points(from, plane, rows);
      float tile[16 * W + W];
      const float start = e.start(m, 0, 1)[0];
      VF check = splat(0);
      for (int i = 0; i < 4; i++) {
        output_points(rows + 6 * i, 1, out, 1);
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
          for (isize i = 0; i < 4; i++)
            for (isize k = 0; k < 4; k++)
              if (h[l] + i < s.oh && v[l] + k < s.ow) tile[row_of(l, i) + k] = plain(s, x, w + m * s.c * 9, h[l] + i, v[l] + k) + start;
      if (!late) finish_tile(e, tile);
      write_tiles(s, tile, h, v, count, e, e.res ? e.res + m * e.res_rs : nullptr, y + m * s.oh * s.ow);
    }
  }
}

}  // namespace winograd
