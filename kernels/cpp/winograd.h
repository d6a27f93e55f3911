// 3 x 3 convolution of stride 1 by Winograd's F(4 x 4, 3 x 3): 36 multiplications in place of 144 per 4 x 4 outputs (Lavin and Gray,
// arXiv:1509.09308). Tiles of the image are the columns of those products; transforms run on a vector of tiles, or channels, at a time.
// Outputs that come out as NaN or infinity are computed again term by term, so those spread no further than they would in a plain sum.
// Rounding errors are relative to the largest terms of a tile, about 20 epsilons of them.
#pragma once
#include "gemm.h"

namespace winograd {

using gemm::least;
using gemm::most;
using gemm::round_up;

constexpr int POINTS = 36, MAX_WEIGHTS = 4 << 20;
constexpr isize MAX_WIDTH = 1 << 16;  // rows of a channel are copied with their padding
constexpr int FOURS = W / 4;  // of a vector

struct Shape {
  isize n, c, m, ih, iw, oh, ow, ph, pw;
  isize across() const { return (ow + 3) / 4; }
  isize tiles() const { return (oh + 3) / 4 * across(); }
};

// Cycles of a machine with two multiply-adds of W lanes: of a weight's transform, of a tile's in one channel, of the products of a tile and
// a weight, and of a weight's for one output without all this.
struct Cycles {
  double weight, transform, product, direct;
};
constexpr Cycles CYCLES = W == 4 ? Cycles{36, 40, 5.4, 0.9} : W == 8 ? Cycles{24, 34, 2.8, 0.56} : Cycles{22, 28, 1.5, 0.38};

// Whether this is much less work than a direct product; transforms of weights count. A small gain is not worth the scratch.
inline bool worthwhile(const Shape& s) {
  const double mc = double(s.m) * double(s.c), tiles = double(round_up(s.tiles(), W)) * double(s.n);
  if (s.c < 8 || s.m < 8 || s.c > 1024 || s.ow > MAX_WIDTH || mc * POINTS > MAX_WEIGHTS) return false;
  const double here = CYCLES.weight * mc + CYCLES.transform * double(s.c + s.m) * tiles + CYCLES.product * mc * tiles;
  return here < CYCLES.direct * mc * double(s.n) * double(s.oh * s.ow);
}

// The floats of one point's plane: an odd number of cache lines, as all points of a tile are written one behind the other, and planes a
// power of two apart would drive each other out of the cache.
inline isize plane_floats(isize count) { return (((count + 15) / 16) | 1) * 16; }

struct Cut {
  isize block;   // tiles at a time
  isize blocks;  // of an image
  isize rows;    // output channels at a time
  isize parts;   // of the output channels
  isize pitch;   // floats of a padded row
  isize weights, inputs, outputs, plane, places;  // floats of scratch, int32 of `places`
  isize of_thread() const { return inputs + outputs + plane + places; }
};

inline Cut cut(const Shape& s, isize threads) {
  Cut r;
  const isize wide = most((128 << 10) / (POINTS * (s.c + s.m)) / gemm::NR, 2) * gemm::NR, tiles = s.tiles();
  r.blocks = (tiles + wide - 1) / wide;
  r.block = round_up((tiles + r.blocks - 1) / r.blocks, W);
  r.blocks = (tiles + r.block - 1) / r.block;
  const i64 items = i64(s.n) * r.blocks;
  const isize parts = threads == 1 ? 1 : least(proven((2 * threads + items - 1) / items), (s.m + 31) / 32);
  r.rows = round_up((s.m + parts - 1) / parts, gemm::TILE_ROWS[gemm::NV]);
  r.parts = (s.m + r.rows - 1) / r.rows;
  r.weights = POINTS * plane_floats(s.m * s.c);
  r.inputs = POINTS * plane_floats(s.c * r.block);
  r.outputs = POINTS * plane_floats(r.rows * r.block);
  r.pitch = 4 * s.across() + 2;
  r.plane = round_up((4 * least((r.block - 1) / s.across() + 2, (s.oh + 3) / 4) + 2) * r.pitch, 16);
  r.places = round_up(r.block, 16);
  return r;
}

inline Size scratch_bytes(const Shape& s, int threads) {
  const Cut r = cut(s, threads);
  return Size(4) * (Size(r.weights) + Size(threads) * r.of_thread());
}

inline void weight_points(VF a, VF b, VF c, VF* out, int step) {
  const VF even = (a + c) * (-1 / 6.f), odd = b * (1 / 6.f), far = a * (1 / 24.f) + c * (1 / 6.f), half = b * (1 / 12.f);
  out[0] = a * 0.25f;
  out[step] = even - odd;
  out[2 * step] = even + odd;
  out[3 * step] = far + half;
  out[4 * step] = far - half;
  out[5 * step] = c;
}

inline void input_points(const VF* d, int from, VF* out, int step) {
  const VF d1 = d[from], d2 = d[2 * from], d3 = d[3 * from], d4 = d[4 * from];
  const VF p = d4 - 4.f * d2, q = d3 - 4.f * d1, r = d4 - d2, t = 2.f * (d3 - d1);
  out[0] = 4.f * d[0] - 5.f * d2 + d4;
  out[step] = p + q;
  out[2 * step] = p - q;
  out[3 * step] = r + t;
  out[4 * step] = r - t;
  out[5 * step] = 4.f * d1 - 5.f * d3 + d[5 * from];
}

inline void output_points(const VF* m, int from, VF* out, int step) {
  const VF p = m[from] + m[2 * from], q = m[from] - m[2 * from], r = m[3 * from] + m[4 * from], t = m[3 * from] - m[4 * from];
  out[0] = m[0] + p + r;
  out[step] = q + 2.f * t;
  out[2 * step] = p + 4.f * r;
  out[3 * step] = q + 8.f * t + m[5 * from];
}

// u[point, m, c] for output channels [m0, m1).
inline void weights(const Shape& s, const float* w, isize m0, isize m1, float* u) {
  const isize plane = plane_floats(s.m * s.c);
  for (isize m = m0; m < m1; m++)
    for (isize c = 0; c < s.c; c += W) {
      const isize n = least(W, s.c - c);
      VF g[9], rows[18], out[POINTS];
      const float* from = w + (m * s.c + c) * 9;
      if constexpr (W == 4) {
        for (int k = 0; k < 9; k++)
          for (int l = 0; l < W; l++) g[k][l] = l < n ? from[l * 9 + k] : 0;
      } else {
        float lanes[9][W] = {};
        for (isize l = 0; l < n; l++)
          for (int k = 0; k < 9; k++) lanes[k][l] = from[l * 9 + k];
        __builtin_memcpy(g, lanes, sizeof g);
      }
      for (int j = 0; j < 3; j++) weight_points(g[j], g[3 + j], g[6 + j], rows + j, 3);
      for (int i = 0; i < 6; i++) weight_points(rows[3 * i], rows[3 * i + 1], rows[3 * i + 2], out + 6 * i, 1);
      float* to = u + m * s.c + c;
      for (int k = 0; k < POINTS; k++, to += plane) {
        if (n == W) store(to, out[k]);
        else
          for (int l = 0; l < n; l++) to[l] = out[k][l];
      }
    }
}

// The first row and column of a tile's outputs.
struct Place {
  isize h, w;
  Place(const Shape& s, isize tile) : h(tile / s.across() * 4), w(tile % s.across() * 4) {}
};

// Four lanes of a vector, and a vector of fours.
inline VF4 four(VF v, int g) {
  VF4 all[FOURS];
  __builtin_memcpy(all, &v, sizeof v);
  return all[g];
}
inline VF joined(const VF4* fours) {
  VF v;
  __builtin_memcpy(&v, fours, sizeof v);
  return v;
}

// Six neighbours in each of four rows, as columns.
inline void six(const float* const* p, isize at, VF4* d, int step) {
  VF4 lo[4], hi[4];
  for (int l = 0; l < 4; l++) {
    lo[l] = load4(p[l] + at);
    hi[l] = load4(p[l] + at + 2);
  }
  const VF4 a = __builtin_shufflevector(lo[0], lo[1], 0, 4, 1, 5), b = __builtin_shufflevector(lo[2], lo[3], 0, 4, 1, 5);
  const VF4 e = __builtin_shufflevector(hi[0], hi[1], 0, 4, 1, 5), f = __builtin_shufflevector(hi[2], hi[3], 0, 4, 1, 5);
  const VF4 g = __builtin_shufflevector(hi[0], hi[1], 2, 6, 3, 7), h = __builtin_shufflevector(hi[2], hi[3], 2, 6, 3, 7);
  d[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  d[step] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  d[2 * step] = __builtin_shufflevector(e, f, 0, 1, 4, 5);
  d[3 * step] = __builtin_shufflevector(e, f, 2, 3, 6, 7);
  d[4 * step] = __builtin_shufflevector(g, h, 0, 1, 4, 5);
  d[5 * step] = __builtin_shufflevector(g, h, 2, 3, 6, 7);
}

// Transforms tiles [t0, t0 + n) of every channel; v[point] holds panels as gemm packs them. `image`: r.plane floats and r.places int32, for
// the rows of a channel with their padding, and where in them tiles begin.
inline void inputs(const Shape& s, const float* x, isize t0, isize n, const Cut& r, float* v, float* image) {
  const isize plane = plane_floats(s.c * r.block), first = t0 / s.across(), high = 4 * ((t0 + n - 1) / s.across() - first) + 6;
  int32_t* places = reinterpret_cast<int32_t*>(image + r.plane);
  for (isize t = 0; t < n; t++) {
    const Place at(s, t0 + t);
    places[t] = int32_t((at.h - 4 * first) * r.pitch + at.w);
  }
  gemm::fill_zero(image, r.plane);  // the padding, which no row is copied over
  const isize left = most(s.pw, 0), skipped = most(-s.pw, 0), wide = least(s.iw - skipped, r.pitch - left);
  for (isize c = 0; c < s.c; c++) {
    for (isize i = 0; i < high; i++) {
      const isize h = 4 * first - s.ph + i;
      if (h >= 0 && h < s.ih && wide > 0) gemm::copy_floats(x + (c * s.ih + h) * s.iw + skipped, image + i * r.pitch + left, wide);
    }
    for (isize j = 0, columns; j < n; j += columns) {
      columns = gemm::panel_columns(n - j);
      const isize width = round_up(columns, W);
      for (isize q = 0; q < width; q += W) {
        const float* at[W];
        for (int l = 0; l < W; l++) at[l] = image + places[j + least(q + l, columns - 1)];
        VF d[6], rows[POINTS], out[6];
        for (int i = 0; i < 6; i++) {
          VF4 fours[6][FOURS];
          for (int g = 0; g < FOURS; g++) six(at + 4 * g, i * r.pitch, fours[0] + g, FOURS);
          for (int k = 0; k < 6; k++) d[k] = joined(fours[k]);
          input_points(d, 1, rows + 6 * i, 1);
        }
        float* to = v + j * s.c + c * width + q;
        for (int k = 0; k < 6; k++) {
          input_points(rows + k, 6, out, 1);
          for (int i = 0; i < 6; i++) store(to + (6 * i + k) * plane, out[i]);
        }
      }
    }
  }
}

// One output, term by term.
inline float plain(const Shape& s, const float* x, const float* w, isize h, isize v) {
  float sum = 0;
  for (isize c = 0; c < s.c; c++)
    for (isize i = 0; i < 3; i++)
      for (isize j = 0; j < 3; j++) {
        const isize ih = h - s.ph + i, iw = v - s.pw + j;
        if (ih >= 0 && ih < s.ih && iw >= 0 && iw < s.iw) sum += w[c * 9 + i * 3 + j] * x[(c * s.ih + ih) * s.iw + iw];
      }
  return sum;
}

inline void finish_tile(const Epilogue& e, float* tile) {
  if (e.act == Act::NONE) return;
  if (e.act == Act::SILU) return silu_all(tile, 16 * W);
  const VF low = splat(e.low()), high = splat(e.high());
  const bool clamp = e.act <= Act::CLIP;
  for (int k = 0; k < 16 * W; k += W) {
    const VF v = load(tile + k);
    store(tile + k, clamp ? vmin(vmax(v, low), high) : activate(e.act, v, splat(e.act_a), splat(e.act_b)));
  }
}

// Where row i of the l-th tile of a vector lies: those of four tiles side by side.
inline isize row_of(isize l, isize i) { return 16 * (l / 4 * 4 + i) + l % 4 * 4; }

// Writes `count` tiles that begin at rows h and columns v, into one channel.
inline void write_tiles(const Shape& s, const float* tile, const isize* h, const isize* v, isize count, const Epilogue& e, const float* res,
                        float* y) {
  auto put = [&](const float* made, isize to, isize columns) {
    VF o = load(made);
    if (res) o += load_part(res + to, columns);
    if (res && e.after) o = activate(e.act, o, splat(e.act_a), splat(e.act_b));
    store_part(y + to, o, columns);
  };
  for (isize l = 0; l < count;) {
    const isize tall = least(4, s.oh - h[l]);
    if (l % 4 == 0 && l + 4 <= count && v[l] + 16 <= s.ow) {  // four side by side
      for (isize i = 0; i < tall; i++)
        for (isize k = 0; k < 16; k += W) put(tile + row_of(l, i) + k, (h[l] + i) * s.ow + v[l] + k, W);
      l += 4;
    } else {
      const isize columns = least(4, s.ow - v[l]);
      for (isize i = 0; i < tall; i++) put(tile + row_of(l, i), (h[l] + i) * s.ow + v[l], columns);
      l++;
    }
  }
}

// Output channels [m0, m1) of tiles [t0, t0 + n) from their transforms; x and y are one image, e its rows.
inline void outputs(const Shape& s, const float* x, const float* w, const float* points, isize m0, isize m1, isize t0, isize n,
                    const Cut& r, float* y, const Epilogue& e) {
  const isize plane = plane_floats(r.rows * r.block);
  const bool late = e.res && e.after;
  for (isize q = 0; q < n; q += W) {
    const isize count = least(W, n - q);
    isize h[W], v[W];
    for (int l = 0; l < W; l++) {
      const Place at(s, t0 + q + l);
      h[l] = at.h, v[l] = at.w;
    }
    for (isize m = m0; m < m1; m++) {
      const float* from = points + (m - m0) * r.block + q;
      VF in[6], rows[24], out[4];
      for (int k = 0; k < 6; k++) {
        for (int i = 0; i < 6; i++) in[i] = load(from + (6 * i + k) * plane);
        output_points(in, 1, rows + k, 6);
      }
      float tile[16 * W + W];
      const float start = e.start(m, 0, 1)[0];
      VF check = splat(0);
      for (int i = 0; i < 4; i++) {
        output_points(rows + 6 * i, 1, out, 1);
        for (int k = 0; k < 4; k++) check += 0.f * out[k], out[k] += start;
        for (int g = 0; g < FOURS; g++) {
          const VF4 o[4] = {four(out[0], g), four(out[1], g), four(out[2], g), four(out[3], g)};
          const VF4 a = __builtin_shufflevector(o[0], o[1], 0, 4, 1, 5), b = __builtin_shufflevector(o[0], o[1], 2, 6, 3, 7);
          const VF4 c = __builtin_shufflevector(o[2], o[3], 0, 4, 1, 5), d = __builtin_shufflevector(o[2], o[3], 2, 6, 3, 7);
          float* to = tile + row_of(4 * g, i);
          store4(to, __builtin_shufflevector(a, c, 0, 1, 4, 5));
          store4(to + 4, __builtin_shufflevector(a, c, 2, 3, 6, 7));
          store4(to + 8, __builtin_shufflevector(b, d, 0, 1, 4, 5));
          store4(to + 12, __builtin_shufflevector(b, d, 2, 3, 6, 7));
        }
      }
      float sum = 0;  // of tiles that exist; the others are whatever memory held
      if (count == W) sum = sum_lanes(check);
      else
        for (isize l = 0; l < count; l++) sum += check[l];
      if (sum != sum)
        for (isize l = 0; l < count; l++)
          for (isize i = 0; i < 4; i++)
            for (isize k = 0; k < 4; k++)
              if (h[l] + i < s.oh && v[l] + k < s.ow) tile[row_of(l, i) + k] = plain(s, x, w + m * s.c * 9, h[l] + i, v[l] + k) + start;
      if (!late) finish_tile(e, tile);
      write_tiles(s, tile, h, v, count, e, e.res ? e.res + m * e.res_rs : nullptr, y + m * s.oh * s.ow);
    }
  }
}

// x [n, c, ih, iw], w [m, c, 3, 3], y [n, m, oh, ow].
inline void run(Call& call, const Shape& s, const float* x, const float* w, float* y, const Epilogue& base) {
  const isize threads = pool_threads(call.pool);
  const Cut r = cut(s, threads);
  float* u = reinterpret_cast<float*>(call.scratch);
  parallel_for(call.pool, s.m, (1 << 14) / (s.c * 9) + 1, [&](i64 begin, i64 end, int) { weights(s, w, proven(begin), proven(end), u); });
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
      if (block != transformed) inputs(s, xi, t0, n, r, v, points + r.outputs);
      transformed = block;
      gemm::Product p{};
      p.n = n, p.k = p.a_rs = s.c;
      p.y_rs = r.block;
      for (isize k = 0; k < POINTS; k++) {
        p.a = u + k * plane_floats(s.m * s.c) + m0 * s.c;
        p.y = points + k * plane_floats(r.rows * r.block);
        for (isize j = 0, columns; j < n; j += columns) {
          columns = gemm::panel_columns(n - j);
          gemm::panel_product(p, v + k * plane_floats(s.c * r.block) + j * s.c, 0, m1 - m0, j, columns, 0, s.c);
        }
      }
      Epilogue e = base;
      if (e.res) e.res += image * s.m * s.oh * s.ow;
      outputs(s, xi, w, points, m0, m1, t0, n, r, y + image * s.m * s.oh * s.ow, e);
    }
  });
}

}  // namespace winograd
