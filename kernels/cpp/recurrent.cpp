// RNN, GRU and LSTM with the activations that the standard gives them: all steps and directions of a layer in one call. The inputs' share of
// the gates comes computed; weights of the states come as pack.cpp leaves them, one band of columns of all gates for each direction.
#include <algorithm>
#include <initializer_list>

#include "gemm.h"
#include "gemm/row.h"
#include "params.h"
#include "vmath.h"

namespace {

constexpr i64 gates_of(Cell cell) { return cell == Cell::LSTM ? 4 : cell == Cell::GRU || cell == Cell::LINEAR_GRU ? 3 : 1; }

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const RecurrentParams*>(call.params);
  const auto& b = *reinterpret_cast<const RecurrentBufs*>(call.bufs);
  for (const Buf* f : {&b.y, &b.h, &b.c, &b.x, &b.r, &b.r1, &b.bias, &b.h0, &b.c0})
    if (*f && f->dtype != F32) return "only float32";
  if (b.lengths && b.lengths.dtype != I32) return "lengths must be int32";
  if (!known(p.cell)) return "unknown cell";
  if (p.ways != 1 && p.ways != 2) return "one or two directions";
  if (bool(b.r1) != (p.ways == 2)) return "each direction has weights";
  if (p.size < 1 || p.size > MAX_EXTENT / 4) return "a size is out of range";
  if ((p.cell == Cell::LSTM) != bool(b.c)) return "LSTM has a second state, others do not";
  if (b.c0 && !b.c) return "a start without a state";
  if (b.bias && p.cell != Cell::LINEAR_GRU) return "a bias of products is of linear GRU alone";
  const i64 gates = gates_of(p.cell);
  auto fits = [](const Buf& buf, std::initializer_list<i64> sizes) {
    const i64 count = product(sizes.begin(), i64(sizes.size()));
    return !buf || (count >= 0 && count <= buf.count());
  };
  if (!fits(b.x, {p.steps, p.batch, p.ways, gates, p.size})) return "x is too small";
  if (!fits(b.y, {p.steps, p.batch, p.ways, p.size})) return "y is too small";
  if (!fits(b.r, {gates, p.size, p.size}) || !fits(b.r1, {gates, p.size, p.size})) return "r is too small";
  if (!fits(b.bias, {p.ways, p.size})) return "bias is too small";
  if (!fits(b.lengths, {p.batch})) return "lengths is too small";
  for (const Buf* f : {&b.h, &b.c, &b.h0, &b.c0})
    if (!fits(*f, {p.ways, p.batch, p.size})) return "a state is too small";
  const i64 state[] = {p.ways, p.batch, p.size}, sequence[] = {p.steps, p.ways, p.batch, p.size};
  proof.operations = Size(product(sequence, 4)) * gates * (Size(p.size) + 8) + Size(product(state, 3)) + 1;
  proof.writes(0, {0, product(sequence, 4)});
  proof.writes(1, {0, product(state, 3)});
  if (b.c) proof.writes(2, {0, product(state, 3)});
  return nullptr;
}

// Columns of gates that a GRU multiplies first, and the panel with which the others begin: whole panels, which may have columns of both.
inline isize first_end(isize size) { return gemm::least(gemm::round_up(2 * size, gemm::NR), 3 * size); }
inline isize rest_begin(isize size) { return 2 * size / gemm::NR * gemm::NR; }

// Of each row of the batch and direction: its gates; of GRU also what the reset gate left of the state, and its products.
PWX_SMALL isize floats_of_row(Cell cell, isize size) {
  const isize gates = size * proven(gates_of(cell));
  return cell == Cell::GRU ? 2 * gates + size : gates;
}
PWX_SMALL gemm::Product product_of(const RecurrentParams& p, isize rows) {
  gemm::Product q{};
  const isize size = proven(p.size), width = size * proven(gates_of(p.cell));
  q.m = rows, q.n = width, q.k = q.band = q.a_rs = size, q.a_cs = 1, q.y_rs = width;
  return q;
}
// Of each thread: a panel.
PWX_SMALL isize panel_floats(const RecurrentParams& p) {
  const gemm::Blocks some = gemm::blocks_of(product_of(p, 1), 1), many = gemm::blocks_of(product_of(p, proven(p.batch)), 1);
  return std::max(some.packed_floats, many.packed_floats);
}

PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto& p = *reinterpret_cast<const RecurrentParams*>(call.params);
  return (Size(p.ways) * p.batch * floats_of_row(p.cell, proven(p.size)) + Size(threads) * panel_floats(p)) * 4;
}

// Of vectors whose last lanes may be missing; what seldom happens is not repeated wherever it may.
[[gnu::noinline]] VF take_part(const float* p, isize n) { return load_part(p, n); }
[[gnu::noinline]] void put_part(float* p, VF v, isize n) { store_part(p, v, n); }
inline VF take(const float* p, isize n) { return n == W ? load(p) : take_part(p, n); }
inline void put(float* p, VF v, isize n) { n == W ? store(p, v) : put_part(p, v, n); }

constexpr isize MOST_OF_EACH = 1 << 18;            // weights that each thread may read for itself: they stay in its level-2 cache
constexpr i64 LEAST_SHARED = 2 * gemm::MIN_FLOPS;  // of a step that more threads are worth than there are rows

struct Layer {
  const RecurrentParams& p;
  const RecurrentBufs& b;
  Call& call;
  isize steps, batch, size, ways, width, each;  // each: floats of a thread's panel
  float *panels, *rows;                         // of each thread; of each direction and row of the batch
  bool shared;                                  // threads share the products of a step

  Layer(Call& of)
      : p(*reinterpret_cast<const RecurrentParams*>(of.params)), b(*reinterpret_cast<const RecurrentBufs*>(of.bufs)), call(of),
        steps(proven(p.steps)), batch(proven(p.batch)), size(proven(p.size)), ways(proven(p.ways)), width(size * proven(gates_of(p.cell))),
        each(panel_floats(p)), panels(reinterpret_cast<float*>(of.scratch)), rows(panels + pool_threads(of.pool) * each),
        shared(width * size > MOST_OF_EACH || (ways * batch < pool_threads(of.pool) && 2 * i64(batch) * width * size > LEAST_SHARED)) {}

  // Columns [begin, end) of q, of whole panels.
  void multiply(const gemm::Product& q, isize begin, isize end, int thread) const {
    auto part = [&](isize from, isize to, int own) {
      if (q.m == 1) from = gemm::row_panels(q, from, to);
      if (from < to) gemm::product_range(q, {nullptr, gemm::pack_matrix}, 0, q.m, from, to, gemm::blocks_of(q, 1), panels + own * each, nullptr);
    };
    if (!shared) return part(begin, end, thread);
    constexpr isize UNIT = gemm::RUNS * gemm::NR;
    parallel_for(call.pool, (end - begin + UNIT - 1) / UNIT, gemm::MIN_FLOPS / (2 * q.m * size * UNIT + 1) + 1, [&](i64 from, i64 to, int own) {
      part(begin + proven(from) * UNIT, std::min(end, begin + proven(to) * UNIT), own);
    });
  }

  // Calls f(i) for rows whose numbers a thread alone computes.
  void each_row(isize count, auto f) const {
    constexpr isize WORTH = 1 << 12;  // numbers of a state
    auto some = [&](i64 begin, i64 end) {
      for (isize i = proven(begin); i < proven(end); i++) f(i);
    };
    if (shared) parallel_for(call.pool, count, WORTH / size + 1, [&](i64 begin, i64 end, int) { some(begin, end); });
    else some(0, count);
  }

  // Calls f(at, n) for the vectors of a row.
  void vectors(auto f) const {
    for (isize at = 0; at < size; at += W) f(at, std::min(isize{W}, size - at));
  }

  // Before the products of what the reset gate left: update gates, and that.
  void reset(const float* x, float* g, const float* h, float* left) const {
    vectors([&](isize at, isize n) __attribute__((always_inline)) {
      VF two[2] = {take(g + at, n) + take(x + at, n), take(g + size + at, n) + take(x + size + at, n)};
      vsigmoid_each(two);
      put(g + at, two[0], n);
      put(left + at, two[1] * take(h + at, n), n);
    });
  }

  // h, and c, of the next step. x: the inputs' share of the gates; again: products of what the reset gate left.
  void next(const float* x, const float* g, const float* again, const float* bias, float* h, float* c) const {
    auto sum = [&](isize gate, isize at, isize n) __attribute__((always_inline)) {
      return take(g + gate * size + at, n) + take(x + gate * size + at, n);
    };
    vectors([&](isize at, isize n) __attribute__((always_inline)) {
      VF s[3], fresh;  // of LSTM input, output and forget gate; of GRU the update gate, and the reset gate
      if (p.cell == Cell::LSTM) {
        s[0] = sum(0, at, n), s[1] = sum(1, at, n), s[2] = sum(2, at, n), fresh = sum(3, at, n);
        vsigmoid_each(s);
      } else if (p.cell == Cell::GRU) {
        s[0] = take(g + at, n), fresh = take(again + 2 * size + at, n) + take(x + 2 * size + at, n);
      } else if (p.cell == Cell::LINEAR_GRU) {
        VF two[2] = {sum(0, at, n), sum(1, at, n)}, product = take(g + 2 * size + at, n);
        vsigmoid_each(two);
        if (bias) product += take(bias + at, n);
        s[0] = two[0], fresh = take(x + 2 * size + at, n) + two[1] * product;
      } else {
        fresh = sum(0, at, n);
      }
      fresh = p.cell == Cell::RELU ? vrelu(fresh) : vtanh(fresh);
      if (p.cell == Cell::LSTM) {
        fresh = s[2] * take(c + at, n) + s[0] * fresh;
        put(c + at, fresh, n);
        fresh = s[1] * vtanh(fresh);
      } else if (p.cell == Cell::GRU || p.cell == Cell::LINEAR_GRU) {
        fresh = (1.0f - s[0]) * fresh + s[0] * take(h + at, n);
      }
      put(h + at, fresh, n);
    });
  }

  isize length(isize row) const {
    return b.lengths ? std::min(steps, std::max(isize{0}, isize{b.lengths.as<int32_t>()[row]})) : steps;
  }

  // Rows [first, last) of the batch, in one direction.
  void run(isize way, isize first, isize last, int thread) const {
    const isize count = last - first, from = way * batch + first;
    const float *x = b.x.as<float>(), *bias = b.bias ? b.bias.as<float>() + way * size : nullptr;
    const bool backwards = ways == 2 ? way == 1 : p.reverse != 0, twice = p.cell == Cell::GRU;
    float *h = b.h.as<float>() + from * size, *c = b.c ? b.c.as<float>() + from * size : nullptr, *y = b.y.as<float>();
    float *g = rows + from * floats_of_row(p.cell, size), *again = g + count * width, *left = again + (twice ? count * width : 0);
    gemm::Product q = product_of(p, count);
    q.a = h, q.b = (way ? b.r1 : b.r).as<float>(), q.y = g;
    gemm::Product rest = q;
    rest.a = left, rest.y = again;
    auto start = [&](float* state, const Buf& given) {
      if (given) std::copy_n(given.as<float>() + from * size, count * size, state);
      else std::fill_n(state, count * size, 0.0f);
    };
    start(h, b.h0);
    if (c) start(c, b.c0);
    isize longest = 0;
    for (isize i = first; i < last; i++) longest = std::max(longest, length(i));
    for (isize s = 0; s < steps; s++) {
      // Row i at this step: false beyond its length.
      auto place = [&](isize i, isize& at) {
        const isize n = length(i);
        at = s < n && backwards ? n - 1 - s : s;
        return s < n;
      };
      auto given = [&](isize at, isize i) { return x + ((at * batch + i) * ways + way) * width; };
      if (s < longest) multiply(q, 0, twice ? first_end(size) : width, thread);
      if (s < longest && twice) {
        each_row(count, [&](isize i) {
          isize at;
          if (place(first + i, at)) reset(given(at, first + i), g + i * width, h + i * size, left + i * size);
          else std::fill_n(left + i * size, size, 0.0f);
        });
        multiply(rest, rest_begin(size), width, thread);
      }
      each_row(count, [&](isize i) {
        isize at;
        const bool alive = place(first + i, at);
        if (alive) next(given(at, first + i), g + i * width, again + i * width, bias, h + i * size, c ? c + i * size : nullptr);
        float* to = y + ((at * ways + way) * batch + first + i) * size;
        if (alive) std::copy_n(h + i * size, size, to);
        else std::fill_n(to, size, 0.0f);
      });
    }
  }
};

void run(Call& call) {
  const Layer layer(call);
  if (!layer.batch) return;
  auto rows = [&](isize begin, isize end, int thread) {
    for (isize way = begin / layer.batch; way * layer.batch < end; way++)
      layer.run(way, std::max(begin - way * layer.batch, isize{0}), std::min(end - way * layer.batch, layer.batch), thread);
  };
  const isize all = layer.ways * layer.batch, parts = std::min(all, isize{pool_threads(call.pool)});
  if (layer.shared) return rows(0, all, 0);
  const Size work = Size(layer.steps) * layer.width * layer.size * 2 * ((all + parts - 1) / parts) + 1;
  parallel_for(call.pool, parts, gemm::MIN_FLOPS / work.value() + 1, [&](i64 begin, i64 end, int thread) {
    rows(proven(all * begin / parts), proven(all * end / parts), thread);
  });
}

}  // namespace

KERNEL(recurrent, check, scratch, run)
