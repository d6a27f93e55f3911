// Pairs of each row's numbers turn by angles whose cosines and sines are given; numbers behind the pairs stay.
fn element(i: u32) -> y_t {
${row}
  let x = ${x};
  let pairs = $pairs;
  if (c3 >= 2 * pairs) { return x_get(x + u32(c3 * $x_stride[3])); }
#if interleaved
  let t = c3 / 2;
  let second = c3 % 2 != 0;
  let a = x_get(x + u32(2 * t * $x_stride[3]));
  let b = x_get(x + u32((2 * t + 1) * $x_stride[3]));
#else
  let second = c3 >= pairs;
  let t = select(c3, c3 - pairs, second);
  let a = x_get(x + u32(t * $x_stride[3]));
  let b = x_get(x + u32((pairs + t) * $x_stride[3]));
#endif
  let c = cos_get(${cos});
  let s = sin_get(${sin});
  if (second) { return s * a + c * b; }
  return c * a - s * b;
}
#include elements
