// Where output coordinate c lies on the input, exactly: q + r / d, 0 <= r < d, as (q, r, d).
fn place(c: i32, axis: u32) -> vec3<i32> {
#if crop
  let reach = f32($in[axis] - 1);
  var at = 0.5 * ($roi_start[axis] + $roi_end[axis]) * reach;
  if ($out[axis] > 1) { at = $roi_start[axis] * reach + f32(c) * ($roi_end[axis] - $roi_start[axis]) * reach / f32($out[axis] - 1); }
  let whole = floor(at);
  let parts = i32(round((at - whole) * 1048576.0));
  return vec3<i32>(i32(whole) + (parts >> 20u), parts & 0xfffff, 1048576);
#else
  let d = $divide[axis];
  let n = $times[axis] * c + $plus[axis];
  var q = n / d;
  if (n < 0) { q = -i32((u32(-n) + u32(d) - 1u) / u32(d)); }
  return vec3<i32>(q, n - q * d, d);
#endif
}

fn outside(p: vec3<i32>, axis: u32) -> bool {
  let end = $in[axis] - 1;
  return p.x < 0 || p.x > end || (p.x == end && p.y > 0);
}

#if nearest
fn nearest(p: vec3<i32>, axis: u32) -> i32 {
#if prefer_floor
  let up = 2 * p.y > p.z;
#elif prefer_ceil
  let up = 2 * p.y >= p.z;
#elif round_up
  let up = p.y > 0;
#else
  let up = false;
#endif
  return clamp(p.x + select(0, 1, up), 0, $in[axis] - 1);
}
#else
fn filtered(distance: f32) -> f32 {
  let t = abs(distance);
#if linear
  return max(1.0 - t, 0.0);
#else
  let a = $cubic_a;
  if (t <= 1.0) { return ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0; }
  return select(0.0, ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a, t < 2.0);
#endif
}

// The first of the taps around a place; one at the place belongs to the left half.
fn first_tap(p: vec3<i32>, axis: u32) -> i32 { return p.x + select(0, 1, p.y > 0) - $taps[axis] / 2; }

fn weight(p: vec3<i32>, at: i32, axis: u32) -> f32 {
#if exclude_outside
  if (at < 0 || at >= $in[axis]) { return 0.0; }
#endif
  return filtered((f32(at - p.x) - f32(p.y) / f32(p.z)) * f32($stretch_up[axis]) / f32($stretch_down[axis]));
}

fn total(p: vec3<i32>, axis: u32) -> f32 {
#if normalised
  var sum = 0.0;
  for (var k = 0; k < $taps[axis]; k++) { sum += weight(p, first_tap(p, axis) + k, axis); }
  return select(sum, 1.0, sum == 0.0);
#else
  return 1.0;
#endif
}
#endif

fn element(i: u32) -> y_t {
${body}
}
#include elements
