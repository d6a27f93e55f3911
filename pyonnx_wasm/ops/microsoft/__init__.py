"""Operators of the domain com.microsoft, one file per family; semantics: docs/ContribOperators.md of onnxruntime.

They import what ``ops`` imports, and ``ops`` itself. An operator is added as a function with ``@op(domain=MICROSOFT)``.
"""

MICROSOFT = "com.microsoft"
