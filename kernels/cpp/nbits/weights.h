// Weights [n, k] that are smaller than float32, each row along k: codes of 2, 4 or 8 bits in blocks, or halves.
// Codes: row j is `count` blocks of `block` codes, low bits of a byte first, the last block filled up. The weight is
// code * scale[j, i] - offset(j, i) in block i; scales are float32 or float16. The offset is shift[j, i] (float32 or float16),
// scale[j, i] * shift[j, i] where the shift is a code (uint8), and without shift scale[j, i] times the middle code.
// Halves: float16 or bfloat16, row by row, without scales.
// Packed: as `pack_blocks` leaves rows, codes, scales and shifts alike (nbits/groups.h).
#pragma once
#include "gemm.h"
#include "half.h"
#include "params.h"
#if defined(__wasm_relaxed_simd__) || defined(__AVX2__) || defined(__aarch64__)
#define PWX_GROUPS
#include "qgemm/tile.h"
#endif

namespace nbits {

using gemm::least;

constexpr isize LANES = 16;  // codes of a plane: those of 16 bytes that lie at the same bits

inline i64 blocks(const MatmulNbitsParams& p) { return (p.k + p.block - 1) / p.block; }

// Whether sums of two products of bytes are all that one instruction gives, in 16 bits, and saturate there.
#if defined(PWX_GROUPS)
#if defined(__aarch64__)
constexpr bool in_pairs() { return false; }
#else
#define PWX_PAIRS
inline bool in_pairs() { return qgemm::quads() == (W > 4 ? qgemm::Quads::NONE : qgemm::Quads::SATURATING); }
#endif

// Whether this machine reads rows by groups: one instruction adds products of bytes, and where two of them saturate, codes of 4 bits are
// small enough for it (those of 8 are widened, nbits/shorts.h); sums of a block stay below 2^31.
inline bool grouped(i64 bits, i64 block) {
  if (block % 16 || (W == 4 && qgemm::quads() == qgemm::Quads::NONE)) return false;
  return bits == 4 ? block <= 512 : bits == 8 && block <= 256;
}
#else
constexpr bool grouped(i64, i64) { return false; }
#endif

typedef uint16_t VH __attribute__((ext_vector_type(W)));

inline VI words_of(const uint16_t* p) {
  VH h;
  __builtin_memcpy(&h, p, sizeof h);
  return __builtin_convertvector(h, VI);
}
inline VF brains(const uint16_t* p) { return as_f(words_of(p) << splat_i(16)); }

// Widens W numbers of float16. Loops keep one: V8 puts constants together from four instructions at each use.
struct Halves {
#if defined(__AVX512F__)
  VF operator()(const uint16_t* p) const { return (VF)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
#elif defined(__AVX2__)
  VF operator()(const uint16_t* p) const { return (VF)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
#else
  VI in_place = kept(0x8fffe000), exponent = kept(0x7c00), infinite = kept(0x7f800000);
  VF factor = as_f(kept(0x77800000));  // 2^112

  VF operator()(const uint16_t* p) const {
    typedef int16_t Signed __attribute__((ext_vector_type(W)));
    Signed h;
    __builtin_memcpy(&h, p, sizeof h);
    const VI v = __builtin_convertvector(h, VI);
    const VI wide = as_i(as_f((v << splat_i(13)) & in_place) * factor);
    return as_f(wide | ((VI)((v & exponent) == exponent) & infinite));
  }

 private:
  static VI kept(uint32_t bits) {
#if defined(__wasm__)
    asm("" : "+r"(bits));
#endif
    return splat_i(int32_t(bits));
  }
#endif
};
inline VF halves(const uint16_t* p) { return Halves()(p); }

inline void widen(const uint16_t* from, bool brain, float* out, isize n) {
  isize i = 0;
  const Halves wide;
  for (; i + W <= n; i += W) store(out + i, brain ? brains(from + i) : wide(from + i));
  for (; i < n; i++) out[i] = brain ? bf16_to_float(from[i]) : half_to_float(from[i]);
}

struct Weights {
  const uint8_t* codes;
  const Buf &scales, &shifts;
  int32_t dtype;                     // of halves; U32 for codes
  isize n, bits, block, count, row;  // count: blocks of a row; row: its bytes
  bool packed;

  Weights(const MatmulNbitsParams& p, const MatmulNbitsBufs& b)
      : codes(b.b.as<uint8_t>()), scales(b.scale), shifts(b.shift), dtype(b.b.dtype), n(proven(p.n)), bits(proven(p.bits)),
        block(proven(p.block)), count(proven(blocks(p))), row(bits == 16 ? proven(p.k) * 2 : count * block * bits / 8),
        packed(p.packed && grouped(p.bits, p.block)) {}
  Weights(const Weights& from, const uint8_t* given, const Buf& scale, const Buf& shift)
      : codes(given), scales(scale), shifts(shift), dtype(from.dtype), n(from.n), bits(from.bits), block(from.block), count(from.count),
        row(from.row), packed(false) {}

  const uint16_t* half(isize j) const { return reinterpret_cast<const uint16_t*>(codes + j * row); }
  int code(isize j, isize k) const { return codes[j * row + k * bits / 8] >> k * bits % 8 & ((1 << bits) - 1); }

  // The code that stands for 0 in block i of row j; 0 where an offset says more than a code can.
  int zero(isize j, isize i) const {
    return shifts.dtype == U8 ? shifts.as<uint8_t>()[j * count + i] : shifts ? 0 : 1 << (bits - 1);
  }
  bool zeros() const { return !shifts || shifts.dtype == U8; }

  // Whether blocks are of whole chunks: of the codes of 16 bytes.
  bool chunked() const { return bits < 16 && block % (LANES * (8 / bits)) == 0; }

  // Scales and offsets of blocks [from, from + n) of row j.
  void read(isize j, isize from, isize n, float* scale, float* offset) const {
    const isize at = j * count + from;
    if (scales.dtype == F16) widen(scales.as<uint16_t>() + at, false, scale, n);
    else gemm::copy_floats(scales.as<float>() + at, scale, n);
    if (shifts.dtype == F32) gemm::copy_floats(shifts.as<float>() + at, offset, n);
    else if (shifts.dtype == F16) widen(shifts.as<uint16_t>() + at, false, offset, n);
    else if (shifts.dtype == U8) for (isize i = 0; i < n; i++) offset[i] = scale[i] * float(shifts.as<uint8_t>()[at + i]);
    else for (isize i = 0; i < n; i++) offset[i] = scale[i] * float(1 << (bits - 1));
  }
};

}  // namespace nbits
