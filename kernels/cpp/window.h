// What convolutions share: windows of a kernel over up to three axes, of `n` images with `c` channels into `m`, in groups.
#pragma once
#include <cstddef>
#include <initializer_list>

#include "kernel.h"

constexpr i64 MAX_REACH = i64(1) << 30;  // sizes and windows in elements, so that positions fit 32 bits
constexpr i64 MAX_TAPS = i64(1) << 24;   // of a kernel, so that a panel of as many rows has an index of 32 bits

// How the parameters of all convolutions begin.
struct WindowParams {
  i64 n, c, m, group, in[3], kernel[3], stride[3], dilation[3], pad[3], out[3];
};

template <class P> const WindowParams& windows_of(const P& p) {
  static_assert(offsetof(P, n) == 0 && offsetof(P, in) == offsetof(WindowParams, in) && offsetof(P, pad) == offsetof(WindowParams, pad));
  static_assert(offsetof(P, out) == offsetof(WindowParams, out) && sizeof(P::in) == sizeof(WindowParams::in));
  return reinterpret_cast<const WindowParams&>(p);
}

// Sizes and windows of any convolution; `swept` are the places that a kernel is moved over: outputs, or inputs of a transposed one.
[[gnu::noinline]] PWX_SMALL inline const char* check_windows(const WindowParams& p, const i64* swept) {
  if (p.n < 0 || p.c < 0 || p.m < 0 || p.group < 1 || p.c % p.group || p.m % p.group) return "channels do not divide into groups";
  for (int d = 0; d < 3; d++) {
    for (i64 v : {p.in[d], p.out[d], p.kernel[d], p.stride[d], p.dilation[d], p.pad[d] < 0 ? -(p.pad[d] + 1) : p.pad[d]})
      if (v < 0 || v >= MAX_REACH) return "a size is out of range";
    if (p.kernel[d] < 1 || p.stride[d] < 1 || p.dilation[d] < 1 || p.kernel[d] * p.dilation[d] + swept[d] * p.stride[d] >= MAX_REACH)
      return "a window parameter is out of range";
  }
  const Size taps = Size(p.kernel[0]) * p.kernel[1] * p.kernel[2];
  if (!taps.within(MAX_TAPS)) return "a kernel of more than 2^24 taps";
  for (Size s : {Size(p.n), Size(p.c), Size(p.m), Size(p.in[0]) * p.in[1] * p.in[2], Size(p.out[0]) * p.out[1] * p.out[2]})
    if (!s.within(MAX_EXTENT)) return "a size is out of range";
  return nullptr;
}

// Elements of the output, after `check_windows`; -1 when they are too many.
[[gnu::noinline]] PWX_SMALL inline i64 outputs(const WindowParams& p) {
  const i64 y[5] = {p.n, p.m, p.out[0], p.out[1], p.out[2]};
  return product(y, 5);
}

// Whether x [n, c, ...], w [first, second, kernel...] and y [n, m, ...] lie in their buffers.
[[gnu::noinline]] PWX_SMALL inline const char* check_operands(const WindowParams& p, i64 first, i64 second, const Buf& x, const Buf& w, const Buf& y) {
  const i64 xs[5] = {p.n, p.c, p.in[0], p.in[1], p.in[2]}, ws[5] = {first, second, p.kernel[0], p.kernel[1], p.kernel[2]};
  const i64 nx = product(xs, 5), nw = product(ws, 5), ny = outputs(p);
  if (nx < 0 || nx > x.count()) return "x does not fit its buffer";
  if (ny < 0 || ny > y.count()) return "y does not fit its buffer";
  if (nw < 0 || nw > w.count()) return "w does not fit its buffer";
  return nullptr;
}

struct Windows {
  isize c, m;  // per group
  isize in[3], kernel[3], stride[3], dilation[3], pad[3], out[3];
  isize taps, image, pixels;

  template <class P> explicit Windows(const P& p) : Windows(windows_of(p)) {}
  [[gnu::noinline]] PWX_SMALL explicit Windows(const WindowParams& p) : c(proven(p.c / p.group)), m(proven(p.m / p.group)) {
    for (int d = 0; d < 3; d++) {
      in[d] = proven(p.in[d]), kernel[d] = proven(p.kernel[d]), stride[d] = proven(p.stride[d]);
      dilation[d] = proven(p.dilation[d]), pad[d] = proven(p.pad[d]), out[d] = proven(p.out[d]);
    }
    taps = kernel[0] * kernel[1] * kernel[2];
    image = in[0] * in[1] * in[2];
    pixels = out[0] * out[1] * out[2];
  }
  // Output pixels read the input at their own place.
  bool pointwise() const {
    for (int d = 0; d < 3; d++)
      if (kernel[d] != 1 || stride[d] != 1 || pad[d] != 0 || out[d] != in[d]) return false;
    return true;
  }
};
