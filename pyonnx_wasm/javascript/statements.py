"""Statements, functions, classes and modules."""

from __future__ import annotations

import ast
import json
import struct
from collections.abc import Mapping, Sequence, Set

from .classes import Classes
from .expressions import BINARY
from .names import Scope, bound, is_generator, local, parameters, statements

_TYPES = ("typing", "collections.abc", "numpy.typing", "__future__", "types")


class Module(Classes):
    """One module.

    Args:
        name, package: as Python imports it; the package that relative imports start from.
        methods: names of all methods of all modules.
        named: all words that a call could give an argument by.
        fields: of all data classes, by name.
    """

    def __init__(
        self,
        name: str,
        package: str,
        file: str,
        methods: Set[str],
        named: Set[str],
        fields: Mapping[str, Sequence[ast.AnnAssign]],
    ) -> None:
        super().__init__()
        self.name, self.package, self.file, self.methods, self.named, self.fields = name, package, file, methods, named, fields
        self.class_scope, self.cls = None, ""
        self.fixed: Mapping[str, str] = {}  # functions that always say the same, and what
        self.broken: list[str] = []  # of each loop around: what says that it was left
        self.imports: set[str] = set()  # what its own statements import, or may

    def translate(self, tree: ast.Module) -> str:
        """The function that runs the module."""
        names = bound(tree.body)
        self.scope = self.module_scope = Scope(names, None)
        made = [n for s in tree.body if isinstance(s, (ast.Assign, ast.AnnAssign)) for n in bound([s])]
        kernels = [a for s in statements(tree.body) if isinstance(s, ast.ImportFrom) for a in s.names if a.name.isupper()]
        self.callable_values = frozenset([*made, *(a.asname or a.name for a in kernels)])
        body = self.block(tree.body)
        declared = [local(n) for n in names] + self.scope.temporaries
        constants = "".join(f"const {name} = {text};\n" for text, name in self.constants.items())
        head = f"let {', '.join(declared)};" if declared else ""
        return f"function ($m) {{\n{constants}{head}\n{body}}}"

    def block(self, body: Sequence[ast.stmt]) -> str:
        return "".join(self.statement(s) for s in body)

    def statement(self, node: ast.stmt) -> str:
        method = getattr(self, f"s_{type(node).__name__}", None)
        if method is None:
            raise self.fail(node, f"no translation of {type(node).__name__}")
        text = str(method(node))
        return text + "\n" if text else ""

    def s_Expr(self, node: ast.Expr) -> str:
        return "" if isinstance(node.value, ast.Constant) else f"{self.expr(node.value)};"

    def s_Pass(self, node: ast.Pass) -> str:
        return ""

    def s_Break(self, node: ast.Break) -> str:
        return f"{{ {self.broken[-1]} = true; break; }}" if self.broken and self.broken[-1] else "break;"

    def s_Continue(self, node: ast.Continue) -> str:
        return "continue;"

    def s_Global(self, node: ast.Global | ast.Nonlocal) -> str:
        return ""

    s_Nonlocal = s_Global

    def s_Return(self, node: ast.Return) -> str:
        return f"return {self.expr(node.value) if node.value else 'null'};"

    def s_Assert(self, node: ast.Assert) -> str:
        message = self.expr(node.msg) if node.msg else '""'
        return f"if (!{self.test(node.test)}) throw $AssertionError({message});"

    def s_Raise(self, node: ast.Raise) -> str:
        if node.exc is None:
            return "throw $caught;"
        text = self.expr(node.exc)
        return f"throw {text};" if isinstance(node.exc, ast.Call) else f"throw $raised({text});"

    def s_Assign(self, node: ast.Assign) -> str:
        if len(node.targets) == 1:
            return self.side_by_side(node.targets[0], node.value) or self.assign(node.targets[0], self.expr(node.value))
        t = self.temporary()
        return f"{t} = {self.expr(node.value)};" + "".join(self.assign(target, t) for target in node.targets)

    def side_by_side(self, target: ast.expr, value: ast.expr) -> str:
        """``a, b = x, y``: without a tuple between; "" for another statement."""
        if not (isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List))):
            return ""
        if len(target.elts) != len(value.elts) or any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts)):
            return ""
        if not any(self.seen_by(e, value.elts[k + 1 :]) for k, e in enumerate(target.elts)):
            return " ".join(self.assign(t, self.expr(e)) for t, e in zip(target.elts, value.elts, strict=True))
        held = [self.temporary() for _ in value.elts]
        text = "".join(f"{t} = {self.expr(e)}; " for t, e in zip(held, value.elts, strict=True))
        return text + " ".join(self.assign(e, t) for e, t in zip(target.elts, held, strict=True))

    @staticmethod
    def seen_by(target: ast.expr, later: Sequence[ast.expr]) -> bool:
        """Whether an assignment to a target could change what later expressions give."""
        inner = [part for e in later for part in ast.walk(e)]
        if not isinstance(target, ast.Name):
            return bool(inner)
        return any(isinstance(part, (ast.Call, ast.Await)) or (isinstance(part, ast.Name) and part.id == target.id) for part in inner)

    def s_AnnAssign(self, node: ast.AnnAssign) -> str:
        if node.value is None:
            return ""
        if ast.unparse(node.annotation) == "TypeAlias":
            return self.assign(node.target, "$typing")
        return self.assign(node.target, self.expr(node.value))

    def assign(self, target: ast.expr, value: str) -> str:
        if isinstance(target, ast.Name):
            return f"{self.assigned(target.id)} = {value};"
        if isinstance(target, ast.Attribute):
            return f"{self.atomic(self.expr(target.value))}.${target.attr} = {value};"
        if isinstance(target, ast.Subscript):
            into = self.expr(target.value)
            if isinstance(target.slice, ast.Slice):
                return f"$setslice({into}, {self.bounds(target.slice)}, {value});"
            return f"$put({into}, {self.index(target.slice)}, {value});"
        if isinstance(target, (ast.Tuple, ast.List)):
            t = self.temporary()
            starred = [k for k, e in enumerate(target.elts) if isinstance(e, ast.Starred)]
            if not starred:
                parts = "".join(self.assign(e, f"{t}[{k}]") for k, e in enumerate(target.elts))
                return f"{t} = $unpack({value}, {len(target.elts)}); {parts}"
            at, after = starred[0], len(target.elts) - starred[0] - 1
            text = f"{t} = $iterlist({value});"
            for k, e in enumerate(target.elts):
                if isinstance(e, ast.Starred):
                    text += self.assign(e.value, f"{t}.slice({at}, {t}.length - {after})")
                else:
                    text += self.assign(e, f"{t}[{k}]" if k < at else f"{t}[{t}.length - {len(target.elts) - k}]")
            return text
        raise self.fail(target, f"no translation of a target {type(target).__name__}")

    def s_AugAssign(self, node: ast.AugAssign) -> str:
        value = self.expr(node.value)
        function = f"$i{BINARY[type(node.op)]}"
        target = node.target
        if isinstance(target, ast.Name):
            return f"{self.assigned(target.id)} = {function}({local(target.id)}, {value});"
        if isinstance(target, ast.Attribute):
            t = self.temporary()
            return f"{t} = {self.expr(target.value)}; {t}.${target.attr} = {function}({t}.${target.attr}, {value});"
        assert isinstance(target, ast.Subscript)
        t, k = self.temporary(), self.temporary()
        return f"{t} = {self.expr(target.value)}; {k} = {self.index(target.slice)}; $put({t}, {k}, {function}($get({t}, {k}), {value}));"

    def s_Delete(self, node: ast.Delete) -> str:
        text = ""
        for target in node.targets:
            if not isinstance(target, ast.Subscript):
                raise self.fail(node, "no translation of del of a name")
            if isinstance(target.slice, ast.Slice):
                text += f"$setslice({self.expr(target.value)}, {self.bounds(target.slice)}, []);"
            else:
                text += f"$delete({self.expr(target.value)}, {self.index(target.slice)});"
        return text

    def s_If(self, node: ast.If) -> str:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return self.block(node.orelse)
        text = f"if ({self.test(node.test)}) {{\n{self.block(node.body)}}}"
        if node.orelse:
            text += f" else {{\n{self.block(node.orelse)}}}"
        return text

    def looped(self, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], head: str, first: str = "") -> str:
        flag = self.temporary() if orelse else ""
        self.broken = [*self.broken, flag]
        text = f"{head} {{\n{first}{self.block(body)}}}"
        self.broken = self.broken[:-1]
        return f"{flag} = false;\n{text}\nif (!{flag}) {{\n{self.block(orelse)}}}" if orelse else text

    def s_While(self, node: ast.While) -> str:
        return self.looped(node.body, node.orelse, f"while ({self.test(node.test)})")

    def s_For(self, node: ast.For) -> str:
        over = f"$iter({self.expr(node.iter)})"
        target = node.target
        if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) and node.iter.func.id == "range":
            over = self.expr(node.iter)
        if isinstance(target, ast.Name) and self.scope.finds(target.id) is not self.module_scope:
            return self.looped(node.body, node.orelse, f"for ({local(target.id)} of {over})")
        if (counted := self.counted(node.iter, target)) is not None:
            index, item, inner, start = counted
            i, t = self.temporary(), self.temporary()
            first = f"{self.assign(index, f'{i}++')} {self.assign(item, t)}\n"
            return f"{i} = {start};\n" + self.looped(node.body, node.orelse, f"for ({t} of $iter({inner}))", first)
        over = self.side_items(node.iter, target) or over
        t = self.temporary()
        return self.looped(node.body, node.orelse, f"for ({t} of {over})", self.assign(target, t) + "\n")

    def s_With(self, node: ast.With) -> str:
        text, close = "", ""
        for item in node.items:
            w, done = self.fresh("$w"), self.fresh("$o")
            text += f"{{ const {w} = {self.expr(item.context_expr)}; let {done} = true;\n"
            entered = f"{w}.$__enter__()"
            text += f"{self.assign(item.optional_vars, entered) if item.optional_vars else entered + ';'}\ntry {{\n"
            close = (
                f"}} catch ($e) {{ {done} = false; if (!$truth({w}.$__exit__($type($e), $e, null))) throw $e; }}"
                f" finally {{ if ({done}) {w}.$__exit__(null, null, null); }} }}{close}"
            )
        return f"{text}{self.block(node.body)}{close}"

    def s_Try(self, node: ast.Try) -> str:
        if node.orelse:
            ok = self.temporary()
            body = f"{ok} = false;\n{self.block(node.body)}{ok} = true;\n"
            rest = f"if ({ok}) {{\n{self.block(node.orelse)}}}\n"
        else:
            body, rest = self.block(node.body), ""
        text = f"try {{\n{body}}}"
        if node.handlers:
            caught = "$caught"
            text += f" catch ({caught}) {{\n{caught} = $exception({caught});\n"
            for k, handler in enumerate(node.handlers):
                test = f"$isinstance({caught}, {self.expr(handler.type)})" if handler.type else "true"
                named = f"{self.assigned(handler.name)} = {caught};\n" if handler.name else ""
                text += f"{'else ' if k else ''}if ({test}) {{\n{named}{self.block(handler.body)}}} "
            text += f"else throw {caught};\n}}"
        if node.finalbody:
            text += f" finally {{\n{self.block(node.finalbody)}}}"
        return f"{text}\n{rest}"

    def s_Import(self, node: ast.Import) -> str:
        text = ""
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            if alias.name in _TYPES:
                text += f"{self.assigned(name)} = $typing;"
                continue
            whole = alias.name if alias.asname else alias.name.split(".")[0]
            text += f"{self.assigned(name)} = $import({json.dumps(whole)});"
        return text

    def s_ImportFrom(self, node: ast.ImportFrom) -> str:
        if node.module in _TYPES and not node.level:
            return "".join(f"{self.assigned(a.asname or a.name)} = $typing;" for a in node.names if node.module != "__future__")
        whole = node.module or ""
        if node.level:
            parts = self.package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1])
            whole = f"{base}.{whole}" if whole else base
        if self.scope is self.module_scope:
            self.imports.update((whole, *(f"{whole}.{a.name}" for a in node.names)))
        return "".join(f"{self.assigned(a.asname or a.name)} = $from({json.dumps(whole)}, {json.dumps(a.name)});" for a in node.names)

    def function(self, node: ast.FunctionDef, skip: int = 0, name: str | None = None, own: str = "") -> tuple[str, str]:
        """(what goes before, the function)."""
        every = parameters(node.args)
        before, head, first = self.head(node.args, skip)
        names = bound(node.body)
        outer, outer_class, broken = self.scope, self.class_scope, self.broken
        self.scope, self.class_scope, self.broken = Scope(dict.fromkeys([*every, *names]), outer), None, []
        for s in statements(node.body):
            if isinstance(s, ast.FunctionDef) and not s.decorator_list:
                self.scope.kind[s.name] = "function"
        body = self.block(node.body)
        declared = [local(n) for n in names if n not in every] + self.scope.temporaries
        self.scope, self.class_scope, self.broken = outer, outer_class, broken
        text = f"let {', '.join(declared)};\n" if declared else ""
        if skip and node.args.args:
            text = f"let {local(node.args.args[0].arg)} = {own or 'this'};\n" + text
        if first:
            text += first + "\n"
        generator = is_generator(node)
        ends = node.body and isinstance(node.body[-1], (ast.Return, ast.Raise))
        body = body if ends or generator else f"{body}return null;\n"
        if generator:
            # A function of its own, so that arguments are taken when it is called.
            inner = f"return $generator((function* () {{\n{body}}}).call(this));\n"
            return before, f"function ({head}) {{\n{text}{inner}}}"
        return before, f"function ({head}) {{\n{text}{body}}}"

    def s_FunctionDef(self, node: ast.FunctionDef) -> str:
        if self.scope is self.module_scope and node.name in self.fixed:
            return f"{self.assigned(node.name)} = () => {json.dumps(self.fixed[node.name])};"
        annotated = any(isinstance(d, ast.Call) and isinstance(d.func, ast.Name) and d.func.id == "op" for d in node.decorator_list)
        if annotated:
            self.round(node.args)
        before, text = self.function(node)
        annotated = annotated or (self.name.startswith("pyonnx_wasm.ops") and self.scope is self.module_scope)
        home = ", $m" if self.scope is self.module_scope else ""
        made = f"$sig({text}, {self.signature(node.args, node.name, 0, annotated)}{home})"
        for decorator in reversed(node.decorator_list):
            made = f"$call({self.expr(decorator)}, {made})"
        return f"{before}{self.assigned(node.name)} = {made};"

    @staticmethod
    def round(args: ast.arguments) -> None:
        """Attributes are float32; so are their defaults."""
        for default in args.kw_defaults:
            for part in ast.walk(default) if default is not None else ():
                if isinstance(part, ast.Constant) and isinstance(part.value, float) and default is part:
                    part.value = single(part.value)


def single(value: float) -> float:
    """A number as float32 holds it."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
