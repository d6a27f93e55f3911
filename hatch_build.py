"""What a wheel carries: the portable parts, and with a platform its native core.

``PYONNX_WASM_WHEEL`` says which: ``pure`` (Pyodide, JupyterLite, any browser), ``native`` (this machine), or a platform as
``python -m pyonnx_wasm.toolchain --target`` spells it. Unset: pure under pyodide-build, else native if its core was built, else pure.
From an sdist, which carries the portable parts as they were built, the native core is compiled first.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIB = "pyonnx_wasm/lib"
PORTABLE = (
    f"{LIB}/player/index.mjs",
    f"{LIB}/player/core.wasm",
    f"{LIB}/player/core-relaxed.wasm",
    f"{LIB}/pyodide/glue.js",
    f"{LIB}/pyodide/tokenizer.js",
    f"{LIB}/widget/bridge.js",
    f"{LIB}/labextension/pyonnx-wasm/package.json",
)
# The C library that zig links against, as toolchain.py says, decides the tag.
TAGS = {
    "x86_64-linux": "manylinux_2_17_x86_64.manylinux2014_x86_64",
    "aarch64-linux": "manylinux_2_17_aarch64.manylinux2014_aarch64",
    "x86_64-linux-musl": "musllinux_1_2_x86_64",
    "aarch64-linux-musl": "musllinux_1_2_aarch64",
    "x86_64-macos": "macosx_11_0_x86_64",
    "aarch64-macos": "macosx_11_0_arm64",
    "x86_64-windows": "win_amd64",
    "aarch64-windows": "win_arm64",
}
LABEXTENSION = f"{LIB}/labextension/pyonnx-wasm"
JUPYTER = {
    LABEXTENSION: "share/jupyter/labextensions/pyonnx-wasm",
    "pyonnx_wasm/lab/jupyter_server_config.json": "etc/jupyter/jupyter_server_config.d/pyonnx-wasm.json",
}
CORES = {"linux": "core-*.so", "linux-musl": "core-*.so", "macos": "core-*.dylib", "windows": "core-*.dll"}
NEON = "core-neon."


class WheelHook(BuildHookInterface):
    """Adds the native core and the platform's tag."""

    def dependencies(self) -> list[str]:
        """What compiling the core takes, where that is to be done."""
        return ["ziglang==0.17.0", "numpy>=1.26", "tqdm>=4.60"] if self.compiles() else []

    def compiles(self) -> bool:
        """Whether this is an sdist on a platform that has a native core, and the core is not there."""
        root = Path(self.root)
        pure = os.environ.get("PYONNX_WASM_WHEEL") or os.environ.get("PYODIDE")
        return (
            self.target_name == "wheel" and (root / "PKG-INFO").exists() and not pure and host() in TAGS and not native_cores(root, host())
        )

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        if self.compiles():
            subprocess.run([sys.executable, "-m", "pyonnx_wasm.toolchain", "native"], cwd=root, check=True)
        wanted = os.environ.get("PYONNX_WASM_WHEEL") or ("pure" if os.environ.get("PYODIDE") else "")
        if wanted == "native":
            wanted = host()
        if wanted and (missing := [path for path in PORTABLE if not (root / path).exists()]):
            raise FileNotFoundError(f"{missing[0]} is not built: run `make build` first")
        if wanted not in ("", "pure", *TAGS):
            raise ValueError(f"PYONNX_WASM_WHEEL={wanted}: it must be pure, native or one of {', '.join(TAGS)}")
        target = wanted or host()
        if (root / LABEXTENSION).exists():
            build_data["shared_data"].update(JUPYTER)
        cores = native_cores(root, target)
        if wanted in TAGS and not cores:
            raise FileNotFoundError(f"no native core for {wanted}: run python -m pyonnx_wasm.toolchain native --target {wanted}")
        if cores:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{TAGS[target]}"
            build_data["force_include"].update({str(path): f"{LIB}/{path.name}" for path in cores})


def host() -> str:
    """This machine as a platform of ``TAGS``, if it is one."""
    machine = platform.machine().lower()
    system = platform.system().lower()
    libc = "-musl" if system == "linux" and platform.libc_ver()[0] != "glibc" else ""
    return f"{ {'amd64': 'x86_64', 'arm64': 'aarch64'}.get(machine, machine) }-{ {'darwin': 'macos'}.get(system, system) }{libc}"


def native_cores(root: Path, target: str) -> list[Path]:
    """The libraries built for a platform: one per instruction set."""
    arch, _, system = target.partition("-")
    if target not in TAGS:
        return []
    for folder in (root / "build" / target, root / LIB):
        found = [p for p in sorted(folder.glob(CORES[system])) if (arch == "aarch64") == p.name.startswith(NEON)]
        if found:
            return found
    return []
