// Few rows of a against weights that are unpacked as they are read, once for all rows. Products with codes are sums of floats, or, where a
// may be rounded, exact sums of integers: each block of a as int16 in units of its largest magnitude / 32767.
#pragma once
#include "nbits/weights.h"

namespace nbits {

constexpr isize FEW = 4;  // rows up to which weights are read once for all of them, without panels

// 32 codes times int16: lanes of sums.
#if defined(__wasm__)
typedef VI Sums;
inline Sums dot(Sums s, VB16 low, VB16 high, const int16_t* a) {
  const v128_t l = (v128_t)low, h = (v128_t)high;
  auto eight = [&](v128_t codes, int at) { return (VI)wasm_i32x4_dot_i16x8(codes, wasm_v128_load(a + at)); };
  s += eight(wasm_u16x8_extend_low_u8x16(l), 0);
  s += eight(wasm_u16x8_extend_high_u8x16(l), 8);
  s += eight(wasm_u16x8_extend_low_u8x16(h), 16);
  return s + eight(wasm_u16x8_extend_high_u8x16(h), 24);
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
  float *rows, *sums, *unit, *scale, *offset, *factor;  // scale, offset, factor (scale * unit, for each row): of the column at hand
  int16_t* rounded;
  isize depth, count;
  bool integers = false;

  Unpacked(char* memory, const Weights& w) : depth(w.count * w.block), count(w.count) {
    rows = reinterpret_cast<float*>(memory), sums = rows + FEW * depth, unit = sums + FEW * count, scale = unit + FEW * count;
    offset = scale + count, factor = offset + count, rounded = reinterpret_cast<int16_t*>(factor + FEW * count);
  }
  static Size bytes(const MatmulNbitsParams& p) {
    return round_up(Size(blocks(p)) * p.block * FEW * 6 + Size(blocks(p)) * (3 * FEW + 2) * 4, 64);
  }

  void take(const Weights& w, const float* a, isize a_rs, isize m, isize k, bool may_round) {
    const isize planes = 8 / w.bits, chunk = LANES * planes;
    for (isize i = 0; i < m; i++, a += a_rs) {
      float* out = rows + i * depth;
      for (isize at = 0; at < depth; at += chunk, out += chunk)
        for (isize t = 0; t < planes; t++)
          for (isize l = 0; l < LANES; l++) {
            const isize from = at + l * planes + t;
            out[t * LANES + l] = from < k ? a[from] : 0;
          }
    }
    // Sums of codes below 2^8 times 2^15 stay below 2^31 in every lane.
    integers = may_round && w.block % 32 == 0 && w.block <= 512 && round_rows(w, m);
    if (!integers)
      for (isize b = 0; b < m * count; b++) {
        VF sum = splat(0);
        for (isize at = 0; at < w.block; at += W) sum += load(rows + b * w.block + at);
        sums[b] = sum_lanes(sum), unit[b] = 1;
      }
  }

  // Readies scales and factors of column j; rest[i]: what all offsets take off y[i].
  void column(const Weights& w, isize j, isize m, float* rest) const {
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
  }

  // False where a number is not finite, or a block too small to be scaled.
  bool round_rows(const Weights& w, isize m) {
    for (isize b = 0; b < m * count; b++) {
      const float* in = rows + b * w.block;
      VF most = splat(0), poison = splat(0);
      for (isize at = 0; at < w.block; at += W) {
        const VF v = load(in + at);
        most = vmax(vmax(v, -v), most);
        poison += v * splat(0);  // NaN where v is not finite
      }
      float lanes[W], largest = 0;
      store(lanes, most);
      for (float v : lanes) largest = v > largest ? v : largest;
      if (sum_lanes(poison) != 0 || (largest != 0 && largest < 1e-30f)) return false;
      unit[b] = largest / 32767;
      const float factor = largest > 0 ? 32767 / largest : 0;
      int16_t* out = rounded + b * w.block;
      int32_t sum = 0;
      for (isize at = 0; at < w.block; at++) {
        const float v = in[at] * factor;
        out[at] = int16_t(int32_t(v + (v < 0 ? -0.5f : 0.5f)));
        sum += out[at];
      }
      sums[b] = float(sum) * unit[b];
    }
    return true;
  }
};

// y[0..M) of column j but for its offsets. BITS planes come out of every 16 bytes.
template <int M, int BITS> inline void column_floats(const Weights& w, const Unpacked& u, isize j, float* y) {
  constexpr isize PLANES = 8 / BITS, CHUNK = LANES * PLANES;
  const uint8_t* codes = w.codes + j * w.row;
  VF16 total[M];
  for (int i = 0; i < M; i++) total[i] = (VF16)0;
  for (isize b = 0; b < w.count; b++) {
    VF16 acc[M];
    for (int i = 0; i < M; i++) acc[i] = (VF16)0;
    for (isize at = b * w.block; at < (b + 1) * w.block; at += CHUNK, codes += LANES) {
      VB16 bytes;
      __builtin_memcpy(&bytes, codes, sizeof bytes);
      for (isize t = 0; t < PLANES; t++) {
        const VB16 plane = BITS == 8 ? bytes : bytes >> (VB16)uint8_t(t * BITS) & (VB16)uint8_t((1 << BITS) - 1);
        const VF16 q = floats(plane);
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

// STEPS: chunks of a block; 0: as many as there are.
template <int M, int BITS, int STEPS> inline void column_integers(const Weights& w, const Unpacked& u, isize j, float* y) {
  constexpr isize CHUNK = BITS == 2 ? 64 : 32;
  const uint8_t* codes = w.codes + j * w.row;
  const int16_t* a[M];
  const float* factor[M];
  Floats total[M][2];
  for (int i = 0; i < M; i++) {
    a[i] = u.rounded + i * u.depth, factor[i] = u.factor + i * u.count;
    total[i][0] = total[i][1] = (Floats)0;
  }
  const isize steps = STEPS ? STEPS : w.block / CHUNK, count = w.count;
  auto block = [&](isize b, int t) {
    Sums acc[M];
    for (int i = 0; i < M; i++) acc[i] = (Sums)0;
    for (isize s = 0; s < steps; s++) {
      VB16 bytes;
      __builtin_memcpy(&bytes, codes, sizeof bytes);
      auto step = [&](VB16 low, VB16 high) {
        for (int i = 0; i < M; i++) {
          acc[i] = dot(acc[i], low, high, a[i]);
          a[i] += 2 * LANES;
        }
      };
      if constexpr (BITS == 8) {
        VB16 more;
        __builtin_memcpy(&more, codes + LANES, sizeof more);
        step(bytes, more);
      } else if constexpr (BITS == 4) {
        step(bytes & (VB16)uint8_t(15), bytes >> (VB16)uint8_t(4));
      } else {
        const VB16 mask = (VB16)uint8_t(3);
        step(bytes & mask, bytes >> (VB16)uint8_t(2) & mask);
        step(bytes >> (VB16)uint8_t(4) & mask, bytes >> (VB16)uint8_t(6));
      }
      codes += BITS == 8 ? 2 * LANES : LANES;
    }
    for (int i = 0; i < M; i++) total[i][t] += __builtin_convertvector(acc[i], Floats) * (Floats)factor[i][b];
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
    else if (BITS > 2 && w.block == 32) column_integers<M, BITS, 1>(w, v, j, y + i);
    else column_integers<M, BITS, 0>(w, v, j, y + i);
    v.rows += M * v.depth, v.rounded += M * v.depth, v.factor += M * v.count;
  };
  isize i = 0;
  for (; i + 2 <= m; i += 2) some.template operator()<2>(i);
  if (i < m) some.template operator()<1>(i);
  for (i = 0; i < m; i++) y[i] -= rest[i];
}

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
  auto wide = [&](isize at) { return BRAIN ? brains(b + at) : halves(b + at); };
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
