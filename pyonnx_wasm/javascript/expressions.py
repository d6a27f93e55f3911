"""Expressions."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Set
from typing import Any

from .loops import Loops
from .names import BUILTIN_METHODS, Scope, TranslationError, local, parameters, walrus

BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.Pow: "pow",
    ast.LShift: "shl", ast.RShift: "shr", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.MatMult: "matmul",
}  # fmt: skip
_COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.In: "in", ast.NotIn: "notin"}
_BUILTINS = frozenset(
    [
        "len",
        "isinstance",
        "range",
        "list",
        "tuple",
        "zip",
        "enumerate",
        "int",
        "any",
        "bool",
        "all",
        "max",
        "next",
        "set",
        "map",
        "float",
        "str",
        "sum",
        "dict",
        "frozenset",
        "reversed",
        "iter",
        "min",
        "abs",
        "sorted",
        "type",
        "id",
        "ord",
        "super",
        "chr",
        "getattr",
        "hasattr",
        "setattr",
        "memoryview",
        "slice",
        "bytes",
        "bytearray",
        "filter",
        "callable",
        "object",
        "open",
        "divmod",
        "hash",
        "repr",
        "vars",
        "pow",
        "round",
        "print",
        "Exception",
        "ValueError",
        "TypeError",
        "KeyError",
        "IndexError",
        "AttributeError",
        "RuntimeError",
        "NotImplementedError",
        "OSError",
        "AssertionError",
        "ZeroDivisionError",
        "OverflowError",
        "ImportError",
        "UnicodeDecodeError",
        "UnicodeEncodeError",
        "RuntimeWarning",
        "BufferError",
        "FileNotFoundError",
        "ArithmeticError",
        "LookupError",
        "MemoryError",
        "StopIteration",
        "RecursionError",
        "NotImplemented",
        "UserWarning",
    ]
)
_SURE = ("$eq(", "$ne(", "$lt(", "$le(", "$gt(", "$ge(", "$in(", "$notin(", "$not(", "$isinstance(", "$isint(", "$any(", "$all(", "!")


class Expressions(Loops):
    """Translates expressions of a module."""

    file: str
    scope: Scope
    module_scope: Scope
    methods: Set[str]
    named: Set[str]
    class_scope: set[str] | None
    cls: str

    def __init__(self) -> None:
        self.constants: dict[str, str] = {}
        self.counter = 0

    def fail(self, node: ast.AST, what: str) -> TranslationError:
        return TranslationError(f"{self.file}:{getattr(node, 'lineno', 0)}: {what}")

    def fresh(self, prefix: str = "$t") -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def temporary(self) -> str:
        """A variable of the function around."""
        name = self.fresh()
        scope = self.scope
        while not scope.function and scope.outer is not None:
            scope = scope.outer
        scope.temporaries.append(name)
        return name

    def constant_of(self, text: str) -> str:
        """A constant of the module, made once."""
        return self.constants.setdefault(text, f"$c{len(self.constants)}")

    def expr(self, node: ast.AST) -> str:
        method = getattr(self, f"x_{type(node).__name__}", None)
        if method is None:
            raise self.fail(node, f"no translation of {type(node).__name__}")
        return str(method(node))

    def test(self, node: ast.expr) -> str:
        """An expression whose truth alone matters."""
        if isinstance(node, ast.BoolOp):
            joint = " && " if isinstance(node.op, ast.And) else " || "
            return f"({joint.join(self.test(v) for v in node.values)})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"!{self.test(node.operand)}"
        text = self.expr(node)
        if text.startswith(_SURE) or isinstance(node, ast.Compare) or text in ("true", "false"):
            return f"({text})"
        return f"$truth({text})"

    def x_Constant(self, node: ast.Constant) -> str:
        value = node.value
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        if isinstance(value, str):
            return json.dumps(value)
        if isinstance(value, int):
            return str(value) if abs(value) < 1 << 53 else f"{value}n"
        if isinstance(value, float):
            return self.constant_of(f"new $Float({value!r})")
        if isinstance(value, bytes):
            return self.constant_of(f"$latin1({json.dumps(value.decode('latin1'))})")
        if value is ...:
            return "$Ellipsis"
        raise self.fail(node, f"no translation of the constant {value!r}")

    def x_Name(self, node: ast.Name) -> str:
        name = node.id
        if self.class_scope is not None and name in self.class_scope:
            return f"$cls.prototype.${name}"
        if self.scope.finds(name):
            return local(name)
        if name in ("__name__", "__file__", "__path__", "__package__"):
            return f"$m.${name}"
        if name in _BUILTINS:
            return "$iterator" if name == "iter" else f"${name}"
        raise self.fail(node, f"unknown name {name!r}")

    def x_Attribute(self, node: ast.Attribute) -> str:
        target = self.expr(node.value)
        if node.attr in self.methods or node.attr in BUILTIN_METHODS or node.attr.startswith("__"):
            if isinstance(node.value, ast.Name):
                return f'$value({target}.${node.attr}, {target}, "${node.attr}")'
            return f'$attr({target}, "${node.attr}")'
        return f"{self.atomic(target)}.${node.attr}"

    @staticmethod
    def atomic(text: str) -> str:
        return f"({text})" if text[:1].isdigit() or text[:1] in "-!" or text.startswith(("new ", "await ", "async ", "function")) else text

    def items(self, nodes: list[ast.expr]) -> str:
        """A JavaScript list's inside."""
        return ", ".join(f"...$iter({self.expr(n.value)})" if isinstance(n, ast.Starred) else self.expr(n) for n in nodes)

    def x_Tuple(self, node: ast.Tuple) -> str:
        return f"new $Tuple([{self.items(node.elts)}])"

    def x_List(self, node: ast.List) -> str:
        return f"[{self.items(node.elts)}]"

    def x_Set(self, node: ast.Set) -> str:
        return f"new $Set([{self.items(node.elts)}])"

    def x_Dict(self, node: ast.Dict) -> str:
        if not node.keys:
            return "new $Dict()"
        if all(node.keys):
            pairs = ", ".join(f"{self.expr(k)}, {self.expr(v)}" for k, v in zip(node.keys, node.values, strict=True) if k)
            return f"$dictwith([{pairs}])"
        pairs = ", ".join(
            f"[{self.expr(k)}, {self.expr(v)}]" if k else f"...$pairs({self.expr(v)})" for k, v in zip(node.keys, node.values, strict=True)
        )
        return f"$dictof([{pairs}])"

    def x_BinOp(self, node: ast.BinOp) -> str:
        return f"${BINARY[type(node.op)]}({self.expr(node.left)}, {self.expr(node.right)})"

    def x_UnaryOp(self, node: ast.UnaryOp) -> str:
        if isinstance(node.op, ast.Not):
            return f"!{self.test(node.operand)}"
        if isinstance(node.op, ast.USub):
            if isinstance(node.operand, ast.Constant) and type(node.operand.value) is int:
                return f"-{self.expr(node.operand)}" if node.operand.value else "0"
            if isinstance(node.operand, ast.Constant) and isinstance(node.operand.value, float):
                return self.constant_of(f"new $Float(-{node.operand.value!r})")
            return f"$neg({self.expr(node.operand)})"
        return f"$invert({self.expr(node.operand)})" if isinstance(node.op, ast.Invert) else f"$pos({self.expr(node.operand)})"

    def x_BoolOp(self, node: ast.BoolOp) -> str:
        text = self.expr(node.values[-1])
        for value in reversed(node.values[:-1]):
            first = self.expr(value)
            if isinstance(value, ast.Compare) or first.startswith(("!", "$isinstance(", "$isint(")):
                text = f"(({first}) {'&&' if isinstance(node.op, ast.And) else '||'} {text})"
                continue
            t = self.temporary()
            text = f"($truth({t} = {first}) ? {text} : {t})" if isinstance(node.op, ast.And) else f"($truth({t} = {first}) ? {t} : {text})"
        return text

    def x_IfExp(self, node: ast.IfExp) -> str:
        return f"({self.test(node.test)} ? {self.expr(node.body)} : {self.expr(node.orelse)})"

    def compare(self, op: ast.cmpop, left: str, right: str, plain: bool) -> str:
        if isinstance(op, ast.Is):
            return f"{left} === {right}"
        if isinstance(op, ast.IsNot):
            return f"{left} !== {right}"
        if plain and isinstance(op, (ast.Eq, ast.NotEq)):
            return f"{left} {'===' if isinstance(op, ast.Eq) else '!=='} {right}"
        return f"${_COMPARE[type(op)]}({left}, {right})"

    def x_Compare(self, node: ast.Compare) -> str:
        def plain(*sides: ast.expr) -> bool:
            return any(isinstance(s, ast.Constant) and isinstance(s.value, str) for s in sides)

        if len(node.ops) == 1:
            right = node.comparators[0]
            return f"({self.compare(node.ops[0], self.expr(node.left), self.expr(right), plain(node.left, right))})"
        parts, left, before = [], self.expr(node.left), node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            text = self.expr(right)
            if right is not node.comparators[-1] and not isinstance(right, (ast.Name, ast.Constant)):
                t = self.temporary()
                parts.append(self.compare(op, left, f"({t} = {text})", plain(before, right)))
                text = t
            else:
                parts.append(self.compare(op, left, text, plain(before, right)))
            left, before = text, right
        return f"({' && '.join(parts)})"

    def x_NamedExpr(self, node: ast.NamedExpr) -> str:
        return f"({self.assigned(node.target.id)} = {self.expr(node.value)})"

    def assigned(self, name: str) -> str:
        """What an assignment to a name assigns to."""
        if self.scope.finds(name) is self.module_scope:
            return f"{local(name)} = $m.${name}"
        return local(name)

    def x_Subscript(self, node: ast.Subscript) -> str:
        target = self.expr(node.value)
        if isinstance(node.slice, ast.Slice):
            return f"$cut({target}, {self.bounds(node.slice)})"
        return f"$get({target}, {self.index(node.slice)})"

    def bounds(self, node: ast.Slice) -> str:
        return ", ".join("null" if part is None else self.expr(part) for part in (node.lower, node.upper, node.step))

    def index(self, node: ast.expr) -> str:
        if isinstance(node, ast.Tuple) and any(isinstance(e, ast.Slice) for e in node.elts):
            return f"new $Tuple([{', '.join(self.index(e) for e in node.elts)}])"
        return f"new $Slice({self.bounds(node)})" if isinstance(node, ast.Slice) else self.expr(node)

    def x_Lambda(self, node: ast.Lambda) -> str:
        outer, self.scope = self.scope, Scope(dict.fromkeys([*parameters(node.args), *walrus(node.body)]), self.scope)
        self.scope.temporaries += [local(n) for n in dict.fromkeys(walrus(node.body))]
        body = self.expr(node.body)
        scope, self.scope = self.scope, outer
        before, head, first = self.head(node.args)
        declared = f"let {', '.join(scope.temporaries)}; " if scope.temporaries else ""
        inner = f"({head}) => {{ {declared}{first} return {body}; }}" if declared or first else f"({head}) => ({body})"
        signed = f"$sig({inner}, {self.signature(node.args, '<lambda>')})" if node.args.defaults or node.args.kwonlyargs else f"({inner})"
        return f"(() => {{ {before} return {signed}; }})()" if before else signed

    def head(self, args: ast.arguments, skip: int = 0) -> tuple[str, str, str]:
        """What goes before a function, its parameters, and what its body begins with."""
        before: list[str] = []
        names, first = [], []
        listed = [*args.posonlyargs, *args.args]
        defaults: dict[str, str] = {}
        for arg, default in zip(listed[len(listed) - len(args.defaults) :], args.defaults, strict=True):
            defaults[arg.arg] = self.default(default, before)
        for arg, given in zip(args.kwonlyargs, args.kw_defaults, strict=True):
            if given is not None:
                defaults[arg.arg] = self.default(given, before)
        for arg in listed[skip:]:
            names.append(local(arg.arg) + (f" = {defaults[arg.arg]}" if arg.arg in defaults else ""))
        only = [(local(a.arg), a.arg, defaults.get(a.arg)) for a in args.kwonlyargs]
        if args.vararg:
            rest = local(args.vararg.arg)
            names.append(f"...{rest}")
            if only or args.kwarg:
                first.append(f"const $k = $keywords({rest});")
                first += [f'let {name} = "{key}" in $k ? $k.{key} : {default or "null"};' for name, key, default in only]
                if args.kwarg:
                    first.append(f"let {local(args.kwarg.arg)} = $others($k, {json.dumps([k for _, k, _ in only])});")
            first.append(f"{rest} = new $Tuple({rest});")
        else:
            names += [name + (f" = {default}" if default else "") for name, _, default in only]
            if args.kwarg:
                names.append(f"{local(args.kwarg.arg)} = new $Dict()")
        return " ".join(before), ", ".join(names), " ".join(first)

    def default(self, node: ast.expr, before: list[str]) -> str:
        """A default: as it stands where it is a constant, else computed when the function is made."""
        text = self.expr(node)
        if isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)):
            return text
        name = self.fresh("$d")
        before.append(f"const {name} = {text};")
        return name

    def signature(self, args: ast.arguments, name: str, skip: int = 0, annotated: bool = False) -> str:
        """What the run time knows of a function, made once."""
        listed = [a.arg for a in (*args.posonlyargs, *args.args)]
        row: dict[str, Any] = {
            "name": name,
            "pos": listed,
            "skip": skip,
            "only": [a.arg for a in args.kwonlyargs],
            "defaults": len(args.defaults),
        }
        row["given"] = [a.arg for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None]
        if args.vararg:
            row["rest"] = args.vararg.arg
        if args.kwarg:
            row["others"] = args.kwarg.arg
        if not (annotated or args.vararg or args.kwarg or self.named & {*listed[skip:], *row["only"]}):
            return self.constant_of(json.dumps({"name": name}))
        if annotated:
            every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *([args.vararg] if args.vararg else [])]
            row["kinds"] = {a.arg: ast.unparse(a.annotation) for a in every if a.annotation is not None}
        return self.told(row)

    def told(self, row: Mapping[str, object]) -> str:
        """A signature, without what says nothing."""
        return self.constant_of(json.dumps({key: value for key, value in row.items() if value}))

    def x_Call(self, node: ast.Call) -> str:
        special = self.special(node)
        if special is not None:
            return special
        function, arguments = node.func, self.items(node.args)
        named = ", ".join(f"{json.dumps(k.arg)}: {self.expr(k.value)}" for k in node.keywords if k.arg)
        spread = [self.expr(k.value) for k in node.keywords if not k.arg]
        given = f"$spread({{{named}}}, {', '.join(spread)})" if spread else f"{{{named}}}"
        if isinstance(function, ast.Attribute):
            target = self.expr(function.value)
            if node.keywords:
                return f'$callm({target}, "${function.attr}", [{arguments}], {given})'
            return f"{self.atomic(target)}.${function.attr}({arguments})"
        target = self.expr(function)
        if node.keywords:
            return f"$callk({target}, [{arguments}], {given})"
        if isinstance(function, ast.Name) and (found := self.scope.finds(function.id)) is not None:
            if found is self.module_scope and function.id not in self.callable_values:
                return f"{target}({arguments})"
            if found is not self.module_scope and found.kind.get(function.id) == "function":
                return f"{target}({arguments})"
        elif isinstance(function, ast.Name):
            return f"{target}({arguments})"
        return f"$call({target}{', ' if arguments else ''}{arguments})"

    callable_values: frozenset[str] = frozenset()

    def special(self, node: ast.Call) -> str | None:
        """Calls of built-in functions that have a shorter way."""
        if isinstance(node.func, ast.Attribute):
            inner = node.func.value
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "super":
                arguments = self.items(node.args)
                return f"{self.cls}.base.prototype.${node.func.attr}.call(self{', ' if arguments else ''}{arguments})"
            return None
        if not isinstance(node.func, ast.Name) or self.scope.finds(node.func.id):
            return None
        name, args = node.func.id, node.args
        if name == "isinstance" and isinstance(args[1], ast.Name) and args[1].id == "int" and not self.scope.finds("int"):
            return f"$isint({self.expr(args[0])})"
        if name in ("any", "all") and len(args) == 1 and isinstance(args[0], ast.GeneratorExp):
            comp = args[0]
            stop = "true" if name == "any" else "false"
            return self.comprehension(
                comp, lambda: f"if ({'' if name == 'any' else '!'}{self.test(comp.elt)}) return {stop};", "", "!" + stop
            )
        eager = ("tuple", "list", "set", "frozenset", "sorted", "sum", "max", "min", "dict")
        if name in eager and len(args) == 1 and isinstance(args[0], ast.GeneratorExp) and not node.keywords:
            text = self.listed(args[0])
            return text if name == "list" else f"new $Tuple({text})" if name == "tuple" else f"${name}({text})"
        if name == "globals":
            raise self.fail(node, "no translation of globals")
        return None

    def x_ListComp(self, node: ast.ListComp) -> str:
        return self.listed(node)

    def x_SetComp(self, node: ast.SetComp) -> str:
        return f"new $Set({self.listed(node)})"

    def x_DictComp(self, node: ast.DictComp) -> str:
        return self.comprehension(node, lambda: f"$r.set({self.expr(node.key)}, {self.expr(node.value)});", "const $r = new $Dict();", "$r")

    def x_GeneratorExp(self, node: ast.GeneratorExp) -> str:
        return self.comprehension(node, lambda: f"yield {self.expr(node.elt)};", "", "", True)

    def x_Yield(self, node: ast.Yield) -> str:
        return f"(yield {self.expr(node.value) if node.value else 'null'})"

    def x_YieldFrom(self, node: ast.YieldFrom) -> str:
        return f"(yield* $iter({self.expr(node.value)}))"

    def x_Starred(self, node: ast.Starred) -> str:
        return f"...$iter({self.expr(node.value)})"

    def x_JoinedStr(self, node: ast.JoinedStr) -> str:
        text = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += json.dumps(part.value)[1:-1].replace("`", "\\`").replace("${", "\\${").replace('\\"', '"')
            elif isinstance(part, ast.FormattedValue):
                text += f"${{{self.formatted(part)}}}"
        return f"`{text}`"

    def formatted(self, node: ast.FormattedValue) -> str:
        value = self.expr(node.value)
        if node.conversion == ord("r"):
            value = f"$repr({value})"
        if node.format_spec is not None:
            return f"$format({value}, {self.expr(node.format_spec)})"
        return value if node.conversion == ord("r") else f"$str({value})"
