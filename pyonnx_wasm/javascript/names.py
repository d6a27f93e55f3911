"""Which names a scope binds, and how they are spelled in JavaScript."""

from __future__ import annotations

import ast
from collections.abc import Iterator

RESERVED = frozenset(
    [
        "abstract",
        "arguments",
        "await",
        "boolean",
        "byte",
        "case",
        "catch",
        "char",
        "class",
        "const",
        "continue",
        "debugger",
        "default",
        "delete",
        "do",
        "double",
        "else",
        "enum",
        "eval",
        "export",
        "extends",
        "false",
        "final",
        "finally",
        "float",
        "for",
        "function",
        "goto",
        "if",
        "implements",
        "import",
        "in",
        "instanceof",
        "int",
        "interface",
        "let",
        "long",
        "native",
        "new",
        "null",
        "package",
        "private",
        "protected",
        "public",
        "return",
        "short",
        "static",
        "super",
        "switch",
        "synchronized",
        "this",
        "throw",
        "throws",
        "transient",
        "true",
        "try",
        "typeof",
        "undefined",
        "var",
        "void",
        "volatile",
        "while",
        "with",
        "yield",
        "globalThis",
        "Infinity",
        "NaN",
    ]
)

#: Methods of built-in types that are passed on without a call: ``add = fields.append``.
BUILTIN_METHODS = frozenset("append get join index strip add extend pop update split isdigit setdefault upper lower tolist item".split())  # noqa: SIM905

Function = ast.FunctionDef | ast.Lambda
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class TranslationError(Exception):
    """What has no translation; the text names file and line."""


def local(name: str) -> str:
    """A variable's name."""
    return f"{name}_" if name in RESERVED else name


def names_in(target: ast.AST) -> Iterator[str]:
    """The names that a target binds."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from names_in(item)
    elif isinstance(target, ast.Starred):
        yield from names_in(target.value)


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of a scope, those within its own blocks too."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from statements(getattr(statement, field, []))
        for handler in getattr(statement, "handlers", []):
            yield from statements(handler.body)


def walrus(node: ast.AST) -> Iterator[str]:
    """The names that ``:=`` binds in an expression, not in the functions within."""
    if isinstance(node, (ast.Lambda, ast.FunctionDef, ast.ClassDef)):
        return
    if isinstance(node, ast.NamedExpr):
        yield from names_in(node.target)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            yield from walrus(child)


def bound(body: list[ast.stmt]) -> dict[str, None]:
    """The names that the statements of a scope bind, in order."""
    found: dict[str, None] = {}
    outer: set[str] = set()
    for s in statements(body):
        names: list[str] = []
        if isinstance(s, ast.Assign):
            names = [n for t in s.targets for n in names_in(t)]
        elif isinstance(s, (ast.AugAssign, ast.For)) or (isinstance(s, ast.AnnAssign) and s.value is not None):
            names = list(names_in(s.target))
        elif isinstance(s, (ast.FunctionDef, ast.ClassDef)):
            names = [s.name]
        elif isinstance(s, ast.With):
            names = [n for item in s.items if item.optional_vars for n in names_in(item.optional_vars)]
        elif isinstance(s, (ast.Import, ast.ImportFrom)):
            names = [(a.asname or a.name.split(".")[0]) for a in s.names]
        elif isinstance(s, ast.Try):
            names = [h.name for h in s.handlers if h.name]
        elif isinstance(s, (ast.Global, ast.Nonlocal)):
            outer.update(s.names)
        if isinstance(s, (ast.FunctionDef, ast.ClassDef)):
            for decorator in s.decorator_list:
                names += walrus(decorator)
        else:
            names += [n for child in ast.iter_child_nodes(s) if not isinstance(child, (ast.stmt, ast.ExceptHandler)) for n in walrus(child)]
        found.update(dict.fromkeys(names))
    return {name: None for name in found if name not in outer}


def parameters(args: ast.arguments) -> list[str]:
    """All of a function, in the order that the translation gives them."""
    found = [a.arg for a in (*args.posonlyargs, *args.args)]
    if args.vararg:
        return [*found, args.vararg.arg, *(a.arg for a in args.kwonlyargs), *([args.kwarg.arg] if args.kwarg else [])]
    return [*found, *(a.arg for a in args.kwonlyargs), *([args.kwarg.arg] if args.kwarg else [])]


def is_generator(node: ast.FunctionDef) -> bool:
    """Whether a function yields."""
    stack: list[ast.AST] = list(node.body)
    while stack:
        item = stack.pop()
        if isinstance(item, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(item, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            stack.extend(ast.iter_child_nodes(item))
    return False


class Scope:
    """A function, a comprehension or the module: what it binds, and the temporaries that it needs."""

    def __init__(self, names: dict[str, None], outer: Scope | None, function: bool = True) -> None:
        self.names, self.outer, self.function = names, outer, function
        self.temporaries: list[str] = []
        self.kind: dict[str, str] = {}

    def finds(self, name: str) -> Scope | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope
            scope = scope.outer
        return None
