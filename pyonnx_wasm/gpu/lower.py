"""A Program for GPUs: the steps as the core would run them, and beside them how a GPU does (``PROGRAM.md`` section 7)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..ir import Graph, IRError, Node, Storage, Value, dims
from ..passes import Kept, keep_state
from ..program import ARENA, OUTPUT, GpuPlan, GpuProgram, GpuSection
from ..program.assemble import Assembler, Span, Step
from ..program.lower import Parts
from ..program.model import SHAPE_OPS
from ..program.section import MOST_ROUNDS, MOST_WORKGROUPS
from ..registry import Kernel
from ..tensor import COPY
from . import Call, Case, cases_of, wgsl
from .halves import read_halves, reads_halves
from .shaded import MAX_STORAGE_BUFFERS, shaded
from .split import in_steps, is_large, split_large

STATE_BITS = 32  # lanes write whole words, which smaller elements would share


def lower_gpu(parts: Parts, optimise: bool = True) -> GpuProgram | None:
    """Lowers the nodes of a graph that depend on its inputs. A GPU binds whole buffers: what it reads and writes are different ones.

    Args:
        optimise: outputs that are longer inputs may stay where they are from run to run.

    Returns:
        None where the core runs the whole graph, and where no step of it has a shader.
    """
    if on_core(parts.graph):
        return None
    try:
        made = _assembled(parts, True, optimise)
    except NeedsCasts:
        made = _assembled(parts, False, optimise)
    except NeedsCopies:
        return lower_gpu(parts, False)
    return made if made.section.on_gpu or not made.section.steps else None


def on_core(graph: Graph) -> str:
    """Why the core runs the whole graph; "" where a GPU can run it, or parts of it."""
    if any(graph.strings) or any("strings" in node.kernel.traits for node in graph.nodes):
        return "it has strings, which the core runs"
    return next(filter(None, map(on_core, graph.bodies())), "")


def _assembled(parts: Parts, halves: bool, optimise: bool) -> GpuProgram:
    uses: dict[Storage, list[Node]] = {}
    for graph in (parts.graph, *parts.bodies):
        for storage, nodes in graph.uses().items():
            uses.setdefault(storage, []).extend(nodes)

    def prepared(graph: Graph, nodes: Sequence[Node]) -> list[Node]:
        nodes = in_steps(shaded(nodes))
        if halves:
            nodes = read_halves(nodes, uses, graph.output_storages())
        return whole_inputs(split_large(nodes))

    bodies = {body: prepared(body, nodes) for body, nodes in parts.bodies.items()}
    main = prepared(parts.graph, parts.main)
    inner = {v.storage for nodes in bodies.values() for node in nodes for v in node.inputs()}
    kept = keep_state(parts.graph, main, inner, STATE_BITS) if optimise else None
    return GpuAssembler(parts.graph, kept.nodes if kept else main, parts.weights, bodies, kept=kept).build()


def whole_inputs(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, with copies before branches and loops that read parts of storages: what these read is bound whole."""
    out: list[Node] = []
    for node in nodes:
        if "control" in node.kernel.traits and not all(v.whole or v.dtype.bits < 8 for v in node.ins["x"]):
            given = []
            for value in node.ins["x"]:
                if not (value.whole or value.dtype.bits < 8):
                    copy = Node(COPY, {"x": value}, {}, node.origin)
                    storage = Storage(value.dtype, value.size, "temp", producer=copy)
                    value = copy.outs["y"] = Value(storage, value.dtype, value.shape)
                    out.append(copy)
                given.append(value)
            direct = Node(node.kernel, {**node.ins, "x": given}, node.params, node.origin)
            direct.outs = node.outs
            node = direct
        out.append(node)
    return out


def goes_on(body: Graph) -> bool:
    """Whether a loop over this graph ends with its last step alone: the condition for the next one is always true."""
    value = body.outputs[0][1]
    with body:  # contents may be computed of what it holds
        while value.content is None and value.producer is not None and value.producer.kernel is COPY:
            value = value.producer.ins["x"]
        told = value.content
    return value.storage is body.inputs[1][1].storage or (told is not None and all(item is True or item == 1 for item in told.reshape(-1)))


class NeedsCasts(Exception):
    """The core has to run a step whose casts were taken away."""


class NeedsCopies(Exception):
    """The core has to run a step over what is to stay on the GPU."""


class GpuAssembler(Assembler):
    """Assembles a Program and collects its GPU section."""

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        weights: dict[Storage, int],
        bodies: Mapping[Graph, Sequence[Node]],
        outer: GpuAssembler | None = None,
        kept: Kept | None = None,
    ) -> None:
        outputs, pairs, checks = (kept.outputs, kept.pairs, kept.checks) if kept else (graph.outputs, [], [])
        super().__init__("gpu", nodes, graph.inputs, outputs, weights, False, [*graph.checks, *checks], graph.reads, bodies, pairs)
        self.goes_on = outer is not None and len(graph.outputs) > 0 and len(graph.inputs) > 1 and goes_on(graph)
        self.modules: dict[str, int] = outer.modules if outer else {}
        self.pipelines: dict[tuple[Any, ...], int] = outer.pipelines if outer else {}
        self.pipeline_rows: list[dict[str, Any]] = outer.pipeline_rows if outer else []
        self.cases: list[Any] = []
        self.reads: list[tuple[list[int], list[int]]] = []  # storages that each step reads, and writes
        self.ways: dict[Any, tuple[list[dict[str, Any]] | None, bool]] = {}  # of each call: its cases, and whether only a GPU runs it

    def build(self) -> GpuProgram:
        program = self.assemble()
        plan = self.plan()
        section = GpuSection(plan.steps, plan.schedule, plan.on_core, plan.bodies, False, list(self.modules), self.pipeline_rows)
        return GpuProgram(program, section)

    def plan(self) -> GpuPlan:
        schedule, on_core = self.schedule()
        return GpuPlan(
            self.cases, schedule, on_core, [inner.plan() for inner in self.inners if isinstance(inner, GpuAssembler)], self.goes_on
        )

    def inner(self, body: Graph) -> Assembler:
        return GpuAssembler(body, self.bodies[body], self.weights, self.bodies, self)

    def spanned(self, value: Value) -> tuple[int, int] | None:
        """First element and reach of a view of a weight too large to be bound whole, or of a part of a broadcast one; else None."""
        walked = [(n, s) for n, s in zip(value.shape, value.strides, strict=True) if not (isinstance(s, int) and s == 0)]
        part = is_large(value) or (value.storage.const and value.offset != 0 and len(walked) < value.rank)
        if not part or not isinstance(value.offset, int) or value.whole:
            return None
        first, reach = value.offset, 1
        for n, s in walked:
            if not isinstance(n, int) or not isinstance(s, int):
                return None
            first += min((n - 1) * s, 0) if n else 0
            reach += abs((n - 1) * s) if n else 0
        return first, reach

    def span(self, value: Value) -> Span | None:
        found = self.spanned(value)
        if found is None:
            return super().span(value)
        each = value.dtype.bits // 8
        return self.register(found[0] * each), self.register(found[1] * each), int(value.dtype)

    def within(self, value: Value) -> Value:
        found = self.spanned(value)
        if found is None:
            return super().within(value)
        return Value(value.storage, value.dtype, value.shape, value.offset - found[0], value.strides)

    def step(self, at: int, node: Node, aliases: dict[Storage, Storage]) -> Step:
        step = super().step(at, node, aliases)
        written = sum(name in node.outs for name in (b.name for b in node.kernel.outputs))
        if "control" in node.kernel.traits:
            inputs = [self.buffer_rows[b][0] for b in step.buffers[len(node.outs) :] if b >= 0]
            self.reads.append((inputs, []))
            self.cases.append({})
            return step
        present = [self.buffer_rows[b][0] for b in step.buffers if b >= 0]
        reads, writes = present[written:], present[:written]
        self.reads.append((reads, writes))
        apart = len({*writes}) == written and not {*writes} & {*reads}
        key = (self.call, apart)
        if key not in self.ways:
            cases = self.lowered(node) if apart else None
            if reads_halves(node) and cases is None:
                raise NeedsCasts
            on_gpu = "shader" in node.kernel.traits
            if on_gpu and cases is None:
                raise IRError(f"{node.origin!r}: no shader fits this call of {node.kernel.name}")
            self.ways[key] = cases, on_gpu or reads_halves(node)
        cases, elsewhere = self.ways[key]
        if cases is None and any(self.storages[s][5] for s in (*reads, *writes)):
            raise NeedsCopies
        self.cases.append(cases)
        return step._replace(elsewhere=True) if elsewhere else step

    def lowered(self, node: Node) -> list[dict[str, Any]] | None:
        """The cases of a call, as rows; None where the core has to run it."""
        cases_for = cases_of(node.kernel.name)
        if cases_for is None:
            return None
        call = call_of(self.seen(node))
        if any(spec.is_float and isinstance(p, dims.Dim) for spec in call.kernel.params for p in _listed(call.params[spec.name])):
            return None  # the bits of a number, which is known when the Program has begun to run
        whole = call_of(node).values
        call = replace(call, starts={name: whole[name].offset - value.offset for name, value in call.values.items()})
        if len(call.values) > MAX_STORAGE_BUFFERS:
            return None
        rows = []
        certain = False
        for case in cases_for(call):
            case = replace(case, guard=dims.product([case.guard, *(dims.eq(call.starts[name] % 4, 0) for name in case.vec4)]))
            known, rounds = dims.known(case.guard), dims.known(case.rounds)
            if known == 0 or (rounds is not None and rounds > MOST_ROUNDS):
                continue
            if not all(n in case.raw or v.dtype in wgsl.SUPPORTED for n, v in call.values.items()):
                continue
            if any(v.dtype.bits < 8 for v in call.values.values()):
                continue
            busy = case.busy and (dims.known(dims.lt(dims.product(case.grid), MOST_WORKGROUPS)) != 0)
            rows.append(self.row_of(call, case, known, busy))
            certain = certain or (known is not None and not busy)
            if certain:
                break
        return rows if certain else None

    def row_of(self, call: Call, case: Case, known: int | None, busy: bool) -> dict[str, Any]:
        numbers: list[Any] = []
        for value in wgsl.numbers(call, case).values():
            items: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
            as_float = any(isinstance(i, float) for i in items)
            numbers += [~self.register(float(i)) if as_float and not isinstance(i, dims.Dim) else self.register(i) for i in items]
        grid = [*case.grid, 1, 1][:3]
        return {
            "pipeline": self.pipeline(call, case),
            "guard": -1 if known is not None else self.register(case.guard),
            **({"busy": True} if busy else {}),
            **({"rounds": self.register(case.rounds)} if dims.known(case.rounds) is None else {}),
            "grid": [self.register(g) for g in grid],
            "uniforms": numbers,
        }

    def pipeline(self, call: Call, case: Case) -> int:
        shaders = wgsl.shaders(call, case)
        label = str(call.node.params["label"]) if "shader" in call.kernel.traits else call.kernel.name
        key = (label, *((s.needs, s.code) for s in shaders))
        if key not in self.pipelines:
            self.pipelines[key] = len(self.pipeline_rows)
            self.pipeline_rows.append(
                {
                    "kernel": label,
                    "outputs": len(call.outputs),
                    "bindings": len(call.values),
                    "variants": [{"needs": list(s.needs), "module": self.modules.setdefault(s.code, len(self.modules))} for s in shaders],
                }
            )
        return self.pipelines[key]

    def schedule(self) -> tuple[list[list[Any]], list[int]]:
        """Runs of steps on either side, the copies between them, control, stages. Inputs, slots and weights are where their readers are."""
        here: dict[int, set[str]] = {}
        out: list[list[Any]] = []
        moved = {i for i, row in enumerate(self.storages) if row[0] in (ARENA, OUTPUT)}
        boundaries = [steps for _, steps in self.ends[:-1]]
        stage = 0
        for at, (case, (reads, writes)) in enumerate(zip(self.cases, self.reads, strict=True)):
            while stage < bisect_right(boundaries, at):
                out.append(["stage", stage + 1, self.read_on_core(stage, here)])
                stage += 1
            if case == {}:
                case["on_core"] = [k for k, s in enumerate(reads) if here.get(s) == {"core"}]
                out.append(["control", at])
                continue
            side = "gpu" if case is not None else "core"
            # A partial write keeps the rest, so what is written has to be there as well.
            away = [s for s in dict.fromkeys([*reads, *writes]) if s in moved and s in here and side not in here[s]]
            if away:
                out.append(["upload" if side == "gpu" else "download", away])
                for s in away:
                    here[s].add(side)
            if out and out[-1][0] == side and out[-1][2] == at:
                out[-1][2] = at + 1
            else:
                out.append([side, at, at + 1])
            for s in writes:
                here[s] = {side}
        out += [["stage", s + 1, self.read_on_core(s, here)] for s in range(stage, len(boundaries))]
        results = [i for i, row in enumerate(self.storages) if row[0] == OUTPUT]
        return out, [self.storages[i][1] for i in results if "gpu" not in here.get(i, {"gpu"})]

    def read_on_core(self, stage: int, here: Mapping[int, set[str]]) -> list[int]:
        """The registers of the next stage that read what is in the core's memory alone."""
        first, last = self.ends[stage][0], self.ends[stage + 1][0]
        reads = [r for r in range(first, last) if self.code[r][0] == SHAPE_OPS["read"]]
        return [r for r in reads if here.get(self.buffer_rows[self.code[r][1]][0]) == {"core"}]


def call_of(node: Node) -> Call:
    """A call with its ABI parameters by name; its buffers may have names of their own, in ``params["names"]``."""
    values: dict[str, Value] = {}
    outputs: list[str] = []
    for spec in node.kernel.buffers:
        got = node.outs.get(spec.name) if spec.output else node.ins.get(spec.name)
        if got is None:
            continue
        if isinstance(got, Value):
            values[spec.name] = got
        else:
            values.update({f"{spec.name}{i}": v for i, v in enumerate(got)})
        if spec.output:
            outputs.append(spec.name)
    if "shader" in node.kernel.traits:
        names = node.params["names"]
        values = dict(zip(names, values.values(), strict=True))
        outputs = list(names[: len(outputs)])
    return Call(node.kernel, values, tuple(outputs), _params(node.kernel, node), node)


def _listed(items: Any) -> Sequence[Any]:
    return items if isinstance(items, tuple) else (items,)


def _params(kernel: Kernel, node: Node) -> dict[str, Any]:
    flat = kernel.raw_params(node)
    found: dict[str, Any] = {}
    at = 0
    for spec in kernel.params:
        if spec.count == -1:
            found[spec.name] = tuple(flat[at:])
        elif spec.count == 0:
            found[spec.name] = flat[at]
            at += 1
        else:
            found[spec.name] = tuple(flat[at : at + spec.count])
            at += spec.count
    return found
