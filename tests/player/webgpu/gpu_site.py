"""JavaScript of the tests on WebGPU, and what runs it."""

from __future__ import annotations

from player_site import HELPERS, Run
from playwright.sync_api import Page

NAME = "models.test"  # not localhost: pages from it are no secure context


BIG = (1024, 8192)  # a weight of 32 MB


GPU = """
const gpu = (url, options = {}) => create(url, { executionProviders: ["webgpu"], ...options });
const floats = (data, dims) => new Tensor("float32", Float32Array.from(data), dims);
"""


# Counts the GPU memory that is held in this page.
LEDGER = """
const ledger = { bytes: 0, buffers: 0, groups: 0 };
const { createBuffer, createBindGroup } = GPUDevice.prototype;
const { destroy } = GPUBuffer.prototype;
const alive = new Set();
GPUDevice.prototype.createBuffer = function (descriptor) {
  const buffer = createBuffer.call(this, descriptor);
  alive.add(buffer);
  ledger.bytes += buffer.size;
  ledger.buffers++;
  return buffer;
};
GPUBuffer.prototype.destroy = function () {
  if (alive.delete(this)) ledger.bytes -= this.size;
  destroy.call(this);
};
GPUDevice.prototype.createBindGroup = function (descriptor) {
  ledger.groups++;
  return createBindGroup.call(this, descriptor);
};
"""


def runner(page: Page, url: str) -> Run:
    """Opens a page and returns what runs JavaScript in it."""
    page.goto(url)
    return lambda body, arg=None: page.evaluate(f"async (arg) => {{ {HELPERS} {GPU} {body} }}", arg)
