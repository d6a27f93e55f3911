"""Exports of other tools, run against onnxruntime: ``python -m tests.producers [pytorch ...]``.

Each producer is a file with a function ``models(rng)`` that yields :class:`Case`, and ``requirements/NAME.txt``, pinned; it runs in a
virtual environment of its own below ``build/producers`` (those with the same requirements share one) and writes models with their inputs.
This process compiles each once, runs it at two shapes on cpu, or on ``--backend wasmtime``, and prints a table, a row for each group of
a producer. ``--only PATTERN`` exports and runs some, ``--kept`` runs what was exported before. A producer is added as such a file. Nothing
here imports what a producer needs.

``tests/data/produced`` holds a few exports with their inputs, copied from ``build/producers/models``: the tests run them.
"""
