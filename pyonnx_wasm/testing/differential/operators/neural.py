"""Convolutions, pools, products and normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sketch import FLOAT, Sketch
from ..values import Array, is_float
from . import Schema, generates, picked


def window(m: Sketch, rank: int, deep: bool = True, dilated: bool = True) -> tuple[list[int], dict[str, Any], list[int]]:
    """A kernel's shape, the attributes of a window, and sizes that it fits."""
    kernel = [m.integer(1, 3) for _ in range(rank)]
    attributes: dict[str, Any] = {}
    strides = dilations = [1] * rank
    if m.chance(0.6):
        attributes["strides"] = strides = [m.integer(1, 3) for _ in range(rank)]
    if dilated and m.chance(0.35):
        attributes["dilations"] = dilations = [m.integer(1, 2) for _ in range(rank)]
    wide = all(k >= s for k, s in zip(kernel, strides, strict=True))  # else the padding would be negative: nobody says what that is
    auto = m.choice((None, None, "NOTSET", "VALID", *(("SAME_UPPER", "SAME_LOWER") if wide else ())))
    if auto is not None:
        attributes["auto_pad"] = auto
    if auto in (None, "NOTSET") and m.chance(0.6):
        attributes["pads"] = [m.integer(0, kernel[i % rank] - 1) for i in range(2 * rank)]
    sizes = [(k - 1) * d + m.size(1, 5) for k, d in zip(kernel, dilations, strict=True)]
    return kernel, attributes, sizes


@generates("Conv")
def conv(m: Sketch, schema: Schema) -> None:
    if m.chance(0.08):
        return wide_conv(m)
    rank = m.choice((1, 2, 2, 2, 3))
    kernel, attributes, sizes = window(m, rank)
    group = m.choice((1, 1, 1, 2, 3))
    per, out = m.integer(1, 3), group * m.integer(1, 3)
    if m.chance(0.15):
        per = 1
    dtype = picked(m, schema)
    x = m.operand(dtype, (m.size(1, 2), group * per, *sizes), "mild", constant=0.1)
    w = m.operand(dtype, (out, per, *kernel), "plain", constant=0.7)
    bias = [m.operand(dtype, (out,), "plain", constant=0.7)] if m.chance(0.5) else []
    if m.chance(0.6):
        attributes["kernel_shape"] = kernel
    m.result(m.node("Conv", x, w, *bias, group=group if group > 1 or m.chance(0.3) else None, **attributes))


def wide_conv(m: Sketch) -> None:
    """Few channels and long rows, as models of pictures begin: runtimes read such windows where they lie."""
    kernel = [m.choice((1, 3, 5, 7)), m.choice((2, 3, 5, 7))]
    dilations = [m.choice((1, 1, 2)) for _ in kernel]
    sizes = [m.integer(14, 24), m.integer(34, 120)]
    x = m.operand("float32", (m.integer(1, 2), channels := m.integer(1, 4), *sizes), "mild")
    w = m.operand("float32", (out := m.integer(8, 24), channels, *kernel), "plain", constant=0.8)
    bias = [m.operand("float32", (out,), "plain", constant=0.7)] if m.chance(0.5) else []
    pads = [m.integer(0, k - 1) for k in kernel * 2]
    y = m.node("Conv", x, w, *bias, pads=pads, strides=[m.integer(1, 2), m.integer(1, 3)], dilations=dilations)
    m.result(m.node("Relu", y) if m.chance(0.5) else y)


@generates("ConvTranspose")
def conv_transpose(m: Sketch, schema: Schema) -> None:
    rank = m.choice((1, 2, 2, 3))
    kernel, attributes, _ = window(m, rank)
    group = m.choice((1, 1, 2))
    per, out = m.integer(1, 3), m.integer(1, 2)
    dtype = picked(m, schema)
    sizes = [m.size(1, 4) for _ in range(rank)]
    strides = attributes.get("strides", [1] * rank)
    if attributes.get("auto_pad") is None and m.chance(0.3):
        attributes["output_padding"] = [m.integer(0, s - 1) for s in strides]
    x = m.operand(dtype, (m.size(1, 2), group * per, *sizes), "mild", constant=0.1)
    w = m.operand(dtype, (group * per, out, *kernel), "plain", constant=0.7)
    bias = [m.operand(dtype, (group * out,), "plain", constant=0.7)] if m.chance(0.5) else []
    m.result(m.node("ConvTranspose", x, w, *bias, group=group, **attributes))


@generates("DeformConv")
def deform_conv(m: Sketch, schema: Schema) -> None:
    m.empty = False
    kernel = [m.integer(1, 3), m.integer(1, 3)]
    strides, dilations = [m.integer(1, 2) for _ in range(2)], [m.integer(1, 2) for _ in range(2)]
    pads = [m.integer(0, 1) for _ in range(4)]
    sizes = [(k - 1) * d + m.size(1, 4) for k, d in zip(kernel, dilations, strict=True)]
    out = [(sizes[i] + pads[i] + pads[i + 2] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(2)]
    group, offsets = m.choice((1, 1, 2)), m.choice((1, 1, 2))
    channels = group * offsets * m.integer(1, 2)
    n, dtype = m.size(1, 2), picked(m, schema)
    x = m.operand(dtype, (n, channels, *sizes), "plain", constant=0)
    w = m.operand(dtype, (2 * group, channels // group, *kernel), "plain", constant=0.7)
    count = kernel[0] * kernel[1] * offsets
    shift = m.operand(dtype, (n, 2 * count, *out), "plain", constant=0)
    more = [m.operand(dtype, (2 * group,), "plain")] if m.chance(0.5) else []
    if m.chance(0.5):
        more = [*(more or [""]), m.operand(dtype, (n, count, *out), "plain", constant=0)]
    m.result(m.node("DeformConv", x, w, shift, *more, kernel_shape=kernel if m.chance(0.5) else None, strides=strides, pads=pads,
                    dilations=dilations, group=group, offset_group=offsets))  # fmt: skip


@generates("AveragePool", "MaxPool", "LpPool")
def pool(m: Sketch, schema: Schema) -> None:
    name = schema.name
    rank = m.choice((1, 2, 2, 3))
    since = {"AveragePool": 19, "MaxPool": 10, "LpPool": 18}[name]
    kernel, attributes, sizes = window(m, rank, dilated=m.opset >= since)
    if attributes.get("auto_pad", "").startswith("SAME"):
        attributes.pop("dilations", None)  # both oracles count the kernel undilated there
    if m.opset >= {"AveragePool": 10, "MaxPool": 10, "LpPool": 18}[name]:
        attributes["ceil_mode"] = m.choice((None, 0, 1))
    if name == "AveragePool" and m.opset >= 7:
        attributes["count_include_pad"] = m.choice((None, 0, 1))
    if name == "LpPool":
        attributes["p"] = m.choice((None, 1, 2, 3))
    if name == "MaxPool" and m.opset >= 8:
        attributes["storage_order"] = m.choice((None, None, 0))
    x = m.operand(picked(m, schema), (m.size(1, 2), m.size(1, 3), *sizes), "finite")
    two = name == "MaxPool" and m.opset >= 8 and m.chance(0.3)
    m.result(*m.add(name, [x], 2 if two else 1, kernel_shape=kernel, **attributes))


@generates("MaxUnpool")
def max_unpool(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema, "T1")
    n, c, h, w = m.size(1, 2), m.size(1, 2), 2 * m.size(1, 3), 2 * m.size(1, 3)
    x = m.input(m.array(dtype, (n, c, h, w), "plain"))
    y, index = m.add("MaxPool", [x], 2, kernel_shape=[2, 2], strides=[2, 2])
    more = [m.ints([n, c, h + m.integer(0, 1), w])] if m.chance(0.3) else []
    m.result(m.node("MaxUnpool", y, index, *more, kernel_shape=[2, 2], strides=[2, 2]))


@generates("MatMul")
def matmul(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema)
    a, b = products(m)
    m.result(m.node("MatMul", m.operand(dtype, a, "mild"), m.operand(dtype, b, "mild")))


def products(m: Sketch) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of two operands of a matrix product."""
    r, k, c = m.size(1, 6), m.size(1, 6), m.size(1, 6)
    lead = m.shape(m.integer(0, 3), 1, 3)
    a = (*m.broadcast(lead), r, k) if m.chance(0.8) else (k,)
    b = (*m.broadcast(lead), k, c) if m.chance(0.8) else (k,)
    return a, b


@generates("Gemm")
def gemm(m: Sketch, schema: Schema) -> None:
    dtype = picked(m, schema)
    r, k, c = m.size(1, 6), m.size(1, 6), m.size(1, 6)
    ta, tb = m.integer(0, 1), m.integer(0, 1)
    given = [m.operand(dtype, (k, r) if ta else (r, k), "mild"), m.operand(dtype, (c, k) if tb else (k, c), "mild")]
    broadcast: dict[str, Any] = {}
    if m.opset < 7 or m.chance(0.7):
        shape = (r, c) if m.opset < 7 else m.broadcast((r, c))
        given.append(m.operand(dtype, shape, "mild"))
    whole = dtype.kind in "iu"
    attributes: dict[str, Any] = {
        k: float(m.integer(0 if dtype.kind == "u" else -2, 3)) if whole else m.real(-2, 2) for k in m.some(("alpha", "beta"))
    }
    attributes |= {k: v for k, v in (("transA", ta), ("transB", tb)) if v or m.chance(0.3)}
    m.result(m.node("Gemm", *given, **attributes, **broadcast))


@generates("FusedMatMul", "FusedGemm", "FusedConv", domain="com.microsoft")
def ms_products(m: Sketch, schema: Schema) -> None:
    name, domain = m.name.rpartition(".")[2], "com.microsoft"
    activation = m.choice(("Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Clip"))
    params = {"LeakyRelu": [0.2], "HardSigmoid": [0.3, 0.4], "Clip": [-0.5, 1.5]}.get(activation, [])
    if name == "FusedMatMul":
        r, k, c = m.size(1, 5), m.size(1, 5), m.size(1, 5)
        lead = m.shape(m.integer(0, 2), 1, 3)
        ta, tb = m.integer(0, 1), m.integer(0, 1)
        a, b = (
            m.operand(FLOAT, (*lead, *((k, r) if ta else (r, k))), "mild"),
            m.operand(FLOAT, (*lead, *((c, k) if tb else (k, c))), "mild"),
        )
        m.result(m.node(name, a, b, domain=domain, transA=ta, transB=tb, alpha=m.real(-2, 2) if m.chance(0.5) else None))
    elif name == "FusedGemm":
        r, k, c = m.size(1, 5), m.size(1, 5), m.size(1, 5)
        given = [m.operand(FLOAT, (r, k), "mild"), m.operand(FLOAT, (k, c), "mild")] + (
            [m.operand(FLOAT, (c,), "mild")] if m.chance(0.6) else []
        )
        if activation in ("Clip", "HardSigmoid"):
            activation, params = "LeakyRelu", [0.2]
        extra: dict[str, Any] = {"activation_alpha": params[0]} if params else {}
        m.result(m.node(name, *given, domain=domain, activation=activation, **extra))
    else:
        kernel, attributes, sizes = window(m, 2)
        per, out, n = m.integer(1, 3), m.integer(1, 3), m.size(1, 2)
        given = [m.operand(FLOAT, (n, per, *sizes), "mild"), m.operand(FLOAT, (out, per, *kernel), "mild", constant=0.7)]
        if m.chance(0.6):
            given.append(m.operand(FLOAT, (out,), "mild", constant=0.7))
        m.result(m.node(name, *given, domain=domain, activation=activation, activation_params=params or None, **attributes))


@generates("BatchNormalization")
def batch_normalization(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.integer(2, 5))
    dtype = picked(m, schema)
    second = picked(m, schema, "T1") if m.opset >= 15 and m.chance(0.2) else dtype
    third = picked(m, schema, "T2") if m.opset >= 14 and m.chance(0.2) else dtype
    given = [m.operand(dtype, dims, "mild", constant=0), *(m.operand(second, dims[1:2], "plain", constant=0.7) for _ in range(2))]
    given += [m.operand(third, dims[1:2], "plain", constant=0.7), m.operand(third, dims[1:2], "positive", constant=0.7)]
    epsilon = m.choice((None, 1e-3, 0.1))
    m.result(m.node("BatchNormalization", *given, epsilon=epsilon, is_test=1 if m.opset < 7 else None))


@generates("InstanceNormalization", "GroupNormalization")
def instance_normalization(m: Sketch, schema: Schema) -> None:
    group = schema.name == "GroupNormalization"
    per, groups = m.integer(1, 2), m.integer(1, 3)
    dims = (m.size(1, 2), per * groups, *m.shape(m.integer(1, 3), 2, 5))
    dtype = picked(m, schema)
    count = dims[1] if not group or m.opset >= 21 else groups
    given = [m.operand(dtype, dims, "plain", constant=0), *(m.operand(dtype, (count,), "plain", constant=0.7) for _ in range(2))]
    m.result(m.node(schema.name, *given, epsilon=m.choice((None, 1e-3)), num_groups=groups if group else None))


@generates("LayerNormalization", "RMSNormalization")
def layer_normalization(m: Sketch, schema: Schema) -> None:
    rms = schema.name == "RMSNormalization"
    dims = m.shape(m.integer(1, 4), 1, 6)
    at = m.integer(0, len(dims) - 1) if m.chance(0.4) else len(dims) - 1
    axis = at - len(dims) if m.chance(0.6) else at
    inner = dims[at:]
    shape = inner if m.chance(0.8) else m.broadcast(inner)
    dtype = picked(m, schema)
    given = [m.operand(dtype, dims, "plain", constant=0), m.operand(dtype, shape, "plain", constant=0.7)]
    if not rms and m.chance(0.6):
        given.append(m.operand(dtype, shape, "plain", constant=0.7))
    attributes: dict[str, Any] = {"axis": axis if axis != -1 or m.chance(0.5) else None, "epsilon": m.choice((None, 1e-3, 1e-12))}
    m.result(*m.add(schema.name, given, 3 if not rms and m.chance(0.2) else 1, **attributes))


@generates("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_normalization(m: Sketch, schema: Schema) -> None:
    name = m.name.rpartition(".")[2]
    dims = m.shape(3, 1, 6)
    x, skip = m.operand(FLOAT, dims, "plain", constant=0), m.operand(FLOAT, dims, "plain", constant=0)
    given = [x, skip, m.operand(FLOAT, dims[2:], "plain", constant=0.7)]
    given += [m.operand(FLOAT, dims[2:], "plain", constant=0.7)] if m.chance(0.6) else []
    made = m.add(name, given, 4 if m.chance(0.4) else 1, domain="com.microsoft", epsilon=m.choice((None, 1e-3)))
    if len(made) == 4:
        m.nodes[-1].output[1] = m.nodes[-1].output[2] = ""
    m.result(made[0], made[-1])


@generates("LRN")
def lrn(m: Sketch, schema: Schema) -> None:
    dims = m.shape(m.choice((3, 4, 4, 5)), 1, 5)
    attributes: dict[str, Any] = {
        k: v for k, v in (("alpha", m.real(0, 1)), ("beta", m.real(0, 1)), ("bias", m.real(0.5, 2))) if m.chance(0.6)
    }
    m.result(m.node("LRN", m.operand(picked(m, schema), dims, "plain"), size=m.integer(1, 5), **attributes))


def _image(m: Sketch, schema: Schema, parameter: str, mode: str | None, rank: int = 4) -> tuple[str, tuple[int, ...]]:
    """Of any type for the nearest pixel; of floats where rounding would decide between whole numbers."""
    dims = m.shape(rank, 1, 5)
    dtype = picked(m, schema, parameter)
    dtype = dtype if mode in (None, "nearest") or is_float(dtype) else FLOAT
    return m.operand(dtype, dims, "plain", constant=0.1), dims


@generates("Resize")
def resize(m: Sketch, schema: Schema) -> None:
    rank = m.choice((1, 2, 3, 4, 4, 4, 5))
    mode = m.choice(("nearest", "linear", *(("cubic",) if m.opset >= 11 else ())))
    x, dims = _image(m, schema, "T1" if m.opset > 10 else "T", mode, rank)
    moved = [a >= rank - 2 if mode != "nearest" or m.chance(0.7) else m.chance(0.5) for a in range(rank)]
    scales = [m.choice((0.5, 0.6, 1.0, 1.3, 2.0, 2.5, 3.0)) if s else 1.0 for s in moved]
    if m.opset < 11:
        m.result(m.node("Resize", x, m.const(np.asarray(scales, np.float32)), mode=mode))
        return
    attributes: dict[str, Any] = {"mode": mode}
    how = m.choice((None, "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", *(("half_pixel_symmetric",) * (m.opset >= 19)),
                    "tf_crop_and_resize"))  # fmt: skip
    attributes["coordinate_transformation_mode"] = how
    if mode == "nearest":
        attributes["nearest_mode"] = m.choice((None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": m.choice((None, -0.5, -0.75)), "exclude_outside": m.choice((None, 0, 1))}
    if m.opset >= 18 and mode != "nearest" and m.chance(0.2):
        attributes["antialias"] = 1
    axes = [a for a in range(rank) if moved[a]] if m.opset >= 18 and any(moved) and m.chance(0.4) else None
    used = range(rank) if axes is None else axes
    absent = m.const(np.zeros(0, np.float32)) if m.opset < 13 else ""
    roi = absent
    if how == "tf_crop_and_resize":
        ends = [m.choice((0.0, 0.1, 0.25)) for _ in used] + [m.choice((1.0, 0.9, 1.2)) for _ in used]
        attributes["extrapolation_value"] = m.choice((None, -1.0))
    by_scales = m.chance(0.6)
    if how == "tf_crop_and_resize":
        if by_scales:  # both oracles size the output without the region, the standard with it: regions as long as the axis agree
            ends[len(used) :] = [1.0 + e if e != 0.1 else 1.0 for e in ends[: len(used)]]
            ends[: len(used)] = [e if e != 0.1 else 0.0 for e in ends[: len(used)]]
        roi = m.const(np.asarray(ends, np.float32))
    if by_scales:
        given = [roi, m.const(np.asarray([scales[a] for a in used], np.float32))]
    else:
        sizes = [max(1, int(dims[a] * scales[a])) for a in used]
        given = [roi, absent, m.ints(sizes)]
        if m.opset >= 18 and axes is not None and m.chance(0.4):
            attributes["keep_aspect_ratio_policy"] = m.choice(("stretch", "not_larger", "not_smaller"))
    m.result(m.node("Resize", x, *given, axes=axes, **attributes))


@generates("Upsample")
def upsample(m: Sketch, schema: Schema) -> None:
    mode = m.choice((None, "nearest", "linear"))
    x, _ = _image(m, schema, "T", mode)
    scales = [1.0, 1.0, m.choice((1.0, 2.0, 3.0)), m.choice((1.0, 2.0, 2.0))]
    if m.opset < 9:
        m.result(m.node("Upsample", x, scales=scales, mode=mode))
    else:
        m.result(m.node("Upsample", x, m.const(np.asarray(scales, np.float32)), mode=mode))


@generates("GridSample")
def grid_sample(m: Sketch, schema: Schema) -> None:
    rank = 2 if m.opset < 20 or m.chance(0.7) else 3
    dims = (m.size(1, 2), m.size(1, 2), *(m.size(1, 5) for _ in range(rank)))
    out = [m.size(1, 4) for _ in range(rank)]
    modes = ("bilinear", "nearest", "bicubic") if m.opset < 20 else ("linear", "nearest", "cubic" if rank == 2 else "linear")
    x = m.operand(picked(m, schema, "T1"), dims, "plain", constant=0.1)
    grid = m.array(picked(m, schema, "T2") if m.chance(0.3) else FLOAT, (dims[0], *out, rank), "plain")
    padding, corners = m.choice((None, "zeros", "border", "reflection")), m.choice((None, 0, 1))
    m.result(m.node("GridSample", x, m.input(grid), mode=m.choice((None, *modes)), padding_mode=padding, align_corners=corners))


@generates("AffineGrid")
def affine_grid(m: Sketch, schema: Schema) -> None:
    rank = m.choice((2, 2, 3))
    n = m.size(1, 2, fixed=True)
    corners = m.choice((None, 0, 1))
    least = 2 if corners else 1  # of one pixel onnxruntime takes the first corner, others the middle
    size = [n, m.size(1, 2, fixed=True), *(m.size(least, 4, fixed=True) for _ in range(rank))]
    theta = m.operand(picked(m, schema, "T1"), (n, rank, rank + 1), "plain")
    m.result(m.node("AffineGrid", theta, m.ints(size), align_corners=corners))


@generates("RoiAlign")
def roi_align(m: Sketch, schema: Schema) -> None:
    m.empty = False
    dims = (m.size(1, 3), m.size(1, 2), m.size(2, 8), m.size(2, 8))
    dtype, count = picked(m, schema, "T1"), m.size(1, 3)
    corner = m.array(dtype, (count, 2), "unit").astype(np.float64) * 4
    boxes: Array = np.concatenate([corner, corner + 0.5 + 5 * m.array(dtype, (count, 2), "unit").astype(np.float64)], 1)
    batch = m.whole_numbers(0, dims[0] - 1, (count,))
    attributes: dict[str, Any] = {"mode": m.choice((None, "avg", "max")), "sampling_ratio": m.choice((None, 0, 1, 2))}
    attributes |= {"output_height": m.integer(1, 3), "output_width": m.integer(1, 3), "spatial_scale": m.choice((None, 0.5, 1.0))}
    if m.opset >= 16:
        attributes["coordinate_transformation_mode"] = m.choice((None, "half_pixel", "output_half_pixel"))
    x = m.operand(dtype, dims, "plain", constant=0)
    m.result(m.node("RoiAlign", x, m.input(boxes.astype(dtype)), m.input(batch), **attributes))


@generates("Col2Im")
def col2im(m: Sketch, schema: Schema) -> None:
    rank = m.choice((1, 2, 2, 3))
    image, block = [m.integer(3, 6) for _ in range(rank)], [m.integer(1, 3) for _ in range(rank)]
    strides, dilations = [m.integer(1, 2) for _ in range(rank)], [1 if b == 3 else m.integer(1, 2) for b in block]
    pads = [m.integer(0, 1) for _ in range(2 * rank)]
    count = [(image[i] + pads[i] + pads[i + rank] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(rank)]
    shape = (m.size(1, 2), m.size(1, 2) * int(np.prod(block)), int(np.prod(count)))
    x = m.operand(picked(m, schema), shape, "plain")
    m.result(m.node("Col2Im", x, m.const(np.asarray(image)), m.const(np.asarray(block)), strides=strides, pads=pads, dilations=dilations))


@generates("Det")
def det(m: Sketch, schema: Schema) -> None:
    n = m.integer(1, 4)
    m.result(m.node("Det", m.operand(picked(m, schema), (*m.shape(m.integer(0, 2)), n, n), "plain")))
