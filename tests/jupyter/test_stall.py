"""Calls that get lost, and pages that live but do not go on: noticed, sent again, and said."""

import time
from typing import Any

import pytest
from test_rpc import Line

from pyonnx_wasm.jupyter import wait
from pyonnx_wasm.jupyter.rpc import Call
from pyonnx_wasm.jupyter.session import _options
from pyonnx_wasm.jupyter.wire import Message, Tensor, encode


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    return clock


def passes(line: Line, clock: Clock, watch: wait.Watch, seconds: float, serving: dict[str, Any] | None, peer: str = "p") -> list[str]:
    """Lets time pass while the page answers pings; the kinds of the other frames that the kernel sent."""
    kinds = []
    for _ in range(int(seconds * 4)):
        clock.now += 0.25
        watch.check()
        while line.sent:
            header = line.take()
            if header["kind"] == "ping":
                json = None if serving is None else {"serving": serving}
                line.give(Message("pong", "ping", peer, json=json))
            else:
                kinds.append(header["kind"])
    return kinds


def started(line: Line, **options: Any) -> tuple[Call, wait.Watch]:
    line.hello()
    call = line.rpc.call("run", {"a": 1}, repeat=True, **options)
    assert line.take()["kind"] == "call"
    return call, wait.Watch(call)


def test_a_call_that_never_came_is_made_again(clock: Clock) -> None:
    line = Line()
    call, watch = started(line)
    assert passes(line, clock, watch, 6, {}) == ["cancel", "call"]
    assert passes(line, clock, watch, 6, {call.message.id: 0.1}) == []
    line.give(Message("result", call.message.id, "p", json=5))
    assert call.result(0).json == 5


def test_a_page_that_never_gets_it_is_an_error(clock: Clock) -> None:
    line = Line()
    _, watch = started(line)
    with pytest.raises(wait.Unanswered, match="the browser is there, but 'run' does not reach it: reload the page"):
        passes(line, clock, watch, 60, {})


def test_a_page_that_does_not_go_on_is_an_error(clock: Clock) -> None:
    line = Line()
    call, watch = started(line, stall=30)
    assert passes(line, clock, watch, 5, {call.message.id: 29.0}) == []
    with pytest.raises(wait.Unanswered, match=r"the browser lives, but has not gone on with 'run' for 30 s.*stall_seconds"):
        passes(line, clock, watch, 5, {call.message.id: 31.0})


def test_pages_that_do_not_say_what_they_serve_are_trusted(clock: Clock) -> None:
    line = Line()
    _, watch = started(line)
    assert passes(line, clock, watch, 60, None) == []


def test_a_silent_page_is_given_up_in_seconds(clock: Clock) -> None:
    line = Line()
    _, watch = started(line)
    begin = clock.now
    message = ""
    while not message and clock.now - begin < 15:
        clock.now += 0.25
        try:
            watch.check()
        except wait.NoBrowser as error:
            message = str(error)
    assert "was closed, and no other took its place" in message


def test_the_kernel_says_what_it_serves() -> None:
    line = Line()
    line.hello()
    line.give(Message("ping", "ping-1", "p"))
    header = line.take()
    assert (header["kind"], header["id"], header["json"]) == ("pong", "ping-1", {"serving": {}})
    frames = Message("call", "b1", "p", "f", None, [Tensor.of_bytes(bytes(100))])
    first = next(iter(encode(frames, 40)))
    line.raw(first[0], [bytes(b) for b in first[1]])
    assert line.take()["kind"] == "ack"
    line.give(Message("ping", "ping-2", "p"))
    assert line.take()["json"] == {"serving": {"b1": 0}}


def test_one_page_is_active_and_says_so() -> None:
    """Two notebooks in one tab stay both; a reloaded tab takes the place of what it was."""
    line = Line()
    line.hello("one", "tab", "load 1")
    line.hello("two", "tab", "load 1")
    assert line.active == {"one": True, "two": False}
    assert list(line.rpc.peers) == ["one", "two"]
    line.hello("other", "another tab", "load 9")
    line.hello("three", "tab", "load 2")
    assert list(line.rpc.peers) == ["other", "three"]
    assert line.active["other"]
    assert not line.active["three"]
    line.give(Message("bye", "bye", "other"))
    assert line.active["three"]


@pytest.mark.parametrize("options", [{"stall_seconds": 0}, {"stall_seconds": "long"}, {"backend": ["wasm"]}, {"backends": ["cuda"]}])
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"stall_seconds|has no option backend|backends of the browser"):
        _options([("browser", options)])
    assert _options([("browser", {"stall_seconds": 5})]) == (["webgpu", "wasm"], 5.0)


def test_calls_behind_one_that_is_given_up_are_given_up_before_it() -> None:
    """The page would begin them otherwise."""
    line = Line()
    line.hello()
    calls = [line.rpc.call("run", {"k": k}) for k in range(3)]
    assert [line.take()["kind"] for _ in calls] == ["call"] * 3
    wait._give_up(calls[0], calls[1:])
    assert [(header["kind"], header["id"]) for header in (line.take() for _ in calls)] == [
        ("cancel", c.message.id) for c in reversed(calls)
    ]
