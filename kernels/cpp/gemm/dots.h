// Sums along contiguous rows.
#pragma once
#include "gemm/tile.h"

namespace gemm {

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

}  // namespace gemm
