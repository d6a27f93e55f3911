// Whether whole strings match a regular expression: an automaton without backtracking, which goes through all its ways at once.
#include "params.h"
#include "utf8.h"

namespace {

enum { MATCH, SPLIT, RANGES, TEXT_BEGIN, TEXT_END, LINE_BEGIN, LINE_END, BOUNDARY, NO_BOUNDARY, OPERATIONS };
constexpr i64 WORDS = 3, MAX_STATES = 1 << 20;  // of an instruction: operation, a, b

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const StringMatchParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringMatchBufs*>(call.bufs);
  if (b.y.dtype != BOOL || !is_pool(b.pool) || b.states.dtype != I32 || b.ranges.dtype != I32) return "a dtype is wrong";
  if (!are_spans(b.x, p.n)) return "x is too small";
  if (p.n > b.y.count()) return "y is too small";
  if (p.size < 1 || p.size > MAX_STATES || p.size > b.states.count() / WORDS) return "the automaton is empty, too large or incomplete";
  if (p.count < 0 || p.count > b.ranges.count() / 2) return "the ranges are incomplete";
  proof.operations = Size(p.n) * p.size + Size(b.pool.bytes) * p.size;
  proof.writes(0, {0, p.n});
  return nullptr;
}

// Per thread: the states before and behind a code point, those to look at, and when each was met.
Size scratch(const Call& call, int threads) { return Size(threads) * (5 * 8) * reinterpret_cast<const StringMatchParams*>(call.params)->size; }

bool is_word(uint32_t c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

struct Automaton {
  const int32_t *states, *ranges;
  i64 size, count;
  i64 *now, *next, *todo, *met;
  i64 round = 0;
  bool ok = true;

  bool holds(int32_t op, bool first, bool last, uint32_t before, uint32_t after) const {
    const bool boundary = (!first && is_word(before)) != (!last && is_word(after));
    switch (op) {
      case TEXT_BEGIN: return first;
      case TEXT_END: return last;
      case LINE_BEGIN: return first || before == '\n';
      case LINE_END: return last || after == '\n';
      case BOUNDARY: return boundary;
      default: return !boundary;
    }
  }

  bool takes(i64 state, uint32_t code) {
    const i64 from = states[WORDS * state + 1], n = states[WORDS * state + 2];
    if (from < 0 || n < 0 || from > count || n > count - from) return ok = false;
    i64 low = 0, high = n;  // sorted by their ends
    while (low < high) {
      const i64 middle = low + (high - low) / 2;
      if (uint32_t(ranges[2 * (from + middle) + 1]) < code) low = middle + 1;
      else high = middle;
    }
    return low < n && uint32_t(ranges[2 * (from + low)]) <= code;
  }

  // Adds what is reached from a state without taking a code point; true where that is the match.
  bool add(i64 start, i64& n, bool first, bool last, uint32_t before, uint32_t after) {
    bool matched = false;
    i64 waiting = 0;
    const auto meet = [&](i64 s) {
      if (s < 0 || s >= size) return void(ok = false);
      if (met[s] == round) return;
      met[s] = round;
      todo[waiting++] = s;
    };
    meet(start);
    while (waiting) {
      const i64 s = todo[--waiting];
      const int32_t op = states[WORDS * s];
      if (op == MATCH) matched = true;
      else if (op == SPLIT) meet(states[WORDS * s + 1]), meet(states[WORDS * s + 2]);
      else if (op == RANGES) next[n++] = s;
      else if (op < 0 || op >= OPERATIONS) ok = false;
      else if (holds(op, first, last, before, after)) meet(s + 1);
    }
    return matched;
  }

  bool match(const Text& t) {
    i64 behind = 0, n = 0;
    uint32_t before = 0, after = t.size ? next_code(t, behind) : 0;
    round++;
    bool matched = add(0, n, true, t.size == 0, 0, after);
    for (i64 at = 0; at < t.size;) {
      i64* held = now;
      now = next, next = held;
      const i64 have = n;
      const uint32_t code = after;
      at = behind;
      before = code;
      const bool last = at >= t.size;
      after = last ? 0 : next_code(t, behind);
      n = 0, matched = false, round++;
      for (i64 k = 0; k < have; k++)
        if (takes(now[k], code)) matched |= add(now[k] + 1, n, false, last, before, after);
      if (!n && !last) return false;
    }
    return matched;
  }
};

void run(Call& call) {
  const auto& p = *reinterpret_cast<const StringMatchParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringMatchBufs*>(call.bufs);
  const int threads = pool_threads(call.pool);
  for (i64 k = 0; k < threads * 5 * p.size; k++) reinterpret_cast<i64*>(call.scratch)[k] = 0;
  parallel_for(call.pool, p.n, 1 << 6, [&](i64 begin, i64 end, int thread) {
    i64* room = reinterpret_cast<i64*>(call.scratch) + thread * 5 * p.size;
    Automaton a{b.states.as<int32_t>(), b.ranges.as<int32_t>(), p.size, p.count, room, room + p.size, room + 2 * p.size, room + 4 * p.size};
    for (i64 s = 0; s < p.size; s++) a.met[s] = 0;
    bool ok = true;
    for (i64 i = begin; i < end; i++) b.y.as<bool>()[i] = a.match(text_at(b.x.as<i64>()[i], b.pool, ok));
    if (!ok) call.fail(SPAN_OUTSIDE);
    else if (!a.ok) call.fail("the automaton is damaged");
  });
}

}  // namespace

KERNEL(string_match, check, scratch, run)
