// A tile of a product per workgroup, BM rows by BN columns. A lane has ROWS by COLUMNS of it: four neighbours in each of ROWS / 4
// bands of rows, and so along the columns. SLICES teams of lanes share the sum of a tile where there are few.
// To be given: left(row, k), four neighbours along k of a row; right(load, k, column), four neighbouring columns, for each of a
// lane's loads once per step and in turn; store(row, column, v).
const BM = ${bm}u;
const BN = ${bn}u;
const BK = ${bk}u;
const ROWS = ${rows}u;
const COLUMNS = ${columns}u;
const SLICES = ${slices}u;
const TEAM = BM * BN / (ROWS * COLUMNS);
const DEEP = BK / 4u;
const WIDE = BN / 4u;
const RIGHT = SLICES * DEEP * BM;
const OUTPUTS = ROWS * COLUMNS / 4u;
var<workgroup> tile: array<vec4<f32>, ${vectors}>;  // the left by (k / 4, row), then the right by (k, column / 4)

fn multiply(i0: u32, j0: u32, depth: i32, index: u32) {
  let lane = index % TEAM;
  let slice = index / TEAM;
  let tx = lane % (BN / COLUMNS);
  let ty = lane / (BN / COLUMNS);
#for r ${rows}
#for c ${bands}
  var s${r}_${c} = vec4<f32>(0.0);
#end
#end
  for (var k0 = 0; k0 < depth; k0 += i32(BK * SLICES)) {
    let k = k0 + i32(slice * BK);
#for e ${left_loads}
    {
      let at = lane + ${e}u * TEAM;
#if a_columns
      let row = at % BM;
      let v = at / BM;
#else
      let row = at / DEEP;
      let v = at % DEEP;
#endif
      tile[(slice * DEEP + v) * BM + row] = left(i32(i0 + row), k + i32(v * 4u));
    }
#end
#for e ${right_loads}
    {
      let at = lane + ${e}u * TEAM;
#if b_columns
      let u = at % BK;
      let column = at / BK;
#else
      let u = at / WIDE;
      let column = at % WIDE;
#endif
      tile[RIGHT + (slice * BK + u) * WIDE + column] = right(${e}u, k + i32(u), i32(j0 + column * 4u));
    }
#end
    workgroupBarrier();
    for (var v = 0u; v < DEEP; v++) {
      let p = (slice * DEEP + v) * BM + ty * 4u;
      let q = RIGHT + (slice * BK + v * 4u) * WIDE + tx;
#for r ${rows}
      let l${r} = tile[p + ${r}u / 4u * (4u * BM / ROWS) + ${r}u % 4u];
#end
#for u 4
#for c ${bands}
      let r${u}_${c} = tile[q + ${u}u * WIDE + ${c}u * (BN / COLUMNS)];
#end
#for r ${rows}
#for c ${bands}
      s${r}_${c} += l${r}[${u}] * r${u}_${c};
#end
#end
#end
    }
    workgroupBarrier();
  }
  var sums: array<vec4<f32>, OUTPUTS>;
#for r ${rows}
#for c ${bands}
  sums[${r} * ${bands} + ${c}] = s${r}_${c};
#end
#end
#if sliced
  for (var half = SLICES / 2u; half > 0u; half /= 2u) {
    let to = slice % half * OUTPUTS * TEAM + lane;
    if (slice >= half && slice < 2u * half) {
      for (var o = 0u; o < OUTPUTS; o++) { tile[to + o * TEAM] = sums[o]; }
    }
    workgroupBarrier();
    if (slice < half) {
      for (var o = 0u; o < OUTPUTS; o++) { sums[o] += tile[to + o * TEAM]; }
    }
    workgroupBarrier();
  }
  if (slice > 0u) { return; }
#endif
  for (var o = 0u; o < OUTPUTS; o++) {
    let r = o / (COLUMNS / 4u);
    let c = o % (COLUMNS / 4u);
    store(i32(i0 + r / 4u * (4u * BM / ROWS) + ty * 4u + r % 4u), i32(j0 + c * (4u * BN / COLUMNS) + tx * 4u), sums[o]);
  }
}
