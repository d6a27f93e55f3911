"""Operators of the domain ai.onnx.ml, one file per family.

They import what ``ops`` imports, and ``ops`` itself. An operator is added as a function with ``@op(domain="ai.onnx.ml")``.
"""
