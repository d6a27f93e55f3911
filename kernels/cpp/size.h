// Sizes of untrusted origin, and the one door from 64 bits to the width of an address.
#pragma once
#include <cstddef>
#include <cstdint>

using i64 = int64_t;
using isize = ptrdiff_t;  // what inner loops index with: 32 bits in WebAssembly

constexpr i64 HUGE_COUNT = i64(1) << 47;  // no tensor has more elements or bytes
constexpr i64 MAX_BYTES = PTRDIFF_MAX < HUGE_COUNT ? PTRDIFF_MAX : HUGE_COUNT;  // of one buffer or of the scratch of one step
// Of one dimension of a kernel that indexes with isize: such kernels add a tile or a window to it.
constexpr i64 MAX_EXTENT = MAX_BYTES / 2;

// A count of elements, bytes or operations. It saturates: what is negative, overflows or is made of such stays larger than every limit.
// It converts to no integer, so nothing narrows unseen.
class Size {
 public:
  constexpr Size(i64 n = 0) : n_(n < 0 ? OVER : n) {}
  constexpr i64 value() const { return n_; }  // INT64_MAX when it is no size
  constexpr bool within(i64 most) const { return n_ <= most; }

  friend constexpr Size operator+(Size a, Size b) { return plus(a.n_, b.n_); }
  friend constexpr Size operator*(Size a, Size b) { return times(a.n_, b.n_); }
  constexpr Size& operator+=(Size b) { return *this = *this + b; }
  constexpr Size& operator*=(Size b) { return *this = *this * b; }

 private:
  static constexpr i64 OVER = INT64_MAX;
  i64 n_;

  // Never inlined: speed is nothing here, size is.
  [[gnu::noinline]] static constexpr i64 plus(i64 a, i64 b) {
    i64 r = 0;
    return __builtin_add_overflow(a, b, &r) ? OVER : r;
  }
  [[gnu::noinline]] static constexpr i64 times(i64 a, i64 b) {
    i64 r = 0;
    return a == OVER || b == OVER || __builtin_mul_overflow(a, b, &r) ? OVER : r;
  }
};

[[gnu::noinline]] inline Size ceil_div(Size n, i64 by) { return n.within(INT64_MAX - 1) ? n.value() / by + (n.value() % by != 0) : n; }
[[gnu::noinline]] inline Size round_up(Size n, i64 to) { return ceil_div(n, to) * to; }

// A value that `check` proved to fit. Where addresses have 32 bits, a proof with a hole ends in a trap, never in a wrapped address.
inline isize proven(i64 n) {
  if constexpr (sizeof(isize) < sizeof n)
    if (n != static_cast<isize>(n)) __builtin_trap();
  return static_cast<isize>(n);
}
#define isize(...) narrowing_goes_through_proven(__VA_ARGS__)
