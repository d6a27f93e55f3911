"""What compiling gives, as digests: a change that is to change nothing leaves every one as it was.

``python -m pyonnx_wasm.testing.replay before.json`` writes the digests of the ONNX suite and of the models named;
``--against before.json`` compares instead, and names what differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import compiler
from ..ir import IRError
from ..program import Compiled, Program

WAYS = {"gpu": {"gpu": True}, "core": {}, "plain": {"optimise": False}}
_NUMBERED = re.compile(r"%\d+")  # storages in messages


def digest(compiled: Compiled) -> str:
    """Of everything that a compiled model holds: words, messages, origins, shaders, signature and weights."""
    found = hashlib.sha256()

    def add(data: Any) -> None:
        found.update(json.dumps(data).encode())

    def add_program(program: Program | None) -> None:
        if program is not None:
            found.update(program.code.tobytes())
            add([program.name, program.messages, program.origins])

    add_program(compiled.main)
    add_program(compiled.init)
    add([[s.name, s.dtype.name, list(s.shape)] for s in (*compiled.inputs, *compiled.outputs)])
    for weight in compiled.weights:
        add([weight.name, weight.dtype.name, list(weight.shape), weight.over])
        source = weight.source
        if source is not None:
            found.update(source.tobytes() if isinstance(source, np.ndarray) else source.raw())
    if compiled.gpu is not None:
        add_program(compiled.gpu.init)
        add_program(compiled.gpu.program)
        add(compiled.gpu.section.json())
    return found.hexdigest()


def digests(models: Iterable[tuple[str, str | bytes]]) -> Iterator[tuple[str, str]]:
    """Of each model with the GPU part, without, and without optimisation: the digest, or why it cannot be compiled."""
    for name, model in models:
        for way, options in WAYS.items():
            try:
                yield f"{name} {way}", digest(compiler.compile(model, **options))  # type: ignore[arg-type]
            except (IRError, AssertionError, NotImplementedError) as error:
                yield f"{name} {way}", _NUMBERED.sub("%", f"{type(error).__name__}: {error}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="where the digests are written")
    parser.add_argument("model", nargs="*", type=Path, help="more models than those of the suite")
    parser.add_argument("--against", action="store_true", help="compare with the file instead of writing it")
    args = parser.parse_args(argv)
    from . import suite

    models: list[tuple[str, str | bytes]] = [(path.name, str(path)) for path in args.model]
    models += [(f"{case.kind} {case.name}", case.model) for case in suite.cases()]
    found = dict(digests(models))
    if not args.against:
        args.file.write_text(json.dumps(found, indent=0))
        return 0
    before = json.loads(args.file.read_text())
    for name in (differing := [name for name in found if before.get(name) != found[name]]):
        print(f"{name}: was {before.get(name, 'absent')}, is {found[name]}")
    print(f"{len(found)} compared, {len(differing)} differ")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
