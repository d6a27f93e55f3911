// What scattering kernels share: index tuples and the ways to combine an update with what is there.
#pragma once
#include "enums.h"
#include "kernel.h"

// True when `combine` knows the pair.
bool can_combine(Scatter op, int32_t dtype);

// y[i] = op(y[i], update[i]) for n elements. Defined in scatter_elements.cpp.
void combine(Scatter op, int32_t dtype, char* y, const char* update, i64 n);

// Element k of an int32 or int64 buffer.
inline i64 index_at(const Buf& b, i64 k) { return b.dtype == I64 ? b.as<i64>()[k] : b.as<int32_t>()[k]; }

// The row-major place of an index tuple in dims, -1 when one index is out of range; negative ones count from the end.
inline i64 place_of(const Buf& indices, i64 first, i64 depth, const i64* dims) {
  i64 place = 0;
  for (i64 d = 0; d < depth; d++) {
    i64 i = index_at(indices, first + d);
    if (i < 0) i += dims[d];
    if (i < 0 || i >= dims[d]) return -1;
    place = place * dims[d] + i;
  }
  return place;
}
