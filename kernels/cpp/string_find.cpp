// Where in a table each string is found first, by its order; -1 where it is not.
#include "params.h"
#include "small.h"
#include "text.h"

namespace {

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const StringFindParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringFindBufs*>(call.bufs);
  if (!is_pool(b.xpool) || !is_pool(b.pool)) return "a dtype is wrong";
  if (!are_spans(b.x, p.n)) return "x is too small";
  if (!are_spans(b.table, p.count) || !are_spans(b.order, p.count)) return "the table or its order is too small";
  if (!are_spans(b.y, p.n)) return "y is too small";
  proof.operations = Size(p.n) * 4 * depth_of(p.count);
  proof.writes(0, {0, p.n});
  return nullptr;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const StringFindParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringFindBufs*>(call.bufs);
  parallel_for(call.pool, p.n, 1 << 10, [&](i64 begin, i64 end, int) {
    bool ok = true;
    // The string at a place of the order, which is data, too.
    const auto entry = [&](i64 k, i64& place) {
      place = b.order.as<i64>()[k];
      if (uint64_t(place) >= uint64_t(p.count)) return ok = false, place = 0, Text{nullptr, 0};
      return text_at(b.table.as<i64>()[place], b.pool, ok);
    };
    for (i64 i = begin; i < end; i++) {
      const Text x = text_at(b.x.as<i64>()[i], b.xpool, ok);
      i64 low = 0, high = p.count, place = 0;
      while (low < high) {
        const i64 middle = low + (high - low) / 2;
        if (compare_bytes(entry(middle, place), x) < 0) low = middle + 1;
        else high = middle;
      }
      b.y.as<i64>()[i] = low < p.count && same_bytes(entry(low, place), x) ? place : -1;
    }
    if (!ok) call.fail(SPAN_OUTSIDE);
  });
}

}  // namespace

KERNEL(string_find, check, no_scratch, run)
