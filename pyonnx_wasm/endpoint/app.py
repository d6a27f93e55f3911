"""The ASGI application, and a server for it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..generate import Generator, Token
from ..server import answers_to
from .asked import Refused, asked
from .engine import Engine, Full
from .told import Teller

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

LARGEST = 4 << 20  # bytes of a request
Events = asyncio.Queue[tuple[int, Token | None]]


def application(generator: Generator, name: str, *, host: str = "127.0.0.1", at_once: int = 8, queue: int = 32) -> Starlette:
    """Answers ``/v1/models``, ``/v1/completions`` and ``/v1/chat/completions`` with one model.

    Args:
        name: of the model, as clients ask for it.
        host: a name to answer to beside addresses and localhost.
        at_once, queue: texts that are written together, and that may wait; a request beyond is answered 429.
    Raises:
        ImportError: starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.middleware import Middleware
        from starlette.responses import JSONResponse
        from starlette.routing import Route
    except ImportError:
        raise ImportError('serving a model needs starlette and uvicorn: pip install "pyonnx-wasm[serve]"') from None
    engine, begun = Engine(generator, at_once, queue), int(time.time())
    about = {"id": name, "object": "model", "created": begun, "owned_by": "pyonnx-wasm"}

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [about]})

    async def model(request: Request) -> Response:
        if request.path_params["name"] != name:
            raise Refused(f"the model {request.path_params['name']!r} is not here; {name!r} is", "model", "model_not_found", 404)
        return JSONResponse(about)

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return JSONResponse({"error": error.error}, error.status, {"Retry-After": "1"} if error.status == 429 else None)

    async def missing(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return await refused(request, Refused(f"{request.method} {request.url.path}: {error.detail}", status=error.status_code))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(engine.close)

    answer = _Answer(engine, name)
    app = Starlette(
        routes=[
            Route("/v1/models", models),
            Route("/v1/models/{name:path}", model),
            Route("/v1/completions", answer.to(chat=False), methods=["POST"]),
            Route("/v1/chat/completions", answer.to(chat=True), methods=["POST"]),
        ],
        exception_handlers={Refused: refused, HTTPException: missing},
        middleware=[Middleware(_Named, host=host)],
        lifespan=lifespan,
    )
    app.state.engine = engine
    return app


class _Named:
    """Answers only those who name this machine: another name that leads here is one that a foreign page made up."""

    def __init__(self, app: Any, host: str) -> None:
        self.app, self.host = app, host

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        name = dict(scope.get("headers", ())).get(b"host", b"").decode("latin-1")
        if scope["type"] == "http" and not answers_to(name, self.host):
            from starlette.responses import JSONResponse

            error = Refused(f"this server is not {name!r}: ask for it by its address").error
            return await JSONResponse({"error": error}, 421)(scope, receive, send)
        await self.app(scope, receive, send)


class _Answer:
    def __init__(self, engine: Engine, name: str) -> None:
        self.engine, self.name = engine, name

    def to(self, chat: bool) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            from starlette.responses import JSONResponse, StreamingResponse

            wanted = asked(await _body(request), self.engine.generator, self.name, chat)
            teller, events = Teller(wanted, self.engine.generator, self.name), Events()
            self._submit(teller, events)
            if wanted.stream:
                headers = {"Cache-Control": "no-cache"}
                return StreamingResponse(self._streamed(teller, events), media_type="text/event-stream", headers=headers)
            try:
                gone = asyncio.create_task(_gone(request))
                done = asyncio.create_task(_collected(teller, events))
                await asyncio.wait([gone, done], return_when=asyncio.FIRST_COMPLETED)
                gone.cancel()
                if not done.done():
                    done.cancel()
                    return JSONResponse(None, 499)
                _whole(teller)
                return JSONResponse(teller.whole())
            finally:
                _cancelled(teller)

        return endpoint

    def _submit(self, teller: Teller, events: Events) -> None:
        loop = asyncio.get_running_loop()

        def listener(i: int) -> Callable[[Token | None], None]:
            def tell(token: Token | None) -> None:
                with suppress(RuntimeError):  # the server's loop has ended
                    loop.call_soon_threadsafe(events.put_nowait, (i, token))

            return tell

        try:
            self.engine.submit([(text, listener(i)) for i, text in enumerate(teller.asked.texts)])
        except Full as error:
            raise Refused(str(error), None, "rate_limit_exceeded", 429, "rate_limit_error") from None

    async def _streamed(self, teller: Teller, events: Events) -> AsyncIterator[str]:
        try:
            left = len(teller.asked.texts)
            for i in range(left if teller.asked.chat else 0):
                yield _event(teller.part(i, None, first=True))
            while left:
                i, token = await events.get()
                if token is None:
                    left -= 1
                    _whole(teller)
                yield _event(teller.part(i, token))
            if teller.asked.usage:
                yield _event(teller.last())
            yield "data: [DONE]\n\n"
        except Refused as error:
            yield _event({"error": error.error})
        finally:
            _cancelled(teller)


def _event(value: Any) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


async def _body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # what a foreign page may send without asking is none
        raise Refused(f"the request is {kind or 'of no type'}, not application/json", status=415)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise Refused(f"the request is larger than {LARGEST:,} bytes", status=413)
    return bytes(body)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _collected(teller: Teller, events: Events) -> None:
    left = len(teller.asked.texts)
    while left:
        i, token = await events.get()
        if token is None:
            left -= 1
        else:
            teller.tokens[i].append(token)


def _whole(teller: Teller) -> None:
    """Raises what went wrong with a text."""
    for text in teller.asked.texts:
        if text.error is not None:
            raise Refused(str(text.error), status=500, kind="server_error")


def _cancelled(teller: Teller) -> None:
    for text in teller.asked.texts:
        text.cancel()


def run(generator: Generator, name: str, host: str, port: int, at_once: int, queue: int) -> None:
    """Serves a model until it is interrupted.

    Raises:
        ImportError: the extra ``serve`` is not installed.
    """
    app = application(generator, name, host=host, at_once=at_once, queue=queue)
    try:
        import uvicorn
    except ImportError:
        raise ImportError('serving a model needs starlette and uvicorn: pip install "pyonnx-wasm[serve]"') from None
    uvicorn.run(app, host=host, port=port, log_level="warning", server_header=False)
