"""The Jupyter server's part of the model viewer: graph, shapes, statistics and runs of the files that its users may read.

``GET pyonnx-wasm/METHOD?path=`` for :data:`METHODS`, with ``name`` of a weight and ``index`` of one of its planes;
``GET .../operator?domain=&name=&opset=``; ``GET .../npy?path=&name=``; ``POST .../run`` with ``{path, sizes, inputs}``. Answers are JSON,
but for ``.npy`` files; what is wrong with a model is status 422 and ``{"message": text}``.
"""

from __future__ import annotations

import asyncio
import json
import os
from base64 import b64decode
from collections.abc import Awaitable
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web

from .worker import JobError, Worker

LIMIT = 120.0  # seconds of one job
RUNS = 2  # processes that run models at a time
WAITING = 16  # runs that may wait for their turn
METHODS = {"graph": "", "shapes": "", "weight": "name", "plane": "name, index", "digests": ""}
"""What is told of one file, and which arguments it takes besides."""


class _Handler(APIHandler):
    auth_resource = "contents"
    job: asyncio.Task[Any] | None = None

    @property
    def shared(self) -> Worker:
        worker: Worker = self.settings["pyonnx_wasm_worker"]
        return worker

    async def resolve(self, path: str) -> str:
        """The path in the file system of what the contents manager calls ``path``.

        Raises:
            web.HTTPError: 404 outside its root, for hidden files and for what is no file; 501 where files lie elsewhere.
        """
        contents = self.contents_manager
        locate = getattr(contents, "_get_os_path", None)
        if locate is None:
            raise web.HTTPError(501, "the contents of this server are not files on its disk")
        found: str = locate(path.strip("/"))
        hidden: Any = contents.is_hidden
        if not os.path.isfile(found) or (not contents.allow_hidden and await ensure_async(hidden(path))):
            raise web.HTTPError(404, f"there is no file {path}")
        return found

    def whole(self, name: str, default: str) -> int:
        """An argument that is a whole number.

        Raises:
            web.HTTPError: 400 for anything else.
        """
        try:
            return int(self.get_query_argument(name, default))
        except ValueError:
            raise web.HTTPError(400, f"{name} is no whole number") from None

    async def answer(self, job: Awaitable[Any]) -> None:
        self.job = asyncio.ensure_future(job)
        try:
            result = await self.job
        except JobError as error:
            self.set_status(422)
            result = {"message": str(error)}
        except asyncio.CancelledError:
            return
        self.finish(json.dumps(result))

    def on_connection_close(self) -> None:
        """Nobody waits for the answer any more."""
        if self.job:
            self.job.cancel()


class FileHandler(_Handler):
    """Of one file: the method that the address ends with, and its arguments."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        method = self.request.path.rpartition("/")[2]
        arguments: dict[str, Any] = {"path": await self.resolve(self.get_query_argument("path"))}
        if "name" in METHODS[method]:
            arguments["name"] = self.get_query_argument("name", strip=False)
        if "index" in METHODS[method]:
            arguments["index"] = self.whole("index", "0")
        await self.answer(self.shared.call(method, LIMIT, **arguments))


class OperatorHandler(_Handler):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        domain, name = self.get_query_argument("domain", ""), self.get_query_argument("name")
        await self.answer(self.shared.call("operator", LIMIT, domain=domain, name=name, opset=self.whole("opset", "1")))


class ArrayHandler(_Handler):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        path, name = await self.resolve(self.get_query_argument("path")), self.get_query_argument("name", strip=False)
        try:
            text = await self.shared.call("npy", LIMIT, path=path, name=name)
        except JobError as error:
            self.set_status(422)
            self.finish(json.dumps({"message": str(error)}))
            return
        self.set_header("Content-Type", "application/octet-stream")
        self.finish(b64decode(text))


class RunHandler(_Handler):
    @web.authenticated
    @authorized
    async def post(self) -> None:
        request = self.get_json_body() or {}
        try:
            path = await self.resolve(request["path"])
            sizes = {str(k): int(v) for k, v in request.get("sizes", {}).items()}
            inputs: dict[str, dict[str, str]] = {}
            for name, given in request.get("inputs", {}).items():
                inputs[str(name)] = {"file": await self.resolve(given["file"])} if "file" in given else {"fill": str(given["fill"])}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise web.HTTPError(400, f"the request is malformed: {type(error).__name__}: {error}") from None
        await self.answer(self.turn(path=path, sizes=sizes, inputs=inputs, threads=os.cpu_count() or 1))

    async def turn(self, **arguments: Any) -> Any:
        """A run in a process of its own, when fewer than :data:`RUNS` others are under way."""
        turns: Turns = self.settings["pyonnx_wasm_turns"]
        async with turns:
            worker = Worker()
            try:
                return await worker.call("run", LIMIT, **arguments)
            finally:
                worker.close()


class Turns:
    """Lets :data:`RUNS` in at a time and :data:`WAITING` wait; refuses the others."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(RUNS)
        self.waiting = 0

    async def __aenter__(self) -> None:
        if self.waiting >= WAITING:
            raise JobError(f"{WAITING} runs are waiting already: try again when they are done")
        self.waiting += 1
        try:
            await self.free.acquire()
        finally:
            self.waiting -= 1

    async def __aexit__(self, *_: object) -> None:
        self.free.release()


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "pyonnx_wasm.lab.server"}]


def _load_jupyter_server_extension(app: Any) -> None:
    settings = app.web_app.settings
    settings["pyonnx_wasm_worker"], settings["pyonnx_wasm_turns"] = Worker(), Turns()
    at: dict[str, type[_Handler]] = {**dict.fromkeys(METHODS, FileHandler), "operator": OperatorHandler, "npy": ArrayHandler}
    at["run"] = RunHandler
    base = settings["base_url"]
    app.web_app.add_handlers(".*$", [(url_path_join(base, "pyonnx-wasm", name), handler) for name, handler in at.items()])
