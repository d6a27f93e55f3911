"""Tokens that are drawn of a part of the logits are those that sorting all of them gives, in Python and in JavaScript."""

import itertools
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from pyonnx_wasm.generate.sampling import Sampling, choose, drawn, largest, penalised, probabilities, share, uniform

PLAYER = Path(__file__).parents[1] / "js" / "dist"
POSITIONS = 3


def by_sorting(logits: np.ndarray, how: Sampling, seed: int, position: int, before: Sequence[int]) -> int:
    wide = logits.astype(np.float64)
    if how.repetition_penalty != 1:
        wide[list(before)] = penalised(wide[list(before)], how.repetition_penalty)
    order = np.argsort(-wide, kind="stable")[: how.top_k or None]
    return int(order[drawn(wide[order], how, uniform(seed, position))])


def hostile_rows() -> list[np.ndarray]:
    """Logits that are near each other, far apart, equal, few, and mostly of no token."""
    rng = np.random.default_rng(0)
    rows = [scale * rng.standard_normal(3000) for scale in (0.01, 1, 4, 30)]
    rows += [np.zeros(1000), np.round(rng.standard_normal(2000)), rng.standard_normal(100), np.full(300, -np.inf)]
    rows[-1][[7, 290, 20]] = 1.0, 2.0, 1.0
    return [row.astype(np.float32) for row in rows]


def ways() -> Iterator[Sampling]:
    for how in itertools.product((0.3, 1.0, 3.0), (0, 1, 40, 500), (1.0, 0.9, 0.3), (0.0, 0.05), (1.0, 1.3, 0.8)):
        yield Sampling(*how)


@pytest.fixture(scope="module")
def wanted() -> list[list[int]]:
    """By row, of every way and position."""
    rows = hostile_rows()
    return [[by_sorting(row, how, 3, position, range(0, len(row), 9)) for how in ways() for position in range(POSITIONS)] for row in rows]


def test_in_python(wanted: list[list[int]]) -> None:
    for row, want in zip(hostile_rows(), wanted, strict=True):
        assert [choose(row, how, 3, position, range(0, len(row), 9)) for how in ways() for position in range(POSITIONS)] == want
    assert len({token for want in wanted for token in want}) > 300


def test_in_javascript(wanted: list[list[int]]) -> None:
    script = """
      import { readFileSync } from "node:fs";
      const { choose } = await import(process.argv[1]);
      const { rows, ways, positions } = JSON.parse(readFileSync(0, "utf8"));
      console.log(JSON.stringify(rows.map((row) => {
        const logits = Float32Array.from(row, (x) => x ?? -Infinity);
        const before = [...logits.keys()].filter((i) => i % 9 === 0);
        return ways.flatMap((how) => Array.from({ length: positions }, (_, at) => choose(logits, how, 3n, at, before)));
      })));
    """
    told = {
        "rows": [[None if x == -np.inf else x for x in row.tolist()] for row in hostile_rows()],
        "ways": [
            {"temperature": w.temperature, "topK": w.top_k, "topP": w.top_p, "minP": w.min_p, "repetitionPenalty": w.repetition_penalty}
            for w in ways()
        ],
        "positions": POSITIONS,
    }
    command = ["node", "--input-type=module", "-e", script, str(PLAYER / "generate.mjs")]
    found = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(found.stdout) == wanted


def test_what_is_no_number_is_last() -> None:
    """Beams meet it behind logits that are infinite."""
    assert largest(np.array([np.nan, 2, np.nan, 3]), 2).tolist()[0] == 3
    assert len(largest(np.full(9, np.nan), 4)) == 4
    assert largest(np.array([1, np.nan, 3]), 3).tolist() == [2, 0, 1]


def test_shares_are_those_of_all_probabilities() -> None:
    for row in hostile_rows():
        ids = largest(row, 9)
        np.testing.assert_allclose(share(row, ids), probabilities(row)[ids], rtol=2e-6)
    assert share(np.array([np.inf, 0, np.inf], np.float32), [0, 1]) == [0.5, 0.0]
    with pytest.raises(FloatingPointError, match="logits are not numbers"):
        share(np.array([np.nan, 1], np.float32), [1])
