"""Generation in JavaScript gives what it gives in Python."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gguf_models import Tiny

import pyonnx_wasm
from pyonnx_wasm.generate import Generator
from pyonnx_wasm.generate.sampling import uniform

SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 1.3, "top_k": 0, "top_p": 0.9, "repetition_penalty": 1.3},
    {"top_k": 5, "min_p": 0.2, "top_p": 1.0},
    {"top_k": 0, "top_p": 1.0, "temperature": 1.0, "likely": 4},
]
NAMES = {"top_k": "topK", "top_p": "topP", "min_p": "minP", "repetition_penalty": "repetitionPenalty"}
SEED = 2**63 + 5


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Generator]:
    folder = tmp_path_factory.mktemp("js")
    path = Tiny("Q8_0", words=200).write(folder / "tiny.gguf")
    pyonnx_wasm.save(pyonnx_wasm.compile(path), folder / "tiny.ponnx")
    asked = [
        {"prompt": [3, 1, 4, 1, 5], "seed": str(SEED), "settings": {"maxNewTokens": 16} | {NAMES.get(k, k): v for k, v in how.items()}}
        for how in SETTINGS
    ]
    (folder / "asked.json").write_text(json.dumps(asked))
    command = ["node", str(Path(__file__).with_name("generate.mjs")), str(folder / "tiny.ponnx"), str(folder / "asked.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout), Generator(path, False)


@pytest.mark.parametrize("k", range(len(SETTINGS)))
def test_the_same_tokens_for_a_seed(both: tuple[dict[str, Any], Generator], k: int) -> None:
    found, generator = both
    text = generator.generate([3, 1, 4, 1, 5], max_new_tokens=16, seed=SEED, **SETTINGS[k])
    tokens = list(text)
    got = found["texts"][k]
    assert got["ids"] == text.ids
    assert got["text"] == got["told"] == "".join(f"<{i}>" for i in text.ids)
    assert got["reason"] == text.reason
    assert got["reusedTokens"] == (4 if k else 0), "what is known already is not read again"
    for likely, token in zip(got["likely"], tokens, strict=True):
        assert [e["id"] for e in likely] == [i for i, _ in token.likely]
        assert [e["probability"] for e in likely] == pytest.approx([p for _, p in token.likely], rel=1e-5)


def test_limits_stops_and_errors(both: tuple[dict[str, Any], Generator]) -> None:
    found, generator = both
    assert found["context"] == generator.context == 32
    assert found["uniform"] == [uniform(0, 0), uniform(2**40 + 3, 7)]
    assert found["cancelled"] == ["cancelled", 2, "cancelled"]
    reason, text, whole = found["stopped"]
    assert reason == "stop"
    assert whole.startswith(text)
    assert len(text) < len(whole)
    slid, held = found["slid"]
    assert slid == 40
    assert held < 32
    for told, want in zip(
        found["errors"],
        ["RangeError: the prompt is empty", "RangeError: token 0.5", "RangeError: topP is 0", "RangeError: maxNewTokens is 0",
         "ContextError: the text has 40 tokens, the model reads 32"], strict=True,
    ):  # fmt: skip
        assert told.startswith(want)
