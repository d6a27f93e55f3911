"""Who says what is right: onnxruntime, onnx's reference evaluator, and the reference evaluator in float64."""

from __future__ import annotations

import functools
import itertools
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.shape_inference
from onnx import TensorProto, helper, numpy_helper

from . import mended
from .sketch import Case, every
from .values import HALVES, Array, code_of, is_exotic, is_float

os.environ.setdefault("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")  # read when onnxruntime creates a session

Run = list[Array]
WIDENED = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}
BYTE_PRODUCTS = {
    "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv", "QGemm", "QAttention", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul",
    "MatMulIntegerToFloat",
}  # fmt: skip
_TYPE_ATTRIBUTES = {"to", "dtype", "output_dtype", "output_datatype", "stash_type", "softmax_precision", "precision"}


class Refused(Exception):
    """An oracle does not run the model; the text is its reason."""


def onnxruntime(case: Case) -> list[Run]:
    """The outputs of each run by onnxruntime, its graph optimisations off.

    Raises:
        Refused: it does not take or run the model, or is not to be believed on it.
    """
    import onnxruntime as ort

    if why := _astray(case):
        raise Refused(f"onnxruntime: {why}")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = ort.InferenceSession(case.data, options, providers=["CPUExecutionProvider"])
        exotic = {o.name: o.type[7:-1] for o in session.get_outputs() if o.type[7:-1] in _EXOTIC}
        if exotic:
            session = ort.InferenceSession(_shown(case.model, exotic).SerializeToString(), options, providers=["CPUExecutionProvider"])
        quiet = ort.RunOptions()
        quiet.log_severity_level = 4
        results = []
        for feeds in case.runs:
            given = {n: _ort_value(ort, a) for n, a in feeds.items()}
            made = [v.numpy() for v in session.run_with_ort_values(None, given, quiet)]
            results.append([a.astype(_EXOTIC[exotic[n]]) if n in exotic else a for n, a in zip(_names(case.model), made, strict=True)])
        return results
    except Exception as error:
        raise Refused(f"onnxruntime: {_first(error)}") from None


@functools.cache
def saturates() -> bool:
    """True where onnxruntime adds products of uint8 by int8 in pairs of 16 bits: on x86-64 without VNNI."""
    import onnxruntime as ort

    text = '<ir_version: 8, opset_import: ["": 17]> g (uint8[1, 2] a, int8[2, 1] b) => (int32[1, 1] y) { y = MatMulInteger(a, b) }'
    session = ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"a": np.full((1, 2), 255, np.uint8), "b": np.full((2, 1), 127, np.int8)})
    return int(y[0, 0]) != 2 * 255 * 127


def _of_zeros(model: onnx.ModelProto, arrays: Iterable[Array]) -> str | None:
    """Why nothing is to be believed that divides by a maximum or minimum of 0 and -0: which it is nobody says."""
    kinds = {node.op_type for node in model.graph.node}
    if not (kinds & {"Max", "Min"} and kinds & {"Div", "Reciprocal"}):
        return None
    zeros = any(((a == 0) & np.signbit(a)).any() for a in (b.astype(np.float64) for b in arrays if is_float(b.dtype)))
    return "Max and Min of 0 and -0 are either" if zeros else None


def _of_order(arrays: Iterable[Array]) -> str | None:
    """Why nobody is to be believed on a product: what underflows before it meets an infinity makes NaN of it, in some orders."""
    held = [a.astype(np.float64) for a in arrays if is_float(a.dtype)]
    tiny = any(((a != 0) & (np.abs(a) < 1e-18)).any() for a in held)
    return "ReduceProd of infinities and of what is near 0 depends on the order" if tiny and any(np.isinf(a).any() for a in held) else None


def _astray(case: Case) -> str | None:
    """Why onnxruntime 1.31 is not to be believed on a model."""
    stored = {t.name: numpy_helper.to_array(t) for t in case.model.graph.initializer}
    if why := _of_zeros(case.model, [*stored.values(), *(a for feeds in case.runs for a in feeds.values())]):
        return why
    held = [*stored.values(), *(a for feeds in case.runs for a in feeds.values())]
    if case.operators() & BYTE_PRODUCTS and any(a.dtype == np.int8 for a in held) and saturates():
        return "products of uint8 by int8 saturate on this chip"
    for body in (a.g for node in every(case.model.graph) if node.op_type in ("Loop", "Scan") for a in node.attribute if a.HasField("g")):
        if any(node.op_type in ("Sigmoid", "Tanh") for node in every(body)):
            return "Sigmoid and Tanh are approximations, whose errors loops amplify"
    if "ReduceProd" in case.operators() and (why := _of_order([*stored.values(), *(a for feeds in case.runs for a in feeds.values())])):
        return why
    for feeds, node in itertools.product(case.runs, case.model.graph.node):
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        x, *rest = ({**stored, **feeds}.get(n) for n in node.input) if node.input else (None,)
        if x is None:
            continue
        scales = rest[-1].astype(float) if node.op_type == "Resize" and rest and rest[-1] is not None else np.ones(0)
        sizes = [x.shape[a] for a in given.get("axes", range(x.ndim))] if node.op_type == "Resize" else []
        if len(scales) == len(sizes) and any(f != 1 and int(n * f) == n for n, f in zip(sizes, scales, strict=True)):
            return "Resize copies where the size stays, whatever the scale"
        if given.get("coordinate_transformation_mode") == b"tf_crop_and_resize" and (
            given.get("mode", b"nearest") != b"nearest" or _keeps(x, given, rest)
        ):
            return "Resize leaves axes whole that it does not scale"
        if node.op_type == "FusedMatMul" and not all(a.size for a in (x, *rest) if a is not None):
            return "FusedMatMul over an axis of nothing gives memory as it was"
        if node.op_type == "PRelu" and _zero_times_infinity(x, rest):
            return "PRelu multiplies zeros by the slope"
        if node.op_type == "ReduceLogSumExp" and is_float(x.dtype) and np.isneginf(x.astype(np.float64)).any():
            return "ReduceLogSumExp subtracts -inf from -inf"
        if node.op_type in ("MaxPool", "GlobalMaxPool") and is_float(x.dtype) and np.isnan(x.astype(np.float64)).any():
            return f"{node.op_type} keeps or skips NaN by where it lies; numpy's maximum, and PyTorch's, of a window with one is NaN"
        if _scatters_nan(node.op_type, given, [a for a in (x, *rest) if a is not None]):
            return f"{node.op_type} keeps or drops NaN by which comes first; a minimum or maximum with one is NaN"
        pads = given.get("pads", [0] * 2 * (x.ndim - 2)) if given.get("auto_pad", b"NOTSET") == b"NOTSET" else [0] * 2 * (x.ndim - 2)
        padding, up = given.get("auto_pad", b"NOTSET"), given.get("ceil_mode", 0)
        if node.op_type in ("MaxPool", "AveragePool", "LpPool") and (padding == b"VALID" or (padding == b"NOTSET" and not up)):
            dilations = given.get("dilations", itertools.repeat(1))
            reach = [(k - 1) * d + 1 for k, d in zip(given.get("kernel_shape", ()), dilations, strict=False)]
            sizes = [n + a + b for n, a, b in zip(x.shape[2:], pads, pads[x.ndim - 2 :], strict=False)]
            if any(n < r for n, r in zip(sizes, reach, strict=False)):
                return f"{node.op_type} finds a window in an axis that is shorter than one"
    return None


def _zero_times_infinity(x: Array, rest: Iterable[Array | None]) -> bool:
    return bool((x == 0).any()) and any(a is not None and not np.isfinite(a.astype(np.float64)).all() for a in rest)


def _keeps(x: Array, given: Mapping[str, Any], rest: list[Array | None]) -> bool:
    """True where some axis of a Resize keeps its size though only a part of it is taken, or where that cannot be seen."""
    sizes = [x.shape[a] for a in given.get("axes", range(x.ndim))]
    n, (roi, scales, targets) = len(sizes), (*rest, None, None, None)[:3]
    if roi is None or len(roi) != 2 * n:
        return True
    cut = [(a, b) != (0, 1) for a, b in zip(roi[:n], roi[n:], strict=True)]
    if targets is not None and targets.size:
        return any(c and m == k for c, m, k in zip(cut, sizes, targets, strict=False))
    return scales is None or any(c and int(m * float(f)) == m for c, m, f in zip(cut, sizes, scales, strict=False))


_EXOTIC = {
    TensorProto.DataType.Name(code).lower(): np.dtype(helper.tensor_dtype_to_np_dtype(code))
    for code in TensorProto.DataType.values()
    if code not in (TensorProto.UNDEFINED, TensorProto.STRING) and is_exotic(np.dtype(helper.tensor_dtype_to_np_dtype(code)))
}


def _names(model: onnx.ModelProto) -> list[str]:
    return [o.name for o in model.graph.output]


def _ort_value(ort: Any, array: Array) -> Any:
    array = np.ascontiguousarray(array).reshape(array.shape)
    if not is_exotic(array.dtype):
        return ort.OrtValue.ortvalue_from_numpy(array)
    bits = numpy_helper.from_array(array).raw_data if array.dtype.name in ("int4", "uint4", "int2", "uint2") else None
    if bits is not None:
        raise Refused("takes no inputs of this type from Python")
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16 if array.itemsize == 2 else np.uint8), code_of(array.dtype))


def _shown(model: onnx.ModelProto, exotic: Mapping[str, str]) -> onnx.ModelProto:
    """The model with outputs of types that numpy lacks as float32."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    for name in _names(model):
        if name in exotic:
            shown.graph.node.append(helper.make_node("Cast", [name], [f"{name}_shown"], to=TensorProto.FLOAT))
        shown.graph.output.append(helper.make_empty_tensor_value_info(f"{name}_shown" if name in exotic else name))
    return shown


def reference(case: Case) -> list[Run]:
    """The outputs of each run by onnx's reference evaluator.

    Raises:
        Refused: it does not take or run the model, or is not to be believed on it.
    """
    return _evaluated(case, case)


def wide(case: Case) -> list[Run]:
    """The outputs by the reference evaluator with float64 in place of narrower floats.

    Raises:
        Refused: as for :func:`reference`.
    """
    return _evaluated(case, widened(case))


def mixed(case: Case) -> list[Run]:
    """The outputs node by node: by the reference evaluator in float64, by onnxruntime where that is not to be believed on a node.

    Raises:
        Refused: there are not several nodes, one has a subgraph, or one is run by neither.
    """
    return _by_node(case, False)


def stepwise(case: Case) -> list[Run]:
    """As :func:`mixed`, each value rounded to its own type: what underflows in one node is zero in the next, as a step function may show.

    Raises:
        Refused: as there.
    """
    return _by_node(case, True)


def _scatters_nan(kind: str, given: dict[str, Any], arrays: Sequence[Array]) -> bool:
    nan = any(is_float(a.dtype) and np.isnan(a.astype(np.float64)).any() for a in arrays)
    return kind in ("Scatter", "ScatterElements", "ScatterND") and given.get("reduction") in (b"min", b"max") and nan


def _by_node(case: Case, rounding: bool) -> list[Run]:
    graph = case.model.graph
    if len(graph.node) < 2 or any(a.HasField("g") for node in graph.node for a in node.attribute):
        raise Refused("node by node: needs several nodes without subgraphs")
    stored = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    if why := _of_zeros(case.model, [*stored.values(), *(a for feeds in case.runs for a in feeds.values())]):
        raise Refused(f"node by node: {why}")
    narrow = {n: np.dtype(helper.tensor_dtype_to_np_dtype(code)) for n, code in float_values(case.model).items()}
    results = []
    for feeds in case.runs:
        held = {**stored, **feeds}
        for node in graph.node:
            exact = {n: held[n] for n in node.input if n}
            with np.errstate(all="ignore"):
                rounded = {n: a.astype(narrow.get(n, a.dtype)) for n, a in exact.items()}
            alone = _alone(case.model, node, rounded, stored)
            wide = Case(alone.name, widened(alone).model, ({n: _wide(exact[n]) for n in alone.runs[0]},))
            try:
                made = _evaluated(alone, wide)
            except Refused:
                made = onnxruntime(alone)
            for name, array in zip((n for n in node.output if n), made[0], strict=True):
                with np.errstate(all="ignore"):
                    held[name] = _wide(array.astype(narrow.get(name, array.dtype)) if rounding else array)
        results.append([held[name] for name in _names(case.model)])
    return results


def _alone(model: onnx.ModelProto, node: onnx.NodeProto, given: dict[str, Array], stored: Mapping[str, Array]) -> Case:
    """The case of one node."""
    feeds = {n: a for n, a in given.items() if n not in stored}
    constants = [numpy_helper.from_array(a, n) for n, a in given.items() if n in stored]
    infos = [helper.make_tensor_value_info(n, code_of(a.dtype), a.shape) for n, a in feeds.items()]
    graph = helper.make_graph([node], "alone", infos, [helper.make_empty_tensor_value_info(n) for n in node.output if n], constants)
    alone = helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
    return Case(node.op_type, alone, (feeds,))


def _unsound(model: onnx.ModelProto, runs: tuple[dict[str, Array], ...]) -> str | None:
    """Why onnx 1.23's reference evaluator is not to be believed on a model."""
    opset = next(o.version for o in model.opset_import if not o.domain)
    arrays = [*(a for feeds in runs for a in feeds.values()), *map(numpy_helper.to_array, model.graph.initializer)]
    floats = [a.astype(np.float64) for a in arrays if is_float(a.dtype)]
    if why := _of_zeros(model, floats):
        return why
    nan = any(np.isnan(a).any() for a in floats)
    infinite = not all(np.isfinite(a).all() for a in floats)
    whole = {n for feeds in runs for n, a in feeds.items() if not is_float(a.dtype)}
    ranks = {t.name: len(t.dims) for t in model.graph.initializer} | {n: a.ndim for feeds in runs for n, a in feeds.items()}
    whole |= {t.name for t in model.graph.initializer if not is_float(numpy_helper.to_array(t).dtype)}
    for node in every(model.graph):
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        kind = node.op_type
        if kind in ("Softmax", "LogSoftmax", "Hardmax") and opset < 13:
            return f"{kind} before opset 13 is over all later axes"
        if kind == "MaxPool" and len(node.output) > 1 and 1 in given.get("strides", [1]):
            return "MaxPool's places of windows that overlap are off"
        if kind == "MaxPool" and given.get("auto_pad") == b"SAME_LOWER":
            return "MaxPool forgets the padding that SAME_LOWER puts before"
        steps = {*given.get("strides", []), *given.get("dilations", [])}
        if kind == "MaxPool" and not steps - {1} and len(pads := given.get("pads", [])) == 4 and pads[1] != pads[2]:
            return "MaxPool takes the padding before two axes for that before and after one"
        if kind == "OptionalHasElement":
            return "OptionalHasElement takes an optional without a value for one with"
        if kind == "LRN":
            return "LRN takes the batch for the channels"
        if kind == "LpNormalization" and given.get("p", 2) == 1:
            return "LpNormalization with p=1 loses the sign"
        if kind in ("AveragePool", "LpPool") and given.get("auto_pad") == b"VALID" and "dilations" in given:
            return f"{kind} takes a dilated window for a narrow one"
        if kind in ("AveragePool", "LpPool") and given.get("ceil_mode") and max(given.get("strides", [1])) > 1:
            return f"{kind} counts windows that begin behind the input, and what lies behind it"
        if kind in ("LpPool", "AveragePool", "MaxPool") and nan:
            return f"{kind} skips NaN as padding"
        if kind in ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool") and any(a.size == 0 for a in arrays):
            return f"{kind} of nothing has a size of its own"
        if kind in ("Conv", "ConvTranspose") and "dilations" in given and infinite:
            return f"{kind} multiplies what a dilated kernel leaves out by 0"
        if kind in ("GridSample", "DeformConv") and any(is_float(a.dtype) and a.dtype.itemsize != 4 for a in arrays):
            return f"{kind} rounds coordinates to float32, and narrow ones after each step"
        if kind == "GridSample" and given.get("mode") in (b"cubic", b"bicubic") and given.get("padding_mode") == b"border":
            return "GridSample clamps what a cubic is the middle of; PyTorch and onnxruntime clamp its neighbours one by one"
        if _scatters_nan(kind, given, floats):
            return f"{kind} keeps or drops NaN by which comes first; a minimum or maximum with one is NaN"
        if kind == "GridSample" and node.input[0] in whole:
            return "GridSample of integers interpolates in integers"
        if kind == "ReduceLogSumExp" and any(np.isneginf(a).any() for a in floats):
            return "ReduceLogSumExp subtracts -inf from -inf"
        if kind == "ConvTranspose" and given.get("group", 1) > 1 and len(node.input) > 2:
            return "ConvTranspose adds the first bias to all of its groups"
        if kind == "MelWeightMatrix" and any(a.dtype.itemsize < 4 for a in arrays):
            return "MelWeightMatrix computes frequencies in the dtype of their bounds"
        if kind == "Shape" and given.get("end", 0) < -ranks.get(node.input[0], math.inf):
            return "Shape counts an end before the first axis from the last"
        if kind == "PRelu" and any((a == 0).any() for a in floats) and infinite:
            return "PRelu multiplies zeros by the slope"
        if kind == "Clip" and nan:
            return "Clip lets bounds that are NaN win, which onnxruntime leaves out"
        if kind == "Pad" and any(a.dtype.name == "float8_e8m0fnu" for a in arrays):
            return "Pad fills numbers of powers of two alone, which have no zero, with NaN"
        if kind == "ReduceProd" and (why := _of_order(floats)):
            return why
        if kind == "Einsum" and len(node.input) > 2 and infinite:
            return "Einsum multiplies all operands before it adds, which infinities tell from pairs"
        if kind == "OneHot" and node.input[2] not in whole:
            return "OneHot adds and multiplies"
        if kind == "TfIdfVectorizer" and "weights" in given:
            return "TfIdfVectorizer takes the weight of the column, not of the n-gram"
        if kind == "Unique" and given.get("sorted", 1) == 0:
            return "Unique always sorts"
        if kind == "Loop" and len(node.output) > len(node.input) - 2:
            return "Loop joins what its steps give along an axis that is there"
        if kind == "Loop" and not node.input[1]:
            return "Loop without a condition does not begin"
    return None


def _evaluated(case: Case, given: Case) -> list[Run]:
    """What the evaluator makes of ``given``: a case, or it widened. It takes more than the schemas allow: types are checked here."""
    from onnx.reference import ReferenceEvaluator

    doubt = _unsound(case.model, case.runs)
    if doubt:
        raise Refused(f"reference: {doubt}")
    try:
        inferred = onnx.shape_inference.infer_shapes(case.model, check_type=True)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(explicit(given.model), new_ops=list(mended.operators()))
            runs = [[_array(v) for v in evaluator.run(None, dict(feeds))] for feeds in given.runs]
    except Exception as error:
        raise Refused(f"reference: {_first(error)}") from None
    for index, output in enumerate(inferred.graph.output):
        tensor = output.type.tensor_type
        code = TensorProto.DOUBLE if given is not case and tensor.elem_type in WIDENED else tensor.elem_type
        for run in runs:
            if code and code_of(run[index].dtype) != code:
                raise Refused(f"reference: gives {run[index].dtype}, declared is {TensorProto.DataType.Name(code)}")
            if tensor.HasField("shape") and len(tensor.shape.dim) != run[index].ndim:
                raise Refused(f"reference: gives rank {run[index].ndim}, inferred is {len(tensor.shape.dim)}")
    return runs


def float_values(model: onnx.ModelProto) -> dict[str, int]:
    """What nodes give that is a tensor of wide floats, with its type; nothing before opset 7, where products broadcast by attribute."""
    if next((o.version for o in model.opset_import if not o.domain), 1) < 7:
        return {}
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except Exception:
        return {}
    found = {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.output) if v.type.HasField("tensor_type")}
    given = {name for node in model.graph.node for name in node.output}
    wide = WIDENED | {TensorProto.DOUBLE}
    return {name: code for name, code in found.items() if name in given and code in wide}


def explicit(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the schemas' default floats written out: as float32, which the evaluator's own defaults are not."""
    opsets = {o.domain: o.version for o in model.opset_import}
    told = onnx.ModelProto()
    told.CopyFrom(model)
    for node in told.graph.node:
        try:
            schema = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
        except onnx.defs.SchemaError:
            continue
        given = {a.name for a in node.attribute}
        for name, attribute in schema.attributes.items():
            if name not in given and attribute.default_value.type == onnx.AttributeProto.FLOAT:
                node.attribute.append(attribute.default_value)
    return told


def _array(value: Any) -> Array:
    if value is None or isinstance(value, (list, dict)):
        raise Refused("gives no tensor")
    return np.asarray(value)


def widened(case: Case) -> Case:
    """The case with every float16, bfloat16 and float32 as float64."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    _widen(model.graph)
    runs = tuple({n: _wide(a) for n, a in feeds.items()} for feeds in case.runs)
    return Case(case.name, model, runs, case.loose)


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype in (*HALVES, np.dtype(np.float32)) else array


def _widen(graph: onnx.GraphProto) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type in WIDENED:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for stored in graph.initializer:
        stored.CopyFrom(_wide_tensor(stored))
    for node in graph.node:
        if node.op_type in ("Constant",):
            _widen_constant(node)
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i in WIDENED:
                attribute.i = TensorProto.DOUBLE
            if attribute.HasField("t"):
                attribute.t.CopyFrom(_wide_tensor(attribute.t))
            if attribute.HasField("g"):
                _widen(attribute.g)


def _widen_constant(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name in ("value_float", "value_floats"):
            array = np.asarray(attribute.f if attribute.name == "value_float" else list(attribute.floats), np.float64)
            attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(array)))


def _wide_tensor(stored: TensorProto) -> TensorProto:
    if stored.data_type not in WIDENED:
        return stored
    return numpy_helper.from_array(_wide(numpy_helper.to_array(stored)), stored.name)


def is_widened(dtype: Any) -> bool:
    return is_float(np.dtype(dtype)) and np.dtype(dtype).itemsize in (2, 4)


def _first(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:300]}" if text else type(error).__name__
