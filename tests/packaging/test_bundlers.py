"""The packed package in pages: bundled by what people bundle with, run in Chromium, compared number by number."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tokenizers
from onnx import helper, numpy_helper
from playwright.sync_api import Browser, Page

import pyonnx_wasm
from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import pyodide

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SECONDS = 300  # of a machine with much else to do
W = np.random.default_rng(7).standard_normal((67, 31), dtype=np.float32)
X = (((np.arange(3 * 67) * 37) % 101) / np.float64(50) - 1).astype(np.float32).reshape(3, 67)
# Strict, but for Playwright's own evaluation.
POLICY = "default-src 'none'; script-src 'self' 'unsafe-eval' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'"

RUN = """
window.done = (async () => {
  env.wasm.numThreads = 2;
  const session = await InferenceSession.create("/models/dense.ponnx");
  const x = Float32Array.from({ length: 3 * 67 }, (_, i) => ((i * 37) % 101) / 50 - 1);
  const { y } = await session.run({ x: new Tensor("float32", x, [3, 67]) });
  await session.release();
  return { y: [...y.data], threads: session.threads };
})();
"""
MAIN = f'import {{ InferenceSession, Tensor, env }} from "pyonnx-wasm";\nObject.assign(window, {{ InferenceSession, Tensor, env }});\n{RUN}'
ICON = '<!doctype html><link rel="icon" href="data:,"><title>page</title>'
HTML = f"""<!doctype html>
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>page</title>
SCRIPTS
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    infos = [helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("x", 67), ("y", 31))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [numpy_helper.from_array(W, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), root / "dense.onnx")
    pyonnx_wasm.save(pyonnx_wasm.compile(root / "dense.onnx"), root / "dense.ponnx")
    return root


@pytest.fixture(scope="module")
def package(installed: Callable[[str], Path], published: Path) -> Path:
    """The tarball, unpacked beneath the tools."""
    tools = installed("bundlers")
    pages = tools / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    target = pages / "package"
    target.mkdir(parents=True)
    packed = subprocess.run(["npm", "pack", "--silent", str(published)], cwd=pages, capture_output=True, text=True, check=True)
    subprocess.run(["tar", "xzf", packed.stdout.strip(), "-C", str(target), "--strip-components=1"], cwd=pages, check=True)
    shutil.copy(HERE / "bundlers" / "bundle.mjs", tools)
    return target


@pytest.fixture
def bundle(package: Path, tmp_path: Path) -> Iterator[Callable[..., tuple[Path, str | None]]]:
    """Bundles the page; gives the folder, and the address where a development server listens."""
    running: list[subprocess.Popen[str]] = []

    def bundle(tool: str) -> tuple[Path, str | None]:
        page, out = package.parent / tool.replace(", ", "-").replace(" ", "-"), tmp_path / "out"
        shutil.rmtree(page, ignore_errors=True)
        shutil.copytree(package, page / "node_modules" / "pyonnx-wasm", copy_function=os.link)
        out.mkdir()
        (page / "main.js").write_text(MAIN)
        script = "main.js" if tool.startswith(("vite", "parcel")) else "./main.js"
        html = HTML if "development" not in tool else f"{ICON}SCRIPTS"
        (page / "index.html").write_text(html.replace("SCRIPTS", f'<script type="module" src="{script}"></script>'))
        (page / "package.json").write_text('{ "private": true, "type": "module" }')
        command = ["node", str(package.parents[1] / "bundle.mjs"), tool, str(page), str(out)]
        if "development" in tool:
            server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            running.append(server)
            assert server.stdout is not None
            return out, server.stdout.readline().strip()
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        return out, None

    yield bundle
    for server in running:
        server.terminate()
        server.communicate(timeout=SECONDS)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.set_default_timeout(120_000)
    yield page
    page.close()


def check(page: Page, address: str, threads: int = 2) -> None:
    """Runs the page: right numbers, in a worker, with nothing amiss."""
    amiss: list[str] = []
    scripts: list[str] = []
    page.on("console", lambda message: message.type in ("warning", "error") and amiss.append(message.text))
    page.on("worker", lambda worker: scripts.append(worker.url))
    page.on("response", lambda response: response.status >= 400 and amiss.append(f"{response.status} {response.url}"))
    page.goto(address)
    page.wait_for_function("'done' in window")
    got: dict[str, Any] = page.evaluate("window.done")
    np.testing.assert_allclose(np.array(got["y"]).reshape(3, 31), np.maximum(X @ W, 0), rtol=1e-5, atol=1e-5)
    assert got["threads"] == threads
    assert scripts
    assert not [url for url in scripts if not url.startswith(address)]
    assert amiss == []


TOOLS = ["vite 8", "vite 7", "vite 6", "vite 5", "webpack", "rollup", "esbuild", "parcel"]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_bundled_page(bundle: Callable[..., tuple[Path, str | None]], page: Page, models: Path, tool: str) -> None:
    """With threads, under a strict policy, with the compiler's wheel at hand."""
    out, _ = bundle(tool)
    assert list(out.rglob("*.whl")), "the compiler is left behind"
    with Server({"/": out, "/models": models}) as server:
        check(page, server.url)


@pytest.mark.parametrize("tool", ["vite 8, development", "vite 5, development"])
def test_a_page_under_development(
    bundle: Callable[..., tuple[Path, str | None]], page: Page, models: Path, package: Path, tool: str
) -> None:
    _, address = bundle(tool)
    assert address
    page.route("**/models/dense.ponnx", lambda route: route.fulfill(path=models / "dense.ponnx"))
    check(page, address)


CONFIGURATION = re.findall(r"```js\n// vite.config.js\n(.*?)```", (ROOT / "js/npm.md").read_text(), re.S)
TRANSFORMERS = """
import * as transformers from "@huggingface/transformers";
Object.assign(transformers.env, { allowLocalModels: true, localModelPath: "/hub/" });
env.pyodide.indexURL = "/pyodide/";
window.features = async (text) => {
  const extract = await transformers.pipeline("feature-extraction", "features", { dtype: "fp32" });
  return [...(await extract(text, { pooling: "mean" })).data];
};
"""


def test_transformers_js_in_a_bundled_page(
    package: Path, installed: Callable[[str], Path], page: Page, models: Path, tmp_path: Path
) -> None:
    """With a model as it is on the hub, and another .onnx file; nothing comes from another place."""
    folder = package.parent / "transformers"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(installed("transformers_js") / "node_modules", folder / "node_modules", copy_function=os.link)
    shutil.rmtree(folder / "node_modules/onnxruntime-web", ignore_errors=True)
    shutil.copytree(package, folder / "node_modules" / "pyonnx-wasm", copy_function=os.link)
    (folder / "main.js").write_text(MAIN + TRANSFORMERS)
    (folder / "index.html").write_text(f'{ICON}<script type="module" src="main.js"></script>')
    (folder / "vite.config.js").write_text(CONFIGURATION[0])
    command = ["node", str(package.parents[1] / "bundle.mjs"), "vite 8, configured", str(folder), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    hub = ROOT / "tests/packaging/transformers_js/hub"
    text = "the cat sat on the mat"
    session = onnxruntime.InferenceSession(hub / "features/onnx/model.onnx")
    ids = np.array([tokenizers.Tokenizer.from_file(str(hub / "features/tokenizer.json")).encode(text).ids])
    hidden = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})[0]
    with Server({"/": tmp_path, "/models": models, "/pyodide": pyodide.distribution(), "/hub": hub}) as server:
        check(page, server.url)
        elsewhere: list[str] = []
        page.on(
            "request", lambda request: None if request.url.startswith((server.url, "blob:", "data:")) else elsewhere.append(request.url)
        )
        found = page.evaluate("features", text)
        y = page.evaluate("""async (x) => {
          const session = await InferenceSession.create("/models/dense.onnx");
          return [...(await session.run({ x: new Tensor("float32", x, [3, 67]) })).y.data];
        }""", X.ravel().tolist())  # fmt: skip
    np.testing.assert_allclose(found, hidden[0].mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.array(y).reshape(3, 31), np.maximum(X @ W, 0), rtol=1e-5, atol=1e-5)
    assert elsewhere == []


MODULE = (
    '<script type="importmap">{ "imports": { "pyonnx-wasm": "/player/PLAYER.mjs" } }</script><script type="module" src="main.js"></script>'
)
SCRIPTS = {
    "import map": MODULE.replace("PLAYER", "index"),
    "all": MODULE.replace("PLAYER", "all"),
    "classic script": '<script src="/player/pyonnx-wasm.js"></script><script src="classic.js"></script>',
}


@pytest.mark.parametrize("scripts", SCRIPTS.values(), ids=SCRIPTS)
def test_a_page_without_a_bundler(package: Path, page: Page, models: Path, tmp_path: Path, scripts: str) -> None:
    (tmp_path / "index.html").write_text(ICON + scripts)
    (tmp_path / "main.js").write_text(MAIN)
    (tmp_path / "classic.js").write_text(f"const {{ InferenceSession, Tensor, env }} = pyonnxWasm;\n{RUN}")
    with Server({"/": tmp_path, "/models": models, "/player": package / "dist"}) as server:
        check(page, server.url)


NEXT = MAIN.replace("Object.assign(window", "export function start() {\nObject.assign(window") + "}\n"


@pytest.fixture(scope="module")
def next_app(installed: Callable[[str], Path], package: Path) -> Path:
    folder = installed("next") / "app"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "next", folder)
    shutil.copytree(package, folder / "node_modules" / "pyonnx-wasm", copy_function=os.link)
    (folder / "run.js").write_text(NEXT)
    return folder


@pytest.fixture
def next_server(next_app: Path) -> Iterator[Callable[[str], str]]:
    """Starts Next.js; gives the address where it listens."""
    environment = os.environ | {"NEXT_TELEMETRY_DISABLED": "1"}
    tool = str(next_app.parent / "node_modules" / ".bin" / "next")
    running: list[subprocess.Popen[str]] = []

    def serve(mode: str) -> str:
        if mode == "start":
            done = subprocess.run([tool, "build"], cwd=next_app, env=environment, capture_output=True, text=True, timeout=SECONDS)
            assert done.returncode == 0, done.stdout + done.stderr
        command = [tool, mode, "--port", "0", "--hostname", "127.0.0.1"]
        server = subprocess.Popen(command, cwd=next_app, env=environment, stdout=subprocess.PIPE, text=True)
        running.append(server)
        assert server.stdout is not None
        lines: list[str] = []
        for line in server.stdout:
            lines.append(line)
            if "http://127.0.0.1:" in line:
                return line[line.index("http://") :].strip().rstrip("/") + "/"
        raise AssertionError("".join(lines))

    yield serve
    for server in running:
        server.terminate()
        server.communicate(timeout=SECONDS)


@pytest.mark.skipif("PYONNX_WASM_NEXT" not in os.environ, reason="Next.js takes minutes; PYONNX_WASM_NEXT=1 runs it")
@pytest.mark.parametrize("mode", ["start", "dev"])
def test_a_page_of_next(next_server: Callable[[str], str], page: Page, models: Path, mode: str) -> None:
    address = next_server(mode)
    page.set_default_timeout(1000 * SECONDS)
    page.route("**/models/dense.ponnx", lambda route: route.fulfill(path=models / "dense.ponnx"))
    check(page, address)
