// Register tiles of products of bytes by matrices of two rows and two columns, eight products to each of their four sums (Arm's FEAT_I8MM).
#pragma once
#include "qgemm/tile.h"

namespace qgemm {

#if defined(__aarch64__)
// FEAT_I8MM, of which Linux and macOS tell; elsewhere products of four are taken.
inline bool has_matrices() {
#if defined(__linux__)
  constexpr unsigned long I8MM = 1 << 13;
  return getauxval(AT_HWCAP2) & I8MM;
#elif defined(__APPLE__)
  int has = 0;
  size_t bytes = sizeof has;
  return sysctlbyname("hw.optional.arm.FEAT_I8MM", &has, &bytes, nullptr, 0) == 0 && has;
#else
  return false;
#endif
}

inline bool by_matrices() { return probed<has_matrices>(); }

// Of M rows, two by two. Two steps of four columns of a panel are two matrices, once their words are side by side.
template <int M, int V> [[gnu::noinline]] __attribute__((target("i8mm"))) void tile_matrices(const Tile& t) {
  int32x4_t acc[M / 2][2 * V];
  for (auto& row : acc)
    for (int32x4_t& sum : row) sum = vdupq_n_s32(0);
  const char* a[M];
  for (int i = 0; i < M; i++) a[i] = t.a + i * t.a_rs;
  const int8_t* b = t.b;
  auto two = [](const char* row) { return vld1_s8(reinterpret_cast<const int8_t*>(row)); };
  auto one = [](const char* row) {
    uint32_t word;
    __builtin_memcpy(&word, row, 4);
    return vreinterpret_s8_u64(vcreate_u64(word));
  };
  auto step = [&](auto read, bool second) __attribute__((target("i8mm"))) {
    int8x16_t right[2 * V];
    for (int v = 0; v < V; v++) {
      const int32x4_t first = vreinterpretq_s32_s8(vld1q_s8(b + v * 16));
      const int32x4_t next = second ? vreinterpretq_s32_s8(vld1q_s8(b + (V + v) * 16)) : vdupq_n_s32(0);
      right[2 * v] = vreinterpretq_s8_s32(vzip1q_s32(first, next)), right[2 * v + 1] = vreinterpretq_s8_s32(vzip2q_s32(first, next));
    }
    for (int i = 0; i < M / 2; i++) {
      const int8x16_t left = vcombine_s8(read(a[2 * i]), read(a[2 * i + 1]));
      for (int c = 0; c < 2 * V; c++) acc[i][c] = vmmlaq_s32(acc[i][c], left, right[c]);
    }
  };
  isize k = t.steps;
  for (; k >= 2; k -= 2, b += 2 * V * 16) {
    step(two, true);
    for (int i = 0; i < M; i++) a[i] += 8;
  }
  if (k) step(one, false);
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) {
      const int64x2_t first = vreinterpretq_s64_s32(acc[i / 2][2 * v]), next = vreinterpretq_s64_s32(acc[i / 2][2 * v + 1]);
      const VI sums = (VI)vreinterpretq_s32_s64(i % 2 ? vzip2q_s64(first, next) : vzip1q_s64(first, next));
      store_i(t.out + (i * V + v) * W, t.start ? sums + load_i(t.start + v * W) : sums);
    }
}
#else
constexpr bool by_matrices() { return false; }
template <int M, int V> void tile_matrices(const Tile&) {}
#endif

}  // namespace qgemm
