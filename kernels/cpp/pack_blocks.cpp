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
  if (b.w.dtype != U32 && b.w.dtype != F32 && b.w.dtype != F16 && b.w.dtype != U8) return "rows are uint32, float32, float16 or uint8";
  if (p.words && b.w.dtype != U32 && (b.w.dtype != U8 || p.count % 4)) return "words of codes have four bytes";
  if (b.y.dtype != b.w.dtype) return "w and y must have one type";
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
  const isize row = proven(p.count) * width_of(b.w.dtype), n = proven(p.n);
  if (b.y.data != b.w.data) __builtin_memcpy(b.y.data, b.w.data, size_t(n * row));
  if (!grouped(p.bits, p.block) || !row) return;
#if defined(__wasm_relaxed_simd__)
  const isize width = p.words ? 4 : width_of(b.w.dtype), each = gemm::round_up(proven(p.count) * 4 * TOGETHER, 64);
  const uint8_t flip = p.words ? flips(proven(p.bits)) : 0;
  parallel_for(call.pool, n / TOGETHER, (1 << 16) / (row * TOGETHER) + 1, [&](i64 begin, i64 end, int thread) {
    char* copy = call.scratch + thread * each;
    for (isize g = proven(begin); g < proven(end); g++) {
      char* rows = b.y.data + g * TOGETHER * row;
      __builtin_memcpy(copy, rows, size_t(TOGETHER * row));
      if (p.words && row % 16 == 0)
        interleave_codes(reinterpret_cast<const uint8_t*>(copy), TOGETHER, row, flip, reinterpret_cast<v128_t*>(rows));
      else interleave(copy, width, TOGETHER, row / width, flip, rows);
    }
  });
#endif
}

}  // namespace

KERNEL(pack_blocks, check, scratch, run)
