"""The build: what is generated, what is found, and that nothing is done twice."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyonnx_wasm import toolchain
from pyonnx_wasm.gpu import wgsl
from pyonnx_wasm.registry import ENUMS, KERNELS, Enum, Kernel

ABI = Path(__file__).parent / "abi.txt"


@pytest.fixture
def kernel() -> Kernel:
    made = Kernel("demo_kernel", ">y >z? x bias? more*", "n shape[8] eps:f tail[*]", traits=["inplace"])
    del KERNELS["demo_kernel"]
    return made


def test_every_kernel_has_a_declaration_and_a_source() -> None:
    without_source, without_declaration = toolchain.unmatched(toolchain.declared())
    assert not without_source, "declared, but kernels/cpp has no such file"
    assert not without_declaration, "in kernels/cpp, but no Kernel(...) declares it"


def test_abi_is_the_reviewed_one() -> None:
    told = "the ABI changed: if that is meant, `python -m pyonnx_wasm.toolchain --abi tests/abi.txt` and review the difference"
    assert toolchain.abi_report(toolchain.declared().values()) == ABI.read_text(), told


def test_generated_structs(kernel: Kernel) -> None:
    assert toolchain.structs(kernel) == (
        "struct DemoKernelParams { i64 n; i64 shape[8]; double eps; i64 tail[]; };\n"
        "struct DemoKernelBufs { Buf y; Buf z; Buf x; Buf bias; Buf more[]; };\n"
    )
    assert toolchain.table_row(kernel) == f'ENTRY(demo_kernel, 0x{kernel.abi:08x}u, 10, true, true, ">o.?*")\n'


def test_what_numbers_mean_is_generated_and_hashed() -> None:
    def declare(members: str) -> Kernel:
        kinds, flagged = Enum("DemoKind", members), Enum("DemoFlagged", "no yes", ("twice", 10))
        made = Kernel("demo_kernel", ">y x", "kind act tail[*]", enums={"kind": kinds, "act": flagged, "tail": kinds})
        del KERNELS["demo_kernel"], ENUMS["DemoKind"], ENUMS["DemoFlagged"]
        return made

    kernel = declare("less more")
    assert kernel.text == (
        "demo_kernel(>y x) kind act tail[*] kind=DemoKind(less more) act=DemoFlagged(no yes +twice:10) tail=DemoKind(less more)"
    )
    assert toolchain.structs(kernel).startswith("struct DemoKernelParams { DemoKind kind; i64 act; i64 tail[]; };\n")
    text = toolchain.enums_header([kernel])
    assert "enum class DemoKind : int64_t { LESS, MORE };\nconstexpr int64_t DemoKind_count = 2;\n" in text
    assert "constexpr int64_t DemoFlagged_twice = 10;" in text
    assert declare("more less").abi != kernel.abi, "the numbers changed their meaning"


def test_shaders_say_members_by_name() -> None:
    assert wgsl._MEMBER.sub(wgsl._member, "case Activation.elu: { U.x = Other.elu; }") == "case 11: { U.x = Other.elu; }"
    with pytest.raises(ValueError, match="not in tuple"):
        wgsl._MEMBER.sub(wgsl._member, "Activation.selu")


def small(said: list[str]) -> toolchain.Builder:
    kernels = toolchain.declared()
    return toolchain.Builder({"copy": kernels["copy"], "concat": kernels["concat"]}, said.append)


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(toolchain, "BUILD", tmp_path / "build")
    return tmp_path


def test_a_build_is_incremental(sandbox: Path) -> None:
    targets = toolchain.native_targets(toolchain.host(), sandbox / "lib")[:1]
    said: list[str] = []
    made = small(said).build(targets)
    assert made > 2
    assert [line.split(" for ")[0] for line in said[1:2]] == [f"compiling {made - 1} files"], "not a line per file"
    assert re.fullmatch(rf"built {re.escape(targets[0].file)} \([\d,]+ bytes\) in \d+ s", said[2])
    assert len(said) == 3
    assert (sandbox / "lib" / targets[0].file).exists()
    assert small(said).build(targets) == 0
    assert any("left out" in line and "literal" in line for line in said)
    (sandbox / "lib" / targets[0].file).unlink()
    assert small(said).build(targets) == 1, "only the link"


def test_one_declaration_recompiles_one_kernel(sandbox: Path) -> None:
    builder = small([])
    target = toolchain.wasm_targets(sandbox)[0]
    before = {s.name: builder.object_path(target, s) for s in builder.sources}
    builder.texts["copy"] += "// changed"
    changed = {s.name for s in builder.sources if builder.object_path(target, s) != before[s.name]}
    assert changed == {"copy.cpp"}
    other = {s.name for s in builder.sources if builder.object_path(toolchain.wasm_targets(sandbox)[1], s) != before[s.name]}
    assert other == set(before), "another instruction set shares no object"


def test_what_is_small_is_compiled_for_size_in_webassembly_and_linked_last(sandbox: Path) -> None:
    sources = toolchain.Builder(toolchain.declared(), [].append).sources
    small = [toolchain.is_small(s) for s in sources]
    assert small == sorted(small), "the linker keeps the first copy of what both kinds share"
    names = {s.stem for s, it in zip(sources, small, strict=True) if it}
    assert {"verify", "unique", "nms"} < names
    assert not names & {"matmul", "conv", "softmax", "norm", "copy", "map", "gather", "reduce", "pool", "attention", "run"}
    native, wasm = toolchain.native_targets(toolchain.host(), sandbox)[0], toolchain.wasm_targets(sandbox)[0]
    for source, it in zip(sources, small, strict=True):
        assert ("-Oz" in wasm.flags_for(source)) == it
        assert "-Oz" not in native.flags_for(source)


def test_an_error_of_the_compiler_is_shown(sandbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = sandbox / "cpp"
    (sources / "core").mkdir(parents=True)
    (sources / "broken.cpp").write_text("int f( {\n")
    monkeypatch.setattr(toolchain, "SOURCES", sources)
    broken = Kernel("broken", ">y", "")
    del KERNELS["broken"]
    with pytest.raises(toolchain.ToolchainError, match=r"broken\.cpp:1:\d+: error"):
        toolchain.Builder({"broken": broken}, [].append).build(toolchain.native_targets(toolchain.host(), sandbox)[:1])


def test_webassembly_has_no_constructors(sandbox: Path) -> None:
    """No host calls any, and the linker would have every call from outside run them."""
    source = sandbox / "static.cpp"
    source.write_text("extern int first();\nint at = first();\n")
    builder = small([])
    for target in toolchain.wasm_targets(sandbox):
        with pytest.raises(toolchain.ToolchainError, match=r"static\.cpp:2:\d+: error: .*global constructor"):
            builder.compile(target, source)


@pytest.mark.parametrize("platform", ["sparc-linux", "x86_64-beos", "nonsense"])
def test_unknown_platforms_are_refused(platform: str) -> None:
    with pytest.raises(toolchain.ToolchainError, match=re.escape(platform)):
        toolchain.native_targets(platform, Path())


@pytest.mark.parametrize("platform", ["aarch64-linux", "aarch64-macos", "x86_64-windows"])
def test_other_platforms_compile(platform: str, sandbox: Path) -> None:
    """The executor and one kernel; linking would first build the other platform's libc."""
    builder = small([])
    target = toolchain.native_targets(platform, sandbox)[-1]
    for source in builder.sources:
        if source.stem in ("copy", "core", "pool", "isa"):
            builder.compile(target, source)
            assert builder.object_path(target, source).exists()


def test_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "pyonnx_wasm.toolchain", "--target", "vax-vms", "native"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "vax-vms" in done.stderr


def test_an_instruction_set_is_one_that_there_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    built: list[list[str]] = []
    monkeypatch.setattr(toolchain.Builder, "build", lambda self, targets: built.append([t.file for t in targets]) or 1)
    every = ["core-sse4.so", "core-avx2.so", "core-avx512.so"]
    for isa, files in (("all", every), ("avx2", every[1:2])):
        assert toolchain.main(["native", "--target", "x86_64-linux", "--isa", isa]) == 0
        assert built.pop() == files
    assert toolchain.main(["native", "--target", "x86_64-linux", "--isa", "neon"]) == 1
    assert "--isa neon: x86_64-linux has sse4, avx2, avx512 and all" in capsys.readouterr().err
    assert not built
