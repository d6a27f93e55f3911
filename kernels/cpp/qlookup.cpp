// Bytes by a table of 256 others.
#include "params.h"
#include "qgemm/check.h"

namespace {

struct Args {
  const QlookupParams& p;
  const QlookupBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const QlookupParams*>(call.params)), b(*reinterpret_cast<const QlookupBufs*>(call.bufs)) {}
};

constexpr i64 CODES = 256;

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  if (!qgemm::is_byte(b.x.dtype) || !qgemm::is_byte(b.y.dtype) || b.table.dtype != b.y.dtype) return "operands and results must be int8 or uint8";
  if (b.table.count() < CODES) return "the table is too short";
  if (p.n < 0 || p.n > b.x.count() || p.n > b.y.count()) return "an operand does not fit its buffer";
  proof.operations = Size(p.n);
  proof.writes(0, {0, p.n});
  return nullptr;
}

void run(Call& call) {
  const auto [p, b] = Args(call);
  const uint8_t* x = b.x.as<uint8_t>();
  uint8_t *y = b.y.as<uint8_t>(), table[CODES];
  __builtin_memcpy(table, b.table.as<uint8_t>(), CODES);
  parallel_for(call.pool, p.n, 1 << 16, [&](i64 begin, i64 end, int) {
    i64 i = begin;
    for (; i + 8 <= end; i += 8) {  // one load and one store for all
      uint64_t from, to = 0;
      __builtin_memcpy(&from, x + i, 8);
#pragma unroll
      for (int l = 0; l < 64; l += 8) to |= uint64_t(table[from >> l & 255]) << l;
      __builtin_memcpy(y + i, &to, 8);
    }
    for (; i < end; i++) y[i] = table[x[i]];
  });
}

}  // namespace

KERNEL(qlookup, check, no_scratch, run)
