// 3 x 3 convolution of bytes of stride 1 by Winograd's F(4 x 4, 3 x 3): 36 multiplications of int16 in place of 144 of bytes per 4 x 4
// outputs (Lavin and Gray, arXiv:1509.09308), and exact. Transforms are scaled up to integers, so that products add up to 576 times the
// outputs, modulo 2^32: its 9 is divided out by the inverse modulo 2^32, its 64 by a shift, which leaves outputs of 26 bits. Those are in
// range where the absolute weights of a column, times the 128 of bytes less their middle, are.
#pragma once
#include "qgemm.h"

namespace qgemm::winograd {

constexpr int POINTS = 36;
constexpr isize MOST_WEIGHTS = (1 << 25) / 128 - 1;  // absolute ones of a column, added up
constexpr isize V_BYTES = 768 << 10;                 // of transformed tiles at a time
constexpr isize BLOCK = 24;                          // tiles whose products are kept; a multiple of ROWS
constexpr isize MOST_CHANNELS = 2048;                // so that sizes of scratch memory have 32 bits

typedef int16_t VS __attribute__((ext_vector_type(2 * W)));
typedef int8_t VS8 __attribute__((ext_vector_type(2 * W)));

struct Shape {
  isize n, c, m, ih, iw, oh, ow, ph, pw;
  isize across() const { return (ow + 3) / 4; }
  isize per_image() const { return (oh + 3) / 4 * across(); }
  isize tiles() const { return n * per_image(); }
};

// Whether this is less work than adding up all taps, by cycles on vectors of four: of transforms, of the 36 products of a tile, of a byte.
inline bool worthwhile(const Shape& s) {
  constexpr double WEIGHT = 16, TILE = 40;
  const Quads kind = quads();
  const bool words = ADDS_PAIRS && kind == Quads::UNSIGNED;
  if ((kind != Quads::NONE && kind != Quads::SATURATING && !words) || s.c < 2 * W || s.c > MOST_CHANNELS || s.c % 4) return false;
  const double products = words ? 5 : 3.4, byte = words ? 0.07 : kind == Quads::NONE ? 0.18 : 0.1;
  const double c = double(s.c), m = double(s.m), tiles = double(round_up(s.tiles(), ROWS));
  return WEIGHT * m * c + TILE * (m + c) * tiles + products * m * c * tiles < byte * 9 * m * c * double(s.n * s.oh * s.ow);
}

// An odd number of cache lines: planes a power of two apart would drive each other out of the cache.
inline isize plane(isize bytes) { return ((bytes + 63) / 64 | 1) * 64; }

struct Cut {
  isize chunk;                  // tiles that are transformed together
  isize inputs, weights, sums;  // bytes of a point's plane: of a chunk, of a panel, and of a block's products
  isize blank;                  // bytes that padding reads
  isize of_thread() const { return POINTS * (weights + sums); }
  isize of_all() const { return POINTS * inputs + blank; }
};
inline Cut cut(const Shape& s) {
  Cut r;
  const isize held = most(V_BYTES / (POINTS * 2 * s.c), BLOCK), chunks = (s.tiles() + held - 1) / held;
  r.chunk = round_up((s.tiles() + chunks - 1) / chunks, ROWS);
  r.inputs = plane(r.chunk * s.c * 2), r.weights = plane(s.c * NR * 2), r.sums = plane(BLOCK * NR * 4);
  r.blank = round_up(s.c, 64);
  return r;
}
inline Size scratch_bytes(const Shape& s, int threads) {
  const Cut r = cut(s);
  return Size(r.of_all()) + Size(threads) * r.of_thread();
}

// Calls use(pairs, half) for W columns of a step of a packed panel: pairs of its rows side by side, of two or of four of them.
inline void pairs_of(const int8_t* b, isize unit, auto use) {
  if (unit == 2) return use(__builtin_bit_cast(VS, widen(b)), 0);
#if defined(__wasm_relaxed_simd__)
  const v128_t both = in_pairs(wasm_v128_load(b));
  use((VS)wasm_i16x8_extend_low_i8x16(both), 0);
  use((VS)wasm_i16x8_extend_high_i8x16(both), 1);
#else
  VU quads;
  __builtin_memcpy(&quads, b, sizeof quads);
  for (int half = 0; half < 2; half++, quads >>= 16) use(__builtin_bit_cast(VS, (quads & 0xffu) << 8 | (quads & 0xff00u) << 16) >> 8, half);
#endif
}

// Whether outputs have at most 26 bits, whatever the image.
[[gnu::noinline]] inline bool exact(const Product& p) {
  i32 zero = 0;  // of the weights, the furthest
  for (isize j = 0; j < (p.zb_s ? p.n : least(p.n, 1)); j++) zero = std::max(zero, p.zero_b(j) < 0 ? -p.zero_b(j) : p.zero_b(j));
  if (p.k * (128 + zero) <= MOST_WEIGHTS) return true;
  const isize unit = layout(1, p.k).unit, most = MOST_WEIGHTS - p.k * zero;
  for (isize j = 0, n; j < p.n; j += n) {
    n = columns_from(j, p.n);
    if (p.measures) {
      if (absolute(measures_at(p, j), p.k) > float(most)) return false;
      continue;
    }
    const isize width = round_up(n, W);
    for (isize c = 0; c < width; c += W) {
      VI sum{};
      for (isize k = 0; k < p.k; k += unit)
        pairs_of(p.packed + j * p.k + k * width + c * unit, unit, [&](VS w, int) {
          sum += multiply(__builtin_bit_cast(Pairs, __builtin_elementwise_abs(w)), pair(0x10001));
        });
      for (int l = 0; l < W; l++)
        if (sum[l] > most) return false;
    }
  }
  return true;
}

inline void weight_points(VS a, VS b, VS c, VS* out, int step) {
  const VS even = a + c, far = a + (c << 2), twice = b << 1;
  out[0] = a;
  out[step] = even + b;
  out[2 * step] = even - b;
  out[3 * step] = far + twice;
  out[4 * step] = far - twice;
  out[5 * step] = c;
}

// u[point, c / 2, width, 2] of a packed panel of whole vectors, whose rows are [9, c], less the zero points of its columns.
[[gnu::noinline]] inline void weights(const int8_t* panel, const i32* zeros, isize width, isize unit, isize c, char* u, isize plane) {
  for (isize k = 0; k < c; k += unit)
    for (isize j = 0; j < width; j += W) {
      VS taps[2][9], rows[18], out[6];
      const VU z = (VU)load_i(zeros + j);
      const VS zero = __builtin_bit_cast(VS, (z & 0xffffu) | z << 16);
      for (int t = 0; t < 9; t++) pairs_of(panel + (t * c + k) * width + j * unit, unit, [&](VS w, int half) { taps[half][t] = w - zero; });
      for (int half = 0; 2 * half < unit; half++) {
        const VS* g = taps[half];
        char* to = u + ((k / 2 + half) * width + j) * 4;
        for (int n = 0; n < 3; n++) weight_points(g[n], g[3 + n], g[6 + n], rows + n, 3);
        for (int i = 0; i < 6; i++) {
          weight_points(rows[3 * i], rows[3 * i + 1], rows[3 * i + 2], out, 1);
          for (int n = 0; n < 6; n++, to += plane) __builtin_memcpy(to, out + n, sizeof *out);
        }
      }
    }
}

inline void input_points(const VS* d, int from, VS* out, int step) {
  const VS d1 = d[from], d2 = d[2 * from], d3 = d[3 * from], d4 = d[4 * from];
  const VS p = d4 - (d2 << 2), q = d3 - (d1 << 2), r = d4 - d2, t = (d3 - d1) << 1;
  out[0] = ((d[0] - d2) << 2) + r;
  out[step] = p + q;
  out[2 * step] = p - q;
  out[3 * step] = r + t;
  out[4 * step] = r - t;
  out[5 * step] = d[5 * from] - d3 - (t << 1);
}

// 2 W bytes, of which `flip` makes int8.
inline VS image_bytes(const uint8_t* from, uint8_t flip) {
#if defined(__wasm__)
  return (VS)wasm_i16x8_extend_low_i8x16(wasm_v128_xor(wasm_v128_load64_zero(from), wasm_i8x16_splat(int8_t(flip))));
#else
  VS8 v;
  __builtin_memcpy(&v, from, sizeof v);
  return __builtin_convertvector(v ^ (VS8)int8_t(flip), VS);
#endif
}

// Transforms tile `tile` of all channels: 36 planes of c int16.
[[gnu::noinline]] inline void inputs(const Product& p, const Shape& s, isize tile, const uint8_t* blank, char* to, isize plane) {
  const isize image = tile / s.per_image(), h = tile % s.per_image() / s.across() * 4 - s.ph, w = tile % s.across() * 4 - s.pw;
  const uint8_t* at[POINTS];
  for (isize i = 0; i < 6; i++)
    for (isize j = 0; j < 6; j++) {
      const bool inside = h + i >= 0 && h + i < s.ih && w + j >= 0 && w + j < s.iw;
      at[6 * i + j] = inside ? p.a + ((image * s.ih + h + i) * s.iw + w + j) * s.c : blank;
    }
  const uint8_t flip = p.a_signed ? 0 : 0x80;
  constexpr isize STEP = 2 * W;
  for (isize c = 0; c < s.c; c += STEP) {
    const isize k = least(c, s.c - STEP);  // the last ones may be done twice
    VS d[6], rows[POINTS], out[6];
    for (int j = 0; j < 6; j++) {
      for (int i = 0; i < 6; i++) d[i] = image_bytes(at[6 * i + j] + k, flip);
      input_points(d, 1, rows + j, 6);
    }
    char* put = to + k * 2;
    for (int i = 0; i < 6; i++) {
      input_points(rows + 6 * i, 1, out, 1);
      for (int n = 0; n < 6; n++, put += plane) __builtin_memcpy(put, out + n, sizeof *out);
    }
  }
}

// The outputs of four in a row times 24, 12, 6 and 6.
inline void output_points(const VU* m, int from, VU* out, int step) {
  const VU s1 = m[from] + m[2 * from], d1 = m[from] - m[2 * from], s3 = m[3 * from] + m[4 * from], d3 = m[3 * from] - m[4 * from];
  const VU last = m[5 * from];
  out[0] = ((m[0] + (m[0] << 1) - (s1 << 1)) << 1) + s3;
  out[step] = d3 - (d1 << 1);
  out[2 * step] = s3 - s1;
  out[3 * step] = ((d3 + last + (last << 1)) << 1) - d1;
}

// sums[4 * 4, width] of one tile from its products, which begin at `from`.
[[gnu::noinline]] inline void outputs(const char* from, isize plane, isize width, const i32* start, i32* sums) {
  constexpr uint32_t NINTH = 0x38e38e39;  // times 9, it is 1 modulo 2^32
  constexpr int SHIFT[4] = {3, 2, 1, 1};
  for (isize c = 0; c < width; c += W) {
    VU m[6], rows[24], out[4];
    const VU add = (VU)load_i(start + c);
    for (int j = 0; j < 6; j++) {
      for (int i = 0; i < 6; i++) __builtin_memcpy(m + i, from + (6 * i + j) * plane + c * 4, sizeof *m);
      output_points(m, 1, rows + j, 6);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      output_points(rows + 6 * i, 1, out, 1);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const VI exact = (VI)(out[j] * (VU)NINTH) >> (SHIFT[i] + SHIFT[j]);
        store_i(sums + (4 * i + j) * width + c, (VI)((VU)exact + add));
      }
    }
  }
}

// What is done with one panel of transformed weights.
struct Panel {
  const Shape& s;
  const Cut& r;
  const Finisher& finisher;
  isize j, columns, width;
  const char* u;
  const i32* start;

  template <int V> static void tile(const Tile& t) {
    if (ADDS_PAIRS && quads() == Quads::UNSIGNED) tile_words<ROWS, V>(t);
    else tile_pairs<ROWS, V, int16_t>(t);
  }

  // Of tiles [t0, t0 + n) of a chunk that begins with tile `first`.
  void block(const char* v, isize first, isize t0, isize n, char* points) const {
    Tile t{};
    t.a_rs = s.c * 2, t.steps = s.c / 2;
    for (int k = 0; k < POINTS; k++) {
      t.a = v + k * r.inputs + t0 * t.a_rs, t.b = reinterpret_cast<const int8_t*>(u + k * r.weights);
      t.out = reinterpret_cast<i32*>(points + k * r.sums);
      for (isize i = 0; i < n; i += ROWS, t.a += ROWS * t.a_rs, t.out += ROWS * width)
        width == 3 * W ? tile<3>(t) : width == 2 * W ? tile<2>(t) : tile<1>(t);
    }
    alignas(64) i32 sums[16 * NR];
    for (isize i = 0; i < n; i++) {
      outputs(points + i * width * 4, r.sums, width, start, sums);
      const isize tile = first + t0 + i, image = tile / s.per_image(), h = tile % s.per_image() / s.across() * 4, w = tile % s.across() * 4;
      for (isize row = 0; row < least(4, s.oh - h); row++)
        finisher.rows((image * s.oh + h + row) * s.ow + w, j, columns, least(4, s.ow - w), sums + row * 4 * width, nullptr);
    }
  }
};

inline void run(Call& call, const Product& p, const Shape& s) {
  const isize unit = layout(1, p.k).unit, tiles = s.tiles(), threads = pool_threads(call.pool);
  const Cut r = cut(s);
  char *v = call.scratch, *own = v + r.of_all();
  uint8_t* blank = reinterpret_cast<uint8_t*>(v + POINTS * r.inputs);
  __builtin_memset(blank, p.za ? *p.za : 0, size_t(r.blank));
  isize panels = 0;
  for (isize j = 0; j < p.n; j += columns_from(j, p.n)) panels++;
  const uint32_t zero = uint32_t(p.zero_a(0) + p.shift_a(Quads::SIGNED));
  for (isize first = 0; first < tiles; first += r.chunk) {
    const isize count = least(r.chunk, tiles - first);
    parallel_for(call.pool, count, (1 << 14) / (s.c * 32) + 1, [&](i64 begin, i64 end, int) {
      for (isize t = proven(begin); t < proven(end); t++) inputs(p, s, first + t, blank, v + t * s.c * 2, r.inputs);
    });
    const isize blocks = (count + BLOCK - 1) / BLOCK, splits = threads == 1 ? 1 : least(blocks, (2 * threads + panels - 1) / panels);
    const isize part = (blocks + splits - 1) / splits * BLOCK;
    parallel_for(call.pool, i64(panels) * splits, 1, [&](i64 begin, i64 end, int thread) {
      char *u = own + thread * r.of_thread(), *points = u + POINTS * r.weights;
      Finisher finisher(p, Quads::NONE);
      isize item = 0;
      for (isize j = 0, n; j < p.n && item < end; j += n, item += splits) {
        n = columns_from(j, p.n);
        const isize from = most(proven(begin) - item, 0), to = least(proven(end) - item, splits);
        if (from >= to) continue;
        const isize width = round_up(n, W);
        finisher.columns(j, n);
        alignas(64) i32 start[NR], zeros[NR];
        for (isize c = 0; c < width; c++) {
          zeros[c] = c < n ? p.zero_b(j + c) : 0;
          start[c] = i32(-zero * (uint32_t(p.packed_sums[j + c]) - uint32_t(p.k) * uint32_t(zeros[c])));
        }
        weights(p.packed + j * p.k, zeros, width, unit, s.c, u, r.weights);
        const Panel panel{s, r, finisher, j, n, width, u, start};
        for (isize t = from * part; t < least(to * part, count); t += BLOCK) panel.block(v, first, t, least(BLOCK, count - t), points);
      }
    });
  }
}

}  // namespace qgemm::winograd
