// Padding and cropping. Per axis a table in scratch says where in x each coordinate of y lies: an offset, or OUTSIDE.
#include "params.h"
#include "scalar.h"
#include "small.h"
#include "strided.h"

namespace {

using enum Padding;
constexpr i64 OUTSIDE = INT64_MIN;

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const PadParams*>(call.params);
  auto& b = *reinterpret_cast<const PadBufs*>(call.bufs);
  if (!known(p.mode)) return "unknown mode";
  if (p.rank < 0 || p.rank > MAX_RANK) return "rank out of range";
  if (b.x.dtype != b.y.dtype || !dtype_size(b.x.dtype)) return "dtypes differ or are packed";
  if (b.value && (b.value.dtype != b.y.dtype || b.value.count() < 1)) return "value is not one element of y's dtype";
  if (!view_fits(p.rank, p.xshape, p.xstride, p.xoff, b.x.count())) return "x is smaller than its view";
  const i64 n = product(p.yshape, p.rank);
  if (n < 0 || n > b.y.count()) return "y is too small";
  for (i64 d = 0; d < p.rank; d++) {
    if (p.before[d] < -HUGE_COUNT || p.before[d] > HUGE_COUNT || p.xshape[d] > HUGE_COUNT || p.yshape[d] > HUGE_COUNT) return "padding out of range";
    const i64 low = p.before[d] < 0 ? -p.before[d] : 0;
    if (p.mode != CONSTANT && n > 0 && low >= p.xshape[d]) return "nothing to pad from";
  }
  proof.operations = n;
  for (i64 d = 0; d < p.rank && n > 0; d++) proof.operations += p.yshape[d];
  proof.writes(0, {0, n});
  return nullptr;
}

Size scratch(const Call& call, int) {
  const auto& p = *reinterpret_cast<const PadParams*>(call.params);
  Size n;
  if (product(p.yshape, p.rank) == 0) return 0;
  for (i64 d = 0; d < p.rank; d++) n += p.yshape[d];
  return n * 8;
}

// Where coordinate i of y comes from in x's cropped range [low, high), or -1.
i64 source(Padding mode, i64 i, i64 before, i64 low, i64 high) {
  const i64 n = high - low, at = i - before - low;
  if (at >= 0 && at < n) return low + at;
  switch (mode) {
    case EDGE: return at < 0 ? low : high - 1;
    case WRAP: return low + (at % n + n) % n;
    case REFLECT: {
      if (n == 1) return low;
      const i64 period = 2 * (n - 1), k = (at % period + period) % period;
      return low + (k < n ? k : period - k);
    }
    default: return -1;
  }
}

uint64_t fill_bits(const PadParams& p, const PadBufs& b) {
  uint64_t bits = 0;
  if (b.value) {
    __builtin_memcpy(&bits, b.value.data, size_t(dtype_size(b.value.dtype)));
    return bits;
  }
  return element_bits(b.y.dtype, p.value);
}

template <class T> void pad(Call& call, T fill) {
  const auto& p = *reinterpret_cast<const PadParams*>(call.params);
  auto& b = *reinterpret_cast<const PadBufs*>(call.bufs);
  const i64* table[MAX_RANK];
  i64* end = reinterpret_cast<i64*>(call.scratch);
  const bool nothing = product(p.xshape, p.rank) == 0;  // whose strides and offset may be any
  i64 low = 0, high = 0;
  for (i64 d = 0; d < p.rank; d++) {
    low = p.before[d] < 0 ? -p.before[d] : 0;
    high = p.yshape[d] - p.before[d] < p.xshape[d] ? p.yshape[d] - p.before[d] : p.xshape[d];
    if (p.mode != CONSTANT && high <= low) high = low + 1;
    table[d] = end;
    for (i64 i = 0; i < p.yshape[d]; i++) {
      const i64 at = source(p.mode, i, p.before[d], low, high);
      *end++ = at < 0 || nothing ? OUTSIDE : at * p.xstride[d];
    }
  }
  const i64 last = p.rank - 1, width = p.yshape[last], stride = p.xstride[last];
  const i64 begin = p.before[last] > 0 ? p.before[last] < width ? p.before[last] : width : 0;
  const i64 stop = high + p.before[last] < begin ? begin : high + p.before[last] < width ? high + p.before[last] : width;
  Nest rows;
  rows.rank = last + 1;
  for (i64 d = 0; d < p.rank; d++) rows.shape[d] = p.yshape[d], rows.xs[d] = rows.ys[d] = 0;
  parallel_for(call.pool, rows.outer(), 1 + (1 << 14) / (width + 1), [&](i64 at, i64 to, int) {
    Walk w(rows, last, at);
    for (; at < to; at++, w.next()) {
      T* y = b.y.as<T>() + at * width;
      i64 off = p.xoff;
      bool outside = nothing;
      for (i64 d = 0; d < last; d++) {
        const i64 t = table[d][w.at[d]];
        if (t == OUTSIDE) outside = true;
        else off += t;
      }
      if (outside) {
        for (i64 i = 0; i < width; i++) y[i] = fill;
        continue;
      }
      const T* x = b.x.as<T>() + off;
      auto border = [&](i64 i, i64 e) {
        for (; i < e; i++) y[i] = table[last][i] == OUTSIDE ? fill : x[table[last][i]];
      };
      border(0, begin);
      if (stride == 1 && begin < stop) copy_row(y + begin, x + table[last][begin], stop - begin);
      else border(begin, stop);
      border(stop, width);
    }
  });
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const PadParams*>(call.params);
  auto& b = *reinterpret_cast<const PadBufs*>(call.bufs);
  if (product(p.yshape, p.rank) == 0) return;
  const uint64_t fill = fill_bits(p, b);
  const i64 size = dtype_size(b.y.dtype);
  if (p.rank == 0) {
    __builtin_memcpy(b.y.data, b.x.data + p.xoff * size, size_t(size));
    return;
  }
  with_bits(size, [&](auto bits) { pad(call, decltype(bits)(fill)); });
}

}  // namespace

KERNEL(pad, check, scratch, run)
