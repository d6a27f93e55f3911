// 3 x 3 convolution of stride 1 by Winograd's F(4 x 4, 3 x 3): 36 multiplications in place of 144 per 4 x 4 outputs (Lavin and Gray,
// arXiv:1509.09308); of stride 2, with vectors of four lanes, 81 in their place (winograd/strided.h). Tiles of the image are the columns of
// those products; transforms run on a vector of tiles, or channels, at a time.
// Outputs that come out as NaN or infinity are computed again term by term, so those spread no further than they would in a plain sum.
// Rounding errors are relative to the largest terms of a tile, about 20 epsilons of them.
#pragma once
#include "winograd/few.h"

namespace winograd {

// The image as one block: all of its tiles first, then parts of the output channels, from their weights to the end.
template <class F> void run_parts(Call& call, const Shape& s, const Cut& r, const float* x, const float* w, float* y, const Epilogue& e) {
  float *v = reinterpret_cast<float*>(call.scratch), *own = v + r.of_all();
  const isize tiles = s.tiles();
  auto image = [&](int thread) { return own + thread * r.of_thread(); };
  parallel_for(call.pool, s.c, (1 << 14) / (s.tiles() * 8) + 1, [&](i64 begin, i64 end, int thread) {
    inputs<F>(s, x, proven(begin), proven(end), 0, tiles, r, v, image(thread) + r.weights + r.outputs);
  });
  parallel_for(call.pool, r.parts, 1, [&](i64 begin, i64 end, int thread) {
    float *u = image(thread), *points = u + r.weights;
    for (isize m0 = proven(begin) * r.rows; m0 < least(proven(end) * r.rows, s.m); m0 += r.rows) {
      const isize rows = least(r.rows, s.m - m0);
      weights<F>(s, w + m0 * s.c * 9, 0, rows, r.rows, u);
      products<F>(s, r, u, r.rows, 0, rows, v, tiles, points);
      outputs<F>(s, x, w, points, m0, m0 + rows, 0, tiles, r, y, e);
    }
  });
}

// x [n, c, ih, iw], w [m, c, 3, 3], y [n, m, oh, ow].
template <class F> void run(Call& call, const Shape& s, const float* x, const float* w, float* y, const Epilogue& base) {
  if (few<F>(s)) return run_few(call, s, x, w, y, base);
  const isize threads = pool_threads(call.pool);
  const Cut r = cut<F>(s, threads);
  float* u = reinterpret_cast<float*>(call.scratch);
  if (r.shared) return run_parts<F>(call, s, r, x, w, y, base);
  constexpr isize UNIT = W > 4 ? ROWS : 1;
  parallel_for(call.pool, (s.m + UNIT - 1) / UNIT, (1 << 14) / (s.c * 9 * UNIT) + 1, [&](i64 begin, i64 end, int) {
    weights<F>(s, w, proven(begin) * UNIT, least(proven(end) * UNIT, s.m), s.m, u);
  });
  parallel_for(call.pool, i64(s.n) * r.blocks * r.parts, 1, [&](i64 begin, i64 end, int thread) {
    float* v = u + r.weights + thread * r.of_thread();
    float* points = v + r.inputs;
    i64 transformed = -1;
    for (i64 item = begin; item < end; item++) {
      const isize m0 = proven(item % r.parts) * r.rows, m1 = least(m0 + r.rows, s.m);
      const i64 block = item / r.parts;
      const isize image = proven(block / r.blocks);
      const isize t0 = proven(block % r.blocks) * r.block, n = least(r.block, s.tiles() - t0);
      const float* xi = x + image * s.c * s.ih * s.iw;
      if (block != transformed) inputs<F>(s, xi, 0, s.c, t0, n, r, v, points + r.outputs);
      transformed = block;
      products<F>(s, r, u, s.m, m0, m1, v, n, points);
      Epilogue e = base;
      if (e.res) e.res += image * s.m * s.oh * s.ow;
      outputs<F>(s, xi, w, points, m0, m1, t0, n, r, y + image * s.m * s.oh * s.ow, e);
    }
  });
}

}  // namespace winograd
