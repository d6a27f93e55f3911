"""``python -m pyonnx_wasm.javascript OUT``: writes the compiler's modules as one script."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

from .classes import decorators, field_list
from .names import TranslationError
from .statements import Module

PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = ("onnxfile", "ir", "tensor", "ops", "passes", "program", "gpu")
FILES = ("compiler", "trace", "fold", "registry", "dtypes", "callbacks", "pictures", "pending")


def sources() -> dict[str, Path]:
    """The compiler's modules by name, in the order in which packages are walked."""
    found = {f"pyonnx_wasm.{name}": PACKAGE / f"{name}.py" for name in FILES}
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            parts = path.relative_to(PACKAGE).with_suffix("").parts
            found[".".join(("pyonnx_wasm", *(p for p in parts if p != "__init__")))] = path
    return found


_HELPER = re.compile(r"(?:\.\.\.|(?<![.\w$\"]))(\$[A-Za-z]\w*)")


def translate(runtime: str) -> str:
    """The script: all modules, and the texts of the shaders."""
    trees = {name: (path, ast.parse(path.read_text())) for name, path in sources().items()}
    methods: set[str] = set()
    fields: dict[str, list[ast.AnnAssign]] = {}
    for _, tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                if "dataclass" in decorators(node):
                    fields[node.name] = field_list(node)
                for s in node.body:
                    if isinstance(s, ast.FunctionDef) and not {"property", "cached_property"} & set(decorators(s)):
                        methods.add(s.name)
    out, faults = [], []
    for name, (path, tree) in trees.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        try:
            module = Module(name, package, str(path.relative_to(PACKAGE.parent)), frozenset(methods), fields)
            out.append(f"{json.dumps(name)}: {module.translate(tree)}")
        except TranslationError as error:
            faults.append(str(error))
    if faults:
        raise SystemExit("\n".join(faults))
    wgsl = PACKAGE.parent / "kernels" / "wgsl"
    texts = {str(p.relative_to(wgsl)): p.read_text() for p in sorted(wgsl.rglob("*.wgsl"))}
    known = set(re.findall(r"\$\w+", (PACKAGE.parent / "js" / "compiler" / "runtime.ts").read_text()))
    helpers = sorted(known & set(_HELPER.findall(" ".join(out))))
    head = f"import {{ {', '.join(helpers)} }} from {json.dumps(runtime)};\n"
    inside = ",\n".join(out)
    return f"{head}export const modules = {{\n{inside}\n}};\nexport const shaders = {json.dumps(texts)};\n"


def main() -> None:
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(translate(sys.argv[2]))


if __name__ == "__main__":
    main()
