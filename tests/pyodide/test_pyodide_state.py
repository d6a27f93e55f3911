"""What stays in the core of a page from run to run: a decoder's cache is copied neither into it nor out of it."""

import base64
from pathlib import Path

import pytest
from gguf_models import talking
from onnx import parser
from test_state import SHAPES

from pyonnx_wasm.generate import Generator
from pyonnx_wasm.testing.pyodide import Pyodide

pytestmark = pytest.mark.browser
PROMPT = "the cat <s>sat."

DECODER = """
import gc
import numpy as np, pyonnx_wasm as ort
from pyonnx_wasm.runtimes import pyodide as runtime
from pyodide.http import pyfetch

model = await (await pyfetch("/data/decoder.onnx")).bytes()
rng = np.random.default_rng(0)
session, other = ort.InferenceSession(model), ort.InferenceSession(model)
names = [o.name for o in session.get_outputs()]
pasts = [i for i in session.get_inputs() if i.name.startswith("past")]

def empty(batch):
    return {i.name: np.zeros([batch, *(d if isinstance(d, int) else 0 for d in i.shape[1:])], np.float32) for i in pasts}

def split(found):
    return found.pop(names[0]), {name.replace("present", "past"): v for name, v in found.items()}

def values(ids, past):
    feed = {n: v if isinstance(v, ort.OrtValue) else ort.OrtValue(v) for n, v in {"ids": ids, **past}.items()}
    logits, present = split(dict(zip(names, session.run_with_ort_values(None, feed))))
    return logits.numpy(), present

def bound(ids, past):
    binding = session.io_binding()
    binding.bind_cpu_input("ids", ids)
    for name, value in past.items():
        (binding.bind_ortvalue_input if isinstance(value, ort.OrtValue) else binding.bind_cpu_input)(name, value)
    for name in names:
        binding.bind_output(name, "cpu")
    session.run_with_iobinding(binding)
    logits, present = split(dict(zip(names, binding.get_outputs())))
    return logits.numpy(), present

def plain(ids, past):
    return split(dict(zip(names, other.run(None, {"ids": ids, **past}))))

def same(held, arrays):
    np.testing.assert_array_equal(held[0], arrays[0])
    for name, value in arrays[1].items():
        np.testing.assert_array_equal(held[1][name].numpy(), value)

def tokens(batch, count):
    return rng.integers(0, 97, (batch, count))
"""

WALK = (
    DECODER
    + """
held_all = True
for way in (values, bound):
    for batch in (1, 3):
        ids = tokens(batch, 5)
        states = [(way(ids, empty(batch)), plain(ids, empty(batch)))]
        for _ in range(25):
            held, arrays = states[-1] if rng.random() < 0.7 else states[rng.integers(len(states))]
            if rng.random() < 0.1 or arrays[1]["past_0_k"].shape[2] > 55:
                held = arrays = ids, empty(batch)
            ids = tokens(batch, int(rng.integers(1, 9)))
            states.append((way(ids, held[1]), plain(ids, arrays[1])))
            same(*states[-1])
        for held, arrays in states:
            same(held, arrays)
            held_all = held_all and all(v.held is not None for v in held[1].values())
held_all
"""
)

COPIED = (
    DECODER
    + """
from pyonnx_wasm.runtimes.pyodide_onward import InLeft
short, way = [], InLeft.run
InLeft.run = lambda *arguments: short.append(1) or way(*arguments)
_, past = values(tokens(1, 4), empty(1))
executor = session._variants[()]
moved = []
def counted(*arguments):
    at, frame = 0, executor._frame
    inside = 0
    for dtype, rank in executor._inputs:
        inside += max(frame[at + 1], 0)
        at += 2 + rank
    moved.append(int(inside))
    return own.runHeld(*arguments)
own = executor._js
class Watching:
    def __getattr__(self, name): return counted if name == "runHeld" else getattr(own, name)
executor._js = Watching()
for _ in range(12):
    _, past = values(tokens(1, 1), past)
executor._js, InLeft.run = own, way
rows = {v.shape()[2] for v in past.values()}

# a value that is written to is the caller's own
name = "past_0_k"
ids = tokens(1, 1)
arrays = {n: v.numpy().copy() for n, v in past.items()}
arrays[name][...] = 0.5
past[name].update_inplace(arrays[name])
same(values(ids, past), plain(ids, arrays))

# a run that fails leaves the past as it was
try:
    values(tokens(2, 1), past)
    failed = ""
except Exception as error:
    failed = str(error)
same(values(ids, past), plain(ids, arrays))

# what nobody holds is freed
def grown(turns):
    for _ in range(turns):
        _, kept = values(tokens(1, 5), empty(1))
        for _ in range(8):
            _, kept = values(tokens(1, 5), kept)
    gc.collect()
    return runtime.memory_bytes()
first = grown(20)
last = grown(200)
[moved, len(short), sorted(rows), failed, first, last]
"""
)

KINDS = """
import base64
import numpy as np, pyonnx_wasm as ort

wrong = []
for name, model in given.items():
    session, other = ort.InferenceSession(base64.b64decode(model)), ort.InferenceSession(base64.b64decode(model))
    rng = np.random.default_rng(0)
    past, new = session.get_inputs()
    dtype = np.uint8 if past.type == "tensor(uint8)" else np.float32
    sizes = {"b": 2, "n": 2, "m": 2}
    held = ort.OrtValue(rng.integers(0, 9, [sizes.get(d, d) for d in past.shape]).astype(dtype))
    for step in range(6):
        array = held.numpy()
        sizes |= {"n": int(array.shape[past.shape.index("n")]), "m": 1 + step % 3}
        x = rng.integers(0, 9, [sizes.get(d, d) for d in new.shape]).astype(dtype)
        want = other.run(None, {"past": array, "x": x})
        got = session.run_with_ort_values(None, {"past": held, "x": ort.OrtValue(x)})
        if not all(np.array_equal(a.numpy(), b) for a, b in zip(got, want, strict=True)):
            wrong.append(f"{name}, step {step}")
        held = got[0]
wrong
"""

GENERATED = """
import base64, pathlib
from pyonnx_wasm.generate import Generator
pathlib.Path("tiny.gguf").write_bytes(base64.b64decode(given))
generator = Generator("tiny.gguf", providers=["wasm"])
told = []
def written(text, **settings):
    told.append([token.id for token in generator.generate(text, temperature=0, **settings)])
written("PROMPT", max_new_tokens=12)
written("PROMPT", max_new_tokens=12, seed=3)
written([*generator.encode("PROMPT"), *told[0][:3], 7], max_new_tokens=4)
values = generator.decoder.memory.values.values()
[generator.decoder.session.providers, told, all(v.held is not None for v in values) and len(values)]
""".replace("PROMPT", PROMPT)


def test_steps_that_hand_values_on_give_the_numbers_of_those_that_hand_arrays_on(python: Pyodide) -> None:
    """From any state to the next: on from the newest, from one before (a fork, a step back), from nothing."""
    assert python.run(WALK) is True


def test_concatenations_of_all_kinds(python: Pyodide) -> None:
    """As natively."""
    models = {}
    for name, text in SHAPES.items():
        head, body = text.split(") {")
        model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g ({head}) {{{body}')
        models[name] = base64.b64encode(model.SerializeToString()).decode()
    assert len(models) > 3
    assert python.run(KINDS, models) == []


def test_the_cache_is_not_copied_and_goes_with_the_values(python: Pyodide) -> None:
    moved, short, rows, failed, first, last = python.run(COPIED)
    assert moved == [8] * 12, "of each step the token goes in"
    assert short == 12, "nothing is looked through again that the last run has told"
    assert rows == [16]
    assert "differ on axis 0" in failed
    assert last == first


def test_tokens_are_those_of_python_elsewhere(python: Pyodide, tmp_path: Path) -> None:
    path = talking(tmp_path / "tiny.gguf")
    providers, told, held = python.run(GENERATED, base64.b64encode(path.read_bytes()).decode())
    assert providers == ["wasm"]
    own = Generator(path)
    again = [*own.encode(PROMPT), *told[0][:3], 7]
    want = [[t.id for t in own.generate(text, temperature=0, max_new_tokens=n)] for text, n in ((PROMPT, 12), (PROMPT, 12), (again, 4))]
    assert told == want
    assert held == 4
