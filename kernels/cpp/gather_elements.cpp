// y[i...] = x[i..., with the index along `axis` read from indices].
#include "params.h"
#include "small.h"
#include "strided.h"

namespace {

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const GatherElementsParams*>(call.params);
  auto& b = *reinterpret_cast<const GatherElementsBufs*>(call.bufs);
  if (p.rank < 1 || p.rank > MAX_RANK || p.axis < 0 || p.axis >= p.rank) return "rank or axis out of range";
  if (b.x.dtype != b.y.dtype || !dtype_size(b.x.dtype)) return "dtypes differ or are packed";
  if (b.indices.dtype != I32 && b.indices.dtype != I64) return "indices are not int32 or int64";
  const i64 have = product(p.xshape, p.rank), want = product(p.ishape, p.rank);
  if (have < 0 || have > b.x.count()) return "x is too small";
  if (want < 0 || want > b.indices.count() || want > b.y.count()) return "y or indices are too small";
  proof.operations = want;
  proof.writes(0, {0, want});
  for (i64 d = 0; d < p.rank; d++)
    if (want > 0 && d != p.axis && p.ishape[d] > p.xshape[d]) return "indices are larger than x";
  return nullptr;
}

template <class T, class I> void gather(Call& call, const Nest& t, i64 n, i64 stride) {
  auto& b = *reinterpret_cast<const GatherElementsBufs*>(call.bufs);
  const i64 last = t.rank - 1, width = t.shape[last], xs = t.xs[last];
  parallel_for(call.pool, t.outer(), 1 + (1 << 14) / width, [&](i64 at, i64 end, int) {
    Walk w(t, last, at);
    for (; at < end; at++, w.next()) {
      const I* indices = b.indices.as<I>() + at * width;
      const T* x = b.x.as<T>() + w.x;
      T* y = b.y.as<T>() + at * width;
      bool out = false;
      for (i64 k = 0; k < width; k++) {
        const i64 i = indices[k] < 0 ? indices[k] + n : indices[k];
        const bool in = uint64_t(i) < uint64_t(n);
        out |= !in;
        y[k] = x[k * xs + (in ? i : 0) * stride];
      }
      if (out) call.fail("index out of range");
    }
  });
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const GatherElementsParams*>(call.params);
  auto& b = *reinterpret_cast<const GatherElementsBufs*>(call.bufs);
  if (product(p.ishape, p.rank) == 0) return;
  if (p.xshape[p.axis] == 0) return call.fail("index out of range");
  i64 xs[MAX_RANK], ys[MAX_RANK], stride = 0;
  for (i64 d = p.rank, x = 1, y = 1; d-- > 0; x *= p.xshape[d], y *= p.ishape[d]) {
    xs[d] = d == p.axis ? 0 : x, ys[d] = y;
    if (d == p.axis) stride = x;
  }
  const Nest t = coalesce(p.rank, p.ishape, xs, ys, false);
  with_bits(dtype_size(b.x.dtype), [&](auto bits) {
    using T = decltype(bits);
    if (b.indices.dtype == I64) gather<T, i64>(call, t, p.xshape[p.axis], stride);
    else gather<T, int32_t>(call, t, p.xshape[p.axis], stride);
  });
}

}  // namespace

KERNEL(gather_elements, check, no_scratch, run)
