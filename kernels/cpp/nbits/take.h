// Few rows of a in the form that their products with codes take, made once for all threads: int16 by block, or floats.
#pragma once
#include "nbits/weights.h"

namespace nbits {

constexpr float MOST = 127 * 256 + 127;  // which two signed bytes can say

typedef int16_t VS __attribute__((ext_vector_type(W)));

// One block of n numbers as multiples of `unit`, zeros behind the first `given`; `sum` is theirs. False where one is not finite, or the
// block too small to be scaled.
inline bool round_block(const float* in, isize given, isize n, int16_t* out, float& unit, float& sum) {
  VF most = splat(0), poison = splat(0);
  for (isize at = 0; at < given; at += W) {
    const VF v = load_part(in + at, least(given - at, W));
    most = vmax(vmax(v, -v), most);
    poison += v * splat(0);  // NaN where v is not finite
  }
  float lanes[W], largest = 0;
  store(lanes, most);
  for (float v : lanes) largest = v > largest ? v : largest;
  if (sum_lanes(poison) != 0 || (largest != 0 && largest < 1e-30f)) return false;
  unit = largest / MOST;
  const VF factor = splat(largest > 0 ? MOST / largest : 0);
  VI total = splat_i(0);
  for (isize at = 0; at < n; at += W) {
    const isize some = least(given - at, W);
    const VF v = (some < W ? load_part(in + at, some < 0 ? 0 : some) : load(in + at)) * factor;
    const VI near = __builtin_convertvector(v + select(v < splat(0), splat(-0.5f), splat(0.5f)), VI);
    const VS small = __builtin_convertvector(near, VS);
    __builtin_memcpy(out + at, &small, sizeof small);
    total += near;
  }
  int32_t whole = 0;
  for (int l = 0; l < W; l++) whole += total[l];
  sum = float(whole) * unit;
  return true;
}

// Row i of m as int16 [depth], its units and sums by block. False as for a block.
inline bool round_row(const Weights& w, const float* a, isize k, int16_t* out, float* units, float* sums) {
  for (isize b = 0; b < w.count; b++) {
    const isize at = b * w.block;
    if (!round_block(a + at, least(k - at, w.block), w.block, out + at, units[b], sums[b])) return false;
  }
  return true;
}

}  // namespace nbits
