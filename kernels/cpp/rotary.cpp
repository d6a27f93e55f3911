// Rotary positions: pairs of each row's numbers turn by angles whose cosines and sines are given; numbers behind the pairs stay. A pair is two
// neighbours (`interleaved`), or one of either half of what turns.
#include <initializer_list>
#include "params.h"

namespace {

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const RotaryParams*>(call.params);
  const auto& b = *reinterpret_cast<const RotaryBufs*>(call.bufs);
  for (const Buf* buf : {&b.y, &b.x, &b.cos, &b.sin})
    if (buf->dtype != F32) return "only float32";
  const i64 count = product(p.shape, 4);
  if (count < 0) return "bad shape";
  if (p.pairs < 0 || p.pairs > p.shape[3] / 2) return "rows have fewer numbers than turn";
  const i64 turned[] = {p.shape[0], p.shape[1], p.shape[2], p.pairs};
  if (!view_fits(4, p.shape, p.y_stride, p.yoff, b.y.count())) return "y leaves its buffer";
  if (!view_fits(4, p.shape, p.x_stride, p.xoff, b.x.count())) return "x leaves its buffer";
  if (!view_fits(4, turned, p.cos_stride, p.cos_off, b.cos.count())) return "cos leaves its buffer";
  if (!view_fits(4, turned, p.sin_stride, p.sin_off, b.sin.count())) return "sin leaves its buffer";
  proof.operations = Size(count) * 4 + 1;
  proof.writes(0, dense(4, p.shape, p.y_stride, p.yoff));
  return nullptr;
}

// CLOSE: numbers lie side by side.
template <bool CLOSE>
void turn(const RotaryParams& p, const float* __restrict x, const float* __restrict cos, const float* __restrict sin, float* __restrict y) {
  const i64 xs = CLOSE ? 1 : p.x_stride[3], cs = CLOSE ? 1 : p.cos_stride[3], ss = CLOSE ? 1 : p.sin_stride[3], ys = CLOSE ? 1 : p.y_stride[3];
  const i64 pairs = p.pairs;
  auto pair = [&](i64 t, i64 first, i64 second) __attribute__((always_inline)) {
    const float a = x[first * xs], b = x[second * xs], c = cos[t * cs], s = sin[t * ss];
    y[first * ys] = c * a - s * b;
    y[second * ys] = s * a + c * b;
  };
  if (p.interleaved)
    for (i64 t = 0; t < pairs; t++) pair(t, 2 * t, 2 * t + 1);
  else
    for (i64 t = 0; t < pairs; t++) pair(t, t, pairs + t);
  for (i64 t = 2 * pairs; t < p.shape[3]; t++) y[t * ys] = x[t * xs];
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const RotaryParams*>(call.params);
  const auto& b = *reinterpret_cast<const RotaryBufs*>(call.bufs);
  if (product(p.shape, 4) == 0) return;
  const bool close = p.x_stride[3] == 1 && p.y_stride[3] == 1 && (p.pairs < 2 || (p.cos_stride[3] == 1 && p.sin_stride[3] == 1));
  parallel_for(call.pool, p.shape[0] * p.shape[1] * p.shape[2], (1 << 14) / p.shape[3] + 1, [&](i64 row, i64 end, int) {
    for (; row < end; row++) {
      const i64 at[] = {row / p.shape[2] / p.shape[1], row / p.shape[2] % p.shape[1], row % p.shape[2]};
      auto place = [&](const i64* stride) { return at[0] * stride[0] + at[1] * stride[1] + at[2] * stride[2]; };
      const float *x = b.x.as<float>() + p.xoff + place(p.x_stride), *cos = b.cos.as<float>() + p.cos_off + place(p.cos_stride);
      const float* sin = b.sin.as<float>() + p.sin_off + place(p.sin_stride);
      float* y = b.y.as<float>() + p.yoff + place(p.y_stride);
      if (close) turn<true>(p, x, cos, sin, y);
      else turn<false>(p, x, cos, sin, y);
    }
  });
}

}  // namespace

KERNEL(rotary, check, no_scratch, run)
