// Rows of weights in blocks by fours: a word of the codes of one beside those of the next three, and so elements of scales and of shifts,
// for machines that sum products of four bytes in each lane (relaxed SIMD). What is left of rows stays as it was.
#pragma once
#include "nbits/weights.h"

namespace nbits {

constexpr isize TOGETHER = 4;  // rows of a group

inline isize width_of(int32_t dtype) { return dtype == F16 ? 2 : dtype == U8 ? 1 : 4; }

#if defined(__wasm_relaxed_simd__)

// What makes codes of 8 bits less 128 signed bytes, where they have to be.
inline uint8_t flips(isize bits) { return bits == 8 && qgemm::quads() == qgemm::Quads::SIGNED ? 128 : 0; }

// Elements of `width` bytes of up to four rows of `count`, to one of each by turns, the last row standing for those that there are none
// of; and back. Words of four bytes are flipped in each of these.
template <class T> inline void interleave(const T* from, isize rows, isize count, T flip, T* out) {
  for (isize i = 0; i < count; i++)
    for (isize c = 0; c < TOGETHER; c++) *out++ = from[least(c, rows - 1) * count + i] ^ flip;
}
template <class T> inline void separate(const T* from, isize count, T flip, T* out) {
  for (isize i = 0; i < count; i++)
    for (isize c = 0; c < TOGETHER; c++) out[c * count + i] = *from++ ^ flip;
}

inline void interleave(const char* from, isize width, isize rows, isize count, uint8_t flip, char* out) {
  auto go = [&]<class T>(T flips) { interleave(reinterpret_cast<const T*>(from), rows, count, flips, reinterpret_cast<T*>(out)); };
  if (width == 4) go(uint32_t(flip * 0x01010101u));
  else if (width == 2) go(uint16_t(0));
  else go(uint8_t(0));
}
// One row, of so many bytes, out of a group.
PWX_SMALL inline void pick(const char* group, isize width, isize which, isize row, uint8_t flip, char* out) {
  for (isize at = 0; at < row; at++) out[at] = char(group[at / width * TOGETHER * width + which * width + at % width] ^ char(flip));
}
PWX_SMALL inline void separate(const char* from, isize width, isize count, uint8_t flip, char* out) {
  auto go = [&]<class T>(T flips) { separate(reinterpret_cast<const T*>(from), count, flips, reinterpret_cast<T*>(out)); };
  if (width == 4) go(uint32_t(flip * 0x01010101u));
  else if (width == 2) go(uint16_t(0));
  else go(uint8_t(0));
}

inline void transpose(VF (&v)[4]) {
  const VF ab0 = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5), ab1 = __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
  const VF cd0 = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5), cd1 = __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
  v[0] = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5), v[1] = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
  v[2] = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5), v[3] = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
}

// The same of rows of codes, whose bytes are a multiple of 16.
[[gnu::noinline]] inline void interleave_codes(const uint8_t* from, isize rows, isize row, uint8_t flip, v128_t* out) {
  const v128_t flipped = wasm_i8x16_splat(int8_t(flip));
  for (isize at = 0; at < row; at += 16, out += 4) {
    VF words[4];
    for (isize c = 0; c < TOGETHER; c++) words[c] = load(reinterpret_cast<const float*>(from + least(c, rows - 1) * row + at));
    transpose(words);
    for (int word = 0; word < 4; word++) out[word] = (v128_t)words[word] ^ flipped;
  }
}

// Four numbers of block b, one of each row, out of a group's.
inline VF numbers(const char* from, int32_t dtype, isize b) {
  if (dtype == F32) return load(reinterpret_cast<const float*>(from) + b * TOGETHER);
  if (dtype == F16) return halves(reinterpret_cast<const uint16_t*>(from) + b * TOGETHER);
  typedef uint8_t Four __attribute__((ext_vector_type(4)));
  Four four;
  __builtin_memcpy(&four, from + b * TOGETHER, sizeof four);
  return __builtin_convertvector(four, VF);
}

// Rows [4 i, 4 i + 4) of weights as a group.
struct Group {
  const v128_t* codes;
  const char *scales, *shifts;

  // Bytes in which one is put together.
  static Size bytes(const MatmulNbitsParams& p) {
    if (!grouped(p.bits, p.block)) return 0;
    return Size(blocks(p)) * (p.block / 8 * p.bits * TOGETHER) + round_up(Size(blocks(p)) * 8 * TOGETHER, 64);
  }

  Group() = default;
  // Where it lies, or put together in `memory`.
  Group(const Weights& w, isize i, char* memory) {
    const isize j = i * TOGETHER, rows = least(TOGETHER, w.n - j);
    auto part = [&](const Buf& from, isize& taken) -> const char* {
      if (!from) return nullptr;
      const isize width = width_of(from.dtype);
      const char* at = static_cast<const char*>(from.data) + j * w.count * width;
      if (whole(w, rows)) return at;
      char* to = memory + taken;
      taken += w.count * TOGETHER * 4;
      interleave(at, width, rows, w.count, 0, to);
      return to;
    };
    isize taken = w.row * TOGETHER;
    const uint8_t* from = w.codes + j * w.row;
    codes = reinterpret_cast<const v128_t*>(from);
    if (!whole(w, rows)) {
      w.touch(j, j + rows);
      interleave_codes(from, rows, w.row, flips(w.bits), reinterpret_cast<v128_t*>(memory));
      codes = reinterpret_cast<const v128_t*>(memory);
    }
    scales = part(w.scales, taken), shifts = part(w.shifts, taken);
  }
  static bool whole(const Weights& w, isize rows) { return w.packed && rows == TOGETHER; }

  VF scale(const Weights& w, isize b) const { return numbers(scales, w.scales.dtype, b); }
  // What is taken off codes times their scale.
  VF offset(const Weights& w, isize b) const {
    if (!w.shifts) return scale(w, b) * splat(float(1 << (w.bits - 1)));
    const VF shift = numbers(shifts, w.shifts.dtype, b);
    return w.shifts.dtype == U8 ? shift * scale(w, b) : shift;
  }
};

// The rows of a group of packed weights as they were.
struct Natural {
  Buf scales, shifts;
  Weights w;

  PWX_SMALL Natural(const Weights& from, isize i, char* memory)
      : scales(from.scales), shifts(from.shifts), w(from, reinterpret_cast<uint8_t*>(memory), scales, shifts) {
    const isize j = i * TOGETHER, rows = least(TOGETHER, from.n - j);
    auto part = [&](Buf& buf, isize& taken) {
      if (!buf) return;
      const isize width = width_of(buf.dtype);
      char* at = static_cast<char*>(buf.data) + j * from.count * width;
      buf.data = rows == TOGETHER ? memory + taken : at;
      if (rows == TOGETHER) separate(at, width, from.count, 0, memory + taken);
      taken += from.count * TOGETHER * 4;
    };
    isize taken = from.row * TOGETHER;
    const uint8_t* codes = from.codes + j * from.row;
    if (rows == TOGETHER) separate(reinterpret_cast<const char*>(codes), 4, from.row / 4, flips(from.bits), memory);
    else w.codes = codes;
    part(scales, taken), part(shifts, taken);
  }
};

#endif

}  // namespace nbits
