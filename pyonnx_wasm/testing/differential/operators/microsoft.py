"""The domain com.microsoft, where onnxruntime's CPU provider has the operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sketch import FLOAT, Sketch
from ..values import Array
from . import NOT_GENERATED, Schema, generates
from .neural import window
from .quantised import DOMAIN, INT8, UINT8, point, scale

NHWC = ("AveragePool", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
WITHOUT_A_KERNEL = """
    ComplexMul ComplexMulConj GatedRelativePositionBias Irfft MatMulNBitsMlp MatMulNBitsQkv NhwcConv NhwcFusedConv RelativePositionBias
    RemovePadding Rfft TorchEmbedding
    BiasDropout BiasSoftmax BitmaskBiasDropout BitmaskDropout FusedMatMulActivation GemmFastGelu GemmaRotaryEmbedding GroupNorm IsAllFinite
    MulInteger PackedAttention PackedMultiHeadAttention QLinearReduceMean ReduceSumInteger RestorePadding SkipGroupNorm
"""
NOT_GENERATED.update(
    {(DOMAIN, name): "onnxruntime's CPU provider has no kernel; tests compare with numpy" for name in WITHOUT_A_KERNEL.split()}
)
NOT_GENERATED[DOMAIN, "TransposeMatMul"] = "FusedMatMul under the name that it had before"
NOT_GENERATED[DOMAIN, "DecoderMaskedSelfAttention"] = "Attention for one query"
NOT_GENERATED.update({("com.ms.internal.nhwc", n): "onnxruntime writes them while it runs and loads none from a file" for n in NHWC})
NCHWC = ("AveragePool", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReorderInput", "ReorderOutput", "Upsample")
NOT_GENERATED.update({("com.microsoft.nchwc", n): "the layout depends on the machine; tests compare with the standard's" for n in NCHWC})
NOT_GENERATED.update({("", n): "onnxruntime alone kept it, of before opset 10; tests compare with it" for n in ("Crop", "ImageScaler")})
NOT_GENERATED[DOMAIN, "SampleOp"] = "Identity under the name of an example"
NOT_GENERATED[DOMAIN, "QEmbedLayerNormalization"] = "EmbedLayerNormalization over tables that DequantizeLinear covers"


def name_of(m: Sketch) -> str:
    return m.name.rpartition(".")[2]


def finish(m: Sketch, given: list[str], outputs: int = 1, **attributes: Any) -> None:
    """The node under test, without absent inputs at its end."""
    while given and not given[-1]:
        given.pop()
    m.result(*m.add(name_of(m), given, outputs, DOMAIN, **attributes))


def plain(m: Sketch, *shape: int, constant: float = 0) -> str:
    return m.operand(FLOAT, shape, "plain", constant=constant)


def code(m: Sketch) -> np.dtype[Any]:
    return m.choice((UINT8, INT8))  # type: ignore[no-any-return]


@generates("QLinearAdd", "QLinearMul", domain=DOMAIN)
def binary(m: Sketch, schema: Schema) -> None:
    dtype, shape = code(m), m.shape(m.integer(1, 4))
    given = []
    for s in (shape, m.broadcast(shape)):
        given += [m.operand(dtype, s), scale(m, ()), point(m, dtype)]
    finish(m, [*given, scale(m, ()), point(m, dtype)])


@generates("QLinearLeakyRelu", "QLinearSigmoid", "QLinearGlobalAveragePool", domain=DOMAIN)
def unary(m: Sketch, schema: Schema) -> None:
    dtype, pool = code(m), name_of(m) == "QLinearGlobalAveragePool"
    m.empty = m.empty and not pool
    given = [m.operand(dtype, m.shape(4 if pool else None)), scale(m, ()), point(m, dtype), scale(m, ()), point(m, dtype)]
    finish(m, given, **({"channels_last": m.choice((0, 1))} if pool else {"alpha": m.choice((None, 0.3))} if "Leaky" in m.name else {}))


@generates("QLinearSoftmax", domain=DOMAIN)
def softmax(m: Sketch, schema: Schema) -> None:
    dtype, rank = code(m), m.integer(1, 4)
    m.empty = False
    zero = np.asarray(-128 if dtype == INT8 else 0, dtype)
    axis, shape = m.integer(0, rank - 1), list(m.shape(rank))
    shape[axis] = max(shape[axis], 2)  # of one number alone onnxruntime's uint8 wraps around
    given = [m.operand(dtype, shape), scale(m, ()), point(m, dtype), m.const(np.asarray(np.float32(1 / 255))), m.const(zero)]
    finish(m, given, axis=axis, opset=m.choice((9, 13)))


@generates("QLinearConcat", domain=DOMAIN)
def concat(m: Sketch, schema: Schema) -> None:
    dtype, rank = code(m), m.integer(1, 4)
    shape, axis = m.shape(rank), m.integer(0, rank - 1)
    given = [scale(m, ()), m.const(m.array(dtype, (), "plain", True))]
    for _ in range(m.integer(1, 3)):
        sized = (*shape[:axis], m.size(), *shape[axis + 1 :])
        given += [m.operand(dtype, sized), scale(m, (), constant=1), m.const(m.array(dtype, (), "plain", True))]
    finish(m, given, axis=axis)


@generates("QLinearWhere", domain=DOMAIN)
def where(m: Sketch, schema: Schema) -> None:
    dtype, shape = code(m), m.shape()
    given = [m.operand(np.dtype(np.bool_), m.broadcast(shape))]
    for s in (shape, m.broadcast(shape)):
        given += [m.operand(dtype, s), scale(m, (), constant=1), m.const(m.array(dtype, (), "plain", True))]
    finish(m, [*given, scale(m, (), constant=1), m.const(m.array(dtype, (), "plain", True))])


@generates("QLinearAveragePool", domain=DOMAIN)
def average_pool(m: Sketch, schema: Schema) -> None:
    dtype, last = code(m), m.chance(0.4)
    m.empty = False
    kernel, attributes, sizes = window(m, 2)
    attributes.pop("dilations", None)
    lead = (m.size(1, 2), m.integer(1, 3))
    shape = (lead[0], *sizes, lead[1]) if last else (*lead, *sizes)
    given = [m.operand(dtype, shape), scale(m, ()), point(m, dtype), scale(m, ()), point(m, dtype)]
    finish(m, given, **attributes | {"kernel_shape": list(kernel), "channels_last": int(last), "count_include_pad": m.choice((None, 0, 1))})


@generates("QLinearConv", domain=DOMAIN)
def convolution(m: Sketch, schema: Schema) -> None:
    kernel, attributes, sizes = window(m, 2)
    group, last = m.choice((1, 1, 2)), m.chance(0.5)
    per, out, first = m.integer(1, 3), group * m.integer(1, 3), code(m)
    lead = (m.size(1, 2), group * per)
    x = m.operand(first, (lead[0], *sizes, lead[1]) if last else (*lead, *sizes), constant=0.1)
    w = m.operand(INT8, (out, per, *kernel), constant=1)
    wide = (out,) if m.chance(0.4) else ()
    given = [x, scale(m, ()), point(m, first), w, scale(m, wide, constant=1), m.const(np.zeros(wide, INT8)), scale(m, ()), point(m, first)]
    given += [m.operand(np.int32, (out,), "plain", constant=1)] if m.chance(0.5) else []
    finish(m, given, group=group, channels_last=int(last), **attributes)


@generates("QGemm", domain=DOMAIN)
def gemm(m: Sketch, schema: Schema) -> None:
    m.empty = False
    rows, k, n, first = m.size(), m.size(), m.size(), code(m)
    second = code(m) if first == UINT8 else INT8
    wide, trans = (n,) if m.chance(0.4) else (), [m.choice((0, 1)) for _ in range(2)]
    given = [m.operand(first, (k, rows) if trans[0] else (rows, k)), scale(m, ()), point(m, first)]
    given += [m.operand(second, (n, k) if trans[1] else (k, n)), scale(m, wide), point(m, second, wide)]
    given.append(m.operand(np.int32, (n,), "plain") if m.chance(0.5) else "")
    given += [scale(m, ()), point(m, first)] if m.chance(0.5) else []
    finish(m, given, transA=trans[0], transB=trans[1], alpha=m.choice((None, 0.5)))


@generates("MatMulInteger16", domain=DOMAIN)
def integer16(m: Sketch, schema: Schema) -> None:
    rows, k, n = m.size(), m.size(), m.size()
    finish(m, [m.input(m.whole_numbers(-300, 300, s, np.int16)) for s in ((rows, k), (k, n))])


@generates("QuantizeLinear", "DequantizeLinear", domain=DOMAIN)
def quantize(m: Sketch, schema: Schema) -> None:
    dtype, shape = m.choice((UINT8, INT8, np.dtype(np.int16), np.dtype(np.uint16))), m.shape(m.integer(1, 4))
    axis = m.integer(0, len(shape) - 1) if m.chance(0.4) else None
    wide = () if axis is None else (shape[axis],)
    x = m.operand(FLOAT if name_of(m) == "QuantizeLinear" else dtype, shape, "plain")
    finish(m, [x, scale(m, wide), m.const(m.array(dtype, wide, "plain", True))] if wide == () or not m.varying else
           [x, scale(m, ()), m.const(m.array(dtype, (), "plain", True))], axis=axis if wide and not m.varying else None)  # fmt: skip


@generates("EmbedLayerNormalization", domain=DOMAIN)
def embed(m: Sketch, schema: Schema) -> None:
    m.empty = False
    b, n, size = m.size(1, 3), m.size(1, 5), m.integer(1, 6)
    kinds, mask, places = m.chance(0.5), m.chance(0.5), m.chance(0.3)

    def ids(high: int) -> str:
        return m.input(m.whole_numbers(0, high, (b, n), np.int32))

    given = [ids(6), ids(1) if kinds else "", plain(m, 7, size, constant=1), plain(m, 6, size, constant=1)]
    given += [plain(m, 2, size, constant=1) if kinds else "", plain(m, size, constant=1), plain(m, size, constant=1)]
    given += [ids(1) if mask else "", ids(5) if places else ""]
    finish(m, given, m.choice((1, 2, 3)))


@generates("GatedRMSNorm", "BranchwiseRMSNorm", domain=DOMAIN)
def gated(m: Sketch, schema: Schema) -> None:
    m.empty = False
    size, groups = m.integer(1, 5), m.integer(1, 3)
    x = plain(m, *m.shape(m.integer(1, 2)), size * groups)
    shape = m.inputs[x].shape
    if name_of(m) == "GatedRMSNorm":
        finish(m, [x, plain(m, size), plain(m, *shape)], activation=m.choice((None, "silu", "sigmoid", "swish")))
    else:
        finish(m, [x, plain(m, *m.choice(((size,), (groups, size), (groups * size,))))], num_branches=groups)


@generates("EngramGate", domain=DOMAIN)
def engram(m: Sketch, schema: Schema) -> None:
    m.empty = False
    b, n, c, h = m.size(1, 2), m.size(1, 4), m.integer(1, 3), m.integer(1, 5)
    given = [plain(m, b, n, c, h), plain(m, b, n, c, h), plain(m, b, n, h), *(plain(m, c, h) for _ in range(3))]
    finish(m, given, 2)


@generates("HyperConnectionPreMix", "HyperConnectionPostMix", domain=DOMAIN)
def hyper(m: Sketch, schema: Schema) -> None:
    m.empty = False
    lead, c, h = m.shape(m.integer(1, 2)), m.integer(1, 3), m.integer(4, 6)
    mix = plain(m, *lead, *m.choice(((c,), (c, 1), (c, h))))
    if name_of(m) == "HyperConnectionPreMix":
        finish(m, [plain(m, *lead, c, h), mix], reduction_scale=m.choice((None, 0.5)))
    else:
        finish(m, [plain(m, *lead, c, h), plain(m, *lead, h), mix, plain(m, *lead, c, c) if m.chance(0.5) else ""])


@generates("ScaledSiLU", "GatedAdd", "LinearAttentionGate", domain=DOMAIN)
def elementwise(m: Sketch, schema: Schema) -> None:
    m.empty = False
    shape = m.shape(3)
    if name_of(m) == "ScaledSiLU":
        finish(m, [plain(m, *shape)], alpha=m.choice((None, 0.7)))
    elif name_of(m) == "GatedAdd":
        finish(m, [plain(m, *shape), plain(m, *shape), plain(m, *shape[:-1], 1)])
    else:
        finish(m, [plain(m, *shape), plain(m, shape[-1]), plain(m, shape[-1]), plain(m, *shape)], 2)


def padding(m: Sketch, batch: int, queries: int, keys: int, seen: int) -> Array:
    """Some kind of mask; every row keeps one of the first ``seen`` keys, which all rows may look at."""
    kind = m.integer(0, 3)
    ends = m.whole_numbers(1, keys, (batch,), np.int32)
    if kind < 2:
        return np.concatenate([ends, np.minimum(m.whole_numbers(0, 2, (batch,), np.int32), np.minimum(ends, seen) - 1)]) if kind else ends
    rows = (np.arange(keys) < ends[:, None]).astype(np.int32)
    return rows if kind == 2 else np.broadcast_to(rows[:, None], (batch, queries, keys)).copy()


@generates("Attention", "QAttention", domain=DOMAIN)
def attention(m: Sketch, schema: Schema) -> None:
    m.empty = False
    b, n, heads, size, hidden = m.size(1, 3), m.size(1, 4), m.integer(1, 3), m.integer(1, 4), m.integer(1, 5)
    held = m.size(1, 3) if m.chance(0.4) else 0
    wide = 3 * heads * size
    past = plain(m, 2, b, heads, held, size) if held else ""
    attributes = {"num_heads": heads, "unidirectional": m.choice((None, 1)), "scale": m.choice((None, 0.4))}
    mask = m.input(padding(m, b, n, n + held, held + 1 if attributes["unidirectional"] else n + held)) if m.chance(0.5) else ""
    if name_of(m) == "QAttention":
        given = [m.operand(UINT8, (b, n, hidden)), m.operand(INT8, (hidden, wide), constant=1), plain(m, wide, constant=1), scale(m, ())]
        given += [scale(m, ()), mask, point(m, UINT8), m.const(np.asarray(0, INT8)), past]
    else:
        bias = plain(m, m.choice((1, b)), m.choice((1, heads)), n, n + held) if m.chance(0.3) else ""
        given = [plain(m, b, n, hidden), plain(m, hidden, wide, constant=1), plain(m, wide, constant=1), mask, past, bias]
    m.loose = 2
    finish(m, given, 2 if held else 1, **attributes)


@generates("DecoderMaskedMultiHeadAttention", domain=DOMAIN)
def decoder(m: Sketch, schema: Schema) -> None:
    m.empty = False
    b, heads, size, held, cross = m.size(1, 3), m.integer(1, 3), m.integer(1, 4), m.size(1, 4), m.chance(0.4)
    kv = (b, heads, held, size) if cross else (b, 1, heads * size)
    given = [plain(m, b, 1, heads * size), plain(m, *kv), plain(m, *kv)]
    given.append(m.input((np.arange(held + (not cross)) < m.whole_numbers(1, held, (b, 1))).astype(np.int32)) if m.chance(0.4) else "")
    given.append("")
    given += [plain(m, b, heads, held, size) for _ in range(2)] if not cross else []
    finish(m, given, 1 if cross else 3, num_heads=heads)


@generates("MRotaryEmbedding", domain=DOMAIN)
def rotary(m: Sketch, schema: Schema) -> None:
    m.empty = False
    b, n, heads = m.size(1, 2), m.size(1, 4), m.integer(1, 3)
    sections = [m.integer(1, 2)] * 3 if m.chance(0.5) else [2, 1, 1]
    half = sum(sections)
    at = m.input(m.whole_numbers(0, 7, (3, b, n)))
    tables = [plain(m, 8, half, constant=0.5) for _ in range(2)]
    layout = m.choice((0, 1)) if sections[0] == sections[1] else 0
    finish(m, [plain(m, b, n, heads * half * 2), at, *tables], mrope_section=sections, mrope_layout=layout, num_heads=heads,
           rotary_embedding_dim=half * 2, interleaved=m.choice((None, 0, 1)))  # fmt: skip


@generates("GroupQueryAttention", domain=DOMAIN)
def grouped(m: Sketch, schema: Schema) -> None:
    m.empty = False
    b, kv, rep, half = m.size(1, 3), m.integer(1, 2), m.integer(1, 5), m.integer(1, 4)
    size, heads, prompt, long = half * 8, kv * rep, m.chance(0.5), m.chance(0.3)
    n = m.size(1, 20 if long else 4) if prompt else 1
    held = 0 if prompt else m.size(1, 90 if long else 5)
    lengths = np.full(b, n - 1, np.int32) if prompt else m.whole_numbers(1, held, (b,), np.int32)
    total = int(lengths.max()) + 1
    packed, turns = m.chance(0.4), m.chance(0.5)
    given = [plain(m, b, n, (heads + 2 * kv) * size)] if packed else [plain(m, b, n, h * size) for h in (heads, kv, kv)]
    given += ["", ""] if packed else []
    given += [plain(m, b, kv, held, size) for _ in range(2)]
    given += [m.input(lengths), m.input(np.asarray(total, np.int32))]
    given += [plain(m, 96, size // 2, constant=0.6) for _ in range(2)] if turns else ["", ""]
    given += ["", plain(m, 1, m.choice((1, heads)), n, total) if m.chance(0.3) else ""]
    given.append(plain(m, heads) if m.chance(0.3) else "")
    finish(m, given, 3, num_heads=heads, kv_num_heads=kv, do_rotary=int(turns), rotary_interleaved=m.choice((None, 1)) if turns else None,
           softcap=m.choice((None, None, 5.0)), local_window_size=m.choice((None, None, 2)), scale=m.choice((None, 0.3)))  # fmt: skip


@generates("MatMulBnb4", domain=DOMAIN)
def bnb4(m: Sketch, schema: Schema) -> None:
    m.empty = False
    k, n, block = m.integer(1, 40), m.integer(1, 5), m.choice((16, 32))
    b = m.const(m.whole_numbers(0, 255, ((n * k + 1) // 2,), np.uint8, True))
    given = [plain(m, m.size(), k), b, m.const(m.array(FLOAT, (-(-n * k // block),), "unit", True))]
    finish(m, given, K=k, N=n, block_size=block, quant_type=m.choice((0, 1)))


@generates("GatherBlockQuantized", domain=DOMAIN)
def gather_blocks(m: Sketch, schema: Schema) -> None:
    m.empty = False
    bits, rows, blocks = m.choice((2, 4, 8)), m.integer(1, 8), m.integer(1, 3)
    table = m.const(m.whole_numbers(0, 255, (rows, blocks * 16 * bits // 8), np.uint8, True))
    at = m.input(m.whole_numbers(-rows, rows - 1, m.shape(m.integer(0, 2)), m.choice((np.int32, np.int64))))
    given = [table, at, m.const(m.array(FLOAT, (rows, blocks), "unit", True))]
    if m.chance(0.5):
        given.append(m.const(m.whole_numbers(0, 255, (rows, -(-blocks * bits // 8)), np.uint8, True)))
    finish(m, given, bits=bits, block_size=16, quantize_axis=1, gather_axis=0)


@generates("MoE", "QMoE", domain=DOMAIN)
def mixture(m: Sketch, schema: Schema) -> None:
    m.empty = False
    hidden, inner, experts = 16 * m.integer(1, 2), 16 * m.integer(1, 2), m.integer(1, 4)
    kind = m.choice(("relu", "gelu", "silu", "identity", "swiglu"))
    wide, lead = inner * (2 if kind == "swiglu" else 1), m.shape(m.integer(1, 2))
    given = [plain(m, *lead, hidden), plain(m, int(np.prod(lead)), experts)]
    for rows, width in ((wide, hidden), (hidden, inner)):
        if name_of(m) == "MoE":
            given += [m.const(m.array(FLOAT, (experts, rows, width), "unit", True))]
        else:
            given += [m.const(m.whole_numbers(0, 255, (experts, rows, width), np.uint8, True))]
            given += [m.const(m.array(FLOAT, (experts, rows), "unit", True) * np.float32(0.02))]
        given += [plain(m, experts, rows, constant=1) if m.chance(0.5) else ""]
    fused = {"swiglu_fusion": 1, "activation_alpha": m.choice((None, 1.7)), "activation_beta": m.choice((None, 1.0))}
    m.loose = 4
    finish(m, given, k=m.integer(1, experts), activation_type=kind, normalize_routing_weights=m.choice((0, 1)),
           **(fused if kind == "swiglu" else {}), **({"expert_weight_bits": 8} if name_of(m) == "QMoE" else {}))  # fmt: skip


@generates("CDist", "Inverse", "Trilu", "UnfoldTensor", "GatherND", "ExpandDims", "Unique", domain=DOMAIN)
def tensors(m: Sketch, schema: Schema) -> None:
    m.empty = False
    name = name_of(m)
    if name == "CDist":
        n = m.integer(1, 5)
        finish(m, [plain(m, m.size(), n), plain(m, m.size(), n)], metric=m.choice(("euclidean", "sqeuclidean")))
    elif name == "Inverse":
        n = m.integer(1, 5)
        lead = m.shape(m.integer(0, 2))
        finish(m, [m.input((m.array(FLOAT, (*lead, n, n), "unit") * 0.3 + np.roll(np.eye(n), 1, 0) * 2).astype(np.float32))])
    elif name == "Trilu":
        finish(m, [plain(m, *m.shape(m.integer(2, 4))), m.ints(m.integer(-3, 3))], upper=m.choice((0, 1)))
    elif name == "UnfoldTensor":
        size = m.integer(1, 3)
        finish(m, [plain(m, m.size(), m.size(3, 9), m.size())], dim=m.choice((1, -2)), size=size, step=m.integer(1, 3))
    elif name == "GatherND":
        finish(m, [plain(m, m.size(3, 5), *m.shape(m.integer(0, 2))), m.ints([[0], [2], [-1]])])
    elif name == "ExpandDims":
        rank = m.integer(0, 4)
        finish(m, [plain(m, *m.shape(rank)), m.const(np.array(m.integer(-rank - 1, rank), np.int32))])
    else:
        finish(m, [m.input(m.whole_numbers(0, 4, (m.size(1, 12),)).astype(np.float32))], 3)


@generates("Pad", "Range", "GridSample", "CropAndResize", "NGramRepeatBlock", "MurmurHash3", domain=DOMAIN)
def more_tensors(m: Sketch, schema: Schema) -> None:
    m.empty = False
    name = name_of(m)
    if name == "Pad":
        finish(
            m, [plain(m, m.size(3), m.size(3)), m.ints([m.integer(0, 2) for _ in range(4)])], mode=m.choice(("constant", "edge", "reflect"))
        )
    elif name == "Range":
        finish(m, [m.ints(m.integer(0, 3)), m.ints(m.integer(4, 12)), m.ints(m.integer(1, 3))])
    elif name == "GridSample":
        n = m.size(1, 2)
        finish(m, [plain(m, n, 2, m.size(), m.size()), plain(m, n, m.size(), m.size(), 2)], mode=m.choice(("bilinear", "bicubic")),
               padding_mode=m.choice(("zeros", "border")), align_corners=m.choice((0, 1)))  # fmt: skip
    elif name == "CropAndResize":
        boxes = m.size(1, 3)
        crop = m.const(np.array([m.integer(1, 4), m.integer(2, 4)], np.int32))
        finish(m, [plain(m, 2, m.integer(1, 2), m.size(2), m.size(2)), m.input(m.array(FLOAT, (boxes, 4), "unit")),
                   m.input(m.whole_numbers(0, 1, (boxes,), np.int32)), crop])  # fmt: skip
    elif name == "NGramRepeatBlock":
        rows = m.size(1, 3)
        finish(m, [m.input(m.whole_numbers(0, 3, (rows, m.size(3, 12)))), plain(m, rows, 4)], ngram_size=m.integer(1, 3))
    else:
        dtype = m.choice((np.int32, np.uint32, np.int64, np.uint64))
        finish(m, [m.input(m.whole_numbers(0, 1 << 20, m.shape(), dtype))], positive=m.choice((0, 1)), seed=m.integer(0, 9))


@generates("NhwcMaxPool", "ConvTransposeWithDynamicPads", domain=DOMAIN)
def layouts(m: Sketch, schema: Schema) -> None:
    m.empty = False
    n, c, h, w = m.size(1, 2), m.integer(1, 3), m.size(4, 7), m.size(4, 7)
    strides = [m.integer(1, 2), 1]
    if name_of(m) == "NhwcMaxPool":
        finish(m, [m.operand(code(m), (n, h, w, c))], kernel_shape=[3, 2], strides=strides)
    else:
        pads = m.const(np.array([m.integer(0, 1) for _ in range(4)]))
        finish(m, [plain(m, n, c, h, w), plain(m, c, m.integer(1, 3), 3, 2, constant=1), pads], strides=strides)


@generates("DynamicQuantizeLSTM", domain=DOMAIN)
def quantised_lstm(m: Sketch, schema: Schema) -> None:
    m.empty = False
    size, width, kind = m.integer(1, 3), m.integer(1, 3), code(m)
    given = [plain(m, m.size(1, 5), m.size(1, 2), width)]
    given += [m.const(m.array(kind, (1, rows, 4 * size), "plain", True)) for rows in (width, size)]
    given += [plain(m, 1, 8 * size, constant=1) if m.chance(0.5) else "", *[""] * 4]
    for _ in range(2):
        given += [m.const(np.array([0.005], np.float32)), m.const(np.array([128 if kind == UINT8 else 0], kind))]
    m.loose = 1 << 18  # a quantum of a hidden state
    finish(m, given, 3, hidden_size=size)


@generates("LinearAttention", "CausalConvWithState", domain=DOMAIN)
def recurrences(m: Sketch, schema: Schema) -> None:
    m.empty = False
    b, n, heads, size = m.size(1, 2), m.size(1, 4), m.integer(1, 2), m.integer(1, 3)
    if name_of(m) == "LinearAttention":
        given = [plain(m, b, n, heads * size) for _ in range(3)] + [plain(m, b, heads, size, size), plain(m, b, n, heads)]
        finish(m, [*given, plain(m, b, n, heads)], 2, q_num_heads=heads, kv_num_heads=heads)
    else:
        c, last, gap = m.integer(1, 4), m.choice((0, 1)), m.choice((1, 2))
        state = (b, 2 * gap, c) if last else (b, c, 2 * gap)
        given = [plain(m, b, n, c) if last else plain(m, b, c, n), plain(m, c, 1, 3, constant=1), plain(m, c, constant=1), plain(m, *state)]
        finish(m, given, 2, channels_last=last, dilation=gap, activation=m.choice(("none", "silu")))
