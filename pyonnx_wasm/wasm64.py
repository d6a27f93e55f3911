"""The C library of WebAssembly with 64-bit addresses, which zig's compiler aims at but carries no libc for.

Headers are those of 32-bit WebAssembly, whose types follow the compiler's own sizes. Of the functions the core calls a handful: zig's
library, its run-time support and four sources of musl have them, all of which come with the compiler.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

TRIPLE = "wasm64-wasi"
MAX_BYTES = 1 << 34  # what engines give a memory at most
MUSL = ("atanh", "erf", "ldexp", "scalbn")
EXPORTS = ("__stack_pointer", "__wasm_init_tls", "__tls_size", "__tls_align")
LINK = ("-mwasm64", "--no-entry", "--import-memory", "--shared-memory", "--initial-memory=4194304", f"--max-memory={MAX_BYTES}",
        "-z", "stack-size=1048576", "--gc-sections", "-s", *(f"--export={s}" for s in EXPORTS))  # fmt: skip

Zig = Callable[[list[str], str], None]


def library() -> Path:
    """The folder of zig's libraries."""
    found = importlib.util.find_spec("ziglang")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "lib"


def flags() -> tuple[str, ...]:
    """For every source: headers, without the one that describes calls into a system, of which there are none."""
    headers = library() / "libc" / "include"
    return ("-D__wasi_api_h", "-isystem", str(headers / "wasm-wasi-musl"), "-isystem", str(headers / "generic-musl"))


def runtime(out: Path, cpu: str, zig: Zig) -> list[Path]:
    """Objects of the functions that the compiler and the core take from outside, made where they are missing."""
    out.mkdir(parents=True, exist_ok=True)
    lib, made = library(), []
    target = ["-target", TRIPLE, f"-mcpu={cpu}"]
    for name, libc in (("c", ["-lc"]), ("compiler_rt", [])):
        path = out / f"{name}.o"
        if not path.exists():
            zig(["build-obj", *target, "-O", "ReleaseSmall", *libc, str(lib / f"{name}.zig"), f"-femit-bin={path}"], path.name)
        made.append(path)
    musl = lib / "libc" / "musl"
    includes = ["-I", str(musl / "arch" / "generic"), "-I", str(musl / "src" / "internal")]
    for name in MUSL:
        path = out / f"{name}.o"
        source = str(musl / "src" / "math" / f"{name}.c")
        if not path.exists():
            zig(["cc", *target, *flags(), "-Dhidden=", "-Dweak=", *includes, "-Os", "-c", source, "-o", str(path)], path.name)
        made.append(path)
    return made


def link(out: Path, objects: Sequence[Path], cpu: str, zig: Zig) -> None:
    """Links a module. The driver's own front to the linker takes no memory beyond 32 bits."""
    zig(["wasm-ld", *LINK, "-o", str(out), *map(str, objects), *map(str, runtime(objects[0].parent / "wasm64", cpu, zig))], out.name)
