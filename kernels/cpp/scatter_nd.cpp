// y = x with rows of updates combined into the slices that index tuples name; duplicates in the order of the tuples.
#include "params.h"
#include "scatter.h"
#include "small.h"
#include "strided.h"

namespace {

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const ScatterNdParams*>(call.params);
  auto& b = *reinterpret_cast<const ScatterNdBufs*>(call.bufs);
  if (b.x.dtype != b.y.dtype || b.updates.dtype != b.x.dtype || !dtype_size(b.x.dtype)) return "dtypes differ or are packed";
  if (!can_combine(p.op, b.x.dtype)) return "reduction is not supported for the dtype";
  if (b.indices.dtype != I32 && b.indices.dtype != I64) return "indices are not int32 or int64";
  if (p.depth < 0 || p.depth > MAX_RANK) return "depth out of range";
  i64 shape[MAX_RANK + 1] = {p.inner};
  for (i64 d = 0; d < p.depth; d++) shape[d + 1] = p.xdims[d];
  const i64 tuples[] = {p.count, p.depth}, from[] = {p.count, p.inner};
  const i64 n = product(shape, p.depth + 1), n_indices = product(tuples, 2), n_updates = product(from, 2);
  if (n < 0 || n > b.x.count() || n > b.y.count()) return "x or y is too small";
  if (n_indices < 0 || n_indices > b.indices.count()) return "indices are too few";
  if (n_updates < 0 || n_updates > b.updates.count()) return "updates are too few";
  proof.operations = Size(n) + n_updates + n_indices;
  proof.writes(0, {0, n});
  return nullptr;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const ScatterNdParams*>(call.params);
  auto& b = *reinterpret_cast<const ScatterNdBufs*>(call.bufs);
  const i64 row = p.inner * dtype_size(b.x.dtype), bytes = product(p.xdims, p.depth) * row;
  if (row == 0 || bytes < 0) return;
  if (bytes == 0 && p.count) return call.fail("index out of range");
  if (bytes && b.y.data != b.x.data) __builtin_memcpy(b.y.data, b.x.data, size_t(bytes));
  for (i64 i = 0; i < p.count; i++) {
    const i64 place = place_of(b.indices, i * p.depth, p.depth, p.xdims);
    if (place < 0) return call.fail("index out of range");
    char* y = b.y.data + place * row;
    const char* u = b.updates.data + i * row;
    if (p.op == Scatter::NONE) copy_row(y, u, row);
    else combine(p.op, b.x.dtype, y, u, p.inner);
  }
}

}  // namespace

KERNEL(scatter_nd, check, no_scratch, run)
