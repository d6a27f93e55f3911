"""What the player refuses, in a real Chromium, and what it says."""

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from player_site import DIST, Run, join, split
from playwright.sync_api import Page, Route

import pyonnx_wasm
from pyonnx_wasm.program import ProgramView
from pyonnx_wasm.runtimes import build

pytestmark = pytest.mark.browser


BAD_FEEDS = {
    "none": ("undefined", "feeds must be an object of tensors"),
    "array": ("[]", "feeds must be an object of tensors"),
    "missing": ("{ a }", 'input "b" is missing; it takes float32 [n, m]'),
    "unknown": ("{ a, b: a, c: a }", 'there is no input "c"; the inputs are "a", "b"'),
    "not a tensor": ("{ a, b: [1, 2] }", 'input "b": the feed is not a Tensor; it takes float32 [n, m]'),
    "null": ("{ a, b: null }", 'input "b": the feed is not a Tensor'),
    "type": ('{ a, b: new Tensor("float64", [1, 2], [1, 2]) }', 'input "b": the feed is float64; it takes float32'),
    "rank": ('{ a, b: new Tensor("float32", [1, 2]) }', 'input "b": the feed has rank 1 ([2]); it takes float32 [n, m]'),
    "symbol": ("{ a, b: a.reshape([2, 1]) }", 'input "b": dim 0 ("n") is 2, but input "a" has n = 1'),
    "disposed": ("{ a, b: (() => { const t = a.reshape([1, 2]); t.dispose(); return t; })() }", "the tensor was disposed"),
    "dims changed in place": (
        '{ a, b: { type: "float32", data: new Float32Array(2), dims: [1, 2e9] } }',
        "dims [1,2000000000] do not suit its data",
    ),
    "dims of nonsense": ('{ a, b: { type: "float32", data: new Float32Array(2), dims: [-1, -2] } }', "the feed is not a Tensor"),
}


@pytest.mark.parametrize(("feeds", "message"), BAD_FEEDS.values(), ids=BAD_FEEDS)
def test_bad_feeds(run: Run, feeds: str, message: str) -> None:
    got, after = run(f"""
      const s = await create("pair.ponnx");
      const a = new Tensor("float32", [1, 2], [1, 2]);
      return [await error((async () => s.run({feeds}))()), plain(await s.run({{ a, b: a }})).p.data];
    """)
    assert message in got
    assert after == [1, 4]


def test_errors_of_a_run_name_the_node_and_the_session_lives_on(run: Run) -> None:
    got = run("""
      const s = await create("pick.ponnx");
      const feeds = (i) => ({ x: new Tensor("float32", [1, 2, 3, 4, 5]), i: new Tensor("int64", i) });
      return [await error(s.run(feeds([0, 5]))), await error(s.run(feeds([-6n]))), plain(await s.run(feeds([4, -5]))).y.data];
    """)
    assert all(message.startswith("node pick_0: ") for message in got[:2])
    assert got[2] == [5, 1]


OPTIONS = {
    "webgpu only": ('{ executionProviders: ["webgpu"] }', "has no part for GPUs: compile it again, with --gpu"),
    "webnn object": ('{ executionProviders: [{ name: "webnn" }] }', 'only "webgpu" and "wasm" are available'),
    "gpu output": ('{ preferredOutputLocation: { y: "gpu-buffer" } }', 'preferredOutputLocation "gpu-buffer"'),
    "negative dim": ("{ freeDimensionOverrides: { n: -3 } }", 'freeDimensionOverrides: "n" must be an integer >= 0'),
    "null": ("null", "the session's options must be an object"),
}


@pytest.mark.parametrize(("options", "message"), OPTIONS.values(), ids=OPTIONS)
def test_bad_options(run: Run, options: str, message: str) -> None:
    assert message in run(f'return error(create("dense.ponnx", {options}))')


def test_overrides_bind_sizes(run: Run) -> None:
    shape, bad, good = run("""
      const s = await create("dense.ponnx", { freeDimensionOverrides: { n: 3 } });
      return [s.inputMetadata[0].shape, await error(s.run({ x: x(2) })), (await s.run({ x: x(3) })).y.dims];
    """)
    assert (shape, good) == ([3, 67], [3, 31])
    assert bad == 'input "x": dim 0 is 2, expected 3; it takes float32 [3, 67]'


def bad_files() -> dict[str, tuple[Callable[[bytes], bytes], str]]:
    def edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
        def apply(data: bytes) -> bytes:
            header, body = split(data)
            change(header)
            return join(header, body)

        return apply

    def weight(**keys: Any) -> Callable[[bytes], bytes]:
        return edit(lambda h: h["weights"][0].update(keys))

    def words(change: Callable[[np.ndarray], None]) -> Callable[[bytes], bytes]:
        def apply(data: bytes) -> bytes:
            header, body = split(data)
            at, size = header["programs"][0]["code"]
            code = np.frombuffer(body[at : at + size], np.int32).copy()
            change(code)
            return join(header, body[:at] + code.tobytes() + body[at + size :])

        return apply

    def set_word(index: int, value: int) -> Callable[[bytes], bytes]:
        return words(lambda code: code.__setitem__(index, value))

    return {
        "empty": (lambda d: b"", "the file is empty"),
        "three bytes": (lambda d: d[:3], "the file is truncated: it has only 3 bytes"),
        "cut header": (lambda d: d[:100], "the file is truncated: it ends after 100 of"),
        "cut data": (lambda d: d[:-4000], "the file is truncated: it ends after"),
        "zeros": (lambda d: bytes(1000), "this is not a compiled model"),
        "text": (lambda d: b"hello world, this is text", "this is not a compiled model"),
        "html": (lambda d: b"\n<!DOCTYPE html><html></html>", "the server sent an HTML page, not a model"),
        "zip": (lambda d: b"PK\x03\x04" + bytes(100), "this is a zip archive"),
        "gzip": (lambda d: b"\x1f\x8b\x08" + bytes(100), "this is a gzip file"),
        "lfs": (lambda d: b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "this is a Git LFS pointer"),
        "ort": (lambda d: b"\x20\0\0\0ORTM" + bytes(100), "this is an .ort file"),
        "json": (lambda d: b'{"a": 1}' + bytes(100), "this is not a compiled model"),
        "safetensors": (lambda d: join({"__metadata__": {"format": "pt"}}, b""), "a safetensors file has no program"),
        "absurd header length": (lambda d: (2**62).to_bytes(8, "little") + d[8:], "this is not a compiled model"),
        "no json": (lambda d: join("{nonsense", b""), "the header is damaged"),
        "no utf-8": (lambda d: d[:9] + b"\xff" + d[10:], "the header is damaged"),
        "list": (lambda d: d[:8] + b"{]" + d[10:], "the header is damaged"),
        "version": (
            edit(lambda h: h["__metadata__"].update(version="2")),
            "format version 2; this player reads version 1: compile it again",
        ),
        "no inputs": (edit(lambda h: h.pop("inputs")), 'the header is damaged: "inputs" must be a list'),
        "input type": (
            edit(lambda h: h["inputs"][0].update(dtype="complex64")),
            '"x" has type complex64, which this player does not support',
        ),
        "input rank": (edit(lambda h: h["inputs"][0].update(shape=["n"])), "input 0 is a float32 of rank 1, which it does not take"),
        "target": (edit(lambda h: h["programs"][0].update(target="tpu")), 'target "tpu"'),
        "code outside": (edit(lambda h: h["programs"][0].update(code=[1 << 30, 64])), "the file is truncated"),
        "code of half words": (edit(lambda h: h["programs"][0].update(code=[0, 6])), "6 bytes are no list of words"),
        "negative offset": (weight(at=-256), "at must be an integer >= 0, not -256"),
        "fraction": (weight(at=0.5), "at must be an integer >= 0, not 0.5"),
        "shape and bytes": (weight(bytes=12), "is not 12 bytes"),
        "weight outside": (weight(at=1 << 40), "the file is truncated"),
        "absurd weight": (weight(shape=[1 << 45], bytes=1 << 47), "out of memory: weight"),
        "big weight": (weight(shape=[1 << 29], bytes=1 << 31), "the file is truncated"),
        "weight over itself": (edit(lambda h: (h["weights"][0].pop("at"), h["weights"][0].update(over=0))), "cannot lie over weight 0"),
        "no file": (edit(lambda h: (h["weights"][0].pop("at"), h["weights"][0].update({"from": [0, 0]}))), "there is no file 0"),
        "unknown step": (edit(lambda h: h["script"].append({"loop": 1})), 'this player knows only "run" steps, not "loop"'),
        "unknown program": (edit(lambda h: h["script"][0].update(run=9)), "there is no program 9"),
        "unknown slot": (edit(lambda h: h["script"][0].update({"in": [5]})), "slot 5 is not computed before"),
        "too few inputs": (edit(lambda h: h["script"][0].update({"in": []})), "its use has 0 and 1"),
        "results": (edit(lambda h: h.update(results=[])), "0 slots for 1 outputs"),
        "magic": (set_word(0, 1), "not a program"),
        "program version": (set_word(1, 99), "program version 99"),
        "word count": (set_word(2, 5), "the program says it has 5 words"),
        "tables outside": (set_word(16, 1 << 30), "the step table leaves the program"),
        "weight count": (set_word(17, 99), "weights"),
    }


BAD_FILES = bad_files()


@pytest.fixture(scope="module")
def refusals(open_page: Callable[..., Run], player_models: Path) -> dict[str, list[str | None]]:
    """What the player says to each of BAD_FILES, in a worker and in place."""
    (player_models / "bad").mkdir()
    good = (player_models / "dense.ponnx").read_bytes()
    for name, (damage, _) in BAD_FILES.items():
        (player_models / "bad" / name).write_bytes(damage(good))
    said = open_page()(
        """
      const attempt = async (name, worker) => {
        const s = await create("bad/" + name, { worker });
        await s.run({ x: new Tensor("float32", [1], [1]) });
      };
      const said = {};
      for (const name of arg) said[name] = [await error(attempt(name, true)), await error(attempt(name, false))];
      return said;
    """,
        list(BAD_FILES),
    )
    return dict(said)


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(refusals: dict[str, list[str | None]], name: str) -> None:
    for said in refusals[name]:
        assert said is not None
        assert BAD_FILES[name][1] in said


def test_other_kernel_abi_is_named(run: Run, player_models: Path) -> None:
    header, body = split((player_models / "dense.ponnx").read_bytes())
    at, size = header["programs"][0]["code"]
    code = np.frombuffer(body[at : at + size], np.int32).copy()
    name = bytes(code[code[4] + 2 :])[: code[code[4] + 1]].decode()
    code[code[4]] ^= 1
    data = join(header, body[:at] + code.tobytes() + body[at + size :])
    assert re.search(rf"\b{name}\b", run("return error(create(Uint8Array.from(arg)))", list(data)))


def test_onnx_file_without_a_compiler_says_what_is_missing(routed: Page, run: Run) -> None:
    routed.route("**/compiler.mjs*", lambda route: route.abort())
    message = run('Object.assign(env.pyodide, { indexURL: "/none/", wheelURL: "/none.whl" }); return error(create("dense.onnx"))')
    assert message.endswith("; or compile the model beforehand: pyonnx-wasm compile model.onnx")
    assert "dense.onnx: " in message


ADDRESSES = {
    "missing": ('"nothing.ponnx"', "nothing.ponnx: HTTP 404"),
    "page": ('"index.html"', "index.html: the server sent an HTML page, not a model"),
    "no server": ('"http://127.0.0.1:1/x.ponnx"', "http://127.0.0.1:1/x.ponnx: cannot be fetched"),
    "no address": ('"http://"', '"http://" is not an address'),
    "broken stream": ("new ReadableStream({ start(c) { c.error(new Error('cable cut')); } })", "the transfer broke off: cable cut"),
    "used Response": ('await fetch("dense.ponnx").then(async (r) => (await r.text(), r))', "was read before"),
    "stream of text": ("new ReadableStream({ start(c) { c.enqueue('text'); c.close(); } })", "must yield Uint8Array chunks"),
    "locked stream": ("(() => { const s = new ReadableStream(); s.getReader(); return s; })()", "is locked by another reader"),
    "number": ("42", "a model is an address, a Response, Blob"),
    "null": ("null", "a model is an address, a Response, Blob"),
    "undefined": ("undefined", "a model is an address, a Response, Blob"),
    "object": ("{}", "a model is an address, a Response, Blob"),
}


@pytest.mark.parametrize(("source", "message"), ADDRESSES.values(), ids=ADDRESSES)
def test_bad_sources(run: Run, source: str, message: str) -> None:
    for said in run(f"return [await error(create({source})), await error(create({source}, {{ worker: false }}))]"):
        assert message in said


def test_missing_core_is_told(open_page: Callable[..., Run], routed: Page) -> None:
    """A core that is not where the settings say is taken from beside the player; where that is missing too, the error says so."""
    run = open_page()
    warned: list[str] = []
    routed.on("console", lambda message: warned.append(message.text))
    assert run('env.wasm.wasmPaths = "/elsewhere/"; return (await create("dense.ponnx")).inputNames') == ["x"]
    cure = "/elsewhere/core-relaxed.wasm: HTTP 404; env.wasm.wasmPaths says where core.wasm and core-relaxed.wasm are; taking"
    assert any(cure in text for text in warned)
    routed.route("**/core*.wasm", lambda route: route.fulfill(status=404))
    message = open_page()('return error(create("dense.ponnx"))')
    routed.unroute_all()
    assert "/player/core-relaxed.wasm: HTTP 404; env.wasm.wasmPaths says where" in message
    assert open_page()('return (await create("dense.ponnx")).inputNames') == ["x"]


def _number(value: int) -> bytes:
    """As i32.const has it."""
    found = b""
    while not -64 <= value < 64:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value & 127])


@pytest.mark.parametrize("worker", [True, False], ids=["worker", "page"])
def test_a_core_of_another_version_says_so_where_it_refuses_a_model(
    open_page: Callable[..., Run], routed: Page, player_models: Path, worker: bool
) -> None:
    """Both builds and the cure are named; a core of the player's own build says only what is wrong with the file."""
    model = (player_models / "dense.ponnx").read_bytes()
    for row in ProgramView(pyonnx_wasm.load(player_models / "dense.ponnx").main.code).kernels:
        model = model.replace(struct.pack("<I", row.abi), struct.pack("<I", row.abi ^ 1))
    own = build.stamp()
    other = own ^ 1

    def another(route: Route) -> None:
        core = (DIST / route.request.url.rpartition("/")[2]).read_bytes()
        assert core.count(_number(own)) == 1
        route.fulfill(body=core.replace(_number(own), _number(other)), content_type="application/wasm")

    ask = f"return error(InferenceSession.create(new Uint8Array(arg), {{ worker: {str(worker).lower()} }}))"
    refusal = "has another ABI here: compile the model again"
    assert open_page()(ask, list(model)).endswith(refusal)
    routed.route("**/core*.wasm", another)
    told = open_page()(ask, list(model))
    cure = "take core.wasm and the player's files from one version of pyonnx-wasm"
    versions = f"the core is of build {other}, this player (version {pyonnx_wasm.__version__}) goes with build {own}"
    assert told.endswith(f"{refusal}; {versions}: {cure}")


def test_damaged_files_never_hang_or_crash(run: Run, player_models: Path) -> None:
    seed = 20
    rng = np.random.default_rng(seed)
    data = (player_models / "dense.ponnx").read_bytes()
    header_end = 8 + int.from_bytes(data[:8], "little")
    code_end = header_end + split(data)[0]["programs"][0]["code"][1]
    cases = []
    for _ in range(300):
        start, end = [(0, header_end), (header_end, code_end), (0, 64)][rng.integers(3)]
        at = rng.integers(start, end, rng.integers(1, 4))
        cases.append([[int(i), int(rng.integers(256))] for i in at])
    outcomes = run("""
      const data = await bytes("dense.ponnx");
      const outcomes = [];
      for (const edits of arg) {
        const damaged = data.slice();
        for (const [at, value] of edits) damaged[at] = value;
        try {
          const s = await create(damaged);
          await s.run({ x: x(3) }).finally(() => s.release());
          outcomes.push("ran");
        } catch (e) { outcomes.push(e.name + ": " + e.message); }
      }
      return outcomes;
    """, cases)  # fmt: skip
    assert len(outcomes) == len(cases)
    assert not [o for o in outcomes if "CoreLost" in o], f"seed {seed}"
    assert {"ran"} < set(outcomes)


BAD_TENSORS = {
    'new Tensor("float32", [1, 2], [3])': "need 3 elements, data has 2",
    'new Tensor("float32", [1], [-1])': "dims [-1] must be integers >= 0",
    'new Tensor("float32", [1], [0.5])': "dims [0.5] must be integers >= 0",
    'new Tensor("float32", [1], 1)': "dims must be an array",
    'new Tensor("float32", new Float64Array(1))': "must be a Float32Array, got Float64Array",
    'new Tensor("float32", "abc")': "must be a Float32Array or an array",
    'new Tensor("string", [1])': "string data must be an array of strings",
    'new Tensor("string", new Uint8Array(1))': "string data must be an array of strings",
    "new Tensor([1, 2])": "need a type",
    'new Tensor("f32", [1])': 'unknown type "f32"',
    "new Tensor()": "must be a typed array",
    '(() => { const t = new Tensor("int8", [1]); t.dispose(); return t.data; })()': "was disposed",
    '(() => { new Tensor("int8", [1]).dims = [7]; })()': "need 7 elements, data has 1",
}


def test_bad_tensors(run: Run) -> None:
    for expression, message in BAD_TENSORS.items():
        said = run(f"try {{ {expression}; return null; }} catch (e) {{ return e.message; }}")
        assert message in (said or ""), expression
