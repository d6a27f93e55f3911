// Softmax and log-softmax over the middle axis of [outer, n, inner].
#include "math64.h"
#include "params.h"
#include "powers.h"

namespace {
PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const SoftmaxParams*>(call.params);
  const auto& b = *reinterpret_cast<const SoftmaxBufs*>(call.bufs);
  if ((b.x.dtype != F32 && b.x.dtype != F64) || b.y.dtype != b.x.dtype) return "only float32 and float64";
  const i64 sizes[] = {p.outer, p.n, p.inner};
  i64 count = product(sizes, 3);
  if (count < 0 || count > b.x.count() || count > b.y.count()) return "buffer too small";
  proof.operations = Size(count) * 2;
  proof.writes(0, {0, count});
  return nullptr;
}

// Vectors that hide each other's latencies.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int SIDE = 4;
#else
constexpr int SIDE = 2;
#endif

void row(const float* x, float* y, i64 n, bool log) {
  constexpr int LANES = 4;
  VF m[LANES];
  for (int u = 0; u < LANES; u++) m[u] = splat(-__builtin_inff());
  i64 i = 0;
  for (; i + LANES * W <= n; i += LANES * W)
    for (int u = 0; u < LANES; u++) m[u] = vmax(m[u], load(x + i + u * W));
  for (int u = 1; u < LANES; u++) m[0] = vmax(m[0], m[u]);
  for (; i + W <= n; i += W) m[0] = vmax(m[0], load(x + i));
  float top = -__builtin_inff();
  for (int u = 0; u < W; u++) top = m[0][u] > top ? m[0][u] : top;
  for (; i < n; i++) top = x[i] > top ? x[i] : top;

  const double total = sum_of_powers<SIDE>(x, y, n, top, !log);
  if (log) {
    float shift = float(math64::log(total));
    for (i = 0; i + W <= n; i += W) store(y + i, load(x + i) - top - shift);
    if (i < n) store_part(y + i, load_part(x + i, n - i) - top - shift, n - i);
  } else {
    float scale = float(1 / total);
    for (i = 0; i + W <= n; i += W) store(y + i, load(y + i) * scale);
    for (; i < n; i++) y[i] *= scale;
  }
}

// W neighbouring columns (the first `part` of them) that step by inner.
void columns(const float* x, float* y, i64 n, i64 inner, i64 part, bool log) {
  VF top = splat(-__builtin_inff()), total = splat(0), lost = splat(0);
  for (i64 i = 0; i < n; i++) top = vmax(top, load_part(x + i * inner, part));
  for (i64 i = 0; i < n;) {
    const i64 end = n - i < TERMS ? n : i + TERMS;
    VF some = splat(0);
    for (; i < end; i += SIDE) {
      VF e[SIDE];
      const i64 k = end - i < SIDE ? end - i : SIDE;
      for (i64 u = 0; u < SIDE; u++) e[u] = top - load_part(x + (i + (u < k ? u : 0)) * inner, part);
      vfalling_each(e);
      for (i64 u = 0; u < k; u++) {
        if (!log) store_part(y + (i + u) * inner, e[u], part);
        some += e[u];
      }
    }
    // Kahan, Further remarks on reducing truncation errors, 1965.
    const VF added = some - lost, sum = total + added;
    lost = (sum - total) - added, total = sum;
  }
  VF scale = log ? vlog(total) : 1.0f / total;
  for (i64 i = 0; i < n; i++) {
    VF v = log ? load_part(x + i * inner, part) - top - scale : load_part(y + i * inner, part) * scale;
    store_part(y + i * inner, v, part);
  }
}

void line64(const double* x, double* y, i64 n, i64 step, bool log) {
  double top = -__builtin_inf(), total = 0;
  for (i64 i = 0; i < n; i++) top = x[i * step] > top ? x[i * step] : top;
  for (i64 i = 0; i < n; i++) total += __builtin_exp(x[i * step] - top);
  double shift = math64::log(total);
  for (i64 i = 0; i < n; i++) y[i * step] = log ? x[i * step] - top - shift : __builtin_exp(x[i * step] - top) / total;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const SoftmaxParams*>(call.params);
  const auto& b = *reinterpret_cast<const SoftmaxBufs*>(call.bufs);
  if (p.outer == 0 || p.n == 0 || p.inner == 0) return;
  bool log = p.log != 0;
  i64 pieces = b.x.dtype == F64 ? p.inner : p.inner == 1 ? 1 : (p.inner + W - 1) / W;
  i64 work = p.n * (p.inner == 1 ? 1 : W);
  parallel_for(call.pool, p.outer * pieces, (8192 + work - 1) / work, [&](i64 begin, i64 end, int) {
    for (i64 t = begin; t < end; t++) {
      i64 o = t / pieces, c = t % pieces, at = o * p.n * p.inner;
      if (b.x.dtype == F64) line64(b.x.as<double>() + at + c, b.y.as<double>() + at + c, p.n, p.inner, log);
      else if (p.inner == 1) row(b.x.as<float>() + at, b.y.as<float>() + at, p.n, log);
      else columns(b.x.as<float>() + at + c * W, b.y.as<float>() + at + c * W, p.n, p.inner, p.inner - c * W < W ? p.inner - c * W : W, log);
    }
  });
}
}  // namespace

KERNEL(softmax, check, no_scratch, run)
