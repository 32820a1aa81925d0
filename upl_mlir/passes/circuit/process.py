"""The process of a program of one statement: its instances, its body, and what its outputs show of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from upl_mlir.diagnostics import Span, UplError, error
from upl_mlir.passes.circuit.body import Body, Builder, formula
from upl_mlir.passes.circuit.nest import Dim
from upl_mlir.passes.loops.equations import Equation
from upl_mlir.passes.loops.program import Host, LoopProgram
from upl_mlir.passes.loops.terms import Fold, Get, Part, walk
from upl_mlir.poly.counts.dense import Evaluator, Unbounded, bounding_box
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.linear import Cons

OTHER_ENGINES = 'use engine="native", or "rtl" for the machine of tokens'


@dataclass(frozen=True, eq=False)
class Shown:
    """Elements of an output: where `when` holds over its fields, element `index` of the process's array."""

    when: Formula
    index: tuple[IndexExpr, ...]


@dataclass(eq=False)
class Process:
    """One statement: the array that it computes, over `fields`, and the iterators `sums` of its running sum.

    `dims` are both, as ranges of numbers; `domain` are the instances that matter.
    """

    name: str
    span: Span | None
    fields: tuple[str, ...]
    sums: tuple[str, ...]
    dims: tuple[Dim, ...]
    domain: Formula
    body: Body
    inputs: dict[str, Host]
    outputs: dict[str, tuple[Host, tuple[Shown, ...]]]
    sizes: Evaluator


def process_of(p: LoopProgram) -> Process:
    """The process of a program whose sizes are numbers.  Raises UplError: UPL2001 if it is not one statement, UPL2002
    for what has no unit."""
    ctx = p.system.lin.ctx
    if ctx.params:
        names = ", ".join(f"`{n}`" for n in ctx.params)
        raise error("UPL2001", f"a circuit is made for numbers: {names} not given", help=f"-D {next(iter(ctx.params))}=...")
    eq = _statement(p)
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
    first = Formula.all(Formula.compare(d.name, "==", d.low) for d in dims[len(eq.fields) :])
    sizes = Evaluator.of(ctx)
    grid = np.meshgrid(*(np.arange(d.low, d.low + d.extent) for d in dims), indexing="ij", sparse=True)
    known = sizes.given(dict(zip((d.name for d in dims), grid, strict=True)))
    outside = np.logical_not(known.formula(whole))

    def always(when: Formula) -> bool:
        return bool(np.all(np.logical_or(known.formula(when), outside)))

    body = Builder(refuse, always, first).body([(formula(c), t) for c, t in eq.pieces])
    outputs = {h.name: (h, _shown(p, eq, h)) for h in p.hosts if h.output}
    inputs = {h.name: h for h in p.hosts if not h.output}
    for h in p.hosts:
        if h.kind.value != "f32":
            message = f"`{h.name}` is {h.kind.value}: circuits compute in f32"
            raise error("UPL2002", message, p.places.get(h.name), help=OTHER_ENGINES)
    return Process(eq.name, span, eq.fields, sums, dims, whole, body, inputs, outputs, sizes)


def _statement(p: LoopProgram) -> Equation:
    """The equation that computes; the others show its elements."""
    equations = list(p.system.equations.values())
    inner = [eq for eq in equations if not eq.output] or [
        eq for eq in equations if any(not isinstance(t, Get) for _, t in eq.pieces)
    ]
    if len(inner) != 1:
        names = ", ".join(f"`{eq.name}`" for eq in inner) or "none"
        help_ = f"circuits of several statements are not built yet; {OTHER_ENGINES}"
        where = next((p.places.get(eq.name) for eq in (*inner[1:], *equations)), None)
        message = f"a circuit is made of a program of one statement, found {len(inner)}: {names}"
        raise error("UPL2001", message, where, help=help_)
    return inner[0]


def _parts(eq: Equation) -> list[tuple[Cons, Part]]:
    """The parts of gathers that send many summands, with the constraints around them."""
    out: list[tuple[Cons, Part]] = []
    for cons, term in eq.pieces:
        out += [(where, p) for t, where in walk(term, cons) if isinstance(t, Fold) for p in t.parts if p.dims]
    return out


def _shown(p: LoopProgram, eq: Equation, h: Host) -> tuple[Shown, ...]:
    """What an output shows of the statement's array."""
    if h.name == eq.name:
        return (Shown(Formula.any(formula(c) for c in eq.domain), tuple(map(IndexExpr.of, eq.fields))),)
    out: list[Shown] = []
    for cons, term in p.system.equations[h.name].pieces:
        if not isinstance(term, Get) or term.array != eq.name:
            what = f"output `{h.name}` shows more than elements of `{eq.name}`, the program's one statement"
            raise error("UPL2001", what, p.places.get(h.name), help=OTHER_ENGINES)
        out.append(Shown(formula(cons), term.index))
    return tuple(out)
