"""Reading the text form of symbolic dimensions: Python arithmetic, names that are no identifiers in single quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .dims import DimLike, ceildiv, dmax, dmin, eq, ge, gt, le, lt, ne, select, sym

_FUNCTIONS: dict[str, Callable[..., DimLike]] = {"min": dmin, "max": dmax, "ceildiv": ceildiv, "select": select}
_COMPARE: dict[str, Callable[[DimLike, DimLike], DimLike]] = {"==": eq, "!=": ne, "<=": le, ">=": ge, "<": lt, ">": gt}
_TOKEN = re.compile(
    r"\s*(?:(?P<int>\d+)|(?P<name>[A-Za-z_]\w*)|'(?P<quoted>(?:[^'\\]|\\.)*)'|(?P<op>//|==|!=|<=|>=|[-+*%()<>,])|(?P<end>\Z))",
    re.DOTALL | re.ASCII,
)


class Parser:
    def __init__(self, text: str, names: Mapping[str, DimLike]) -> None:
        self.text, self.names = text, names
        self.kind, self.value, self.at, self.next = "", "", 0, 0
        self.advance()

    def advance(self) -> str:
        old = self.value
        m = _TOKEN.match(self.text, self.next)
        if m is None:
            raise self.error()
        self.kind = m.lastgroup or ""
        self.value, self.at, self.next = m[self.kind], m.start(self.kind), m.end()
        return old

    def error(self) -> ValueError:
        return ValueError(f"cannot read dimension {self.text!r} at character {max(self.at, self.next)}")

    def takes(self, *ops: str) -> bool:
        return self.kind == "op" and self.value in ops

    def expect(self, op: str) -> None:
        if not self.takes(op):
            raise self.error()
        self.advance()

    def whole(self) -> DimLike:
        d = self.comparison()
        if self.kind != "end":
            raise self.error()
        return d

    def comparison(self) -> DimLike:
        d = self.sum()
        return _COMPARE[self.advance()](d, self.sum()) if self.takes(*_COMPARE) else d

    def sum(self) -> DimLike:
        d = self.product()
        while self.takes("+", "-"):
            d = d + self.product() if self.advance() == "+" else d - self.product()
        return d

    def product(self) -> DimLike:
        negated = False
        while self.takes("-"):
            self.advance()
            negated = not negated
        d = self.factor()
        while self.takes("*", "//", "%"):
            op = self.advance()
            e = self.factor()
            if op == "*":
                d = d * e
                continue
            if e == 0:
                raise ValueError(f"dimension {self.text!r} divides by 0")
            d, negated = -d if negated else d, False  # as in Python, the sign belongs to the dividend
            d = d // e if op == "//" else d % e
        return -d if negated else d

    def factor(self) -> DimLike:
        kind, value = self.kind, self.value
        if kind == "end" or (kind == "op" and value not in "(-"):
            raise self.error()
        self.advance()
        if kind == "int":
            return int(value)
        if kind == "quoted":
            return self.symbol(re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL))
        if value == "-":
            return -self.factor()
        if value == "(":
            d = self.comparison()
            self.expect(")")
            return d
        if value in _FUNCTIONS and self.takes("("):
            return self.call(value)
        return self.symbol(value)

    def symbol(self, name: str) -> DimLike:
        return self.names[name] if name in self.names else sym(name)

    def call(self, name: str) -> DimLike:
        args: list[DimLike] = []
        while self.takes("," if args else "("):
            self.advance()
            args.append(self.comparison())
        self.expect(")")
        if len(args) != {"select": 3, "ceildiv": 2}.get(name, len(args)):
            raise self.error()
        try:
            return _FUNCTIONS[name](*args)
        except ZeroDivisionError:
            raise ValueError(f"dimension {self.text!r} divides by 0") from None


def parse(text: str, names: Mapping[str, DimLike] | None = None) -> DimLike:
    """Reads what ``str`` writes. ``names`` gives symbols (or values) by name; others are sizes, ``sym(name)``.

    The text holds no bounds: pass the symbols that may be negative. Raises ValueError.
    """
    try:
        return Parser(text, names or {}).whole()
    except RecursionError:
        raise ValueError("dimension text is nested too deeply") from None
