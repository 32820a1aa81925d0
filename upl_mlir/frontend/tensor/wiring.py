"""Arrows of a lowered tensor program: from the nodes that hold a tensor's elements to the instances that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import Span
from upl_mlir.dialects.upl import InputOp, Iterator, NodeOp, OutputOp, SendOp, port_ref
from upl_mlir.frontend.upl_text.scope import loc
from upl_mlir.poly.describe import disjoint_pieces
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.nest import Nest, nest
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


def connect(op: NodeOp, uses: Sequence[Use], domain: PSet, extents: Mapping[str, int]) -> None:
    """The arrows into the ordinary inputs of a node; `extents` has the size of each field's range.

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
        write_arrows(use, op, domain, {f: extents[f] for f in stars})


def write_arrows(use: Use, target: NodeOp | OutputOp, domain: PSet, stars: Mapping[str, int]) -> None:
    """The arrows that bring an access to every instance of `domain`; `stars` are sent as `*`, with their extents."""
    ref = port_ref(target.symbol, use.port or None)
    kept = tuple(f for f in target.fields if f not in stars)
    count = 1
    for n in stars.values():
        count *= n
    for piece in use.pieces:
        given = piece.source.fields
        new = {f: _iterator_name(f, given) for f in kept}
        relation = domain.project(kept).rename(new)
        dims = (*given, *relation.dims)
        relation = relation.extend(dims).reorder(dims) & piece.domain.extend(dims)
        access = tuple(e.substitute(new) for e in use.index)
        relation = relation.constrain(equal(piece.index, access))
        for part in disjoint_pieces(relation):
            found = _nest(part, [new[f] for f in kept], piece)
            index = tuple(None if f in stars else found.names[new[f]] for f in target.fields)
            send = SendOp(
                piece.value, ref, index, count=IndexExpr.of(count), condition=found.condition,
                iterators=[Iterator(d, bounds.lo, bounds.hi) for d, bounds in found.loops],
                point_condition=found.point,
            )  # fmt: skip
            locate(send, use.span)
            piece.source.block.add_op(send)


def _nest(part: PSet, dims: Sequence[str], piece: Piece) -> Nest:
    """The loops over the target's fields; those that need no condition on strides are preferred.

    Later fields are tried first: what is summed over becomes the iterator, and `p = y - r` follows.
    """
    nests = [nest(part, order, piece.source.fields, piece.all) for order in (dims[::-1], dims)]
    found = [n for n in nests if n is not None]
    assert found, "boxes have bounds"
    return next((n for n in found if n.point.is_true), found[0])


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
