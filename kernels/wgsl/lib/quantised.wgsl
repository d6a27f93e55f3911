#include math

// What a kernel that scales its sums writes: float32, or the codes nearest to it, ties to even.
fn result(v: f32) -> y_t {
#if yscale
  var zero = 0;
#if yzero
  zero = i32(yzero_get(u32($yzero_off)));
#endif
#if y.int8
  let first = f32(-128 - zero);
#else
  let first = f32(-zero);
#endif
  return y_t(i32(clamp(round(div_f(v, yscale_get(u32($yscale_off)))), first, first + 255.0)) + zero);
#else
  return v;
#endif
}
