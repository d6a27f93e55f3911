// Weights in blocks (nbits/weights.h) as panels of floats, for products of many rows.
#pragma once
#include "nbits/groups.h"

namespace nbits {

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

inline void widen_panels(const void* w, const gemm::Product&, isize k0, isize kc, isize j, isize columns, float* out) {
  Widen{*static_cast<const Weights*>(w)}(k0, kc, j, columns, out);
}

}  // namespace nbits
