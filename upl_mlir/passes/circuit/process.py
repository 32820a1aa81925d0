"""The processes of a program: for each statement its instances and its body, and what outputs show of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from upl_mlir.diagnostics import Span, UplError, error
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.analysis.components import components
from upl_mlir.passes.circuit.body import INTEGER, Body, Builder, Range, formula
from upl_mlir.passes.circuit.nest import Dim
from upl_mlir.passes.circuit.numbers import F32, Numbers
from upl_mlir.passes.circuit.statements.specialise import exists
from upl_mlir.passes.loops.program import Host, LoopProgram
from upl_mlir.passes.loops.system import Equation
from upl_mlir.passes.loops.terms import Fold, Get, Part, walk
from upl_mlir.poly.counts.dense import Evaluator, Unbounded, bounding_box
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.linear import Cons

OTHER_ENGINES = 'use engine="native", or "rtl" for the machine of tokens'


@dataclass(frozen=True, eq=False)
class Shown:
    """Elements of an output: where `when` holds over its fields, element `index` of a process's array."""

    when: Formula
    index: tuple[IndexExpr, ...]


@dataclass(frozen=True, eq=False)
class Drain:
    """An output, and what it shows of the array of one process."""

    host: Host
    array: str
    shown: tuple[Shown, ...]


@dataclass(eq=False)
class Process:
    """A statement: the array that it computes, over `fields`, and the iterators `sums` of its running sum.

    `dims` are both, as ranges of numbers; `domain` are the instances that matter.
    """

    name: str
    span: Span | None
    fields: tuple[str, ...]
    sums: tuple[str, ...]
    dims: tuple[Dim, ...]
    domain: Formula
    body: Body
    sizes: Evaluator

    @property
    def array(self) -> tuple[Dim, ...]:
        """The box of the array's elements."""
        return self.dims[: len(self.fields)]

    @property
    def reads(self) -> frozenset[str]:
        """The arrays that the body reads, its own one included."""
        return frozenset(n.array for n in self.body.nodes if n.kind == "read")


@dataclass(eq=False)
class Network:
    """The processes of a program in groups that read of each other, each group after those that it reads of; its ports."""

    name: str
    groups: tuple[tuple[Process, ...], ...]
    inputs: Mapping[str, Host]
    outputs: Mapping[str, Drain]
    sizes: Evaluator
    numbers: Numbers = F32

    @property
    def processes(self) -> tuple[Process, ...]:
        """All processes."""
        return tuple(p for group in self.groups for p in group)


def network_of(p: LoopProgram) -> Network:
    """The processes of a program whose sizes are numbers.  Raises UplError: UPL2001 for what is no network of processes,
    UPL2002 for what has no unit."""
    ctx = p.system.lin.ctx
    if ctx.params:
        names = ", ".join(f"`{n}`" for n in ctx.params)
        raise error("UPL2001", f"a circuit is made for numbers: {names} not given", help=f"-D {next(iter(ctx.params))}=...")
    numbers = Numbers(p.small or Kind.F32)
    for h in p.hosts:
        if h.kind not in (numbers.kind, Kind.BOOL, Kind.INT) or (h.kind is Kind.INT and numbers.width < INTEGER):
            message = f"`{h.name}` is {h.kind.value}: this circuit computes in {numbers.kind.value}"
            raise error("UPL2002", message, p.places.get(h.name), help=OTHER_ENGINES)
        if not any(exists(p.system.lin, c) for c in h.cases):
            raise error("UPL2001", f"`{h.name}` has no elements at these sizes", p.places.get(h.name), help=OTHER_ENGINES)
    sizes = Evaluator.of(ctx)
    shows = {eq.name: _shows(p, eq) for eq in p.system.equations.values() if eq.output}
    made = [_process(p, eq, sizes, numbers) for eq in p.system.equations.values() if shows.get(eq.name) is None]
    if not made:
        raise error("UPL2001", "the program computes nothing: its outputs are its inputs", help=OTHER_ENGINES)
    outputs: dict[str, Drain] = {}
    for h in p.hosts:
        if h.output:
            array = shows[h.name]
            outputs[h.name] = Drain(h, array or h.name, _shown(p.system.equations[h.name], array))
    inputs = {h.name: h for h in p.hosts if not h.output}
    return Network(p.name, _grouped(made), inputs, outputs, sizes, numbers)


def _process(p: LoopProgram, eq: Equation, sizes: Evaluator, numbers: Numbers) -> Process:
    """The process of an equation."""
    ctx = sizes.ctx
    span = p.places.get(eq.name)

    def refuse(what: str) -> UplError:
        return error("UPL2002", f"{what} has no circuit yet (in `{eq.name}`)", span, help=OTHER_ENGINES)

    parts = _parts(eq)
    if len(parts) > 1:
        raise error("UPL2001", f"`{eq.name}` has more than one gather of many summands", span, help=OTHER_ENGINES)
    cons, part = parts[0] if parts else ((), None)
    sums = part.dims if part is not None else ()
    whole = Formula.any(formula(c) for c in eq.domain)
    over = Formula.all((formula(cons), formula(part.cons))) if part is not None else whole
    try:
        box = bounding_box(ctx, eq.fields, whole)
        inner = bounding_box(ctx, (*eq.fields, *sums), over)
    except Unbounded as e:
        raise error("UPL2001", f"`{e.field}` of `{eq.name}` has no bounds", span) from None
    low, shape = (*box.lower, *inner.lower[len(eq.fields) :]), (*box.shape, *inner.shape[len(eq.fields) :])
    dims = tuple(map(Dim, (*eq.fields, *sums), low, shape))
    if not dims:  # one instance: a loop that runs once
        sums, dims = ("once",), (Dim("once", 0, 1),)
    first = Formula.all(Formula.compare(d.name, "==", d.low) for d in dims[len(eq.fields) :])
    grid = np.meshgrid(*(np.arange(d.low, d.low + d.extent) for d in dims), indexing="ij", sparse=True)
    known = sizes.given(dict(zip((d.name for d in dims), grid, strict=True)))
    outside = np.logical_not(known.formula(whole))

    def always(when: Formula) -> bool:
        return bool(np.all(np.logical_or(known.formula(when), outside)))

    def extent(e: IndexExpr) -> Range:
        found = np.asarray(known.expr(e))
        return int(found.min()), int(found.max())

    most = prod(d.extent for d in dims[len(eq.fields) :])
    body = Builder(numbers, refuse, always, extent, first, most).body([(formula(c), t) for c, t in eq.pieces])
    return Process(eq.name, span, eq.fields, sums, dims, whole, body, sizes)


def _grouped(found: Sequence[Process]) -> tuple[tuple[Process, ...], ...]:
    """Processes that read of each other together, each group after those that it reads of."""
    made = {q.name: q for q in found}
    groups = components(list(made), lambda n: sorted(made[n].reads & made.keys() - {n}))
    return tuple(tuple(made[n] for n in group) for group in groups)


def _parts(eq: Equation) -> list[tuple[Cons, Part]]:
    """The parts of gathers that send many summands, with the constraints around them."""
    out: list[tuple[Cons, Part]] = []
    for cons, term in eq.pieces:
        out += [(where, p) for t, where in walk(term, cons) if isinstance(t, Fold) for p in t.parts if p.dims]
    return list({id(part): (where, part) for where, part in out}.values())


def _shows(p: LoopProgram, eq: Equation) -> str | None:
    """The one array of which an output shows elements; None if the output computes, or shows several."""
    found = {t.array if isinstance(t, Get) else None for _, t in eq.pieces}
    array = found.pop() if len(found) == 1 else None
    return array if array in p.system.equations and not p.system.equations[array].output else None


def _shown(eq: Equation, array: str | None) -> tuple[Shown, ...]:
    """What an output shows of a process's array: elements, or all if the array is its own."""
    if array is None:
        return (Shown(Formula.any(formula(c) for c in eq.domain), tuple(map(IndexExpr.of, eq.fields))),)
    return tuple(Shown(formula(cons), t.index) for cons, t in eq.pieces if isinstance(t, Get))
