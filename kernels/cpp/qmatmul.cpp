// Products of 8-bit integers with zero points; the sum itself, or scaled to float32, or scaled and quantised again.
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

// Products to compute, 0 when y is empty.
i64 batches(const QmatmulParams& p) { return p.m && p.n ? product(p.batch, p.nb) : 0; }

// The elements of y, where they have no gaps.
Range written(const QmatmulParams& p) {
  i64 shape[8], stride[8];
  for (i64 d = 0; d < p.nb; d++) shape[d] = p.batch[d], stride[d] = p.ybatch[d];
  shape[p.nb] = p.m, stride[p.nb] = p.y_rs;
  shape[p.nb + 1] = p.n, stride[p.nb + 1] = 1;
  return dense(p.nb + 2, shape, stride, p.yoff);
}

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  if (!qgemm::is_byte(b.a.dtype) || !qgemm::is_byte(b.b.dtype)) return "the operands must be int8 or uint8";
  if (b.sums && b.sums.dtype != I32) return "the sums of packed columns are int32";
  const qgemm::Extras extras{{b.azero, b.bzero}, b.scale, b.bias, b.residual, b.yscale, b.yzero};
  if (const char* fault = qgemm::check_extras(extras, b.a.dtype, b.b.dtype, b.y, p.act, act_of(p.act) == Act::NONE && p.alpha == 1)) return fault;
  if (p.nb < 0 || p.nb > 6) return "at most 6 batch dimensions";
  if (p.m < 0 || p.n < 0 || p.k < 0) return "a size is negative";
  if (!fits(p, p.ybatch, p.m, p.y_rs, p.n, 1, p.yoff, b.y.count())) return "y does not fit its buffer";
  if (!fits(p, p.abatch, p.m, p.a_rs, p.k, p.a_cs, p.aoff, b.a.count())) return "a does not fit its buffer";
  if (b.sums) {
    for (i64 d = 0; d < p.nb; d++)
      if (p.bbatch[d]) return "a packed operand is the same for the whole batch";
    if (!qgemm::packed_bytes(p.k, p.n).within(b.b.count()) || !qgemm::whole_columns(p.n).within(b.sums.count())) return "b does not fit its buffer";
  } else if (!fits(p, p.bbatch, p.k, p.b_rs, p.n, p.b_cs, p.boff, b.b.count())) {
    return "b does not fit its buffer";
  }
  if (b.azero && !fits(p, nullptr, p.m, p.azero_ms, 1, 0, 0, b.azero.count())) return "azero does not fit its buffer";
  if (b.bzero && !fits(p, nullptr, 1, 0, p.n, p.bzero_ns, 0, b.bzero.count())) return "bzero does not fit its buffer";
  if (b.scale && !fits(p, nullptr, p.m, p.scale_ms, p.n, p.scale_ns, 0, b.scale.count())) return "scale does not fit its buffer";
  if (b.bias && !fits(p, nullptr, p.m, p.bias_ms, p.n, p.bias_ns, 0, b.bias.count())) return "bias does not fit its buffer";
  if (b.residual && !fits(p, p.resbatch, p.m, p.res_rs, p.n, 1, p.res_off, b.residual.count()))
    return "residual does not fit its buffer";
  const i64 count = batches(p);
  if (count == 0) return nullptr;
  if (p.m > MAX_EXTENT || p.n > MAX_EXTENT || p.k > qgemm::MAX_DEPTH) return "a size is out of range";
  proof.operations = Size(count) * p.m * p.n * (Size(p.k) + 1);
  proof.writes(0, written(p));
  return nullptr;
}

PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto [p, b] = Args(call);
  return batches(p) ? qgemm::scratch_bytes(proven(p.m), proven(p.k), threads) : Size(0);
}

struct Batch : qgemm::Operands {
  const QmatmulParams& p;
  isize each;  // bytes of an element of y
  Batch(const qgemm::Product& q, const QmatmulParams& p, isize each) : Operands(q), p(p), each(each) {}

  qgemm::Product at(i64 batch) const override {
    qgemm::Product r = size;
    for (i64 d = p.nb, rest = batch; d-- > 0; rest /= p.batch[d]) {
      const i64 c = rest % p.batch[d];
      if (p.k) r.a += c * p.abatch[d];
      if (p.k && !r.packed) r.b += c * p.bbatch[d];
      r.y = static_cast<char*>(r.y) + c * p.ybatch[d] * each;
      if (r.e.res) r.e.res += c * p.resbatch[d];
    }
    return r;
  }
};

void run(Call& call) {
  const auto [p, b] = Args(call);
  const i64 count = batches(p);
  if (!count) return;
  qgemm::Product q{};
  q.m = proven(p.m), q.n = proven(p.n), q.k = proven(p.k);
  // Steps that are never made may be any.
  auto step = [](i64 size, i64 stride, i64 instead) { return size > 1 ? proven(stride) : proven(instead); };
  if (p.k) q.a = b.a.as<uint8_t>() + p.aoff;
  if (b.sums) q.set_packed(b.b.as<int8_t>(), b.sums.as<int32_t>(), b.sums.count());
  else if (p.k) q.b = b.b.as<uint8_t>() + p.boff;
  q.a_rs = step(p.k ? p.m : 0, p.a_rs, p.k), q.a_cs = step(p.k, p.a_cs, 1);
  if (!b.sums) q.b_rs = step(p.k, p.b_rs, p.n), q.b_cs = step(p.k ? p.n : 0, p.b_cs, p.b_rs == 1 ? p.k : 1);
  q.a_signed = b.a.dtype == I8, q.b_signed = b.b.dtype == I8;
  if (b.azero) q.za = b.azero.as<uint8_t>(), q.za_s = step(p.m, p.azero_ms, 0);
  if (b.bzero) q.zb = b.bzero.as<uint8_t>(), q.zb_s = step(p.n, p.bzero_ns, 0);
  q.dtype = b.y.dtype, q.y_rs = step(p.m, p.y_rs, p.n);
  const isize each = b.y.dtype == I32 || b.y.dtype == F32 ? 4 : 1;
  q.y = b.y.data + p.yoff * each;
  if (b.scale) q.scale = b.scale.as<float>(), q.scale_ms = step(p.m, p.scale_ms, 0), q.scale_ns = step(p.n, p.scale_ns, 0);
  if (b.yscale) q.set_result(b.yscale.as<float>(), !b.yzero ? 0 : b.y.dtype == I8 ? *b.yzero.as<int8_t>() : *b.yzero.as<uint8_t>());
  q.e.set_act(p.act, p.act_a, p.act_b);
  q.e.alpha = float(p.alpha);
  if (b.bias) q.e.bias = b.bias.as<float>(), q.e.bias_ms = step(p.m, p.bias_ms, 0), q.e.bias_ns = step(p.n, p.bias_ns, 0);
  if (b.residual) q.e.res = b.residual.as<float>() + p.res_off, q.e.res_rs = step(p.m, p.res_rs, 0);
  qgemm::run(call, count, 0, Batch(q, p, each));
}

}  // namespace

KERNEL(qmatmul, check, scratch, run)
