// Many rows of a, as int16 by block, against panels of columns whose codes are widened to int16 once for all rows: exact sums of integers
// in each block, in pairs of neighbours along k.
#pragma once
#include "nbits/take.h"
#include "qgemm/tile.h"

namespace nbits {

constexpr int VECTORS = 2;
constexpr isize COLUMNS = VECTORS * W;  // of a panel
constexpr isize DEPTH = 512;            // codes of a column that are widened at a time

struct Panels {
  const Weights& w;
  isize m, depth;
  int16_t* rows;        // [m, depth]
  float *units, *sums;  // [m, blocks]

  Panels(char* memory, const Weights& from, isize rows_given) : w(from), m(rows_given), depth(w.count * w.block) {
    units = reinterpret_cast<float*>(memory), sums = units + m * w.count;
    rows = reinterpret_cast<int16_t*>(sums + m * w.count);
  }
  static Size bytes(const MatmulNbitsParams& p) {
    return round_up(Size(p.m) * blocks(p) * 8 + Size(p.m) * blocks(p) * p.block * 2, 64);
  }
  // Of a thread: a panel, scales and offsets of its columns, and codes of four.
  static Size own_bytes(const MatmulNbitsParams& p) {
    const Size deep = block_steps(p.block) * p.block, lines = deep * 8 + Size(blocks(p)) * 32;
    return round_up(deep * COLUMNS * 2 + Size(blocks(p)) * COLUMNS * 8 + lines, 64);
  }
  static isize block_steps(i64 block) { return block >= DEPTH ? 1 : DEPTH / proven(block); }

  // Whether sums of a block stay below 2^31; short blocks would be finished too often.
  static bool fit(const MatmulNbitsParams& p) {
    return p.rounded && p.bits <= 8 && p.block % 32 == 0 && p.block <= (p.bits == 8 ? 256 : 512);
  }

  // False where a number is not finite, or a block too small to be scaled.
  bool take(Call& call, const float* a, isize a_rs, isize k) {
    bool good = true;
    parallel_for(call.pool, m, (1 << 14) / (k + 1) + 1, [&](i64 begin, i64 end, int) {
      for (isize i = proven(begin); i < proven(end); i++)
        if (!round_row(w, a + i * a_rs, k, rows + i * depth, units + i * w.count, sums + i * w.count))
          __atomic_store_n(&good, false, __ATOMIC_RELAXED);
    });
    return good;
  }
};

// Codes [from, from + n) of column j as int16, less what stands for 0 where that is a code.
inline void widen_codes(const Weights& w, isize j, isize from, isize n, int16_t* out) {
  const uint8_t* codes = w.codes + j * w.row + from * w.bits / 8;
  for (isize b = from / w.block; n > 0; b++) {
    const int16_t zero = int16_t(w.zero(j, b));
    for (isize at = 0; at < w.block; at += 16, n -= 16, out += 16) {
      typedef int16_t VS16 __attribute__((ext_vector_type(16)));
      VS16 v;
      if (w.bits == 4) {
        typedef uint8_t VB8 __attribute__((ext_vector_type(8)));
        VB8 bytes;
        __builtin_memcpy(&bytes, codes, sizeof bytes);
        const VB8 low = bytes & (VB8)uint8_t(15), high = bytes >> (VB8)uint8_t(4);
        v = __builtin_convertvector(__builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), VS16);
        codes += 8;
      } else if (w.bits == 8) {
        VB16 bytes;
        __builtin_memcpy(&bytes, codes, sizeof bytes);
        v = __builtin_convertvector(bytes, VS16);
        codes += 16;
      } else {
        for (int l = 0; l < 16; l++) v[l] = codes[l / 4] >> (l % 4 * 2) & 3;
        codes += 4;
      }
      v -= (VS16)zero;
      __builtin_memcpy(out, &v, sizeof v);
    }
  }
}

struct PanelTile {
  const int16_t* a;
  isize depth, count;  // elements from row to row, of a and of units and sums
  const float *units, *sums;
  const int16_t* panel;
  const float *scales, *offsets;  // [blocks, COLUMNS]; offsets may be missing
  isize blocks, block;
  float* y;  // [M, COLUMNS], added to
};

template <int M> [[gnu::noinline]] void panel_tile(const PanelTile& t) {
  const int16_t *a = t.a, *panel = t.panel;
  for (isize b = 0; b < t.blocks; b++) {
    VI acc[M][VECTORS];
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
      for (int v = 0; v < VECTORS; v++) acc[i][v] = splat_i(0);
    for (isize k = 0; k < t.block; k += 4) {
#pragma unroll
      for (int u = 0; u < 2; u++, a += 2, panel += 2 * COLUMNS) {
        qgemm::Pairs codes[VECTORS];
        __builtin_memcpy(codes, panel, sizeof codes);
#pragma unroll
        for (int i = 0; i < M; i++) {
          int32_t pair;
          __builtin_memcpy(&pair, a + i * t.depth, 4);
#pragma unroll
          for (int v = 0; v < VECTORS; v++) acc[i][v] = qgemm::dot(acc[i][v], pair, codes[v]);
        }
      }
    }
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
      const VF scale = load(t.scales + b * COLUMNS + v * W);
#pragma unroll
      for (int i = 0; i < M; i++) {
        float* y = t.y + i * COLUMNS + v * W;
        VF sum = fma(__builtin_convertvector(acc[i][v], VF), scale * splat(t.units[i * t.count + b]), load(y));
        if (t.offsets) sum -= load(t.offsets + b * COLUMNS + v * W) * splat(t.sums[i * t.count + b]);
        store(y, sum);
      }
    }
  }
}

// Columns [j, j + n) of all rows of q, n <= COLUMNS. memory: of own_bytes.
inline void panel_columns(const Panels& p, const gemm::Product& q, isize j, isize n, char* memory) {
  const Weights& w = p.w;
  const isize most = Panels::block_steps(w.block), passes = (w.count + most - 1) / most, steps = (w.count + passes - 1) / passes;
  const isize deep = steps * w.block;
  const bool shifted = !w.zeros();
  int16_t* panel = reinterpret_cast<int16_t*>(memory);
  float *scales = reinterpret_cast<float*>(panel + deep * COLUMNS), *offsets = scales + w.count * COLUMNS;
  int16_t* lines = reinterpret_cast<int16_t*>(offsets + w.count * COLUMNS);
  float* factors = reinterpret_cast<float*>(lines + 4 * deep);
  __builtin_memset(memory, 0, size_t(reinterpret_cast<char*>(lines) - memory));
  auto line_by_line = [&](auto some_columns) {
    for (isize c = 0; c < n; c += 4) some_columns(c, least(4, n - c));
  };
  line_by_line([&](isize c, isize some) {
    for (isize i = 0; i < some; i++) w.read(j + c + i, 0, w.count, factors + 2 * i * w.count, factors + (2 * i + 1) * w.count);
    gemm::copy_matrix(factors, 1, 2 * w.count, scales + c, COLUMNS, w.count, some);
    gemm::copy_matrix(factors + w.count, 1, 2 * w.count, offsets + c, COLUMNS, w.count, some);
  });
  for (isize b = 0; b < w.count; b += steps) {
    const isize some_blocks = least(steps, w.count - b), length = some_blocks * w.block;
    line_by_line([&](isize c, isize some) {
      for (isize i = 0; i < some; i++) widen_codes(w, j + c + i, b * w.block, length, lines + i * deep);
      // Pairs travel as floats: they are copied alone.
      gemm::copy_matrix(reinterpret_cast<float*>(lines), 1, deep / 2, reinterpret_cast<float*>(panel) + c, COLUMNS, length / 2, some);
    });
    PanelTile t{};
    t.depth = p.depth, t.count = w.count, t.panel = panel, t.blocks = some_blocks, t.block = w.block;
    t.scales = scales + b * COLUMNS, t.offsets = shifted ? offsets + b * COLUMNS : nullptr;
    for (isize i = 0; i < p.m;) {
      float sums[qgemm::ROWS * COLUMNS] = {};
      const isize rows = least(qgemm::ROWS, p.m - i);
      t.a = p.rows + i * p.depth + b * w.block, t.units = p.units + i * w.count + b, t.sums = p.sums + i * w.count + b, t.y = sums;
      float* y = q.y + i * q.y_rs + j;
      if (b)
        for (isize r = 0; r < rows; r++) __builtin_memcpy(sums + r * COLUMNS, y + r * q.y_rs, size_t(n) * 4);
      if (rows == qgemm::ROWS) panel_tile<qgemm::ROWS>(t);
      else
        for (isize r = 0; r < rows; r++, t.a += t.depth, t.units += t.count, t.sums += t.count, t.y += COLUMNS) panel_tile<1>(t);
      for (isize r = 0; r < rows; r++) {
        __builtin_memcpy(y + r * q.y_rs, sums + r * COLUMNS, size_t(n) * 4);
        if (b + steps >= w.count) q.e.finish(i + r, j, n, y + r * q.y_rs, false);
      }
      i += rows;
    }
  }
}

// False where the rows cannot be rounded; nothing is done then. all, own: bytes of scratch of all threads, and of each.
inline bool panels(Call& call, Panels p, const gemm::Product& q, isize all, isize own) {
  if (!p.take(call, q.a, q.a_rs, q.k)) return false;
  const isize count = (q.n + COLUMNS - 1) / COLUMNS;
  parallel_for(call.pool, count, gemm::MIN_FLOPS / (2 * q.m * q.k * COLUMNS + 1) + 1, [&](i64 begin, i64 end, int thread) {
    for (isize at = proven(begin) * COLUMNS; at < least(proven(end) * COLUMNS, q.n); at += COLUMNS)
      panel_columns(p, q, at, least(COLUMNS, q.n - at), call.scratch + all + thread * own);
  });
  return true;
}

}  // namespace nbits
