"""Operators of one's own in WebAssembly and WGSL, and what is declared of them."""

import builtins
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import custom_models as custom
import numpy as np
import pytest
from custom_models import DOMAIN, X, model, node
from onnx import TensorProto, helper

import pyonnx_wasm as ort
from pyonnx_wasm.dtypes import DType
from pyonnx_wasm.ir import IRError, dims
from pyonnx_wasm.program import file as ponnx
from pyonnx_wasm.registry import OPERATORS

PROVIDERS = pytest.mark.parametrize("provider", ["cpu", "wasmtime"])
ALL = pytest.mark.parametrize("provider", ["cpu", "wasmtime", "gpu"])


@pytest.fixture(autouse=True)
def only_here() -> Iterator[None]:
    with custom.registered():
        yield


def session(made: bytes | Path, provider: str = "cpu", **options: int) -> ort.InferenceSession:
    given = ort.SessionOptions()
    for name, value in options.items():
        setattr(given, name, value)
    return ort.InferenceSession(made, given, providers=[provider])


@pytest.fixture
def no_wasmtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where wasmtime is not installed."""
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "wasmtime":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("pyonnx_wasm.runtimes.host.find_spec", lambda name: None)


@ALL
@pytest.mark.parametrize("ways", [("wasm", "wgsl"), ("python", "wgsl"), ("python", "wasm", "wgsl")], ids="+".join)
def test_one_declaration_runs_everywhere(provider: str, ways: tuple[str, ...]) -> None:
    custom.register(*ways)
    running = session(custom.affine_model(), provider)
    for rows in (5, 1, 0, 4, 5):
        found = running.run(None, {"x": X[:rows], "s": np.float32(0.25)})[0]
        np.testing.assert_allclose(found, np.abs(np.float32(0.25) - 3 * X[:rows]), rtol=1e-6, atol=1e-6)
    assert running.providers == [provider]
    assert not running.kernels_on_core()


@ALL
def test_within_a_loop(provider: str) -> None:
    custom.register("wasm", "wgsl")
    running = session(custom.loop_model(), provider)
    for k in (0, 1, 12):
        want = X
        for _ in range(k):
            want = np.float32(0.5) * want + 1
        np.testing.assert_allclose(running.run(None, {"x": X, "k": np.array(k)})[0], want, rtol=1e-6)
    assert running.providers == [provider]


@PROVIDERS
@pytest.mark.parametrize("way", ["python", "wasm"])
def test_sizes_from_data_and_several_outputs(provider: str, way: str) -> None:
    custom.register(way)
    running = session(custom.positive_model(), provider)
    for x in (X[0], np.abs(X[1]), -np.abs(X[2]), np.tile(X.reshape(-1), 3000), X[3, :0], X[4]):
        y, count = running.run(None, {"x": x})
        np.testing.assert_array_equal(y, x[x < 0])
        assert count.shape == ()
        assert count == (x < 0).sum()
    nobody_wants_the_count = model([node("Positive", ["x"], ["y"], domain=DOMAIN)], {"x": ["n"]})
    np.testing.assert_array_equal(session(nobody_wants_the_count, provider).run(None, {"x": X[0]})[0], X[0][X[0] > 0])


@ALL
def test_a_compiled_file_brings_its_kernels(provider: str, tmp_path: Path) -> None:
    custom.register("wasm", "wgsl")
    ort.save(ort.compile(custom.affine_model(), gpu=True), tmp_path / "m.ponnx")
    OPERATORS.clear()
    ort.callbacks.FUNCTIONS.clear()  # type: ignore[attr-defined]
    found = session(tmp_path / "m.ponnx", provider).run(None, {"x": X, "s": np.float32(1)})[0]
    np.testing.assert_allclose(found, np.abs(1 - 3 * X), rtol=1e-5, atol=1e-6)


def test_a_module_is_stored_once(tmp_path: Path) -> None:
    custom.register("wasm")
    twice = [node("Affine", ["x"], ["a"], domain=DOMAIN), node("Affine", ["a"], ["y"], domain=DOMAIN, scale=4.0)]
    ort.save(ort.compile(model(twice, {"x": ["n"]})), tmp_path / "m.ponnx")
    assert (tmp_path / "m.ponnx").read_bytes().count(b"\0asm") == 1
    np.testing.assert_allclose(session(tmp_path / "m.ponnx").run(None, {"x": X[0]})[0], 8 * X[0], rtol=1e-6)


def test_without_wasmtime_the_function_runs_or_the_cure_is_told(no_wasmtime: None) -> None:
    custom.register("python", "wasm")
    np.testing.assert_allclose(session(custom.affine_model()).run(None, {"x": X, "s": np.float32(0)})[0], np.abs(3 * X), rtol=1e-6)
    custom.register("wasm")
    with pytest.raises(ort.CallbackError, match=r"node 'here' \(test.kernels.Affine\).*pip install 'pyonnx-wasm\[wasmtime\]'"):
        session(custom.affine_model()).run(None, {"x": X, "s": np.float32(0)})


@PROVIDERS
def test_wgsl_alone_is_an_error_on_the_core(provider: str) -> None:
    custom.register("wgsl")
    with pytest.raises(ort.CallbackError, match=r"node 'here' \(test.kernels.Affine\).*its WGSL runs on GPUs alone; register"):
        session(custom.affine_model(), provider).run(None, {"x": X, "s": np.float32(0)})


HOSTILE = {
    "unreachable": ('(memory (export "memory") 1)', "unreachable", "failed: .*unreachable"),
    "a loop without end": ('(memory (export "memory") 1)', "(loop (br 0)) i32.const 0", "more than 2000000 operations, the limit"),
    "a code": ('(memory (export "memory") 1)', "i32.const 3", "returned 3"),
    "no memory": ("(memory 1)", "i32.const 0", "exports no memory named memory"),
    "an import": ('(import "env" "memory" (memory 1))', "i32.const 0", "imports env.memory; it must import nothing"),
    "an address outside": (
        '(memory (export "memory") 1)',
        "(i32.store (local.get 2) (i32.const -16)) (i32.store (i32.load offset=4 (local.get 2)) (i32.const 64)) i32.const 0",
        "leaves its memory",
    ),
    "a size outside": (
        '(memory (export "memory") 1)',
        "(i32.store (i32.load offset=4 (local.get 2)) (i32.const 0x7fffffff)) i32.const 0",
        "leaves its memory",
    ),
    "no size": ('(memory (export "memory") 1)', "i32.const 0", "leaves its memory"),
    "memory without end": (
        '(memory (export "memory") 1)',
        "(loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable",
        "failed: .*unreachable",
    ),
    "a read outside": ('(memory (export "memory") 1)', "(i32.load (i32.const -4))", "failed: .*out of bounds"),
    "a start that fails": ('(memory (export "memory") 1) (func $s unreachable) (start $s)', "i32.const 0", "failed: .*unreachable"),
}


@pytest.mark.parametrize("kind", ["(param v128)", "(param i32 i32 i32 i32) (result v128)", "(param i32 i32 i32) (result i32)", ""])
def test_a_function_of_another_type_is_an_error(kind: str) -> None:
    """Also of vectors, of which wasmtime's Python knows nothing."""
    text = f'(module (memory (export "memory") 1) (func (export "Typed") {kind} unreachable))'
    ort.callback("Typed", domain=DOMAIN, outputs=[(None, 1)], wasm=custom.compiled(text))(lambda x: x)
    made = model([node("Typed", ["x"], ["y"], domain=DOMAIN, name="odd")], {"x": ["n"]})
    with pytest.raises(ort.CallbackError, match=r"node 'odd' .*exports no function Typed\(i32, i32, i32, i32\) -> i32"):
        session(made, "cpu").run(None, {"x": X[0]})


@PROVIDERS
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_module_is_an_error_and_harms_nothing(case: str, provider: str) -> None:
    head, body, text = HOSTILE[case]
    function = f'(func (export "Bad") (param i32 i32 i32 i32) (result i32) {body})'
    ort.callback("Bad", domain=DOMAIN, outputs=[(None, 1)], wasm=custom.compiled(f"(module {head} {function})"))(lambda x: x)
    made = model([node("Bad", ["x"], ["y"], domain=DOMAIN, name="evil")], {"x": ["n"]})
    running = session(made, provider, max_operations=2_000_000, max_memory=1 << 26)
    for _ in range(2):
        with pytest.raises(ort.CallbackError, match=rf"node 'evil' \(test.kernels.Bad\): .*{text}"):
            running.run(None, {"x": X[0]})


#: A step takes a thousand operations of the limit and next to no time.
ENDLESS = f"(loop {'(drop (i32.const 0))' * 500} (br 0)) i32.const 0"


def endless(body: str = ENDLESS) -> bytes:
    function = f'(func (export "Bad") (param i32 i32 i32 i32) (result i32) {body})'
    module = custom.compiled(f'(module (memory (export "memory") 1) {function})')
    ort.callback("Bad", domain=DOMAIN, outputs=[(None, 1)], wasm=module)(lambda x: x)
    return model([node("Bad", ["x"], ["y"], domain=DOMAIN, name="evil")], {"x": ["n"]})


@PROVIDERS
def test_a_module_without_end_ends_where_no_limit_is_set(provider: str) -> None:
    running = session(endless(), provider)
    with pytest.raises(
        ort.CallbackError, match=r"node 'evil' .*takes more than 2\d+ operations, the limit \(max_operations sets another\)"
    ):
        running.run(None, {"x": X[0]})


def test_a_module_without_end_can_be_cancelled() -> None:
    """By the option of a run, where the limit is set beyond all patience."""
    running, options, faults = session(endless("(loop (br 0)) i32.const 0"), max_operations=1 << 60), ort.RunOptions(), list[Exception]()

    def run() -> None:
        try:
            running.run(None, {"x": X[0]}, options)
        except Exception as error:
            faults.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not options._cancels and thread.is_alive():
        pass
    while thread.is_alive():  # it may not have begun yet
        options.terminate = True
        thread.join(0.05)
        options.terminate = False
    assert re.search("evil.*cancelled", str(faults[0]))


def test_what_is_no_module_is_said() -> None:
    with pytest.raises(ValueError, match="5 bytes are no WebAssembly module"):
        ort.callback("Bad", domain=DOMAIN, wasm=b"bytes")(lambda x: x)
    damaged = custom.compiled() + b"\xff\xff"
    ort.callback("Bad", domain=DOMAIN, wasm=damaged)(lambda x: x)
    made = model([node("Bad", ["x"], ["y"], domain=DOMAIN, name="evil")], {"x": ["n"]})
    with pytest.raises(ort.CallbackError, match=r"node 'evil' \(test.kernels.Bad\): its WebAssembly module does not compile"):
        session(made).run(None, {"x": X[0]})
    ort.callback("Bad", domain=DOMAIN, wasm=(custom.compiled(), "Other"))(lambda x: x)
    with pytest.raises(ort.CallbackError, match=r"exports no function Other\(i32, i32, i32, i32\) -> i32"):
        session(made).run(None, {"x": X[0]})


def test_shapes_are_kept_to() -> None:
    ort.callback("Odd", domain=DOMAIN)(lambda x: x[:1])
    made = model([node("Odd", ["x"], ["y"], domain=DOMAIN, name="odd")], {"x": ["n"]})
    with pytest.raises(ort.CallbackError, match=r"output 0 of its function has the shape \[1\], declared is \[7\]: give `outputs` a rank"):
        session(made).run(None, {"x": X[0]})


TOTAL = """
  (func (export "Total") (param $in i32) (param $n i32) (param $out i32) (param $m i32) (result i32)
    (local $k i32) (local $sum f64) (local $at i32) (local $count i32)
    (block $done (loop $record
      (br_if $done (i32.eq (local.get $k) (local.get $n)))
      (local.set $at (i32.load (i32.add (local.get $in) (i32.mul (local.get $k) (i32.const 16)))))
      (local.set $count (if (result i32) (local.get $at)
        (then (if (result i32) (i32.load offset=8 (i32.add (local.get $in) (i32.mul (local.get $k) (i32.const 16))))
          (then (i32.load (i32.load offset=4 (i32.add (local.get $in) (i32.mul (local.get $k) (i32.const 16))))))
          (else (i32.const 1))))
        (else (i32.const 0))))
      (block $all (loop $next
        (br_if $all (i32.eqz (local.get $count)))
        (local.set $sum (f64.add (local.get $sum) (f64.load (local.get $at))))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
      (local.set $k (i32.add (local.get $k) (i32.const 1)))
      (br $record)))
    (f64.store (i32.load (local.get $out)) (local.get $sum))
    (i32.const 0))
"""


@PROVIDERS
@pytest.mark.parametrize("way", ["python", "wasm"])
def test_attributes_of_all_kinds(provider: str, way: str) -> None:
    """Numbers, lists, tensors, optional ones, infinities and integers beyond 2^53 for functions; WebAssembly gets numbers as float64."""
    seen: dict[str, Any] = {}

    def total(x: np.ndarray, bias: np.ndarray | None = None, *, f: float, i: int, fs: Any, many: Any = None, t: Any, s: str = "") -> Any:
        seen.update(f=f, i=i, fs=fs, many=many, t=t, s=s, bias=bias)
        return np.float64(x.sum() + f + i + sum(fs) + t.sum())

    module = custom.compiled(f'(module (memory (export "memory") 1) {TOTAL})') if way == "wasm" else None
    ort.callback("Total", domain=DOMAIN, outputs=[("float64", ())], wasm=module)(total)
    table = helper.make_tensor("t", TensorProto.DOUBLE, [3], [1.0, 2.0, 3.0])
    given = {"f": 0.5, "i": 7, "fs": [1.5, 2.5], "t": table}
    nodes = [node("Total", ["x"], ["y"], domain=DOMAIN, **given)]
    running = session(model(nodes, {"x": ["n"]}, dtypes={"x": TensorProto.DOUBLE}), provider)
    assert running.run(None, {"x": np.array([10.0, 20.0])})[0] == 47.5
    if way == "python":
        np.testing.assert_array_equal(seen.pop("t"), [1.0, 2.0, 3.0])
        assert seen == {"f": 0.5, "i": 7, "fs": [1.5, 2.5], "many": None, "s": "", "bias": None}
        extreme = node("Total", ["x", "x"], ["y"], domain=DOMAIN, **{**given, "f": float("inf"), "i": 2**60 + 1}, many=["a", "b"], s="é")
        session(model([extreme], {"x": ["n"]}, dtypes={"x": TensorProto.DOUBLE}), provider).run(None, {"x": np.zeros(2)})
        assert (seen["f"], seen["i"], seen["many"], seen["s"]) == (float("inf"), 2**60 + 1, ["a", "b"], "é")
        assert seen["bias"] is not None


def test_attributes_come_back_from_a_file(tmp_path: Path) -> None:
    seen: list[Any] = []
    ort.callback("Keep", domain=DOMAIN)(lambda x, *, a, b, c: seen.append((a, b, c.tolist())) or x)
    table = helper.make_tensor("t", TensorProto.INT64, [2], [1, 2])
    nodes = [node("Keep", ["x"], ["y"], domain=DOMAIN, a=[float("-inf"), 1.0], b=-(2**62), c=table)]
    ort.save(ort.compile(model(nodes, {"x": ["n"]})), tmp_path / "m.ponnx")
    session(tmp_path / "m.ponnx").run(None, {"x": X[0]})
    assert seen == [([float("-inf"), 1.0], -(2**62), [1, 2])]


def test_a_built_in_operator_gives_way_and_versions_are_told_apart() -> None:
    ort.callback("Relu")(lambda x: x + 100)
    made = model([node("Relu", ["x"], ["y"])], {"x": ["n"]})
    np.testing.assert_array_equal(session(made).run(None, {"x": X[0]})[0], X[0] + 100)
    del OPERATORS["", "Relu"][-1]
    np.testing.assert_array_equal(session(made).run(None, {"x": X[0]})[0], np.maximum(X[0], 0))
    ort.op("Step", domain=DOMAIN, since=1, until=2)(lambda x: ort.apply("Neg", x))
    ort.op("Step", domain=DOMAIN, since=3)(lambda x: ort.apply("Abs", x))
    for version, want in ((1, -X[0]), (2, -X[0]), (3, np.abs(X[0])), (9, np.abs(X[0]))):
        found = session(model([node("Step", ["x"], ["y"], domain=DOMAIN)], {"x": ["n"]}, version=version)).run(None, {"x": X[0]})
        np.testing.assert_array_equal(found[0], want)
    ort.callback("Later", domain=DOMAIN, since=4)(lambda x: x)
    with pytest.raises(IRError, match=r"operator Later of opset 3 is not supported \(supported: 4 to newest\)"):
        ort.compile(model([node("Later", ["x"], ["y"], domain=DOMAIN)], {"x": ["n"]}, version=3))


TRANSPOSED = """
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let i = item(wid, nwg, lane);
  if (i >= u32($x_n)) { return; }
  let rows = u32($x_shape[0]);
  let columns = u32($x_shape[1]);
  let v = x_get((i % rows) * columns + i / rows);
  y0_put(i, v * table_get(u32($pick)));
  y1_put(i, i32(i));
}
"""


def test_a_shader_of_ones_own_with_several_outputs() -> None:
    def outputs(x: Any, *, pick: int, table: Any) -> list[Any]:
        return [(None, [x.shape[1], x.shape[0]]), (DType.int32, [x.shape[1], x.shape[0]])]

    groups = lambda x, **_: dims.ceildiv(x.size, 64)  # noqa: E731
    ort.callback("Turn", domain=DOMAIN, outputs=outputs, wgsl=(TRANSPOSED, groups))(lambda x, *, pick, table: NotImplemented)
    table = helper.make_tensor("t", TensorProto.FLOAT, [3], [1.0, 2.0, 4.0])
    nodes = [node("Exp", ["x"], ["e"]), node("Turn", ["e"], ["t", "i"], domain=DOMAIN, pick=2, table=table), node("Neg", ["t"], ["y"])]
    running = session(model(nodes, {"x": ["a", "b"]}, ["y", "i"]), "gpu")
    for rows in (5, 2, 300):
        x = np.resize(X, (rows, 7))
        y, places = running.run(None, {"x": x})
        np.testing.assert_allclose(y, -4 * np.exp(x.T), rtol=1e-5)
        np.testing.assert_array_equal(places.reshape(-1), np.arange(x.size))


@pytest.mark.parametrize("shape", [[], [1], [7], [5, 1], [1, 7], [5, 7]], ids=str)
def test_elements_in_wgsl_are_broadcast(shape: list[int]) -> None:
    def outputs(x: Any, b: Any) -> list[Any]:
        return [(None, None)]

    ort.callback("Mix", domain=DOMAIN, outputs=outputs, wgsl="let s = x + b;\nreturn s * s;")(lambda x, b: NotImplemented)
    b = np.resize(X[::-1], shape).astype(np.float32)
    made = model([node("Mix", ["x", "b"], ["y"], domain=DOMAIN)], {"x": ["n", 7], "b": [s if s in (1, 7) else "n" for s in shape]})
    np.testing.assert_allclose(session(made, "gpu").run(None, {"x": X, "b": b})[0], (X + b) ** 2, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "uint8", "int32", "bool", "int64"])
def test_elements_in_wgsl_of_other_types(dtype: str) -> None:
    text = {"bool": "!x", "int64": "vec2<u32>(x.x + 1u, x.y)"}.get(dtype, "x + x")
    ort.callback("Other", domain=DOMAIN, wgsl=text)(lambda x: NotImplemented)
    x = np.arange(101).astype(dtype)
    made = model([node("Other", ["x"], ["y"], domain=DOMAIN)], {"x": ["n"]}, dtypes={"x": helper.np_dtype_to_tensor_dtype(x.dtype)})
    want = ~x if dtype == "bool" else x + 1 if dtype == "int64" else x + x
    np.testing.assert_array_equal(session(made, "gpu").run(None, {"x": x})[0], want)


def test_wgsl_that_cannot_be_is_said() -> None:
    made = model([node("Bad", ["x"], ["y"], domain=DOMAIN, name="evil")], {"x": ["n"]})

    def bad(wgsl: Any, **others: Any) -> None:
        ort.callback("Bad", domain=DOMAIN, wgsl=wgsl, **others)(lambda x: x)

    bad("nonsense(x")
    with pytest.raises(Exception, match=r"test.kernels.Bad: the shader does not compile"):
        session(made, "gpu")
    bad("x * $what")
    with pytest.raises(IRError, match=r"\$what is no number"):
        session(made, "gpu")
    bad(("fn other() {}", lambda x: 1))
    with pytest.raises(Exception, match=r"test.kernels.Bad: .*main"):
        session(made, "gpu")
    bad("x", outputs=[(None, 1)])
    with pytest.raises(IRError, match="WGSL needs the sizes of all outputs"):
        session(made, "gpu")


def test_what_a_gpu_has_not_the_dtypes_for_the_host_runs() -> None:
    made = model([node("Neg", ["x"], ["m"]), node("Own", ["m"], ["y"], domain=DOMAIN)], {"x": ["n"]}, dtypes={"x": TensorProto.DOUBLE})
    ort.callback("Own", domain=DOMAIN, wgsl="x + x")(lambda x: x + x)
    running, x = session(made, "gpu"), np.arange(5, dtype=np.float64)
    assert running.providers == ["gpu"]
    np.testing.assert_array_equal(running.run(None, {"x": x})[0], -2 * x)


def test_damaged_rows_are_errors(tmp_path: Path) -> None:
    custom.register("wasm")
    ort.save(ort.compile(custom.affine_model()), tmp_path / "m.ponnx")
    data = (tmp_path / "m.ponnx").read_bytes()
    for old, new in (
        (b'"wasm":[0,', b'"wasm":[7,'),
        (b'"wasm":[[', b'"wasm":{['),
        (b'"outputs":[["float32",2]]', b'"outputs":[["float99",2]]'),
    ):
        assert old in data
        with pytest.raises(ponnx.FileError):
            ponnx.load(data.replace(old, new))
    (tmp_path / "fewer.ponnx").write_bytes(data.replace(b'"present":[true,true]', b'"present":[true]     '))
    with pytest.raises(ort.CallbackError, match="which its row does not tell"):
        session(tmp_path / "fewer.ponnx").run(None, {"x": X, "s": np.float32(0)})
