// Whether whole strings match a regular expression.
#include "params.h"
#include "automaton.h"
#include "small.h"

namespace {

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const StringMatchParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringMatchBufs*>(call.bufs);
  if (b.y.dtype != BOOL || !is_pool(b.pool)) return "a dtype is wrong";
  if (!are_spans(b.x, p.n)) return "x is too small";
  if (p.n > b.y.count()) return "y is too small";
  if (const char* wrong = Automaton::check(b.states, p.size, b.ranges, p.count)) return wrong;
  proof.operations = Size(p.n) * p.size + Size(b.pool.bytes) * p.size;
  proof.writes(0, {0, p.n});
  return nullptr;
}

Size scratch(const Call& call, int threads) {
  return Size(threads) * (Automaton::ROOM * 8) * reinterpret_cast<const StringMatchParams*>(call.params)->size;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const StringMatchParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringMatchBufs*>(call.bufs);
  parallel_for(call.pool, p.n, 1 << 6, [&](i64 begin, i64 end, int thread) {
    Automaton a(b.states, p.size, b.ranges, p.count, reinterpret_cast<i64*>(call.scratch) + thread * Automaton::ROOM * p.size);
    bool ok = true;
    for (i64 i = begin; i < end; i++) b.y.as<bool>()[i] = a.matches(text_at(b.x.as<i64>()[i], b.pool, ok));
    if (!ok) call.fail(SPAN_OUTSIDE);
    else if (!a.ok) call.fail("the automaton is damaged");
  });
}

}  // namespace

KERNEL(string_match, check, scratch, run)
