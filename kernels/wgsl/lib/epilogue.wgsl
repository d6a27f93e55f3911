#include math

// The activation that ends a product; its switch is one of act_clip, act_gelu, ...
fn activate(v: f32) -> f32 {
#if act_clip
  return clamp_nan(v, $act_a, $act_b);
#elif act_sigmoid
  return sigmoid_f(v);
#elif act_tanh
  return tanh_f(v);
#elif act_silu
  return silu_f(v);
#elif act_gelu
  return gelu_f(v);
#elif act_gelu_tanh
  return gelu_tanh_f(v);
#elif act_leaky_relu
  return select(v, $act_a * v, v < 0.0);
#elif act_hardsigmoid
  return clamp_nan($act_a * v + $act_b, 0.0, 1.0);
#elif act_hardswish
  return hardswish_f(v);
#elif act_elu
  return elu_f(v, $act_a);
#else
  return v;
#endif
}
