"""What the engine knows of a program before any token moves: ports with their token patterns, arrows, modes.

A *pattern* says which fields of a token are not `*`; it is fixed by the arrow that sends it.  So each input of a node
has a fixed set of patterns, and the store can be specialised for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import InputOp, NodeOp, OutputOp, Port, ProgramOp, SendOp, Special
from upl_mlir.dialects.upl.kinds import Kind, kind_of
from upl_mlir.dialects.upl.precision import require_one_real
from upl_mlir.dialects.upl.query import arrows, endpoints, inputs, nodes, outputs, source_of, span_of
from upl_mlir.ops.choices import choose_lazily
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.sets import PolyContext

Pattern = tuple[int, ...]
"""Positions of the fields that are not `*`, ascending."""


class Order(Enum):
    """In which order tokens in flight arrive."""

    FIFO = "fifo"
    RANDOM = "random"


class GatherOrder(Enum):
    """In which order a gather folds its summands: as they come, or in the order of LANGUAGE 3.10."""

    RELAXED = "relaxed"
    ORDERED = "ordered"


class Mode(Enum):
    """How an input completes."""

    ORDINARY = "each token is one"
    COUNTED = "a gather whose number of summands is an expression over fields"
    CARRIED = "a gather whose summands carry their number"
    NAMED = "a gather whose number of summands is the value of another input"
    OPEN = "a gather that ends when no summand can come any more"


@dataclass(frozen=True, eq=False)
class PortPlan:
    """An input of a node: number `at` of node number `node`.

    `patterns` maps each pattern to whether all its tokens have multiplicity 1.
    """

    node: int
    at: int
    port: Port
    kind: Kind
    mode: Mode
    folded: bool  # summands are kept and folded in order
    maybe_zero: bool  # the number of summands may be 0
    patterns: dict[Pattern, bool] = field(default_factory=dict[Pattern, bool])

    def receiver(self, pattern: Pattern) -> str:
        """Name of the function that takes a token of the pattern."""
        return f"recv{self.node}_{self.at}_{mask(pattern)}"

    def store(self, pattern: Pattern) -> str:
        """Name of the dictionary that keeps tokens of the pattern; key → value, or [value, multiplicity]."""
        return f"s{self.node}_{self.at}_{mask(pattern)}"

    @property
    def partial(self) -> str:
        """Name of the dictionary of gathers under way."""
        return f"g{self.node}_{self.at}"

    @property
    def done(self) -> str:
        """Name of the set of completed gathers."""
        return f"d{self.node}_{self.at}"

    @property
    def gathers(self) -> bool:
        """Whether this is a gathering input."""
        return self.mode is not Mode.ORDINARY


@dataclass(frozen=True, eq=False)
class NodePlan:
    """A node and its inputs."""

    at: int
    op: NodeOp
    ports: tuple[PortPlan, ...]

    @property
    def full(self) -> Pattern:
        """The pattern without `*`."""
        return tuple(range(len(self.op.fields)))

    @property
    def open(self) -> tuple[PortPlan, ...]:
        """The inputs that are open gathers."""
        return tuple(p for p in self.ports if p.mode is Mode.OPEN)

    @property
    def rank(self) -> tuple[IndexExpr, ...]:
        """The rank by which its open gathers end, over the fields."""
        return self.op.rank.data if self.op.rank else ()

    @property
    def ends_on_domain(self) -> bool:
        """Whether its open gathers end at every instance of the domain, also where no token comes (LANGUAGE 3.3)."""
        alone = all(p.mode in (Mode.OPEN, Mode.COUNTED) for p in self.ports)
        return bool(self.open) and (alone or self.op.declared is not None)

    @property
    def may_boot(self) -> bool:
        """Whether instances may fire at the start: all inputs are counted gathers and each may have n = 0."""
        return bool(self.ports) and all(p.mode is Mode.COUNTED and p.maybe_zero for p in self.ports)


@dataclass(frozen=True, eq=False)
class Arrow:
    """An arrow: number `at` in text order, host inputs first."""

    at: int
    op: SendOp
    source: InputOp | NodeOp
    pattern: Pattern
    port: PortPlan | None  # None for a host output
    output: int | None

    @property
    def counted(self) -> bool:
        """Whether the number of its tokens is not just that of its source's firings."""
        s = self.op
        return s.predicate is not None or not s.when.is_true or bool(s.loops)


@dataclass(frozen=True, eq=False)
class Plan:
    """The whole program."""

    program: ProgramOp
    ctx: PolyContext
    real: Kind
    nodes: tuple[NodePlan, ...]
    inputs: tuple[InputOp, ...]
    outputs: tuple[OutputOp, ...]
    arrows: tuple[Arrow, ...]

    def arrows_into(self, port: PortPlan, pattern: Pattern | None = None) -> list[Arrow]:
        """The arrows that may have sent a token of the pattern (of any, if None) to an input."""
        return [a for a in self.arrows if a.port is port and pattern in (None, a.pattern)]


def mask(pattern: Pattern) -> int:
    """A pattern as a number."""
    return sum(1 << i for i in pattern)


def make_plan(program: ProgramOp, ctx: PolyContext, real: Kind, gather: GatherOrder) -> Plan:
    """Analyse a verified program; `ctx` binds every parameter.  Raises UplError (UPL1309, UPL1808)."""
    require_one_real(program, real)
    program = choose_lazily(program)
    node_ops = nodes(program)
    for op in node_ops:
        require_rank(op)
    plans = tuple(NodePlan(i, op, _ports(i, op, ctx, real, gather)) for i, op in enumerate(node_ops))
    by_name = {p.op.symbol: p for p in plans}
    outs = outputs(program)
    out_at = {op.symbol: i for i, op in enumerate(outs)}
    ends = endpoints(program)
    found: list[Arrow] = []
    for at, send in enumerate(arrows(program)):
        pattern = tuple(i for i, e in enumerate(send.index.data) if e is not None)
        port = None
        if isinstance(ends[send.target_name], NodeOp):
            node = by_name[send.target_name]
            port = next(p for p in node.ports if p.port.name == send.target_port)
            single = port.gathers or _is_one(send, ctx)
            port.patterns[pattern] = port.patterns.get(pattern, True) and single
        found.append(Arrow(at, send, source_of(send), pattern, port, out_at.get(send.target_name)))
    return Plan(program, ctx, real, plans, tuple(inputs(program)), tuple(outs), tuple(found))


def require_rank(op: NodeOp) -> None:
    """Raise UplError (UPL1309) for a node with an open gather of which nothing tells when it ends."""
    port = next((p for p in op.ports if p.open), None)
    if port is not None and op.rank is None:
        raise error(
            "UPL1309", f"no rank tells when `{op.symbol}.{port.name}[##]` ends", span_of(op),
            help="`upl check` names the cycle; a program from Python needs `infer_domains()` first",
        )  # fmt: skip


def _is_one(send: SendOp, ctx: PolyContext) -> bool:
    count = send.multiplicity
    return not isinstance(count, Special) and count.constant == 1


def _ports(node: int, op: NodeOp, ctx: PolyContext, real: Kind, gather: GatherOrder) -> tuple[PortPlan, ...]:
    names = {p.name for p in op.ports}
    out: list[PortPlan] = []
    for at, port in enumerate(op.ports):
        kind = kind_of(port.type, real)
        mode, maybe_zero = Mode.ORDINARY, False
        if port.gather is not None:
            match port.count:
                case IndexExpr():
                    mode = Mode.NAMED if port.count.names & names else Mode.COUNTED
                    known = None if port.count.names & set(op.fields) else ctx.number(port.count)
                    maybe_zero = mode is Mode.NAMED or known is None or known <= 0
                case Special.UNBOUNDED:
                    mode, maybe_zero = Mode.OPEN, True
                case _:
                    mode = Mode.CARRIED
        folded = (
            (gather is GatherOrder.ORDERED or kind.calls)
            and kind.is_float and port.gather is not None and port.gather.rounds
        )  # nothing else depends on the order
        plan = PortPlan(node, at, port, kind, mode, folded, maybe_zero)
        if plan.gathers:
            plan.patterns[tuple(range(len(op.fields)))] = True
        out.append(plan)
    return tuple(out)
