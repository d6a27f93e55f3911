// What follows the sums: zero points, scale, epilogue, the result's type.
#pragma once
#include "qgemm/product.h"

namespace qgemm {

typedef uint8_t BW __attribute__((ext_vector_type(W)));

inline bool any(VI mask) {
#if defined(__wasm__)
  return wasm_v128_any_true((v128_t)mask);
#else
  return __builtin_reduce_or(mask) != 0;
#endif
}

// round(v / scale), ties to even, within [first, first + 255]. The product with the reciprocal is off by less than NEAR for what the
// bounds leave, so only what lies so close to a tie is divided.
inline VF quotient(VF v, float scale, VF reciprocal, float first) {
  constexpr float NEAR = 1e-4f;
  const VF low = splat(first), high = splat(first + 255);
  VF t = vmin(vmax(low, v * reciprocal), high);
  VF r = __builtin_elementwise_roundeven(t);
  if (reciprocal[0] > 0x1p126f || any(__builtin_elementwise_abs(t - r) > splat(0.5f - NEAR)))
    r = vmin(vmax(low, __builtin_elementwise_roundeven(v / splat(scale))), high);
  return r;
}

inline void store_codes(const Product& p, VF rounded, uint8_t* y, isize n) {
  const BW code = __builtin_convertvector(__builtin_convertvector(rounded, VI) + splat_i(p.y_zero), BW);
  if (n == W) __builtin_memcpy(y, &code, W);
  else
    for (isize l = 0; l < n; l++) y[l] = code[l];
}

// What follows n sums of a row, for which `plain_rows` holds.
template <class Sums> inline void finish_plain(const Product& p, isize i, isize j, isize n, const Sums& sums) {
  const VF scale = splat(p.scale[i * p.scale_ms]), bias = splat(p.e.bias ? p.e.bias[i * p.e.bias_ms] : 0), reciprocal = splat(p.y_reciprocal);
  const VF low = splat(p.e.act == Act::NONE ? -__builtin_inff() : p.e.low()), high = splat(p.e.act == Act::NONE ? __builtin_inff() : p.e.high());
  const float first = float((p.dtype == I8 ? -128 : 0) - p.y_zero);
  uint8_t* y = static_cast<uint8_t*>(p.y) + i * p.y_rs + j;
  for (isize c = 0; c < n; c += W)
    store_codes(p, quotient(vmin(vmax(sums(c) * scale + bias, low), high), p.y_scale, reciprocal, first), y + c, least(W, n - c));
}

// What follows n sums of row i from column j: scale, epilogue and the result's type. sums(c) gives W of them.
template <class Sums> inline void finish_sums(const Product& p, isize i, isize j, isize n, const Sums& sums) {
  if (p.dtype == I32) {
    i32* y = static_cast<i32*>(p.y) + i * p.y_rs + j;
    for (isize c = 0; c < n; c += W) store_part(reinterpret_cast<float*>(y + c), as_f(__builtin_convertvector(sums(c), VI)), least(W, n - c));
    return;
  }
  if (p.plain_rows()) return finish_plain(p, i, j, n, sums);
  const Epilogue& e = p.e;
  const float* scale = p.scale + i * p.scale_ms + j * p.scale_ns;
  const float* bias = e.bias ? e.bias + i * e.bias_ms + j * e.bias_ns : nullptr;
  const float* res = e.res ? e.res + i * e.res_rs + j : nullptr;
  const VF low = splat(e.act_a), high = splat(e.act_b), alpha = splat(e.alpha);
  const float first = float((p.dtype == I8 ? -128 : 0) - p.y_zero);
  const VF reciprocal = splat(p.y_reciprocal);
  auto along = [&](const float* v, isize step, isize c, isize w) {
    if (step == 0) return splat(*v);
    if (step == 1) return load_part(v + c, w);
    VF t = splat(0);
    for (isize l = 0; l < w; l++) t[l] = v[(c + l) * step];
    return t;
  };
  for (isize c = 0; c < n; c += W) {
    const isize w = least(W, n - c);
    VF v = sums(c) * along(scale, p.scale_ns, c, w);
    if (e.alpha != 1) v *= alpha;
    if (bias) v += along(bias, e.bias_ns, c, w);
    if (res && e.after) v += load_part(res + c, w);
    if (e.act != Act::NONE) v = activate(e.act, v, low, high);
    if (res && !e.after) v += load_part(res + c, w);
    if (p.dtype == F32) {
      store_part(static_cast<float*>(p.y) + i * p.y_rs + j + c, v, w);
      continue;
    }
    store_codes(p, quotient(v, p.y_scale, reciprocal, first), static_cast<uint8_t*>(p.y) + i * p.y_rs + j + c, w);
  }
}

// n results of row i from column j: takes the zero points off and does the rest.
inline void finish(const Product& p, isize i, isize j, isize n, const i32* sum, i32 row, Quads kind, const i32* columns) {
  const i32 za = kind == Quads::NONE ? 0 : p.zero_a(i) + p.shift_a(kind);
  const bool each = p.zb_s && row;  // the zero point of b differs from column to column
  const VI same = splat_i(p.zeros_b() && !each ? p.zero_b(0) * row : 0), by = splat_i(za);
  auto exact = [&](isize c) {
    VI v = load_i(sum + c) - same;
    if (za) v -= by * load_i(columns + c);
    if (each)
      for (isize l = 0; l < least(W, n - c); l++) v[l] -= p.zero_b(j + c + l) * row;
    return v;
  };
  if (p.dtype != I32) return finish_sums(p, i, j, n, [&](isize c) { return __builtin_convertvector(exact(c), VF); });
  i32* y = static_cast<i32*>(p.y) + i * p.y_rs + j;
  for (isize c = 0; c < n; c += W) store_part(reinterpret_cast<float*>(y + c), as_f(exact(c)), least(W, n - c));
}

}  // namespace qgemm
