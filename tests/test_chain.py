"""Runs one after the other of a decoder, between which its cache stays in the session untold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_models import talking

import pyonnx_wasm as pw
from pyonnx_wasm.generate import Generator, cache
from pyonnx_wasm.onward import Chain
from pyonnx_wasm.runtimes import state
from tests.test_state import Decoder, Values, ids, same


class Chained(Decoder):
    """Steps that go on in a chain for as long as it goes on, else by the whole way."""

    def __init__(self, backend: str = "cpu") -> None:
        super().__init__(backend)
        self.chain: Chain | None = None
        self.short = 0

    def presents(self, past: Values) -> Values:
        return {name.replace("past", "present"): value for name, value in past.items()}

    def start(self, past: Values) -> None:
        self.chain = self.session.chain(self.presents(past))

    def step(self, tokens: np.ndarray) -> np.ndarray | None:
        """None where the chain has ended."""
        assert self.chain is not None
        found = self.chain.run(self.names[:1], {self.ids: tokens})
        self.short += found is not None
        return None if found is None else found[0]

    def end(self) -> Values:
        """The cache."""
        assert self.chain is not None
        found = {name.replace("present", "past"): pw.OrtValue(held) for name, held in self.chain.end().items()}
        self.chain = None
        return found


def begun(rng: np.random.Generator, decoder: Decoder, batch: int = 1, count: int = 3) -> tuple[Values, Values]:
    """Two caches of the same tokens: held, and as arrays."""
    tokens = ids(rng, batch, count)
    arrays = decoder.plain(tokens, decoder.empty(batch))[1]
    return decoder.values(tokens, decoder.empty(batch))[1], arrays


@pytest.mark.parametrize("least", [1, 64])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_chain_gives_what_whole_runs_give(batch: int, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one and of several tokens, out of rooms that are full and into larger ones, ended and begun again."""
    monkeypatch.setattr(state, "LEAST_ROWS", least)
    rng, decoder, other = np.random.default_rng(batch), Chained(), Decoder("cpu")
    past, arrays = begun(rng, decoder, batch)
    decoder.start(past)
    for _ in range(40):
        tokens = ids(rng, batch, 1 if arrays["past_0_k"].shape[2] > 45 else int(rng.integers(1, 3)))
        if arrays["past_0_k"].shape[2] > 60:
            past, arrays = begun(rng, decoder, batch)
            decoder.start(past)
            continue
        logits, now = other.plain(tokens, arrays)
        found = decoder.step(tokens) if decoder.chain else None
        if found is None:
            past = decoder.end() if decoder.chain else past
            same((logits, past), (logits, arrays))
            found, past = decoder.values(tokens, past)
            decoder.start(past)
        elif rng.random() < 0.1:
            past = decoder.end()
        np.testing.assert_array_equal(found, logits)
        arrays = now
    assert decoder.short > (20 if least > 1 else 10)


def test_values_from_before_a_chain_stay_what_they_were() -> None:
    rng, decoder, other = np.random.default_rng(0), Chained(), Decoder("cpu")
    past, arrays = begun(rng, decoder)
    decoder.start(past)
    tokens = ids(rng, 1, 2)
    np.testing.assert_array_equal(decoder.step(tokens), other.plain(tokens, arrays)[0])
    token = ids(rng, 1, 1)
    same(decoder.values(token, past), other.plain(token, arrays))  # a fork, while the chain goes on
    _, on = other.plain(tokens, arrays)
    np.testing.assert_array_equal(decoder.step(token), other.plain(token, on)[0])
    for name, value in past.items():
        np.testing.assert_array_equal(value.numpy(), arrays[name])


def test_two_chains_of_one_session() -> None:
    rng, decoder, other = np.random.default_rng(1), Chained(), Decoder("cpu")
    chains: list[tuple[Any, Values]] = []
    for batch in (1, 2):
        past, arrays = begun(rng, decoder, batch, 2 + batch)
        decoder.start(past)
        chains.append((decoder.chain, arrays))
    for _ in range(8):
        for k, (chain, arrays) in enumerate(chains):
            decoder.chain, tokens = chain, ids(rng, 1 + k, 1)
            logits, now = other.plain(tokens, arrays)
            np.testing.assert_array_equal(decoder.step(tokens), logits)
            chains[k] = chain, now
    for chain, arrays in chains:
        decoder.chain = chain
        for name, value in decoder.end().items():
            np.testing.assert_array_equal(value.numpy(), arrays[name])


def test_a_run_that_fails_leaves_the_chain_as_it_was() -> None:
    rng, decoder, other = np.random.default_rng(2), Chained(), Decoder("cpu")
    past, arrays = begun(rng, decoder, 1, 40)
    decoder.start(past)
    with pytest.raises(ValueError, match="takes rank 2"):
        decoder.step(ids(rng, 1, 1)[0])
    with pytest.raises(ValueError, match="takes int64, got float32"):
        decoder.step(ids(rng, 1, 1).astype(np.float32))
    assert decoder.step(ids(rng, 2, 1)) is None, "another batch than the cache's"
    with pytest.raises(RuntimeError, match="out of range"):
        decoder.step(np.full((1, 1), 97))
    options = pw.RunOptions()
    options.terminate = True
    assert decoder.chain is not None
    with pytest.raises(RuntimeError, match="terminated"):
        decoder.chain.run(decoder.names[:1], {"ids": ids(rng, 1, 1)}, options)
    tokens = ids(rng, 1, 1)
    np.testing.assert_array_equal(decoder.step(tokens), other.plain(tokens, arrays)[0])


def test_a_chain_goes_back_to_a_mark() -> None:
    rng, decoder, other = np.random.default_rng(4), Chained(), Decoder("cpu")
    past, arrays = begun(rng, decoder)
    decoder.start(past)
    assert decoder.chain is not None
    mark = decoder.chain.mark
    for count in (2, 1, 4):
        tokens = ids(rng, 1, count)
        np.testing.assert_array_equal(decoder.step(tokens), other.plain(tokens, arrays)[0])
        decoder.chain.mark = mark
    for name, value in decoder.end().items():
        np.testing.assert_array_equal(value.numpy(), arrays[name])


def test_a_session_that_is_opened_again_ends_the_chain() -> None:
    rng, decoder = np.random.default_rng(5), Chained()
    past, arrays = begun(rng, decoder)
    decoder.start(past)
    decoder.session.set_providers(["wasmtime"])
    assert decoder.step(ids(rng, 1, 1)) is None
    for name, value in decoder.end().items():
        np.testing.assert_array_equal(value.numpy(), arrays[name])


@pytest.mark.parametrize("where", ["run", "_taken", "told too little"])
def test_an_interrupt_leaves_a_text_as_it_was(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a token's run and the token's place in the text."""
    path = talking(tmp_path / "model.gguf")
    decoder, other = Generator(path).decoder, Generator(path).decoder
    for text in ([1, 2, 3], [4], [5]):
        np.testing.assert_array_equal(decoder.step(text)[0], other.step(text)[0])
    if where == "told too little":
        with pytest.raises(ValueError, match="nothing can be foretold"):
            decoder.step([6], want=2)
    else:
        holder: Any = Chain if where == "run" else cache.Decoder
        method = getattr(holder, where)

        def interrupted(*given: Any) -> None:
            method(*given)
            raise KeyboardInterrupt

        monkeypatch.setattr(holder, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            decoder.step([6])
        monkeypatch.undo()
    assert decoder.ids == [1, 2, 3, 4, 5]
    for text in ([7], [8, 9]):
        np.testing.assert_array_equal(decoder.step(text)[0], other.step(text)[0])


def test_there_is_a_chain_behind_the_last_run_alone() -> None:
    rng, decoder = np.random.default_rng(3), Chained()
    past, arrays = begun(rng, decoder)
    assert decoder.session.chain({}) is None
    assert decoder.session.chain(decoder.presents({name: pw.OrtValue(a) for name, a in arrays.items()})) is None
    decoder.values(ids(rng, 1, 1), past)
    assert decoder.session.chain(decoder.presents(past)) is None, "another run went on from it"
    wasm = Chained("wasmtime")
    assert wasm.session.chain(wasm.presents(begun(rng, wasm)[0])) is None
