"""Several texts at a time and beam search in JavaScript: each text is what it is alone, and in Python."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gguf_architectures import write
from gguf_models import Tiny

from pyonnx_wasm.cli import main
from pyonnx_wasm.generate import Generator

TESTS = Path(__file__).parent
PROMPTS = [[5], [3, 1, 4, 1, 5, 9, 2, 6], [7, 7], [2, 7, 1, 8, 2, 8], [4, 4, 4, 4]]
BEAMS: list[dict[str, Any]] = json.loads((TESTS / "data/beams.json").read_text())
NAMES = {"num_beams": "numBeams", "length_penalty": "lengthPenalty", "early_stopping": "earlyStopping"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    generator = Generator(Tiny("Q8_0", layers=1).write(tmp_path_factory.mktemp("several") / "tiny.gguf"), False)
    generator.ends = frozenset()
    return generator


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("js")
    tiny = str(Tiny("Q8_0", layers=1).write(folder / "tiny.gguf"))
    main(["compile", tiny, "--no-gpu", "--several", "-o", str(folder / "wide.ponnx"), "--json"])
    main(["compile", tiny, "--no-gpu", "-o", str(folder / "one.ponnx"), "--json"])
    main(["compile", str(write("llama", folder / "llama.gguf")), "--no-gpu", "--several", "-o", str(folder / "beams.ponnx"), "--json"])
    how = [{"numReturn": c["how"]["num_beams"]} | {NAMES[k]: v for k, v in c["how"].items()} for c in BEAMS]
    asked = [{"prompt": c["prompt"], "how": h} for c, h in zip(BEAMS, how, strict=True)]
    (folder / "asked.json").write_text(json.dumps({"prompts": PROMPTS, "settings": {"maxNewTokens": 12, "seed": 3}, "beams": asked}))
    command = ["node", str(TESTS / "generate_several.mjs"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def alone(generator: Generator, prompts: list[list[int]], limit: int = 12, **settings: Any) -> list[list[int]]:
    found = []
    for prompt in prompts:
        made = generator.generate(prompt, max_new_tokens=limit, seed=3, **settings)
        list(made)
        found.append(made.ids)
    return found


def test_the_texts_that_each_prompt_has_alone(js: dict[str, Any], python: Generator) -> None:
    want = alone(python, PROMPTS)
    assert js["many"] == js["told"] == want
    assert js["reasons"] == ["length"] * 5
    assert js["one"] == want, "where the model reads one text in a run"
    assert js["drafted"] == want
    after = PROMPTS[4] + want[4]
    assert js["goesOn"] == [alone(python, [after], 4)[0], len(after) - 1], "what is known already is not read again"
    sliding = Generator(python.decoder.session, False, overflow="slide", context=32)
    sliding.ends = frozenset()
    assert js["slid"] == alone(sliding, PROMPTS, 45)


def test_runs_are_shared(js: dict[str, Any]) -> None:
    prefills, tried_out = sum(-(-len(p) // 3) for p in PROMPTS), 7
    two, five = js["runs"]
    assert two <= tried_out + prefills + 3 * 12, "in three rounds of two at a time"
    assert five <= tried_out + prefills + prefills + 12, "while a prompt is read the others go on"


def test_each_has_its_own_settings_and_end(js: dict[str, Any], python: Generator) -> None:
    first, second = js["own"]
    for k, prompt in enumerate(PROMPTS):
        assert [first[k]] == alone(python, [prompt], 3 + k, temperature=k / 2)
    want = alone(python, PROMPTS)
    assert second == want[:2], "asked for at the same time"
    for k, (reason, ids, text) in enumerate(js["ends"]):
        if k == 1:
            assert (reason, ids) == ("cancelled", want[1][: len(ids)])
            assert 4 <= len(ids) <= 5
        elif k == 3:
            assert (reason, text) == ("stop", "".join(f"<{i}>" for i in want[3][: want[3].index(want[3][2])]))
        else:
            assert (reason, ids) == ("length", want[k])
    assert js["left"] == [["cancelled"] * 5, False], "who does not listen on is written nothing"


def test_lost_devices_and_damaged_logits_lose_no_text(js: dict[str, Any], python: Generator) -> None:
    want = alone(python, PROMPTS)
    assert js["resumed"] == [want] * 3
    message, reasons, ids = js["lost"]
    assert message == "Error: the device was lost"
    assert set(reasons) == {"error"}
    assert all(w[: len(i)] == i for i, w in zip(ids, want, strict=True))
    assert any(ids)
    message, reasons, ids = js["nan"]
    assert message.startswith("Error: the model's logits are not numbers")
    assert reasons == ["length", "error", "length"]
    assert ids == [want[0], want[1][:5], want[2]]
    assert js["errors"][0].startswith("RangeError: atOnce is 0")
    assert js["errors"][1].startswith("ContextError: the text has 40 tokens, the model reads 32")


@pytest.mark.parametrize("k", range(len(BEAMS)), ids=lambda k: f"{BEAMS[k]['how']}-{len(BEAMS[k]['prompt'])}")
def test_beam_search_finds_what_transformers_finds(js: dict[str, Any], k: int) -> None:
    case, found = BEAMS[k], js["beams"][k]
    assert [f["ids"] for f in found] == case["ids"]
    assert [f["ended"] for f in found] == [ids[-1] in (1, 17, 30) for ids in case["ids"]]
    assert [f["text"] for f in found] == ["".join(f"<{i}>" for i in ids) for ids in case["ids"]]
    if case["scores"]:
        assert [f["score"] for f in found] == pytest.approx(case["scores"], rel=1e-4)


def test_what_beam_search_meets(js: dict[str, Any]) -> None:
    assert js["resumedBeams"] == js["beams"][0], "after a device was lost"
    for told, want in zip(
        js["asked"],
        ["RangeError: numBeams is 0", "RangeError: numReturn is 5", "RangeError: maxNewTokens is 0", "RangeError: earlyStopping is soon",
         "AbortError", "ContextError: the text has 64 tokens", "Error: the model reads one text at a time",
         "Error: the model's logits are not numbers"], strict=True,
    ):  # fmt: skip
        assert told.startswith(want)
    assert "`pyonnx-wasm compile --several`" in js["asked"][6]
