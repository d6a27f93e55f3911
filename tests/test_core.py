"""The executor: hand-assembled Programs, good and malformed, natively and as WebAssembly."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from pyonnx_wasm.program import Program, ProgramView
from pyonnx_wasm.runtimes import build, core, library, wasmtime
from pyonnx_wasm.runtimes.core import Core, CoreError
from tests.assembler import ARENA, F32, I32, I64, INPUT, KERNELS, OPS, OUTPUT, WEIGHT, Asm, Reg, call, chain, floats, start

# ---- good Programs ----


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 15, 16, 17, 31, 1009, 100_003])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_copies_through_the_arena(n: int, threads: int) -> None:
    c = start(chain(), threads=threads)
    for size in (n, n + 1, n):
        np.testing.assert_array_equal(call(c, floats(size))[0], floats(size))


def test_arena_is_reused() -> None:
    c = start(chain(links=20))
    call(c, floats(1000))
    assert 2 * 4000 <= c.arena_bytes < 3 * 4096, "two links live at a time"
    assert c.steps == 20


def test_memoised_bindings_keep_their_sizes() -> None:
    c = start(chain())
    for n in [8, 1, 300, 0, 8, 300, 17, 33, 8, 5000, 1, 8]:
        np.testing.assert_array_equal(call(c, floats(n))[0], floats(n))
    for wrong in (lambda: c.bind([8], [floats(7)]), lambda: c.run([floats(7)], [floats(8)])):
        with pytest.raises(ValueError, match="input 0 must be contiguous and of 32 bytes, not 28"):
            wrong()
    c.limit(max_operations=1)
    with pytest.raises(CoreError):
        c.bind([8], [floats(8)])


def test_element_contents_decide_shapes() -> None:
    """output: the first k elements of x, k being the content of an int64 input."""
    a = Asm()
    a.input(F32, 1), a.input(I64, 1)
    n, k = a.emit("dim", 0, 0), a.emit("elem", 1, 0)
    a.emit("check", a.emit("le", k, n), 1)
    four = a.reg(4)
    x = a.buffer(a.storage(INPUT, a.emit("mul", n, four)))
    y = a.buffer(a.storage(OUTPUT, a.emit("mul", k, four)))
    a.copy(y, x, k)
    a.output([k], y)
    c = start(a)
    for k_value in (3, 0, 10, 3, 5):
        assert call(c, floats(10), np.array([k_value]))[0].tolist() == list(range(k_value))
    with pytest.raises(CoreError, match="message 1") as caught:
        c.bind([10, 1], [floats(10), np.array([11])])
    assert caught.value.code == core.CHECK_FAILED
    with pytest.raises(CoreError) as caught:
        c.bind([10, 1], [floats(10), np.array([-1])])
    assert caught.value.code == core.BAD_BIND
    with pytest.raises(CoreError, match="content of input 1") as caught:
        c.bind([10, 1], [])
    assert caught.value.code == core.MISUSE
    with pytest.raises(CoreError, match="no element 0"):
        c.bind([10, 0], [floats(10), np.zeros(0, np.int64)])


def shape_program(op: str, operands: int) -> Asm:
    """output: int64 scalar, the result of one shape operation on the elements of an int64 input."""
    a = Asm()
    a.input(I64, 1)
    values = [a.emit("elem", 0, i) for i in range(operands)]
    result = a.emit(op, *values)
    y = a.buffer(a.storage(OUTPUT, 8), I64)
    a.step("literal", [y], [1, result])
    a.output([], y, I64)
    return a


BIG = 1 << 62
SAMPLES = [-BIG * 2, -BIG, -7, -2, -1, 0, 1, 2, 3, 7, BIG, BIG * 2 - 1]


@pytest.mark.parametrize("op", OPS[3:14])
def test_shape_operations(op: str) -> None:
    wrap: Callable[[int], int] = lambda v: (v + 2 * BIG) % (4 * BIG) - 2 * BIG  # noqa: E731
    expected: dict[str, Callable[..., int]] = {
        "add": lambda a, b: wrap(a + b), "sub": lambda a, b: wrap(a - b), "mul": lambda a, b: wrap(a * b),
        "floordiv": lambda a, b: wrap(a // b), "ceildiv": lambda a, b: wrap(-(-a // b)), "mod": lambda a, b: a % b,
        "min": min, "max": max, "eq": lambda a, b: a == b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    }  # fmt: skip
    c = start(shape_program(op, 2))
    for a in SAMPLES:
        for b in SAMPLES:
            if b == 0 and op in ("floordiv", "ceildiv", "mod"):
                with pytest.raises(CoreError, match="division by zero"):
                    call(c, np.array([a, b]), dtypes=[np.int64])
            else:
                assert call(c, np.array([a, b]), dtypes=[np.int64])[0] == expected[op](a, b), (a, b)


def test_select() -> None:
    c = start(shape_program("select", 3))
    for a in (0, 1, -5):
        assert call(c, np.array([a, 10, 20]), dtypes=[np.int64])[0] == (10 if a else 20)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool"])
def test_elements_widen(dtype: str) -> None:
    codes = {"uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "uint32": 12}
    a = shape_program("max", 2)
    a.inputs[0][0] = codes[dtype]
    value = np.array([-1, -1]).astype(dtype)
    assert call(start(a), value, dtypes=[np.int64])[0] == int(value[0])


def test_no_steps_and_no_inputs() -> None:
    a = Asm()
    c = start(a)
    assert call(c, dtypes=[]) == []
    assert c.arena_bytes == c.steps == 0


def weight_program(step: Callable[[Asm, int, int], None], sizes: Sequence[int]) -> Asm:
    a = Asm()
    step(a, *(a.buffer(a.storage(WEIGHT, 4 * n, i)) for i, n in enumerate(sizes)))
    return a


def test_init_writes_weights() -> None:
    source, target = floats(5), np.zeros(5, np.float32)
    c = start(weight_program(lambda a, x, y: a.copy(y, x, 5), [5, 5]), [source, target])
    c.bind([], [])
    c.run([], [])
    np.testing.assert_array_equal(target, source)


def test_in_place_map() -> None:
    """y = -(x + x), the second step over the result of the first."""
    a = chain(links=1)
    x, y = a.inputs[0][2], a.outputs[0][2]
    n, pad = Reg(0), [0] * 7
    view = [0, 1, *pad]
    a.steps.clear()
    a.step("map", [y, x, x], [1, 2, 1, 0, n, *pad, 1, *pad, *view, *view, 39, F32, 2, 0, 1, 0])
    a.step("map", [y, y], [1, 1, 1, 0, n, *pad, 1, *pad, *view, 3, F32, 1, 0, 0, 0])
    for threads in (1, 2):
        c = start(a, threads=threads)
        for size in (0, 1, 7, 16, 100_001):
            np.testing.assert_array_equal(call(c, floats(size))[0], -2 * floats(size))


def test_threads_of_a_host_share_the_core() -> None:
    """Each host thread has its own session; all run at once on pools of two."""
    wrong: list[int] = []

    def work(k: int) -> None:
        c = start(chain(), threads=2)
        for i in range(20):
            n = 70_000 + k * 1000 + i
            if not np.array_equal(call(c, floats(n))[0], floats(n)):
                wrong.append(n)
        c.close()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_goes_on() -> None:
    c = start(chain(), threads=3)
    call(c, floats(200_000))
    child = os.fork()
    if not child:
        ok = np.array_equal(call(c, floats(200_001))[0], floats(200_001))
        c.close()
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(call(c, floats(200_002))[0], floats(200_002))


# ---- misuse ----


def test_misuse_is_refused() -> None:
    c = start(chain())
    x, y = floats(4), np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="are bound"):
        c.run([x], [y])
    with pytest.raises(ValueError, match="dims were given"):
        c.bind([4, 4], [])
    c.bind([4], [])
    for ins, outs in [([floats(5)], [y]), ([x], [y[:3]]), ([x], []), ([floats(8)[::2]], [y])]:
        with pytest.raises(ValueError, match=r"are bound|must be contiguous"):
            c.run(ins, outs)
    y.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        c.run([x], [y])
    for dims in (-1, 1 << 46, 1 << 62):
        with pytest.raises(CoreError):
            c.bind([dims], [])
    c.close()
    c.close()
    with pytest.raises(ValueError, match="closed"):
        c.bind([4], [])
    for threads in (0, -1, 1025):
        with pytest.raises(ValueError, match="threads"):
            start(chain(), threads=threads)


@pytest.mark.parametrize("n", [6, None], ids=["fixed", "symbolic"])
def test_steps_that_run_elsewhere(n: int | None) -> None:
    a = chain(n)
    a.steps[1][0] = ~a.steps[1][0]
    a.buffers[1][3] = I64  # which a copy of float32 would not take
    a.buffers[2][3] = I32
    c = start(a)
    x, y = floats(6), np.zeros(6, np.float32)
    with pytest.raises(CoreError, match=r"step 0 \(copy\)"):
        c.bind([6], [x])
    a.buffers[1][3] = a.buffers[2][3] = F32
    c = start(a)
    c.bind([6], [x])
    with pytest.raises(CoreError, match=r"step 1 \(copy\): only a GPU runs it"):
        c.run([x], [y])
    a.steps[1][0] = ~len(a.kernels)
    with pytest.raises(CoreError, match="step 1 names kernel 1"):
        start(a)


def test_memory_that_cannot_be_had() -> None:
    a = chain()
    a.storages[1][2] = a.reg(1 << 46)
    c = start(a)
    c.limit(max_memory=1 << 47)
    with pytest.raises(CoreError, match="no memory") as caught:
        c.bind([4], [])
    assert caught.value.code == core.NO_MEMORY


def test_no_library_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "LIB", tmp_path)
    library.load.cache_clear()
    with pytest.raises(ImportError, match="make build"):
        library.load()
    monkeypatch.undo()
    library.load.cache_clear()
    with pytest.raises(ImportError, match="no native core for mmx"):
        library.load("mmx")


@pytest.mark.parametrize("isa", library.available())
def test_every_build_that_runs_here(isa: str) -> None:
    runs = library.ISAS[library.machine()][: library.load().pwx_isa()]
    if isa in runs:
        np.testing.assert_array_equal(call(start(chain(), library=library.load(isa)), floats(37))[0], floats(37))


# ---- malformed Programs ----

Edit = Callable[[Asm], object]


def _set(table: str, row: int, column: int, value: int) -> Edit:
    def edit(a: Asm) -> None:
        getattr(a, table)[row][column] = value

    return edit


LOAD_ERRORS: list[tuple[str, Edit]] = [
    ("kernel nonsense", lambda a: a.kernels.__setitem__(0, "nonsense")),
    ("bad name", lambda a: a.kernels.__setitem__(0, "x" * 65)),
    ("input 0 has a bad dtype", _set("inputs", 0, 0, 99)),
    ("input 0 has a bad dtype or rank", _set("inputs", 0, 1, -1)),
    ("input 0 has a bad dtype or rank", _set("inputs", 0, 1, 65)),
    ("input 0 names buffer", _set("inputs", 0, 2, 50)),
    ("the buffer of input 0 lies elsewhere", _set("inputs", 0, 2, 1)),
    ("output 0 has a bad dtype or rank", _set("outputs", 0, 0, 0)),
    ("output 0 has a bad dtype or rank", _set("outputs", 0, 1, 1 << 30)),
    ("output 0 names buffer", _set("outputs", 0, 2, -1)),
    ("output 0 names register", _set("outputs", 0, 3, 1 << 20)),
    ("the buffer of output 0 lies elsewhere", _set("outputs", 0, 2, 0)),
    ("shape instruction 0", _set("code", 0, 0, 16)),
    ("shape instruction 0", _set("code", 0, 0, -1)),
    ("shape instruction 0", _set("code", 0, 1, 7)),
    ("shape instruction 0", _set("code", 0, 2, 1)),
    ("shape instruction 2", _set("code", 2, 1, 2)),
    ("shape instruction 2", _set("code", 2, 2, -1)),
    ("shape instruction 0", lambda a: a.code.__setitem__(0, [16, 0, 0, 0])),
    ("storage 0 is wrong", _set("storages", 0, 0, 5)),
    ("storage 0 is wrong", _set("storages", 0, 2, 1 << 20)),
    ("storage 0 has index 1", _set("storages", 0, 1, 1)),
    ("storage 1 has a bad lifetime", _set("storages", 1, 3, 2)),
    ("storage 1 has a bad lifetime", _set("storages", 1, 4, 3)),
    ("output 0 has two storages", lambda a: a.storage(OUTPUT, 4)),
    ("buffer 0 is wrong", _set("buffers", 0, 0, 9)),
    ("buffer 0 is wrong", _set("buffers", 0, 1, -1)),
    ("buffer 0 is wrong", _set("buffers", 0, 3, 0)),
    ("step 0 names kernel", _set("steps", 0, 0, 1)),
    ("step 0 leaves the program", _set("steps", 0, 1, 1 << 28)),
    ("step 0 leaves the program", _set("steps", 0, 2, -1)),
    ("negative origin", _set("steps", 0, 3, -1)),
    ("lacks buffer 1", _set("steps", 0, 5, -1)),
    ("names buffer", _set("steps", 0, 5, 1000)),
    ("names register", _set("steps", 0, 6, -1)),
    ("writes to an input", _set("steps", 0, 4, 0)),
    ("outside its life", _set("storages", 1, 4, 0)),
    ("too many buffers", lambda a: a.step("copy", [3, 0, 0], [0] * 27)),
    ("too few buffers", lambda a: a.step("copy", [3], [0] * 27)),
    ("has 26 parameters", lambda a: a.step("copy", [3, 0], [0] * 26)),
    ("has 28 parameters", lambda a: a.step("copy", [3, 0], [0] * 28)),
    ("has 3 weights", lambda a: setattr(a, "n_weights", 3)),
]


@pytest.mark.parametrize(("text", "edit"), LOAD_ERRORS, ids=[f"{i}: {t}" for i, (t, _) in enumerate(LOAD_ERRORS)])
def test_malformed_at_load(text: str, edit: Edit) -> None:
    a = chain()
    edit(a)
    with pytest.raises(CoreError, match=text) as caught:
        Core(a.pack(), [], [], ["node"])
    assert caught.value.code in (core.MALFORMED, core.UNKNOWN_KERNEL)


@pytest.mark.parametrize("word", range(24))
@pytest.mark.parametrize("value", [-(1 << 31), -1, 0, 1, 18, 100_000, (1 << 31) - 1])
def test_damaged_header(word: int, value: int) -> None:
    code = chain().pack()
    code[word] = value
    try:
        c = Core(code, [])
        c.bind([4], [])
    except (CoreError, ValueError):
        return


def test_the_reader_gives_what_was_written() -> None:
    a = chain()
    a.input(I64, 2)
    a.steps[1][0] = ~a.steps[1][0]
    view = ProgramView(a.pack())
    assert [(k.name, k.abi) for k in view.kernels] == [(name, KERNELS[name].abi) for name in a.kernels]
    for name, rows in {"inputs": a.inputs, "registers": a.code, "storages": a.storages, "buffers": a.buffers}.items():
        assert [list(row) for row in getattr(view, name)] == rows
        assert view.count(name) == len(rows)
    assert [[row.dtype, row.rank, row.buffer, *row.dims] for row in view.outputs] == a.outputs
    assert [step.elsewhere for step in view.steps] == [False, True, False]
    for i, (step, (_, n_bufs, n_params, origin, *words)) in enumerate(zip(view.steps, a.steps, strict=True)):
        assert (step.kernel, step.origin, view.origin(i)) == ("copy", origin, origin)
        assert ([*step.buffers], [*step.params]) == (words[:n_bufs], words[n_bufs:])
        assert len(step.params) == n_params
    assert not view.reads_contents


def test_the_reader_counts_each_storage_of_a_step_once() -> None:
    view = ProgramView(chain(n=5).pack())
    core = Core(view.words, [])
    registers = core.evaluate([5], [], view.count("registers"))
    assert view.step_bytes(registers) == [40, 40, 40]


def test_cut_short() -> None:
    code = chain().pack()
    for n in range(len(code)):
        with pytest.raises(CoreError) as caught:
            Core(code[:n], [])
        assert caught.value.code == core.MALFORMED


def test_another_abi() -> None:
    code = chain().pack()
    code[code[4]] ^= 1
    with pytest.raises(CoreError, match="copy has another ABI") as caught:
        Core(code, [])
    assert caught.value.code == core.UNKNOWN_KERNEL


BIND_ERRORS: list[tuple[str, Edit]] = [
    ("output 0 has a negative", lambda a: a.outputs[0].__setitem__(3, a.reg(-1))),
    ("output 0 has 20 bytes", lambda a: a.outputs[0].__setitem__(3, a.reg(5))),
    ("storage 0 of 20 bytes", lambda a: a.storages[0].__setitem__(2, a.reg(20))),
    ("storage 1 of -1 bytes", lambda a: a.storages[1].__setitem__(2, a.reg(-1))),
    ("storage 1 of 140737488355329", lambda a: a.storages[1].__setitem__(2, a.reg((1 << 47) + 1))),
    ("buffer 1 of 16 bytes at 4", lambda a: a.buffers[1].__setitem__(1, a.reg(4))),
    ("buffer 1 of 16 bytes at -1", lambda a: a.buffers[1].__setitem__(1, a.reg(-1))),
    ("buffer 1 of -1 bytes", lambda a: a.buffers[1].__setitem__(2, a.reg(-1))),
    ("buffer 1 of 9223372036854775807 bytes", lambda a: a.buffers[1].__setitem__(2, a.reg((1 << 63) - 1))),
    (r"step 1 \(copy\)", lambda a: a.steps[1].__setitem__(9, a.reg(5))),
    (r"step 1 \(copy\)", lambda a: a.steps[1].__setitem__(6, a.reg(-1))),
]


@pytest.mark.parametrize(("text", "edit"), BIND_ERRORS, ids=[f"{i}: {t}" for i, (t, _) in enumerate(BIND_ERRORS)])
def test_malformed_at_bind(text: str, edit: Edit) -> None:
    a = chain()
    edit(a)
    c = start(a)
    for _ in range(2):
        with pytest.raises(CoreError, match=text):
            c.bind([4], [])
        with pytest.raises(ValueError, match="are bound"):
            c.run([floats(4)], [floats(4)])


def overlap(y: tuple[int, int], x: tuple[int, int], kernel: str = "copy") -> Asm:
    """A step within one arena storage; ranges are (offset, size) in bytes."""
    a = chain()
    s = a.storage(ARENA, 64, 0, 0, 3)
    yb, xb = a.buffer(s, F32, *y), a.buffer(s, F32, *x)
    if kernel == "copy":
        a.copy(yb, xb, 2)
    else:
        a.step("gather", [yb, xb, yb], [1, 4, 1, 4])
    return a


def test_overlaps() -> None:
    start(overlap((0, 16), (16, 16))).bind([4], [])
    for y, x in [((0, 16), (8, 16)), ((8, 16), (0, 16)), ((0, 16), (0, 8)), ((0, 32), (8, 8))]:
        with pytest.raises(CoreError, match=r"step 3 \(copy\): buffers 0 and 1 overlap"):
            start(overlap(y, x))
    with pytest.raises(CoreError, match="buffers 0 and 2 overlap"):
        start(overlap((0, 16), (16, 16), "gather"))


def test_weights_are_protected() -> None:
    def program() -> Asm:
        return weight_program(lambda a, x, y: a.copy(y, x, 5), [5, 5])

    locked = np.zeros(5, np.float32)
    locked.flags.writeable = False
    with pytest.raises(CoreError, match="read-only weight"):
        start(program(), [floats(5), locked])
    start(program(), [locked, floats(5)])
    memory = floats(8)
    with pytest.raises(CoreError, match="overlap"):
        start(program(), [memory[:5], memory[1:6]])
    for weights in ([floats(5), floats(4)], [floats(5), None]):
        with pytest.raises(CoreError, match="bytes: there are"):
            start(program(), weights).bind([], [])


@pytest.mark.parametrize("backend", ["cpu", "wasmtime"])
def test_a_core_of_other_sources_says_so_where_it_refuses_a_program(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = chain().pack()
    code[code[6] + 2] = -4

    def refused() -> str:
        with pytest.raises(CoreError, match="input 0 names buffer -4") as caught:
            Core(code, [], [], []) if backend == "cpu" else wasmtime.Core(wasmtime.Module(), Program("main", code, [], []), [])
        return str(caught.value)

    assert "make build" not in refused()
    monkeypatch.setattr(build, "stamp", lambda: 1)
    assert refused().endswith("; the core was built from other sources than those that lie here: run `make build`")


def test_random_damage_is_survived() -> None:
    """Any words at all: an error, or a Program that runs."""
    rng = np.random.default_rng(7)
    good = chain().pack()
    for _ in range(3000):
        code = good.copy()
        for _ in range(rng.integers(1, 4)):
            code[rng.integers(len(code))] = rng.choice([0, 1, 2, -1, 7, 15, 19, 1 << 30, -(1 << 31), int(rng.integers(-40, 90))])
        try:
            c = Core(code, [], ["a"], ["node"])
            x = floats(4)
            outs = [np.zeros(shape, np.float32) for shape in c.bind([4], [x])]
            c.run([x], outs)
        except (CoreError, ValueError):
            pass
