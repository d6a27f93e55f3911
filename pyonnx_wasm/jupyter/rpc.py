"""Calls between kernel and page over a widget's custom messages: ``WIRE.md``."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from .channel import Channel
from .wire import WINDOW, Assembler, Frame, Message, Tensor, WireError, encode

log = logging.getLogger(__name__)
MAX_PEERS = 64
STALL_SECONDS = 600.0  # for a page to go on with what it does


class Widget(Protocol):
    """What an anywidget has for custom messages."""

    def send(self, content: Any, buffers: Any = None) -> None: ...
    def on_msg(self, callback: Any, remove: bool = False) -> None: ...


class RemoteError(RuntimeError):
    """A failure in the page, with its text.

    Attributes:
        name: the class of the error there.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class PageGone(ConnectionError):
    """The page that a call was made to is gone."""


@dataclass(frozen=True)
class Reply:
    """What a call gives: any JSON value and tensors; ``buffers`` are the bytes of the tensors."""

    json: Any = None
    tensors: Sequence[Tensor] = ()

    @property
    def buffers(self) -> list[memoryview]:
        return [t.data for t in self.tensors]

    @classmethod
    def of(cls, json: Any = None, buffers: Sequence[Any] = ()) -> Reply:
        """``buffers`` may hold bytes, arrays and tensors."""
        return cls(json, [_tensor(b) for b in buffers])


@dataclass(frozen=True)
class Request(Reply):
    """A call from a page. ``cancelled`` is set when the page gives it up; ``progress`` tells it how far the work is."""

    op: str = ""
    peer: str = ""
    progress: Callable[[Any], None] = field(default=lambda json: None, repr=False)
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)


class Call(Future[Reply]):
    """A call to a page, under way. ``cancel`` ends it on both sides."""

    def __init__(self, rpc: Rpc, message: Message, repeat: bool, on_progress: Callable[[Any], None] | None, stall: float) -> None:
        super().__init__()
        self.rpc, self.message, self.repeat, self.on_progress, self.stall = rpc, message, repeat, on_progress, stall
        self.peer: str | None = None
        self.sent = 0.0

    def cancel(self) -> bool:
        if not super().cancel():
            return False
        self.rpc._give_up(self)
        return True


@dataclass
class Peer:
    """A page: what it said of itself, when it was last heard (``time.monotonic``), and the bytes sent to it since.

    ``tab`` and ``load`` name its browser tab and what was loaded there. ``serving`` are the calls that it has, with the seconds since they
    went on, as it said when asked at ``told``; None before that.
    """

    id: str
    info: Any
    seen: float
    tab: str = ""
    load: str = ""
    owed: int = 0
    serving: Mapping[str, Any] | None = None
    told: float = 0.0


@dataclass
class _Outgoing:
    """A message being sent, at most WINDOW frames ahead of the far side."""

    frames: Iterator[Frame]
    acked: int = 0
    sent: int = 0
    done: bool = False


class Rpc:
    """Calls over one widget, both ways. Safe to use from several threads; handlers and callbacks run where messages arrive.

    Args:
        widget: an anywidget, or what has its ``send`` and ``on_msg``.
        channel: by which pages answer besides.
    Attributes:
        peers: the pages that said hello, by id; the first one is called.
        on_peers: called when pages come and go.
        greeted: some page has said hello.
        refusal: why the last hello was not taken.
    """

    PREFIX = "k"  # of ids, which both ends give

    def __init__(self, widget: Widget, channel: Channel | None = None) -> None:
        self.widget, self.channel = widget, channel
        self.peers: dict[str, Peer] = {}
        self.on_peers: Callable[[], None] = lambda: None
        self.greeted = False
        self.refusal = ""
        self._handlers: dict[str, Callable[[Request], Any]] = {}
        self._calls: dict[str, Call] = {}
        self._requests: dict[tuple[str, str], Request] = {}
        self._outgoing: dict[tuple[str, str], _Outgoing] = {}
        self._assembler = Assembler()
        self._lock = threading.RLock()
        self._ids = map(f"{self.PREFIX}{{}}".format, itertools.count(1))
        widget.on_msg(self._receive)
        if channel:
            channel.listen(lambda content, buffers: self._receive(widget, content, buffers))
        self.who()

    def call(
        self,
        op: str,
        json: Any = None,
        buffers: Sequence[Any] = (),
        *,
        peer: str | None = None,
        repeat: bool = False,
        on_progress: Callable[[Any], None] | None = None,
        stall: float = STALL_SECONDS,
    ) -> Call:
        """Calls ``op`` in a page; without one, as soon as one says hello.

        Args:
            buffers: bytes, arrays and tensors; not copied, so they must not change before the call is done.
            peer: the page; by default the first.
            repeat: the call may be made again, in another page, when its page is gone.
            stall: seconds that the page may take from one sign of progress to the next, for who waits.
        Returns:
            a future of a :class:`Reply`; RemoteError, WireError or PageGone when it failed.
        """
        call = Call(self, Message("call", next(self._ids), "", op, json, [_tensor(b) for b in buffers]), repeat, on_progress, stall)
        with self._lock:
            self._calls[call.message.id] = call
            self._dispatch(call, peer)
        return call

    def handle(self, op: str, fn: Callable[[Request], Any]) -> None:
        """Answers calls of ``op`` from pages by ``fn(request)``: a Reply or a JSON value; what it raises reaches the caller."""
        self._handlers[op] = fn

    @property
    def active(self) -> Peer | None:
        """The page that calls go to."""
        with self._lock:
            return next(iter(self.peers.values()), None)

    def ping(self) -> None:
        """Asks the page that is called for a sign of life."""
        if peer := self.active:
            self._send(Message("ping", "ping", peer.id))

    def again(self, call: Call) -> None:
        """Sends a call that its page never got once more; what came of it until now is dropped on both sides."""
        with self._lock:
            if call.peer is not None and call.message.id in self._calls:
                self._outgoing.pop((call.peer, call.message.id), None)
                self._assembler.drop(call.peer, call.message.id)
                self._send(Message("cancel", call.message.id, call.peer))
                self._dispatch(call, call.peer)

    def who(self) -> None:
        """Asks all pages to say hello."""
        self._send(Message("who", "who"))

    def drop(self, peer: str) -> None:
        """Gives a page up: its calls go to the next one, where they may be repeated, or wait for one; others fail."""
        with self._lock:
            if self.peers.pop(peer, None) is None:
                return
            self._assembler.drop(peer)
            for key in [k for k in self._outgoing if k[0] == peer]:
                del self._outgoing[key]
            for key in [k for k in self._requests if k[0] == peer]:
                self._requests.pop(key).cancelled.set()
            lost = [c for c in self._calls.values() if c.peer == peer]
            for call in lost:
                if call.repeat:
                    self._dispatch(call)
        for call in lost:
            if not call.repeat:
                self._finish(call, PageGone("the page that ran this was closed or reloaded"))
        self._tell()
        self.on_peers()

    def _tell(self) -> None:
        """Says to every page whether it is the one that is called."""
        with self._lock:
            active = self.active
            for peer in self.peers.values():
                self._send(Message("ping", "ping", peer.id, json={"active": peer is active}))

    def close(self) -> None:
        """Ends all calls with an error and stops listening."""
        self.widget.on_msg(self._receive, remove=True)
        if self.channel:
            self.channel.close()
        for call in list(self._calls.values()):
            self._finish(call, PageGone("the bridge was closed"))

    def _dispatch(self, call: Call, peer: str | None = None) -> None:
        chosen = peer or (self.active.id if self.active else None)
        call.peer, call.sent = chosen, time.monotonic()
        if chosen is not None:
            m = call.message
            self._post(Message("call", m.id, chosen, m.op, m.json, m.tensors))

    def _post(self, message: Message) -> None:
        """Sends a call or a result."""
        with self._lock:
            out = self._outgoing[message.peer, message.id] = _Outgoing(encode(message))
            self._more((message.peer, message.id), out)

    def _more(self, key: tuple[str, str], out: _Outgoing) -> None:
        while not out.done and out.sent - out.acked < WINDOW:
            header, buffers = next(out.frames)
            out.done, out.sent = header["last"], out.sent + 1
            if out.done:
                del self._outgoing[key]
            self._write(header, buffers)

    def _send(self, message: Message) -> None:
        with self._lock:
            for header, buffers in encode(message):
                self._write(header, buffers)

    def _write(self, header: dict[str, Any], buffers: list[memoryview]) -> None:
        if peer := self.peers.get(header["peer"]):
            peer.owed += sum(map(len, buffers))
        self.widget.send(header, buffers=buffers)

    def _receive(self, widget: Any, content: Any, buffers: Sequence[Any]) -> None:
        try:
            with self._lock:
                self._heard(content)
                message = self._assembler.push(content, buffers or ())
            if message is None:
                self._send(Message("ack", content["id"], content["peer"], seq=content["seq"]))
            else:
                getattr(self, f"_on_{message.kind}")(message)
        except WireError as error:
            self._refuse(content, error)
        except Exception:
            log.exception("a message from the page could not be handled")

    def _heard(self, content: Any) -> None:
        if isinstance(content, Mapping) and isinstance(content.get("peer"), str) and (peer := self.peers.get(content["peer"])):
            peer.seen, peer.owed = time.monotonic(), 0

    def _refuse(self, content: Any, error: WireError) -> None:
        fields = content if isinstance(content, Mapping) else {}
        kind, id, peer = (fields.get(k) for k in ("kind", "id", "peer"))
        if not (isinstance(id, str) and isinstance(peer, str)):
            log.warning("a message from the page was refused: %s", error)
            return
        self._assembler.drop(peer, id)
        call = self._calls.get(id)
        if kind in ("call", "hello"):
            self.refusal = str(error)
            self._send(Message("error", id[:128], peer[:128], error=("WireError", str(error))))
        elif call is not None and call.peer == peer:
            self._send(Message("cancel", id, peer))
            self._finish(call, error)

    def _on_hello(self, message: Message) -> None:
        with self._lock:
            if message.peer not in self.peers and (len(self.peers) >= MAX_PEERS or not message.peer):
                return
            said = message.json if isinstance(message.json, Mapping) else {}
            tab, load = (str(said.get(key) or "")[:128] for key in ("tab", "load"))
            known, info = self.peers.get(message.peer), said.get("info")
            if known is not None and info is None:  # the first hello, overtaken by the second: they may come through different shells
                info = known.info
            self.peers[message.peer] = Peer(message.peer, info, time.monotonic(), tab, load)
            others = [p for p in self.peers.values() if p.id != message.peer]
            before = [p.id for p in others if tab and p.tab == tab and not (load and p.load == load)]
            self.greeted, self.refusal = True, ""
            for call in list(self._calls.values()):
                if call.peer is None:
                    self._dispatch(call)
        for peer in before:
            self.drop(peer)
        self._tell()
        self.on_peers()

    def _on_who(self, message: Message) -> None:
        pass

    def _on_pong(self, message: Message) -> None:
        said = message.json.get("serving") if isinstance(message.json, Mapping) else None
        if isinstance(said, Mapping) and (peer := self.peers.get(message.peer)):
            peer.serving, peer.told = said, time.monotonic()

    def _on_ping(self, message: Message) -> None:
        with self._lock:
            known = {id for peer, id in (*self._requests, *self._outgoing) if peer == message.peer}
            serving = dict.fromkeys(known | self._assembler.arriving(message.peer), 0)
        self._send(Message("pong", message.id, message.peer, json={"serving": serving}))

    def _on_bye(self, message: Message) -> None:
        self.drop(message.peer)

    def _on_call(self, message: Message) -> None:
        key = (message.peer, message.id)

        def progress(json: Any) -> None:
            if not request.cancelled.is_set():
                self._send(Message("progress", message.id, message.peer, json=json))

        request = Request(message.json, message.tensors, message.op, message.peer, progress)
        with self._lock:
            self._requests[key] = request
        try:
            handler = self._handlers.get(message.op)
            if handler is None:
                raise LookupError(f"the kernel has no operation {message.op[:40]!r}")
            answer = handler(request)
            reply = answer if isinstance(answer, Reply) else Reply(answer)
            outcome = Message("result", message.id, message.peer, "", reply.json, reply.tensors)
        except Exception as error:
            outcome = Message("error", message.id, message.peer, error=(type(error).__name__, str(error)))
        with self._lock:
            if self._requests.pop(key, None) is None:
                return
            if outcome.kind == "error":
                self._send(outcome)
                return
            try:
                self._post(outcome)
            except (TypeError, ValueError) as error:  # the answer is no JSON
                self._send(Message("error", message.id, message.peer, error=(type(error).__name__, str(error))))

    def _on_result(self, message: Message) -> None:
        if call := self._call_of(message):
            self._finish(call, Reply(message.json, message.tensors))

    def _on_error(self, message: Message) -> None:
        assert message.error is not None
        if call := self._call_of(message):
            self._finish(call, RemoteError(*message.error))

    def _on_progress(self, message: Message) -> None:
        if (call := self._call_of(message)) and call.on_progress:
            call.on_progress(message.json)

    def _on_ack(self, message: Message) -> None:
        with self._lock:
            key = (message.peer, message.id)
            if (out := self._outgoing.get(key)) and message.seq == out.acked < out.sent:
                out.acked += 1
                self._more(key, out)

    def _on_cancel(self, message: Message) -> None:
        with self._lock:
            self._outgoing.pop((message.peer, message.id), None)
            self._assembler.drop(message.peer, message.id)
            if request := self._requests.pop((message.peer, message.id), None):
                request.cancelled.set()

    def _call_of(self, message: Message) -> Call | None:
        call = self._calls.get(message.id)
        return call if call is not None and call.peer == message.peer else None

    def _finish(self, call: Call, outcome: Reply | Exception) -> None:
        with self._lock:
            self._forget(call)
            if call.done():
                return
        if isinstance(outcome, Exception):
            call.set_exception(outcome)
        else:
            call.set_result(outcome)

    def _give_up(self, call: Call) -> None:
        with self._lock:
            known = self._forget(call)
        if known and call.peer is not None:
            self._send(Message("cancel", call.message.id, call.peer))

    def _forget(self, call: Call) -> bool:
        if call.peer is not None:
            self._outgoing.pop((call.peer, call.message.id), None)
            self._assembler.drop(call.peer, call.message.id)
        return self._calls.pop(call.message.id, None) is not None


def _tensor(data: Any) -> Tensor:
    if isinstance(data, Tensor):
        return data
    if isinstance(data, np.ndarray):
        return Tensor.of(data)
    return Tensor.of_bytes(data)
