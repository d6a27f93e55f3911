"""``bench --generate``: its models say the same in both formats, and its rows hold what they claim."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyonnx_wasm import cli
from pyonnx_wasm.bench import generate
from pyonnx_wasm.bench.generate import gpu, models, native, web
from pyonnx_wasm.generate import Generator

TINY = models.Size("tiny", 64, 96, 2, 4, 2, 64, 10000.0, 64)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return models.made("tiny", TINY, tmp_path_factory.mktemp("decoders"))


def test_both_files_hold_one_model(made: tuple[Path, Path]) -> None:
    """GGUF and ONNX give the same logits and tokens, and onnxruntime's as far as its products of bytes let it."""
    import onnxruntime

    gguf, export = made
    ids = web.prompt(9, 1)
    of_gguf, of_onnx = (Generator(path, False) for path in (gguf, export / "onnx/model_q4.onnx"))
    logits = of_gguf.decoder.step(ids)[0]
    np.testing.assert_allclose(of_onnx.decoder.step(ids)[0], logits, atol=2e-4)
    texts = [generator.generate(ids, max_new_tokens=12, seed=3) for generator in (of_gguf, of_onnx)]
    for text in texts:
        list(text)
    assert texts[0].ids == texts[1].ids
    theirs = onnxruntime.InferenceSession(export / "onnx/model_q4.onnx")
    feed = {i.name: np.zeros((1, 2, 0, 16), np.float32) for i in theirs.get_inputs()[2:]}
    want = theirs.run(["logits"], feed | {"input_ids": np.array([ids]), "attention_mask": np.ones((1, 9), np.int64)})[0][0, -1]
    assert np.abs(want - logits).max() < 0.03 * np.abs(logits).max()
    assert TINY.read_bytes == sum(t.nbytes for n, t in tensors(gguf).items() if "norm" not in n)


def tensors(path: Path) -> dict[str, Any]:
    from gguf import GGUFReader

    return {t.name: t.data for t in GGUFReader(path).tensors}


def test_rows_of_a_native_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(generate, "SIZES", {"tiny": TINY})
    monkeypatch.setattr(generate, "MODELS", tmp_path)
    for module in (native, web):
        monkeypatch.setattr(module, "COPIED", 1 << 20)
    command = ["bench", "--generate", "tiny", "--native", "--without", "llama-cpp-python", "--runs", "2", "--tokens", "6,4"]
    assert cli.main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (row,) = document["rows"]
    assert (row["case"], row["against"], row["rounds"], row["prompt"]) == ("tiny", "onnxruntime", 2, 6)
    assert all(rate > 0 for rate in (*row["prefill"], *row["decode"], row["copy_gbs"], *row["of_bandwidth"]))
    assert "onnxruntime" in generate.render(document)
    assert "medians" in generate.render(document | {"rows": []}), "what is measured beside no peer has no table"


@pytest.mark.parametrize(("how", "adapter"), [("--dawn", "swiftshader"), ("--native", "llvmpipe")])
def test_rows_of_a_gpu(how: str, adapter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(generate, "SIZES", {"tiny": TINY})
    monkeypatch.setattr(generate, "MODELS", tmp_path)
    command = ["bench", "--generate", "tiny", "--ep", "webgpu", how, "--runs", "1", "--tokens", "6,4", "--json"]
    assert cli.main(command) == 0
    document = json.loads(capsys.readouterr().out)
    (row,) = document["rows"]
    assert (row["case"], row["rounds"], row["prompt"]) == ("tiny", 1, 6)
    assert row["prefill"] > 0
    assert row["read_gbs"] == pytest.approx(row["decode"] * TINY.read_bytes / 1e9, abs=0.01)
    assert adapter in document["versions"]["adapter"]
    assert "tiny" in gpu.render(document)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["135m", "--ep", "webgpu"], "--ep webgpu needs either --dawn, in Node.js, or --native, from Python"),
        (["135m", "--ep", "webgpu", "--native", "--real-gpu"], "which is software: install the GPU's Vulkan driver"),
        (["2b"], "there is no model '2b'; there are 135m, 1b"),
        (["135m", "--tokens", "5"], "--tokens is '5'; it must look like 128,32"),
    ],
)
def test_what_is_asked_wrongly(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--generate", *args]) == 1
    assert message in capsys.readouterr().err


def test_a_missing_peer_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no @huggingface/transformers: run `npm install .*@wllama/wllama.* --peers"):
        web.Pages(tmp_path, tmp_path)
