// Products of one a, which is taken once, with two or three weights that stay small in memory.
#include <algorithm>

#include "nbits/job.h"

namespace {

using namespace nbits;

constexpr int MOST = 3;

struct Args {
  MatmulNbitsParams p[MOST];
  MatmulNbitsBufs b[MOST];
  int count;

  explicit Args(const Call& call) {
    const auto& q = *reinterpret_cast<const MatmulsNbitsParams*>(call.params);
    const auto& f = *reinterpret_cast<const MatmulsNbitsBufs*>(call.bufs);
    b[0] = {f.y, f.a, f.b, f.scale, f.shift, f.bias, {}};
    b[1] = {f.y1, f.a, f.b1, f.scale1, f.shift1, f.bias1, {}};
    b[2] = {f.y2, f.a, f.b2, f.scale2, f.shift2, f.bias2, {}};
    count = f.y2 ? 3 : 2;
    for (int i = 0; i < MOST; i++)
      p[i] = {q.m, q.n[i], q.k, q.bits, q.block, q.rounded, q.packed, q.aoff, q.a_rs, 0, q.n[i], q.bias_ms[i], q.bias_ns[i], 0, 0, q.act[i], q.alpha[i], q.act_a[i], q.act_b[i]};
  }
};

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const Args given(call);
  for (int i = 0; i < given.count; i++) {
    if (bool(given.b[i].shift) != bool(given.b[0].shift)) return "all weights have a shift, or none has one";
    if (const char* wrong = check_product(given.p[i], given.b[i], i, proof)) return wrong;
  }
  return nullptr;
}

PWX_SMALL Size scratch(const Call& call, int threads) {
  const Args given(call);
  Size bytes = 0;
  for (int i = 0; i < given.count; i++) bytes = std::max(bytes.value(), product_scratch(given.p[i], threads).value());
  return bytes;
}

void run(Call& call) {
  const Args given(call);
  i64 columns = 0;
  for (int i = 0; i < given.count; i++) columns += given.p[i].n;
  if (!given.p[0].m || !columns) return;
  const Job jobs[MOST] = {{given.p[0], given.b[0]}, {given.p[1], given.b[1]}, {given.p[2], given.b[2]}};
  if (given.p[0].m <= FEW) return few_rows(call, jobs, given.count);
  for (int i = 0; i < given.count; i++)
    if (given.p[i].n) many_rows(call, jobs[i]);
}

}  // namespace

KERNEL(matmuls_nbits, check, scratch, run)
