// Depthwise convolution: every output channel reads one input channel. A band of input rows is copied into scratch with its padding, so
// that no border remains. Of the usual windows (`paired`) a vector of outputs is computed in two rows at once; else the band is split by
// column phase when the stride is not 1, so that all taps of W neighbouring outputs are contiguous vectors.
#pragma once
#include "epilogue.h"
#include "gemm.h"

namespace dw {

using gemm::least;
using gemm::most;
using gemm::round_up;

struct Shape {
  isize ih, iw, oh, ow, kh, kw, sh, sw, dh, dw, ph, pw;
};

// 3 x 3 or 5 x 5 taps, stride 1 or 2.
inline bool paired(const Shape& s) {
  const bool square = s.kh == s.kw && (s.kh == 3 || s.kh == 5) && s.sh == s.sw && s.sh <= 2 && s.dh == 1 && s.dw == 1;
  return square && s.ow >= 4 && s.oh >= 2;
}

struct Band {
  isize phase;   // floats of one column phase of a row
  isize pitch;   // floats of a row
  isize rows;    // output rows of a band
  isize inputs;  // input rows that they read
};

inline Band band(const Shape& s) {
  constexpr isize BUDGET = 24 << 8;  // floats: most of a level-1 cache
  Band b;
  b.phase = round_up(s.ow, W) + (s.kw - 1) * s.dw / s.sw + 1;
  b.pitch = b.phase * least(s.sw, (s.kw - 1) * s.dw + 1);
  if (paired(s)) b.phase = b.pitch = most(s.pw + s.iw, s.sw * s.ow + s.kw + 3);
  const isize reach = (s.kh - 1) * s.dh + 1;
  b.rows = least(s.oh, most((BUDGET / b.pitch - reach) / s.sh + 1, most(4, reach / s.sh)));
  while (paired(s) && s.oh % b.rows == 1) b.rows++;  // a last row has one before it
  b.inputs = (b.rows - 1) * s.sh + reach;
  return b;
}

inline isize scratch_floats(const Shape& s) {
  const Band b = band(s);
  return round_up(b.inputs * b.pitch, 16);
}

// Both phases of a stride of 2.
inline void copy_row_halves(const Shape& s, isize phase, const float* x, float* out) {
  const gemm::Span even(-s.pw, 2, s.iw, phase), odd(1 - s.pw, 2, s.iw, phase);
  const isize hi = least(even.hi, odd.hi);
  isize i = most(even.lo, odd.lo);
  const float* from = x - s.pw;
  gemm::fill_zero(out, i);
  gemm::fill_zero(out + phase, i);
  if (even.lo < i) out[even.lo] = from[2 * even.lo];
  if (odd.lo < i) out[phase + odd.lo] = from[2 * odd.lo + 1];
  for (; i + 4 <= hi; i += 4) {
    const VF4 a = load4(from + 2 * i), b = load4(from + 2 * i + 4);
    store4(out + i, __builtin_shufflevector(a, b, 0, 2, 4, 6));
    store4(out + phase + i, __builtin_shufflevector(a, b, 1, 3, 5, 7));
  }
  gemm::copy_strided(from + 2 * i, 2, out + i, even.hi - i);
  gemm::copy_strided(from + 2 * i + 1, 2, out + phase + i, odd.hi - i);
  gemm::fill_zero(out + even.hi, phase - even.hi);
  gemm::fill_zero(out + phase + odd.hi, phase - odd.hi);
}

// One input row (nullptr: a row of padding), columns from -pw on, into its phases.
inline void copy_row(const Shape& s, const Band& b, const float* x, float* out) {
  if (!x) return gemm::fill_zero(out, b.pitch);
  if (W > 4 && s.sw == 2 && b.pitch == 2 * b.phase) return copy_row_halves(s, b.phase, x, out);
  for (isize f = 0; f * b.phase < b.pitch; f++, out += b.phase) {
    const isize from = f - s.pw;  // column i of this phase is x[from + i * sw]
    const gemm::Span in(from, s.sw, s.iw, b.phase);
    gemm::fill_zero(out, in.lo);
    gemm::copy_strided(x + from + in.lo * s.sw, s.sw, out + in.lo, in.hi - in.lo);
    gemm::fill_zero(out + in.hi, b.phase - in.hi);
  }
}

// R output rows of one band; KH x KW taps, or any number when 0. offset[j] is where tap column j starts in a row.
template <int KH, int KW, int R>
inline void rows(const Shape& s, isize pitch, const float* in, const float* w, const isize* offset, VF start, float* y) {
  const isize kh = KH ? KH : s.kh, kw = KW ? KW : s.kw;
  constexpr bool HELD = KH > 0 && KH * KW <= 9;  // the taps stay in registers
  VF tap[HELD ? KH * KW : 1];
  if constexpr (HELD)
    for (int i = 0; i < KH * KW; i++) tap[i] = splat(w[i]);
  auto weight = [&](isize i) { return HELD ? tap[i] : splat(w[i]); };
  for (isize j = 0; j < s.ow; j += W) {
    VF acc[R];
    for (int r = 0; r < R; r++) acc[r] = start;
    if constexpr (KH > 0 && R > 1) {  // stride 1: an input row serves up to KH output rows
#pragma unroll
      for (int i = 0; i < KH + R - 1; i++)
#pragma unroll
        for (int t = 0; t < KW; t++) {
          const VF x = load(in + i * pitch + t + j);
#pragma unroll
          for (int r = 0; r < R; r++)
            if (i - r >= 0 && i - r < KH) acc[r] = fma(weight((i - r) * KW + t), x, acc[r]);
        }
    } else {
      for (isize i = 0; i < kh; i++)
        for (isize t = 0; t < kw; t++)
          for (int r = 0; r < R; r++) acc[r] = fma(weight(i * kw + t), load(in + (i * s.dh + r * s.sh) * pitch + offset[t] + j), acc[r]);
    }
    const isize n = least(W, s.ow - j);
    for (int r = 0; r < R; r++) {
      if (n == W) store(y + r * s.ow + j, acc[r]);
      else store_part(y + r * s.ow + j, acc[r], n);
    }
  }
}

template <int KH, int KW, int R>
inline void band_rows(const Shape& s, isize pitch, isize count, const float* in, const float* w, const isize* offset, VF start, float* y) {
  isize r = 0;
  for (; r + R <= count; r += R) rows<KH, KW, R>(s, pitch, in + r * s.sh * pitch, w, offset, start, y + r * s.ow);
  for (; r < count; r++) rows<KH, KW, 1>(s, pitch, in + r * s.sh * pitch, w, offset, start, y + r * s.ow);
}

struct Clamp {
  float low = -__builtin_inff(), high = __builtin_inff();
};

// L floats side by side.
template <int L> struct Lanes {
  typedef float V __attribute__((ext_vector_type(L)));
  static V load(const float* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static void store(float* p, V v) { __builtin_memcpy(p, &v, sizeof v); }
  static V even(V a, V b) {
    if constexpr (L == 4) return __builtin_shufflevector(a, b, 0, 2, 4, 6);
    else if constexpr (L == 8) return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
    else return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  }
  static V odd(V a, V b) {
    if constexpr (L == 4) return __builtin_shufflevector(a, b, 1, 3, 5, 7);
    else if constexpr (L == 8) return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
    else return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  }
};

// Columns [j, j + L) of two rows of outputs.
template <int K, int S, int L>
[[gnu::noinline]] inline void two_rows(isize ow, isize pitch, const float* in, const float* w, float start, Clamp clamp, float* y) {
  using F = Lanes<L>;
  using V = typename F::V;
  constexpr bool HELD = K == 3;  // the taps stay in registers
  V tap[HELD ? K * K : 1];
  if constexpr (HELD)
    for (int i = 0; i < K * K; i++) tap[i] = (V)(w[i]);
  auto weight = [&](int i) { return HELD ? tap[i] : (V)(w[i]); };
  const V low = (V)(clamp.low), high = (V)(clamp.high);
  for (isize j = 0;; j = least(j + L, ow - L)) {
    V first = (V)start, second = (V)start;
    auto input_row = [&](int i) __attribute__((always_inline)) {
      const float* row = in + i * pitch + j * S;
      V x[K];
#pragma unroll
      for (int t = 0; t < K; t += S) {
        const V a = F::load(row + t);
        if constexpr (S == 1) {
          x[t] = a;
        } else {
          const V b = F::load(row + t + L);
          x[t] = F::even(a, b);
          if (t + 1 < K) x[t + 1] = F::odd(a, b);
        }
      }
#pragma unroll
      for (int t = 0; t < K; t++) {
        if (i < K) first += weight(i * K + t) * x[t];
        if (i >= S) second += weight((i - S) * K + t) * x[t];
      }
      pin(first);
      pin(second);
    };
    if constexpr (HELD) {
#pragma unroll
      for (int i = 0; i < K + S; i++) input_row(i);
    } else {
#pragma nounroll
      for (int i = 0; i < K + S; i++) input_row(i);
    }
    F::store(y + j, vmin(vmax(first, low), high));
    F::store(y + ow + j, vmin(vmax(second, low), high));
    if (j == ow - L) break;
  }
}

inline void pairs(const Shape& s, isize pitch, isize count, const float* in, const float* w, float start, Clamp clamp, float* y) {
  auto lanes = [&]<int MOST>() {
    constexpr int L = MOST < W ? MOST : W;
    return s.kh == 3 ? s.sh == 1 ? two_rows<3, 1, L> : two_rows<3, 2, L> : s.sh == 1 ? two_rows<5, 1, L> : two_rows<5, 2, L>;
  };
  const auto go = s.ow >= 16 ? lanes.template operator()<16>() : s.ow >= 8 ? lanes.template operator()<8>() : lanes.template operator()<4>();
  for (isize r = 0;; r = least(r + 2, count - 2)) {
    go(s.ow, pitch, in + r * s.sh * pitch, w, start, clamp, y + r * s.ow);
    if (r == count - 2) break;
  }
}

[[gnu::noinline]] inline void any_rows(const Shape& s, isize pitch, isize count, const float* in, const float* w, const isize* offset, VF start,
                                       Clamp clamp, float* y) {
  if (paired(s)) return pairs(s, pitch, count, in, w, start[0], clamp, y);
  if constexpr (W > 4) {
    if (s.kh == 3 && s.kw == 3) return band_rows<3, 3, 1>(s, pitch, count, in, w, offset, start, y);
    if (s.kh == 5 && s.kw == 5) return band_rows<5, 5, 1>(s, pitch, count, in, w, offset, start, y);
  }
  band_rows<0, 0, 2>(s, pitch, count, in, w, offset, start, y);
}

constexpr isize MAX_COLUMNS = 64;  // taps of a row

// Where planes come from and go to. `row` gives one row of plane `at`, `start` and `out` where `count` rows of output channel o of
// image i are to be written and from what they start, `clamp` what `paired` windows are kept to, `finish` does the rest.
struct Floats {
  const Shape& s;
  const float* x;
  float* y;
  isize m, pixels;
  const Epilogue& e;

  const float* row(isize at, isize h) const { return x + (at * s.ih + h) * s.iw; }
  VF start(isize o) const { return e.start(o, 0, 1); }
  bool clamps() const { return paired(s) && e.simple() && !e.res && e.act != Act::NONE; }
  Clamp clamp() const { return clamps() ? Clamp{e.low(), e.high()} : Clamp(); }
  float* out(isize image, isize o, isize r0) const { return y + (image * m + o) * pixels + r0 * s.ow; }
  void finish(isize image, isize o, isize r0, isize count, float* y) const {
    if (clamps()) return;
    Epilogue each = e;
    if (each.res) each.res += image * m * pixels;
    each.finish(o, r0 * s.ow, count * s.ow, y);
  }
};

// Planes [n, c, ih, iw], w [c * multiplier, kh, kw], results [n, c * multiplier, oh, ow]. planes(memory) gives a thread's `Floats` or the
// like, with `extra` floats of memory.
template <class Planes>
inline void run_planes(Call& call, const Shape& s, isize n, isize c, isize multiplier, const float* w, isize extra, const Planes& planes) {
  const Band b = band(s);
  const isize each = scratch_floats(s), pixels = s.oh * s.ow, taps = s.kh * s.kw;
  isize offset[MAX_COLUMNS];
  for (isize t = 0; t < s.kw; t++) offset[t] = t * s.dw % s.sw * b.phase + t * s.dw / s.sw;
  const double flops = 2.0 * double(pixels * taps) * double(multiplier);
  parallel_for(call.pool, i64(n) * c, i64(gemm::MIN_FLOPS / (flops + 1)) + 1, [&](i64 begin, i64 end, int thread) {
    float* in = reinterpret_cast<float*>(call.scratch) + thread * (each + extra);
    if (paired(s)) gemm::fill_zero(in, each);  // the border, which no row is copied over
    const auto p = planes(in + each);
    isize image = proven(begin / c), channel = proven(begin % c);
    for (isize at = proven(begin), last = proven(end); at < last; at++) {
      for (isize r0 = 0; r0 < s.oh; r0 += b.rows) {
        const isize count = least(b.rows, s.oh - r0), inputs = (count - 1) * s.sh + (s.kh - 1) * s.dh + 1;
        for (isize i = 0; i < inputs; i++) {
          const isize h = r0 * s.sh - s.ph + i;
          const float* row = h >= 0 && h < s.ih ? p.row(at, h) : nullptr;
          if (!paired(s)) copy_row(s, b, row, in + i * b.pitch);
          else if (row) gemm::copy_floats(row, in + i * b.pitch + s.pw, s.iw);
          else gemm::fill_zero(in + i * b.pitch + s.pw, s.iw);
        }
        for (isize q = 0; q < multiplier; q++) {
          const isize o = channel * multiplier + q;
          float* yr = p.out(image, o, r0);
          const float* wo = w + o * taps;
          const VF start = p.start(o);
          any_rows(s, b.pitch, count, in, wo, offset, start, p.clamp(), yr);
          p.finish(image, o, r0, count, yr);
        }
      }
      if (++channel == c) channel = 0, image++;
    }
  });
}

// e as for a product whose rows are channels.
inline void run(Call& call, const Shape& s, isize n, isize c, isize multiplier, const float* x, const float* w, float* y, const Epilogue& e) {
  run_planes(call, s, n, c, multiplier, w, 0, [&](float*) { return Floats{s, x, y, c * multiplier, s.oh * s.ow, e}; });
}

}  // namespace dw
