// at modulo n, from 0 to n - 1, without a remainder of negative numbers.
fn cycle(at: i32, n: i32) -> i32 {
  if (at >= 0) { return i32(u32(at) % u32(n)); }
  return n - 1 - i32(u32(-(at + 1)) % u32(n));
}
// Where coordinate c of y comes from along an axis; -1 outside.
fn place(c: i32, before: i32, n_x: i32, n_y: i32) -> i32 {
  let low = max(-before, 0);
  let high = min(n_y - before, n_x);
#if constant
  let n = high - low;
#else
  let n = max(high - low, 1);
#endif
  let at = c - before - low;
  if (at >= 0 && at < n) { return low + at; }
#if edge
  return select(low + n - 1, low, at < 0);
#elif wrap
  return low + cycle(at, n);
#elif reflect
  let period = max(2 * (n - 1), 1);
  let k = cycle(at, period);
  return low + select(period - k, k, k < n);
#else
  return -1;
#endif
}

fn element(i: u32) -> y_t {
${body}
}
#include elements
