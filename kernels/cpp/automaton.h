// Automata of regular expressions, without backtracking: all ways through one are gone at once.
#pragma once
#include "utf8.h"

struct Automaton {
  enum { MATCH, SPLIT, RANGES, TEXT_BEGIN, TEXT_END, LINE_BEGIN, LINE_END, BOUNDARY, NO_BOUNDARY, OPERATIONS };
  static constexpr i64 WORDS = 3, MAX_STATES = 1 << 20;  // of an instruction: operation, a, b
  static constexpr i64 ROOM = 6;                         // numbers of scratch memory per state

  struct Ways {
    i64 *state, *begun;  // where each way is, and where in the text it began: rising
    i64 n;
  };

  const int32_t *states, *ranges;
  i64 size, count;
  Ways now, next;
  i64 *todo, *met;  // states to look at, and the round in which each was met
  i64 round = 0;
  bool ok = true;

  Automaton(const Buf& s, i64 size, const Buf& r, i64 count, i64* room)
      : states(s.as<int32_t>()), ranges(r.as<int32_t>()), size(size), count(count), now{room, room + size, 0}, next{room + 2 * size, room + 3 * size, 0},
        todo(room + 4 * size), met(room + 5 * size) {
    for (i64 s = 0; s < size; s++) met[s] = 0;
  }

  // What is wrong with its tables.
  static const char* check(const Buf& states, i64 size, const Buf& ranges, i64 count) {
    if (states.dtype != I32 || ranges.dtype != I32) return "a dtype is wrong";
    if (size < 1 || size > MAX_STATES || size > states.count() / WORDS) return "the automaton is empty, too large or incomplete";
    return count < 0 || count > ranges.count() / 2 ? "the ranges are incomplete" : nullptr;
  }

  static bool is_word(uint32_t c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

  // Between two code points; first and last: there is none before or behind.
  struct Place {
    bool first, last;
    uint32_t before, after;

    bool holds(int32_t op) const {
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
  };

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

  // Adds to `next` what is reached from a state without taking a code point; true where that is the match.
  bool add(i64 start, i64 begun, const Place& place) {
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
      else if (op == RANGES) next.state[next.n] = s, next.begun[next.n++] = begun;
      else if (op < 0 || op >= OPERATIONS) ok = false;
      else if (place.holds(op)) meet(s + 1);
    }
    return matched;
  }

  void turn() {
    const Ways held = now;
    now = next, next = held;
    next.n = 0, round++;
  }

  bool matches(const Text& t) {
    i64 behind = 0;
    Place place{true, t.size == 0, 0, t.size ? next_code(t, behind) : 0};
    next.n = 0, round++;
    bool matched = add(0, 0, place);
    for (i64 at = 0; at < t.size;) {
      turn();
      const uint32_t code = place.after;
      at = behind;
      place = {false, at >= t.size, code, at >= t.size ? 0 : next_code(t, behind)};
      matched = false;
      for (i64 k = 0; k < now.n; k++)
        if (takes(now.state[k], code)) matched |= add(now.state[k] + 1, 0, place);
      if (!next.n && !place.last) return false;
    }
    return matched;
  }

  // The leftmost match at `from` or behind it, of those that begin there the longest; false where there is none. `looked` grows by the
  // code points that were looked at.
  bool find(const Text& t, i64 from, i64 start, i64& first, i64& end, i64& looked) {
    i64 last = from;  // of the code point before
    while (last > 0 && continues(t, --last) && from - last < 4) {}
    uint32_t before = 0;
    if (from) before = next_code(t, last);
    i64 behind = from;
    Place place{from == 0, from >= t.size, before, from < t.size ? next_code(t, behind) : 0};
    next.n = 0, round++;
    first = -1;
    for (i64 at = from;; looked++) {
      if (first < 0 && add(start, at, place)) first = end = at;
      if (at >= t.size || (!next.n && first >= 0)) return first >= 0;
      turn();
      const uint32_t code = place.after;
      at = behind;
      place = {false, at >= t.size, code, at >= t.size ? 0 : next_code(t, behind)};
      for (i64 k = 0; k < now.n; k++) {
        if (first >= 0 && now.begun[k] > first) break;
        if (takes(now.state[k], code) && add(now.state[k] + 1, now.begun[k], place)) first = now.begun[k], end = at;
      }
    }
  }
};
