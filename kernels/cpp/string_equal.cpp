// Whether strings are the same bytes, pair by pair.
#include "params.h"
#include "small.h"
#include "text.h"

namespace {

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const StringEqualParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringEqualBufs*>(call.bufs);
  if (b.y.dtype != BOOL || !is_pool(b.apool) || !is_pool(b.bpool)) return "a dtype is wrong";
  if (!are_spans(b.a, p.n) || !are_spans(b.b, p.n)) return "a or b is too small";
  if (p.n > b.y.count()) return "y is too small";
  proof.operations = Size(p.n) * 4;
  proof.writes(0, {0, p.n});
  return nullptr;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const StringEqualParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringEqualBufs*>(call.bufs);
  parallel_for(call.pool, p.n, 1 << 12, [&](i64 begin, i64 end, int) {
    bool ok = true;
    for (i64 i = begin; i < end; i++) b.y.as<bool>()[i] = same_bytes(text_at(b.a.as<i64>()[i], b.apool, ok), text_at(b.b.as<i64>()[i], b.bpool, ok));
    if (!ok) call.fail(SPAN_OUTSIDE);
  });
}

}  // namespace

KERNEL(string_equal, check, no_scratch, run)
