// Few rows of a against weights that are unpacked as they are read, once for all rows. Products with codes are sums of floats, or, where a
// may be rounded, exact sums of integers: each block of a as int16 in units of its largest magnitude / MOST.
#pragma once
#include "nbits/columns.h"
#include "nbits/job.h"
#include "nbits/nibbles.h"
#include "nbits/quads.h"
#include "nbits/take.h"
#include "qgemm/tile.h"

namespace nbits {

#if defined(__AVX2__) && !defined(__AVX512F__)
constexpr isize PADDED = STEP;  // numbers behind a row, at most, for the last step of nibbles
#else
constexpr isize PADDED = 0;
#endif

// 32 codes times int16: lanes of sums.
#if defined(__wasm__) || (defined(__x86_64__) && !defined(__AVX2__))
#define PWX_WORDS
typedef VI Sums;
inline Sums pairs_dot(Sums s, qgemm::Pairs codes, const int16_t* a) {
  qgemm::Pairs numbers;
  __builtin_memcpy(&numbers, a, sizeof numbers);
  return qgemm::dot(s, codes, numbers);
}
// Codes of 4 bits: four of each word of 16 bits, which masks and shifts take out. a: every fourth number, from the first on, from the
// second on, and so forth.
struct Words {
  typedef uint16_t Vector __attribute__((ext_vector_type(8)));
  Vector each[4];
  static Vector mask() {
#if defined(__wasm__)  // V8 puts a constant vector together from four instructions: the mask comes from memory
    static const uint16_t low = 15;
    const uint16_t* at = &low;
    asm("" : "+r"(at));
    return (Vector)wasm_v128_load16_splat(at);
#else
    return (Vector)uint16_t(15);
#endif
  }
  Words(VB16 bytes, Vector mask) {
    const Vector v = (Vector)bytes;
    each[0] = v & mask, each[1] = v >> 4 & mask, each[2] = v >> 8 & mask, each[3] = v >> 12;
  }
};
inline Sums dot(Sums s, const Words& codes, const int16_t* a) {
  for (int n = 0; n < 4; n++) s = pairs_dot(s, (qgemm::Pairs)codes.each[n], a + 8 * n);
  return s;
}
constexpr isize word_lanes(isize bits) { return bits == 4 ? 8 : LANES; }
#if defined(__wasm__)
inline qgemm::Pairs first_eight(VB16 v) { return wasm_u16x8_extend_low_u8x16((v128_t)v); }
inline qgemm::Pairs last_eight(VB16 v) { return wasm_u16x8_extend_high_u8x16((v128_t)v); }
#else
inline qgemm::Pairs first_eight(VB16 v) { return _mm_unpacklo_epi8((__m128i)v, _mm_setzero_si128()); }
inline qgemm::Pairs last_eight(VB16 v) { return _mm_unpackhi_epi8((__m128i)v, _mm_setzero_si128()); }
#endif
inline Sums dot(Sums s, VB16 low, VB16 high, const int16_t* a) {
  s = pairs_dot(s, first_eight(low), a);
  s = pairs_dot(s, last_eight(low), a + 8);
  s = pairs_dot(s, first_eight(high), a + 16);
  return pairs_dot(s, last_eight(high), a + 24);
}
#elif defined(__AVX512F__)
typedef VI Sums;
inline Sums dot(Sums s, VB16 low, VB16 high, const int16_t* a) {
  const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)low), (__m128i)high, 1);
  return s + (VI)_mm512_madd_epi16(_mm512_cvtepu8_epi16(both), _mm512_loadu_si512(a));
}
#elif defined(__AVX2__)
typedef VI Sums;
inline Sums dot(Sums s, VB16 low, VB16 high, const int16_t* a) {
  auto half = [&](VB16 codes, int at) {
    return (VI)_mm256_madd_epi16(_mm256_cvtepu8_epi16((__m128i)codes), _mm256_loadu_si256((const __m256i*)(a + at)));
  };
  s += half(low, 0);
  return s + half(high, 16);
}
#else
typedef int32_t Sums __attribute__((ext_vector_type(16)));
typedef int16_t VS16 __attribute__((ext_vector_type(16)));
inline Sums dot(Sums s, VB16 low, VB16 high, const int16_t* a) {
  VS16 l, h;
  __builtin_memcpy(&l, a, sizeof l);
  __builtin_memcpy(&h, a + 16, sizeof h);
  s += __builtin_convertvector(low, Sums) * __builtin_convertvector(l, Sums);
  return s + __builtin_convertvector(high, Sums) * __builtin_convertvector(h, Sums);
}
#endif
#if !defined(PWX_WORDS)
constexpr isize word_lanes(isize) { return LANES; }
#endif
constexpr int SUMS = sizeof(Sums) / 4;
typedef float Floats __attribute__((ext_vector_type(SUMS)));

template <class V> inline float total_of(V v) {
  constexpr int N = sizeof(V) / 4;
  float lanes[N];
  __builtin_memcpy(lanes, &v, sizeof v);
  for (int n = N / 2; n; n /= 2)
    for (int l = 0; l < n; l++) lanes[l] += lanes[l + n];
  return lanes[0];
}

// Rows of a, unpacked the way codes are: chunks of 16 bytes' codes, in planes of 16; zeros behind the last. And their sums by block.
// As floats, or as int16 in units of `unit[i, b]`, in which the sums are then as well.
struct Unpacked {
  float *rows, *sums, *unit;
  float* spread = nullptr;
  int16_t* rounded;
  float *scale, *offset, *factor;  // of a thread: scales, offsets, and scale * unit for each row, of the column at hand
  isize depth, count;
  // nibbles: `rounded` is of `spread_nibbles`; quads: the integers of `split_row`, where the floats of `rows` were; looked_up: the floats
  // of `spread_row`.
  // split: `rounded` is the upper half of each number, `lower` the other (codes of 4 bits alone); digits: both are of `spread_digits`, or,
  // where it is 1, `rounded` is numbers as they are; `begin` is of `begin_sums` or `begin_shorts`.
  int16_t* lower = nullptr;
  int32_t* begin = nullptr;
  bool integers = false, split = false, nibbles = false, quads = false, looked_up = false;
  int digits = 0;

  Unpacked(char* memory, const Weights& w) : depth(w.count * w.block), count(w.count) {
    rows = reinterpret_cast<float*>(memory), sums = rows + FEW * depth, unit = sums + FEW * count;
    rounded = reinterpret_cast<int16_t*>(unit + FEW * count);
    lower = rounded + FEW * (depth + PADDED);
    begin = reinterpret_cast<int32_t*>(lower + FEW * depth);
#if defined(__AVX512F__)
    spread = reinterpret_cast<float*>(begin + (grouped(w.bits, w.block) ? FEW * 3 * count : 0));
#endif
  }
  static Size bytes(const MatmulNbitsParams& p) {
    Size each = Size(blocks(p)) * p.block * FEW * 6 + Size(blocks(p)) * 2 * FEW * 4;
#if defined(__AVX512F__)
    each = each + (Size(blocks(p)) * p.block + STEP * 4) * FEW * 4;
#endif
    each = each + (Size(blocks(p)) * p.block + PADDED) * FEW * 2 + Size(blocks(p)) * (grouped(p.bits, p.block) ? FEW * 3 * 4 : 0);
    return round_up(each, 64);
  }

  // The same with memory for what is a thread's own.
  Unpacked with(char* memory) const {
    Unpacked u = *this;
    u.scale = reinterpret_cast<float*>(memory), u.offset = u.scale + count, u.factor = u.offset + count;
    return u;
  }
  static Size own_bytes(const MatmulNbitsParams& p) { return round_up(Size(blocks(p)) * (FEW + 2) * 4, 64); }

  // Whether sums of integers are as good as those of floats, and not slower.
  static bool exactly(const Weights& w) { return W == 4 || w.packed; }
  // Whether rows are taken as digits: where weights are packed, or put together quickly.
  static bool in_digits(const Weights& w) { return W > 4 ? w.packed : grouped(w.bits, w.block); }

  void take(const Weights& w, const float* a, isize a_rs, isize m, isize k, bool may_round) {
    // Sums of codes below 2^8 times 2^15 stay below 2^31 in every lane.
    const bool fits = (w.block % 32 == 0 || in_digits(w)) && w.block <= 512;
    integers = (may_round || (w.bits == 4 && exactly(w))) && fits && round_rows(w, a, a_rs, m, k, !may_round);
    if (!integers && w.chunked())
      for (isize i = 0; i < m; i++) unpack_row(a + i * a_rs, k, 8 / w.bits, i, w.block);
#if defined(__AVX512F__)
    quads = integers && !digits && quads_fit(w);
    if (quads)
      for (isize i = 0; i < m; i++) split_row(rounded + i * depth, reinterpret_cast<int8_t*>(rows + i * depth), w.row, 8 / w.bits);
    looked_up = !integers && !w.packed && w.chunked() && lookup_fits(w);
    if (looked_up)
      for (isize i = 0; i < m; i++) spread_row(a + i * a_rs, k, spread + i * spread_length(depth), w.row, 4 * (8 / w.bits));
#endif
  }

  void unpack_row(const float* a, isize k, isize planes, isize i, isize block) {
    float* out = rows + i * depth;
    for (isize at = 0; at < depth; at += LANES * planes, out += LANES * planes)
      for (isize t = 0; t < planes; t++)
        for (isize l = 0; l < LANES; l++) {
          const isize from = at + l * planes + t;
          out[t * LANES + l] = from < k ? a[from] : 0;
        }
    for (isize b = 0; b < count; b++) {
      VF sum = splat(0);
      for (isize at = 0; at < block; at += W) sum += load(rows + i * depth + b * block + at);
      sums[i * count + b] = sum_lanes(sum), unit[i * count + b] = 1;
    }
  }

  // False where a number is not finite, or a block too small to be scaled.
  bool round_rows(const Weights& w, const float* a, isize a_rs, isize m, isize k, bool halves) {
    int16_t *natural = reinterpret_cast<int16_t*>(rows), *rest = natural + m * depth;
    const bool by_digits = in_digits(w);
    for (isize i = 0; i < m; i++) {
      int16_t* out = natural + i * depth;
      float *units = unit + i * count, *totals = sums + i * count;
      if (halves ? !split_row(w, a + i * a_rs, k, by_digits, out, rest + i * depth, units, totals) : !round_row(w, a + i * a_rs, k, out, units, totals))
        return false;
    }
    split = halves;
    const isize planes = 8 / w.bits;
#if defined(__AVX2__) && !defined(__AVX512F__)
    nibbles = !by_digits && nibbles_fit(w);
    if (nibbles) {
      for (isize i = 0; i < m; i++) spread_nibbles(natural + i * depth, depth, rounded + i * nibbles_length(depth));
      return true;
    }
#endif
#if defined(PWX_GROUPS)
#if defined(PWX_PAIRS)
    if (by_digits && w.bits == 8 && in_pairs()) {
      digits = 1;
      __builtin_memcpy(rounded, natural, size_t(m * depth * 2));
      for (isize i = 0; i < m; i++) begin_shorts(natural + i * depth, count, w.block, w.shifts ? 0 : 128, begin + i * count);
      return true;
    }
#endif
    digits = by_digits ? split ? 3 : 2 : 0;
    if (digits) {
      const int zero = (w.shifts ? 0 : 1 << (w.bits - 1)) - (flips(w.bits) ? 128 : 0);
      int8_t* to = reinterpret_cast<int8_t*>(rounded);
      for (isize i = 0; i < m; i++, to += depth * digits) {
        spread_digits(natural + i * depth, split ? rest + i * depth : nullptr, depth, w.bits, digits, to);
        begin_sums(to, count, w.block, digits, zero, begin + i * count * digits);
      }
      return true;
    }
#endif
    const isize lanes = word_lanes(w.bits), chunk = LANES * planes, apart = chunk / lanes;
    for (isize at = 0; at < m * depth; at += chunk)
      for (isize t = 0; t < apart; t++)
        for (isize l = 0; l < lanes; l++) {
          rounded[at + t * lanes + l] = natural[at + l * apart + t];
          if (split) lower[at + t * lanes + l] = rest[at + l * apart + t];
        }
    return true;
  }

#if defined(PWX_GROUPS)
  DigitRows digit_rows() const { return {reinterpret_cast<const int8_t*>(rounded), depth * gemm::most(digits, 2), count, begin, unit, sums}; }
#endif

  // Readies scales and factors of column j; rest[i]: what all offsets take off y[i].
  void column(const Weights& w, isize j, isize m, float* rest) const {
#if defined(__AVX512F__)
    VF totals[FEW] = {};
    for (isize b = 0; b < count; b += W) {
      const isize n = least(W, count - b);
      const VF scales = scales_at(w, j * count + b, n), offsets = offsets_at(w, j * count + b, n, scales);
      for (isize i = 0, at = b; i < m; i++, at += count) {
        store_part(factor + at, scales * load_part(unit + at, n), n);
        totals[i] += offsets * load_part(sums + at, n);
      }
    }
    for (isize i = 0; i < m; i++) rest[i] = sum_lanes(totals[i]);
#else
    w.read(j, 0, count, scale, offset);
    for (isize i = 0; i < m; i++) {
      VF total = splat(0);
      isize b = 0;
      for (isize at = i * count; b < count; b += W, at += W) {
        const isize n = least(W, count - b);
        store_part(factor + at, load_part(scale + b, n) * load_part(unit + at, n), n);
        total += load_part(offset + b, n) * load_part(sums + at, n);
      }
      rest[i] = sum_lanes(total);
    }
#endif
  }
};

// y[0..M) of column j but for its offsets. BITS planes come out of every 16 bytes. What stands for 0 is taken off codes of 8 bits, where
// it is a code: sums of codes near 128 would cancel with it.
template <int M, int BITS> inline void column_floats(const Weights& w, const Unpacked& u, isize j, float* y) {
  constexpr isize PLANES = 8 / BITS, CHUNK = LANES * PLANES;
  const uint8_t* codes = w.codes + j * w.row;
  VF16 total[M];
  for (int i = 0; i < M; i++) total[i] = (VF16)0;
  for (isize b = 0; b < w.count; b++) {
    VF16 acc[M];
    for (int i = 0; i < M; i++) acc[i] = (VF16)0;
    const VF16 zero = (VF16)float(BITS == 8 ? w.zero(j, b) : 0);
    for (isize at = b * w.block; at < (b + 1) * w.block; at += CHUNK, codes += LANES) {
      VB16 bytes;
      __builtin_memcpy(&bytes, codes, sizeof bytes);
      for (isize t = 0; t < PLANES; t++) {
        const VB16 plane = BITS == 8 ? bytes : bytes >> (VB16)uint8_t(t * BITS) & (VB16)uint8_t((1 << BITS) - 1);
        const VF16 q = BITS == 8 ? floats(plane) - zero : floats(plane);
        for (int i = 0; i < M; i++) {
          VF16 a;
          __builtin_memcpy(&a, u.rows + i * u.depth + at + t * LANES, sizeof a);
          acc[i] += q * a;
        }
      }
    }
    for (int i = 0; i < M; i++) total[i] += acc[i] * (VF16)u.factor[i * u.count + b];
  }
  for (int i = 0; i < M; i++) y[i] = total_of(total[i]);
}

// STEPS: chunks of a block; 0: as many as there are. HALVES: of a number, 1 or 2.
template <int M, int BITS, int STEPS, int HALVES> inline void column_integers(const Weights& w, const Unpacked& u, isize j, float* y) {
  constexpr isize CHUNK = BITS == 2 ? 64 : 32;
  const uint8_t* codes = w.codes + j * w.row;
  const int16_t* a[HALVES][M];
  const float* factor[M];
  Floats total[M][2];
  for (int i = 0; i < M; i++) {
    a[0][i] = u.rounded + i * u.depth, factor[i] = u.factor + i * u.count;
    if (HALVES == 2) a[HALVES - 1][i] = u.lower + i * u.depth;
    total[i][0] = total[i][1] = (Floats)0;
  }
  const isize steps = STEPS ? STEPS : w.block / CHUNK, count = w.count;
#if defined(PWX_WORDS)
  const Words::Vector mask = Words::mask();
#endif
  auto block = [&](isize b, int t) {
    Sums acc[HALVES][M];
    for (auto& each : acc)
      for (int i = 0; i < M; i++) each[i] = (Sums)0;
    for (isize s = 0; s < steps; s++) {
      VB16 bytes;
      __builtin_memcpy(&bytes, codes, sizeof bytes);
      auto step = [&](const auto&... taken) {
        for (int i = 0; i < M; i++)
          for (int h = 0; h < HALVES; h++) {
            acc[h][i] = dot(acc[h][i], taken..., a[h][i]);
            a[h][i] += 2 * LANES;
          }
      };
      if constexpr (BITS == 8) {
        VB16 more;
        __builtin_memcpy(&more, codes + LANES, sizeof more);
        step(bytes, more);
      } else if constexpr (BITS == 4) {
#if defined(PWX_WORDS)
        step(Words(bytes, mask));
#else
        step(bytes & (VB16)uint8_t(15), bytes >> (VB16)uint8_t(4));
#endif
      } else {
        const VB16 low = (VB16)uint8_t(3);
        step(bytes & low, bytes >> (VB16)uint8_t(2) & low);
        step(bytes >> (VB16)uint8_t(4) & low, bytes >> (VB16)uint8_t(6));
      }
      codes += BITS == 8 ? 2 * LANES : LANES;
    }
    for (int i = 0; i < M; i++) {
      Floats sum = __builtin_convertvector(acc[0][i], Floats);
      if (HALVES == 2) sum = sum * (Floats)32768 + __builtin_convertvector(acc[HALVES - 1][i], Floats);
      total[i][t] += sum * (Floats)factor[i][b];
    }
  };
  isize b = 0;
  for (; b + 2 <= count; b += 2) block(b, 0), block(b + 1, 1);
  if (b < count) block(b, 0);
  for (int i = 0; i < M; i++) y[i] = total_of(total[i][0] + total[i][1]);
}

template <int BITS> inline void columns(const Weights& w, const Unpacked& u, isize m, isize j, float* y) {
  float rest[FEW];
  u.column(w, j, m, rest);
  Unpacked v = u;
  auto some = [&]<int M>(isize i) {
    if (!u.integers) column_floats<M, BITS>(w, v, j, y + i);
    else if (BITS == 4 && u.split) column_integers<M, BITS, 0, BITS == 4 ? 2 : 1>(w, v, j, y + i);
    else if (BITS > 2 && w.block == 32) column_integers<M, BITS, 1, 1>(w, v, j, y + i);
    else column_integers<M, BITS, 0, 1>(w, v, j, y + i);
    v.rows += M * v.depth, v.rounded += M * v.depth, v.factor += M * v.count;
    if (v.split) v.lower += M * v.depth;
  };
  isize i = 0;
  for (; i + 2 <= m; i += 2) some.template operator()<2>(i);
  if (i < m) some.template operator()<1>(i);
  if (BITS == 8 && !u.integers && w.zeros()) return;
  for (i = 0; i < m; i++) y[i] -= rest[i];
}

#if defined(__AVX512F__)
inline void some_columns(const Weights& w, const Unpacked& u, isize m, isize begin, isize end, float* y, isize y_rs) {
  auto go = [&]<int BITS, int BLOCK>() {
    const auto with = [&](const auto* a, isize a_rs) {
      columns_steps<BITS, BLOCK>(w, a, a_rs, u.unit, u.sums, u.factor, m, begin, end, y, y_rs);
    };
    if (u.quads) return with(reinterpret_cast<const int8_t*>(u.rows), u.depth * 4);
    if constexpr (BITS <= 4) with(u.spread, spread_length(u.depth));
  };
  auto bits = [&]<int BITS>() {
    const isize groups = w.block * BITS / 8 / GROUP;
    if (groups == 1) go.template operator()<BITS, 1>();
    else if (groups == 2) go.template operator()<BITS, 2>();
    else go.template operator()<BITS, 4>();
  };
  if (w.bits == 2) bits.template operator()<2>();
  else if (w.bits == 4) bits.template operator()<4>();
  else bits.template operator()<8>();
}
#endif

// Blocks shorter than a chunk, or no multiple of it.
inline void short_blocks(const Weights& w, const Unpacked& u, const float* a, isize a_rs, isize m, isize k, isize j, float* y) {
  w.read(j, 0, w.count, u.scale, u.offset);
  for (isize i = 0; i < m; i++) {
    float sum = 0;
    for (isize at = 0; at < k; at++) {
      const isize b = at / w.block;
      sum += a[i * a_rs + at] * (float(w.code(j, at)) * u.scale[b] - u.offset[b]);
    }
    y[i] = sum;
  }
}

template <int M, bool BRAIN> inline void column_halves(const Weights& w, const float* a, isize a_rs, isize k, isize j, float* y) {
  const uint16_t* b = w.half(j);
  VF acc[M][2];
  float rest[M];
  for (int i = 0; i < M; i++) acc[i][0] = acc[i][1] = splat(0), rest[i] = 0;
  const Halves widened;
  auto wide = [&](isize at) { return BRAIN ? brains(b + at) : widened(b + at); };
  isize at = 0;
  for (; at + 2 * W <= k; at += 2 * W)
    for (int t = 0; t < 2; t++) {
      const VF v = wide(at + t * W);
      for (int i = 0; i < M; i++) acc[i][t] = fma(load(a + i * a_rs + at + t * W), v, acc[i][t]);
    }
  for (; at < k; at++)
    for (int i = 0; i < M; i++) rest[i] += a[i * a_rs + at] * (BRAIN ? bf16_to_float(b[at]) : half_to_float(b[at]));
  for (int i = 0; i < M; i++) y[i] = sum_lanes(acc[i][0] + acc[i][1]) + rest[i];
}

template <bool BRAIN> inline void halves_rows(const Weights& w, const float* a, isize a_rs, isize m, isize k, isize j, float* y) {
  isize i = 0;
  for (; i + 2 <= m; i += 2) column_halves<2, BRAIN>(w, a + i * a_rs, a_rs, k, j, y + i);
  if (i < m) column_halves<1, BRAIN>(w, a + i * a_rs, a_rs, k, j, y + i);
}

}  // namespace nbits
