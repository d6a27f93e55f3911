// The order of strings by their bytes, which is that of their code points: places by rising string, of equals the first one first, and
// how many different strings come before each.
#include "params.h"
#include "small.h"
#include "sort.h"
#include "text.h"

namespace {

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const StringOrderParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringOrderBufs*>(call.bufs);
  if (!is_pool(b.pool)) return "a dtype is wrong";
  if (!are_spans(b.x, p.n)) return "x is too small";
  if ((b.order && !are_spans(b.order, p.n)) || (b.rank && !are_spans(b.rank, p.n))) return "an output is too small";
  proof.operations = Size(p.n) * 4 * depth_of(p.n);
  if (b.order) proof.writes(0, {0, p.n});
  if (b.rank) proof.writes(1, {0, p.n});
  return nullptr;
}

// The spans as they were when they were proved, and their order.
Size scratch(const Call& call, int) { return Size(2 * 8) * reinterpret_cast<const StringOrderParams*>(call.params)->n; }

void run(Call& call) {
  const auto& p = *reinterpret_cast<const StringOrderParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringOrderBufs*>(call.bufs);
  i64 *spans = reinterpret_cast<i64*>(call.scratch), *order = spans + p.n;
  bool ok = true;
  for (i64 i = 0; i < p.n; i++) {
    order[i] = i, spans[i] = b.x.as<i64>()[i];
    text_at(spans[i], b.pool, ok);
  }
  if (!ok) return call.fail(SPAN_OUTSIDE);
  const auto compare = [&](i64 i, i64 j) { return compare_bytes(text_at(spans[i], b.pool, ok), text_at(spans[j], b.pool, ok)); };
  sort_inside(order, order + p.n, [&](i64 i, i64 j) {
    const int c = compare(i, j);
    return c ? c < 0 : i < j;
  });
  i64 rank = 0;
  for (i64 k = 0; k < p.n; k++) {
    if (k && b.rank && compare(order[k - 1], order[k])) rank++;
    if (b.rank) b.rank.as<i64>()[order[k]] = rank;
    if (b.order) b.order.as<i64>()[k] = order[k];
  }
}

}  // namespace

KERNEL(string_order, check, scratch, run)
