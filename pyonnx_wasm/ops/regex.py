"""Regular expressions of RE2's syntax as automata for the kernels ``string_match`` and ``string_tokens``."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from ..ir import IRError

MATCH, SPLIT, RANGES, TEXT_BEGIN, TEXT_END, LINE_BEGIN, LINE_END, BOUNDARY, NO_BOUNDARY = range(9)
MOST = 0x10FFFF
MAX_REPEATS, MAX_STATES = 1000, 50_000
MAX_DEPTH = 100

Ranges = tuple[tuple[int, int], ...]
Fragment = Callable[["Code"], None]  # writes the states of an expression; what comes behind them follows

DIGIT: Ranges = ((48, 57),)
SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
ASSERTIONS = {"A": TEXT_BEGIN, "z": TEXT_END, "b": BOUNDARY, "B": NO_BOUNDARY}


@dataclass(frozen=True)
class Flags:
    """``i``: any case, ``m``: ``^`` and ``$`` at lines, ``s``: ``.`` takes newlines. ``U`` changes no whole match."""

    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False


class Code:
    """The states of an automaton: rows of an operation and two numbers (``automaton.h``), and ranges of code points."""

    def __init__(self) -> None:
        self.states: list[list[int]] = []
        self.ranges: list[tuple[int, int]] = []
        self.known: dict[Ranges, int] = {}

    def put(self, operation: int, a: int = 0, b: int = 0) -> int:
        if len(self.states) == MAX_STATES:
            raise IRError(f"the pattern is too large: more than {MAX_STATES} states")
        self.states.append([operation, a, b])
        return len(self.states) - 1

    def take(self, ranges: Ranges) -> None:
        if ranges not in self.known:
            self.known[ranges] = len(self.ranges)
            self.ranges += ranges
        self.put(RANGES, self.known[ranges], len(ranges))


@cache
def automaton(*patterns: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States int32 ``[n, 3]``, ranges int32 ``[m, 2]``, and where each pattern begins, int32.

    Raises:
        IRError: a pattern is none; says why and where.
    """
    code, starts = Code(), []
    for pattern in patterns:
        starts.append(len(code.states))
        _Parser(pattern).whole()(code)
        code.put(MATCH)
    return np.array(code.states, np.int32), np.array(code.ranges, np.int32).reshape(-1, 2), np.array(starts, np.int32)


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.text, self.at, self.depth = pattern, 0, 0

    def fail(self, why: str) -> IRError:
        return IRError(f"pattern {self.text!r}: {why} at {self.at}")

    def peek(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def took(self, token: str) -> bool:
        if self.peek(token):
            self.at += len(token)
            return True
        return False

    def char(self) -> str:
        if self.at >= len(self.text):
            raise self.fail("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def whole(self) -> Fragment:
        found = self.either(Flags())
        if self.at < len(self.text):
            raise self.fail("a ) without its (")
        return found

    def either(self, flags: Flags) -> Fragment:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail("groups nest too deep")
        ways: list[list[Fragment]] = [[]]
        while self.at < len(self.text) and not self.peek(")"):
            if self.took("|"):
                ways.append([])
            elif self.peek("(?") and (given := self.flags(flags)) is not None:
                flags = given
            else:
                ways[-1] += self.piece(flags)
        self.depth -= 1
        return partial(_either, [partial(_sequence, parts) for parts in ways])

    def flags(self, flags: Flags) -> Flags | None:
        """``(?i-s)``; None where it is a group."""
        end = self.at + 2
        while end < len(self.text) and self.text[end] in "imsU-":
            end += 1
        if self.text[end : end + 1] != ")":
            return None
        letters, self.at = self.text[self.at + 2 : end], end + 1
        if not letters or letters.endswith("-") or letters.count("-") > 1:
            raise self.fail("flags that are none")
        return _changed(flags, letters)

    def piece(self, flags: Flags) -> list[Fragment]:
        """What repeats as one."""
        start = self.at
        if self.took("\\Q"):
            end = self.text.find("\\E", self.at)
            literal = self.text[self.at : end if end >= 0 else None]
            self.at = len(self.text) if end < 0 else end + 2
            parts: list[Fragment] = [partial(_take, _cased(((ord(c), ord(c)),), flags)) for c in literal]
            return [*parts[:-1], self.repeated(parts[-1])] if parts else []
        if self.text[start] in "*+?":
            raise self.fail(f"{self.text[start]} has nothing to repeat")
        return [self.repeated(self.atom(flags))]

    def repeated(self, one: Fragment) -> Fragment:
        count = self.count()
        if count is None:
            return one
        self.took("?")
        at = self.at
        if self.count() is not None:
            self.at = at
            raise self.fail("a repetition of a repetition")
        return partial(_repeat, one, *count)

    def count(self) -> tuple[int, int | None] | None:
        for token, found in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.took(token):
                return found
        end = self.text.find("}", self.at)
        if not self.peek("{") or end < 0:
            return None
        low, comma, high = self.text[self.at + 1 : end].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None  # a brace as it is
        least, most = int(low), int(high) if high else None if comma else int(low)
        if least > MAX_REPEATS or (most is not None and (most > MAX_REPEATS or most < least)):
            raise self.fail(f"repetitions other than up to {MAX_REPEATS}")
        self.at = end + 1
        return least, most

    def atom(self, flags: Flags) -> Fragment:
        if self.peek("["):
            return partial(_take, self.bracket(flags))
        char = self.char()
        if char == "(":
            return self.group(flags)
        if char == ".":
            return partial(_take, ((0, MOST),) if flags.s else ((0, 9), (11, MOST)))
        if char == "^":
            return partial(_assert, LINE_BEGIN if flags.m else TEXT_BEGIN)
        if char == "$":
            return partial(_assert, LINE_END if flags.m else TEXT_END)
        if char != "\\":
            return partial(_take, _cased(((ord(char), ord(char)),), flags))
        if self.at < len(self.text) and self.text[self.at] in ASSERTIONS:
            return partial(_assert, ASSERTIONS[self.char()])
        ranges = self.perl()
        if ranges is not None:
            return partial(_take, ranges)
        code = self.escaped()
        return partial(_take, _cased(((code, code),), flags))

    def group(self, flags: Flags) -> Fragment:
        if self.took("?"):
            if self.took("P<") or (self.took("<") and not self.peek("=") and not self.peek("!")):
                end = self.text.find(">", self.at)
                name = self.text[self.at : max(end, self.at)]
                if not name or not all(c == "_" or c.isalnum() for c in name):
                    raise self.fail("a group's name that is none")
                self.at = end + 1
            else:
                end = self.at
                while self.text[end : end + 1] and self.text[end] in "imsU-":
                    end += 1
                letters, self.at = self.text[self.at : end], end
                if not self.took(":") or letters.count("-") > 1 or letters.endswith("-"):
                    raise self.fail("a kind of group that RE2 does not know")
                flags = _changed(flags, letters)
        inner = self.either(flags)
        if not self.took(")"):
            raise self.fail("a ( without its )")
        return inner

    def perl(self) -> Ranges | None:
        """A class behind a backslash, in brackets or not."""
        letter = self.text[self.at : self.at + 1]
        plain = {"d": DIGIT, "s": SPACE, "w": WORD}.get(letter.lower())
        if plain is not None:
            self.at += 1
            return _others(plain) if letter.isupper() else plain
        if not letter or letter not in "pP":
            return None
        self.at += 1
        name = self.char()
        if name == "{":
            end = self.text.find("}", self.at)
            name, self.at = self.text[self.at : max(end, self.at)], end + 1 if end >= 0 else self.at
        negated = name.startswith("^")
        ranges = _category(name.removeprefix("^"))
        if ranges is None:
            raise self.fail(f"the Unicode class {name!r}: categories (L, Lu, Nd, ...) are known, scripts are not,")
        return _others(ranges) if negated is not (letter == "P") else ranges

    def escaped(self) -> int:
        char = self.char()
        if char in ESCAPES:
            return ESCAPES[char]
        if char == "x":
            if self.took("{"):
                end = self.text.find("}", self.at)
                digits, self.at = self.text[self.at : max(end, self.at)], end + 1
            else:
                digits = self.char() + self.char()
            if not digits or not set(digits.lower()) <= set("0123456789abcdef") or int(digits, 16) > MOST:
                raise self.fail("a code point that is none")
            return int(digits, 16)
        octal = char
        while len(octal) < 3 and self.text[self.at : self.at + 1] and self.text[self.at] in "01234567" and char in "01234567":
            octal += self.char()
        if char in "01234567" and (char == "0" or len(octal) > 1):
            return int(octal, 8)
        if ord(char) < 128 and not char.isalnum():
            return ord(char)
        raise self.fail(f"the escape \\{char}, which RE2 does not know,")

    def bracket(self, flags: Flags) -> Ranges:
        self.at += 1
        negated, found, first = self.took("^"), list[tuple[int, int]](), True
        while first or not self.peek("]"):
            first = False
            if self.at >= len(self.text):
                raise self.fail("a [ without its ]")
            if self.peek("[:"):
                end = self.text.find(":]", self.at)
                name = self.text[self.at + 2 : max(end, self.at + 2)]
                if end < 0 or name.removeprefix("^") not in POSIX:
                    raise self.fail("a class of characters that is none")
                self.at = end + 2
                ranges = POSIX[name.removeprefix("^")]
                found += _others(ranges) if name.startswith("^") else ranges
                continue
            if self.peek("\\"):
                self.at += 1
                ranges_or_none = self.perl()
                if ranges_or_none is not None:
                    found += ranges_or_none
                    continue
                self.at -= 1
            low = high = self.member()
            if self.peek("-") and not self.peek("-]"):
                self.at += 1
                high = self.member()
            if high < low:
                raise self.fail("a range that falls")
            found.append((low, high))
        self.at += 1
        ranges = _cased(_merged(found), flags)
        return _others(ranges) if negated else ranges

    def member(self) -> int:
        char = self.char()
        return self.escaped() if char == "\\" else ord(char)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _changed(flags: Flags, letters: str) -> Flags:
    on, _, off = letters.partition("-")
    return replace(flags, **dict.fromkeys(on, True), **{c: False for c in off if c not in on})


def _sequence(parts: Sequence[Fragment], code: Code) -> None:
    for part in parts:
        part(code)


def _take(ranges: Ranges, code: Code) -> None:
    code.take(ranges)


def _assert(operation: int, code: Code) -> None:
    code.put(operation)


def _either(ways: Sequence[Fragment], code: Code) -> None:
    ends = []
    for way in ways[:-1]:
        split = code.put(SPLIT)
        way(code)
        ends.append(code.put(SPLIT))
        code.states[split][1:] = split + 1, len(code.states)
    ways[-1](code)
    for end in ends:
        code.states[end][1:] = len(code.states), len(code.states)


def _repeat(one: Fragment, least: int, most: int | None, code: Code) -> None:
    for _ in range(least):
        one(code)
    if most is None:
        split = code.put(SPLIT)
        one(code)
        code.put(SPLIT, split, split)
        code.states[split][1:] = split + 1, len(code.states)
        return
    splits = []
    for _ in range(most - least):
        splits.append(code.put(SPLIT))
        one(code)
    for split in splits:
        code.states[split][1:] = split + 1, len(code.states)


def _merged(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """In order, without overlaps and gaps of nothing."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return tuple(found)


def _others(ranges: Ranges) -> Ranges:
    found, start = [], 0
    for low, high in _merged(ranges):
        if low > start:
            found.append((start, low - 1))
        start = high + 1
    return (*found, (start, MOST)) if start <= MOST else tuple(found)


@cache
def _category(name: str) -> Ranges | None:
    """The code points of a general category, or of all whose name begins so; ``Any`` are all."""
    if name == "Any":
        return ((0, MOST),)
    if len(name) not in (1, 2) or not name[0].isupper():
        return None
    found = _merged([(c, c) for c in range(MOST + 1) if unicodedata.category(chr(c)).startswith(name)])
    return found or None


@cache
def _orbits() -> dict[int, tuple[int, ...]]:
    """The code points that differ from one in their case alone."""
    groups: dict[str, list[int]] = {}
    for c in range(0x1E944):
        folded = chr(c).casefold() if chr(c) not in "İı" else chr(c)
        if len(folded) == 1:
            groups.setdefault(folded, []).append(c)
    return {c: tuple(group) for group in groups.values() if len(group) > 1 for c in group}


def _cased(ranges: Ranges, flags: Flags) -> Ranges:
    if not flags.i:
        return ranges
    orbits = _orbits()
    more = [(c, c) for code, group in orbits.items() if any(low <= code <= high for low, high in ranges) for c in group]
    return _merged([*ranges, *more])
