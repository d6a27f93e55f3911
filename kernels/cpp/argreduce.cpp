// Index of the largest or smallest element along the middle axis. A NaN wins over every number, the first over later ones.
#include "half.h"
#include "params.h"
#include "simd.h"
#include "strided.h"

namespace {

constexpr isize COLUMNS = 64;

PWX_SMALL const char* check(const Call& call, Proof& proof) {
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
template <class T, auto widen> PWX_SMALL void arg(Call& call) {
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

// float32, several numbers at a time.
struct Floats {
  bool largest, last;  // which of equal ones

  bool better(float v, float best) const {
    if (best != best) return last && v != v;
    return v != v || (largest ? v > best : v < best) || (last && v == best);
  }
  VI better(VF v, VF best) const {
    const VI nan = v != v, beaten = best != best;
    VI found = nan | (largest ? v > best : v < best);
    if (last) found |= v == best;
    return (found & ~beaten) | (last ? nan & beaten : splat_i(0));
  }

  // Of numbers side by side: a block is looked through where something in it may be better than what is before it.
  i64 row(const float* x, isize n) const {
    constexpr isize BLOCK = 8 * W;
    isize found = 0;
    float best = x[0];
    for (isize at = 0; at < n; at += BLOCK) {
      const isize end = n - at < BLOCK ? n : at + BLOCK;
      if (end - at == BLOCK) {
        VI some = better(load(x + at), splat(best));
        for (isize i = W; i < BLOCK; i += W) some |= better(load(x + at + i), splat(best));
        if (!any_lane(some)) continue;
      }
      for (isize i = at; i < end; i++)
        if (better(x[i], best)) best = x[i], found = i;
    }
    return found;
  }

  // Of the columns of a matrix, COLUMNS of them at most.
  void columns(const float* x, isize n, isize inner, isize width, i64* y) const {
    float best[COLUMNS];
    int32_t found[COLUMNS] = {};
    __builtin_memcpy(best, x, size_t(width) * 4);
    for (isize i = 1; i < n; i++) {
      x += inner;
      isize j = 0;
      for (; j + W <= width; j += W) {
        const VF v = load(x + j), before = load(best + j);
        const VI now = better(v, before);
        store(best + j, select(now, v, before));
        store_i(found + j, (now & int32_t(i)) | (~now & load_i(found + j)));
      }
      for (; j < width; j++)
        if (better(x[j], best[j])) best[j] = x[j], found[j] = int32_t(i);
    }
    for (isize j = 0; j < width; j++) y[j] = found[j];
  }
};

void floats(Call& call) {
  const auto& p = *reinterpret_cast<const ArgreduceParams*>(call.params);
  auto& b = *reinterpret_cast<const ArgreduceBufs*>(call.bufs);
  const Floats of{p.op == Extreme::LARGEST, p.select_last != 0};
  const isize n = proven(p.n), inner = proven(p.inner), across = (inner + COLUMNS - 1) / COLUMNS;
  parallel_for(call.pool, p.outer * across, (1 << 14) / (n < 1 << 14 ? n : 1 << 14), [&](i64 begin, i64 end, int) {
    for (isize at = proven(begin); at < proven(end); at++) {
      const isize o = at / across, first = at % across * COLUMNS, width = inner - first < COLUMNS ? inner - first : COLUMNS;
      const float* x = b.x.as<float>() + o * n * inner + first;
      i64* y = b.y.as<i64>() + o * inner + first;
      if (inner == 1) *y = of.row(x, n);
      else of.columns(x, n, inner, width, y);
    }
  });
}

PWX_SMALL void run(Call& call) {
  const auto& p = *reinterpret_cast<const ArgreduceParams*>(call.params);
  if (p.outer == 0 || p.inner == 0) return;
  switch (reinterpret_cast<const ArgreduceBufs*>(call.bufs)->x.dtype) {
    case F32: return p.n <= INT32_MAX ? floats(call) : arg<float, plain<float>>(call);
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
