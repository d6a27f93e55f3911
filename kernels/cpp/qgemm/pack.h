// Packs rows of a and panels of b.
#pragma once
#include "qgemm/product.h"

namespace qgemm {

// Packs rows [i0, i1) of a.
inline void pack_rows(const Product& p, const Layout& s, isize i0, isize i1, char* out) {
  for (isize i = i0; i < i1; i++, out += s.a_rs) {
    const uint8_t* a = p.a + i * p.a_rs;
    if (s.unit == 4) {
      const uint8_t flip = p.a_signed == (s.kind == Quads::SIGNED) ? 0 : 0x80;
      uint8_t* d = reinterpret_cast<uint8_t*>(out);
      if (p.a_cs == 1)
        for (isize k = 0; k < p.k; k++) d[k] = a[k] ^ flip;
      else
        for (isize k = 0; k < p.k; k++) d[k] = a[k * p.a_cs] ^ flip;
      for (isize k = p.k; k < s.depth; k++) d[k] = 0;
      continue;
    }
    int16_t* d = reinterpret_cast<int16_t*>(out);
    const int16_t z = int16_t(p.zero_a(i));
    auto widen = [&]<class T>(const T* from) {
      if (p.a_cs == 1)
        for (isize k = 0; k < p.k; k++) d[k] = int16_t(from[k] - z);
      else
        for (isize k = 0; k < p.k; k++) d[k] = int16_t(from[k * p.a_cs] - z);
    };
    if (p.a_signed) widen(reinterpret_cast<const int8_t*>(a));
    else widen(a);
    for (isize k = p.k; k < s.depth; k++) d[k] = 0;
  }
}

struct Rows {
  const char* at;
  isize step;
};

// Sums of packed rows [i0, i1) less their zero points.
[[gnu::noinline]] inline void sum_rows(const Product& p, const Layout& s, const Rows& rows, isize i0, isize i1, i32* sums) {
  auto sum = [&]<class T>(const T* row) {
    i32 total = 0;
    for (isize k = 0; k < s.depth; k++) total += row[k];
    return total;
  };
  for (isize i = i0; i < i1; i++) {
    const char* row = rows.at + (i - i0) * rows.step;
    const i32 zeros = s.unit == 4 ? i32(p.k) * (p.zero_a(i) + p.shift_a(s.kind)) : 0;
    *sums++ = (s.unit == 2                ? sum(reinterpret_cast<const int16_t*>(row))
               : s.kind == Quads::SIGNED ? sum(reinterpret_cast<const int8_t*>(row))
                                         : sum(reinterpret_cast<const uint8_t*>(row))) -
              zeros;
  }
}

typedef uint8_t B4 __attribute__((ext_vector_type(4)));
typedef uint8_t B8 __attribute__((ext_vector_type(8)));
typedef uint8_t B16 __attribute__((ext_vector_type(16)));
template <class V> inline V load_bytes(const uint8_t* p) { V v; __builtin_memcpy(&v, p, sizeof v); return v; }
template <class V> inline void store_bytes(uint8_t* p, V v) { __builtin_memcpy(p, &v, sizeof v); }

// Packs `columns` columns of a strided matrix: one panel of round_up(columns, W) columns, [k / unit, width, unit].
inline void pack_panel(const uint8_t* b, isize rs, isize cs, isize k, isize columns, isize width, isize unit, uint8_t flip, uint8_t* out) {
  const isize steps = (k + unit - 1) / unit, whole = k / unit;
  if (columns < width || whole < steps) __builtin_memset(out, 0, size_t(steps * width * unit));
  if (cs == 1) {
    for (isize step = 0; step < steps; step++, out += width * unit) {
      const uint8_t* row = b + step * unit * rs;
      const isize rows = least(unit, k - step * unit);
      isize j = 0;
      if (rows == 2 && unit == 2)
        for (; j + 4 <= columns; j += 4) {
          const B4 r0 = load_bytes<B4>(row + j) ^ (B4)flip, r1 = load_bytes<B4>(row + rs + j) ^ (B4)flip;
          store_bytes(out + j * 2, __builtin_shufflevector(r0, r1, 0, 4, 1, 5, 2, 6, 3, 7));
        }
      if (rows == 4)
        for (; j + 16 <= columns; j += 16) {
          const B16 f = (B16)flip, r0 = load_bytes<B16>(row + j) ^ f, r1 = load_bytes<B16>(row + rs + j) ^ f;
          const B16 r2 = load_bytes<B16>(row + 2 * rs + j) ^ f, r3 = load_bytes<B16>(row + 3 * rs + j) ^ f;
          const B16 lo0 = __builtin_shufflevector(r0, r1, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
          const B16 lo1 = __builtin_shufflevector(r2, r3, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
          const B16 hi0 = __builtin_shufflevector(r0, r1, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
          const B16 hi1 = __builtin_shufflevector(r2, r3, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
          uint8_t* d = out + j * 4;
          store_bytes(d, __builtin_shufflevector(lo0, lo1, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23));
          store_bytes(d + 16, __builtin_shufflevector(lo0, lo1, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31));
          store_bytes(d + 32, __builtin_shufflevector(hi0, hi1, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23));
          store_bytes(d + 48, __builtin_shufflevector(hi0, hi1, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31));
        }
      if (rows == 4)
        for (; j + 4 <= columns; j += 4) {
          B16 four;
          for (isize r = 0; r < 4; r++) __builtin_memcpy(reinterpret_cast<char*>(&four) + 4 * r, row + r * rs + j, 4);
          four ^= (B16)flip;
          store_bytes(out + j * 4, __builtin_shufflevector(four, four, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
        }
      for (; j < columns; j++)
        for (isize r = 0; r < rows; r++) out[j * unit + r] = row[r * rs + j] ^ flip;
    }
    return;
  }
  for (isize j = 0; j < columns; j++) {
    const uint8_t* column = b + j * cs;
    uint8_t* d = out + j * unit;
    isize step = 0;
    if (rs == 1 && unit == 2)
      for (; step < whole; step++, d += width * 2) {
        d[0] = column[step * 2] ^ flip;
        d[1] = column[step * 2 + 1] ^ flip;
      }
    else if (rs == 1)
      for (; step < whole; step++, d += width * 4) {
        uint32_t quad;
        __builtin_memcpy(&quad, column + step * 4, 4);
        quad ^= flip * 0x01010101u;
        __builtin_memcpy(d, &quad, 4);
      }
    for (isize at = step * unit; at < k; at++) {
      d[at % unit] = column[at * rs] ^ flip;
      if (at % unit == unit - 1) d += width * unit;
    }
  }
}

// The products of a batch, and how their operands are packed: a matrix by a matrix, unless a kernel has it otherwise. `memory` is what
// it asked `run` for.
struct Operands {
  Product size;
  explicit Operands(const Product& size) : size(size) {}

  virtual Product at(i64) const { return size; }
  // Packs rows of `a`, or has them read where they lie if that is how the machine multiplies them.
  virtual Rows rows(const Product& p, const Layout& s, isize i0, isize i1, char* out, char*) const {
    const bool as_it_is = s.unit == 4 && p.k % 4 == 0 && p.a_cs == 1 && p.a_signed == (s.kind == Quads::SIGNED);
    if (as_it_is) return {reinterpret_cast<const char*>(p.a + i0 * p.a_rs), p.a_rs};
    pack_rows(p, s, i0, i1, out);
    return {out, s.a_rs};
  }
  // Packs columns of `b` that were not packed before.
  virtual void panel(const Product& p, isize j, isize columns, isize width, isize unit, uint8_t* out, char*) const {
    pack_panel(p.b + j * p.b_cs, p.b_rs, p.b_cs, p.k, columns, width, unit, p.b_signed ? 0 : 0x80, out);
  }
};

}  // namespace qgemm
