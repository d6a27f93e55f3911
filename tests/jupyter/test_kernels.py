"""Sessions in real kernels of the ipykernel releases that differ; the page's end is played by ``front_end``."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from front_end import FrontEnd
from waiting import until

import pyonnx_wasm as ort
from pyonnx_wasm.jupyter.rpc import Reply, Request
from pyonnx_wasm.jupyter.wire import Tensor

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "js" / "pages" / "digits" / "digits.onnx"
KERNELS = [
    ("6.29.5", "main"),
    ("7.0.1", "main"),
    ("7.0.1", "subshell"),
    ("7.3.0", "main"),
    ("7.3.0", "subshell"),
    ("7.4.0", "main"),
    ("7.4.0", "subshell"),
]
SETUP = f"""
import time
import numpy as np
import pyonnx_wasm as ort
from pyonnx_wasm.jupyter import wait
session = ort.InferenceSession({str(MODEL)!r}, providers=["browser"])
name = session.get_inputs()[0].name
shape = [d if isinstance(d, int) else 2 for d in session.get_inputs()[0].shape]
def feed(k): return {{name: np.full(shape, k / 10, np.float32)}}
def show(result): return np.round(result[0].astype(float).sum(), 3)
"""


def install(version: str) -> Path:
    """A folder with one release of ipykernel, for the kernel's path."""
    folder = ROOT / "build" / "kernels" / version
    if not (folder / "ipykernel").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run([*pip, "--target", folder, f"ipykernel=={version}"], capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            pytest.fail(f"pip cannot install ipykernel {version}: {done.stderr.strip() or done.stdout.strip()}", pytrace=False)
    return folder


@pytest.fixture(scope="module")
def native() -> ort.InferenceSession:
    return ort.InferenceSession(MODEL)


@pytest.fixture(scope="module")
def handlers(native: ort.InferenceSession) -> dict[str, Callable[[Request], Any]]:
    def run(request: Request) -> Reply:
        assert request.json["model"]["providers"] == ["webgpu", "wasm"]
        names = request.json["outputs"]
        results = native.run(names, {t.name: t.numpy() for t in request.tensors})
        return Reply({"backend": "wasm", "ms": 1.0}, [Tensor.of(a, name) for name, a in zip(names, results, strict=True)])

    return {
        "open": lambda request: None,
        "close": lambda request: None,
        "run": run,
        "echo": lambda request: Reply(request.json, request.tensors),
        "fail": lambda request: [][1],
    }


@pytest.fixture(scope="module", params=KERNELS, ids="-".join)
def front_end(request: pytest.FixtureRequest, handlers: dict[str, Callable[[Request], Any]]) -> Iterator[FrontEnd]:
    version, shell = request.param
    with FrontEnd([install(version)], shell == "subshell", handlers) as front_end:
        assert front_end.run("import ipykernel; print(ipykernel.__version__)") == version
        assert front_end.run(SETUP) == ""
        yield front_end


@pytest.fixture
def expected(native: ort.InferenceSession) -> Callable[[int], str]:
    name, shape = native.get_inputs()[0].name, [d if isinstance(d, int) else 2 for d in native.get_inputs()[0].shape]

    def expected(k: int) -> str:
        return str(np.round(native.run(None, {name: np.full(shape, k / 10, np.float32)})[0].astype(float).sum(), 3))

    return expected


def test_replies_go_through_the_stream_that_reads_requests(front_end: FrontEnd) -> None:
    """Sent beside it, a reply takes the wake-up of a request that arrives meanwhile, which then lies unread."""
    code = """
from zmq.eventloop.zmqstream import ZMQStream
thread = getattr(get_ipython().kernel, "shell_channel_thread", None)
sends = [value for name, value in vars(thread.manager).items() if name in ("_shell_socket", "_shell_stream")] if thread else [None]
print([send is None or isinstance(send, ZMQStream) for send in sends])
"""
    assert front_end.run(code) == "[True]"


def test_cells_that_wait_run_in_order(front_end: FrontEnd, expected: Callable[[int], str]) -> None:
    cells = [
        front_end.start('print("a", show(session.run(None, feed(1)))); print("after")'),
        front_end.start('print("b", show(await session.run_async(None, feed(2))))'),
        front_end.start('print("c")'),
        front_end.start('print("d", show(session.run(None, feed(3))), show(session.run(None, feed(4))))'),
        front_end.start('print("e", show(await session.run_async(None, feed(5)))); print("f", show(session.run(None, feed(6))))'),
        front_end.start('print("g")'),
    ]
    assert [cell.result() for cell in cells] == [
        f"a {expected(1)}\nafter",
        f"b {expected(2)}",
        "c",
        f"d {expected(3)} {expected(4)}",
        f"e {expected(5)}\nf {expected(6)}",
        "g",
    ]


def test_several_at_once(front_end: FrontEnd, expected: Callable[[int], str]) -> None:
    code = "import asyncio\nprint(*map(show, await asyncio.gather(*(session.run_async(None, feed(k)) for k in range(6)))))"
    assert front_end.run(code) == " ".join(map(expected, range(6)))
    assert front_end.run("print(*map(show, session.map(feed(k) for k in range(9))))") == " ".join(map(expected, range(9)))
    assert front_end.run("print(*[show(r) async for r in session.map(feed(k) for k in range(9))])") == " ".join(map(expected, range(9)))


@pytest.mark.parametrize("call", ["session.run(None, feed(1))", "await session.run_async(None, feed(1))"])
def test_interrupt_leaves_the_kernel_usable(front_end: FrontEnd, expected: Callable[[int], str], call: str) -> None:
    page = front_end.pages[0]
    page.muted = True
    before = len(page.served)
    cell, queued = front_end.start(f"print('waiting', flush=True); {call}"), front_end.start("print('queued')")
    until(lambda: len(page.served) > before and "waiting" in cell.text)
    front_end.interrupt()
    assert cell.result().startswith(("KeyboardInterrupt", "CancelledError"))
    page.muted = False
    assert queued.result() in ("aborted", "queued")
    assert front_end.run(f"print(show({call}))") == expected(1)


def test_messages_of_many_frames(front_end: FrontEnd) -> None:
    code = """
from pyonnx_wasm.jupyter.bridge import bridge
data = np.random.default_rng(0).integers(0, 256, 45_000_001, np.uint8)
small = np.arange(5, dtype=np.int64)
reply = {wait}
print(reply.json, reply.tensors[0].numpy().tobytes() == data.tobytes(), reply.tensors[1].numpy())
"""
    call = 'bridge().rpc.call("echo", {"n": 1}, [data, small])'
    assert front_end.run(code.format(wait=f"wait.wait({call})")) == "{'n': 1} True [0 1 2 3 4]"
    assert front_end.run(code.format(wait=f"await wait.wait_async({call})")) == "{'n': 1} True [0 1 2 3 4]"


def test_messages_of_a_page_stay_in_order(front_end: FrontEnd) -> None:
    """While a cell and the shell that answers both write to the comm."""
    code = """
import asyncio
from pyonnx_wasm.jupyter.bridge import bridge
heard = []
bridge().rpc.handle("note", lambda request: heard.append(request.json))
"""
    assert front_end.run(code) == ""
    page = front_end.pages[-1]
    cell = front_end.start("for _ in range(100):\n    bridge().rpc.ping()\n    await asyncio.sleep(0.003)")
    for first in range(0, 200, 50):  # each is answered by four messages, of which a kernel publishes 1,000 ahead of who reads them, no more
        for call in [page.call("note", k) for k in range(first, first + 50)]:
            call.result(60)
    assert cell.result() == ""
    assert front_end.run("print(heard == list(range(200)))") == "True"


def test_errors_of_the_page_reach_the_cell(front_end: FrontEnd) -> None:
    assert front_end.run('wait.wait(bridge().rpc.call("fail"))') == "RemoteError: list index out of range"
    assert front_end.run('wait.wait(bridge().rpc.call("nothing"))') == "RemoteError: the kernel has no operation 'nothing'"


def test_pages_come_and_go(front_end: FrontEnd, expected: Callable[[int], str]) -> None:
    """Two tabs: one answers; when it leaves or dies in the middle of a run, the other does it."""
    first = front_end.pages[0]
    second = front_end.page("page-2")
    assert front_end.run("print(show(session.run(None, feed(7))))") == expected(7)
    assert second.served == []
    first.muted, before = True, first.served.count("run")
    cell = front_end.start("print(show(session.run(None, feed(8))))")
    until(lambda: first.served.count("run") > before)
    first.leave()
    assert cell.result() == expected(8)
    assert second.served == ["run"]

    kept = front_end.run("print(wait.SILENCE_SECONDS, wait.IMPATIENT_SECONDS, wait.CRASH_SECONDS, wait.RELOAD_SECONDS)").replace(" ", ", ")
    times = "wait.SILENCE_SECONDS, wait.IMPATIENT_SECONDS, wait.CRASH_SECONDS, wait.RELOAD_SECONDS ="
    front_end.run(f"{times} 2, 2, 0.5, 0.5")
    third = front_end.page("page-3")
    second.alive = False
    assert front_end.run("print(show(session.run(None, feed(9))))") == expected(9)
    assert third.served == ["run"]
    third.alive = False
    assert "the page that ran the model was closed" in front_end.run("session.run(None, feed(1))")
    front_end.run(f"{times} {kept}")
    front_end.page("page-4")
    assert front_end.run("print(show(await session.run_async(None, feed(2))))") == expected(2)


def test_a_subshell_that_is_deleted_takes_no_message_with_it(handlers: dict[str, Callable[[Request], Any]]) -> None:
    """As JupyterLab does after a restart: it goes on naming the subshell."""
    with FrontEnd([install("7.4.0")], True, handlers) as front_end:
        assert front_end.run(SETUP) == ""
        page = front_end.pages[0]
        asked = page.call("asset", {"name": "core.wasm"})  # answered by the subshell, which is where the next would go
        asked.result(60)
        front_end.delete_subshell()
        for _ in range(3):
            assert page.call("asset", {"name": "core.wasm"}).result(60).json["bytes"] > 0
        assert front_end.run("print(len(session.run(None, feed(1))))") == "1"


def test_no_page_at_all() -> None:
    with FrontEnd([install("7.4.0")], True, {}) as front_end:
        assert front_end.run(SETUP) == ""
        front_end.run("wait.HELLO_SECONDS = 0.5")
        for call in ("session.run(None, feed(1))", "await session.run_async(None, feed(1))", "next(iter(session.map([feed(1)])))"):
            assert front_end.run(call).startswith("NoBrowser: no browser is connected: display `session.bridge` in a cell first")
        assert front_end.run("print('usable')") == "usable"


def test_a_page_of_another_version(handlers: dict[str, Callable[[Request], Any]]) -> None:
    with FrontEnd([install("7.4.0")], True, handlers) as front_end:
        assert front_end.run(SETUP) == ""
        front_end.pages[0].leave()
        front_end.comm_message(
            front_end.pages[0].comm, {"method": "custom", "content": {"v": 99, "kind": "hello", "id": "h", "peer": "p"}}, None
        )
        front_end.run("wait.RELOAD_SECONDS = 0.5\nfrom pyonnx_wasm.jupyter.bridge import bridge")
        until(lambda: front_end.run("print(bool(bridge().rpc.refusal))") == "True")
        assert "the page does not fit this kernel: the frame has wire version 99" in front_end.run("session.run(None, feed(1))")


def test_a_page_that_connects_while_a_cell_waits(front_end: FrontEnd) -> None:
    """What a reloaded page asks first is answered although the cell blocks the kernel."""
    page = front_end.pages[-1]
    page.muted, before = True, len(page.served)
    cell = front_end.start("session.run(None, feed(1))")
    until(lambda: len(page.served) > before)
    assert front_end.ask("kernel_info_request").done.wait(60)
    assert front_end.ask("comm_info_request").done.wait(60)
    page.muted = False
    assert cell.result() == ""
