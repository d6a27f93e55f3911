"""The Jupyter server's part of the model viewer: graph, shapes, statistics and runs of the files that its users may read.

``GET pyonnx-wasm/graph?path=``, ``GET .../shapes?path=``, ``GET .../weight?path=&name=``, ``POST .../run`` with
``{path, sizes, inputs}``. Answers are JSON; what is wrong with a model is status 422 and ``{"message": text}``.
"""

from __future__ import annotations

import asyncio
import json
import os
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


class GraphHandler(_Handler):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        await self.answer(self.shared.call("graph", LIMIT, path=await self.resolve(self.get_query_argument("path"))))


class ShapesHandler(_Handler):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        await self.answer(self.shared.call("shapes", LIMIT, path=await self.resolve(self.get_query_argument("path"))))


class WeightHandler(_Handler):
    @web.authenticated
    @authorized
    async def get(self) -> None:
        path, name = await self.resolve(self.get_query_argument("path")), self.get_query_argument("name", strip=False)
        await self.answer(self.shared.call("weight", LIMIT, path=path, name=name))


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
    at = {"graph": GraphHandler, "shapes": ShapesHandler, "weight": WeightHandler, "run": RunHandler}
    base = settings["base_url"]
    app.web_app.add_handlers(".*$", [(url_path_join(base, "pyonnx-wasm", name), handler) for name, handler in at.items()])
