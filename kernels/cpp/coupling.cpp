// Probabilities of classes from those of their pairs: T. Wu, C. Lin, R. Weng, "Probability Estimates for Multi-class Classification by
// Pairwise Coupling", second method, as libsvm iterates it.
#include "params.h"
#include "small.h"

#include <algorithm>
#include <cmath>

namespace {

constexpr int MOST = 100;

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const CouplingParams*>(call.params);
  auto& b = *reinterpret_cast<const CouplingBufs*>(call.bufs);
  if (b.x.dtype != F32 || b.y.dtype != F32) return "x or y is not float32";
  if (p.classes < 1 || p.classes > 65535) return "classes are out of range";
  const i64 in[] = {p.rows, p.classes * (p.classes - 1) / 2}, out[] = {p.rows, p.classes};
  if (product(in, 2) < 0 || product(in, 2) > b.x.count()) return "x is too small";
  if (product(out, 2) < 0 || product(out, 2) > b.y.count()) return "y is too small";
  proof.operations = Size(p.rows) * p.classes * p.classes * (2 * MOST);
  proof.writes(0, {0, product(out, 2)});
  return nullptr;
}

// Per thread: q [classes, classes] and its product with the probabilities.
Size scratch(const Call& call, int threads) {
  const auto& p = *reinterpret_cast<const CouplingParams*>(call.params);
  return Size(4) * p.classes * (p.classes + 1) * threads;
}

// The quadratic form whose minimum the probabilities are.
void form(const float* pair, i64 n, float* q) {
  std::fill(q, q + n * n, 0.f);
  for (i64 i = 0; i < n; i++)
    for (i64 j = i + 1; j < n; j++) {
      const float first = std::min(std::max(*pair++, 1e-7f), 1 - 1e-7f), second = 1 - first;
      q[i * n + i] += second * second;
      q[j * n + j] += first * first;
      q[i * n + j] = q[j * n + i] = -first * second;
    }
}

void couple(const float* q, i64 n, float* product, float* y) {
  for (i64 i = 0; i < n; i++) y[i] = 1 / float(n);
  for (int step = 0; step < MOST; step++) {
    float whole = 0, error = 0;
    for (i64 i = 0; i < n; i++) {
      product[i] = 0;
      for (i64 j = 0; j < n; j++) product[i] += q[i * n + j] * y[j];
      whole += y[i] * product[i];
    }
    for (i64 i = 0; i < n; i++) error = std::max(error, std::fabs(product[i] - whole));
    if (!(error >= 0.005f / float(n))) return;
    for (i64 i = 0; i < n; i++) {
      const float change = (whole - product[i]) / q[i * n + i];
      y[i] += change;
      whole = (whole + change * (change * q[i * n + i] + 2 * product[i])) / (1 + change) / (1 + change);
      for (i64 j = 0; j < n; j++) {
        product[j] = (product[j] + change * q[i * n + j]) / (1 + change);
        y[j] /= 1 + change;
      }
    }
  }
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const CouplingParams*>(call.params);
  auto& b = *reinterpret_cast<const CouplingBufs*>(call.bufs);
  const i64 n = p.classes, pairs = n * (n - 1) / 2;
  parallel_for(call.pool, p.rows, 1 + 1000 / (n * n), [&](i64 begin, i64 end, int thread) {
    float* q = reinterpret_cast<float*>(call.scratch) + n * (n + 1) * thread;
    for (i64 row = begin; row < end; row++) {
      form(b.x.as<float>() + row * pairs, n, q);
      couple(q, n, q + n * n, b.y.as<float>() + row * n);
    }
  });
}

}  // namespace

KERNEL(coupling, check, scratch, run)
