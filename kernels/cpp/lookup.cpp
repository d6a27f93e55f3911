// The place of each element among ascending keys, `count` for what is none of them. NaN is the largest key and equal to itself.
#include "params.h"
#include "small.h"

namespace {

template <class T> bool less(T a, T b) { return a < b || (b != b && a == a); }

template <class T> void find(Call& call) {
  const auto& p = *reinterpret_cast<const LookupParams*>(call.params);
  auto& b = *reinterpret_cast<const LookupBufs*>(call.bufs);
  const T *x = b.x.as<T>(), *keys = b.keys.as<T>();
  i64* y = b.y.as<i64>();
  parallel_for(call.pool, p.n, 1 + (1 << 14) / (1 + depth_of(p.count)), [&](i64 begin, i64 end, int) {
    for (i64 i = begin; i < end; i++) {
      const T v = x[i];
      i64 low = 0, high = p.count;
      while (low < high) {
        const i64 middle = (low + high) / 2;
        if (less(keys[middle], v)) low = middle + 1;
        else high = middle;
      }
      const bool found = low < p.count && !less(keys[low], v) && !less(v, keys[low]);
      if (!found && p.demand) return call.fail("a value is none of those that the model knows");
      y[i] = found ? low : p.count;
    }
  });
}
using Find = void (*)(Call&);

Find find_of(int32_t dtype) {
  switch (dtype) {
    case F32: return find<float>;
    case F64: return find<double>;
    case I16: return find<int16_t>;
    case I32: return find<int32_t>;
    case I64: return find<i64>;
    default: return nullptr;
  }
}

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const LookupParams*>(call.params);
  auto& b = *reinterpret_cast<const LookupBufs*>(call.bufs);
  if (!find_of(b.x.dtype) || b.keys.dtype != b.x.dtype) return "dtype is not supported";
  if (b.y.dtype != I64) return "y is not int64";
  if (p.n < 0 || p.n > b.x.count() || p.n > b.y.count()) return "x or y is too small";
  if (p.count < 0 || p.count > b.keys.count()) return "keys are too few";
  proof.operations = Size(p.n) * depth_of(p.count);
  proof.writes(0, {0, p.n});
  return nullptr;
}

void run(Call& call) { find_of(reinterpret_cast<const LookupBufs*>(call.bufs)->x.dtype)(call); }

}  // namespace

KERNEL(lookup, check, no_scratch, run)
