"""Operators of the domain ai.onnx.ml, one file per family."""
