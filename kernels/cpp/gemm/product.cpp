// A product in blocks that stay in cache: columns of b are packed a few panels at a time, and all rows of a block of a pass over them.
#include "gemm.h"
#include "gemm/dots.h"

namespace gemm {

void copy_matrix(const float* src, isize rs, isize cs, float* dst, isize dst_rs, isize rows, isize columns) {
  if (cs == 1) {
    for (isize r = 0; r < rows; r++) copy_floats(src + r * rs, dst + r * dst_rs, columns);
    return;
  }
  isize r = 0;
  if (rs == 1)
    for (; r + 4 <= rows; r += 4) {
      isize c = 0;
      for (; c + 4 <= columns; c += 4) transpose4(src + r + c * cs, cs, dst + r * dst_rs + c, dst_rs);
      for (; c < columns; c++)
        for (isize i = 0; i < 4; i++) dst[(r + i) * dst_rs + c] = src[r + i + c * cs];
    }
  for (; r < rows; r++)
    for (isize c = 0; c < columns; c++) dst[r * dst_rs + c] = src[r * rs + c * cs];
}

// A tile of one column whose numbers lie one behind the other: W of them at a time.
template <int M> [[gnu::noinline]] inline isize column_rows(const Tile& t) {
  float sums[M];
  dots<M, 1>(t.a, t.a_rs, t.b, 0, t.kc, sums, 1, 0);
  for (int i = 0; i < M; i++) {
    float v = sums[i];
    if (t.from) v += t.from[i * t.from_rs];
    if (t.res) v += t.res[i * t.res_rs];
    if (t.clamp) v = v < t.low ? t.low : v, v = v > t.high ? t.high : v;
    t.y[i * t.y_rs] = v;
  }
  return M;
}

constexpr isize GROUP = 8;  // panels that are touched together while those before them are multiplied

// What is touched with a panel: in WebAssembly its part of each run of the next group, where that lies in b.
inline const float* lines_of(const Product& p, const float* panel, isize j, isize n, isize kc) {
  if (FETCHES) return panel + n * kc;
  const isize at = j / NR % GROUP;
  const float* next = panel + (GROUP - at) * NR * kc;
  return next + GROUP * NR * kc <= p.b + p.k * p.n ? next + at * (NR / 4) * (kc / 4 / RUNS) * 16 : nullptr;
}

void panel_product(const Product& p, const float* b, isize m0, isize m1, isize j, isize columns, isize k0, isize kc, bool column,
                   const float* ahead, isize b_rs) {
  const bool first = k0 == 0, final = k0 + kc == p.k, simple = p.e.simple(), finishes = final && !simple;
  const isize vectors = (columns + W - 1) / W;
  isize from_step = 0, res_step = 0;
  Tile t{};
  t.a = p.a + m0 * p.a_rs;
  t.a_rs = p.a_rs;
  t.b = b;
  t.b_rs = b_rs;
  t.kc = kc;
  t.y = p.y + m0 * p.y_rs + j;
  t.y_rs = p.y_rs;
  t.last = columns - (vectors - 1) * W;
  t.clamp = final && simple && p.e.act != Act::NONE;
  t.low = p.e.low();
  t.high = p.e.high();
  if (!first) {
    t.from = t.y, t.from_rs = from_step = p.y_rs;
  } else if (p.e.bias_first()) {
    t.from = p.e.bias + m0 * p.e.bias_ms + j * p.e.bias_ns;
    t.from_rs = from_step = p.e.bias_ms, t.from_splat = p.e.bias_ns == 0;
  }
  if (final && simple && p.e.res) t.res = p.e.res + m0 * p.e.res_rs + j, t.res_rs = res_step = p.e.res_rs;
  const isize line = (b_rs ? b_rs : 16) * (FETCHES ? kc / 4 : kc / 4 / RUNS), lines = b_rs ? 4 : NR / 4;
  if (ahead) {
    const isize count = (m1 - m0 + TILE_ROWS[NV] - 1) / TILE_ROWS[NV];
    t.ahead = ahead, t.lines = (lines + count - 1) / count, t.run = GROUP * NR * kc / RUNS;
  }
  auto done = [&](isize i, isize rows) __attribute__((always_inline)) {
    if (finishes) p.e.finish_rows(i, rows, j, columns, t.y, p.y_rs);
    t.a += rows * p.a_rs, t.y += rows * p.y_rs, t.from += rows * from_step, t.res += rows * res_step;
    t.ahead += t.lines * line;
    if (t.ahead - ahead >= lines * line) t.lines = 0;
  };
  if (column)
    for (isize i = m0, rows; i < m1; i += rows) rows = m1 - i >= 8 ? column_rows<8>(t) : column_rows<1>(t), done(i, rows);
  else if (vectors == NV) tiles<NV>(t, m0, m1, done);
  else if (NV == 3 && vectors == 2) tiles<2>(t, m0, m1, done);
  else tiles<1>(t, m0, m1, done);
}

// Splits k into equal blocks of at most KC, multiples of `unit` where they can be, of 16 where it is larger.
inline isize block_depth(isize k, isize unit) {
  if (k <= KC) return k;
  const isize blocks = (k + KC - 1) / KC, even = round_up((k + blocks - 1) / blocks, unit > 1 ? 16 : 4);
  return unit > 1 && unit <= KC ? least(round_up(even, unit), KC / unit * unit) : least(even, KC);
}

constexpr isize ROWS_AT_ONCE = 24;  // that pass over all panels of a group: their part of y is written piece by piece, not column by column
inline bool few(isize rows) { return rows < ROWS_AT_ONCE * 3 / 2; }

PWX_SMALL Blocks blocks(isize m, isize n, isize k, isize unit) {
  Blocks s;
  s.depth = block_depth(k, unit);
  s.rows = most(round_up(MC_BYTES / 4 / most(s.depth, 1), 24), 24);
  // What is packed stays in a level-1 cache; rows of y are written in runs as long as that allows.
  const isize most_columns = most((unit == 1 ? 8 : 4) * NR, 8192 / most(s.depth, 16) / NR * NR), groups = (n + most_columns - 1) / most_columns;
  s.group = round_up((n + groups - 1) / groups, W > 4 ? NR : W);  // narrower panels multiply more slowly
  s.packed_floats = round_up(least(s.group, round_up(n, W)) * s.depth, 16);
  s.rows_floats = round_up(least(s.rows, m) * s.depth, 16);
  return s;
}

PWX_SMALL Blocks blocks_of(const Product& p, isize unit) {
  Blocks s = blocks(p.m, p.n, p.band ? p.band : p.k, unit);
  if (!p.band) return s;
  if (p.m <= TILE_ROWS[NV]) s.depth = p.band;
  s.rows = most(round_up(MC_BYTES / 4 / p.k, 24), 24);
  s.group = NR;
  s.packed_floats = round_up(NR * s.depth, 16);
  s.rows_floats = round_up(least(s.rows, p.m) * s.depth, 16);
  return s;
}

// A panel in a band, where it lies; into `out` it comes only where it ends within a vector. In each band the panels lie one behind the other
// and nothing between them, so that a run reads memory from one end to the other.
inline const float* panel_of(const Product& p, isize k0, isize kc, isize j, isize columns, float* out) {
  const isize in = k0 % p.band, first = k0 - in, width = round_up(columns, W);
  const float* b = p.b + first * p.n + j * least(p.band, p.k - first) + in * columns;
  if (width == columns) return b;
  __builtin_memset(out, 0, size_t(width * kc) * 4);
  copy_matrix(b, columns, 1, out, width, kc, columns);
  return out;
}

constexpr isize ROWS_IN_TURN = 16;  // of a panel: panels often lie a multiple of a page apart, for which a level-1 cache has few places

void pack_matrix(const void*, const Product& p, isize k0, isize kc, isize j, isize columns, float* out) {
  const isize rs = p.b_rs, cs = p.b_cs;
  const float* src = p.b + k0 * rs + j * cs;
  if (cs == 1) {
    isize whole = 0;
    while (panel_columns(columns - whole * NR) == NR) whole++;
    for (isize first = 0; first < kc; first += ROWS_IN_TURN)
      for (isize panel = 0; panel < whole; panel++)
        for (isize k = first, end = least(first + ROWS_IN_TURN, kc); k < end; k++) {
          const float* s = src + k * rs + panel * NR;
          float* d = out + (panel * kc + k) * NR;
          for (int v = 0; v < NV; v++) store(d + v * W, load(s + v * W));
        }
    src += whole * NR;
    out += whole * NR * kc;
    columns -= whole * NR;
  }
  for (isize n; columns > 0; columns -= n) {
    n = panel_columns(columns);
    const isize width = round_up(n, W);
    if (n < width) __builtin_memset(out, 0, size_t(width * kc) * 4);
    copy_matrix(src, rs, cs, out, width, kc, n);
    src += n * cs;
    out += width * kc;
  }
}

// Packed columns end with a panel of one, and there is enough of it to compute it along k.
inline bool ends_alone(isize columns, isize kc) { return columns % NR == 1 && kc >= W; }

// The last of packed columns, which lies alone in a panel, with its numbers one behind the other.
inline void gather_last(float* packed, isize columns, isize kc) {
  float* panel = packed + (columns - 1) * kc;
  for (isize k = 1; k < kc; k++) panel[k] = panel[k * W];
}

// Asks for columns [k0, k0 + kc) of rows [i, i1) of a, where p.a begins at k0.
inline void fetch_rows(const Product& p, isize i, isize i1, isize kc) {
  for (; i < i1; i++)
    for (isize k = 0; k < kc; k += 16) fetch(p.a + i * p.a_rs + k);
}

// `panel_product` of a panel where it lies; a column's numbers are gathered in `out`.
inline void apart_product(const Product& p, const float* b, isize m0, isize m1, isize j, isize columns, isize k0, isize kc, bool column,
                          float* out) {
  if (column) copy_matrix(b, p.b_rs, 1, out, 1, kc, 1);
  if (column) panel_product(p, out, m0, m1, j, columns, k0, kc, true);
  else panel_product(p, b, m0, m1, j, columns, k0, kc, false, b + columns, p.b_rs);
}

void product_range(const Product& p, const Packer& packer, isize m0, isize m1, isize n0, isize n1, const Blocks& s, float* packed,
                   float* rows) {
  const bool apart = APART && few(m1 - m0) && !p.band && p.b_cs == 1 && p.b_rs >= p.n && packer.pack == pack_matrix;
  for (isize mb = m0; mb < m1; mb += s.rows) {
    const isize count = least(s.rows, m1 - mb);
    Product q = p.rows_from(mb);
    const float* a = q.a;
    if (p.a_cs != 1) q.a_rs = s.depth;
    // Bands lie packed: of y, which every block of k passes over, a panel at a time is finished, and so it is where a band is several blocks,
    // which lie one behind the other.
    const bool by_panel = count > 32 || (FETCHES && s.depth < p.band);
    const isize wide = p.band && by_panel ? s.group : n1 - n0;
    const bool ahead = p.band && (FETCHES || (!by_panel && count > TILE_ROWS[NV]));  // a single tile reads b without a pause
    for (isize first = n0; first < n1; first += wide) {
      const isize end = least(first + wide, n1);
      isize k0 = 0;
      do {
        const isize kc = least(s.depth, p.band ? least(p.band - k0 % p.band, p.k - k0) : p.k - k0);
        q.a = a + k0 * p.a_cs;
        if (p.a_cs != 1) {
          copy_matrix(q.a, p.a_rs, p.a_cs, rows, s.depth, count, kc);
          q.a = rows;
        }
        for (isize g = first; g < end; g += s.group) {
          const isize ge = least(g + s.group, end);
          const float* b = packed;
          const bool alone = !p.band && ends_alone(ge - g, kc);
          const bool cold = FETCHES && !APART && g == first && !p.band && p.a_cs == 1;  // later groups find a in cache
          if (cold) fetch_rows(q, 0, least(ROWS_AT_ONCE, count), kc);
          if (p.band) b = panel_of(p, k0, kc, g, ge - g, packed);
          else if (!apart) {
            packer.pack(packer.source, p, k0, kc, g, ge - g, packed);
            if (alone) gather_last(packed, ge - g, kc);
          }
          for (isize i = 0, rows; i < count; i += rows) {
            rows = p.band || few(count - i) ? count - i : ROWS_AT_ONCE;
            const float* panel = b;
            const isize share = (rows * NR + ge - g - 1) / (ge - g);
            for (isize j = g, n, next = i + rows; j < ge; j += n, next += share) {
              n = panel_columns(ge - j);
              if (cold) fetch_rows(q, next, least(next + share, count), kc);
              if (apart) {
                apart_product(q, p.b + k0 * p.b_rs + j, i, i + rows, j, n, k0, kc, alone && n == 1, packed);
                continue;
              }
              panel_product(q, panel, i, i + rows, j, n, k0, kc, alone && n == 1, ahead ? lines_of(p, panel, j, n, kc) : nullptr);
              panel += round_up(n, W) * kc;
            }
          }
        }
        k0 += kc;
      } while (k0 < p.k);
    }
  }
}

}  // namespace gemm
