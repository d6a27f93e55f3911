"""`python -m pyonnx_wasm.testing.vulkan` makes sure that the backend `gpu` has an adapter: Mesa's software driver if nothing else."""

import os
import shutil
import subprocess
import sys

PACKAGES = ("mesa-vulkan-drivers", "libvulkan1")


def adapter() -> str | None:
    """The name of the adapter, None where there is none. Asked in a process of its own: a driver is looked for once per process."""
    code = "from pyonnx_wasm.runtimes import wgpu; print(wgpu.adapter_name())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def install() -> str | None:
    """The adapter's name, after installing a driver where apt works."""
    found = adapter()
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        print("Installing Mesa's Vulkan driver", flush=True)
        quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
        subprocess.run(["apt-get", "update", "-qq"], check=False, **quiet)  # type: ignore[call-overload]
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES], check=False, **quiet)  # type: ignore[call-overload]
        found = adapter()
    return found


if __name__ == "__main__":
    name = install()
    print(
        f"GPU: {name}"
        if name
        else f"no GPU adapter: install a Vulkan driver ({', '.join(PACKAGES)} on Debian); tests of the backend gpu will fail"
    )
