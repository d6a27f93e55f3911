"""Operators of one's own in WebAssembly and WGSL, in a page."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import custom_models as custom
import numpy as np
import onnx
import onnx.parser
import pytest
from custom_models import DOMAIN, X, model, node
from player_site import DIST, HELPERS, Run, join, split
from playwright.sync_api import BrowserType, Page
from test_custom_kernels import HOSTILE

import pyonnx_wasm as ort
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import chromium

pytestmark = pytest.mark.browser
BACKENDS = pytest.mark.parametrize("backend", ["wasm", "webgpu"])


@pytest.fixture(scope="module")
def kernel_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kernels")
    (root / "index.html").write_text('<!doctype html><link rel="icon" href="data:,"><title>kernels</title>')

    def save(name: str, made: bytes, gpu: bool = False) -> None:
        ort.save(ort.compile(made, gpu=gpu), root / f"{name}.ponnx")

    with custom.registered():
        custom.register("wasm", "wgsl")
        save("affine", custom.affine_model(), True)
        save("loop", custom.loop_model(), True)
        save("positive", custom.positive_model())
        custom.register("wgsl")
        save("shader", custom.affine_model(), True)
        ort.callback("Bad", domain=DOMAIN, wgsl="nonsense(x")(lambda x: x)
        save("bad_shader", model([node("Bad", ["x"], ["y"], domain=DOMAIN)], {"x": ["n"]}), True)
        for k, (head, body, _) in enumerate(HOSTILE.values()):
            function = f'(func (export "Bad") (param i32 i32 i32 i32) (result i32) {body})'
            module = custom.compiled(f"(module {head} {function})")
            ort.callback("Bad", domain=DOMAIN, outputs=[(None, 1)], wasm=module)(lambda x: x)
            save(f"bad{k}", model([node("Bad", ["x"], ["y"], domain=DOMAIN, name="evil")], {"x": ["n"]}))
        ort.callback("Twice", domain=DOMAIN)(lambda x, *, by, most, table: x)
        table = custom.helper.make_tensor("t", 7, [2], [5, 2**60])
        told = node("Twice", ["x"], ["y"], domain=DOMAIN, by=float("-inf"), most=2**60 + 1, table=table, name="told")
        save("told", model([told], {"x": ["n"]}))
    header, body = split((root / "affine.ponnx").read_bytes())
    header["programs"][0]["callbacks"][0]["wasm"][0] = 5
    (root / "no_module.ponnx").write_bytes(join(header, body))
    return root


@pytest.fixture(scope="module")
def player_page(browser_type: BrowserType) -> Iterator[Page]:
    browser = browser_type.launch(**chromium.launch_options(webgpu=True))
    yield browser.new_page()
    browser.close()


@pytest.fixture
def page_run(player_page: Page, kernel_models: Path) -> Iterator[Run]:
    with Server({"/": kernel_models, "/player": DIST}, isolated=False) as server:
        player_page.goto(f"{server.url}index.html")
        yield lambda body, arg=None: player_page.evaluate(f"async (arg) => {{ {HELPERS} {body} }}", arg)


FEEDS = """
  const feeds = (rows, s = 0.25) => ({
    x: new Tensor("float32", arg.x.slice(0, rows).flat(), [rows, 7]), s: new Tensor("float32", [s], []),
  });
"""


def given(**others: Any) -> dict[str, Any]:
    return {"x": X.tolist(), **others}


@BACKENDS
@pytest.mark.parametrize("worker", [True, False])
def test_kernels_run_in_the_page(page_run: Run, backend: str, worker: bool) -> None:
    found, used = page_run(
        FEEDS
        + """
      const session = await create("affine.ponnx", { executionProviders: [arg.backend], worker: arg.worker });
      const results = [];
      for (const rows of [5, 1, 0, 4]) results.push([...(await session.run(feeds(rows))).y.data]);
      return [results, session.backend];
    """,
        given(backend=backend, worker=worker),
    )
    assert used == backend
    for rows, y in zip((5, 1, 0, 4), found, strict=True):
        np.testing.assert_allclose(np.reshape(y, (rows, 7)), np.abs(0.25 - 3 * X[:rows]), rtol=1e-5, atol=1e-6)


@BACKENDS
def test_within_a_loop(page_run: Run, backend: str) -> None:
    y = page_run(
        FEEDS
        + """
      const session = await create("loop.ponnx", { executionProviders: [arg.backend] });
      const k = new Tensor("int64", [9n], []);
      return [...(await session.run({ x: feeds(5).x, k })).y.data];
    """,
        given(backend=backend),
    )
    want = X
    for _ in range(9):
        want = np.float32(0.5) * want + 1
    np.testing.assert_allclose(np.reshape(y, X.shape), want, rtol=1e-5)


def test_sizes_from_data(page_run: Run) -> None:
    found = page_run(
        """
      const session = await create("positive.ponnx");
      const results = [];
      for (const times of [1, 0, 3000, 1]) {
        const data = Float32Array.from(Array(times).fill(arg.x[0]).flat());
        const { y, c } = await session.run({ x: new Tensor("float32", data, [data.length]) });
        results.push([y.dims[0], Number(c.data[0]), [...y.data.slice(0, 7)]]);
      }
      return results;
    """,
        given(),
    )
    kept = X[0][X[0] < 0]
    assert [row[:2] for row in found] == [[n * kept.size] * 2 for n in (1, 0, 3000, 1)]
    np.testing.assert_array_equal(np.float32(found[0][2]), kept)


def test_a_registered_function_where_there_is_only_wgsl(page_run: Run) -> None:
    missing = page_run(FEEDS + "return error((await create('shader.ponnx')).run(feeds(5)))", given())
    assert "node here (test.kernels.Affine): no function is registered here to run it, and its WGSL runs on webgpu alone" in missing
    y = page_run(
        FEEDS
        + """
      const affine = ([x, s], { scale }) => ({ type: "float32", dims: x.dims, data: x.data.map((v) => scale * v + s.data[0]) });
      const session = await create("shader.ponnx", { operators: { "test.kernels.Affine": affine } });
      return [...(await session.run(feeds(5))).y.data];
    """,
        given(),
    )
    np.testing.assert_allclose(np.reshape(y, X.shape), np.abs(0.25 - 3 * X), rtol=1e-5, atol=1e-6)


def test_attributes_of_all_kinds(page_run: Run) -> None:
    got = page_run(
        """
      let seen;
      const told = ([x], { by, most, table }) => ((seen = [by === -Infinity, most === 2n ** 60n + 1n, table.data.join()]), x);
      const session = await create("told.ponnx", { operators: { "test.kernels.Twice": told } });
      await session.run({ x: new Tensor("float32", [1], [1]) });
      return seen;
    """
    )
    assert got == [True, True, f"5,{2**60}"]
    wrong = page_run(
        """
      const operators = { "test.kernels.Twice": () => new Tensor("float32", [1], [1]) };
      return error((await create("told.ponnx", { operators })).run({ x: new Tensor("float32", [1, 2], [2]) }));
    """
    )
    assert "node told (test.kernels.Twice): output 0 of its function has the shape [1], declared is [2]" in wrong


@pytest.mark.parametrize("case", [c for c in HOSTILE if c != "a loop without end"])
def test_a_hostile_module_is_an_error_and_harms_nothing(page_run: Run, case: str) -> None:
    text = HOSTILE[case][2].removeprefix("failed: .*")
    said, y = page_run(
        FEEDS
        + """
      const two = { x: new Tensor("float32", [1, 2], [2]) };
      const bad = await create(`bad${arg.k}.ponnx`, { maxMemory: 2 ** 26 });
      const said = [await error(bad.run(two)), await error(bad.run(two))];
      return [said, [...(await (await create("affine.ponnx")).run(feeds(1))).y.data]];
    """,
        given(k=list(HOSTILE).index(case)),
    )
    for one in said:
        assert "node evil (test.kernels.Bad): " in one
        assert text in one or case in ("memory without end", "a start that fails")
    np.testing.assert_allclose(y, np.abs(0.25 - 3 * X[0]), rtol=1e-5)


def test_damaged_files_and_shaders_are_errors(page_run: Run) -> None:
    assert "there is no module 5" in page_run("return error(create('no_module.ponnx'))")
    assert "test.kernels.Bad" in page_run("return error(create('bad_shader.ponnx', { executionProviders: ['webgpu'] }))")


ENDLESS = list(HOSTILE).index("a loop without end")
AGAIN = "(await create('affine.ponnx')).run(feeds(1)).then(({ y }) => y.dims)"


def test_a_module_without_end_is_ended_and_sessions_work_again(page_run: Run) -> None:
    """Its worker is ended, and with it its sessions; the next session has a worker of its own."""
    told, later, shape = page_run(
        FEEDS
        + f"""
      const options = {{ executionProviders: ["wasm"], maxOperations: 2 ** 27 }};
      const session = await create("bad{ENDLESS}.ponnx", options);
      const two = {{ x: new Tensor("float32", [1, 2], [2]) }};
      const told = await session.run(two).then(() => "no error", ({{ message }}) => message);
      const later = await session.run(two).then(() => "no error", ({{ message }}) => message);
      return [told, later, await {AGAIN}];
    """,
        given(),
    )
    want = r"node evil \(test.kernels.Bad\): its WebAssembly takes more than 256 ms, the limit \(maxOperations sets another\)"
    assert re.match(want, told)
    assert "create the session again" in later
    assert shape == [1, 7]


def test_a_run_that_is_given_up_ends_a_module_without_end(page_run: Run) -> None:
    told, shape = page_run(
        FEEDS
        + f"""
      const session = await create("bad{ENDLESS}.ponnx", {{ executionProviders: ["wasm"] }});
      const options = {{ terminate: false }};
      const running = session.run({{ x: new Tensor("float32", [1, 2], [2]) }}, options).catch(({{ message }}) => message);
      options.terminate = true;
      return [await running, await {AGAIN}];
    """,
        given(),
    )
    assert re.match(r"node evil .*: the run was terminated, and its engine with it; create the session again", told)
    assert shape == [1, 7]


def test_what_a_model_says_of_itself(page_run: Run, kernel_models: Path) -> None:
    """As Python tells it; and a size that data tell by the name that the model gives it."""
    made = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> named (float[n] x) => (int64[1, found] y, float[2, m] z)'
        " { y = NonZero(x)  r = Unique(x)  a = Constant <value_ints = [0]> ()  u = Unsqueeze(r, a)  z = Concat <axis = 0> (u, u) }"
    )
    made.producer_name, made.producer_version, made.domain, made.model_version, made.doc_string = "maker", "2.1", "a.domain", 7, "Says so."
    onnx.helper.set_model_props(made, {"labels": "cat,dög"})
    ort.save(ort.compile(made.SerializeToString()), kernel_models / "about.ponnx")
    told, shapes = page_run("const s = await create('about.ponnx'); return [s.metadata, s.outputMetadata.map(({ shape }) => shape)];")
    about = {"producer": "maker 2.1", "graph": "named", "domain": "a.domain", "description": "Says so.", "version": 7}
    assert told == {**about, "custom": {"labels": "cat,dög"}}
    session = ort.InferenceSession(kernel_models / "about.ponnx")
    assert shapes == [o.shape for o in session.get_outputs()] == [[1, "found"], [2, "m"]]
    assert session.get_modelmeta().custom_metadata_map == told["custom"]
