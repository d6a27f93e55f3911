#include math

// The activation that ends a product, by number: one text serves them all.
fn activate(v: f32) -> f32 {
  switch $act {
    case 1: { return sigmoid_f(v); }
    case 2: { return tanh_f(v); }
    case 3: { return silu_f(v); }
    case 4: { return gelu_f(v); }
    case 5: { return gelu_tanh_f(v); }
    case 6: { return select(v, $act_a * v, v < 0.0); }
    case 7: { return clamp_nan($act_a * v + $act_b, 0.0, 1.0); }
    case 8: { return hardswish_f(v); }
    case 9: { return elu_f(v, $act_a); }
    default: { return clamp_nan(v, $act_a, $act_b); }
  }
}
