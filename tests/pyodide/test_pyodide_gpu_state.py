"""What stays on the GPU of a page from run to run, and what is read from there."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_models import talking
from onnx import parser

from pyonnx_wasm.generate import Generator
from pyonnx_wasm.testing.pyodide import Pyodide

pytestmark = pytest.mark.browser
PROMPT = "the cat <s>sat."
CONCAT = """<ir_version: 8, opset_import: ["" : 12]> g (float[b, n, 300] past, float[b, m, 300] x)
  => (float[b, k, 300] present, float[b, 300] y, float[b, k, 300] z)
{ present = Concat<axis = 1>(past, x)  y = ReduceSum<axes = [1], keepdims = 0>(present)  z = Exp(present) }"""

# `read()` tells how many bytes were read of the GPU since it was asked last.
COUNTED = """
import base64, gc, pathlib
import numpy as np, pyonnx_wasm as ort
from pyodide.code import run_js
counts = run_js('''{
  const { mapAsync } = GPUBuffer.prototype, counts = { read: 0 };
  GPUBuffer.prototype.mapAsync = function (mode, ...more) {
    if (mode === GPUMapMode.READ) counts.read += more[1] ?? this.size;
    return mapAsync.call(this, mode, ...more);
  };
  counts;
}''')
def read():
    found, counts.read = counts.read, 0
    return found
"""
GENERATED = (
    COUNTED
    + """
from pyonnx_wasm.generate import Generator
pathlib.Path("tiny.gguf").write_bytes(base64.b64decode(given))
generator = Generator("tiny.gguf", providers=["webgpu"])
told, bytes_read = [], []
async def written(text, **settings):
    read()
    found, of = [], []
    LOOP generator.generate(text, temperature=0, **settings):
        found.append(token.id)
        of.append(read())
    told.append(found), bytes_read.append(of)
await written("PROMPT", max_new_tokens=12)
await written("PROMPT", max_new_tokens=12, seed=3)
again = [*generator.encode("PROMPT"), *told[0][:3], 7]
await written(again, max_new_tokens=4)
held = [v.held is not None for v in generator.decoder.memory.values.values()]
[generator.decoder.session.providers, told, bytes_read, all(held) and len(held)]
""".replace("PROMPT", PROMPT)
)


@pytest.mark.parametrize("loop", ["for token in", "async for token in", "async for token in, blocked"])
def test_a_decoders_cache_stays(gpu: Pyodide, loop: str, tmp_path: Path) -> None:
    """Of each token the logits alone are read, of a text that begins as another the cache once; also where Python cannot wait."""
    loop, _, blocked = loop.partition(", ")
    path, code = talking(tmp_path / "tiny.gguf"), GENERATED.replace("LOOP", loop)
    if blocked:
        code = f"import pyodide.ffi\npyodide.ffi.can_run_sync, own = lambda: False, pyodide.ffi.can_run_sync\ntry:\n{_indented(code)}"
        code += "finally:\n    pyodide.ffi.can_run_sync = own\nfound"
    providers, told, bytes_read, held = gpu.run(code, base64.b64encode(path.read_bytes()).decode())
    assert providers == ["webgpu"]
    own = Generator(path)
    words = own.decoder.words
    assert words is not None
    again = [*own.encode(PROMPT), *told[0][:3], 7]
    want = [[t.id for t in own.generate(text, temperature=0, max_new_tokens=n)] for text, n in ((PROMPT, 12), (PROMPT, 12), (again, 4))]
    assert told == want
    assert held == 4
    for text in bytes_read:
        assert len(text) > 1
        assert max(text[1:]) <= 4 * words + 16
    cache = 4 * 2 * 2 * 16 * 4  # bytes of a token
    assert bytes_read[2][0] > cache * len(own.encode(PROMPT))


def _indented(code: str) -> str:
    *lines, last = code.strip().splitlines()
    return "".join(f"    {line}\n" for line in [*lines, f"found = {last}"])


BOUND = (
    COUNTED
    + """
s = ort.InferenceSession(base64.b64decode(given), providers=["webgpu"])
other = ort.InferenceSession(base64.b64decode(given), providers=["webgpu"])
x = np.arange(600, dtype=np.float32).reshape(1, 2, 300) / 600
empty = np.zeros((1, 0, 300), np.float32)
found = {}

(y,) = s.run(["y"], {"past": empty, "x": x})
found["one of three"] = [read(), np.array_equal(y, x.sum(1))]
(y,) = await s.run_async(["y"], {"past": empty, "x": x})
found["one of three, awaited"] = [read(), np.array_equal(y, x.sum(1))]

binding = s.io_binding()
binding.bind_output("present"), binding.bind_output("y"), binding.bind_output("z", "webgpu")
past, steps = ort.OrtValue.ortvalue_from_numpy(empty), []
for k in range(70):
    binding.bind_ortvalue_input("past", past)
    binding.bind_cpu_input("x", x + k)
    s.run_with_iobinding(binding)
    past, y, z = binding.get_outputs()
    steps.append(read())
    if k == 1:
        older, known = past, past.numpy().copy()
        read()
found["steps"] = [max(steps), min(steps)]
rows = np.concatenate([x + k for k in range(70)], 1)
found["values"] = [bool(np.array_equal(past.numpy(), rows)), bool(np.allclose(y.numpy(), rows.sum(1))), past.shape()]
read()
found["away"] = [bool(np.allclose(z.numpy(), np.exp(rows))), read()]
found["older"] = bool(np.array_equal(older.numpy(), known))

def step(session, value):
    present, y, z = session.run_with_ort_values(None, {"past": value, "x": ort.OrtValue.ortvalue_from_numpy(x)})
    return present
found["again"] = [bool(np.array_equal(step(of, value).numpy(), np.concatenate([rows[:, :n], x], 1)))
    for of, value, n in ((s, older, 4), (s, past, 140), (other, past, 140), (s, past, 140))]
try:
    other.io_binding().bind_output("y", "cuda")
except ValueError as error:
    found["cuda"] = str(error)
found
"""
)


def test_what_is_bound_and_not_bound(gpu: Pyodide) -> None:
    """What nobody asks for is not read; a state, and what is bound to the GPU, when it is asked for; values stay what they were."""
    model = parser.parse_model(CONCAT).SerializeToString()
    found: dict[str, Any] = gpu.run(BOUND, base64.b64encode(model).decode())
    assert found["one of three"] == found["one of three, awaited"] == [1200, True]
    assert found["steps"] == [1200, 1200]
    assert found["values"] == [True, True, [1, 140, 300]]
    assert found["away"] == [True, 140 * 1200]
    assert found["older"]
    assert found["again"] == [True] * 4
    assert "device 'cuda'" in found["cuda"]


FREED = (
    COUNTED
    + """
s = ort.InferenceSession(base64.b64decode(given), providers=["webgpu"])
made = run_js('''{
  const { createBuffer } = GPUDevice.prototype, { destroy } = GPUBuffer.prototype, counts = { bytes: 0 };
  GPUDevice.prototype.createBuffer = function (how) { counts.bytes += how.size; return createBuffer.call(this, how); };
  GPUBuffer.prototype.destroy = function () { counts.bytes -= this.size; return destroy.call(this); };
  counts;
}''')
x = ort.OrtValue.ortvalue_from_numpy(np.ones((4, 200, 300), np.float32))
found = []
for _ in range(8):
    value = ort.OrtValue.ortvalue_from_numpy(np.zeros((4, 0, 300), np.float32))
    for _ in range(2):
        value, *_ = await s.run_with_ort_values_async(["present"], {"past": value, "x": x})
    del value
    gc.collect()
    await s.run_async(["y"], {"past": np.zeros((1, 0, 300), np.float32), "x": np.ones((1, 1, 300), np.float32)})
    found.append(made.bytes)
found
"""
)


def test_the_memory_goes_with_the_values(gpu: Pyodide) -> None:
    model = parser.parse_model(CONCAT).SerializeToString()
    found = gpu.run(FREED, base64.b64encode(model).decode())
    assert found[2:] == [found[2]] * 6
    assert np.isfinite(found).all()
