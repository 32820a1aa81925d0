"""Arrows as polyhedral relations: what every analysis of a program starts from.

The token relation of an arrow (LANGUAGE 3.9, AUTODIFF section 1) is a set over the source's fields, the arrow's
iterators and the target's fields; a target field `f` has the dimension ``f'`` so that the two sides never clash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, StringAttr, f64
from xdsl.ir import Attribute, Block

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import InputOp, LetOp, NodeOp, Port, ProgramOp, SendOp
from upl_mlir.dialects.upl.attributes import index_text
from upl_mlir.dialects.upl.query import Endpoint, arrows, endpoints, poly_context, source_of, span_of, target_port
from upl_mlir.dialects.upl.query import directives as held_directives
from upl_mlir.frontend.upl_text.printing.printer import condition_text, target_text
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.sets import PolyContext, PSet, union

HULL = "upl.hull"
"""The attribute of a node or output whose inferred domain is a hull: what the projection forgot, as texts."""


def primed(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Dimension names of a target's fields."""
    return tuple(f"{f}'" for f in fields)


@dataclass(frozen=True, eq=False)
class Arrow:
    """One arrow with its ends resolved.

    `where` holds of (source fields, iterators, target fields) without any domain; `exact` tells that nothing in it was
    widened: a condition or an index that depends on data makes it an over-approximation.
    """

    send: SendOp
    source: InputOp | NodeOp
    target: Endpoint
    port: Port
    where: Formula
    exact: bool
    virtual: bool = False  # stands for an `adjoint of ... -> NODE.input` that is not expanded yet

    @property
    def src(self) -> tuple[str, ...]:
        """The source's fields."""
        return self.source.fields

    @cached_property
    def loops(self) -> tuple[str, ...]:
        """The iterators."""
        return tuple(it.name for it in self.send.loops)

    @cached_property
    def dst(self) -> tuple[str, ...]:
        """Dimensions of the target's fields."""
        return primed(self.target.fields)

    @property
    def dims(self) -> tuple[str, ...]:
        """All dimensions, in the order source fields, iterators, target fields."""
        return (*self.src, *self.loops, *self.dst)

    @property
    def stars(self) -> tuple[str, ...]:
        """Target dimensions that stand under a `*`."""
        return tuple(d for d, e in zip(self.dst, self.send.index.data, strict=True) if e is None)

    @cached_property
    def data(self) -> frozenset[str]:
        """The values of the source's body that the index reads."""
        inputs = [p.name for p in self.source.ports] if isinstance(self.source, NodeOp) else [self.source.symbol]
        lets = [op.var.data for op in self.source.block.ops if isinstance(op, LetOp)]
        return frozenset((*inputs, *lets)) & {n for e in self.send.index.data if e is not None for n in e.names}

    @property
    def text(self) -> str:
        """The arrow's ends, for messages."""
        port = f".{self.port.name}" if isinstance(self.target, NodeOp) else ""
        return f"{self.source.symbol} -> {self.target.symbol}{port}"

    @property
    def in_full(self) -> str:
        """The arrow's ends, its index and the points that it is sent from, for messages."""
        index = f"<{index_text(self.send.index.data)}>" if self.target.fields else ""
        when = points(self.send)
        return f"{self.text}{index}" + ("" if when.is_true else f" where {when}")


def points(send: SendOp) -> Formula:
    """The condition on source fields and iterators under which a token is sent, data conditions aside."""
    bounds = [Formula.compare(it.lo, "<=", it.name) & Formula.compare(it.name, "<=", it.hi) for it in send.loops]
    return Formula.all((send.when, *bounds, send.when_point))


def at_most_0(n: IndexExpr) -> Formula:
    """``n <= 0``; where all terms share a factor by the signs of the factors, since a product of two sizes is not affine."""
    shared = next((a for a in n.terms[0][0] if all(a in m for m, _ in n.terms)), None) if n.terms else None
    if shared is None or n.terms == (((shared,), n.terms[0][1]),):
        return Formula.compare(n, "<=", 0)
    rest = IndexExpr()
    for m, c in n.terms:
        at = m.index(shared)
        rest = rest + IndexExpr((((*m[:at], *m[at + 1 :]), c),))
    factor = IndexExpr.of(shared)
    below, above = at_most_0(rest), at_most_0(rest * -1)
    return (Formula.compare(factor, ">=", 0) & below) | (Formula.compare(factor, "<=", 0) & above)


def forgotten(op: Endpoint) -> frozenset[str]:
    """What the inferred domain of a port or node does not say, as it is a hull; empty where it is exact."""
    names = op.attributes.get(HULL)
    if not isinstance(names, ArrayAttr):
        return frozenset()
    return frozenset(n.data for n in cast("ArrayAttr[Attribute]", names).data if isinstance(n, StringAttr))


def because(*sets: PSet) -> str:
    """Why a question about sets is open, as the end of a sentence: ``: `i*j` is not affine``; empty where all are."""
    what = next((d for s in sets if (d := s.doubts()) is not None), None)
    return f": {what} is not affine" if what and "," not in what else f": {what} are not affine" if what else ""


def reached_by(op: InputOp | NodeOp) -> str:
    """By which arrow with a condition or a reckoned index a node is reached, as the end of a sentence; empty if by none."""
    program = op.parent_op()
    for send in arrows(program) if isinstance(program, ProgramOp) else ():
        plain = send.when.is_true and all(e is None or e.name or e.constant is not None for e in send.index.data)
        if send.target_name == op.symbol and not plain:
            text = condition_text(send)
            condition = f"if {text}: " if text else ""
            return f"; `{op.symbol}` is reached by `{condition}-> {target_text(send)}`"
    return ""


def mark(op: Endpoint, lost: frozenset[str]) -> None:
    """Note at a port or node what its domain does not say, if it is a hull."""
    op.attributes.pop(HULL, None)
    if lost:
        op.attributes[HULL] = ArrayAttr([StringAttr(n) for n in sorted(lost)])


class ProgramSets:
    """The sets of one program: domains as far as they are known, and the arrows as relations."""

    def __init__(self, program: ProgramOp, bindings: Mapping[str, int] | None = None, *, directives: bool = False):
        """Unless `directives` are allowed, which stand as arrows then but are no part of what the program computes, a
        program that holds `adjoint of` is refused (UPL1411): its arrows do not tell all that depends on what."""
        if not directives and (held := held_directives(program)):
            raise error("UPL1411", "`adjoint of` is not expanded yet", span_of(held[0]), help="run --autodiff first")
        self.program = program
        self.ctx: PolyContext = poly_context(program, bindings)
        self.ends: dict[str, Endpoint] = endpoints(program)
        self.arrows: list[Arrow] = [self._arrow(s, source_of(s)) for s in arrows(program)]
        self.arrows += self._directives()
        self._into: dict[str, list[Arrow]] = {}
        self._out_of: dict[str, list[Arrow]] = {}
        for a in self.arrows:
            self._into.setdefault(a.target.symbol, []).append(a)
            self._out_of.setdefault(a.source.symbol, []).append(a)
        self._domains: dict[str, PSet] = {}
        self._relations: dict[tuple[int, bool], tuple[Arrow, PSet]] = {}
        """By arrow and whether inside its target, for the domains as they are.  Arrows are kept, so no `id` comes again."""

    def _directives(self) -> list[Arrow]:
        """The arrows that unexpanded `adjoint of` directives stand for: from each `wrt` to its target, same index."""
        out: list[Arrow] = []
        for op in held_directives(self.program):
            if op.into is None:
                continue
            for wrt, into in zip(op.wrt, op.into, strict=True):
                source = self.ends[wrt.root_reference.data]
                assert isinstance(source, InputOp | NodeOp)
                value = Block(arg_types=[f64]).args[0]
                index = tuple(IndexExpr.of(f) for f in source.fields)
                send = SendOp(value, into, index)
                send.location = op.location
                out.append(replace(self._arrow(send, source), virtual=True))
        return out

    def _arrow(self, send: SendOp, source: InputOp | NodeOp) -> Arrow:
        target = self.ends[send.target_name]
        port = target_port(target, send.target_port)
        statics = {*source.fields, *(it.name for it in send.loops), *self.ctx.params, *self.ctx.constants}
        exact = send.predicate is None
        parts: list[Formula] = []

        def keep(f: Formula, dims: tuple[str, ...]) -> None:
            nonlocal exact
            if f.names <= statics | set(dims):
                parts.append(f)
            else:
                exact = False

        for f in points(send).conjuncts:
            keep(f, ())
        dst = primed(target.fields)
        for dim, e in zip(dst, send.index.data, strict=True):
            if e is not None:
                keep(Formula.compare(dim, "==", e), dst)
        return Arrow(send, source, target, port, Formula.all(parts), exact)

    def domain(self, name: str) -> PSet:
        """The inferred domain of a port or node, else the declared one, over its fields.

        Raises UplError (UPL1201) if there is neither: `infer-domains` has not run.
        """
        if name not in self._domains:
            op = self.ends[name]
            attr = op.domain or op.declared
            if attr is None:
                raise error("UPL1201", f"the domain of `{name}` is not known", span_of(op), help="run --infer-domains")
            self._domains[name] = replace(self.ctx.set(op.fields, attr.data), lost=forgotten(op))
        return self._domains[name]

    def set_domain(self, name: str, domain: PSet) -> None:
        """Record a domain that was found."""
        self._domains[name] = domain
        self._relations.clear()

    def target_domain(self, arrow: Arrow) -> PSet:
        """The target's domain over the arrow's target dimensions."""
        fields = arrow.target.fields
        return self.domain(arrow.target.symbol).rename(dict(zip(fields, arrow.dst, strict=True)))

    def tokens(self, arrow: Arrow) -> PSet:
        """Source domain × iterator points at which the arrow sends, over source fields and iterators."""
        dims = (*arrow.src, *arrow.loops)
        own = Formula.all(f for f in arrow.where.conjuncts if not f.names & set(arrow.dst))
        return self.domain(arrow.source.symbol).extend(dims).constrain(own)

    def relation(self, arrow: Arrow, *, inside_target: bool = True) -> PSet:
        """The token relation over `arrow.dims`, restricted to the source's domain (and to the target's, if that is known
        exactly: it has an instance for every token, which `check` proves)."""
        key = (id(arrow), inside_target)
        if key not in self._relations:
            if inside_target:
                target = self.target_domain(arrow)
                within = (target if target.exact else self.ctx.set(arrow.dst)).extend(arrow.dims)
                found = (self.relation(arrow, inside_target=False) & within).in_terms_of(arrow.src)
            else:
                found = self.domain(arrow.source.symbol).extend(arrow.dims).constrain(arrow.where)
            self._relations[key] = (arrow, found)
        return self._relations[key][1]

    def image(self, arrow: Arrow) -> PSet:
        """The target instances that the arrow's tokens cover, over the target's fields; free where it has a `*`."""
        r = self.relation(arrow, inside_target=False)
        keep = [d for d in arrow.dst if d not in arrow.stars]
        out = r.project(keep).extend(arrow.dst).reorder(arrow.dst)
        return out.rename(dict(zip(arrow.dst, arrow.target.fields, strict=True)))

    def images(self, op: Endpoint, arrows: Sequence[Arrow]) -> PSet:
        """The instances that several arrows cover together.

        What one arrow's image forgets of its conditions, another one may make up for, as by ``if c`` and ``if !c``: such
        arrows are taken together before what their sources had is left out.
        """
        got = self.ctx.empty(op.fields)
        rough: list[Arrow] = []
        for a in arrows:
            image = self.image(a)
            if image.lost:
                rough.append(a)
            else:
                got = got | image
        if not rough:
            return got
        more = self._together(op, rough) if len(rough) > 1 else self.image(rough[0])
        return got if more.as_meant() <= got else got | more

    def _together(self, op: Endpoint, arrows: Sequence[Arrow]) -> PSet:
        """The image of the union of arrows."""
        dst = primed(op.fields)
        whole = self.together(arrows)
        free = {d for d in dst if all(d in a.stars for a in arrows)}
        out = whole.project([d for d in dst if d not in free]).extend(dst).reorder(dst)
        return out.rename(dict(zip(dst, op.fields, strict=True)))

    def together(self, arrows: Sequence[Arrow], like: Sequence[Arrow] = ()) -> PSet:
        """The union of the relations of arrows into one node: their sources' dimensions, by place, are called as those of
        the arrow that has most, of these or of those that the set is to be `like`."""
        names = max(((*a.src, *a.loops) for a in like or arrows), key=len)
        dims = (*names, *arrows[0].dst)
        parts: list[PSet] = []
        for a in arrows:
            own = (*a.src, *a.loops)
            r = self.relation(a, inside_target=False).rename(dict(zip(own, names, strict=False)))
            fixed = [Formula.compare(d, "==", 0) for d in names[len(own) :]]
            parts.append(r.extend(dims).reorder(dims).constrain(Formula.all(fixed)))
        return union(parts).coalesce().simplified()

    def into(self, name: str, port: str | None = None) -> list[Arrow]:
        """The arrows that enter a port or node (one of its inputs, if given), in text order."""
        return [a for a in self._into.get(name, ()) if port in (None, a.port.name)]

    def out_of(self, name: str) -> list[Arrow]:
        """The arrows that leave a host input or node, in text order."""
        return list(self._out_of.get(name, ()))

    @cached_property
    def dynamic_nodes(self) -> frozenset[str]:
        """The nodes of which data decide what instances fire: a dynamic arrow reaches them, or one of these nodes does.

        What comes to an open gather does not decide it: it ends with whatever came."""
        stack = [a.target.symbol for a in self.arrows if not a.exact and not a.port.open]
        found: set[str] = set()
        while stack:
            at = stack.pop()
            if at not in found:
                found.add(at)
                stack += [a.target.symbol for a in self.out_of(at) if not a.port.open]
        return frozenset(found)

    def dynamic(self, arrow: Arrow) -> bool:
        """Whether data decide what tokens the arrow sends: its own condition or index, or whether its source fires."""
        return not arrow.exact or arrow.source.symbol in self.dynamic_nodes

    def received(self, op: Endpoint, port: Port) -> PSet:
        """The instances at which an input is served: the union of images, and for a counted gather also n <= 0; of an open
        gather, and of one whose n is data, which may be 0 anywhere, all that are declared, else all that the other inputs
        serve."""
        ports = op.ports if isinstance(op, NodeOp) else ()
        if port.open or (self._by_token(op, port) and not all(p.open or self._by_token(op, p) for p in ports)):
            return self.ctx.set(op.fields, op.declared.data if op.declared else TRUE)
        got = self.images(op, self.into(op.symbol, port.name))
        if port.gather is not None and isinstance(port.count, IndexExpr) and not self._by_token(op, port):
            got = got | self.ctx.set(op.fields, self.no_summands(port.count))
        return got

    def no_summands(self, n: IndexExpr) -> Formula:
        """Where a gather of `n` summands waits for none.  Outside a symbolic array there is no entry, so no count either."""
        entries = [(a, self.ctx.unknown[a.array]) for a in n.lookups() if a.array in self.ctx.unknown]
        return Formula.all((at_most_0(n), *(array.inside(a) & array.fact(a) for a, array in entries)))

    @staticmethod
    def _by_token(op: Endpoint, port: Port) -> bool:
        """Whether the number of summands is another input."""
        n = port.count.name if isinstance(port.count, IndexExpr) else None
        return n is not None and isinstance(op, NodeOp) and op.port(n) is not None

    def served(self, op: Endpoint) -> PSet:
        """The instances at which every input is served: the right-hand side of the domain equation (LANGUAGE 3.9)."""
        ports = op.ports if isinstance(op, NodeOp) else (target_port(op, None),)
        out = self.ctx.set(op.fields)
        for p in ports:
            out = out & self.received(op, p)
        return out.coalesce()

