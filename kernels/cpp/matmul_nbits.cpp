// Products with weights that stay small in memory (nbits/weights.h). Few rows multiply the weights as they are unpacked; many take panels
// that are widened once for all rows of a block.
#include "nbits/digit_panels.h"
#include "nbits/panels.h"
#include "nbits/rows.h"

namespace {

using namespace nbits;

// Many rows as integers.
#if defined(__wasm_relaxed_simd__)
#define PWX_PANELS
using Many = DigitPanels;
#elif defined(__x86_64__) && !defined(__AVX512F__)
#define PWX_PANELS
using Many = Panels;
#endif

constexpr isize MIN_WORK = 1 << 15;  // products of a few rows: less is not worth another thread

struct Args {
  const MatmulNbitsParams& p;
  const MatmulNbitsBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const MatmulNbitsParams*>(call.params)), b(*reinterpret_cast<const MatmulNbitsBufs*>(call.bufs)) {}
};

PWX_SMALL const char* check_dtypes(const MatmulNbitsParams& p, const MatmulNbitsBufs& b) {
  if (b.y.dtype != F32 || b.a.dtype != F32) return "a and y must be float32";
  for (const Buf* f : {&b.bias, &b.residual})
    if (*f && f->dtype != F32) return "bias and residual must be float32";
  if (b.b.dtype == F16 || b.b.dtype == BF16) {
    if (p.bits != 16 || b.scale || b.shift) return "halves have 16 bits, and neither scale nor shift";
    return nullptr;
  }
  if (b.b.dtype != U32) return "b must be uint32 words of codes, float16 or bfloat16";
  if (p.bits != 2 && p.bits != 4 && p.bits != 8) return "codes have 2, 4 or 8 bits";
  if (b.scale.dtype != F32 && b.scale.dtype != F16) return "scale must be float32 or float16";
  if (b.shift && b.shift.dtype != F32 && b.shift.dtype != F16 && b.shift.dtype != U8) return "shift must be float32, float16 or uint8";
  return nullptr;
}

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  if (const char* wrong = check_dtypes(p, b)) return wrong;
  if (p.m < 0 || p.n < 0 || p.k < 0) return "a size is negative";
  if (p.m > MAX_EXTENT || p.n > MAX_EXTENT || p.k > MAX_EXTENT / 2) return "a size is out of range";
  if (p.block < 16 || p.block % 16 || p.block > (i64(1) << 24)) return "a block must have a multiple of 16 codes";
  if (!act_known(p.act)) return "unknown activation";
  auto fits = [&](i64 rows, i64 step, i64 columns, i64 column_step, i64 offset, const Buf& buf) {
    const i64 shape[2] = {rows, columns}, stride[2] = {step, column_step};
    return view_fits(2, shape, stride, offset, buf.count());
  };
  const i64 row = p.bits == 16 ? p.k : blocks(p) * p.block / (32 / p.bits);
  if (!fits(p.m, p.y_rs, p.n, 1, p.yoff, b.y)) return "y does not fit its buffer";
  if (!fits(p.m, p.a_rs, p.k, 1, p.aoff, b.a)) return "a does not fit its buffer";
  if (!fits(p.n, row, row, 1, 0, b.b)) return "b does not fit its buffer";
  if (b.scale && !fits(p.n, blocks(p), blocks(p), 1, 0, b.scale)) return "scale does not fit its buffer";
  if (b.shift && !fits(p.n, blocks(p), blocks(p), 1, 0, b.shift)) return "shift does not fit its buffer";
  if (b.bias && !fits(p.m, p.bias_ms, p.n, p.bias_ns, 0, b.bias)) return "bias does not fit its buffer";
  if (b.residual && !fits(p.m, p.res_rs, p.n, 1, p.res_off, b.residual)) return "residual does not fit its buffer";
  if (!p.m || !p.n) return nullptr;
  const i64 shape[2] = {p.m, p.n}, stride[2] = {p.y_rs, 1};
  proof.operations = Size(p.m) * p.n * (Size(p.k) + 1);
  proof.writes(0, dense(2, shape, stride, p.yoff));
  return nullptr;
}

// Panels of columns, widened. Words of codes of W columns are transposed, so that what is taken out of them lies as a panel has it.
struct Widen {
  const Weights& w;

  void operator()(isize k0, isize kc, isize j, isize n_columns, float* out) const {
    if (kc == 0) return;
    for (isize n; n_columns > 0; n_columns -= n, j += n) {
      n = gemm::panel_columns(n_columns);
      const isize width = gemm::round_up(n, W);
      for (isize c = 0; c < n; c += W) {
        const isize some = least(W, n - c);
        if (w.bits == 16) halves(j + c, some, k0, kc, out + c, width);
        else if (w.bits == 8) codes<8>(j + c, some, k0, kc, out + c, width);
        else if (w.bits == 4) codes<4>(j + c, some, k0, kc, out + c, width);
        else codes<2>(j + c, some, k0, kc, out + c, width);
      }
      out += width * kc;
    }
  }

  void halves(isize j, isize some, isize k0, isize kc, float* out, isize width) const {
    float lines[W][gemm::KC];
    if (some < W) __builtin_memset(lines, 0, sizeof lines);
    for (isize i = 0; i < some; i++) widen(w.half(j + i) + k0, w.dtype == BF16, lines[i], kc);
    gemm::copy_matrix(lines[0], 1, gemm::KC, out, width, kc, W);
  }

  // Rows [k0, k0 + kc) of columns [j, j + some), some <= W; k0 begins a word. Of packed weights j begins a group.
  template <int BITS> [[gnu::noinline]] void codes(isize j, isize some, isize k0, isize kc, float* out, isize width) const {
    constexpr isize EACH = 32 / BITS, MOST_BLOCKS = gemm::KC / 16 + 1;
    const isize first = k0 / w.block, count = (k0 + kc - 1) / w.block - first + 1;
    float read[2][W][MOST_BLOCKS], scales[MOST_BLOCKS * W], offsets[MOST_BLOCKS * W], words[gemm::KC / EACH * W];
    if (some < W) {
      __builtin_memset(read, 0, sizeof read);
      __builtin_memset(words, 0, sizeof words);
    }
#if defined(PWX_GROUPS)
    if (w.packed && some == TOGETHER) {
      const Group group(w, j / TOGETHER, nullptr);
      for (isize b = 0; b < count; b++) store(scales + b * W, group.scale(w, first + b)), store(offsets + b * W, group.offset(w, first + b));
      const isize bytes = (kc + EACH - 1) / EACH * W * 4;
      __builtin_memcpy(words, group.codes + k0 / EACH * W * 4, size_t(bytes));
      if (flips(BITS)) flip(reinterpret_cast<char*>(words), bytes);
    } else
#endif
    {
      for (isize i = 0; i < some; i++) w.read(j + i, first, count, read[0][i], read[1][i]);
      gemm::copy_matrix(read[0][0], 1, MOST_BLOCKS, scales, W, count, W);
      gemm::copy_matrix(read[1][0], 1, MOST_BLOCKS, offsets, W, count, W);
      // Words travel as floats: they are copied alone.
      const float* from = reinterpret_cast<const float*>(w.codes + j * w.row + k0 * BITS / 8);
      gemm::copy_matrix(from, 1, w.row / 4, words, W, (kc + EACH - 1) / EACH, some);
    }
    const float* word = words;
    for (isize b = 0, k = 0; b < count; b++) {
      const VF scale = load(scales + b * W), offset = load(offsets + b * W);
      const isize end = least((first + b + 1) * w.block - k0, kc);
      for (; k < end; k += EACH, word += W) {
        const VI all = as_i(load(word));
        auto put = [&](int u) {
          store(out, __builtin_convertvector((all >> splat_i(u * BITS)) & splat_i((1 << BITS) - 1), VF) * scale - offset);
          out += width;
        };
        if (end - k >= EACH)
#pragma unroll
          for (int u = 0; u < EACH; u++) put(u);
        else
          for (int u = 0; u < end - k; u++) put(u);
      }
    }
  }
};

void widen_panels(const void* w, const gemm::Product&, isize k0, isize kc, isize j, isize columns, float* out) {
  Widen{*static_cast<const Weights*>(w)}(k0, kc, j, columns, out);
}

gemm::Product product(const MatmulNbitsParams& p) {
  gemm::Product q{};
  q.m = proven(p.m), q.n = proven(p.n), q.k = proven(p.k);
  q.a_rs = p.m > 1 ? proven(p.a_rs) : q.k, q.a_cs = 1;
  q.y_rs = p.m > 1 ? proven(p.y_rs) : q.n;
  return q;
}

// Of a thread, for few rows.
Size few_bytes(const MatmulNbitsParams& p) {
#if defined(PWX_GROUPS)
  return Unpacked::own_bytes(p) + Group::bytes(blocks(p), p.bits, p.block) * SET;
#else
  return Unpacked::own_bytes(p);
#endif
}

PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto [p, b] = Args(call);
  if (!p.m || !p.n) return 0;
  if (p.m <= FEW) return p.bits == 16 ? Size(0) : Unpacked::bytes(p) + few_bytes(p) * threads;
  const Size floats = Size(gemm::blocks(proven(p.m), proven(p.n), proven(p.k), proven(p.block)).packed_floats) * 4 * threads;
#if defined(PWX_PANELS)
  if (Many::fit(p)) return std::max(floats.value(), (Many::bytes(p) + Many::own_bytes(p) * threads).value());
#endif
  return floats;
}

#if defined(PWX_GROUPS)
// A group of packed weights as floats, where rows cannot be rounded.
PWX_SMALL void natural_group(const Weights& w, const Unpacked& u, const gemm::Product& q, isize g, char* memory) {
  const Natural natural(w, g, memory);
  const isize j = g * TOGETHER, n = least(TOGETHER, q.n - j);
  for (isize c = 0; c < n; c++) {
    float y[FEW];
    if (w.bits == 4) columns<4>(natural.w, u, q.m, c, y);
    else columns<8>(natural.w, u, q.m, c, y);
    for (isize i = 0; i < q.m; i++) q.y[i * q.y_rs + j + c] = y[i];
  }
  for (isize i = 0; i < q.m; i++) q.e.finish(i, j, n, q.y + i * q.y_rs + j, false);
}

// Groups of columns: by digits, or as they were before they were packed.
void few_in_groups(Call& call, const Weights& w, const Unpacked& taken, const gemm::Product& q, const MatmulNbitsParams& p) {
  const isize all = proven(Unpacked::bytes(p).value()), own = proven(Unpacked::own_bytes(p).value()), each = proven(Group::bytes(w.count, w.bits, w.block).value());
  char* const memory = call.scratch + all;
  const isize groups = (q.n + TOGETHER - 1) / TOGETHER, few = MIN_WORK / (TOGETHER * SHARE * q.m * q.k + 1) + 1;
  parallel_for(call.pool, (groups + SHARE - 1) / SHARE, few, [&](i64 begin, i64 end, int thread) {
    char* mine = memory + thread * (own + SET * each);
    const isize first = proven(begin) * SHARE, last = least(proven(end) * SHARE, groups);
    if (taken.digits) return digit_groups(w, taken.digit_rows(), taken.digits, q, first, last, mine + own, each);
    const Unpacked u = taken.with(mine);
    for (isize g = first; g < last; g++) natural_group(w, u, q, g, mine + own);
  });
}
#endif

void few_rows(Call& call, const MatmulNbitsParams& p, const Weights& w, const gemm::Product& q) {
  const bool whole = w.bits < 16 && w.block % (LANES * (8 / w.bits)) == 0;
  const isize all = w.bits < 16 ? proven(Unpacked::bytes(p).value()) : 0, each = w.bits < 16 ? proven(few_bytes(p).value()) : 0;
  Unpacked taken(call.scratch, w);
  if (whole) taken.take(w, q.a, q.a_rs, q.m, q.k, p.rounded != 0);
#if defined(PWX_GROUPS)
  if (taken.digits || w.packed) return few_in_groups(call, w, taken, q, p);
#endif
  parallel_for(call.pool, q.n, MIN_WORK / (q.m * q.k + 1) + 1, [&](i64 begin, i64 end, int thread) {
    const Unpacked u = taken.with(call.scratch + all + thread * each);
    isize j = proven(begin);
#if defined(__AVX512F__)
    if (u.quads || u.looked_up) some_columns(w, u, q.m, j, proven(end), q.y, q.y_rs), j = proven(end);
#elif defined(__AVX2__)
    if (u.nibbles)
      nibbles_columns(w, u.rounded, nibbles_length(u.depth), u.unit, u.sums, q.m, j, proven(end), q.y, q.y_rs), j = proven(end);
#endif
    [[maybe_unused]] const isize ahead = TOUCHED / gemm::most(w.row, 1) + 1;
    for (; j < proven(end); j++) {
#if defined(__wasm__)
      if ((j - proven(begin)) % ahead == 0) w.touch(j, least(j + ahead, proven(end)));
#endif
      float y[FEW];
      if (w.dtype == BF16) halves_rows<true>(w, q.a, q.a_rs, q.m, q.k, j, y);
      else if (w.dtype == F16) halves_rows<false>(w, q.a, q.a_rs, q.m, q.k, j, y);
      else if (!whole) short_blocks(w, u, q.a, q.a_rs, q.m, q.k, j, y);
      else if (w.bits == 2) columns<2>(w, u, q.m, j, y);
      else if (w.bits == 4) columns<4>(w, u, q.m, j, y);
      else columns<8>(w, u, q.m, j, y);
      for (isize i = 0; i < q.m; i++) q.y[i * q.y_rs + j] = y[i];
    }
    for (isize i = 0; i < q.m; i++) q.e.finish(i, proven(begin), proven(end - begin), q.y + i * q.y_rs + begin, false);
  });
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
  if (q.m <= FEW) return few_rows(call, p, w, q);
#if defined(PWX_PANELS)
  const auto fits = [&] { return panels(call, Many(call.scratch, w, q.m), q, proven(Many::bytes(p).value()), proven(Many::own_bytes(p).value())); };
  if (q.k && Many::fit(p) && fits()) return;
#endif
  gemm::run_packed(call, q, gemm::Batch(), w.block, {&w, widen_panels});
}

}  // namespace

KERNEL(matmul_nbits, check, scratch, run)
