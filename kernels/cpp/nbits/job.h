// Products of a step with weights that stay small in memory, and what is done with them (nbits/product.h).
#pragma once
#include "nbits/weights.h"

namespace nbits {

constexpr isize FEW = 4;  // rows up to which weights are read once for all of them, without panels

// One of the products of a step.
struct Job {
  const MatmulNbitsParams& p;
  Weights w;
  gemm::Product q;

  Job(const MatmulNbitsParams& params, const MatmulNbitsBufs& b) : p(params), w(params, b), q{} {
    q.m = proven(p.m), q.n = proven(p.n), q.k = proven(p.k);
    q.a_rs = p.m > 1 ? proven(p.a_rs) : q.k, q.a_cs = 1;
    q.y_rs = p.m > 1 ? proven(p.y_rs) : q.n;
    q.a = b.a.as<float>() + p.aoff;
    q.y = b.y.as<float>() + p.yoff;
    q.e.set_act(p.act, p.act_a, p.act_b);
    q.e.alpha = float(p.alpha);
    if (b.bias) q.e.bias = b.bias.as<float>(), q.e.bias_ms = proven(p.bias_ms), q.e.bias_ns = proven(p.bias_ns);
    if (b.residual) q.e.res = b.residual.as<float>() + p.res_off, q.e.res_rs = p.m > 1 ? proven(p.res_rs) : 0;
  }
};

// y is buffer `output` of the call.
const char* check_product(const MatmulNbitsParams& p, const MatmulNbitsBufs& b, int output, Proof& proof);
Size product_scratch(const MatmulNbitsParams& p, int threads);

// Up to FEW rows, of jobs that share a.
void few_rows(Call& call, const Job* jobs, int count);
void many_rows(Call& call, const Job& job);

}  // namespace nbits
