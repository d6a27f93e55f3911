"""Builds the C++ core with the compiler that PyPI's ``ziglang`` carries: ``python -m pyonnx_wasm.toolchain [native|wasm|all]``.

Kernels are found by presence: ``kernels/cpp/<name>.cpp`` is built when a kernel ``<name>`` is declared in Python. The
declarations generate ``build/gen/params.h`` (the structs that sources overlay), ``enums.h`` (what numbers in them mean) and
``kernels.inc`` (the table that the core looks names up in). Objects are kept under the hash of all that goes into them, so a build
that changes nothing compiles nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tqdm import tqdm

from . import webassembly
from .registry import KERNELS, Enum, Kernel, ParamSpec
from .runtimes.build import stamp

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "kernels" / "cpp"
BUILD = ROOT / "build"
LIB = Path(__file__).resolve().parent / "lib"

FLAGS = ("-std=c++20", "-D_LIBCPP_REMOVE_TRANSITIVE_INCLUDES", "-O3", "-fno-exceptions", "-fno-rtti", "-ffp-contract=fast",
         "-fno-math-errno", "-fvisibility=hidden", "-g0", "-ffunction-sections", "-fdata-sections", "-Wall", "-Wextra",
         "-Wshorten-64-to-32", "-Wno-c99-designator", "-Wno-missing-field-initializers", "-Werror")  # fmt: skip
# Kernels read and write what is not aligned, and there is no type information to check.
SANITIZE = ("-std=c++20", "-O0", "-gline-tables-only", "-fsanitize=address,undefined", "-fno-sanitize=alignment,vptr,function",
            "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-fno-exceptions", "-fno-rtti", "-Wno-c99-designator", "-Wno-psabi",
            "-DPWX_GUARD", "-DPWX_POISON")  # fmt: skip
# Kernels unroll by hand what gains by it; loops of constant length still are.
LEAN = ("-fno-slp-vectorize", "-mllvm", "-unroll-runtime=0", "-mllvm", "-unroll-allow-partial=0")
SMALL = ("-Os", "-Xclang", "-Oz")  # zig takes -Oz for -Os
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def is_small(source: Path) -> bool:
    """Whether a source asks to be compiled for size (``small.h``)."""
    return any(Path(name).name == "small.h" for name in INCLUDE.findall(source.read_text()))


class ToolchainError(Exception):
    """A build that cannot go on; the text names the source and the cure."""


@dataclass(frozen=True)
class Target:
    """One library to build.

    Attributes:
        file: name of the result.
        triple: what zig calls the platform.
        cpu: instruction set of the objects; the link uses the platform's own default.
        core_flags: flags for the executor's sources, not the kernels'.
        fast, small: flags for sources that do not include ``small.h``, and that do.
    """

    file: str
    triple: str
    cpu: str
    out: Path
    flags: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    core_flags: tuple[str, ...] = ()
    fast: tuple[str, ...] = ()
    small: tuple[str, ...] = ()

    def flags_for(self, source: Path) -> tuple[str, ...]:
        return (
            *FLAGS,
            *self.flags,
            *(self.core_flags if source.parent.name == "core" else ()),
            *(self.small if is_small(source) else self.fast),
        )

    @property
    def path(self) -> Path:
        return self.out / self.file

    @property
    def is_wasm(self) -> bool:
        return self.triple.startswith("wasm")


def host() -> str:
    """This machine as ``--target`` spells it: ``x86_64-linux``, ``x86_64-linux-musl``, ``aarch64-macos``, ``x86_64-windows``."""
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    system = {"Darwin": "macos"}.get(platform.system(), platform.system().lower())
    return f"{arch}-{system}{'-musl' if system == 'linux' and platform.libc_ver()[0] != 'glibc' else ''}"


def native_targets(platform_name: str, out: Path, guard: bool = False) -> list[Target]:
    """One library per instruction set of a platform."""
    arch, _, system = platform_name.partition("-")
    isas = {"x86_64": {"sse4": "x86_64_v2", "avx2": "x86_64_v3", "avx512": "x86_64_v4"}, "aarch64": {"neon": "generic"}}.get(arch)
    triple, suffix = {
        "linux": ("linux-gnu.2.17", "so"),
        "linux-musl": ("linux-musl", "so"),
        "macos": ("macos.11.0", "dylib"),
        "windows": ("windows-gnu", "dll"),
    }.get(system, ("", ""))
    if isas is None or not triple:
        raise ToolchainError(f"no native core for {platform_name}: there are x86_64 and aarch64 on linux, linux-musl, macos and windows")
    flags = ("-fPIC",) if system != "windows" else ()
    link = ("-shared", "-lm", "-lpthread") if system.startswith("linux") else ("-shared",)
    return [
        Target(f"core-{isa}.{suffix}", f"{arch}-{triple}", cpu, out, flags, link, ("-DPWX_GUARD",) if guard else ())
        for isa, cpu in isas.items()
    ]


def wasm_targets(out: Path) -> list[Target]:
    """Modules with 128-bit SIMD, and the same with relaxed SIMD; both with addresses of 32 and of 64 bits."""
    cpus = {"": webassembly.FEATURES, "-relaxed": webassembly.FEATURES + "+relaxed_simd"}
    return [
        Target(f"{name}{suffix}.wasm", triple, cpu, out, webassembly.FLAGS, webassembly.LINK, (), LEAN, SMALL)
        for name, triple in (("core", webassembly.WASM32), ("core64", webassembly.WASM64))
        for suffix, cpu in cpus.items()
    ]


def declared() -> dict[str, Kernel]:
    """All kernel declarations of the package."""
    importlib.import_module("pyonnx_wasm.tensor")
    importlib.import_module("pyonnx_wasm.ops").load_all()
    return dict(sorted(KERNELS.items()))


def unmatched(kernels: Iterable[str]) -> tuple[list[str], list[str]]:
    """Kernels declared without a source, and sources without a declaration."""
    names, files = set(kernels), {p.stem for p in SOURCES.glob("*.cpp")}
    return sorted(names - files), sorted(files - names)


def struct_name(kernel: Kernel) -> str:
    """``gather_nd`` becomes ``GatherNd``."""
    return "".join(part.title() for part in kernel.name.split("_"))


def structs(kernel: Kernel) -> str:
    """The C++ structs that overlay a kernel's parameters and buffers. A parameter that is a member of an enumeration has its type."""

    def kind(p: ParamSpec) -> str:
        enum = kernel.enums.get(p.name)
        return "double" if p.is_float else enum.name if enum and not p.count and not enum.flag else "i64"

    params = "".join(f" {kind(p)} {p.name}{'[]' if p.count < 0 else f'[{p.count}]' if p.count else ''};" for p in kernel.params)
    bufs = "".join(f" Buf {b.name}{'[]' if b.variadic else ''};" for b in kernel.buffers)
    return f"struct {struct_name(kernel)}Params {{{params} }};\nstruct {struct_name(kernel)}Bufs {{{bufs} }};\n"


def enum_class(enum: Enum) -> str:
    """The C++ declaration of an enumeration, how many members it has, and whether a number that came as one is a member."""
    lines = [
        f"enum class {enum.name} : int64_t {{ {', '.join(m.upper() for m in enum)} }};",
        f"constexpr int64_t {enum.name}_count = {len(enum)};",
        f"constexpr bool known({enum.name} v) {{ return int64_t(v) >= 0 && int64_t(v) < {enum.name}_count; }}",
    ]
    if enum.flag:
        lines.append(f"constexpr int64_t {enum.name}_{enum.flag[0]} = {enum.flag[1]};  // added to a member's number")
    return "\n".join(lines) + "\n"


def used_enums(kernels: Iterable[Kernel]) -> dict[str, Enum]:
    """The enumerations that the kernels take, by name."""
    return {e.name: e for k in kernels for e in k.enums.values()}


def enums_header(kernels: Iterable[Kernel]) -> str:
    """``enums.h``."""
    head = "// Generated from the kernel declarations.\n#pragma once\n#include <cstdint>\n\n"
    return head + "\n".join(map(enum_class, used_enums(kernels).values()))


def params_header(kernels: Iterable[Kernel]) -> str:
    """``params.h``."""
    head = '// Generated from the kernel declarations.\n#pragma once\n#include "enums.h"\n#include "kernel.h"\n\n'
    return head + "\n".join(map(structs, kernels))


def table_row(kernel: Kernel) -> str:
    """A row of ``kernels.inc``: name, ABI hash, fixed parameters, tail, in place, buffers (see ``core/program.h``)."""
    fixed = sum(max(p.count, 1) for p in kernel.params if p.count >= 0)
    tail = any(p.count < 0 for p in kernel.params)
    marks = "".join(
        "*" if b.variadic else "o" if b.output and b.optional else ">" if b.output else "?" if b.optional else "." for b in kernel.buffers
    )
    return (
        f'ENTRY({kernel.name}, 0x{kernel.abi:08x}u, {fixed}, {str(tail).lower()}, {str("inplace" in kernel.traits).lower()}, "{marks}")\n'
    )


def abi_report(kernels: Iterable[Kernel]) -> str:
    """All declarations, one per line with its hash: committed, so that reviews see every change of the ABI."""
    return "".join(f"{k.abi:08x} {k.text}\n" for k in kernels)


class Builder:
    """Compiles what changed and links what follows from it.

    Args:
        say: receives a line at the begin of compiling and one per library.
        jobs: compilers at a time.
        replaced: other sources of kernels, by kernel.
    """

    def __init__(
        self,
        kernels: dict[str, Kernel],
        say: Callable[[str], None] = print,
        jobs: int | None = None,
        replaced: Mapping[str, Path] | None = None,
    ) -> None:
        missing, undeclared = unmatched(kernels)
        if missing:
            say(f"kernels without a source, unknown to this core: {', '.join(missing)}")
        if undeclared:
            say(f"sources without a declaration, left out: {', '.join(undeclared)}")
        built = [k for k in kernels.values() if k.name not in missing]
        self.say, self.jobs = say, jobs or os.cpu_count() or 1
        self.generated = BUILD / "gen"
        self.texts = {k.name: structs(k) for k in built}
        self.struct_names = {struct_name(k): k.name for k in built}
        self.enums = {name: enum_class(e) for name, e in used_enums(built).items()}
        _write(self.generated / "enums.h", enums_header(built))
        _write(self.generated / "params.h", params_header(built))
        _write(self.generated / "build.h", f"// Generated.\n#pragma once\nconstexpr int BUILD = {stamp()};\n")
        _write(self.generated / "kernels.inc", "".join(map(table_row, built)))
        sources = [(replaced or {}).get(k.name, SOURCES / f"{k.name}.cpp") for k in built]
        seen: set[Path] = set()
        for source in sources:
            list(self.parts(source, seen))
        folders = ("core", "gemm") if (SOURCES / "gemm.h").resolve() in seen else ("core",)
        sources += sorted(path for folder in folders for path in (SOURCES / folder).glob("*.cpp"))
        # Of two definitions the linker keeps the first: libm.cpp's, not libc's, and of a shared function the fast one.
        self.sources = sorted(sources, key=lambda source: (source.stem != "libm", is_small(source)))
        try:
            self.zig = metadata.version("ziglang")
        except metadata.PackageNotFoundError:
            raise ToolchainError("the compiler is missing: pip install 'pyonnx-wasm[toolchain]'") from None

    def build(self, targets: Sequence[Target]) -> int:
        """Builds all targets; returns how many objects and libraries had to be made."""
        begin = time.perf_counter()
        objects = {t: [self.object_path(t, s) for s in self.sources] for t in targets}
        missing = [(t, s) for t in targets for s, path in zip(self.sources, objects[t], strict=True) if not path.exists()]
        if missing:
            self.say(f"compiling {len(missing)} files for {', '.join(t.file for t in targets)}")
        errors = []
        with ThreadPoolExecutor(self.jobs) as pool, tqdm(total=len(missing), unit="file", leave=False, disable=None) as bar:
            for done in as_completed([pool.submit(self.compile, *job) for job in missing]):
                try:
                    done.result()
                except ToolchainError as error:
                    errors.append(str(error))
                bar.update()
        if errors:
            raise ToolchainError("\n\n".join(sorted(errors)))
        with ThreadPoolExecutor(self.jobs) as pool:  # the first time the compiler makes its own libraries here
            linked = sum(pool.map(lambda t: self.link(t, [self.object_path(t, s) for s in self.sources]), targets))
        if missing or linked:
            sizes = ", ".join(f"{t.file} ({t.path.stat().st_size:,} bytes)" for t in targets)
            self.say(f"built {sizes} in {time.perf_counter() - begin:.0f} s")
        return len(missing) + linked

    def object_path(self, target: Target, source: Path) -> Path:
        digest = hashlib.sha256(repr((self.zig, target.triple, target.cpu, target.flags_for(source))).encode())
        for text in self.parts(source, set()):
            digest.update(text)
        return BUILD / "obj" / f"{source.stem}-{digest.hexdigest()[:20]}.o"

    def parts(self, path: Path, seen: set[Path]) -> Iterable[bytes]:
        """All that a source depends on; of ``params.h`` and ``enums.h`` what is named, so that one declaration recompiles one kernel."""
        if path in seen:
            return
        seen.add(path)
        data = path.read_bytes()
        yield data
        text = data.decode()
        for match in re.findall(r"\b(\w+?)(?:Params|Bufs)\b", text):
            if match in self.struct_names:
                text += self.texts[self.struct_names[match]]
                yield self.texts[self.struct_names[match]].encode()
        for name in sorted(self.enums.keys() & set(re.findall(r"\w+", text))):
            yield self.enums[name].encode()
        for name in INCLUDE.findall(text):
            near = [d / name for d in (path.parent, SOURCES, self.generated) if (d / name).is_file()]
            if near and near[0].name not in ("params.h", "enums.h"):
                yield from self.parts(near[0].resolve(), seen)
            elif near and near[0].suffix == ".inc":  # the table of all kernels
                yield near[0].read_bytes()

    def compile(self, target: Target, source: Path) -> None:
        """Makes the object of a source."""
        path = self.object_path(target, source)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp.o")
        command = ["c++", "-target", target.triple, f"-mcpu={target.cpu}", *target.flags_for(source)]
        if target.triple == webassembly.WASM64:
            command += webassembly.flags()
        _zig([*command, "-I", str(SOURCES), "-I", str(self.generated), "-c", str(source), "-o", str(temporary)], source.name)
        if self.object_path(target, source) != path:  # edited meanwhile
            temporary.unlink()
            return self.compile(target, source)
        os.replace(temporary, path)

    def link(self, target: Target, objects: Sequence[Path]) -> int:
        out, stamp = (
            target.path,
            BUILD / "obj" / f"{target.file}-{hashlib.sha256(str(target.out).encode()).hexdigest()[:8]}.linked",
        )
        wanted = "\n".join([*map(str, objects), *target.link, self.zig])
        if out.exists() and stamp.exists() and stamp.read_text() == wanted:
            return 0
        target.out.mkdir(parents=True, exist_ok=True)
        temporary = out.with_suffix(f".{os.getpid()}.tmp{out.suffix}")
        if target.is_wasm:
            made_in = BUILD / "obj" / f"{target.triple}-{self.zig}"
            webassembly.link(temporary, objects, target.triple, made_in, _quiet_zig)
        else:  # without -O3 the compiler makes and links what catches undefined behaviour
            strip = ("-O3", "-s", "-Wl,--gc-sections")
            _zig(["cc", "-target", target.triple, *target.link, *strip, "-o", str(temporary), *map(str, objects)], target.file)
        os.replace(temporary, out)
        for leftover in target.out.glob(f"{temporary.stem}.*"):
            leftover.unlink()
        stamp.write_text(wanted)
        return 1


def _zig(arguments: list[str], what: str) -> None:
    _run([sys.executable, "-m", "ziglang", *arguments], what)


def _quiet_zig(arguments: list[str], what: str) -> None:
    """Without warnings: zig's library and its run-time support call long doubles, of which the core has none, by other signatures."""
    _run([sys.executable, "-m", "ziglang", *arguments], what, warns=False)


def _run(command: list[str], what: str, warns: bool = True) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ToolchainError(f"{what}: the compiler says\n{done.stderr.strip()}")
    if warns and done.stderr.strip():
        print(done.stderr.strip(), file=sys.stderr)


def own_clang() -> str | None:
    """The path of the newest clang++ that can compile the core (17: ``__builtin_elementwise_sqrt``), None if there is none."""
    for name in (*(f"clang++-{n}" for n in range(22, 16, -1)), "clang++"):
        found = shutil.which(name)
        if found and int(subprocess.check_output([found, "-dumpversion"], text=True).split(".")[0]) >= 17:
            return found
    return None


def sanitize(say: Callable[[str], None] = print) -> Path:
    """Builds the fuzzer of Programs (``kernels/cpp/fuzz``) under AddressSanitizer and UBSan, which zig lacks, with clang's own compiler.

    Raises:
        ToolchainError: there is no clang++, or it has no sanitizers; says what to install.
    """
    clang = own_clang()
    if clang is None:
        raise ToolchainError("no clang++ 17 or newer: install clang and its runtime (Debian: apt install clang-19 libclang-rt-19-dev)")
    out = BUILD / "sanitize"
    out.mkdir(parents=True, exist_ok=True)
    sources = [*Builder(declared(), say).sources, SOURCES / "fuzz" / "fuzz.cpp"]
    written = {p: p.stat().st_mtime for folder in (SOURCES, BUILD / "gen") for p in folder.rglob("*.*") if p.suffix in (".h", ".inc")}
    flags = (*SANITIZE, *(("-march=x86-64-v2",) if host().startswith("x86_64") else ()))

    def compile(source: Path) -> Path:
        path = out / f"{source.parent.name}-{source.stem}.o"
        seen = [at for header, at in written.items() if header.parent.name != "fuzz" or source.parent.name == "fuzz"]
        if not path.exists() or path.stat().st_mtime < max(source.stat().st_mtime, *seen):
            _run([clang, *flags, "-I", str(SOURCES), "-I", str(BUILD / "gen"), "-c", str(source), "-o", str(path)], source.name)
        return path

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = list(pool.map(compile, sources))
    _run([clang, "-fsanitize=address,undefined", "-o", str(out / "fuzz"), *map(str, objects), "-lpthread", "-lm"], "fuzz")
    return out / "fuzz"


def generator() -> Path:
    """Builds the program that writes damaged Programs (``kernels/cpp/fuzz/generate.cpp``), for cores that are not native.

    By the system's clang where there is one: zig compiles its library of C++ first, which takes two minutes.
    """
    folder, out = SOURCES / "fuzz", BUILD / "fuzz" / "generate"
    newest = max(p.stat().st_mtime for p in (*folder.iterdir(), *SOURCES.glob("*.h")))
    if not out.exists() or out.stat().st_mtime < newest:
        out.parent.mkdir(parents=True, exist_ok=True)
        clang = own_clang()
        compiler = [clang] if clang else [sys.executable, "-m", "ziglang", "c++"]
        _run([*compiler, "-std=c++20", "-O2", "-Wall", "-Wextra", "-o", str(out), str(folder / "generate.cpp")], out.name)
    return out


@contextmanager
def alone(what: str = "build") -> Iterator[None]:
    """Keeps others of this checkout that would do the same waiting until it is done."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / f".{what}.lock", "w") as lock:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(lock.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: Path, text: str) -> None:
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pyonnx_wasm.toolchain", description="Build the C++ core.")
    parser.add_argument("what", nargs="?", default="all", choices=["native", "wasm", "all", "sanitize"])
    parser.add_argument(
        "--target",
        default=host(),
        help="platform of the native core: {x86_64,aarch64}-{linux,linux-musl,macos,windows} (default: this one)",
    )
    parser.add_argument("--isa", default="all", help="only this instruction set: sse4, avx2, avx512, neon (default: all)")
    parser.add_argument("--guard", action="store_true", help="native core that keeps every buffer beside an unmapped page, in build/guard")
    parser.add_argument("-j", "--jobs", type=int, help="compilers at a time (default: one per core)")
    parser.add_argument("--abi", metavar="FILE", help="write the list of kernel declarations and stop")
    options = parser.parse_args(argv)
    kernels = declared()
    if options.abi:
        Path(options.abi).write_text(abi_report(kernels.values()))
        return 0
    if options.what == "sanitize":
        try:
            print(f"built {sanitize()}")
        except ToolchainError as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    here = LIB if options.target == host() else BUILD / options.target
    try:
        targets = (
            native_targets(options.target, BUILD / "guard" if options.guard else here, options.guard) if options.what != "wasm" else []
        )
        if options.isa != "all" and targets:
            isas = {t.file.split(".")[0].removeprefix("core-"): t for t in targets}
            if options.isa not in isas:
                raise ToolchainError(f"--isa {options.isa}: {options.target} has {', '.join(isas)} and all")
            targets = [isas[options.isa]]
        if options.what != "native" and not options.guard:
            targets += wasm_targets(LIB)
        with alone():
            made = Builder(kernels, lambda line: print(line, flush=True), options.jobs).build(targets)
    except ToolchainError as error:
        print(error, file=sys.stderr)
        return 1
    if not made:
        print("the core is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
