"""What a Program may not do: read what it did not write, take more than the host allows, write weights; and a short run of the fuzzer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyonnx_wasm import toolchain
from pyonnx_wasm.dtypes import DType
from pyonnx_wasm.program.view import ProgramView
from pyonnx_wasm.registry import KERNELS
from pyonnx_wasm.runtimes import core
from pyonnx_wasm.runtimes.core import CoreError
from pyonnx_wasm.testing import damage, damage_modules
from tests.assembler import ARENA, BOOL, F32, I64, INPUT, OUTPUT, SLOT, WEIGHT, Asm, call, chain, start

N = 1000


def through_the_arena(written: int) -> Asm:
    """input [N] float32; its first elements go through the arena, of which all N elements come out."""
    a = Asm()
    a.input(1, 1)
    a.inputs[0][2] = x = a.buffer(a.storage(INPUT, 4 * N))
    here = a.buffer(a.storage(ARENA, 4 * N, 0, 0, int(written > 0)))
    if written:
        a.copy(here, x, written)
    out = a.buffer(a.storage(OUTPUT, 4 * N))
    a.copy(out, here, N)
    a.output([N], out)
    return a


def looping(body: Asm, trips: int, condition: int = 1) -> Asm:
    """input [N] float32, carried through a loop; the output is one number of it that a later stage reads."""
    a = Asm()
    a.input(F32, 1)
    a.inputs[0][2] = x = a.buffer(a.storage(INPUT, 4 * N))
    body_at, slot = a.part(body), a.slot(F32, 1)
    a.step("loop", [slot, x], [1, body_at, 1, 1, condition, trips, N])
    a.stage()
    size = a.emit("mul", a.emit("size", slot, 0), a.reg(4))
    here, out = a.buffer(a.storage(SLOT, size, slot)), a.buffer(a.storage(OUTPUT, 4))
    a.copy(out, here, 1)
    a.output([1], out)
    return a


def body_of(rows: int = 1, conditions: int = 1) -> Asm:
    """trip, condition, [N] -> condition (or several), `rows` times the [N] in front of one another."""
    a = Asm()
    a.input(I64, 0), a.input(BOOL, 0), a.input(F32, 1)
    n = a.emit("dim", 2, 0)
    size = a.emit("mul", n, a.reg(4))
    go = a.buffer(a.storage(INPUT, 1, 1), BOOL)
    x = a.buffer(a.storage(INPUT, size, 2))
    a.inputs[1][2], a.inputs[2][2] = go, x
    on = a.buffer(a.storage(OUTPUT, conditions, 0), BOOL)
    a.copy(on, go, conditions, xstride=0)
    grown = a.emit("mul", n, a.reg(rows))
    y = a.buffer(a.storage(OUTPUT, a.emit("mul", grown, a.reg(4)), 1))
    for row in range(rows):
        a.copy(y, x, n, yoff=a.emit("mul", n, a.reg(row)))
    a.output([conditions] if conditions > 1 else [], on, BOOL)
    a.output([grown], y)
    return a


@pytest.mark.parametrize("written", [0, 1, N - 1])
def test_what_no_step_wrote_reads_as_zero(written: int) -> None:
    x = np.full(N, 5, np.float32)
    c = start(through_the_arena(written))
    for _ in range(2):
        (y,) = call(c, x)
        np.testing.assert_array_equal(y, np.where(np.arange(N) < written, 5, 0))


def test_outputs_hold_zero_where_no_step_writes() -> None:
    a = Asm()
    a.input(1, 1)
    a.inputs[0][2] = x = a.buffer(a.storage(INPUT, 4 * N))
    out = a.buffer(a.storage(OUTPUT, 4 * N))
    a.copy(out, x, N // 2, ystride=2)
    a.output([N], out)
    a.output([3], a.buffer(a.storage(OUTPUT, 12, 1)))
    y, z = call(start(a), np.full(N, 5, np.float32), dtypes=(np.float32, np.float32))
    np.testing.assert_array_equal(y, np.where(np.arange(N) % 2, 0, 5))
    np.testing.assert_array_equal(z, 0)


def test_parts_of_a_concatenation_are_its_whole() -> None:
    a = Asm()
    a.input(1, 1)
    a.inputs[0][2] = x = a.buffer(a.storage(INPUT, 40))
    joined = a.storage(ARENA, 80, 0, 0, 2)
    for offset in (40, 0):
        a.copy(a.buffer(joined, offset=offset, size=40), x, 10)
    out = a.buffer(a.storage(OUTPUT, 80))
    a.copy(out, a.buffer(joined), 20)
    a.output([20], out)
    x10 = np.arange(10, dtype=np.float32)
    (y,) = call(start(a), x10)
    np.testing.assert_array_equal(y, [*x10, *x10])


def test_memory_beyond_the_limit_names_the_step() -> None:
    c = start(chain(N))
    c.limit(max_memory=2 * 4 * N)
    with pytest.raises(CoreError, match=r"step \d \(copy\): .*the limit is 8000 \(max_memory\)") as caught:
        c.bind([N], [])
    assert caught.value.code == core.LIMIT
    c.limit(max_memory=1 << 20)
    call(c, np.zeros(N, np.float32))


def test_work_beyond_the_limit_names_the_step() -> None:
    c = start(chain(N))
    c.limit(max_operations=3 * N - 1)
    with pytest.raises(CoreError, match=r"step \d \(copy\): 1000 of 3000 operations; the limit is 2999 \(max_operations\)") as caught:
        c.bind([N], [])
    assert (caught.value.code, caught.value.origin) == (core.LIMIT, "node")
    c.limit(max_operations=3 * N)
    call(c, np.zeros(N, np.float32))
    assert c.operations == 3 * N


def test_loops_end_at_the_limits() -> None:
    x = np.ones(N, np.float32)
    np.testing.assert_array_equal(call(start(looping(body_of(), 3)), x)[0], [1])
    c = start(looping(body_of(), 1 << 40))
    c.limit(max_operations=1 << 20)
    with pytest.raises(CoreError, match=r"step 0 \(loop\): takes more than 1048576 operations, the limit \(max_operations\)") as caught:
        call(c, x)
    assert (caught.value.code, caught.value.origin) == (core.LIMIT, "node")
    c = start(looping(body_of(rows=2), 1 << 40))
    c.limit(max_memory=1 << 20)
    with pytest.raises(CoreError, match=r"the limit is 1048576 \(max_memory\)") as caught:
        call(c, x)
    assert (caught.value.code, caught.value.origin) == (core.LIMIT, "node")


def test_bodies_share_what_a_run_may_take() -> None:
    """A loop in a loop, each below the limit for itself."""
    inner = body_of()
    outer = Asm()
    outer.input(I64, 0), outer.input(BOOL, 0), outer.input(F32, 1)
    n = outer.emit("dim", 2, 0)
    go = outer.buffer(outer.storage(INPUT, 1, 1), BOOL)
    x = outer.buffer(outer.storage(INPUT, outer.emit("mul", n, outer.reg(4)), 2))
    outer.inputs[1][2], outer.inputs[2][2] = go, x
    part, slot = outer.part(inner), outer.slot(F32, 1)
    on = outer.buffer(outer.storage(OUTPUT, 1, 0), BOOL)
    outer.copy(on, go, 1)
    outer.step("loop", [slot, x], [1, part, 1, 1, 1, 100, n])
    outer.stage()
    length = outer.emit("size", slot, 0)
    size = outer.emit("mul", length, outer.reg(4))
    y = outer.buffer(outer.storage(OUTPUT, size, 1))
    outer.copy(y, outer.buffer(outer.storage(SLOT, size, slot)), length)
    outer.output([], on, BOOL)
    outer.output([length], y)
    c = start(looping(outer, 100))
    c.limit(max_operations=100 * 100 * N)
    with pytest.raises(CoreError, match="max_operations"):
        call(c, np.ones(N, np.float32))
    c.limit(max_operations=102 * 102 * (N + 10))
    call(c, np.ones(N, np.float32))


def test_a_condition_of_several_values_is_refused_before_it_is_written() -> None:
    with pytest.raises(CoreError, match=r"step 0 \(loop\): its condition is no single value"):
        call(start(looping(body_of(conditions=1000), 3)), np.ones(N, np.float32))


def test_what_is_cleared_counts_as_work() -> None:
    a = Asm()
    a.output([N], a.buffer(a.storage(OUTPUT, 4 * N)))
    c = start(a)
    np.testing.assert_array_equal(call(c)[0], np.zeros(N))
    assert c.operations == N // 2


def test_bodies_write_no_weights() -> None:
    body = body_of()
    body.copy(body.buffer(body.storage(WEIGHT, 4 * N)), body.inputs[2][2], N)
    with pytest.raises(CoreError, match="read-only weight"):
        start(looping(body, 3), [np.zeros(N, np.float32)])


@pytest.mark.parametrize("read", ["storage", "element"])
def test_what_tells_of_state_is_no_tensor(read: str) -> None:
    """A host gives no memory for it."""
    a = Asm()
    a.input(I64, 1), a.input(I64, 2)
    a.inputs[0][2] = a.buffer(a.storage(INPUT, 8 * N), I64)
    a.inputs[1][2] = -2
    if read == "element":
        a.emit("elem", 1, 0)
    out = a.buffer(a.storage(OUTPUT, 16 * N), I64)
    a.storages[-1][5] = 16 * (1 + 1)
    a.copy(out, a.buffer(a.storage(INPUT, 8 * N, 1), I64) if read == "storage" else a.inputs[0][2], N)
    a.output([N], out, I64)
    c = start(a)
    assert len(c.states) == 1
    with pytest.raises(CoreError, match="there are 0" if read == "storage" else "input 1 has no element 0"):
        c.bind([N], [np.zeros(N, np.int64)], [2 * N, N])


def test_a_cancelled_run_ends_between_steps() -> None:
    c = start(chain(N))
    c.cancel()
    x = np.ones(N, np.float32)
    with pytest.raises(CoreError, match="cancelled") as caught:
        call(c, x)
    assert caught.value.code == core.CANCELLED
    np.testing.assert_array_equal(call(c, x)[0], x)


def test_a_weight_that_numpy_protects_is_never_written() -> None:
    a = Asm()
    a.input(1, 1)
    a.inputs[0][2] = x = a.buffer(a.storage(INPUT, 4 * N))
    a.copy(a.buffer(a.storage(WEIGHT, 4 * N)), x, N)
    weight = np.zeros(N, np.float32)
    weight.flags.writeable = False
    with pytest.raises(CoreError, match="read-only weight"):
        start(a, [weight])


def test_the_seeds_use_every_kernel(tmp_path: Path) -> None:
    assert len(damage.write(tmp_path)) >= 8


def test_the_seeds_hold_small_weights_and_state() -> None:
    """Forms that no kernel's name tells: codes of 2, 4 and 8 bits, halves of both kinds, sums of integers, outputs that stay."""
    views = {name: ProgramView(c.main.code) for name, c in damage.models().items()}
    names = [p.name for p in KERNELS["matmul_nbits"].params]
    products = [(view, step) for view in views.values() for step in view.steps if step.kernel == "matmul_nbits"]

    def numbers(name: str) -> set[int]:
        return {view.registers[step.params[names.index(name)]].a for view, step in products}

    assert numbers("bits") == {2, 4, 8, 16}
    assert numbers("rounded") == {0, 1, 2}
    assert {view.buffers[step.buffers[2]].dtype for view, step in products} == {DType.float16, DType.bfloat16, DType.uint32}
    assert len(views["cache"].states) == 3


@pytest.mark.skipif(toolchain.own_clang() is None, reason="needs clang++ 17 or newer: zig has no AddressSanitizer")
def test_damaged_programs_under_sanitizers(tmp_path: Path) -> None:
    done = damage.fuzz(20260101, 0, 2000, tmp_path, toolchain.sanitize(lambda line: None))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ran " in done.stdout


@pytest.mark.parametrize("file", ["core.wasm", "core-relaxed.wasm"])
def test_damaged_programs_beside_other_sessions(file: str, tmp_path: Path) -> None:
    """In V8: a case touches nothing of the sessions that share the core's memory."""
    done = damage.fuzz_wasm(20260101, 0, 3000, tmp_path, toolchain.LIB / file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ran " in done.stdout


def test_damaged_modules_of_operators_end_in_errors_that_name_them() -> None:
    found = damage_modules.run(20260102, 0, 300)
    assert sum(found.values()) == 300
    assert {"ran", "compile"} < set(found)
