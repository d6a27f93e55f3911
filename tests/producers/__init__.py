"""Exports of other tools, run against onnxruntime: ``python -m tests.producers [sklearn ...]``.

Each producer is a file with a function ``models(rng)`` that yields :class:`Case`, and ``requirements/NAME.txt``, pinned; it runs in a
virtual environment of its own below ``build/producers`` and writes models with their inputs. This process compiles each once, runs it at
two numbers of rows on cpu, or on ``--backend wasmtime``, and prints a table. A producer is added as such a file. Nothing here imports
what a producer needs.
"""
