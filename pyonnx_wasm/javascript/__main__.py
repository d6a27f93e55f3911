"""``python -m pyonnx_wasm.javascript OUT``: writes the compiler's modules as one script."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from .classes import decorators, field_list
from .homes import constants, registered
from .names import TranslationError
from .statements import Module

PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = ("onnxfile", "gguf", "ir", "tensor", "ops", "passes", "program", "gpu")
FILES = ("compiler", "source", "trace", "fold", "registry", "dtypes", "callbacks", "pictures", "pending")
#: What every compilation imports.
START = ("pyonnx_wasm.compiler", "pyonnx_wasm.program.file")


def sources() -> dict[str, Path]:
    """The compiler's modules by name, in the order in which packages are walked."""
    found = {f"pyonnx_wasm.{name}": PACKAGE / f"{name}.py" for name in FILES}
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            parts = path.relative_to(PACKAGE).with_suffix("").parts
            found[".".join(("pyonnx_wasm", *(p for p in parts if p != "__init__")))] = path
    return found


def closure(imports: Mapping[str, Iterable[str]], start: Iterable[str]) -> set[str]:
    """The modules that run when those of ``start`` are imported."""
    found: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name in imports and name not in found:
            found.add(name)
            waiting += [*imports[name], name.rpartition(".")[0]]
    return found


_HELPER = re.compile(r"(?:\.\.\.|(?<![.\w$\"]))(\$[A-Za-z]\w*)")


def translate(runtime: str) -> str:
    """The script: all modules, and the texts of the shaders."""
    trees = {name: (path, ast.parse(path.read_text())) for name, path in sources().items()}
    methods: set[str] = set()
    named: set[str] = set()
    fields: dict[str, list[ast.AnnAssign]] = {}
    for _, tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                named.update(k.arg for k in node.keywords if k.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                named.add(node.value)
            if isinstance(node, ast.ClassDef):
                if "dataclass" in decorators(node):
                    fields[node.name] = field_list(node)
                for s in node.body:
                    if isinstance(s, ast.FunctionDef) and not {"property", "cached_property"} & set(decorators(s)):
                        methods.add(s.name)
    homes, fixed = registered(), constants()
    made, imports, faults = {}, {}, []
    for name, (path, tree) in trees.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        try:
            module = Module(name, package, str(path.relative_to(PACKAGE.parent)), methods, named, fields)
            module.fixed = {function: text for (home, function), text in fixed.items() if home == name}
            made[name], imports[name] = module.translate(tree), module.imports
        except TranslationError as error:
            faults.append(str(error))
    if faults:
        raise SystemExit("\n".join(faults))
    wgsl = PACKAGE.parent / "kernels" / "wgsl"
    texts = {str(p.relative_to(wgsl)): re.sub(r"//[^\n]*", "", p.read_text()) for p in sorted(wgsl.rglob("*.wgsl"))}
    known = set(re.findall(r"\$\w+", (PACKAGE.parent / "js" / "compiler" / "runtime.ts").read_text()))
    always = closure(imports, START)
    # Engines compile a function in parentheses at once, others when they are first called, for which they read them twice.
    out = [f"{json.dumps(name)}: {f'({text})' if name in always else text}" for name, text in made.items()]
    helpers = sorted(known & set(_HELPER.findall(" ".join(out))))
    head = f"import {{ {', '.join(helpers)} }} from {json.dumps(runtime)};\n"
    inside = ",\n".join(out)
    tables = f"export const shaders = {json.dumps(texts)};\nexport const registered = {json.dumps(homes)};\n"
    return f"{head}export const modules = {{\n{inside}\n}};\n{tables}"


def main() -> None:
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(translate(sys.argv[2]))


if __name__ == "__main__":
    main()
