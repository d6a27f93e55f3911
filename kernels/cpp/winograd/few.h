// Images of few tiles: lanes are channels, of the input where tiles are transformed and of the output from there on, so that a vector of
// weights meets all tiles.
#pragma once
#if defined(__AVX__)
#include "winograd/wide.h"
#else
#include "winograd/narrow.h"
#endif

namespace winograd {

// v[point][tile, c] of W channels from c on. `image`: W planes, for the rows of channels with their padding.
inline void few_inputs(const Shape& s, const FewCut& r, const float* x, isize c, float* v, float* image) {
  const isize point = plane_floats(FEW * r.channels), tall = r.plane / r.pitch;
  gemm::fill_zero(image, W * r.plane);
  for (isize l = 0; l < W; l++) padded<Unit>(s, r.pitch, x, least(c + l, s.c - 1), 0, tall, image + l * r.plane);
  for (isize t = 0; t < FEW; t++) {
    const Place place(s, least(t, s.tiles() - 1));
    const float* at[W];
    for (isize l = 0; l < W; l++) at[l] = image + l * r.plane + place.h * r.pitch + place.w;
    float* to = v + t * r.channels + c;
    tile_points(Unit{}, at, r.pitch, [&](Point spot, VF value) { store(to + spot.plane * point, value); });
  }
}

// Adds, or for the first of them sets, products of all tiles with TOGETHER output channels: y[tile][m] of one point, with `depth` input
// channels of u[block][c, W], `block` floats apart.
[[gnu::noinline]] inline void few_product(const float* u, isize block, const float* v, isize v_rs, isize depth, bool first, float* y) {
  VF acc[FEW][BESIDE];
#pragma unroll
  for (int t = 0; t < FEW; t++)
#pragma unroll
    for (int r = 0; r < BESIDE; r++) acc[t][r] = first ? splat(0) : load(y + t * TOGETHER + r * W);
  const float *a[FEW], *b[BESIDE];
#pragma unroll
  for (int t = 0; t < FEW; t++) a[t] = v + t * v_rs;
#pragma unroll
  for (int r = 0; r < BESIDE; r++) b[r] = u + r * block;
  auto step = [&](int k) {
    VF bv[BESIDE];
#pragma unroll
    for (int r = 0; r < BESIDE; r++) {
      bv[r] = load(b[r] + k * W);
      pin(bv[r]);
    }
#pragma unroll
    for (int t = 0; t < FEW; t++) {
      const VF av = splat(a[t][k]);
#pragma unroll
      for (int r = 0; r < BESIDE; r++) {
        acc[t][r] = fma(av, bv[r], acc[t][r]);
        pin(acc[t][r]);
      }
    }
  };
  auto pass = [&](int steps) {
#pragma unroll
    for (int t = 0; t < FEW; t++) {
      a[t] += steps;
      pin(a[t]);
    }
#pragma unroll
    for (int r = 0; r < BESIDE; r++) {
      b[r] += steps * W;
      pin(b[r]);
    }
  };
  for (; depth >= 4; depth -= 4) {
    step(0), step(1), step(2), step(3);
    pass(4);
  }
  for (; depth > 0; depth--) step(0), pass(1);
#pragma unroll
  for (int t = 0; t < FEW; t++)
#pragma unroll
    for (int r = 0; r < BESIDE; r++) store(y + t * TOGETHER + r * W, acc[t][r]);
}

// Output channels [m0, m1), at most TOGETHER of them, of all tiles, from points[point][tile][m].
inline void few_outputs(const Shape& s, const float* x, const float* w, const float* points, isize m0, isize m1, float* y, const Epilogue& e) {
  const bool late = e.res && e.after;
  for (isize t = 0; t < s.tiles(); t++) {
    const Place at(s, t);
    const isize tall = least(4, s.oh - at.h), columns = least(4, s.ow - at.w);
    for (isize m = m0; m < m1; m += W) {
      const isize count = least(W, m1 - m);
      VF rows[24], out[4], check = splat(0);
      const VF start = e.bias ? load_part(e.bias + m, count) : splat(0);
      load_points(Unit{}, points + t * TOGETHER + m - m0, plane_floats(FEW * TOGETHER), rows);
      alignas(64) float tile[16 * W + W];
      auto row = [&](isize l, isize i) { return tile + (4 * i + l % 4) * W + l / 4 * 4; };
      for (int i = 0; i < 4; i++) {
        output_points(Unit{}, rows + 6 * i, out);
        for (int k = 0; k < 4; k++) check += 0.f * out[k], out[k] += start;
        VF made[4];
        gemm::transpose(out, made);
        for (int r = 0; r < 4; r++) store(tile + (4 * i + r) * W, made[r]);
      }
      for (isize l = 0; l < count; l++)
        if (check[l] != check[l])
          recompute<Unit>(s, x, w + (m + l) * s.c * 9, at.h, at.w, start[l], [&](isize i) { return row(l, i); });
      const isize to = (m * s.oh + at.h) * s.ow + at.w;
      auto rows_of = [&](auto each) {
        for (isize l = 0; l < count; l++)
          for (isize i = 0; i < tall; i++) each(row(l, i), to + (l * s.oh + i) * s.ow);
      };
      auto add = [&] { rows_of([&](float* o, isize p) { store_part(o, load_part(o, columns) + load_part(e.res + p, columns), columns); }); };
      if (late) add();
      finish_tile(e, tile);
      if (e.res && !late) add();
      rows_of([&](const float* o, isize p) { store_part(y + p, load_part(o, columns), columns); });
    }
  }
}

// x [n, c, ih, iw], w [m, c, 3, 3], y [n, m, oh, ow].
inline void run_few(Call& call, const Shape& s, const float* x, const float* w, float* y, const Epilogue& base) {
  const FewCut r(s, pool_threads(call.pool));
  const isize plane = plane_floats(TOGETHER * r.depth), point = plane_floats(FEW * r.channels), groups = r.channels / W;
  for (isize first = 0, n; first < s.n; first += n, x += n * s.c * s.ih * s.iw) {
    n = least(r.images, s.n - first);
    float *v = reinterpret_cast<float*>(call.scratch), *own = v + r.images * r.inputs;
    parallel_for(call.pool, i64(n) * groups, 64 / W, [&](i64 begin, i64 end, int thread) {
      for (i64 item = begin; item < end; item++) {
        const isize image = proven(item / groups), c = proven(item % groups) * W;
        few_inputs(s, r, x + image * s.c * s.ih * s.iw, c, v + image * r.inputs, own + thread * r.of_thread());
      }
    });
    parallel_for(call.pool, r.parts, 1, [&](i64 begin, i64 end, int thread) {
      float *u = own + thread * r.of_thread(), *points = u + r.weights;
      for (isize m0 = proven(begin) * r.rows, end_of = least(proven(end) * r.rows, s.m); m0 < end_of; m0 += TOGETHER) {
        const isize m1 = least(m0 + TOGETHER, end_of);
        for (isize c = 0, depth; c < s.c; c += depth) {
          depth = least(r.depth, s.c - c);
          for (int b = 0; b < BESIDE; b++) weight_block(s, w, m0 + b * W, m1 - 1, c, c + depth, plane, u + b * depth * W);
          for (isize k = 0; k < Unit::PLANES; k++)
            for (isize i = 0; i < n; i++) {
              const float* tiles = v + i * r.inputs + k * point + c;
              few_product(u + k * plane, depth * W, tiles, r.channels, depth, c == 0, points + i * r.outputs + k * plane_floats(FEW * TOGETHER));
            }
        }
        for (isize i = 0; i < n; i++) {
          Epilogue e = base;
          if (e.res) e.res += (first + i) * s.m * s.oh * s.ow;
          few_outputs(s, x + i * s.c * s.ih * s.iw, w, points + i * r.outputs, m0, m1, y + (first + i) * s.m * s.oh * s.ow, e);
        }
      }
    });
  }
}

}  // namespace winograd
