"""A real JupyterLab in a real browser: :mod:`pyonnx_wasm.testing.lab`."""

from pyonnx_wasm.testing.lab import Lab, Notebook

__all__ = ["Lab", "Notebook"]
