// Rows that `pack_blocks` put in this machine's order (nbits/groups.h), picked by indices, as they were before.
#include "nbits/groups.h"
#include "params.h"

namespace {

using namespace nbits;

struct Args {
  const PickBlocksParams& p;
  const PickBlocksBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const PickBlocksParams*>(call.params)), b(*reinterpret_cast<const PickBlocksBufs*>(call.bufs)) {}
};

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  if (const char* wrong = wrong_rows(b.w, b.y, p.row, p.words)) return wrong;
  if (b.indices.dtype != I32 && b.indices.dtype != I64) return "indices are not int32 or int64";
  if (p.n < 0 || p.row < 0 || p.count < 0 || p.n > MAX_EXTENT || p.row > MAX_EXTENT || p.count > MAX_EXTENT) return "a size is out of range";
  if (!(Size(p.n) * p.row).within(b.w.count())) return "the rows do not fit their buffer";
  const Size all = Size(p.count) * p.row;
  if (!all.within(b.y.count())) return "y does not fit its buffer";
  if (p.count > b.indices.count()) return "indices are too few";
  proof.operations = all;
  proof.writes(0, {0, all.value()});
  return nullptr;
}

// Each index is read once, and checked where it is used: the memory of an input may change meanwhile.
void run(Call& call) {
  const auto [p, b] = Args(call);
  if (!p.count || !p.row) return;
  if (!p.n) return call.fail("index out of range");
  const isize row = proven(p.row) * width_of(b.w.dtype), n = proven(p.n);
  bool ok = true;
  for (isize at = 0; at < proven(p.count); at++) {
    i64 i = b.indices.dtype == I64 ? b.indices.as<i64>()[at] : b.indices.as<int32_t>()[at];
    if (i < 0) i += n;
    if (i < 0 || i >= n) i = 0, ok = false;
    char* to = b.y.data + at * row;
    const isize from = proven(i);
#if defined(PWX_GROUPS)
    if (grouped(p.bits, p.block) && from < n / TOGETHER * TOGETHER) {
      const isize width = p.words ? 4 : width_of(b.w.dtype);
      pick(b.w.data + from / TOGETHER * TOGETHER * row, width, from % TOGETHER, row / width, to);
      if (p.words && flips(proven(p.bits))) flip(to, row);
      continue;
    }
#endif
    __builtin_memcpy(to, b.w.data + from * row, size_t(row));
  }
  if (!ok) call.fail("index out of range");
}

}  // namespace

KERNEL(pick_blocks, check, no_scratch, run)
