fn element(i: u32) -> y_t {
#if wide
  return vec2<u32>(u32($low[i]), u32($high[i]));
#else
  return u32($low[i]);
#endif
}
#include elements
