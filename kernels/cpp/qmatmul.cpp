// Products of 8-bit integers with zero points; the sum itself, or scaled to float32, or scaled and quantised again.
#include <initializer_list>

#include "params.h"
#include "qgemm.h"

namespace {

struct Args {
  const QmatmulParams& p;
  const QmatmulBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const QmatmulParams*>(call.params)), b(*reinterpret_cast<const QmatmulBufs*>(call.bufs)) {}
};

bool fits(const QmatmulParams& p, const i64* batch_stride, i64 rows, i64 row_stride, i64 columns, i64 column_stride, i64 offset, i64 count) {
  i64 shape[8], stride[8];
  for (i64 d = 0; d < p.nb; d++) shape[d] = p.batch[d], stride[d] = batch_stride ? batch_stride[d] : 0;
  shape[p.nb] = rows, stride[p.nb] = row_stride;
  shape[p.nb + 1] = columns, stride[p.nb + 1] = column_stride;
  return view_fits(p.nb + 2, shape, stride, offset, count);
}

bool is_byte(int32_t dtype) { return dtype == U8 || dtype == I8; }

const char* check(const Call& call) {
  const auto [p, b] = Args(call);
  if (!is_byte(b.a.dtype) || !is_byte(b.b.dtype)) return "qmatmul: the operands must be int8 or uint8";
  if ((b.azero && b.azero.dtype != b.a.dtype) || (b.bzero && b.bzero.dtype != b.b.dtype))
    return "qmatmul: a zero point must have the operand's element type";
  const bool sum = b.y.dtype == I32;
  if (!sum && b.y.dtype != F32 && !is_byte(b.y.dtype)) return "qmatmul: the result must be int32, float32, int8 or uint8";
  if (sum ? b.scale || b.bias || b.residual || p.act || p.alpha != 1 : !b.scale) return "qmatmul: a scale belongs to results that are no int32";
  for (const Buf& f : {b.scale, b.bias, b.residual, b.yscale})
    if (f && f.dtype != F32) return "qmatmul: scale, bias and residual must be float32";
  if (is_byte(b.y.dtype) ? !b.yscale || b.yscale.count() < 1 || (b.yzero && (b.yzero.dtype != b.y.dtype || b.yzero.count() < 1))
                         : b.yscale || b.yzero)
    return "qmatmul: a quantised result, and no other, needs its scale";
  if (p.nb < 0 || p.nb > 6) return "qmatmul: at most 6 batch dimensions";
  if (!act_known(p.act)) return "qmatmul: unknown activation";
  if (p.m < 0 || p.n < 0 || p.k < 0) return "qmatmul: a size is negative";
  if (!fits(p, p.ybatch, p.m, p.y_rs, p.n, 1, p.yoff, b.y.count())) return "qmatmul: y does not fit its buffer";
  if (!fits(p, p.abatch, p.m, p.a_rs, p.k, p.a_cs, p.aoff, b.a.count())) return "qmatmul: a does not fit its buffer";
  if (!fits(p, p.bbatch, p.k, p.b_rs, p.n, p.b_cs, p.boff, b.b.count())) return "qmatmul: b does not fit its buffer";
  if (b.azero && !fits(p, nullptr, p.m, p.azero_ms, 1, 0, 0, b.azero.count())) return "qmatmul: azero does not fit its buffer";
  if (b.bzero && !fits(p, nullptr, 1, 0, p.n, p.bzero_ns, 0, b.bzero.count())) return "qmatmul: bzero does not fit its buffer";
  if (b.scale && !fits(p, nullptr, p.m, p.scale_ms, p.n, p.scale_ns, 0, b.scale.count())) return "qmatmul: scale does not fit its buffer";
  if (b.bias && !fits(p, nullptr, p.m, p.bias_ms, p.n, p.bias_ns, 0, b.bias.count())) return "qmatmul: bias does not fit its buffer";
  if (b.residual && !fits(p, p.resbatch, p.m, p.res_rs, p.n, 1, p.res_off, b.residual.count()))
    return "qmatmul: residual does not fit its buffer";
  return nullptr;
}

i64 batches(const QmatmulParams& p) {
  i64 n = 1;
  for (i64 d = 0; d < p.nb; d++) n *= p.batch[d];
  return n;
}

i64 scratch(const Call& call, int threads) {
  const auto [p, b] = Args(call);
  return p.m && p.n && batches(p) ? qgemm::scratch_bytes(isize(p.m), isize(p.k), threads) : 0;
}

void run(Call& call) {
  const auto [p, b] = Args(call);
  const i64 count = batches(p);
  if (!p.m || !p.n || !count) return;
  qgemm::Product q{};
  q.m = isize(p.m), q.n = isize(p.n), q.k = isize(p.k);
  q.a = b.a.as<uint8_t>() + p.aoff, q.b = b.b.as<uint8_t>() + p.boff;
  q.a_rs = isize(p.a_rs), q.a_cs = isize(p.a_cs), q.b_rs = isize(p.b_rs), q.b_cs = isize(p.b_cs);
  q.a_signed = b.a.dtype == I8, q.b_signed = b.b.dtype == I8;
  if (b.azero) q.za = b.azero.as<uint8_t>(), q.za_s = isize(p.azero_ms);
  if (b.bzero) q.zb = b.bzero.as<uint8_t>(), q.zb_s = isize(p.bzero_ns);
  q.dtype = b.y.dtype, q.y_rs = isize(p.y_rs);
  const isize each = b.y.dtype == I32 || b.y.dtype == F32 ? 4 : 1;
  q.y = b.y.data + p.yoff * each;
  if (b.scale) q.scale = b.scale.as<float>(), q.scale_ms = isize(p.scale_ms), q.scale_ns = isize(p.scale_ns);
  if (b.yscale) q.set_result(b.yscale.as<float>(), !b.yzero ? 0 : b.y.dtype == I8 ? *b.yzero.as<int8_t>() : *b.yzero.as<uint8_t>());
  q.e.set_act(p.act, p.act_a, p.act_b);
  q.e.alpha = float(p.alpha);
  q.e.res_rs = isize(p.res_rs);
  if (b.bias) q.e.bias = b.bias.as<float>(), q.e.bias_ms = isize(p.bias_ms), q.e.bias_ns = isize(p.bias_ns);
  if (b.residual) q.e.res = b.residual.as<float>() + p.res_off;
  auto at = [&, &p = p](isize batch) {
    qgemm::Product r = q;
    for (i64 d = p.nb, rest = batch; d-- > 0; rest /= p.batch[d]) {
      const isize c = isize(rest % p.batch[d]);
      r.a += c * isize(p.abatch[d]), r.b += c * isize(p.bbatch[d]);
      r.y = static_cast<char*>(r.y) + c * isize(p.ybatch[d]) * each;
      if (r.e.res) r.e.res += c * isize(p.resbatch[d]);
    }
    return r;
  };
  qgemm::run(call, isize(count), q, 0, at, [](const qgemm::Product& r, char*) { return qgemm::PackMatrix{r.b, r.b_rs, r.b_cs, r.k, r.b_signed}; });
}

}  // namespace

KERNEL(qmatmul, check, scratch, run)
