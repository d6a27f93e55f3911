import struct
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx_wire import number, part, wired

from pyonnx_wasm.dtypes import DType
from pyonnx_wasm.onnxfile import reader
from pyonnx_wasm.onnxfile.reader import ReadError, Tensor, read
from pyonnx_wasm.onnxfile.tensor import pack, unpack

F32 = TensorProto.FLOAT


def value(name: str, shape: Any = (2,), dtype: int = F32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(nodes: Any, initializers: Any = (), inputs: Any = (), outputs: Any = (), *, ir: int = 10, opset: int = 21, **more: Any) -> Any:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(initializers))
    opsets = more.pop("opset_imports", [helper.make_opsetid("", opset)])
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir, **more)


def holding(tensor: TensorProto, ir: int = 10) -> bytes:
    return model_of([], [tensor], ir=ir).SerializeToString()


def only(tensor: bytes) -> Tensor:
    return next(iter(read(wired(part(5, tensor))).graph.initializers.values()))


# --- the same as onnx's own parser


def same_tensor(got: Tensor, want: TensorProto) -> None:
    assert (got.name, int(got.dtype), got.shape) == (want.name, want.data_type, tuple(want.dims))
    array = got.numpy()
    expected = numpy_helper.to_array(want)
    if got.dtype is DType.string:
        assert array.tolist() == expected.tolist()
        return
    bits = got.dtype.bits
    stored = np.ascontiguousarray(expected).reshape(-1).view(np.uint8)
    assert array.shape == got.shape
    if bits < 8:
        stored = stored & ((1 << bits) - 1)
    assert array.tobytes() == stored.tobytes()
    assert got.nbytes == len(got.raw()) == got.dtype.nbytes(array.size)
    if want.HasField("raw_data"):
        assert bytes(got.raw()) == want.raw_data


def same_type(got: reader.TypeInfo, want: onnx.TypeProto) -> None:
    which = want.WhichOneof("value")
    kinds = {None: "tensor", "tensor_type": "tensor", "sparse_tensor_type": "sparse", "sequence_type": "sequence", "map_type": "map"}
    assert got.kind == kinds.get(which, (which or "").removesuffix("_type"))
    if which in ("tensor_type", "sparse_tensor_type"):
        proto = getattr(want, which)
        assert (got.dtype or 0) == proto.elem_type
        dims = [d.dim_value if d.WhichOneof("value") == "dim_value" else d.dim_param or None for d in proto.shape.dim]
        assert got.shape == (tuple(dims) if proto.HasField("shape") else None)
    elif which in ("sequence_type", "optional_type"):
        assert got.elem is not None
        same_type(got.elem, getattr(want, which).elem_type)
    elif which == "map_type":
        assert got.elem is not None
        assert got.dtype == want.map_type.key_type
        same_type(got.elem, want.map_type.value_type)


def same_value(got: Any, want: Any) -> None:
    if isinstance(want, list | tuple) or type(want).__name__.startswith("Repeated"):
        assert isinstance(got, list)
        for g, w in zip(got, want, strict=True):
            same_value(g, w)
    elif isinstance(want, onnx.TensorProto):
        same_tensor(got, want)
    elif isinstance(want, onnx.GraphProto):
        same_graph(got, want)
    elif isinstance(want, onnx.SparseTensorProto):
        same_tensor(got.values, want.values)
        same_tensor(got.indices, want.indices)
        assert got.dims == tuple(want.dims)
    elif isinstance(want, onnx.TypeProto):
        same_type(got, want)
    elif isinstance(want, bytes):
        assert got.encode("utf-8", "surrogateescape") == want
    else:
        assert type(got) is type(want)
        assert got == want or (got != got and want != want)


def same_graph(got: reader.Graph, want: onnx.GraphProto) -> None:
    assert got.name == want.name
    assert [n.index for n in got.nodes] == list(range(len(want.node)))
    for node, proto in zip(got.nodes, want.node, strict=True):
        assert (node.op_type, node.name, node.overload) == (proto.op_type, proto.name, proto.overload)
        assert node.domain == proto.domain.replace("ai.onnx", "") if proto.domain == "ai.onnx" else node.domain == proto.domain
        assert (node.inputs, node.outputs) == (tuple(proto.input), tuple(proto.output))
        assert list(node.attrs) == [a.name for a in proto.attribute]
        for attr in proto.attribute:
            same_value(node.attrs[attr.name], helper.get_attribute_value(attr))
    stored = {t.name: t for t in want.initializer}
    for name, tensor in stored.items():
        same_tensor(got.initializers[name], tensor)
    assert got.initializers.keys() == stored.keys() | {t.values.name for t in want.sparse_initializer}
    fed = [i for i in want.input if i.name not in got.initializers]
    for infos, protos in ((got.inputs, fed), (got.outputs, want.output)):
        for info, proto in zip(infos, protos, strict=True):
            assert info.name == proto.name
            same_type(info.type, proto.type)
    for proto in want.value_info:
        same_type(got.value_info[proto.name], proto.type)


def same_model(data: bytes) -> None:
    want = onnx.load_from_string(data)
    got = read(data)
    assert got.ir_version == want.ir_version
    assert {d: v for d, v in got.opsets.items() if d != "ai.onnx"} == {o.domain: o.version for o in want.opset_import}
    assert got.metadata == {p.key: p.value for p in want.metadata_props}
    same_graph(got.graph, want.graph)


@pytest.mark.parametrize("kind", ["node", "simple", "pytorch-operator", "pytorch-converted"])
def test_reads_the_backend_suite_as_onnx_does(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind=kind)
    assert len(cases) > 20
    for case in cases:
        data = case.model.SerializeToString() if case.model else Path(case.model_dir, "model.onnx").read_bytes()
        try:
            same_model(data)
        except Exception as error:
            error.add_note(case.name)
            raise


@pytest.mark.parametrize("path", sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx")), ids=lambda p: p.stem)
def test_reads_large_old_models_as_onnx_does(path: Path) -> None:
    with read(path) as model:
        same_graph(model.graph, onnx.load(path).graph)
        assert model.files == [str(path)]


# --- tensors


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.string], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (2, 3), (5, 0, 2), (3, 5, 17)], ids=str)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
def test_every_dtype(dtype: DType, shape: tuple[int, ...], raw: bool) -> None:
    count = int(np.prod(shape))
    element = helper.tensor_dtype_to_np_dtype(int(dtype))
    rng = np.random.default_rng(dtype.value)
    source = rng.integers(0, 2 if dtype is DType.bool else 256, (count, element.itemsize), np.uint8)
    array = source.reshape(-1).view(element).reshape(shape)
    if dtype.bits < 8:
        array = (source.reshape(shape) & ((1 << dtype.bits) - 1)).astype(np.uint8).view(element)
    tensor = numpy_helper.from_array(array, "t")
    if not raw:
        flat = tensor.raw_data if dtype.bits < 8 else np.ascontiguousarray(array).tobytes()
        tensor = typed_copy(dtype, shape, flat)
    same_tensor(read(holding(tensor)).graph.initializers["t"], tensor)


def typed_copy(dtype: DType, shape: tuple[int, ...], packed: bytes) -> TensorProto:
    """The tensor with its elements in the typed field that onnx.proto names for the dtype."""
    tensor = TensorProto(name="t", data_type=int(dtype), dims=shape)
    flat = np.frombuffer(packed, np.uint8)
    if dtype in (DType.float32, DType.complex64):
        tensor.float_data.extend(flat.view(np.float32))
    elif dtype in (DType.float64, DType.complex128):
        tensor.double_data.extend(flat.view(np.float64))
    elif dtype is DType.int64:
        tensor.int64_data.extend(flat.view(np.int64))
    elif dtype in (DType.uint32, DType.uint64):
        tensor.uint64_data.extend(flat.view(f"u{dtype.bits // 8}"))
    elif dtype.bits == 6:
        tensor.int32_data.extend(unpack(flat, 6, int(np.prod(shape))))
    else:
        signed = dtype in (DType.int8, DType.int16, DType.int32)
        tensor.int32_data.extend(flat.view(f"{'i' if signed else 'u'}{max(dtype.bits // 8, 1)}"))
    return tensor


@pytest.mark.parametrize("bits", [2, 4, 6])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 1001])
def test_packing_of_small_types(bits: int, count: int) -> None:
    codes = np.random.default_rng(count).integers(0, 1 << bits, count, np.uint8)
    packed = pack(codes, bits)
    stream = sum(int(c) << bits * i for i, c in enumerate(codes))
    assert packed.tobytes() == stream.to_bytes((count * bits + 7) // 8, "little")
    assert unpack(packed, bits, count).tolist() == codes.tolist()


def test_strings() -> None:
    tensor = helper.make_tensor("t", TensorProto.STRING, [2, 2], ["", "a", "Zürich", "\U0001f40b"])
    got = read(holding(tensor)).graph.initializers["t"]
    assert got.numpy().tolist() == [["", "a"], ["Zürich", "\U0001f40b"]]
    with pytest.raises(ReadError, match="no raw form"):
        got.raw()


@pytest.mark.parametrize("values", [[], [0], [-1], [1, -(2**63), 2**63 - 1, 127, 128], list(range(-300, 300))])
@pytest.mark.parametrize("packed", [True, False])
def test_packed_and_unpacked(values: list[int], packed: bool) -> None:
    def repeated(field: int) -> bytes:
        return part(field, b"".join(map(number, values))) if packed else b"".join(part(field, v) for v in values)

    data = part(2, 7) + (part(1, number(len(values))) if packed else part(1, len(values))) + part(8, "t") + repeated(7)
    assert only(data).numpy().tolist() == values
    node = part(4, "Op") + part(5, part(1, "a") + part(20, 7) + repeated(8))
    assert read(wired(part(1, node))).graph.nodes[0].attrs == {"a": values}


@pytest.mark.parametrize("packed", [True, False])
def test_floats_packed_and_unpacked(packed: bool) -> None:
    values = [0.0, -1.5, float("inf"), 2.0**-149]

    def repeated(field: int) -> bytes:
        flat = struct.pack("<4f", *values)
        return part(field, flat) if packed else b"".join(number(field << 3 | 5) + flat[i : i + 4] for i in range(0, 16, 4))

    assert only(part(1, 4) + part(2, 1) + part(8, "t") + repeated(4)).numpy().tolist() == values
    node = part(4, "Op") + part(5, part(1, "a") + repeated(7))
    assert read(wired(part(1, node))).graph.nodes[0].attrs == {"a": values}


def test_types_missing_in_old_files_are_inferred() -> None:
    def attr(payload: bytes) -> Any:
        return read(wired(part(1, part(4, "Op") + part(5, part(1, "a") + payload)))).graph.nodes[0].attrs["a"]

    assert attr(number(2 << 3 | 5) + struct.pack("<f", 0.5)) == 0.5
    assert attr(part(3, -7)) == -7
    assert attr(part(4, "text")) == "text"
    assert attr(part(9, "a") + part(9, "b")) == ["a", "b"]
    assert attr(b"") == []
    assert only(part(1, 2) + part(8, "t") + part(7, number(3) + number(4))).dtype is DType.int64
    assert only(part(1, 1) + part(8, "t") + part(6, "x")).numpy().tolist() == ["x"]


def test_absent_scalars_have_their_default() -> None:
    nodes = [part(1, part(4, "Op") + part(5, part(1, "a") + part(20, kind))) for kind in (1, 2, 3, 6, 7, 8)]
    assert [n.attrs["a"] for n in read(wired(b"".join(nodes))).graph.nodes] == [0.0, 0, "", [], [], []]


def test_weights_are_located_and_not_copied(tmp_path: Path) -> None:
    array = np.arange(100_000, dtype=np.float32)
    typed = TensorProto(name="typed", data_type=F32, dims=[3], float_data=[1, 2, 3])
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of([], [numpy_helper.from_array(array, "w"), typed]).SerializeToString())
    data = path.read_bytes()
    with read(path) as model:
        for name, expected in (("w", array), ("typed", np.array([1, 2, 3], np.float32))):
            tensor = model.graph.initializers[name]
            assert (tensor.file, tensor.nbytes) == (0, expected.nbytes)
            assert tensor.offset is not None
            assert data[tensor.offset : tensor.offset + tensor.nbytes] == expected.tobytes()
            assert np.shares_memory(tensor.numpy(), tensor.numpy())
            assert not tensor.numpy().flags.writeable
        kept = model.graph.initializers["w"].numpy()
    assert kept[-1] == 99_999


@pytest.mark.parametrize("wrap", [bytes, memoryview, bytearray])
def test_sources(wrap: Any, tmp_path: Path) -> None:
    data = model_of([helper.make_node("Relu", ["x"], ["y"])], inputs=[value("x")], outputs=[value("y")]).SerializeToString()
    model = read(wrap(data))
    assert model.files == [""]
    assert model.graph.nodes[0].op_type == "Relu"
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    assert read(str(path)).graph == read(path).graph == model.graph


def test_without_mmap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(holding(numpy_helper.from_array(np.arange(5), "t")))
    monkeypatch.setitem(sys.modules, "mmap", None)
    assert read(path).graph.initializers["t"].numpy().tolist() == [0, 1, 2, 3, 4]


def test_tensor_of_an_array() -> None:
    for array in (np.arange(6, dtype=np.int16).reshape(2, 3), np.float32(3), np.zeros((0, 2), bool), np.array([1, 2], ">i4")):
        tensor = Tensor.of(array, "t")
        assert np.array_equal(tensor.numpy(), array)
        assert bytes(tensor.raw()) == np.asarray(array).astype(np.asarray(array).dtype.newbyteorder("<")).tobytes()
    assert Tensor.of(["a", "b"]).numpy().tolist() == ["a", "b"]


# --- sparse


def sparse(values: Any, indices: Any, dims: Any, dtype: Any = np.float32, name: str = "s") -> onnx.SparseTensorProto:
    array = numpy_helper.from_array(np.array(values, dtype), name)
    return helper.make_sparse_tensor(array, numpy_helper.from_array(np.array(indices, np.int64), ""), dims)


@pytest.mark.parametrize("indices", [[0, 5], [[0, 0], [1, 2]]], ids=["linear", "coordinates"])
def test_sparse(indices: Any) -> None:
    proto = model_of([helper.make_node("Constant", [], ["c"], sparse_value=sparse([7, 8], indices, [2, 3]))])
    proto.graph.sparse_initializer.append(sparse([7, 8], indices, [2, 3]))
    graph = read(proto.SerializeToString()).graph
    for dense in (graph.initializers["s"], graph.nodes[0].attrs["sparse_value"].densify()):
        assert (dense.shape, dense.nbytes, dense.offset) == ((2, 3), 24, None)
        assert dense.numpy().tolist() == [[7, 0, 0], [0, 0, 8]]
        assert np.frombuffer(dense.raw(), np.float32).tolist() == [7, 0, 0, 0, 0, 8]


@pytest.mark.parametrize(
    ("indices", "dims", "message"),
    [
        ([0, 6], [2, 3], "'s': index [6] is outside its shape [2, 3]"),
        ([-1, 0], [2, 3], "index [-1] is outside"),
        ([[0, 3], [0, 0]], [2, 3], "index [0, 3] is outside"),
        ([0], [6], "int64 [2] or [2, 1] is needed"),
        ([[0, 0, 0], [0, 0, 1]], [2, 3], "int64 [2] or [2, 2] is needed"),
        ([0, 1], [1 << 40], "too large to be made dense"),
        ([0, 1], [-1], "impossible shape"),
    ],
)
def test_bad_sparse(indices: Any, dims: Any, message: str) -> None:
    proto = model_of([])
    proto.graph.sparse_initializer.append(sparse([1, 2], indices, dims))
    with pytest.raises(ReadError) as error:
        read(proto.SerializeToString()).graph.initializers["s"].numpy()
    assert message in str(error.value)
