// Depthwise convolution: every output channel reads one input channel. A band of input rows is copied into scratch with its padding, so
// that no border remains. Of the usual windows (`paired`) a vector of outputs is computed in two rows at once, where planes lie around the
// image (`lies`) without the copy; else the band is split by column phase when the stride is not 1, so that all taps of W neighbouring
// outputs are contiguous vectors.
#pragma once
#include "epilogue.h"
#include "gemm.h"
#include "strips.h"

namespace dw {

using gemm::least;
using gemm::most;
using gemm::round_up;

struct Shape {
  isize ih, iw, oh, ow, kh, kw, sh, sw, dh, dw, ph, pw;
};

// 3 x 3 or 5 x 5 taps, stride 1 or 2.
inline bool usual(const Shape& s) {
  const bool square = s.kh == s.kw && (s.kh == 3 || s.kh == 5) && s.sh == s.sw;
  return square && s.sh <= 2 && s.dh == 1 && s.dw == 1;
}

// By strips, from rows that need no padding.
inline bool direct(const Shape& s) { return W > 4 && usual(s); }
inline bool paired(const Shape& s) { return W == 4 && usual(s) && s.pw >= 0 && s.ow >= 4 && s.oh >= 2; }

struct Band {
  isize phase;   // floats of one column phase of a row
  isize pitch;   // floats of a row
  isize rows;    // output rows of a band
  isize inputs;  // input rows that they read
};

inline Band band(const Shape& s) {
  const isize budget = (direct(s) ? 13 : 24) << 8;  // floats: a quarter of a level-1 cache, which holds the outputs and the next rows too; most
  Band b;
  b.phase = round_up(s.ow, W) + (s.kw - 1) * s.dw / s.sw + 1;
  b.pitch = b.phase * least(s.sw, (s.kw - 1) * s.dw + 1);
  if (direct(s)) b.phase = b.pitch = most(s.iw, 1);
  if (paired(s)) b.phase = b.pitch = most(s.pw + s.iw, s.sw * s.ow + s.kw + 3);
  const isize reach = (s.kh - 1) * s.dh + 1;
  b.rows = least(s.oh, most((budget / b.pitch - reach) / s.sh + 1, most(4, reach / s.sh)));
  while (paired(s) && s.oh % b.rows == 1) b.rows++;  // a last row has one before it
  b.inputs = (b.rows - 1) * s.sh + reach;
  return b;
}

inline isize scratch_floats(const Shape& s) {
  const Band b = band(s);
  return round_up((b.inputs + paired(s)) * b.pitch, 16);
}

// Both phases of a stride of 2.
inline void copy_row_halves(const Shape& s, isize phase, const float* x, float* out) {
  const gemm::Span even(-s.pw, 2, s.iw, phase), odd(1 - s.pw, 2, s.iw, phase);
  const isize hi = least(even.hi, odd.hi);
  isize i = most(even.lo, odd.lo);
  const float* from = x - s.pw;
  gemm::fill_zero(out, i);
  gemm::fill_zero(out + phase, i);
  if (even.lo < i) out[even.lo] = from[2 * even.lo];
  if (odd.lo < i) out[phase + odd.lo] = from[2 * odd.lo + 1];
  for (; i + W <= hi; i += W) {
    VFF v;
    join(v, load(from + 2 * i), load(from + 2 * i + W));
    store(out + i, v.even);
    store(out + phase + i, v.odd);
  }
  for (; i + 4 <= hi; i += 4) {
    const VF4 a = load4(from + 2 * i), b = load4(from + 2 * i + 4);
    store4(out + i, __builtin_shufflevector(a, b, 0, 2, 4, 6));
    store4(out + phase + i, __builtin_shufflevector(a, b, 1, 3, 5, 7));
  }
  gemm::copy_strided(from + 2 * i, 2, out + i, even.hi - i);
  gemm::copy_strided(from + 2 * i + 1, 2, out + phase + i, odd.hi - i);
  gemm::fill_zero(out + even.hi, phase - even.hi);
  gemm::fill_zero(out + phase + odd.hi, phase - odd.hi);
}

// One input row (nullptr: a row of padding), columns from -pw on, into its phases.
inline void copy_row(const Shape& s, const Band& b, const float* x, float* out) {
  if (!x) return gemm::fill_zero(out, b.pitch);
  if (W > 4 && s.sw == 2 && b.pitch == 2 * b.phase) return copy_row_halves(s, b.phase, x, out);
  for (isize f = 0; f * b.phase < b.pitch; f++, out += b.phase) {
    const isize from = f - s.pw;  // column i of this phase is x[from + i * sw]
    const gemm::Span in(from, s.sw, s.iw, b.phase);
    gemm::fill_zero(out, in.lo);
    gemm::copy_strided(x + from + in.lo * s.sw, s.sw, out + in.lo, in.hi - in.lo);
    gemm::fill_zero(out + in.hi, b.phase - in.hi);
  }
}

inline void copy_band(const Shape& s, const Band& b, isize top, isize inputs, auto&& row, float* in) {
  for (isize i = 0; i < inputs; i++) {
    const isize h = top + i;
    const float* x = h >= 0 && h < s.ih ? row(h) : nullptr;
    if (!paired(s)) copy_row(s, b, x, in + i * b.pitch);
    else if (x) gemm::copy_floats(x, in + i * b.pitch + s.pw, s.iw);
    else gemm::fill_zero(in + i * b.pitch + s.pw, s.iw);
  }
}

// R rows of outputs of a band, N vectors at a time, so that there are sums enough to hide the latency of a multiply-add. offset[j] is where tap
// column j starts in a row.
template <int R, int N>
[[gnu::noinline]] inline void rows(const Shape& s, isize pitch, const float* in, const float* w, const isize* offset, float start, float* y) {
  const isize apart = s.sh * pitch;
  auto columns = [&]<int V>(isize j) __attribute__((always_inline)) {
    VF acc[R][V];
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int v = 0; v < V; v++) acc[r][v] = splat(start);
    const float *row = in + j, *tap = w;
    for (isize i = 0; i < s.kh; i++, row += s.dh * pitch)
      for (isize t = 0; t < s.kw; t++, tap++) {
        const VF weight = splat(*tap);
        const float* x = row + offset[t];
#pragma unroll
        for (int r = 0; r < R; r++, x += apart)
#pragma unroll
          for (int v = 0; v < V; v++) acc[r][v] = fma(weight, load(x + v * W), acc[r][v]), pin(acc[r][v]);
      }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
      for (int v = 0; v < V; v++) store_part(y + r * s.ow + j + v * W, acc[r][v], least(W, s.ow - j - v * W));
  };
  isize j = 0;
  for (; j + (N - 1) * W < s.ow; j += N * W) columns.template operator()<N>(j);
  for (; j < s.ow; j += W) columns.template operator()<1>(j);
}

inline void band_rows(const Shape& s, isize pitch, isize count, const float* in, const float* w, const isize* offset, float start, float* y) {
  for (isize r = 0; r < count; r += count < 4 ? 1 : 4) {
    const isize at = count < 4 ? r : least(r, count - 4);  // the last rows are computed again
    const auto some = count < 4 ? rows<1, 6> : rows<4, 2>;
    some(s, pitch, in + at * s.sh * pitch, w, offset, start, y + at * s.ow);
  }
}

struct Clamp {
  float low = -__builtin_inff(), high = __builtin_inff();
};

// The vectors of W columns of outputs that a row is computed in: those that begin in [first, last] read no column outside of the image, the
// one at 0 and the one at ow - W take zeros where `in` has no lanes. The middle tap is always inside.
struct Vectors {
  isize first, last;
  VI in[2][5];

  explicit Vectors(const Shape& s, bool padded = false) : first(0), last(s.ow - W) {
    if (padded) return;
    first = (s.pw + s.sw - 1) / s.sw;
    const isize inside = s.iw - s.kw + s.pw;
    last = least(inside < 0 ? -1 : inside / s.sw - W + 1, last);
    if (last < 0) first = most(first, 1);
    for (int side = 0; side < 2; side++)
      for (int t = 0; t < s.kw; t++)
        for (int l = 0; l < W; l++) {
          const isize at = s.sw * (side * (s.ow - W) + l) + t - s.pw;
          in[side][t][l] = at >= 0 && at < s.iw ? -1 : 0;
        }
  }
};

// Whether windows may be read where the image lies, whose planes hold what is read past either end of a row.
inline bool lies(const Shape& s) {
  const isize middle = s.kw / 2, past = s.sw * s.ow + s.kw - s.pw - s.iw;
  if (!paired(s) || s.ih * s.iw < 16 || s.pw > middle || s.sw * (s.ow - 1) + middle - s.pw >= s.iw || past > 16) return false;
  const Vectors v(s);
  return v.first <= W && (s.ow <= 2 * W || (v.first <= v.last && v.last + 2 * W >= s.ow));
}

// Rows of inputs, each from the first window on; those that there are not are zeros.
struct Rows {
  const float* x;
  isize pitch, top, inside;  // row 0 of the windows is row `top` of `inside`
  const float* zeros;

  const float* operator[](isize i) const { return size_t(top + i) < size_t(inside) ? x + (top + i) * pitch : zeros; }
};

// `count` rows of outputs, two at a time.
template <int K, int S>
[[gnu::noinline]] inline void pairs(isize ow, isize count, const Vectors& vectors, const Rows& rows, const float* w, float start, Clamp clamp,
                                    float* y) {
  constexpr bool HELD = K == 3;  // the taps stay in registers
  VF tap[HELD ? K * K : 1];
  if constexpr (HELD)
    for (int i = 0; i < K * K; i++) tap[i] = splat(w[i]);
  auto weight = [&](int i) { return HELD ? tap[i] : splat(w[i]); };
  const float* in[K + S];
  auto columns = [&](isize j, float* y, const VI* lanes) __attribute__((always_inline)) {
    VF first = splat(start), second = splat(start);
    auto input_row = [&](int i) __attribute__((always_inline)) {
      const float* row = in[i] + j * S;
      VF x[K];
#pragma unroll
      for (int t = 0; t < K; t += S) {
        if constexpr (S == 1) {
          x[t] = load(row + t);
        } else {
          VFF v;
          join(v, load(row + t), load(row + t + W));
          x[t] = v.even;
          if (t + 1 < K) x[t + 1] = v.odd;
        }
      }
      if (lanes)
#pragma unroll
        for (int t = 0; t < K; t++)
          if (t != K / 2) x[t] = as_f(as_i(x[t]) & lanes[t]);
#pragma unroll
      for (int t = 0; t < K; t++) {
        if (i < K) first += weight(i * K + t) * x[t];
        if (i >= S) second += weight((i - S) * K + t) * x[t];
      }
      pin(first);
      pin(second);
    };
    if constexpr (HELD) {
#pragma unroll
      for (int i = 0; i < K + S; i++) input_row(i);
    } else {
#pragma nounroll
      for (int i = 0; i < K + S; i++) input_row(i);
    }
    store(y + j, vmin(vmax(first, splat(clamp.low)), splat(clamp.high)));
    store(y + ow + j, vmin(vmax(second, splat(clamp.low)), splat(clamp.high)));
  };
  for (isize r = 0;; r = least(r + 2, count - 2)) {
#pragma unroll
    for (int i = 0; i < K + S; i++) in[i] = rows[r * S + i];
    for (isize j = 0;;) {
      if (j < vectors.first || j > vectors.last) columns(j, y + r * ow, vectors.in[j != 0]);
      else columns(j, y + r * ow, nullptr);
      if (j == ow - W) break;
      const isize next = j + W;
      j = next <= vectors.last ? next : j < vectors.last && next < ow - W ? vectors.last : ow - W;
    }
    if (r == count - 2) break;
  }
}

inline void all_pairs(const Shape& s, isize count, const Vectors& vectors, const Rows& rows, const float* w, float start, Clamp clamp,
                      float* y) {
  const auto go = s.kh == 3 ? s.sh == 1 ? pairs<3, 1> : pairs<3, 2> : s.sh == 1 ? pairs<5, 1> : pairs<5, 2>;
  go(s.ow, count, vectors, rows, w, start, clamp, y);
}

#if defined(__AVX__)
template <int K> struct Sums {
  static constexpr bool LOWEST = false, HELD = K == 3;  // the taps stay in registers
  const float* w;
  VF start, low, high, tap[HELD ? K * K : 1];

  Sums(const float* w, float start, Clamp clamp) : w(w), start(splat(start)), low(splat(clamp.low)), high(splat(clamp.high)) {
    if constexpr (HELD)
      for (int i = 0; i < K * K; i++) tap[i] = splat(w[i]);
  }
  struct Row {
    VF x[K];
  };
  Row row(const VF (&x)[K]) const {
    Row r;
    for (int t = 0; t < K; t++) r.x[t] = x[t];
    return r;
  }
  VF add(VF sum, const Row& row, int i) const {
#pragma unroll
    for (int t = 0; t < K; t++) sum = fma(HELD ? tap[i * K + t] : splat(w[i * K + t]), row.x[t], sum);
    return sum;
  }
  VF end(VF sum) const { return vmin(vmax(sum, low), high); }
};

template <int K, int S>
[[gnu::noinline]] inline void strip(const strips::Strip& s, const float* w, float start, Clamp clamp) {
  Sums<K> sums(w, start, clamp);
  strips::walk<K, S>(s, sums);
}

// `count` rows of outputs from row r0 on; x begins with input row h0 and ends before row h1.
inline void direct_rows(const Shape& s, isize r0, isize count, const float* x, isize h0, isize h1, const float* w, float start, Clamp clamp,
                        float* y) {
  const auto go = s.kh == 3 ? s.sh == 1 ? strip<3, 1> : strip<3, 2> : s.sh == 1 ? strip<5, 1> : strip<5, 2>;
  for (isize j = 0; j < s.ow; j += W)
    go({x, h1 - h0, s.iw, r0 * s.sh - s.ph - h0, j * s.sw - s.pw, count, s.ow - j, s.ow, y + j}, w, start, clamp);
}
#else
inline void direct_rows(const Shape&, isize, isize, const float*, isize, isize, const float*, float, Clamp, float*) {}
#endif

[[gnu::noinline]] inline void any_rows(const Shape& s, isize pitch, isize count, const float* in, const float* w, const isize* offset, VF start,
                                       Clamp clamp, float* y) {
  if (paired(s)) return all_pairs(s, count, Vectors(s, true), {in, pitch, 0, count * s.sh + s.kh, in}, w, start[0], clamp, y);
  band_rows(s, pitch, count, in, w, offset, start[0], y);
}

constexpr isize MAX_COLUMNS = 64;  // taps of a row

// Where planes come from and go to, and whether they can be read in place. `row` gives one row of plane `at`, `rows` several in a piece
// (copied into `memory` or not), `start` and `out` where `count` rows of output channel o of image i are to be written and from what they
// start, `clamp` what `usual` windows are kept to, `finish` does the rest.
struct Floats {
  static constexpr bool IN_PLACE = true;
  const Shape& s;
  const float* x;
  float* y;
  isize m, pixels;
  const Epilogue& e;

  const float* row(isize at, isize h) const { return x + (at * s.ih + h) * s.iw; }
  const float* rows(isize at, isize h0, isize, float*) const { return row(at, h0); }
  VF start(isize o) const { return e.start(o, 0, 1); }
  bool clamps() const { return (direct(s) || paired(s)) && e.simple() && !e.res && e.act != Act::NONE; }
  Clamp clamp() const { return clamps() ? Clamp{e.low(), e.high()} : Clamp(); }
  float* out(isize image, isize o, isize r0) const { return y + (image * m + o) * pixels + r0 * s.ow; }
  void finish(isize image, isize o, isize r0, isize count, float* y) const {
    if (clamps()) return;
    Epilogue each = e;
    if (each.res) each.res += image * m * pixels;
    each.finish(o, r0 * s.ow, count * s.ow, y);
  }
};

// Planes [n, c, ih, iw], w [c * multiplier, kh, kw], results [n, c * multiplier, oh, ow]. planes(memory) gives a thread's `Floats` or the
// like, with `extra` floats of memory.
inline void run_planes(Call& call, const Shape& s, isize n, isize c, isize multiplier, const float* w, isize extra, const auto& planes) {
  const Band b = band(s);
  const isize each = scratch_floats(s), pixels = s.oh * s.ow, taps = s.kh * s.kw;
  isize offset[MAX_COLUMNS];
  for (isize t = 0; t < s.kw; t++) offset[t] = t * s.dw % s.sw * b.phase + t * s.dw / s.sw;
  const bool here = decltype(planes(nullptr))::IN_PLACE && lies(s);
  const Vectors vectors(s, !here);
  const double flops = 2.0 * double(pixels * taps) * double(multiplier);
  parallel_for(call.pool, i64(n) * c, i64(gemm::MIN_FLOPS / (flops + 1)) + 1, [&](i64 begin, i64 end, int thread) {
    float* in = reinterpret_cast<float*>(call.scratch) + thread * (each + extra);
    if (paired(s)) gemm::fill_zero(in, each);  // the border, which no row is copied over, and a row of it
    const float* zeros = in + b.inputs * b.pitch;
    const auto p = planes(in + each);
    isize image = proven(begin / c), channel = proven(begin % c);
    for (isize at = proven(begin), last = proven(end); at < last; at++) {
      const bool lying = here && at > 0 && at + 1 < n * c;
      for (isize r0 = 0; r0 < s.oh; r0 += b.rows) {
        const isize count = least(b.rows, s.oh - r0), inputs = (count - 1) * s.sh + (s.kh - 1) * s.dh + 1, top = r0 * s.sh - s.ph;
        const isize h0 = least(most(top, 0), s.ih), h1 = most(least(top + inputs, s.ih), h0);  // there are
        const float* x = in;
        if (direct(s)) x = p.rows(at, h0, h1, in);
        else if (!lying) copy_band(s, b, top, inputs, [&](isize h) { return p.row(at, h); }, in);
        for (isize q = 0; q < multiplier; q++) {
          const isize o = channel * multiplier + q;
          float* yr = p.out(image, o, r0);
          const float* wo = w + o * taps;
          const VF start = p.start(o);
          if (direct(s)) direct_rows(s, r0, count, x, h0, h1, wo, start[0], p.clamp(), yr);
          else if (lying)
            all_pairs(s, count, vectors, {p.row(at, 0) - s.pw, s.iw, top, s.ih, zeros}, wo, start[0], p.clamp(), yr);
          else any_rows(s, b.pitch, count, in, wo, offset, start, p.clamp(), yr);
          p.finish(image, o, r0, count, yr);
        }
      }
      if (++channel == c) channel = 0, image++;
    }
  });
}

// e as for a product whose rows are channels.
inline void run(Call& call, const Shape& s, isize n, isize c, isize multiplier, const float* x, const float* w, float* y, const Epilogue& e) {
  run_planes(call, s, n, c, multiplier, w, 0, [&](float*) { return Floats{s, x, y, c * multiplier, s.oh * s.ow, e}; });
}

}  // namespace dw
