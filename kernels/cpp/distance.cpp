// Squared Euclidean distances between the rows of two matrices, from the differences themselves: nothing cancels.
#include "params.h"

#include <algorithm>

namespace {

constexpr i64 TILE = 32;

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const DistanceParams*>(call.params);
  auto& b = *reinterpret_cast<const DistanceBufs*>(call.bufs);
  if (b.a.dtype != F32 && b.a.dtype != F64) return "a is not float32 or float64";
  if (b.b.dtype != b.a.dtype || b.y.dtype != b.a.dtype) return "dtypes differ";
  const i64 a[] = {p.m, p.k}, c[] = {p.n, p.k}, out[] = {p.m, p.n};
  if (product(a, 2) < 0 || product(a, 2) > b.a.count()) return "a is too small";
  if (product(c, 2) < 0 || product(c, 2) > b.b.count()) return "b is too small";
  if (product(out, 2) < 0 || product(out, 2) > b.y.count()) return "y is too small";
  proof.operations = Size(p.m) * p.n * (Size(p.k) + 1);
  proof.writes(0, {0, product(out, 2)});
  return nullptr;
}

template <class T> T squared(const T* a, const T* b, i64 k) {
  T sums[8] = {};
  i64 i = 0;
  for (; i + 8 <= k; i += 8)
    for (int l = 0; l < 8; l++) {
      const T d = a[i + l] - b[i + l];
      sums[l] += d * d;
    }
  T sum = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  for (; i < k; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

template <class T> void distances(Call& call) {
  const auto& p = *reinterpret_cast<const DistanceParams*>(call.params);
  auto& b = *reinterpret_cast<const DistanceBufs*>(call.bufs);
  const T *x = b.a.as<T>(), *z = b.b.as<T>();
  T* y = b.y.as<T>();
  const i64 tiles = (p.m + TILE - 1) / TILE;
  parallel_for(call.pool, tiles, 1 + (1 << 14) / (1 + p.n * (p.k + 1)), [&](i64 begin, i64 end, int) {
    for (i64 tile = begin; tile < end; tile++)
      for (i64 j = 0; j < p.n; j++)
        for (i64 i = tile * TILE; i < std::min(p.m, (tile + 1) * TILE); i++) y[i * p.n + j] = squared(x + i * p.k, z + j * p.k, p.k);
  });
}

void run(Call& call) {
  if (reinterpret_cast<const DistanceBufs*>(call.bufs)->a.dtype == F32) distances<float>(call);
  else distances<double>(call);
}

}  // namespace

KERNEL(distance, check, no_scratch, run)
