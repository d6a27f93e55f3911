"""The files that the hub has beside a `model.onnx`, one for each dtype of transformers.js, made as its own scripts make them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx

WEIGHTS = {"int8": "QInt8", "uint8": "QUInt8", "quantized": "QInt8"}
HALVES = ("fp16", "q4f16")
DTYPES = (*WEIGHTS, "q4", "bnb4", *HALVES)


def make(source: Path, suffixes: Iterable[str] = DTYPES) -> None:
    """Writes variants of a model beside it. Those of 8 bits and of halves need onnxruntime alone (q4f16 where there is
    a q4), the others what is in the producers' environment."""
    for suffix in suffixes:
        target = source.with_name(f"{source.stem}_{suffix}.onnx")
        if suffix in WEIGHTS:
            from onnxruntime.quantization import QuantType, quantize_dynamic

            fine = suffix == "quantized"
            quantize_dynamic(
                source,
                target,
                weight_type=QuantType[WEIGHTS[suffix]],
                per_channel=fine,
                reduce_range=fine,
                nodes_to_exclude=_computed(onnx.load(source).graph),
                extra_options={"EnableSubgraph": True},
            )
        else:
            onnx.save(_halved(source, suffix) if suffix in HALVES else _narrowed(onnx.load(source), suffix), target)


def _computed(graph: onnx.GraphProto) -> list[str]:
    """The convolutions whose weights are computed, which the quantiser refuses."""
    known = {tensor.name for tensor in graph.initializer}
    return [node.name for node in graph.node if node.op_type == "Conv" and node.input[1] not in known]


def _halved(source: Path, suffix: str) -> onnx.ModelProto:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    blocks = source.with_name(f"{source.stem}_q4.onnx")
    if suffix == "q4f16" and not blocks.exists():
        make(source, ["q4"])
    model = onnx.load(blocks if suffix == "q4f16" else source)
    _rename(model.graph)
    return convert_float_to_float16(model, keep_io_types=True)


def _rename(graph: onnx.GraphProto) -> None:
    """Gives each branch names of its own: the converter takes values of one name for one value."""
    for branch in (a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH):
        own = {name for node in branch.node for name in node.output if name}
        for node in branch.node:
            for names in (node.input, node.output):
                names[:] = [f"{branch.name}.{name}" if name in own else name for name in names]
        for value in (*branch.output, *branch.value_info):
            value.name = f"{branch.name}.{value.name}"


def _narrowed(model: onnx.ModelProto, suffix: str) -> onnx.ModelProto:
    if suffix == "bnb4":
        from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

        normal = MatMulBnb4Quantizer(model, 1, 64)  # NF4
        normal.process()
        return normal.model.model
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    blocks = MatMulNBitsQuantizer(model, block_size=32, is_symmetric=True, accuracy_level=4)
    blocks.process()
    return blocks.model.model
