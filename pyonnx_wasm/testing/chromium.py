"""Finds the Chromium that tests, `demo` and `bench` drive; `python -m pyonnx_wasm.testing.chromium` installs one if there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import system

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGS = ("--disable-background-networking", "--no-first-run", "--disable-component-update", "--disable-sync")
# SwiftShader writes out the zeros of OpConstantNull word by word, half a millisecond each to compile; Dawn's own loops do the same in
# none: 1.8 s of the processor for an attention of 14 KB in a workgroup become 0.2 s.
WEBGPU = (
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--disable-dawn-features=use_vulkan_zero_initialize_workgroup_memory_extension",
)
# A GPU without a display: https://developer.chrome.com/blog/supercharge-web-ai-testing
REAL_GPU = (
    "--enable-unsafe-webgpu",
    "--use-angle=vulkan",
    "--enable-features=Vulkan",
    "--disable-vulkan-surface",
    "--ignore-gpu-blocklist",
)


def executable() -> str:
    """Path of `$CHROMIUM`, of a browser on PATH, or of the one that Playwright installed. FileNotFoundError where there is none."""
    if chosen := os.environ.get("CHROMIUM"):
        return chosen
    for name in NAMES:
        if found := shutil.which(name):
            return found
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    if Path(own).exists():
        return own
    raise FileNotFoundError("no Chromium on PATH: install one, set CHROMIUM to its path, or run python -m playwright install chromium")


def launch_options(webgpu: bool = False, real_gpu: bool = False) -> dict[str, Any]:
    """Arguments for Playwright's `chromium.launch`: without WebGPU, with it on the processor, or on the machine's GPU."""
    gpu = REAL_GPU if real_gpu else WEBGPU if webgpu else ("--disable-gpu",)
    return {"executable_path": executable(), "args": [*ARGS, *gpu], "timeout": 120_000}  # of a machine with much else to do


def install() -> str:
    """The path of a browser; Debian's package where apt works, else Playwright's build, is installed if there is none."""
    try:
        return executable()
    except FileNotFoundError:
        pass
    system.apt(("chromium",), "a browser")
    if not any(map(shutil.which, NAMES)):
        print("Installing Playwright's Chromium", flush=True)
        subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=True)
    return executable()


if __name__ == "__main__":
    print(f"Browser: {install()}")
