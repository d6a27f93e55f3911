// Convolution of few input channels: a band of input rows is copied with its padding and split by column phase, so that a tap of
// neighbouring outputs is a vector, and tiles of the product read the windows of a row of outputs where they lie. Nothing is packed.
#pragma once
#include "depthwise.h"

#if defined(__AVX__)
namespace shallow {

using gemm::least;
using gemm::most;
using gemm::round_up;

constexpr isize DEEPEST = 256;             // taps of all channels
constexpr isize BAND = 8 << 10, LARGEST = 48 << 10;  // floats: of a level-1 cache, and of a band of one row

struct Shape : dw::Shape {
  isize n, c, m;
  isize depth() const { return c * kh * kw; }
};

inline dw::Band band(const Shape& s) {
  dw::Band b;
  b.phase = round_up(s.ow, W) + (s.kw - 1) * s.dw / s.sw + 1;
  b.pitch = b.phase * least(s.sw, (s.kw - 1) * s.dw + 1);
  const isize reach = (s.kh - 1) * s.dh + 1;
  b.rows = least(s.oh, most((BAND / (s.c * b.pitch) - reach) / s.sh + 1, 1));
  b.inputs = (b.rows - 1) * s.sh + reach;
  return b;
}

// Rows of outputs fill their vectors, and bands stay small.
inline bool suits(const Shape& s) {
  if (s.c < 1 || s.c > DEEPEST || s.kh * s.kw == 1 || s.depth() > DEEPEST || s.m < 8 || s.ow > 8192 || s.ow < 2 * W) return false;
  if (s.sh > 8 || s.sw > 8 || s.kh * s.dh > 64 || s.kw * s.dw > 64 || round_up(s.ow, W) * 7 > s.ow * 8) return false;
  const dw::Band b = band(s);
  return s.c * b.inputs * b.pitch <= LARGEST;
}

// Of one thread: a band, and where in it each tap of the first window lies.
inline isize scratch_floats(const Shape& s) {
  const dw::Band b = band(s);
  return round_up(s.c * b.inputs * b.pitch, 16) + DEEPEST;
}

struct Tile {
  const float* a;
  isize k;  // of a row, too
  const float* b;
  const int32_t* places;
  const float* start;  // of each row; nullptr: 0
  bool clamp;
  float low, high;
  float* y;
  isize y_rs, last;  // lanes of the last vector
};

template <int M, int V> [[gnu::noinline]] void tile(const Tile& t) {
  VF acc[M][V];
#pragma unroll
  for (int i = 0; i < M; i++)
#pragma unroll
    for (int v = 0; v < V; v++) acc[i][v] = splat(t.start ? t.start[i] : 0);
  const float* a[M];
#pragma unroll
  for (int i = 0; i < M; i++) a[i] = t.a + i * t.k;
  for (isize k = 0; k < t.k; k++) {
    const float* from = t.b + t.places[k];
    VF b[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
      b[v] = load(from + v * W);
      pin(b[v]);
    }
#pragma unroll
    for (int i = 0; i < M; i++) {
      const VF s = splat(a[i][k]);
#pragma unroll
      for (int v = 0; v < V; v++) {
        acc[i][v] = fma(s, b[v], acc[i][v]);
        pin(acc[i][v]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < M; i++)
#pragma unroll
    for (int v = 0; v < V; v++) {
      const VF o = t.clamp ? vmin(vmax(acc[i][v], splat(t.low)), splat(t.high)) : acc[i][v];
      store_part(t.y + i * t.y_rs + v * W, o, v == V - 1 ? t.last : W);
    }
}

// The largest of M, M / 2, ... 1 rows that there are.
template <int M, int V> inline isize tile_rows(const Tile& t, isize rows) {
  if constexpr (M > 1)
    if (rows < M) return tile_rows<M / 2, V>(t, rows);
  tile<M, V>(t);
  return M;
}

// Rows [r, r + count) of outputs of one image from their band.
inline void rows(const Shape& s, const dw::Band& b, const float* in, const int32_t* places, const float* w, isize r, isize count, float* y,
                 const Epilogue& e) {
  constexpr int WIDE = W == 16 ? 8 : 4;
  Tile t{};
  t.k = s.depth(), t.places = places, t.y_rs = s.oh * s.ow;
  t.clamp = e.simple() && !e.res && e.act != Act::NONE, t.low = e.low(), t.high = e.high();
  for (isize m = 0, high; m < s.m; m += high) {
    high = least(8, s.m - m);
    for (isize i = 0; i < count; i++)
      for (isize j = 0, columns; j < s.ow; j += columns) {
        columns = gemm::panel_columns(s.ow - j);
        const isize vectors = (columns + W - 1) / W, at = (r + i) * s.ow + j;
        t.b = in + i * s.sh * b.pitch + j;
        t.last = columns - (vectors - 1) * W;
        for (isize l = m, done; l < m + high; l += done) {
          t.a = w + l * t.k, t.y = y + l * t.y_rs + at, t.start = e.bias ? e.bias + l * e.bias_ms : nullptr;
          const isize left = m + high - l;
          done = vectors == 3 ? tile_rows<WIDE, 3>(t, left) : vectors == 2 ? tile_rows<WIDE, 2>(t, left) : tile_rows<8, 1>(t, left);
          if (!t.clamp)
            for (isize q = 0; q < done; q++) e.finish(l + q, at, columns, t.y + q * t.y_rs);
        }
      }
  }
}

// x [n, c, ih, iw], w [m, c, kh, kw], y [n, m, oh, ow].
inline void run(Call& call, const Shape& s, const float* x, const float* w, float* y, const Epilogue& base) {
  const dw::Band b = band(s);
  const isize bands = (s.oh + b.rows - 1) / b.rows, image = s.c * s.ih * s.iw, pixels = s.m * s.oh * s.ow, each = scratch_floats(s);
  const double flops = 2.0 * double(s.m) * double(s.depth()) * double(b.rows * s.ow);
  parallel_for(call.pool, i64(s.n) * bands, i64(gemm::MIN_FLOPS / (flops + 1)) + 1, [&](i64 begin, i64 end, int thread) {
    float* in = reinterpret_cast<float*>(call.scratch) + thread * each;
    int32_t* places = reinterpret_cast<int32_t*>(in + each - DEEPEST);
    for (isize c = 0, k = 0; c < s.c; c++)
      for (isize i = 0; i < s.kh; i++)
        for (isize t = 0; t < s.kw; t++)
          places[k++] = int32_t((c * b.inputs + i * s.dh) * b.pitch + t * s.dw % s.sw * b.phase + t * s.dw / s.sw);
    for (i64 item = begin; item < end; item++) {
      const isize of = proven(item / bands), r = proven(item % bands) * b.rows, count = least(b.rows, s.oh - r);
      const isize inputs = b.inputs - (b.rows - count) * s.sh;
      for (isize c = 0; c < s.c; c++)
        dw::copy_band(s, b, r * s.sh - s.ph, inputs, [&](isize h) { return x + of * image + (c * s.ih + h) * s.iw; }, in + c * b.inputs * b.pitch);
      Epilogue e = base;
      if (e.res) e.res += of * pixels;
      rows(s, b, in, places, w, r, count, y + of * pixels, e);
    }
  });
}

}  // namespace shallow
#endif
