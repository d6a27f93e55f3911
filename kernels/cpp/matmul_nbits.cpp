// A product with weights that stay small in memory.
#include "nbits/product.h"

namespace {

using namespace nbits;

struct Args {
  const MatmulNbitsParams& p;
  const MatmulNbitsBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const MatmulNbitsParams*>(call.params)), b(*reinterpret_cast<const MatmulNbitsBufs*>(call.bufs)) {}
};

PWX_SMALL const char* check(const Call& call, Proof& proof) { return check_product(Args(call).p, Args(call).b, 0, proof); }

PWX_SMALL Size scratch(const Call& call, int threads) { return product_scratch(Args(call).p, threads); }

void run(Call& call) {
  const auto [p, b] = Args(call);
  if (!p.m || !p.n) return;
  const Job job(p, b);
  if (p.m <= FEW) few_rows(call, &job, 1);
  else many_rows(call, job);
}

}  // namespace

KERNEL(matmul_nbits, check, scratch, run)
