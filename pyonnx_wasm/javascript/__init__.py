"""The compiler as JavaScript: translates the sources of the compiler's core, so that pages compile models without a Python.

Modules become functions of one script that ``js/compiler`` gives Python's built-ins and a small numpy; nothing of the compiler is
written twice. Operators' modules run when an operator of theirs is first looked for: the build imports the compiler to learn which
module registers what (``homes``), and imports nothing else of the package. A module of the compiler is found by presence, and
what has no translation is an error of the build that names file and line: a method ``x_<node>`` or ``s_<node>`` is added for it.
"""
