// The instructions of the map kernel: loops over one tile, found by (opcode, operand type).
#pragma once
#include <cmath>
#include <type_traits>
#include "enums.h"
#include "map_cast.h"
#include "math64.h"
#include "vmath.h"

namespace map_ops {
using Op = Instruction;
using enum Instruction;

struct Args {
  char* d;
  const char *a, *b, *c;  // unused operands are null
  i64 n;
  i64 imm;             // isinf: which signs; cast: the mode of cast::convert
  int32_t type, other;  // operand type; pow: the exponent's type; cast: the target
  bool splat;          // all elements of b are equal
  template <class T> T* out() const { return reinterpret_cast<T*>(d); }
  template <class T> const T* in(const char* p) const { return reinterpret_cast<const T*>(p); }
};
using Fn = void (*)(const Args&);

// Exact overlap of d with an operand is allowed: no iteration reads what another one writes.
template <class R, class T, class F> inline void loop1(const Args& g, F f) {
  R* d = g.out<R>();
  const T* a = g.in<T>(g.a);
  PWX_VECTORIZE
  for (i64 i = 0; i < g.n; i++) d[i] = f(a[i]);
}
template <class R, class T, class F> inline void loop2(const Args& g, F f) {
  R* d = g.out<R>();
  const T *a = g.in<T>(g.a), *b = g.in<T>(g.b);
  PWX_VECTORIZE
  for (i64 i = 0; i < g.n; i++) d[i] = f(a[i], b[i]);
}
template <class R, class T, class F> inline void loop3(const Args& g, F f) {
  R* d = g.out<R>();
  const T *a = g.in<T>(g.a), *b = g.in<T>(g.b), *c = g.in<T>(g.c);
  PWX_VECTORIZE
  for (i64 i = 0; i < g.n; i++) d[i] = f(a[i], b[i], c[i]);
}
template <class F> inline void vector(const Args& g, F f) {  // f32
  float* d = g.out<float>();
  const float *a = g.in<float>(g.a), *b = g.in<float>(g.b ? g.b : g.a), *c = g.in<float>(g.c ? g.c : g.a);
  i64 i = 0;
  for (; i + W <= g.n; i += W) store(d + i, f(load(a + i), load(b + i), load(c + i)));
  if (i64 r = g.n - i; r > 0) store_part(d + i, f(load_part(a + i, r), load_part(b + i, r), load_part(c + i, r)), r);
}

template <class T> constexpr bool floating = false;
template <> inline constexpr bool floating<float> = true;
template <> inline constexpr bool floating<double> = true;
template <class T> constexpr bool has_sign = T(-1) < T(0);

// ---- scalar meanings ----
// The first operand where they are equal, as with CLAMP and RELU: zeros keep their sign.
template <class T> inline T minimum(T a, T b) { return a <= b || a != a ? a : b; }
template <class T> inline T maximum(T a, T b) { return a >= b || a != a ? a : b; }
template <class T> inline T divide(T a, T b) {
  if constexpr (floating<T>) return a / b;
  else if (b == 0) return 0;
  else if (has_sign<T> && b == T(-1)) return T(0 - uint64_t(a));
  else return T(a / b);
}
template <class T> inline T remainder(T a, T b) {
  if constexpr (floating<T>) return T(__builtin_fmod(double(a), double(b)));  // exact, whatever T
  else return b == 0 || (has_sign<T> && b == T(-1)) ? T(0) : T(a % b);
}
template <class T> inline T modulo(T a, T b) {
  T r = remainder(a, b);
  if constexpr (floating<T>) return r == 0 ? T(__builtin_copysign(double(r), double(b))) : (r < 0) != (b < 0) ? r + b : r;
  else return r != 0 && (r < 0) != (b < 0) ? T(r + b) : r;
}
template <class T> inline T sign(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x; }
template <class T> inline T keep_nan(T x, T y) { return x != x ? x : y; }
template <class T> inline T clamped(T x, T lo, T hi) {
  T y = x < lo ? lo : x;
  y = y > hi ? hi : y;
  return keep_nan(x, y);
}
template <class T> inline T shift_left(T a, T b) { return b < 0 || uint64_t(b) >= sizeof(T) * 8 ? T(0) : T(uint64_t(a) << b); }
template <class T> inline T shift_right(T a, T b) {
  if (b < 0 || uint64_t(b) >= sizeof(T) * 8) return a < 0 ? T(-1) : T(0);
  return T(a >> b);
}
inline double gelu64(double x) { return 0.5 * x * __builtin_erfc(x * -0.70710678118654752440); }

// ---- float functions ----
template <VF (*f)(VF)> void vec(const Args& g) { vector(g, [](VF a, VF, VF) { return f(a); }); }
template <auto f> void f32_each(const Args& g) { loop1<float, float>(g, [](float x) { return float(f(x)); }); }
template <auto f> void f64_each(const Args& g) { loop1<double, double>(g, [](double x) { return double(f(x)); }); }
inline VF vsqrt(VF x) { return __builtin_elementwise_sqrt(x); }
inline VF vrsqrt(VF x) { return 1.0f / vsqrt(x); }

inline Fn float_unary(Op op, bool single) {
#define MATH(OP, name) \
  case OP: return single ? Fn(f32_each<[](float x) { return __builtin_##name##f(x); }>) : Fn(f64_each<[](double x) { return __builtin_##name(x); }>);
// Seldom used: in double for both.
#define EACH(OP, expr) \
  case OP: return single ? Fn(f32_each<[](float v) { double x = double(v); return float(expr); }>) : Fn(f64_each<[](double x) { return expr; }>);
#define FAST(OP, vec_name, expr) \
  case OP: return single ? Fn(vec<vec_name>) : Fn(f64_each<[](double x) -> double { return expr; }>);
  switch (op) {
    MATH(FLOOR, floor) MATH(CEIL, ceil) MATH(TRUNC, trunc) MATH(ROUND, rint)
    EACH(ASINH, math64::asinh(x)) EACH(ACOSH, math64::acosh(x)) EACH(ATANH, __builtin_atanh(x))
    FAST(SQRT, vsqrt, __builtin_sqrt(x))
    FAST(RSQRT, vrsqrt, 1 / __builtin_sqrt(x))
    FAST(EXP, vexp_gradual, __builtin_exp(x))
    FAST(LOG, vlog, math64::log(x))
    FAST(SIN, vsin, __builtin_sin(x))
    FAST(COS, vcos, __builtin_cos(x))
    FAST(TAN, vtan, __builtin_tan(x))
    FAST(ASIN, vasin, __builtin_asin(x))
    FAST(ACOS, vacos, __builtin_acos(x))
    FAST(ATAN, vatan, __builtin_atan(x))
    FAST(SINH, vsinh, __builtin_sinh(x))
    FAST(COSH, vcosh, __builtin_cosh(x))
    FAST(TANH, vtanh, __builtin_tanh(x))
    FAST(ERF, verf, __builtin_erf(x))
    FAST(SIGMOID, vsigmoid, 1 / (1 + __builtin_exp(-x)))
    FAST(SILU, vsilu, x / (1 + __builtin_exp(-x)))
    FAST(GELU, vgelu, gelu64(x))
    FAST(GELU_TANH, vgelu_tanh, x / (1 + __builtin_exp(-1.59576912160573071176 * (x + 0.044715 * x * x * x))))
    FAST(SOFTPLUS, vsoftplus, (x > 0 ? x : 0) + __builtin_log1p(__builtin_exp(-__builtin_fabs(x))))
    FAST(HARDSWISH, vhardswish, x * clamped((x + 3) / 6, 0.0, 1.0))
    default: return nullptr;
  }
#undef MATH
#undef EACH
#undef FAST
}

// Constant exponents that graphs are full of need no logarithm.
inline void pow_f32(const Args& g) {
  float e = g.splat ? g.in<float>(g.b)[0] : 0.0f;
  if (e == 2) return vector(g, [](VF a, VF, VF) { return a * a; });
  if (e == 3) return vector(g, [](VF a, VF, VF) { return a * a * a; });
  if (e == -1) return vector(g, [](VF a, VF, VF) { return 1.0f / a; });
  if (e == 0.5f) return vector(g, [](VF a, VF, VF) { return a == -__builtin_inff() ? -a : vsqrt(a) + 0.0f; });
  vector(g, [](VF a, VF b, VF) { return vpow(a, b); });
}

inline i64 ipow(i64 base, i64 e, bool base_unsigned, bool e_unsigned) {
  if (e < 0 && !e_unsigned) return base == 1 ? 1 : base == -1 && !base_unsigned ? (e & 1 ? -1 : 1) : 0;
  uint64_t r = 1, b = uint64_t(base), n = uint64_t(e);
  for (; n; n >>= 1, b *= b)
    if (n & 1) r *= b;
  return i64(r);
}

inline void pow_any(const Args& g) {
  if (g.type == F32 && g.other == F32) return pow_f32(g);
  alignas(64) char x[cast::CHUNK * 8], y[cast::CHUNK * 8];
  i64 ts = dtype_size(g.type), es = dtype_size(g.other);
  bool integers = cast::is_int(g.type) && cast::is_int(g.other);
  int32_t mid = integers ? I64 : g.type == F32 && g.other != F64 ? F32 : F64;
  for (i64 i = 0; i < g.n; i += cast::CHUNK) {
    i64 n = g.n - i < cast::CHUNK ? g.n - i : cast::CHUNK;
    cast::convert(x, mid, g.a + i * ts, g.type, n);
    cast::convert(y, mid, g.b + i * es, g.other, n);
    Args m{x, x, y, nullptr, n, 0, mid, mid, false};
    if (integers) loop2<i64, i64>(m, [&](i64 a, i64 b) { return ipow(a, b, g.type == U64, g.other == U64); });
    else if (mid == F64) loop2<double, double>(m, [](double a, double b) { return __builtin_pow(a, b); });
    else m.splat = g.splat, pow_f32(m);
    cast::convert(g.d + i * ts, g.type, x, mid, n);
  }
}

// ---- by type ----
// T: the type; U: the unsigned type of its size, for what wraps; integers only, floats pass T. What only wraps is the same without a sign.
template <class T, class U> inline Fn numeric(Op op) {
  constexpr bool F = floating<T>;
  using P = decltype(U(0) + 0u);  // U after promotion, without sign
#define UN(OP, type, expr) case OP: return [](const Args& g) { loop1<type, type>(g, [](type a) { return type(expr); }); };
#define BI(OP, type, expr) case OP: return [](const Args& g) { loop2<type, type>(g, [](type a, type b) { return type(expr); }); };
#define TRI(OP, type, expr) case OP: return [](const Args& g) { loop3<type, type>(g, [](type a, type b, type c) { return type(expr); }); };
#define CMP(OP, expr) case OP: return [](const Args& g) { loop2<uint8_t, T>(g, [](T a, T b) { return uint8_t(expr); }); };
  switch (op) {
    UN(SIGN, T, sign(a))
    BI(DIV, T, divide(a, b)) BI(MOD, T, modulo(a, b)) BI(FMOD, T, remainder(a, b))
    BI(MIN, T, minimum(a, b)) BI(MAX, T, maximum(a, b))
    CMP(LT, a < b) CMP(LE, a <= b)
    case POW: return pow_any;
    default: break;
  }
#if defined(__AVX512F__)
  // Of itself the compiler takes vectors of 256 bits.
  if constexpr (F && sizeof(T) == 4) {
#define VEC(OP, expr) case OP: return [](const Args& g) { vector(g, [](VF a, [[maybe_unused]] VF b, [[maybe_unused]] VF c) { return expr; }); };
    switch (op) {
      VEC(NEG, -a) VEC(ADD, a + b) VEC(SUB, a - b) VEC(MUL, a * b) VEC(FMA, a * b + c) VEC(ABS, vabs(a))
      default: break;
    }
#undef VEC
  }
#endif
  if constexpr (has_sign<T>) {
    switch (op) {
      UN(NEG, U, -a)
      BI(ADD, U, a + b) BI(SUB, U, a - b) BI(MUL, U, P(a) * P(b))
      TRI(FMA, U, P(a) * P(b) + c)
      default: break;
    }
  }
  if constexpr (F) {
    switch (op) {
      UN(ABS, T, __builtin_elementwise_abs(a)) UN(RECIP, T, T(1) / a)
      BI(PRELU, T, a < 0 ? a * b : a)
      CMP(EQ, a == b)
      case ISNAN: return [](const Args& g) { loop1<uint8_t, T>(g, [](T a) { return uint8_t(a != a); }); };
      case ISINF:
        return [](const Args& g) {
          bool plus = g.imm & 1, minus = g.imm & 2;
          loop1<uint8_t, T>(g, [=](T a) { return uint8_t((plus & (a == T(__builtin_inf()))) | (minus & (a == -T(__builtin_inf())))); });
        };
      default: break;
    }
    if constexpr (sizeof(T) == 4) {
      switch (op) {
        case RELU: return vec<vrelu>;
        case CLAMP: return [](const Args& g) { vector(g, [](VF a, VF lo, VF hi) { return vmin(vmax(a, lo), hi); }); };
        case ELU: return [](const Args& g) { vector(g, [](VF a, VF alpha, VF) { return velu(a, alpha); }); };
        default: break;
      }
    } else {
      switch (op) {
        UN(RELU, T, keep_nan(a, a < 0 ? T(0) : a))
        TRI(CLAMP, T, clamped(a, b, c))
        BI(ELU, T, a < 0 ? b * __builtin_expm1(a) : a)
        default: break;
      }
    }
    return float_unary(op, sizeof(T) == 4);
  } else {
    if constexpr (has_sign<T>) {
      switch (op) {
        UN(ABS, T, a < 0 ? T(P(0) - P(a)) : a) UN(BITNOT, U, ~a) UN(RELU, T, a < 0 ? T(0) : a)
        BI(BITAND, U, a & b) BI(BITOR, U, a | b) BI(BITXOR, U, a ^ b) BI(SHL, T, shift_left(a, b))
        BI(PRELU, T, a < 0 ? T(P(a) * P(b)) : a)
        default: break;
      }
    } else {
      switch (op) {
        UN(ABS, T, a) UN(RELU, T, a)
        BI(PRELU, T, (void(b), a))
        default: break;
      }
    }
    switch (op) {
      BI(SHR, T, shift_right(a, b))
      TRI(CLAMP, T, clamped(a, b, c))
      default: break;
    }
    if constexpr (has_sign<T>) return nullptr;
    else return numeric<std::make_signed_t<T>, U>(op);
  }
#undef UN
#undef BI
#undef TRI
#undef CMP
}

template <class U> inline Fn by_size(Op op) {
  if (op == EQ) return [](const Args& g) { loop2<uint8_t, U>(g, [](U a, U b) { return uint8_t(a == b); }); };
  if (op != WHERE) return nullptr;
  return [](const Args& g) {
    U* d = g.out<U>();
    const auto* m = g.in<uint8_t>(g.a);
    const U *b = g.in<U>(g.b), *c = g.in<U>(g.c);
    PWX_VECTORIZE
    for (i64 i = 0; i < g.n; i++) {
      U x = b[i], y = c[i];
      d[i] = m[i] ? x : y;
    }
  };
}

inline Fn boolean(Op op) {
#define BI(OP, expr) case OP: return [](const Args& g) { loop2<uint8_t, uint8_t>(g, [](uint8_t a, uint8_t b) { return uint8_t(expr); }); };
  switch (op) {
    case NOT: return [](const Args& g) { loop1<uint8_t, uint8_t>(g, [](uint8_t a) { return uint8_t(a == 0); }); };
    BI(AND, (a != 0) & (b != 0)) BI(OR, (a | b) != 0) BI(XOR, (a != 0) != (b != 0)) BI(EQ, (a != 0) == (b != 0))
    BI(LT, (a == 0) & (b != 0)) BI(LE, (a == 0) | (b != 0))
    default: return nullptr;
  }
#undef BI
}

// The loop for an instruction on operands of `type`, nullptr when there is none. CONST, INDEX and CAST are the interpreter's.
inline Fn lookup(Op op, int32_t type) {
  if (op == WHERE || (op == EQ && cast::is_int(type))) {
    if (cast::is_small_float(type)) return nullptr;
    switch (dtype_size(type)) {
      case 1: return by_size<uint8_t>(op);
      case 2: return by_size<uint16_t>(op);
      case 4: return by_size<uint32_t>(op);
      case 8: return by_size<uint64_t>(op);
      default: return nullptr;
    }
  }
  switch (type) {
    case F32: return numeric<float, float>(op);
    case F64: return numeric<double, double>(op);
    case I8: case U8: case I16: case U16: case I32: return numeric<int32_t, uint32_t>(op);
    case U32: return numeric<uint32_t, uint32_t>(op);
    case I64: return numeric<i64, uint64_t>(op);
    case U64: return numeric<uint64_t, uint64_t>(op);
    case BOOL: return boolean(op);
    default: return nullptr;
  }
}

// 8 and 16-bit integers compute as int32, whose low bits are theirs.
inline bool widens(Op op, int32_t type) { return cast::is_int(type) && dtype_size(type) < 4 && op != WHERE && op != EQ && op != POW; }

// Runs what `lookup` found.
inline void apply(Fn fn, Op op, const Args& g) {
  if (!widens(op, g.type)) return fn(g);
  const i64 size = dtype_size(g.type);
  const char* operands[] = {g.a, g.b, g.c};
  alignas(64) int32_t wide[4][cast::CHUNK];
  for (i64 i = 0; i < g.n; i += cast::CHUNK) {
    Args m = g;
    m.type = I32, m.n = g.n - i < cast::CHUNK ? g.n - i : cast::CHUNK;
    const char** to[] = {&m.a, &m.b, &m.c};
    for (int k = 0; k < 3; k++)
      if (operands[k]) cast::convert(wide[k], I32, operands[k] + i * size, g.type, m.n), *to[k] = reinterpret_cast<char*>(wide[k]);
    if (op == LT || op == LE) {
      m.d = g.d + i;
      fn(m);
      continue;
    }
    m.d = reinterpret_cast<char*>(wide[3]);
    fn(m);
    cast::convert(g.d + i * size, g.type, m.d, I32, m.n);
  }
}

// How many of a, b, c an instruction reads from registers.
inline int arity(Op op) {
  if (op == CONST || op == INDEX) return 0;
  if (op == WHERE || op == CLAMP || op == FMA) return 3;
  return op >= ADD && op != CAST ? 2 : 1;
}
}  // namespace map_ops
