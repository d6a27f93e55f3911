// A tile of a product per workgroup, BM rows by BN columns. A lane has ROWS by COLUMNS of it: four neighbours in each of ROWS / 4
// bands of rows, and so along the columns. SLICES teams of lanes share the sum of a tile where there are few.
// To be given: left(row, k), four neighbours along k of a row; right(load, k, column), four neighbouring columns, for each of a
// lane's loads once per step and in turn; store(row, column, v).
// Switches: `along`, right gives four neighbours along k of one column, and store takes one column; `coded` besides, right gives
// what decoded(k, v) makes them of, and a lane's loads are neighbours along k where they can be.
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
const STEP = i32(BK * SLICES);
// The left by (k / 4, row), then the right by (k, column / 4), or by (k / 4, column) where it lies along k.
var<workgroup> tile: array<vec4<f32>, ${vectors}>;

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
  // The loads of a step are on their way during the arithmetic of the one before.
  for (var k0 = -STEP; k0 < depth; k0 += STEP) {
    let k = k0 + STEP + i32(slice * BK);
#for e ${left_loads}
    let left_at${e} = lane + ${e}u * TEAM;
#if a_columns
    let row${e} = left_at${e} % BM;
    let depth${e} = left_at${e} / BM;
#else
    let row${e} = left_at${e} / DEEP;
    let depth${e} = left_at${e} % DEEP;
#endif
    let left${e} = left(i32(i0 + row${e}), k + i32(depth${e} * 4u));
#end
#for e ${right_loads}
#if coded
    let right_at${e} = lane * ${right_loads}u + ${e}u;
#else
    let right_at${e} = lane + ${e}u * TEAM;
#endif
#if along
    let u${e} = right_at${e} % DEEP;
    let column${e} = right_at${e} / DEEP;
    let right${e} = right(${e}u, k + i32(u${e} * 4u), i32(j0 + column${e}));
#else
    let u${e} = right_at${e} / WIDE;
    let column${e} = right_at${e} % WIDE;
    let right${e} = right(${e}u, k + i32(u${e}), i32(j0 + column${e} * 4u));
#endif
#end
    if (k0 >= 0) {
      for (var v = 0u; v < DEEP; v++) {
        let p = (slice * DEEP + v) * BM + ty * 4u;
#for r ${rows}
        let l${r} = tile[p + ${r}u / 4u * (4u * BM / ROWS) + ${r}u % 4u];
#end
#if along
        let q = RIGHT + (slice * DEEP + v) * BN + tx;
#for c ${bands}
#for i 4
        let r${c}_${i} = tile[q + (${c}u * 4u + ${i}u) * (BN / COLUMNS)];
#for r ${rows}
        s${r}_${c}[${i}] += dot(l${r}, r${c}_${i});
#end
#end
#end
#else
        let q = RIGHT + (slice * BK + v * 4u) * WIDE + tx;
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
#endif
      }
    }
    if (k0 + STEP >= depth) { break; }
    workgroupBarrier();
#for e ${left_loads}
    tile[(slice * DEEP + depth${e}) * BM + row${e}] = left${e};
#end
#for e ${right_loads}
#if coded
    tile[RIGHT + (slice * DEEP + u${e}) * BN + column${e}] = decoded(k + i32(u${e} * 4u), right${e});
#elif along
    tile[RIGHT + (slice * DEEP + u${e}) * BN + column${e}] = right${e};
#else
    tile[RIGHT + (slice * BK + u${e}) * WIDE + column${e}] = right${e};
#endif
#end
    workgroupBarrier();
  }
  var sums: array<vec4<f32>, OUTPUTS>;
#for r ${rows}
#for c ${bands}
  sums[${r} * ${bands} + ${c}] = s${r}_${c};
#end
#end
#if sliced
  workgroupBarrier();
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
    let row = i32(i0 + r / 4u * (4u * BM / ROWS) + ty * 4u + r % 4u);
#if along
    for (var i = 0u; i < 4u; i++) { store(row, i32(j0 + (c * 4u + i) * (BN / COLUMNS) + tx), sums[o][i]); }
#else
    store(row, i32(j0 + c * (4u * BN / COLUMNS) + tx * 4u), sums[o]);
#endif
  }
}
