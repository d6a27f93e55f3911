"""What tests need beyond pytest: browsers, the ONNX suite, fuzzers, Jupyter and Pyodide. No user needs it.

It may import everything; nothing imports it but tests, ``bench`` and ``parity``. Something that has to be on a machine is added as a
module with ``install``, which says one line, and a target of the Makefile.
"""
