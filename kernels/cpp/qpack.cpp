// Weights of products of bytes as this machine's tiles read them: run once, before the first run. By columns [k, n] for products, by
// taps for depthwise convolutions.
#include "params.h"
#include "qgemm.h"
#include "qgemm/taps.h"

namespace {

using qgemm::i32;

struct Args {
  const QpackParams& p;
  const QpackBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const QpackParams*>(call.params)), b(*reinterpret_cast<const QpackBufs*>(call.bufs)) {}
};

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  if ((b.w.dtype != I8 && b.w.dtype != U8) || b.y.dtype != (p.taps ? int32_t(I16) : b.w.dtype) || b.sums.dtype != I32)
    return "weights are int8 or uint8, packed ones too, or int16 by taps; sums are int32";
  const i64 shape[2] = {p.k, p.n}, stride[2] = {p.rs, p.cs};
  if (p.k < 0 || p.n < 0 || p.n > MAX_EXTENT || p.k > qgemm::MAX_DEPTH) return "a size is out of range";
  if (!view_fits(2, shape, stride, p.off, b.w.count())) return "w does not fit its buffer";
  const Size count = p.taps ? qgemm::taps_count(p.k, p.n) : qgemm::packed_bytes(p.k, p.n);
  if (!count.within(b.y.count())) return "y does not fit its buffer";
  if (!qgemm::whole_columns(p.n).within(b.sums.count())) return "sums do not fit their buffer";
  if (b.zero && (!p.taps || b.zero.dtype != b.w.dtype)) return "zero points are of the weights' type, and for taps";
  if (b.zero && (p.zero_ns == 0 ? b.zero.count() < 1 : p.zero_ns != 1 || b.zero.count() < p.n)) return "zero does not fit its buffer";
  proof.operations = count;
  proof.writes(0, {0, b.y.count()});
  proof.writes(1, {0, b.sums.count()});
  return nullptr;
}

Size scratch(const Call& call, int) {
  const auto [p, b] = Args(call);
  return p.taps ? Size(0) : Size(b.w.bytes);
}

void run(Call& call) {
  const auto [p, b] = Args(call);
  const isize k = proven(p.k), n = proven(p.n);
  __builtin_memset(b.sums.data, 0, size_t(b.sums.bytes));
  const uint8_t* from = b.w.as<uint8_t>();
  if (b.y.data == b.w.data) {  // in the weights' own place
    __builtin_memcpy(call.scratch, from, size_t(b.w.bytes));
    from = reinterpret_cast<uint8_t*>(call.scratch);
  }
  __builtin_memset(b.y.data, 0, size_t(b.y.bytes));
  if (!k || !n) return;
  const uint8_t* w = from + p.off;
  const isize rs = p.k > 1 ? proven(p.rs) : 0, cs = p.n > 1 ? proven(p.cs) : 0;
  const bool is_signed = b.w.dtype == I8;
  if (p.taps) {
    const qgemm::Taps taps(k, n, b.y, b.sums);
    for (isize j = 0; j < n; j++) {
      const uint8_t z = b.zero ? b.zero.as<uint8_t>()[p.zero_ns * j] : 0;
      for (isize t = 0; t < k; t++) {
        const uint8_t v = w[t * rs + j * cs];
        taps.set(t, j, is_signed ? int8_t(v) - int8_t(z) : v - z);
      }
    }
    return;
  }
  const qgemm::Layout s = qgemm::layout(1, k);
  i32* sums = b.sums.as<i32>();
  uint8_t* panels = b.y.as<uint8_t>();
  qgemm::Product packed{};
  packed.n = n, packed.k = k, packed.set_packed(b.y.as<int8_t>(), sums, b.sums.count());
  const isize row_step = n == 1 && rs == 1 ? 1 : rs, column_step = n == 1 ? k : cs;
  const isize groups = (n + qgemm::GROUP - 1) / qgemm::GROUP;
  parallel_for(call.pool, groups, 1, [&](i64 begin, i64 end, int) {
    const isize last = qgemm::least(proven(end) * qgemm::GROUP, n);
    for (isize j = proven(begin) * qgemm::GROUP, count; j < last; j += count) {
      count = qgemm::columns_from(j, last);
      const isize width = gemm::round_up(count, W);
      uint8_t* panel = panels + j * s.depth;
      qgemm::pack_panel(w + j * column_step, row_step, column_step, k, count, width, s.unit, is_signed ? 0 : 0x80, panel);
      uint32_t absolute[qgemm::NR]{}, most = 0;
      for (isize step = 0; step < s.depth / s.unit; step++)
        for (isize c = 0; c < width; c++)
          for (isize u = 0; u < s.unit; u++, panel++) {
            const i32 v = int8_t(*panel);
            sums[j + c] += v, absolute[c] += uint32_t(v < 0 ? -v : v);
          }
      if (!packed.measures) continue;
      float* measure = const_cast<float*>(qgemm::measures_at(packed, j));
      if (s.kind == qgemm::Quads::SATURATING) qgemm::measure(packed.packed + j * s.depth, width / W, s.depth / s.unit, measure);
      for (isize c = 0; c < width; c++) most = std::max(most, absolute[c]);
      qgemm::absolute(measure, k) = float(most);
    }
  });
}

}  // namespace

KERNEL(qpack, check, scratch, run)
