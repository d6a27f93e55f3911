"""How the modules of WebAssembly are linked, with addresses of 32 and of 64 bits.

Of a C library the core calls a handful of functions: zig's library, its run-time support and four sources of musl have them, all of which
come with the compiler. The whole of WASI's takes most of a minute to compile, and for 64 bits there is none; there the headers are those of
32, whose types follow the compiler's own sizes.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

WASM32, WASM64 = "wasm32-wasi", "wasm64-wasi"
FEATURES = "generic+simd128+atomics+bulk_memory+nontrapping_fptoint"
FLAGS = ("-Wglobal-constructors",)  # the linker would have every call from outside run them
MAX_BYTES = {WASM32: 0xFFFF_0000, WASM64: 1 << 34}  # of a memory, what engines give at most
MUSL = ("atanh", "erf", "ldexp", "scalbn")
EXPORTS = ("__stack_pointer", "__wasm_init_tls", "__tls_size", "__tls_align")
LINK = ("--no-entry", "--import-memory", "--shared-memory", "--initial-memory=4194304", "-z", "stack-size=1048576", "--gc-sections", "-s",
        *(f"--export={s}" for s in EXPORTS))  # fmt: skip

Zig = Callable[[list[str], str], None]
_lock = Lock()


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


def runtime(out: Path, triple: str, zig: Zig) -> list[Path]:
    """Objects of the functions that the compiler and the core take from outside, made where they are missing."""
    out.mkdir(parents=True, exist_ok=True)
    lib, made = library(), []
    target = ["-target", triple, f"-mcpu={FEATURES}"]
    musl = lib / "libc" / "musl"
    includes = ["-I", str(musl / "arch" / "generic"), "-I", str(musl / "src" / "internal")]
    jobs = [
        ("c", ["build-obj", *target, "-O", "ReleaseSmall", "-lc", str(lib / "c.zig")], "-femit-bin="),
        ("compiler_rt", ["build-obj", *target, "-O", "ReleaseSmall", str(lib / "compiler_rt.zig")], "-femit-bin="),
    ]
    for name in MUSL:
        source = str(musl / "src" / "math" / f"{name}.c")
        jobs.append((name, ["cc", *target, *flags(), "-Dhidden=", "-Dweak=", *includes, "-Os", "-c", source], "-o"))
    for name, command, into in jobs:
        path = out / f"{name}.o"
        if not path.exists():
            temporary = path.with_suffix(f".{os.getpid()}.tmp.o")
            zig([*command, f"{into}{temporary}"], path.name)
            os.replace(temporary, path)
        made.append(path)
    return made


def link(out: Path, objects: Sequence[Path], triple: str, made_in: Path, zig: Zig) -> None:
    """Links a module with the objects of :func:`runtime`, which are kept in a folder.

    The compiler's own front to the linker takes no memory beyond 32 bits.
    """
    with _lock:
        made = runtime(made_in, triple, zig)
    memory = (f"-m{triple.partition('-')[0]}", f"--max-memory={MAX_BYTES[triple]}")
    zig(["wasm-ld", *memory, *LINK, "-o", str(out), *map(str, objects), *map(str, made)], out.name)
