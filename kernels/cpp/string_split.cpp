// The pieces of strings between delimiters, or between runs of white space: how many, and their spans, as they share the strings' bytes.
#include "params.h"
#include "small.h"
#include "utf8.h"

namespace {

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const StringSplitParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringSplitBufs*>(call.bufs);
  if (!is_pool(b.pool) || !is_pool(b.delimiter)) return "a dtype is wrong";
  if (!are_spans(b.x, p.n)) return "x is too small";
  if (b.count && !are_spans(b.count, p.n)) return "count is too small";
  const i64 shape[] = {p.n, p.width}, want = product(shape, 2);
  if (b.y && (want < 0 || !are_spans(b.y, want))) return "y is too small";
  proof.operations = Size(p.n) + b.pool.bytes + (b.y ? Size(want) : Size(0));
  if (b.y) proof.writes(0, {0, want});
  if (b.count) proof.writes(1, {0, p.n});
  return nullptr;
}

// Where the next delimiter is, at `at` or behind it; the size where there is none.
i64 find_delimiter(const Text& t, i64 at, const Text& d) {
  for (; at + d.size <= t.size; at++)
    if (t.data[at] == d.data[0] && !__builtin_memcmp(t.data + at, d.data, size_t(d.size))) return at;
  return t.size;
}

i64 skip(const Text& t, i64 at, bool space) {
  while (at < t.size) {
    i64 behind = at;
    if (is_space(next_code(t, behind)) != space) break;
    at = behind;
  }
  return at;
}

// Calls piece(from, to) for at most `most` splits; negative: any number. Returns how many pieces there are.
template <class F> i64 pieces(const Text& t, const Text& d, i64 most, F piece) {
  i64 at = d.size ? 0 : skip(t, 0, true), count = 0;
  if (!d.size && at == t.size) return 0;
  for (;;) {
    const bool last = most >= 0 && count == most;
    const i64 end = last ? t.size : d.size ? find_delimiter(t, at, d) : skip(t, at, false);
    piece(count++, at, end);
    if (d.size) {
      if (end + d.size > t.size || last) return count;
      at = end + d.size;
    } else if ((at = skip(t, end, true)) == t.size) {
      return count;
    }
  }
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const StringSplitParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringSplitBufs*>(call.bufs);
  const Text delimiter{b.delimiter.data, b.delimiter.bytes};
  parallel_for(call.pool, p.n, 1 << 8, [&](i64 begin, i64 end, int) {
    bool ok = true, room = true;
    for (i64 i = begin; i < end; i++) {
      const i64 span = b.x.as<i64>()[i];
      const Text t = text_at(span, b.pool, ok);
      i64* y = b.y ? b.y.as<i64>() + i * p.width : nullptr;
      const i64 count = pieces(t, delimiter, p.most, [&](i64 k, i64 from, i64 to) {
        if (!y) return;
        if (k < p.width) y[k] = ((span >> 32) + from) << 32 | (to - from);
        else room = false;
      });
      for (i64 k = count; y && k < p.width; k++) y[k] = 0;
      if (b.count) b.count.as<i64>()[i] = count;
    }
    if (!ok) call.fail(SPAN_OUTSIDE);
    else if (!room) call.fail("a string has more pieces than were counted");
  });
}

}  // namespace

KERNEL(string_split, check, no_scratch, run)
