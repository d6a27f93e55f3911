// Index of the largest or smallest element along the middle axis. A NaN wins over every number, the first over later ones.
#include "half.h"
#include "params.h"
#include "small.h"
#include "strided.h"

namespace {

constexpr i64 COLUMNS = 64;

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const ArgreduceParams*>(call.params);
  auto& b = *reinterpret_cast<const ArgreduceBufs*>(call.bufs);
  if (!known(p.op)) return "unknown op";
  switch (b.x.dtype) {
    case F32: case F64: case F16: case BF16: case I8: case U8: case I16: case U16: case I32: case U32: case I64: case U64: case BOOL: break;
    default: return "dtype is not supported";
  }
  if (b.y.dtype != I64) return "y is not int64";
  const i64 in[] = {p.outer, p.n, p.inner}, out[] = {p.outer, p.inner};
  const i64 have = product(in, 3), want = product(out, 2);
  if (have < 0 || have > b.x.count()) return "x is too small";
  if (want < 0 || want > b.y.count()) return "y is too small";
  if (want > 0 && p.n == 0) return "the axis is empty";
  proof.operations = have;
  proof.writes(0, {0, want});
  return nullptr;
}

template <class T> T plain(T v) { return v; }

// `widen` turns an element into a type that compares as the values do.
template <class T, auto widen> void arg(Call& call) {
  const auto& p = *reinterpret_cast<const ArgreduceParams*>(call.params);
  auto& b = *reinterpret_cast<const ArgreduceBufs*>(call.bufs);
  using C = decltype(widen(T()));
  const T* x = b.x.as<T>();
  i64* y = b.y.as<i64>();
  const i64 across = (p.inner + COLUMNS - 1) / COLUMNS;
  parallel_for(call.pool, p.outer * across, (1 << 14) / (p.n < 1 << 14 ? p.n : 1 << 14), [&](i64 at, i64 end, int) {
    C best[COLUMNS];
    for (; at < end; at++) {
      const i64 o = at / across, first = at % across * COLUMNS, width = p.inner - first < COLUMNS ? p.inner - first : COLUMNS;
      const T* from = x + o * p.n * p.inner + first;
      i64* to = y + o * p.inner + first;
      for (i64 j = 0; j < width; j++) best[j] = widen(from[j]), to[j] = 0;
      for (i64 i = 1; i < p.n; i++) {
        from += p.inner;
        for (i64 j = 0; j < width; j++) {
          const C v = widen(from[j]), m = best[j];
          const bool better = p.op == Extreme::LARGEST ? v > m : v < m, nan = v != v, beaten = m != m;
          if (beaten ? nan && p.select_last : better || nan || (p.select_last && v == m)) best[j] = v, to[j] = i;
        }
      }
    }
  });
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const ArgreduceParams*>(call.params);
  if (p.outer == 0 || p.inner == 0) return;
  switch (reinterpret_cast<const ArgreduceBufs*>(call.bufs)->x.dtype) {
    case F32: return arg<float, plain<float>>(call);
    case F64: return arg<double, plain<double>>(call);
    case F16: return arg<uint16_t, half_to_float>(call);
    case BF16: return arg<uint16_t, bf16_to_float>(call);
    case I8: return arg<int8_t, plain<int8_t>>(call);
    case I16: return arg<int16_t, plain<int16_t>>(call);
    case U16: return arg<uint16_t, plain<uint16_t>>(call);
    case I32: return arg<int32_t, plain<int32_t>>(call);
    case U32: return arg<uint32_t, plain<uint32_t>>(call);
    case I64: return arg<i64, plain<i64>>(call);
    case U64: return arg<uint64_t, plain<uint64_t>>(call);
    default: return arg<uint8_t, plain<uint8_t>>(call);
  }
}

}  // namespace

KERNEL(argreduce, check, no_scratch, run)
