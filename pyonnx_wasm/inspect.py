"""What ``pyonnx-wasm inspect`` shows: signature, the passes' effect, IR, Program."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from . import passes
from . import source as files
from .ir import Graph
from .ir.text import print_graph
from .program import SHAPE_OPS, Program, ProgramView
from .program import file as ponnx
from .program.lower import lower, partition
from .session import is_compiled

_KINDS = ("arena", "weight", "input", "output", "slot")


def report(
    path: str | os.PathLike[str],
    *,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    sizes: Mapping[str, int] | None = None,
    optimise: bool = True,
    ir: bool = True,
    program: bool = True,
    **wanted: bool,
) -> dict[str, Any]:
    """Everything about a model as plain data; ``passes``, ``ir`` and ``program`` choose the parts."""
    if is_compiled(path):
        compiled = ponnx.load(path)
        out: dict[str, Any] = {"file": os.fspath(path), "provenance": compiled.provenance}
        out["inputs"] = [{"name": s.name, "dtype": s.dtype.name, "shape": list(s.shape)} for s in compiled.inputs]
        out["outputs"] = [{"name": s.name, "dtype": s.dtype.name, "shape": list(s.shape)} for s in compiled.outputs]
        out["weights"] = {"count": len(compiled.weights), "bytes": sum(w.nbytes for w in compiled.weights)}
        if program:
            out["program"] = describe(compiled.main)
        return out
    from .trace import trace

    model = files.read(path)
    graph = trace(model, shapes=shapes, sizes=sizes)
    out = {
        "file": os.fspath(path),
        "provenance": {"opset": dict(model.opsets), "ir_version": model.ir_version, "producer": model.producer},
        "inputs": [{"name": n, "dtype": v.dtype.name, "shape": [str(s) for s in v.shape]} for n, v in graph.inputs],
        "outputs": [{"name": n, "dtype": v.dtype.name, "shape": [str(s) for s in graph.shown(n, v.shape)]} for n, v in graph.outputs],
        "onnx_nodes": len(model.graph.nodes),
    }
    effect = [_counted("trace", graph)]
    passes.run(graph, passes.PIPELINE if optimise else passes.PLAIN, watch=lambda name, g: effect.append(_counted(name, g)))
    if wanted.get("passes"):
        out["passes"] = effect
    if ir:
        out["ir"] = print_graph(graph)
    lowered = lower(partition(graph), optimise)
    out["weights"] = {"count": len(lowered.weights), "bytes": sum(w.nbytes for w in lowered.weights)}
    if program:
        out["program"] = describe(lowered.main)
    return out


def _counted(name: str, graph: Graph) -> dict[str, Any]:
    running = [n for n in graph.nodes if not n.const]
    return {
        "pass": name,
        "nodes": len(running),
        "constant": len(graph.nodes) - len(running),
        "kernels": dict(Counter(n.kernel.name for n in running)),
    }


def describe(program: Program) -> dict[str, Any]:
    """A Program decoded from its words: shape code as text, storages, and one line per step."""
    view = ProgramView(program.code)
    texts = _shape_text(view)
    storages = [
        {"kind": _KINDS[row.kind], "index": row.slot, "bytes": texts[row.size], "life": [row.first, row.last]} for row in view.storages
    ]
    steps = [
        {
            "kernel": step.kernel,
            "storages": [None if b < 0 else view.buffers[b].storage for b in step.buffers],
            "origin": program.origins[step.origin],
        }
        for step in view.steps
    ]
    return {
        "words": len(program.code),
        "registers": view.count("registers"),
        "checks": program.messages,
        "storages": storages,
        "steps": steps,
    }


def _shape_text(view: ProgramView) -> list[str]:
    names = {code: name for name, code in SHAPE_OPS.items()}
    signs = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "eq": "==", "lt": "<", "le": "<="}
    texts: list[str] = []
    for op, a, b, c in view.registers:
        name = names[op]
        if name == "const":
            texts.append(str(a & 0xFFFFFFFF | b << 32))
        elif name in ("dim", "elem", "read", "size"):
            texts.append(f"{name}({a}, {b})")
        elif name == "check":
            texts.append(f"check({texts[a]})")
        elif name == "select":
            texts.append(f"({texts[a]} ? {texts[b]} : {texts[c]})")
        elif name in signs:
            texts.append(f"({texts[a]} {signs[name]} {texts[b]})")
        else:
            texts.append(f"{name}({texts[a]}, {texts[b]})")
    return texts


def render(data: Mapping[str, Any]) -> str:
    """The report for a person."""
    lines = [str(data["file"])]
    made = data["provenance"]
    lines.append(f"  opset {made.get('opset')}, IR {made.get('ir_version')}, made by {made.get('producer') or 'unknown'}")
    for what in ("inputs", "outputs"):
        lines += [f"  {what[:-1]:<7} {s['name']}: {s['dtype']}[{', '.join(map(str, s['shape']))}]" for s in data[what]]
    lines.append(f"  weights {data['weights']['count']}, {data['weights']['bytes']:,} bytes")
    if "passes" in data:
        lines.append(f"\npasses (from {data['onnx_nodes']} ONNX nodes)")
        for row in data["passes"]:
            kernels = ", ".join(f"{n} {k}" for k, n in sorted(row["kernels"].items(), key=lambda i: -i[1]))
            lines.append(f"  {row['pass']:<18} {row['nodes']:>5} nodes, {row['constant']:>4} constant: {kernels}")
    if "ir" in data:
        lines.append(f"\n{data['ir']}")
    if "program" in data:
        p = data["program"]
        lines.append(f"\nprogram: {p['words']:,} words, {p['registers']} registers, {len(p['checks'])} checks, {len(p['steps'])} steps")
        lines += [f"  check: {text}" for text in p["checks"]]
        for i, s in enumerate(p["storages"]):
            life = f" steps {s['life'][0]} to {s['life'][1]}" if s["kind"] == "arena" else f" {s['index']}"
            lines.append(f"  storage {i:>3}: {s['kind']}{life}, {s['bytes']} bytes")
        for i, s in enumerate(p["steps"]):
            touched = ", ".join("-" if b is None else str(b) for b in s["storages"])
            lines.append(f"  step {i:>4}: {s['kernel']:<12} ({touched})  {s['origin']}")
    return "\n".join(lines)
