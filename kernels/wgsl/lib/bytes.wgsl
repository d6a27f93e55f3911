// Words of four signed bytes; unsigned ones become signed less 128, in their zero points too.
#if packed_4x8_integer_dot_product
fn dot4(a: u32, b: u32) -> i32 { return dot4I8Packed(a, b); }
#else
fn dot4(a: u32, b: u32) -> i32 {
  let shifts = vec4<u32>(24u, 16u, 8u, 0u);
  let x = bitcast<vec4<i32>>(vec4<u32>(a) << shifts) >> vec4<u32>(24u);
  let y = bitcast<vec4<i32>>(vec4<u32>(b) << shifts) >> vec4<u32>(24u);
  return dot(x, y);
}
#endif

// The first `count` of four bytes; the others 0.
fn first_bytes(word: u32, count: i32) -> u32 {
  if (count >= 4) { return word; }
  return select(word & ((1u << u32(8 * max(count, 0))) - 1u), 0u, count <= 0);
}
