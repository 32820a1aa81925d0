"""`batch`: an index field for everything that depends on the given inputs (AUTODIFF section 4, "Batched").

Where a part of the program that has the field takes a token from the part that has not, one token with `*` there serves all
its values, with the field's extent as a factor of the multiplicity; into a gather, which takes no `*`, and where nothing
else would determine the field, a `for` sends one token for each value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, i64
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import error, nearest_or_all
from upl_mlir.dialects.upl import FormulaAttr, InputOp, Iterator, NodeOp, OutputOp, ParamOp, Port, ProgramOp, SendOp
from upl_mlir.dialects.upl.attributes import CountAttr, IndexAttr, IteratorsAttr, NamesAttr
from upl_mlir.dialects.upl.query import Endpoint, endpoints, poly_context, program_of, span_of, symbols
from upl_mlir.dialects.upl.values import LetOp, hint
from upl_mlir.passes.analysis.effort import bounded
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.analysis.strata import forget_ranks
from upl_mlir.passes.arrows import here, restricted
from upl_mlir.passes.build import unused
from upl_mlir.passes.checkpoint.split import Dependents, gathered, split
from upl_mlir.passes.expand import expand
from upl_mlir.poly.describe import disjoint_pieces
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.fibres import fibre_count
from upl_mlir.poly.nest import nest
from upl_mlir.poly.parse import PolySyntaxError, parse_index
from upl_mlir.poly.sets import PSet


@dataclass(frozen=True)
class BatchPass(ModulePass):
    """Add the index field `field` to what depends on the inputs `ports` (host inputs, or ``NODE.input``).

    `lo` and `hi` are its bounds, both included: integers, or expressions of parameters and constants.  Without `hi` the
    extent is a new parameter ``B``.

    Requires: all domains known; no `adjoint of` directives.
    Establishes: host inputs in `ports` and all that depends on them have `field` in front; the rest does not change.
    Source: AUTODIFF section 4; the transformation is that of `vmap` in array languages.

        input X<i> { -> M.x<i> }    input W<i> { -> M.w<i> }          node M<i> { in x, w; x*w -> Y<i> }
        ->
        input X<b,i> { -> M.x<b,i> }   input W<i> { #B -> M.w<*,i> }  node M<b,i> { in x, w; x*w -> Y<b,i> }
    """

    name = "batch"
    ports: tuple[str, ...]
    field: str
    lo: int | str = 0
    hi: int | str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = program_of(op)
        expand(program)
        batch(program, self.ports, self.field, self.lo, self.hi)


@bounded("batching")
def batch(program: ProgramOp, ports: Sequence[str], field: str, lo: int | str = 0, hi: int | str | None = None) -> None:
    """Batch a program in place by one field; see `BatchPass`.  Raises UplError (UPL1420)."""
    _refuse(program, ports, field)
    low = _bound(program, lo)
    at_least = Formula.compare(low, "<=", field)
    if hi is None:
        name = unused("B", names_of(program))
        param = ParamOp(name, Formula.compare(name, ">=", 1))
        first = program.body.block.first_op
        if first is None:
            program.body.block.add_op(param)
        else:
            program.body.block.insert_op_before(param, first)
        inside = at_least & Formula.compare(field, "<", low + name)
    else:
        inside = at_least & Formula.compare(field, "<=", _bound(program, hi))
    batch_over(program, ports, (field,), inside, prefix="B")


def batch_over(
    program: ProgramOp, ports: Sequence[str], fields: Sequence[str], inside: Formula, *, prefix: str,
    also: Sequence[str] = (), enough: Mapping[str, frozenset[str]] | None = None,
) -> None:  # fmt: skip
    """Add several fields at once, which take the values for which `inside` holds; `prefix` names divided nodes, `also` has
    host outputs that get the fields even if they do not depend, `enough` the inputs on which nodes are known to fire.

    All domains must be known and the names of the fields free.  Raises UplError (UPL1420).
    """
    split(program, ports, prefix, enough)
    sets = ProgramSets(program)
    _Batch(sets, Dependents(sets, ports, divide=False), sets.ctx.set(fields, inside), inside, also).run()
    forget_ranks(program)


def names_of(program: ProgramOp) -> set[str]:
    """All names that a new index field must not have: of declarations, fields, inputs, variables and iterators."""
    out = symbols(program)
    for op in endpoints(program).values():
        out |= {*op.fields}
        if isinstance(op, NodeOp):
            out |= {p.name for p in op.ports}
        if isinstance(op, InputOp | NodeOp):
            out |= {o.var.data for o in op.block.ops if isinstance(o, LetOp)}
            out |= {it.name for s in op.sends for it in s.loops}
    return out


def _refuse(program: ProgramOp, ports: Sequence[str], field: str) -> None:
    ends = endpoints(program)
    for text in ports:
        name, dot, port = text.partition(".")
        op = ends.get(name)
        if op is None:
            raise error("UPL1420", f"batch: there is no port or node `{name}`", help=nearest_or_all(name, ends))
        if isinstance(op, NodeOp) and dot:
            if op.port(port) is None:
                known = [p.name for p in op.ports]
                raise error(
                    "UPL1420", f"batch: `{name}` has no input `{port}`", span_of(op), help=nearest_or_all(port, known)
                )
        elif dot or not isinstance(op, InputOp):
            raise error("UPL1420", f"batch: `{text}` is not a host input or a node input", span_of(op),
                        help=f"name an input of the node, as in `{name}.x`" if isinstance(op, NodeOp) else None)  # fmt: skip
    if not field.isidentifier():
        raise error("UPL1420", f"batch: `{field}` is no name for an index field")
    if field in names_of(program):
        raise error("UPL1420", f"batch: the program already has something called `{field}`", help="choose another name")


def _bound(program: ProgramOp, text: int | str) -> IndexExpr:
    """A bound of the new field over parameters and constants."""
    try:
        e = IndexExpr.of(text) if isinstance(text, int) else parse_index(text)
    except PolySyntaxError as why:
        raise error("UPL1420", f"batch: `{text}` is no index expression: {why.message}") from None
    ctx = poly_context(program)
    unknown = sorted(e.names - {*ctx.params, *ctx.constants}) + [
        a.array for a in e.lookups() if a.array not in ctx.arrays
    ]
    if unknown:
        raise error("UPL1420", f"batch: `{unknown[0]}` in the bound `{text}` is no integer parameter or constant",
                    help=nearest_or_all(unknown[0], [*ctx.params, *ctx.constants]))  # fmt: skip
    return e


@dataclass(frozen=True)
class _Spread:
    """How one token of the unbatched part reaches all values of the new fields, or one for each of some of them.

    `index` has the new fields (None: `*`), `count` the number of values that one token covers.
    """

    index: tuple[IndexExpr | None, ...]
    count: IndexExpr
    loops: tuple[Iterator, ...] = ()
    condition: Formula = TRUE
    point: Formula = TRUE


class _Batch:
    """One program being batched; nodes are divided already."""

    def __init__(
        self, sets: ProgramSets, dependents: Dependents, values: PSet, inside: Formula, also: Sequence[str]
    ):  # fmt: skip
        self.sets, self.values, self.inside = sets, values, inside
        self.fields = values.dims
        if not sets.ctx.set((), sets.ctx.param_condition) <= values.project(()):
            raise error(
                "UPL1420", f"batch: the bounds `{inside}` may leave no value", help="let the extent be at least 1"
            )
        self.wide: set[str] = dependents.hosts | {n for n, ports in dependents.ports.items() if ports}
        self.wide |= {a.target.symbol for a in sets.arrows if a.source.symbol in self.wide} | set(also)
        self.spread_star, self.spread_for = self._spreads()

    def run(self) -> None:
        """Rewrite arrows, then declarations."""
        open_ = {n: self._undetermined(self.sets.ends[n]) for n in self.wide}
        carriers = {n: self._carrier(n, s) for n, s in open_.items()}
        for a in self.sets.arrows:
            if a.source.symbol in self.wide:
                _reindex(a.send, here(self.fields))
            elif a.target.symbol in self.wide:
                name = a.target.symbol
                if a.port.gather is not None or isinstance(a.target, OutputOp):
                    self._broadcast(a, a.send, self.spread_for)
                elif carriers[name] is a.port:
                    self._broadcast_partly(a, open_[name])
                else:
                    self._broadcast(a, a.send, self.spread_star)
        for name in self.wide:
            self._declare(self.sets.ends[name])

    # -- arrows from the part without the fields into the part with them -----------------------------------------------
    def _narrow(self, name: str) -> list[Arrow]:
        return [a for a in self.sets.into(name) if a.source.symbol not in self.wide]

    def _undetermined(self, op: Endpoint) -> PSet:
        """The instances of which no token would say the new fields: every ordinary one comes from outside, no gather has
        a summand."""
        sets = self.sets
        out = sets.domain(op.symbol)
        if not isinstance(op, NodeOp):
            return out
        for p in op.ports:
            if p.gather is None:
                covered = sets.ctx.empty(op.fields)
                for a in self._narrow(op.symbol):
                    if a.port is p:
                        covered = covered | sets.image(a)
                out = out & covered
            else:
                out = out - gathered(sets, op, p)
        return out

    def _carrier(self, name: str, open_: PSet) -> Port | None:
        """The ordinary input on which undetermined instances get one token for each value: that of fewest arrows."""
        op = self.sets.ends[name]
        if not isinstance(op, NodeOp) or open_.is_empty():
            return None
        narrow = [a for a in self._narrow(name) if not (self.sets.image(a) & open_).is_empty()]
        ordinary = [p for p in op.ports if p.gather is None]  # without any, counts alone make each instance fire
        return min(ordinary, key=lambda p: sum(a.port is p for a in narrow), default=None)

    def _broadcast_partly(self, a: Arrow, open_: PSet) -> None:
        """One token for each value where the target is undetermined, one with `*` elsewhere."""
        r = self.sets.relation(a)
        inside = open_.rename(dict(zip(a.target.fields, a.dst, strict=True))).extend(a.dims)
        part, rest = (r & inside).coalesce(), (r - inside).coalesce()
        if part.is_empty():
            self._broadcast(a, a.send, self.spread_star)
            return
        if a.exact and not rest.is_empty():
            other = a.send.clone({v: v for v in a.send.operands})
            a.source.block.insert_op_after(other, a.send)
            for send, where in ((a.send, part), (other, rest)):
                new = restricted(a, where.in_terms_of(a.src), self.sets.domain(a.source.symbol))
                send.condition = None if new.condition.is_true else FormulaAttr(new.condition)
                send.point_condition = None if new.point_condition.is_true else FormulaAttr(new.point_condition)
                send.count = None if new.count is None or new.count == IndexExpr.of(1) else CountAttr(new.count)
            self._broadcast(a, other, self.spread_star)
        self._broadcast(a, a.send, self.spread_for)

    @staticmethod
    def _broadcast(a: Arrow, first: SendOp, spreads: Sequence[_Spread]) -> None:
        """Make the token of an arrow reach all values of the new fields."""
        sends = [first, *(first.clone({v: v for v in first.operands}) for _ in spreads[1:])]
        a.source.block.insert_ops_after(sends[1:], first)
        for send, s in zip(sends, spreads, strict=True):
            _reindex(send, s.index)
            if s.loops:
                send.iterators = IteratorsAttr((*s.loops, *send.loops))
            condition = Formula.all((send.when, s.condition))
            point = Formula.all((s.point, send.when_point))
            send.condition = None if condition.is_true else FormulaAttr(condition)
            send.point_condition = None if point.is_true else FormulaAttr(point)
            m = send.multiplicity
            if a.port.gather is None and isinstance(m, IndexExpr):
                m = m * s.count
                send.count = None if m == IndexExpr.of(1) else CountAttr(m)

    def _spreads(self) -> tuple[list[_Spread], list[_Spread]]:
        """Ways to reach all values: with as many `*` as one count allows, and without."""
        for n in range(len(self.fields) + 1):
            outer, inner = self.fields[:n], self.fields[n:]
            count = fibre_count(self.values, inner)
            if count is not None:
                starred = self._walk(outer, len(inner), count)
                return starred, self._walk(self.fields, 0, IndexExpr.of(1))
        raise AssertionError("without `*` one token covers one value")

    def _walk(self, over: Sequence[str], stars: int, count: IndexExpr) -> list[_Spread]:
        """Loops over the values of some of the new fields."""
        out: list[_Spread] = []
        for piece in disjoint_pieces(self.values.project(over)):
            found = nest(piece, over, (), self.sets.ctx.set(()))
            if found is None:
                raise error("UPL1420", f"batch: the values `{self.inside}` cannot be walked through by `for`")
            loops = tuple(Iterator(name, bounds.lo, bounds.hi) for name, bounds in found.loops)
            index = tuple(found.names[f] for f in over)
            out.append(_Spread((*index, *[None] * stars), count, loops, found.condition, found.point))
        return out

    # -- declarations --------------------------------------------------------------------------------------------------
    def _declare(self, op: Endpoint) -> None:
        """The new fields of a node or host port: index, domains, arguments of the body."""
        n = len(self.fields)
        op.index = NamesAttr((*self.fields, *op.fields))
        for attr in ("declared", "domain"):
            old: FormulaAttr | None = getattr(op, attr)
            if old is not None:
                setattr(op, attr, FormulaAttr(Formula.all((self.inside, old.data))))
        if isinstance(op, InputOp) and op.declared is None:
            op.declared = FormulaAttr(self.inside)
            op.domain = op.declared
        if not isinstance(op, OutputOp):
            for at in range(n):
                arg = op.block.insert_arg(i64, at)
                arg.name_hint = hint(self.fields[at])


def _reindex(send: SendOp, front: Sequence[IndexExpr | None]) -> None:
    send.index = IndexAttr((*front, *send.index.data))
