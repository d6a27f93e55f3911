#include math
#include int64

// What a scatter makes of an element and an update.
fn combined(a: y_t, u: y_t) -> y_t {
#if replace
  return u;
#elif y.float32 add
  return a + u;
#elif y.float32 mul
  return a * u;
#elif y.float32 most
  return max_nan(u, a);
#elif y.float32
  return min_nan(u, a);
#elif y.bool either
  return a || u;
#elif y.bool
  return a && u;
#elif wide add
  return add64(a, u);
#elif wide mul
  return mul64(a, u);
#elif y.int64 most
  return select(a, u, lts64(a, u));
#elif y.int64
  return select(a, u, lts64(u, a));
#elif y.uint64 most
  return select(a, u, ltu64(a, u));
#elif y.uint64
  return select(a, u, ltu64(u, a));
#elif add
  return a + u;
#elif mul
  return a * u;
#elif most
  return max(a, u);
#else
  return min(a, u);
#endif
}
