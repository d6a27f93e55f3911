"""Which adapter is taken: fakes stand for the adapters that wgpu lists."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import wgpu

from pyonnx_wasm.runtimes import adapter
from pyonnx_wasm.testing import system, vulkan

Listed = Callable[..., None]


def fake(name: str, backend: str, kind: str) -> Any:
    return SimpleNamespace(info={"device": name, "backend_type": backend, "adapter_type": kind, "description": ""})


LLVMPIPE_GL = fake("llvmpipe", "OpenGL", "CPU")
LAVAPIPE = fake("lavapipe", "Vulkan", "CPU")
CARD_GL = fake("card", "OpenGL", "DiscreteGPU")
CARD = fake("card", "Vulkan", "DiscreteGPU")
LAPTOP = fake("laptop", "D3D12", "IntegratedGPU")
OLD = fake("old", "D3D11", "DiscreteGPU")
APPLE = fake("apple", "Metal", "IntegratedGPU")


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Listed:
    """Makes wgpu list these adapters and prefer the first."""

    def use(*adapters: Any) -> None:
        def request(**_: Any) -> Any:
            if not adapters:
                raise RuntimeError("Request adapter failed (3): no adapter")
            return adapters[0]

        monkeypatch.setattr(wgpu.gpu, "request_adapter_sync", request)
        monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", lambda: list(adapters))

    return use


@pytest.mark.parametrize(
    ("adapters", "taken"),
    [
        ([CARD, LAVAPIPE, CARD_GL], CARD),
        ([LAVAPIPE, CARD], LAVAPIPE),  # what wgpu prefers stays, if it is right
        ([CARD_GL, LAVAPIPE, CARD], CARD),
        ([CARD_GL, LAVAPIPE], LAVAPIPE),
        ([LLVMPIPE_GL, LAPTOP, LAVAPIPE], LAPTOP),
        ([OLD, LAPTOP], LAPTOP),
        ([APPLE], APPLE),
    ],
)
def test_the_fastest_adapter_that_computes_rightly_is_taken(adapters: list[Any], taken: Any, listed: Listed) -> None:
    listed(*adapters)
    assert adapter.choose() is taken


def test_opengl_alone_is_refused_with_the_cure(listed: Listed) -> None:
    listed(LLVMPIPE_GL)
    with pytest.raises(adapter.GpuError) as error:
        adapter.choose()
    assert str(error.value) == (
        "no GPU adapter that computes rightly: llvmpipe (OpenGL) is refused, Vulkan, Metal, D3D12 are taken; install the GPU's Vulkan"
        " driver (on Debian: apt install mesa-vulkan-drivers libvulkan1, which also runs without a GPU)"
    )


def test_no_adapter_is_told_with_the_cure(listed: Listed) -> None:
    listed()
    with pytest.raises(adapter.GpuError, match=r"no GPU adapter was found: Request adapter failed .*apt install mesa-vulkan-drivers"):
        adapter.choose()


@pytest.mark.parametrize(
    ("before", "installs", "after"),
    [
        ("lavapipe (Vulkan)", [], "lavapipe (Vulkan)"),
        (None, [("mesa-vulkan-drivers", "libvulkan1")], "lavapipe (Vulkan)"),
    ],
)
def test_set_up_installs_a_driver_where_none_computes_rightly(
    before: str | None, installs: list[Any], after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    monkeypatch.setattr(vulkan, "adapter", lambda: ("lavapipe (Vulkan)" if done else before, "GpuError: no GPU adapter"))
    monkeypatch.setattr(system, "apt", lambda packages, what: done.append(packages) or True)
    assert vulkan.install()[0] == after
    assert done == installs


def test_set_up_without_apt_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vulkan, "adapter", lambda: (None, "GpuError: no GPU adapter was found; install the driver"))
    monkeypatch.setattr(system.shutil, "which", lambda name: None)
    assert vulkan.install() == (None, "GpuError: no GPU adapter was found; install the driver")
