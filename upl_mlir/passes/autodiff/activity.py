"""Which inputs carry derivatives, and at which instances (AUTODIFF rule 10).

An input is *active* if the scalar objective depends on it and it depends on an independent variable.  The first question
is answered per instance: a set for each input, the least fixpoint of going backward along arrows from `of`
(`backward.py`).  Where that does not settle (time loops of symbolic length) the whole domain is taken: still right, missing
contributions count 0.  No derivative passes arrows into an input that is *cut*: usually those of `wrt`, none for total
derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import InputOp, NodeOp
from upl_mlir.dialects.upl.query import Endpoint, span_of
from upl_mlir.passes.analysis.backward import Step, reaching
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.autodiff.derivative_table import entry
from upl_mlir.passes.loops.terms import inner_first
from upl_mlir.poly.sets import PSet

PortKey = tuple[str, str]
"""(node or host port, input); a host input or output is its own only input."""
Held = dict[PortKey, list[PortKey]]
"""By an input that is differentiated by: those on whose way to the objective its derivative stops."""


def key_of(arrow: Arrow) -> PortKey:
    """The input that an arrow enters."""
    return (arrow.target.symbol, arrow.port.name)


def input_ports(op: Endpoint) -> list[str]:
    """Names of the values that enter a body."""
    return [p.name for p in op.ports] if isinstance(op, NodeOp) else [op.symbol]


def operands_of(v: SSAValue) -> Sequence[SSAValue]:
    """The values that one is computed from."""
    return v.owner.operands if isinstance(v.owner, Operation) else ()


@dataclass
class Dependence:
    """Which inputs of a body each of its values depends on differentiably."""

    source: InputOp | NodeOp
    memo: dict[SSAValue, frozenset[str]] = field(default_factory=dict[SSAValue, frozenset[str]])

    def of(self, v: SSAValue) -> frozenset[str]:
        """Inputs with a differentiable path to the value.

        Raises UplError (UPL1402) for an operation on reals without a rule."""
        for x in inner_first(v, lambda y: () if y in self.memo else self._read(y)):
            if x not in self.memo:
                self.memo[x] = self._of(x)
        return self.memo[v]

    def _of(self, v: SSAValue) -> frozenset[str]:
        """The same of a value of whose operands it is known."""
        op = v.owner
        if not isinstance(op, Operation):
            at = list(op.args).index(v) - len(self.source.fields)  # pyright: ignore[reportArgumentType]
            return frozenset() if at < 0 else frozenset((input_ports(self.source)[at],))
        return frozenset[str]().union(*(self.memo[o] for o in self._read(v)))

    def _read(self, v: SSAValue) -> Sequence[SSAValue]:
        """The operands from which derivatives pass to a value."""
        op = v.owner
        if not isinstance(op, Operation):
            return ()
        try:
            return [o for i, o in enumerate(op.operands) if entry(op, i) is not None]
        except KeyError:
            raise error(
                "UPL1402",
                f"no derivative is known for `{op.name}`",
                span_of(op),
                help="wrap it in stop_gradient(...) if no derivative should pass",
            ) from None


@dataclass
class Activity:
    """The result: active inputs with the instances at which they carry a derivative.

    `active` has `wrt` inputs on their whole domain, where derivatives by them are wanted; `reached` has only instances that
    the objective depends on.
    """

    sets: ProgramSets
    of: PortKey
    wrt: tuple[PortKey, ...]
    cut: frozenset[PortKey]
    dependence: dict[str, Dependence]
    active: dict[PortKey, PSet]
    reached: dict[PortKey, PSet]

    def carries(self, arrow: Arrow) -> bool:
        """Whether a derivative goes back along the arrow: its target is active and its value depends on an active
        input.  Arrows into a cut input carry none (rule 9)."""
        key = key_of(arrow)
        if arrow.virtual or key not in self.reached or key in self.cut:
            return False
        name = arrow.source.symbol
        return any((name, p) in self.active for p in self.dependence[name].of(arrow.send.value))

    def instances(self, op: InputOp | NodeOp) -> PSet | None:
        """The instances at which some input is active; None if no input is."""
        found = [self.active[(op.symbol, p)] for p in input_ports(op) if (op.symbol, p) in self.active]
        if not found:
            return None
        out = found[0]
        for s in found[1:]:
            out = out | s
        return out.coalesce()


def analyse(
    sets: ProgramSets,
    of: PortKey,
    wrt: tuple[PortKey, ...],
    cut: frozenset[PortKey],
    whole: Callable[[str], bool] = lambda _: False,
) -> Activity:
    """Find the active inputs.  Every `wrt` input counts as active on its whole domain (0 where there is no path), unless an
    array without these zeros has the same shape, and so does every active input of a node that is to be kept `whole`.
    """
    dependence = {
        op.symbol: Dependence(op) for op in sets.ends.values() if isinstance(op, InputOp | NodeOp)
    }
    ports = reach(sets, dependence, of, wrt, cut)
    reached = fixpoint(sets, dependence, of, cut, ports, whole)
    active = dict(reached)
    for key in wrt:
        if key not in active or not _suffices(sets, key, active[key]):
            active[key] = sets.domain(key[0])
    return Activity(sets, of, wrt, cut, dependence, active, reached)


def _suffices(sets: ProgramSets, key: PortKey, found: PSet) -> bool:
    """Whether an array over these elements of a host input, not all of them, has the input's shape: the others are 0 there
    without being sent."""
    whole = sets.domain(key[0])
    if sets.ctx.unknown or not isinstance(sets.ends[key[0]], InputOp) or whole <= found:
        return False
    return all(whole.project((d,)) <= found.project((d,)) for d in whole.dims)


def reach(
    sets: ProgramSets,
    dependence: dict[str, Dependence],
    of: PortKey,
    wrt: Sequence[PortKey],
    cut: frozenset[PortKey],
) -> set[PortKey]:
    """Inputs between `wrt` and `of`, without regard to instances."""
    links = edges(sets, dependence, cut)
    return closure(links, wrt, forward=True) & closure(links, [of], forward=False)


def held_fixed(
    sets: ProgramSets, dependence: dict[str, Dependence], ofs: Sequence[PortKey], wrt: Sequence[PortKey]
) -> Held:
    """What the derivatives by each of `wrt` hold fixed: the first inputs of `wrt` that a path to one of `ofs` meets."""
    links = edges(sets, dependence, frozenset())
    leading = closure(links, ofs, forward=False)
    onward = [(u, v) for u, v in links if u not in wrt]
    found: Held = {}
    for key in wrt:
        after = {v for u, v in links if u == key}
        met = closure(onward, after, forward=True) & leading
        if through := [v for v in wrt if v in met]:
            found[key] = through
    return found


def edges(
    sets: ProgramSets, dependence: dict[str, Dependence], cut: frozenset[PortKey]
) -> list[tuple[PortKey, PortKey]]:
    """From an input to one that a value which depends on it is sent to, without those into `cut`."""
    return [
        ((a.source.symbol, p), key_of(a))
        for a in sets.arrows
        if not a.virtual and key_of(a) not in cut
        for p in dependence[a.source.symbol].of(a.send.value)
    ]


def closure(edges: Iterable[tuple[PortKey, PortKey]], start: Iterable[PortKey], *, forward: bool) -> set[PortKey]:
    """The inputs that are reached from `start`, itself included, along the edges or against them."""
    after: dict[PortKey, list[PortKey]] = {}
    for u, v in edges:
        here, there = (u, v) if forward else (v, u)
        after.setdefault(here, []).append(there)
    seen = set(start)
    stack = list(seen)
    while stack:
        for there in after.get(stack.pop(), ()):
            if there not in seen:
                seen.add(there)
                stack.append(there)
    return seen


def fixpoint(
    sets: ProgramSets,
    dependence: dict[str, Dependence],
    of: PortKey,
    cut: frozenset[PortKey],
    ports: set[PortKey],
    whole: Callable[[str], bool] = lambda _: False,
    closed: Mapping[PortKey, PSet] | None = None,
) -> dict[PortKey, PSet]:
    """The instances of each port that the objective depends on: least fixpoint backward from `of`, not through instances
    that are `closed`."""
    if of not in ports:
        return {}
    found = {k: sets.ctx.empty(sets.ends[k[0]].fields) for k in sorted(ports)}
    found[of] = sets.domain(of[0])
    steps: list[Step[PortKey]] = []
    for a in sets.arrows:
        if key_of(a) in ports and key_of(a) not in cut and not a.virtual:
            sources = [(a.source.symbol, p) for p in sorted(dependence[a.source.symbol].of(a.send.value))]
            steps.append(Step(a, key_of(a), [k for k in sources if k in ports]))
    domains = {k: sets.domain(k[0]) for k in found}
    domains |= {k: (domains[k] - s).coalesce() for k, s in (closed or {}).items() if k in found}
    reaching(sets, found, steps, domains.__getitem__, lambda k: whole(k[0]))
    return {k: s for k, s in found.items() if not s.is_empty()}
