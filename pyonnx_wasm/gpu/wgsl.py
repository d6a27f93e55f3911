"""Shader text: a kernel's source with its switches, numbers and buffers filled in.

A source is WGSL with six additions:

- lines ``#if a !b``, ``#elif``, ``#else``, ``#endif``: all words must hold; a word is a switch of the case, the name of a
  buffer that is present, or ``<buffer>.<dtype>``; ``!`` negates;
- ``#include name`` takes in ``lib/name.wgsl``, once;
- ``$name`` is a number of the case: ``i32``, or ``f32`` where it is a float; ``$name[i]`` an entry of a sequence;
- ``${name}`` is text of the case;
- ``Name.member`` is the number of a member of an enumeration (:class:`~pyonnx_wasm.registry.Enum`);
- the lines between ``#for i 4`` and ``#end`` are repeated, ``${i}`` counting from 0: what an array would need indices for stays in
  registers.

Every present buffer ``x`` brings ``x_t`` (its value type), ``x_get(i: u32) -> x_t`` and, where it is written,
``x_put(i: u32, v: x_t)``; elements count from the buffer's first one. Value types: ``f32`` for floats, ``i32`` and ``u32`` for
integers up to 32 bits, ``vec2<u32>`` (low, high) for 64-bit ones, ``bool``. ``x_int(i) -> i32`` reads an integer, the low
half of a 64-bit one. Raw buffers have ``u32`` (up to 32 bits) or ``vec2<u32>``. Buffers declared as vectors have
``x_get4(i)`` and ``x_put4(i, v)`` as well, whose index counts vectors; those written by words have ``x_bits(v) -> u32`` and
``x_put_word(i, bits)``, whose index counts words, in place of ``x_put``. ``group(wid, nwg)`` is the workgroup's place in the grid
(return when its z is at least ``$grid_z``), ``item(wid, nwg, lane)`` a flat index for workgroups of 64.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cache

from ..dtypes import DType
from ..ir import IRError
from ..registry import ENUMS
from . import WORKGROUP, Call, Case, source

_COMMENT = re.compile(r"//[^\n]*")
_FUNCTION = re.compile(r"^fn (\w+)\(", re.M)
_SWITCH = re.compile(r"^[ \t]*(#if|#elif|#else|#endif)\b(.*)\n?", re.M)
_LOOP = re.compile(r"^[ \t]*(#for|#end)\b(.*)\n?", re.M)
_WORD = re.compile(r"\w+")
_INCLUDE = re.compile(r"^#include (\S+)$", re.M)
_NUMBER = re.compile(r"\$(\w+)")
_HOLE = re.compile(r"\$\{(\w+)\}")
_MEMBER = re.compile(r"\b([A-Z]\w+)\.(\w+)\b")
HALF = DType.float16
SUPPORTED = {
    DType.float32, DType.float16, DType.bfloat16, DType.int32, DType.uint32, DType.int64, DType.uint64, DType.bool, DType.int8,
    DType.uint8, DType.int16, DType.uint16,
}  # fmt: skip


@dataclass(frozen=True)
class Uniform:
    """One number of a case: where it lies, in words, and what it is."""

    at: int
    count: int  # 0: a scalar
    is_float: bool


@dataclass(frozen=True)
class Shader:
    """Text for one set of features."""

    needs: tuple[str, ...]
    code: str


def layout(call: Call, case: Case) -> tuple[dict[str, Uniform], int]:
    """Where the uniforms lie, and how many words there are: grid, offset of each buffer, then the numbers."""
    found = {f"grid_{axis}": Uniform(i, 0, False) for i, axis in enumerate("xyz")}
    at = 3
    for name in call.values:
        found[f"{name}_at"] = Uniform(at, 0, False)
        at += 1
    for name, value in numbers(call, case).items():
        items = value if isinstance(value, (list, tuple)) else [value]
        count = len(items) if isinstance(value, (list, tuple)) else 0
        found[name] = Uniform(at, count, any(isinstance(i, float) for i in items))
        at += len(items)
    return found, at


def numbers(call: Call, case: Case) -> Mapping[str, object]:
    """The uniforms of a case by name."""
    if case.uniforms is not None:
        return case.uniforms
    return {p.name: call.params[p.name] for p in call.kernel.params if p.count >= 0}


@dataclass(frozen=True)
class _Key:
    """Everything that a text depends on."""

    kernel: str
    buffers: tuple[tuple[str, DType], ...]
    outputs: tuple[str, ...]
    uniforms: tuple[tuple[str, Uniform], ...]
    word_count: int
    defines: frozenset[str]
    holes: tuple[tuple[str, str], ...]
    raw: frozenset[str]
    vec4: frozenset[str]
    words: frozenset[str]
    needs: tuple[str, ...]
    source: str | None


def shaders(call: Call, case: Case) -> list[Shader]:
    """The texts of a case, best first: with native halves and what else the case has use for where the adapter has them, else without."""
    uniforms, words = layout(call, case)
    key = _Key(
        call.kernel.name, tuple((name, v.dtype) for name, v in call.values.items()), call.outputs, tuple(uniforms.items()), words,
        case.defines, tuple(case.holes.items()), case.raw, case.vec4, case.words, case.needs, case.source,
    )  # fmt: skip
    halved = any(dtype is HALF and name not in case.raw for name, dtype in key.buffers)
    keys = [key, replace(key, needs=())] if key.needs else [key]
    halves = [True, False] if halved else [False]
    return [Shader((*k.needs, *(["shader-f16"] if native else [])), _text(k, native)) for native in halves for k in keys]


@cache
def _text(key: _Key, native: bool) -> str:
    dtypes = dict(key.buffers)
    true = key.defines | set(dtypes) | {f"{n}.{d.name}" for n, d in dtypes.items()} | set(key.needs)
    code = _conditions(_parts(key.kernel, key.source), true, key.kernel)
    code = _repeated(_filled(code, dict(key.holes)), key.kernel)
    head = ["enable f16;"] if native else []
    head += ["enable subgroups;"] if "subgroups" in key.needs else []
    head += [f"requires {name};" for name in LANGUAGE if name in key.needs]
    head.append(_ROUNDING)
    head += [f"@group(0) @binding(0) var<uniform> U: array<vec4<u32>, {-(-key.word_count // 4)}>;", _GRID]
    buffers = [
        _buffer(name, i + 1, dtype, name in key.outputs, name in key.raw, name in key.vec4, name in key.words, native)
        for i, (name, dtype) in enumerate(dtypes.items())
    ]
    return _pruned(_numbers("\n".join([*head, *buffers, code]), dict(key.uniforms), key.kernel))


@cache
def _parts(kernel: str, given: str | None) -> list[tuple[str, str]]:
    """A kernel's source, or the one given, with what it includes, without comments: the lines of ``#if`` and its kin as (word, rest),
    runs of others as ("", text)."""
    code = source(kernel) if given is None else given
    assert code is not None
    code = _COMMENT.sub("", _MEMBER.sub(_member, _included(code, set())))
    found, at = [], 0
    for match in _SWITCH.finditer(code):
        found += [("", code[at : match.start()]), (match[1], match[2])]
        at = match.end()
    return [*found, ("", code[at:])]


def _member(match: re.Match[str]) -> str:
    enum = ENUMS.get(match[1])
    return match[0] if enum is None else str(enum.index(match[2]))


def _pruned(code: str) -> str:
    """The text without comments, and without the functions that nothing calls."""
    functions: dict[str, str] = {}
    outside, at = [], 0
    for match in _FUNCTION.finditer(code):
        end = _closing(code, code.index("{", match.end()), "{}") + 1
        functions[match[1]] = code[match.start() : end]
        outside += [code[at : match.start()], match[1]]
        at = end
    outside.append(code[at:])
    used: set[str] = set()
    todo = ["main", *outside[::2]]
    while todo:
        for word in _words(todo.pop()) & functions.keys() - used:
            used.add(word)
            todo.append(functions[word])
    kept = [text if i % 2 == 0 else functions[text] if text in used else "" for i, text in enumerate(outside)]
    return "\n".join([line for line in "".join(kept).split("\n") if line.strip()])


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text))


_GRID = f"""fn group(wid: vec3<u32>, nwg: vec3<u32>) -> vec3<u32> {{
  let f = wid.x + wid.y * nwg.x;
  let x = max(U[0].x, 1u);
  let y = max(U[0].y, 1u);
  return vec3<u32>(f % x, (f / x) % y, f / (x * y));
}}
fn item(wid: vec3<u32>, nwg: vec3<u32>, lane: u32) -> u32 {{ return (wid.x + wid.y * nwg.x) * {WORKGROUP}u + lane; }}"""


# WGSL leaves the rounding of pack2x16float to the adapter, and what becomes of what is too large.
_ROUNDING = """fn bf16_bits(v: f32) -> u32 {
  let b = bitcast<u32>(v);
  if ((b & 0x7fffffffu) > 0x7f800000u) { return (b >> 16u) | 0x40u; }
  return (b + 0x7fffu + ((b >> 16u) & 1u)) >> 16u;
}
fn f16_bits(v: f32) -> u32 {
  let sign = (bitcast<u32>(v) >> 16u) & 0x8000u;
  let b = bitcast<u32>(v) & 0x7fffffffu;
  if (b > 0x7f800000u) { return sign | 0x7e00u; }
  if (b >= 0x477ff000u) { return sign | 0x7c00u; }
  if (b < 0x38800000u) { return sign | (bitcast<u32>(bitcast<f32>(b) + 0.5) - 0x3f000000u); }
  return sign | ((b - 0x38000000u + 0xfffu + ((b >> 13u) & 1u)) >> 13u);
}
fn f16_round(v: f32) -> f32 { return unpack2x16float(f16_bits(v)).x; }"""


def _included(code: str, seen: set[str]) -> str:
    def take(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        text = source(f"lib/{name}")
        if text is None:
            raise IRError(f"there is no kernels/wgsl/lib/{name}.wgsl")
        return _included(text, seen)

    return _INCLUDE.sub(take, code)


def _conditions(parts: Iterable[tuple[str, str]], true: Set[str], where: str) -> str:
    """The text whose ``#if`` hold."""
    out: list[str] = []
    stack: list[tuple[bool, bool]] = []  # (this branch is taken, an earlier or this one was)
    taken = True
    for word, text in parts:
        if not word:
            if taken:
                out.append(text)
            continue
        if word == "#if":
            holds = _holds(text, true)
            stack.append((holds, holds))
        elif not stack:
            raise IRError(f"{where}.wgsl: {word} without #if")
        elif word == "#endif":
            stack.pop()
        else:
            done = stack.pop()[1]
            holds = not done and (word == "#else" or _holds(text, true))
            stack.append((holds, done or holds))
        taken = all(holds for holds, _ in stack)
    if stack:
        raise IRError(f"{where}.wgsl: #if without #endif")
    return "".join(out)


def _filled(code: str, holes: Mapping[str, str]) -> str:
    return _HOLE.sub(lambda m: holes.get(m[1], m[0]), code)


def _repeated(code: str, where: str) -> str:
    """The text with its ``#for`` written out."""
    bodies: list[list[str]] = [[]]
    loops: list[tuple[str, int]] = []
    at = 0
    for match in _LOOP.finditer(code):
        bodies[-1].append(code[at : match.start()])
        at = match.end()
        if match[1] == "#for":
            name, times = match[2].split()
            loops.append((name, int(times)))
            bodies.append([])
            continue
        if not loops:
            raise IRError(f"{where}.wgsl: #end without #for")
        (name, count), body = loops.pop(), "".join(bodies.pop())
        bodies[-1] += [_filled(body, {name: str(i)}) for i in range(count)]
    if loops:
        raise IRError(f"{where}.wgsl: #for without #end")
    text = "".join([*bodies[0], code[at:]])
    if left := _HOLE.search(text):
        raise IRError(f"{where}.wgsl: {left[0]} is no text of this case")
    return text


def _holds(words: str, true: Set[str]) -> bool:
    return all((w[1:] not in true) if w.startswith("!") else w in true for w in words.split())


def _numbers(code: str, uniforms: Mapping[str, Uniform], where: str) -> str:
    """Replaces ``$name`` and ``$name[index]``."""
    out, at = [], 0
    for match in _NUMBER.finditer(code):
        if match.start() < at:
            continue
        uniform = uniforms.get(match[1])
        if uniform is None:
            raise IRError(f"{where}.wgsl: ${match[1]} is no number of this case")
        out.append(code[at : match.start()])
        at = match.end()
        if uniform.count == 0 and not code.startswith("[", at):
            word = f"U[{uniform.at // 4}].{'xyzw'[uniform.at % 4]}"
        else:
            end = _closing(code, at)
            index = _numbers(code[at + 1 : end], uniforms, where)
            at = end + 1
            slot = f"({uniform.at}u + u32({index}))"
            word = f"U[{slot} >> 2u][{slot} & 3u]" if not index.strip().isdigit() else _fixed(uniform.at + int(index))
        out.append(f"bitcast<f32>({word})" if uniform.is_float else f"i32({word})")
    return "".join([*out, code[at:]])


def _fixed(word: int) -> str:
    return f"U[{word // 4}].{'xyzw'[word % 4]}"


def _closing(code: str, at: int, pair: str = "[]") -> int:
    """Where the bracket that opens at ``at`` closes."""
    depth, start = 0, at
    while (end := code.find(pair[1], start)) >= 0:
        depth += code.count(pair[0], start, end) - 1
        if depth == 0:
            return end
        start = end + 1
    raise IRError(f"the bracket behind {code[max(0, at - 40) : at + 1]!r} is not closed")


def _buffer(name: str, binding: int, dtype: DType, written: bool, raw: bool, vec4: bool, words: bool, native: bool) -> str:
    """Declaration and accessors of one buffer."""
    bits = dtype.bits
    small = bits < 32 and (raw or words or not (dtype is HALF and native))
    if small:
        element = "vec2<u32>" if vec4 else "atomic<u32>" if written and not words else "u32"
    elif vec4:
        element = {HALF: "vec4<f16>", DType.uint32: "vec4<u32>"}.get(dtype, "vec4<f32>")
    elif bits == 64:
        element = "vec2<u32>"
    else:
        element = "u32" if raw else {DType.float32: "f32", DType.int32: "i32", DType.uint32: "u32", HALF: "f16"}[dtype]
    access = "read_write" if written else "read"
    lines = [f"@group(0) @binding({binding}) var<storage, {access}> {name}_data: array<{element}>;"]
    value = _value_type(dtype, raw)
    lines.append(f"alias {name}_t = {value};")
    at = f"u32(${name}_at)"
    if small and vec4:
        lines += _small4(name, dtype, at)
    elif small:
        lines += _small(name, dtype, raw, written, words, at)
    elif vec4:
        lines.append(f"fn {name}_get(i: u32) -> {value} {{ let j = i + {at}; return {value}({name}_data[j >> 2u][j & 3u]); }}")
        lines.append(f"fn {name}_get4(i: u32) -> vec4<{value}> {{ return vec4<{value}>({name}_data[i + ({at} >> 2u)]); }}")
        if written:
            lines.append(f"fn {name}_put(i: u32, v: f32) {{ let j = i + {at}; {name}_data[j >> 2u][j & 3u] = v; }}")
            lines.append(f"fn {name}_put4(i: u32, v: vec4<f32>) {{ {name}_data[i + ({at} >> 2u)] = v; }}")
    else:
        load, store = ("f32({})", "f16({})") if dtype is HALF and not raw else ("{}", "{}")
        lines.append(f"fn {name}_get(i: u32) -> {value} {{ return {load.format(f'{name}_data[i + {at}]')}; }}")
        if written:
            lines.append(f"fn {name}_put(i: u32, v: {value}) {{ {name}_data[i + {at}] = {store.format('v')}; }}")
    if dtype.is_int and not raw:
        low = f"bitcast<i32>({name}_get(i).x)" if bits == 64 else f"i32({name}_get(i))"
        lines.append(f"fn {name}_int(i: u32) -> i32 {{ return {low}; }}")
    return "\n".join(lines)


def _value_type(dtype: DType, raw: bool) -> str:
    if dtype.bits == 64:
        return "vec2<u32>"
    if raw:
        return "u32"
    if dtype.is_float:
        return "f32"
    return "bool" if dtype is DType.bool else "i32" if dtype.is_signed else "u32"


LANGUAGE = ("packed_4x8_integer_dot_product",)  # what a text needs of WGSL, not of the adapter


def _small(name: str, dtype: DType, raw: bool, written: bool, words: bool, at: str) -> list[str]:
    """Accessors of elements that share words. Writers of elements are atomic: neighbours may belong to another lane."""
    bits = dtype.bits
    per, mask = 32 // bits, (1 << bits) - 1
    word, shift = f"j / {per}u", f"{bits}u * (j % {per}u)"
    load = f"atomicLoad(&{name}_data[{word}])" if written and not words else f"{name}_data[{word}]"
    value = _value_type(dtype, raw)
    decode, encode = "b", "v"
    if not raw:
        decode, encode = _CODES.get(dtype, ("b", "v"))
        if dtype.is_int and dtype.is_signed:
            decode, encode = f"bitcast<i32>(b << {32 - bits}u) >> {32 - bits}u", "bitcast<u32>(v)"
    lines = [
        f"fn {name}_get(i: u32) -> {value} {{ let j = i + {at}; let b = ({load} >> ({shift})) & {mask}u; return {decode}; }}",
    ]
    if bits == 8 and not written:
        lines.append(f"fn {name}_word(i: u32) -> u32 {{ return {name}_data[(i + {at}) / 4u]; }}")
    if words:
        lines.append(f"fn {name}_bits(v: {value}) -> u32 {{ return ({encode}) & {mask}u; }}")
        lines.append(f"fn {name}_put_word(i: u32, bits: u32) {{ {name}_data[i + {at} / {per}u] = bits; }}")
    elif written:
        lines.append(
            f"fn {name}_put(i: u32, v: {value}) {{ let j = i + {at}; let s = {shift}; let b = ({encode}) & {mask}u; "
            f"atomicAnd(&{name}_data[{word}], ~({mask}u << s)); atomicOr(&{name}_data[{word}], b << s); }}"
        )
    return lines


def _small4(name: str, dtype: DType, at: str) -> list[str]:
    """Accessors of halves that are only read, four at a time, on adapters that do not know them."""
    pair = "unpack2x16float({})" if dtype is HALF else "vec2<f32>(bitcast<f32>({0} << 16u), bitcast<f32>({0} & 0xffff0000u))"
    return [
        f"fn {name}_get4(i: u32) -> vec4<f32> {{ let w = {name}_data[i + ({at} >> 2u)]; "
        f"return vec4<f32>({pair.format('w.x')}, {pair.format('w.y')}); }}",
        f"fn {name}_get(i: u32) -> f32 {{ let j = i + {at}; let w = {name}_data[j >> 2u][(j >> 1u) & 1u]; "
        f"return {pair.format('w')}[j & 1u]; }}",
    ]


_CODES = {
    DType.bool: ("b != 0u", "select(0u, 1u, v)"),
    DType.float16: ("unpack2x16float(b).x", "f16_bits(v)"),
    DType.bfloat16: ("bitcast<f32>(b << 16u)", "bf16_bits(v)"),
}
