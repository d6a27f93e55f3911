// Max, average and Lp pooling. A window's reduction is separable: rows of the window first, into one padded row, then along it.
#include "params.h"
#include "simd.h"
#include "strided.h"
#include "strips.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>

namespace {

using enum Pooling;

template <class T> constexpr T lowest() {
  return std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::min();
}

// Taps that a row combines: `n` blocks, `step` elements apart, of `m` rows that are `inner_step` apart.
struct Grid {
  i64 n, step, m, inner_step;
};

// What pooling does to the elements of one dtype; all work on rows.
struct Rows {
  // y[i] = x[i * stride + each of the grid's taps], combined
  void (*combine)(char* y, const char* x, const Grid& taps, i64 stride, i64 n);
  void (*add_power)(char* y, const char* x, i64 p, i64 n);  // y[i] += |x[i]|^p
  void (*count)(char* counts, i64 i, i64 value);  // counts[i] = value
  void (*divide)(char* y, const char* counts, i64 lines, i64 n);  // y[i] /= counts[i] * lines, or 0 when that is 0
  void (*root)(char* y, i64 p, i64 n);
  void (*fill)(char* y, i64 n);  // with what combines to nothing
  double (*value)(const char* x);
};

template <bool MAXIMUM, class V> inline V join(V a, V v) {
  if constexpr (MAXIMUM) return ((v > a) | (v != v)) ? v : a;
  else return a + v;
}

// N elements, the first one and every S-th after it; S = 2 reads one more than it needs.
template <i64 N, i64 S, class T> inline auto get(const T* x) {
  using V = T __attribute__((ext_vector_type(N * S)));
  V v;
  __builtin_memcpy(&v, x, sizeof v);
  if constexpr (S == 2) return v.even;
  else return v;
}

// A vector of sums or maxima stays in a register; the last one overlaps the one before. N <= n.
template <i64 N, i64 S, bool MAXIMUM, class T> void combine_dense(T* y, const T* x, const Grid& g, i64 n) {
  for (i64 i = 0; i < n; i += N) {
    if (i > n - N) i = n - N;
    auto acc = get<N, S>(x + i * S);
    for (i64 a = 0; a < g.n; a++)
      for (i64 b = a == 0; b < g.m; b++) acc = join<MAXIMUM>(acc, get<N, S>(x + i * S + a * g.step + b * g.inner_step));
    __builtin_memcpy(y + i, &acc, sizeof acc);
  }
}

template <class T, bool MAXIMUM> void combine(char* to, const char* from, const Grid& g, i64 stride, i64 n) {
  constexpr i64 N = 32 / sizeof(T), WIDE = W * 4 / sizeof(T);
  T* y = reinterpret_cast<T*>(to);
  const T* x = reinterpret_cast<const T*>(from);
  if constexpr (WIDE > N) {
    if (stride == 1 && n >= WIDE) return combine_dense<WIDE, 1, MAXIMUM>(y, x, g, n);
    if (stride == 2 && n >= WIDE) return combine_dense<WIDE, 2, MAXIMUM>(y, x, g, n);
  }
  if constexpr (WIDE >= N)
    if (stride == 2 && n >= N) return combine_dense<N, 2, MAXIMUM>(y, x, g, n);
  if (stride == 1 && n >= N) return combine_dense<N, 1, MAXIMUM>(y, x, g, n);
  if (stride == 1 && n >= N / 2) return combine_dense<N / 2, 1, MAXIMUM>(y, x, g, n);
  if (stride == 2 && n >= N / 2) return combine_dense<N / 2, 2, MAXIMUM>(y, x, g, n);
  for (i64 i = 0; i < n; i++) {
    T acc = x[i * stride];
    for (i64 a = 0; a < g.n; a++)
#pragma clang loop vectorize(disable) unroll(disable)
      for (i64 b = a == 0; b < g.m; b++) acc = join<MAXIMUM>(acc, x[i * stride + a * g.step + b * g.inner_step]);
    y[i] = acc;
  }
}

template <class T> void add_power(char* to, const char* from, i64 p, i64 n) {
  T* y = reinterpret_cast<T*>(to);
  const T* x = reinterpret_cast<const T*>(from);
  for (i64 i = 0; i < n; i++) y[i] += p == 2 ? x[i] * x[i] : p == 1 ? std::fabs(x[i]) : T(std::pow(double(std::fabs(x[i])), double(p)));
}

template <class T> void root(char* to, i64 p, i64 n) {
  T* y = reinterpret_cast<T*>(to);
  for (i64 i = 0; i < n; i++) y[i] = p == 2 ? std::sqrt(y[i]) : p == 1 ? y[i] : T(std::pow(double(y[i]), 1.0 / double(p)));
}

template <class T> void count(char* counts, i64 i, i64 value) { reinterpret_cast<T*>(counts)[i] = T(value); }

template <class T> void divide(char* to, const char* counts, i64 lines, i64 n) {
  T* y = reinterpret_cast<T*>(to);
  const T *columns = reinterpret_cast<const T*>(counts), rows = T(lines);
  for (i64 i = 0; i < n; i++) {
    const T all = columns[i] * rows, mean = y[i] / all;
    y[i] = all > 0 ? mean : T(0);
  }
}

template <class T, bool MAXIMUM> void fill(char* y, i64 n) {
  for (i64 i = 0; i < n; i++) reinterpret_cast<T*>(y)[i] = MAXIMUM ? lowest<T>() : T(0);
}

template <class T> double value(const char* x) { return double(*reinterpret_cast<const T*>(x)); }

template <class T> constexpr Rows max_rows = {combine<T, true>, nullptr, nullptr, nullptr, nullptr, fill<T, true>, value<T>};
template <class T> constexpr Rows sum_rows = {combine<T, false>, add_power<T>, count<T>, divide<T>, root<T>, fill<T, false>, nullptr};

const Rows* find_rows(Pooling op, int32_t dtype) {
  switch (dtype) {
    case F32: return op == MAX ? &max_rows<float> : &sum_rows<float>;
    case F64: return op == MAX ? &max_rows<double> : &sum_rows<double>;
    case I8: return op == MAX ? &max_rows<int8_t> : nullptr;
    case U8: return op == MAX ? &max_rows<uint8_t> : nullptr;
    default: return nullptr;
  }
}

// Length of the padded row that the windows of one output row cover.
i64 span(const PoolParams& p) { return (p.out[2] - 1) * p.stride[2] + (p.kernel[2] - 1) * p.dilation[2] + 1; }

// One element more than the windows cover: vectors of every second element read it. Rows of two threads are cache lines apart, which processors
// fetch by twos.
i64 row_bytes(const PoolParams& p, i64 size) { return ((span(p) + 1) * size + 255) & ~i64(127); }

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const PoolParams*>(call.params);
  auto& b = *reinterpret_cast<const PoolBufs*>(call.bufs);
  if (!known(p.op)) return "unknown op";
  if (b.x.dtype != b.y.dtype || !find_rows(p.op, b.x.dtype)) return "dtype is not supported";
  if (p.op == LP && p.p < 1) return "p must be positive";
  if (b.indices && (b.indices.dtype != I64 || p.op != MAX)) return "indices must be int64 and of max pooling";
  const i64 have[] = {p.planes, p.in[0], p.in[1], p.in[2]}, want[] = {p.planes, p.out[0], p.out[1], p.out[2]};
  const i64 n_in = product(have, 4), n_out = product(want, 4);
  if (n_in < 0 || n_in > b.x.count()) return "x is too small";
  if (n_out < 0 || n_out > b.y.count() || (b.indices && n_out > b.indices.count())) return "y is too small";
  for (int d = 0; d < 3; d++) {
    constexpr i64 LIMIT = i64(1) << 31;
    if (p.kernel[d] < 1 || p.stride[d] < 1 || p.dilation[d] < 1) return "kernel, stride and dilation must be positive";
    for (const i64* v : {p.kernel, p.stride, p.dilation, p.in, p.out})
      if (v[d] > LIMIT) return "size out of range";
    if (p.pad[d] < -LIMIT || p.pad[d] > LIMIT || p.pad_end[d] < -LIMIT || p.pad_end[d] > LIMIT) return "padding out of range";
    if ((p.out[d] - 1) * p.stride[d] + (p.kernel[d] - 1) * p.dilation[d] > HUGE_COUNT / 64) return "window out of range";
  }
  auto taps = [&](int d) { return Size(p.kernel[d] < p.in[d] ? p.kernel[d] : p.in[d]); };  // at most those are inside
  const Size lines = Size(p.planes) * p.out[0] * p.out[1], window = taps(0) * taps(1);
  proof.operations = b.indices ? Size(n_out) * (window * taps(2) + 1) : lines * (window * p.in[2] + Size(p.out[2]) * p.kernel[2] + 1);
  if (p.op == AVERAGE) proof.operations += p.out[2];
  proof.writes(0, {0, n_out});
  if (b.indices) proof.writes(1, {0, n_out});
  return nullptr;
}

PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto& p = *reinterpret_cast<const PoolParams*>(call.params);
  auto& b = *reinterpret_cast<const PoolBufs*>(call.bufs);
  if (b.indices || span(p) <= 0) return 0;
  return Size(row_bytes(p, dtype_size(b.x.dtype))) * threads + (p.op == AVERAGE ? Size(p.out[2]) * 8 : Size(0));
}

// The taps [begin, end) of a window at `start` that fall into [low, high).
struct Taps {
  i64 begin, end;
  Taps(i64 start, i64 step, i64 kernel, i64 low, i64 high) {
    begin = start >= low ? 0 : steps(low - start, step);
    end = start >= high ? 0 : steps(high - start, step);
    if (begin > kernel) begin = kernel;
    if (end > kernel) end = kernel;
    if (end < begin) end = begin;
  }
  static i64 steps(i64 way, i64 step) { return step == 1 ? way : (way + step - 1) / step; }
  i64 count() const { return end - begin; }
};

struct Pooling {
  const PoolParams& p;
  const Rows& rows;
  i64 size;

  Taps taps(int axis, i64 out) const { return Taps(out * p.stride[axis] - p.pad[axis], p.dilation[axis], p.kernel[axis], 0, p.in[axis]); }
  i64 divisor(int axis, i64 out) const {
    const i64 start = out * p.stride[axis] - p.pad[axis];
    return p.count_include_pad ? Taps(start, p.dilation[axis], p.kernel[axis], -p.pad[axis], p.in[axis] + p.pad_end[axis]).count() : taps(axis, out).count();
  }

  // Combines the window's rows of x into `row`, whose element 0 is input column -pad.
  void down(char* row, const char* plane, i64 od, i64 oh) const {
    const i64 n = span(p), w = p.in[2], area = p.in[1] * w;
    const i64 begin = p.pad[2] < 0 ? 0 : p.pad[2] < n ? p.pad[2] : n;
    const i64 end = w + p.pad[2] < begin ? begin : w + p.pad[2] < n ? w + p.pad[2] : n;
    const Taps td = taps(0, od), th = taps(1, oh);
    char* to = row + begin * size;
    if (begin) rows.fill(row, begin);
    if (end < n) rows.fill(row + end * size, n - end);
    if (p.op == LP || td.count() * th.count() == 0) rows.fill(to, end - begin);
    if (td.count() * th.count() == 0 || begin == end) return;
    const i64 d = od * p.stride[0] - p.pad[0] + td.begin * p.dilation[0], h = oh * p.stride[1] - p.pad[1] + th.begin * p.dilation[1];
    const char* x = plane + (d * area + h * w + begin - p.pad[2]) * size;
    const Grid g{td.count(), td.count() > 1 ? p.dilation[0] * area : 0, th.count(), th.count() > 1 ? p.dilation[1] * w : 0};
    if (p.op != LP) return rows.combine(to, x, g, 1, end - begin);
    for (i64 a = 0; a < g.n; a++)
      for (i64 b = 0; b < g.m; b++) rows.add_power(to, x + (a * g.step + b * g.inner_step) * size, p.p, end - begin);
  }

  void along(char* y, const char* row, const char* counts, i64 od, i64 oh) const {
    rows.combine(y, row, {1, 0, p.kernel[2], p.dilation[2]}, p.stride[2], p.out[2]);
    if (p.op == LP) rows.root(y, p.p, p.out[2]);
    mean(y, counts, od, oh);
  }
  // Of a row of sums.
  void mean(char* y, const char* counts, i64 od, i64 oh) const {
    if (p.op == AVERAGE) rows.divide(y, counts, divisor(0, od) * divisor(1, oh), p.out[2]);
  }

  // One output element and the place of its maximum in the plane, -1 when the window lies in the padding.
  i64 search(char* y, const char* plane, i64 od, i64 oh, i64 ow) const {
    const Taps td = taps(0, od), th = taps(1, oh), tw = taps(2, ow);
    double best = 0;
    i64 where = -1;
    rows.fill(y, 1);
    for (i64 kd = td.begin; kd < td.end; kd++)
      for (i64 kh = th.begin; kh < th.end; kh++)
        for (i64 kw = tw.begin; kw < tw.end; kw++) {
          const i64 d = od * p.stride[0] - p.pad[0] + kd * p.dilation[0], h = oh * p.stride[1] - p.pad[1] + kh * p.dilation[1];
          const i64 w = ow * p.stride[2] - p.pad[2] + kw * p.dilation[2];
          const char* x = plane + ((d * p.in[1] + h) * p.in[2] + w) * size;
          const double v = rows.value(x);
          if (where >= 0 && (best != best || (v <= best))) continue;
          best = v;
          where = p.storage_order ? (w * p.in[1] + h) * p.in[0] + d : (d * p.in[1] + h) * p.in[2] + w;
          __builtin_memcpy(y, x, size_t(size));
        }
    return where;
  }
};

#if defined(__AVX__)
// Where nothing is NaN: a vector's maximum keeps one of an operand only.
template <int K, int S> struct Maxima {
  static constexpr bool LOWEST = true;
  const VF start = splat(strips::Outside<LOWEST>::VALUE);
  strips::Mask nan = strips::lanes(0, 0);

  VF row(const VF (&x)[K]) {
    if constexpr (S == 1) nan |= strips::unordered(x[0], x[K - 1]);  // they have all columns
    else
      for (int t = 0; t < K; t += 2) nan |= strips::unordered(x[t], x[t + 1 < K ? t + 1 : t]);
    VF m = x[0];
    for (int t = 1; t < K; t++) m = vmax(m, x[t]);
    return m;
  }
  VF add(VF sum, VF row, int) const { return vmax(sum, row); }
  VF end(VF sum) const { return sum; }
};

template <int K> struct Sums {
  static constexpr bool LOWEST = false;
  const VF start = splat(0);

  VF row(const VF (&x)[K]) const {
    VF sum = x[0];
    for (int t = 1; t < K; t++) sum += x[t];
    return sum;
  }
  VF add(VF sum, VF row, int) const { return sum + row; }
  VF end(VF sum) const { return sum; }
};

// Maxima or sums; false where a maximum saw a NaN.
template <int K, int S, bool MAXIMUM> [[gnu::noinline]] bool strip(const strips::Strip& s) {
  if constexpr (MAXIMUM) {
    Maxima<K, S> maxima;
    strips::walk<K, S>(s, maxima);
    return !strips::any(maxima.nan);
  } else {
    Sums<K> sums;
    strips::walk<K, S>(s, sums);
    return true;
  }
}

struct Strips {
  bool (*go)(const strips::Strip&) = nullptr;
  i64 rows = 0, bands = 0;  // of a plane's outputs

  template <bool MAXIMUM> static auto of(i64 k, i64 s) -> bool (*)(const strips::Strip&) {
    if (k == 2 && s == 2) return strip<2, 2, MAXIMUM>;
    if (k == 3 && s == 2) return strip<3, 2, MAXIMUM>;
    if (k == 3 && s == 1) return strip<3, 1, MAXIMUM>;
    return k == 5 && s == 1 ? strip<5, 1, MAXIMUM> : nullptr;
  }

  Strips(const PoolParams& p, const PoolBufs& b) {
    const bool flat = p.kernel[0] == 1 && p.stride[0] == 1 && p.pad[0] == 0 && p.in[0] == p.out[0];
    const bool square = p.kernel[1] == p.kernel[2] && p.stride[1] == p.stride[2] && p.dilation[1] == 1 && p.dilation[2] == 1;
    if (p.op == LP || b.x.dtype != F32 || b.indices || !flat || !square) return;
    const i64 k = p.kernel[2], s = p.stride[2];
    go = p.op == MAX ? of<true>(k, s) : of<false>(k, s);
    rows = std::clamp<i64>((1 << 12) / (p.in[2] * s + 1), 8, p.out[1]);
    bands = (p.out[1] + rows - 1) / rows;
  }
};

// Whether that was all.
bool band(const Strips& by, const PoolParams& p, const PoolBufs& b, i64 plane, i64 r0, i64 count) {
  const float* x = b.x.as<float>() + plane * p.in[1] * p.in[2];
  float* y = b.y.as<float>() + (plane * p.out[1] + r0) * p.out[2];
  bool done = true;
  for (i64 j = 0; j < p.out[2]; j += W)
    done &= by.go({x, p.in[1], p.in[2], r0 * p.stride[1] - p.pad[1], j * p.stride[2] - p.pad[2], count, p.out[2] - j, p.out[2], y + j});
  return done;
}

struct Halving {
  Halving(const PoolParams&, const PoolBufs&) {}
  bool operator()(const PoolParams&, const char*, i64, char*) const { return false; }
};
#else
// Maxima of windows of 2 x 2 or 3 x 3, two columns apart, that lie within a plane. A sum of all tells of a NaN, which a vector's maximum may
// lose.
struct Halving {
  bool suit;

  Halving(const PoolParams& p, const PoolBufs& b) {
    const bool flat = p.kernel[0] == 1 && p.pad[0] == 0 && p.in[0] == 1 && p.out[0] == 1;
    const bool square = p.kernel[1] == p.kernel[2] && (p.kernel[1] & ~1) == 2 && p.dilation[1] == 1 && p.dilation[2] == 1 && p.stride[2] == 2;
    suit = flat && square && p.op == MAX && b.x.dtype == F32 && p.pad[2] == 0 && p.out[2] >= W && span(p) <= p.in[2];
  }

  // Row oh of a plane's outputs; false where it is to be made otherwise.
  bool operator()(const PoolParams& p, const char* plane, i64 oh, char* y) const {
    const i64 h = oh * p.stride[1] - p.pad[1];
    if (!suit || h < 0 || h + p.kernel[1] > p.in[1]) return false;
    const float* x = reinterpret_cast<const float*>(plane) + h * p.in[2];
    return (p.kernel[1] == 2 ? row<2> : row<3>)(x, proven(p.in[2]), proven(p.out[2]), reinterpret_cast<float*>(y));
  }

  template <int K> [[gnu::noinline]] static bool row(const float* x, isize pitch, isize n, float* y) {
    VF sums[3] = {};
    auto columns = [&](const float* at, VF& sum) __attribute__((always_inline)) {
      const VF a = load(at), b = load(at + pitch);
      if (K == 2) return sum += a + b, vmax(a, b);
      const VF c = load(at + 2 * pitch);
      sum += a + b + c;
      return vmax(vmax(a, b), c);
    };
    for (isize i = 0; i < n; i += W) {
      if (i > n - W) i = n - W;
      const VF v = columns(x + 2 * i, sums[0]), w = columns(x + 2 * i + 4, sums[1]);
      VF most = vmax(__builtin_shufflevector(v, w, 0, 2, 4, 6), __builtin_shufflevector(v, w, 1, 3, 5, 7));
      if (K == 3) {
        const VF last = columns(x + 2 * i + 5, sums[2]);
        most = vmax(most, __builtin_shufflevector(__builtin_shufflevector(v, w, 2, 4, 6, 7), last, 0, 1, 2, 7));
      }
      store(y + i, most);
    }
    const VF all = sums[0] + sums[1] + sums[2];
    return !__builtin_reduce_or(all != all);
  }
};
#endif

void run(Call& call) {
  const auto& p = *reinterpret_cast<const PoolParams*>(call.params);
  auto& b = *reinterpret_cast<const PoolBufs*>(call.bufs);
  const i64 lines = p.out[0] * p.out[1], width = p.out[2], plane = p.in[0] * p.in[1] * p.in[2];
  if (p.planes == 0 || lines == 0 || width == 0) return;
  const i64 size = dtype_size(b.x.dtype), bytes = row_bytes(p, size);
  const Pooling pooling{p, *find_rows(p.op, b.x.dtype), size};
  const double cost = double(span(p)) * (double(p.kernel[0]) * double(p.kernel[1]) + double(p.kernel[2]));
  char* counts = call.scratch + bytes * pool_threads(call.pool);
  if (p.op == AVERAGE)
    for (i64 i = 0; i < width; i++) pooling.rows.count(counts, i, pooling.divisor(2, i));
  const Halving halving(p, b);
  auto rows = [&](i64 at, i64 end, int thread) {
    char* row = call.scratch + thread * bytes;
    i64 which = at / lines, od = at % lines / p.out[1], oh = at % p.out[1];
    for (; at < end; at++) {
      const char* x = b.x.data + which * plane * size;
      char* y = b.y.data + at * width * size;
      if (b.indices) {
        for (i64 i = 0; i < width; i++) {
          const i64 where = pooling.search(y + i * size, x, od, oh, i);
          b.indices.as<i64>()[at * width + i] = where < 0 ? -1 : which * plane + where;
        }
      } else if (!halving(p, x, oh, y)) {
        pooling.down(row, x, od, oh);
        pooling.along(y, row, counts, od, oh);
      }
      if (++oh == p.out[1]) {
        oh = 0;
        if (++od == p.out[0]) od = 0, which++;
      }
    }
  };
#if defined(__AVX__)
  if (const Strips by(p, b); by.go) {
    const i64 grain = 1 + i64((1 << 15) / (cost * double(by.rows) / 4 + 1));
    return parallel_for(call.pool, p.planes * p.out[0] * by.bands, grain, [&](i64 at, i64 end, int thread) {
      for (; at < end; at++) {
        const i64 which = at / by.bands, r0 = at % by.bands * by.rows, count = std::min(by.rows, p.out[1] - r0);
        const i64 first = which * p.out[1] + r0;
        if (!band(by, p, b, which, r0, count)) rows(first, first + count, thread);
        else for (i64 r = 0; r < count; r++) pooling.mean(b.y.data + (first + r) * width * size, counts, which % p.out[0], r0 + r);
      }
    });
  }
#endif
  parallel_for(call.pool, p.planes * lines, 1 + i64((1 << 15) / (cost + 1)), std::move(rows));
}

}  // namespace

KERNEL(pool, check, scratch, run)
