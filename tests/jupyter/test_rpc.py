"""Calls over the wire: both ends in Python here, the page's end in Node."""

import os
import subprocess
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyonnx_wasm.jupyter import feed
from pyonnx_wasm.jupyter.rpc import PageGone, Reply, Request, Rpc
from pyonnx_wasm.jupyter.wire import WINDOW, Assembler, Message, Tensor, WireError, encode

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class Line:
    """What stands for a widget: the test is the page's end and sees every frame."""

    def __init__(self) -> None:
        self.sent: deque[tuple[dict[str, Any], list[bytes]]] = deque()
        self.active: dict[str, bool] = {}
        self.rpc = Rpc(self)
        assert self.take()["kind"] == "who"

    def send(self, content: Any, buffers: Any = None) -> None:
        if content["kind"] == "ping" and "json" in content:
            self.active[content["peer"]] = content["json"]["active"]
            return
        self.sent.append((content, [bytes(b) for b in buffers or ()]))

    def on_msg(self, callback: Any, remove: bool = False) -> None:
        self.callback = None if remove else callback

    def take(self) -> dict[str, Any]:
        """The header of the next frame from the kernel."""
        return self.sent.popleft()[0]

    def give(self, message: Message, frame_bytes: int = 1 << 20) -> None:
        for header, buffers in encode(message, frame_bytes):
            self.raw(header, [bytes(b) for b in buffers])

    def raw(self, header: Any, buffers: list[bytes] = []) -> None:  # noqa: B006
        self.callback(self, header, buffers)

    def hello(self, peer: str = "p", tab: str = "", load: str = "") -> None:
        self.give(Message("hello", "hello", peer, json={"tab": tab, "load": load, "info": {"name": peer}}))

    def answer(self, json: Any = None, tensors: list[Tensor] = [], peer: str = "p") -> None:  # noqa: B006
        """Answers the call whose only frame is next."""
        header = self.take()
        assert (header["kind"], header["peer"]) == ("call", peer)
        self.give(Message("result", header["id"], peer, json=json, tensors=tensors))


@pytest.fixture
def line() -> Line:
    return Line()


def test_a_call_waits_for_the_first_page(line: Line) -> None:
    call = line.rpc.call("f", {"a": 1})
    assert not line.sent
    line.hello()
    line.answer([2], [Tensor.of(np.arange(3, dtype=np.int16), "t")])
    reply = call.result(0)
    assert reply.json == [2]
    assert reply.tensors[0].numpy().tolist() == [0, 1, 2]
    assert line.rpc.active is not None
    assert line.rpc.active.info == {"name": "p"}


def test_at_most_a_window_of_frames_is_on_the_way(line: Line) -> None:
    line.hello()
    data = np.random.default_rng(0).integers(0, 256, 70_000_000, np.uint8)
    call = line.rpc.call("f", None, [data])
    assembler, message, frames = Assembler(), None, 0
    while message is None:
        assert len(line.sent) <= WINDOW
        header, buffers = line.sent.popleft()
        message = assembler.push(header, buffers)
        frames += 1
        line.give(Message("ack", header["id"], "p", seq=header["seq"] + 1))  # of a frame that is not sent yet: has no effect
        line.give(Message("ack", header["id"], "p", seq=header["seq"]))
    assert frames == 9
    assert message.tensors[0].numpy().tobytes() == data.tobytes()
    line.give(Message("result", message.id, "p"))
    assert call.result(0).json is None


def test_frames_are_acknowledged(line: Line) -> None:
    line.hello()
    call = line.rpc.call("f")
    id = line.take()["id"]
    line.give(Message("result", id, "p", tensors=[Tensor.of_bytes(bytes(range(10)))]), 4)
    assert [(h["kind"], h["seq"]) for h, _ in line.sent] == [("ack", 0), ("ack", 1)]
    assert call.result(0).buffers[0].tolist() == list(range(10))


def test_progress_errors_and_cancel(line: Line) -> None:
    line.hello()
    seen: list[Any] = []
    call = line.rpc.call("f", on_progress=seen.append)
    id = line.take()["id"]
    line.give(Message("progress", id, "p", json=0.5))
    line.give(Message("progress", id, "somebody else", json=0.7))
    line.give(Message("error", id, "p", error=("RangeError", "too far")))
    assert seen == [0.5]
    with pytest.raises(RuntimeError, match="too far") as caught:
        call.result(0)
    assert caught.value.name == "RangeError"  # type: ignore[attr-defined]
    given_up = line.rpc.call("f")
    id = line.take()["id"]
    assert given_up.cancel()
    assert (line.take()["kind"], given_up.cancelled()) == ("cancel", True)
    line.give(Message("result", id, "p"))  # too late; nobody minds
    assert not line.sent


def test_a_damaged_result_reaches_the_caller(line: Line) -> None:
    line.hello()
    for change, text in (({"tensors": [{"name": "x"}]}, "must be text"), ({"seq": 3}, "frame 3"), ({"v": 2}, "wire version 2")):
        call = line.rpc.call("f")
        id = line.take()["id"]
        line.raw({"v": 1, "kind": "result", "id": id, "peer": "p", "seq": 0, "last": True, "json": None, "tensors": []} | change)
        with pytest.raises(WireError, match=text):
            call.result(0)
        assert line.take()["kind"] == "cancel"


def test_a_damaged_call_is_answered_with_an_error(line: Line) -> None:
    line.hello()
    line.rpc.handle("f", lambda request: 1)
    good = {"v": 1, "kind": "call", "id": "b1", "peer": "p", "seq": 0, "last": True, "op": "f", "json": None, "tensors": []}
    for change in ({"op": 5}, {"tensors": None}, {"seq": 1}, {"v": 99}):
        line.raw(good | change)
        header = line.take()
        assert (header["kind"], header["id"], header["error"]["name"]) == ("error", "b1", "WireError")
    for nonsense in (None, 5, "call", [], {}, {"v": 1}, good | {"id": 5}, good | {"kind": "eval"}):
        line.raw(nonsense)
    assert not line.sent
    line.raw(good)
    assert line.take()["json"] == 1


def test_handlers(line: Line) -> None:
    def work(request: Request) -> Reply:
        request.progress({"half": True})
        return Reply.of({"peer": request.peer, "got": request.json}, [b"abc", np.float32(request.tensors[0].numpy() * 2)])

    line.hello()
    line.rpc.handle("work", work)
    line.rpc.handle("bad", lambda request: {}["missing"])
    line.give(Message("call", "b1", "p", "work", 7, [Tensor.of(np.float32([1, 2]))]))
    assert line.take()["json"] == {"half": True}
    header, buffers = line.sent.popleft()
    assert header["json"] == {"peer": "p", "got": 7}
    assert [t["dtype"] for t in header["tensors"]] == ["uint8", "float32"]
    assert buffers[0] == b"abc"
    assert np.frombuffer(buffers[1], np.float32).tolist() == [2, 4]
    line.give(Message("call", "b2", "p", "bad"))
    assert line.take()["error"] == {"name": "KeyError", "message": "'missing'"}
    line.give(Message("call", "b3", "p", "__class__"))
    assert line.take()["error"]["message"] == "the kernel has no operation '__class__'"


def test_pages_take_turns(line: Line) -> None:
    line.hello("one", "tab 1")
    line.hello("two", "tab 2")
    once, again = line.rpc.call("f"), line.rpc.call("f", repeat=True)
    assert [line.take()["peer"], line.take()["peer"]] == ["one", "one"]
    line.hello("three", "tab 1")  # the first page was reloaded
    assert list(line.rpc.peers) == ["two", "three"]
    with pytest.raises(PageGone):
        once.result(0)
    header = line.take()
    assert header["peer"] == "two"
    line.give(Message("result", header["id"], "one", json="too late"))
    assert not again.done()
    line.give(Message("bye", "bye", "two"))
    line.answer("here", peer="three")
    assert again.result(0).json == "here"
    line.give(Message("bye", "bye", "three"))
    assert line.rpc.active is None


def test_an_old_hello_takes_nothing_back(line: Line) -> None:
    """A page greets once when it starts, once when it knows its browser; the second may come first."""
    line.hello()
    line.give(Message("hello", "hello", "p", json={"tab": "", "load": "", "info": None}))
    page = line.rpc.active
    assert page is not None
    assert page.info == {"name": "p"}


def test_close_ends_everything(line: Line) -> None:
    line.hello()
    call = line.rpc.call("f")
    line.rpc.close()
    with pytest.raises(PageGone, match="closed"):
        call.result(0)
    assert line.callback is None


class Numbers:
    """A file that is made when it is read: byte k is k modulo 251; pieces of 100,000 bytes."""

    nbytes = 1_000_003

    def read(self, start: int, end: int) -> Any:
        for at in range(start, end, 100_000):
            yield memoryview((np.arange(at, min(at + 100_000, end)) % 251).astype(np.uint8))


def test_feed_serves_what_is_asked_for(line: Line) -> None:
    line.hello()
    feed.serve(line.rpc)
    blob = feed.Blob(Numbers())
    line.give(Message("call", "b1", "p", "read", {"sha256": blob.sha256, "start": 5, "end": 250_000}))
    header, buffers = line.sent.popleft()
    assert header["kind"] == "result"
    assert b"".join(buffers) == (np.arange(5, 250_000) % 251).astype(np.uint8).tobytes()
    bad: list[Any] = [None, {}, {"sha256": blob.sha256}]
    bad += [{"sha256": blob.sha256, "start": a, "end": b} for a, b in ((-1, 5), (5, 4), (0, 2_000_000), ("0", 5), (0, None))]
    bad += [{"sha256": s, "start": 0, "end": 1} for s in ("", "../../etc/passwd", "0" * 64, 5, [])]
    for k, json in enumerate(bad):
        line.give(Message("call", f"b{k + 2}", "p", "read", json))
        assert line.take()["kind"] == "error", json
    for name in ("../session.py", "", 5, None, "core-avx2.so"):
        line.give(Message("call", "c", "p", "asset", {"name": name}))
        assert line.take()["kind"] == "error", name
    line.give(Message("call", "d", "p", "asset", {"name": "core.wasm"}))
    assert set(line.take()["json"]) == {"sha256", "bytes"}
    sha256 = blob.sha256
    del blob
    line.give(Message("call", "e", "p", "read", {"sha256": sha256, "start": 0, "end": 1}))
    assert "no such file any more" in line.take()["error"]["message"]


def test_the_page_does_the_same(tmp_path: Path) -> None:
    entry = tmp_path / "entry.ts"
    entry.write_text(
        "".join(f"export * from {str(ROOT / 'js' / 'widget' / name)!r};" for name in ("rpc.ts", "wire.ts", "cache.ts", "turns.ts"))
    )
    bundle = tmp_path / "page.mjs"
    esbuild = ROOT / "node_modules" / "esbuild" / "bin" / "esbuild"
    subprocess.run([esbuild, entry, "--bundle", "--format=esm", f"--outfile={bundle}", "--log-level=warning"], check=True)
    done = subprocess.run(
        ["node", "--test", HERE / "rpc.test.mjs"],
        env={"BUNDLE": str(bundle), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
