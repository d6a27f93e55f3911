// Which of the builds of this library this processor runs best.
#include "memory.h"

#if defined(__x86_64__)
#include <cpuid.h>

// 1: SSE4.2, 2: AVX2 with FMA, 3: AVX-512 (F, BW, CD, DQ, VL); 0: none of the builds.
EXPORT(pwx_isa) int32_t pwx_isa() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  auto has = [](unsigned word, unsigned bits) { return (word & bits) == bits; };
  if (!has(c, bit_SSE4_2 | bit_POPCNT | bit_SSSE3)) return 0;
  if (!has(c, bit_AVX | bit_OSXSAVE | bit_FMA | bit_F16C | bit_MOVBE)) return 1;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));  // what the operating system saves
  unsigned ext, unused;
  __get_cpuid(0x80000001, &unused, &unused, &ext, &unused);
  if (!has(low, 6) || !has(ext, bit_LZCNT) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, bit_AVX2 | bit_BMI | bit_BMI2)) return 1;
  return has(low, 0xe6) && has(b, bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL) ? 3 : 2;
}
#else
EXPORT(pwx_isa) int32_t pwx_isa() { return 1; }
#endif
