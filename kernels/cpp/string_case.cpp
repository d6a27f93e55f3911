// Each code point as a table says, those that it lacks as they are.
#include "params.h"
#include "small.h"
#include "utf8.h"

namespace {

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const StringCaseParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringCaseBufs*>(call.bufs);
  if (!is_pool(b.pool) || !is_pool(b.xpool) || b.table.dtype != I32) return "a dtype is wrong";
  if (!are_spans(b.x, p.n) || !are_spans(b.y, p.n)) return "x or y is too small";
  if (p.rows < 0 || p.rows > b.table.count() / 2) return "the table is too small";
  if (p.room < 0 || p.room > b.pool.count() || p.room > INT32_MAX) return "the pool is too small, or takes 2 GB and more";
  proof.operations = Size(p.n) + Size(p.room) * depth_of(p.rows);
  proof.writes(0, {0, p.n});
  proof.writes(1, {0, p.room});
  return nullptr;
}

uint32_t mapped(const int32_t* table, i64 rows, uint32_t code) {
  i64 low = 0, high = rows;
  while (low < high) {
    const i64 middle = low + (high - low) / 2;
    if (uint32_t(table[2 * middle]) < code) low = middle + 1;
    else high = middle;
  }
  return low < rows && uint32_t(table[2 * low]) == code ? uint32_t(table[2 * low + 1]) : code;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const StringCaseParams*>(call.params);
  const auto& b = *reinterpret_cast<const StringCaseBufs*>(call.bufs);
  const int32_t* table = b.table.as<int32_t>();
  uint32_t ascii[128];
  for (uint32_t c = 0; c < 128; c++) ascii[c] = mapped(table, p.rows, c);
  bool ok = true;
  i64 end = 0;
  for (i64 i = 0; i < p.n; i++) {
    const Text t = text_at(b.x.as<i64>()[i], b.xpool, ok);
    const i64 start = end;
    for (i64 at = 0; at < t.size;) {
      uint32_t code = next_code(t, at);
      code = code < 128 ? ascii[code] : mapped(table, p.rows, code);
      if (code > 0x10ffff) return call.fail("the table holds what is no code point");
      if (code_bytes(code) > p.room - end) return call.fail("the strings have more bytes than there is room for");
      put_code(b.pool.data + end, code);
      end += code_bytes(code);
    }
    b.y.as<i64>()[i] = start << 32 | (end - start);
  }
  if (p.room > end) __builtin_memset(b.pool.data + end, 0, size_t(p.room - end));
  if (!ok) call.fail(SPAN_OUTSIDE);
}

}  // namespace

KERNEL(string_case, check, no_scratch, run)
