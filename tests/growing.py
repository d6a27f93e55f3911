"""Models of several pasts: of other lengths, types and axes, given back in another order than they are made and asked for."""

import numpy as np
import onnx
from onnx import parser

TYPES = {"float": np.float32, "int64": np.int64, "int32": np.int32}


class Growing:
    """Concatenations in an order, their inputs in a second and their outputs in a third."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.count = int(rng.integers(2, 5))
        self.axis = [int(rng.integers(0, 3)) for _ in range(self.count)]
        kinds = [str(rng.choice([*TYPES])) for _ in range(self.count)]
        self.dtype = [TYPES[kind] for kind in kinds]
        self.dims = [[int(n) for n in rng.integers(1, 4, 3)] for _ in range(self.count)]

        def info(name: str, k: int, rows: str) -> str:
            return f"{kinds[k]}[{', '.join(rows if a == self.axis[k] else str(n) for a, n in enumerate(self.dims[k]))}] {name}"

        order, given, back = (rng.permutation(self.count) for _ in range(3))
        inputs = ", ".join(f"{info(f'past{k}', k, f'n{k}')}, {info(f'x{k}', k, f'm{k}')}" for k in given)
        outputs = ", ".join(info(f"present{k}", k, f"k{k}") for k in back)
        body = " ".join(f"present{k} = Concat<axis = {self.axis[k]}>(past{k}, x{k})" for k in order)
        self.text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {{ {body} }}'

    @property
    def model(self) -> onnx.ModelProto:
        return parser.parse_model(self.text)

    def rows(self, rng: np.random.Generator, k: int, count: int) -> np.ndarray:
        dims = [count if a == self.axis[k] else n for a, n in enumerate(self.dims[k])]
        return rng.integers(-99, 99, dims).astype(self.dtype[k])
