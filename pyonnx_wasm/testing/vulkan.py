"""`python -m pyonnx_wasm.testing.vulkan` makes sure that the backend `gpu` has an adapter: Mesa's software driver if nothing else."""

import subprocess
import sys

from . import system

PACKAGES = ("mesa-vulkan-drivers", "libvulkan1")


def adapter() -> tuple[str | None, str]:
    """The adapter that the backend takes, None where there is none, and why.

    Asked in a process of its own: a driver is looked for once per process.
    """
    code = "from pyonnx_wasm.runtimes import wgpu; print(wgpu.adapter_name())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None, (done.stderr.strip().splitlines() or [""])[-1]


def install() -> tuple[str | None, str]:
    """What :func:`adapter` gives, after installing a driver and its loader where that is needed and apt works."""
    found, why = adapter()
    return adapter() if found is None and system.apt(PACKAGES, "Mesa's Vulkan driver") else (found, why)


if __name__ == "__main__":
    name, why = install()
    print(f"GPU: {name}" if name else f"The tests of the backend gpu need an adapter: {why}", flush=True)
    sys.exit(name is None)
