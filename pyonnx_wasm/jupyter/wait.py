"""Waiting for the browser inside a cell, which keeps the kernel from reading the browser's answer.

A kernel handles one shell message at a time, so while a cell waits, the comm message that it waits for lies in the queue
behind it. The :class:`Pump` takes messages from that queue, handles those of comms, answers pages that connect meanwhile, and puts
the others back in their order.
It reaches into ipykernel, whose releases differ: 6.29, 7.0, 7.3 and 7.4 are tested. See JEP 91 and ipykernel's pull requests 1430
and 1565.
"""

from __future__ import annotations

import asyncio
import inspect
import select
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

try:
    import zmq
except ImportError:  # a kernel that is itself in the page has no sockets, and nothing to pump
    zmq = None  # type: ignore[assignment]

from .rpc import Call, Peer, Reply

HELLO_SECONDS = 10.0  # for the first page to say hello
RELOAD_SECONDS = 15.0  # for a page that said goodbye to come back
CRASH_SECONDS = 4.0  # for another page, after one fell silent
SILENCE_SECONDS = 8.0  # without a sign of life although asked for one
IMPATIENT_SECONDS = 3.0  # the same, where another page could do it
LOST_SECONDS = 2.0  # after which a page that says that it has not got a call is believed
TRIES = 3  # for a call that gets lost on the way
SLOWEST = 4 << 20  # bytes per second that a line is expected to carry
COMM = frozenset(("comm_open", "comm_msg", "comm_close"))
GREETINGS = frozenset(("kernel_info_request", "comm_info_request"))


class NoBrowser(ConnectionError):
    """No page is there to run the model."""


class Unanswered(NoBrowser):
    """A page is there, but does not answer a call."""


class Watch:
    """Tells whether a call can still be answered. ``check`` is called often while somebody waits for it."""

    def __init__(self, call: Call) -> None:
        self.call, self.rpc = call, call.rpc
        self.since = self.checked = self.asked = time.monotonic()
        self.peer: str | None = call.peer
        self.lost, self.tries = 0.0, 0
        self.patience = RELOAD_SECONDS if self.rpc.greeted else HELLO_SECONDS

    def check(self) -> None:
        """Asks the page for a sign of life now and then.

        Raises:
            NoBrowser: there is no page, or none any more.
            Unanswered: the page lives, but does not go on with the call.
        """
        now = time.monotonic()
        if now - self.checked > 1:  # nothing was read meanwhile, so silence means nothing
            self.since = now
        self.checked = now
        if self.call.peer != self.peer:
            if self.peer is not None:
                self.patience = min(self.patience, RELOAD_SECONDS)
            self.peer, self.since = self.call.peer, now
        page = self.rpc.peers.get(self.peer or "")
        if page is None:
            self._alone(now)
        elif now - max(page.seen, self.since) > self._limit(page):
            self.patience = CRASH_SECONDS
            self.rpc.drop(page.id)
        else:
            if now - self.asked > 0.5:
                self.asked = now
                self.rpc.ping()
            self._served(page, now)

    def _served(self, page: Peer, now: float) -> None:
        """Sends the call again if the page says that it never got it, and gives up what does not go on."""
        call = self.call
        if page.serving is None or page.told < call.sent + LOST_SECONDS + page.owed / SLOWEST or call.done():
            return
        idle = page.serving.get(call.message.id)
        if isinstance(idle, (int, float)):
            self.lost = 0.0
            if idle > call.stall:
                raise Unanswered(
                    f"the browser lives, but has not gone on with {call.message.op!r} for {call.stall:.0f} s: reload the page and run "
                    'this again; ("browser", {"stall_seconds": ...}) among the providers allows it more time'
                )
        elif not self.lost:
            self.lost = page.told
        elif page.told > self.lost + 1:  # its answer was not on the way, either
            self.lost, self.tries = 0.0, self.tries + 1
            if self.tries > TRIES:
                raise Unanswered(f"the browser is there, but {call.message.op!r} does not reach it: reload the page and run this again")
            self.rpc.again(call)

    def _limit(self, page: Peer) -> float:
        return (IMPATIENT_SECONDS if len(self.rpc.peers) > 1 else SILENCE_SECONDS) + page.owed / SLOWEST

    def _alone(self, now: float) -> None:
        if now - self.asked > 1:
            self.asked = now
            self.rpc.who()
        if now - self.since <= self.patience:
            return
        if self.rpc.refusal:
            raise NoBrowser(f"the page does not fit this kernel: {self.rpc.refusal}")
        if not self.rpc.greeted:
            raise NoBrowser(
                "no browser is connected: display `session.bridge` in a cell first; where it is displayed, reload the page, and see "
                "that widgets work there (pip install pyonnx-wasm[jupyter] where JupyterLab runs)"
            )
        raise NoBrowser("the page that ran the model was closed, and no other took its place: open the notebook and run this again")


def wait(call: Call, behind: Collection[Call] = ()) -> Reply:
    """Blocks until the call is done. An interrupt cancels it on both sides.

    Args:
        behind: calls that wait for it, in their order; they are cancelled with it, the last first, so that the page begins none.
    Raises:
        NoBrowser: no page answers.
        RemoteError: the page refused.
    """
    watch = Watch(call)
    try:
        with _wakes(call) as waker, pumping() as pump:
            while not call.done():
                if pump is None:
                    select.select([waker], [], [], 0.25)
                else:
                    pump.step(waker, 0.25)
                watch.check()
    except BaseException:
        _give_up(call, behind)
        raise
    return call.result()


def _give_up(call: Call, behind: Collection[Call]) -> None:
    for each in reversed([call, *behind]):
        each.cancel()


async def wait_async(call: Call, behind: Collection[Call] = ()) -> Reply:
    """Like :func:`wait`, without blocking the event loop."""
    watch = Watch(call)
    future = asyncio.wrap_future(call)
    try:
        with pumping() as pump:
            while not future.done():
                await asyncio.wait([future], timeout=0.25)
                watch.check()
                if pump:
                    pump.let_go()
    except BaseException:
        _give_up(call, behind)
        raise
    return future.result()


@contextmanager
def _wakes(call: Call) -> Iterator[socket.socket]:
    """A socket that becomes readable when the call is done, on whichever thread."""
    reader, writer = socket.socketpair()
    lock = threading.Lock()

    def wake(_: Any) -> None:
        with lock:
            if writer.fileno() >= 0:
                writer.send(b"!")

    call.add_done_callback(wake)
    try:
        yield reader
    finally:
        with lock:
            writer.close()
        reader.close()


@contextmanager
def pumping() -> Iterator[Pump | None]:
    """A pump for as long as the block lasts; None where others read the comm messages: outside a kernel, or on another thread."""
    pump = _current()
    if pump is None:
        yield None
        return
    pump.enter()
    try:
        yield pump
    finally:
        pump.leave()


_pumps: dict[int, Pump] = {}


def _current() -> Pump | None:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    kernel = getattr(shell, "kernel", None)
    if kernel is None or threading.current_thread() is not threading.main_thread():
        return None
    stream = _shell_stream(kernel)
    if stream is None:
        return None
    found = _pumps.get(id(stream))
    if found is None:
        found = _pumps[id(stream)] = Pump(kernel, stream)
    return found


def _shell_stream(kernel: Any) -> Any:
    """The stream that feeds the main shell; None where this release of the kernel is built otherwise."""
    thread = getattr(kernel, "shell_channel_thread", None)
    if thread is None:
        stream = getattr(kernel, "shell_stream", None)
    else:
        stream = getattr(getattr(thread.manager, "_shell_channel_to_main", None), "to_stream", None)
    usable = all(hasattr(stream, name) for name in ("on_recv", "socket", "io_loop", "flush", "_recv_callback", "_run_callback"))
    return stream if usable and hasattr(kernel, "shell_handlers") else None


class Pump:
    """Serves the messages of the main shell that cannot wait while a cell runs in it. Uses may nest."""

    def __init__(self, kernel: Any, stream: Any) -> None:
        self.kernel, self.stream = kernel, stream
        self.users = 0
        self.callback: Any = None  # the kernel's own, while this one stands in for it
        self.held: list[Any] = []

    def enter(self) -> None:
        self.users += 1
        if self.callback is None:
            self.callback = self.stream._recv_callback
            self.stream.on_recv(self.take, copy=False)

    def leave(self) -> None:
        self.users -= 1
        if not self.users:
            self.stream.io_loop.add_callback(self._resume)

    def step(self, waker: socket.socket, seconds: float) -> None:
        """Takes a message; waits for it, or for the waker."""
        poller = zmq.Poller()
        poller.register(self.stream.socket, zmq.POLLIN)
        poller.register(waker, zmq.POLLIN)
        if self.stream.socket in dict(poller.poll(int(seconds * 1000))):
            self.take(self.stream.socket.recv_multipart(copy=False))

    def take(self, raw: Any) -> None:
        """Handles a message that cannot wait; others are for later, unless the kernel is free."""
        self.let_go()
        session = self.kernel.session
        try:
            identities, frames = session.feed_identities(raw, copy=False)
            kind = session.deserialize(frames, content=False, copy=False)["header"]["msg_type"]
        except Exception:  # not a message of the protocol; the kernel knows
            kind = ""
        if kind not in COMM and kind not in GREETINGS:
            if self._free():
                self.stream._run_callback(self.callback, raw)
            else:
                self.held.append(raw)
            return
        message = session.deserialize(frames, content=True, copy=False)
        try:
            if kind in COMM:
                self.kernel.shell_handlers[kind](None, identities, message)
            else:
                self._greet(kind, identities, message)
        except Exception:
            self.kernel.log.exception("a %s could not be handled", kind)

    def let_go(self) -> None:
        """Gives the kernel what was held, where it is free: while a task goes on after its cell has ended."""
        if self.held and self._free():
            held, self.held = self.held, []
            for raw in held:
                self.stream._run_callback(self.callback, raw)

    def _free(self) -> bool:
        """ipykernel 7 tells whether a cell runs; 6 does not."""
        lock = getattr(self.kernel, "_main_asyncio_lock", None)
        return lock is not None and not lock.locked()

    def _greet(self, kind: str, identities: Any, message: Any) -> None:
        """Answers a page that connects while the cell runs, as one does that is reloaded."""
        kernel = self.kernel
        thread = getattr(kernel, "shell_channel_thread", None)
        replies = kernel.shell_stream if thread is None else thread.manager.get_subshell_to_shell_channel_socket(None)
        kernel._publish_status("busy", "shell", parent=message)
        answer = kernel.shell_handlers[kind](replies, identities, message)
        if inspect.iscoroutine(answer):
            with suppress(StopIteration):
                answer.send(None)
        if thread is None:
            replies.flush(zmq.POLLOUT)
        kernel._publish_status("idle", "shell", parent=message)
        kernel._publish_status("busy", "shell")

    def _resume(self) -> None:
        """Gives the stream back, with what was held."""
        if self.users or self.callback is None or self.stream.closed():
            return
        callback, held = self.callback, self.held
        self.callback, self.held = None, []
        self.stream.on_recv(callback, copy=False)
        for raw in held:
            self.stream._run_callback(callback, raw)
        self.stream.flush(zmq.POLLIN)
