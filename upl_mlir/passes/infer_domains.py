"""`infer-domains`: the domain of every node and host output (LANGUAGE 3.9).

The domain of a node is the intersection over its inputs of the union of the images of the arrows into it.  Declared
domains are taken as they are (the `check` pass proves that they reproduce themselves), so a cycle through a declared
node is already cut.  What is left is solved in the order of dependence; a cycle of undeclared nodes by iteration from
the empty set, which ends where the cycle is finite.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import Diagnostic, Note, UplError, error
from upl_mlir.dialects.upl import FormulaAttr, InputOp, NodeOp, OutputOp, ProgramOp
from upl_mlir.dialects.upl.query import Endpoint, nodes, program_of, span_of, target_port
from upl_mlir.passes.analysis.effort import bounded
from upl_mlir.passes.analysis.entries import missing_in_domain
from upl_mlir.passes.analysis.relations import HULL, ProgramSets, mark
from upl_mlir.passes.analysis.strata import has_open, stratify
from upl_mlir.poly.describe import describe, stable_bounds
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.sets import PSet
from upl_mlir.poly.tools import DIM

MAX_ROUNDS = 1000  # of the iteration round a cycle of undeclared nodes; each round adds at least one instance
GUESS_AT = (4, 7)  # rounds before which the limit is guessed


@dataclass(frozen=True)
class InferDomainsPass(ModulePass):
    """Give every host output and node a `domain`.

    Requires: a verified program whose host inputs declare their domains.
    Establishes: `domain` on every `upl.input`, `upl.output` and `upl.node` ("all domains known"); `rank` on nodes with open
    gathers, where one is found (`passes/analysis/strata.py`).
    Source: Klimov 2021, section III (domains are polyhedra); LANGUAGE 3.9.

        upl.node @Sum <"d,k,i"> <"@(+) s[#]"> { ... }
        ->
        upl.node @Sum <"d,k,i"> <"@(+) s[#]"> domain <"1<=d<=D && 1<=k<K && 1<=i<=N[k]"> { ... }
    """

    name = "infer-domains"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        infer_domains(program_of(op))


def domains_known(program: ProgramOp) -> bool:
    """The predicate that this pass establishes."""
    return all(
        op.domain is not None for op in program.body.block.ops if isinstance(op, InputOp | OutputOp | NodeOp)
    )


def infer_missing(program: ProgramOp) -> None:
    """Infer domains, and ranks of open gathers, where they are not known.  Raises UplError (UPL1201–UPL1207)."""
    if not domains_known(program):
        infer_domains(program)
    elif any(has_open(op) and op.rank is None for op in nodes(program)):
        _stratify(program)


@bounded("the search for ranks")
def _stratify(program: ProgramOp) -> None:
    stratify(ProgramSets(program, directives=True))


@bounded("the inference of domains")
def infer_domains(program: ProgramOp) -> ProgramSets:
    """Set `domain` everywhere; returns the sets for reuse.  Raises UplError (UPL1201–UPL1207)."""
    for op in program.body.block.ops:
        if isinstance(op, InputOp | OutputOp | NodeOp):
            op.domain = None
            if op.declared is None:
                op.attributes.pop(HULL, None)
    sets = ProgramSets(program, directives=True)
    todo: dict[str, Endpoint] = {}
    for name, op in sets.ends.items():
        if op.declared is not None:
            declared = sets.domain(name)
            if isinstance(op, InputOp):
                _require_entries(sets, op)  # of the others no point is served that needs one: `check` refutes them
            if not isinstance(op, NodeOp):
                _require_bounded(declared, op)
        elif isinstance(op, InputOp):
            if op.fields:
                raise error(
                    "UPL1201",
                    f"the host input `{name}` has no domain",
                    span_of(op),
                    help=f"say which elements it has: `input {name}<{','.join(op.fields)}> in 0<={op.fields[0]}<n`",
                )
            sets.set_domain(name, sets.ctx.set(()))
        elif isinstance(op, OutputOp) and not op.fields:
            sets.set_domain(name, sets.ctx.set(()))  # its one element is always asked for: it has no domain to declare
        else:
            _require_arrows(sets, op)
            todo[name] = op
    _solve(sets, todo)
    for name, op in sets.ends.items():
        domain = sets.domain(name)
        if op.declared is not None:
            op.domain = op.declared
            mark(op, domain.lost)
            continue
        if not isinstance(op, InputOp):
            _require_bounded(domain, op)
        op.domain = FormulaAttr(describe(domain.as_meant()))
        mark(op, domain.lost)
        sets.set_domain(name, replace(sets.ctx.set(op.fields, op.domain.data), lost=domain.lost))
    stratify(sets)
    return sets


def _solve(sets: ProgramSets, todo: dict[str, Endpoint]) -> None:
    """Domains of the undeclared ones, component by component of the dependence graph."""
    sources = {n: {a.source.symbol for a in sets.into(n)} & todo.keys() for n in todo}
    while todo:
        ready = [n for n in todo if not sources[n] & todo.keys()]
        if ready:
            for n in ready:
                sets.set_domain(n, _served(sets, todo[n]))
                _require_bounded(sets.domain(n), todo[n])  # here, and not at a port that its tokens go to
                del todo[n]
            continue
        cycle = _component(sources, todo)
        _iterate(sets, {n: todo.pop(n) for n in cycle})


def _served(sets: ProgramSets, op: Endpoint) -> PSet:
    """As `ProgramSets.served`; an error that has no position gets the node's."""
    try:
        return sets.served(op)
    except UplError as e:
        raise UplError(*(d if d.span else _here(d, op) for d in e.diagnostics)) from None


def _here(d: Diagnostic, op: Endpoint) -> Diagnostic:
    fields = f"<{','.join(op.fields)}>"
    kind = "node" if isinstance(op, NodeOp) else "output"
    return replace(
        d, span=span_of(op), message=f"the domain of `{op.symbol}` cannot be inferred: {d.message}",
        help=f"declare it, `{kind} {op.symbol}{fields} in …`, or {d.help}",
    )  # fmt: skip


def _component(sources: dict[str, set[str]], todo: dict[str, Endpoint]) -> list[str]:
    """A strongly connected component, among those left, that depends on no other, in text order."""

    def ancestors(n: str) -> set[str]:
        seen: set[str] = set()
        stack = [n]
        while stack:
            for s in sources[stack.pop()] & todo.keys():
                if s not in seen:
                    seen.add(s)
                    stack.append(s)
        return seen

    before = {n: ancestors(n) for n in todo}
    first = min((n for n in todo if n in before[n]), key=lambda n: len(before[n]))
    return [n for n in todo if n in before[first]]


def _iterate(sets: ProgramSets, cycle: dict[str, Endpoint]) -> None:
    """Least fixpoint of a cycle of undeclared nodes, from the empty set.

    Where a symbolic size keeps the iteration from ending, the bounds that no longer change are kept, the moving ones are
    dropped, and the guess is accepted only if it reproduces itself.  (It is then the least fixpoint because no instance
    waits for itself, which `check` proves.)
    """
    for n, op in cycle.items():
        sets.set_domain(n, sets.ctx.empty(op.fields))
    before: dict[str, PSet] = {}
    for round_ in range(MAX_ROUNDS):
        if round_ in GUESS_AT and _extrapolate(sets, cycle, before):
            return
        before = {n: sets.domain(n) for n in cycle}
        changed = False
        for n, op in cycle.items():
            new = _served(sets, op)
            if not new <= sets.domain(n).as_meant():
                changed = True
                sets.set_domain(n, new)
        if not changed:
            return
        if sets.ctx.params and round_ > max(GUESS_AT):
            break
    names = " -> ".join([*cycle, next(iter(cycle))])
    raise error(
        "UPL1202",
        f"cannot infer the domains round the cycle {names}: it does not end for symbolic sizes",
        span_of(next(iter(cycle.values()))),
        notes=[Note(f"`{n}` is on the cycle", span_of(op)) for n, op in list(cycle.items())[1:]],
        help=f"declare one of them, for instance `node {next(iter(cycle))}<...> in ...`",
    )


def _extrapolate(sets: ProgramSets, cycle: dict[str, Endpoint], before: dict[str, PSet]) -> bool:
    """Guess the limit of an iteration from two of its steps; whether the guess is a fixpoint (else nothing changes)."""
    now = {n: sets.domain(n) for n in cycle}
    for n, op in cycle.items():
        sets.set_domain(n, sets.ctx.set(op.fields, stable_bounds(before[n], now[n].as_meant())))
    for _ in range(len(cycle) + 2):  # each step brings in the bounds that other inputs give
        new = {n: _served(sets, op) for n, op in cycle.items()}
        if all(new[n].as_meant().equals(sets.domain(n).as_meant()) for n in cycle):
            if all(_open_dimension(s) is None for s in new.values()):
                return True
            break  # too much was dropped: an entry outside its array could be anything
        for n in cycle:
            sets.set_domain(n, new[n])
    for n in cycle:
        sets.set_domain(n, now[n])
    return False


def _require_arrows(sets: ProgramSets, op: OutputOp | NodeOp) -> None:
    """An output without elements, or a node that nothing reaches, is a mistake that no token shows.

    (Of a node that gets tokens on another input, or declares its domain, `check` says which of them strand.)
    """
    ports = op.ports if isinstance(op, NodeOp) else (target_port(op, None),)
    if any(p.open or isinstance(p.count, IndexExpr) for p in ports) or sets.into(op.symbol):
        return
    fields = f"<{','.join(op.fields)}>"
    if isinstance(op, OutputOp):
        message, target = f"no arrow goes to the host output `{op.symbol}`", f"{op.symbol}{fields}"
    else:
        message, target = f"no arrow goes to the node `{op.symbol}`: it never fires", f"{op.symbol}.{ports[0].name}{fields}"
    raise error("UPL1208", message, span_of(op), help=f"send it something, `… -> {target}`, or take it away")


def _require_entries(sets: ProgramSets, op: Endpoint) -> None:
    assert op.declared is not None
    missing = missing_in_domain(sets, op, op.declared.data)
    if missing is not None:
        entry, point = missing
        at = ", ".join(f"{k}={v}" for k, v in (point or {}).items())
        raise error(
            "UPL1207",
            f"the domain of `{op.symbol}` reads {entry}, which does not exist" + (f" ({at})" if at else ""),
            span_of(op),
            help="bound the index by the array's, or give the array more entries",
        )


def _require_bounded(s: PSet, op: Endpoint) -> None:
    d = _open_dimension(s)
    if d is not None:
        kind = "node" if isinstance(op, NodeOp) else "host port"
        idle = isinstance(op, NodeOp) and all(p.open or isinstance(p.count, IndexExpr) for p in op.ports)
        raise error(
            "UPL1203",
            f"the domain of the {kind} `{op.symbol}` has no bound in `{d}`" + (
                f": it follows from {s.doubts()}, which is not affine" if s.lost else ""
            ),
            span_of(op),
            help="declare it: an instance whose gathers all get no summand fires as well, if it is declared" if idle
            else "declare a bounded domain, or give the field an index in at least one input",
        )


def _open_dimension(s: PSet) -> str | None:
    """A dimension in which a set has no bound."""
    s = s.coalesce()  # without pieces that no admissible size has
    for i, d in enumerate(s.dims):
        rest = s
        for part in [a for a in s.opaque_parts() if d in a.index.names]:  # no bound of `d` by itself, but d<=d*d<=4 is one
            rest = rest.without(part)
        if not (rest.isl.dim_has_lower_bound(DIM, i) and rest.isl.dim_has_upper_bound(DIM, i)) and not s.is_empty():
            return d
    return None
