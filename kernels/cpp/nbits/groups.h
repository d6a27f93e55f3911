// Rows of weights in blocks by groups, a row for each lane: a word of the codes of one beside those of the next ones, and so elements of
// scales and of shifts, for machines that sum products of four bytes in each lane (relaxed SIMD, VNNI,
// Arm's dot products). What is left of rows stays as it was.
#pragma once
#include "nbits/weights.h"

namespace nbits {

#if defined(PWX_GROUPS)
constexpr isize TOGETHER = W;  // rows of a group
#else
constexpr isize TOGETHER = 4;
#endif

inline isize width_of(int32_t dtype) { return dtype == F16 ? 2 : dtype == U8 ? 1 : 4; }

// What is wrong with `count` elements to each row of w, `words` of them codes, of which y takes some.
PWX_SMALL inline const char* wrong_rows(const Buf& w, const Buf& y, i64 count, bool words) {
  if (w.dtype != U32 && w.dtype != F32 && w.dtype != F16 && w.dtype != U8) return "rows are uint32, float32, float16 or uint8";
  if (y.dtype != w.dtype) return "w and y must have one type";
  if (words && w.dtype != U32 && (w.dtype != U8 || count % 4)) return "words of codes have four bytes";
  return nullptr;
}

#if defined(PWX_GROUPS)

// Whether codes are taken less 128: those of 8 bits where bytes are signed.
inline bool flips(isize bits) { return bits == 8 && qgemm::quads() == qgemm::Quads::SIGNED; }
inline void flip(char* codes, isize n) {
  for (isize i = 0; i < n; i++) codes[i] = char(codes[i] ^ char(0x80));
}

// gemm::copy_matrix of elements of 4, 2 or 1 bytes. Those of 4 travel as floats: they are copied alone.
inline void copy_elements(isize width, const char* src, isize rs, isize cs, char* dst, isize dst_rs, isize rows, isize columns) {
  if (width == 4)
    return gemm::copy_matrix(reinterpret_cast<const float*>(src), rs, cs, reinterpret_cast<float*>(dst), dst_rs, rows, columns);
  auto go = [&]<class T>(T) {
    const T* from = reinterpret_cast<const T*>(src);
    T* to = reinterpret_cast<T*>(dst);
    for (isize r = 0; r < rows; r++)
      for (isize c = 0; c < columns; c++) to[r * dst_rs + c] = from[r * rs + c * cs];
  };
  if (width == 2) go(uint16_t());
  else go(uint8_t());
}

// Up to TOGETHER rows of `count` elements as a group, in which nothing stands for those that there are none of; a group as rows; one of them.
inline void interleave(const char* from, isize width, isize rows, isize count, char* out) {
  copy_elements(width, from, 1, count, out, TOGETHER, count, rows);
}
inline void separate(const char* group, isize width, isize count, char* out) {
  copy_elements(width, group, 1, TOGETHER, out, count, TOGETHER, count);
}
inline void pick(const char* group, isize width, isize which, isize count, char* out) {
  copy_elements(width, group + which * width, 0, TOGETHER, out, 0, 1, count);
}

// Numbers of block b, one of each row, out of a group's.
inline VF numbers(const char* from, int32_t dtype, isize b, const Halves& wide = Halves()) {
  if (dtype == F32) return load(reinterpret_cast<const float*>(from) + b * TOGETHER);
  if (dtype == F16) return wide(reinterpret_cast<const uint16_t*>(from) + b * TOGETHER);
  typedef uint8_t Bytes __attribute__((ext_vector_type(TOGETHER)));
  Bytes bytes;
  __builtin_memcpy(&bytes, from + b * TOGETHER, sizeof bytes);
  return __builtin_convertvector(bytes, VF);
}

// Rows [TOGETHER i, TOGETHER (i + 1)) of weights as a group.
struct Group {
  const char *codes, *scales, *shifts;

  // Bytes in which one is put together, of `count` blocks.
  static Size bytes(i64 count, i64 bits, i64 block) {
    return grouped(bits, block) ? Size(count) * (block / 8 * bits * TOGETHER) + round_up(Size(count) * 8 * TOGETHER, 64) : Size(0);
  }

  Group() = default;
  // Where it lies, whole, in packed weights; set in its place, as a copy would wait for what has just been stored.
  void find(const Weights& w, isize i) {
    auto part = [&](const Buf& from) -> const char* {
      return from ? static_cast<const char*>(from.data) + i * TOGETHER * w.count * width_of(from.dtype) : nullptr;
    };
    codes = reinterpret_cast<const char*>(w.codes) + i * TOGETHER * w.row;
    scales = part(w.scales), shifts = part(w.shifts);
  }
  // The same, or put together in `memory`.
  Group(const Weights& w, isize i, char* memory) {
    const isize j = i * TOGETHER, rows = least(TOGETHER, w.n - j);
    auto part = [&](const Buf& from, isize& taken) -> const char* {
      if (!from) return nullptr;
      const isize width = width_of(from.dtype);
      const char* at = static_cast<const char*>(from.data) + j * w.count * width;
      if (whole(w, rows)) return at;
      char* to = memory + taken;
      taken += w.count * TOGETHER * 4;
      interleave(at, width, rows, w.count, to);
      return to;
    };
    isize taken = w.row * TOGETHER;
    const char* from = reinterpret_cast<const char*>(w.codes) + j * w.row;
    codes = whole(w, rows) ? from : memory;
    if (!whole(w, rows)) {
      interleave(from, 4, rows, w.row / 4, memory);
      if (flips(w.bits)) flip(memory, taken);
    }
    scales = part(w.scales, taken), shifts = part(w.shifts, taken);
  }
  static bool whole(const Weights& w, isize rows) { return w.packed && rows == TOGETHER; }

  VF scale(const Weights& w, isize b, const Halves& wide = Halves()) const { return numbers(scales, w.scales.dtype, b, wide); }
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
      if (rows == TOGETHER) separate(at, width, from.count, memory + taken);
      taken += from.count * TOGETHER * 4;
    };
    isize taken = from.row * TOGETHER;
    const uint8_t* codes = from.codes + j * from.row;
    if (rows < TOGETHER) w.codes = codes;
    else separate(reinterpret_cast<const char*>(codes), 4, from.row / 4, memory);
    if (rows == TOGETHER && flips(from.bits)) flip(memory, taken);
    part(scales, taken), part(shifts, taken);
  }
};

#endif

}  // namespace nbits
