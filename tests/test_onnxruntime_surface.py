"""What programs written for onnxruntime use, here and there: the same names, the same answers."""

from __future__ import annotations

import inspect
import subprocess
import sys
import venv
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from members import ABSENT, ABSENT_MEMBERS, MODULES, PAGE, page, public, python_part
from onnx import parser
from waiting import given_up

import pyonnx_wasm
from pyonnx_wasm import shim
from pyonnx_wasm.onnxfile.reader import ReadError


def test_every_name_is_here_or_has_its_reason() -> None:
    missing = public(onnxruntime) - public(pyonnx_wasm) - MODULES
    assert missing == set(ABSENT)


@pytest.mark.parametrize("name", list(ABSENT_MEMBERS))
def test_every_member_is_here_or_has_its_reason(name: str) -> None:
    theirs, ours = getattr(onnxruntime, name), getattr(pyonnx_wasm, name)
    here = public(ours()) if name in ("SessionOptions", "RunOptions", "ModelMetadata") else public(ours)
    assert public(theirs) - here == set(ABSENT_MEMBERS[name])


def test_the_table_of_members_is_current() -> None:
    assert python_part(page({})) == python_part(PAGE.read_text()), "run `python tests/members.py`"


def test_options_start_as_theirs() -> None:
    theirs, ours = onnxruntime.SessionOptions(), pyonnx_wasm.SessionOptions()
    for name in public(theirs) & public(ours):
        value = getattr(theirs, name)
        if not callable(value):
            assert getattr(ours, name) == (int(value) if hasattr(value, "name") else value), name


MODEL = """
<ir_version: 8, opset_import: ["" : 17], producer_name: "maker", producer_version: "2", model_version: 7, domain: "org.example",
 doc_string: "adds", metadata_props: ["labels": "a,b"]>
adder (float[n, 3] x, float[n, 3] y) => (float[n, 3] sum, float[n, 3] difference)
<float[3] w = {1, 2, 3}> {
  v = Mul(x, w)
  sum = Add(v, y)
  difference = Sub(v, y)
}"""


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose two weights lie in a file at offsets of their own."""
    folder = tmp_path_factory.mktemp("apart")
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
      g (float[n, 3] x) => (float[n, 3] y) { a = Mul(x, w) y = Add(a, b) }""")
    values = {"w": np.array([1, 2, 3], np.float32), "b": np.array([[0.5, -1, 7]], np.float32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in values.items())
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    return folder / "model.onnx"


@pytest.mark.parametrize(
    "kind", [bytes, bytearray, memoryview, partial(np.frombuffer, dtype=np.uint8)], ids=["bytes", "bytearray", "memoryview", "array"]
)
@pytest.mark.parametrize("by_path", [True, False])
def test_external_data_from_memory(apart: Path, kind: Any, by_path: bool) -> None:
    """In place of what lies beside the model, which need not be there; more bytes than are used are told by the length."""
    data = (apart.parent / "weights.bin").read_bytes()
    other = data.replace(np.float32(7).tobytes(), np.float32(9).tobytes())
    source: Any = str(apart) if by_path else apart.read_bytes()
    x = np.ones((2, 3), np.float32)
    found, given = [], kind(other + b"rest")  # onnxruntime does not keep it
    for module in (onnxruntime, pyonnx_wasm):
        options = module.SessionOptions()
        options.add_external_initializers_from_files_in_memory(["weights.bin"], [given], [len(other)])
        [y] = module.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})
        found.append(y)
    np.testing.assert_array_equal(found[1], [[1.5, 1, 12]] * 2)
    np.testing.assert_array_equal(*found)


def test_external_initializers_by_name(apart: Path) -> None:
    """A model without its external data runs once each of them is given."""
    values = {"w": np.array([2, 2, 2], np.float32), "b": np.zeros((1, 3), np.float32)}
    found = []
    for module in (onnxruntime, pyonnx_wasm):
        options = module.SessionOptions()
        options.add_external_initializers(list(values), [module.OrtValue.ortvalue_from_numpy(v) for v in values.values()])
        session = module.InferenceSession(apart.read_bytes(), options, providers=["CPUExecutionProvider"])
        found.append(session.run(None, {"x": np.ones((2, 3), np.float32)})[0])
    np.testing.assert_array_equal(found[0], np.full((2, 3), 2))
    np.testing.assert_array_equal(*found)
    options = pyonnx_wasm.SessionOptions()
    options.add_external_initializers(["w"], [pyonnx_wasm.OrtValue.ortvalue_from_numpy(values["w"])])
    with pytest.raises(ReadError, match=r"tensor 'b' .*weights.bin"):
        pyonnx_wasm.InferenceSession(apart.read_bytes(), options)


def test_external_data_from_memory_that_do_not_fit() -> None:
    options = pyonnx_wasm.SessionOptions()
    with pytest.raises(ValueError, match="2 names for 1 buffers and 2 lengths"):
        options.add_external_initializers_from_files_in_memory(["a", "b"], [b""], [0, 0])
    with pytest.raises(ValueError, match="'a': the buffer has 3 bytes, not 4"):
        options.add_external_initializers_from_files_in_memory(["a"], [b"abc"], [4])


@pytest.fixture(scope="module")
def model() -> bytes:
    return bytes(parser.parse_model(MODEL).SerializeToString())


def both(model: bytes, configure: Any = lambda module: None) -> list[Any]:
    made = []
    for module in (onnxruntime, pyonnx_wasm):
        options = configure(module)
        made.append(module.InferenceSession(model, options, providers=["CPUExecutionProvider"]))
    return made


def feeds(n: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"x": rng.standard_normal((n, 3)).astype(np.float32), "y": rng.standard_normal((n, 3)).astype(np.float32)}


def test_what_a_session_says(model: bytes) -> None:
    theirs, ours = both(model)
    assert ours.get_providers() == theirs.get_providers() == ["CPUExecutionProvider"]
    assert list(ours.get_provider_options()) == list(theirs.get_provider_options())
    for kind in ("get_inputs", "get_outputs"):
        assert [(a.name, a.type, a.shape) for a in getattr(ours, kind)()] == [(a.name, a.type, a.shape) for a in getattr(theirs, kind)()]
    for name in ABSENT_MEMBERS["ModelMetadata"].keys() ^ public(ours.get_modelmeta()):
        assert getattr(ours.get_modelmeta(), name) == getattr(theirs.get_modelmeta(), name), name
    assert ours.get_session_options() is not None


def test_a_compiled_model_says_the_same_of_itself(model: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.ponnx"
    pyonnx_wasm.save(pyonnx_wasm.compile(model), path)
    assert pyonnx_wasm.InferenceSession(path).get_modelmeta() == pyonnx_wasm.InferenceSession(model).get_modelmeta()


@pytest.mark.parametrize("names", [None, [], ["difference"], ["difference", "sum"]])
def test_runs(model: bytes, names: list[str] | None) -> None:
    theirs, ours = (s.run(names, feeds()) for s in both(model))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_values_and_bindings(model: bytes) -> None:
    results = []
    for module, session in zip((onnxruntime, pyonnx_wasm), both(model), strict=True):
        values = {n: module.OrtValue.ortvalue_from_numpy(a) for n, a in feeds().items()}
        x = values["x"]
        about = (x.shape(), x.data_type(), x.element_type(), x.device_name(), x.is_tensor(), x.has_value(), x.tensor_size_in_bytes())
        plain = [v.numpy() for v in session.run_with_ort_values(["sum"], values)]
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", x)
        binding.bind_cpu_input("y", feeds()["y"])
        binding.bind_output("sum")
        place = module.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
        binding.bind_ortvalue_output("difference", place)
        session.run_with_iobinding(binding)
        first = binding.copy_outputs_to_cpu()
        x.update_inplace(feeds()["x"] * 2)
        session.run_with_iobinding(binding)
        results.append((about, plain, first, [np.array(v.numpy()) for v in binding.get_outputs()], np.array(place.numpy())))
    assert results[0][0] == results[1][0]
    for a, b in zip(results[0][1:], results[1][1:], strict=True):
        np.testing.assert_array_equal(np.array(a), np.array(b))


def test_sparse_inputs(model: bytes) -> None:
    ours = both(model)[1]
    dense = np.array([[0, 5, 0], [7, 0, 0]], np.float32)
    coo = pyonnx_wasm.SparseTensor.sparse_coo_from_numpy([2, 3], np.array([5, 7], np.float32), np.array([1, 3]))
    csr = pyonnx_wasm.SparseTensor.sparse_csr_from_numpy([2, 3], np.array([5, 7], np.float32), np.array([1, 0]), np.array([0, 1, 2]))
    want = ours.run(None, {"x": dense, "y": dense})
    for sparse in (coo, csr):
        np.testing.assert_array_equal(sparse.densify(), dense)
        np.testing.assert_array_equal(ours.run(None, {"x": sparse, "y": dense}), want)


def test_options_do_what_they_say(model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []  # onnxruntime does not keep the value alive

    def configure(module: Any) -> Any:
        options = module.SessionOptions()
        options.add_free_dimension_override_by_name("n", 2)
        options.add_free_dimension_override_by_name("unknown", 5)
        options.graph_optimization_level = module.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.execution_mode = module.ExecutionMode.ORT_SEQUENTIAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
        kept.append(module.OrtValue.ortvalue_from_numpy(np.array([9, 8, 7], np.float32)))
        options.add_initializer("w", kept[-1])
        return options

    theirs, ours = both(model, configure)
    assert ours.get_inputs()[0].shape == theirs.get_inputs()[0].shape == [2, 3]
    np.testing.assert_array_equal(ours.run(None, feeds()), theirs.run(None, feeds()))
    with pytest.raises(ValueError, match="axis 0 must be 2"):
        ours.run(None, feeds(3))
    monkeypatch.chdir(tmp_path)
    options = pyonnx_wasm.SessionOptions(enable_profiling=True, profile_file_prefix="trace")
    session = pyonnx_wasm.InferenceSession(model, options)
    session.run(None, feeds())
    assert Path(session.end_profiling()).read_text().startswith('{"traceEvents"')


def test_faults_are_named(model: bytes) -> None:
    options = pyonnx_wasm.SessionOptions()
    with pytest.raises(AttributeError, match="graph_optimisation_level"):
        options.graph_optimisation_level = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="typo"):
        pyonnx_wasm.InferenceSession(model, typo=1)  # type: ignore[call-arg]
    with pytest.raises(NotImplementedError, match="libraries built for onnxruntime"):
        options.register_custom_ops_library("ops.so")
    with pytest.raises(ValueError, match="one mapping per provider"):
        pyonnx_wasm.InferenceSession(model, providers=["cpu"], provider_options=[{}, {}])
    options.add_initializer("nothing", pyonnx_wasm.OrtValue.ortvalue_from_numpy(np.zeros(1, np.float32)))
    with pytest.raises(ValueError, match="no initializer 'nothing'"):
        pyonnx_wasm.InferenceSession(model, options)
    session = pyonnx_wasm.InferenceSession(model)
    with pytest.raises(RuntimeError, match="terminate"):
        session.run(None, feeds(), pyonnx_wasm.RunOptions(terminate=True))
    with pytest.raises(ValueError, match="no output 'other'"):
        session.io_binding().bind_output("other")
    session.set_providers(["CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]


def long_model() -> bytes:
    """Minutes of products."""
    chain = "\n".join(f"x{i + 1} = MatMul(x{i}, x{i})" for i in range(200))
    text = f"long (float[n, n] x0) => (float[n, n] x200) {{ {chain} }}"
    return bytes(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}').SerializeToString())


def test_a_run_can_be_terminated_from_another_thread() -> None:
    session, options = pyonnx_wasm.InferenceSession(long_model()), pyonnx_wasm.RunOptions()
    assert "cancelled" in given_up(session, {"x0": np.zeros((2500, 2500), np.float32)}, options)
    assert session.run(None, {"x0": np.zeros((2, 2), np.float32)})[0].shape == (2, 2), "the next run is not touched"


def test_memory_and_work_are_bounded() -> None:
    small, x = {"x0": np.zeros((2, 2), np.float32)}, {"x0": np.zeros((400, 400), np.float32)}
    for options, what in (
        (pyonnx_wasm.SessionOptions(max_memory=1 << 16), "memory"),
        (pyonnx_wasm.SessionOptions(max_operations=1 << 20), "operations"),
    ):
        session = pyonnx_wasm.InferenceSession(long_model(), options)
        with pytest.raises(RuntimeError, match=what):
            session.run(None, x)
        assert session.run(None, small)[0].shape == (2, 2)


def test_run_takes_their_arguments() -> None:
    theirs = inspect.signature(onnxruntime.InferenceSession.run).parameters
    assert list(theirs) == list(inspect.signature(pyonnx_wasm.InferenceSession.run).parameters)


PROGRAMS = {
    "a classifier of scikit-learn's kind": """
import onnxruntime as rt, numpy as np
sess = rt.InferenceSession(path, providers=["CPUExecutionProvider"])
input_name = sess.get_inputs()[0].name
print(len(sess.run([sess.get_outputs()[0].name], {input_name: np.ones((2, 3), np.float32), "y": np.ones((2, 3), np.float32)})[0]))
""",
    "options, as optimum sets them": """
import numpy as np, onnxruntime
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
options = SessionOptions()
options.intra_op_num_threads = 1
options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
session = InferenceSession(path, sess_options=options, providers=["CPUExecutionProvider"], provider_options=[{}])
assert tuple(map(int, onnxruntime.__version__.split("."))) >= (1, 20)
print(session.run(None, {i.name: np.zeros((2, 3), np.float32) for i in session.get_inputs()})[0].shape[0])
""",
    "what is caught": """
import numpy as np, onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile
from onnxruntime.capi import _pybind_state as C
caught = 0
session = ort.InferenceSession(path)
for kind, call in (
    (NoSuchFile, lambda: ort.InferenceSession("missing.onnx")),
    (InvalidProtobuf, lambda: ort.InferenceSession(b"garbage")),
    (InvalidArgument, lambda: session.run(["nothing"], {})),
    (C.InvalidArgument, lambda: session.run(None, {"x": np.zeros((2, 4), np.float32), "y": np.zeros((2, 3), np.float32)})),
):
    try:
        call()
    except kind:
        caught += 1
assert C.get_available_providers() == ort.get_available_providers()
print(caught - 2)
""",
    "bound values": """
import numpy as np, onnxruntime as ort
session = ort.InferenceSession(path)
binding = session.io_binding()
for i in session.get_inputs():
    binding.bind_ortvalue_input(i.name, ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32)))
for o in session.get_outputs():
    binding.bind_output(o.name)
session.run_with_iobinding(binding)
print(binding.get_outputs()[0].shape()[0])
""",
}


@pytest.fixture(scope="module")
def shimmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python whose onnxruntime is the wheel."""
    folder = tmp_path_factory.mktemp("shim")
    wheel = shim.build(folder)
    venv.create(folder / "venv", with_pip=False)
    site = next((folder / "venv" / "lib").glob("python*")) / "site-packages"
    zipfile.ZipFile(wheel).extractall(site)
    root = Path(pyonnx_wasm.__file__).parents[1]
    (site / "others.pth").write_text(f"{root}\n{Path(np.__file__).parents[1]}\n")
    return folder / "venv" / "bin" / "python"


@pytest.mark.parametrize("kind", list(PROGRAMS))
def test_programs_run_on_the_wheel_named_onnxruntime(kind: str, shimmed: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(MODEL), path)
    code = f"path = {str(path)!r}\nimport sys, onnxruntime\nassert onnxruntime.package_name == 'pyonnx-wasm'\n{PROGRAMS[kind]}"
    done = subprocess.run([shimmed, "-c", code], capture_output=True, text=True)
    assert done.stdout == "2\n", done.stderr
    assert sys.executable != str(shimmed)


def test_tensors_of_other_libraries_and_places_of_sparse_ones() -> None:
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    values, indices = np.array([1, 2], np.float32), np.array([1, 6], np.int64)
    device = onnxruntime.OrtDevice.make("cpu", 0)
    found = []
    for module in (onnxruntime, pyonnx_wasm):
        value = module.OrtValue.from_dlpack(given)
        coo = module.SparseTensor.sparse_coo_from_numpy([3, 4], values, indices, device)
        rows = module.SparseTensor.sparse_csr_from_numpy([3, 4], values, np.array([1, 2]), np.array([0, 1, 2, 2]), device)
        assert coo.format() == module.OrtSparseFormat.ORT_SPARSE_COO
        assert rows.format() == module.OrtSparseFormat.ORT_SPARSE_CSRC
        view = rows.as_csrc_view()
        places = [coo.as_coo_view().indices(), view.inner(), view.outer()]
        found.append([value.shape(), value.numpy().tolist(), coo.data_type(), rows.data_type(), *(p.tolist() for p in places)])
    assert found[0] == found[1]
    shared = pyonnx_wasm.OrtValue.from_dlpack(given)
    given[0, 0] = 7
    assert np.from_dlpack(shared)[0, 0] == shared.numpy()[0, 0] == 7  # type: ignore[arg-type]


def test_what_the_package_says_of_itself() -> None:
    assert pyonnx_wasm.get_version_string() == pyonnx_wasm.__version__
    assert pyonnx_wasm.__version__ in pyonnx_wasm.get_build_info()
    assert "cpu" in pyonnx_wasm.get_build_info()
    assert pyonnx_wasm.has_collective_ops() is onnxruntime.has_collective_ops() is False
