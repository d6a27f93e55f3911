// y = x with updates combined into the places that indices name along one axis; duplicates in the order of the indices.
#include "scatter.h"

#include "half.h"
#include "params.h"
#include "small.h"
#include "strided.h"

#include <type_traits>

namespace {

template <class A> A apply(Scatter op, A a, A u) {
  switch (op) {
    case Scatter::ADD: return A(a + u);
    case Scatter::MUL: return A(a * u);
    case Scatter::MAX: return u > a || u != u ? u : a;
    case Scatter::MIN: return u < a || u != u ? u : a;
    default: return u;
  }
}

template <class T> T keep(T v) { return v; }

// T: the element, `widen` and `narrow` lead to the type that computes and back.
template <class T, auto widen, auto narrow> void combine_row(Scatter op, char* to, const char* from, i64 n) {
  T* y = reinterpret_cast<T*>(to);
  const T* u = reinterpret_cast<const T*>(from);
  for (i64 i = 0; i < n; i++) y[i] = narrow(apply(op, widen(y[i]), widen(u[i])));
}

// Sums and products of signed integers wrap.
template <class T> void combine_integers(Scatter op, char* y, const char* u, i64 n) {
  using U = std::make_unsigned_t<T>;
  if (op == Scatter::ADD || op == Scatter::MUL) {
    using Wide = std::conditional_t<sizeof(T) < 4, uint32_t, U>;
    combine_row<U, [](U v) { return Wide(v); }, [](Wide v) { return U(v); }>(op, y, u, n);
  } else {
    combine_row<T, keep<T>, keep<T>>(op, y, u, n);
  }
}

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const ScatterElementsParams*>(call.params);
  auto& b = *reinterpret_cast<const ScatterElementsBufs*>(call.bufs);
  if (p.rank < 1 || p.rank > MAX_RANK || p.axis < 0 || p.axis >= p.rank) return "rank or axis out of range";
  if (b.x.dtype != b.y.dtype || b.updates.dtype != b.x.dtype || !dtype_size(b.x.dtype)) return "dtypes differ or are packed";
  if (!can_combine(p.op, b.x.dtype)) return "reduction is not supported for the dtype";
  if (b.indices.dtype != I32 && b.indices.dtype != I64) return "indices are not int32 or int64";
  const i64 n = product(p.xshape, p.rank), m = product(p.ishape, p.rank);
  if (n < 0 || n > b.x.count() || n > b.y.count()) return "x or y is too small";
  if (m < 0 || m > b.indices.count() || m > b.updates.count()) return "indices or updates are too few";
  proof.operations = Size(n) + m;
  proof.writes(0, {0, n});
  for (i64 d = 0; d < p.rank; d++)
    if (m > 0 && d != p.axis && p.ishape[d] > p.xshape[d]) return "indices are larger than x";
  return nullptr;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const ScatterElementsParams*>(call.params);
  auto& b = *reinterpret_cast<const ScatterElementsBufs*>(call.bufs);
  const i64 size = dtype_size(b.x.dtype), dim = p.xshape[p.axis];
  const i64 bytes = product(p.xshape, p.rank) * size;
  if (bytes && b.y.data != b.x.data) __builtin_memcpy(b.y.data, b.x.data, size_t(bytes));
  if (product(p.ishape, p.rank) == 0) return;
  if (dim == 0) return call.fail("index out of range");
  i64 xs[MAX_RANK], ys[MAX_RANK], stride = 0;
  for (i64 d = p.rank, x = 1, y = 1; d-- > 0; x *= p.xshape[d], y *= p.ishape[d]) {
    xs[d] = d == p.axis ? 0 : x, ys[d] = y;
    if (d == p.axis) stride = x;
  }
  const Nest t = coalesce(p.rank, p.ishape, xs, ys, false);
  const i64 last = t.rank - 1, width = t.shape[last];
  Walk w(t, last, 0);
  for (i64 row = 0, rows = t.outer(); row < rows; row++, w.next())
    for (i64 k = row * width, e = k + width, at = w.x; k < e; k++, at += t.xs[last]) {
      i64 i = index_at(b.indices, k);
      if (i < 0) i += dim;
      if (i < 0 || i >= dim) return call.fail("index out of range");
      char* y = b.y.data + (at + i * stride) * size;
      const char* u = b.updates.data + k * size;
      if (p.op != Scatter::NONE) combine(p.op, b.x.dtype, y, u, 1);
      else with_bits(size, [&](auto bits) { __builtin_memcpy(y, u, sizeof bits); });
    }
}

}  // namespace

bool can_combine(Scatter op, int32_t dtype) {
  if (!known(op)) return false;
  if (op == Scatter::NONE) return dtype_size(dtype) != 0;
  switch (dtype) {
    case F32: case F64: case F16: case BF16: case BOOL:
    case I8: case U8: case I16: case U16: case I32: case U32: case I64: case U64: return true;
    default: return false;
  }
}

void combine(Scatter op, int32_t dtype, char* y, const char* u, i64 n) {
  switch (dtype) {
    case F32: return combine_row<float, keep<float>, keep<float>>(op, y, u, n);
    case F64: return combine_row<double, keep<double>, keep<double>>(op, y, u, n);
    case F16: return combine_row<uint16_t, half_to_float, float_to_half>(op, y, u, n);
    case BF16: return combine_row<uint16_t, bf16_to_float, float_to_bf16>(op, y, u, n);
    case BOOL: return combine_row<uint8_t, keep<uint8_t>, [](uint8_t v) { return uint8_t(v != 0); }>(op, y, u, n);
    case I8: return combine_integers<int8_t>(op, y, u, n);
    case U8: return combine_integers<uint8_t>(op, y, u, n);
    case I16: return combine_integers<int16_t>(op, y, u, n);
    case U16: return combine_integers<uint16_t>(op, y, u, n);
    case I32: return combine_integers<int32_t>(op, y, u, n);
    case U32: return combine_integers<uint32_t>(op, y, u, n);
    case I64: return combine_integers<int64_t>(op, y, u, n);
    case U64: return combine_integers<uint64_t>(op, y, u, n);
  }
}

KERNEL(scatter_elements, check, no_scratch, run)
