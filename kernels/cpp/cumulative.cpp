// Running sum or product along the middle axis.
#include "half.h"
#include "params.h"
#include "small.h"

#include <type_traits>

namespace {

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const CumulativeParams*>(call.params);
  auto& b = *reinterpret_cast<const CumulativeBufs*>(call.bufs);
  if (!known(p.op)) return "unknown op";
  if (b.x.dtype != b.y.dtype) return "dtypes differ";
  switch (b.x.dtype) {
    case F32: case F64: case F16: case BF16: case I8: case U8: case I16: case U16: case I32: case U32: case I64: case U64: break;
    default: return "dtype is not supported";
  }
  const i64 shape[] = {p.outer, p.n, p.inner}, n = product(shape, 3);
  if (n < 0 || n > b.x.count()) return "x is too small";
  if (n > b.y.count()) return "y is too small";
  proof.operations = n;
  proof.writes(0, {0, n});
  return nullptr;
}

// T: the element; A: the accumulator, unsigned for integers so that they wrap.
template <class T, class A, auto widen, auto narrow> void scan(Call& call) {
  const auto& p = *reinterpret_cast<const CumulativeParams*>(call.params);
  auto& b = *reinterpret_cast<const CumulativeBufs*>(call.bufs);
  const T* x = b.x.as<T>();
  T* y = b.y.as<T>();
  parallel_for(call.pool, p.outer * p.inner, 1 + (1 << 12) / (p.n + 1), [&](i64 at, i64 end, int) {
    for (; at < end; at++) {
      const i64 base = at / p.inner * p.n * p.inner + at % p.inner;
      A acc = A(p.op == Scan::PRODUCT);
      for (i64 i = 0; i < p.n; i++) {
        const i64 k = base + (p.reverse ? p.n - 1 - i : i) * p.inner;
        const A v = widen(x[k]), next = p.op == Scan::PRODUCT ? acc * v : acc + v;
        y[k] = narrow(p.exclusive ? acc : next);
        acc = next;
      }
    }
  });
}

template <class A, class B> B convert(A v) { return B(v); }
template <class T, class A> void plain(Call& call) { scan<T, A, convert<T, A>, convert<A, T>>(call); }

void run(Call& call) {
  const auto& p = *reinterpret_cast<const CumulativeParams*>(call.params);
  if (p.outer == 0 || p.n == 0 || p.inner == 0) return;
  switch (reinterpret_cast<const CumulativeBufs*>(call.bufs)->x.dtype) {
    case F32: return plain<float, double>(call);
    case F64: return plain<double, double>(call);
    case F16: return scan<uint16_t, float, half_to_float, float_to_half>(call);
    case BF16: return scan<uint16_t, float, bf16_to_float, float_to_bf16>(call);
    case I8: case U8: return plain<uint8_t, uint32_t>(call);
    case I16: case U16: return plain<uint16_t, uint32_t>(call);
    case I32: case U32: return plain<uint32_t, uint32_t>(call);
    default: return plain<uint64_t, uint64_t>(call);
  }
}

}  // namespace

KERNEL(cumulative, check, no_scratch, run)
