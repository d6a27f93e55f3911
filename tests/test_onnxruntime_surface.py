"""What programs written for onnxruntime use, here and there: the same names, the same answers."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
import venv
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from members import ABSENT, ABSENT_MEMBERS, MODULES, PAGE, page, public, python_part
from onnx import parser

import pyonnx_wasm
from pyonnx_wasm import shim


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
    faults: list[BaseException] = []

    def run() -> None:
        try:
            session.run(None, {"x0": np.zeros((2500, 2500), np.float32)}, options)
        except Exception as error:
            faults.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not options._cancels and thread.is_alive():
        thread.join(0.01)
    options.terminate = True
    thread.join(60)
    assert not thread.is_alive()
    assert "cancelled" in str(faults[0])
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
