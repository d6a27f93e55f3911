// Reductions over any set of axes of a strided view. Elements are widened to one of four compute types in blocks, and the
// blocks are reduced either along a row (the reduced axis is the contiguous one) or vertically (many outputs side by side).
#include "half.h"
#include "params.h"
#include "strided.h"

#include <limits>
#include <type_traits>

namespace {

using enum Reduction;

constexpr i64 BLOCK = 256;   // elements widened at a time; also the longest run of sums in one f32 lane
constexpr i64 COLUMNS = 64;  // outputs side by side in a vertical reduction

template <class C> constexpr int LANES = sizeof(C) == 4 ? 16 : 4;
template <class C> using Vec = C __attribute__((ext_vector_type(LANES<C>)));

template <class C> inline Vec<C> get(const C* x) {
  Vec<C> v;
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}

// The type that partial results of f32 blocks are combined in.
template <class C> using Total = std::conditional_t<std::is_same_v<C, float>, double, C>;

// V is a compute type or a vector of it. Wrapping sums of signed integers run as unsigned ones.
template <Reduction OP> struct Fold {
  template <class V> static V load(V v) {
    if constexpr (OP == SUMSQ) return v * v;
    else if constexpr (OP == SUMABS) return v < V(0) ? -v : v;
    else return v;
  }
  template <class V> static V combine(V a, V v) {
    if constexpr (OP == MAX) return ((v > a) | (v != v)) ? v : a;
    else if constexpr (OP == MIN) return ((v < a) | (v != v)) ? v : a;
    else if constexpr (OP == PROD) return a * v;
    else return a + v;
  }
  template <class C> static constexpr C none() {
    using L = std::numeric_limits<C>;
    if constexpr (OP == MAX) return L::has_infinity ? -L::infinity() : L::lowest();
    else if constexpr (OP == MIN) return L::has_infinity ? L::infinity() : L::max();
    else return C(OP == PROD);
  }
};

// Combines the lanes of a vector, halving it.
template <class F, class C, class V> inline C across(V v) {
  if constexpr (sizeof(V) == 2 * sizeof(C)) return F::combine(C(v[0]), C(v[1]));
  else return across<F, C>(F::combine(v.lo, v.hi));
}

template <class C, Reduction OP> C fold_row(const C* x, i64 n) {
  using F = Fold<OP>;
  constexpr int L = LANES<C>;
  // Partial results are combined without `load`: squares and absolute values add up.
  using Merge = Fold<OP == SUMSQ || OP == SUMABS ? SUM : OP>;
  C one = F::template none<C>();
  i64 i = 0;
  if (n >= L) {
    Vec<C> acc[2] = {F::load(get(x)), Vec<C>(one)};
    for (i = L; i + 2 * L <= n; i += 2 * L) acc[0] = F::combine(acc[0], F::load(get(x + i))), acc[1] = F::combine(acc[1], F::load(get(x + i + L)));
    one = across<Merge, C>(Merge::combine(acc[0], acc[1]));
  }
#pragma clang loop vectorize(disable) unroll(disable)
  for (; i < n; i++) one = F::combine(one, F::load(x[i]));
  return one;
}

template <class C, Reduction OP> void fold_columns(C* acc, const C* x, i64 n) {
  using F = Fold<OP>;
  i64 i = 0;
  for (; i + LANES<C> <= n; i += LANES<C>) {
    const Vec<C> v = F::combine(get(acc + i), F::load(get(x + i)));
    __builtin_memcpy(acc + i, &v, sizeof v);
  }
#pragma clang loop vectorize(disable) unroll(disable)
  for (; i < n; i++) acc[i] = F::combine(acc[i], F::load(x[i]));
}

template <class C, Reduction OP> Total<C> merge(Total<C> a, Total<C> b) {
  return Fold<OP == SUMSQ || OP == SUMABS ? SUM : OP>::combine(a, b);
}

// What a reduction does to elements of its compute type.
template <class C> struct Ops {
  C (*row)(const C* x, i64 n);
  void (*columns)(C* acc, const C* x, i64 n);
  Total<C> (*merge)(Total<C> a, Total<C> b);
  C none;
};

template <class C, Reduction OP> constexpr Ops<C> ops = {fold_row<C, OP>, fold_columns<C, OP>, merge<C, OP>, Fold<OP>::template none<C>()};

// Extremes of signed integers, whose bits are held without a sign.
template <Reduction OP> constexpr Ops<uint64_t> signed_ops = {
    [](const uint64_t* x, i64 n) { return uint64_t(fold_row<i64, OP>(reinterpret_cast<const i64*>(x), n)); },
    [](uint64_t* acc, const uint64_t* x, i64 n) { fold_columns<i64, OP>(reinterpret_cast<i64*>(acc), reinterpret_cast<const i64*>(x), n); },
    [](uint64_t a, uint64_t b) { return uint64_t(merge<i64, OP>(i64(a), i64(b))); }, uint64_t(Fold<OP>::template none<i64>())};

// Widens n elements, `stride` apart, into `block`.
template <class C> using Widen = void (*)(C* block, const char* x, i64 stride, i64 n);

template <class C, class T> void widen(C* block, const char* data, i64 stride, i64 n) {
  const T* x = reinterpret_cast<const T*>(data);
  for (i64 i = 0; i < n; i++) block[i] = C(x[i * stride]);
}
template <float convert(uint16_t)> void widen_half(float* block, const char* data, i64 stride, i64 n) {
  const uint16_t* x = reinterpret_cast<const uint16_t*>(data);
  for (i64 i = 0; i < n; i++) block[i] = convert(x[i * stride]);
}
template <class T> void widen_abs(uint64_t* block, const char* data, i64 stride, i64 n) {
  const T* x = reinterpret_cast<const T*>(data);
  for (i64 i = 0; i < n; i++) block[i] = x[i * stride] < 0 ? -uint64_t(x[i * stride]) : uint64_t(x[i * stride]);
}

struct View {
  const Nest& keep;
  const Nest& red;
  i64 reds;  // elements per output
  i64 size;  // bytes of an element
  const char* x;
};

template <class C> struct Plan {
  View view;
  Ops<C> ops;
  Widen<C> widen;
  bool direct;  // elements are of type C already

  const C* block(C* buffer, const char* from, i64 stride, i64 n) const {
    if (direct && stride == 1) return reinterpret_cast<const C*>(from);
    widen(buffer, from, stride, n);
    return buffer;
  }

  Total<C> row(const char* from) const {
    const Nest& red = view.red;
    const i64 last = red.rank - 1, n = red.shape[last], stride = red.xs[last];
    const i64 step = direct && stride == 1 ? LANES<C> * BLOCK : BLOCK;
    C buffer[BLOCK];
    Total<C> total = ops.none;
    Walk w(red, last, 0);
    for (i64 rows = view.reds / n; rows-- > 0; w.next())
      for (i64 i = 0; i < n; i += step) {
        const i64 len = n - i < step ? n - i : step;
        total = ops.merge(total, ops.row(block(buffer, from + (w.x + i * stride) * view.size, stride, len), len));
      }
    return total;
  }

  void columns(Total<C>* totals, const char* from, i64 stride, i64 n) const {
    C acc[COLUMNS], buffer[COLUMNS];
    for (i64 i = 0; i < n; i++) totals[i] = ops.none;
    Walk w(view.red, view.red.rank, 0);
    for (i64 left = view.reds; left > 0;) {
      for (i64 i = 0; i < n; i++) acc[i] = ops.none;
      i64 run = left < BLOCK ? left : BLOCK;
      for (left -= run; run-- > 0; w.next()) ops.columns(acc, block(buffer, from + w.x * view.size, stride, n), n);
      for (i64 i = 0; i < n; i++) totals[i] = ops.merge(totals[i], acc[i]);
    }
  }
};

struct Store {
  char* y;
  int32_t dtype;
  i64 mean_of;  // 0: not a mean

  template <class V> void operator()(i64 i, V v) const {
    if (mean_of) {
      if constexpr (std::is_floating_point_v<V>) v /= V(mean_of);
      else v = dtype == I64 || dtype == I32 || dtype == I8 ? V(i64(v) / mean_of) : V(uint64_t(v) / uint64_t(mean_of));
    }
    switch (dtype) {
      case F32: reinterpret_cast<float*>(y)[i] = float(v); break;
      case F64: reinterpret_cast<double*>(y)[i] = double(v); break;
      case F16: reinterpret_cast<uint16_t*>(y)[i] = float_to_half(double_to_float_odd(double(v))); break;
      case BF16: reinterpret_cast<uint16_t*>(y)[i] = float_to_bf16(double_to_float_odd(double(v))); break;
      case I32: case U32: reinterpret_cast<uint32_t*>(y)[i] = uint32_t(i64(v)); break;
      case I64: case U64: reinterpret_cast<uint64_t*>(y)[i] = uint64_t(v); break;
      default: y[i] = char(i64(v));
    }
  }
};

template <class C> void reduce(Pool* pool, const Plan<C>& plan, const Store& store) {
  const View& v = plan.view;
  const i64 last = v.keep.rank - 1, width = v.keep.shape[last], stride = v.keep.xs[last];
  const bool vertical = width >= 4 && stride_size(stride) < stride_size(v.red.xs[v.red.rank - 1]);
  const i64 across = vertical ? (width + COLUMNS - 1) / COLUMNS : 1;
  const i64 cost = v.reds * (vertical ? COLUMNS : 1), grain = cost > 1 << 14 ? 1 : (1 << 14) / (cost + 1);
  if (vertical) {
    parallel_for(pool, v.keep.outer() * across, grain, [&](i64 at, i64 end, int) {
      Total<C> totals[COLUMNS];
      for (; at < end; at++) {
        const i64 row = at / across, i = at % across * COLUMNS, n = width - i < COLUMNS ? width - i : COLUMNS;
        plan.columns(totals, v.x + (Walk(v.keep, last, row).x + i * stride) * v.size, stride, n);
        for (i64 k = 0; k < n; k++) store(row * width + i + k, totals[k]);
      }
    });
  } else {
    parallel_for(pool, v.keep.outer() * width, grain, [&](i64 at, i64 end, int) {
      Walk w(v.keep, v.keep.rank, at);
      for (; at < end; at++, w.next()) store(at, plan.row(v.x + w.x * v.size));
    });
  }
}

template <class C> const Ops<C>& find_ops(Reduction op) {
  if (op == MAX) return ops<C, MAX>;
  if (op == MIN) return ops<C, MIN>;
  if (op == PROD) return ops<C, PROD>;
  if (op == SUMSQ) return ops<C, SUMSQ>;
  if constexpr (std::is_floating_point_v<C>)
    if (op == SUMABS) return ops<C, SUMABS>;
  return ops<C, SUM>;
}

// What an empty set reduces to where the compute type is wider than the element.
i64 empty_extreme(int32_t dtype, bool max) {
  switch (dtype) {
    case I8: return max ? INT8_MIN : INT8_MAX;
    case I32: return max ? INT32_MIN : INT32_MAX;
    case I64: return max ? INT64_MIN : INT64_MAX;
    case BOOL: return !max;
    default: return max ? 0 : -1;
  }
}

bool is_integer(int32_t t) { return t == I8 || t == U8 || t == I32 || t == U32 || t == I64 || t == U64 || t == BOOL; }

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const ReduceParams*>(call.params);
  auto& b = *reinterpret_cast<const ReduceBufs*>(call.bufs);
  if (!known(p.op)) return "unknown op";
  if (p.rank_keep < 0 || p.rank_keep > MAX_RANK || p.rank_red < 0 || p.rank_red > MAX_RANK) return "rank out of range";
  if (b.x.dtype != b.y.dtype) return "dtypes differ";
  if (!is_integer(b.x.dtype) && b.x.dtype != F32 && b.x.dtype != F64 && b.x.dtype != F16 && b.x.dtype != BF16) return "dtype is not supported";
  if (b.x.dtype == BOOL && p.op != MAX && p.op != MIN) return "bool has max and min only";
  const i64 keep = product(p.keep_shape, p.rank_keep), red = product(p.red_shape, p.rank_red);
  if (keep < 0 || red < 0 || keep > b.y.count()) return "y is too small";
  i64 shape[2 * MAX_RANK], stride[2 * MAX_RANK];
  for (i64 d = 0; d < p.rank_keep; d++) shape[d] = p.keep_shape[d], stride[d] = p.keep_stride[d];
  for (i64 d = 0; d < p.rank_red; d++) shape[p.rank_keep + d] = p.red_shape[d], stride[p.rank_keep + d] = p.red_stride[d];
  if (!view_fits(p.rank_keep + p.rank_red, shape, stride, p.xoff, b.x.count())) return "x is smaller than its view";
  proof.operations = Size(keep) * (Size(red) + 1);
  proof.writes(0, {0, keep});
  return nullptr;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const ReduceParams*>(call.params);
  auto& b = *reinterpret_cast<const ReduceBufs*>(call.bufs);
  const i64 outputs = product(p.keep_shape, p.rank_keep), reds = product(p.red_shape, p.rank_red);
  const int32_t t = b.x.dtype;
  const Store store{b.y.data, t, p.op == MEAN ? reds : 0};
  if (outputs == 0) return;
  if (reds == 0) {
    for (i64 i = 0; i < outputs; i++) {
      if (p.op != MAX && p.op != MIN) is_integer(t) ? store(i, i64(p.op == PROD)) : store(i, p.op == MEAN ? __builtin_nan("") : double(p.op == PROD));
      else is_integer(t) ? store(i, empty_extreme(t, p.op == MAX)) : store(i, p.op == MAX ? -__builtin_inf() : __builtin_inf());
    }
    return;
  }
  const Nest keep = coalesce(p.rank_keep, p.keep_shape, p.keep_stride, p.keep_stride, false);
  const Nest red = coalesce(p.rank_red, p.red_shape, p.red_stride, p.red_stride, true);
  const i64 size = dtype_size(t);
  const View view{keep, red, reds, size, b.x.data + p.xoff * size};
  auto by = [&]<class C>(Widen<C> w, bool direct, const Ops<C>& ops) { reduce<C>(call.pool, {view, ops, w, direct}, store); };
  auto with = [&]<class C>(Widen<C> w, bool direct, Reduction op) { by(w, direct, find_ops<C>(op)); };
  auto whole = [&]<class T>(T) {
    const bool direct = sizeof(T) == 8;
    if constexpr (std::is_signed_v<T>) {
      if (p.op == MAX || p.op == MIN)
        return by(Widen<uint64_t>(widen<uint64_t, T>), direct, p.op == MAX ? signed_ops<MAX> : signed_ops<MIN>);
      if (p.op == SUMABS) return with(Widen<uint64_t>(widen_abs<T>), false, SUM);
    }
    with(Widen<uint64_t>(widen<uint64_t, T>), direct, p.op);
  };
  switch (t) {
    case F32: return with(Widen<float>(widen<float, float>), true, p.op);
    case F16: return with(Widen<float>(widen_half<half_to_float>), false, p.op);
    case BF16: return with(Widen<float>(widen_half<bf16_to_float>), false, p.op);
    case F64: return with(Widen<double>(widen<double, double>), true, p.op);
    case I8: return whole(int8_t());
    case I32: return whole(int32_t());
    case U32: return whole(uint32_t());
    case I64: return whole(i64());
    case U64: return whole(uint64_t());
    default: return whole(uint8_t());
  }
}

}  // namespace

KERNEL(reduce, check, no_scratch, run)
