"""The backend gpu: sessions, files, profiles, partition, errors."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gpu_model import assert_same, both, graph, node, section
from onnx import helper

import pyonnx_wasm as ort
from pyonnx_wasm.program import GpuSection
from pyonnx_wasm.program import file as ponnx
from pyonnx_wasm.runtimes import wgpu

X = np.linspace(-3, 3, 35, dtype=np.float32).reshape(5, 7)


def test_a_compiled_file_holds_the_part_for_gpus(tmp_path: Path) -> None:
    model, path = node("Softplus", {"x": X}), tmp_path / "m.ponnx"
    ponnx.save(ort.compile(model, gpu=True), path)
    want = ort.InferenceSession(path).run(None, {"x": X})
    assert_same(list(zip(want, ort.InferenceSession(path, providers=["gpu"]).run(None, {"x": X}), strict=True)))


def test_a_file_without_it_says_so(tmp_path: Path) -> None:
    ponnx.save(ort.compile(node("Relu", {"x": X})), tmp_path / "m.ponnx")
    with pytest.raises(ponnx.FileError, match="compile it again"):
        ort.InferenceSession(tmp_path / "m.ponnx", providers=["gpu"])
    with pytest.warns(RuntimeWarning, match=r"running on cpu: .* compile it again"):
        session = ort.InferenceSession(tmp_path / "m.ponnx", providers=["gpu", "cpu"])
    assert session.get_providers() == ["cpu"]
    assert "no part for GPUs" in (session.fallback or "")
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.maximum(X, 0))


def test_sizes_in_any_order_and_more_than_are_kept() -> None:
    feeds = [{"x": np.random.default_rng(n).standard_normal((n, m)).astype(np.float32)} for n, m in [(1, 1), (5, 7), (0, 3), (64, 65)] * 2]
    for pairs in both(node("Tanh", feeds[0]), *feeds, {"x": X}, {"x": X[:2]}, feeds[0]):
        assert_same(pairs)


def test_profile_names_backend_kernel_and_bytes(tmp_path: Path) -> None:
    for provider in ("cpu", "gpu"):
        profile = ort.InferenceSession(node("Erf", {"x": X}), providers=[provider]).profile({"x": X})
        assert [(s.kernel, s.backend, s.bytes) for s in profile] == [("map", provider, 2 * X.nbytes)]
        profile.save(tmp_path / "p.json")
        events = json.loads((tmp_path / "p.json").read_text())["traceEvents"]
        assert [e["name"] for e in events if e["ph"] == "X"] == ["map"]
        assert all(e["ts"] >= 0 and e["dur"] >= 0 for e in events if e["ph"] == "X")


def test_a_step_without_a_shader_runs_on_the_core_and_the_profile_shows_the_copies() -> None:
    x = np.arange(12, dtype=np.float64).reshape(3, 4) / 7
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=1),
        helper.make_node("Exp", ["f"], ["e"]),
        helper.make_node("Cast", ["e"], ["d"], to=11),
        helper.make_node("Sqrt", ["d"], ["s"]),
        helper.make_node("Cast", ["s"], ["g"], to=1),
        helper.make_node("Add", ["g", "f"], ["y0"]),
    ]
    model = graph(nodes, {"x": x})
    found = ort.compile(model, gpu=True, optimise=False).gpu
    assert found is not None
    assert {row[0] for row in found.section.schedule} >= {"gpu", "core", "upload", "download"}
    options = ort.SessionOptions(enable_optimisation=False)
    session = ort.InferenceSession(model, options, providers=["gpu"])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.sqrt(np.exp(x)) + x, rtol=1e-5)
    profile = session.profile({"x": x})
    assert {s.backend for s in profile} == {"cpu", "gpu", "copy"}
    assert {s.name for s in profile if s.backend == "copy"} == {"upload", "download"}


def test_a_damaged_section_is_refused() -> None:
    compiled = ort.compile(node("Relu", {"x": X}), gpu=True)
    assert compiled.gpu is not None
    good = compiled.gpu.section.json()
    for change in (
        {"steps": []},
        {"schedule": [["gpu", 0, 2]]},
        {"schedule": [["core", 0, 1]]},
        {"steps": [[{"pipeline": 9, "guard": -1, "grid": [0, 0, 0], "uniforms": []}]]},
        {"steps": [[{"pipeline": 0, "guard": -1, "grid": [0, 0, 1 << 30], "uniforms": []}]]},
        {"modules": [1]},
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            GpuSection.read(good | change, compiled.gpu.program)


def test_a_model_that_only_passes_its_input_on_copies_it_on_the_gpu() -> None:
    assert section(node("Identity", {"x": X})).on_gpu == 1


def test_without_a_driver_the_error_says_what_to_install() -> None:
    code = (
        "import pyonnx_wasm as ort, numpy as np, sys; sys.path.insert(0, sys.argv[1]); from gpu_model import node\n"
        "try: ort.InferenceSession(node('Relu', {'x': np.zeros(1, np.float32)}), providers=['gpu'])\n"
        "except Exception as e: print(type(e).__name__, e)"
    )
    env = {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent", "WGPU_BACKEND_TYPE": "Vulkan", "PATH": "/usr/bin:/bin"}
    env["PYTHONPATH"] = ":".join(p for p in sys.path if p)
    done = subprocess.run([sys.executable, "-c", code, str(Path(__file__).parent)], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("GpuError no GPU adapter "), done
    assert "mesa-vulkan-drivers" in done.stdout


def test_a_tensor_too_large_for_this_gpu_leaves_the_session_usable() -> None:
    device = wgpu.device()
    most = min(device.limits["max-storage-buffer-binding-size"], device.limits["max-buffer-size"])
    side = int((most / 4) ** 0.5) + 8
    a, b = np.ones((1, 2), np.float32), np.full((3, 1), 2, np.float32)
    model = node("Add", {"a": a, "b": b})
    session = ort.InferenceSession(model, providers=["gpu"])
    np.testing.assert_array_equal(session.run(None, {"a": a, "b": b})[0], a + b)
    with pytest.raises(wgpu.GpuError, match=f"in one buffer, this GPU binds at most {most}"):
        session.run(None, {"a": np.ones((1, side), np.float32), "b": np.ones((side, 1), np.float32)})
    np.testing.assert_array_equal(session.run(None, {"a": a, "b": b})[0], a + b)
    np.testing.assert_array_equal(session.run(None, {"a": a, "b": a[:, :1]})[0], a + 1)


def test_a_lost_device_ends_the_session_and_a_new_one_works() -> None:
    model = node("Softplus", {"x": X})
    session = ort.InferenceSession(model, providers=["gpu"])
    want = session.run(None, {"x": X})
    device = wgpu.device()
    device.destroy()
    for feed in ({"x": X}, {"x": X[:1]}, {"x": X}):
        with pytest.raises(wgpu.GpuError, match=r"the GPU was lost .*: create the session again"):
            session.run(None, feed)
    with pytest.raises(wgpu.GpuError, match="create the session again"):
        session.profile({"x": X})
    again = ort.InferenceSession(model, providers=["gpu"])
    np.testing.assert_array_equal(again.run(None, {"x": X})[0], want[0])
    assert wgpu.device() is not device
    wgpu.device().destroy()
    np.testing.assert_array_equal(ort.InferenceSession(model, providers=["gpu"]).run(None, {"x": X})[0], want[0])
