// Depthwise convolution of W channels side by side: their rows are transposed into a band that lies [row, column, channel], with its
// padding, where a tap of W channels is one vector however narrow the image. W pixels of the outcome are transposed back.
#pragma once
#include "depthwise.h"

#if defined(__AVX__)
namespace dw::beside {

constexpr isize BAND = (W == 16 ? 64 : 24) << 8;  // floats: the rows that one row of outputs reads, and what they move on by, lie in near caches
constexpr isize MOST = 1 << 18;                   // floats of the smallest band

inline isize reach_of_rows(const Shape& s) { return (s.kh - 1) * s.dh + 1; }
inline isize reach_of_columns(const Shape& s) { return (s.kw - 1) * s.dw + 1; }
inline isize together(const Shape& s) { return s.ow <= 8 ? 8 : W; }  // pixels that are summed at a time

struct Band {
  isize pitch, rows, inputs;  // columns of a row, output rows, input rows that they read
};

inline Band band(const Shape& s) {
  Band b;
  const isize reach = reach_of_rows(s);
  b.pitch = most(s.pw + s.iw, (most(s.ow, together(s)) - 1) * s.sw + reach_of_columns(s));
  const isize most_rows = most((BAND / (W * b.pitch) - reach) / s.sh + 1, most(reach / s.sh, 1)), bands = (s.oh + most_rows - 1) / most_rows;
  b.rows = (s.oh + bands - 1) / bands;
  b.inputs = (b.rows - 1) * s.sh + reach;
  return b;
}

// Of one thread: a band and the weights of W channels.
inline isize scratch_floats(const Shape& s) {
  const Band b = beside::band(s);
  return (b.inputs * b.pitch + s.kh * s.kw) * W;
}

inline bool suits(const Shape& s, isize channels, isize multiplier) {
  const bool fits = s.pw >= 0 && s.sw <= 2 && s.oh * s.ow >= 2 * W && multiplier == 1 && channels >= W;
  return fits && s.kh * s.kw >= (W == 16 && s.ow <= 8 ? 9 : 25) && beside::scratch_floats(s) <= MOST;
}

inline void transpose(VF (&v)[W]) {
  VF groups[W];
#pragma unroll
  for (int i = 0; i < W; i += 4) gemm::transpose(v + i, groups + i);
#pragma unroll
  for (int i = 0; i < 4; i++) {
#if defined(__AVX512F__)
    const VF ab = __builtin_shufflevector(groups[i], groups[i + 4], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    const VF AB = __builtin_shufflevector(groups[i], groups[i + 4], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    const VF cd = __builtin_shufflevector(groups[i + 8], groups[i + 12], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    const VF CD = __builtin_shufflevector(groups[i + 8], groups[i + 12], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    v[i] = __builtin_shufflevector(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    v[i + 4] = __builtin_shufflevector(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    v[i + 8] = __builtin_shufflevector(AB, CD, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    v[i + 12] = __builtin_shufflevector(AB, CD, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
#else
    v[i] = __builtin_shufflevector(groups[i], groups[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    v[i + 4] = __builtin_shufflevector(groups[i], groups[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
#endif
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

// One row of outputs of `count` planes, `pixels` apart, from `taps` rows of input, N pixels at a time, which are S columns apart.
template <int N, int S>
[[gnu::noinline]] inline void row(const Shape& s, const float* in, isize pitch, isize taps, const float* w, const Ends& ends, float* y,
                                  isize pixels, isize count) {
  const isize lanes = least(s.ow, N);
  for (isize j = 0;; j = least(j + N, s.ow - lanes)) {
    VF sums[N];
#pragma unroll
    for (int i = 0; i < N; i++) sums[i] = ends.start;
    const float *rows = in + j * S * W, *tap = w;
    for (isize kh = 0; kh < taps; kh++, rows += s.dh * pitch * W) {
      const float* from = rows;
      for (isize kw = 0; kw < s.kw; kw++, from += s.dw * W, tap += W) {
        const VF weight = load(tap);
#pragma unroll
        for (int i = 0; i < N; i++) sums[i] = fma(load(from + i * S * W), weight, sums[i]);
      }
    }
    VF planes[W];  // not the sums, which would lie in memory: these are counted through
#pragma unroll
    for (int i = 0; i < W; i++) planes[i] = i < N ? vmin(vmax(sums[i], ends.low), ends.high) : splat(0);
    transpose(planes);
    float* to = y + j;
    if (lanes == W && count == W) {
#pragma unroll
      for (int c = 0; c < W; c++) store(to + c * pixels, planes[c]);
    } else {
      for (isize c = 0; c < count; c++) store_part(to + c * pixels, planes[c], lanes);
    }
    if (j + lanes == s.ow) return;
  }
}

// As dw::run with a multiplier of 1.
inline void run(Call& call, const Shape& s, isize n, isize channels, const float* x, const float* w, float* y, const Epilogue& e) {
  const Band b = beside::band(s);
  const isize each = beside::scratch_floats(s), pixels = s.oh * s.ow, plane = s.ih * s.iw, blocks = (channels + W - 1) / W;
  const isize taps = s.kh * s.kw, reach = reach_of_rows(s);
  const auto go = together(s) == W ? (s.sw == 1 ? row<W, 1> : row<W, 2>) : (s.sw == 1 ? row<8, 1> : row<8, 2>);
  const Floats planes{s, x, y, channels, pixels, e};
  const bool clamps = e.simple() && !e.res && e.act != Act::NONE;
  const Clamp clamp = clamps ? Clamp{e.low(), e.high()} : Clamp();
  const double flops = 2.0 * double(pixels * taps * W);
  parallel_for(call.pool, i64(n) * blocks, i64(gemm::MIN_FLOPS / (flops + 1)) + 1, [&](i64 begin, i64 end, int thread) {
    float *weights = reinterpret_cast<float*>(call.scratch) + thread * each, *in = weights + taps * W;
    gemm::fill_zero(in, b.inputs * b.pitch * W);  // the border, which no row is copied over
    Ends ends{splat(0), splat(clamp.low), splat(clamp.high)};
    for (isize at = proven(begin); at < proven(end); at++) {
      const isize image = at / blocks, first = at % blocks * W, count = least(W, channels - first);
      for (isize c = 0; c < W; c++) ends.start[c] = planes.start(first + least(c, count - 1))[0];
      copy_row(w + first * taps, taps, count, taps, weights);
      const float* image_rows = planes.row(image * channels + first, 0);
      for (isize r0 = 0, held = 0; r0 < s.oh; r0 += b.rows) {
        const isize count_rows = least(b.rows, s.oh - r0), top = r0 * s.sh - s.ph, inputs = (count_rows - 1) * s.sh + reach;
        for (isize i = 0; i < inputs; i++) {
          float* to = in + i * b.pitch * W + s.pw * W;
          if (top + i < 0 || top + i >= s.ih) continue;
          if (i < held) __builtin_memcpy(to, to + b.rows * s.sh * b.pitch * W, size_t(s.iw * W) * 4);
          else copy_row(image_rows + (top + i) * s.iw, plane, count, s.iw, to);
        }
        held = most(reach - s.sh, 0);
        float* out = planes.out(image, first, r0);
        for (isize r = 0; r < count_rows; r++) {
          const isize h = top + r * s.sh;  // of the first tap; those from `above` to `last` lie in the image
          const isize above = h < 0 ? least((s.dh - 1 - h) / s.dh, s.kh) : 0, last = h < s.ih ? least((s.ih - 1 - h) / s.dh + 1, s.kh) : 0;
          const float* first_row = in + (r * s.sh + above * s.dh) * b.pitch * W;
          go(s, first_row, b.pitch, most(last - above, 0), weights + above * s.kw * W, ends, out + r * s.ow, pixels, count);
        }
        for (isize c = 0; c < count && !clamps; c++) planes.finish(image, first + c, r0, count_rows, out + c * pixels);
      }
    }
  });
}

}  // namespace dw::beside
#endif
