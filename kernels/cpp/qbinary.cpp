// Sums and products of dequantised bytes, bounded, quantised again: each operation rounds once, as if it stood alone. Rows of b are repeated.
#include "params.h"
#include "qgemm/check.h"
#include "qgemm/finish.h"

namespace {

using qgemm::i32;

struct Args {
  const QbinaryParams& p;
  const QbinaryBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const QbinaryParams*>(call.params)), b(*reinterpret_cast<const QbinaryBufs*>(call.bufs)) {}
};

bool is_code(i64 zero) { return zero >= -128 && zero <= 255; }

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  if (!qgemm::is_byte(b.a.dtype) || !qgemm::is_byte(b.b.dtype) || !qgemm::is_byte(b.y.dtype)) return "operands and results must be int8 or uint8";
  if (!known(p.op)) return "unknown operation";
  if (!is_code(p.azero) || !is_code(p.bzero) || !is_code(p.yzero)) return "a zero point is no byte";
  if (!(p.yscale > 0)) return "the scale must be positive";
  if (p.n < 0 || p.n > b.a.count() || p.n > b.y.count()) return "an operand does not fit its buffer";
  const i64 each[] = {p.inner, p.repeats}, stream = product(each, 2);
  if (stream < 0 || (stream ? p.n % stream : p.n) != 0) return "elements are not whole rows";
  if (p.n && p.n / p.repeats > b.b.count()) return "an operand does not fit its buffer";
  proof.operations = Size(p.n) * 4;
  proof.writes(0, {0, p.n});
  return nullptr;
}

constexpr i64 BLOCK = 16, PIECE = 1 << 14;  // bytes at a time; bytes of a stream of repeated rows that a thread takes at least

// Of each thread: a row of b, and as much of what follows it as a block reads.
PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto [p, b] = Args(call);
  return p.repeats == 1 ? Size(0) : round_up(Size(p.inner) + BLOCK, 64) * threads;
}

// No multiply-add in place of a product that is rounded by itself.
inline VF rounded(VF v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#else
  asm("" : "+r"(v));
#endif
  return v;
}

struct Operand {
  uint8_t flip;
  VF zero, scale;
  Operand(const Buf& x, i64 point, double by)
      : flip(x.dtype == I8 ? 0x80 : 0), zero(splat(float(point + flip))), scale(splat(float(by))) {}
  void bytes(const uint8_t* x, VF* out) const {
    VB16 bytes;
    __builtin_memcpy(&bytes, x, sizeof bytes);
    const VF16 wide = floats(bytes ^ (VB16)flip);
    __builtin_memcpy(out, &wide, sizeof wide);
  }
  void read(const uint8_t* x, VF* out) const {
    bytes(x, out);
    for (int v = 0; v < 16 / W; v++) out[v] = rounded((out[v] - zero) * scale);
  }
};

// Sixteen codes at a time from one factor for each operand, or for the product: what comes is off by less than `error` from what operations
// give that round one by one, so it has the same code unless it lies so close to a tie.
struct Quick {
  bool possible = false, sum;
  VF a, b, offset, azero, bzero, low, high, near;
  i32 less;
  uint8_t flip;

  Quick(const QbinaryParams& p, const Operand& first, const Operand& second, const Buf& y) : sum(p.op == ByteOperation::ADD) {
    auto moderate = [](double x) { return x >= 0x1p-40 && x <= 0x1p40; };
    if (!moderate(p.ascale) || !moderate(p.bscale) || !moderate(p.yscale) || p.low != p.low || p.high != p.high) return;
    constexpr double MOST = 16;  // quantisation steps of the result in one of both operands: of more, errors are too large
    const double factor_a = sum ? p.ascale / p.yscale : p.ascale / p.yscale * p.bscale, factor_b = sum ? p.bscale / p.yscale : 0;
    const double error = sum ? (factor_a + factor_b + 1) * 0x1p-12 : 0x1p-11;
    if (sum && factor_a + factor_b > MOST) return;
    possible = true;
    a = splat(float(factor_a)), b = splat(float(factor_b)), azero = first.zero, bzero = second.zero;
    offset = splat(float(-double(first.zero[0]) * factor_a - double(second.zero[0]) * factor_b));
    near = splat(float(0.5 - error));
    flip = y.dtype == I8 ? 0x80 : 0;
    const float by = float(p.yscale), least = float((y.dtype == I8 ? -128 : 0) - i32(p.yzero));
    auto code = [&](double bound) {
      return splat(__builtin_fminf(__builtin_fmaxf(__builtin_roundevenf(float(bound) / by), least), least + 255));
    };
    low = code(p.low), high = code(p.high);
    less = __builtin_bit_cast(i32, ONES) - i32(p.yzero) - flip;
  }

  // False where one of them has to be made step by step.
  bool block(const VF* xa, const VF* xb, uint8_t* y) const {
    VI codes[16 / W];
    VF most = splat(0);
    for (int v = 0; v < 16 / W; v++) {
      const VF value = sum ? xa[v] * a + (xb[v] * b + offset) : (xa[v] - azero) * (xb[v] - bzero) * a;
      const VF t = vmin(vmax(value, low), high), s = t + splat(ONES);
      most = vmax(__builtin_elementwise_abs(t - (s - splat(ONES))), most);
      codes[v] = as_i(s) - splat_i(less);
    }
    store(codes, y);
    return !any_lane((VI)(most > near));
  }

 private:
  static constexpr float ONES = 0x1.8p23f;  // so large that adding it rounds to integers, ties to even

  void store(const VI* codes, uint8_t* y) const {
#if defined(__wasm__)
    const v128_t low = wasm_i16x8_narrow_i32x4((v128_t)codes[0], (v128_t)codes[1]), high = wasm_i16x8_narrow_i32x4((v128_t)codes[2], (v128_t)codes[3]);
    wasm_v128_store(y, wasm_v128_xor(wasm_u8x16_narrow_i16x8(low, high), wasm_i8x16_splat(int8_t(flip))));
#else
    for (int v = 0; v < 16 / W; v++) {
      const qgemm::BW bytes = __builtin_convertvector(codes[v], qgemm::BW) ^ (qgemm::BW)flip;
      __builtin_memcpy(y + v * W, &bytes, W);
    }
#endif
  }
};

void run(Call& call) {
  const auto [p, b] = Args(call);
  const Operand first(b.a, p.azero, p.ascale), second(b.b, p.bzero, p.bscale);
  const uint8_t *xa = b.a.as<uint8_t>(), *xb = b.b.as<uint8_t>();
  uint8_t* y = b.y.as<uint8_t>();
  const bool sum = p.op == ByteOperation::ADD;
  const float by = float(p.yscale);
  const i32 zero = i32(p.yzero);
  const float least = float((b.y.dtype == I8 ? -128 : 0) - zero);
  const VF low = splat(float(p.low)), high = splat(float(p.high)), reciprocal = splat(1 / by);
  const Quick quick(p, first, second, b.y);
  auto block = [&](const uint8_t* a, const uint8_t* b, uint8_t* to) {
    VF va[16 / W], vb[16 / W];
    if (quick.possible) {
      uint8_t made[16];
      first.bytes(a, va), second.bytes(b, vb);
      if (quick.block(va, vb, made)) return void(__builtin_memcpy(to, made, sizeof made));
    }
    first.read(a, va), second.read(b, vb);
    for (int v = 0; v < 16 / W; v++) {
      const VF wide = rounded(sum ? va[v] + vb[v] : va[v] * vb[v]);
      const VF r = qgemm::quotient(vmin(vmax(wide, low), high), by, reciprocal, least);
      const qgemm::BW code = __builtin_convertvector(__builtin_convertvector(r, VI) + splat_i(zero), qgemm::BW);
      __builtin_memcpy(to + v * W, &code, W);
    }
  };
  auto some = [&](const uint8_t* a, const uint8_t* b, uint8_t* to, i64 n) {
    if (n >= BLOCK) return block(a, b, to);
    uint8_t last[3][BLOCK] = {};
    __builtin_memcpy(last[0], a, size_t(n));
    __builtin_memcpy(last[1], b, size_t(n));
    block(last[0], last[1], last[2]);
    __builtin_memcpy(to, last[2], size_t(n));
  };
  if (p.repeats == 1)
    return parallel_for(call.pool, (p.n + BLOCK - 1) / BLOCK, 4096, [&, &p = p](i64 begin, i64 end, int) {
      for (i64 i = begin * BLOCK; i < end * BLOCK; i += BLOCK) some(xa + i, xb + i, y + i, p.n - i);
    });
  if (!p.n) return;
  const i64 stream = p.inner * p.repeats, pieces = (stream + PIECE - 1) / PIECE;
  parallel_for(call.pool, p.n / stream * pieces, 4, [&, &p = p](i64 begin, i64 end, int thread) {
    uint8_t* row = reinterpret_cast<uint8_t*>(call.scratch) + thread * round_up(Size(p.inner) + BLOCK, 64).value();
    i64 filled = -1;
    for (i64 item = begin; item < end; item++) {
      const i64 o = item / pieces, first = item % pieces * PIECE, last = first + PIECE < stream ? first + PIECE : stream;
      if (o != filled)
        for (i64 l = 0, from = 0; l < p.inner + BLOCK; l++, from = from + 1 < p.inner ? from + 1 : 0) row[l] = xb[o * p.inner + from];
      filled = o;
      i64 at = first % p.inner;
      for (i64 i = first; i < last; i += BLOCK) {
        some(xa + o * stream + i, row + at, y + o * stream + i, last - i);
        for (at += BLOCK; at >= p.inner; at -= p.inner) {}
      }
    }
  });
}

}  // namespace

KERNEL(qbinary, check, scratch, run)
