// A tile of a product of bytes per workgroup, SIDE rows by SIDE columns, 4 by 4 of them a lane's. SLICES teams of lanes share the sum.
// To be given: left(row, k) and right(column, k), words of four signed bytes along k, 0 beyond the product; left_less(row) and
// right_less(column), what those bytes lack of zero; store(row, column, v), four neighbouring columns. Switch `across`: neighbouring
// lanes read neighbouring columns.
#include bytes
const SIDE = ${side}u;
const SLICES = ${slices}u;
const TEAM = SIDE * SIDE / 16u;
const DEEP = 4u;
const PART = 2u * SIDE * DEEP;
const STEP = i32(4u * DEEP * SLICES);
// Of each slice: the left by (k / 4, row), then the right by (k / 4, column); at last the sums of half the slices.
var<workgroup> tile: array<u32, ${tile_words}>;

fn multiply(i0: u32, j0: u32, depth: i32, index: u32) {
  let lane = index % TEAM;
  let slice = index / TEAM;
  let tx = lane % (SIDE / 4u);
  let ty = lane / (SIDE / 4u);
#for r 4
  var s${r} = vec4<i32>(0);
#end
  var rows = vec4<i32>(0);  // sums of the left alone, and of the right, which zero points multiply
  var columns = vec4<i32>(0);
  // The loads of a step are on their way during the arithmetic of the one before.
  for (var k0 = -STEP; k0 < depth; k0 += STEP) {
    let k = k0 + STEP + i32(slice * 4u * DEEP);
#for e ${loads}
    let at${e} = lane + ${e}u * TEAM;
    let left${e} = left(i32(i0 + at${e} / DEEP), k + i32(4u * (at${e} % DEEP)));
#if across
    let column${e} = at${e} % SIDE;
    let v${e} = at${e} / SIDE;
#else
    let column${e} = at${e} / DEEP;
    let v${e} = at${e} % DEEP;
#endif
    let right${e} = right(i32(j0 + column${e}), k + i32(4u * v${e}));
#end
    if (k0 >= 0) {
      for (var v = 0u; v < DEEP; v++) {
        let p = slice * PART + v * SIDE + ty * 4u;
        let q = slice * PART + (DEEP + v) * SIDE + tx * 4u;
#for c 4
        let b${c} = tile[q + ${c}u];
        columns[${c}] += dot4(b${c}, 0x01010101u);
#end
#for r 4
        let a${r} = tile[p + ${r}u];
        rows[${r}] += dot4(a${r}, 0x01010101u);
        s${r} += vec4<i32>(dot4(a${r}, b0), dot4(a${r}, b1), dot4(a${r}, b2), dot4(a${r}, b3));
#end
      }
    }
    if (k0 + STEP >= depth) { break; }
    workgroupBarrier();
#for e ${loads}
    tile[slice * PART + at${e} % DEEP * SIDE + at${e} / DEEP] = left${e};
    tile[slice * PART + (DEEP + v${e}) * SIDE + column${e}] = right${e};
#end
    workgroupBarrier();
  }
  let i = i32(i0 + ty * 4u);
  let j = i32(j0 + tx * 4u);
  let zb = vec4<i32>(right_less(j), right_less(j + 1), right_less(j + 2), right_less(j + 3));
#for r 4
  s${r} -= left_less(i + ${r}) * columns + zb * rows[${r}];
#end
#if sliced
  workgroupBarrier();
  for (var half = SLICES / 2u; half > 0u; half /= 2u) {
    let to = slice % half * 16u * TEAM + lane;
    if (slice >= half && slice < 2u * half) {
#for r 4
#for c 4
      tile[to + (${r}u * 4u + ${c}u) * TEAM] = bitcast<u32>(s${r}[${c}]);
#end
#end
    }
    workgroupBarrier();
    if (slice < half) {
#for r 4
#for c 4
      s${r}[${c}] += bitcast<i32>(tile[to + (${r}u * 4u + ${c}u) * TEAM]);
#end
#end
    }
    workgroupBarrier();
  }
  if (slice > 0u) { return; }
#endif
#for r 4
  store(i + ${r}, j, s${r} + depth * left_less(i + ${r}) * zb);
#end
}
