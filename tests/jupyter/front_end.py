"""A front end without a browser: runs cells in a real kernel through jupyter_client, and answers its comms as a page would."""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from pyonnx_wasm.jupyter.rpc import Peer, Request, Rpc
from pyonnx_wasm.jupyter.wire import Message

ROOT = Path(__file__).parents[2]
Handler = Callable[[Request], Any]


class Cell:
    """A cell that was sent: what it printed, its error, and whether it ended: it was answered, and all that it printed has come."""

    def __init__(self) -> None:
        self.text, self.error, self.done = "", "", threading.Event()
        self._open = {"reply", "idle"}  # they come on channels of their own, in either order

    def came(self, what: str) -> None:
        self._open.discard(what)
        if not self._open:
            self.done.set()

    def result(self, seconds: float = 60) -> str:
        assert self.done.wait(seconds), f"the cell does not end; so far it printed {self.text!r}"
        return self.error or self.text.strip()


class Page(Rpc):
    """A page's end of a comm. While ``muted`` is set it answers no calls, but is alive; a page that is not ``alive`` does nothing."""

    PREFIX = "b"

    def __init__(self, front_end: FrontEnd, comm: str, peer: str) -> None:
        self.front_end, self.comm, self.peer = front_end, comm, peer
        self.alive, self.muted = True, False
        self.served: list[str] = []
        super().__init__(self)
        self.peers[peer] = Peer(peer, None, time.monotonic())
        for op, handler in front_end.handlers.items():
            self.handle(op, handler)
        self.say("hello")

    def send(self, content: Any, buffers: Any = None) -> None:
        if self.alive and content["kind"] != "who":
            self.front_end.comm_message(self.comm, {"method": "custom", "content": content}, buffers)

    def on_msg(self, callback: Any, remove: bool = False) -> None:
        self.receive = callback

    def leave(self) -> None:
        """As a tab that is closed."""
        self.say("bye")
        self.alive = False

    def say(self, kind: str) -> None:
        self._send(Message(kind, kind, self.peer))

    def arrived(self, content: Any, buffers: Any) -> None:
        if self.alive and content["peer"] in ("", self.peer):
            self.receive(self, content, buffers)

    def _on_who(self, message: Message) -> None:
        self.say("hello")

    def _on_call(self, message: Message) -> None:
        threading.Thread(target=self._answer, args=[message], daemon=True).start()

    def _answer(self, message: Message) -> None:
        self.served.append(message.op)
        while self.muted:
            time.sleep(0.01)
        super()._on_call(message)


class FrontEnd:
    """A kernel and a client of it.

    Args:
        pythonpath: folders before the checkout on the kernel's path.
        subshell: comm messages go to a subshell, as JupyterLab sends them, not to the main shell, as other front ends do.
        handlers: what pages answer.
    """

    def __init__(self, pythonpath: list[Path], subshell: bool, handlers: Mapping[str, Handler]) -> None:
        self.handlers = handlers
        self.pages: list[Page] = []
        self._subshell: str | None = None
        self._cells: dict[str, Cell] = {}
        self._out: queue.Queue[tuple[str, Any, list[Any] | None, str | None, Cell | None]] = queue.Queue()
        self._comms: list[str] = []
        self._ended = False
        path = os.pathsep.join(map(str, [*pythonpath, ROOT]))
        # Ports are found free some time before they are taken: sockets of a folder of one's own nobody else takes.
        self._folder = tempfile.TemporaryDirectory(prefix="kernel-")
        self.manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(Path(self._folder.name, "ipc")))
        self.manager.start_kernel(env={**os.environ, "PYTHONPATH": path})
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)
        if subshell:
            self._subshell = self._new_subshell()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> FrontEnd:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended = True
        self._thread.join(60)
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()
        self._folder.cleanup()

    def run(self, code: str, seconds: float = 60) -> str:
        """Runs a cell to its end; what it printed, or its error."""
        return self.start(code).result(seconds)

    def start(self, code: str) -> Cell:
        cell = Cell()
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        self._out.put(("execute_request", content, None, None, cell))
        return cell

    def ask(self, kind: str) -> Cell:
        """Sends another request to the main shell; the cell is done when it is answered."""
        asked = Cell()
        self._out.put((kind, {}, None, None, asked))
        return asked

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def page(self, peer: str) -> Page:
        """Opens a page, which sees the first comm of the kernel."""
        page = Page(self, self._comms[0], peer)
        self.pages.append(page)
        return page

    def comm_message(self, comm: str, data: Any, buffers: list[Any] | None) -> None:
        self._out.put(("comm_msg", {"comm_id": comm, "data": data}, buffers, self._subshell, None))

    def _new_subshell(self) -> str:
        self.client.control_channel.send(self.client.session.msg("create_subshell_request", {}))
        return str(self.client.get_control_msg(timeout=60)["content"]["subshell_id"])

    def delete_subshell(self) -> None:
        """Deletes the subshell in the kernel; messages go on naming it."""
        self.client.control_channel.send(self.client.session.msg("delete_subshell_request", {"subshell_id": self._subshell}))
        assert self.client.get_control_msg(timeout=60)["content"]["status"] == "ok"

    def _serve(self) -> None:
        session, shell = self.client.session, self.client.shell_channel.socket
        iopub = self.client.iopub_channel.socket
        while not self._ended:
            try:
                kind, content, buffers, subshell, cell = self._out.get_nowait()
            except queue.Empty:
                pass
            else:
                header = session.msg_header(kind)
                if subshell is not None:
                    header["subshell_id"] = subshell
                if cell is not None:
                    self._cells[header["msg_id"]] = cell
                session.send(shell, kind, content, header=header, buffers=buffers)
                continue
            if shell.poll(0):
                self._replied(session.recv(shell, 0)[1])
            elif iopub.poll(2):
                self._published(session.recv(iopub, 0)[1])

    def _replied(self, message: Any) -> None:
        cell = self._cells.get(message["parent_header"].get("msg_id"))
        if cell is not None:
            content = message["content"]
            if content["status"] == "error":
                cell.error = f"{content['ename']}: {content['evalue']}"
            elif content["status"] != "ok":
                cell.error = content["status"]
            cell.came("reply")

    def _published(self, message: Any) -> None:
        kind, content = message["msg_type"], message["content"]
        cell = self._cells.get(message["parent_header"].get("msg_id"))
        if kind == "stream" and content["name"] == "stdout" and cell:
            cell.text += content["text"]
        elif kind == "status" and content["execution_state"] == "idle" and cell:
            cell.came("idle")
        elif kind == "comm_open" and content["target_name"] == "jupyter.widget":
            if "_esm" in content["data"]["state"]:
                self._comms.append(content["comm_id"])
                if len(self._comms) == 1 and not self.pages and "run" in self.handlers:
                    self.page("page-1")
        elif kind == "comm_msg" and content["data"].get("method") == "custom":
            for page in self.pages:
                if page.comm == content["comm_id"]:
                    page.arrived(content["data"]["content"], message["buffers"])
