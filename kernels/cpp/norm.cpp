// Layer, instance, group and RMS normalisation: statistics of each row of n, then a scale and a bias per element or group of elements.
#include <initializer_list>
#include "params.h"
#include "simd.h"

namespace {
PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const NormParams*>(call.params);
  const auto& b = *reinterpret_cast<const NormBufs*>(call.bufs);
  for (const Buf* buf : {&b.y, &b.mean, &b.inv_std, &b.x, &b.scale, &b.bias})
    if (*buf && (buf->dtype != b.x.dtype || (buf->dtype != F32 && buf->dtype != F64))) return "only float32 and float64";
  const i64 sizes[] = {p.rows, p.n};
  i64 count = product(sizes, 2);
  if (count < 0 || count > b.x.count() || count > b.y.count()) return "buffer too small";
  if ((b.mean && b.mean.count() < p.rows) || (b.inv_std && b.inv_std.count() < p.rows)) return "statistics buffer too small";
  if (p.rows > MAX_BYTES) return "too many rows";
  if (p.row_mod < 1 || p.row_mul < 0 || p.inner < 1) return "bad row_mod, row_mul or inner";
  proof.operations = (Size(count) + p.rows) * 2;
  proof.writes(0, {0, count});
  if (b.mean) proof.writes(1, {0, p.rows});
  if (b.inv_std) proof.writes(2, {0, p.rows});
  i64 row = p.row_mod < p.rows ? p.row_mod : p.rows, last;
  if (count == 0) return nullptr;
  if (mul_over(row - 1, p.row_mul, &last) || __builtin_add_overflow(last, (p.n - 1) / p.inner, &last)) return "scale index overflows";
  for (const Buf* buf : {&b.scale, &b.bias})
    if (*buf && buf->count() <= last) return "scale or bias too small";
  return nullptr;
}

struct Sums {
  double first, second;
};

// Sums of x - shift and of (x - shift)^2: f32 lanes within blocks, f64 across them.
Sums sums(const float* x, i64 n, float shift) {
  constexpr i64 BLOCK = 64 * W;
  Sums all{};
  for (i64 at = 0; at < n; at += BLOCK) {
    i64 end = n - at < BLOCK ? n : at + BLOCK, i = at;
    VF s[2] = {}, q[2] = {};
    auto add = [&](i64 j, int u) {
      VF v = load(x + j) - shift;
      s[u] += v;
      q[u] += v * v;
    };
    for (; i + 2 * W <= end; i += 2 * W)
      for (int u = 0; u < 2; u++) add(i + u * W, u);
    if (i + W <= end) add(i, 0), i += W;
    all.first += double(sum_lanes(s[0] + s[1]));
    all.second += double(sum_lanes(q[0] + q[1]));
    for (; i < end; i++) {
      float v = x[i] - shift;
      all.first += double(v);
      all.second += double(v * v);
    }
  }
  return all;
}
template <class T> [[gnu::noinline]] PWX_SMALL Sums sums_wide(const T* x, i64 n, T shift) {
  Sums all{};
  for (i64 i = 0; i < n; i++) {
    double v = double(x[i]) - double(shift);
    all.first += v;
    all.second += v * v;
  }
  return all;
}

Sums sums(const double* x, i64 n, double shift) { return sums_wide(x, n, shift); }

constexpr double LEAST = 1e-30, MOST = 1e38;  // squares that float32 holds

template <class T> struct Affine {  // y = (x - mean) * inv * scale + bias
  T mean, off, inv;  // the mean in two parts, so that a mean far above the spread costs no precision
  const T *scale, *bias;  // null: 1, 0
  void each(const T* x, T* y, i64 n) const {
    const T m = mean, o = off, r = inv;
    if (scale && bias)
      for (i64 i = 0; i < n; i++) y[i] = (x[i] - m - o) * r * scale[i] + bias[i];
    else if (scale)
      for (i64 i = 0; i < n; i++) y[i] = (x[i] - m - o) * r * scale[i];
    else if (bias)
      for (i64 i = 0; i < n; i++) y[i] = (x[i] - m - o) * r + bias[i];
    else
      for (i64 i = 0; i < n; i++) y[i] = (x[i] - m - o) * r;
  }
  void same(const T* x, T* y, i64 n, i64 index) const {
    const T m = mean, o = off, r = inv * (scale ? scale[index] : T(1)), add = bias ? bias[index] : T(0);
    for (i64 i = 0; i < n; i++) y[i] = (x[i] - m - o) * r + add;
  }
};

template <class T> void rows(const NormParams& p, const NormBufs& b, i64 begin, i64 end) {
  for (i64 row = begin; row < end; row++) {
    const T* x = b.x.as<T>() + row * p.n;
    T* y = b.y.as<T>() + row * p.n;
    // Two passes; the second one also corrects the mean by the average of what is left.
    T m = p.rms ? T(0) : T(sums(x, p.n, T(0)).first / double(p.n));
    if (sizeof(T) == 4 && m - m != 0) m = T(sums_wide(x, p.n, T(0)).first / double(p.n));
    Sums left = sums(x, p.n, m);
    if (sizeof(T) == 4 && !(left.second < MOST && left.second + p.eps > LEAST)) left = sums_wide(x, p.n, m);
    double off = p.rms ? 0 : left.first / double(p.n);
    double inv = 1 / __builtin_sqrt(left.second / double(p.n) - off * off + p.eps);
    if (b.mean) b.mean.as<T>()[row] = T(double(m) + off);
    if (b.inv_std) b.inv_std.as<T>()[row] = T(inv);
    i64 first = p.n ? (row % p.row_mod) * p.row_mul : 0;
    Affine<T> a{m, T(off), T(inv), b.scale ? b.scale.as<T>() + first : nullptr, b.bias ? b.bias.as<T>() + first : nullptr};
    if (p.inner == 1) a.each(x, y, p.n);
    else
      for (i64 j = 0; j < p.n; j += p.inner) a.same(x + j, y + j, p.n - j < p.inner ? p.n - j : p.inner, j / p.inner);
  }
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const NormParams*>(call.params);
  const auto& b = *reinterpret_cast<const NormBufs*>(call.bufs);
  parallel_for(call.pool, p.rows, 16384 / (p.n + 1) + 1, [&](i64 begin, i64 end, int) {
    b.x.dtype == F64 ? rows<double>(p, b, begin, end) : rows<float>(p, b, begin, end);
  });
}
}  // namespace

KERNEL(norm, check, no_scratch, run)
