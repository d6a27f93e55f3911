"""Files of llama.cpp (GGUF): their metadata, where their tensors lie, and the graph that their architecture means.

It hands out what ``onnxfile`` does, so that all behind it takes both. Everything in a file is untrusted: what does not fit is a
``ReadError`` that names the entry or tensor. It imports ``onnxfile`` and ``dtypes``. A block type is added as a row of ``file.TYPES``
and a function of ``ops/ggml.py``, an architecture as a row of ``decoder.ARCHITECTURES``.
"""
