// Interpolation along any axes. Per axis, tables in scratch hold which input coordinates (taps) make an output coordinate and
// with what weights; a row of y is a weighted sum of rows of x, resampled along the last axis. Axes that stay merge.
#include "params.h"
#include "scalar.h"
#include "strided.h"

#include <cmath>
#include <limits>
#include <type_traits>

namespace {

using enum Interpolation;
using enum Coordinates;
using enum Nearest;

struct Axis {
  i64 in, out, taps, stride;  // stride: of x, in elements
  double scale, roi_start, roi_end;
  bool stays, doubled;  // doubled: output i is input i / 2
  i64* index;      // [out, taps], clamped to the input
  void* weight;    // [out, taps], of the compute type
  char* outside;   // [out], of TF_CROP_AND_RESIZE
};

struct Axes {
  i64 n = 0;
  Axis at[MAX_RANK];
};

// The antialiasing filter is the interpolation filter stretched by 1 / scale, never shrunk.
double filter_scale(const ResizeParams& p, double scale) { return p.antialias && scale < 1 ? scale : 1; }

i64 count_taps(const ResizeParams& p, double scale) {
  if (p.mode == NEAREST) return 1;
  return 2 * i64(std::ceil((p.mode == CUBIC ? 2 : 1) / filter_scale(p, scale)));
}

// A scale of 0 is the quotient of the sizes, which the compiler did not know.
double scale_of(const ResizeParams& p, i64 d) { return p.scale[d] != 0 ? p.scale[d] : double(p.out[d]) / double(p.in[d]); }

PWX_SMALL Axes find_axes(const ResizeParams& p) {
  Axes r;
  i64 stride[MAX_RANK + 1];
  stride[p.rank] = 1;
  for (i64 d = p.rank; d-- > 0;) stride[d] = stride[d + 1] * p.in[d];
  for (i64 d = 0; d < p.rank; d++) {
    const double scale = scale_of(p, d);
    const bool whole = p.coord != TF_CROP_AND_RESIZE || (p.roi_start[d] == 0 && p.roi_end[d] == 1);
    const bool stays = p.in[d] == p.out[d] && std::fabs(scale - 1) < 1e-9 && whole && p.coord != TF_HALF_PIXEL_FOR_NN;
    if (stays && (p.in[d] == 1)) continue;
    if (stays && r.n > 0 && r.at[r.n - 1].stays) {
      Axis& a = r.at[r.n - 1];
      a.in *= p.in[d], a.out *= p.out[d], a.stride = stride[d + 1];
    } else {
      r.at[r.n++] = {p.in[d], p.out[d], stays ? 1 : count_taps(p, scale), stride[d + 1], scale, p.roi_start[d], p.roi_end[d], stays, false, nullptr, nullptr, nullptr};
    }
  }
  if (r.n == 0) r.at[r.n++] = {1, 1, 1, 1, 1, 0, 1, true, false, nullptr, nullptr, nullptr};
  return r;
}

PWX_SMALL double coordinate(const ResizeParams& p, const Axis& a, i64 i) {
  double length = a.scale * double(a.in);  // may be fractional; a scale that went through f32 is no reason to be
  if (std::fabs(length - std::rint(length)) < 5e-7 * length) length = std::rint(length);
  const double x = double(i), reach = double(a.in - 1);
  switch (p.coord) {
    case ASYMMETRIC: return x / a.scale;
    case PYTORCH_HALF_PIXEL: return a.out > 1 ? (x + 0.5) / a.scale - 0.5 : 0;
    case ALIGN_CORNERS: return length == 1 ? 0 : x * reach / (length - 1);
    case TF_CROP_AND_RESIZE:
      return a.out > 1 ? a.roi_start * reach + x * (a.roi_end - a.roi_start) * reach / double(a.out - 1) : 0.5 * (a.roi_start + a.roi_end) * reach;
    case HALF_PIXEL_SYMMETRIC: return double(a.in) / 2 * (1 - double(a.out) / length) + (x + 0.5) / a.scale - 0.5;
    case TF_HALF_PIXEL_FOR_NN: return (x + 0.5) / a.scale;
    default: return (x + 0.5) / a.scale - 0.5;
  }
}

i64 clamp_index(double x, i64 n) { return x >= double(n - 1) ? n - 1 : x > 0 ? i64(x) : 0; }

double nearest(Nearest rounding, double x) {
  const double half = std::rint(2 * x) / 2;  // a scale that went through f32 must not move a tie
  if (std::fabs(x - half) < 2e-7 * std::fmax(1, std::fabs(x))) x = half;
  switch (rounding) {
    case ROUND_PREFER_FLOOR: return std::ceil(x - 0.5);
    case ROUND_PREFER_CEIL: return std::floor(x + 0.5);
    case FLOOR: return std::floor(x);
    default: return std::ceil(x);
  }
}

double filter(const ResizeParams& p, double t) {
  t = std::fabs(t);
  if (p.mode == LINEAR) return t < 1 ? 1 - t : 0;
  const double a = p.cubic_a;
  return t <= 1 ? ((a + 2) * t - (a + 3)) * t * t + 1 : t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

template <class C> PWX_SMALL void fill_tables(const ResizeParams& p, Axis& a) {
  C* weight = static_cast<C*>(a.weight);
  const double squeeze = filter_scale(p, a.scale);
  a.doubled = a.out == 2 * a.in;
  for (i64 i = 0; i < a.out; i++) {
    const double x = coordinate(p, a, i);
    if (a.outside) a.outside[i] = !(x >= -0x1p-21 && x <= double(a.in - 1) + 0x1p-21);  // bounds that went through f32 are met
    if (p.mode == NEAREST) {
      a.index[i] = clamp_index(nearest(p.nearest, x), a.in);
      a.doubled &= a.index[i] == i / 2;
      continue;
    }
    const double first = std::ceil(x) - double(a.taps / 2);  // of the taps around x; a tap at x belongs to its left half
    double sum = 0;
    for (i64 k = 0; k < a.taps; k++) {
      const double at = first + double(k);
      double w = filter(p, (at - x) * squeeze);
      if (p.exclude_outside && !(at >= 0 && at < double(a.in))) w = 0;
      weight[i * a.taps + k] = C(w);
      a.index[i * a.taps + k] = clamp_index(at, a.in);
      sum += w;
    }
    if ((p.exclude_outside || p.antialias) && sum != 0)
      for (i64 k = 0; k < a.taps; k++) weight[i * a.taps + k] = C(double(weight[i * a.taps + k]) / sum);
  }
}

i64 aligned(i64 bytes) { return (bytes + 63) & ~i64(63); }

// Lays the tables out and returns their bytes; `base` may be null. `check` bounds what one axis takes, so that they add up.
PWX_SMALL i64 place_tables(const ResizeParams& p, Axes& axes, char* base) {
  i64 at = 0;
  for (i64 d = 0; d < axes.n; d++) {
    Axis& a = axes.at[d];
    if (a.stays) continue;
    const i64 entries = a.out * a.taps;
    if (base) a.index = reinterpret_cast<i64*>(base + at);
    at += aligned(entries * 8);
    if (base && p.mode != NEAREST) a.weight = base + at;
    if (p.mode != NEAREST) at += aligned(entries * 8);
    if (base && p.coord == TF_CROP_AND_RESIZE) a.outside = base + at;
    if (p.coord == TF_CROP_AND_RESIZE) at += aligned(a.out);
  }
  return at;
}

i64 row_bytes(const Axes& axes) { return aligned((axes.at[axes.n - 1].in + axes.at[axes.n - 1].out) * 8); }

template <class T> void pick_row(T* y, const T* x, const Axis& a) {
  if (a.doubled) {
    for (i64 i = 0; i < a.in; i++) y[2 * i] = y[2 * i + 1] = x[i];
  } else {
    for (i64 i = 0; i < a.out; i++) y[i] = x[a.index[i]];
  }
}

Nest output_rows(const Axes& axes) {
  Nest t;
  t.rank = axes.n;
  for (i64 d = 0; d < t.rank; d++) t.shape[d] = axes.at[d].out, t.xs[d] = t.ys[d] = 0;
  return t;
}

// What is done with rows of elements of one size.
struct Moves {
  void (*pick)(char* y, const char* x, const Axis& a);
  void (*fill)(char* y, i64 n, uint64_t bits, const char* where);  // where: which ones; null: all
};
template <class T> constexpr Moves moves_of = {
    [](char* y, const char* x, const Axis& a) { pick_row(reinterpret_cast<T*>(y), reinterpret_cast<const T*>(x), a); },
    [](char* y, i64 n, uint64_t bits, const char* where) {
      for (i64 i = 0; i < n; i++)
        if (!where || where[i]) reinterpret_cast<T*>(y)[i] = T(bits);
    }};

void resize_nearest(Call& call, const Axes& axes, i64 size, uint64_t fill, const Moves& moves) {
  auto& b = *reinterpret_cast<const ResizeBufs*>(call.bufs);
  const Nest rows = output_rows(axes);
  const Axis& row = axes.at[axes.n - 1];
  const i64 bytes = row.out * size;
  parallel_for(call.pool, rows.outer(), 1 + (1 << 14) / row.out, [&](i64 at, i64 end, int) {
    Walk w(rows, axes.n - 1, at);
    const char* before = nullptr;
    for (; at < end; at++, w.next()) {
      const char* x = b.x.data;
      char* y = b.y.data + at * bytes;
      bool outside = false;
      for (i64 d = 0; d + 1 < axes.n; d++) {
        const Axis& a = axes.at[d];
        const i64 i = w.at[d];
        x += (a.stays ? i : a.index[i]) * a.stride * size;
        if (a.outside && a.outside[i]) outside = true;
      }
      if (outside) {
        moves.fill(y, row.out, fill, nullptr);
        before = nullptr;
        continue;
      }
      if (x == before) {
        copy_row(y, static_cast<const char*>(y - bytes), bytes);
        continue;
      }
      before = x;
      if (row.stays) copy_row(y, x, bytes);
      else moves.pick(y, x, row);
      if (row.outside) moves.fill(y, row.out, fill, row.outside);
    }
  });
}

// sum (+)= w * x, and the rounding back.
template <class C> struct Rows {
  void (*add)(C* sum, const char* x, C w, i64 n, bool first);
  void (*store)(char* y, const C* v, i64 n);
};

template <class C, class T> inline C widen(T v) { return C(v); }
inline float widen_half(uint16_t v) { return half_to_float(v); }
inline float widen_bf16(uint16_t v) { return bf16_to_float(v); }

template <class T, class C> inline T narrow(C v) {
  if constexpr (std::is_floating_point_v<T>) return T(v);
  constexpr C low = C(std::numeric_limits<T>::min()), high = C(std::numeric_limits<T>::max());
  v = std::rint(v);
  return v >= high ? std::numeric_limits<T>::max() : v > low ? T(v) : std::numeric_limits<T>::min();
}

template <class C, class T, C widen(T), T narrow(C)> constexpr Rows<C> rows_of = {
    [](C* __restrict sum, const char* data, C w, i64 n, bool first) {
      const T* __restrict x = reinterpret_cast<const T*>(data);
      if (first)
        for (i64 i = 0; i < n; i++) sum[i] = w * widen(x[i]);
      else
        for (i64 i = 0; i < n; i++) sum[i] += w * widen(x[i]);
    },
    [](char* y, const C* v, i64 n) {
      for (i64 i = 0; i < n; i++) reinterpret_cast<T*>(y)[i] = narrow(v[i]);
    }};
template <class C, class T> constexpr Rows<C> plain_rows = rows_of<C, T, widen<C, T>, narrow<T, C>>;

template <class C, class Taps> void resample(C* __restrict y, const C* __restrict x, const Axis& a, Taps taps) {
  const C* weight = static_cast<const C*>(a.weight);
  const i64* index = a.index;
  for (i64 i = 0; i < a.out; i++, weight += taps, index += taps) {
    C sum = 0;
    for (i64 k = 0; k < taps; k++) sum += weight[k] * x[index[k]];
    y[i] = sum;
  }
}

template <class C> void blend(C* sum, const Rows<C>& rows, const Axes& axes, const Walk& w, const char* x, i64 size) {
  i64 tap[MAX_RANK] = {};
  const i64 n = axes.at[axes.n - 1].in;
  bool first = true;
  for (;;) {
    C weight = 1;
    i64 off = 0;
    for (i64 d = 0; d + 1 < axes.n; d++) {
      const Axis& a = axes.at[d];
      const i64 k = w.at[d] * a.taps + tap[d];
      off += (a.stays ? k : a.index[k]) * a.stride;
      if (!a.stays) weight *= static_cast<const C*>(a.weight)[k];
    }
    if (weight != 0) {
      rows.add(sum, x + off * size, weight, n, first);
      first = false;
    }
    i64 d = axes.n - 2;
    while (d >= 0 && ++tap[d] == axes.at[d].taps) tap[d--] = 0;
    if (d < 0) break;
  }
  if (first)
    for (i64 i = 0; i < n; i++) sum[i] = 0;
}

template <class C> void interpolate(Call& call, const ResizeParams& p, const Axes& axes, char* scratch, const Rows<C>& rows) {
  auto& b = *reinterpret_cast<const ResizeBufs*>(call.bufs);
  const i64 size = dtype_size(b.x.dtype), bytes = row_bytes(axes);
  const bool direct = b.y.dtype == (sizeof(C) == 4 ? F32 : F64);
  const Nest nest = output_rows(axes);
  const Axis& row = axes.at[axes.n - 1];
  parallel_for(call.pool, nest.outer(), 1 + (1 << 12) / row.out, [&](i64 at, i64 end, int thread) {
    Walk w(nest, axes.n - 1, at);
    C* sum = reinterpret_cast<C*>(scratch + thread * bytes);
    for (; at < end; at++, w.next()) {
      char* to = b.y.data + at * row.out * size;
      C* y = direct ? reinterpret_cast<C*>(to) : sum + row.in;
      bool outside = false;
      for (i64 d = 0; d + 1 < axes.n; d++) outside |= axes.at[d].outside && axes.at[d].outside[w.at[d]];
      if (outside) {
        for (i64 i = 0; i < row.out; i++) y[i] = C(p.extrapolation);
      } else if (row.stays) {
        blend(y, rows, axes, w, b.x.data, size);
      } else {
        blend(sum, rows, axes, w, b.x.data, size);
        if (row.taps == 2) resample(y, sum, row, std::integral_constant<i64, 2>());
        else if (row.taps == 4) resample(y, sum, row, std::integral_constant<i64, 4>());
        else resample(y, sum, row, row.taps);
        if (row.outside)
          for (i64 i = 0; i < row.out; i++)
            if (row.outside[i]) y[i] = C(p.extrapolation);
      }
      if (!direct) rows.store(to, y, row.out);
    }
  });
}

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const ResizeParams*>(call.params);
  auto& b = *reinterpret_cast<const ResizeBufs*>(call.bufs);
  if (p.rank < 0 || p.rank > MAX_RANK) return "rank out of range";
  if (!known(p.mode) || !known(p.coord) || !known(p.nearest)) return "unknown mode";
  if (b.x.dtype != b.y.dtype || !dtype_size(b.x.dtype)) return "dtypes differ or are packed";
  if (p.mode != NEAREST) switch (b.x.dtype) {
      case F32: case F64: case F16: case BF16: case I8: case U8: case I16: case U16: case I32: case U32: break;
      default: return "dtype is not supported";
    }
  const i64 have = product(p.in, p.rank), want = product(p.out, p.rank);
  if (have < 0 || have > b.x.count()) return "x is too small";
  if (want < 0 || want > b.y.count()) return "y is too small";
  if (want == 0) return nullptr;
  if (have == 0) return "x is empty";
  Size table;
  for (i64 d = 0; d < p.rank; d++) {
    const double scale = scale_of(p, d);
    if (!(scale > 1e-12 && scale < 1e12)) return "scale out of range";
    const i64 taps = count_taps(p, scale);
    i64 entries;
    if (taps > 16 * p.in[d] + 16 || mul_over(taps, p.out[d], &entries) || entries > HUGE_COUNT / 64) return "scale is too small";
    table += entries;
  }
  const Axes axes = find_axes(p);
  const Axis& row = axes.at[axes.n - 1];
  Size lines = 1, blended = 1;
  for (i64 d = 0; d + 1 < axes.n; d++) lines *= axes.at[d].out, blended *= axes.at[d].taps;
  proof.operations = table * 4 + lines * (p.mode == NEAREST ? Size(row.out) : blended * row.in + Size(row.out) * row.taps);
  proof.writes(0, {0, want});
  return nullptr;
}

PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto& p = *reinterpret_cast<const ResizeParams*>(call.params);
  if (product(p.out, p.rank) == 0) return 0;
  Axes axes = find_axes(p);
  return Size(place_tables(p, axes, nullptr)) + (p.mode == NEAREST ? Size(0) : Size(row_bytes(axes)) * threads);
}

PWX_SMALL void run(Call& call) {
  const auto& p = *reinterpret_cast<const ResizeParams*>(call.params);
  auto& b = *reinterpret_cast<const ResizeBufs*>(call.bufs);
  if (product(p.out, p.rank) == 0) return;
  const int32_t t = b.x.dtype;
  Axes axes = find_axes(p);
  char* rest = call.scratch + place_tables(p, axes, call.scratch);
  const bool wide = t == F64 || t == I32 || t == U32;
  for (i64 d = 0; d < axes.n; d++)
    if (!axes.at[d].stays) wide ? fill_tables<double>(p, axes.at[d]) : fill_tables<float>(p, axes.at[d]);
  if (p.mode == NEAREST) {
    const uint64_t fill = element_bits(t, p.extrapolation);
    return with_bits(dtype_size(t), [&](auto bits) { resize_nearest(call, axes, sizeof bits, fill, moves_of<decltype(bits)>); });
  }
  switch (t) {
    case F32: return interpolate<float>(call, p, axes, rest, plain_rows<float, float>);
    case F16: return interpolate<float>(call, p, axes, rest, rows_of<float, uint16_t, widen_half, float_to_half>);
    case BF16: return interpolate<float>(call, p, axes, rest, rows_of<float, uint16_t, widen_bf16, float_to_bf16>);
    case I8: return interpolate<float>(call, p, axes, rest, plain_rows<float, int8_t>);
    case U8: return interpolate<float>(call, p, axes, rest, plain_rows<float, uint8_t>);
    case I16: return interpolate<float>(call, p, axes, rest, plain_rows<float, int16_t>);
    case U16: return interpolate<float>(call, p, axes, rest, plain_rows<float, uint16_t>);
    case F64: return interpolate<double>(call, p, axes, rest, plain_rows<double, double>);
    case I32: return interpolate<double>(call, p, axes, rest, plain_rows<double, int32_t>);
    default: return interpolate<double>(call, p, axes, rest, plain_rows<double, uint32_t>);
  }
}

}  // namespace

KERNEL(resize, check, scratch, run)
