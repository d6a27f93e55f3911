#include math

// The activation that ends a product: one text serves them all.
fn activate(v: f32) -> f32 {
  switch $act {
    case Activation.sigmoid: { return sigmoid_f(v); }
    case Activation.tanh: { return tanh_f(v); }
    case Activation.silu: { return silu_f(v); }
    case Activation.gelu: { return gelu_f(v); }
    case Activation.gelu_tanh: { return gelu_tanh_f(v); }
    case Activation.leaky_relu: { return select(v, $act_a * v, lt_f(v, 0.0)); }
    case Activation.hardsigmoid: { return clamp_nan($act_a * v + $act_b, 0.0, 1.0); }
    case Activation.hardswish: { return hardswish_f(v); }
    case Activation.elu: { return elu_f(v, $act_a); }
    default: { return clamp_nan(v, $act_a, $act_b); }
  }
}
