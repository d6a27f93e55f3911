// Products with weights of 2, 4 or 8 bits in blocks along k: b[k, j] = code * scale[j, block] - shift[j, block]. Few rows multiply the codes
// as they are unpacked; many take panels that are widened once for all rows of a block.
#include "gemm.h"
#include "params.h"

namespace {

using gemm::least;

struct Args {
  const MatmulNbitsParams& p;
  const MatmulNbitsBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const MatmulNbitsParams*>(call.params)), b(*reinterpret_cast<const MatmulNbitsBufs*>(call.bufs)) {}
};

constexpr isize FEW = 4;     // rows up to which weights are read once for all of them, without panels
constexpr isize LANES = 16;  // codes of a plane: those of 16 bytes that lie at the same bits

i64 blocks(const MatmulNbitsParams& p) { return (p.k + p.block - 1) / p.block; }

const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  if (b.y.dtype != F32 || b.a.dtype != F32 || b.b.dtype != U32) return "a must be float32, b uint32 words of codes";
  for (const Buf* f : {&b.scale, &b.shift, &b.bias, &b.residual})
    if (*f && f->dtype != F32) return "scale, shift, bias and residual must be float32";
  if (p.bits != 2 && p.bits != 4 && p.bits != 8) return "codes have 2, 4 or 8 bits";
  if (p.m < 0 || p.n < 0 || p.k < 0) return "a size is negative";
  if (p.m > MAX_EXTENT || p.n > MAX_EXTENT || p.k > MAX_EXTENT / 2) return "a size is out of range";
  if (p.block < 16 || p.block % 16 || p.block > (i64(1) << 24)) return "a block must have a multiple of 16 codes";
  if (!act_known(p.act)) return "unknown activation";
  auto fits = [&](i64 rows, i64 step, i64 columns, i64 column_step, i64 offset, const Buf& buf) {
    const i64 shape[2] = {rows, columns}, stride[2] = {step, column_step};
    return view_fits(2, shape, stride, offset, buf.count());
  };
  const i64 words = blocks(p) * p.block / (32 / p.bits);
  if (!fits(p.m, p.y_rs, p.n, 1, p.yoff, b.y)) return "y does not fit its buffer";
  if (!fits(p.m, p.a_rs, p.k, 1, p.aoff, b.a)) return "a does not fit its buffer";
  if (!fits(p.n, words, words, 1, 0, b.b)) return "b does not fit its buffer";
  if (!fits(p.n, blocks(p), blocks(p), 1, 0, b.scale)) return "scale does not fit its buffer";
  if (b.shift && !fits(p.n, blocks(p), blocks(p), 1, 0, b.shift)) return "shift does not fit its buffer";
  if (b.bias && !fits(p.m, p.bias_ms, p.n, p.bias_ns, 0, b.bias)) return "bias does not fit its buffer";
  if (b.residual && !fits(p.m, p.res_rs, p.n, 1, p.res_off, b.residual)) return "residual does not fit its buffer";
  if (!p.m || !p.n) return nullptr;
  const i64 shape[2] = {p.m, p.n}, stride[2] = {p.y_rs, 1};
  proof.operations = Size(p.m) * p.n * (Size(p.k) + 1);
  proof.writes(0, dense(2, shape, stride, p.yoff));
  return nullptr;
}

// Weights of column j.
struct Weights {
  const uint8_t* codes;
  const float *scale, *shift;
  isize bits, block, count, row;  // count: blocks of a column; row: its bytes

  Weights(const MatmulNbitsParams& p, const MatmulNbitsBufs& b)
      : codes(b.b.as<uint8_t>()), scale(b.scale.as<float>()), shift(b.shift ? b.shift.as<float>() : nullptr), bits(proven(p.bits)),
        block(proven(p.block)), count(proven(blocks(p))), row(count * block * bits / 8) {}

  // The code 0 of a block stands for -offset(j, i); without shifts the middle code stands for 0.
  float offset(isize j, isize i) const {
    return shift ? shift[j * count + i] : scale[j * count + i] * float(1 << (bits - 1));
  }
  int code(isize j, isize k) const { return codes[j * row + k * bits / 8] >> k * bits % 8 & ((1 << bits) - 1); }
};

// Rows of a, unpacked the way codes are: chunks of 16 bytes' codes, in planes of 16; zeros behind the last. And their sums by block.
struct Unpacked {
  float *rows, *sums;
  isize depth, count;

  Unpacked(char* memory, const Weights& w) : rows(reinterpret_cast<float*>(memory)), sums(rows + FEW * w.count * w.block), depth(w.count * w.block), count(w.count) {}
  static Size bytes(const MatmulNbitsParams& p) { return round_up((Size(blocks(p)) * p.block + blocks(p)) * FEW * 4, 64); }

  void take(const Weights& w, const float* a, isize a_rs, isize m, isize k) {
    const isize planes = 8 / w.bits, chunk = LANES * planes;
    for (isize i = 0; i < m; i++, a += a_rs) {
      float* out = rows + i * depth;
      for (isize at = 0; at < depth; at++) {
        const isize in = at % chunk;
        out[at - in + in % planes * LANES + in / planes] = at < k ? a[at] : 0;
      }
      for (isize b = 0; b < count; b++) {
        float sum = 0;
        for (isize at = b * w.block; at < least((b + 1) * w.block, k); at++) sum += a[at];
        sums[i * count + b] = sum;
      }
    }
  }
};

// y[0..M) of column j. BITS planes come out of every 16 bytes.
template <int M, int BITS> inline void column(const Weights& w, const Unpacked& u, isize j, float* y) {
  constexpr isize PLANES = 8 / BITS, CHUNK = LANES * PLANES;
  const uint8_t* codes = w.codes + j * w.row;
  VF16 total[M];
  float rest[M];
  for (int i = 0; i < M; i++) total[i] = (VF16)0, rest[i] = 0;
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
    const float scale = w.scale[j * w.count + b], offset = w.offset(j, b);
    for (int i = 0; i < M; i++) total[i] += acc[i] * (VF16)scale, rest[i] += offset * u.sums[i * u.count + b];
  }
  for (int i = 0; i < M; i++) {
    float lanes[16], sum = 0;
    __builtin_memcpy(lanes, &total[i], sizeof lanes);
    for (int n = 8; n; n /= 2)
      for (int l = 0; l < n; l++) lanes[l] += lanes[l + n];
    sum = lanes[0] - rest[i];
    y[i] = sum;
  }
}

template <int BITS> inline void columns(const Weights& w, const Unpacked& u, isize m, isize j, float* y) {
  isize i = 0;
  Unpacked v = u;
  for (; i + 2 <= m; i += 2, v.rows += 2 * v.depth, v.sums += 2 * v.count) column<2, BITS>(w, v, j, y + i);
  if (i < m) column<1, BITS>(w, v, j, y + i);
}

// Blocks shorter than a chunk, or no multiple of it.
void short_blocks(const Weights& w, const float* a, isize a_rs, isize m, isize k, isize j, float* y) {
  for (isize i = 0; i < m; i++) {
    float sum = 0;
    for (isize at = 0; at < k; at++) {
      const isize b = at / w.block;
      sum += a[i * a_rs + at] * (float(w.code(j, at)) * w.scale[j * w.count + b] - w.offset(j, b));
    }
    y[i] = sum;
  }
}

struct PackBlocks {
  const Weights& w;

  void operator()(isize k0, isize kc, isize j, isize n_columns, float* out) const {
    for (isize n; n_columns > 0; n_columns -= n, j += n) {
      n = gemm::panel_columns(n_columns);
      const isize width = gemm::round_up(n, W);
      if (n < width) __builtin_memset(out, 0, size_t(width * kc) * 4);
      float lines[4][gemm::KC];
      for (isize c = 0; c < n; c += 4) {
        const isize some = least(4, n - c);
        for (isize i = 0; i < some; i++) widen(j + c + i, k0, kc, lines[i]);
        gemm::copy_matrix(lines[0], 1, gemm::KC, out + c, width, kc, some);
      }
      out += width * kc;
    }
  }

  // Rows [k0, k0 + kc) of column j, one after the other.
  void widen(isize j, isize k0, isize kc, float* out) const {
    const uint8_t* codes = w.codes + j * w.row;
    for (isize at = k0; at < k0 + kc;) {
      const isize b = at / w.block, end = least((b + 1) * w.block, k0 + kc);
      const float scale = w.scale[j * w.count + b], offset = w.offset(j, b);
      auto put = [&](VB16 some) {
        const VF16 v = floats(some) * (VF16)scale - (VF16)offset;
        __builtin_memcpy(out, &v, sizeof v);
        out += 16;
      };
      if (w.bits == 4 && at % 2 == 0)
        for (; at + 32 <= end; at += 32) {
          VB16 bytes;
          __builtin_memcpy(&bytes, codes + at / 2, sizeof bytes);
          const VB16 low = bytes & (VB16)uint8_t(15), high = bytes >> (VB16)uint8_t(4);
          put(__builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
          put(__builtin_shufflevector(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
        }
      if (w.bits == 8)
        for (; at + 16 <= end; at += 16) {
          VB16 bytes;
          __builtin_memcpy(&bytes, codes + at, sizeof bytes);
          put(bytes);
        }
      for (; at < end; at++) *out++ = float(w.code(j, at)) * scale - offset;
    }
  }
};

gemm::Product product(const MatmulNbitsParams& p) {
  gemm::Product q{};
  q.m = proven(p.m), q.n = proven(p.n), q.k = proven(p.k);
  q.a_rs = p.m > 1 ? proven(p.a_rs) : q.k, q.a_cs = 1;
  q.y_rs = p.m > 1 ? proven(p.y_rs) : q.n;
  return q;
}

Size scratch(const Call& call, int threads) {
  const auto [p, b] = Args(call);
  if (!p.m || !p.n) return 0;
  if (p.m <= FEW) return Unpacked::bytes(p) * threads;
  return Size(gemm::blocks(proven(p.m), proven(p.n), proven(p.k), proven(p.block)).packed_floats) * 4 * threads;
}

void run(Call& call) {
  const auto [p, b] = Args(call);
  if (!p.m || !p.n) return;
  const Weights w(p, b);
  gemm::Product q = product(p);
  q.a = b.a.as<float>() + p.aoff;
  q.y = b.y.as<float>() + p.yoff;
  q.e.set_act(p.act, p.act_a, p.act_b);
  q.e.alpha = float(p.alpha);
  if (b.bias) q.e.bias = b.bias.as<float>(), q.e.bias_ms = proven(p.bias_ms), q.e.bias_ns = proven(p.bias_ns);
  if (b.residual) q.e.res = b.residual.as<float>() + p.res_off, q.e.res_rs = p.m > 1 ? proven(p.res_rs) : 0;
  if (q.m > FEW) return gemm::run_packed(call, q, gemm::Batch(), w.block, [&](const gemm::Product&) { return PackBlocks{w}; });
  const bool whole = w.block % (LANES * (8 / w.bits)) == 0;
  const isize each = proven(Unpacked::bytes(p).value());
  parallel_for(call.pool, q.n, gemm::MIN_FLOPS / (2 * q.m * q.k + 1) + 1, [&](i64 begin, i64 end, int thread) {
    Unpacked u(call.scratch + thread * each, w);
    if (whole) u.take(w, q.a, q.a_rs, q.m, q.k);
    for (isize j = proven(begin); j < proven(end); j++) {
      float y[FEW];
      if (!whole) short_blocks(w, q.a, q.a_rs, q.m, q.k, j, y);
      else if (w.bits == 2) columns<2>(w, u, q.m, j, y);
      else if (w.bits == 4) columns<4>(w, u, q.m, j, y);
      else columns<8>(w, u, q.m, j, y);
      for (isize i = 0; i < q.m; i++) q.y[i * q.y_rs + j] = y[i];
    }
    for (isize i = 0; i < q.m; i++) q.e.finish(i, proven(begin), proven(end - begin), q.y + i * q.y_rs + begin, false);
  });
}

}  // namespace

KERNEL(matmul_nbits, check, scratch, run)
