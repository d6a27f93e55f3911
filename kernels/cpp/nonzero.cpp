// The positions of what is not zero, in order; y has room for exactly those.
#include "params.h"
#include "small.h"

namespace {

const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const NonzeroParams*>(call.params);
  auto& b = *reinterpret_cast<const NonzeroBufs*>(call.bufs);
  if (b.x.dtype != BOOL) return "x is not bool";
  if (b.y.dtype != I64) return "y is not int64";
  if (p.n < 0 || p.n > b.x.count()) return "x is too small";
  if (p.count < 0 || p.count > b.y.count()) return "y is too small";
  proof.operations = p.n;
  proof.writes(0, {0, p.count});
  return nullptr;
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const NonzeroParams*>(call.params);
  auto& b = *reinterpret_cast<const NonzeroBufs*>(call.bufs);
  const uint8_t* x = b.x.as<uint8_t>();
  i64* y = b.y.as<i64>();
  i64 found = 0;
  for (i64 i = 0; i < p.n; i++) {
    if (!x[i]) continue;
    if (found == p.count) return call.fail("more elements are not zero than were counted");
    y[found++] = i;
  }
  if (found != p.count) call.fail("fewer elements are not zero than were counted");
}

}  // namespace

KERNEL(nonzero, check, no_scratch, run)
