"""Programs that use every kernel, stages, branches and loops, and the native fuzzer that damages them.

``python -m pyonnx_wasm.testing.damage --count 100000``; the fuzzer (``kernels/cpp/fuzz``) is built by ``python -m pyonnx_wasm.toolchain
sanitize`` with clang's AddressSanitizer and UBSan. It knows the format: it changes registers, parameters, buffers, storages, steps,
stages and the Programs within, binds and runs each case twice, and stops at the first access out of bounds, undefined operation, or
output that depends on what memory held before. ``--first`` and ``--seed`` replay the case that it names.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

from .. import toolchain
from ..compiler import compile
from ..custom import callback
from ..dtypes import DType
from ..program import Compiled, Signature
from ..program.view import ProgramView
from ..registry import KERNELS
from ..runtimes.weights import load_weights
from . import damage_modules

FUZZER = Path(__file__).parents[2] / "build" / "sanitize" / "fuzz"

HEAD = '<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1, "ai.onnx.ml" : 3, "org.ggml" : 1, "damage" : 1]> g '
SIZES = {"N": (2, 3), "M": (3, 1), "K": (5, 4), "P": (2, 3)}

HALVES = """(float[M,40] x, int64[M] i, float[6,24] many) => (float[M,24] y, float[6,16] z, float[M,40] g)
    { y = MatMul(x, a) z = MatMul(many, b) g = Gather(t, i) }"""
#: Models whose weights are held as halves.
WEIGHTS = {"halves": "f16", "brains": "bf16"}

#: name: opset, body, and constants by name as (dtype, shape).
MODELS: dict[str, tuple[int, str, dict[str, tuple[str, Sequence[float]]]]] = {
    "products": (
        20,
        """(float[N,M,K] x, double[N,M,K] d, int32[M,N] i, float[1,K] v) => (float[N,M,6] y, double[N,M,M] dy, int32[M,M] iy, float[1,7]
        vy, float[N,M,40] w) { t = MatMul(x, a) u = Add(t, b) y = Relu(u) dt = Transpose<perm=[0,2,1]>(d) dy = MatMul(d, dt) it
        = Transpose(i) iy = MatMul(i, it) vy = Gemm<transB=1, alpha=0.5>(v, g, h) p = MatMul(x, wide) q = Sigmoid(p) w = Mul(q,
        p) }""",
        {"a": ("f4", (5, 6)), "b": ("f4", (6,)), "g": ("f4", (7, 5)), "h": ("f4", (7,)), "wide": ("f4", (5, 40))},
    ),
    "packed": (
        20,
        """(float[M,64] x, float[N,M,40] u) => (float[M,100] y, float[N,M,110] z) { y = MatMul(x, a) c = Transpose(b)
        t = MatMul(u, c) z = Relu(t) }""",
        {"a": ("f4", (64, 100)), "b": ("f4", (110, 40))},
    ),
    "convolutions": (
        20,
        """(float[N,8,9,10] x, double[1,2,K,5] d) => (float[N,8,9,10] y, float[N,8,s,t] z, float[N,4,u,v] g, double[1,3,p,q] dy,
        float[N,3,r,o] tr, double[1,2,e,f] dt, float[N,8,1,1] avg) { c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w3, b8) y =
        Relu(c) z = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2], group=8>(y, wd, b8) g = Conv<kernel_shape=[1,2],
        group=2, dilations=[1,2]>(y, wg) dy = Conv<kernel_shape=[2,2]>(d, wf) tr = ConvTranspose<kernel_shape=[2,3],
        strides=[2,2]>(z, wt, b3) dt = ConvTranspose<kernel_shape=[2,2]>(dy, wu) avg = GlobalAveragePool(y) }""",
        {
            "w3": ("f4", (8, 8, 3, 3)), "b8": ("f4", (8,)), "wd": ("f4", (8, 1, 3, 3)), "wg": ("f4", (4, 4, 1, 2)),
            "wf": ("f8", (3, 2, 2, 2)),
            "wt": ("f4", (8, 3, 2, 3)), "b3": ("f4", (3,)), "wu": ("f8", (3, 2, 2, 2)),
        },
    ),
    "windows": (
        20,
        """(float[N,2,8,7] x, uint8[1,1,6,K] b, double[N,2,4,4] d) => (float[N,2,s,t] mx, int64[N,2,s,t] at, float[N,2,u,v] av,
        float[N,2,p,q] lp, uint8[1,1,r,o] mb, float[N,2,c1,c2] rn, float[N,2,c3,c4] rl, double[N,2,c5,c6] rc, float[N,2,c7,c8]
        pr, float[N,2,c9,c0] pe) { mx, at = MaxPool<kernel_shape=[3,2], strides=[2,1], pads=[1,0,1,0]>(x) av =
        AveragePool<kernel_shape=[2,3], count_include_pad=1, pads=[1,1,0,1]>(x) lp = LpPool<kernel_shape=[2,2], p=2>(x) mb =
        MaxPool<kernel_shape=[2,2], dilations=[2,1]>(b) rn = Resize<mode="nearest">(x, none, up) rl = Resize<mode="linear",
        antialias=1>(x, none, down) rc = Resize<mode="cubic", exclude_outside=1>(d, none, up) pr = Pad<mode="reflect">(x, pads)
        pe = Pad<mode="constant">(x, crop) }""",
        {"none": ("f4", (0,)), "up": ("scales", (1, 1, 1.5, 2)), "down": ("scales", (1, 1, 0.6, 0.5)),
         "pads": ("ints", (0, 0, 1, 2, 0, 0, 0, 1)), "crop": ("ints", (0, 0, -1, 2, 0, 0, 3, -1))},
    ),
    "indices": (
        20,
        """(float[N,M,K] x, int64[M] i, int32[N,M,K] e, int64[N,1,2] nd, float[N,1,K] u) => (float[N,m2,K] a, float[N,M,K] b, float[N,1,K]
        c, float[N,M,K] d, float[N,M,K] f, float[N,M,2] v, int64[N,M,2] at, int64[N,M] g, float[N,M,K] cs, float[N,M,k2] cc,
        float[K,M,N] tr) { a = Gather<axis=1>(x, i) b = GatherElements<axis=2>(x, e) c = GatherND(x, nd) d =
        ScatterElements<axis=1, reduction="add">(x, e, x) f = ScatterND<reduction="max">(x, nd, u) v, at = TopK<axis=2>(x, two)
        g = ArgMax<axis=2, keepdims=0>(x) cs = CumSum<reverse=1>(x, one) cc = Concat<axis=2>(x, d, v) tr =
        Transpose<perm=[2,1,0]>(x) }""",
        {"two": ("ints", (2,)), "one": ("int", ())},
    ),
    "bytes": (
        20,
        """(uint8[M,K] a, uint8[N,4,6,6] x, float[M,K] f, float[M,16] few) =>
        (int32[M,6] s, uint8[M,6] q, int32[N,8,4,4] c, uint8[N,4,6,6] z, uint8[M,K]
        dq, float[M,6] t, float[M,6] nb, uint8[N,8,4,4] last, float[N,4,6,6] taps, uint8[N,4,6,6] both,
        uint8[N,4,6,6] looked)
        { s = MatMulInteger(a, wb, az, wz) q = QLinearMatMul(a, sc, az, wb, sc, wz, sc, az) c =
        ConvInteger<kernel_shape=[3,3]>(x, wc, az) z = QLinearConv<kernel_shape=[3,3], pads=[1,1,1,1], group=4>(x, sc, az, wd,
        sc, wz, sc, az) dq, ds, dz = DynamicQuantizeLinear(f) m = MatMulInteger(dq, wb, dz, wz) n = Cast<to=1>(m) o = Mul(ds,
        sc) t = Mul(n, o)
        nb = com.microsoft.MatMulNBits<K=16, N=6, bits=4, block_size=16>(few, packed, per_block)
        xf = DequantizeLinear(x, sc, az) wcf = DequantizeLinear(wc, sc) wdf = DequantizeLinear(wd, sc)
        cf = Conv<kernel_shape=[3,3]>(xf, wcf) last = QuantizeLinear(cf, sc, az)
        zf = DequantizeLinear(z, sc, az) zx = Add(xf, zf) both = QuantizeLinear(zx, sc, az)
        sg = Sigmoid(xf) xs = Mul(xf, sg) looked = QuantizeLinear(xs, sc, az)
        taps = Conv<kernel_shape=[3,3], pads=[1,1,1,1], group=4>(xf, wdf, b4) }""",
        {"b4": ("f4", (4,)), "wb": ("i1", (5, 6)), "az": ("u1", ()), "wz": ("i1", ()), "sc": ("scale", ()), "wc": ("i1", (8, 4, 3, 3)),
            "wd": ("i1", (4, 1, 3, 3)),
            "packed": ("u1", (6, 1, 8)), "per_block": ("f4", (6,))},
    ),
    "numbers_as_bytes": (
        20,
        """(float[N,40] x, uint8[N,40] u) => (uint8[N,40] y, int8[N,40] s, float[N,40] z) { y = QuantizeLinear(x, sc, az)
        s = QuantizeLinear<axis=1>(x, each, wz) z = DequantizeLinear(u, sc, az) }""",
        {"sc": ("scale", ()), "az": ("u1", ()), "each": ("f4", (40,)), "wz": ("i1", (40,))},
    ),
    "squares": (
        20,
        """(float[N,16,48,48] x, float[N,16,7,8] s) => (float[N,16,48,48] y, float[N,32,24,24] z, float[N,16,48,46] d, float[N,16,7,8] t,
        float[N,8,12,15] p) {
        d = Conv<kernel_shape=[3,3], pads=[3,1,3,1], dilations=[3,2]>(x, w) c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w)
        y = Sigmoid(c) z = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(y, v, b)
        e = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(s, w) f = Add(e, s) t = Relu(f)
        p = Conv<kernel_shape=[5,5], pads=[2,0,2,1], strides=[4,3]>(x, u) }""",
        {"w": ("f4", (16, 16, 3, 3)), "v": ("f4", (32, 16, 3, 3)), "b": ("f4", (32,)), "u": ("f4", (8, 16, 5, 5))},
    ),
    "recurrent": (
        14,
        """(float[N,M,5] x, int32[M] lens, float[2,M,6] h) => (float[N,2,M,6] y, float[2,M,6] yc, float[N,1,M,20] z, float[1,M,20] vh,
        float[N,1,M,3] r) { y, yh, yc = LSTM<hidden_size=6, direction="bidirectional">(x, w, u, b, lens, h, h)
        z, zh = GRU<hidden_size=20>(x, wg, ug)
        v, vh = GRU<hidden_size=20, linear_before_reset=1, direction="reverse">(x, wg, ug, bg) r, rh = RNN<hidden_size=3>(x, wr, ur) }""",
        {"w": ("f4", (2, 24, 5)), "u": ("f4", (2, 24, 6)), "b": ("f4", (2, 48)), "wg": ("f4", (1, 60, 5)), "ug": ("f4", (1, 60, 20)),
            "bg": ("f4", (1, 120)), "wr": ("f4", (1, 3, 5)), "ur": ("f4", (1, 3, 3))},
    ),
    "byte_windows": (
        20,
        """(uint8[N,16,9,7] x) => (uint8[N,13,9,7] y, float[N,5,7,5] z) {
        xf = DequantizeLinear(x, sc, az) wf = DequantizeLinear(w, sc) c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(xf, wf)
        y = QuantizeLinear(c, sc, az) vf = DequantizeLinear(v, sc, az) z = Conv<kernel_shape=[3,3]>(xf, vf) }""",
        {"az": ("u1", ()), "sc": ("scale", ()), "w": ("i1", (13, 16, 3, 3)), "v": ("u1", (5, 16, 3, 3))},
    ),
    "codes": (
        21,
        """(float[M,64] x, float[6,40] many, float[M,40] odd, int64[M] i, uint8[6,1,16] c2) => (float[M,6] two, float[M,6] four,
        float[6,6] eight, float[M,6] near, float[M,7] short, float[6,6] panels, float[M,64] picked, float[M,9] beside, float[M,6] third) {
        two = com.microsoft.MatMulNBits<K=64, N=6, bits=2, block_size=64>(x, c2, s1)
        four = com.microsoft.MatMulNBits<K=64, N=6, bits=4, block_size=32, accuracy_level=4>(x, c4, s2, z2)
        beside = com.microsoft.MatMulNBits<K=64, N=9, bits=4, block_size=32, accuracy_level=4>(x, f4, s3, z9, , b9)
        third = com.microsoft.MatMulNBits<K=64, N=6, bits=4, block_size=32, accuracy_level=4>(x, c4, s2, z2)
        eight = com.microsoft.MatMulNBits<K=40, N=6, bits=8, block_size=16>(many, c8, s3, z3, , b6)
        near = com.microsoft.MatMulNBits<K=64, N=6, bits=8, block_size=64, accuracy_level=4>(x, d8, s1)
        short = com.microsoft.MatMulNBits<K=40, N=7, bits=2, block_size=16>(odd, c7, s7)
        wide = com.microsoft.MatMulNBits<K=40, N=6, bits=4, block_size=32>(many, e4, s2) panels = Relu(wide)
        picked = com.microsoft.GatherBlockQuantized<bits=4, block_size=16, gather_axis=0, quantize_axis=1>(table, i, scales) }""",
        {"c4": ("u1", (6, 2, 16)), "c8": ("u1", (6, 3, 16)), "d8": ("u1", (6, 1, 64)), "c7": ("u1", (7, 3, 4)),
         "e4": ("u1", (6, 2, 16)), "f4": ("u1", (9, 2, 16)), "s1": ("f4", (6,)), "s2": ("f4", (12,)),
         "s3": ("f4", (18,)), "s7": ("f4", (21,)),
         "z2": ("u1", (6,)), "z9": ("u1", (9,)), "b9": ("f4", (9,)), "z3": ("f4", (18,)),
         "b6": ("f4", (6,)), "table": ("u1", (5, 32)), "scales": ("f4", (5, 4))},
    ),
    "blocks": (
        20,
        """(float[M,64] x, float[9,64] many, float[M,256] wide, int64[N] i) => (float[M,6] few, float[9,6] a, float[9,9] b, float[M,5] c,
        float[N,256] rows) { few = org.ggml.MatMul<type="Q4_0">(x, b4) a = org.ggml.MatMul<type="Q4_0">(many, b4)
        b = org.ggml.MatMul<type="Q8_0">(many, b8) c = org.ggml.MatMul<type="Q5_K">(wide, b5)
        rows = org.ggml.GetRows<type="Q5_K">(b5, i) }""",
        {"b4": ("u1", (6, 2, 18)), "b8": ("u1", (9, 2, 34)), "b5": ("u1", (5, 1, 176))},
    ),
    "bands": (
        20,
        """(float[40,500] x, float[N,64] few) => (float[40,17] deep, float[N,131] wide) { deep = Gemm<transB=1>(x, turned)
        wide = MatMul(few, plain) }""",
        {"turned": ("f4", (17, 500)), "plain": ("f4", (64, 131))},
    ),
    "halves": (20, HALVES, {"a": ("f4", (40, 24)), "b": ("f4", (24, 16)), "t": ("f4", (7, 40))}),
    "brains": (20, HALVES, {"a": ("f4", (40, 24)), "b": ("f4", (24, 16)), "t": ("f4", (7, 40))}),
    "cache": (
        23,
        """(float[N,2,P,4] past, float[N,2,M,4] new, float[N,2,M,4] q, float[N,2,P,4] k, float[N,2,P,6] v, float[N,2,M,6] w) =>
        (float[N,2,T,4] present, float[N,2,M,T] scores, float[N,2,M,6] y, float[N,2,U,4] pk, float[N,2,U,6] pv) {
        present = Concat<axis=2>(past, new) turned = Transpose<perm=[0,1,3,2]>(present) scores = MatMul(q, turned)
        y, pk, pv = Attention<is_causal=1>(q, new, w, , k, v) }""",
        {},
    ),
    "contents": (
        20,
        """(float[M,K] x, float[1,M,4] boxes, float[1,2,M] scores, int64[2] shape, float[N] r) => (int64[2,n1] nz, float[n2] un, int64[n3]
        ui, int64[n4,3] nm, float[n5] cp, float[o1,o2] rs, float[n6] cs) { nz = NonZero(x) un, uf, ui, uc = Unique<sorted=0>(x)
        nm = NonMaxSuppression(boxes, scores, most, half) b = Greater(x, zero) fx = Reshape(x, flat) fb = Reshape(b, flat) cp =
        Compress(fx, fb) two = Mul(shape, ones) rs = Expand(zero, two) cs = Concat<axis=0>(cp, r) }""",
        {"most": ("ints", (3,)), "half": ("scales", (0.5,)), "zero": ("zero", (1, 1)), "flat": ("ints", (-1,)), "ones": ("ints", (1, 1))},
    ),
    "control": (
        20,
        """(float[N] x, float[M,K] d, int64 trips, float most, int64[K] v) => (float[a] y, float[N] z, float[b,N] rows, float[c] grown,
        int64[K] w, int64[e,K] each, float[K] t, float[M,K] sums, float[aa] said,
        int64[K] heard) {
        s = ReduceSum<keepdims=0>(x) c = Greater(s, most)
        y = If(c) <then_branch = g1 () => (float[a1] y1) { y1 = Mul(x, x) },
                   else_branch = g2 () => (float[a2] y2) { y2 = Concat<axis=0>(x, x) }>
        z, rows = Loop(trips, , x) <body = g3 (int64 i, bool go, float[N] u) => (bool go2, float[N] u2, float[N] row)
            { h = Mul(u, half) u2 = Add(h, x) r = ReduceSum<keepdims=0>(u2) go2 = Less(r, most) row = Identity(u2) }>
        grown = Loop(trips, , x) <body = g4 (int64 i, bool go, float[p] u) => (bool go2, float[q] u2)
            { u2 = Concat<axis=0>(u, x) go2 = Identity(go) }>
        w, each = Loop(three, , v) <body = g5 (int64 i, bool go, int64[K] u) => (bool go2, int64[K] u3, int64[K] row)
            { u2 = Loop(i, , u) <body = g6 (int64 j, bool on, int64[K] o) => (bool on2, int64[K] o2)
                  { o1 = Add(o, i) o2 = Add(o1, j) on2 = Identity(on) }>
              even = Mod(i, two) odd = Cast<to=9>(even)
              u3 = If(odd) <then_branch = g7 () => (int64[K] k1) { k1 = Neg(u2) },
                            else_branch = g8 () => (int64[K] k2) { k2 = Add(u2, i) }>
              go2 = Identity(go) row = Identity(u3) }>
        start = ReduceMax<keepdims=0>(d, first)
        t, sums = Scan<num_scan_inputs=1, body = g9 (float[K] carry, float[K] now) => (float[K] next, float[K] out)
            { next = Add(carry, now) out = Mul(next, now) }>(start, d)
        said = damage.Host(grown)
        heard = Loop(three, , v) <body = g10 (int64 i, bool go, int64[K] u) => (bool go2, int64[K] u2)
            { u1 = damage.Host(u) u2 = Add(u1, i) go2 = Identity(go) }> }""",
        {"half": ("scale", ()), "three": ("three", ()), "two": ("two", ()), "first": ("ints", (0,))},
    ),
    "sequences": (
        20,
        """(float[N,M] x, float[N,K] r) => (float[N,a] y, float[N,b] z, float[N,c] t) { s = SplitToSequence<axis=1>(x, two)
        m = SequenceMap(s, r) <body = h1 (float[N,d] u, float[N,K] o) => (float[N,e] w) { h = Neg(u) w = Concat<axis=1>(h, o) }>
        i = SequenceInsert(m, x, even) n = SequenceErase(i) y = ConcatFromSequence<axis=1>(n) z = SequenceAt(i, even)
        t = SequenceAt(s, even) }""",
        {"two": ("two", ()), "even": ("ints", (0,))},
    ),
    "elements": (
        20,
        """(float[N,M,K] x, int32[N,M,K] i, float16[N,M,K] h, double[K] d, bool[N,1,K] b, int8[N,M,K] t) => (float[N,M,K] y, int32[N,M,K]
        j, float16[N,M,K] k, float[N,M] s, float[K] mx, double[N,M,K] e, int64[N,M,K] c, float[N,1,1] l, int32[N,K] pr,
        float16[M] hm, float[K,N,M] w, int64[3] sh, float[N,M,K] rd,
        float[N,M,K] rn) { x1 = Tanh(x) x2 = Erf(x1) x3 = Pow(x2, x) y = Where(b, x3, x) j1 = Mul(i,
        i) j2 = Sub(j1, i) j = Neg(j2) k1 = Exp(h) k = Div(k1, h) s = ReduceMean<keepdims=0>(x, two) mx =
        ReduceMax<keepdims=0>(x, zero_one) e1 = Cast<to=11>(t) e = Add(e1, d) c = Cast<to=7>(x) l = ReduceL2(x, one_two) pr =
        ReduceProd<keepdims=0>(i, one) hm = ReduceSum<keepdims=0>(h, zero_two) xt = Transpose<perm=[2,0,1]>(x) w = Softplus(xt)
        sh = Shape(x) rd = RandomUniformLike(x) rn = RandomNormalLike<seed=3.0>(x) }""",
        {"two": ("ints", (2,)), "zero_one": ("ints", (0, 1)), "one_two": ("ints", (1, 2)), "one": ("ints", (1,)),
            "zero_two": ("ints", (0, 2))},
    ),
    "rows": (
        23,
        """(float[N,2,M,8] q, float[N,2,K,8] k, float[N,2,K,6] v, float[N,M,12] x, double[N,K] d, int64[N,K] i,
        float[N,M,2] ca, float[N,M,2] sa) => (float[N,2,M,6] y, float[N,M,12] turned, float[N,M,12] n, float[N,M,12] s,
        double[N,K] sd, float[N,4,M,3] gn, int64[N,K] cs, float[N,M,12] rn, float[2,3] lit) {
        y = Attention<is_causal=1>(q, k, v) turned = RotaryEmbedding<num_heads=2, rotary_embedding_dim=4>(x, ca, sa)
        n = LayerNormalization<axis=-1>(x, sc, bi) s = Softmax<axis=1>(x) sd = LogSoftmax<axis=1>(d)
        r = Reshape(x, four) t = Transpose<perm=[0,2,1,3]>(r) gn = InstanceNormalization(t, s4, b4) cs =
        CumSum(i, one) rn = RMSNormalization<axis=-1>(x, sc) sh = Shape(x) f = Cast<to=1>(sh) lit1 = Unsqueeze(f, zero) ones =
        Expand(lit1, twos) lit = Identity(ones) }""",
        {"sc": ("f4", (12,)), "bi": ("f4", (12,)), "four": ("ints", (0, -1, 4, 3)), "s4": ("f4", (4,)), "b4": ("f4", (4,)),
            "one": ("int", ()),
         "zero": ("ints", (0,)), "twos": ("ints", (2, 3))},
    ),
    "classical": (
        20,
        """(float[N,2] x, double[M,2] d, int64[K] i) => (float[N,o] t, float[M,p] u, int64[N] l, float[N,3] z, float[K,4] h) { l, z =
        ai.onnx.ml.SVMClassifier<classlabels_ints=[0,1,2], coefficients=[1.0,2.0,3.0,-1.0,-2.0,-3.0], kernel_params=[0.5,0.0,0.0],
        kernel_type="RBF", prob_a=[1.0,2.0,3.0], prob_b=[0.0,0.5,1.0], rho=[0.0,0.5,1.0], support_vectors=[1.0,2.0,3.0,4.0,5.0,6.0],
        vectors_per_class=[1,1,1]>(x) h = ai.onnx.ml.OneHotEncoder<cats_int64s=[5,1,0,2]>(i) t =
        ai.onnx.ml.TreeEnsembleRegressor<n_targets=2,
        aggregate_function="MAX", nodes_treeids=[0,0,0], nodes_nodeids=[0,1,2], nodes_featureids=[1,0,0], nodes_modes=["BRANCH_LT",
        "LEAF", "LEAF"], nodes_values=[0.5,0.0,0.0], nodes_truenodeids=[1,0,0], nodes_falsenodeids=[2,0,0], target_treeids=[0,0,0],
        target_nodeids=[1,1,2], target_ids=[0,1,1], target_weights=[1.0,2.0,3.0]>(x) u =
        ai.onnx.ml.TreeEnsembleRegressor<n_targets=1, nodes_treeids=[0,0,0,0,0], nodes_nodeids=[0,1,2,3,4],
        nodes_featureids=[1,0,0,0,0], nodes_modes=["BRANCH_EQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF"],
        nodes_values=[0.5,0.0,0.0,0.0,0.0], nodes_truenodeids=[1,3,0,0,0], nodes_falsenodeids=[2,4,0,0,0], target_treeids=[0,0,0],
        target_nodeids=[2,3,4], target_ids=[0,0,0], target_weights=[1.0,2.0,3.0]>(d) }""",
        {},
    ),
    "shader": (21, "(float[N] x) => (float[N] y) { z = damage.Shade(x) y = Exp(z) }", {}),
    "words": (
        21,
        """(string[N] x, string[N] z, int64[N] i) => (bool[N] e, string[N] c, string[N] g, string[u] w, float[2] first, string[v] q,
        string[N,p] sp, int64[N] np, string[r] norm, bool[N] m, string[N] t, float[N] f, string[N,k] k) {
        e = Equal(x, z) g = Gather(table, i) c = StringConcat(z, g) all = Concat<axis=0>(g, x) w = StringConcat(all, all) first =
        TfIdfVectorizer<mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0, ngram_counts=[0], ngram_indexes=[0, 1],
        pool_strings=["a", "word"]>(g) q = Unique(all) sp, np = StringSplit<delimiter="o">(g) norm =
        StringNormalizer<case_change_action="UPPER", stopwords=["a"]>(g) m = RegexFullMatch<pattern="(a|[^b]{2,3})+">(g) t = Cast<to=8>(i)
        f = Cast<to=1>(t)
        k = com.microsoft.Tokenizer<mark=1, mincharnum=1, pad_value="-", separators=["o", "n+"]>(g) }""",
        {"table": ("words", (5,))},
    ),
}  # fmt: skip


@callback("Shade", domain="damage", wgsl="x + x")
def shade(x: np.ndarray) -> Any:
    """A step that GPUs alone run."""
    return x + x


@callback("Host", domain="damage", outputs=[(None, 1)])
def host(x: np.ndarray) -> np.ndarray:
    """A step that the host does: of any size."""
    return x


def constant(kind: str, value: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    if kind == "ints":
        return np.array(value, np.int64)
    if kind in (numbers := {"int": 1, "two": 2, "three": 3}):
        return np.array(numbers[kind], np.int64)
    if kind == "scales":
        return np.array(value, np.float32)
    if kind == "words":
        return np.array(["word", "", "a", "é日本𝄞", "another"][: int(value[0])], object)
    if kind == "scale":
        return np.array(0.5, np.float32)
    if kind == "zero":
        return np.zeros([int(v) for v in value], np.float32)
    return (rng.standard_normal([int(v) for v in value]) * 3).astype(kind)


def models() -> dict[str, Compiled]:
    """The models, compiled."""
    rng = np.random.default_rng(1)
    made = {}
    for name, (opset, body, constants) in MODELS.items():
        model = parser.parse_model(HEAD.format(opset=opset) + body)
        model.graph.initializer.extend(numpy_helper.from_array(constant(k, v, rng), c) for c, (k, v) in constants.items())
        onnx.checker.check_model(model)
        made[name] = compile(model.SerializeToString(), gpu=name == "shader", weights=WEIGHTS.get(name))
    return made


def write(folder: Path) -> list[Path]:
    """The Programs as the fuzzer reads them: words, weights, and sets of input dims, each with its count in front."""
    folder.mkdir(parents=True, exist_ok=True)
    used: set[str] = set()
    paths = []
    for name, compiled in models().items():
        weights = load_weights(compiled.init, compiled.weights)
        programs = [(name, compiled.main, [[size(d, at) for s in compiled.inputs for d in parts(s)] for at in (0, 1)])]
        if compiled.init is not None:
            programs.append((name + "-init", compiled.init, [[]]))
        if compiled.gpu is not None:
            programs.append((name + "-gpu", compiled.gpu.program, programs[0][2]))
        for title, program, dims in programs:
            used |= {step.kernel for step in ProgramView(program.code).steps}
            paths.append(folder / f"{title}.seed")
            dims = told(ProgramView(program.code), dims)
            blocks = [struct.pack("<q", program.code.size), program.code.astype("<i4").tobytes(), struct.pack("<q", len(weights))]
            for w in weights:
                blocks += [struct.pack("<q", w.nbytes), w.tobytes()]
            blocks.append(struct.pack("<q", len(dims)))
            for one in dims:
                blocks.append(struct.pack(f"<{len(one) + 1}q", len(one), *one))
            paths[-1].write_bytes(b"".join(blocks))
    unused = {*KERNELS, "if", "loop", "host"} - used
    if unused:
        raise ValueError(f"no seed uses {', '.join(sorted(unused))}: add it to MODELS")
    return paths


def told(view: ProgramView, dims: list[list[int]]) -> list[list[int]]:
    """Sets of input dims with those of the Program's state: nothing is kept, then with rooms, empty and with all of the past in place."""
    states, ranks = view.states, [row.rank for row in view.inputs]
    if not states:
        return dims
    kept = []
    for given in dims:
        rows = [given[sum(ranks[: s.past]) + s.axis] for s in states]
        kept += [given + [n for r in rows for n in (room, r * held)] for room, held in ((0, 0), (12, 0), (12, 1))]
    return kept


def parts(s: Signature) -> list[int | str]:
    """The dims of an input, those of spans and pool where it is of strings."""
    return [*s.shape, "bytes"] if s.dtype is DType.string else list(s.shape)


def size(dim: int | str, at: int) -> int:
    return dim if isinstance(dim, int) else SIZES.get(dim, (2, 3))[at]


def fuzz_wasm(seed: int, first: int, count: int, folder: Path, core: Path) -> subprocess.CompletedProcess[str]:
    """Runs the same cases on a core of WebAssembly in Node.js (V8), between two sessions whose memory must stay as it is."""
    seeds = [*map(str, write(folder))]
    cases = [str(toolchain.generator()), str(seed), str(first), str(count), *seeds]
    with subprocess.Popen(cases, stdout=subprocess.PIPE) as writer:
        command = ["node", str(Path(__file__).with_suffix(".mjs")), str(core), str(first), *seeds]
        return subprocess.run(command, stdin=writer.stdout, capture_output=True, text=True, check=False)


def fuzz(seed: int, first: int, count: int, folder: Path, fuzzer: Path = FUZZER) -> subprocess.CompletedProcess[str]:
    """Runs cases; the fuzzer's exit code is 0 where none of them failed, and its error output names the one that did."""
    command = [str(fuzzer), str(seed), str(first), str(count), *map(str, write(folder))]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main(argv: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="python -m pyonnx_wasm.testing.damage", description=__doc__)
    options.add_argument("--count", type=int, default=100_000)
    options.add_argument("--first", type=int, default=0, help="number of the first case; an error names it")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--folder", type=Path, default=FUZZER.parent / "seeds", help="where the Programs are written")
    options.add_argument("--wasm", type=Path, help="a core of WebAssembly to run them on, in Node.js")
    options.add_argument("--modules", action="store_true", help="damage the WebAssembly of a custom operator instead, in wasmtime")
    args = options.parse_args(argv)
    if args.modules:
        print(dict(damage_modules.run(args.seed, args.first, args.count)))
        return 0
    given = args.seed, args.first, args.count, args.folder
    done = fuzz_wasm(*given, args.wasm) if args.wasm else fuzz(*given)
    print(done.stdout, end="")
    print(done.stderr, end="", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
