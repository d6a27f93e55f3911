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

// Length of the padded row that the windows of one output row cover.
i64 span(const PoolParams& p) { return (p.out[2] - 1) * p.stride[2] + (p.kernel[2] - 1) * p.dilation[2] + 1; }

i64 row_bytes(const PoolParams& p, i64 size) { return (span(p) * size + 63) & ~i64(63); }

const char* check(const Call& call) {
  const auto& p = *reinterpret_cast<const PoolParams*>(call.params);
  auto& b = *reinterpret_cast<const PoolBufs*>(call.bufs);
  const bool real = b.x.dtype == F32 || b.x.dtype == F64;
  if (p.op < MAX || p.op > LP) return "unknown op";
  if (b.x.dtype != b.y.dtype || !(real || (p.op == MAX && (b.x.dtype == I8 || b.x.dtype == U8)))) return "dtype is not supported";
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

template <class T, int OP> struct Pooling {
  const PoolParams& p;

  static T load(T v, i64 power) {
    if constexpr (OP == LP) return power == 2 ? v * v : power == 1 ? std::fabs(v) : std::pow(std::fabs(v), T(power));
    return v;
  }
  static T combine(T a, T v) {
    if constexpr (OP == MAX) return greater(a, v);
    else return a + v;
  }

  Taps taps(int axis, i64 out) const { return Taps(out * p.stride[axis] - p.pad[axis], p.dilation[axis], p.kernel[axis], 0, p.in[axis]); }
  i64 divisor(int axis, i64 out) const {
    const i64 start = out * p.stride[axis] - p.pad[axis];
    return p.count_include_pad ? Taps(start, p.dilation[axis], p.kernel[axis], -p.pad[axis], p.in[axis] + p.pad_end[axis]).count() : taps(axis, out).count();
  }

  // Combines the window's rows of x into `row`, whose element 0 is input column -pad.
  void columns(T* __restrict row, const T* __restrict plane, const Taps& td, i64 d0, const Taps& th, i64 h0) const {
    const i64 n = span(p), w = p.in[2];
    const i64 begin = p.pad[2] < 0 ? 0 : p.pad[2] < n ? p.pad[2] : n;
    const i64 end = w + p.pad[2] < begin ? begin : w + p.pad[2] < n ? w + p.pad[2] : n;
    const T none = OP == MAX ? lowest<T>() : T(0);
    for (i64 i = 0; i < begin; i++) row[i] = none;
    for (i64 i = end; i < n; i++) row[i] = none;
    bool first = true;
    for (i64 kd = td.begin; kd < td.end; kd++)
      for (i64 kh = th.begin; kh < th.end; kh++, first = false) {
        const T* __restrict x = plane + ((d0 + kd * p.dilation[0]) * p.in[1] + h0 + kh * p.dilation[1]) * w - p.pad[2];
        if (first)
          for (i64 i = begin; i < end; i++) row[i] = load(x[i], p.p);
        else
          for (i64 i = begin; i < end; i++) row[i] = combine(row[i], load(x[i], p.p));
      }
    if (first)
      for (i64 i = begin; i < end; i++) row[i] = none;
  }

  template <class Stride> void along(T* __restrict y, const T* __restrict row, Stride stride) const {
    const i64 n = p.out[2];
    for (i64 i = 0; i < n; i++) y[i] = row[i * stride];
    for (i64 k = 1; k < p.kernel[2]; k++) {
      const T* __restrict x = row + k * p.dilation[2];
      for (i64 i = 0; i < n; i++) y[i] = combine(y[i], x[i * stride]);
    }
  }

  void row_of(T* y, T* row, const T* plane, i64 od, i64 oh) const {
    const i64 d0 = od * p.stride[0] - p.pad[0], h0 = oh * p.stride[1] - p.pad[1];
    columns(row, plane, taps(0, od), d0, taps(1, oh), h0);
    if (p.stride[2] == 1) along(y, row, std::integral_constant<i64, 1>());
    else if (p.stride[2] == 2) along(y, row, std::integral_constant<i64, 2>());
    else along(y, row, p.stride[2]);
    if constexpr (OP == AVERAGE) {
      const i64 rows = divisor(0, od) * divisor(1, oh);
      for (i64 i = 0; i < p.out[2]; i++) {
        const i64 n = rows * divisor(2, i);
        y[i] = n ? y[i] / T(n) : T(0);
      }
    } else if constexpr (OP == LP) {
      for (i64 i = 0; i < p.out[2]; i++) y[i] = p.p == 2 ? std::sqrt(y[i]) : p.p == 1 ? y[i] : std::pow(y[i], T(1) / T(p.p));
    }
  }
};

template <class T, int OP> void run_rows(Call& call) {
  const auto& p = *reinterpret_cast<const PoolParams*>(call.params);
  auto& b = *reinterpret_cast<const PoolBufs*>(call.bufs);
  const Pooling<T, OP> pooling{p};
  const i64 rows = p.out[0] * p.out[1], bytes = row_bytes(p, sizeof(T));
  const i64 cost = span(p) * (p.kernel[0] * p.kernel[1] + p.kernel[2]);
  parallel_for(call.pool, p.planes * rows, cost > 1 << 14 ? 1 : (1 << 14) / (cost + 1), [&](i64 at, i64 end, int thread) {
    T* row = reinterpret_cast<T*>(call.scratch + thread * bytes);
    for (; at < end; at++) {
      const T* plane = b.x.as<T>() + at / rows * p.in[0] * p.in[1] * p.in[2];
      pooling.row_of(b.y.as<T>() + at * p.out[2], row, plane, at % rows / p.out[1], at % p.out[1]);
    }
  });
}

template <class T> void run_indices(Call& call) {
  const auto& p = *reinterpret_cast<const PoolParams*>(call.params);
  auto& b = *reinterpret_cast<const PoolBufs*>(call.bufs);
  const Pooling<T, MAX> pooling{p};
  const i64 size = p.in[0] * p.in[1] * p.in[2], rows = p.out[0] * p.out[1];
  parallel_for(call.pool, p.planes * rows, 16, [&](i64 at, i64 end, int) {
    for (; at < end; at++) {
      const i64 plane = at / rows, od = at % rows / p.out[1], oh = at % p.out[1];
      const T* x = b.x.as<T>() + plane * size;
      const Taps td = pooling.taps(0, od), th = pooling.taps(1, oh);
      for (i64 ow = 0; ow < p.out[2]; ow++) {
        const Taps tw = pooling.taps(2, ow);
        T best = lowest<T>();
        i64 where = -1;
        for (i64 kd = td.begin; kd < td.end; kd++)
          for (i64 kh = th.begin; kh < th.end; kh++)
            for (i64 kw = tw.begin; kw < tw.end; kw++) {
              const i64 d = od * p.stride[0] - p.pad[0] + kd * p.dilation[0], h = oh * p.stride[1] - p.pad[1] + kh * p.dilation[1];
              const i64 w = ow * p.stride[2] - p.pad[2] + kw * p.dilation[2];
              const T v = x[(d * p.in[1] + h) * p.in[2] + w];
              if (where >= 0 && !(v > best) && v == v) continue;
              if (where >= 0 && best != best) continue;
              best = v;
              where = p.storage_order ? (w * p.in[1] + h) * p.in[0] + d : (d * p.in[1] + h) * p.in[2] + w;
            }
        b.y.as<T>()[at * p.out[2] + ow] = best;
        b.indices.as<i64>()[at * p.out[2] + ow] = where < 0 ? -1 : plane * size + where;
      }
    }
  });
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const PoolParams*>(call.params);
  auto& b = *reinterpret_cast<const PoolBufs*>(call.bufs);
  if (p.planes * p.out[0] * p.out[1] * p.out[2] == 0) return;
  const bool wide = b.x.dtype == F64;
  if (p.op == AVERAGE) return wide ? run_rows<double, AVERAGE>(call) : run_rows<float, AVERAGE>(call);
  if (p.op == LP) return wide ? run_rows<double, LP>(call) : run_rows<float, LP>(call);
  switch (b.x.dtype) {
    case F32: return b.indices ? run_indices<float>(call) : run_rows<float, MAX>(call);
    case F64: return b.indices ? run_indices<double>(call) : run_rows<double, MAX>(call);
    case I8: return b.indices ? run_indices<int8_t>(call) : run_rows<int8_t, MAX>(call);
    default: return b.indices ? run_indices<uint8_t>(call) : run_rows<uint8_t, MAX>(call);
  }
}

}  // namespace

KERNEL(pool, check, scratch, run)
