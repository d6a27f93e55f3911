// The transforms themselves: of vectors of weights, of tiles of the image, and of products.
#pragma once
#include "winograd/shape.h"

namespace winograd {

using gemm::gather, gemm::quads;

// Six neighbours.
inline void six(const float* const* p, isize at, VF* d) {
  VF last[4];
  quads(p, at, d);
  quads(p, at + 2, last);
  d[4] = last[2], d[5] = last[3];
}

// The nine taps of W channels.
inline void taps(const float* const* p, isize at, VF* g) {
  VF last[4];
  quads(p, at, g);
  quads(p, at + 4, g + 4);
  quads(p, at + 5, last);
  g[8] = last[3];
}

inline void weight_points(VF a, VF b, VF c, VF* out, int step) {
  const VF even = (a + c) * (-1 / 6.f), odd = b * (1 / 6.f), far = a * (1 / 24.f) + c * (1 / 6.f), half = b * (1 / 12.f);
  out[0] = a * 0.25f;
  out[step] = even - odd;
  out[2 * step] = even + odd;
  out[3 * step] = far + half;
  out[4 * step] = far - half;
  out[5 * step] = c;
}

inline void input_points(const VF* d, int from, VF* out, int step) {
  const VF d1 = d[from], d2 = d[2 * from], d3 = d[3 * from], d4 = d[4 * from];
  const VF p = d4 - 4.f * d2, q = d3 - 4.f * d1, r = d4 - d2, t = 2.f * (d3 - d1);
  out[0] = 4.f * d[0] - 5.f * d2 + d4;
  out[step] = p + q;
  out[2 * step] = p - q;
  out[3 * step] = r + t;
  out[4 * step] = r - t;
  out[5 * step] = 4.f * d1 - 5.f * d3 + d[5 * from];
}

inline void output_points(const VF* m, int from, VF* out, int step) {
  const VF p = m[from] + m[2 * from], q = m[from] - m[2 * from], r = m[3 * from] + m[4 * from], t = m[3 * from] - m[4 * from];
  out[0] = m[0] + p + r;
  out[step] = q + 2.f * t;
  out[2 * step] = p + 4.f * r;
  out[3 * step] = q + 8.f * t + m[5 * from];
}

// The plane of a value of stride 1, of which each has one block of channels.
struct Point {
  isize plane;
  static constexpr isize block = 0;
};

// All values of the transforms of nine taps, as put(spot, value).
inline void spread(Unit, const VF* g, auto put) {
  VF rows[18], out[6];
  for (int j = 0; j < 3; j++) weight_points(g[j], g[3 + j], g[6 + j], rows + j, 3);
  for (int i = 0; i < 6; i++) {
    weight_points(rows[3 * i], rows[3 * i + 1], rows[3 * i + 2], out, 1);
    for (int k = 0; k < 6; k++) put(Point{6 * i + k}, out[k]);
  }
}

// u[c, W] of each point, `plane` floats apart, for input channels [c0, c1) and output channels [m, m + W), of which those past `last` repeat it.
[[gnu::noinline]] inline void weight_block(const Shape& s, const float* w, isize m, isize last, isize c0, isize c1, isize plane, float* u) {
  const float* row[W];
  for (isize l = 0; l < W; l++) row[l] = w + least(m + l, last) * s.c * 9;
  for (isize c = c0; c < c1; c++, u += W) {
    VF g[9];
    taps(row, c * 9, g);
    spread(Unit{}, g, [&](Point at, VF v) { store(u + at.plane * plane, v); });
  }
}

// Of six rows `pitch` apart, of W tiles, as put(spot, value).
inline void tile_points(Unit, const float* const* p, isize pitch, auto put) {
  VF d[6], rows[36], out[6];
  for (int i = 0; i < 6; i++) {
    six(p, i * pitch, d);
    input_points(d, 1, rows + 6 * i, 1);
  }
  for (int k = 0; k < 6; k++) {
    input_points(rows + k, 6, out, 1);
    for (int i = 0; i < 6; i++) put(Point{6 * i + k}, out[i]);
  }
}

// Rows [4 * stride * first - ph, ...) of channel c, `tall` of them, with their padding, which `image` holds as zeros: no row is copied over it.
template <class F> void padded(const Shape& s, isize pitch, const float* x, isize c, isize first, isize tall, float* image) {
  const isize left = most(s.pw, 0), skipped = most(-s.pw, 0), wide = least(s.iw - skipped, pitch - left);
  for (isize i = 0; i < tall; i++) {
    const isize h = 4 * F::STRIDE * first - s.ph + i;
    if (h >= 0 && h < s.ih && wide > 0) gemm::copy_floats(x + (c * s.ih + h) * s.iw + skipped, image + i * pitch + left, wide);
  }
}

// From all points of W tiles, four rows of six of their outputs, which output_points takes.
inline void load_points(Unit, const float* from, isize plane, VF* rows) {
  VF in[6];
  for (int k = 0; k < 6; k++) {
    for (int i = 0; i < 6; i++) in[i] = load(from + (6 * i + k) * plane);
    output_points(in, 1, rows + k, 6);
  }
}
inline void output_points(Unit, const VF* row, VF* out) { output_points(row, 1, out, 1); }

[[gnu::noinline]] inline void finish_tile(const Epilogue& e, float* tile) {
  if (e.act == Act::NONE) return;
  if (has_all(e.act)) return act_all(e.act, e.act_a, tile, 1, 0, 16 * W);
  if (e.act <= Act::CLIP) {
    const VF low = splat(e.low()), high = splat(e.high());
    for (int k = 0; k < 16 * W; k += W) store(tile + k, vmin(vmax(load(tile + k), low), high));
    return;
  }
  for (int k = 0; k < 16 * W; k += W) store(tile + k, activate(e.act, load(tile + k), splat(e.act_a), splat(e.act_b)));
}

// The first row and column of a tile's outputs.
struct Place {
  isize h, w;
  Place(const Shape& s, isize tile) : h(tile / s.across() * 4), w(tile % s.across() * 4) {}
};

// One output, term by term.
template <class F> float plain(const Shape& s, const float* x, const float* w, isize h, isize v) {
  float sum = 0;
  for (isize c = 0; c < s.c; c++)
    for (isize i = 0; i < 3; i++)
      for (isize j = 0; j < 3; j++) {
        const isize ih = h * F::STRIDE - s.ph + i, iw = v * F::STRIDE - s.pw + j;
        if (ih >= 0 && ih < s.ih && iw >= 0 && iw < s.iw) sum += w[c * 9 + i * 3 + j] * x[(c * s.ih + ih) * s.iw + iw];
      }
  return sum;
}

// The outputs of a tile that the image has, from the terms of their sums; row(i) is where row i of them lies.
template <class F> void recompute(const Shape& s, const float* x, const float* w, isize h, isize v, float start, auto row) {
  for (isize i = 0; i < least(4, s.oh - h); i++)
    for (isize k = 0; k < least(4, s.ow - v); k++) row(i)[k] = plain<F>(s, x, w, h + i, v + k) + start;
}

}  // namespace winograd
