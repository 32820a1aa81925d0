"""Arrows of a lowered tensor program: from the nodes that hold a tensor's elements to the instances that read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import Span
from upl_mlir.dialects.upl import Index, InputOp, Iterator, NodeOp, OutputOp, Port, SendOp, UplType, port_ref
from upl_mlir.frontend.upl_text.scope import loc
from upl_mlir.poly.describe import Interval, describe, disjoint_pieces
from upl_mlir.poly.expr import Div, Formula, IndexExpr, Var, divide
from upl_mlir.poly.nest import Nest, nest
from upl_mlir.poly.operators import DivKind
from upl_mlir.poly.sets import PSet


@dataclass(frozen=True)
class Piece:
    """Where some elements of a tensor come from: `value` of `source`, at element `index`, for the instances `domain`.

    `all` are the source's instances: those outside `domain` hold elements that a later statement has replaced.
    """

    source: InputOp | NodeOp
    value: SSAValue
    index: tuple[IndexExpr, ...]
    all: PSet
    domain: PSet

    def covered(self, elements: tuple[str, ...]) -> PSet:
        """The elements, as a set over the dimensions `elements`."""
        r = self.domain.extend(elements)
        return r.constrain(equal(elements, self.index)).project(elements)


@dataclass(frozen=True)
class Use:
    """An ordinary input of a node: what it reads, as pieces and an access over the node's fields."""

    port: str
    pieces: Sequence[Piece]
    index: tuple[IndexExpr, ...]
    span: Span | None

    @property
    def names(self) -> frozenset[str]:
        """The node's fields that the access determines."""
        return frozenset(n for e in self.index for n in e.names)


@dataclass
class Wiring:
    """Writes arrows; `fresh` names and `nodes` takes the nodes that are needed on the way."""

    type: UplType
    fresh: Callable[[str], str]
    nodes: list[Operation]

    def connect(self, op: NodeOp, uses: Sequence[Use], domain: PSet, ranges: Mapping[str, tuple[int, int]]) -> None:
        """The arrows into the ordinary inputs of a node; `ranges` has the least and the greatest value of each field.

        A field that an access does not determine is a `*`, if some other input brings it; the first input has to bring
        those that none determines.
        """
        gathers = any(p.gather is not None for p in op.ports)
        determined = frozenset(n for u in uses for n in u.names)
        for at, use in enumerate(uses):
            others = frozenset(op.fields)
            if not gathers:
                others = frozenset(n for u in uses if u is not use for n in u.names)
                others |= frozenset(op.fields) - determined if at else frozenset[str]()
            stars = (frozenset(op.fields) - use.names) & others
            self.arrows(use, op, domain, {f: ranges[f][1] - ranges[f][0] + 1 for f in stars})

    def arrows(self, use: Use, target: NodeOp | OutputOp, domain: PSet, stars: Mapping[str, int]) -> None:
        """The arrows that bring an access to every instance of `domain`; `stars` are sent as `*`, with their extents."""
        kept = tuple(f for f in target.fields if f not in stars)
        for piece in use.pieces:
            given = piece.source.fields
            new = {f: _iterator_name(f, given) for f in kept}
            access = tuple(e.substitute(new) for e in use.index)
            helpers = _helpers(access, tuple(new.values()), given)
            relation = domain.project(kept).rename(new)
            dims = (*given, *relation.dims, *helpers)
            relation = relation.extend(dims).reorder(dims) & piece.domain.extend(dims)
            known = Formula.all(Formula.compare(name, "==", e) for name, e in helpers.items())
            relation = relation.constrain(equal(piece.index, access) & known)
            for part in disjoint_pieces(relation):
                found = _nest(part, list(helpers), [new[f] for f in kept], piece)
                names = tuple(None if f in stars else found.names[new[f]] for f in target.fields)
                self._arrow(_Arrow(use, target, names, prod(stars.values())), part, found, piece)

    def _arrow(self, arrow: _Arrow, part: PSet, found: Nest, piece: Piece) -> None:
        """One arrow; where its points are no box, a chain of nodes that fan out along one iterator each.

        A count of such points is no product: derivatives, which have to state it, need the chain.
        """
        loops = [d for d, _ in found.loops]
        walked = {n for _, i in found.loops for n in (*i.lo.names, *i.hi.names)}
        if walked & set(loops):
            for loop in loops[:-1]:
                inner = part.project((*piece.source.fields, loop))
                step = nest(inner, [loop], piece.source.fields, piece.all)
                if step is None:
                    break
                piece = self._fan(arrow, step, loop, inner, piece)
            else:
                last = nest(part.project((*piece.source.fields, loops[-1])), loops[-1:], piece.source.fields, piece.all)
                assert last is not None, "boxes have bounds"
                found = last
        to = port_ref(arrow.target.symbol, arrow.use.port or None)
        self._send(piece, to, arrow.index, arrow.count, found, arrow.use.span)

    def _fan(self, arrow: _Arrow, step: Nest, loop: str, domain: PSet, piece: Piece) -> Piece:
        """A node that receives a piece once for each value of an iterator, and passes it on."""
        fields = (*piece.source.fields, loop)
        port = unused("x", fields)
        op = NodeOp(self.fresh(f"{arrow.target.symbol}_{arrow.use.port or 'in'}"), fields, [Port(port, self.type)])
        locate(op, arrow.use.span)
        index = tuple(IndexExpr.of(f) for f in fields)
        self._send(piece, port_ref(op.symbol, port), index, 1, step, arrow.use.span)
        self.nodes.append(op)
        return Piece(op, op.block.args[-1], index, domain, domain)

    def _send(self, piece: Piece, to: SymbolRefAttr, index: Index, count: int, found: Nest, span: Span | None) -> None:
        send = SendOp(
            piece.value, to, index, count=IndexExpr.of(count), condition=found.condition,
            iterators=[Iterator(d, bounds.lo, bounds.hi) for d, bounds in found.loops], point_condition=found.point,
        )  # fmt: skip
        locate(send, span)
        piece.source.block.add_op(send)


@dataclass(frozen=True)
class _Arrow:
    """What an arrow is for: whom it serves, at which index (over its source's fields and iterators), with which count."""

    use: Use
    target: NodeOp | OutputOp
    index: Index
    count: int


def _helpers(access: Sequence[IndexExpr], fields: Sequence[str], given: Sequence[str]) -> dict[str, IndexExpr]:
    """Functions of the target's fields that serve as iterators, so that no condition on strides is left.

    What reads element y as ``y = i mod 4`` are the i = 4*q + y with q = i floordiv 4; for ``y = 2*i + 3*r`` they are
    i = 3*q - y and r = y - 2*q with q = i + r.
    """
    taken, out = {*given, *fields}, dict[str, IndexExpr]()
    for e in access:
        values = [divide(DivKind.FLOORDIV, a.num, a.den) for a in e.atoms() if isinstance(a, Div) and a.kind is DivKind.MOD]
        values += _across([(m[0].name, c) for m, c in e.terms if len(m) == 1 and isinstance(m[0], Var)])
        for value in values:
            if value not in out.values():
                out[unused("q", {*taken, *out})] = value
    return out


def _across(terms: Sequence[tuple[str, int]]) -> list[IndexExpr]:
    """For a linear form without a coefficient 1 or -1: forms that, with its value, determine all its names.

    Two at a time: if ``a*x + b*y == 1`` for the coefficients a and b over their greatest common divisor, the form with the
    coefficients -y and x makes a matrix of determinant 1 with them.
    """
    if len(terms) < 2 or any(abs(c) == 1 for _, c in terms):
        return []
    out: list[IndexExpr] = []
    (name, total), *rest = terms
    joint = IndexExpr.of(name)  # the form so far, divided by the greatest common divisor of its coefficients
    for name, c in rest:
        g = gcd(total, c)
        a, b = total // g, c // g
        x = pow(a, -1, abs(b)) if abs(b) > 1 else 0
        y = (1 - a * x) // b
        out.append(joint * -y + IndexExpr.of(name) * x)
        joint = joint * a + IndexExpr.of(name) * b
        total = g
    return out


def _nest(part: PSet, first: Sequence[str], dims: Sequence[str], piece: Piece) -> Nest:
    """The loops over `first` and the target's fields; those that need no condition on strides are preferred.

    Later fields are tried first: what is summed over becomes the iterator, and `p = y - r` follows.
    """
    given = piece.source.fields
    found: Nest | None = None
    for order in ([*first, *dims[::-1]], [*first, *dims]):
        n = nest(part, order, given, piece.all)
        if n is not None and n.point.is_true:
            return n
        found = found or n
    return found or _search(part, dims, given, piece.all)


def _search(part: PSet, dims: Sequence[str], given: Sequence[str], context: PSet) -> Nest:
    """Where no bounds can be read off: all values that a dimension ever has, and a condition that picks the right ones."""
    part = part.project((*given, *dims))
    loops: list[tuple[str, Interval]] = []
    for d in dims:
        lo, hi = part.extent(d)
        assert lo is not None and hi is not None, "boxes have bounds"
        loops.append((d, Interval(IndexExpr.of(lo), IndexExpr.of(hi))))
    base = part.project(given)
    box = [Formula.compare(i.lo, "<=", d) & Formula.compare(d, "<=", i.hi) for d, i in loops]
    point = describe(part, base.extend(dims).constrain(Formula.all(box)))
    return Nest(describe(base, context), tuple(loops), point, {d: IndexExpr.of(d) for d in dims})


def unused(name: str, taken: Iterable[str]) -> str:
    """The name, or the name with the least number behind it that makes it new."""
    taken = set(taken)
    out, n = name, 2
    while out in taken:
        out, n = f"{name}_{n}", n + 1
    return out


def _iterator_name(field: str, given: Sequence[str]) -> str:
    """A name for a target's field inside an arrow, where the source's fields are visible too."""
    return unused(field, given) if field in given else field


def locate(op: Operation, span: Span | None) -> None:
    """Give an operation its position in the source, if there is one."""
    if span is not None:
        op.location = loc(span)


def equal(left: Sequence[IndexExpr | str], right: Sequence[IndexExpr]) -> Formula:
    """That two indices are the same."""
    return Formula.all(Formula.compare(a, "==", b) for a, b in zip(left, right, strict=True))


def restricted(p: Piece, elements: tuple[str, ...], rest: PSet) -> Piece:
    """The piece without the elements outside `rest`."""
    dims = (*p.domain.dims, *elements)
    inside = p.domain.extend(elements).constrain(equal(elements, p.index)) & rest.extend(dims).reorder(dims)
    return replace(p, domain=inside.project(p.domain.dims).coalesce())
