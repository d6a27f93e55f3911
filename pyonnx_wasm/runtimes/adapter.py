"""Which of wgpu's adapters the backend ``gpu`` runs on."""

from __future__ import annotations

from typing import Any

# OpenGL drivers differ in what WGSL leaves open (remainders of negative numbers, NaN in comparisons): results would be wrong silently.
RIGHT = ("Vulkan", "Metal", "D3D12")
KINDS = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "CPU")  # fastest first
CURE = "install the GPU's Vulkan driver (on Debian: apt install mesa-vulkan-drivers libvulkan1, which also runs without a GPU)"


class GpuError(RuntimeError):
    """The GPU cannot run a model; the text names the kernel or what is missing, and the cure."""


def choose() -> Any:
    """The adapter that wgpu prefers, which its environment variables steer; where that is OpenGL's, the fastest other one.

    Raises:
        GpuError: wgpu is not installed, or no adapter computes rightly; says what to install.
    """
    try:
        import wgpu
    except ImportError:
        raise GpuError("the backend gpu needs wgpu: pip install wgpu") from None
    why = ""
    try:
        preferred = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    except Exception as error:
        preferred, why = None, f": {error}"
    if preferred is not None and preferred.info["backend_type"] in RIGHT:
        return preferred
    every = wgpu.gpu.enumerate_adapters_sync()
    if right := [a for a in every if a.info["backend_type"] in RIGHT]:
        return min(right, key=lambda a: KINDS.index(a.info["adapter_type"]) if a.info["adapter_type"] in KINDS else len(KINDS))
    if every:
        names = ", ".join(describe(a) for a in every)
        raise GpuError(f"no GPU adapter that computes rightly: {names} is refused, {', '.join(RIGHT)} are taken; {CURE}")
    raise GpuError(f"no GPU adapter was found{why}; {CURE}")


def describe(adapter: Any) -> str:
    """An adapter's name and interface, for reports."""
    info = adapter.info
    return f"{info.get('device') or info.get('description') or 'unknown'} ({info.get('backend_type', '')})"
