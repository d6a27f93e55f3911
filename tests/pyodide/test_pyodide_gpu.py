"""WebGPU in Pyodide: blocking where the browser can suspend Python, awaited everywhere."""

import base64
import re
from pathlib import Path

import custom_models as custom
import numpy as np
import pytest

import pyonnx_wasm as ort
from pyonnx_wasm.runtimes.adapter import GpuError
from pyonnx_wasm.testing.pyodide import Pyodide, PythonError, decoded, encoded
from tests.test_cancel import CASES

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "js/pages/digits/digits.onnx"
OPEN = "import pyonnx_wasm as ort\ns = ort.InferenceSession(await fetched('digits/digits.onnx'), providers=['webgpu', 'wasm'])\n"


@pytest.mark.parametrize("call", ["s.run(None, feed)", "await s.run_async(None, feed)"])
def test_digits(gpu: Pyodide, call: str) -> None:
    feeds = [np.random.default_rng(n).uniform(0, 16, (n, 1, 8, 8)).astype(np.float32) for n in (3, 1, 7)]
    code = f"{OPEN}got = []\nfor one in given:\n    feed = received(one)\n    got.append(sent({call}))\n[s.providers, got]"
    providers, results = gpu.run(code, [encoded({"ink": x}) for x in feeds])
    assert providers == ["webgpu"]
    for x, got in zip(feeds, results, strict=True):
        (want,) = ort.InferenceSession(DIGITS).run(None, {"ink": x})
        (result,) = decoded(got)
        np.testing.assert_allclose(result, want, rtol=1e-3, atol=1e-4)


def test_profile_is_of_the_gpu(gpu: Pyodide) -> None:
    code = OPEN + "profile = s.profile(received(given))\nsorted({step.backend for step in profile})"
    assert gpu.run(code, encoded({"ink": np.zeros((1, 1, 8, 8), np.float32)})) == ["webgpu"]


def test_where_python_cannot_wait_the_error_names_the_cure(gpu: Pyodide) -> None:
    name = gpu.run("await fetched('digits/digits.onnx')")
    code = f"import pyonnx_wasm as ort\ns = ort.InferenceSession({name!r}, providers=['webgpu'])\ns.run(None, received(given))"
    with pytest.raises(PythonError, match=r"await session\.run_async"):
        gpu.run(code, encoded({"ink": np.zeros((1, 1, 8, 8), np.float32)}), blocking=True)


GIVEN_UP = """
import asyncio, base64, numpy as np, pyonnx_wasm as ort
s = ort.InferenceSession(base64.b64decode(given), providers=["webgpu"])
x = np.ones(3, np.float32)
task = asyncio.ensure_future(s.run_async(None, {"n": np.array(1 << 50), "x": x}))
await asyncio.sleep(0)
task.cancel()
try:
    await task
    told = "ended"
except asyncio.CancelledError:
    told = "cancelled"
[told, (await s.run_async(None, {"n": np.array(4), "x": x}))[0].tolist()]
"""


def test_a_task_that_is_cancelled_ends_its_run(gpu: Pyodide) -> None:
    data, _, _, want = CASES["loop"]
    assert gpu.run(GIVEN_UP, base64.b64encode(data).decode()) == ["cancelled", want.tolist()]


OWN = """
import base64, numpy as np, pyonnx_wasm as ort
from pyonnx_wasm.callbacks import FUNCTIONS

x = np.arange(-4, 6, dtype=np.float32)
feeds = [{"x": x.reshape(5, 2), "s": np.float32(1)}, {"x": x}, {"x": x.reshape(5, 2), "k": np.array(3)}]
sessions = [ort.InferenceSession(base64.b64decode(m), providers=["webgpu"]) for m in given]
fails = False

@ort.callback("Affine", domain=DOMAIN)
def affine(x, shift=None, *, scale=2.0):
    if fails: raise KeyError("by itself") from ValueError("the cause")
    return np.float32(scale) * x + np.float32(0 if shift is None else shift)

@ort.callback("Positive", domain=DOMAIN, outputs=[(None, 1), ("int64", ())])
def positive(x):
    return x[x > 0], np.array((x > 0).sum(), np.int64)

async def told(k, profiled=False):
    try:
        if profiled:
            return len(sessions[k].profile(feeds[k]))
        return [v.tolist() for v in CALL]
    except Exception as error:
        return [type(error).__name__, str(error), *getattr(error, "__notes__", []), repr(error.__cause__)]

found = [[await told(k) for k in range(3)]]
fails = True
found.append([await told(0), await told(2), await told(0, True)])
fails = False
kept = FUNCTIONS.pop((DOMAIN, "Affine"))
found.append(await told(0))
FUNCTIONS[DOMAIN, "Affine"] = lambda *given, **more: np.zeros(3, np.int32)
found.append(await told(0))
FUNCTIONS[DOMAIN, "Affine"] = kept
found.append(await told(0))
found
"""


@pytest.mark.parametrize("call", ["sessions[k].run(None, feeds[k])", "await sessions[k].run_async(None, feeds[k])"])
def test_functions_in_python_between_steps_of_the_gpu(gpu: Pyodide, call: str, tmp_path: Path) -> None:
    """Straight, with sizes that are data, within a loop; what they raise arrives with its class, its cause and the node."""
    models = []
    with custom.registered():
        custom.register("python")
        for model in (custom.affine_model, custom.positive_model, custom.loop_model):
            ort.save(ort.compile(model(), gpu=True), tmp_path / "a.ponnx")
            models.append(base64.b64encode((tmp_path / "a.ponnx").read_bytes()).decode())
    got = gpu.run(OWN.replace("DOMAIN", repr(custom.DOMAIN)).replace("CALL", call), models)
    x = np.arange(-4, 6, dtype=np.float32)
    want = [[np.abs(1 - 3 * x).reshape(5, 2).tolist()], [x[x < 0].tolist(), 4], [(x / 8 + 1.75).reshape(5, 2).tolist()]]
    assert got[0] == want
    here, inner = (
        ["KeyError", "'by itself'", f"raised for node {node!r} ({custom.DOMAIN}.Affine)", repr(ValueError("the cause"))]
        for node in ("here", "inner")
    )
    assert got[1] == [here, inner, here]
    assert got[2][0] == "CallbackError"
    assert f"node 'here' ({custom.DOMAIN}.Affine): no function is registered here to run it" in got[2][1]
    assert got[3][0] == "CallbackError"
    assert "output 0 of its function is int32 of rank 1, not float32 of rank 2" in got[3][1]
    assert got[4] == want[0]


LOST = """
import pyonnx_wasm as ort
from pyodide.code import run_js

name, feed = await fetched("digits/digits.onnx"), received(given)
run_js('''{
  const own = GPUDevice.prototype.createCommandEncoder;
  GPUDevice.prototype.createCommandEncoder = function (...given) { globalThis.device = this; return own.apply(this, given); };
}''')

async def told(make):
    try:
        return (await make().run_async(None, feed))[0].shape
    except Exception as error:
        return [type(error).__module__, type(error).__name__, str(error)]

fresh = lambda: ort.InferenceSession(name, providers=["webgpu"])
first = fresh()
found = [await told(lambda: first)]
run_js("device.destroy()")
found.append(await told(lambda: first))
run_js('''{
  const own = GPUDevice.prototype.createShaderModule;
  GPUDevice.prototype.createShaderModule = function (given) { return own.call(this, { ...given, code: given.code + "!" }); };
  globalThis.mend = () => { GPUDevice.prototype.createShaderModule = own; };
}''')
found.append(await told(fresh))
run_js("mend()")
found.append(await told(fresh))
found
"""


def test_what_the_gpu_refuses_is_told_as_elsewhere(gpu: Pyodide) -> None:
    """A device that is lost, a shader that it finds invalid; sessions made afterwards work."""
    first, lost, invalid, fresh = gpu.run(LOST, encoded({"ink": np.zeros((1, 1, 8, 8), np.float32)}))
    assert first == fresh == [1, 10]
    assert lost[:2] == invalid[:2] == [GpuError.__module__, "GpuError"]
    assert re.search("the GPU was lost .*create the session again", lost[2])
    assert re.match("the model: kernel map: the shader does not compile: line", invalid[2])
