#include <cmath>
#include <type_traits>

#include "gemm.h"
#include "params.h"

namespace {

struct Args {
  const MatmulParams& p;
  const MatmulBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const MatmulParams*>(call.params)), b(*reinterpret_cast<const MatmulBufs*>(call.bufs)) {}
};

bool fits(const MatmulParams& p, const i64* batch_stride, i64 rows, i64 row_stride, i64 columns, i64 column_stride, i64 offset, i64 count) {
  i64 shape[8], stride[8];
  for (i64 d = 0; d < p.nb; d++) shape[d] = p.batch[d], stride[d] = batch_stride ? batch_stride[d] : 0;
  shape[p.nb] = rows, stride[p.nb] = row_stride;
  shape[p.nb + 1] = columns, stride[p.nb + 1] = column_stride;
  return view_fits(p.nb + 2, shape, stride, offset, count);
}

bool empty(const MatmulParams& p) {
  i64 n = p.m && p.n;
  for (i64 d = 0; d < p.nb; d++) n = n && p.batch[d];
  return !n;
}

// The rows of a product that is not empty: batch dimensions over which `b` does not change and a, y, residual continue row by row are
// rows, too. nb: the batch dimensions that remain.
struct Rows {
  i64 nb, m, a_rs, y_rs, res_rs;
  Rows(const MatmulParams& p, const MatmulBufs& b) : nb(p.nb), m(p.m), a_rs(p.a_rs), y_rs(p.y_rs), res_rs(b.residual ? p.res_rs : 0) {
    for (; nb > 0 && p.k > 1; nb--) {
      const i64 d = nb - 1;
      if (p.batch[d] == 1) continue;
      const bool rows = p.bbatch[d] == 0 && (m == 1 || (p.abatch[d] == m * a_rs && p.ybatch[d] == m * y_rs));
      const bool rest = (!b.bias || p.bias_ms == 0) && (!b.residual || m == 1 || p.resbatch[d] == m * res_rs);
      if (!rows || !rest) break;
      if (m == 1) a_rs = p.abatch[d], y_rs = p.ybatch[d], res_rs = b.residual ? p.resbatch[d] : 0;
      m *= p.batch[d];
    }
  }
};

// Sizes and strides of a product that is not empty. A stride that is never stepped over, whatever it may be, is set to what the fastest
// code wants.
gemm::Product product(const MatmulParams& p, const MatmulBufs& b, const Rows& rows) {
  gemm::Product q{};
  q.m = proven(rows.m), q.n = proven(p.n), q.k = proven(p.k);
  q.a_rs = q.m == 1 || q.k == 0 ? q.k : proven(rows.a_rs);
  q.a_cs = q.k <= 1 ? 1 : proven(p.a_cs);
  q.b_rs = q.k <= 1 ? q.n : proven(p.b_rs);
  q.b_cs = q.n == 1 ? (p.b_rs == 1 ? q.k : 1) : q.k == 0 ? 1 : proven(p.b_cs);
  q.y_rs = q.m == 1 ? q.n : proven(rows.y_rs);
  q.band = q.k ? proven(p.band) : 0;
  if (q.m > 1) q.e.res_rs = proven(rows.res_rs);
  if (b.bias && q.m > 1) q.e.bias_ms = proven(p.bias_ms);
  if (b.bias && q.n > 1) q.e.bias_ns = proven(p.bias_ns);
  return q;
}

gemm::Batch batch(const MatmulParams& p, const Rows& rows) {
  gemm::Batch r;
  for (i64 d = 0; d < rows.nb; d++)
    r.add(p.batch[d], p.k ? p.abatch[d] : 0, p.k ? p.bbatch[d] : 0, p.ybatch[d], p.resbatch[d], 0);
  return r;
}

// The elements of y, where they have no gaps.
Range written(const MatmulParams& p) {
  i64 shape[8], stride[8];
  for (i64 d = 0; d < p.nb; d++) shape[d] = p.batch[d], stride[d] = p.ybatch[d];
  shape[p.nb] = p.m, stride[p.nb] = p.y_rs;
  shape[p.nb + 1] = p.n, stride[p.nb + 1] = 1;
  return dense(p.nb + 2, shape, stride, p.yoff);
}

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  const int32_t t = b.y.dtype;
  if (t != F32 && t != F64 && t != I32 && t != I64 && t != U32 && t != U64) return "this element type is not supported";
  if (b.a.dtype != t || b.b.dtype != t || (b.bias && b.bias.dtype != t) || (b.residual && b.residual.dtype != t))
    return "the operands must have one element type";
  if (p.nb < 0 || p.nb > 6) return "at most 6 batch dimensions";
  if (!act_known(p.act) || (p.act && t != F32 && t != F64)) return "unknown activation";
  if (!fits(p, p.ybatch, p.m, p.y_rs, p.n, 1, p.yoff, b.y.count())) return "y does not fit its buffer";
  if (p.m < 0 || p.n < 0 || p.k < 0) return "a size is negative";
  if (!fits(p, p.abatch, p.m, p.a_rs, p.k, p.a_cs, p.aoff, b.a.count())) return "a does not fit its buffer";
  if (!fits(p, p.bbatch, p.k, p.b_rs, p.n, p.b_cs, p.boff, b.b.count())) return "b does not fit its buffer";
  if (p.band) {
    bool one = t == F32 && p.band > 0 && p.band <= p.k && p.boff == 0 && p.b_rs == p.n && p.b_cs == 1;
    for (i64 d = 0; d < p.nb; d++) one = one && p.bbatch[d] == 0;
    if (!one) return "packed weights are one float32 matrix";
  }
  if (b.bias && !fits(p, nullptr, p.m, p.bias_ms, p.n, p.bias_ns, 0, b.bias.count())) return "bias does not fit its buffer";
  if (b.residual && !fits(p, p.resbatch, p.m, p.res_rs, p.n, 1, p.res_off, b.residual.count())) return "residual does not fit its buffer";
  if (empty(p)) return nullptr;
  if (p.n > MAX_EXTENT || p.k > MAX_EXTENT || Rows(p, b).m > MAX_EXTENT) return "a size is out of range";
  Size operations = Size(p.m) * p.n * (Size(p.k) + 1);
  for (i64 d = 0; d < p.nb; d++) operations *= p.batch[d];
  proof.operations = operations;
  proof.writes(0, written(p));
  return nullptr;
}

PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto [p, b] = Args(call);
  if (b.y.dtype != F32 || empty(p)) return 0;
  return gemm::scratch_bytes(product(p, b, Rows(p, b)), threads);
}

double activate(Act act, double v, double a, double b) {
  auto clamp = [](double x, double lo, double hi) { return x < lo ? lo : x > hi ? hi : x; };
  switch (act) {
    case Act::RELU: return v < 0 ? 0 : v;
    case Act::CLIP: return clamp(v, a, b);
    case Act::SIGMOID: return 1 / (1 + std::exp(-v));
    case Act::TANH: return std::tanh(v);
    case Act::SILU: return v / (1 + std::exp(-v));
    case Act::GELU: return 0.5 * v * (1 + std::erf(v * 0.7071067811865476));
    case Act::GELU_TANH: return 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    case Act::LEAKY_RELU: return v < 0 ? a * v : v;
    case Act::HARDSIGMOID: return clamp(a * v + b, 0, 1);
    case Act::HARDSWISH: return v * clamp(v / 6 + 0.5, 0, 1);
    case Act::ELU: return v < 0 ? a * (std::exp(v) - 1) : v;
    default: return v;
  }
}

template <class T> T scale(double alpha) {
  if constexpr (std::is_floating_point_v<T>) return T(alpha);
  return alpha > -0x1p63 && alpha < 0x1p63 ? T(i64(alpha)) : T(0);
}

// y += s * x, whose elements are `step` apart.
template <class T> [[gnu::noinline]] void add_scaled(T* y, T s, const T* x, i64 step, i64 n) {
  if (step == 1)
    for (i64 j = 0; j < n; j++) y[j] += s * x[j];
  else
    for (i64 j = 0; j < n; j++) y[j] += s * x[j * step];
}

// Any arithmetic type; signed integers wrap, so they are computed as unsigned ones.
template <class T> void plain(Call& call) {
  const auto [p, b] = Args(call);
  const MatmulParams& q = p;
  const MatmulBufs& bufs = b;
  const bool after = comes_after(q.act);
  const Act act = act_of(q.act);
  const auto alpha = scale<T>(q.alpha);
  i64 rows = q.m;
  for (i64 d = 0; d < q.nb; d++) rows *= q.batch[d];
  parallel_for(call.pool, rows, i64((1 << 17) / (double(q.n) * double(q.k) + 1)) + 1, [&](i64 begin, i64 end, int) __attribute__((minsize)) {
    for (i64 r = begin; r < end; r++) {
      const i64 i = r % q.m;
      const T* a = bufs.a.as<T>() + (q.k ? q.aoff + i * q.a_rs : 0);
      const T* x = bufs.b.as<T>() + (q.k ? q.boff : 0);
      T* y = bufs.y.as<T>() + q.yoff + i * q.y_rs;
      const T* res = bufs.residual ? bufs.residual.as<T>() + q.res_off + i * q.res_rs : nullptr;
      i64 rest = r / q.m;
      for (i64 d = q.nb; d-- > 0; rest /= q.batch[d]) {
        const i64 c = rest % q.batch[d];
        if (q.k) a += c * q.abatch[d], x += c * q.bbatch[d];
        y += c * q.ybatch[d];
        if (res) res += c * q.resbatch[d];
      }
      for (i64 j = 0; j < q.n; j++) y[j] = 0;
      for (i64 k = 0; k < q.k; k++) add_scaled(y, a[k * q.a_cs], x + k * q.b_rs, q.b_cs, q.n);
      for (i64 j = 0; j < q.n; j++) {
        T v = y[j];
        if (q.alpha != 1) v *= alpha;
        if (bufs.bias) v += bufs.bias.as<T>()[i * q.bias_ms + j * q.bias_ns];
        if (res && after) v += res[j];
        if constexpr (std::is_floating_point_v<T>) v = T(activate(act, double(v), q.act_a, q.act_b));
        if (res && !after) v += res[j];
        y[j] = v;
      }
    }
  });
}

PWX_SMALL void run(Call& call) {
  const auto [p, b] = Args(call);
  if (empty(p)) return;
  switch (b.y.dtype) {
    case F64: return plain<double>(call);
    case I32: case U32: return plain<uint32_t>(call);
    case I64: case U64: return plain<uint64_t>(call);
    default: break;
  }
  const Rows rows(p, b);
  gemm::Product q = product(p, b, rows);
  q.e.set_act(p.act, p.act_a, p.act_b);
  q.e.alpha = float(p.alpha);
  q.a = b.a.as<float>() + (p.k ? p.aoff : 0);
  q.b = b.b.as<float>() + (p.k ? p.boff : 0);
  q.y = b.y.as<float>() + p.yoff;
  if (b.bias) q.e.bias = b.bias.as<float>();
  if (b.residual) q.e.res = b.residual.as<float>() + p.res_off;
  const gemm::Batch all = batch(p, rows);
  if (q.band && q.m == 1 && all.count == 1) return gemm::run_row(call, q);
  gemm::run(call, q, all);
}

}  // namespace

KERNEL(matmul, check, scratch, run)
