// Convolution as a matrix product: output channels by output pixels, over (channel, tap) pairs; the packer gathers the windows.
#include <initializer_list>

#include "depthwise_beside.h"
#include "gemm.h"
#include "params.h"
#include "shallow.h"
#include "window.h"
#include "winograd/dilated.h"

namespace {

using gemm::least;
using gemm::most;
using gemm::NR;

struct Args {
  const ConvParams& p;
  const ConvBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const ConvParams*>(call.params)), b(*reinterpret_cast<const ConvBufs*>(call.bufs)) {}
};

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  const int32_t t = b.y.dtype;
  if (t != F32 && t != F64) return "only float32 and float64";
  if (b.x.dtype != t || b.w.dtype != t || (b.bias && b.bias.dtype != t) || (b.residual && b.residual.dtype != t))
    return "the operands must have one element type";
  if (!act_known(p.act) || (act_of(p.act) > Act::CLIP && t != F32)) return "unknown activation";
  if (const char* fault = check_windows(windows_of(p), p.out)) return fault;
  if (const char* fault = check_operands(windows_of(p), p.m, p.c / p.group, b.x, b.w, b.y)) return fault;
  const i64 ny = outputs(windows_of(p));
  if (b.bias && b.bias.count() < p.m) return "bias does not fit its buffer";
  if (b.residual && b.residual.count() < ny) return "residual does not fit its buffer";
  const Size depth = Size(p.kernel[0]) * p.kernel[1] * p.kernel[2] * (p.c / p.group);
  if (!depth.within(MAX_EXTENT)) return "a size is out of range";
  proof.operations = Size(ny) * (depth + 1);
  proof.writes(0, {0, ny});
  return nullptr;
}

using Shape = Windows;

// Windows that lie apart, whose neighbouring taps lie side by side: four taps of W windows at a time.
struct Patches {
  const Shape& s;
  isize width;
  isize at[NR][3];          // where windows begin, the last of them again up to `width`
  const float* begins[NR];  // those that read the image alone, and one of these in place of others; nullptr where there is none
  bool inside[NR];

  Patches(const Shape& of, const float* x, isize pixel, isize n, isize wide) : s(of), width(wide) {
    const float* any = nullptr;
    isize place[3] = {pixel / s.out[2] / s.out[1], pixel / s.out[2] % s.out[1], pixel % s.out[2]};
    for (isize v = 0; v < width; v++) {
      inside[v] = true;
      for (int d = 0; d < 3; d++) {
        at[v][d] = place[d] * s.stride[d] - s.pad[d];
        inside[v] = inside[v] && at[v][d] >= 0 && at[v][d] + (s.kernel[d] - 1) * s.dilation[d] < s.in[d];
      }
      if (inside[v]) any = begins[v] = x + (at[v][0] * s.in[1] + at[v][1]) * s.in[2] + at[v][2];
      if (v + 1 >= n || ++place[2] < s.out[2]) continue;
      place[2] = 0;
      if (++place[1] == s.out[1]) place[1] = 0, place[0]++;
    }
    for (isize v = 0; v < width; v++)
      if (!inside[v]) begins[v] = any;
  }

  void pack(const float* x, isize k0, isize kc, float* out) const {
    for (isize v = 0; v < width && begins[0]; v += W) inner(begins + v, k0, kc, out + v);
    for (isize v = 0; v < width; v++)
      if (!inside[v]) outer(x, at[v], k0, kc, out + v);
  }

  // Rows of taps from k0 on, as each(channel, taps behind the first of a window in depth, height and width, how many).
  [[gnu::always_inline]] void rows(isize k0, isize kc, auto each) const {
    isize c = k0 / s.taps, row = k0 % s.taps / s.kernel[2], first = k0 % s.kernel[2];
    for (isize n; kc > 0; kc -= n, first = 0) {
      n = least(s.kernel[2] - first, kc);
      each(c, row / s.kernel[1] * s.dilation[0], row % s.kernel[1] * s.dilation[1], first, n);
      if (++row == s.taps / s.kernel[2]) row = 0, c++;
    }
  }

  void inner(const float* const* p, isize k0, isize kc, float* out) const {
    rows(k0, kc, [&](isize c, isize d, isize h, isize w, isize n) {
      const isize from = c * s.image + (d * s.in[1] + h) * s.in[2] + w;
      auto four = [&](isize t) {
        VF made[4];
        gemm::quads(p, from + t, made);
        for (int i = 0; i < 4; i++) store(out + (t + i) * width, made[i]);
      };
      isize t = 0;
      for (; t + 4 <= n; t += 4) four(t);
      if (t < n && n > 4) four(n - 4), t = n;
      for (; t < n; t++)
        for (int i = 0; i < W; i++) out[t * width + i] = p[i][from + t];
      out += n * width;
    });
  }

  void outer(const float* x, const isize* place, isize k0, isize kc, float* out) const {
    rows(k0, kc, [&](isize c, isize d, isize h, isize w, isize n) {
      d += place[0], h += place[1], w += place[2];
      const float* from = x + c * s.image + (d * s.in[1] + h) * s.in[2] + w;
      const bool row = d >= 0 && d < s.in[0] && h >= 0 && h < s.in[1];
      for (isize t = 0; t < n; t++, out += width) *out = row && w + t >= 0 && w + t < s.in[2] ? from[t] : 0;
    });
  }
};

// Packs the windows of output pixels: row c * taps + tap of a panel holds, for each pixel, the input that the tap reads.
struct PackWindows {
  const Shape& s;
  const float* x;

  void operator()(isize k0, isize kc, isize j, isize columns, float* out) const {
    if (kc == 0) return;
    const bool channels = k0 % s.taps == 0 && kc % s.taps == 0 && s.stride[2] <= 2;
    const isize c0 = k0 / s.taps, c1 = c0 + kc / s.taps;
    if (s.stride[2] > 2 && s.kernel[2] >= 4 && s.dilation[2] == 1) return patches(k0, kc, j, columns, out);
    isize w = j % s.out[2], h = j / s.out[2] % s.out[1], d = j / s.out[2] / s.out[1];
    for (isize n; columns > 0; columns -= n) {
      n = gemm::panel_columns(columns);
      const isize width = gemm::round_up(n, W);
      if (n < width) __builtin_memset(out, 0, size_t(width * kc) * 4);
      for (isize done = 0; done < n;) {  // runs of pixels of one output row
        const isize length = least(s.out[2] - w, n - done);
        const isize d0 = d * s.stride[0] - s.pad[0], h0 = h * s.stride[1] - s.pad[1], w0 = w * s.stride[2] - s.pad[2];
        if (length < NR || !channels || !inside(d0, h0, w0)) run(k0, kc, d0, h0, w0, length, width, out + done);
        else if (s.stride[2] == 1) panel<1>(c0, c1, (d0 * s.in[1] + h0) * s.in[2] + w0, out);
        else panel<2>(c0, c1, (d0 * s.in[1] + h0) * s.in[2] + w0, out);
        done += length, w += length;
        if (w == s.out[2]) w = 0, h++;
        if (h == s.out[1]) h = 0, d++;
      }
      out += width * kc;
    }
  }

  void patches(isize k0, isize kc, isize j, isize columns, float* out) const {
    for (isize n; columns > 0; columns -= n, j += n) {
      n = gemm::panel_columns(columns);
      const isize width = gemm::round_up(n, W);
      Patches(s, x, j, n, width).pack(x, k0, kc, out);
      out += width * kc;
    }
  }

  // Whether all taps of NR windows from this one on read the image.
  bool inside(isize d, isize h, isize w) const {
    auto within = [&](int axis, isize at, isize windows) {
      return at >= 0 && at + (s.kernel[axis] - 1) * s.dilation[axis] + (windows - 1) * s.stride[axis] < s.in[axis];
    };
    return within(0, d, 1) && within(1, h, 1) && within(2, w, NR);
  }

  // NR such windows, of channels [c0, c1).
  template <int STRIDE> void panel(isize c0, isize c1, isize at, float* out) const {
    for (isize c = c0; c < c1; c++)
      for (isize kd = 0; kd < s.kernel[0]; kd++)
        for (isize kh = 0; kh < s.kernel[1]; kh++) {
          const float* src = x + c * s.image + at + (kd * s.dilation[0] * s.in[1] + kh * s.dilation[1]) * s.in[2];
          for (isize kw = 0; kw < s.kernel[2]; kw++, src += s.dilation[2], out += NR) {
            if (STRIDE == 1)
              for (int v = 0; v < gemm::NV; v++) store(out + v * W, load(src + v * W));
            else
              for (int i = 0; i < NR; i += 4) store4(out + i, gemm::load4_even(src + 2 * i));
          }
        }
  }

  void run(isize k0, isize kc, isize d0, isize h0, isize w0, isize n, isize width, float* out) const {
    const bool whole = kc == s.c * s.taps;
    const isize step = s.taps * width;
    isize tap = 0;
    for (isize kd = 0; kd < s.kernel[0]; kd++) {
      const isize d = d0 + kd * s.dilation[0];
      for (isize kh = 0; kh < s.kernel[1]; kh++) {
        const isize h = h0 + kh * s.dilation[1];
        const bool row = d >= 0 && d < s.in[0] && h >= 0 && h < s.in[1];
        for (isize kw = 0; kw < s.kernel[2]; kw++, tap++) {
          const isize c0 = k0 <= tap ? 0 : (k0 - tap + s.taps - 1) / s.taps;
          const isize c1 = whole ? s.c : k0 + kc <= tap ? 0 : (k0 + kc - tap + s.taps - 1) / s.taps;
          const isize from = w0 + kw * s.dilation[2];
          const gemm::Span in = row ? gemm::Span(from, s.stride[2], s.in[2], n) : gemm::Span(0, 1, 0, n);
          const float* src = in.lo < in.hi ? x + c0 * s.image + (d * s.in[1] + h) * s.in[2] + from + in.lo * s.stride[2] : x;
          float* dst = out + (c0 * s.taps + tap - k0) * width;
          copy(src, dst, in, n, c1 - c0, step);
        }
      }
    }
  }

  void copy(const float* src, float* dst, gemm::Span in, isize n, isize channels, isize step) const {
    const isize stride = s.stride[2];
    for (isize c = 0; c < channels; c++, src += s.image, dst += step) {
      if (in.lo > 0) gemm::fill_zero(dst, in.lo);
      gemm::copy_strided(src, stride, dst + in.lo, in.hi - in.lo);
      if (in.hi < n) gemm::fill_zero(dst + in.hi, n - in.hi);
    }
  }
};

void pack_windows(const void* s, const gemm::Product& p, isize k0, isize kc, isize j, isize columns, float* out) {
  PackWindows{*static_cast<const Shape*>(s), p.b}(k0, kc, j, columns, out);
}

// Two-dimensional, and every output channel reads one input channel.
bool depthwise(const ConvParams& p, const Shape& s) {
  const bool flat = s.in[0] == 1 && s.kernel[0] == 1 && s.out[0] == 1 && s.pad[0] == 0;
  return flat && s.c == 1 && p.group > 1 && s.kernel[2] <= dw::MAX_COLUMNS && s.kernel[1] * s.dilation[1] <= 64 &&
         s.kernel[2] * s.dilation[2] <= 1024 && s.stride[1] <= 8 && s.stride[2] <= 8 &&
         s.out[2] <= 8192;
}

gemm::Product product(const Shape& s) {
  gemm::Product q{};
  q.m = s.m, q.n = s.pixels, q.k = s.c * s.taps;
  q.a_rs = q.k, q.a_cs = 1;
  q.b_rs = s.pixels, q.b_cs = s.pixels == 1 ? q.k : 1;
  q.y_rs = s.pixels;
  return q;
}

dw::Shape plane(const Shape& s) {
  return {s.in[1],     s.in[2],     s.out[1],      s.out[2],      s.kernel[1], s.kernel[2],
          s.stride[1], s.stride[2], s.dilation[1], s.dilation[2], s.pad[1],    s.pad[2]};
}

#if defined(__AVX__)
bool side_by_side(const ConvParams& p, const Shape& s) { return depthwise(p, s) && dw::beside::suits(plane(s), proven(p.c), s.m); }
#endif

winograd::Shape image(const ConvParams& p, const Shape& s) {
  return {proven(p.n), s.c, s.m, s.in[1], s.in[2], s.out[1], s.out[2], s.pad[1], s.pad[2]};
}

// Calls run.operator()<F>() of the way of Winograd's method that suits: 3 x 3 in two dimensions, with one stride, and large enough.
bool by_winograd(const ConvParams& p, const Shape& s, auto run) {
  if (s.in[0] != 1 || s.kernel[0] != 1 || s.out[0] != 1 || s.pad[0] != 0 || p.group != 1) return false;
  for (int d = 1; d < 3; d++)
    if (s.kernel[d] != 3 || s.dilation[d] != 1 || s.stride[d] != s.stride[1]) return false;
  auto suits = [&]<class F>() {
    if (s.stride[1] != F::STRIDE || !winograd::worthwhile<F>(image(p, s))) return false;
    run.template operator()<F>();
    return true;
  };
#if defined(__AVX__)
  return suits.template operator()<winograd::Unit>();
#else
  return suits.template operator()<winograd::Unit>() || suits.template operator()<winograd::Strided>();
#endif
}

winograd::Dilated apart(const ConvParams& p, const Shape& s) {
  return {proven(p.n), s.c, s.m, s.in[1], s.in[2], s.out[1], s.out[2], s.pad[1], s.pad[2], s.dilation[1], s.dilation[2]};
}

// 3 x 3 in two dimensions, of taps that lie apart.
bool by_apart(const ConvParams& p, const ConvBufs& b, const Shape& s) {
  if (s.in[0] != 1 || s.kernel[0] != 1 || s.out[0] != 1 || s.pad[0] != 0 || p.group != 1 || b.residual) return false;
  for (int d = 1; d < 3; d++)
    if (s.kernel[d] != 3 || s.stride[d] != 1) return false;
  return (s.dilation[1] > 1 || s.dilation[2] > 1) && winograd::worthwhile(apart(p, s));
}

#if defined(__AVX__)
shallow::Shape few_channels(const ConvParams& p, const Shape& s) { return {plane(s), proven(p.n), s.c, s.m}; }

// Two-dimensional, and not in groups.
bool shallow_suits(const ConvParams& p, const Shape& s) {
  const bool flat = s.in[0] == 1 && s.kernel[0] == 1 && s.out[0] == 1 && s.pad[0] == 0 && p.group == 1;
  return flat && shallow::suits(few_channels(p, s));
}
#endif

bool empty(const ConvParams& p, const Shape& s) { return !p.n || !p.m || !s.pixels; }

PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto [p, b] = Args(call);
  const Shape s(p);
  if (b.y.dtype != F32 || empty(p, s)) return 0;
#if defined(__AVX__)
  if (side_by_side(p, s)) return Size(dw::beside::scratch_floats(plane(s))) * 4 * threads;
#endif
  if (depthwise(p, s)) return Size(dw::scratch_floats(plane(s))) * 4 * threads;
  Size wanted = 0;
  if (by_winograd(p, s, [&]<class F>() { wanted = winograd::scratch_bytes<F>(image(p, s), threads); })) return wanted;
  if (by_apart(p, b, s)) return winograd::scratch_bytes(apart(p, s), threads);
#if defined(__AVX__)
  if (shallow_suits(p, s)) return Size(shallow::scratch_floats(few_channels(p, s))) * 4 * threads;
#endif
  const gemm::Product q = product(s);
  if (s.pointwise()) return gemm::scratch_bytes(q, threads);
  return Size(gemm::blocks(q.m, q.n, q.k, most(s.taps, 2)).packed_floats) * 4 * threads;
}

void plain(Call& call) {
  const auto [p, b] = Args(call);
  const Shape s(p);
  const double *x = b.x.as<double>(), *w = b.w.as<double>(), *bias = b.bias ? b.bias.as<double>() : nullptr;
  const double* res = b.residual ? b.residual.as<double>() : nullptr;
  double* y = b.y.as<double>();
  const bool after = comes_after(p.act);
  const Act act = act_of(p.act);
  const double low = act == Act::CLIP ? p.act_a : 0, high = act == Act::CLIP ? p.act_b : __builtin_inf();
  auto clamp = [&](double v) { return act == Act::NONE ? v : v < low ? low : v > high ? high : v; };
  parallel_for(call.pool, p.n * p.m, 1, [&, &p = p](i64 begin, i64 end, int) __attribute__((minsize)) {
    for (i64 plane = begin; plane < end; plane++) {
      const isize image = proven(plane / p.m), m = proven(plane % p.m), first = m / s.m * s.c, start = proven(plane * s.pixels);
      for (isize d = 0, at = start; d < s.out[0]; d++)
        for (isize h = 0; h < s.out[1]; h++)
          for (isize v = 0; v < s.out[2]; v++, at++) {
            double sum = bias ? bias[m] : 0;
            for (isize c = 0; c < s.c; c++) {
              const double* xc = x + (image * p.c + first + c) * s.image;
              const double* wc = w + (m * s.c + c) * s.taps;
              for (isize kd = 0; kd < s.kernel[0]; kd++)
                for (isize kh = 0; kh < s.kernel[1]; kh++)
                  for (isize kw = 0; kw < s.kernel[2]; kw++, wc++) {
                    const isize id = d * s.stride[0] - s.pad[0] + kd * s.dilation[0], ih = h * s.stride[1] - s.pad[1] + kh * s.dilation[1];
                    const isize iw = v * s.stride[2] - s.pad[2] + kw * s.dilation[2];
                    if (id >= 0 && id < s.in[0] && ih >= 0 && ih < s.in[1] && iw >= 0 && iw < s.in[2])
                      sum += *wc * xc[(id * s.in[1] + ih) * s.in[2] + iw];
                  }
            }
            if (res && after) sum += res[at];
            sum = clamp(sum);
            if (res && !after) sum += res[at];
            y[at] = sum;
          }
    }
  });
}

void run(Call& call) {
  const auto [p, b] = Args(call);
  const Shape s(p);
  if (empty(p, s)) return;
  if (b.y.dtype == F64) return plain(call);
  gemm::Product q = product(s);
  q.a = b.w.as<float>();
  q.b = b.x.as<float>();
  q.y = b.y.as<float>();
  q.e.set_act(p.act, p.act_a, p.act_b);
  q.e.res_rs = s.pixels;
  if (b.residual) q.e.res = b.residual.as<float>();
  if (b.bias) q.e.bias = b.bias.as<float>(), q.e.bias_ms = 1;
#if defined(__AVX__)
  if (side_by_side(p, s)) return dw::beside::run(call, plane(s), proven(p.n), proven(p.c), q.b, q.a, q.y, q.e);
#endif
  if (depthwise(p, s)) return dw::run(call, plane(s), proven(p.n), proven(p.c), s.m, q.b, q.a, q.y, q.e);
  if (by_winograd(p, s, [&]<class F>() { winograd::run<F>(call, image(p, s), q.b, q.a, q.y, q.e); })) return;
  if (by_apart(p, b, s)) return winograd::run(call, apart(p, s), q.b, q.a, q.y, q.e);
#if defined(__AVX__)
  if (shallow_suits(p, s)) return shallow::run(call, few_channels(p, s), q.b, q.a, q.y, q.e);
#endif
  gemm::Batch batch;
  const i64 out = s.m * s.pixels;
  batch.add(p.n, 0, p.c * s.image, p.group * out, p.group * out, 0);
  batch.add(p.group, s.m * q.k, s.c * s.image, out, out, s.m);
  if (s.pointwise()) return gemm::run(call, q, batch);
  gemm::run_packed(call, q, batch, most(s.taps, 2), {&s, pack_windows});
}

}  // namespace

KERNEL(conv, check, scratch, run)
