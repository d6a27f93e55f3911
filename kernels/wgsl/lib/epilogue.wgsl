#include math

// The activation that ends a product, by its number in the kernels' parameters: one text serves them all.
fn activate(v: f32) -> f32 {
  switch $act {
    case 3: { return sigmoid_f(v); }
    case 4: { return tanh_f(v); }
    case 5: { return silu_f(v); }
    case 6: { return gelu_f(v); }
    case 7: { return gelu_tanh_f(v); }
    case 8: { return select(v, $act_a * v, v < 0.0); }
    case 9: { return clamp_nan($act_a * v + $act_b, 0.0, 1.0); }
    case 10: { return hardswish_f(v); }
    case 11: { return elu_f(v, $act_a); }
    default: { return clamp_nan(v, $act_a, $act_b); }
  }
}
