// Products with few rows, or few columns, where b streams from memory once and packing would not pay.
#pragma once
#include "gemm.h"
#include "gemm/dots.h"

namespace gemm {

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

}  // namespace gemm
