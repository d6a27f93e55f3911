// The range of float32 data, stretched to hold 0, as 256 codes: its scale, the code of 0, and the codes of the data.
#include <initializer_list>
#include "params.h"
#include "simd.h"

namespace {

constexpr i64 PART = 1 << 13;  // elements whose range is found at once

struct Extent {
  float low, high;  // NaN: there is one
};

i64 parts(i64 n) { return (n + PART - 1) / PART; }

PWX_SMALL const char* check(const Call& call, Proof& proof) {
  const auto& p = *reinterpret_cast<const DynamicQuantizeParams*>(call.params);
  const auto& b = *reinterpret_cast<const DynamicQuantizeBufs*>(call.bufs);
  if (b.x.dtype != F32 || b.scale.dtype != F32) return "only float32";
  if (b.zero.dtype != U8 || (b.y && b.y.dtype != U8)) return "codes must be uint8";
  if (p.n < 0 || p.n > b.x.count() || (b.y && p.n > b.y.count())) return "buffer too small";
  if (b.scale.count() < 1 || b.zero.count() < 1) return "no room for the scale or the zero point";
  proof.operations = Size(p.n) * 2 + 1;
  if (b.y) proof.writes(0, {0, p.n});
  proof.writes(1, {0, 1});
  proof.writes(2, {0, 1});
  return nullptr;
}

Size scratch(const Call& call, int) {
  return Size(parts(reinterpret_cast<const DynamicQuantizeParams*>(call.params)->n)) * sizeof(Extent);
}

Extent extent_of(const float* x, i64 n) {
  constexpr int U = 4;
  VF low[U], high[U];
  VI nan = splat_i(0);
  for (int u = 0; u < U; u++) low[u] = high[u] = splat(0);
  auto take = [&](VF v, int u) {
    low[u] = vmin(v, low[u]), high[u] = vmax(v, high[u]);
    nan |= (VI)(v != v);
  };
  i64 i = 0;
  for (; i + U * W <= n; i += U * W)
#pragma unroll
    for (int u = 0; u < U; u++) take(load(x + i + u * W), u);
  for (; i < n; i += W) take(load_part(x + i, n - i < W ? n - i : W), 0);
  for (int u = 1; u < U; u++) low[0] = vmin(low[u], low[0]), high[0] = vmax(high[u], high[0]);
  Extent all{0, 0};
  int32_t any = 0;
  for (int l = 0; l < W; l++) {
    all.low = low[0][l] < all.low ? low[0][l] : all.low, all.high = high[0][l] > all.high ? high[0][l] : all.high;
    any |= nan[l];
  }
  return any ? Extent{__builtin_nanf(""), 0} : all;
}

void codes(const float* x, i64 n, float scale, float zero, uint8_t* y) {
  typedef uint8_t BW __attribute__((ext_vector_type(W)));
  const VF by = splat(scale), point = splat(zero), least = splat(0), most = splat(255);
  auto code = [&](VF v) {
    const VF r = vmin(vmax(__builtin_elementwise_roundeven(v / by) + point, least), most);
    return __builtin_convertvector(r, VI);
  };
  i64 i = 0;
#if defined(__wasm__)
  for (; i + 16 <= n; i += 16) {
    v128_t four[4];
#pragma unroll
    for (int v = 0; v < 4; v++) four[v] = (v128_t)code(load(x + i + v * W));
    wasm_v128_store(y + i, wasm_u8x16_narrow_i16x8(wasm_i16x8_narrow_i32x4(four[0], four[1]), wasm_i16x8_narrow_i32x4(four[2], four[3])));
  }
#else
  for (; i + W <= n; i += W) {
    const BW bytes = __builtin_convertvector(code(load(x + i)), BW);
    __builtin_memcpy(y + i, &bytes, W);
  }
#endif
  for (; i < n; i += W) {
    const i64 left = n - i < W ? n - i : W;
    const BW bytes = __builtin_convertvector(code(load_part(x + i, left)), BW);
    for (i64 l = 0; l < left; l++) y[i + l] = bytes[l];
  }
}

void run(Call& call) {
  const auto& p = *reinterpret_cast<const DynamicQuantizeParams*>(call.params);
  const auto& b = *reinterpret_cast<const DynamicQuantizeBufs*>(call.bufs);
  const float* x = b.x.as<float>();
  Extent all{0, 0}, *found = reinterpret_cast<Extent*>(call.scratch);
  parallel_for(call.pool, parts(p.n), 2, [&, &p = p](i64 part, i64 end, int) {
    for (; part < end; part++) found[part] = extent_of(x + part * PART, p.n - part * PART < PART ? p.n - part * PART : PART);
  });
  for (i64 part = 0; part < parts(p.n); part++) {
    const Extent e = found[part];
    all.low = e.low < all.low || e.low != e.low ? e.low : all.low, all.high = e.high > all.high ? e.high : all.high;
  }
  const float span = (all.high - all.low) / 255;
  const float scale = span == 0 ? 1 : span;
  // Of a scale that is infinite or NaN every quotient is 0 or NaN, which is 0 as a code.
  const bool finite = scale - scale == 0;
  const float ratio = finite ? __builtin_roundevenf(-all.low / scale) : 0;
  const float zero = ratio < 255 ? ratio : 255;
  *b.scale.as<float>() = scale;
  *b.zero.as<uint8_t>() = uint8_t(zero);
  if (!b.y) return;
  uint8_t* y = b.y.as<uint8_t>();
  parallel_for(call.pool, p.n, PART * 2, [&](i64 begin, i64 end, int) {
    if (finite) codes(x + begin, end - begin, scale, zero, y + begin);
    else __builtin_memset(y + begin, 0, size_t(end - begin));
  });
}

}  // namespace

KERNEL(dynamic_quantize, check, scratch, run)
