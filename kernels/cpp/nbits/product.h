// Products of one a with weights that stay small in memory (nbits/weights.h). Few rows multiply the weights as they are unpacked; many take
// panels that are widened once for all rows of a block. One source has them, and others what nbits/job.h declares.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "nbits/digit_panels.h"
#include "nbits/job.h"
#include "nbits/panels.h"
#include "nbits/rows.h"
#include "nbits/widen.h"

namespace nbits {

using gemm::most;

// Many rows as integers.
#if defined(PWX_GROUPS)
#define PWX_PANELS
using Many = DigitPanels;
#elif defined(__x86_64__) && !defined(__AVX2__)  // without fused multiply-add, sums of floats take twice the instructions
#define PWX_PANELS
using Many = Panels;
#endif

constexpr isize MIN_WORK = 1 << 15;  // products of a few rows: less is not worth another thread

PWX_SMALL inline const char* check_dtypes(const MatmulNbitsParams& p, const MatmulNbitsBufs& b) {
  if (b.y.dtype != F32 || b.a.dtype != F32) return "a and y must be float32";
  for (const Buf* f : {&b.bias, &b.residual})
    if (*f && f->dtype != F32) return "bias and residual must be float32";
  if (b.b.dtype == F16 || b.b.dtype == BF16) {
    if (p.bits != 16 || b.scale || b.shift) return "halves have 16 bits, and neither scale nor shift";
    return nullptr;
  }
  if (b.b.dtype != U32) return "b must be uint32 words of codes, float16 or bfloat16";
  if (p.bits != 2 && p.bits != 4 && p.bits != 8) return "codes have 2, 4 or 8 bits";
  if (b.scale.dtype != F32 && b.scale.dtype != F16) return "scale must be float32 or float16";
  if (b.shift && b.shift.dtype != F32 && b.shift.dtype != F16 && b.shift.dtype != U8) return "shift must be float32, float16 or uint8";
  return nullptr;
}

PWX_SMALL const char* check_product(const MatmulNbitsParams& p, const MatmulNbitsBufs& b, int output, Proof& proof) {
  if (const char* wrong = check_dtypes(p, b)) return wrong;
  if (p.m < 0 || p.n < 0 || p.k < 0) return "a size is negative";
  if (p.m > MAX_EXTENT || p.n > MAX_EXTENT || p.k > MAX_EXTENT / 2) return "a size is out of range";
  if (p.block < 16 || p.block % 16 || p.block > (i64(1) << 24)) return "a block must have a multiple of 16 codes";
  if (!act_known(p.act)) return "unknown activation";
  auto fits = [&](i64 rows, i64 step, i64 columns, i64 column_step, i64 offset, const Buf& buf) {
    const i64 shape[2] = {rows, columns}, stride[2] = {step, column_step};
    return view_fits(2, shape, stride, offset, buf.count());
  };
  const i64 row = p.bits == 16 ? p.k : blocks(p) * p.block / (32 / p.bits);
  if (!fits(p.m, p.y_rs, p.n, 1, p.yoff, b.y)) return "y does not fit its buffer";
  if (!fits(p.m, p.a_rs, p.k, 1, p.aoff, b.a)) return "a does not fit its buffer";
  if (!fits(p.n, row, row, 1, 0, b.b)) return "b does not fit its buffer";
  if (b.scale && !fits(p.n, blocks(p), blocks(p), 1, 0, b.scale)) return "scale does not fit its buffer";
  if (b.shift && !fits(p.n, blocks(p), blocks(p), 1, 0, b.shift)) return "shift does not fit its buffer";
  if (b.bias && !fits(p.m, p.bias_ms, p.n, p.bias_ns, 0, b.bias)) return "bias does not fit its buffer";
  if (b.residual && !fits(p.m, p.res_rs, p.n, 1, p.res_off, b.residual)) return "residual does not fit its buffer";
  if (!p.m || !p.n) return nullptr;
  const i64 shape[2] = {p.m, p.n}, stride[2] = {p.y_rs, 1};
  proof.operations += Size(p.m) * p.n * (Size(p.k) + 1);
  proof.writes(output, dense(2, shape, stride, p.yoff));
  return nullptr;
}

// Of a thread, for few rows.
inline Size few_bytes(const MatmulNbitsParams& p) {
#if defined(PWX_GROUPS)
  return Unpacked::own_bytes(p) + Group::bytes(blocks(p), p.bits, p.block) * SET;
#else
  return Unpacked::own_bytes(p);
#endif
}

PWX_SMALL Size product_scratch(const MatmulNbitsParams& p, int threads) {
  if (!p.m || !p.n) return 0;
  if (p.m <= FEW) return p.bits == 16 ? Size(0) : Unpacked::bytes(p) + few_bytes(p) * threads;
  const Size floats = Size(gemm::blocks(proven(p.m), proven(p.n), proven(p.k), proven(p.block)).packed_floats) * 4 * threads;
#if defined(PWX_PANELS)
  if (Many::fit(p)) return std::max(floats.value(), (Many::bytes(p) + Many::own_bytes(p) * threads).value());
#endif
  return floats;
}

// Runs fn(job, begin, end, thread) over pieces of the items of all jobs, size(job) of each.
template <class S, class F> inline void share(Call& call, const Job* jobs, int count, isize grain, S size, F fn) {
  isize all = 0;
  for (int i = 0; i < count; i++) all += size(jobs[i]);
  parallel_for(call.pool, all, grain, [&](i64 begin, i64 end, int thread) {
    isize first = proven(begin), last = proven(end);
    for (int i = 0; i < count && last > 0; i++) {
      const isize n = size(jobs[i]);
      if (first < n) fn(jobs[i], first, least(last, n), thread);
      first = most(first - n, 0), last -= n;
    }
  });
}

#if defined(PWX_GROUPS)
// A group of packed weights as floats, where rows cannot be rounded.
PWX_SMALL inline void natural_group(const Weights& w, const Unpacked& u, const gemm::Product& q, isize g, char* memory) {
  const Natural natural(w, g, memory);
  const isize j = g * TOGETHER, n = least(TOGETHER, q.n - j);
  for (isize c = 0; c < n; c++) {
    float y[FEW];
    if (!w.chunked()) short_blocks(natural.w, u, q.a, q.a_rs, q.m, q.k, c, y);
    else if (w.bits == 4) columns<4>(natural.w, u, q.m, c, y);
    else columns<8>(natural.w, u, q.m, c, y);
    for (isize i = 0; i < q.m; i++) q.y[i * q.y_rs + j + c] = y[i];
  }
  for (isize i = 0; i < q.m; i++) q.e.finish(i, j, n, q.y + i * q.y_rs + j, false);
}

// Groups of columns: by digits, or as they were before they were packed.
inline void few_in_groups(Call& call, const Job* jobs, int count, const Unpacked& taken) {
  const Weights& w = jobs->w;
  const gemm::Product& q = jobs->q;
  const isize all = proven(Unpacked::bytes(jobs->p).value()), own = proven(Unpacked::own_bytes(jobs->p).value());
  const isize each = proven(Group::bytes(w.count, w.bits, w.block).value()), few = MIN_WORK / (TOGETHER * SET * q.m * q.k + 1) + 1;
  char* const memory = call.scratch + all;
  auto groups = [](const Job& job) { return (job.q.n + TOGETHER - 1) / TOGETHER; };
  share(call, jobs, count, few, [&](const Job& job) { return (groups(job) + SET - 1) / SET; }, [&](const Job& job, isize begin, isize end, int thread) {
    char* mine = memory + thread * (own + SET * each);
    const isize first = begin * SET, last = least(end * SET, groups(job));
    if (taken.digits) return digit_groups(job.w, taken.digit_rows(), taken.digits, job.q, first, last, mine + own, each);
    const Unpacked u = taken.with(mine);
    for (isize g = first; g < last; g++) natural_group(job.w, u, job.q, g, mine + own);
  });
}
#endif

inline void few_columns(const Job& job, const Unpacked& u, isize begin, isize end) {
  const Weights& w = job.w;
  const gemm::Product& q = job.q;
  isize j = begin;
#if defined(__AVX512F__)
  if (u.quads || u.looked_up) some_columns(w, u, q.m, j, end, q.y, q.y_rs), j = end;
#elif defined(__AVX2__)
  if (u.nibbles)
    nibbles_columns(w, u.rounded, nibbles_length(u.depth), u.unit, u.sums, q.m, j, end, q.y, q.y_rs), j = end;
#endif
  for (; j < end; j++) {
    float y[FEW];
    if (w.dtype == BF16) halves_rows<true>(w, q.a, q.a_rs, q.m, q.k, j, y);
    else if (w.dtype == F16) halves_rows<false>(w, q.a, q.a_rs, q.m, q.k, j, y);
    else if (!w.chunked()) short_blocks(w, u, q.a, q.a_rs, q.m, q.k, j, y);
    else if (w.bits == 2) columns<2>(w, u, q.m, j, y);
    else if (w.bits == 4) columns<4>(w, u, q.m, j, y);
    else columns<8>(w, u, q.m, j, y);
    for (isize i = 0; i < q.m; i++) q.y[i * q.y_rs + j] = y[i];
  }
  for (isize i = 0; i < q.m; i++) q.e.finish(i, begin, end - begin, q.y + i * q.y_rs + begin, false);
}

void few_rows(Call& call, const Job* jobs, int count) {
  const Job& one = *jobs;
  const Weights& w = one.w;
  const gemm::Product& q = one.q;
  const isize all = w.bits < 16 ? proven(Unpacked::bytes(one.p).value()) : 0, each = w.bits < 16 ? proven(few_bytes(one.p).value()) : 0;
  Unpacked taken(call.scratch, w);
  if (w.chunked() || Unpacked::in_digits(w)) taken.take(w, q.a, q.a_rs, q.m, q.k, one.p.rounded != 0);
#if defined(PWX_GROUPS)
  if (taken.digits || w.packed) return few_in_groups(call, jobs, count, taken);
#endif
  share(call, jobs, count, MIN_WORK / (q.m * q.k + 1) + 1, [](const Job& job) { return job.q.n; }, [&](const Job& job, isize begin, isize end, int thread) {
    few_columns(job, taken.with(call.scratch + all + thread * each), begin, end);
  });
}

void many_rows(Call& call, const Job& job) {
#if defined(PWX_PANELS)
  const MatmulNbitsParams& p = job.p;
  const auto fits = [&] { return panels(call, Many(call.scratch, job.w, job.q.m), job.q, proven(Many::bytes(p).value()), proven(Many::own_bytes(p).value())); };
  if (job.q.k && Many::fit(p) && fits()) return;
#endif
  gemm::run_packed(call, job.q, gemm::Batch(), job.w.block, {&job.w, widen_panels});
}

}  // namespace nbits
