// Slices of x picked by index tuples, within each batch.
#include "params.h"
#include "scatter.h"
#include "small.h"
#include "strided.h"

namespace {

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const GatherNdParams*>(call.params);
  auto& b = *reinterpret_cast<const GatherNdBufs*>(call.bufs);
  if (b.x.dtype != b.y.dtype || !dtype_size(b.x.dtype)) return "dtypes differ or are packed";
  if (b.indices.dtype != I32 && b.indices.dtype != I64) return "indices are not int32 or int64";
  if (p.depth < 0 || p.depth > MAX_RANK) return "depth out of range";
  i64 shape[MAX_RANK + 2] = {p.batch, p.inner};
  for (i64 d = 0; d < p.depth; d++) shape[d + 2] = p.xdims[d];
  const i64 tuples[] = {p.batch, p.count, p.depth}, out[] = {p.batch, p.count, p.inner};
  const i64 have = product(shape, p.depth + 2), n_indices = product(tuples, 3), want = product(out, 3);
  if (have < 0 || have > b.x.count()) return "x is too small";
  if (n_indices < 0 || n_indices > b.indices.count()) return "indices are too few";
  if (want < 0 || want > b.y.count()) return "y is too small";
  if (want > 0 && product(p.xdims, p.depth) < 0) return "x is too large";
  proof.operations = Size(want) + n_indices;
  proof.writes(0, {0, want});
  return nullptr;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const GatherNdParams*>(call.params);
  auto& b = *reinterpret_cast<const GatherNdBufs*>(call.bufs);
  if (p.batch == 0 || p.count == 0 || p.inner == 0) return;
  if (product(p.xdims, p.depth) == 0) return call.fail("index out of range");
  const i64 size = dtype_size(b.x.dtype), row = p.inner * size, per_batch = product(p.xdims, p.depth);
  parallel_for(call.pool, p.batch * p.count, 1 + (1 << 14) / row, [&](i64 at, i64 end, int) {
    for (; at < end; at++) {
      const i64 place = place_of(b.indices, at * p.depth, p.depth, p.xdims);
      if (place >= 0) copy_row(b.y.data + at * row, b.x.data + (at / p.count * per_batch + place) * row, row);
      else call.fail("index out of range");
    }
  });
}

}  // namespace

KERNEL(gather_nd, check, no_scratch, run)
