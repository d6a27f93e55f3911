import io
import json
import pickle
import random
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_wire import FUNCTIONS, parsed, part, stored_outside, wired

from pyonnx_wasm.onnxfile import reader
from pyonnx_wasm.onnxfile.reader import ReadError, read

# --- damaged tensors and wire


def tensor(*parts: bytes) -> bytes:
    return wired(part(5, b"".join(parts)))


NAMED = part(8, "w")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (tensor(part(1, -1), part(2, 1), NAMED, part(9, b"")), "tensor 'w' at byte 6 has the impossible shape [-1]"),
        (tensor(part(1, 1 << 40), part(1, 1 << 40), part(2, 1), NAMED), "has the impossible shape [1099511627776, 1099511627776]"),
        (tensor(part(1, 0), part(1, 1 << 62), part(2, 1), NAMED), "has the impossible shape"),
        (tensor(part(1, 3), part(2, 1), NAMED, part(9, bytes(8))), "float32 of shape [3] takes 12 bytes, raw_data has 8"),
        (tensor(part(1, 3), part(2, 1), NAMED, part(4, bytes(8))), "takes 3 values, float_data has 2"),
        (tensor(part(1, 1), part(2, 1), NAMED, part(4, bytes(5))), "takes 1 values, float_data has 1.25"),
        (tensor(part(1, 3), part(2, 7), NAMED, part(7, bytes(2))), "takes 3 values, int64_data has 2"),
        (tensor(part(1, 3), part(2, 1), NAMED), "takes 3 values, it has no data"),
        (tensor(part(1, 1), part(2, 1), NAMED, part(7, bytes(1))), "float32 belongs in float_data or raw_data, this has int64_data"),
        (tensor(part(1, 1), part(2, 29), NAMED, part(9, bytes(1))), "element type 29, which is not known (1 to 28 are)"),
        (tensor(part(1, 1), NAMED, part(9, bytes(4))), "element type 0, which is not known"),
        (tensor(part(1, 1), part(2, 8), NAMED, part(9, bytes(4))), "holds strings in raw_data"),
        (tensor(part(1, 1), part(2, 1), NAMED, part(14, 2)), "data location 2"),
        (tensor(part(1, 1), part(2, 1), NAMED, part(14, 1)), "external data without a location"),
        (tensor(part(1, 1), part(2, 1), NAMED, part(3, b""), part(9, bytes(4))), "stored in segments"),
        (tensor(part(1, 1), part(2, 1), part(9, bytes(4))), "initializer '' has no name"),
        (wired(2 * part(5, part(2, 1) + NAMED + part(9, bytes(4)))), "initializer 'w' is defined twice in graph"),
        (wired(part(1, b"")), "node 0 '' has no operator type"),
        (wired(part(1, part(4, "Op") + 2 * part(5, part(1, "a") + part(3, 1)))), "node 0 (Op): attribute 'a' is given twice"),
        (wired(part(1, part(4, "Op") + part(5, part(1, "a") + part(20, 4)))), "attribute 'a' at byte 12 has 0 values instead of one"),
        (wired(part(1, part(4, "Op") + part(5, part(1, "a") + part(20, 99)))), "attribute 'a' at byte 12 has type 99"),
        (wired(part(1, part(4, "Op") + part(5, part(2, b"") + part(3, 1) + part(4, "x")))), "no type and several values"),
        (wired(part(1, part(1, b"\xff\xfe") + part(4, "Op"))), "a name that is not UTF-8"),
        (wired(b"\x0b"), "byte 4: wire type 3"),
        (wired(b"\x0c"), "wire type 4"),
        (wired(b"\x02\x00"), "byte 4: field number 0"),
        (wired(b"\x0a\xff"), "ends inside a number"),
        (wired(b"\x08" + b"\xff" * 11), "varint of more than 10 bytes"),
        (wired(part(2, "name") + b"\x0a\x7f"), "needs 127 bytes where 0 are left"),
        (wired(b"") + part(7, b""), "a second graph"),
        (part(1, 10) + part(8, part(2, 21)), "no graph in it"),
        (part(7, b"") + part(8, part(2, 21)), "IR version 0"),
        (2 * part(25, part(1, "f") + part(10, "lab")) + wired(b""), "function 'f' of domain 'lab' is defined twice"),
    ],
)
def test_damaged(data: bytes, message: str) -> None:
    with pytest.raises(ReadError) as error:
        read(data)
    assert message in str(error.value)


def nested(depth: int) -> bytes:
    graph = b""
    for _ in range(depth - 1):
        graph = part(1, part(4, "If") + part(5, part(1, "then_branch") + part(6, graph)))
    return wired(graph)


def test_nesting_is_bounded() -> None:
    read(nested(64))
    for depth in (65, 3000):
        with pytest.raises(ReadError, match="nest deeper than 64"):
            read(nested(depth))
    kind = part(1, part(1, 1))
    for _ in range(500):
        kind = part(4, part(1, kind))
    with pytest.raises(ReadError, match="types nest deeper than 64"):
        read(wired(part(11, part(1, "x") + part(2, kind))))


# --- foreign files


def zipped() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    return stream.getvalue()


FOREIGN = {
    "ort": (b"\x20\0\0\0ORTM" + bytes(100), "this is an .ort file"),
    "tflite": (b"\x1c\0\0\0TFL3" + bytes(100), "this is a TensorFlow Lite model"),
    "zip": (zipped(), "PyTorch .pt"),
    "pickle": (pickle.dumps({"weight": [1, 2]}), "this is a Python pickle"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(100), "this is an HDF5 file"),
    "gguf": (b"GGUF\3\0\0\0", "this is a GGUF file"),
    "gzip": (b"\x1f\x8b\x08\0\0\0\0\0", "this is a gzip archive"),
    "npy": (b"\x93NUMPY\1\0" + bytes(100), "this is a numpy array"),
    "json": (json.dumps({"irVersion": 8, "graph": {}}).encode(), "this is JSON"),
    "html": (b"<!DOCTYPE html><html>Not found", "this is a web page"),
    "text form": (b'<ir_version: 8, opset_import: ["": 21]> g () => () {}', "onnx.parser.parse_model"),
    "text": (b"The quick brown fox jumps over the lazy dog", "this is a text file"),
    "safetensors": ((2).to_bytes(8, "little") + b"{}", "this is a safetensors file"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n", "git lfs pull"),
    "tensor": (numpy_helper.from_array(np.zeros((2, 3), np.float32)).SerializeToString(), "this is a single tensor (float32 [2, 3])"),
    "typed tensor": (helper.make_tensor("t", TensorProto.INT64, [2], [1, 2]).SerializeToString(), "a single tensor (int64 [2])"),
    "empty": (b"", "the file is empty"),
    "zeros": (bytes(64), "field number 0"),
    "noise": (random.Random(1).randbytes(1000), "no ONNX model"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_files(tmp_path: Path, kind: str) -> None:
    content, message = FOREIGN[kind]
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ReadError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


def test_no_file_at_all(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    with pytest.raises(ReadError, match=r"is a directory; name the model file in it, such as m\.onnx"):
        read(tmp_path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "gone.onnx")


# --- fuzz


def seeds() -> list[bytes]:
    functions = parsed(FUNCTIONS, opsets='"": 21, "lab": 1')
    weights = stored_outside("w.bin")
    weights.graph.initializer[0].ClearField("data_location")
    weights.graph.initializer[0].raw_data = bytes(16)
    for i, dtype in enumerate((TensorProto.INT4, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.STRING, TensorProto.COMPLEX64)):
        values = ["a", "b", "c"] if dtype == TensorProto.STRING else [1, 2, 3]
        weights.graph.initializer.append(helper.make_tensor(str(i), dtype, [3], values))
    values = numpy_helper.from_array(np.ones(2, np.float32), "s")
    weights.graph.sparse_initializer.append(helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 3]), ""), [2, 2]))
    loop = parsed("""g (int64 n, bool c, float[2, N] x) => (float[2, N] y, seq(float[M]) s) {
        y, s = Loop (n, c, x) <body = b (int64 i, bool k, float[2, N] a) => (bool k2, float[2, N] r, float[2] t) {
            k2 = Identity(k)  r = Add <axis = 1, scales = [1.5, 2.5], mode = "linear", ends = [1, 2, -3]> (a, x)  t = Neg(r) }> }""")
    return [m.SerializeToString() for m in (functions, weights, loop)]


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(out))
        match rng.randrange(6):
            case 0:
                out[at] = rng.randrange(256)
            case 1:
                out[at] ^= 1 << rng.randrange(8)
            case 2:
                del out[at : at + rng.randint(1, 8)]
            case 3:
                out[at:at] = rng.randbytes(rng.randint(1, 8))
            case 4:
                start = rng.randrange(len(out))
                out[at:at] = out[start : start + rng.randint(1, 64)]
            case _:
                out[at : at + 1] = rng.choice((b"\xff" * 9 + b"\1", b"\x80" * 9 + b"\1", b"\0", b"\x7f", b"\xff\xff\xff\xff\x0f"))
        if not out:
            break
    return bytes(out)


def touch(graph: reader.Graph) -> None:
    values = [*graph.initializers.values()]
    for node in graph.nodes:
        for value in node.attrs.values():
            if isinstance(value, reader.Graph):
                touch(value)
            elif isinstance(value, reader.Tensor):
                values.append(value)
    for tensor in values:
        assert tensor.numpy().shape == tensor.shape


@pytest.mark.filterwarnings("ignore:IR version")
@pytest.mark.parametrize("which", range(3), ids=["functions", "weights", "loop"])
def test_mutations_and_truncations_are_refused_or_read(which: int) -> None:
    data = seeds()[which]
    touch(read(data).graph)
    cut = [data[:n] for n in range(len(data))]
    rng = random.Random(which)
    survived = 0
    for k, case in enumerate([*cut, *(mutated(data, rng) for _ in range(2000))]):
        begin = time.process_time()
        try:
            touch(read(case).graph)
            survived += 1
        except ReadError:
            pass
        except BaseException as error:
            error.add_note(f"mutation {k}: {case.hex()}")
            raise
        assert time.process_time() - begin < 5, k
    assert survived
