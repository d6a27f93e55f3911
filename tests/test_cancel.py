"""Runs that are given up between their steps, on every backend of this process; the next run is not touched by it."""

from __future__ import annotations

import math
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser
from waiting import given_up

import pyonnx_wasm as ort
from pyonnx_wasm.options import RunOptions
from pyonnx_wasm.runtimes import core
from pyonnx_wasm.runtimes.interrupt import interruptible
from tests import custom_models as custom

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
LOOP = f"""{HEAD} g (int64 n, float[k] x) => (float[k] y) {{
  y = Loop(n, , x) <body = body (int64 i, bool go, float[k] a) => (bool go2, float[k] b) {{ go2 = Identity(go)  b = Add(a, x) }}> }}"""
NESTED = f"""{HEAD} g (int64 n, float[k] x) => (float[k] y) {{
  y = Loop(n, , x) <body = outer (int64 i, bool go, float[k] a) => (bool go2, float[k] b) {{
    go2 = Identity(go)  many = Constant <value_int = 4> ()
    b = Loop(many, , a) <body = inner (int64 j, bool on, float[k] c) => (bool on2, float[k] d) {{
      on2 = Identity(on)  d = Add(c, x) }}> }}> }}"""
STEPS = 400
CHAIN = "\n".join(f"x{i + 1} = MatMul(x{i}, x{i})" for i in range(STEPS))
STRAIGHT = f"{HEAD} g (float[n, n] x0) => (float[n, n] x{STEPS}) {{ {CHAIN} }}"

Feeds = dict[str, Any]


def built(text: str) -> bytes:
    return bytes(parser.parse_model(text).SerializeToString())


ONES = np.ones(3, np.float32)
#: A model, what takes minutes at least, and what does not, with what that gives.
CASES: dict[str, tuple[bytes, Feeds, Feeds, np.ndarray]] = {
    "loop": (built(LOOP), {"n": np.array(1 << 60), "x": ONES}, {"n": np.array(4), "x": ONES}, 5 * ONES),
    "nested": (built(NESTED), {"n": np.array(1 << 60), "x": ONES}, {"n": np.array(4), "x": ONES}, 17 * ONES),
    "straight": (built(STRAIGHT), {"x0": np.zeros((1200, 1200), np.float32)}, {"x0": np.eye(2, dtype=np.float32)}, np.eye(2)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["cpu", "wasmtime", "gpu"])
class TestGivenUp:
    def test_another_thread_ends_a_run_and_the_next_begins_at_once(self, backend: str, case: str) -> None:
        data, long, short, want = CASES[case]
        session, options = ort.InferenceSession(data, providers=[backend]), RunOptions()
        np.testing.assert_array_equal(session.run(None, short)[0], want)
        assert "the run was cancelled" in given_up(session, long, options)
        np.testing.assert_array_equal(session.run(None, short)[0], want)

    def test_what_is_given_up_before_it_begins_is_not_begun(self, backend: str, case: str) -> None:
        data, long, short, want = CASES[case]
        session = ort.InferenceSession(data, providers=[backend])
        with pytest.raises(RuntimeError, match=r"RunOptions\.terminate is set"):
            session.run(None, long, RunOptions(terminate=True))
        np.testing.assert_array_equal(session.run(None, short)[0], want)


@pytest.mark.parametrize("case", ["loop", "nested"])
@pytest.mark.parametrize("trips", [0, 1, 37])
def test_a_run_in_slices_gives_the_same(case: str, trips: int) -> None:
    """From a slice for every step on."""
    session = ort.InferenceSession(CASES[case][0])
    feeds = {"n": np.array(trips), "x": np.arange(3, dtype=np.float32)}
    (want,) = session.run(None, feeds)
    core = session._variants[()].core  # type: ignore[attr-defined]
    for operations in (1, 513, 5000):
        core._lib.pwx_slice(core._handle, operations)
        np.testing.assert_array_equal(session.run(None, feeds)[0], want)


CHILD = """
import signal, sys, threading
import numpy as np
import pyonnx_wasm as ort
from pyonnx_wasm import RunOptions, SessionOptions

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
backend, *names = sys.argv[1:]

def tell(options):
    while not options._cancels:
        pass
    print("running", flush=True)

for name in names:
    session = ort.InferenceSession(name + ".ponnx", SessionOptions(max_operations=1 << 60), providers=[backend])
    options, feeds = RunOptions(), dict(np.load(name + ".npz").items())
    threading.Thread(target=tell, args=[options]).start()
    try:
        session.run(None, feeds, options)
    except KeyboardInterrupt:
        print("interrupted", name, flush=True)
"""
#: A module of the file's own that never comes back; a step takes a thousand operations of the limit and next to no time.
ENDLESS = '(func (export "Bad") (param i32 i32 i32 i32) (result i32) (loop (br 0)) i32.const 0)'


def endless() -> bytes:
    module = custom.compiled(f'(module (memory (export "memory") 1) {ENDLESS})')
    ort.callback("Bad", domain="test.endless", outputs=[(None, 1)], wasm=module)(lambda x: x)
    made = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "test.endless": 1]> g (float[n] x) => (float[n] y) { y = test.endless.Bad(x) }'
    )
    return bytes(made.SerializeToString())


class TestCtrlC:
    @pytest.mark.parametrize("backend", ["cpu", "wasmtime", "gpu"])
    def test_it_ends_one_run_after_the_other(self, backend: str, tmp_path: Path) -> None:
        cases = {name: case[:2] for name, case in CASES.items()} | {"module": (endless(), {"x": ONES})}
        for name, (data, long) in cases.items():
            ort.save(ort.compile(data, gpu=backend == "gpu"), tmp_path / f"{name}.ponnx")
            np.savez(tmp_path / f"{name}.npz", **long)
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, backend, *cases], bufsize=0, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            for name in cases:
                assert process.stdout.readline() == b"running\n", process.stderr.read()
                process.send_signal(signal.SIGINT)
                while not select.select([process.stdout], [], [], 10)[0]:
                    process.send_signal(signal.SIGINT)  # Python drops what it hears while an object is deleted, or in a callback from C
                assert process.stdout.readline() == f"interrupted {name}\n".encode(), process.stderr.read()
        assert process.returncode == 0


def test_a_module_without_end_ends_by_its_bound() -> None:
    session = ort.InferenceSession(endless(), ort.SessionOptions(max_operations=1 << 20))
    with pytest.raises(ort.CallbackError, match=re.escape("takes more than 1048576 operations, the limit")):
        session.run(None, {"x": ONES})


class TestBriefRuns:
    def test_only_sizes_that_proved_brief_go_without_a_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        session = ort.InferenceSession(built(f"{HEAD} g (float[n, n] x) => (float[n, n] y) {{ y = MatMul(x, x) }}"))
        threads: list[str] = []

        def counted(call: Callable[[], Any], cancel: Callable[[], None]) -> Any:
            threads.append("one")
            return interruptible(call, cancel)

        def own_threads(n: int, patience: float) -> int:
            monkeypatch.setattr(core, "BRIEF", patience)
            threads.clear()
            x = np.eye(n, dtype=np.float32)
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
            return len(threads)

        monkeypatch.setattr(core, "interruptible", counted)
        always, never = math.inf, 0.0
        assert own_threads(8, always) == 0
        assert [own_threads(700, always), own_threads(700, always)] == [1, 0]
        assert [own_threads(900, never), own_threads(900, never), own_threads(700, never)] == [1, 1, 0]
        assert [own_threads(700, never), own_threads(700, always), own_threads(700, always)] == [1, 1, 0]

    def test_sizes_from_data_show_in_the_first_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        threads: list[str] = []
        monkeypatch.setattr(core, "interruptible", lambda call, cancel: (threads.append("one"), call())[1])
        session = ort.InferenceSession(built(f"{HEAD} g (float[n] x) => (int64[1, m] y) {{ y = NonZero(x) }}"))
        seen = []
        for patience, n in ((math.inf, 3), (math.inf, 3), (math.inf, 2), (math.inf, 1 << 20), (math.inf, 1 << 20), (0.0, 3), (math.inf, 3)):
            monkeypatch.setattr(core, "BRIEF", patience)
            threads.clear()
            np.testing.assert_array_equal(session.run(None, {"x": np.ones(n, np.float32)})[0], [range(n)])
            seen.append(bool(threads))
        assert seen == [True, False, False, True, False, False, True]

    def test_loops_keep_their_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        threads: list[str] = []
        monkeypatch.setattr(core, "interruptible", lambda call, cancel: (threads.append("one"), call())[1])
        data, _, short, want = CASES["loop"]
        session = ort.InferenceSession(data)
        for runs in range(1, 4):
            np.testing.assert_array_equal(session.run(None, short)[0], want)
            assert len(threads) >= runs

    @pytest.mark.parametrize("backend", ["cpu", "wasmtime"])
    def test_a_profile_takes_one_thread(self, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
        session = ort.InferenceSession(CASES["straight"][0], providers=[backend])
        begun: list[threading.Thread] = []
        start = threading.Thread.start
        monkeypatch.setattr(threading.Thread, "start", lambda thread: (begun.append(thread), start(thread))[1])
        assert len(session.profile({"x0": np.eye(200, dtype=np.float32)}, runs=1).steps) > 1
        assert len(begun) == 2  # and one for the run before
