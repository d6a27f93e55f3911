// Convolution of bytes whose channels lie side by side, [n, h, w, c]: a product of pixels by packed weights, whose rows are gathered
// where windows have more than one tap; depthwise ones by taps.
#include "params.h"
#include "qgemm.h"
#include "qgemm/taps.h"
#include "qgemm/winograd.h"
#include "window.h"

namespace {

using gemm::least;
using gemm::round_up;
using qgemm::i32;

struct Args {
  const QconvLastParams& p;
  const QconvLastBufs& b;
  explicit Args(const Call& call)
      : p(*reinterpret_cast<const QconvLastParams*>(call.params)), b(*reinterpret_cast<const QconvLastBufs*>(call.bufs)) {}
};

constexpr isize MOST_TAPS = 256;  // of a depthwise window

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto [p, b] = Args(call);
  if (!qgemm::is_byte(b.x.dtype) || b.w.dtype != (p.group == 1 ? b.w.dtype == I8 ? int32_t(I8) : int32_t(U8) : int32_t(I16)) || b.sums.dtype != I32)
    return "the operands must be int8 or uint8, packed with their sums";
  if (b.y.dtype == I32) return "the result must be float32, int8 or uint8";
  const qgemm::Extras extras{{b.xzero, b.wzero}, b.scale, b.bias, b.residual, b.yscale, b.yzero};
  if (const char* fault = qgemm::check_extras(extras, b.x.dtype, b.w.dtype, b.y, p.act, false)) return fault;
  if (const char* fault = check_windows(windows_of(p), p.out)) return fault;
  const bool by_taps = p.group != 1;
  if (by_taps && (p.group != p.c || p.group != p.m || b.wzero)) return "a group has one channel, and its zero points are in the packed weights";
  if (p.in[0] != 1 || p.kernel[0] != 1 || p.out[0] != 1 || p.pad[0] != 0) return "windows have two axes";
  const Size taps = Size(p.kernel[1]) * p.kernel[2], depth = taps * p.c;
  if (by_taps ? !taps.within(MOST_TAPS) : !depth.within(qgemm::MAX_DEPTH)) return "a window is too large";
  const i64 xs[4] = {p.n, p.c, p.in[1], p.in[2]}, nx = product(xs, 4), ny = outputs(windows_of(p));
  const Size pixels = Size(p.n) * p.out[1] * p.out[2];
  if (nx < 0 || nx > b.x.count()) return "x does not fit its buffer";
  if (ny < 0 || ny > b.y.count() || !pixels.within(MAX_EXTENT)) return "y does not fit its buffer";
  const Size count = by_taps ? qgemm::taps_count(taps.value(), p.c) : qgemm::packed_bytes(depth.value(), p.m);
  if (!count.within(b.w.count()) || !qgemm::whole_columns(p.m).within(b.sums.count())) return "w does not fit its buffer";
  if (const char* fault = qgemm::check_channels(extras, p.m, p.wzero_ms, p.scale_ms, ny)) return fault;
  proof.operations = Size(ny) * ((by_taps ? taps : depth) + 1);
  proof.writes(0, {0, ny});
  return nullptr;
}

// One row per output pixel.
qgemm::Product product(const Args& args, const Windows& s) {
  const auto& [p, b] = args;
  qgemm::Product q{};
  q.m = proven(p.n) * s.pixels, q.n = proven(p.m), q.k = s.c * s.taps;
  q.a = b.x.as<uint8_t>(), q.a_rs = q.k, q.a_cs = 1;
  q.a_signed = b.x.dtype == I8, q.b_signed = b.w.dtype == I8;
  if (p.group == 1) q.set_packed(b.w.as<int8_t>(), b.sums.as<i32>(), b.sums.count());
  if (b.xzero) q.za = b.xzero.as<uint8_t>();
  if (b.wzero) q.zb = b.wzero.as<uint8_t>(), q.zb_s = proven(p.wzero_ms);
  q.dtype = b.y.dtype, q.y = b.y.data, q.y_rs = q.n;
  q.scale = b.scale.as<float>(), q.scale_ns = proven(p.scale_ms);
  if (b.yscale) q.set_result(b.yscale.as<float>(), !b.yzero ? 0 : b.y.dtype == I8 ? *b.yzero.as<int8_t>() : *b.yzero.as<uint8_t>());
  q.e.set_act(p.act, p.act_a, p.act_b);
  if (b.bias) q.e.bias = b.bias.as<float>(), q.e.bias_ns = 1;
  if (b.residual) q.e.res = b.residual.as<float>(), q.e.res_rs = q.n;
  return q;
}

// Where the window of an output pixel lies in x.
struct Place {
  isize image, h, w;  // of the first tap; the latter two may lie in the padding
  Place(const Windows& s, isize pixel)
      : image(pixel / s.pixels), h(pixel / s.out[2] % s.out[1] * s.stride[1] - s.pad[1]), w(pixel % s.out[2] * s.stride[2] - s.pad[2]) {}
  // On to the next one.
  void next(const Windows& s) {
    w += s.stride[2];
    if (w < s.out[2] * s.stride[2] - s.pad[2]) return;
    w = -s.pad[2], h += s.stride[1];
    if (h < s.out[1] * s.stride[1] - s.pad[1]) return;
    h = -s.pad[1], image++;
  }
};

// Gathers the windows of output pixels: rows [taps, c].
struct Gathered : qgemm::Operands {
  const Windows& s;
  Gathered(const qgemm::Product& q, const Windows& s) : Operands(q), s(s) {}

  qgemm::Rows rows(const qgemm::Product& p, const qgemm::Layout& l, isize i0, isize i1, char* out, char* memory) const override {
    uint8_t* row = reinterpret_cast<uint8_t*>(memory);
    qgemm::Product one = p;
    one.a = row, one.a_rs = 0;
    const bool as_it_is = l.unit == 4 && p.a_signed == (l.kind == qgemm::Quads::SIGNED);
    Place place(s, i0);
    for (isize i = i0; i < i1; i++, place.next(s)) {
      char* to = out + (i - i0) * l.a_rs;
      gather(p, place, as_it_is ? reinterpret_cast<uint8_t*>(to) : row);
      if (as_it_is) for (isize k = p.k; k < l.depth; k++) to[k] = 0;
      else qgemm::pack_rows(one, l, 0, 1, to);
    }
    return {out, l.a_rs};
  }

  void gather(const qgemm::Product& p, const Place& at, uint8_t* to) const {
    const uint8_t zero = p.za ? *p.za : uint8_t(0);
    const isize step = s.dilation[2], last = at.w + (s.kernel[2] - 1) * step;
    for (isize i = 0; i < s.kernel[1]; i++) {
      const isize h = at.h + i * s.dilation[1];
      const bool inside = h >= 0 && h < s.in[1];
      const uint8_t* from = p.a + ((at.image * s.in[1] + (inside ? h : 0)) * s.in[2]) * s.c;
      if (inside && step == 1 && at.w >= 0 && last < s.in[2]) {
        copy(from + at.w * s.c, to, s.kernel[2] * s.c);
        to += s.kernel[2] * s.c;
        continue;
      }
      for (isize j = 0; j < s.kernel[2]; j++, to += s.c) {
        const isize w = at.w + j * step;
        if (inside && w >= 0 && w < s.in[2]) copy(from + w * s.c, to, s.c);
        else __builtin_memset(to, zero, size_t(s.c));
      }
    }
  }

  static void copy(const uint8_t* from, uint8_t* to, isize n) {
    if (n > 16) return void(__builtin_memcpy(to, from, size_t(n)));
    if (n >= 8) {
      uint64_t first, last;
      __builtin_memcpy(&first, from, 8), __builtin_memcpy(&last, from + n - 8, 8);
      __builtin_memcpy(to, &first, 8), __builtin_memcpy(to + n - 8, &last, 8);
      return;
    }
    for (isize i = 0; i < n; i++) to[i] = from[i];
  }
};

bool gathers(const QconvLastParams& p, const Windows& s) { return p.group == 1 && !s.pointwise(); }

// What Winograd's convolution is of; nothing to do for any other.
qgemm::winograd::Shape winograd_of(const QconvLastParams& p, const Windows& s) {
  for (int d = 1; d < 3; d++)
    if (s.kernel[d] != 3 || s.stride[d] != 1 || s.dilation[d] != 1) return {};
  return {proven(p.n), s.c, s.m, s.in[1], s.in[2], s.out[1], s.out[2], s.pad[1], s.pad[2]};
}

isize blank_bytes(isize c) { return round_up(c, 64) + 64; }

PWX_SMALL Size scratch(const Call& call, int threads) {
  const auto [p, b] = Args(call);
  const Windows s(p);
  if (!p.n || !p.m || !s.pixels) return 0;
  if (p.group != 1) return qgemm::whole_columns(p.m) * 12 + blank_bytes(proven(p.m));
  const isize depth = s.c * s.taps;
  const Size direct = qgemm::scratch_bytes(proven(p.n) * s.pixels, depth, threads) + Size(gathers(p, s) ? round_up(depth, 64) : 0) * threads;
  const qgemm::winograd::Shape w = winograd_of(p, s);
  return qgemm::winograd::worthwhile(w) ? std::max(direct.value(), qgemm::winograd::scratch_bytes(w, threads).value()) : direct;
}

// Output pixels one by one: all their channels, 16 at a time.
struct Depthwise {
  const qgemm::Product& q;
  const Windows& s;
  const qgemm::Taps& taps;
  const i32* start;
  const float *scale, *bias;
  const uint8_t* blank;  // what padding reads
  const qgemm::Coder coder;
  uint8_t flip;
  isize offset[MOST_TAPS + 1];  // of the taps of a window that has no padding

  void pixel(isize i, const Place& place) const {
    const uint8_t* image = q.a + place.image * s.in[1] * s.in[2] * q.n;
    const isize last_h = place.h + (s.kernel[1] - 1) * s.dilation[1], last_w = place.w + (s.kernel[2] - 1) * s.dilation[2];
    if (place.h >= 0 && place.w >= 0 && last_h < s.in[1] && last_w < s.in[2]) {
      const uint8_t* from = image + (place.h * s.in[2] + place.w) * q.n;
      return channels(i, [&](isize t) { return from + offset[t]; });
    }
    const uint8_t* at[MOST_TAPS + 1];
    isize t = 0;
    for (isize a = 0; a < s.kernel[1]; a++) {
      const isize h = place.h + a * s.dilation[1];
      const bool inside = h >= 0 && h < s.in[1];
      for (isize b = 0; b < s.kernel[2]; b++, t++) {
        const isize w = place.w + b * s.dilation[2];
        at[t] = inside && w >= 0 && w < s.in[2] ? image + (h * s.in[2] + w) * q.n : blank;
      }
    }
    at[t] = blank;
    channels(i, [&](isize t) { return at[t]; });
  }

  template <class At> void channels(isize i, const At& at) const {
    isize c = 0;
    for (; c + qgemm::LANES <= q.n; c += qgemm::LANES) block([&](isize t) { return at(t) + c; }, i, c, qgemm::LANES);
    if (c == q.n) return;
    uint8_t rest[(MOST_TAPS + 1) * qgemm::LANES];
    for (isize t = 0; t < 2 * taps.pairs; t++)
      for (isize l = 0; l < qgemm::LANES; l++) rest[t * qgemm::LANES + l] = c + l < q.n ? at(t)[c + l] : 0;
    block([&](isize t) { return rest + t * qgemm::LANES; }, i, c, q.n - c);
  }

  template <class At> void block(const At& at, isize i, isize c, isize n) const {
    alignas(64) i32 sums[qgemm::LANES];
    const int16_t* w = taps.weights + c * 2;
    if (taps.pairs == 5) qgemm::sum_taps<5>(at, 5, flip, w, taps.columns, start + c, sums);
    else qgemm::sum_taps<0>(at, taps.pairs, flip, w, taps.columns, start + c, sums);
    if (coder.fits) coder.rows<qgemm::LANES / W>(sums, 1, scale + c, bias + c, n, static_cast<uint8_t*>(q.y) + i * q.y_rs + c, 0);
    else qgemm::finish(q, i, c, n, sums, qgemm::Quads::NONE, nullptr);
  }
};

void run_depthwise(Call& call, const Windows& s, const qgemm::Product& q, const qgemm::Taps& taps) {
  const isize n = q.n;
  i32* start = reinterpret_cast<i32*>(call.scratch);
  float *scale = reinterpret_cast<float*>(start + taps.columns), *bias = scale + taps.columns;
  uint8_t* blank = reinterpret_cast<uint8_t*>(bias + taps.columns);
  const uint8_t flip = q.a_signed ? 0x80 : 0;
  const i32 zero = q.zero_a(0);
  for (isize c = 0; c < taps.columns; c++) start[c] = i32(-uint32_t(zero + flip) * uint32_t(taps.sums[c]));
  __builtin_memset(blank, zero, size_t(blank_bytes(n)));
  qgemm::Product p = q;
  p.zb = nullptr, p.b_signed = true;
  Depthwise d{p, s, taps, start, scale, bias, blank, qgemm::Coder(p), flip, {}};
  __builtin_memset(scale, 0, size_t(taps.columns) * 8);
  if (d.coder.fits) d.coder.columns(p, 0, n, scale, bias);
  for (isize t = 0; t < s.taps; t++) d.offset[t] = (t / s.kernel[2] * s.dilation[1] * s.in[2] + t % s.kernel[2] * s.dilation[2]) * n;
  d.offset[s.taps] = 0;  // beside the last of an odd number: its weights are 0
  const double flops = 2.0 * double(s.taps) * double(n);
  parallel_for(call.pool, q.m, i64(gemm::MIN_FLOPS / (flops + 1)) + 1, [&](i64 begin, i64 end, int) {
    Place place(s, proven(begin));
    for (isize i = proven(begin), last = proven(end); i < last; i++, place.next(s)) d.pixel(i, place);
  });
}

void run(Call& call) {
  const Args args(call);
  const auto& p = args.p;
  const Windows s(p);
  if (!p.n || !p.m || !s.pixels) return;
  const qgemm::Product q = product(args, s);
  if (p.group != 1) return run_depthwise(call, s, q, qgemm::Taps(s.taps, q.n, args.b.w, args.b.sums));
  const qgemm::winograd::Shape w = winograd_of(p, s);
  if (qgemm::winograd::worthwhile(w) && qgemm::winograd::exact(q)) return qgemm::winograd::run(call, q, w);
  if (gathers(p, s)) qgemm::run(call, 1, round_up(q.k, 64), Gathered(q, s));
  else qgemm::run(call, 1, 0, qgemm::Operands(q));
}

}  // namespace

KERNEL(qconv_last, check, scratch, run)
