"""A static file server for pages that need cross-origin isolation (threads in WebAssembly).

`http.server` sends neither the isolation headers nor ranges, and guesses types from the machine's registry.
"""

import ipaddress
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".wasm": "application/wasm",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".txt": "text/plain; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".whl": "application/zip",
}
ISOLATION = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")
_CHUNK, _SLOW_CHUNK = 1 << 20, 1 << 16
_MOST_CACHED = 160 << 20  # bytes of a file: Chromium 156 keeps none of 200 MiB, with much disk to spare; Firefox none of 50
_REMEMBERED = 4096  # transfers


@dataclass
class Transfer:
    """One answered request: `sent` counts the body's bytes handed to the network so far."""

    path: str
    status: int
    sent: int = 0


class Server:
    """Serves directories over HTTP/1.1 on a thread of its own; a context manager.

    Args:
        root: a directory, or directories by URL prefix (`{"/": site, "/models/": models}`), the longest prefix wins.
        host, port: where to listen; port 0 takes a free one.
        isolated: send the headers that give a page `SharedArrayBuffer`.
        rate: bytes per second of each answer at most, as over a slower network; 0: no bound.

    Files outside the directories, by `..` or by a link, are not found. Pages of other origins may not read what is served. A request
    must name the server by an address, as localhost, as `host` or as this machine is called: another name that leads here is one
    that a foreign page made up, to be of this origin. Raises NotADirectoryError for a root that is none, OSError for a port that
    cannot be had.
    """

    def __init__(
        self, root: Path | str | Mapping[str, Path | str], host: str = "127.0.0.1", port: int = 0, isolated: bool = True, rate: float = 0
    ) -> None:
        mounts = root if isinstance(root, Mapping) else {"/": root}
        self.mounts = {f"/{prefix.strip('/')}/".replace("//", "/"): Path(path).resolve() for prefix, path in mounts.items()}
        for path in self.mounts.values():
            if not path.is_dir():
                raise NotADirectoryError(f"{path} is not a directory to serve")
        self.isolated, self.rate = isolated, rate
        self.host = host
        self._transfers: deque[Transfer] = deque(maxlen=_REMEMBERED)
        try:
            self._http = _HTTPServer((host, port), _Handler)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {host}, port {port} ({error.strerror}); choose another port") from None
        self._http.site = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}/"

    @property
    def transfers(self) -> list[Transfer]:
        """What was answered so far, the newest last; answers that come meanwhile are not in it."""
        return list(self._transfers)

    def forget(self) -> None:
        """Begins `transfers` anew."""
        self._transfers.clear()

    def answers_to(self, name: str) -> bool:
        """Whether a `Host` header names this server."""
        return answers_to(name, self.host)

    def locate(self, path: str) -> Path | None:
        """The file or directory behind a URL path, or None."""
        if "\0" in path:
            return None
        for prefix, root in sorted(self.mounts.items(), key=lambda item: -len(item[0])):
            if path.startswith(prefix) or path + "/" == prefix:
                found = (root / path[len(prefix) :].lstrip("/")).resolve()
                return found if found.is_relative_to(root) and found.exists() else None
        return None

    def start(self) -> "Server":
        self._thread.start()
        return self

    def close(self) -> None:
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()

    def __enter__(self) -> "Server":
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def answers_to(name: str, host: str) -> bool:
    """Whether a `Host` header is an address, localhost, `host` or what this machine is called."""
    try:
        found = urlsplit(f"//{name}").hostname or ""
    except ValueError:
        return False
    try:
        ipaddress.ip_address(found)
    except ValueError:
        return found in ("localhost", host.lower(), socket.gethostname().lower()) or found.endswith(".localhost")
    return True


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    site: Server


class _Handler(BaseHTTPRequestHandler):
    server: _HTTPServer
    protocol_version = "HTTP/1.1"
    server_version = "pyonnx-wasm"
    sys_version = ""
    disable_nagle_algorithm = True  # header and body are two writes: the second would wait 40 ms for a delayed acknowledgement

    def do_GET(self) -> None:
        with suppress(ConnectionError, TimeoutError):
            self._answer(body=True)

    def do_HEAD(self) -> None:
        with suppress(ConnectionError, TimeoutError):
            self._answer(body=False)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        name = self.headers.get("Host", "")
        if not self.server.site.answers_to(name):
            text = f"this server is not {name!r}: ask for it by its address\n".encode()
            return self._reply(HTTPStatus.MISDIRECTED_REQUEST, {"Content-Type": TYPES[".txt"]}, [text] if body else [], len(text))
        found = self.server.site.locate(path)
        if found is not None and found.is_dir():
            if not path.endswith("/"):
                return self._reply(HTTPStatus.MOVED_PERMANENTLY, {"Location": f"/{urlsplit(self.path).path.lstrip('/')}/"})
            found = found / "index.html"
        if found is None or not found.is_file():
            text = f"{path} is not here\n".encode()
            return self._reply(HTTPStatus.NOT_FOUND, {"Content-Type": TYPES[".txt"]}, [text] if body else [], len(text))
        try:
            file = found.open("rb")
        except OSError as error:
            return self._reply(HTTPStatus.FORBIDDEN, {"X-Reason": error.strerror or "unreadable"})
        with file:
            self._send_file(found, file, body)

    def _send_file(self, path: Path, file: BinaryIO, body: bool) -> None:
        stat = path.stat()
        tag = f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
        # Chromium reads ahead of whoever reads a body, into memory that it collects later, unless the body is not to be stored: measured
        # on 235 MB, 6 to 40 MB more at the peak, and twice the page faults.
        cache = "no-cache" if stat.st_size <= _MOST_CACHED else "no-store"
        headers = {
            "Content-Type": TYPES.get(path.suffix.lower(), "application/octet-stream"),
            "ETag": tag,
            "Last-Modified": self.date_time_string(int(stat.st_mtime)),
            "Accept-Ranges": "bytes",
            "Cache-Control": cache,
        }
        if self.headers.get("If-None-Match") == tag:
            return self._reply(HTTPStatus.NOT_MODIFIED, headers)
        status, first, last = HTTPStatus.OK, 0, stat.st_size - 1
        if self.headers.get("If-Range", tag) == tag and (match := _RANGE.match(self.headers.get("Range", ""))):
            span = _span(match[1], match[2], stat.st_size)
            if span is None:
                return self._reply(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"Content-Range": f"bytes */{stat.st_size}"})
            status, (first, last) = HTTPStatus.PARTIAL_CONTENT, span
            headers["Content-Range"] = f"bytes {first}-{last}/{stat.st_size}"
        size = last + 1 - first
        chunk = _SLOW_CHUNK if self.server.site.rate else _CHUNK
        return self._reply(status, headers, _read(file, first, size, chunk) if body else (), size)

    def _reply(self, status: HTTPStatus, headers: Mapping[str, str], chunks: Iterable[bytes] = (), size: int = 0) -> None:
        site = self.server.site
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(size))
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in ISOLATION.items() if site.isolated else ():
            self.send_header(name, value)
        transfer = Transfer(urlsplit(self.path).path, status)
        site._transfers.append(transfer)  # before the headers: an answer without a body may be read, and asked after, once they are sent
        self.end_headers()
        begin = time.perf_counter()
        for chunk in chunks:
            transfer.sent += len(chunk)
            if site.rate and (early := begin + transfer.sent / site.rate - time.perf_counter()) > 0:
                time.sleep(early)
            self.wfile.write(chunk)


def _span(first: str, last: str, size: int) -> tuple[int, int] | None:
    """First and last byte of a `Range`; None where it cannot be satisfied."""
    if not first:
        return (max(0, size - int(last)), size - 1) if last and int(last) and size else None
    begin, end = int(first), min(int(last), size - 1) if last else size - 1
    return (begin, end) if begin <= end else None


def _read(file: BinaryIO, offset: int, size: int, most: int) -> Iterator[bytes]:
    file.seek(offset)
    while size and (chunk := file.read(min(most, size))):
        size -= len(chunk)
        yield chunk
