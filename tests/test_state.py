"""A decoder's cache stays in place from run to run, and every value of it stays what it was."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import pyonnx_wasm as pw
from pyonnx_wasm.compiler import compile
from pyonnx_wasm.program import ProgramView
from pyonnx_wasm.runtimes import state, wgpu_device
from pyonnx_wasm.runtimes.addresses import Addresses
from pyonnx_wasm.runtimes.errors import CoreError
from pyonnx_wasm.runtimes.onward import InRooms

DECODER = Path(__file__).parent / "data" / "decoder.onnx"
BACKENDS = ("cpu", "wasmtime", "gpu")
Values = dict[str, Any]


class Decoder:
    """A decoder two ways: its cache handed on as values, and as arrays."""

    def __init__(self, backend: str, model: Any = DECODER, ids: str = "ids") -> None:
        self.session = pw.InferenceSession(model if isinstance(model, bytes) else str(model), providers=[backend])
        self.names = [o.name for o in self.session.get_outputs()]
        self.pasts = {i.name: i for i in self.session.get_inputs() if i.name.startswith("past")}
        self.ids, self.backend = ids, backend

    @property
    def keeper(self) -> state.Keeper:
        found: state.Keeper = self.session._variants[()].keeper  # type: ignore[attr-defined]
        return found

    def empty(self, batch: int) -> Values:
        return {
            name: np.zeros([batch, *(d if isinstance(d, int) else 0 for d in i.shape[1:])], np.float32) for name, i in self.pasts.items()
        }

    def split(self, found: dict[str, Any]) -> tuple[Any, Values]:
        return found.pop(self.names[0]), {name.replace("present", "past"): v for name, v in found.items()}

    def bound(self, ids: np.ndarray, past: Values) -> tuple[np.ndarray, Values]:
        """With ``IOBinding``."""
        binding = self.session.io_binding()
        binding.bind_cpu_input(self.ids, ids)
        for name, value in past.items():
            (binding.bind_ortvalue_input if isinstance(value, pw.OrtValue) else binding.bind_cpu_input)(name, value)
        for name in self.names:
            binding.bind_output(name, "cpu")
        self.session.run_with_iobinding(binding)
        logits, present = self.split(dict(zip(self.names, binding.get_outputs(), strict=True)))
        return logits.numpy(), present

    def values(self, ids: np.ndarray, past: Values) -> tuple[np.ndarray, Values]:
        """With ``run_with_ort_values``."""
        feed = {name: v if isinstance(v, pw.OrtValue) else pw.OrtValue(v) for name, v in {self.ids: ids, **past}.items()}
        logits, present = self.split(dict(zip(self.names, self.session.run_with_ort_values(None, feed), strict=True)))
        return logits.numpy(), present

    def plain(self, ids: np.ndarray, past: Values) -> tuple[np.ndarray, Values]:
        logits, present = self.split(dict(zip(self.names, self.session.run(None, {self.ids: ids, **past}), strict=True)))
        return logits, present


@pytest.fixture(scope="module", params=BACKENDS)
def decoder(request: pytest.FixtureRequest) -> Decoder:
    return Decoder(request.param)


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rooms are small, so that they grow often."""
    monkeypatch.setattr(state, "LEAST_ROWS", 1)


def same(held: tuple[np.ndarray, Values], arrays: tuple[np.ndarray, Values]) -> None:
    np.testing.assert_array_equal(held[0], arrays[0])
    for name, value in arrays[1].items():
        np.testing.assert_array_equal(held[1][name].numpy(), value)


def ids(rng: np.random.Generator, batch: int, count: int) -> np.ndarray:
    return rng.integers(0, 97, (batch, count))


def test_the_program_says_what_may_stay() -> None:
    compiled = compile(DECODER)
    view = ProgramView(compiled.main.code)
    assert [(s.past, s.output, s.axis) for s in view.states] == [(1, 1, 2), (2, 2, 2), (3, 3, 2), (4, 4, 2)]
    assert [s.told for s in view.states] == [5, 6, 7, 8]
    assert [s.name for s in compiled.inputs] == ["ids", "past_0_k", "past_0_v", "past_1_k", "past_1_v"]
    assert not ProgramView(compile(DECODER, optimise=False).main.code).states


@pytest.mark.parametrize("way", ["bound", "values"])
@pytest.mark.parametrize("batch", [1, 3])
def test_steps_that_hand_values_on_give_the_numbers_of_those_that_hand_arrays_on(
    decoder: Decoder, way: str, batch: int, crowded: None
) -> None:
    """From any state to the next: on from the newest, from one before (a fork, a step back), from nothing."""
    rng = np.random.default_rng(batch)
    run: Callable[..., Any] = getattr(decoder, way)
    tokens = ids(rng, batch, 5)
    states = [(run(tokens, decoder.empty(batch)), decoder.plain(tokens, decoder.empty(batch)))]
    for _ in range(40):
        held, arrays = states[-1] if rng.random() < 0.7 else states[rng.integers(len(states))]
        if rng.random() < 0.1 or arrays[1]["past_0_k"].shape[2] > 55:
            held = arrays = tokens, decoder.empty(batch)
        tokens = ids(rng, batch, int(rng.integers(1, 4)))
        states.append((run(tokens, held[1]), decoder.plain(tokens, arrays[1])))
        same(*states[-1])
    for held, arrays in states:
        same(held, arrays)


def test_a_step_copies_no_row_and_takes_no_memory(decoder: Decoder) -> None:
    rng = np.random.default_rng(0)
    _, past = decoder.bound(ids(rng, 1, 4), decoder.empty(1))
    rooms = [v.held.room for v in past.values()]
    copied = decoder.keeper.copied
    for _ in range(30):
        _, past = decoder.bound(ids(rng, 1, 1), past)
        assert [v.held.room for v in past.values()] == rooms
    assert decoder.keeper.copied == copied
    assert [v.shape()[2] for v in past.values()] == [34] * 4


@pytest.fixture
def onward(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each run that was to go on where the last one ended, whether it could."""
    taken: list[bool] = []
    run = InRooms.run

    def told(self: InRooms, *args: Any) -> Any:
        found = run(self, *args)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(InRooms, "run", told)
    return taken


@pytest.mark.parametrize("way", ["bound", "values"])
def test_what_goes_on_from_the_last_run_is_not_looked_through_again(way: str, onward: list[bool], crowded: None) -> None:
    decoder, other, rng = Decoder("cpu"), Decoder("cpu"), np.random.default_rng(0)
    run: Callable[..., Any] = getattr(decoder, way)
    tokens = ids(rng, 2, 3)
    held, arrays = run(tokens, decoder.empty(2)), other.plain(tokens, decoder.empty(2))
    for count in (1, 1, 4, 1, 20, 1, 1):
        tokens, before = ids(rng, 2, count), held[1]
        held, arrays = run(tokens, before), other.plain(tokens, arrays[1])
        run(tokens[:, :1], before)  # from what has been gone on from
        same(held, arrays)
    del onward[:]
    for _ in range(25):
        tokens = ids(rng, 2, 1)
        held, arrays = run(tokens, held[1]), other.plain(tokens, arrays[1])
        same(held, arrays)
    assert not all(onward), "a room that is full is left"
    assert onward.count(True) >= 20


def test_a_run_that_does_not_fit_says_so_and_the_next_goes_on(onward: list[bool]) -> None:
    decoder, rng = Decoder("cpu"), np.random.default_rng(0)
    past = decoder.empty(1)
    for _ in range(3):
        _, past = decoder.values(ids(rng, 1, 1), past)
    assert onward == [True, True]
    with pytest.raises(CoreError, match="differ on axis 0"):  # another batch than the cache's
        decoder.values(ids(rng, 2, 1), past)
    with pytest.raises(ValueError, match="takes rank 2"):
        decoder.values(ids(rng, 1, 1)[0], past)
    with pytest.raises(ValueError, match="takes int64, got float32"):
        decoder.values(ids(rng, 1, 1).astype(np.float32), past)
    with pytest.raises(ValueError, match="'past_0_k' is missing"):
        decoder.session.run_with_ort_values(None, {"ids": pw.OrtValue(ids(rng, 1, 1))})
    tokens, arrays = ids(rng, 1, 1), {name: v.numpy() for name, v in past.items()}
    same(decoder.values(tokens, past), decoder.plain(tokens, arrays))
    assert onward[-1], "what failed has changed nothing"


def test_a_room_grows_by_half_at_a_time(decoder: Decoder, crowded: None) -> None:
    rng = np.random.default_rng(0)
    _, past = decoder.bound(ids(rng, 1, 1), decoder.empty(1))
    copied, rooms = decoder.keeper.copied, set()
    for _ in range(50):
        _, past = decoder.bound(ids(rng, 1, 1), past)
        rooms.add(past["past_0_k"].held.room.shape[2])
    assert len(rooms) < 10
    row = sum(v.tensor_size_in_bytes() for v in past.values()) // 51
    assert decoder.keeper.copied - copied < 3 * 51 * row


def test_a_fork_copies_once_and_both_go_on(decoder: Decoder) -> None:
    rng = np.random.default_rng(1)
    first = ids(rng, 1, 6)
    _, past = decoder.bound(first, decoder.empty(1))
    _, arrays = decoder.plain(first, decoder.empty(1))
    copied = decoder.keeper.copied
    beams = [(past, arrays), (past, arrays)]
    for _ in range(5):
        for k, (held, plain) in enumerate(beams):
            token = ids(rng, 1, 1)
            got, want = decoder.bound(token, held), decoder.plain(token, plain)
            same(got, want)
            beams[k] = got[1], want[1]
    assert decoder.keeper.copied - copied == sum(v.tensor_size_in_bytes() for v in past.values())


def test_one_value_may_be_two_inputs(decoder: Decoder) -> None:
    rng = np.random.default_rng(2)
    _, held = decoder.bound(ids(rng, 2, 4), decoder.empty(2))
    arrays = {name: v.numpy() for name, v in held.items()}
    swap = {"past_0_k": "past_1_v", "past_0_v": "past_1_v", "past_1_k": "past_0_k", "past_1_v": "past_1_k"}
    token = ids(rng, 2, 1)
    same(decoder.bound(token, {n: held[o] for n, o in swap.items()}), decoder.plain(token, {n: arrays[o] for n, o in swap.items()}))


def test_values_may_change_places(decoder: Decoder) -> None:
    """Between runs that go on from all that the last one gave, one is fed the keys of one layer as another's."""
    rng = np.random.default_rng(5)
    first = ids(rng, 1, 3)
    (_, past), (_, arrays) = decoder.values(first, decoder.empty(1)), decoder.plain(first, decoder.empty(1))
    for turn in range(9):
        if turn % 3 == 2:
            for values in (past, arrays):
                values["past_0_k"], values["past_1_k"] = values["past_1_k"], values["past_0_k"]
        token = ids(rng, 1, 1)
        got, want = decoder.values(token, past), decoder.plain(token, arrays)
        same(got, want)
        past, arrays = got[1], want[1]


def test_values_of_one_session_go_into_another(decoder: Decoder) -> None:
    rng = np.random.default_rng(3)
    other = Decoder("cpu")
    _, held = decoder.bound(ids(rng, 1, 4), decoder.empty(1))
    arrays = {name: v.numpy() for name, v in held.items()}
    token = ids(rng, 1, 2)
    same(other.bound(token, held), other.plain(token, arrays))
    same(decoder.bound(token, held), decoder.plain(token, arrays))


def test_a_run_that_fails_leaves_the_past_as_it_was(decoder: Decoder) -> None:
    rng = np.random.default_rng(4)
    tokens = ids(rng, 1, 40)
    held, arrays = decoder.bound(tokens, decoder.empty(1)), decoder.plain(tokens, decoder.empty(1))
    if decoder.backend == "gpu":  # where an index out of range gives 0
        decoder.bound(ids(rng, 1, 30), held[1])
    else:
        with pytest.raises(RuntimeError, match="out of range"):  # there are 64 positions
            decoder.bound(ids(rng, 1, 30), held[1])
    with pytest.raises(ValueError, match="ids"):
        decoder.bound(np.zeros((1, 1), np.float32), held[1])
    token = ids(rng, 1, 1)
    same(held, arrays)
    same(decoder.bound(token, held[1]), decoder.plain(token, arrays[1]))


def test_what_is_read_is_a_copy_and_what_is_written_to_is_the_callers(decoder: Decoder) -> None:
    rng = np.random.default_rng(5)
    _, held = decoder.bound(ids(rng, 1, 4), decoder.empty(1))
    value = held["past_0_k"]
    before = value.numpy().copy()
    assert not value.numpy().flags.writeable
    assert value.shape() == list(before.shape) == [1, 4, 4, 8]
    assert (value.data_type(), value.tensor_size_in_bytes()) == ("tensor(float)", before.nbytes)
    value.update_inplace(before + 1)
    token = ids(rng, 1, 1)
    got = decoder.bound(token, held)
    np.testing.assert_array_equal(got[1]["past_0_k"].numpy()[:, :, :4], before + 1)
    same(got, decoder.plain(token, {name: v.numpy() for name, v in held.items()}))


def test_outputs_that_are_not_bound_leave_the_value_the_newest(decoder: Decoder) -> None:
    rng = np.random.default_rng(6)
    _, held = decoder.bound(ids(rng, 1, 4), decoder.empty(1))
    binding, token = decoder.session.io_binding(), ids(rng, 1, 1)
    binding.bind_cpu_input("ids", token)
    for name, value in held.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("logits")
    copied = decoder.keeper.copied
    decoder.session.run_with_iobinding(binding)
    want = decoder.plain(token, {name: v.numpy() for name, v in held.items()})
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), want[0])
    token = ids(rng, 1, 1)
    same(decoder.bound(token, held), decoder.plain(token, {name: v.numpy() for name, v in held.items()}))
    assert decoder.keeper.copied == copied


def test_what_a_token_asks_of_a_gpu_does_not_depend_on_how_many_steps_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the first tokens it is the tokens, the uniforms, one pass and one copy, whatever the number of steps."""
    native = pytest.importorskip("wgpu.backends.wgpu_native")
    decoder, rng, calls = Decoder("gpu"), np.random.default_rng(7), dict[str, int]()

    def count(cls: Any, name: str) -> None:
        real = getattr(cls, name)

        def counted(*args: Any, **more: Any) -> Any:
            calls[name] = calls.get(name, 0) + 1
            return real(*args, **more)

        monkeypatch.setattr(cls, name, counted)

    def token(held: Values) -> Values:
        binding = decoder.session.io_binding()
        binding.bind_cpu_input(decoder.ids, ids(rng, 1, 1))
        for name, value in held.items():
            binding.bind_ortvalue_input(name, value)
        for name in decoder.names:
            binding.bind_output(name, "cpu")
        decoder.session.run_with_iobinding(binding)
        logits, *presents = binding.get_outputs()
        logits.numpy()
        return dict(zip(held, presents, strict=True))

    _, past = decoder.bound(ids(rng, 1, 4), decoder.empty(1))
    past = token(token(past))
    for name in ("create_bind_group", "create_command_encoder"):
        count(native.GPUDevice, name)
    for name in ("write_buffer", "submit"):
        count(native.GPUQueue, name)
    count(native.GPUCommandEncoder, "begin_compute_pass")
    count(native.GPUBuffer, "map_async")
    tokens = 6
    for _ in range(tokens):
        past = token(past)
    assert {name: n / tokens for name, n in calls.items() if name != "create_command_encoder"} == {
        "create_bind_group": 1,  # with the logits, whose buffer is the caller's from then on
        "write_buffer": 2,
        "begin_compute_pass": 1,
        "submit": 3,  # wgpu has one of its own before it maps
        "map_async": 1,
    }


def test_of_a_gpu_what_nobody_asks_for_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wgpu")
    from pyonnx_wasm.runtimes import wgpu_device

    total, read = [0], wgpu_device.Gpu.read

    def counted(self: Any, wanted: Any) -> Any:
        total[0] += sum(size for _, _, size in wanted)
        return read(self, wanted)

    monkeypatch.setattr(wgpu_device.Gpu, "read", counted)
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 100] x) => (float[n, 100] y, float[n, 1] z) '
        "{ y = Exp(x)  axes = Constant<value_ints = [1]>()  z = ReduceSum(x, axes) }"
    )
    session = pw.InferenceSession(model.SerializeToString(), providers=["gpu"])
    x = np.arange(200, dtype=np.float32).reshape(2, 100) / 200
    (z,) = session.run(["z"], {"x": x})
    np.testing.assert_allclose(z, x.sum(1, keepdims=True), rtol=1e-6)
    assert total == [8]
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "gpu")
    session.run_with_iobinding(binding)
    assert total == [8]
    np.testing.assert_allclose(binding.get_outputs()[0].numpy(), np.exp(x), rtol=1e-6)
    assert total == [8 + 800]
    with pytest.raises(ValueError, match="device 'cuda'"):
        binding.bind_output("y", "cuda")
    with pytest.raises(ValueError, match="device 'gpu'"):
        pw.InferenceSession(model.SerializeToString()).io_binding().bind_output("y", "gpu")


def test_the_memory_goes_with_the_values() -> None:
    decoder = Decoder("wasmtime")
    rng = np.random.default_rng(0)
    module = decoder.session._variants[()].core.module  # type: ignore[attr-defined]
    decoder.bound(ids(rng, 64, 20), decoder.empty(64))
    size = module.memory.data_len()
    for _ in range(10):
        gc.collect()
        decoder.bound(ids(rng, 64, 20), decoder.empty(64))
    assert module.memory.data_len() == size


# Concatenations that are no state, or that hold what is hard to lay out: as numbers they are all the same.
SHAPES = {
    "grown in front": "float[b, n, 3] past, float[b, m, 3] x) => (float[b, k, 3] present, float[b, k, 3] y) { present = Concat<axis = 1>(x, past)  y = Neg(present) }",  # noqa: E501
    "read besides": "float[b, n, 3] past, float[b, m, 3] x) => (float[b, k, 3] present, float[b, n, 3] y) { present = Concat<axis = 1>(past, x)  y = Neg(past) }",  # noqa: E501
    "twice": "float[b, n, 3] past, float[b, m, 3] x) => (float[b, k, 3] present, float[b, l, 3] y) { present = Concat<axis = 1>(past, x)  y = Concat<axis = 1>(past, x, x) }",  # noqa: E501
    "three pieces": "float[b, n, 3] past, float[b, m, 3] x) => (float[b, k, 3] present, float[b, k, 3] y) { z = Neg(x)  present = Concat<axis = 1>(past, x, z)  y = Exp(present) }",  # noqa: E501
    "the first axis": "float[n, 3] past, float[m, 3] x) => (float[k, 3] present, float[3, k] y) { present = Concat<axis = 0>(past, x)  z = Transpose(present)  y = Neg(z) }",  # noqa: E501
    "the last axis": "float[2, 3, n] past, float[2, 3, m] x) => (float[2, 3, k] present, float[2, k] y) { present = Concat<axis = -1>(past, x)  axes = Constant<value_ints = [1]>()  y = ReduceSum<keepdims = 0>(present, axes) }",  # noqa: E501
    "flat": "float[b, n, 3] past, float[b, m, 3] x) => (float[b, k, 3] present, float[l] y) { present = Concat<axis = 1>(past, x)  all = Constant<value_ints = [-1]>()  z = Reshape(present, all)  y = Softmax<axis = 0>(z) }",  # noqa: E501
    "given back in another shape": "float[b, n, 3] past, float[b, m, 3] x) => (float[b, k, 3] present, float[1, b, k, 3] y) { present = Concat<axis = 1>(past, x)  first = Constant<value_ints = [0]>()  y = Unsqueeze(present, first) }",  # noqa: E501
    "a part": "float[b, n, 3] past, float[b, m, 3] x) => (float[b, k, 3] present, float[b, j, 3] y) { present = Concat<axis = 1>(past, x)  one = Constant<value_ints = [1]>()  end = Constant<value_ints = [9]>()  y = Slice(present, one, end, one) }",  # noqa: E501
    "into itself": "float[b, n, 3] past, float[b, n, 3] x) => (float[b, k, 3] present, float[b, k, 3] y) { present = Concat<axis = 1>(past, past)  z = Concat<axis = 1>(x, x)  y = Add(present, z) }",  # noqa: E501
    "bytes": "uint8[b, n] past, uint8[b, m] x) => (uint8[b, k] present, uint8[b, k] y) { present = Concat<axis = 1>(past, x)  y = Add(present, present) }",  # noqa: E501
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("text", SHAPES.values(), ids=[*SHAPES])
def test_concatenations_of_all_kinds(text: str, backend: str, crowded: None) -> None:
    head, body = text.split(") {")
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g ({head}) {{{body}')
    onnx.checker.check_model(model)
    session = pw.InferenceSession(model.SerializeToString(), providers=[backend])
    rng = np.random.default_rng(0)
    past, new = session.get_inputs()
    dtype = np.uint8 if past.type == "tensor(uint8)" else np.float32
    sizes = {"b": 2, "n": 2, "m": 2}
    held: Any = rng.integers(0, 9, [sizes.get(d, d) for d in past.shape]).astype(dtype)  # type: ignore[arg-type]
    for step in range(6):
        array = held.numpy() if isinstance(held, pw.OrtValue) else held
        sizes |= {"n": int(array.shape[past.shape.index("n")]), "m": 1 + step % 3}
        x = rng.integers(0, 9, [sizes.get(d, d) for d in new.shape]).astype(dtype)  # type: ignore[arg-type]
        want = session.run(None, {"past": array, "x": x})
        value = held if isinstance(held, pw.OrtValue) else pw.OrtValue(held)
        got = session.run_with_ort_values(None, {"past": value, "x": pw.OrtValue(x)})
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)
        held = got[0]


def test_addresses_follow_the_arrays() -> None:
    """One that is known is not taken for another array's, and a run may read a part of a room, not write one of another size."""
    past, present, rooms = Addresses("input"), Addresses("output", written=True), [np.zeros(8, np.float32) for _ in range(2)]
    for room in (*rooms, *rooms, rooms[1]):
        want = [room.ctypes.data]
        assert past.of([room], [16], {0}) == want
        assert present.of([room], [32], {0}) == want
    for refuse in (
        lambda: past.of([rooms[0]], [64], {0}),
        lambda: past.of([rooms[0]], [16], ()),
        lambda: present.of([rooms[0]], [16], {0}),
        lambda: past.of([rooms[0]], [], ()),
    ):
        with pytest.raises(ValueError, match=r"put 0 must be contiguous and of \d+ bytes, not 32|1 inputs were given, 0 are bound"):
            refuse()
    rooms[0].flags.writeable = False
    with pytest.raises(ValueError, match="output 0 is read-only"):
        Addresses("output", written=True).of([rooms[0]], [32], ())


def test_outputs_of_a_gpu_are_read_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """After later runs too, and then they are an array like any; what is not wanted is never read."""
    decoder, read, rng = Decoder("gpu"), wgpu_device.Gpu.read, np.random.default_rng(6)
    sizes: list[int] = []

    def counted(self: Any, wanted: Any) -> Any:
        sizes.extend(size for _, _, size in wanted)
        return read(self, wanted)

    tokens = [ids(rng, 1, 3) for _ in range(3)]
    want = [decoder.plain(each, decoder.empty(1))[0] for each in tokens]
    monkeypatch.setattr(wgpu_device.Gpu, "read", counted)
    feeds = [{name: pw.OrtValue(v) for name, v in {decoder.ids: each, **decoder.empty(1)}.items()} for each in tokens]
    found = [decoder.session.run_with_ort_values(decoder.names[:1], feed)[0] for feed in feeds]
    assert sum(sizes) == 0
    assert [value.shape() for value in found] == [list(each.shape) for each in want]
    for value, each in zip(found[::-1], want[::-1], strict=True):
        array = value.numpy()
        np.testing.assert_array_equal(array, each)
        array[:] = 0
        assert not value.numpy().any()
    assert sum(sizes) == sum(each.nbytes for each in want)
