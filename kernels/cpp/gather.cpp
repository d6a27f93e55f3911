// Rows of x picked by indices along one axis.
#include "params.h"
#include "strided.h"

namespace {

const char* check(const Call& call) {
  const auto& p = *reinterpret_cast<const GatherParams*>(call.params);
  auto& b = *reinterpret_cast<const GatherBufs*>(call.bufs);
  if (b.x.dtype != b.y.dtype || !dtype_size(b.x.dtype)) return "dtypes differ or are packed";
  if (b.indices.dtype != I32 && b.indices.dtype != I64) return "indices are not int32 or int64";
  const i64 in[] = {p.outer, p.n, p.inner}, out[] = {p.outer, p.count, p.inner};
  const i64 have = product(in, 3), want = product(out, 3);
  if (have < 0 || have > b.x.count()) return "x is too small";
  if (want < 0 || want > b.y.count()) return "y is too small";
  if (p.count > b.indices.count()) return "indices are too few";
  return nullptr;
}

template <class T, class I> void gather(Pool* pool, const GatherParams& p, T* y, const T* x, const I* indices) {
  const i64 bytes = p.inner * i64(sizeof(T));
  parallel_for(pool, p.outer * p.count, bytes >= 1 << 15 ? 1 : (1 << 15) / (bytes + 1), [&](i64 b, i64 e, int) {
    i64 o = b / p.count, j = b % p.count;
    for (; b < e; b++) {
      const i64 i = indices[j];
      const T* from = x + (o * p.n + (i < 0 ? i + p.n : i)) * p.inner;
      if (p.inner == 1) y[b] = *from;
      else copy_row(y + b * p.inner, from, p.inner);
      if (++j == p.count) j = 0, o++;
    }
  });
}

template <class I> bool in_range(const I* indices, i64 count, i64 n) {
  bool ok = true;
  for (i64 i = 0; i < count; i++) ok &= indices[i] >= -n && indices[i] < n;
  return ok;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const GatherParams*>(call.params);
  auto& b = *reinterpret_cast<const GatherBufs*>(call.bufs);
  if (p.outer == 0 || p.count == 0 || p.inner == 0) return;
  const bool wide = b.indices.dtype == I64;
  if (!(wide ? in_range(b.indices.as<i64>(), p.count, p.n) : in_range(b.indices.as<int32_t>(), p.count, p.n))) {
    call.error = "index out of range";
    return;
  }
  with_bits(dtype_size(b.x.dtype), [&](auto bits) {
    using T = decltype(bits);
    if (wide) gather(call.pool, p, b.y.as<T>(), b.x.as<T>(), b.indices.as<i64>());
    else gather(call.pool, p, b.y.as<T>(), b.x.as<T>(), b.indices.as<int32_t>());
  });
}

}  // namespace

KERNEL(gather, check, no_scratch, run)
