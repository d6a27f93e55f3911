"""Values whose types numpy lacks: what they are stays with them, and an input of another type refuses their bits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import helper as h

import pyonnx_wasm as ort
from pyonnx_wasm.dtypes import DType, to_numpy
from tests.test_stages import model

ALIKE = [("uint16", "bfloat16"), ("uint8", "float8e4m3fn", "float8e5m2", "float8e4m3fnuz"), ("int8",), ("uint32",), ("float16",)]
PAIRS = [pair for group in ALIKE for pair in itertools.product(group, repeat=2)]


def identity(dtype: str) -> ort.InferenceSession:
    return ort.InferenceSession(model([h.make_node("Identity", ["x"], ["y"])], {"x": (int(DType[dtype]), ["n"])}, ["y"], 21))


def value(dtype: DType) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.arange(3).astype(to_numpy(dtype)), int(dtype))


@pytest.mark.parametrize(("takes", "given"), PAIRS)
def test_bits_alone_do_not_fit(takes: str, given: str) -> None:
    session, x = identity(takes), value(DType[given])
    plain = takes != given and given in ("uint8", "uint16")  # bits, as numpy holds what it lacks
    if takes != given and not plain:
        for _ in range(2):
            with pytest.raises(ValueError, match=f"input 'x' takes {takes}, got {given}"):
                session.run_with_ort_values(None, {"x": x})
        return
    for _ in range(3):
        (y,) = session.run_with_ort_values(None, {"x": x})
        assert (y.element_type(), y.data_type()) == (int(DType[takes]), f"tensor({takes})")
        np.testing.assert_array_equal(y.numpy(), x.numpy())
        x = y  # what was given is taken


@pytest.mark.parametrize("dtype", ["bfloat16", "float8e4m3fn", "float16", "int8"])
def test_bound_outputs_have_their_types(dtype: str) -> None:
    session = identity(dtype)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value(DType[dtype]))
    binding.bind_output("y")
    for _ in range(3):
        session.run_with_iobinding(binding)
        (y,) = binding.get_outputs()
        assert y.element_type() == int(DType[dtype])
        np.testing.assert_array_equal(y.numpy(), value(DType[dtype]).numpy())
