// What regular expressions find in strings, or what lies between what they find: how many pieces, and their spans, as they share the
// strings' bytes.
#include "params.h"
#include "automaton.h"
#include "small.h"

namespace {

constexpr i64 MAX_RULES = 256, LOOKS = 256, FREE = 1 << 16;  // code points looked at per byte, and those not counted

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const StringTokensParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringTokensBufs*>(call.bufs);
  if (!is_pool(b.pool) || b.starts.dtype != I32) return "a dtype is wrong";
  if (!are_spans(b.x, p.n)) return "x is too small";
  if (b.count && !are_spans(b.count, p.n)) return "count is too small";
  const i64 shape[] = {p.n, p.width}, want = product(shape, 2);
  if (b.y && (want < 0 || !are_spans(b.y, want))) return "y is too small";
  if (p.rules < 1 || p.rules > MAX_RULES || p.rules > b.starts.count()) return "there are no expressions, too many, or they are incomplete";
  if (const char* wrong = Automaton::check(b.states, p.size, b.ranges, p.count)) return wrong;
  proof.operations = (Size(p.n) + b.pool.bytes) * p.rules * p.size + (b.y ? Size(want) : Size(0));
  if (b.y) proof.writes(0, {0, want});
  if (b.count) proof.writes(1, {0, p.n});
  return nullptr;
}

Size scratch(const Call& call, int threads) {
  return Size(threads) * (Automaton::ROOM * 8) * reinterpret_cast<const StringTokensParams*>(call.params)->size;
}

struct Pieces {
  Automaton& automaton;
  const int32_t* starts;
  i64 rules, least;
  bool between;
  i64 left = 0;  // code points that may still be looked at

  bool is_long_enough(const Text& t) const {
    i64 n = 0;
    for (i64 at = 0; at < t.size && n < least; n++) next_code(t, at);
    return n >= least;
  }

  // Calls take(text) for each piece that a rule and those behind it leave.
  template <class F> void each(const Text& t, i64 rule, F& take) {
    if (rule == rules) return take(t);
    const auto piece = [&](i64 from, i64 to) {
      const Text found{t.data + from, to - from};
      if (is_long_enough(found)) each(found, rule + 1, take);
    };
    for (i64 at = 0, first, end, looked = 0; at <= t.size; looked = 0) {
      const bool found = left >= 0 && automaton.find(t, at, starts[rule], first, end, looked);
      left -= looked;
      if (!found && between) piece(at, t.size);
      if (!found) return;
      if (between) piece(at, first);
      else piece(first, end);
      at = end;
      if (first == end && at < t.size) next_code(t, at);  // an empty one takes a code point along
      else if (first == end) return;
    }
  }
};

void run(Call& call) {
  const auto& p = *reinterpret_cast<const StringTokensParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringTokensBufs*>(call.bufs);
  parallel_for(call.pool, p.n, 1 << 6, [&](i64 begin, i64 end, int thread) {
    Automaton a(b.states, p.size, b.ranges, p.count, reinterpret_cast<i64*>(call.scratch) + thread * Automaton::ROOM * p.size);
    Pieces pieces{a, b.starts.as<int32_t>(), p.rules, p.least, p.between != 0};
    bool ok = true, room = true, soon = true;
    for (i64 i = begin; i < end; i++) {
      const i64 span = b.x.as<i64>()[i];
      const Text t = text_at(span, b.pool, ok);
      i64* y = b.y ? b.y.as<i64>() + i * p.width : nullptr;
      i64 count = 0;
      const auto take = [&](const Text& piece) {
        if (y && count < p.width) y[count] = ((span >> 32) + (piece.data - t.data)) << 32 | piece.size;
        else if (y) room = false;
        count++;
      };
      pieces.left = t.size * LOOKS * p.rules + FREE;
      pieces.each(t, 0, take);
      soon &= pieces.left >= 0;
      for (i64 k = count; y && k < p.width; k++) y[k] = 0;
      if (b.count) b.count.as<i64>()[i] = count;
    }
    if (!ok) call.fail(SPAN_OUTSIDE);
    else if (!a.ok) call.fail("the automaton is damaged");
    else if (!soon) call.fail("the expression looks too far ahead of what it finds in a long string");
    else if (!room) call.fail("a string has more pieces than were counted");
  });
}

}  // namespace

KERNEL(string_tokens, check, scratch, run)
