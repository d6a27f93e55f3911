// What a kernel is to the executor: a name, a proof that it stays inside its buffers, a scratch need, and a run.
#pragma once
#include "size.h"

// A function that is compiled for size in WebAssembly, in a source that is not (small.h).
#if defined(__wasm__)
#define PWX_SMALL [[clang::minsize]]
#else
#define PWX_SMALL
#endif

// TensorProto.DataType codes.
enum DType : int32_t {
  F32 = 1, U8 = 2, I8 = 3, U16 = 4, I16 = 5, I32 = 6, I64 = 7, STRING = 8, BOOL = 9, F16 = 10, F64 = 11, U32 = 12, U64 = 13,
  BF16 = 16, F8E4M3FN = 17, F8E4M3FNUZ = 18, F8E5M2 = 19, F8E5M2FNUZ = 20, U4 = 21, I4 = 22, F4E2M1 = 23, F8E8M0 = 24, U2 = 25, I2 = 26,
  F6E2M3 = 27, F6E3M2 = 28,
};

// Bytes per element of the byte-sized and larger types, 0 for the packed ones.
[[gnu::noinline]] inline i64 dtype_size(int32_t t) {
  switch (t) {
    case F32: case I32: case U32: return 4;
    case I64: case F64: case U64: return 8;
    case U16: case I16: case F16: case BF16: return 2;
    case U8: case I8: case BOOL: case F8E4M3FN: case F8E4M3FNUZ: case F8E5M2: case F8E5M2FNUZ: case F8E8M0: return 1;
    default: return 0;
  }
}

struct Buf {
  char* data;     // nullptr: an absent optional buffer, or bind time
  i64 bytes;
  int32_t dtype;  // 0: absent
  explicit operator bool() const { return dtype != 0; }
  i64 count() const { i64 s = dtype_size(dtype); return s ? bytes / s : 0; }
  template <class T> T* as() const { return reinterpret_cast<T*>(data); }
};

struct Pool;  // core/pool.h

// Where random numbers come from: the host's seed, and how often the session has drawn from it.
struct Chance {
  uint64_t seed, draws;
};

struct Call {
  const i64* params;   // as declared; f64 parameters hold the bits of a double
  i64 n_params;
  const Buf* bufs;
  i64 n_bufs;
  char* scratch;       // 64-byte aligned, of the size that `scratch` returned; run time only
  Pool* pool;
  const char* error;   // run time: a static text when data is wrong (an index out of range); the run stops
  Chance* chance;      // run time
  // From any thread.
  void fail(const char* text) { __atomic_store_n(&error, text, __ATOMIC_RELAXED); }
};

// Elements [begin, begin + count) of a buffer.
struct Range {
  i64 begin, count;
};

// What `check` tells besides.
struct Proof {
  static constexpr int MAX_RANGES = 16;
  struct Written {
    int buffer;
    Range range;
  };
  Size operations;  // elementary ones (a multiply-add, a copied element) of a run, roughly
  Written written[MAX_RANGES];
  int n_written = 0;

  // A run writes all of these elements of that output. What is not told, or beyond MAX_RANGES, does not count as written.
  [[gnu::noinline]] void writes(int buffer, Range range) {
    if (range.count && n_written < MAX_RANGES) written[n_written++] = {buffer, range};
  }
};

// `check` returns nullptr or a static text saying what is wrong. It must bound every access from params and buffer sizes alone,
// without overflow (params are untrusted), and reject dtypes that the kernel does not know.
// `scratch` is called after `check` passed: bytes of scratch for a run on `threads` threads.
// `run` is called when both are within the limits; it sees proven values only.
struct Kernel {
  const char* name;
  const char* (*check)(const Call&, Proof&);
  Size (*scratch)(const Call&, int threads);
  void (*run)(Call&);
};

// Splits [0, n) into pieces of at least `grain` and runs fn(begin, end, thread) on the pool; returns when all are done.
// thread is in [0, pool_threads(pool)).
using RangeFn = void (*)(void* ctx, i64 begin, i64 end, int thread);
void pool_for(Pool* pool, i64 n, i64 grain, RangeFn fn, void* ctx);
int pool_threads(const Pool* pool);

template <class F> inline void parallel_for(Pool* pool, i64 n, i64 grain, F&& f) {
  pool_for(pool, n, grain, [](void* c, i64 b, i64 e, int t) { (*static_cast<F*>(c))(b, e, t); }, &f);
}

inline double as_f64(i64 bits) { double d; __builtin_memcpy(&d, &bits, 8); return d; }

// ---- helpers for `check`, never inlined: they need not be fast ----
inline bool mul_over(i64 a, i64 b, i64* r) { return __builtin_mul_overflow(a, b, r); }

// The product of n sizes, or -1 when one is negative or passes HUGE_COUNT, or the product does.
[[gnu::noinline]] inline i64 product(const i64* sizes, i64 n) {
  i64 p = 1;
  bool zero = false;
  for (i64 i = 0; i < n; i++) {
    if (sizes[i] < 0 || sizes[i] > HUGE_COUNT) return -1;
    if (sizes[i] == 0) zero = true;
  }
  if (zero) return 0;
  for (i64 i = 0; i < n; i++)
    if (mul_over(p, sizes[i], &p) || p > HUGE_COUNT) return -1;
  return p;
}

// True when every element `offset + sum(index[d] * stride[d])` of a strided view lies in [0, count). Empty views pass.
[[gnu::noinline]] inline bool view_fits(i64 rank, const i64* shape, const i64* stride, i64 offset, i64 count) {
  i64 p = product(shape, rank);
  if (p < 0) return false;
  if (p == 0) return true;
  i64 lo = offset, hi = offset;
  for (i64 d = 0; d < rank; d++) {
    i64 reach;
    if (mul_over(shape[d] - 1, stride[d], &reach)) return false;
    if (__builtin_add_overflow(reach < 0 ? lo : hi, reach, reach < 0 ? &lo : &hi)) return false;
  }
  return lo >= 0 && hi < count;
}

// The elements of a strided view where it covers a range without gaps, in whatever order; else none.
[[gnu::noinline]] inline Range dense(i64 rank, const i64* shape, const i64* stride, i64 offset) {
  if (product(shape, rank) <= 0) return {0, 0};
  i64 count = 1, begin = offset;
  uint64_t left = 0;
  for (i64 d = 0; d < rank; d++)
    if (shape[d] > 1) left |= uint64_t(1) << d;
  while (left) {
    i64 d = rank - 1;
    while (d >= 0 && !(left >> d & 1 && (stride[d] == count || stride[d] == -count))) d--;
    if (d < 0) return {0, 0};
    if (stride[d] < 0) begin -= (shape[d] - 1) * count;
    count *= shape[d];
    left &= ~(uint64_t(1) << d);
  }
  return {begin, count};
}

// Bits of a count: how often it can be halved. Sorting n elements costs n times that.
inline i64 depth_of(i64 n) { return 64 - __builtin_clzll(uint64_t(n < 0 ? 0 : n) | 1); }

// Each kernels/cpp/<name>.cpp ends in KERNEL(name, check, scratch, run); the toolchain collects them by file name.
#define KERNEL(name, check, scratch, run) extern const Kernel kernel_##name; const Kernel kernel_##name{#name, check, scratch, run};
inline Size no_scratch(const Call&, int) { return 0; }
