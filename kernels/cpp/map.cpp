// Element-wise programs over strided views. The iteration space is cut into tiles of a few hundred elements; every instruction is one
// loop over the tile, so registers stay in the first-level cache. Operands that are contiguous in a tile are used where they lie.
#include "map_chains.h"
#include "map_ops.h"
#include "params.h"
#include "strided.h"

namespace {
using namespace map_ops;

constexpr i64 TILE = 512, TILE_SINGLE = 2048;  // elements; longer when no register has to stay in cache
constexpr int MAX_INPUTS = 8, MAX_CODE = 64, MAX_REGISTERS = 32;
constexpr int MAX_VIEWS = 2 * int(MAX_RANK) + 1;
constexpr i64 SLOT = 8;  // bytes per element of a register

struct Word {  // an instruction as the program holds it
  Op op;
  i64 type, dst, a, b, c;
};

const Word* code_of(const Call& call) {
  const auto& p = *reinterpret_cast<const MapParams*>(call.params);
  return reinterpret_cast<const Word*>(p.tail + p.n_in * (1 + MAX_RANK));
}

bool computes(i64 t) { return t > 0 && t < 32 && cast::known(int32_t(t)) && !cast::is_small_float(int32_t(t)); }

// The type that an instruction yields, 0 when it is malformed. regs: types of the registers, 0 where undefined.
int32_t result_type(const Word& w, const int32_t* regs, i64 rank) {
  if (!known(w.op) || w.dst < 0 || w.dst >= MAX_REGISTERS || w.type <= 0 || w.type >= 32) return 0;
  const Op op = w.op;
  const int32_t type = int32_t(w.type);
  const i64 operands[3] = {w.a, w.b, w.c};
  for (int i = 0; i < arity(op); i++)
    if (operands[i] < 0 || operands[i] >= MAX_REGISTERS || !regs[operands[i]]) return 0;
  if (op == CONST) return computes(type) ? type : 0;
  if (op == INDEX) return cast::is_int(type) || type == F32 || type == F64 ? (w.a >= 0 && w.a < rank ? type : 0) : 0;
  if (op == CAST) return regs[w.a] == type && cast::known(type) && w.b > 0 && w.b < 32 && cast::known(int32_t(w.b)) ? int32_t(w.b) : 0;
  if (!lookup(op, type)) return 0;
  if (op == WHERE) return regs[w.a] == BOOL && regs[w.b] == type && regs[w.c] == type ? type : 0;
  if (op == POW) {
    bool number = computes(w.c) && w.c != BOOL;
    return regs[w.a] == type && number && regs[w.b] == w.c ? type : 0;
  }
  for (int i = 0; i < arity(op); i++)
    if (regs[operands[i]] != type) return 0;
  return op == ISNAN || op == ISINF || (op >= EQ && op <= LE) ? BOOL : type;
}

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const MapParams*>(call.params);
  if (p.rank < 0 || p.rank > MAX_RANK) return "rank must be 0..8";
  if (p.n_in < 0 || p.n_in > MAX_INPUTS || p.n_in != call.n_bufs - 1) return "wrong number of inputs";
  if (p.n_code < 0 || p.n_code > MAX_CODE) return "more than 64 instructions";
  if (call.n_params != i64(sizeof(MapParams) / 8) + p.n_in * (1 + MAX_RANK) + p.n_code * 6) return "wrong number of parameters";
  const Buf& y = call.bufs[0];
  if (!cast::known(y.dtype)) return "unsupported dtype";
  if (!view_fits(p.rank, p.shape, p.ystride, p.yoff, y.count())) return "output view leaves its buffer";
  int32_t regs[MAX_REGISTERS] = {};
  for (i64 i = 0; i < p.n_in; i++) {
    const Buf& x = call.bufs[1 + i];
    const i64* view = p.tail + i * (1 + MAX_RANK);
    if (!cast::known(x.dtype)) return "unsupported dtype";
    if (!view_fits(p.rank, p.shape, view + 1, view[0], x.count())) return "input view leaves its buffer";
    regs[i] = x.dtype;
  }
  const Word* code = code_of(call);
  int32_t last = regs[0];
  for (i64 i = 0; i < p.n_code; i++) {
    last = result_type(code[i], regs, p.rank);
    if (!last) return "malformed instruction";
    regs[code[i].dst] = last;
  }
  if (last != y.dtype) return "the result's type is not the output's";
  proof.operations = Size(product(p.shape, p.rank)) * (p.n_code + 1);
  proof.writes(0, dense(p.rank, p.shape, p.ystride, p.yoff));
  return nullptr;
}

// A strided operand: an input, the coordinate of an axis (whose "address" is its value), or the output.
struct View {
  i64 offset, stride[MAX_RANK];
  i64 bytes;  // per element; 0: a coordinate
};

// How a view meets a tile.
struct Fit {
  int rank;
  i64 size[MAX_RANK], stride[MAX_RANK];
  bool direct() const { return rank == 0 || (rank == 1 && stride[0] == 1); }
  bool splat() const { return rank == 0 || (rank == 1 && stride[0] == 0); }
};

struct Step {
  Fn fn;
  Op op;
  int32_t type, other;
  int a, b, c, dst;
  int slot;  // where the result is kept in scratch
  int view;  // INDEX
  i64 imm;
};

struct Plan {
  i64 tile;  // capacity, elements
  int n_in, n_views, n_steps, n_slots;
  View views[MAX_VIEWS];  // inputs, coordinates, output
  int rank;
  i64 shape[MAX_RANK];
  int cut;               // tiles take `rows` of dimension cut and all of the following ones, except `cols` of the last
  i64 rows, cols;
  i64 n_tiles, row_tiles, col_tiles;
  Step steps[MAX_CODE];
  chains::Chain chain;  // the last step is one
};

void plan_steps(const Call& call, Plan& plan) {
  const auto& p = *reinterpret_cast<const MapParams*>(call.params);
  const Word* code = code_of(call);
  plan.n_in = int(p.n_in), plan.n_steps = int(p.n_code);
  plan.tile = p.n_code <= 1 ? TILE_SINGLE : TILE;
  int n_views = plan.n_in, slots = plan.n_in;
  for (int i = 0; i < plan.n_in; i++) {
    const i64* view = p.tail + i * (1 + MAX_RANK);
    plan.views[i].offset = view[0];
    for (int d = 0; d < p.rank; d++) plan.views[i].stride[d] = view[1 + d];
    plan.views[i].bytes = dtype_size(call.bufs[1 + i].dtype);
  }
  int slot_of[MAX_REGISTERS], axis_view[MAX_RANK];
  for (int& s : slot_of) s = -1;
  for (int& v : axis_view) v = -1;
  for (int i = 0; i < plan.n_steps; i++) {
    const Word& w = code[i];
    Step& s = plan.steps[i];
    s = {nullptr, w.op, int32_t(w.type), 0, int(w.a), int(w.b), int(w.c), int(w.dst), 0, -1, 0};
    int reads = arity(s.op);
    if (reads < 3) s.c = -1;
    if (reads < 2) s.b = -1;
    if (reads < 1) s.a = -1;
    if (s.op == CONST || s.op == INDEX) {
      s.slot = slots++;
      s.imm = w.a;
      if (s.op == CONST) continue;
      int& v = axis_view[w.a];
      if (v < 0) {
        v = n_views++;
        plan.views[v] = {};
        plan.views[v].stride[w.a] = 1;
      }
      s.view = v;
      continue;
    }
    // A result of another element size must not overwrite its own operand.
    bool resizes = s.op == CAST || s.op == WHERE || s.op == POW || s.op == ISNAN || s.op == ISINF || (s.op >= EQ && s.op <= LE);
    int& slot = slot_of[s.dst];
    if (slot < 0 || (resizes && (s.dst == s.a || s.dst == s.b || s.dst == s.c))) slot = slots++;
    s.slot = slot;
    s.fn = s.op == CAST ? nullptr : lookup(s.op, s.type);
    s.other = int32_t(s.op == CAST ? w.b : w.c);
    s.imm = s.op == CAST ? w.c : w.b;
  }
  plan.chain = chains::find(plan.steps, plan.n_steps);
  if (plan.chain.kind != chains::Kind::NONE) {
    const int last = plan.n_steps - 1;
    plan.n_steps = plan.chain.first;
    for (int i = plan.chain.first; i <= last; i++)
      if (i == last || plan.steps[i].op == CONST) plan.steps[plan.n_steps++] = plan.steps[i];
  }
  View& y = plan.views[n_views++];
  y.offset = p.yoff;
  for (int d = 0; d < p.rank; d++) y.stride[d] = p.ystride[d];
  y.bytes = dtype_size(call.bufs[0].dtype);
  plan.n_views = n_views;
  plan.n_slots = slots + 1;  // the last one is the output's, when it cannot be written in place
}

// Drops dimensions of size 1 and merges neighbours that every view walks as one.
void coalesce(const MapParams& p, Plan& plan) {
  int rank = 0;
  for (int d = 0; d < p.rank; d++) {
    if (p.shape[d] == 1) continue;
    bool merge = rank > 0;
    for (int v = 0; v < plan.n_views && merge; v++) {
      i64 whole;
      merge = !mul_over(plan.views[v].stride[d], p.shape[d], &whole) && plan.views[v].stride[rank - 1] == whole;
    }
    if (!merge) rank++;
    plan.shape[rank - 1] = merge ? plan.shape[rank - 1] * p.shape[d] : p.shape[d];
    for (int v = 0; v < plan.n_views; v++) plan.views[v].stride[rank - 1] = plan.views[v].stride[d];
  }
  if (rank == 0) {
    plan.shape[rank++] = 1;
    for (int v = 0; v < plan.n_views; v++) plan.views[v].stride[0] = 1;
  }
  plan.rank = rank;
}

i64 even_pieces(i64 n, i64 most) {
  i64 pieces = (n + most - 1) / most;
  return (n + pieces - 1) / pieces;
}

void plan_tiles(Plan& plan) {
  int last = plan.rank - 1;
  i64 width = plan.shape[last];
  bool across = false;  // a view runs along another dimension: square tiles use whole cache lines
  if (last > 0)
    for (int v = 0; v < plan.n_views; v++) {
      const View& view = plan.views[v];
      i64 in = view.stride[last], out = view.stride[last - 1];
      if (in < 0) in = -in;
      if (out < 0) out = -out;
      across |= view.bytes && in > 1 && out < in && out > 0;
    }
  if (across) {
    plan.cut = last - 1;
    plan.cols = width <= 32 ? width : even_pieces(width, 32);
    plan.rows = even_pieces(plan.shape[last - 1], plan.tile / plan.cols);
  } else {
    i64 inner = 1;
    plan.cut = last;
    while (plan.cut > 0 && inner * plan.shape[plan.cut] <= plan.tile / 2) inner *= plan.shape[plan.cut--];
    plan.cols = width;
    plan.rows = even_pieces(plan.shape[plan.cut], plan.tile / inner);
    if (plan.cut == last) plan.cols = plan.rows;
  }
  plan.row_tiles = (plan.shape[plan.cut] + plan.rows - 1) / plan.rows;
  plan.col_tiles = plan.cut == last ? 1 : (width + plan.cols - 1) / plan.cols;
  plan.n_tiles = plan.row_tiles * plan.col_tiles;
  for (int d = 0; d < plan.cut; d++) plan.n_tiles *= plan.shape[d];
}

void fit(const Plan& plan, const View& v, i64 rows, i64 cols, Fit& f) {
  f.rank = 0;
  for (int d = plan.cut; d < plan.rank; d++) {
    i64 size = d == plan.cut ? rows : d == plan.rank - 1 ? cols : plan.shape[d], stride = v.stride[d];
    if (size == 1) continue;
    if (f.rank && f.stride[f.rank - 1] == stride * size) {
      f.size[f.rank - 1] *= size;
      f.stride[f.rank - 1] = stride;
    } else {
      f.size[f.rank] = size;
      f.stride[f.rank++] = stride;
    }
  }
}

// Moves between a strided place and a contiguous one. IN: the strided one is read.
template <class T, bool IN> void line(T* at, i64 stride, T* flat, i64 flat_stride, i64 n) {
  if (IN && stride == 0 && flat_stride == 1) {
    T value = *at;
    for (i64 i = 0; i < n; i++) flat[i] = value;
  } else if (stride == 1 && flat_stride == 1) {
    __builtin_memcpy(IN ? flat : at, IN ? at : flat, size_t(n) * sizeof(T));
  } else {
    PWX_VECTORIZE
    for (i64 i = 0; i < n; i++) (IN ? flat[i * flat_stride] : at[i * stride]) = IN ? at[i * stride] : flat[i * flat_stride];
  }
}
template <class T, bool IN> i64 move(const Fit& f, int d, T* at, T* flat) {
  if (d == f.rank) {
    (IN ? *flat : *at) = IN ? *at : *flat;
    return 1;
  }
  i64 n = f.size[d], s = f.stride[d];
  if (d + 1 == f.rank) {
    line<T, IN>(at, s, flat, 1, n);
    return n;
  }
  if (i64 m = f.size[d + 1], t = f.stride[d + 1]; d + 2 == f.rank && (t < 0 ? -t : t) > (s < 0 ? -s : s) && s) {
    for (i64 j = 0; j < m; j++) line<T, IN>(at + j * t, s, flat + j, m, n);
    return n * m;
  }
  i64 done = 0;
  for (i64 i = 0; i < n; i++) done += move<T, IN>(f, d + 1, at + i * s, flat + done);
  return done;
}
template <bool IN> void move(const Fit& f, i64 bytes, char* at, char* flat) {
  switch (bytes) {
    case 1: move<uint8_t, IN>(f, 0, reinterpret_cast<uint8_t*>(at), reinterpret_cast<uint8_t*>(flat)); break;
    case 2: move<uint16_t, IN>(f, 0, reinterpret_cast<uint16_t*>(at), reinterpret_cast<uint16_t*>(flat)); break;
    case 4: move<uint32_t, IN>(f, 0, reinterpret_cast<uint32_t*>(at), reinterpret_cast<uint32_t*>(flat)); break;
    default: move<uint64_t, IN>(f, 0, reinterpret_cast<uint64_t*>(at), reinterpret_cast<uint64_t*>(flat)); break;
  }
}

i64 coordinates(const Fit& f, int d, i64 base, i64* out) {
  if (d == f.rank) {
    *out = base;
    return 1;
  }
  i64 done = 0;
  for (i64 i = 0; i < f.size[d]; i++) done += coordinates(f, d + 1, base + i * f.stride[d], out + done);
  return done;
}

void fill(char* d, int32_t type, i64 value, i64 n) {
  char one[8];
  if (cast::is_float(type)) {
    double v = as_f64(value);
    cast::convert(one, type, &v, F64, 1);
  } else {
    cast::convert(one, type, &value, I64, 1);
  }
  with_bits(dtype_size(type), [&](auto bits) {
    __builtin_memcpy(&bits, one, sizeof bits);
    auto* to = reinterpret_cast<decltype(bits)*>(d);
    for (i64 i = 0; i < n; i++) to[i] = bits;
  });
}

class Worker {
 public:
  Worker(const Plan& plan, const Buf* bufs, char* scratch) : plan_(plan), bufs_(bufs), scratch_(scratch) {
    i64 n = 1;
    for (int d = 0; d < plan.rank && n < plan.tile; d++) n *= plan.shape[d];
    n = n < plan.tile ? (n + 63) / 64 * 64 : plan.tile;  // whole vectors
    n = n < plan.tile ? n : plan.tile;
    for (int i = 0; i < plan.n_steps; i++)
      if (plan.steps[i].op == CONST) fill(slot(plan.steps[i].slot), plan.steps[i].type, plan.steps[i].imm, n);
  }

  void run(i64 begin, i64 end) {
    i64 at[MAX_RANK] = {}, t = begin;
    i64 col = t % plan_.col_tiles;
    t /= plan_.col_tiles;
    i64 row = t % plan_.row_tiles;
    t /= plan_.row_tiles;
    for (int d = plan_.cut - 1; d >= 0; d--) at[d] = t % plan_.shape[d], t /= plan_.shape[d];
    for (i64 i = begin; i < end; i++) {
      tile(at, row * plan_.rows, col * plan_.cols);
      if (++col < plan_.col_tiles) continue;
      col = 0;
      if (++row < plan_.row_tiles) continue;
      row = 0;
      for (int d = plan_.cut - 1; d >= 0 && ++at[d] == plan_.shape[d]; d--) at[d] = 0;
    }
  }

 private:
  char* slot(int i) const { return scratch_ + i * plan_.tile * SLOT; }

  void reshape(i64 rows, i64 cols) {
    rows_ = rows, cols_ = cols;
    n_ = rows;
    for (int d = plan_.cut + 1; d < plan_.rank; d++) n_ *= d == plan_.rank - 1 ? cols : plan_.shape[d];
    for (int v = 0; v < plan_.n_views; v++) {
      fit(plan_, plan_.views[v], rows, cols, fits_[v]);
      held_[v] = -1;
    }
  }

  void tile(const i64* at, i64 row, i64 col) {
    int last = plan_.rank - 1;
    i64 rows = plan_.shape[plan_.cut] - row, cols = plan_.shape[last] - col;
    if (rows > plan_.rows) rows = plan_.rows;
    if (cols > plan_.cols) cols = plan_.cols;
    if (plan_.cut == last) cols = rows;
    if (rows != rows_ || cols != cols_) reshape(rows, cols);
    i64 base[MAX_VIEWS];
    for (int v = 0; v < plan_.n_views; v++) {
      const View& view = plan_.views[v];
      i64 b = view.offset + row * view.stride[plan_.cut];
      if (plan_.cut != last) b += col * view.stride[last];
      for (int d = 0; d < plan_.cut; d++) b += at[d] * view.stride[d];
      base[v] = b;
    }
    int yv = plan_.n_views - 1;
    char* y = bufs_[0].data + base[yv] * plan_.views[yv].bytes;
    const char* regs[MAX_REGISTERS];
    bool splat[MAX_REGISTERS] = {};
    for (int i = 0; i < plan_.n_in; i++) {
      const View& view = plan_.views[i];
      char* x = bufs_[1 + i].data + base[i] * view.bytes;
      if (fits_[i].direct()) {
        regs[i] = x;
        continue;
      }
      splat[i] = fits_[i].splat();
      regs[i] = slot(i);
      if (held_[i] == base[i]) continue;
      move<true>(fits_[i], view.bytes, x, slot(i));
      held_[i] = base[i];
    }
    bool direct = fits_[yv].direct();
    char* target = direct ? y : slot(plan_.n_slots - 1);
    const char* result = plan_.n_steps ? nullptr : regs[0];
    for (int i = 0; i < plan_.n_steps; i++) {
      const Step& s = plan_.steps[i];
      bool final = i + 1 == plan_.n_steps;
      char* d = final ? target : slot(s.slot);
      bool same = s.op == CONST;
      if (s.op == CONST) {
        d = slot(s.slot);
      } else if (s.op == INDEX) {
        coordinates(fits_[s.view], 0, base[s.view], reinterpret_cast<i64*>(slot(s.slot)));
        cast::convert(d, s.type, slot(s.slot), I64, n_);
      } else if (final && plan_.chain.kind != chains::Kind::NONE) {
        const chains::Chain& c = plan_.chain;
        auto at = [&](const chains::Operand& o) { return o.slot >= 0 ? slot(o.slot) : o ? regs[o.reg] : nullptr; };
        chains::run(c, {at(c.x), at(c.scale), at(c.zero), at(c.low), at(c.high)}, d, n_);
      } else if (s.op == CAST) {
        cast::convert(d, s.other, regs[s.a], s.type, n_, int32_t(s.imm));
      } else {
        apply(s.fn, s.op, {d, regs[s.a], s.b < 0 ? nullptr : regs[s.b], s.c < 0 ? nullptr : regs[s.c], n_, s.imm, s.type, s.other, s.b >= 0 && splat[s.b]});
      }
      regs[s.dst] = result = d;
      splat[s.dst] = same;
    }
    i64 bytes = plan_.views[yv].bytes;
    if (direct && result != y) __builtin_memmove(y, result, size_t(n_ * bytes));
    if (!direct) move<false>(fits_[yv], bytes, y, const_cast<char*>(result));
  }

  const Plan& plan_;
  const Buf* bufs_;
  char* scratch_;
  i64 rows_ = -1, cols_ = -1, n_ = 0;
  Fit fits_[MAX_VIEWS];
  i64 held_[MAX_VIEWS];  // base of what the input's slot holds
};

PWX_SMALL Size scratch(const Call& call, int threads) {
  Plan plan;
  plan_steps(call, plan);
  return Size(threads) * plan.n_slots * plan.tile * SLOT;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const MapParams*>(call.params);
  if (product(p.shape, p.rank) == 0) return;
  Plan plan;
  plan_steps(call, plan);
  coalesce(p, plan);
  plan_tiles(plan);
  i64 tile = plan.rows * (plan.cut == plan.rank - 1 ? 1 : plan.cols);
  for (int d = plan.cut + 1; d < plan.rank - 1; d++) tile *= plan.shape[d];
  i64 work = tile * (plan.n_steps > 4 ? 4 : plan.n_steps + 1);
  parallel_for(call.pool, plan.n_tiles, (32768 + work - 1) / work, [&](i64 begin, i64 end, int thread) {
    Worker(plan, call.bufs, call.scratch + thread * plan.n_slots * plan.tile * SLOT).run(begin, end);
  });
}
}  // namespace

KERNEL(map, check, scratch, run)
