"""What a host may take back from a run: memory, work, and the run itself."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper, parser
from waiting import given_up

import pyonnx_wasm as ort

BACKENDS = ["cpu", "wasmtime"]


def model(body: str) -> bytes:
    return bytes(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {body}').SerializeToString())


# x is doubled as often as `trips` says, or in turn becomes twice as long.
LOOP = model(
    """g (int64 trips, float[n] x) => (float[n] y) { y = Loop(trips, , x) <body = b (int64 i, bool go, float[n] v) => (bool on, float[n] w)
    { w = Add(v, v) on = Identity(go) }> }"""
)
GROWING = model(
    """g (int64 trips, float[n] x) => (float[m] y) { y = Loop(trips, , x) <body = b (int64 i, bool go, float[p] v) => (bool on, float[q] w)
    { w = Concat<axis=0>(v, v) on = Identity(go) }> }"""
)
SQUARES = model("g (float[n,n] x) => (float[n,n] y) { named = MatMul(x, x) y = MatMul(named, x) }")


@pytest.mark.parametrize("backend", BACKENDS)
def test_work_beyond_the_limit_names_the_node(backend: str) -> None:
    session = ort.InferenceSession(SQUARES, ort.SessionOptions(max_operations=1 << 20), providers=[backend])
    assert session.run(None, {"x": np.eye(10, dtype=np.float32)})[0].shape == (10, 10)
    with pytest.raises(RuntimeError, match=r"MatMul.*step \d \(matmul\): .* operations; the limit is 1048576 \(max_operations\)"):
        session.run(None, {"x": np.eye(400, dtype=np.float32)})


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_beyond_the_limit_names_the_node(backend: str) -> None:
    session = ort.InferenceSession(SQUARES, ort.SessionOptions(max_memory=1 << 16), providers=[backend])
    assert session.run(None, {"x": np.eye(10, dtype=np.float32)})[0].shape == (10, 10)
    with pytest.raises(RuntimeError, match=r"MatMul.*step \d \(matmul\): .* the limit is 65536 \(max_memory\)"):
        session.run(None, {"x": np.eye(400, dtype=np.float32)})


@pytest.mark.parametrize("backend", BACKENDS)
def test_loops_end_at_the_limits(backend: str) -> None:
    x = np.ones(3, np.float32)
    session = ort.InferenceSession(LOOP, ort.SessionOptions(max_operations=1 << 20), providers=[backend])
    np.testing.assert_array_equal(session.run(None, {"trips": np.array(4), "x": x})[0], 16 * x)
    with pytest.raises(RuntimeError, match=r"Loop.*step \d \(loop\): takes more than 1048576 operations, the limit \(max_operations\)"):
        session.run(None, {"trips": np.array(1 << 60), "x": x})
    session = ort.InferenceSession(GROWING, ort.SessionOptions(max_memory=1 << 20), providers=[backend])
    assert session.run(None, {"trips": np.array(4), "x": x})[0].shape == (48,)
    with pytest.raises(RuntimeError, match=r"Loop.* the limit is 1048576 \(max_memory\)"):
        session.run(None, {"trips": np.array(40), "x": x})


ENDLESS = """
import signal, sys, threading
import numpy as np
import pyonnx_wasm as ort

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
session = ort.InferenceSession(sys.argv[1])
feeds = {"trips": np.array(1 << 60), "x": np.ones(3, np.float32)}

def tell():
    while not any(thread.name == "pyonnx-wasm-run" for thread in threading.enumerate()):
        pass
    print("running", flush=True)

threading.Thread(target=tell).start()
try:
    session.run(None, feeds)
except KeyboardInterrupt:
    print("interrupted", session.run(None, feeds | {"trips": np.array(2)})[0].tolist(), flush=True)
"""


def test_ctrl_c_ends_a_run_that_would_take_centuries(tmp_path: Path) -> None:
    path = tmp_path / "loop.onnx"
    path.write_bytes(LOOP)
    with subprocess.Popen([sys.executable, "-c", ENDLESS, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted [4.0, 4.0, 4.0]\n"
    assert process.returncode == 0


def test_another_thread_ends_a_run_that_would_take_centuries() -> None:
    session, options = ort.InferenceSession(LOOP), ort.RunOptions()
    assert "cancelled" in given_up(session, {"trips": np.array(1 << 60), "x": np.ones(3, np.float32)}, options)


def test_what_is_computed_once_is_bounded_too() -> None:
    made = parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> g (float[n,64] x) => (float[n,64] y) { s = Sin(w) y = Add(x, s) }')
    made.graph.initializer.append(numpy_helper.from_array(np.ones((64, 64), np.float32), "w"))
    with pytest.raises(RuntimeError, match=r"Sin.*max_operations"):
        ort.InferenceSession(made.SerializeToString(), ort.SessionOptions(max_operations=10)).run(None, {"x": np.ones((1, 64), np.float32)})
