"""Operators that the page runs, between steps of the core."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from player_site import DIST, HELPERS, Run
from playwright.sync_api import Page

import pyonnx_wasm as ort
from pyonnx_wasm import callbacks
from pyonnx_wasm.registry import OPERATORS
from pyonnx_wasm.server import Server

pytestmark = pytest.mark.browser

DOMAIN = "test.page"


@pytest.fixture(scope="module")
def page_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("callbacks")
    (root / "index.html").write_text('<!doctype html><link rel="icon" href="data:,"><title>callbacks</title>')
    ort.callback("Positive", domain=DOMAIN, outputs=[(None, 1)])(lambda x, *, least=0.0: x[x > least])
    info, node = helper.make_tensor_value_info, helper.make_node
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["on"]),
            node("Positive", ["c"], ["p"], domain=DOMAIN, name="inner"),
            node("Sub", ["p", "one"], ["next"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("c", TensorProto.FLOAT, ["n"])],
        [info("on", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, ["m"])],
        [helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])],
    )
    x, k = info("x", TensorProto.FLOAT, ["n"]), info("k", TensorProto.INT64, [])
    straight = [node("Neg", ["x"], ["m"]), node("Positive", ["m"], ["p"], domain=DOMAIN, name="here"), node("Neg", ["p"], ["y"])]
    bytes_ = info("b", TensorProto.UINT8, ["n"])
    for name, nodes, inputs in (
        ("positive", straight, [x]),
        ("loop", [node("Loop", ["k", "", "x"], ["y"], body=body)], [x, k]),
        ("picture", [node("ImageDecoder", ["b"], ["y"], pixel_format="BGR")], [bytes_]),
    ):
        graph = helper.make_graph(nodes, name, inputs, [helper.make_empty_tensor_value_info("y")])
        opsets = [helper.make_opsetid("", 22), helper.make_opsetid(DOMAIN, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        ort.save(ort.compile(model.SerializeToString()), root / f"{name}.ponnx")
    yield root
    del OPERATORS[DOMAIN, "Positive"], callbacks.FUNCTIONS[DOMAIN, "Positive"]


@pytest.fixture
def page_run(player_page: Page, page_models: Path) -> Iterator[Run]:
    with Server({"/": page_models, "/player": DIST}, isolated=False) as server:
        player_page.goto(f"{server.url}index.html")
        yield lambda body, arg=None: player_page.evaluate(f"async (arg) => {{ {HELPERS} {body} }}", arg)


POSITIVE = """
  const positive = async ([x], { least }) => {
    await new Promise((done) => setTimeout(done, 1));
    const kept = x.data.filter((v) => v > least);
    return new Tensor("float32", kept, [kept.length]);
  };
  const given = new Tensor("float32", [1, -2, 3, -4.5, 0], [5]);
"""


@pytest.mark.parametrize("worker", [True, False])
def test_a_registered_function_runs_in_the_page(page_run: Run, worker: bool) -> None:
    got = page_run(
        POSITIVE
        + """
      const session = await create("positive.ponnx", { worker: arg, operators: { "test.page.Positive": positive } });
      const runs = await Promise.all([session.run({ x: given }), session.run({ x: new Tensor("float32", [-7], [1]) })]);
      const steps = await session.profile({ x: given });
      await session.release();
      return [runs.map(({ y }) => [y.dims, [...y.data]]), steps.length];
    """,
        worker,
    )
    assert got[0] == [[[2], [-2, -4.5]], [[1], [-7]]]
    assert got[1] >= 3


def test_within_a_loop_and_for_all_sessions(page_run: Run) -> None:
    got = page_run(
        POSITIVE
        + """
      const { registerOperator } = await import("/player/index.mjs");
      registerOperator("Positive", positive, { domain: "test.page" });
      const session = await create("loop.ponnx");
      const results = [];
      for (const k of [0n, 1n, 2n, 3n])
        results.push([...(await session.run({ x: given, k: new Tensor("int64", [k], []) })).y.data]);
      return results;
    """
    )
    assert got == [[1, -2, 3, -4.5, 0], [0, 2], [1], [0]]


def test_errors_name_operator_node_and_cure(page_run: Run) -> None:
    missing = page_run(POSITIVE + "return error((await create('positive.ponnx')).run({ x: given }))")
    assert "node here (test.page.Positive): no function is registered here to run it" in missing
    assert 'registerOperator("Positive", (inputs, attributes) => ..., { domain: "test.page" })' in missing
    wrong = "return error((await create('positive.ponnx', { operators: { 'test.page.Positive': arg } })).run({ x: given }))"
    with_function = wrong.replace("arg }", "() => x_ }").replace("x_", "new Tensor('int32', [1], [1])")
    assert "output 0 of its function is int32 of rank 1, not float32 of rank 1" in page_run(POSITIVE + with_function)
    thrown = wrong.replace("arg }", "() => { throw new Error('by itself'); } }")
    assert "node here (test.page.Positive): by itself" in page_run(POSITIVE + thrown)


def test_pictures_are_decoded_by_the_browser(page_run: Run) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    dims, data = page_run(
        """
      const session = await create("picture.ponnx");
      const { y } = await session.run({ b: new Tensor("uint8", Uint8Array.from(arg), [arg.length]) });
      return [y.dims, [...y.data]];
    """,
        list(file.getvalue()),
    )
    np.testing.assert_array_equal(np.array(data).reshape(dims), pixels[:, :, ::-1])
    text = page_run("return error((await create('picture.ponnx')).run({ b: new Tensor('uint8', [1, 2], [2]) }))")
    assert "the browser cannot decode the picture of 2 bytes" in text
