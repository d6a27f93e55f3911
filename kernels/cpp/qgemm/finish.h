// What follows the sums: zero points, scale, epilogue, the result's type.
#pragma once
#include "qgemm/product.h"

namespace qgemm {

typedef uint8_t BW __attribute__((ext_vector_type(W)));

// round(v / scale), ties to even, within [first, first + 255]. The product with the reciprocal is off by less than NEAR for what the
// bounds leave, so only what lies so close to a tie is divided.
inline VF quotient(VF v, float scale, VF reciprocal, float first) {
  constexpr float NEAR = 1e-4f;
  const VF low = splat(first), high = splat(first + 255);
  VF t = vmin(vmax(low, v * reciprocal), high);
  VF r = __builtin_elementwise_roundeven(t);
  if (reciprocal[0] > 0x1p126f || any_lane(__builtin_elementwise_abs(t - r) > splat(0.5f - NEAR)))
    r = vmin(vmax(low, __builtin_elementwise_roundeven(v / splat(scale))), high);
  return r;
}

inline void store_codes(const Product& p, VF rounded, uint8_t* y, isize n) {
  const BW code = __builtin_convertvector(__builtin_convertvector(rounded, VI) + splat_i(p.y_zero), BW);
  if (n == W) __builtin_memcpy(y, &code, W);
  else
    for (isize l = 0; l < n; l++) y[l] = code[l];
}

// Quantises what one scale and one bias per column make of sums. Rounding is monotonous, so the bounds of an activation are codes.
struct Coder {
  bool fits = false;
  VF reciprocal, low, high;

  explicit Coder(const Product& p) : by(p.y_scale), zero(p.y_zero) {
    const Epilogue& e = p.e;
    if ((p.dtype != U8 && p.dtype != I8) || e.alpha != 1 || e.res || e.act > Act::CLIP || !(p.y_scale > 0) || p.y_reciprocal > 0x1p126f) return;
    if ((p.scale_ns & ~1) || p.scale_ms || (e.bias && (e.bias_ns != 1 || e.bias_ms))) return;
    if (e.act != Act::NONE && (e.low() != e.low() || e.high() != e.high())) return;
    fits = true;
    const float first = float((p.dtype == I8 ? -128 : 0) - p.y_zero);
    auto code = [&](float bound) { return __builtin_fminf(__builtin_fmaxf(__builtin_roundevenf(bound / p.y_scale), first), first + 255); };
    low = splat(e.act == Act::NONE ? first : code(e.low())), high = splat(e.act == Act::NONE ? first + 255 : code(e.high()));
    reciprocal = splat(p.y_reciprocal);
  }

  // Scale and bias of columns [j, j + n), and 0 behind them up to a whole vector.
  static void columns(const Product& p, isize j, isize n, float* scale, float* bias) {
    for (isize c = 0; c < n; c++) scale[c] = p.scale[(j + c) * p.scale_ns], bias[c] = p.e.bias ? p.e.bias[j + c] : 0;
    for (isize c = n; c < round_up(n, W); c++) scale[c] = bias[c] = 0;
  }

  // `count` rows of V vectors of sums, the first n of which are wanted.
  template <int V> void rows(const i32* sums, isize count, const float* scale, const float* bias, isize n, uint8_t* y, isize y_rs) const {
    constexpr float ONES = 0x1.8p23f;  // so large that adding it rounds to integers, ties to even
    const VF near = splat(0.4999f);    // further from an integer, the quotient itself has to be rounded
    const VI less = splat_i(__builtin_bit_cast(i32, ONES) - zero);
    const VF by_what = reciprocal, least_code = low, most_code = high;
    VF factor[V], offset[V];
    for (int v = 0; v < V; v++) factor[v] = load(scale + v * W), offset[v] = load(bias + v * W);
    const bool whole = n == V * W;
    for (isize r = 0; r < count; r++, sums += V * W, y += y_rs) {
      VI far = splat_i(0);
#pragma unroll
      for (int v = 0; v < V; v++) {
        const VF t = vmin(vmax((__builtin_convertvector(load_i(sums + v * W), VF) * factor[v] + offset[v]) * by_what, least_code), most_code);
        const VF s = t + splat(ONES);
        far |= (VI)(__builtin_elementwise_abs(t - (s - splat(ONES))) > near);
        if (whole || n >= (v + 1) * W) put(as_i(s) - less, y + v * W);
        else if (n > v * W) put_part(as_i(s) - less, y + v * W, n - v * W);
      }
      if (any_lane(far)) again(sums, scale, bias, n, y);
    }
  }

 private:
  float by;
  i32 zero;

  [[gnu::noinline]] void again(const i32* sums, const float* scale, const float* bias, isize n, uint8_t* y) const {
    for (isize c = 0; c < n; c += W) {
      const VF v = __builtin_convertvector(load_i(sums + c), VF) * load(scale + c) + load(bias + c);
      const VF r = vmin(vmax(__builtin_elementwise_roundeven(v / splat(by)), low), high);
      put_part(__builtin_convertvector(r, VI) + splat_i(zero), y + c, least(n - c, W));
    }
  }
  static void put(VI codes, uint8_t* y) {
    const BW bytes = __builtin_convertvector(codes, BW);
    __builtin_memcpy(y, &bytes, W);
  }
  static void put_part(VI codes, uint8_t* y, isize n) {
    uint8_t bytes[W];
    put(codes, bytes);
    if constexpr (W > 8)
      if (n & 8) __builtin_memcpy(y, bytes, 8);
    if (n & 4) __builtin_memcpy(y + (n & 8), bytes + (n & 8), 4);
    for (isize l = n - n % 4; l < n; l++) y[l] = bytes[l];
  }
};

// Whether float32 follows from sums by one scale and one bias per column.
inline bool by_columns(const Product& p) {
  const Epilogue& e = p.e;
  return p.dtype == F32 && e.alpha == 1 && !(p.scale_ns & ~1) && !p.scale_ms && (!e.bias || (e.bias_ns == 1 && !e.bias_ms));
}
// Rows [i, i + count) of a whole panel, for which `by_columns` holds.
[[gnu::noinline]] inline void finish_columns(const Product& p, isize i, isize j, isize count, const i32* sums, const float* scale, const float* bias) {
  const Epilogue& e = p.e;
  const VF low = splat(e.act_a), high = splat(e.act_b);
  float* y = static_cast<float*>(p.y) + i * p.y_rs + j;
  const float* res = e.res ? e.res + i * e.res_rs + j : nullptr;
  for (isize r = 0; r < count; r++, y += p.y_rs, sums += NR) {
    VF v[NV];
    for (int c = 0; c < NV; c++) v[c] = __builtin_convertvector(load_i(sums + c * W), VF) * load(scale + c * W) + load(bias + c * W);
    if (res && e.after)
      for (int c = 0; c < NV; c++) v[c] += load(res + c * W);
    if (e.act == Act::GELU) vgelu_each(v);
    else if (e.act != Act::NONE)
      for (int c = 0; c < NV; c++) v[c] = activate(e.act, v[c], low, high);
    for (int c = 0; c < NV; c++) store(y + c * W, res && !e.after ? v[c] + load(res + c * W) : v[c]);
    if (res) res += e.res_rs;
  }
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

// Takes the zero points of b, of a panel's columns, off `count` rows of which `rows` are the sums.
inline void take_zeros(i32* sums, isize count, isize width, const i32* rows, const i32* zeros) {
  for (isize r = 0; r < count; r++, sums += width)
    for (isize c = 0; c < width; c += W) store_i(sums + c, load_i(sums + c) - load_i(zeros + c) * splat_i(rows[r]));
}

// n results of row i from column j: takes the zero points of a off and does the rest.
inline void finish(const Product& p, isize i, isize j, isize n, const i32* sum, Quads kind, const i32* columns) {
  const i32 za = kind == Quads::NONE ? 0 : p.zero_a(i) + p.shift_a(kind);
  auto exact = [&](isize c) {
    VI v = load_i(sum + c);
    if (za) v -= splat_i(za) * load_i(columns + c);
    return v;
  };
  if (p.dtype != I32) return finish_sums(p, i, j, n, [&](isize c) { return __builtin_convertvector(exact(c), VF); });
  i32* y = static_cast<i32*>(p.y) + i * p.y_rs + j;
  for (isize c = 0; c < n; c += W) store_part(reinterpret_cast<float*>(y + c), as_f(exact(c)), least(W, n - c));
}

// The way that sums of a panel's columns are finished: as bytes or float32 a few rows at a time where one scale and one bias hold for a
// column. `kind`: of the products, whose zero points of a are still to be taken off; NONE: they are not.
class Finisher {
  const Product& p;
  const Coder coder;
  const Quads kind;
  const bool coded, columnwise;
  alignas(64) float scale[NR], bias[NR];

 public:
  Finisher(const Product& p, Quads kind)
      : p(p), coder(p), kind(kind), coded(kind == Quads::NONE && coder.fits), columnwise(kind == Quads::NONE && by_columns(p)) {}

  // The columns [j, j + n) of the rows that follow.
  void columns(isize j, isize n) {
    if (coded || columnwise) coder.columns(p, j, n, scale, bias);
  }

  // `count` rows from i, whose sums lie as many whole vectors apart as n columns take; `column_sums`: of b.
  void rows(isize i, isize j, isize n, isize count, const i32* sums, const i32* column_sums) const {
    const isize width = round_up(n, W);
    if (coded) {
      uint8_t* y = static_cast<uint8_t*>(p.y) + i * p.y_rs + j;
      width == 3 * W   ? coder.rows<3>(sums, count, scale, bias, n, y, p.y_rs)
      : width == 2 * W ? coder.rows<2>(sums, count, scale, bias, n, y, p.y_rs)
                       : coder.rows<1>(sums, count, scale, bias, n, y, p.y_rs);
    } else if (columnwise && n == NR) {
      finish_columns(p, i, j, count, sums, scale, bias);
    } else {
      for (isize r = 0; r < count; r++) finish(p, i + r, j, n, sums + r * width, kind, column_sums);
    }
  }
};

}  // namespace qgemm
