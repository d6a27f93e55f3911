// What follows the sum of a matrix product: y = act(alpha * sum + bias) + residual, or act(... + residual).
#pragma once
#include "enums.h"
#include "kernel.h"
#include "simd.h"
#include "vmath.h"

using Act = Activation;

// The parameter `act`: a member, with a flag where it comes after the residual.
inline bool comes_after(i64 act) { return act > Activation_after_residual; }
inline Act act_of(i64 act) { return Act(comes_after(act) ? act - Activation_after_residual : act); }
inline bool act_known(i64 act) { return known(act_of(act)); }

// Four vectors of numbers in place, two and two a `step` apart.
template <class F> [[gnu::always_inline]] inline void four(float* y, isize step, F f) {
  VF v[4] = {load(y), load(y + W), load(y + step), load(y + step + W)};
  f(v);
  store(y, v[0]), store(y + W, v[1]), store(y + step, v[2]), store(y + step + W, v[3]);
}

// Rows of n elements, in place, four vectors at a time, of whatever rows.
template <class F> [[gnu::always_inline]] inline void by_fours(float* y, isize rows, isize rs, isize n, F f) {
  if (rs == n) n *= rows, rows = 1;
  const isize whole = n / (4 * W) * (4 * W);
  if (whole)
    for (isize r = 0; r < rows; r++)
      for (isize c = 0; c < whole; c += 4 * W) four(y + r * rs + c, 2 * W, f);
  y += whole, n -= whole;
  if (n == 2 * W)
    for (; rows > 1; rows -= 2, y += 2 * rs) four(y, rs, f);
  if (!n) return;
  for (isize c = 0; rows > 0;) {
    float* at[4];
    isize width[4];
    VF v[4];
#pragma unroll
    for (int q = 0; q < 4; q++) {
      at[q] = y + c, width[q] = rows <= 0 ? 0 : n - c < W ? n - c : W;
      c += W;
      if (c >= n) c = 0, y += rs, rows--;
    }
#pragma unroll
    for (int q = 0; q < 4; q++) v[q] = load_part(at[q], width[q]);
    f(v);
#pragma unroll
    for (int q = 0; q < 4; q++) store_part(at[q], v[q], width[q]);
  }
}
// The same two vectors at a time: as many as leave registers for what is in between.
template <class F> [[gnu::always_inline]] inline void by_twos(float* y, isize rows, isize rs, isize n, F f) {
  by_fours(y, rows, rs, n, [&](VF(&v)[4]) {
    VF a[2] = {v[0], v[1]}, b[2] = {v[2], v[3]};
    f(a), f(b);
    v[0] = a[0], v[1] = a[1], v[2] = b[0], v[3] = b[1];
  });
}
[[gnu::noinline]] inline void silu_all(float* y, isize rows, isize rs, isize n) {
  by_twos(y, rows, rs, n, [](VF(&v)[2]) { vsilu_each(v); });
}
[[gnu::noinline]] inline void sigmoid_all(float* y, isize rows, isize rs, isize n) {
  by_twos(y, rows, rs, n, [](VF(&v)[2]) { vsigmoid_each(v); });
}
[[gnu::noinline]] inline void gelu_tanh_all(float* y, isize rows, isize rs, isize n) {
  by_twos(y, rows, rs, n, [](VF(&v)[2]) { vgelu_tanh_each(v); });
}
[[gnu::noinline]] inline void gelu_all(float* y, isize rows, isize rs, isize n) {
  by_fours(y, rows, rs, n, [](VF(&v)[4]) { vgelu_each(v); });
}

inline VF activate(Act act, VF v, VF a, VF b) {
  const VF zero = splat(0), one = splat(1);
  switch (act) {
    case Act::RELU: return vmax(v, zero);
    case Act::CLIP: return vmin(vmax(v, a), b);
    case Act::SIGMOID: return vsigmoid(v);
    case Act::TANH: return vtanh(v);
    case Act::SILU: return vsilu(v);
    case Act::GELU: return vgelu(v);
    case Act::GELU_TANH: return vgelu_tanh(v);
    case Act::LEAKY_RELU: return select(v < zero, a * v, v);
    case Act::HARDSIGMOID: return vmin(vmax(a * v + b, zero), one);
    case Act::HARDSWISH: return v * vmin(vmax(v * splat(1 / 6.f) + splat(0.5f), zero), one);
    case Act::ELU: return velu(v, a);
    default: return v;
  }
}

// Activations that take rows four vectors at a time, asked once; others go vector by vector.
inline bool has_all(Act act) {
  return (act >= Act::SIGMOID && act <= Act::LEAKY_RELU && act != Act::TANH) || act == Act::HARDSWISH;
}
[[gnu::noinline]] inline void act_all(Act act, float a, float* y, isize rows, isize rs, isize n) {
  auto each = [&]<Act ACT>() {
    by_fours(y, rows, rs, n, [&](VF(&v)[4]) {
#pragma unroll
      for (int q = 0; q < 4; q++) v[q] = activate(ACT, v[q], splat(a), splat(0));
    });
  };
  if (act == Act::GELU) gelu_all(y, rows, rs, n);
  else if (act == Act::SILU) silu_all(y, rows, rs, n);
  else if (act == Act::GELU_TANH) gelu_tanh_all(y, rows, rs, n);
  else if (act == Act::HARDSWISH) each.template operator()<Act::HARDSWISH>();
  else if (act == Act::SIGMOID) sigmoid_all(y, rows, rs, n);
  else each.template operator()<Act::LEAKY_RELU>();
}

struct Epilogue {
  const float* bias = nullptr;  // element (i, j) is bias[i * bias_ms + j * bias_ns]
  isize bias_ms = 0, bias_ns = 0;
  const float* res = nullptr;  // element (i, j) is res[i * res_rs + j]
  isize res_rs = 0;
  float alpha = 1, act_a = 0, act_b = 0;
  Act act = Act::NONE;
  bool after = false;

  void set_act(i64 code, double a, double b) {
    after = comes_after(code);
    act = act_of(code);
    act_a = float(a);
    act_b = float(b);
  }

  // The sum may start from the bias instead of zero.
  bool bias_first() const { return alpha == 1 && bias && (bias_ns == 0 || bias_ns == 1); }
  // A residual and a clamp are all that is left to do once the sum is complete.
  bool simple() const {
    return (!bias || bias_first()) && alpha == 1 && act <= Act::CLIP && (!res || after || act == Act::NONE);
  }
  float low() const { return act == Act::RELU ? 0 : act_a; }
  float high() const { return act == Act::RELU ? __builtin_inff() : act_b; }

  bool alpha_or_bias_left(bool started) const { return !(started && bias_first()) && (alpha != 1 || bias); }

  // Where element (i, j) of the sum starts, for code that starts from the bias where it can.
  VF start(isize i, isize j, isize n) const {
    if (!bias_first()) return splat(0);
    const float* p = bias + i * bias_ms;
    return bias_ns ? load_part(p + j, n) : splat(*p);
  }

  // Rows [i, i + rows), which began with `start`.
  void finish_rows(isize i, isize rows, isize j, isize n, float* y, isize rs) const {
    if (!res && !alpha_or_bias_left(true) && has_all(act)) return act_all(act, act_a, y, rows, rs, n);
    for (isize r = 0; r < rows; r++) finish(i + r, j, n, y + r * rs);
  }

  // All the rest, in place, on n elements of row i from column j. `started`: the sum began with `start`.
  void finish(isize i, isize j, isize n, float* y, bool started = true) const {
    const bool scales = alpha_or_bias_left(started), alone = !scales && !res;
    if (alone && act == Act::NONE) return;
    if (alone && has_all(act)) return act_all(act, act_a, y, 1, 0, n);
    const float* r = res ? res + i * res_rs + j : nullptr;
    const float* p = bias ? bias + i * bias_ms + j * bias_ns : nullptr;
    const VF a = splat(act_a), b = splat(act_b);
    for (isize c = 0; c < n; c += W) {
      const isize w = n - c < W ? n - c : W;
      VF v = load_part(y + c, w);
      if (scales) {
        v *= splat(alpha);
        if (bias) {
          VF t = splat(0);
          for (isize l = 0; l < w; l++) t[l] = p[(c + l) * bias_ns];
          v += t;
        }
      }
      if (r && after) v += load_part(r + c, w);
      if (act != Act::NONE) v = activate(act, v, a, b);
      if (r && !after) v += load_part(r + c, w);
      store_part(y + c, v, w);
    }
  }
};
