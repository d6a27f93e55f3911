// Instructions that end many programs, as one loop: what quantises, and what takes a quantised number back.
#pragma once
#include "map_ops.h"

namespace chains {
using enum Instruction;

enum class Kind : int8_t { NONE, QUANTIZE, DEQUANTIZE };

// What a step reads: a constant, by where that lies, or a register. Neither: it reads nothing.
struct Operand {
  int slot = -1, reg = -1;
  explicit operator bool() const { return slot >= 0 || reg >= 0; }
};

// QUANTIZE: clamp(round(x / scale) + zero, low, high); DEQUANTIZE: (x - zero) * scale. There may be no zero. Bytes.
struct Chain {
  Kind kind = Kind::NONE;
  bool has_sign = false;  // what is quantised
  Operand x, scale, zero, low, high;
  int first = 0;  // step
};
struct Operands {
  const char *x, *scale, *zero, *low, *high;
};

inline bool byte(int32_t type) { return type == U8 || type == I8; }

// Reads a program backwards: a step, the last one that is no constant; each is read by the next as its `a`.
template <class Step> class Reader {
 public:
  Reader(const Step* steps, int n) : steps_(steps), n_(n), at_(n) {}
  int index() const { return at_ - 1; }
  const Step& now() const { return steps_[at_ - 1]; }
  bool is(Instruction op, int32_t type) const { return at_ && now().op == op && now().type == type; }
  bool next() {
    const int read = steps_[--at_].a;
    while (at_ && now().op == CONST && now().dst != read) at_--;
    return at_ && now().dst == read && now().op != CONST;
  }
  // The constant that the step reads from a register.
  const Step* constant(int reg) const {
    for (int i = at_ - 1; i-- > 0;)
      if (steps_[i].dst == reg) return steps_[i].op == CONST ? &steps_[i] : nullptr;
    return nullptr;
  }
  // Whether a register holds what step `at` reads, though of the steps from this one on the constants alone have been done.
  bool stays(int at, int reg) const {
    for (int i = index(); i < n_; i++)
      if (steps_[i].dst == reg && (steps_[i].op == CONST || i < at)) return false;
    return true;
  }

 private:
  const Step* steps_;
  int n_, at_;
};

// What ends a program of n steps.
template <class Step> PWX_SMALL Chain find(const Step* steps, int n) {
  Chain c;
  Reader<Step> r(steps, n);
  struct {
    int at, reg;
  } reads[3];
  int count = 0;
  auto reads_from = [&](Operand& to, int reg) {
    if (const Step* found = r.constant(reg)) to.slot = found->slot;
    else to.reg = reg, reads[count++] = {r.index(), reg};
  };
  auto bound = [&](Operand& to, int reg) {
    const Step* found = r.constant(reg);
    if (found) to.slot = found->slot;
    return found && __builtin_fabs(as_f64(found->imm)) <= 65536;
  };
  auto quantizes = [&] {
    if (!r.is(CAST, F32) || !byte(r.now().other)) return false;
    if (!r.next() || !r.is(CLAMP, F32) || !bound(c.low, r.now().b) || !bound(c.high, r.now().c) || !r.next()) return false;
    if (r.is(ADD, F32)) {
      reads_from(c.zero, r.now().b);
      if (!r.next()) return false;
    }
    if (!r.is(ROUND, F32) || !r.next() || !r.is(DIV, F32)) return false;
    reads_from(c.scale, r.now().b);
    return true;
  };
  auto dequantizes = [&] {
    if (!r.is(MUL, F32)) return false;
    reads_from(c.scale, r.now().b);
    if (!r.next() || !r.is(CAST, I32) || r.now().other != F32 || !r.next()) return false;
    if (r.is(SUB, I32)) {
      reads_from(c.zero, r.now().b);
      if (!r.next()) return false;
    }
    c.has_sign = r.now().type == I8;
    return r.now().op == CAST && r.now().other == I32 && byte(r.now().type);
  };
  const Kind kind = r.is(MUL, F32) ? Kind::DEQUANTIZE : Kind::QUANTIZE;
  if (!(kind == Kind::QUANTIZE ? quantizes() : dequantizes())) return {};
  reads_from(c.x, r.now().a);
  c.first = r.index();
  for (int i = 0; i < count; i++)
    if (!r.stays(reads[i].at, reads[i].reg)) return {};
  c.kind = kind;
  return c;
}

template <class T> using Few = T __attribute__((ext_vector_type(W)));

// Signed or not, they are the low bits.
[[gnu::noinline]] inline void quantize(const Operands& o, char* d, i64 n) {
  auto floats = [](const char* at) { return reinterpret_cast<const float*>(at); };
  const float *x = floats(o.x), *scale = floats(o.scale), *zero = floats(o.zero);
  const VF low = splat(*floats(o.low)), high = splat(*floats(o.high));
  auto few = [&](VF v, VF s, VF z) {
    v = vmin(vmax(__builtin_elementwise_rint(v / s) + z, low), high);
    v = v == v ? v : VF(0.0f);
    return __builtin_convertvector(__builtin_convertvector(v, VI), Few<uint8_t>);
  };
  i64 i = 0;
  for (; i + W <= n; i += W) {
    const auto bytes = few(load(x + i), load(scale + i), zero ? load(zero + i) : splat(0));
    __builtin_memcpy(d + i, &bytes, sizeof bytes);
  }
  for (; i < n; i++) d[i] = char(few(splat(x[i]), splat(scale[i]), splat(zero ? zero[i] : 0))[0]);
}

template <class T> [[gnu::noinline]] void dequantize(const Operands& o, char* d, i64 n) {
  const float* scale = reinterpret_cast<const float*>(o.scale);
  const int32_t* zero = reinterpret_cast<const int32_t*>(o.zero);
  float* to = reinterpret_cast<float*>(d);
  auto few = [](Few<T> v, VI z, VF s) { return __builtin_convertvector(__builtin_convertvector(v, VI) - z, VF) * s; };
  i64 i = 0;
  for (; i + W <= n; i += W) {
    Few<T> v;
    __builtin_memcpy(&v, o.x + i, sizeof v);
    store(to + i, few(v, zero ? load_i(zero + i) : splat_i(0), load(scale + i)));
  }
  for (; i < n; i++) to[i] = float(int32_t(reinterpret_cast<const T*>(o.x)[i]) - (zero ? zero[i] : 0)) * scale[i];
}

inline void run(const Chain& c, const Operands& o, char* d, i64 n) {
  if (c.kind == Kind::QUANTIZE) quantize(o, d, n);
  else if (c.has_sign) dequantize<int8_t>(o, d, n);
  else dequantize<uint8_t>(o, d, n);
}

}  // namespace chains
