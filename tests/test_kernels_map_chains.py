"""What quantises at the end of a map, and what takes a quantised number back: one loop, in whichever registers a program keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_call import Array

from pyonnx_wasm.dtypes import DType
from tests.test_kernels_map import bits, flat, hostile

TYPES = {DType.uint8: "uint8", DType.int8: "int8", DType.int32: "int32", DType.float32: "float32"}
QUANTIZE = [("div", [0.02, 0.5, 3]), ("round", []), ("add", [0, 128, -3]), ("clamp", [0, -128, 127, 255])]
WITHOUT_ZERO = [QUANTIZE[0], QUANTIZE[1], QUANTIZE[3]]
OPERATIONS: dict[str, Any] = {
    "div": np.divide,
    "mul": np.multiply,
    "add": np.add,
    "sub": np.subtract,
    "round": np.rint,
    "clamp": lambda x, low, high: np.where(np.where(x < low, low, x) > high, high, np.where(x < low, low, x)),
}
Instruction = tuple[Any, ...]


def interpreted(code: list[Instruction], *inputs: Array) -> Array:
    """One instruction after the other."""
    regs: dict[int, Array] = dict(enumerate(inputs))
    with np.errstate(all="ignore"):
        for name, dtype, dst, *operands in code:
            if name == "const":
                value = np.int64(operands[0])
                regs[dst] = np.array(value.view(np.float64) if dtype == "float32" else value, dtype)
            elif name == "cast":
                x = regs[operands[0]]
                regs[dst] = (np.where(np.isnan(x), 0, x).astype(np.int64) if dtype == "float32" else x).astype(TYPES[operands[1]])
            else:
                regs[dst] = OPERATIONS[name](*(regs[operand] for operand in operands)).astype(dtype)
    return np.broadcast_to(regs[code[-1][2]], inputs[0].shape)


class Writer:
    """Writes the steps of a chain with registers drawn from few: operands are constants, or whatever a register of their type holds."""

    def __init__(self, seed: int, first: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.code: list[Instruction] = []
        self.types = {0: first, 1: "float32"}
        self.last = 0

    def write(self, name: str, dtype: str, *operands: Any, gives: str | None = None) -> int:
        dst = int(self.rng.integers(1, 6))
        self.code.append((name, dtype, dst, *operands))
        self.types[dst] = gives or dtype
        return dst

    def constant(self, dtype: str, values: list[float]) -> int:
        return self.write("const", dtype, bits(dtype, float(self.rng.choice(values))))

    def held(self, dtype: str, values: list[float]) -> int:
        """A register of the type, a new constant where there is none."""
        held = [reg for reg, kind in self.types.items() if kind == dtype]
        return int(self.rng.choice(held)) if held else self.constant(dtype, values)

    def step(self, name: str, dtype: str, values: list[float], to: DType | None = None) -> None:
        count = {"clamp": 3, "round": 1, "cast": 1}.get(name, 2)
        if self.rng.random() < 0.2:
            self.constant("float32", [3, -7])  # where an earlier operand lies, or a later one
        others = [self.constant(dtype, values) if self.rng.random() < 0.8 else self.held(dtype, values) for _ in range(count - 1)]
        for reg in others:
            if self.types[reg] != dtype:  # taken by a constant since
                return self.step(name, dtype, values, to)
        first = self.last if self.types[self.last] == dtype and self.rng.random() < 0.95 else self.held(dtype, values)
        given = [first, *others] if to is None else [first, to]
        self.last = self.write(name, dtype, *given, gives=None if to is None else TYPES[to])
        return None


def quantizing(seed: int) -> tuple[list[Instruction], str]:
    writer = Writer(seed, "float32")
    to = DType.uint8 if writer.rng.random() < 0.5 else DType.int8
    for name, values in QUANTIZE if writer.rng.random() < 0.7 else WITHOUT_ZERO:
        writer.step(name, "float32", values)
    writer.step("cast", "float32", [1], to)
    return writer.code, TYPES[to]


def dequantizing(seed: int, source: DType) -> tuple[list[Instruction], str]:
    writer = Writer(seed, TYPES[source])
    writer.step("cast", TYPES[source], [1], DType.int32)
    if writer.rng.random() < 0.7:
        writer.step("sub", "int32", [128, -3])
    writer.step("cast", "int32", [1], DType.float32)
    writer.step("mul", "float32", [0.02, 3])
    return writer.code, "float32"


@pytest.mark.parametrize("seed", range(8))
def test_in_whichever_registers(seed: int) -> None:
    """Against one instruction after the other: constants that take another's register, operands that are results of the chain itself."""
    rng = np.random.default_rng(seed)
    scales = rng.choice(np.array([0.03, 0.25, 2], np.float32), 300)
    for case in range(150):
        n = int(rng.choice([1, 5, 16, 33, 300]))
        number = seed * 1000 + case
        for x, (code, result) in (
            (hostile(rng, "float32", n), quantizing(number)),
            (hostile(rng, "uint8", n), dequantizing(number, DType.uint8)),
            (hostile(rng, "int8", n), dequantizing(number, DType.int8)),
        ):
            want = interpreted(code, x, scales[:n])
            np.testing.assert_array_equal(flat(code, result, x, scales[:n]), want, err_msg=str(code))
