// Index k, counted from the front; -1 where it is out of range for an axis of n: a shader cannot raise, readers take 0 and writers pass.
fn index_at(k: u32, n: i32) -> i32 {
#if indices.int64
  let v = indices_get(k);
  let low = bitcast<i32>(v.x);
  if (v.y != select(0u, 0xffffffffu, low < 0)) { return -1; }
#else
  let low = indices_int(k);
#endif
  let i = select(low, low + n, low < 0);
  return select(-1, i, i >= 0 && i < n);
}
