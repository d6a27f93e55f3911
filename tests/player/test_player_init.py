"""Models whose init steps run while weights still arrive: in any order, from several files, broken off at any place."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from player_site import Run, join, split, write

import pyonnx_wasm

ROWS, LAYERS = 6000, 6
ORDER = np.random.default_rng(1).permutation(ROWS)
TABLES = [np.random.default_rng(k).standard_normal((ROWS, 8)).astype(np.float32) for k in range(LAYERS)]
EXPECTED = sum(table[ORDER] for table in TABLES)
BYTES = LAYERS * ROWS * 8 * 4

# A stream of a file that stops at `stop` until the gate opens; `taken` counts what was read of it.
GATED = """
const zeros = new Tensor("float32", new Float32Array(8 * arg.rows), [arg.rows, 8]);
const gated = async (name, stop, then = "go on", piece = 10007) => {
  const data = await bytes(name);
  const gate = { taken: 0, cancelled: false };
  const opened = new Promise((resolve) => (gate.open = resolve));
  gate.stream = new ReadableStream({
    async pull(controller) {
      if (gate.taken >= stop) await opened;
      if (gate.taken >= stop && then === "break") return controller.error(new Error("the line is dead"));
      if (gate.taken >= stop && then === "end") return controller.close();
      const end = Math.min(gate.taken + piece, gate.taken < stop ? stop : Infinity);
      const chunk = data.slice(gate.taken, end);
      gate.taken += chunk.length;
      if (chunk.length) controller.enqueue(chunk);
      else controller.close();
    },
    cancel() { gate.cancelled = true; },
  }, { highWaterMark: 0 });
  return gate;
};
const sums = async (s) => JSON.stringify(Array.from((await s.run({ x: zeros })).y.data));
"""


def _write(path: Path) -> None:
    nodes = []
    for k in range(LAYERS):
        nodes.append(helper.make_node("Gather", [f"w{k}", "order"], [f"t{k}"], name=f"turn_{k}"))
        nodes.append(helper.make_node("Add", [f"y{k - 1}" if k else "x", f"t{k}"], [f"y{k}" if k + 1 < LAYERS else "y"], name=f"add_{k}"))
    weights: dict[str, Any] = {f"w{k}": table for k, table in enumerate(TABLES)}
    write(path, nodes, {"x": ("float32", [ROWS, 8])}, {"y": ("float32", [ROWS, 8])}, order=ORDER, **weights)


def _laid(data: bytes, order: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> bytes:
    """The file with its weights' bytes in another order."""
    header, body = split(data)
    rows = [w for w in header["weights"] if "at" in w]
    moved = body[: min(w["at"] for w in rows)]
    for w in order(rows):
        content = body[w["at"] : w["at"] + w["bytes"]]
        w["at"] = len(moved)
        moved += content + bytes(-len(content) % 256)
    return join(header, moved)


def _with_unused(data: bytes) -> bytes:
    """The file with weights at its end that no step touches, of the others' size."""
    header, body = split(data)
    words = bytearray(body)
    for program in header["programs"]:
        at = program["code"][0] + 4 * 17
        words[at : at + 4] = (int.from_bytes(words[at : at + 4], "little") + 2).to_bytes(4, "little")
    nan = np.full(ROWS * 8, np.nan, np.float32).tobytes()
    for name in ("unused", "unused too"):
        header["weights"].append({"name": name, "dtype": "float32", "shape": [ROWS * 8], "bytes": len(nan), "at": len(words)})
        words += nan
    return join(header, bytes(words))


def _bad_index(data: bytes) -> bytes:
    header, body = split(data)
    order = next(w for w in header["weights"] if w["name"] == "order")
    return join(header, body[: order["at"]] + (ROWS + 5).to_bytes(8, "little") + body[order["at"] + 8 :])


@pytest.fixture(scope="module")
def folder(player_models: Path) -> Path:
    root = player_models / "init"
    root.mkdir()
    _write(root / "turned.ponnx")
    good = (root / "turned.ponnx").read_bytes()
    header, body = split(good)
    assert header["init"] is not None
    assert sum("at" in w for w in header["weights"]) == LAYERS + 1
    (root / "last first.ponnx").write_bytes(_laid(good, lambda rows: rows[::-1]))
    (root / "mixed.ponnx").write_bytes(_laid(good, lambda rows: rows[1::2] + rows[::2]))
    (root / "unused.ponnx").write_bytes(_with_unused(good))
    (root / "bad.ponnx").write_bytes(_bad_index(_laid(good, lambda rows: sorted(rows, key=lambda w: w["name"] != "order"))))
    pyonnx_wasm.save(pyonnx_wasm.compile(root / "turned.onnx"), root / "thin.ponnx", thin=True)
    header, body = split(_laid(good, lambda rows: rows[::-1]))
    for k, w in enumerate(w for w in header["weights"] if "at" in w):
        if k % 3:
            w["from"] = [k % 2, w.pop("at") + 7]
    header["files"] = ["one.bin", "two.bin"]
    for name in header["files"]:
        (root / name).write_bytes(b"?" * 7 + body)
    (root / "several.ponnx").write_bytes(join(header, body))
    return root


@pytest.fixture
def loading(run: Run, folder: Path) -> Run:
    """Runs JavaScript beside GATED; `arg` has what the test gives."""
    return lambda body, **arg: run(GATED + body, {"rows": ROWS, **arg})


@pytest.mark.parametrize("worker", [True, False])
@pytest.mark.parametrize("name", ["turned", "last first", "mixed", "unused", "thin", "several"])
def test_weights_in_any_order(loading: Run, name: str, worker: bool) -> None:
    """From an address, and with every weight in many chunks."""
    got = loading(
        """
      const url = `init/${arg.name}.ponnx`;
      const externalData = ["turned.onnx", "one.bin", "two.bin"].map((path) => ({ path, data: new URL(`init/${path}`, location).href }));
      const options = { worker: arg.worker };
      const { stream } = await gated(url, Infinity, "go on", 4099);
      return [await sums(await create(url, options)), await sums(await create(stream, { ...options, externalData }))];
    """,
        name=name,
        worker=worker,
    )
    for y in got:
        np.testing.assert_allclose(np.reshape(json.loads(y), (ROWS, 8)), EXPECTED, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("worker", [True, False])
def test_steps_run_before_the_file_has_come(loading: Run, worker: bool) -> None:
    """A step that fails ends the load while the rest of the file has not come, and nothing is left of it."""
    said, cancelled, taken, sizes, y = loading(
        """
      const keeper = await create("init/turned.ponnx", { worker: arg.worker });
      const said = [], sizes = [];
      let gate;
      for (let i = 0; i < 6; i++) {
        gate = await gated("init/bad.ponnx", arg.stop);
        said.push(await error(create(gate.stream, { worker: arg.worker })));
        sizes.push(await keeper.memoryBytes());
      }
      await until(() => gate.cancelled);
      return [said, gate.cancelled, gate.taken, sizes, await sums(keeper)];
    """,
        worker=worker,
        stop=BYTES // 2,
    )
    for message in said:
        assert "turn_0" in message
        assert "out of range" in message
    assert cancelled
    assert taken <= BYTES // 2
    assert sizes[-1] == sizes[0]
    np.testing.assert_allclose(np.reshape(json.loads(y), (ROWS, 8)), EXPECTED, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("worker", [True, False])
@pytest.mark.parametrize(
    ("then", "message"), [("end", "the file is truncated: it ends after"), ("break", "the transfer broke off: the line is dead")]
)
def test_broken_off_after_steps_ran(loading: Run, worker: bool, then: str, message: str) -> None:
    said, sizes, y = loading(
        """
      const { worker, then } = arg;
      const keeper = await create("init/turned.ponnx", { worker });
      const said = [], sizes = [];
      for (let i = 0; i < 6; i++) {
        const gate = await gated("init/last first.ponnx", arg.stop + 977 * i, then);
        gate.open();
        said.push(await error(create(gate.stream, { worker })));
        sizes.push(await keeper.memoryBytes());
      }
      return [said, sizes, await sums(keeper)];
    """,
        worker=worker,
        then=then,
        stop=BYTES - 100_000,
    )
    for text in said:
        assert message in text
    assert sizes[-1] == sizes[0]
    np.testing.assert_allclose(np.reshape(json.loads(y), (ROWS, 8)), EXPECTED, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("worker", [True, False])
def test_two_load_at_once(loading: Run, worker: bool) -> None:
    """Each stops in the middle and goes on once the other has come as far."""
    first, second, broken = loading(
        """
      const { worker, stop } = arg;
      const gates = [];
      for (const [name, then] of [["turned"], ["mixed"], ["unused", "end"]]) gates.push(await gated(`init/${name}.ponnx`, stop, then));
      const sessions = gates.map(({ stream }) => create(stream, { worker }));
      const [a, b, c] = [sessions[0], sessions[1], error(sessions[2])];
      await until(() => gates.every(({ taken }) => taken >= stop));
      for (const { open } of gates.reverse()) open();
      return [await sums(await a), await sums(await b), await c];
    """,
        worker=worker,
        stop=BYTES // 2,
    )
    for y in (first, second):
        np.testing.assert_allclose(np.reshape(json.loads(y), (ROWS, 8)), EXPECTED, rtol=1e-5, atol=1e-5)
    assert "the file is truncated" in broken


def test_progress_is_told_to_the_end(loading: Run) -> None:
    steps = loading("const seen = []; await create('init/thin.ponnx', { onProgress: (p) => seen.push(p) }); return seen")
    assert [s["phase"] for s in steps[-2:]] == ["init", "ready"]
    loaded = [s["loaded"] for s in steps]
    assert loaded == sorted(loaded)
    assert loaded[-1] == steps[-1]["total"]


class _Broken(BaseHTTPRequestHandler):
    """Says that a file is longer than what it sends of it."""

    data = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Content-Length", str(len(self.data)))
        self.end_headers()
        sent = len(self.data) if self.path == "/whole" else len(self.data) * 3 // 4
        for at in range(0, sent, 70_001):
            self.wfile.write(self.data[at : min(at + 70_001, sent)])
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def broken_server(folder: Path) -> Iterator[str]:
    _Broken.data = (folder / "turned.ponnx").read_bytes()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Broken) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("worker", [True, False])
def test_fetch_that_breaks_off(loading: Run, broken_server: str, worker: bool) -> None:
    said, sizes, y = loading(
        """
      const { worker, url } = arg;
      const keeper = await create(url + "whole", { worker });
      const said = [], sizes = [];
      for (let i = 0; i < 4; i++) {
        said.push(await error(create(url + "part", { worker })));
        sizes.push(await keeper.memoryBytes());
      }
      return [said, sizes, await sums(keeper)];
    """,
        worker=worker,
        url=broken_server,
    )
    for text in said:
        assert "the transfer broke off" in text
    assert sizes[-1] == sizes[0]
    np.testing.assert_allclose(np.reshape(json.loads(y), (ROWS, 8)), EXPECTED, rtol=1e-5, atol=1e-5)
