"""Classes: plain ones, data classes, named tuples, enumerations of integers and exceptions."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence

from .expressions import Expressions
from .names import local


def decorators(node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    """The names of its decorators."""
    return [ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]


def field_list(node: ast.ClassDef) -> list[ast.AnnAssign]:
    """The fields of a data class or a named tuple."""
    return [s for s in node.body if isinstance(s, ast.AnnAssign) and "ClassVar" not in ast.unparse(s.annotation)]


class Classes(Expressions):
    """Translates classes of a module."""

    fields: Mapping[str, Sequence[ast.AnnAssign]]

    def function(self, node: ast.FunctionDef, skip: int = 0, name: str | None = None, own: str = "") -> tuple[str, str]:
        raise NotImplementedError

    def assign(self, target: ast.expr, value: str) -> str:
        raise NotImplementedError

    def s_ClassDef(self, node: ast.ClassDef) -> str:
        bases = [self.expr(b) for b in node.bases if ast.unparse(b) not in ("NamedTuple", "enum.IntEnum")]
        kinds = [ast.unparse(b) for b in node.bases]
        options = {}
        for d in node.decorator_list:
            if isinstance(d, ast.Call) and ast.unparse(d.func) == "dataclass":
                options = {k.arg: ast.literal_eval(k.value) for k in d.keywords}
        name = local(node.name)
        outer = self.scope, self.class_scope, self.cls
        self.cls, self.class_scope = name, set()
        lines = [f"const $cls = {name};"]
        if "dataclass" in decorators(node) or "NamedTuple" in kinds:
            lines.append(self.fields_of(node, "NamedTuple" in kinds, options))
        enumeration = "enum.IntEnum" in kinds
        made_of_fields = "dataclass" in decorators(node) or "NamedTuple" in kinds
        for s in node.body:
            if not (made_of_fields and s in field_list(node)):
                lines.append(self.member(s, enumeration))
        self.scope, self.class_scope, self.cls = outer
        made = "$namedtuple" if "NamedTuple" in kinds else "$enum" if enumeration else "$class"
        text = f"{self.assigned(node.name)} = {made}({json.dumps(node.name)}, {bases[0] if bases else 'null'}, $m);\n"
        return text + "{\n" + "\n".join(line for line in lines if line) + "\n}"

    def member(self, s: ast.stmt, enumeration: bool) -> str:
        assert self.class_scope is not None
        if isinstance(s, ast.FunctionDef):
            return self.method(s)
        if isinstance(s, ast.Assign) or (isinstance(s, ast.AnnAssign) and s.value is not None):
            targets = s.targets if isinstance(s, ast.Assign) else [s.target]
            text = ""
            assert s.value is not None
            if ast.unparse(targets[0]) in ("__slots__", "__array_ufunc__") or (enumeration and ast.unparse(targets[0]) == "__hash__"):
                return ""
            value = self.expr(s.value)
            for target in targets:
                assert isinstance(target, ast.Name)
                self.class_scope.add(target.id)
                if enumeration and not target.id.startswith("_"):
                    text += f"$member($cls, {json.dumps(target.id)}, {value});"
                else:
                    text += f"$cls.${target.id} = $cls.prototype.${target.id} = {value};"
            return text
        return ""

    def method(self, node: ast.FunctionDef) -> str:
        assert self.class_scope is not None
        marks = decorators(node)
        self.class_scope.add(node.name)
        outer_class, self.class_scope = self.class_scope, None
        static = "staticmethod" in marks
        before, text = self.function(node, 0 if static else 1, own="$cls" if "classmethod" in marks else "")
        made = f"$sig({text}, {self.signature(node.args, node.name, 0 if static else 1)})"
        self.class_scope = outer_class
        key = f"${node.name}"
        if "property" in marks:
            return f"{before}$property($cls, {json.dumps(key)}, {text});"
        if "cached_property" in marks:
            return f"{before}$cached($cls, {json.dumps(key)}, {text});"
        if static or "classmethod" in marks:
            return f"{before}$cls.{key} = $cls.prototype.{key} = {made};"
        for decorator in reversed(node.decorator_list):
            made = f"$call({self.expr(decorator)}, {made})"
        return f"{before}$cls.prototype.{key} = {made};"

    def fields_of(self, node: ast.ClassDef, named: bool, options: Mapping[str | None, object]) -> str:
        """The constructor, and what equality, text and keys are made of."""
        every: list[ast.AnnAssign] = []
        for base in node.bases:
            every += self.fields.get(ast.unparse(base), [])
        every += field_list(node)
        names, head, given = [], [], []
        for f in every:
            assert isinstance(f.target, ast.Name)
            name = f.target.id
            names.append(name)
            default = self.field_default(f.value)
            head.append(local(name) + (f" = {default}" if default is not None else ""))
            if default is not None:
                given.append(name)
        row = {"name": node.name, "pos": ["self", *names], "skip": 1, "only": [], "defaults": len(given), "given": []}
        signature = self.told(row)
        if named:
            body = f"this.a = [{', '.join(map(local, names))}]; this.k = undefined;"
        else:
            body = " ".join(f"this.${n} = {local(n)};" for n in names)
            if any(isinstance(s, ast.FunctionDef) and s.name == "__post_init__" for s in node.body):
                body += " this.$__post_init__();"
        text = f"$cls.prototype.$__init__ = $sig(function ({', '.join(head)}) {{ {body} }}, {signature});"
        eq = bool(options.get("eq", True))
        text += f"\n$fields($cls, {json.dumps(names)}, {json.dumps(eq and not named)});"
        return text

    def field_default(self, value: ast.expr | None) -> str | None:
        if value is None:
            return None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field":
            for k in value.keywords:
                if k.arg == "default":
                    return self.in_class(k.value)
                if k.arg == "default_factory":
                    return f"$call({self.in_class(k.value)})"
            return None
        return self.in_class(value)

    def in_class(self, node: ast.expr) -> str:
        return self.expr(node)
