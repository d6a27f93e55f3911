"""What recipes for batch engines share: one session per process, batches of rows in and out."""

import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from onnx import parser

from pyonnx_wasm import batch
from pyonnx_wasm.batch import BatchModel

MODEL = """<ir_version: 10, opset_import: ["" : 20]>
g (float[n, 3] x, int64[n] k) => (float[n] y, float[n, 3] z) <int64[1] axes = {1}> {
  kf = Cast<to = 1>(k)
  sum = ReduceSum<keepdims = 0>(x, axes)
  y = Add(sum, kf)
  z = Neg(x)
}"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("batch") / "model.onnx"
    path.write_bytes(parser.parse_model(MODEL).SerializeToString())
    return path


def columns(n: int) -> dict[str, np.ndarray]:
    return {"x": np.arange(3 * n, dtype=np.float64).reshape(n, 3), "k": np.arange(n), "id": np.arange(n) * 10}


def check(found: dict[str, np.ndarray], given: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(found["y"], given["x"].sum(1) + given["k"])
    np.testing.assert_array_equal(found["z"], -given["x"])
    np.testing.assert_array_equal(found["id"], given["id"])


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 50])
def test_rows_come_back_in_order(model: Path, n: int) -> None:
    given = columns(n)
    found = BatchModel(model, rows=8)(given)
    assert (len(found["y"]), len(found["z"])) == (n, n)
    if n:
        check(found, given)


def test_columns_of_lists_and_of_other_names(model: Path) -> None:
    given = columns(5)
    rows = {"points": np.array([list(row) for row in given["x"]] + [None], object)[:-1], "k": given["k"]}
    found = BatchModel(model, inputs={"x": "points"}, outputs=["y"])(rows)
    assert list(found) == ["points", "k", "y"]
    np.testing.assert_array_equal(found["y"], given["x"].sum(1) + given["k"])


def test_what_does_not_fit_is_told(model: Path) -> None:
    with pytest.raises(KeyError, match="k"):
        BatchModel(model)({"x": columns(3)["x"]})
    with pytest.raises(ValueError, match="rows"):
        BatchModel(model, rows=0)
    whole = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[n] x) => (float[1] y) { y = ReduceSum(x) }'
    ).SerializeToString()
    with pytest.raises(ValueError, match=r"output 'y' has shape \[1\] for 3 rows"):
        BatchModel(whole)({"x": np.ones(3, np.float32)})


def worked(task: tuple[BatchModel, dict[str, np.ndarray]]) -> tuple[int, int, dict[str, np.ndarray]]:
    model, given = task
    found = model(given)
    return os.getpid(), len(batch._SESSIONS), found


def test_a_process_has_one_session(model: Path) -> None:
    """However many copies of the model reach it."""
    shared = BatchModel(model)
    assert len(pickle.dumps(shared)) < len(shared.data) + 1000
    given = [columns(n) for n in (3, 4, 5, 6)]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        answers = list(pool.map(worked, [(shared, g) for g in given]))
    assert len({process for process, _, _ in answers}) == 1
    assert [sessions for _, sessions, _ in answers] == [1] * 4
    for (_, _, found), g in zip(answers, given, strict=True):
        check(found, g)
