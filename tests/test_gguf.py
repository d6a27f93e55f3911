"""GGUF: every block type to the bit, decoders against float64, damaged files."""

import random
import re
import struct
from pathlib import Path
from typing import Any

import gguf
import gguf_architectures as architectures
import numpy as np
import pytest
from gguf_models import FACTORS, QUANTISED, Tiny, blocks, talking
from operator_case import model, sessions

import pyonnx_wasm
from pyonnx_wasm import SessionOptions, source
from pyonnx_wasm.generate import Generator, TextError
from pyonnx_wasm.gguf import file
from pyonnx_wasm.ir import IRError
from pyonnx_wasm.onnxfile.reader import ReadError
from pyonnx_wasm.runtimes.core import CoreError

BLOCKS = (*QUANTISED, *FACTORS)


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_are_widened_as_ggml_does(kind: str) -> None:
    """As constants, which are brought into another form once, and as inputs; rows that are picked too."""
    number = gguf.GGMLQuantizationType[kind]
    per, size = gguf.GGML_QUANT_SIZES[number]
    data = blocks(kind, 7, 512, np.random.default_rng(3))
    want, cut = gguf.quants.dequantize(data, number), data.reshape(7, 512 // per, size)
    at = np.array([[6, 0], [3, 3]])
    cases: list[tuple[str, dict[str, Any], dict[str, Any], Any]] = [
        ("Dequantize", {"blocks": cut}, {}, want),
        ("GetRows", {"indices": at}, {"blocks": cut}, want[at]),
    ]
    for op, feed, constants, expected in cases:
        names = ["blocks", "indices"] if op == "GetRows" else ["blocks"]
        made = model(op, [feed], constants=constants, inputs=names, domain="org.ggml", type=kind)
        for optimised, session in sessions(made):
            np.testing.assert_array_equal(session.run(None, feed)[0], expected, err_msg=f"{op}, {optimised=}")


def steps(session: pyonnx_wasm.InferenceSession, ids: Any, cuts: list[int]) -> Any:
    """Logits of all tokens, given in parts over a cache."""
    given, names = session.get_inputs(), [o.name for o in session.get_outputs()]
    past = {i.name: np.zeros([d if isinstance(d, int) else 0 for d in i.shape], np.float32) for i in given if "past" in i.name}
    found = []
    for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True):
        out = dict(zip(names, session.run(None, {"input_ids": ids[None, a:b], "num_logits_to_keep": np.int64(0), **past}), strict=True))
        past = {k.replace("present", "past_key_values"): v for k, v in out.items() if k != "logits"}
        found.append(out["logits"][0])
    return np.concatenate(found)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", *BLOCKS])
def test_a_decoder_gives_the_logits_of_its_weights(kind: str, tmp_path: Path) -> None:
    """Rows that meet codes in blocks are taken in units of their block, max / 32639; nine products follow one another."""
    tiny = Tiny(kind, tied=kind in ("F16", "Q6_K"))
    path = tiny.write(tmp_path / "tiny.gguf")
    ids = np.random.default_rng(2).integers(0, tiny.words, 11)
    want = tiny.logits(ids)
    units = 0 if kind in ("F32", "F16", "BF16") else 9 / 32639
    for form in (path, path.read_bytes()):
        got = steps(pyonnx_wasm.InferenceSession(form), ids, [5, 6])
        np.testing.assert_allclose(got, want, rtol=0, atol=(2e-5 + units) * np.abs(want).max())


@pytest.mark.parametrize("name", architectures.CHECKED)
def test_architectures_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Norms, biases, rotations, windows, caps, joined weights: logits as transformers computes them from the same file."""
    session = pyonnx_wasm.InferenceSession(architectures.write(name, tmp_path / "model.gguf"))
    want = np.load(Path(__file__).parent / "data/gguf_architectures.npz")[name]
    got = steps(session, architectures.IDS, [5, 6])[:, : architectures.SHOWN]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_logits_of_the_last_tokens_alone(tmp_path: Path) -> None:
    """Some processors take few rows alone in units of their block, max / 32639: in one product here."""
    session = pyonnx_wasm.InferenceSession(Tiny("Q8_0").write(tmp_path / "tiny.gguf"))
    past = {i.name: np.zeros((1, 2, 0, 16), np.float32) for i in session.get_inputs() if "past" in i.name}
    ids = np.arange(6)[None]
    every, last = (session.run(["logits"], {"input_ids": ids, "num_logits_to_keep": np.int64(k), **past})[0] for k in (0, 1))
    np.testing.assert_allclose(last, every[:, -1:], rtol=0, atol=(1e-5 + 1 / 32639) * np.abs(every).max())


def test_weights_stay_in_the_file(tmp_path: Path) -> None:
    """A compiled model holds the blocks as they are, and gives the same numbers."""
    path = Tiny("Q4_0").write(tmp_path / "tiny.gguf")
    pyonnx_wasm.save(pyonnx_wasm.compile(path), tmp_path / "tiny.ponnx")
    ids = np.arange(9)
    got, want = (steps(pyonnx_wasm.InferenceSession(tmp_path / f"tiny.{end}"), ids, [4]) for end in ("ponnx", "gguf"))
    np.testing.assert_array_equal(got, want)
    stored = {t.tensor.name: t.tensor.nbytes for t in file.read(path).tensors.values()}
    weights = {w.name: w.nbytes for w in pyonnx_wasm.compile(path).weights if w.source is not None}
    assert {n: b for n, b in weights.items() if n in stored} == stored


def entry(key: str, kind: int, data: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + data


def made(entries: list[bytes] = [], tensors: list[bytes] = [], version: int = 3, counts: tuple[int, int] | None = None) -> bytes:  # noqa: B006
    few, many = counts or (len(tensors), len(entries))
    return b"GGUF" + struct.pack("<IQQ", version, few, many) + b"".join(entries) + b"".join(tensors)


def described(name: str, shape: list[int], kind: int, offset: int = 0) -> bytes:
    return struct.pack(f"<Q{len(name)}sI{len(shape)}QIQ", len(name), name.encode(), len(shape), *shape, kind, offset)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (made(version=9), "GGUF version 9; versions 2 and 3 are supported"),
        (made(version=3 << 24), "big-endian"),
        (made(counts=(0, 1 << 60)), "metadata entries are more than the file has room for"),
        (made(counts=(1 << 60, 0)), "tensors are more than the file has room for"),
        (made([entry("k", 8, struct.pack("<Q", 1 << 50))]), "metadata 'k' takes 1125899906842624 bytes, the file ends at"),
        (made([entry("k", 9, struct.pack("<IQ", 8, 1 << 50))]), "metadata 'k' has 1125899906842624 entries"),
        (made([entry("k", 9, struct.pack("<IQ", 4, 1 << 50))]), "metadata 'k' takes"),
        (made([entry("k", 77, b"")]), "metadata 'k' has type 77"),
        (made([entry("k", 9, struct.pack("<IQ", 9, 1) * 20 + bytes(200))]), "nests too deep"),
        (made([entry("k", 0, b"1")] * 2), "metadata 'k' is given twice"),
        (made([], [described("w", [32], 2)]), "tensor 'w': Q4_0 of shape [32] at bytes 64 to 82, the file ends at"),
        (made([], [described("w", [33], 2)]), "tensor 'w' has the impossible shape [33] for Q4_0"),
        (made([], [described("w", [1 << 40, 1 << 40], 0)]), "tensor 'w' has the impossible shape"),
        (made([], [described("w", [0], 0)]), "tensor 'w' has the impossible shape"),
        (made([], [described("w", [2], 0, 7)]), "places are multiples of 32"),
        (made([], [described("w", [256], 10)]), "tensor 'w' has the block type Q2_K"),
        (made([], [described("w", [1] * 5, 0)]), "tensor 'w' has 5 axes"),
        (made([], [described("w", [1], 0)] * 2) + bytes(99), "tensor 'w' is described twice"),
        (made([entry("general.alignment", 4, struct.pack("<I", 3))]), "'general.alignment' is 3"),
        (made(), "architecture None is not supported; llama,"),
        (made([entry("general.architecture", 8, struct.pack("<Q5s", 5, b"llama"))]), "metadata 'llama.block_count' is missing"),
    ],
)  # fmt: skip
def test_damaged_files_are_told(data: bytes, message: str) -> None:
    with pytest.raises(ReadError, match=re.escape(message)):
        source.read(data)


def test_a_decoder_that_lacks_or_has_too_much_is_told(tmp_path: Path) -> None:
    whole = Tiny("F32").write(tmp_path / "tiny.gguf").read_bytes()
    for old, new, message in (
        (b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight", "tensor 'blk.1.ffn_up.weight' is missing"),
        (b"\x0d\0\0\0\0\0\0\0output.weight", b"\x0d\0\0\0\0\0\0\0other_.weight", "tensor 'other_.weight' has no place in llama"),
    ):
        with pytest.raises(ReadError, match=message):
            source.read(whole.replace(old, new))
    with pytest.raises(ReadError, match=r"tensor .* is truncated or damaged"):
        source.read(whole[:-64])


def test_random_damage_is_an_error_or_a_model(tmp_path: Path) -> None:
    """Of a header in which bytes and lengths were changed nothing else comes."""
    whole = Tiny("Q8_0", words=3, layers=1).write(tmp_path / "tiny.gguf").read_bytes()
    end, rng, refused = whole.index(b"blk.0.ffn_down.weight") + 60, random.Random(5), 0
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 4])):
            data[rng.randrange(4, end)] = rng.choice([0, 1, 2, 127, 128, 255, rng.randrange(256)])
        if not rng.randrange(4):
            del data[rng.randrange(len(data)) :]
        try:
            source.read(bytes(data))
        except ReadError:
            refused += 1
    assert refused > 200


def test_random_damage_gives_a_text_or_an_error_that_says_why(tmp_path: Path) -> None:
    """From the file to its tokens, in bounded memory: of bytes that were changed anywhere, and of files that end early."""
    whole = talking(tmp_path / "tiny.gguf", layers=1).read_bytes()
    end, rng, texts, told = whole.index(b"blk.0.ffn_down.weight") + 60, random.Random(3), 0, list[str]()
    path = tmp_path / "damaged.gguf"
    for k in range(48):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 4])):
            data[rng.randrange(4, end if k % 4 else len(data))] = rng.choice([0, 1, 2, 127, 128, 255, rng.randrange(256)])
        if not k % 6:
            del data[rng.randrange(len(data)) :]
        path.write_bytes(data)
        try:
            generator = Generator(path, sess_options=SessionOptions(intra_op_num_threads=1, max_memory=64 << 20))
            text = generator.generate([3, 4, 5], max_new_tokens=3, temperature=0)
            list(text)
            generator.prompt([{"role": "user", "content": "the"}])
            texts += 1
        except (ReadError, IRError, CoreError, TextError, FloatingPointError, ValueError) as error:
            told.append(str(error))
    assert 0 < texts < 40
    assert all(told)
