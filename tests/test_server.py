import http.client
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyonnx_wasm import server
from pyonnx_wasm.server import Server


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Server]:
    root = tmp_path / "site"
    (root / "sub").mkdir(parents=True)
    (root / "a.bin").write_bytes(bytes(range(256)))
    (root / "empty.bin").write_bytes(b"")
    (root / "sub" / "index.html").write_text("<p>hello")
    (root / "ä b.mjs").write_text("export {}")
    (root / "core.wasm").write_bytes(b"\0asm")
    (tmp_path / "secret").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret")
    models = tmp_path / "models"
    models.mkdir()
    (models / "m.ponnx").write_bytes(b"model")
    with Server({"/": root, "/models": models}) as server:
        yield server


def request(site: Server, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    host, port = site.url.removeprefix("http://").rstrip("/").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=5)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_file_with_headers(site: Server) -> None:
    response, body = request(site, "/a.bin?x=1")
    assert (response.status, body) == (200, bytes(range(256)))
    assert response.headers["Content-Length"] == "256"
    assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert response.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert not [name for name in response.headers if name.startswith("Access-Control")]
    assert site.transfers[-1].sent == 256


@pytest.mark.parametrize(
    ("path", "mime"),
    [
        ("/sub/", "text/html; charset=utf-8"),
        ("/%C3%A4%20b.mjs", "text/javascript; charset=utf-8"),
        ("/core.wasm", "application/wasm"),
        ("/models/m.ponnx", "application/octet-stream"),
    ],
)
def test_type(site: Server, path: str, mime: str) -> None:
    response, _ = request(site, path)
    assert (response.status, response.headers["Content-Type"]) == (200, mime)


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [("0-0", 0, 0), ("10-19", 10, 19), ("250-", 250, 255), ("250-999", 250, 255), ("-6", 250, 255), ("-999", 0, 255)],
)
def test_range(site: Server, wanted: str, first: int, last: int) -> None:
    response, body = request(site, "/a.bin", Range=f"bytes={wanted}")
    assert (response.status, body) == (206, bytes(range(first, last + 1)))
    assert response.headers["Content-Range"] == f"bytes {first}-{last}/256"


@pytest.mark.parametrize(
    ("path", "wanted"), [("/a.bin", "256-"), ("/a.bin", "9-3"), ("/a.bin", "-0"), ("/empty.bin", "0-"), ("/empty.bin", "-1")]
)
def test_range_outside(site: Server, path: str, wanted: str) -> None:
    response, body = request(site, path, Range=f"bytes={wanted}")
    assert (response.status, body) == (416, b"")
    assert response.headers["Content-Range"] in ("bytes */256", "bytes */0")


@pytest.mark.parametrize("wanted", ["lines=1-2", "bytes=a-b", "bytes=0-1,4-5"])
def test_range_not_understood_gives_the_whole(site: Server, wanted: str) -> None:
    response, body = request(site, "/a.bin", Range=wanted)
    assert (response.status, len(body)) == (200, 256)


def test_unchanged_file_is_not_sent_again(site: Server) -> None:
    tag = request(site, "/a.bin")[0].headers["ETag"]
    response, body = request(site, "/a.bin", If_None_Match=tag)
    assert (response.status, body) == (304, b"")
    assert request(site, "/a.bin", Range="bytes=0-3", If_Range='"other"')[0].status == 200


def test_head(site: Server) -> None:
    response, body = request(site, "/a.bin", "HEAD")
    assert (response.status, response.headers["Content-Length"], body) == (200, "256", b"")


@pytest.mark.parametrize(
    "path", ["/none", "/../secret", "/%2e%2e/secret", "/sub/../../secret", "/link", "//etc/passwd", "/a.bin/x", "/%00", "/models/"]
)
def test_not_found(site: Server, path: str) -> None:
    response, body = request(site, path)
    assert response.status == 404
    assert body != b"secret"


def test_directory_redirects(site: Server) -> None:
    response, _ = request(site, "/sub")
    assert (response.status, response.headers["Location"]) == (301, "/sub/")


def test_other_methods_are_refused(site: Server) -> None:
    assert request(site, "/a.bin", "DELETE")[0].status == 501


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "192.168.1.7", "pages.localhost", socket.gethostname()]
)
def test_names_of_this_machine_are_answered(site: Server, host: str) -> None:
    assert request(site, "/a.bin", Host=host)[0].status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1", "a b"]
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_names_that_were_made_to_lead_here_are_refused(site: Server, host: str, method: str) -> None:
    response, body = request(site, "/a.bin", method, Host=host)
    assert response.status == 421
    assert bytes(range(256)) not in body


def test_a_request_without_a_host_is_refused(site: Server) -> None:
    host, port = site.url.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as client:
        client.sendall(b"GET /a.bin HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert b" 421 " in client.recv(1024).split(b"\r\n")[0]


def test_it_listens_where_no_other_machine_reaches(site: Server) -> None:
    assert site.url.startswith("http://127.0.0.1:")


def test_what_was_answered_is_remembered_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_REMEMBERED", 3)
    with Server(tmp_path) as served:
        for n in range(5):
            request(served, f"/{n}")
        assert [t.path for t in served.transfers] == ["/2", "/3", "/4"]


def test_not_isolated(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with Server(tmp_path, isolated=False) as server:
        response, _ = request(server, "/a.txt")
    assert "Cross-Origin-Opener-Policy" not in response.headers


def test_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="nowhere"):
        Server(tmp_path / "nowhere")


def test_busy_port(tmp_path: Path) -> None:
    with Server(tmp_path) as busy:
        port = int(busy.url.rstrip("/").rsplit(":", 1)[1])
        with pytest.raises(OSError, match=f"port {port}"):
            Server(tmp_path, port=port)


def test_client_that_leaves_early(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "large.bin").write_bytes(bytes(32 << 20))
    (tmp_path / "small.bin").write_bytes(b"small")
    with Server(tmp_path) as server:
        host, port = server.url.removeprefix("http://").rstrip("/").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as leaver:
            leaver.sendall(b"GET /large.bin HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert leaver.recv(1024)
        assert request(server, "/small.bin")[1] == b"small"
    assert capfd.readouterr().err == ""


def test_nonsense_is_refused(site: Server) -> None:
    host, port = site.url.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as client:
        client.sendall(b"\x16\x03\x01nonsense\r\n\r\n")
        assert b"400" in client.recv(1024)


def test_an_answer_is_remembered_before_it_leaves(site: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered: list[list[str]] = []
    leave = server._Handler.end_headers

    def watched(handler: server._Handler) -> None:
        remembered.append([t.path for t in site.transfers])
        leave(handler)

    monkeypatch.setattr(server._Handler, "end_headers", watched)
    tag = request(site, "/a.bin")[0].headers["ETag"]
    assert request(site, "/a.bin", "HEAD")[0].status == 200
    assert request(site, "/a.bin", If_None_Match=tag)[0].status == 304
    assert remembered == [["/a.bin"] * n for n in (1, 2, 3)]


def test_files_that_no_browser_keeps_are_not_to_be_stored(tmp_path: Path) -> None:
    for name, size in (("kept.bin", 160 << 20), ("large.bin", (160 << 20) + 1)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    with Server(tmp_path) as server:
        found = {name: request(server, f"/{name}", Range="bytes=0-0")[0].headers["Cache-Control"] for name in ("kept.bin", "large.bin")}
    assert found == {"kept.bin": "no-cache", "large.bin": "no-store"}


def test_a_slow_network_sends_the_same_later(tmp_path: Path) -> None:
    content = bytes(range(256)) * 2048
    (tmp_path / "a.bin").write_bytes(content)
    with Server(tmp_path, rate=4e6) as slow:
        begin = time.perf_counter()
        response, body = request(slow, "/a.bin", Range="bytes=1000-")
        assert time.perf_counter() - begin >= (len(content) - 1000) / 4e6  # never sooner
        assert (response.status, body) == (206, content[1000:])
