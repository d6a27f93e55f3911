"""Jupyter: the bridge from a kernel to the user's browser, and widgets. Needs the extra ``pyonnx-wasm[jupyter]``."""
