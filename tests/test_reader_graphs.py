import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_wire import FUNCTIONS, number, parsed, part, stored_outside, wired

from pyonnx_wasm.onnxfile import reader
from pyonnx_wasm.onnxfile.reader import ReadError, read


def load(source: str, **options: Any) -> reader.Model:
    return read(parsed(source, **options).SerializeToString())


def ops(nodes: list[reader.Node]) -> list[str]:
    return [n.op_type for n in nodes]


# --- order and scopes


def test_nodes_are_sorted() -> None:
    proto = parsed("g (float[2] x) => (float[2] y) { a = Relu(x)  b = Neg(a)  c = Abs(x)  y = Add(b, c) }")
    nodes = list(proto.graph.node)
    for seed in range(20):
        random.Random(seed).shuffle(nodes)
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)
        model = read(proto.SerializeToString())
        seen = {"x"}
        for node in model.graph.nodes:
            assert seen.issuperset(node.inputs)
            assert nodes[node.index].output[0] == node.outputs[0]
            seen.update(node.outputs)


def test_captures_count_as_inputs() -> None:
    model = load("""g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] r) { r = Add(late, x) }, else_branch = e () => (float[2] late) { }>
        late = Neg(x) }""")
    assert ops(model.graph.nodes) == ["Neg", "If"]
    then, other = (model.graph.nodes[1].attrs[k] for k in ("then_branch", "else_branch"))
    assert set(then.captures) == {"late", "x"}
    assert set(other.captures) == {"late"}
    assert model.graph.captures == {}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("g (float[2] x) => (float[2] y) { y = Add(x, z) }", "node 0 (Add) reads 'z', which nothing defines"),
        ("g (float[2] x) => (float[2] y) { z = Neg(x) }", "the output list of graph 'g' reads 'y', which nothing defines"),
        ("g (float[2] x) => (float[2] y) { y = Neg(x)  y = Abs(x) }", "node 1 (Abs) defines 'y', which is already defined"),
        ("g (float[2] x) => (float[2] x) { x = Neg(x) }", "node 0 (Neg) defines 'x'"),
        ("g (float[2] x) => (float[2] y) { y = Neg(y) }", "cyclic: node 0 (Neg) -> node 0 (Neg)"),
        ("g (float[2] x) => (float[2] y) { a = Add(x, c)  b = Neg(a)  c = Abs(b)  y = Relu(a) }", "cyclic: node 0 (Add) -> node 1 (Neg)"),
        (
            "g (bool c, float[2] x) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] r) { r = Neg(gone) }, "
            "else_branch = e () => (float[2] s) { s = Neg(x) }> }",
            "node 0 (Neg) inside node 0 (If) reads 'gone'",
        ),
        (
            "g (bool c, float[2] x) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] r) { r = Neg(y) }, "
            "else_branch = e () => (float[2] s) { s = Neg(x) }> }",
            "cyclic: node 0 (If)",
        ),
        ("g (float[2] x, float[2] x) => () { }", "2 inputs named 'x'"),
    ],
)
def test_bad_graphs(source: str, message: str) -> None:
    with pytest.raises(ReadError) as error:
        load(source)
    assert message in str(error.value)


def test_initializers_as_inputs() -> None:
    for ir, overridable in ((3, []), (4, ["w"])):
        proto = parsed("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }", ir=ir)
        proto.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
        graph = read(proto.SerializeToString()).graph
        assert [i.name for i in graph.inputs] == ["x"]
        assert [i.name for i in graph.overridable] == overridable
        assert list(graph.initializers) == ["w"]


def test_opsets() -> None:
    proto = parsed("g (float[2] x) => (float[2] y) { y = Neg(x)  z = com.lab.Op(x) }")
    proto.opset_import.extend([helper.make_opsetid("ai.onnx", 17), helper.make_opsetid("ai.onnx.ml", 3)])
    proto.graph.node[0].domain = "ai.onnx"
    model = read(proto.SerializeToString())
    assert model.opsets == {"": 21, "ai.onnx.ml": 3, "com.lab": 1}
    assert [n.domain for n in model.graph.nodes] == ["", "com.lab"]
    for bad in (0, 29):
        with pytest.raises(ReadError, match=f"opset {bad}; opsets 1 to 28 are supported"):
            load("g () => () { }", opsets=f'"": {bad}')
    with pytest.raises(ReadError, match="its opset_import lacks the domain"):
        load("g (float[2] x) => (float[2] y) { y = Neg(x) }", opsets='"ai.onnx.ml": 3')


def test_ir_versions() -> None:
    with pytest.raises(ReadError, match="IR version 2; versions from 3 on"):
        load("g () => () { }", ir=2)
    with pytest.warns(UserWarning, match="IR version 15 is newer than 14"):
        assert load("g () => () { }", ir=15).ir_version == 15


def test_metadata_and_documentation_are_skipped() -> None:
    proto = parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    proto.graph.node[0].metadata_props.add(key="stack", value="\N{SNOWMAN}" * 10_000)
    proto.graph.node[0].doc_string = "text"
    proto.metadata_props.add(key="task", value="none")
    proto.producer_name, proto.producer_version = "maker", "2"
    model = read(proto.SerializeToString())
    assert (model.metadata, model.producer) == ({"task": "none"}, "maker 2")
    assert "SNOWMAN" not in repr(model)
    assert "\N{SNOWMAN}" not in repr(model)


# --- functions


def evaluate(model: reader.Model, feed: dict[str, Any]) -> list[Any]:
    """Runs a model as the reader gave it."""

    def attribute(value: Any) -> Any:
        if isinstance(value, reader.Graph):
            return proto(value)
        return numpy_helper.from_array(value.numpy()) if isinstance(value, reader.Tensor) else value

    def proto(graph: reader.Graph) -> onnx.GraphProto:
        nodes = []
        for node in graph.nodes:
            attrs = {k: attribute(v) for k, v in node.attrs.items()}
            nodes.append(helper.make_node(node.op_type, node.inputs, node.outputs, node.name, domain=node.domain, **attrs))
        infos = [[helper.make_tensor_value_info(i.name, i.type.dtype or 1, None) for i in side] for side in (graph.inputs, graph.outputs)]
        return helper.make_graph(nodes, "g", *infos, [numpy_helper.from_array(t.numpy(), n) for n, t in graph.initializers.items()])

    built = helper.make_model(proto(model.graph), opset_imports=[helper.make_opsetid(d, v) for d, v in model.opsets.items()])
    return ReferenceEvaluator(built).run(None, feed)


@pytest.mark.parametrize("condition", [True, False])
def test_functions_are_inlined(condition: bool) -> None:
    model = load(FUNCTIONS, opsets='"": 21, "lab": 1')
    assert not any(n.domain == "lab" for n in model.graph.nodes)
    x = np.array([1, -2], np.float32)
    y, z = evaluate(model, {"c": np.array(condition), "x": x})
    assert np.array_equal(y, 4 * x)
    assert np.array_equal(z, 48 * x if condition else -23 * x)
    defined = [o for n in model.graph.nodes for o in n.outputs if o]
    assert len(defined) == len(set(defined))


def test_function_details() -> None:
    model = load(
        """g (float[2] x, float[2] "f/t") => (float[2] y, float[2] z) {
            [f] y, z = lab.f <s = "given"> (x)
        }
        <domain: "lab", opset_import: ["": 17, "other": 2]>
        f <s, absent> (a, b) => (t, a) {
            t = Op1 <p: string = @s, q: int = @absent> (a, b)
            u = other.Op2 (t)
        }""",
        opsets='"": 21, "lab": 1',
    )
    first, second, alias = model.graph.nodes
    assert (first.inputs, first.outputs, first.attrs, first.opset) == (("x", ""), ("y",), {"p": "given"}, 17)
    assert (second.inputs, second.outputs, second.opset) == (("y",), ("f/u",), 2)
    assert (alias.op_type, alias.inputs, alias.outputs) == ("Identity", ("x",), ("z",))


def test_inlined_names_do_not_clash() -> None:
    model = load(
        """g (float[2] x) => (float[2] y) { "f/t" = Neg(x)  "f/t_1" = Neg(x)  a = lab.f(x)  b = lab.f("f/t")  y = Add(a, b) }
        <domain: "lab", opset_import: ["": 21]>
        f (a) => (b) { t = Abs(a)  b = Exp(t) }""",
        opsets='"": 21, "lab": 1',
    )
    assert [n.outputs[0] for n in model.graph.nodes if n.op_type == "Abs"] == ["f/t_2", "f_1/t"]


def test_overloads_and_overriding() -> None:
    proto = parsed(
        """g (float[2] x) => (float[2] y) { a = Relu(x)  y = lab.f(a) }
        <domain: "", opset_import: ["": 21]> Relu (a) => (b) { b = Neg(a) }
        <domain: "lab", opset_import: ["": 21]> f (a) => (b) { b = Abs(a) }
        <domain: "lab", opset_import: ["": 21]> f (a) => (b) { b = Exp(a) }""",
        opsets='"": 21, "lab": 1',
    )
    proto.functions[2].overload = proto.graph.node[1].overload = "second"
    assert ops(read(proto.SerializeToString()).graph.nodes) == ["Neg", "Exp"]


def chain(links: int, calls: int) -> onnx.ModelProto:
    text = "g (float[2] x) => (float[2] y) { y = lab.f0(x) }\n"
    for i in range(links):
        body = "  ".join(f"t{k} = lab.f{i + 1}(a)" for k in range(calls - 1)) + f"  b = lab.f{i + 1}(a)"
        text += f'<domain: "lab", opset_import: ["": 21, "lab": 1]> f{i} (a) => (b) {{ {body} }}\n'
    text += f'<domain: "lab", opset_import: ["": 21]> f{links} (a) => (b) {{ b = Neg(a) }}'
    return parsed(text, opsets='"": 21, "lab": 1')


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{ y = lab.f(x) } <domain: 'lab', opset_import: ['': 21, 'lab': 1]> f (a) => (b) { b = lab.f(a) }", "function 'f' calls itself"),
        ("{ y = lab.f(x, x) } <domain: 'lab', opset_import: ['': 21]> f (a) => (b) { b = Neg(a) }", "2 inputs and 1 outputs given to"),
        ("{ y = lab.f(x) } <domain: 'lab', opset_import: ['': 40]> f (a) => (b) { b = Neg(a) }", "function 'f' imports opset 40"),
        ("{ y = lab.f(x) } <domain: 'lab', opset_import: ['': 21]> f (a) => (b) { c = Neg(a) }", "reads 'y', which nothing defines"),
    ],
)
def test_bad_functions(source: str, message: str) -> None:
    with pytest.raises(ReadError) as error:
        load("g (float[2] x) => (float[2] y) " + source.replace("'", '"'), opsets='"": 21, "lab": 1')
    assert message in str(error.value)


def test_functions_that_explode() -> None:
    with pytest.raises(ReadError, match="nest deeper than 64"):
        read(chain(70, 1).SerializeToString())
    assert len(read(chain(60, 1).SerializeToString()).graph.nodes) == 1


def test_functions_that_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyonnx_wasm.onnxfile.graph.MAX_INLINED_NODES", 1000)
    with pytest.raises(ReadError, match="expand to more than 1000 nodes"):
        read(chain(40, 3).SerializeToString())


def deep(levels: int, innermost: bytes) -> bytes:
    for _ in range(levels):
        innermost = part(4, "If") + part(5, part(1, "g") + part(6, part(1, innermost)))
    return innermost


@pytest.mark.parametrize("levels", [4, 60])
def test_functions_that_nest(levels: int) -> None:
    def call(i: int, attr: bytes = b"") -> bytes:
        return part(4, f"f{i}") + part(7, "lab") + attr

    def function(i: int, node: bytes) -> bytes:
        return part(25, part(1, f"f{i}") + part(10, "lab") + part(6, "g") + part(7, node) + part(9, part(2, 21)))

    use = part(4, "If") + part(5, part(1, "g") + part(21, "g"))
    main = wired(part(1, call(0, part(5, part(1, "g") + part(6, b"")))))
    bodies = (
        [deep(levels, call(i + 1)) for i in range(40)],
        [call(i + 1, part(5, part(1, "g") + part(6, part(1, deep(levels, use))))) for i in range(40)],
    )
    for nodes in bodies:
        with pytest.raises(ReadError, match="nest deeper than 128"):
            read(main + b"".join(function(i, n) for i, n in enumerate([*nodes, use])))


def test_large_faults_are_found_fast() -> None:
    n = 30_000
    inputs = b"".join(part(11, part(1, str(i))) for i in [*range(n), n - 1])
    cycle = b"".join(part(1, part(1, str(i)) + part(2, str((i + 1) % n)) + part(4, "Op")) for i in range(n))
    shape = part(5, part(1, number((1 << 62) - 1) * n) + part(8, "w"))
    begin = time.process_time()
    for graph, message in ((inputs, "2 inputs"), (cycle, "cyclic"), (shape, "30000 axes; 32 are supported")):
        with pytest.raises(ReadError, match=message):
            read(wired(graph))
    assert time.process_time() - begin < 20


def test_a_reference_outside_a_function() -> None:
    node = part(4, "Op") + part(5, part(1, "a") + part(21, "k"))
    with pytest.raises(ReadError, match="attribute 'a' refers to 'k' of a function, but is in none"):
        read(wired(part(1, node)))


# --- external data


def test_external_data(tmp_path: Path) -> None:
    array = np.arange(4, dtype=np.float32)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "w.bin").write_bytes(b"xyz" + array.tobytes())
    path = tmp_path / "m.onnx"
    for proto in (stored_outside("deep/w.bin", offset=3, length=16, checksum="f00"), stored_outside("./deep/w.bin", offset=3)):
        inner = helper.make_node("Constant", [], ["c"], value=proto.graph.initializer[0])
        body = helper.make_graph([inner], "body", [], [helper.make_tensor_value_info("c", 1, [4])])
        proto.graph.input.append(helper.make_tensor_value_info("b", TensorProto.BOOL, []))
        proto.graph.node.append(helper.make_node("If", ["b"], ["y"], then_branch=body, else_branch=body))
        path.write_bytes(proto.SerializeToString())
        with read(path) as model:
            constant = model.graph.nodes[0].attrs["then_branch"].nodes[0].attrs["value"]
            for tensor in (model.graph.initializers["w"], constant):
                assert (tensor.file, tensor.offset, tensor.nbytes) == (1, 3, 16)
                assert np.array_equal(tensor.numpy(), array)
            assert model.files[0] == str(path)
            assert os.path.samefile(model.files[1], tmp_path / "deep" / "w.bin")
        data = (tmp_path / "deep" / "w.bin").read_bytes()
        mapped = read(path.read_bytes(), external={"deep/w.bin": data})
        assert np.array_equal(mapped.graph.initializers["w"].numpy(), array)


def test_saved_by_onnx_in_one_file(tmp_path: Path) -> None:
    proto = parsed("g () => () { }")
    arrays = [np.arange(n, dtype=t) for n, t in ((3, np.int8), (1000, np.float32), (0, np.float32), (5, np.float64))]
    proto.graph.initializer.extend(numpy_helper.from_array(a, str(i)) for i, a in enumerate(arrays))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    with read(tmp_path / "m.onnx") as model:
        for tensor, array in zip(model.graph.initializers.values(), arrays, strict=True):
            assert tensor.file == 1
            assert np.array_equal(tensor.numpy(), array)


@pytest.mark.parametrize(
    ("location", "entries", "message"),
    [
        ("/etc/hostname", {}, "'/etc/hostname' is an absolute path"),
        ("\\\\server\\w.bin", {}, "is an absolute path"),
        ("C:w.bin", {}, "is an absolute path"),
        ("../w.bin", {}, "leaves the model's directory"),
        ("deep/..\\..\\w.bin", {}, "leaves the model's directory"),
        ("gone.bin", {}, "'gone.bin' is missing"),
        ("outward.bin", {}, "outside the model's directory"),
        ("outward/w.bin", {}, "outside the model's directory"),
        ("deep", {}, "is a directory"),
        ("pipe", {}, "is not a regular file"),
        ("", {}, "is no file name"),
        ("w.bin", {"offset": 1}, "bytes 1 to 17 of external data 'w.bin', which ends at 16"),
        ("w.bin", {"offset": 10**17}, "which ends at 16"),
        ("w.bin", {"offset": -4}, "offset '-4' is no number of bytes"),
        ("w.bin", {"length": "many"}, "length 'many' is no number of bytes"),
        ("w.bin", {"length": 12}, "float32 of shape [4] takes 16 bytes, its external data has 12"),
    ],
)
def test_bad_external_data(tmp_path: Path, location: str, entries: dict[str, Any], message: str) -> None:
    folder = tmp_path / "model"
    (folder / "deep").mkdir(parents=True)
    os.mkfifo(folder / "pipe")
    for place in (folder, tmp_path):
        (place / "w.bin").write_bytes(bytes(16))
    (folder / "outward.bin").symlink_to(tmp_path / "w.bin")
    (folder / "outward").symlink_to(tmp_path)
    path = folder / "m.onnx"
    path.write_bytes(stored_outside(location, **entries).SerializeToString())
    with pytest.raises(ReadError) as error:
        read(path)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{path}: tensor 'w' at byte ")


def test_external_data_of_a_model_in_memory() -> None:
    with pytest.raises(ReadError, match=r"pass external=\{'w.bin': bytes\}"):
        read(stored_outside("w.bin").SerializeToString())


def test_linked_model_finds_its_linked_data(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    (blobs / "1").write_bytes(stored_outside("w.bin").SerializeToString())
    (blobs / "2").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (snapshot / "m.onnx").symlink_to("../blobs/1")
    (snapshot / "w.bin").symlink_to("../blobs/2")
    with read(snapshot / "m.onnx") as model:
        assert model.graph.initializers["w"].numpy().tolist() == [0, 1, 2, 3]
