// Max, average and Lp pooling. A window's reduction is separable: rows of the window first, into one padded row, then along it.
#include "params.h"
#include "strided.h"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <type_traits>

namespace {

enum Op { MAX, AVERAGE, LP };

template <class T> inline T greater(T a, T v) { return v > a || v != v ? v : a; }

template <class T> constexpr T lowest() {
  return std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::min();
}

// What pooling does to the elements of one dtype; all work on rows.
struct Rows {
  // y[i] = combine(y[i], x[i * stride])
  void (*combine)(char* y, const char* x, i64 stride, i64 n);
  // y[i] = |x[i]| to the power that Lp pooling sums
  void (*power)(char* y, const char* x, i64 p, i64 n);
  // y[i] = y[i] / divisor, or the p-th root of y[i]
  void (*divide)(char* y, i64 i, i64 divisor);
  void (*root)(char* y, i64 p, i64 n);
  void (*fill)(char* y, i64 n);  // with what combines to nothing
  double (*value)(const char* x);
};

template <class T, bool MAXIMUM, class Stride> void combine_row(T* __restrict y, const T* __restrict x, Stride stride, i64 n) {
  for (i64 i = 0; i < n; i++) y[i] = MAXIMUM ? greater(y[i], x[i * stride]) : T(y[i] + x[i * stride]);
}

template <class T, bool MAXIMUM> void combine(char* to, const char* from, i64 stride, i64 n) {
  T* y = reinterpret_cast<T*>(to);
  const T* x = reinterpret_cast<const T*>(from);
  if (stride == 1) return combine_row<T, MAXIMUM>(y, x, std::integral_constant<i64, 1>(), n);
  if (stride == 2) return combine_row<T, MAXIMUM>(y, x, std::integral_constant<i64, 2>(), n);
#pragma clang loop vectorize(disable)
  for (i64 i = 0; i < n; i++) y[i] = MAXIMUM ? greater(y[i], x[i * stride]) : T(y[i] + x[i * stride]);
}

template <class T> void power(char* to, const char* from, i64 p, i64 n) {
  T* y = reinterpret_cast<T*>(to);
  const T* x = reinterpret_cast<const T*>(from);
  for (i64 i = 0; i < n; i++) y[i] = p == 2 ? x[i] * x[i] : p == 1 ? std::fabs(x[i]) : std::pow(std::fabs(x[i]), T(p));
}

template <class T> void root(char* to, i64 p, i64 n) {
  T* y = reinterpret_cast<T*>(to);
  for (i64 i = 0; i < n; i++) y[i] = p == 2 ? std::sqrt(y[i]) : p == 1 ? y[i] : std::pow(y[i], T(1) / T(p));
}

template <class T> void divide(char* to, i64 i, i64 divisor) {
  T& y = reinterpret_cast<T*>(to)[i];
  y = divisor ? y / T(divisor) : T(0);
}

template <class T, bool MAXIMUM> void fill(char* y, i64 n) {
  for (i64 i = 0; i < n; i++) reinterpret_cast<T*>(y)[i] = MAXIMUM ? lowest<T>() : T(0);
}

template <class T> double value(const char* x) { return double(*reinterpret_cast<const T*>(x)); }

template <class T> constexpr Rows max_rows = {combine<T, true>, nullptr, nullptr, nullptr, fill<T, true>, value<T>};
template <class T> constexpr Rows sum_rows = {combine<T, false>, power<T>, divide<T>, root<T>, fill<T, false>, nullptr};

const Rows* find_rows(i64 op, int32_t dtype) {
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

// Per thread: the padded row, and for Lp pooling a row of powers.
i64 row_bytes(const PoolParams& p, i64 size) { return ((span(p) + (p.op == LP ? p.in[2] : 0)) * size + 63) & ~i64(63); }

const char* check(const Call& call) {
  const auto& p = *reinterpret_cast<const PoolParams*>(call.params);
  auto& b = *reinterpret_cast<const PoolBufs*>(call.bufs);
  if (p.op < MAX || p.op > LP) return "unknown op";
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
  return nullptr;
}

i64 scratch(const Call& call, int threads) {
  const auto& p = *reinterpret_cast<const PoolParams*>(call.params);
  auto& b = *reinterpret_cast<const PoolBufs*>(call.bufs);
  return b.indices || span(p) <= 0 ? 0 : row_bytes(p, dtype_size(b.x.dtype)) * threads;
}

// The taps [begin, end) of a window at `start` that fall into [low, high).
struct Taps {
  i64 begin, end;
  Taps(i64 start, i64 step, i64 kernel, i64 low, i64 high) {
    begin = start >= low ? 0 : (low - start + step - 1) / step;
    end = start >= high ? 0 : (high - start + step - 1) / step;
    if (begin > kernel) begin = kernel;
    if (end > kernel) end = kernel;
    if (end < begin) end = begin;
  }
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
    const i64 n = span(p), w = p.in[2], d0 = od * p.stride[0] - p.pad[0], h0 = oh * p.stride[1] - p.pad[1];
    const i64 begin = p.pad[2] < 0 ? 0 : p.pad[2] < n ? p.pad[2] : n;
    const i64 end = w + p.pad[2] < begin ? begin : w + p.pad[2] < n ? w + p.pad[2] : n;
    const Taps td = taps(0, od), th = taps(1, oh);
    char *to = row + begin * size, *powers = row + n * size;
    bool first = true;
    rows.fill(row, begin);
    rows.fill(row + end * size, n - end);
    for (i64 kd = td.begin; kd < td.end; kd++)
      for (i64 kh = th.begin; kh < th.end; kh++, first = false) {
        const char* x = plane + (((d0 + kd * p.dilation[0]) * p.in[1] + h0 + kh * p.dilation[1]) * w + begin - p.pad[2]) * size;
        if (p.op == LP) rows.power(first ? to : powers, x, p.p, end - begin);
        else if (first) __builtin_memcpy(to, x, size_t((end - begin) * size));
        if (!first) rows.combine(to, p.op == LP ? powers : x, 1, end - begin);
      }
    if (first) rows.fill(to, end - begin);
  }

  void along(char* y, const char* row, i64 od, i64 oh) const {
    const i64 n = p.out[2];
    rows.fill(y, n);
    for (i64 k = 0; k < p.kernel[2]; k++) rows.combine(y, row + k * p.dilation[2] * size, p.stride[2], n);
    if (p.op == LP) rows.root(y, p.p, n);
    if (p.op != AVERAGE) return;
    const i64 lines = divisor(0, od) * divisor(1, oh);
    for (i64 i = 0; i < n; i++) rows.divide(y, i, lines * divisor(2, i));
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

void run(Call& call) {
  const auto& p = *reinterpret_cast<const PoolParams*>(call.params);
  auto& b = *reinterpret_cast<const PoolBufs*>(call.bufs);
  const i64 lines = p.out[0] * p.out[1], width = p.out[2], plane = p.in[0] * p.in[1] * p.in[2];
  if (p.planes * lines * width == 0) return;
  const i64 size = dtype_size(b.x.dtype), bytes = row_bytes(p, size);
  const Pooling pooling{p, *find_rows(p.op, b.x.dtype), size};
  const i64 cost = span(p) * (p.kernel[0] * p.kernel[1] + p.kernel[2]);
  parallel_for(call.pool, p.planes * lines, cost > 1 << 15 ? 1 : (1 << 15) / (cost + 1), [&](i64 at, i64 end, int thread) {
    char* row = call.scratch + thread * bytes;
    for (; at < end; at++) {
      const char* x = b.x.data + at / lines * plane * size;
      char* y = b.y.data + at * width * size;
      const i64 od = at % lines / p.out[1], oh = at % p.out[1];
      if (b.indices) {
        for (i64 i = 0; i < width; i++) {
          const i64 where = pooling.search(y + i * size, x, od, oh, i);
          b.indices.as<i64>()[at * width + i] = where < 0 ? -1 : at / lines * plane + where;
        }
      } else {
        pooling.down(row, x, od, oh);
        pooling.along(y, row, od, oh);
      }
    }
  });
}

}  // namespace

KERNEL(pool, check, scratch, run)
