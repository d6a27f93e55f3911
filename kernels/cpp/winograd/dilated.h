// 3 x 3 convolution of stride 1 whose taps lie apart: pixels as far apart are images of their own, whose taps are neighbours.
#pragma once
#include "winograd.h"

namespace winograd {

struct Dilated {
  isize n, c, m, ih, iw, oh, ow, ph, pw, dh, dw;

  isize high() const { return (oh + dh - 1) / dh; }
  isize wide() const { return (ow + dw - 1) / dw; }
  // One image of x as a batch, with its padding.
  Shape images() const { return {dh * dw, c, m, high() + 2, wide() + 2, high(), wide(), 0, 0}; }
  isize inputs() const { return round_up(dh * dw * c * (high() + 2) * (wide() + 2), 16); }
  isize outputs() const { return round_up(dh * dw * m * high() * wide(), 16); }
};

constexpr isize MOST_APART = 4 << 20;  // floats of what is taken apart and put together

inline bool worthwhile(const Dilated& d) {
  constexpr double COPY = 3;  // cycles of a number
  if (d.dh > d.oh || d.dw > d.ow) return false;
  const Size floats = Size(d.c + d.m) * (d.high() + 2) * (d.wide() + 2) * d.dh * d.dw;
  if (!floats.within(MOST_APART)) return false;
  const Shape s = d.images();
  const double beyond = double(s.n) * double(s.oh * s.ow) - double(d.oh * d.ow);  // outputs that nobody wants
  return gain<Unit>(s) > COPY * double(floats.value()) + Unit::CYCLES.direct * double(d.c) * double(d.m) * beyond;
}

inline Size scratch_bytes(const Dilated& d, int threads) {
  return Size(4) * (d.inputs() + d.outputs()) + scratch_bytes<Unit>(d.images(), threads);
}

// Channel `c` of all images from x, one channel of theirs.
inline void take_apart(const Dilated& d, const Shape& s, const float* x, isize c, float* images) {
  for (isize p = 0; p < d.dh; p++)
    for (isize q = 0; q < d.dw; q++) {
      float* to = images + ((p * d.dw + q) * d.c + c) * s.ih * s.iw;
      const gemm::Span in(q - d.pw, d.dw, d.iw, s.iw);
      for (isize i = 0; i < s.ih; i++, to += s.iw) {
        const isize h = i * d.dh + p - d.ph;
        if (h < 0 || h >= d.ih || in.lo >= in.hi) {
          gemm::fill_zero(to, s.iw);
          continue;
        }
        gemm::fill_zero(to, in.lo);
        gemm::copy_strided(x + h * d.iw + q - d.pw + in.lo * d.dw, d.dw, to + in.lo, in.hi - in.lo);
        gemm::fill_zero(to + in.hi, s.iw - in.hi);
      }
    }
}

inline void put_together(const Dilated& d, const Shape& s, const float* images, isize m, float* y) {
  for (isize h = 0; h < d.oh; h++)
    for (isize q = 0; q < d.dw; q++) {
      const float* from = images + ((h % d.dh * d.dw + q) * d.m + m) * s.oh * s.ow + h / d.dh * s.ow;
      float* to = y + h * d.ow;
      for (isize v = q; v < d.ow; v += d.dw) to[v] = *from++;
    }
}

// x [n, c, ih, iw], w [m, c, 3, 3], y [n, m, oh, ow]; e without a residual.
inline void run(Call& call, const Dilated& d, const float* x, const float* w, float* y, const Epilogue& e) {
  const Shape s = d.images();
  float *in = reinterpret_cast<float*>(call.scratch), *out = in + d.inputs();
  Call rest = call;
  rest.scratch = reinterpret_cast<char*>(out + d.outputs());
  for (isize i = 0; i < d.n; i++, x += d.c * d.ih * d.iw, y += d.m * d.oh * d.ow) {
    parallel_for(call.pool, d.c, (1 << 14) / (d.ih * d.iw) + 1, [&](i64 begin, i64 end, int) {
      for (isize c = proven(begin); c < proven(end); c++) take_apart(d, s, x + c * d.ih * d.iw, c, in);
    });
    run<Unit>(rest, s, in, w, out, e);
    parallel_for(call.pool, d.m, (1 << 14) / (d.oh * d.ow) + 1, [&](i64 begin, i64 end, int) {
      for (isize m = proven(begin); m < proven(end); m++) put_together(d, s, out, m, y + m * d.oh * d.ow);
    });
  }
}

}  // namespace winograd
