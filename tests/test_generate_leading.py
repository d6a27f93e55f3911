"""Sampling, beams and probabilities by a model's largest logits alone: the same tokens as by all, and few bytes from a GPU."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_models import Tiny
from playwright.sync_api import BrowserType

from pyonnx_wasm.cli import main
from pyonnx_wasm.generate import Generator, leading, loop, sampling
from pyonnx_wasm.generate.beams import Search
from pyonnx_wasm.runtimes import wgpu_device
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import chromium

TESTS = Path(__file__).parent
PLAYER = TESTS.parent / "js" / "dist"
WORDS, LIMIT = 6000, 8
LARGEST = {"plain.ponnx": 0, "one.ponnx": 1, "few.ponnx": 4, "many.ponnx": 64}
PROMPTS = [[3, 1, 4, 1, 5, 3, 1], [9, 2], [6, 5, 3, 5, 8]]
NAMES = {
    "top_k": "topK", "top_p": "topP", "min_p": "minP", "repetition_penalty": "repetitionPenalty", "num_beams": "numBeams",
    "num_return": "numReturn",
}  # fmt: skip


def settings(rng: np.random.Generator) -> dict[str, Any]:
    def one(*of: Any) -> Any:
        return of[int(rng.integers(len(of)))]

    return {
        "temperature": one(0, 0.4, 0.8, 1.0, 1.0, 1.5), "top_k": one(0, 0, 3, 40, 100), "top_p": one(1.0, 0.95, 0.6),
        "min_p": one(0.0, 0.05, 0.3), "repetition_penalty": one(1.0, 1.0, 1.3, 0.9), "seed": int(rng.integers(1 << 31)),
    }  # fmt: skip


@pytest.mark.parametrize("words", [5, 40, 3000])
def test_any_choice_of_some_is_that_of_all(words: int) -> None:
    rng = np.random.default_rng(words)
    told = 0
    for _ in range(1500):
        logits = (rng.standard_normal(words) * rng.choice([0.3, 1, 3, 8])).astype(np.float32)
        logits = np.round(logits) if rng.random() < 0.3 else logits
        logits[rng.random(words) < rng.choice([0, 0, 0.9])] = -np.inf
        if not logits.max() > -np.inf:
            continue
        order = np.argsort(-logits, kind="stable")[: int(rng.choice([1, 4, 64]))]
        total = np.float32(np.log(np.exp(logits.astype(np.float64)).sum()))
        how, position = sampling.Sampling(**settings(rng)), int(rng.integers(1000))
        before = [*rng.integers(0, words, 20), *order[:2]] if rng.random() < 0.5 else []
        never = tuple(int(i) for i in rng.integers(0, words, 3)) if rng.random() < 0.3 else ()
        number = words if rng.random() < 0.9 else None
        few = leading.Leading(order, logits[order].astype(np.float64), float(total), number, lambda all_=logits: all_, never)
        if (allowed := loop.without(logits, never)).max() > -np.inf:
            want = sampling.choose(allowed, how, 7, position, before)
            found = leading.choose(few, how, 7, position, before)
            assert found in (want, None), (how, never)
            needs = loop.needs(how, len(order), number, 0, len(never))
            assert found is not None or needs not in ("choice", "first")
            if needs == "first":
                alone = leading.Leading(order[:1], few.logits[:1], few.sum, number, few.every, never)
                assert leading.choose(alone, how, 7, position, before) == want
                assert alone.share(want) == few.share(want)
            told += found is not None
    assert told > 500


def test_beams_of_some_are_those_of_all() -> None:
    rng = np.random.default_rng(3)
    short = 0
    for _ in range(150):
        words, width, k = int(rng.choice([9, 50, 400])), int(rng.integers(1, 4)), int(rng.choice([2, 8, 16]))
        never = tuple(int(i) for i in rng.integers(0, words, 2)) if rng.random() < 0.3 else ()
        searches = [Search(frozenset([1]), width, 6, 1.0, False, never) for _ in range(2)]
        while not searches[0].done:
            logits = [(rng.standard_normal(words) * 3).astype(np.float32) for _ in searches[0].going]
            reads: list[int] = []
            some = []
            for row in logits:
                order = np.argsort(-row, kind="stable")[:k]
                total = float(np.log(np.exp(row.astype(np.float64)).sum()))

                def every(row: Any = row, reads: list[int] = reads) -> Any:
                    reads.append(1)
                    return row

                some.append(leading.Leading(order, row[order].astype(np.float64), total, words, every))
            assert searches[0].advance(logits) == searches[1].advance(some)
            assert [ids for _, ids in searches[0].going] == [ids for _, ids in searches[1].going]
            assert not reads or k < searches[0].some + len(never)
            short += len(reads)
        np.testing.assert_allclose([s for s, _ in searches[1].ended], [s for s, _ in searches[0].ended])
    assert short


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("leading")
    tiny = str(Tiny("Q8_0", layers=1, words=WORDS, context=64, sharp=5.0).write(at / "tiny.gguf"))
    for name, k in LARGEST.items():
        assert main(["compile", tiny, "-o", str(at / name), "--json", "--several", "--choice", str(k)]) == 0
    return at


@pytest.fixture(scope="module")
def asked() -> dict[str, Any]:
    rng = np.random.default_rng(11)
    sampled = [settings(rng) | {"likely": int(rng.choice([0, 0, 3, 10]))} for _ in range(14)]
    known = [
        {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 1}, {"temperature": 0, "likely": 5},
        {"temperature": 0, "repetition_penalty": 1.3}, {"temperature": 0},
    ]  # fmt: skip
    return {
        "prompts": PROMPTS, "settings": [*known, *sampled], "together": [known[0], sampled[0], known[3]], "limit": LIMIT,
        "beams": [{"num_beams": 3, "num_return": 3}, {"num_beams": 2, "num_return": 1}],
    }  # fmt: skip


def written(generator: Generator, asked: dict[str, Any], count: Callable[[], int] = lambda: 0) -> dict[str, Any]:
    """As ``generate_leading.mjs``; ``count`` gives the bytes since it was called last."""
    generator.ends = frozenset()
    found: dict[str, Any] = {"texts": [], "together": [], "beams": []}
    count()
    for how in asked["settings"]:
        generator.decoder.forget(0)  # nothing is read of the cache
        text = generator.generate(PROMPTS[0], max_new_tokens=LIMIT, **how)
        told = [[t.probability, [{"id": i, "probability": p} for i, p in t.likely]] for t in text]
        found["texts"].append({"ids": text.ids, "told": told, "bytes": count()})
    for how in asked["together"]:
        found["together"].append({"ids": [t.ids for t in generator.generate_many(PROMPTS, max_new_tokens=LIMIT, **how)], "bytes": count()})
    for how in asked["beams"]:
        texts = generator.search(PROMPTS[0], max_new_tokens=LIMIT, **how)
        found["beams"].append({"ids": [t.ids for t in texts], "scores": [t.score for t in texts], "bytes": count()})
    return found


def alike(found: dict[str, Any], plain: dict[str, Any], want: dict[str, Any]) -> None:
    """The tokens are those of any backend, the probabilities those that all logits of this one give."""
    for kind in ("texts", "together", "beams"):
        assert [f["ids"] for f in found[kind]] == [w["ids"] for w in want[kind]]
    for f, w in zip(found["texts"], plain["texts"], strict=True):
        assert [[x["id"] for x in likely] for _, likely in f["told"]] == [[x["id"] for x in likely] for _, likely in w["told"]]
        assert [p for p, _ in f["told"]] == pytest.approx([p for p, _ in w["told"]], rel=2e-5)
    for f, w in zip(found["beams"], plain["beams"], strict=True):
        assert f["scores"] == pytest.approx(w["scores"], rel=1e-5)


@pytest.fixture(scope="module")
def want(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    return written(Generator(folder / "plain.ponnx", False), asked)


@pytest.mark.parametrize("draft", ["prompt", "few.ponnx"])
def test_foretold_tokens_are_chosen_by_the_largest_too(draft: str, folder: Path, asked: dict[str, Any], want: dict[str, Any]) -> None:
    generator = Generator(folder / "many.ponnx", False, draft=draft if draft == "prompt" else folder / draft)
    generator.ends = frozenset()
    for how, plain in zip(asked["settings"], want["texts"], strict=True):
        text = generator.generate(PROMPTS[0], max_new_tokens=LIMIT, **how)
        list(text)
        assert text.ids == plain["ids"], how


def on(backend: str, asked: dict[str, Any], want: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is asked of a backend and awaited: of a GPU, which is one of software here, half the texts."""
    if backend not in ("gpu", "webgpu"):
        return asked, want
    some = {"together": asked["together"][::2], "beams": asked["beams"][:1], "settings": asked["settings"][:9]}
    return asked | some, {"together": want["together"][::2], "beams": want["beams"][:1], "texts": want["texts"][:9]}


def javascript(asked: dict[str, Any]) -> dict[str, Any]:
    def named(how: dict[str, Any]) -> dict[str, Any]:
        return {NAMES.get(k, k): v for k, v in how.items()}

    return asked | {kind: [named(how) for how in asked[kind]] for kind in ("settings", "together", "beams")}


def fewer(found: dict[str, Any], plain: dict[str, Any], alone: bool = True) -> None:
    """What is known to be enough reads 64 logits in place of all, the most likely token alone one; over all settings it is less, too."""
    every = [f["bytes"] for f in plain["texts"]]
    some = [f["bytes"] for f in found["texts"]]
    assert min(every) >= 4 * WORDS * LIMIT
    assert all(a < b / 5 for a, b in zip(some[:3], every[:3], strict=True))
    assert some[3] <= 16 * (LIMIT + 1)
    if alone:  # caches that are laid together are not counted
        assert found["together"][-1]["bytes"] <= 16 * len(PROMPTS) * (LIMIT + 1)
    assert sum(some) < 0.6 * sum(every)
    assert found["together"][0]["bytes"] < plain["together"][0]["bytes"] / 2
    assert all(f["bytes"] < p["bytes"] for f, p in zip(found["beams"], plain["beams"], strict=True))


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Bytes that were read from GPUs since it was asked last."""
    total, read = [0], wgpu_device.Gpu.read

    def counted(self: Any, wanted: Any) -> Any:
        total[0] += sum(size for _, _, size in wanted)
        return read(self, wanted)

    def count() -> int:
        found, total[0] = total[0], 0
        return found

    monkeypatch.setattr(wgpu_device.Gpu, "read", counted)
    return count


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_the_same_texts_in_python(
    backend: str, folder: Path, asked: dict[str, Any], want: dict[str, Any], count: Callable[[], int]
) -> None:
    asked, want = on(backend, asked, want)
    found = {name: written(Generator(folder / name, False, providers=[backend]), asked, count) for name in LARGEST}
    for each in found.values():
        alike(each, found["plain.ponnx"], want)
    if backend == "gpu":
        fewer(found["many.ponnx"], found["plain.ponnx"], alone=False)


def test_texts_that_are_awaited_read_as_little(
    folder: Path, want: dict[str, Any], asked: dict[str, Any], count: Callable[[], int], apart: Any
) -> None:
    async def awaited(generator: Generator) -> list[int]:
        return [t.id async for t in generator.generate(PROMPTS[0], max_new_tokens=LIMIT, **asked["settings"][0])]

    generator = Generator(folder / "many.ponnx", False, providers=["gpu"])
    generator.ends = frozenset()
    assert apart(asyncio.run, awaited(generator)) == want["texts"][0]["ids"]
    assert 0 < count() < LIMIT * WORDS


def test_the_same_texts_in_node(folder: Path, asked: dict[str, Any], want: dict[str, Any]) -> None:
    command = ["node", str(TESTS / "generate_leading.mjs"), str(folder), json.dumps(javascript(asked)), *LARGEST]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    for each in found:
        alike(each, found[0], want)
    fewer(found[-1], found[0])


PAGE = """async ([name, backend, asked]) => {
  const { Generator } = await import("/player/generate.mjs");
  const { written } = await import("/tests/generate_leading.mjs");
  const options = { executionProviders: [backend], worker: false };
  return written(await Generator.create("/models" + name, { ends: [] }, options), asked);
}"""


@pytest.mark.browser
@pytest.mark.parametrize("backend", ["wasm", "webgpu"])
def test_the_same_texts_in_a_page(
    backend: str, browser_type: BrowserType, folder: Path, asked: dict[str, Any], want: dict[str, Any], tmp_path: Path
) -> None:
    asked, want = on(backend, asked, want)
    (tmp_path / "index.html").write_text('<!doctype html><link rel="icon" href="data:," />')
    browser = browser_type.launch(**chromium.launch_options(webgpu=backend == "webgpu"))
    with Server({"/": tmp_path, "/models": folder, "/tests": TESTS, "/player": PLAYER}) as server:
        page = browser.new_page()
        page.goto(server.url)
        found = [page.evaluate(PAGE, [f"/{name}", backend, javascript(asked)]) for name in ("plain.ponnx", "many.ponnx")]
    browser.close()
    for each in found:
        assert each["backend"] == backend
        alike(each, found[0], want)
    fewer(found[1], found[0])
