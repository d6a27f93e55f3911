// Sizes of Winograd's convolution, when it is worthwhile, and how it is cut into pieces that stay in cache.
#pragma once
#include "gemm.h"

namespace winograd {

using gemm::least;
using gemm::most;
using gemm::round_up;

constexpr int MAX_WEIGHTS = 4 << 20;
constexpr isize MAX_WIDTH = 1 << 16;  // rows of a channel are copied with their padding

struct Shape {
  isize n, c, m, ih, iw, oh, ow, ph, pw;
  isize across() const { return (ow + 3) / 4; }
  isize tiles() const { return (oh + 3) / 4 * across(); }
};

// The floats of one point's plane: an odd number of cache lines, as all points of a tile are written one behind the other, and planes a
// power of two apart would drive each other out of the cache.
inline isize plane_floats(isize count) { return (((count + 15) / 16) | 1) * 16; }

// Cycles of a machine with two multiply-adds of W lanes: of a weight's transform, of a tile's in one input channel and in one output channel,
// of the products of a tile and a weight, and of a weight's for one output without all this.
struct Cycles {
  double weight, input, output, product, direct;
};

// Stride 1. A tile reads SIDE x SIDE of a channel; PLANES products of matrices give its outputs, of which each takes blocks(k) rows of
// `c` channels, VALUES in all. before(k, count): the floats of the planes before k, where a block has `count`.
struct Unit {
  static constexpr isize STRIDE = 1, SIDE = 6, PLANES = 36, VALUES = 36;
  static constexpr Cycles CYCLES = W == 4   ? Cycles{16, 40, 40, 5.4, 0.9}
                                   : W == 8 ? Cycles{20, 28, 28, 2.8, 0.56}
                                            : Cycles{12, 24, 24, 1.5, 0.38};
  static constexpr isize blocks(isize) { return 1; }
  static isize before(isize k, isize count) { return k * plane_floats(count); }
};

// Stride 2. Even and odd columns are images of their own, which two taps and one tap read, of the rows as well. Points are 0, 1, -1, 2 and,
// for two taps, infinity; what is even and what is odd adds up point by point. Planes: first those of two finite points, then those of one.
struct Strided {
  static constexpr isize STRIDE = 2, SIDE = 9, PLANES = 25, VALUES = 81;
  static constexpr Cycles CYCLES{75, 85, 32, 12, 1.25};
  static constexpr isize blocks(isize k) { return k < 16 ? 4 : k < 24 ? 2 : 1; }
  static isize before(isize k, isize count) {
    return least(k, 16) * plane_floats(4 * count) + least(most(k - 16, 0), 8) * plane_floats(2 * count) + (k > 24) * plane_floats(count);
  }
};

// Of an image that is one block, weights are transformed for as many output channels at a time as stay in cache together with the tiles.
// Floats: of weights at a time, and of all tiles at most; of weights that do not stay in cache as a whole, and of all tiles beside those.
constexpr isize PART = (W > 4 ? 150 : 110) << 10, WHOLE = (W > 8 ? 320 : 640) << 10;
constexpr isize LARGE = 400 << 10, MOST = (W > 8 ? 320 : 2048) << 10;
template <class F> bool in_parts(const Shape& s) {
  const i64 weights = i64(F::VALUES) * s.m * s.c, inputs = i64(F::VALUES) * s.c * round_up(s.tiles(), W);
  return s.n == 1 && weights > PART && inputs <= (weights > LARGE ? MOST : WHOLE);
}

// Images of three or four tiles, as deep layers have: they would fill no vector, so that lanes are channels (winograd/few.h).
constexpr isize FEW = 4, BESIDE = 2, TOGETHER = BESIDE * W;  // tiles; vectors of output channels that a product takes at a time; channels
template <class F> bool few(const Shape& s) { return F::STRIDE == 1 && s.tiles() <= FEW && s.tiles() >= FEW - 1; }
inline isize few_images(const Shape& s) { return least(s.n, most(2048 / s.c, 1)); }  // that weights are transformed for at a time: 1.2 MB of tiles

// Cycles that this saves of a direct product's; 0 where it has no place. Transforms of weights count.
template <class F> double gain(const Shape& s) {
  constexpr Cycles CYCLES = F::CYCLES;
  constexpr double WEIGHTS = 18, TILES = 17;  // outputs that a direct product makes while weights are transformed, and few tiles multiplied
  const double mc = double(s.m) * double(s.c), tiles = double(round_up(s.tiles(), W)) * double(s.n);
  if (s.c < 8 || s.m < 8 || s.c > 1024 || s.ow > MAX_WIDTH) return 0;
  if (few<F>(s)) {
    const isize times = (s.n + few_images(s) - 1) / few_images(s);
    return s.m < 16 ? 0 : CYCLES.direct * mc * (double(s.n) * (double(s.oh * s.ow) - TILES) - WEIGHTS * double(times));
  }
  if (mc * F::VALUES > MAX_WEIGHTS && !in_parts<F>(s)) return 0;
  const double transforms = CYCLES.weight * mc + (CYCLES.input * double(s.c) + CYCLES.output * double(s.m)) * tiles;
  return CYCLES.direct * mc * double(s.n) * double(s.oh * s.ow) - transforms - CYCLES.product * mc * tiles;
}
template <class F> bool worthwhile(const Shape& s) { return gain<F>(s) > 0; }

// Output channels that weights are laid out for together.
constexpr isize ROWS = W > 4 ? W : gemm::TILE_ROWS[gemm::NV];
inline isize laid(isize m) { return W > 4 ? round_up(m, ROWS) : m; }

struct Cut {
  isize block;   // tiles at a time
  isize blocks;  // of an image
  isize rows;    // output channels at a time
  isize parts;   // of the output channels
  isize pitch;   // floats of a padded row
  isize weights, inputs, outputs, plane, places;  // floats of scratch, int32 of `places`
  bool shared;  // the inputs, by all threads; else the weights
  isize of_all() const { return shared ? inputs : weights; }
  isize of_thread() const { return (shared ? weights : inputs) + outputs + plane + places; }
};

// Tiles of a block, of at least `blocks` of them, so that threads end together; a block costs what a few tiles more would.
inline isize even_block(isize tiles, isize blocks, isize threads) {
  constexpr isize EACH = 2;
  isize best = 0, least_time = 0;
  for (isize b = blocks; b <= blocks + 2 * threads; b++) {
    const isize block = round_up((tiles + b - 1) / b, W), count = (tiles + block - 1) / block, most_of = (count + threads - 1) / threads;
    const isize whole = round_up(block, gemm::NR) + EACH, last = round_up(tiles - (count - 1) * block, gemm::NR) + EACH;
    const isize time = (most_of - 1) * whole + (count % threads == 1 ? last : whole);
    if (!best || time < least_time) best = block, least_time = time;
  }
  return best;
}

template <class F> Cut cut(const Shape& s, isize threads) {
  Cut r;
  const isize wide = most((128 << 10) / (F::VALUES * s.c + F::PLANES * s.m) / gemm::NR, 2) * gemm::NR, tiles = s.tiles();
  r.blocks = in_parts<F>(s) ? 1 : (tiles + wide - 1) / wide;
  r.shared = in_parts<F>(s) || (threads > 1 && s.n == 1 && r.blocks == 1);
  r.block = round_up((tiles + r.blocks - 1) / r.blocks, W);
  if (!r.shared && threads > 1 && s.n == 1 && r.blocks > 1) r.block = even_block(tiles, r.blocks, threads);
  r.blocks = (tiles + r.block - 1) / r.block;
  const i64 items = i64(s.n) * r.blocks;
  const isize fewest = r.shared ? most(ROWS, 8) : 32;  // that are worth a part
  const isize parts = threads == 1 ? 1 : least(proven((2 * threads + items - 1) / items), (s.m + fewest - 1) / fewest);
  r.rows = round_up((s.m + parts - 1) / parts, ROWS);
  if (r.shared) r.rows = least(r.rows, most(PART / (F::VALUES * s.c) / ROWS, 1) * ROWS);
  r.parts = (s.m + r.rows - 1) / r.rows;
  constexpr isize STEP = 4 * F::STRIDE, BORDER = F::SIDE - STEP;
  r.weights = F::before(F::PLANES, laid(r.shared ? r.rows : s.m) * s.c);
  r.inputs = F::before(F::PLANES, s.c * r.block);
  r.outputs = F::PLANES * plane_floats(r.rows * r.block);
  r.pitch = STEP * s.across() + BORDER;
  r.plane = round_up((STEP * least((r.block - 1) / s.across() + 2, (s.oh + 3) / 4) + BORDER) * r.pitch, 16);
  r.places = round_up(r.block, 16);
  return r;
}

// How images of few tiles are cut.
struct FewCut {
  isize images;                        // at a time
  isize channels, depth, rows, parts;  // of tiles, in whole vectors; of weights at a time; output channels of a part, and parts
  isize pitch, plane, inputs, weights, outputs;  // `inputs` and `outputs` of one image
  explicit FewCut(const Shape& s, isize threads)
      : images(few_images(s)),
        channels(round_up(s.c, W)),
        depth(even_depth(s.c)),
        rows(least(round_up((s.m + threads - 1) / threads, TOGETHER), 2 * TOGETHER)),
        parts((s.m + rows - 1) / rows),
        pitch(4 * s.across() + 2),
        plane((4 * ((s.oh + 3) / 4) + 2) * pitch),
        inputs(Unit::PLANES * plane_floats(FEW * channels)),
        weights(Unit::PLANES * plane_floats(TOGETHER * depth)),
        outputs(Unit::PLANES * plane_floats(FEW * TOGETHER)) {}
  static isize even_depth(isize c) {
    constexpr isize MOST_DEPTH = PART / (Unit::PLANES * TOGETHER);
    const isize pieces = (c + MOST_DEPTH - 1) / MOST_DEPTH;
    return round_up((c + pieces - 1) / pieces, 4);
  }
  isize of_thread() const { return most(round_up(W * plane, 16), weights + images * outputs); }
};

template <class F> Size scratch_bytes(const Shape& s, int threads) {
  if (few<F>(s)) {
    const FewCut r(s, threads);
    return Size(4) * (Size(r.images) * r.inputs + Size(threads) * r.of_thread());
  }
  const Cut r = cut<F>(s, threads);
  return Size(4) * (Size(r.of_all()) + Size(threads) * r.of_thread());
}
}  // namespace winograd
