// Each string of a, with that of b behind it where there is b, one behind the other in a pool of exactly that size.
#include "params.h"
#include "small.h"
#include "text.h"

namespace {

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const StringJoinParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringJoinBufs*>(call.bufs);
  if (!is_pool(b.pool) || !is_pool(b.apool) || bool(b.b) != bool(b.bpool) || (b.b && !is_pool(b.bpool))) return "a dtype is wrong";
  if (!are_spans(b.a, p.n) || (b.b && !are_spans(b.b, p.n))) return "a or b is too small";
  if (!are_spans(b.y, p.n)) return "y is too small";
  if (p.total < 0 || p.total > b.pool.count() || p.total > INT32_MAX) return "the pool is too small, or takes 2 GB and more";
  proof.operations = Size(p.n) + p.total;
  proof.writes(0, {0, p.n});
  proof.writes(1, {0, p.total});
  return nullptr;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const StringJoinParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringJoinBufs*>(call.bufs);
  bool ok = true;
  i64 at = 0;
  for (i64 i = 0; i < p.n; i++) {
    const Text first = text_at(b.a.as<i64>()[i], b.apool, ok);
    const Text second = b.b ? text_at(b.b.as<i64>()[i], b.bpool, ok) : Text{nullptr, 0};
    const i64 size = i64(first.size) + second.size;
    if (!ok) return call.fail(SPAN_OUTSIDE);
    if (size > p.total - at) return call.fail("the strings have more bytes than were counted");
    if (first.size) __builtin_memcpy(b.pool.data + at, first.data, size_t(first.size));
    if (second.size) __builtin_memcpy(b.pool.data + at + first.size, second.data, size_t(second.size));
    b.y.as<i64>()[i] = at << 32 | size;
    at += size;
  }
  if (at != p.total) call.fail("the strings have fewer bytes than were counted");
}

}  // namespace

KERNEL(string_join, check, no_scratch, run)
