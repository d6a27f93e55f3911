// Bytes by a table of 256 others.
#include "params.h"
#include "qgemm/check.h"
#include "qgemm/tile.h"

namespace {

struct Args {
  const QlookupParams& p;
  const QlookupBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const QlookupParams*>(call.params)), b(*reinterpret_cast<const QlookupBufs*>(call.bufs)) {}
};

constexpr i64 CODES = 256;

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  if (!qgemm::is_byte(b.x.dtype) || !qgemm::is_byte(b.y.dtype) || b.table.dtype != b.y.dtype) return "operands and results must be int8 or uint8";
  if (b.table.count() < CODES) return "the table is too short";
  if (p.n < 0 || p.n > b.x.count() || p.n > b.y.count()) return "an operand does not fit its buffer";
  proof.operations = Size(p.n);
  proof.writes(0, {0, p.n});
  return nullptr;
}

#if defined(__aarch64__)
// `n` bytes, of whole vectors.
constexpr int LANES = 16;
void codes(const uint8_t* table, const uint8_t* x, i64 n, uint8_t* y) {
  uint8x16x4_t part[4];
  __builtin_memcpy(part, table, sizeof part);
  for (i64 i = 0; i < n; i += LANES) {
    const uint8x16_t v = vld1q_u8(x + i);
    uint8x16_t r = vqtbl4q_u8(part[0], v);  // 0 beyond its 64 entries
    for (int k = 1; k < 4; k++) r = vqtbx4q_u8(r, part[k], vsubq_u8(v, vdupq_n_u8(uint8_t(64 * k))));
    vst1q_u8(y + i, r);
  }
}
#else
#if defined(__AVX2__)
using Bytes = __m256i;
inline Bytes sixteen(const uint8_t* t) { return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(t))); }
inline Bytes pick(Bytes table, Bytes at) { return _mm256_shuffle_epi8(table, at); }
inline Bytes choose(Bytes mask, Bytes a, Bytes b) { return _mm256_blendv_epi8(b, a, mask); }
#elif defined(__wasm__)
using Bytes = v128_t;
inline Bytes sixteen(const uint8_t* t) { return wasm_v128_load(t); }
#if defined(__wasm_relaxed_simd__)
inline Bytes pick(Bytes table, Bytes at) { return wasm_i8x16_relaxed_swizzle(table, at); }
inline Bytes choose(Bytes mask, Bytes a, Bytes b) { return wasm_i8x16_relaxed_laneselect(a, b, mask); }
#else
inline Bytes pick(Bytes table, Bytes at) { return wasm_i8x16_swizzle(table, at); }
inline Bytes choose(Bytes mask, Bytes a, Bytes b) { return wasm_v128_bitselect(a, b, mask); }
#endif
#else
using Bytes = __m128i;
inline Bytes sixteen(const uint8_t* t) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(t)); }
inline Bytes pick(Bytes table, Bytes at) { return _mm_shuffle_epi8(table, at); }
inline Bytes choose(Bytes mask, Bytes a, Bytes b) { return _mm_blendv_epi8(b, a, mask); }
#endif
constexpr int LANES = sizeof(Bytes);
typedef uint8_t Lanes __attribute__((ext_vector_type(LANES)));

// Of 2^BITS times 16 entries from `first` on: of each 16 by the low four bits, between which the masks of as many others choose.
template <int BITS> [[gnu::always_inline]] inline Bytes among(const uint8_t* first, Bytes low, const Bytes* masks) {
  if constexpr (BITS == 0) return pick(sixteen(first), low);
  else
    return choose(masks[BITS - 1], among<BITS - 1>(first + (16 << (BITS - 1)), low, masks), among<BITS - 1>(first, low, masks));
}

#if defined(__AVX512F__)
bool has_vbmi() {
  unsigned a, b, c = 0, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & 2);
}
__attribute__((target("avx512vbmi"))) void wide_codes(const uint8_t* table, const uint8_t* x, i64 n, uint8_t* y) {
  __m512i part[4];
  __builtin_memcpy(part, table, sizeof part);
  auto of = [&](__m512i v) __attribute__((target("avx512vbmi"), always_inline)) {
    const __m512i low = _mm512_permutex2var_epi8(part[0], v, part[1]), high = _mm512_permutex2var_epi8(part[2], v, part[3]);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), low, high);
  };
  i64 i = 0;
  for (; i + 64 <= n; i += 64) _mm512_storeu_si512(y + i, of(_mm512_loadu_si512(x + i)));
  const __mmask64 rest = (uint64_t(1) << (n - i)) - 1;
  if (rest) _mm512_mask_storeu_epi8(y + i, rest, of(_mm512_maskz_loadu_epi8(rest, x + i)));
}
#endif

// `n` bytes, of whole vectors.
void codes(const uint8_t* table, const uint8_t* x, i64 n, uint8_t* y) {
#if defined(__AVX512F__)
  if (qgemm::probed<has_vbmi>()) return wide_codes(table, x, n, y);
#endif
  for (i64 i = 0; i < n; i += LANES) {
    Lanes v;
    __builtin_memcpy(&v, x + i, LANES);
    Bytes masks[4];
    for (int b = 0; b < 4; b++) masks[b] = (Bytes)((v & (Lanes)uint8_t(16 << b)) != (Lanes)uint8_t(0));
    const Bytes r = among<4>(table, (Bytes)(v & (Lanes)uint8_t(15)), masks);
    __builtin_memcpy(y + i, &r, LANES);
  }
}
#endif

void run(Call& call) {
  const auto [p, b] = Args(call);
  const uint8_t* x = b.x.as<uint8_t>();
  uint8_t *y = b.y.as<uint8_t>(), table[CODES];
  __builtin_memcpy(table, b.table.as<uint8_t>(), CODES);
  parallel_for(call.pool, p.n, 1 << 16, [&](i64 begin, i64 end, int) {
    const i64 whole = (end - begin) / LANES * LANES;
    codes(table, x + begin, whole, y + begin);
    for (i64 i = begin + whole; i < end; i++) y[i] = table[x[i]];
  });
}

}  // namespace

KERNEL(qlookup, check, no_scratch, run)
