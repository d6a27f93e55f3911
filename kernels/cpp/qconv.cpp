// Convolution of bytes with zero points: output channels by output pixels over (channel, tap) pairs, as conv.cpp has it; the sums, or
// scaled to float32, or scaled and quantised again. Depthwise ones add up in float32, exactly: 255 * 255 * taps is below 2^24.
#include "depthwise.h"
#include "params.h"
#include "qgemm.h"
#include "window.h"

namespace {

using gemm::least;
using qgemm::i32;

struct Args {
  const QconvParams& p;
  const QconvBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const QconvParams*>(call.params)), b(*reinterpret_cast<const QconvBufs*>(call.bufs)) {}
};

constexpr isize FLOAT_TAPS = 250;  // of a sum of products of bytes that float32 holds exactly

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  if (!qgemm::is_byte(b.x.dtype) || !qgemm::is_byte(b.w.dtype)) return "the operands must be int8 or uint8";
  const qgemm::Extras extras{{b.xzero, b.wzero}, b.scale, b.bias, b.residual, b.yscale, b.yzero};
  if (const char* fault = qgemm::check_extras(extras, b.x.dtype, b.w.dtype, b.y, p.act, act_of(p.act) == Act::NONE)) return fault;
  if (const char* fault = check_windows(windows_of(p), p.out)) return fault;
  if (const char* fault = check_operands(windows_of(p), p.m, p.c / p.group, b.x, b.w, b.y)) return fault;
  const i64 ny = outputs(windows_of(p));
  if (const char* fault = qgemm::check_channels(extras, p.m, p.wzero_ms, p.scale_ms, ny)) return fault;
  const Size depth = Size(p.kernel[0]) * p.kernel[1] * p.kernel[2] * (p.c / p.group);
  if (!depth.within(qgemm::MAX_DEPTH)) return "a sum of more than 2^24 terms";
  proof.operations = Size(ny) * (depth + 1);
  proof.writes(0, {0, ny});
  return nullptr;
}

struct Shape : Windows {
  isize depth;
  explicit Shape(const QconvParams& p) : Windows(p), depth(c * taps) {}
  dw::Shape plane() const {
    return {in[1], in[2], out[1], out[2], kernel[1], kernel[2], stride[1], stride[2], dilation[1], dilation[2], pad[1], pad[2]};
  }
};

// Two-dimensional, and every output channel reads one input channel.
bool depthwise(const QconvParams& p, const Shape& s) {
  const bool flat = s.in[0] == 1 && s.kernel[0] == 1 && s.out[0] == 1 && s.pad[0] == 0;
  return flat && s.c == 1 && p.group > 1 && s.kernel[2] <= dw::MAX_COLUMNS && s.kernel[1] * s.dilation[1] <= 64 && s.taps <= FLOAT_TAPS &&
         s.kernel[2] * s.dilation[2] <= 1024 && s.stride[1] <= 8 && s.stride[2] <= 8 && s.out[2] <= 8192;
}

// A product for each image and group. Gathers the bytes that the taps of output pixels read, a zero point where they read padding, and
// packs them.
struct Images : qgemm::Operands {
  const Shape& s;
  isize groups;
  Images(const qgemm::Product& q, const Shape& s, i64 groups) : Operands(q), s(s), groups(proven(groups)) {}

  qgemm::Product at(i64 batch) const override {
    const isize image = proven(batch / groups), g = proven(batch % groups), out = s.m * s.pixels;
    qgemm::Product r = size;
    r.a += g * s.m * s.depth;
    if (r.za) r.za += g * s.m * r.za_s;
    r.b += (image * groups + g) * s.c * s.image;
    r.y = static_cast<char*>(r.y) + batch * out * (r.dtype == I32 || r.dtype == F32 ? 4 : 1);
    if (r.scale) r.scale += g * s.m * r.scale_ms;
    if (r.e.bias) r.e.bias += g * s.m;
    if (r.e.res) r.e.res += batch * out;
    return r;
  }

  void panel(const qgemm::Product& p, isize j, isize columns, isize width, isize unit, uint8_t* out, char* memory) const override {
    if (!s.depth) return;
    const uint8_t flip = p.b_signed ? 0 : 0x80;
    if (s.pointwise()) return qgemm::pack_panel(p.b + j, s.image, 1, s.depth, columns, width, unit, flip, out);
    uint8_t* rows = reinterpret_cast<uint8_t*>(memory);  // [depth, NR]
    isize w = j % s.out[2], h = j / s.out[2] % s.out[1], d = j / s.out[2] / s.out[1];
    for (isize done = 0; done < columns;) {  // runs of pixels of one output row
      const isize length = least(s.out[2] - w, columns - done);
      gather(p.b, p.zb ? *p.zb : uint8_t(0), d * s.stride[0] - s.pad[0], h * s.stride[1] - s.pad[1], w * s.stride[2] - s.pad[2], length, rows + done);
      done += length;
      w = 0;
      if (++h == s.out[1]) h = 0, d++;
    }
    qgemm::pack_panel(rows, qgemm::NR, 1, s.depth, columns, width, unit, flip, out);
  }

  void gather(const uint8_t* x, uint8_t zero, isize d0, isize h0, isize w0, isize n, uint8_t* out) const {
    const isize step = s.taps * qgemm::NR, stride = s.stride[2];
    isize tap = 0;
    for (isize kd = 0; kd < s.kernel[0]; kd++)
      for (isize kh = 0; kh < s.kernel[1]; kh++) {
        const isize d = d0 + kd * s.dilation[0], h = h0 + kh * s.dilation[1];
        const bool inside = d >= 0 && d < s.in[0] && h >= 0 && h < s.in[1];
        for (isize kw = 0; kw < s.kernel[2]; kw++, tap++) {
          const isize from = w0 + kw * s.dilation[2];
          const gemm::Span in = inside ? gemm::Span(from, stride, s.in[2], n) : gemm::Span(0, 1, 0, n);
          const uint8_t* src = in.lo < in.hi ? x + (d * s.in[1] + h) * s.in[2] + from : x;
          uint8_t* dst = out + tap * qgemm::NR;
          for (isize c = 0; c < s.c; c++, src += s.image, dst += step) {
            for (isize i = 0; i < in.lo; i++) dst[i] = zero;
            if (stride == 1)
              for (isize i = in.lo; i < in.hi; i++) dst[i] = src[i];
            else
              for (isize i = in.lo; i < in.hi; i++) dst[i] = src[i * stride];
            for (isize i = in.hi; i < n; i++) dst[i] = zero;
          }
        }
      }
  }
};

qgemm::Product product(const Args& args, const Shape& s) {
  const auto& [p, b] = args;
  qgemm::Product q{};
  q.m = s.m, q.n = s.pixels, q.k = s.depth;
  q.a = b.w.as<uint8_t>(), q.b = b.x.as<uint8_t>();
  q.a_rs = q.k, q.a_cs = 1, q.b_rs = s.image, q.b_cs = 1;
  q.a_signed = b.w.dtype == I8, q.b_signed = b.x.dtype == I8;
  if (b.wzero) q.za = b.wzero.as<uint8_t>(), q.za_s = proven(p.wzero_ms);
  if (b.xzero) q.zb = b.xzero.as<uint8_t>();
  q.dtype = b.y.dtype, q.y = b.y.data, q.y_rs = s.pixels;
  if (b.scale) q.scale = b.scale.as<float>(), q.scale_ms = proven(p.scale_ms);
  if (b.yscale) q.set_result(b.yscale.as<float>(), !b.yzero ? 0 : b.y.dtype == I8 ? *b.yzero.as<int8_t>() : *b.yzero.as<uint8_t>());
  q.e.set_act(p.act, p.act_a, p.act_b);
  q.e.res_rs = s.pixels;
  if (b.bias) q.e.bias = b.bias.as<float>(), q.e.bias_ms = 1;
  if (b.residual) q.e.res = b.residual.as<float>();
  return q;
}

PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto [p, b] = Args(call);
  const Shape s(p);
  if (!p.n || !p.m || !s.pixels) return 0;
  if (depthwise(p, s)) {
    const dw::Shape plane = s.plane();
    const Size floats = Size(dw::scratch_floats(plane)) + gemm::round_up(plane.iw, 16) + gemm::round_up(dw::band(plane).rows * plane.ow, 16);
    return floats * 4 * threads + round_up(Size(p.m) * s.taps, 16) * 4;
  }
  const isize extra = s.pointwise() ? 0 : gemm::round_up(s.depth * qgemm::NR, 64);
  return qgemm::scratch_bytes(s.m, s.depth, threads) + Size(extra) * threads;
}

// Planes of bytes, less their zero point, as floats; sums on the way back.
struct Bytes {
  static constexpr bool IN_PLACE = false;
  const qgemm::Product& q;
  const dw::Shape& s;
  isize m;
  float *line, *sums;

  const float* row(isize at, isize h) const { return rows(at, h, h + 1, line); }
  const float* rows(isize at, isize h0, isize h1, float* memory) const {
    const uint8_t* from = q.b + (at * s.ih + h0) * s.iw;
    const i32 zero = !q.zb ? 0 : q.b_signed ? int8_t(*q.zb) : *q.zb;
    const uint8_t flip = q.b_signed ? 0x80 : 0;  // signed bytes become unsigned ones of 128 more
    const float less = float(zero + flip);
    const isize n = (h1 - h0) * s.iw;
    isize i = 0;
    for (; i + 16 <= n; i += 16) {
      VB16 bytes;
      __builtin_memcpy(&bytes, from + i, sizeof bytes);
      const VF16 v = floats(bytes ^ (VB16)flip) - (VF16)less;
      __builtin_memcpy(memory + i, &v, sizeof v);
    }
    for (; i < n; i++) memory[i] = float(from[i] ^ flip) - less;
    return memory;
  }
  VF start(isize) const { return splat(0); }
  dw::Clamp clamp() const { return {}; }
  float* out(isize, isize, isize) const { return sums; }
  void finish(isize image, isize o, isize r0, isize count, float* y) const {
    qgemm::Product p = q;
    const isize pixels = s.oh * s.ow, each = q.dtype == I32 || q.dtype == F32 ? 4 : 1;
    p.y = static_cast<char*>(q.y) + image * m * pixels * each;
    if (p.e.res) p.e.res += image * m * pixels;
    const isize n = count * s.ow;
    qgemm::finish_sums(p, o, r0 * s.ow, n, [&](isize c) { return load_part(y + c, least(W, n - c)); });
  }
};

void run_depthwise(Call& call, const QconvParams& p, const Shape& s, const qgemm::Product& q) {
  const dw::Shape plane = s.plane();
  const isize m = proven(p.m), line = gemm::round_up(plane.iw, 16), sums = gemm::round_up(dw::band(plane).rows * plane.ow, 16);
  float* w = reinterpret_cast<float*>(call.scratch) + (dw::scratch_floats(plane) + line + sums) * pool_threads(call.pool);
  for (isize o = 0; o < m; o++)
    for (isize t = 0; t < s.taps; t++) {
      const uint8_t v = q.a[o * s.taps + t];
      w[o * s.taps + t] = float((q.a_signed ? int8_t(v) : v) - q.zero_a(o));
    }
  dw::run_planes(call, plane, proven(p.n), proven(p.c), s.m, w, line + sums, [&](float* memory) { return Bytes{q, plane, m, memory, memory + line}; });
}

void run(Call& call) {
  const Args args(call);
  const auto& p = args.p;
  const Shape s(p);
  if (!p.n || !p.m || !s.pixels) return;
  const qgemm::Product q = product(args, s);
  if (depthwise(p, s)) return run_depthwise(call, p, s, q);
  const isize extra = s.pointwise() ? 0 : gemm::round_up(s.depth * qgemm::NR, 64);
  qgemm::run(call, p.n * p.group, extra, Images(q, s, p.group));
}

}  // namespace

KERNEL(qconv, check, scratch, run)
