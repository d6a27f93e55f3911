// The range of float32 data, stretched to hold 0, as 256 codes: its scale and the code of 0.
#include team

const AHEAD = 8u;  // loads that are on their way at once

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) index: u32) {
  let n = u32($n);
  var low = 0.0;
  var high = 0.0;
  var i = index;
  for (; i + (AHEAD - 1u) * TEAM < n; i += AHEAD * TEAM) {
#for k 8
    let v${k} = x_get(i + ${k}u * TEAM);
#end
#for k 8
    low = min_nan(low, v${k});
    high = max_nan(high, v${k});
#end
  }
  for (; i < n; i += TEAM) {
    let v = x_get(i);
    low = min_nan(low, v);
    high = max_nan(high, v);
  }
  low = -team_max(-low, index);
  high = team_max(high, index);
  if (index != 0u) { return; }
  let span = div_f(high - low, 255.0);
  let scale = select(span, 1.0, eq_f(span, 0.0));
  let ratio = clamp_nan(round(div_f(-low, scale)), 0.0, 255.0);
  scale_put(0u, scale);
  zero_put(0u, u32(select(ratio, 0.0, is_nan(ratio))));
}
