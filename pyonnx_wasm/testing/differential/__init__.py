"""Differential testing: random models on a backend, against onnxruntime, onnx's reference evaluator and float64.

``python -m pyonnx_wasm.testing.differential --seed 1 --count 10000 --backend cpu`` draws single operators, random graphs and bait for
fusions, judges what comes out, shrinks what is wrong and prints it as a test.

It imports ``session``, ``testing.browser`` and nothing else of the package.

- :mod:`.sketch` builds a model by random choices; :mod:`.operators` has a generator per operator, :mod:`.graphs` random graphs,
  :mod:`.bait` patterns that invite fusions. A generator is added by a function with a decorator in one of these.
- :mod:`.oracles` evaluates, :mod:`.judge` compares by :mod:`pyonnx_wasm.testing.tolerance`, :mod:`.known` lists what stays.
- :mod:`.shrink` makes a failure small, :mod:`.emit` writes it as a test; :mod:`.backends` and :mod:`.page` run the models.
"""
