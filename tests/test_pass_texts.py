"""Passes as texts: what each makes of a graph, and what it leaves alone (``tests/passes/*.txt``).

A file is named after its pass and holds cases: a title after ``###``, the graph before, ``---``, and the graph after or ``the same``.
``python tests/test_pass_texts.py`` puts the graphs into the printed form and writes what comes after anew, to be read before it is
committed.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from pyonnx_wasm import passes
from pyonnx_wasm.ir import Graph
from pyonnx_wasm.ir.text import parse_graph, print_graph
from pyonnx_wasm.onnxfile import reader
from pyonnx_wasm.passes.rewrite import Rewriter, derived
from pyonnx_wasm.program.lower import lower, partition
from pyonnx_wasm.registry import KERNELS
from pyonnx_wasm.testing import conformance
from pyonnx_wasm.trace import trace

FILES = sorted((Path(__file__).parent / "passes").glob("*.txt"))
SAME = "the same"


def cases(path: Path) -> list[tuple[str, str, str]]:
    """(title, before, after) of a file."""
    found = []
    for part in path.read_text().split("### ")[1:]:
        title, rest = part.split("\n", 1)
        before, _, after = rest.partition("\n---\n")
        found.append((title, before.strip(), after.strip()))
    return found


def rewritten(name: str, before: str) -> str:
    graph = parse_graph(before, KERNELS)
    assert print_graph(graph) == before, "the text is not in the form that is printed"
    if name == "write_through":
        passes.verify(graph, "parse_graph")
        graph.nodes = passes.write_through(graph.nodes, graph.output_storages())
    else:
        passes.run(graph, [next(p for p in passes.PIPELINE if p.__name__ == name)])
    after = print_graph(graph)
    return SAME if after == before else after


@pytest.mark.parametrize(
    ("name", "before", "after"), [pytest.param(f.stem, b, a, id=f"{f.stem}: {t}") for f in FILES for t, b, a in cases(f)]
)
def test_pass(name: str, before: str, after: str) -> None:
    assert rewritten(name, before) == after


def test_every_pass_has_texts() -> None:
    assert {f.stem for f in FILES} == {p.__name__ for p in passes.PIPELINE} | {"write_through"}


def constants_left_out(graph: Graph) -> bool:
    return any(v.storage.kind == "const" and v.storage.size > 16 for n in graph.nodes for v in n.inputs())


def test_what_is_printed_is_read_back() -> None:
    """Text, and where all constants are in it the words of the Program."""
    count = 0
    for case in conformance.cases()[::7]:
        try:
            graph = trace(reader.read(case.model))
        except Exception:
            continue
        passes.run(graph)
        text = print_graph(graph)
        if any(True for _ in graph.bodies()):
            assert "\nbody 0 graph(" in text
            continue
        if any(n.kernel.name == "host" for n in graph.nodes):
            assert 'callback={"domain": ' in text
            continue
        again = parse_graph(text, KERNELS)
        passes.verify(again, "parse_graph")
        assert print_graph(again) == text
        if not constants_left_out(graph):
            count += 1
            assert np.array_equal(lower(partition(again)).main.code, lower(partition(graph)).main.code)
    assert count > 100


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%0:f32[4] = map(x=[%y:f32[4]]) {code=r1=neg.f32(r0)}", "%y is not written before it is read"),
        ("%0:f32[4] = nothing(x=%x:f32[4])", "nothing"),
        ("%0:f33[4] = copy(x=%x:f32[4])", "f33"),
        ("%x:f32[4] = copy(x=%x:f32[4])", "%x is written twice"),
    ],
)
def test_errors_name_the_line(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        parse_graph(f"graph(%x:f32[4]) {{\n  {line}\n  return y=%x:f32[4]\n}}", KERNELS)
    assert line in str(error.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%0:f32[4] = copy(x=%x:f32[2, 2])", "of another shape"),
        ("%0:f32[4] = copy(x=%x:f32[4]@2(1))", "leaves its 4 elements"),
        ("%0:f32[4] = copy(x=%x:f32[4]@0(-1))", "leaves its 4 elements"),
        ("%0:f32[4] = copy()", "lacks x"),
        ("%0:f32[4] = copy(x=[%x:f32[4]])", "x takes one value"),
        ("%0:f32[4] = copy(x=%x:f32[4], z=%x:f32[4])", "has no"),
        ("init %0:f32[4] = copy(x=%x:f32[4])", "runs in init"),
        ("init %0:f32[n] = copy(x=@c:f32[n])", "depends on sizes"),
    ],
)
def test_the_verifier_names_pass_and_call(line: str, message: str) -> None:
    text = f"graph(%x:f32[4], %n:f32[n]) {{\n  const @c:f32[1]\n  {line}  # lost\n  return y=%x:f32[4]\n}}"
    with pytest.raises(AssertionError, match=f"after my pass: copy \\(lost\\): .*{message}"):
        passes.verify(parse_graph(text, KERNELS), "my pass")


def test_the_verifier_sees_outputs_and_second_writers() -> None:
    text = "graph(%x:f32[4]) {\n  %0:f32[4] = copy(x=%x:f32[4])\n  return y=%0:f32[4]\n}"
    graph = parse_graph(text, KERNELS)
    (node,) = graph.nodes
    graph.nodes = []
    with pytest.raises(AssertionError, match="after my pass: the result: y is never written"):
        passes.verify(graph, "my pass")
    graph.nodes = [node, node]
    with pytest.raises(AssertionError, match="has been written"):
        passes.verify(graph, "my pass")
    graph.nodes = [node]
    node.out.storage.producer = None
    with pytest.raises(AssertionError, match="another producer"):
        passes.verify(graph, "my pass")


def test_a_node_gives_way_once_and_leaves_no_reader_behind() -> None:
    text = "graph(%x:f32[4]) {\n  %0:f32[4] = copy(x=%x:f32[4])  # a\n  %1:f32[4] = copy(x=%0:f32[4])  # b\n  return y=%1:f32[4]\n}"
    graph = parse_graph(text, KERNELS)
    a, b = graph.nodes
    with Rewriter(graph) as rewriter, pytest.raises(AssertionError, match="which others read, would be written by nobody"):
        rewriter.replace([a], [])
    graph = parse_graph(text, KERNELS)
    a, b = graph.nodes
    with Rewriter(graph) as rewriter:
        assert rewriter.only_reader(a.out) is b
        rewriter.replace([a], [derived(a, origin="c")])
        with pytest.raises(AssertionError, match=r"copy \(a\) has been replaced before"):
            rewriter.replace([a, b], [])
    assert print_graph(graph) == text.replace("# a", "# c")


if __name__ == "__main__":
    for path in [Path(p) for p in sys.argv[1:]] or FILES:
        found = [(title, print_graph(parse_graph(before, KERNELS))) for title, before, _ in cases(path)]
        texts = [f"### {title}\n{before}\n---\n{rewritten(path.stem, before)}\n" for title, before in found]
        path.write_text("\n".join(texts))
