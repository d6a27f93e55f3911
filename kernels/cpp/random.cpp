// Random words: Threefry-2x32 of 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011).
// Words 2i and 2i + 1 are the encrypted counter (i, stream): any thread computes any of them, and all machines the same.
#include "params.h"
#include "small.h"

namespace {

constexpr i64 PAIRS = i64(1) << 32;

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const RandomParams*>(call.params);
  auto& b = *reinterpret_cast<const RandomBufs*>(call.bufs);
  if (b.y.dtype != U32) return "y is not uint32";
  if (p.n < 0 || p.n > b.y.count()) return "y is too small";
  if (p.n > 2 * PAIRS) return "more than 2^33 random words at a time";
  proof.operations = 32 * Size(p.n);
  proof.writes(0, {0, p.n});
  return nullptr;
}

inline uint32_t turned(uint32_t x, int by) { return x << by | x >> (32 - by); }

inline void threefry(const uint32_t (&key)[3], uint32_t& a, uint32_t& b) {
  constexpr int BY[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  a += key[0], b += key[1];
  for (uint32_t group = 1; group <= 5; group++) {
    for (int k = 0; k < 4; k++) a += b, b = turned(b, BY[(group + 1) & 1][k]) ^ a;
    a += key[group % 3], b += key[(group + 1) % 3] + group;
  }
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const RandomParams*>(call.params);
  auto& b = *reinterpret_cast<const RandomBufs*>(call.bufs);
  const uint64_t seed = p.seeded ? uint64_t(p.seed) : call.chance->seed;
  const uint32_t stream = p.seeded ? 0 : uint32_t(call.chance->draws++);
  const uint32_t low = uint32_t(seed), high = uint32_t(seed >> 32), key[3] = {low, high, 0x1BD11BDA ^ low ^ high};
  uint32_t* y = b.y.as<uint32_t>();
  parallel_for(call.pool, (p.n + 1) / 2, 1 << 14, [&](i64 begin, i64 end, int) {
    for (i64 i = begin; i < end; i++) {
      uint32_t pair[2] = {uint32_t(i), stream};
      threefry(key, pair[0], pair[1]);
      y[2 * i] = pair[0];
      if (2 * i + 1 < p.n) y[2 * i + 1] = pair[1];
    }
  });
}

}  // namespace

KERNEL(random, check, no_scratch, run)
