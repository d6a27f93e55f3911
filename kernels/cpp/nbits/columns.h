// Columns of groups (nbits/groups.h) of few rows. Groups that lie far apart are read side by side: memory answers several runs sooner than
// one, as it waits for the addresses of each page.
#pragma once
#include "nbits/pairs.h"
#include "nbits/shorts.h"

#if defined(PWX_GROUPS)

namespace nbits {

struct DigitSums {
  using Sums = void (*)(const Weights&, const Group*, const DigitRows&, VF*);
  Sums one, two;  // rows: of `groups`, of half as many; there is none of two for blocks of half a step
  int groups;

  // With 16 registers, what twelve sums leave is too little for two steps.
  template <int DIGITS, int BITS> static DigitSums quads(bool half) {
    constexpr int G = W == 8 ? SET / 2 : SET;
    if (half) return {quad_sums<G, 1, DIGITS, BITS, 2>, nullptr, G};
    return {quad_sums<G, 1, DIGITS, BITS>, quad_sums<G / 2, 2, DIGITS, BITS>, G};
  }
#if defined(PWX_PAIRS)
  template <int DIGITS> static DigitSums pairs(bool half, bool once) {
    if (half) return {pair_sums<SET / 2, 1, DIGITS, 2>, nullptr, SET / 2};
    return {once ? pair_sums<SET, 1, DIGITS, 4, DIGITS == 2> : pair_sums<SET, 1, DIGITS>, pair_sums<SET / 2, 2, DIGITS>, SET};
  }
#endif
  static DigitSums of(int digits, isize bits, isize block) {
    const bool half = block % 32 != 0;
#if defined(PWX_PAIRS)
    if (in_pairs() && bits == 8) return {short_sums<SET, 1>, short_sums<SET / 2, 2>, SET};
    if (in_pairs()) return digits == 3 ? pairs<3>(half, false) : pairs<2>(half, block == 32);
#endif
    if (bits == 8) return quads<2, 8>(half);
    return digits == 3 ? quads<3, 4>(half) : quads<2, 4>(half);
  }
};

// Groups [first, last) of columns of q. Numbers are of so many digits. memory: of a set of groups, of `each` bytes.
inline void digit_groups(const Weights& w, const DigitRows& rows, int digits, const gemm::Product& q, isize first, isize last, char* memory,
                         isize each) {
  const DigitSums sums = DigitSums::of(digits, w.bits, w.block);
  const isize apart = (last - first + SET - 1) / SET;
  const isize whole = w.packed ? w.n / TOGETHER : 0;
  for (isize s = first; s < first + apart; s++) {
    Group groups[SET];
    isize at[SET];
    int n = 0;
    for (isize g = s; g < last; g += apart, n++) {
      at[n] = g;
      if (g < whole) groups[n].find(w, g);
      else groups[n] = Group(w, g, w.packed ? memory : memory + n * each);
    }
    for (; n % SET; n++) at[n] = at[n - 1], groups[n] = groups[n - 1];
    for (isize i = 0, taken; i < q.m; i += taken) {
      taken = sums.two && q.m - i >= 2 ? 2 : 1;
      const DigitRows some = rows.from(i, digits);
      VF total[SET * 2] = {};
      if (w.shifts)
        for (int g = 0; g < n; g++) take_off(w, groups[g], some, taken, total + g * taken);
      for (int g = 0; g < n; g += sums.groups / int(taken))
        (taken == 1 ? sums.one : sums.two)(w, groups + g, some, total + g * taken);
      for (int g = 0; g < n; g++)
        for (isize r = 0; r < taken; r++) {
          const isize j = at[g] * TOGETHER;
          float* y = q.y + (i + r) * q.y_rs + j;
          if (q.n - j < TOGETHER) store_part(y, total[g * taken + r], q.n - j);
          else store(y, total[g * taken + r]);
        }
    }
  }
  const isize j = first * TOGETHER;
  for (isize i = 0; i < q.m; i++) q.e.finish(i, j, least(last * TOGETHER, q.n) - j, q.y + i * q.y_rs + j, false);
}

}  // namespace nbits
#endif
