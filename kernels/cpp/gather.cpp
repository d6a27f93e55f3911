// Rows of x picked by indices along one axis.
#include "params.h"
#include "strided.h"

namespace {

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const GatherParams*>(call.params);
  auto& b = *reinterpret_cast<const GatherBufs*>(call.bufs);
  if (b.x.dtype != b.y.dtype || !dtype_size(b.x.dtype)) return "dtypes differ or are packed";
  if (b.indices.dtype != I32 && b.indices.dtype != I64) return "indices are not int32 or int64";
  const i64 in[] = {p.outer, p.n, p.inner}, out[] = {p.outer, p.count, p.inner};
  const i64 have = product(in, 3), want = product(out, 3);
  if (have < 0 || have > b.x.count()) return "x is too small";
  if (want < 0 || want > b.y.count()) return "y is too small";
  if (p.count > b.indices.count()) return "indices are too few";
  proof.operations = want;
  proof.writes(0, {0, want});
  return nullptr;
}

// Each index is read once, and checked where it is used: the memory of an input may change meanwhile.
template <class T, class I> void gather(Call& call, const GatherParams& p, T* y, const T* x, const I* indices) {
  const i64 bytes = p.inner * i64(sizeof(T));
  parallel_for(call.pool, p.outer * p.count, bytes >= 1 << 15 ? 1 : (1 << 15) / (bytes + 1), [&](i64 b, i64 e, int) {
    i64 o = b / p.count, j = b % p.count;
    bool ok = true;
    for (; b < e; b++) {
      i64 i = indices[j];
      if (i < 0) i += p.n;
      if (uint64_t(i) >= uint64_t(p.n)) i = 0, ok = false;
      const T* from = x + (o * p.n + i) * p.inner;
      if (p.inner == 1) y[b] = *from;
      else copy_row(y + b * p.inner, from, p.inner);
      if (++j == p.count) j = 0, o++;
    }
    if (!ok) call.fail("index out of range");
  });
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const GatherParams*>(call.params);
  auto& b = *reinterpret_cast<const GatherBufs*>(call.bufs);
  if (p.outer == 0 || p.count == 0 || p.inner == 0) return;
  if (p.n == 0) return call.fail("index out of range");
  with_bits(dtype_size(b.x.dtype), [&](auto bits) {
    using T = decltype(bits);
    if (b.indices.dtype == I64) gather(call, p, b.y.as<T>(), b.x.as<T>(), b.indices.as<i64>());
    else gather(call, p, b.y.as<T>(), b.x.as<T>(), b.indices.as<int32_t>());
  });
}

}  // namespace

KERNEL(gather, check, no_scratch, run)
