// Transforms of stride 2. Along an axis a window's three taps are two of even places and one of odd ones: F(4, 2) on the points 0, 1, -1, 2
// and infinity, and F(4, 1) on the first four, which have the same columns in the transform of outputs.
#pragma once
#include "winograd/points.h"

namespace winograd {

constexpr int EVEN = 5, BOTH = 9;  // values along an axis: of even places, and with those of odd ones behind them

// Where a value lies that is the i-th of its rows and the k-th of its columns: its plane, and the block of channels in it.
struct Spot {
  isize plane, block;
  constexpr Spot(isize i, isize k) {
    const isize p = i % EVEN, q = k % EVEN, odd_row = i / EVEN, odd_column = k / EVEN;
    plane = p < 4 ? (q < 4 ? 4 * p + q : 16 + p) : (q < 4 ? 20 + q : 24);
    block = q < 4 ? 2 * odd_row + odd_column : odd_row;
  }
};

inline void weight_points(VF a, VF b, VF c, VF* out) {
  const VF odd = b * (1 / 6.f);
  out[0] = a * 0.5f, out[1] = (a + c) * -0.5f, out[2] = (c - a) * (1 / 6.f), out[3] = (a + c + c) * (1 / 6.f), out[4] = c;
  out[5] = b * 0.5f, out[6] = b * -0.5f, out[7] = -odd, out[8] = odd;
}

// Of four places `step` apart, and of a fifth.
inline void finite_points(const VF* d, int step, VF* out) {
  const VF d1 = d[step], d2 = d[2 * step], t = d[3 * step] - d1;
  out[0] = t + 2.f * (d[0] - d2);
  out[1] = t - d1 - d2;
  out[2] = t + 3.f * (d1 - d2);
  out[3] = t;
}
inline VF infinite_point(const VF* d, int step, VF t) { return d[4 * step] - d[2 * step] - 2.f * t; }

// All values of the transforms of nine taps, as put(spot, value).
inline void spread(Strided, const VF* g, auto put) {
  VF rows[3][BOTH], out[BOTH];
  for (int j = 0; j < 3; j++) weight_points(g[j], g[3 + j], g[6 + j], rows[j]);
#pragma unroll
  for (int i = 0; i < BOTH; i++) {
    weight_points(rows[0][i], rows[1][i], rows[2][i], out);
#pragma unroll
    for (int k = 0; k < BOTH; k++) put(Spot(i, k), out[k]);
  }
}

// Of nine rows `pitch` apart, of four tiles, as put(spot, value).
inline void tile_points(Strided, const float* const* p, isize pitch, auto put) {
  VF rows[BOTH * BOTH];
  for (int i = 0; i < BOTH; i++) {
    VF a[3][4], d[12];
    for (int l = 0; l < 4; l++)
      for (int k = 0; k < 3; k++) a[k][l] = load(p[l] + i * pitch + (k < 2 ? 4 * k : 5));
    for (int k = 0; k < 3; k++) gemm::transpose(a[k], d + 4 * k);
    VF* row = rows + BOTH * i;
    d[8] = d[11];
    finite_points(d, 2, row);
    row[4] = infinite_point(d, 2, row[3]);
    finite_points(d + 1, 2, row + EVEN);
  }
#pragma unroll
  for (int k = 0; k < BOTH; k++) {
    VF out[4];
    finite_points(rows + k, 2 * BOTH, out);
#pragma unroll
    for (int i = 0; i < 4; i++) put(Spot(i, k), out[i]);
    put(Spot(4, k), infinite_point(rows + k, 2 * BOTH, out[3]));
    finite_points(rows + BOTH + k, 2 * BOTH, out);
#pragma unroll
    for (int i = 0; i < 4; i++) put(Spot(EVEN + i, k), out[i]);
  }
}

inline void five_points(const VF* m, VF* out, int step) {
  const VF p = m[1] + m[2], q = m[1] - m[2];
  out[0] = m[0] + p + m[3];
  out[step] = q + 2.f * m[3];
  out[2 * step] = p + 4.f * m[3];
  out[3 * step] = q + 8.f * m[3] + m[4];
}

inline void load_points(Strided, const float* from, isize plane, VF* rows) {
#pragma unroll
  for (int k = 0; k < EVEN; k++) {
    VF in[EVEN];
#pragma unroll
    for (int i = 0; i < EVEN; i++) in[i] = load(from + Spot(i, k).plane * plane);
    five_points(in, rows + k, 6);
  }
}
inline void output_points(Strided, const VF* row, VF* out) { five_points(row, out, 1); }

}  // namespace winograd
