"""Every operator of com.microsoft that onnxruntime knows runs here with all its inputs and attributes, or is refused with a cure."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state as state
from operator_case import sessions

from pyonnx_wasm.ops import load_all
from pyonnx_wasm.registry import OPERATORS, REFUSED, find

load_all()
DOMAIN = "com.microsoft"
SCHEMAS = {s.name: s for s in state.get_all_operator_schema() if s.domain == DOMAIN}
REFUSES = [
    "DecoderAttention",
    "DequantizeBFP",
    "DequantizeWithOrder",
    "DynamicSparseAttention",
    "EPContext",
    "GatedDeltaNet",
    "GemmFloat8",
    "LongformerAttention",
    "MatMulBlockQuantizedFp4Weight",
    "MatMulBlockQuantizedFp8Weight",
    "MatMulFpQ4",
    "PackedSparseAttentionIndexer",
    "PagedAttention",
    "QOrderedAttention",
    "QOrderedGelu",
    "QOrderedLayerNormalization",
    "QOrderedLongformerAttention",
    "QOrderedMatMul",
    "QuantizeBFP",
    "QuantizeWithOrder",
    "Snpe",
    "SparseAttentionIndexer",
    "SparsePagedAttention",
    "VarlenCausalConvWithState",
]
FEWER = {"QMoE": 6}  # the inputs of quant_type other than int, which is refused by name


def test_each_is_supported_or_refused() -> None:
    supported = {name for domain, name in OPERATORS if domain == DOMAIN}
    refused = {name for domain, name in REFUSED if domain == DOMAIN}
    assert not supported & refused
    assert refused == set(REFUSES)
    assert set(SCHEMAS) <= supported | refused
    assert supported - set(SCHEMAS) == set(), "an operator that onnxruntime does not know"


@pytest.mark.parametrize("name", sorted(set(SCHEMAS) - set(REFUSES)))
def test_signature(name: str) -> None:
    """Inputs by place, whether they may be absent, attributes, which are needed, and their defaults."""
    schema, operator = SCHEMAS[name], find(DOMAIN, name, 1, name == "Tokenizer")
    inputs = [i for i in schema.inputs if "Variadic" not in str(i.option)]
    assert len(operator.params) == len(inputs) - FEWER.get(name, 0)
    single = {k for k, i in enumerate(inputs) if "Single" in str(i.option)}
    assert {k for k, _ in operator.required} <= single
    assert set(operator.attrs) == set(schema.attributes)
    assert set(operator.needed) == {k for k, a in schema.attributes.items() if a.required}
    given = operator.fn.__kwdefaults__ or {}
    for key, attribute in schema.attributes.items():
        proto = onnx.AttributeProto.FromString(attribute._default_value) if attribute._default_value else None
        if proto is not None and proto.type:
            want = helper.get_attribute_value(proto)
            want = want.decode() if isinstance(want, bytes) else want
            assert given[key] == want, key


@pytest.mark.parametrize("name", REFUSES)
def test_what_is_refused_says_who_wrote_it_and_what_to_do(name: str) -> None:
    node = helper.make_node(name, ["x"], ["y"], "the_node", domain=DOMAIN)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([node], "g", [x], [helper.make_empty_tensor_value_info("y")])
    made = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)])
    with pytest.raises(ValueError, match=rf"the_node.*{DOMAIN}.{name} is not supported: .{{20,}}"):
        next(sessions(made.SerializeToString()))
    assert ";" in REFUSED[DOMAIN, name], "a cure"
