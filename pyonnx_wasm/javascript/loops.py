"""Loops within expressions, and what loops of statements share with them."""

from __future__ import annotations

import ast
from collections.abc import Callable

from .names import COMPREHENSIONS, Scope, TranslationError, local, names_in


class Loops:
    """Translates comprehensions. Rows are taken apart by index: destructuring would ask iterators, which take several times as long."""

    scope: Scope

    def expr(self, node: ast.AST) -> str:
        raise NotImplementedError

    def test(self, node: ast.expr) -> str:
        raise NotImplementedError

    def items(self, nodes: list[ast.expr]) -> str:
        raise NotImplementedError

    def fresh(self, prefix: str = "$t") -> str:
        raise NotImplementedError

    def fail(self, node: ast.AST, what: str) -> TranslationError:
        raise NotImplementedError

    @staticmethod
    def atomic(text: str) -> str:
        raise NotImplementedError

    def listed(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> str:
        simple = self.mapped(node)
        return simple or self.comprehension(node, lambda: f"$r.push({self.expr(node.elt)});", "const $r = [];", "$r")

    def mapped(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> str | None:
        """The short form of one loop over one name without conditions."""
        loop = node.generators[0]
        if len(node.generators) > 1 or loop.ifs or not isinstance(loop.target, ast.Name):
            return None
        over = self.expr(loop.iter)
        outer, self.scope = self.scope, Scope(dict.fromkeys(names_in(loop.target)), self.scope, function=False)
        body = self.expr(node.elt)
        self.scope = outer
        return f"$mapped({over}, ({local(loop.target.id)}) => {self.atomic(body) if not body.startswith('{') else f'({body})'})"

    def comprehension(self, node: ast.expr, inner: Callable[[], str], start: str, end: str, generator: bool = False) -> str:
        """Loops as a function that is called at once."""
        assert isinstance(node, COMPREHENSIONS)
        over = [self.expr(node.generators[0].iter)]
        outer = self.scope
        names = dict.fromkeys(n for loop in node.generators for n in names_in(loop.target))
        self.scope = Scope(names, outer, function=False)
        text, close = "", ""
        for k, loop in enumerate(node.generators):
            iterable = over[0] if k == 0 else self.expr(loop.iter)
            text += self.walk(loop.target, loop.iter, iterable)
            close += " }"
            for condition in loop.ifs:
                text += f"if (!{self.test(condition)}) continue; "
        text += inner()
        self.scope = outer
        head = "function* ()" if generator else "() =>"
        call = "$generator((" if generator else "("
        return f"{call}{head} {{ {start} {text}{close} {f'return {end};' if end else ''} }}){'())' if generator else '()'}"

    def walk(self, target: ast.expr, over: ast.expr, text: str) -> str:
        """The head of a loop of a comprehension over what ``text`` says, and the declaration of its names."""
        if isinstance(target, ast.Name):
            return f"for (const {local(target.id)} of $iter({text})) {{ "
        counted = self.counted(over, target)
        item = self.fresh("$e")
        if counted is None:
            return f"for (const {item} of {self.side_items(over, target) or f'$iter({text})'}) {{ {self.declared(target, item)}"
        index, inner, given, start = counted
        i = self.fresh("$i")
        first = self.declared(index, f"{i}++") if isinstance(index, ast.Name) and index.id == "_" else f"const {local(index.id)} = {i}++; "
        return f"let {i} = {start}; for (const {item} of $iter({given})) {{ {first}{self.declared(inner, item)}"

    def declared(self, target: ast.expr, value: str) -> str:
        """Declarations of a target's names."""
        if isinstance(target, ast.Name):
            return f"const {local(target.id)} = {value}; "
        if not isinstance(target, (ast.Tuple, ast.List)):
            raise self.fail(target, f"no translation of a target {type(target).__name__}")
        if any(isinstance(e, ast.Starred) for e in target.elts[:-1]):
            raise self.fail(target, "no translation of a starred name that is not the last")
        t, count = self.fresh("$u"), len(target.elts)
        starred = isinstance(target.elts[-1], ast.Starred)
        text = f"const {t} = {f'$iterlist({value})' if starred else f'$unpack({value}, {count})'}; "
        for k, e in enumerate(target.elts):
            if isinstance(e, ast.Starred):
                text += self.declared(e.value, f"{t}.slice({k})")
            elif not (isinstance(e, ast.Name) and e.id == "_"):
                text += self.declared(e, f"{t}[{k}]")
        return text

    def counted(self, over: ast.expr, target: ast.expr) -> tuple[ast.Name, ast.expr, str, str] | None:
        """Of a loop over ``enumerate`` with two targets: both, what is counted and from where."""
        if not (self.calls(over, "enumerate") and isinstance(target, ast.Tuple) and len(target.elts) == 2):
            return None
        assert isinstance(over, ast.Call)
        index, item = target.elts
        starts = [k.value for k in over.keywords] + over.args[1:]
        if not isinstance(index, ast.Name) or isinstance(item, ast.Starred) or isinstance(over.args[0], ast.Starred):
            return None
        return index, item, self.expr(over.args[0]), self.expr(starts[0]) if starts else "0"

    def side_items(self, over: ast.expr, target: ast.expr) -> str:
        """What a loop over ``zip`` runs over where it takes the tuples apart; "" for others."""
        if not (self.calls(over, "zip") and isinstance(target, ast.Tuple)) or not isinstance(over, ast.Call):
            return ""
        strict = [k.value for k in over.keywords if k.arg == "strict"]
        if any(isinstance(a, ast.Starred) for a in over.args) or len(over.keywords) != len(strict):
            return ""
        return f"$zipped([{self.items(over.args)}], {self.expr(strict[0]) if strict else 'false'})"

    def calls(self, node: ast.expr, name: str) -> bool:
        """Whether it calls the built-in function of this name."""
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name and not self.scope.finds(name)
