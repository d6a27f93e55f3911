// Transposed convolution: a product gives every (output channel, tap) its value at every input pixel, and those are added where they
// belong.
#include <initializer_list>

#include "gemm.h"
#include "params.h"
#include "window.h"

namespace {

using gemm::least;
using gemm::most;

struct Args {
  const ConvTransposeParams& p;
  const ConvTransposeBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const ConvTransposeParams*>(call.params)), b(*reinterpret_cast<const ConvTransposeBufs*>(call.bufs)) {}
};

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  const int32_t t = b.y.dtype;
  if (t != F32 && t != F64) return "only float32 and float64";
  if (b.x.dtype != t || b.w.dtype != t || (b.bias && b.bias.dtype != t)) return "the operands must have one element type";
  if (const char* fault = check_windows(windows_of(p), p.in)) return fault;
  if (const char* fault = check_operands(windows_of(p), p.c, p.m / p.group, b.x, b.w, b.y)) return fault;
  const i64 ny = outputs(windows_of(p));
  if (b.bias && b.bias.count() < p.m) return "bias does not fit its buffer";
  const Size image = Size(p.in[0]) * p.in[1] * p.in[2], rows = Size(p.kernel[0]) * p.kernel[1] * p.kernel[2] * (p.m / p.group);
  if (!rows.within(MAX_EXTENT)) return "a size is out of range";
  proof.operations = Size(ny) + Size(p.n) * p.c * rows * image;
  proof.writes(0, {0, ny});
  return nullptr;
}

constexpr isize BLOCK = 1 << 16;  // values of a product: they stay in a level-2 cache until they are added up
constexpr isize FEW = 64, MANY = 512;  // rows of a product, which packs the image once for all of them

struct Shape : Windows {
  isize channels;  // output channels of a work item
  isize block;     // input pixels of a product
  bool idle() const { return !c || !image; }  // there is nothing to add to the bias
  Shape(const ConvTransposeParams& p, isize threads) : Windows(p) {
    channels = most(least(m, most(FEW / taps, least(MANY / taps, (m + threads - 1) / threads))), 1);
    block = least(gemm::round_up(image, W), most(BLOCK / (channels * taps) / gemm::NR, 1) * gemm::NR);
  }
};

gemm::Blocks blocks(const Shape& s) { return gemm::blocks(s.channels * s.taps, s.block, s.c, 1); }
Size scratch_floats(const Shape& s) {
  const gemm::Blocks b = blocks(s);
  return Size(b.packed_floats) + b.rows_floats + round_up(Size(s.channels) * s.taps * s.block, 16);
}
bool empty(const ConvTransposeParams& p, const Shape& s) { return !p.n || !p.m || !s.pixels; }

PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto [p, b] = Args(call);
  const Shape s(p, threads);
  return b.y.dtype != F32 || empty(p, s) || s.idle() ? Size(0) : scratch_floats(s) * 4 * threads;
}

// y[i * stride] += v[i]
template <class T> void add(const T* v, T* y, isize stride, isize n) {
  if (stride == 1)
    for (isize i = 0; i < n; i++) y[i] += v[i];
  else
    for (isize i = 0; i < n; i++) y[i * stride] += v[i];
}
// y[2 * i] += v[i], y[2 * i + 1] += w[i]
void add_two(const float* v, const float* w, float* y, isize n) {
  isize i = 0;
  for (; i + W <= n; i += W) {
    VFF both, sum;
    both.even = load(v + i), both.odd = load(w + i);
    __builtin_memcpy(&sum, y + 2 * i, sizeof sum);
    sum += both;
    __builtin_memcpy(y + 2 * i, &sum, sizeof sum);
  }
  for (; i < n; i++) y[2 * i] += v[i], y[2 * i + 1] += w[i];
}

// Adds the values of a tap, or of two beside each other, `apart` from each other, at input pixels [q0, q1) to an output plane.
template <int TAPS, class T> void scatter(const Shape& s, const T* v, isize apart, isize q0, isize q1, const isize* tap, T* y) {
  isize shift[3];
  for (int d = 0; d < 3; d++) shift[d] = tap[d] * s.dilation[d] - s.pad[d];
  for (isize q = q0; q < q1;) {
    const isize w = q % s.in[2], h = q / s.in[2] % s.in[1], d = q / s.in[2] / s.in[1], n = least(s.in[2] - w, q1 - q);
    const isize od = d * s.stride[0] + shift[0], oh = h * s.stride[1] + shift[1], step = s.stride[2];
    if (od >= 0 && od < s.out[0] && oh >= 0 && oh < s.out[1]) {
      const T* x = v + (q - q0);
      T* row = y + (od * s.out[1] + oh) * s.out[2];
      isize ow[TAPS], lo[TAPS], hi[TAPS];
      for (int t = 0; t < TAPS; t++) {
        ow[t] = w * step + shift[2] + t;
        auto steps = [&](isize way) { return way > 0 ? least(n, (way + step - 1) / step) : 0; };
        lo[t] = steps(-ow[t]), hi[t] = steps(s.out[2] - ow[t]);
      }
      auto alone = [&](int t, isize from, isize to) {
        if (from < to) add(x + t * apart + from, row + ow[t] + from * step, step, to - from);
      };
      if constexpr (TAPS == 2) {
        const isize from = lo[0], to = most(from, hi[1]);  // where both are inside
        if (from < to) add_two(x + from, x + apart + from, row + ow[0] + 2 * from, to - from);
        alone(1, lo[1], least(from, hi[1])), alone(0, to, hi[0]);
      } else {
        alone(0, lo[0], hi[0]);
      }
    }
    q += n;
  }
}

template <class T, class F> void each_tap(const Shape& s, F&& f) {
  isize t = 0;
  for (isize d = 0; d < s.kernel[0]; d++)
    for (isize h = 0; h < s.kernel[1]; h++)
      for (isize w = 0; w < s.kernel[2]; w++, t++) {
        const isize tap[3] = {d, h, w};
        f(t, tap);
      }
}

template <class T> void start(const Shape& s, const Buf& bias, isize channel, T* y) {
  const T v = bias ? bias.as<T>()[channel] : 0;
  for (isize i = 0; i < s.pixels; i++) y[i] = v;
}

void plain(Call& call) {
  const auto [p, b] = Args(call);
  const Shape s(p, 1);
  parallel_for(call.pool, p.n * p.m, 1, [&, &p = p, &b = b](i64 begin, i64 end, int) __attribute__((minsize)) {
    for (i64 plane = begin; plane < end; plane++) {
      const isize image = proven(plane / p.m), o = proven(plane % p.m), first = o / s.m * s.c;
      double* y = b.y.as<double>() + plane * s.pixels;
      start(s, b.bias, o, y);
      for (isize c = 0; c < s.c; c++)
        each_tap<double>(s, [&](isize t, const isize* tap) {
          const double w = b.w.as<double>()[((first + c) * s.m + o % s.m) * s.taps + t];
          const double* x = b.x.as<double>() + (image * p.c + first + c) * s.image;
          for (isize q = 0; q < s.image; q++) {
            const double v = w * x[q];
            scatter<1>(s, &v, 0, q, q + 1, tap, y);
          }
        });
    }
  });
}

void run(Call& call) {
  const auto [p, b] = Args(call);
  const Shape s(p, pool_threads(call.pool));
  if (empty(p, s)) return;
  if (b.y.dtype == F64) return plain(call);
  const bool by_twos = s.stride[2] == 2 && s.dilation[2] == 1;
  const gemm::Blocks cut = s.idle() ? gemm::Blocks{} : blocks(s);
  const isize each = s.idle() ? 0 : proven(scratch_floats(s).value()), parts = (s.m + s.channels - 1) / s.channels, groups = proven(p.group);
  parallel_for(call.pool, p.n * groups * parts, 1, [&, &b = b](i64 begin, i64 end, int thread) {
    float* packed = reinterpret_cast<float*>(call.scratch) + thread * each;
    float* rows = packed + cut.packed_floats;
    float* values = rows + cut.rows_floats;
    for (i64 at = begin; at < end; at++) {
      const isize part = proven(at % parts), group = proven(at / parts % groups), image = proven(at / parts / groups);
      const isize first = part * s.channels, count = least(s.channels, s.m - first);
      float* y = b.y.as<float>() + ((image * groups + group) * s.m + first) * s.pixels;
      for (isize o = 0; o < count; o++) start(s, b.bias, group * s.m + first + o, y + o * s.pixels);
      if (s.idle()) continue;
      gemm::Product q{};
      q.m = count * s.taps, q.k = s.c;
      q.a = b.w.as<float>() + (group * s.c * s.m + first) * s.taps;
      q.a_rs = 1, q.a_cs = s.m * s.taps;
      q.b_rs = s.image, q.b_cs = 1;
      q.y = values;
      for (isize q0 = 0; q0 < s.image; q0 += s.block) {
        q.n = q.y_rs = least(s.block, s.image - q0);
        q.b = b.x.as<float>() + (image * groups + group) * s.c * s.image + q0;
        gemm::product_range(q, {nullptr, gemm::pack_matrix}, 0, q.m, 0, q.n, cut, packed, rows);
        for (isize o = 0; o < count; o++)
          each_tap<float>(s, [&](isize t, const isize* tap) {
            const float* v = values + (o * s.taps + t) * q.n;
            if (by_twos && tap[2] % 2) return;
            if (by_twos && tap[2] + 1 < s.kernel[2]) scatter<2>(s, v, q.n, q0, q0 + q.n, tap, y + o * s.pixels);
            else scatter<1>(s, v, q.n, q0, q0 + q.n, tap, y + o * s.pixels);
          });
      }
    }
  });
}

}  // namespace

KERNEL(conv_transpose, check, scratch, run)
