// What the kernels of bytes ask of the buffers beside their operands.
#pragma once
#include <initializer_list>

#include "epilogue.h"

namespace qgemm {

inline bool is_byte(int32_t dtype) { return dtype == U8 || dtype == I8; }

// Buffers that may be missing.
struct Extras {
  Buf zero[2];  // of the operands
  Buf scale, bias, residual, yscale, yzero;
};

// Element types, the result's scale and zero point, the activation. `plain`: nothing but the sum is asked for.
inline const char* check_extras(const Extras& x, int32_t left, int32_t right, const Buf& y, i64 act, bool plain) {
  if ((x.zero[0] && x.zero[0].dtype != left) || (x.zero[1] && x.zero[1].dtype != right)) return "a zero point must have the operand's element type";
  if (y.dtype != I32 && y.dtype != F32 && !is_byte(y.dtype)) return "the result must be int32, float32, int8 or uint8";
  if (y.dtype == I32 ? x.scale || x.bias || x.residual || !plain : !x.scale) return "a scale belongs to results that are no int32";
  for (const Buf& f : {x.scale, x.bias, x.residual, x.yscale})
    if (f && f.dtype != F32) return "scale, bias and residual must be float32";
  if (is_byte(y.dtype) ? !x.yscale || x.yscale.count() < 1 || (x.yzero && (x.yzero.dtype != y.dtype || x.yzero.count() < 1)) : x.yscale || x.yzero)
    return "a quantised result, and no other, needs its scale";
  return act_known(act) ? nullptr : "unknown activation";
}

// Sizes of the buffers of a convolution of m channels with so many outputs: one of each, or one for each channel.
inline const char* check_channels(const Extras& x, i64 m, i64 zero_step, i64 scale_step, i64 outputs) {
  auto one_each = [&](const Buf& b, i64 step) { return !b || (step == 0 ? b.count() >= 1 : step == 1 && b.count() >= m); };
  if (!one_each(x.zero[0], 0)) return "xzero does not fit its buffer";
  if (!one_each(x.zero[1], zero_step)) return "wzero does not fit its buffer";
  if (!one_each(x.scale, scale_step)) return "scale does not fit its buffer";
  if (!one_each(x.bias, 1)) return "bias does not fit its buffer";
  return x.residual && x.residual.count() < outputs ? "residual does not fit its buffer" : nullptr;
}

}  // namespace qgemm
