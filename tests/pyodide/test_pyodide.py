"""`import pyonnx_wasm` in Pyodide, from the wheel, against the native core."""

import base64
import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import custom_models as custom
import numpy as np
import onnx
import pytest
from gguf_models import talking
from numpy.typing import NDArray
from onnx import TensorProto, helper
from playwright.sync_api import Browser

import pyonnx_wasm as ort
from pyonnx_wasm.bench.cases import Case
from pyonnx_wasm.generate import Generator
from pyonnx_wasm.testing import conformance, pyodide
from pyonnx_wasm.testing.browser import PlayerError
from pyonnx_wasm.testing.pyodide import Pyodide, PythonError, decoded, encoded
from tests.test_cancel import CASES as LONG

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "js/pages/digits/digits.onnx"
SMALL = {"batch": 2, "height": 64, "width": 32, "seq": 3, "past": 4}
ONE = {"height": 32, "width": 32}
MODELS = {
    "digits": DIGITS,
    "minilm": ROOT / "build/models/minilm.onnx",
    **{f"light_{n}": Path(onnx.__file__).parent / f"backend/test/data/light/light_{n}.onnx" for n in ("squeezenet", "resnet50")},
    **{path.stem: path for path in sorted((ROOT / "tests/data").glob("*.onnx"))},
}
SESSION = "import pyonnx_wasm as ort\ns = ort.InferenceSession({})\n"
RUN = "sent(s.run(None, received(given)))"


def address(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def close(got: list[NDArray[Any]], want: list[NDArray[Any]]) -> None:
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(g, w, rtol=1e-3, atol=1e-5 * np.abs(w).max(initial=1))


def graph(node: Any, inputs: dict[str, Any], outputs: dict[str, Any], opset: int = 17) -> str:
    """A model of one node, in base64; values are {name: (dtype, dims)}."""
    infos = [[helper.make_tensor_value_info(n, t, d) for n, (t, d) in side.items()] for side in (inputs, outputs)]
    model = helper.make_model(helper.make_graph([node], "g", *infos), opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return base64.b64encode(model.SerializeToString()).decode()


def test_needs_numpy_alone_and_imports_little(python: Pyodide) -> None:
    packages = python.run("import micropip, pyonnx_wasm\nlist(micropip.list())")
    assert {"numpy", "pyonnx-wasm"} <= set(packages) <= {"numpy", "pyonnx-wasm", "micropip"}
    version = json.loads((ROOT / "package.json").read_text())["version"]
    assert python.run("import pyonnx_wasm as ort\n[ort.__version__, ort.get_available_providers()]") == [version, ["wasm"]]


def test_strings(python: Pyodide) -> None:
    """Arrays of ``str`` in and out, sizes that are data, and what is no string."""
    split = helper.make_node("StringSplit", ["x"], ["y", "n"], delimiter="-")
    model = graph(split, {"x": (TensorProto.STRING, ["n"])}, {"y": (TensorProto.STRING, ["n", "k"]), "n": (TensorProto.INT64, ["n"])}, 20)
    got = python.run(f"""
import base64, numpy as np, pyonnx_wasm as ort

s = ort.InferenceSession(base64.b64decode({model!r}))
found = []
for x in (["a-b", "", "日本-𝄞-\\0"], np.array(["é"]), np.empty(0, object)):
    y, n = s.run(None, {{"x": x}})
    found.append([y.tolist(), str(y.dtype), n.tolist()])
for bad in (["a", None], ["\\ud800"], [b"\\xff"], [1.5]):
    try:
        s.run(None, {{"x": bad}})
    except ValueError as error:
        found.append(str(error))
found
""")
    assert got == [
        [[["a", "b", ""], ["", "", ""], ["日本", "𝄞", "\0"]], "object", [2, 1, 3]],
        [[["é"]], "object", [1]],
        [[], "object", []],
        "input 'x' takes strings, element 1 is None (NoneType)",
        "input 'x': element 0 holds a lone surrogate at character 0",
        "input 'x': element 0 is no UTF-8: invalid start byte at byte 0",
        "input 'x' takes strings, element 0 is 1.5 (float)",
    ]


def test_a_program_written_for_onnxruntime(python: Pyodide, onnxruntime_wheel: Path) -> None:
    """``import onnxruntime``, which Pyodide does not have, after installing one small wheel."""
    said = python.run(
        f"import zipfile, sys\nzipfile.ZipFile(await fetched('onnxruntime/{onnxruntime_wheel.name}')).extractall('/tmp/shim')\n"
        "sys.path.insert(0, '/tmp/shim')\n"
        "import numpy as np, onnxruntime as ort\n"
        "options = ort.SessionOptions()\n"
        "options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL\n"
        "session = ort.InferenceSession(await fetched('digits/digits.onnx'), options, providers=['CPUExecutionProvider'])\n"
        "name = session.get_inputs()[0].name\n"
        "binding = session.io_binding()\n"
        "binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 1, 8, 8), np.float32)))\n"
        "binding.bind_output('probabilities')\n"
        "session.run_with_iobinding(binding)\n"
        "[session.get_providers(), binding.get_outputs()[0].shape(), ort.get_device()]"
    )
    assert said == [["CPUExecutionProvider"], [2, 10], "CPU"]


@pytest.mark.parametrize("blocking", [True, False])
def test_digits(python: Pyodide, blocking: bool) -> None:
    name = python.run("await fetched('digits/digits.onnx')")
    x = np.random.default_rng(0).random((5, 1, 8, 8), np.float32)
    signature = "[[(v.name, v.shape, v.type) for v in vs] for vs in (s.get_inputs(), s.get_outputs())] + [s.get_providers()]"
    session = SESSION.format(repr(name))
    assert python.run(session + signature, blocking=blocking) == [
        [["ink", ["batch", 1, 8, 8], "tensor(float)"]],
        [["probabilities", ["batch", 10], "tensor(float)"]],
        ["wasm"],
    ]
    got = python.run(session + RUN, encoded({"ink": x}), blocking)
    close(decoded(got), ort.InferenceSession(DIGITS).run(None, {"ink": x}))


@pytest.mark.parametrize("name", MODELS)
def test_models_at_several_sizes_agree_with_cpu(python: Pyodide, name: str) -> None:
    native = ort.InferenceSession(MODELS[name])
    feeds = [Case(name, MODELS[name], sizes).feed(native.signature()[0]) for sizes in (ONE, SMALL, ONE)]
    code = SESSION.format(f"await fetched({address(MODELS[name])!r})") + "[sent(s.run(None, received(feed))) for feed in given]"
    for got, feed in zip(python.run(code, [encoded(feed) for feed in feeds]), feeds, strict=True):
        close(decoded(got), native.run(None, feed))


@pytest.mark.parametrize("name", MODELS)
def test_compiles_to_the_same_bytes_as_cpython(python: Pyodide, name: str, tmp_path: Path) -> None:
    ort.save(ort.compile(MODELS[name]), tmp_path / "m.ponnx")
    code = (
        "import hashlib\nimport pyonnx_wasm as ort\n"
        f"ort.save(ort.compile(await fetched({address(MODELS[name])!r})), 'm.ponnx')\n"
        "hashlib.sha256(open('m.ponnx', 'rb').read()).hexdigest()"
    )
    assert python.run(code) == hashlib.sha256((tmp_path / "m.ponnx").read_bytes()).hexdigest()


def test_compiled_files_and_bytes(python: Pyodide) -> None:
    x = np.random.default_rng(1).random((2, 1, 8, 8), np.float32)
    want = ort.InferenceSession(DIGITS).run(None, {"ink": x})
    load = (
        "import pyonnx_wasm as ort\nname = await fetched('digits/digits.onnx')\nort.save(ort.compile(name), 'd.ponnx')\n"
        "ort.save(ort.compile(name), 'models/thin.ponnx', thin=True)\nread = lambda n: open(n, 'rb').read()\n"
        "sources = [name, read(name), 'd.ponnx', read('d.ponnx'), 'models/thin.ponnx']\n"
    )
    for got in python.run(load + "[sent(ort.InferenceSession(m).run(None, received(given))) for m in sources]", encoded({"ink": x})):
        close(decoded(got), want)


def test_conformance(python: Pyodide) -> None:
    """Every ninth case of the suite, of those whose values are tensors of numbers, compiled in Pyodide."""
    every = [c for c in conformance.cases() if all(map(of_numbers, (*c.feeds.values(), *c.expected.values())))]
    chosen = every[::9]
    assert len(chosen) >= 200
    failed: conformance.Results = {}
    for start in range(0, len(chosen), 50):
        batch = chosen[start : start + 50]
        jobs = [{"model": base64.b64encode(c.model).decode(), "feeds": encodable(c)} for c in batch]
        for case, answer in zip(batch, python.run(CASES, jobs), strict=True):
            try:
                if "error" in answer:
                    raise PlayerError(answer["error"])
                conformance.compare(case, list(zip(answer["types"], decoded(answer["outputs"]), strict=True)))
            except (PlayerError, conformance.Mismatch) as error:
                failed[case.name] = conformance.reason(error)
    assert not conformance.against_list("wasm", failed, [c.name for c in chosen])


CASES = """
import pyonnx_wasm as ort
def one(job):
    try:
        s = ort.InferenceSession(base64.b64decode(job["model"]))
        names = {i.name for i in s.get_inputs()}
        outputs = s.run(None, {n: a for n, a in received(job["feeds"]).items() if n in names})
        return {"outputs": sent(outputs), "types": [o.dtype.name for o in s.signature()[1]]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
[one(job) for job in given]
"""


def of_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind not in "OUS"


def encodable(case: conformance.Case) -> list[dict[str, Any]]:
    """The feeds; element types that numpy lacks as bits."""
    return encoded({n: a if a.dtype.isbuiltin == 1 else a.view(f"u{a.itemsize}") for n, a in case.feeds.items()})


def test_constants_are_computed_by_the_core_that_is_here(python: Pyodide) -> None:
    """Keys and values of a LabelEncoder are tensors of strings, which the compiler reads."""
    [case] = [c for c in conformance.cases() if c.name == "test_ai_onnx_ml_label_encoder_tensor_mapping"]
    code = (
        "import pyonnx_wasm as ort\nimport numpy as np\ns = ort.InferenceSession(base64.b64decode(given))\n"
        "s.run(None, {s.get_inputs()[0].name: np.array(['a', 'b', 'd', 'c', 'g'], object)})[0].tolist()"
    )
    assert python.run(code, base64.b64encode(case.model).decode()) == next(iter(case.expected.values())).tolist()


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ("{}", "ValueError", "input 'ink' is missing; the model takes 'ink'"),
        ("{'ink': x, 'q': x}", "ValueError", "no input is named 'q'"),
        ("{'ink': x.astype('f8')}", "ValueError", "input 'ink' takes float32, got float64"),
        ("{'ink': x[0]}", "ValueError", "input 'ink' takes rank 4 .*, got shape .1, 8, 8."),
        ("{'ink': x[:, :, :7]}", "ValueError", "input 'ink': axis 2 must be 8"),
        ("{'ink': [['a']]}", "ValueError", "input 'ink' takes float32"),
    ],
)
def test_feeds_that_do_not_fit(python: Pyodide, change: str, kind: str, said: str) -> None:
    session = SESSION.format("await fetched('digits/digits.onnx')") + "x = np.zeros((2, 1, 8, 8), np.float32)\n"
    assert python.run(f"{session}try: s.run(None, {change})\nexcept {kind} as e: said = str(e)\nok = s.run(None, {{'ink': x}})\nsaid")
    with pytest.raises(PythonError, match=f"{kind}: {said}"):
        python.run(f"{session}s.run(None, {change})")


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        ("ort.InferenceSession('missing.onnx')", "FileNotFoundError", "missing.onnx"),
        ("ort.InferenceSession(b'')", "ReadError", "empty"),
        ("ort.InferenceSession(b'<!doctype html>')", "ReadError", "web page"),
        ("ort.InferenceSession(open(await fetched('digits/digits.onnx'), 'rb').read()[:-999])", "ReadError", ""),
        ("ort.InferenceSession(b'', providers=['webgpu'])", "ValueError", "webgpu.* available: wasm; this browser has no WebGPU"),
        ("ort.InferenceSession(b'', providers=['tpu'])", "ValueError", "no backend of .'tpu'. is available here; available: wasm"),
    ],
)
def test_models_that_do_not_load(python: Pyodide, code: str, kind: str, said: str) -> None:
    with pytest.raises(PythonError, match=f"{kind}: .*{said}"):
        python.run(f"import pyonnx_wasm as ort\n{code}")


def test_damaged_programs_are_refused_and_leave_nothing(python: Pyodide) -> None:
    code = (
        "import pyonnx_wasm as ort\nfrom pyonnx_wasm.runtimes import pyodide\nfrom pyonnx_wasm.runtimes.errors import CoreError\n"
        "c = ort.compile(await fetched('digits/digits.onnx'))\nc.main.code = c.main.code.copy()\nc.main.code[given] ^= 0x5555\n"
        "try: pyodide.Executor(c.main, c.init, c.weights)\nexcept CoreError as e: said = e.code\nsaid"
    )
    assert [python.run(code, word) for word in (0, 1, 2, 14, 16)] == [1] * 5


def test_errors_of_the_core_read_as_on_cpu_and_the_session_goes_on(python: Pyodide) -> None:
    pick = graph(
        helper.make_node("Gather", ["x", "i"], ["y"], name="pick"),
        {"x": (TensorProto.FLOAT, [5]), "i": (TensorProto.INT64, ["k"])},
        {"y": (TensorProto.FLOAT, ["k"])},
    )
    x, bad, good = np.arange(5, dtype=np.float32), np.array([9]), np.array([4, 0])
    with pytest.raises(RuntimeError) as native:
        ort.InferenceSession(base64.b64decode(pick)).run(None, {"x": x, "i": bad})
    code = SESSION.format("base64.b64decode(given[0])") + (
        "from pyonnx_wasm.runtimes.errors import CoreError\ntry: s.run(None, received(given[1]))\n"
        "except CoreError as e: said = [e.code, e.step, e.origin, e.text, str(e)]\n[said, sent(s.run(None, received(given[2])))]"
    )
    said, after = python.run(code, [pick, encoded({"x": x, "i": bad}), encoded({"x": x, "i": good})])
    error: Any = native.value
    assert said == [error.code, error.step, error.origin, error.text, str(error)]
    close(decoded(after), [x[good]])


def test_memory_that_cannot_be_had_is_an_error(python: Pyodide) -> None:
    huge = graph(
        helper.make_node("Expand", ["x", "shape"], ["y"], name="grow"),
        {"x": (TensorProto.FLOAT, [1]), "shape": (TensorProto.INT64, [1])},
        {"y": (TensorProto.FLOAT, ["n"])},
    )
    code = SESSION.format("base64.b64decode(given)") + (
        "x, grown = np.ones(1, np.float32), lambda n: {'x': x, 'shape': np.array([n])}\nsaid = ''\n"
        "try: s.run(None, grown(1 << 40))\nexcept RuntimeError as e: said = str(e)\n"
        "[said, s.run(None, grown(3))[0].tolist()]"
    )
    said, after = python.run(code, huge)
    assert "step 0 (copy)" in said
    assert "a buffer of 4398046511104 bytes" in said
    assert after == [1.0, 1.0, 1.0]


def test_sizes_that_depend_on_contents(python: Pyodide) -> None:
    grow = graph(
        helper.make_node("Expand", ["x", "shape"], ["y"]),
        {"x": (TensorProto.FLOAT, [1]), "shape": (TensorProto.INT64, [1])},
        {"y": (TensorProto.FLOAT, ["n"])},
    )
    code = "[s.run(None, {'x': np.ones(1, np.float32), 'shape': [n]})[0].shape for n in (2, 5, 0, 5)]"
    assert python.run(SESSION.format("base64.b64decode(given)") + code, grow) == [[2], [5], [0], [5]]


def test_run_async(python: Pyodide) -> None:
    code = SESSION.format("await fetched('digits/digits.onnx')") + (
        "import asyncio\nxs = [np.full((k, 1, 8, 8), k, np.float32) for k in range(1, 5)]\n"
        "got = await asyncio.gather(*(s.run_async(['probabilities'], {'ink': x}) for x in xs))\n"
        "all(np.array_equal(a[0], s.run(None, {'ink': x})[0]) for a, x in zip(got, xs))"
    )
    assert python.run(code) is True


def test_profile(python: Pyodide) -> None:
    x = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)
    code = SESSION.format("await fetched('digits/digits.onnx')") + "s.run(None, received(given))\ns.profile(received(given)).rows()"
    rows, native = python.run(code, encoded({"ink": x})), ort.InferenceSession(DIGITS).profile({"ink": x}).rows()
    assert [(r["name"], r["kernel"], r["bytes"]) for r in rows] == [(r["name"], r["kernel"], r["bytes"]) for r in native]
    assert {r["backend"] for r in rows} == {"wasm"}
    assert all(b["start_ms"] >= a["start_ms"] >= 0 for a, b in itertools.pairwise(rows))


def test_one_call_makes_a_run_and_inputs_may_lie_anywhere(python: Pyodide) -> None:
    code = SESSION.format("await fetched('digits/digits.onnx')") + (
        "class Counted:\n"
        "    def __init__(self, inner): self.inner, self.calls = inner, []\n"
        "    def __getattr__(self, name): self.calls.append(name); return getattr(self.inner, name)\n"
        "runtime = s._variants[()]\ncounted = runtime._js = Counted(runtime._js)\n"
        "base = np.random.default_rng(0).random((8, 2, 16, 8), np.float32)\n"
        "for x in (base[::2, :1, ::2], base[::2, :1, ::2].copy(), base[::2, :1, ::2].astype('>f4')):\n"
        "    (y,) = s.run(None, {'ink': x})\n"
        "    first = y if x.base is base else first\n"
        "    same = np.array_equal(y, first)\n"
        "[same, counted.calls]"
    )
    assert python.run(code) == [True, ["bind", "run", "run", "run"]]


def test_memory_goes_back(python: Pyodide) -> None:
    code = (
        "import pyodide_js\nimport pyonnx_wasm as ort\nfrom pyonnx_wasm.runtimes import pyodide\n"
        "name = await fetched('models/minilm.onnx')\n"
        "def held():\n    ort.InferenceSession(name)\n    return [pyodide_js._module.HEAPU8.length, pyodide.memory_bytes()]\n"
        "held()  # what other tests left goes with the first\n"
        "first = held()\nfor _ in range(3): last = held()\n[first, last]"
    )
    first, last = python.run(code)
    assert first == last


def test_heap_growth_between_runs(python: Pyodide) -> None:
    """Pyodide's memory moves when it grows; addresses and views of before must not be used."""
    code = SESSION.format("await fetched('digits/digits.onnx')") + (
        "import pyodide_js\nx = np.random.default_rng(0).random((2, 1, 8, 8), np.float32)\n(a,) = s.run(None, {'ink': x})\n"
        "before = pyodide_js._module.HEAPU8.length\nbig = np.ones(before + (64 << 20), np.uint8)\n(b,) = s.run(None, {'ink': x})\n"
        "grown = pyodide_js._module.HEAPU8.length > before\ndel big\n[grown, np.array_equal(a, b)]"
    )
    assert python.run(code) == [True, True]


def test_threads_where_the_page_is_isolated(isolated: Pyodide) -> None:
    native = ort.InferenceSession(MODELS["mobilenet"])
    arrays = Case("mobilenet", MODELS["mobilenet"], {"height": 96, "width": 96}).feed(native.signature()[0])
    code = (
        "import asyncio\nimport pyonnx_wasm as ort\nname = await fetched('data/mobilenet.onnx')\noptions = ort.SessionOptions()\n"
        "options.intra_op_num_threads = 2\ns = ort.InferenceSession(name, options)\nx = received(given)\nruns = [s.run(None, x)]\n"
        "await asyncio.sleep(0.5)\nruns += [s.run(None, x) for _ in range(5)]\n"
        "[s._variants[()].threads, sent(runs[0]), all(np.array_equal(a, b) for r in runs for a, b in zip(r, runs[0]))]"
    )
    threads, got, same = isolated.run(code, encoded(arrays))
    assert (threads, same) == (2, True)
    close(decoded(got), native.run(None, arrays))


def test_a_page_that_forbids_eval_is_told_the_cure(browser: Browser, wheel: Path) -> None:
    with (
        pyodide.opened(browser, wheel, policy="script-src 'self' 'wasm-unsafe-eval'", mounts={"/digits/": DIGITS.parent}) as python,
        pytest.raises(PythonError, match=r"ImportError: the page's Content-Security-Policy .* add 'unsafe-eval' to its script-src"),
    ):
        python.run(SESSION.format("await fetched('digits/digits.onnx')"))


def test_one_thread_elsewhere(python: Pyodide) -> None:
    code = (
        "import pyonnx_wasm as ort\noptions = ort.SessionOptions()\noptions.intra_op_num_threads = 3\n"
        "s = ort.InferenceSession(await fetched('digits/digits.onnx'), options)\n"
        "s.run(None, {'ink': np.zeros((1, 1, 8, 8), np.float32)})\ns._variants[()].threads"
    )
    assert python.run(code) == 1


def test_operators_of_ones_own(python: Pyodide) -> None:
    """Functions in numpy and kernels in WebAssembly, within loops too; what they raise, and what is missing."""
    with custom.registered():
        custom.register("python")
        models = [base64.b64encode(m).decode() for m in (custom.affine_model(), custom.positive_model(), custom.loop_model())]
    module = base64.b64encode(custom.compiled()).decode()
    got = python.run(f"""
import base64, numpy as np, pyonnx_wasm as ort
from pyonnx_wasm.callbacks import FUNCTIONS

x = np.arange(-4, 6, dtype=np.float32)
affine, positive, loop = (base64.b64decode(m) for m in {models!r})

def register(wasm, fails=False):
    @ort.callback("Affine", domain={custom.DOMAIN!r}, wasm=wasm)
    def run(x, shift=None, *, scale=2.0):
        if wasm: raise NotImplementedError
        if fails: raise KeyError("by itself")
        return np.float32(scale) * x + (0 if shift is None else shift)

    @ort.callback("Positive", domain={custom.DOMAIN!r}, wasm=wasm, outputs=[(None, 1), ("int64", ())])
    def pick(x):
        if wasm: raise NotImplementedError
        return x[x > 0], np.array((x > 0).sum(), np.int64)

def told(model, feeds):
    try:
        return [v.tolist() for v in ort.InferenceSession(model).run(None, feeds)]
    except Exception as error:
        return [type(error).__name__, str(error), *getattr(error, "__notes__", [])]

square = {{"x": x.reshape(5, 2), "s": np.float32(1)}}
found = []
for wasm in (None, base64.b64decode({module!r})):
    register(wasm)
    found.append([told(affine, square), told(positive, {{"x": x}}), told(loop, {{"x": x.reshape(5, 2), "k": np.array(3)}})])
register(None, fails=True)
found.append(told(affine, square))
FUNCTIONS.clear()
found.append(told(affine, square))
register(b"\\0asm\\1\\0\\0\\0bytes")
found.append(told(affine, square))
found
""")
    x = np.arange(-4, 6, dtype=np.float32)
    want = [[np.abs(1 - 3 * x).reshape(5, 2).tolist()], [x[x < 0].tolist(), 4], [(x / 8 + 1.75).reshape(5, 2).tolist()]]
    assert got[0] == want
    assert got[1] == want
    assert got[2] == ["KeyError", "'by itself'", "raised for node 'here' (test.kernels.Affine)"]
    assert got[3][0] == "CallbackError"
    assert "node 'here' (test.kernels.Affine): no function is registered here to run it" in got[3][1]
    assert "WebAssembly module 0 does not compile" in got[4][1]


def test_texts(python: Pyodide, tmp_path: Path) -> None:
    """A language model from a GGUF file writes what it writes in CPython."""
    path = talking(tmp_path / "tiny.gguf")
    got = python.run(
        """
import base64, pathlib
from pyonnx_wasm.generate import Generator, TextError

pathlib.Path("tiny.gguf").write_bytes(base64.b64decode(given))
generator = Generator("tiny.gguf")
text = generator.generate("the cat <s>sat.", max_new_tokens=12, seed=3)
told = "".join(token.text for token in text)
errors = []
for text in ("a\\ud800", ""):
    try:
        generator.ids(text)
    except ValueError as error:
        errors.append([type(error).__name__, str(error)])
[told, generator.encode("the cat <s>sat."), generator.tokenizer.id_to_token(0), generator.tokenizer.token_to_id("nothing"), errors]
""",
        base64.b64encode(path.read_bytes()).decode(),
    )
    own = Generator(path)
    assert got[:4] == [own("the cat <s>sat.", max_new_tokens=12, seed=3), own.encode("the cat <s>sat."), "<s>", None]
    assert got[4][0] == ["TextError", "the text has half a surrogate pair at 1, which is no character"]
    assert got[4][1] == ["ValueError", "the prompt is empty: give at least one token"]


INTERRUPTED = """
import base64, numpy as np, pyodide_js, pyonnx_wasm as ort
from pyodide.code import run_js
signals = run_js("new Uint8Array(1)")
pyodide_js.setInterruptBuffer(signals)
s = ort.InferenceSession(base64.b64decode(given), providers=["wasm"])
# Ctrl-C comes when the run has begun: at its first pause.
pause = run_js("(signals, check) => () => { signals[0] = 2; check(); }")(signals, pyodide_js.checkInterrupt)
s._variants[()]._js.pauseWith(pause)
try:
    s.run(None, {"n": np.array(1 << 50), "x": np.ones(3, np.float32)})
    told = "ended"
except KeyboardInterrupt:
    told = "interrupted"
[told, s.run(None, {"n": np.array(4), "x": np.ones(3, np.float32)})[0].tolist()]
"""


@pytest.mark.parametrize("case", ["loop", "nested"])
def test_ctrl_c_ends_a_run(python: Pyodide, case: str) -> None:
    data, _, _, want = LONG[case]
    assert python.run(INTERRUPTED, base64.b64encode(data).decode()) == ["interrupted", want.tolist()]
