// Few rows of a in the form that their products with codes take, made once for all threads: int16 by block, or floats.
#pragma once
#include "nbits/weights.h"

namespace nbits {

constexpr float MOST = 127 * 256 + 127;                            // which two signed bytes can say
constexpr float MOST_OF_THREE = 127 * 65536 + 127 * 256 + 127;

typedef int16_t VS __attribute__((ext_vector_type(W)));

// Numbers from `at` on, zeros behind the first `given`.
inline VF some_of(const float* in, isize at, isize given) {
  const isize some = least(given - at, W);
  return some < W ? load_part(in + at, some < 0 ? 0 : some) : load(in + at);
}

// The largest magnitude of n numbers; negative where one is not finite.
inline float largest_of(const float* in, isize n) {
  VF most = splat(0), poison = splat(0);
  for (isize at = 0; at < n; at += W) {
    const VF v = some_of(in, at, n);
    most = vmax(vmax(v, -v), most);
    poison += v * splat(0);  // NaN where v is not finite
  }
  float lanes[W], largest = 0;
  store(lanes, most);
  for (float v : lanes) largest = v > largest ? v : largest;
  return sum_lanes(poison) == 0 ? largest : -1;
}

inline VI nearest(VF v) { return __builtin_convertvector(v + select(v < splat(0), splat(-0.5f), splat(0.5f)), VI); }

inline void store_small(int16_t* out, VI v) {
  const VS small = __builtin_convertvector(v, VS);
  __builtin_memcpy(out, &small, sizeof small);
}

inline int32_t sum_of(VI v) {
  int32_t whole = 0;
  for (int l = 0; l < W; l++) whole += v[l];
  return whole;
}

// One block of n numbers as multiples of `unit`, zeros behind the first `given`; `sum` is theirs. False where one is not finite, or the
// block too small to be scaled.
inline bool round_block(const float* in, isize given, isize n, int16_t* out, float& unit, float& sum) {
  const float largest = largest_of(in, given);
  if (largest < 0 || (largest != 0 && largest < 1e-30f)) return false;
  unit = largest / MOST;
  const VF factor = splat(largest > 0 ? MOST / largest : 0);
  VI total = splat_i(0);
  for (isize at = 0; at < n; at += W) {
    const VI near = nearest(some_of(in, at, given) * factor);
    store_small(out + at, near);
    total += near;
  }
  sum = float(sum_of(total)) * unit;
  return true;
}

// The same in multiples of a power of two, at most 2^30 of them: high * 2^15 + low. Of the largest numbers nothing is lost, of others less
// than products and sums of floats lose. `thrice`: at most what three signed bytes can say, to half of 2^-22 of the largest.
inline bool split_block(const float* in, isize given, isize n, bool thrice, int16_t* high, int16_t* low, float& unit, float& sum) {
  const float largest = largest_of(in, given);
  if (largest < 0 || (largest != 0 && largest < 1e-28f)) return false;
  int32_t power = largest > 0 ? (__builtin_bit_cast(int32_t, largest) >> 23) - (thrice ? 22 : 29) : 127;
  if (thrice && largest * __builtin_bit_cast(float, (254 - power) << 23) > MOST_OF_THREE) power++;
  unit = __builtin_bit_cast(float, power << 23);
  const VF factor = splat(__builtin_bit_cast(float, (254 - power) << 23));
  VI highs = splat_i(0), lows = splat_i(0);
  for (isize at = 0; at < n; at += W) {
    const VI near = nearest(some_of(in, at, given) * factor), h = near >> splat_i(15), l = near & splat_i(32767);
    store_small(high + at, h);
    store_small(low + at, l);
    highs += h, lows += l;
  }
  sum = float((double(sum_of(highs)) * 32768 + double(sum_of(lows))) * double(unit));
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

inline bool split_row(const Weights& w, const float* a, isize k, bool thrice, int16_t* high, int16_t* low, float* units, float* sums) {
  for (isize b = 0; b < w.count; b++) {
    const isize at = b * w.block;
    if (!split_block(a + at, least(k - at, w.block), w.block, thrice, high + at, low + at, units[b], sums[b])) return false;
  }
  return true;
}

}  // namespace nbits
