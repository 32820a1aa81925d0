"""Obligations that no proof for all sizes settles, looked at for given sizes: every token is counted.

Where conditions are not affine (``i mod q == 0``), or a number of summands is no polynomial, `check` leaves obligations
open.  Loops over arrays would compute something all the same, so native code asks here before its first run at each
sizes: domains are masks, tokens are rows of index arrays, and counts are compared at every instance.  Costs a few numpy
operations for each token.  Nothing here depends on values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import NodeOp, Port, ProgramOp
from upl_mlir.dialects.upl.query import Endpoint, domain_of, span_of
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets, because, forgotten
from upl_mlir.poly.counts.dense import Box, Evaluator, Unbounded, bounding_box, guarded, mask
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr

MOST_TOKENS = 1 << 27
"""Of one arrow: index arrays of more would take gigabytes."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Place:
    """The instances of a port or node: which points of a box they are.  Without fields the box is one point."""

    box: Box
    inside: NDArray[np.bool_]


@dataclass(frozen=True)
class _Tokens:
    """The tokens of an arrow: source fields and iterators as columns, and the places they go to (a slice for `*`)."""

    arrow: Arrow
    env: Mapping[str, Any]
    rows: int
    index: tuple[Any, ...]


def only_a_hull(op: Endpoint, lost: Collection[str], more: str, hint: str) -> UplError:
    """UPL1829: what is not affine decides which instances there are."""
    parts = ", ".join(f"`{x}`" for x in sorted(lost))
    message = f"the domain of `{op.symbol}` is known only as a hull: it follows from {parts}{more}"
    return error("UPL1829", message, span_of(op), help=hint)


def require_at(program: ProgramOp, params: Mapping[str, int], wanted: Iterable[tuple[str, str]]) -> None:
    """Count the tokens of some inputs, (node, input) or (output, output), at given sizes.

    Raises UplError: UPL1601 for a token that has no instance or an instance that gets none, UPL1602 for one that gets
    two, UPL1605 for a gather with another number of summands than it waits for; UPL1829 for an instance that gets none
    where the domain is a hull, in which such instances need not exist.
    """
    counter = _Counter(ProgramSets(program, params), params)
    for name, port in sorted(wanted, key=lambda w: not forgotten(counter.sets.ends[w[0]])):  # others count their tokens
        counter.require(name, port)


def refuse_open(node: NodeOp) -> None:
    """Raise UplError (UPL1821) for a node with an open gather."""
    port = next((p for p in node.ports if p.open), None)
    if port is not None:
        help_ = 'use engine="interp" or "token", which move tokens'
        raise error("UPL1821", f"nothing says how many summands come to `{node.symbol}.{port.name}[##]`", span_of(node),
                    help=help_)  # fmt: skip


def refuse_data_count(node: NodeOp, port: Port) -> None:
    """Raise UplError (UPL1821) for a gather whose number of summands is another input."""
    if port.open:
        refuse_open(node)
    if isinstance(port.count, IndexExpr) and any(node.port(n) for n in port.count.names):
        help_ = 'use --if-convert=compared=true before, or engine="native", which does'
        raise error("UPL1821", f"the number of summands of `{node.symbol}.{port.name}` is data", span_of(node), help=help_)


class _Counter:
    def __init__(self, sets: ProgramSets, params: Mapping[str, int]):
        self.sets, self.params = sets, params
        self.values = Evaluator.of(sets.ctx)
        self._places: dict[str, _Place] = {}

    def place(self, op: Endpoint) -> _Place:
        """The instances of an end."""
        if op.symbol not in self._places:
            domain = domain_of(op) or TRUE
            try:
                box = bounding_box(self.sets.ctx, op.fields, domain)
            except Unbounded as e:
                why = because(self.sets.domain(op.symbol), *map(self.sets.relation, self.sets.into(op.symbol)))
                message = f"no bounds found for the field `{e.field}` of `{op.symbol}`{why}"
                raise error("UPL1825", message, span_of(op), help="declare its domain") from None
            inside = mask(self.sets.ctx, op.fields, domain, box)
            self._places[op.symbol] = _Place(box, inside if op.fields else inside.reshape(1))
        return self._places[op.symbol]

    def require(self, name: str, port_name: str) -> None:
        """Compare what comes to an input with what is waited for."""
        op = self.sets.ends[name]
        place = self.place(op)
        into = self.sets.into(name, port_name)
        port = next(p for p in op.ports if p.name == port_name) if isinstance(op, NodeOp) else None
        gather = port is not None and port.gather is not None
        came = np.zeros(place.inside.shape, np.int64)
        sent = [self.tokens(a, place) for a in into]
        for t in sent:
            np.add.at(came, t.index, 1)
        came = np.where(place.inside, came, 0)
        if not gather:
            self.hull(op, place, came == 0)
            self.exactly_one(op, port_name, place, came)
            for t in sent:
                self.multiplicity(t, place)
            return
        assert port is not None
        assert isinstance(op, NodeOp)
        refuse_data_count(op, port)
        if isinstance(port.count, IndexExpr):
            at = self.index_arrays(op, place)
            wanted = np.maximum(self.values.given(at).expr(port.count), 0)
            wanted = np.broadcast_to(wanted, place.box.shape).reshape(came.shape)
            self.hull(op, place, (came == 0) & (wanted > 0))
            self.compare(op, port, place, came, wanted)
        else:
            self.hull(op, place, came == 0)
            self.carried(op, port, place, came, sent)

    def index_arrays(self, op: Endpoint, place: _Place) -> dict[str, Any]:
        """The fields of all points of a box, to be broadcast."""
        out: dict[str, Any] = {}
        for axis, (f, lo, n) in enumerate(zip(op.fields, place.box.lower, place.box.shape, strict=True)):
            along = [1] * len(op.fields)
            along[axis] = n
            out[f] = np.arange(lo, lo + n, dtype=np.int64).reshape(along)
        return out

    def tokens(self, a: Arrow, place: _Place) -> _Tokens:
        """The tokens of an arrow, each of which has an instance."""
        source = self.place(a.source)
        at = np.argwhere(source.inside)
        env: dict[str, Any] = {f: at[:, n] + source.box.lower[n] for n, f in enumerate(a.src)}
        rows = len(at)
        env, rows = self.where(env, rows, a.send.when)
        for it in a.send.loops:
            here = self.values.given(env)
            lo, hi = (np.broadcast_to(here.expr(e), (rows,)).astype(np.int64) for e in (it.lo, it.hi))
            each = np.maximum(hi - lo + 1, 0)
            rows = int(each.sum())
            if rows > MOST_TOKENS:
                raise error("UPL1827", f"the tokens of {a.text} are too many to be counted: {rows}", span_of(a.send))
            start = np.repeat(np.cumsum(each) - each, each)
            env = {n: np.repeat(np.broadcast_to(v, each.shape), each) for n, v in env.items()}
            env[it.name] = np.repeat(lo, each) + np.arange(rows) - start
        env, rows = self.where(env, rows, a.send.when_point)
        here = self.values.given(env)
        index: list[Any] = []
        for e, lo, n in zip(a.send.index.data, place.box.lower, place.box.shape, strict=True):
            if e is None:
                index.append(slice(None))
                continue
            i = np.broadcast_to(here.expr(e), (rows,)).astype(np.int64) - lo
            self.inside(a, env, (i >= 0) & (i < n))
            index.append(i)
        if not index:
            index = [np.zeros(rows, np.int64)]
        if not a.stars:
            self.inside(a, env, place.inside[tuple(index)])
        return _Tokens(a, env, rows, tuple(index))

    def where(self, env: dict[str, Any], rows: int, f: Formula) -> tuple[dict[str, Any], int]:
        """The rows at which a formula holds."""
        if f.is_true:
            return env, rows
        kept = np.broadcast_to(self.values.given(env).formula(guarded(f, self.sets.ctx)), (rows,))
        return {n: np.broadcast_to(v, (rows,))[kept] for n, v in env.items()}, int(kept.sum())

    def inside(self, a: Arrow, env: Mapping[str, Any], good: NDArray[np.bool_]) -> None:
        """Every token of an arrow has an instance."""
        if not good.all():
            row = int(np.argmin(good))
            raise error(
                "UPL1601", f"the token that {self.instance(_Tokens(a, env, len(good), ()), row)} sends along {a.text} "
                f"belongs to no instance{self.sizes()}", span_of(a.send),
            )  # fmt: skip

    def exactly_one(self, op: Endpoint, port: str, place: _Place, came: Ints) -> None:
        """Every instance gets one token."""
        for bad, code, what in ((came == 0, "UPL1601", "gets no token"), (came > 1, "UPL1602", "gets two tokens")):
            wrong = np.argwhere(bad & place.inside)
            if len(wrong):
                where = f"{op.symbol}.{port}" if isinstance(op, NodeOp) else op.symbol
                raise error(code, f"{self.at(op, place, wrong[0])} {what} on `{where}`{self.sizes()}", span_of(op))

    def hull(self, op: Endpoint, place: _Place, idle: NDArray[np.bool_]) -> None:
        """A domain that is a hull has no point that is `idle`, which is no instance then."""
        lost, points = forgotten(op), np.argwhere(idle & place.inside)
        if lost and len(points):
            at = f"no token comes to {self.at(op, place, points[0])}{self.sizes()}"
            raise only_a_hull(op, lost, f"; {at}", 'declare its domain, or use engine="interp" or "token"')

    def compare(self, op: Endpoint, port: Port, place: _Place, came: Ints, wanted: Ints) -> None:
        wrong = np.argwhere((came != wanted) & place.inside)
        if len(wrong):
            at = tuple(wrong[0])
            raise error(
                "UPL1605", f"{self.at(op, place, at)} waits for {wanted[at]} summands on `{op.symbol}.{port.name}`, but "
                f"{came[at]} come{self.sizes()}", span_of(op),
            )  # fmt: skip

    def carried(self, op: Endpoint, port: Port, place: _Place, came: Ints, sent: list[_Tokens]) -> None:
        """The number that each summand carries is the number of summands that come; there is one at least."""
        self.compare(op, port, place, np.minimum(came, 1), np.ones_like(came))
        for t in sent:
            says, a = self.says(t), t.arrow
            free = tuple(n for n, e in enumerate(a.send.index.data) if e is None)
            there = tuple(i for i in t.index if not isinstance(i, slice))
            lo = np.where(place.inside, came, came.max(initial=0)).min(axis=free, initial=1 << 62)[there]
            hi = np.where(place.inside, came, 0).max(axis=free, initial=0)[there]
            wrong = (says != lo) | (says != hi)
            if wrong.any():
                row = int(np.argmax(wrong))
                raise error(
                    "UPL1605", f"{self.instance(t, row)} says that {says[row]} summands come to `{op.symbol}.{port.name}`, "
                    f"but {hi[row] if says[row] != hi[row] else lo[row]} come{self.sizes()}", span_of(a.send),
                )  # fmt: skip

    def says(self, t: _Tokens) -> Ints:
        """The multiplicity of each token."""
        m = t.arrow.send.multiplicity
        assert isinstance(m, IndexExpr)
        return np.broadcast_to(self.values.given(t.env).expr(m), (t.rows,))

    def multiplicity(self, t: _Tokens, place: _Place) -> None:
        """A token covers as many instances as its multiplicity says."""
        if not isinstance(t.arrow.send.multiplicity, IndexExpr):
            return
        says = self.says(t)
        free = tuple(n for n, e in enumerate(t.arrow.send.index.data) if e is None)
        covers = place.inside.sum(axis=free)[tuple(i for i in t.index if not isinstance(i, slice))]
        covers = np.broadcast_to(covers, (t.rows,))
        if (says != covers).any():
            row = int(np.argmax(says != covers))
            raise error(
                "UPL1601", f"multiplicity {says[row]} of {self.instance(t, row)}, but its token covers {covers[row]} "
                f"instances of {t.arrow.target.symbol}{self.sizes()}", span_of(t.arrow.send),
            )  # fmt: skip

    # -- messages ----------------------------------------------------------------------------------------------------
    def sizes(self) -> str:
        """The parameters of the run, for messages."""
        return " (" + ", ".join(f"{n}={v}" for n, v in self.params.items()) + ")" if self.params else ""

    @staticmethod
    def at(op: Endpoint, place: _Place, where: Iterable[int]) -> str:
        index = ",".join(str(int(i) + lo) for i, lo in zip(where, place.box.lower, strict=False))
        return f"{op.symbol}<{index}>"

    @staticmethod
    def instance(t: _Tokens, row: int) -> str:
        return f"{t.arrow.source.symbol}<{','.join(str(int(t.env[f][row])) for f in t.arrow.src)}>"
