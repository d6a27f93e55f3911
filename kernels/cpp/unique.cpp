// The different rows of x: where each is first met, which of them every row is, how often each occurs; how many they are.
// Rows compare element by element; NaN is the largest number and equal to itself, -0 equal to 0.
#include "params.h"
#include "small.h"
#include "sort.h"

namespace {

template <class T> int compare(T a, T b) { return a < b ? -1 : b < a ? 1 : a == b ? 0 : int(a != a) - int(b != b); }

template <class T> int compare_rows(const char* x, i64 width, i64 a, i64 b) {
  const T *p = reinterpret_cast<const T*>(x) + a * width, *q = reinterpret_cast<const T*>(x) + b * width;
  for (i64 i = 0; i < width; i++)
    if (int order = compare(p[i], q[i])) return order;
  return 0;
}
using Compare = int (*)(const char* x, i64 width, i64 a, i64 b);

Compare find_compare(int32_t dtype) {
  switch (dtype) {
    case F32: return compare_rows<float>;
    case F64: return compare_rows<double>;
    case I8: return compare_rows<int8_t>;
    case U8: case BOOL: return compare_rows<uint8_t>;
    case I16: return compare_rows<int16_t>;
    case U16: return compare_rows<uint16_t>;
    case I32: return compare_rows<int32_t>;
    case U32: return compare_rows<uint32_t>;
    case I64: return compare_rows<int64_t>;
    case U64: return compare_rows<uint64_t>;
    default: return nullptr;
  }
}

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const UniqueParams*>(call.params);
  auto& b = *reinterpret_cast<const UniqueBufs*>(call.bufs);
  if (!find_compare(b.x.dtype)) return "dtype is not supported";
  if (b.first.dtype != I64 || b.inverse.dtype != I64 || b.counts.dtype != I64 || b.n.dtype != I64) return "an output is not int64";
  const i64 shape[] = {p.rows, p.width}, have = product(shape, 2);
  if (have < 0 || have > b.x.count()) return "x is too small";
  if (p.rows < 0 || p.rows > b.first.count() || p.rows > b.inverse.count() || p.rows > b.counts.count() || b.n.count() < 1) return "y is too small";
  proof.operations = Size(p.rows) * (p.width + 1) * depth_of(p.rows);
  for (int output = 0; output < 3; output++) proof.writes(output, {0, p.rows});
  proof.writes(3, {0, 1});
  return nullptr;
}

Size scratch(const Call& call, int) { return Size(3 * 8) * reinterpret_cast<const UniqueParams*>(call.params)->rows; }

void run(Call& call) {
  const auto& p = *reinterpret_cast<const UniqueParams*>(call.params);
  auto& b = *reinterpret_cast<const UniqueBufs*>(call.bufs);
  const Compare compare = find_compare(b.x.dtype);
  const char* x = b.x.data;
  i64 *order = reinterpret_cast<i64*>(call.scratch), *rank = order + p.rows, *group = rank + p.rows;  // group: per row
  i64 *first = b.first.as<i64>(), *inverse = b.inverse.as<i64>(), *counts = b.counts.as<i64>();
  for (i64 i = 0; i < p.rows; i++) order[i] = i, first[i] = counts[i] = 0;
  sort_inside(order, order + p.rows, [&](i64 i, i64 j) {
    const int c = compare(x, p.width, i, j);
    return c ? c < 0 : i < j;
  });
  i64 n = 0;
  for (i64 k = 0; k < p.rows; k++) {
    if (k == 0 || compare(x, p.width, order[k - 1], order[k])) first[n++] = order[k];
    group[order[k]] = inverse[order[k]] = n - 1;
    counts[n - 1]++;
  }
  b.n.as<i64>()[0] = n;
  if (p.sorted || !n) return;
  // In the order in which they are met: by their first rows.
  for (i64 g = 0; g < n; g++) order[g] = g;
  sort_inside(order, order + n, [&](i64 i, i64 j) { return first[i] < first[j]; });
  for (i64 g = 0; g < n; g++) rank[order[g]] = g;
  for (i64 i = 0; i < p.rows; i++) group[i] = inverse[i] = rank[group[i]], counts[i] = 0;
  for (i64 i = 0; i < p.rows; i++)
    if (!counts[group[i]]++) first[group[i]] = i;
}

}  // namespace

KERNEL(unique, check, scratch, run)
