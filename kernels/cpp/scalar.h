// A number as the bit pattern of an element.
#pragma once
#include "half.h"

inline uint64_t element_bits(int32_t dtype, double v) {
  switch (dtype) {
    case F32: return __builtin_bit_cast(uint32_t, float(v));
    case F64: return __builtin_bit_cast(uint64_t, v);
    case F16: return float_to_half(double_to_float_odd(v));
    case BF16: return float_to_bf16(double_to_float_odd(v));
    case BOOL: return v != 0;
    case U64: return v >= 0 && v < 18446744073709551616.0 ? uint64_t(v) : 0;
    default: return v >= -9223372036854775808.0 && v < 9223372036854775808.0 ? uint64_t(i64(v)) : 0;
  }
}
