// Rows of weights in blocks, their scales and their shifts as this machine's products read them (nbits/groups.h): run once, before the first
// run.
#include "nbits/groups.h"
#include "params.h"

namespace {

using namespace nbits;

struct Args {
  const PackBlocksParams& p;
  const PackBlocksBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const PackBlocksParams*>(call.params)), b(*reinterpret_cast<const PackBlocksBufs*>(call.bufs)) {}
};

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  if (const char* wrong = wrong_rows(b.w, b.y, p.count, p.words)) return wrong;
  if (p.n < 0 || p.count < 0 || p.n > MAX_EXTENT || p.count > MAX_EXTENT) return "a size is out of range";
  const Size all = Size(p.n) * p.count;
  if (!all.within(b.w.count()) || !all.within(b.y.count())) return "the rows do not fit their buffer";
  proof.operations = all;
  proof.writes(0, {0, all.value()});
  return nullptr;
}

PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto [p, b] = Args(call);
  return grouped(p.bits, p.block) ? round_up(Size(p.count) * 4 * TOGETHER, 64) * threads : Size(0);
}

void run(Call& call) {
  const auto [p, b] = Args(call);
  if (!p.n || !p.count) return;
  const isize row = proven(p.count) * width_of(b.w.dtype), n = proven(p.n);
  if (b.y.data != b.w.data) __builtin_memcpy(b.y.data, b.w.data, size_t(n * row));
  if (!grouped(p.bits, p.block)) return;
#if defined(PWX_GROUPS)
  const isize width = p.words ? 4 : width_of(b.w.dtype), each = gemm::round_up(proven(p.count) * 4 * TOGETHER, 64);
  const bool flipped = p.words && flips(proven(p.bits));
  parallel_for(call.pool, n / TOGETHER, (1 << 16) / (row * TOGETHER) + 1, [&](i64 begin, i64 end, int thread) {
    char* copy = call.scratch + thread * each;
    for (isize g = proven(begin); g < proven(end); g++) {
      char* rows = b.y.data + g * TOGETHER * row;
      __builtin_memcpy(copy, rows, size_t(TOGETHER * row));
      interleave(copy, width, TOGETHER, row / width, rows);
      if (flipped) flip(rows, TOGETHER * row);
    }
  });
#endif
}

}  // namespace

KERNEL(pack_blocks, check, scratch, run)
