"""Arrows made from arrows: what one says on a part of its relation, copies of it, its inverse, new ones.

Passes that shrink domains rewrite arrows with `restricted`; passes that send something else along an arrow copy it with
`copy_along`, and answer it with `answer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr
from xdsl.ir import Block, Operation, SSAValue

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import (
    FormulaAttr,
    Index,
    InputOp,
    NodeOp,
    OutputOp,
    Port,
    ProgramOp,
    SendOp,
    Special,
)
from upl_mlir.dialects.upl.query import Endpoint, endpoint, span_of, target_port, value_names
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets, because, reached_by
from upl_mlir.passes.autodiff.adjoint_plan import total
from upl_mlir.passes.autodiff.reverse import Inverse, invert
from upl_mlir.passes.build import unused
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.fibres import fibre_count, fibre_counts
from upl_mlir.poly.sets import PSet

PRIMAL = "upl.primal"  # on a node that a pass made: the node that it belongs to
COMMENT = "upl.comment"  # printed as a comment
WHY = "upl.why"  # on the arrow of a forward value: why it is kept


HostPort = TypeVar("HostPort", InputOp, OutputOp)

_MADE: dict[str, StringAttr] = {}


def made(primal: str) -> StringAttr:
    """The value of `PRIMAL` on a node that a pass made in this process: one object for each text.

    Copies of the program keep the object; a text that is read gives another one.  So that a node was made by a pass, and
    need not be proved, cannot be written into a file.
    """
    return _MADE.setdefault(primal, StringAttr(primal))


def is_made(op: Operation) -> bool:
    """Whether a pass made the operation in this process."""
    mark = op.attributes.get(PRIMAL)
    return isinstance(mark, StringAttr) and mark is _MADE.get(mark.data)


def not_inverted(a: Arrow, relation: PSet, context: PSet) -> UplError:
    """UPL1403 for an arrow of which the source does not follow from the target, with what makes it so."""
    why = because(relation, context) or reached_by(a.source)
    return error("UPL1403", f"the index of the arrow {a.in_full} cannot be inverted{why}", span_of(a.send))


def here(fields: Sequence[str]) -> tuple[IndexExpr, ...]:
    """The tag of the same index."""
    return tuple(IndexExpr.of(f) for f in fields)


def free_names(sets: ProgramSets, fields: Sequence[str], *wanted: str) -> tuple[str, ...]:
    """Names for inputs of a new node, as wanted where they do not hide fields, constants or parameters."""
    used = {*fields, *value_names(sets.program)}
    return tuple(unused(w, used) for w in wanted)


def new_node(
    program: ProgramOp, name: str, ports: Sequence[Port], domain: PSet | tuple[Sequence[str], Formula], origin: Operation,
    primal: str, comment: str,
) -> NodeOp:  # fmt: skip
    """Append a node that belongs to `primal`; its domain is a set, or fields and a formula."""
    fields, formula = (domain.dims, describe(domain)) if isinstance(domain, PSet) else domain
    node = NodeOp(name, tuple(fields), ports, formula)
    node.domain = FormulaAttr(formula)
    node.location = origin.location
    node.attributes[PRIMAL] = made(primal)
    node.attributes[COMMENT] = StringAttr(comment)
    program.body.block.add_op(node)
    return node


def host_port(
    program: ProgramOp, cls: type[HostPort], name: str, like: tuple[Endpoint, str], domain: FormulaAttr, comment: str
) -> HostPort:
    """A new host port for the derivatives of a port of `like`, an operation with the port's name; inputs behind inputs."""
    op, port = like
    new = cls(name, op.fields, target_port(op, port).type.derivative, domain.data)
    new.domain = domain
    new.location = op.location
    new.attributes[COMMENT] = StringAttr(comment)
    block = program.body.block
    last = [o for o in block.ops if isinstance(o, InputOp)] if cls is InputOp else []
    if last:
        block.insert_op_after(new, last[-1])
    else:
        block.add_op(new)
    return new


def connect(
    program: ProgramOp,
    source: InputOp | NodeOp,
    value: SSAValue,
    target: SymbolRefAttr,
    index: Sequence[IndexExpr | None],
    *,
    rule: str,
    origin: Operation,
    condition: Formula = TRUE,
    predicate: SSAValue | None = None,
    count: IndexExpr | Special | None = None,
    inverse: Inverse | None = None,
) -> SendOp:
    """Append an arrow; the value is converted to the target's type."""
    op = endpoint(program, target.root_reference.data)
    names = [n.data for n in target.nested_references.data]
    wanted = target_port(op, names[0] if names else None).type.mlir()
    value = Body(source.block, origin.location).like(value, wanted)
    send = SendOp(
        value, target, tuple(index), count=count, condition=condition, predicate=predicate,
        iterators=inverse.iterators if inverse else (),
        point_condition=inverse.point_condition if inverse else TRUE, rule=rule,
    )  # fmt: skip
    send.location = origin.location
    source.block.add_op(send)
    return send


def answer(
    program: ProgramOp, a: Arrow, r: PSet, points: PSet | None, to: SymbolRefAttr, source: NodeOp, value: SSAValue,
    context: PSet,
) -> None:  # fmt: skip
    """Send a value from the target of an arrow without `*` back to an ordinary input `to` of a node that has an instance for
    each of the arrow's points (over source fields and iterators); `points` if the input beside it gets a full index, so
    that a `*` finds the right instances, and None otherwise.

    `r` is the arrow's relation, `source` the sender with the domain `context`, over the target's fields.
    """
    stand_in = SendOp(Block(arg_types=[a.send.value.type]).args[0], a.send.target, a.send.index.data)
    node = endpoint(program, to.root_reference.data)
    assert isinstance(node, NodeOp)
    inverses = invert(replace(a, send=stand_in, source=node), r, context, star_inside=points)
    if inverses is None:
        raise not_inverted(a, r, context)
    for i in inverses:
        connect(
            program, source, value, to, i.index, rule="gather to fork", origin=a.send,
            condition=i.condition, count=i.multiplicity, inverse=i,
        )  # fmt: skip


@dataclass(frozen=True)
class Meeting:
    """A node's fields and tags by which the tokens of an arrow meet what the arrow's target answers, where data decide which
    tokens are sent.

    The fields are the arrow's points (source fields and iterators) and those target fields that do not follow from them: an
    instance for each token.  `tag` is the tag of the token, in the arrow's context; `back` that of the answer, over the
    target's fields, None where the index tells all (then `answer` inverts the arrow).
    """

    fields: tuple[str, ...]
    dims: tuple[str, ...]  # of the arrow's relation, for each field
    tag: tuple[IndexExpr, ...]
    back: Index | None
    when: Formula = TRUE  # where the target answers, as one arrow's index may not lead to all its instances

    @classmethod
    def of(cls, a: Arrow, *, by_data: bool) -> Meeting:
        """Where the tokens of an arrow into a gather are met."""
        points = (*a.src, *a.loops)
        if not by_data:
            return cls(points, points, here(points), None)
        sent = {d: e for d, e in zip(a.dst, a.send.index.data, strict=True) if e is not None}  # a gather takes no `*`
        to = dict(zip(a.dst, a.target.fields, strict=True))
        back: dict[str, IndexExpr] = {}
        for d, e in sent.items():
            for n in sorted(e.names & {*points} - back.keys()):
                for sign in (1, -1):  # e = sign*n + rest
                    rest = e - IndexExpr.of(n) * IndexExpr.of(sign)
                    if n not in back and not rest.names & {*points} and not a.data & rest.names:
                        back[n] = (IndexExpr.of(to[d]) - rest) * IndexExpr.of(sign)
        more: list[str] = []
        when: list[Formula] = []
        for d, e in sent.items():
            if a.data & e.names or not e.names & {*points} <= back.keys():
                more.append(d)
            elif (again := e.substitute(back)) != IndexExpr.of(to[d]):
                when.append(Formula.compare(to[d], "==", again))
        own = {*points}
        names = [unused(to[d], own) for d in more]
        answers = (*(back.get(n) for n in points), *(IndexExpr.of(to[d]) for d in more))
        tag = (*here(points), *(sent[d] for d in more))
        return cls((*points, *names), (*points, *more), tag, answers, Formula.all(when))

    def target(self, a: Arrow) -> Index:
        """The arrow's own index, from the node at which its tokens are met."""
        told = dict(zip(self.dims, self.fields, strict=True))
        return tuple(IndexExpr.of(told[d]) if d in told else e for d, e in zip(a.dst, a.send.index.data, strict=True))

    def domain(self, r: PSet) -> PSet:
        """The instances, for a relation of the arrow or a part of it."""
        return r.project(self.dims).rename(dict(zip(self.dims, self.fields, strict=True)))

    def answered(
        self, program: ProgramOp, a: Arrow, r: PSet, to: SymbolRefAttr, source: NodeOp, value: SSAValue, context: PSet
    ) -> None:
        """Send a value from the target back to an ordinary input `to`, beside one that gets the arrow's tokens."""
        if self.back is None:
            answer(program, a, r, self.domain(r), to, source, value, context)
            return
        connect(
            program, source, value, to, self.back, rule="gather to fork", origin=a.send,
            condition=describe(context.constrain(self.when), context), count=Special.UNBOUNDED,
        )  # fmt: skip


@dataclass(frozen=True)
class Restricted:
    """What an arrow says on a part of its relation."""

    condition: Formula
    point_condition: Formula
    count: IndexExpr | Special | None


def restricted(a: Arrow, r: PSet, context: PSet) -> Restricted:
    """The arrow where its relation is `r` (over ``a.dims``) and its source's domain is `context`.

    A multicast's multiplicity is counted anew on `r`; the author's own words are kept where they still fit.
    """
    sources = r.project(a.src)
    if a.loops:
        sources = sources.as_meant()  # the iterators' own condition says where something is sent
    when = describe(sources, context, prefer=a.send.when.conjuncts)
    point = TRUE
    points = (*a.src, *a.loops)
    if a.loops:
        walked = sources.extend(points).constrain(bounds(a.send))
        point = describe(r.project(points), walked, prefer=a.send.when_point.conjuncts)
    count = a.send.count.data if a.send.count else None
    if a.stars and count is not Special.UNBOUNDED:
        count = covered(r, a.dst, count)
    return Restricted(when, point, count)


def covered(r: PSet, over: Sequence[str], before: IndexExpr | Special | None) -> IndexExpr | Special:
    """The multiplicity of a token that covers the values of the dimensions `over` in `r`, as an expression of the others:
    `before` where it still fits, and ``##`` where no expression counts them, since any other number would be wrong."""
    new = fibre_count(r, over, [before] if isinstance(before, IndexExpr) else [])
    if new is None and (terms := fibre_counts(r, over)) is not None:  # in several pieces, whose counts add
        new = total(terms, r.project([d for d in r.dims if d not in over]))
    return Special.UNBOUNDED if new is None else new


def bounds(send: SendOp) -> Formula:
    """The bounds of an arrow's iterators."""
    return Formula.all(
        Formula.compare(it.lo, "<=", it.name) & Formula.compare(it.name, "<=", it.hi) for it in send.loops
    )


def copy_along(
    a: Arrow,
    r: PSet,
    context: PSet,
    make: Callable[[], SSAValue],
    target: SymbolRefAttr,
    *,
    rule: str,
    index: tuple[IndexExpr | None, ...] | None = None,
    count: bool = True,
) -> None:
    """Send another value along an arrow, where its relation is `r`: same iterators, same data condition.

    `make` gives the value in the source's body; `index` replaces the tag; without `count` the multiplicity is 1.
    """
    if r.is_empty():
        return
    here = restricted(a, r, context)
    send = SendOp(
        make(), target, a.send.index.data if index is None else index, count=here.count if count else None,
        condition=here.condition, predicate=a.send.predicate, iterators=a.send.loops,
        point_condition=here.point_condition, rule=rule,
    )  # fmt: skip
    send.location = a.send.location
    a.source.block.add_op(send)
