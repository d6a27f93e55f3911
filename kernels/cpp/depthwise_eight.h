// Depthwise convolution by 5 x 5 taps of eight channels side by side: their rows are transposed into a band that lies [row, column,
// channel], with its padding, where a tap of eight channels is one vector however narrow the image. Eight pixels of the outcome are
// transposed back.
#pragma once
#include "depthwise.h"

#if defined(__AVX__) && !defined(__AVX512F__)
namespace dw::eight {

constexpr int TAPS = 5;            // of a row and of a column
constexpr isize BAND = 24 << 8;    // floats: of a level-1 cache, which holds the next rows of inputs and outputs too
constexpr isize WIDEST = 1 << 10;  // columns

struct Band {
  isize pitch, rows, inputs;  // columns of a row, output rows, input rows that they read
};

inline Band band(const Shape& s) {
  Band b;
  b.pitch = most(s.pw + s.iw, (most(s.ow, W) - 1) * s.sw + TAPS);
  const isize most_rows = most((BAND / (W * b.pitch) - TAPS) / s.sh + 1, 1), bands = (s.oh + most_rows - 1) / most_rows;
  b.rows = (s.oh + bands - 1) / bands;
  b.inputs = (b.rows - 1) * s.sh + TAPS;
  return b;
}

inline bool suits(const Shape& s, isize channels, isize multiplier) {
  const bool fits = s.pw >= 0 && s.oh * s.ow >= 2 * W && eight::band(s).pitch <= WIDEST;
  return usual(s) && s.kh == TAPS && multiplier == 1 && channels >= W && fits;
}

// Of one thread: a band and the weights of eight channels.
inline isize scratch_floats(const Shape& s) {
  const Band b = eight::band(s);
  return (b.inputs * b.pitch + TAPS * TAPS) * W;
}

inline void transpose(VF (&v)[W]) {
  VF groups[W];
  gemm::transpose(v, groups);
  gemm::transpose(v + 4, groups + 4);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    v[i] = __builtin_shufflevector(groups[i], groups[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    v[i + 4] = __builtin_shufflevector(groups[i], groups[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// A row of each of `count` planes, `plane` apart, side by side. Of missing planes there is the last one again.
[[gnu::noinline]] inline void copy_row(const float* x, isize plane, isize count, isize n, float* out) {
  const float* from[W];
  for (isize c = 0; c < W; c++) from[c] = x + least(c, count - 1) * plane;
  const isize lanes = least(n, W);
  for (isize j = 0;; j = least(j + W, n - lanes)) {
    VF v[W];
#pragma unroll
    for (int c = 0; c < W; c++) v[c] = lanes == W ? load(from[c] + j) : load_part(from[c] + j, lanes);
    transpose(v);
    for (isize i = 0; i < lanes; i++) store(out + (j + i) * W, v[i]);
    if (j + lanes == n) return;
  }
}

struct Ends {
  VF start, low, high;
};

// One row of outputs of `count` planes, `pixels` apart.
template <int S>
[[gnu::noinline]] inline void row(const float* in, isize pitch, isize ow, const float* w, const Ends& ends, float* y, isize pixels,
                                  isize count) {
  const isize lanes = least(ow, W);
  for (isize j = 0;; j = least(j + W, ow - lanes)) {
    VF sums[W];
#pragma unroll
    for (int i = 0; i < W; i++) sums[i] = ends.start;
    const float *from = in + j * S * W, *tap = w;
    for (int kh = 0; kh < TAPS; kh++, from += pitch * W)
#pragma unroll
      for (int kw = 0; kw < TAPS; kw++, tap += W) {
        const VF weight = load(tap);
#pragma unroll
        for (int i = 0; i < W; i++) sums[i] = fma(load(from + (i * S + kw) * W), weight, sums[i]);
      }
#pragma unroll
    for (int i = 0; i < W; i++) sums[i] = vmin(vmax(sums[i], ends.low), ends.high);
    transpose(sums);
    float* to = y + j;
    if (lanes == W && count == W) {
#pragma unroll
      for (int c = 0; c < W; c++) store(to + c * pixels, sums[c]);
    } else {
      for (isize c = 0; c < count; c++) store_part(to + c * pixels, sums[c], lanes);
    }
    if (j + lanes == ow) return;
  }
}

// As dw::run with a multiplier of 1.
inline void run(Call& call, const Shape& s, isize n, isize channels, const float* x, const float* w, float* y, const Epilogue& e) {
  const Band b = eight::band(s);
  const isize each = eight::scratch_floats(s), pixels = s.oh * s.ow, plane = s.ih * s.iw, blocks = (channels + W - 1) / W;
  constexpr isize taps = TAPS * TAPS;
  const auto go = s.sh == 1 ? row<1> : row<2>;
  const Floats planes{s, x, y, channels, pixels, e};
  const double flops = 2.0 * double(pixels * taps * W);
  parallel_for(call.pool, i64(n) * blocks, i64(gemm::MIN_FLOPS / (flops + 1)) + 1, [&](i64 begin, i64 end, int thread) {
    float *weights = reinterpret_cast<float*>(call.scratch) + thread * each, *in = weights + taps * W;
    gemm::fill_zero(in, b.inputs * b.pitch * W);  // the border, which no row is copied over
    for (isize at = proven(begin); at < proven(end); at++) {
      const isize image = at / blocks, first = at % blocks * W, count = least(W, channels - first);
      const Clamp clamp = planes.clamp();
      Ends ends{splat(0), splat(clamp.low), splat(clamp.high)};
      for (isize c = 0; c < W; c++) {
        const isize o = first + least(c, count - 1);
        ends.start[c] = planes.start(o)[0];
        for (isize t = 0; t < taps; t++) weights[t * W + c] = w[o * taps + t];
      }
      const float* from = planes.row(image * channels + first, 0);
      for (isize r0 = 0, held = 0; r0 < s.oh; r0 += b.rows) {
        const isize count_rows = least(b.rows, s.oh - r0), top = r0 * s.sh - s.ph, inputs = (count_rows - 1) * s.sh + TAPS;
        for (isize i = 0; i < inputs; i++) {
          float* to = in + i * b.pitch * W + s.pw * W;
          if (i < held) __builtin_memcpy(to, to + b.rows * s.sh * b.pitch * W, size_t(s.iw * W) * 4);
          else if (top + i < 0 || top + i >= s.ih) gemm::fill_zero(to, s.iw * W);
          else copy_row(from + (top + i) * s.iw, plane, count, s.iw, to);
        }
        held = TAPS - s.sh;
        float* out = planes.out(image, first, r0);
        for (isize r = 0; r < count_rows; r++) go(in + r * s.sh * b.pitch * W, b.pitch, s.ow, weights, ends, out + r * s.ow, pixels, count);
        for (isize c = 0; c < count; c++) planes.finish(image, first + c, r0, count_rows, out + c * pixels);
      }
    }
  });
}

}  // namespace dw::eight
#endif
