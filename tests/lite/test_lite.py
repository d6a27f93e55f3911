"""The JupyterLite site in Chromium, as somebody who opens it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from pyonnx_wasm.server import Server
from pyonnx_wasm.testing import chromium

pytestmark = pytest.mark.browser

LITE = Path(__file__).parents[2] / "build" / "lite"
TIMEOUT_MS = 180_000
ADDED = """
import js, json
from pyodide.code import run_js

doubled = await run_js('''(async () => {
  if (!self.navigator.gpu) return "no navigator.gpu";
  const adapter = await navigator.gpu.requestAdapter();
  if (!adapter) return "no adapter";
  const device = await adapter.requestDevice();
  const usage = GPUBufferUsage;
  const numbers = device.createBuffer({ size: 16, usage: usage.STORAGE | usage.COPY_SRC | usage.COPY_DST });
  const read = device.createBuffer({ size: 16, usage: usage.MAP_READ | usage.COPY_DST });
  device.queue.writeBuffer(numbers, 0, new Float32Array([1, 2, 3, 4]));
  const code = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;" +
    "@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) i: vec3u) { x[i.x] *= 2.0; }";
  const module = device.createShaderModule({ code });
  const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute: { module } });
  const layout = pipeline.getBindGroupLayout(0);
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, device.createBindGroup({ layout, entries: [{ binding: 0, resource: { buffer: numbers } }] }));
  pass.dispatchWorkgroups(1);
  pass.end();
  encoder.copyBufferToBuffer(numbers, 0, read, 0, 16);
  device.queue.submit([encoder.finish()]);
  await read.mapAsync(GPUMapMode.READ);
  return [...new Float32Array(read.getMappedRange())].join(" ");
})()''')
print(json.dumps({"worker": not hasattr(js, "document"), "doubled": doubled}))
"""


@pytest.fixture
def lite() -> Path:
    if not (LITE / "lab" / "index.html").exists():
        pytest.fail(f"{LITE} is not built: run `make lite`", pytrace=False)
    return LITE


def outputs(page: Page, count: int) -> list[str]:
    """What the first cells gave, when so many have run."""
    ran = (
        "count => [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].filter((e) => /[0-9]/.test(e.textContent)).length >= count"
    )
    page.wait_for_function(ran, arg=count, timeout=TIMEOUT_MS)
    return page.locator(".jp-OutputArea-output").all_inner_texts()


def visit(lite: Path) -> dict[str, Any]:
    """Runs the first notebook, then a cell of our own that uses WebGPU."""
    with Server(lite, isolated=False) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium.launch_options(webgpu=True))
        context = browser.new_context(viewport={"width": 1280, "height": 1000})
        context.set_default_timeout(120_000)
        elsewhere: list[str] = []
        context.on("request", lambda r: None if r.url.startswith((server.url, "blob:", "data:")) else elsewhere.append(r.url))
        page = context.new_page()
        page.goto(f"{server.url}lab/index.html?path=first_steps.ipynb")
        page.locator(".jp-Notebook").wait_for()
        page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').wait_for()
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_text("Run All Cells", exact=True).click()
        ran = outputs(page, 4)
        # The last cell is selected: a new one below it.
        page.locator(".jp-CodeCell").last.locator(".jp-InputPrompt").click()
        page.keyboard.press("b")
        page.keyboard.press("Enter")
        page.keyboard.insert_text(ADDED.strip())
        page.keyboard.press("Shift+Enter")
        added = outputs(page, 5)[len(ran) :]
        browser.close()
    return {"ran": ran, "added": added, "elsewhere": elsewhere}


def test_the_first_notebook_runs_without_any_other_host(lite: Path, apart: Callable[..., Any]) -> None:
    got = apart(visit, lite)
    signature, shape, digits, same = got["ran"]
    assert "['wasm']" in signature
    assert shape == "(3, 1, 8, 8)"
    assert [line[0] for line in digits.strip().splitlines()] == ["3", "0", "4"]
    assert same == "True"
    assert got["elsewhere"] == []
    # The kernel's worker has the GPU as well.
    assert [text.strip() for text in got["added"]] == ['{"worker": true, "doubled": "2 4 6 8"}']
