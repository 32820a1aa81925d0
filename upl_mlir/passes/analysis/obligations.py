"""What `check` proves, obligation by obligation (LANGUAGE section 4).

Each function looks at one arrow, input or node and yields obligations: proved for all parameter values, refuted with a
concrete instance, or unproved with the reason.  Declared domains are assumed, so a mistake is reported where it is made
and not downstream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from upl_mlir.diagnostics import Note, Span
from upl_mlir.dialects.upl import NodeOp, Port, Special
from upl_mlir.dialects.upl.query import Endpoint, span_of, undetermined
from upl_mlir.passes.analysis.entries import is_data, missing_in_arrow, missing_in_count
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets, because
from upl_mlir.poly.describe import describe
from upl_mlir.poly.equality import at_least_0, same_count, same_value
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.fibres import fibre_counts, sum_by_parts
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.sets import PSet


class Status(Enum):
    """The outcome of one obligation."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNPROVED = "unproved"


class Kind(Enum):
    """What is to be shown."""

    COVERAGE = "every instance gets a token"
    EXISTS = "every token has an instance"
    UNIQUE = "no instance gets two tokens"
    MULTIPLICITY = "the multiplicity is the number of activations"
    GATHER = "a gather gets exactly its number of summands"
    DOMAIN = "the declared domain is the computed one"
    ACYCLIC = "no instance waits for itself"
    AFFINE = "the arrow is quasi-affine"
    STRATA = "open gathers end in an order"
    DEFINED = "indices and conditions have values"


@dataclass(frozen=True)
class Obligation:
    """One item of the report; `witness` is a concrete index with the values of parameters, `help` how to mend it, `notes`
    what else takes part in it."""

    kind: Kind
    status: Status
    where: str
    message: str
    span: Span | None = None
    arrow: str | None = None
    witness: dict[str, int] | None = None
    help: str | None = None
    notes: tuple[Note, ...] = ()


def _unprime(point: dict[str, int]) -> dict[str, int]:
    return {k.removesuffix("'"): v for k, v in point.items()}


def instance(op: Endpoint, point: dict[str, int]) -> str:
    """An instance as text: ``Link<1,2,3,4>``, with the parameters' values behind it."""
    at = ",".join(str(point.get(f"{f}'", point.get(f, "?"))) for f in op.fields)
    rest = {k: v for k, v in point.items() if k not in op.fields and not k.endswith("'")}
    params = ", ".join(f"{k}={v}" for k, v in rest.items())
    return f"{op.symbol}<{at}>" + (f" ({params})" if params else "")


def of_ordinary(sets: ProgramSets, op: Endpoint, port: Port) -> Iterator[Obligation]:
    """An ordinary input: covered everywhere, by one token."""
    where = f"{op.symbol}.{port.name}" if isinstance(op, NodeOp) else op.symbol
    into = sets.into(op.symbol, port.name)
    a = next((a for a in into if sets.dynamic(a)), None)
    if a is not None:
        why = _by_data(a)
        yield Obligation(Kind.COVERAGE, Status.UNPROVED, where, why, span_of(a.send), a.text)
        for o in unique(sets, op, where, into):  # what may come never comes twice: that can be shown all the same
            proved = o.status is Status.PROVED
            yield o if proved else Obligation(Kind.UNIQUE, Status.UNPROVED, where, why, span_of(a.send), a.text)
        return
    yield from _covered(sets, op, where, sets.images(op, into), into)
    yield from unique(sets, op, where, into)


def _by_data(a: Arrow) -> str:
    """Why nothing is known of an arrow's tokens."""
    if not a.exact:
        return f"the arrow {a.text} depends on data"
    return f"data decide which instances of {a.source.symbol} fire, and so what {a.text} sends"


def _covered(sets: ProgramSets, op: Endpoint, where: str, covered: PSet, into: Sequence[Arrow]) -> Iterator[Obligation]:
    domain = sets.domain(op.symbol)
    missing = domain - covered
    if missing.is_empty():
        yield Obligation(Kind.COVERAGE, Status.PROVED, where, "every instance gets a token", span_of(op))
        return
    point = missing.sample()
    if point is None:
        message = f"whether every instance gets a token is not decided{because(missing, covered, domain)}"
        yield Obligation(Kind.COVERAGE, Status.UNPROVED, where, message, span_of(op))
        return
    message = f"{instance(op, point)} gets no token on `{where}`; none comes {_where(missing, domain)}"
    notes = tuple(Note(_serves(sets, op, a), span_of(a.send)) for a in into[:MANY])
    help = None if into else f"no arrow goes to `{where}`: send it something, `… -> {where}<{','.join(op.fields)}>`"
    yield Obligation(Kind.COVERAGE, Status.REFUTED, where, message, span_of(op), None, point, help, notes)


def _where(part: PSet, whole: PSet) -> str:
    if part.lost or whole.lost:
        return "at some indices"
    return "at all" if whole <= part else f"where {describe(part, whole)}"


def _domain(s: PSet) -> str:
    return "empty" if s.is_empty() else describe(s.as_meant()).text(domain=True)


MANY = 4  # arrows that notes name


def _serves(sets: ProgramSets, op: Endpoint, a: Arrow) -> str:
    """What an arrow does for an input, for a note."""
    domain = sets.domain(op.symbol)
    image = sets.image(a) & domain
    if image.is_empty() or domain <= image:
        return f"{a.text} serves {'no' if image.is_empty() else 'every'} instance"
    return f"{a.text} serves " + ("some" if image.lost else str(describe(image, domain)))


def unique(sets: ProgramSets, op: Endpoint, where: str, into: Sequence[Arrow]) -> Iterator[Obligation]:
    """No instance gets two of the tokens of some arrows into an ordinary input."""
    for a in into:
        r = sets.relation(a)
        found = all(r.express(IndexExpr.of(d), a.dst) is not None for d in (*a.src, *a.loops))
        twice = None if found else _two_tokens(r, a)
        if twice is not None and not twice.is_empty():
            point = twice.sample()
            if point is None:
                message = f"whether two tokens of {a.text} reach one instance is not decided{because(twice)}"
                yield Obligation(Kind.UNIQUE, Status.UNPROVED, where, message, span_of(a.send), a.text)
                return
            there = {k: v for k, v in point.items() if k.removesuffix('"') not in (*a.src, *a.loops)}
            by, other = (_at_source(a, point, mark) for mark in ("", '"'))
            message = f"two tokens of {a.text} reach {instance(op, there)}: one from {by}, another from {other}"
            at = span_of(a.send), a.text, _unprime(there), _gathered(op, a)
            yield Obligation(Kind.UNIQUE, Status.REFUTED, where, message, *at)
            return
    for n, a in enumerate(into):
        for b in into[:n]:
            both = sets.image(a) & sets.image(b) & sets.domain(op.symbol)
            if not both.is_empty():
                point = both.sample()
                if point is None:
                    message = f"whether {b.text} and {a.text} serve one instance is not decided{because(both)}"
                    yield Obligation(Kind.UNIQUE, Status.UNPROVED, where, message, span_of(a.send), a.text)
                    return
                message = f"{instance(op, point)} gets a token from {b.text} and another from {a.text}"
                at = span_of(a.send), a.text, point, _gathered(op, a), (Note("the other one is sent here", span_of(b.send)),)
                yield Obligation(Kind.UNIQUE, Status.REFUTED, where, message, *at)
                return
    yield Obligation(Kind.UNIQUE, Status.PROVED, where, "no instance gets two tokens", span_of(op))


def _gathered(op: Endpoint, a: Arrow) -> str | None:
    """How an input takes several tokens; an element of an output takes one."""
    return f"an input that takes several gathers them: `in @(+) {a.port.name}[#]`" if isinstance(op, NodeOp) else None


def _two_tokens(r: PSet, a: Arrow) -> PSet | None:
    """Pairs of different (source, iterator) points of one arrow, the second marked `"`, with the target that both reach."""
    points = (*a.src, *a.loops)
    other = {d: f"{d}\"" for d in points}
    twin, dims = r.rename(other), (*a.dims, *other.values())
    differ = Formula.any(Formula.compare(d, CmpOp.NE, o) for d, o in other.items())
    if not points:
        return None
    return (r.extend(dims) & twin.extend(dims)).constrain(differ)


def _at_source(a: Arrow, point: dict[str, int], mark: str) -> str:
    """One of the two points that reach the same target, as text."""
    at = ",".join(str(point[f"{d}{mark}"]) for d in a.src)
    loops = ", ".join(f"{d}={point[f'{d}{mark}']}" for d in a.loops)
    return f"{a.source.symbol}<{at}>" + (f" with {loops}" if loops else "")


def of_arrow(sets: ProgramSets, a: Arrow) -> Iterator[Obligation]:
    """One arrow: its tokens have instances, and its multiplicity is right."""
    span = span_of(a.send)
    if not a.exact:
        yield Obligation(Kind.AFFINE, Status.UNPROVED, a.text, "its condition or index depends on data", span, a.text)
        return
    entry, point = missing_in_arrow(sets, a) or (None, None)
    if point is not None:
        message = f"{instance(a.source, point)} reads {entry}, which does not exist"
        yield Obligation(Kind.AFFINE, Status.REFUTED, a.text, message, span, a.text, point)
        return
    yield Obligation(Kind.AFFINE, Status.PROVED, a.text, "quasi-affine", span, a.text)
    yield _exists(sets, a)
    if a.port.gather is None:
        yield _multiplicity(sets, a)


def _exists(sets: ProgramSets, a: Arrow) -> Obligation:
    """Every token meets some instance of the target's domain; `##` need not, where data decide which instances fire."""
    if a.send.multiplicity is Special.UNBOUNDED and a.target.symbol in sets.dynamic_nodes:
        message = f"`##` may meet none: data decide which instances of {a.target.symbol} fire"
        return Obligation(Kind.EXISTS, Status.PROVED, a.text, message, span_of(a.send), a.text)
    points = (*a.src, *a.loops)
    sent, met = sets.relation(a, inside_target=False).project(points), sets.relation(a).project(points)
    span = span_of(a.send)
    domain = sets.domain(a.target.symbol)
    if domain.lost:
        message = f"whether every token of {a.text} has an instance is not decided{because(domain)}"
        return Obligation(Kind.EXISTS, Status.UNPROVED, a.text, message, span, a.text)
    lost = sent - met
    if lost.is_empty():
        return Obligation(Kind.EXISTS, Status.PROVED, a.text, "every token has an instance", span, a.text)
    point = lost.sample()
    if point is None:
        message = f"whether every token of {a.text} has an instance is not decided{because(lost, met)}"
        return Obligation(Kind.EXISTS, Status.UNPROVED, a.text, message, span, a.text)
    message = (
        f"the token that {instance(a.source, point)} sends to {a.target.symbol} belongs to no instance: "
        f"the domain of {a.target.symbol} is {_domain(domain)}"
    )
    if domain.is_empty():
        ports = a.target.ports if isinstance(a.target, NodeOp) else ()
        silent = next((f"its input `{p.name}`" for p in ports if sets.received(a.target, p).is_empty()), "all of its inputs")
        message = message[: message.rindex(":")] + f": {a.target.symbol} never fires, as no token comes to {silent}"
        return Obligation(Kind.EXISTS, Status.REFUTED, a.text, message, span, a.text, point)
    help = "no token of this arrow has one: look at the index"
    if not met.is_empty() and not met.lost:
        help = f"send it only where it has one: `if {describe(met, sent)}:`"
    return Obligation(Kind.EXISTS, Status.REFUTED, a.text, message, span, a.text, point, help)


def _multiplicity(sets: ProgramSets, a: Arrow) -> Obligation:
    """The number of activations is the number of instances that the token covers."""
    span = span_of(a.send)
    m = a.send.multiplicity
    if m is Special.UNBOUNDED:
        return Obligation(Kind.MULTIPLICITY, Status.PROVED, a.text, "`##` is never counted", span, a.text)
    assert isinstance(m, IndexExpr)
    if a.stars and a.target.symbol in sets.dynamic_nodes:
        message = f"data decide which of the instances of {a.target.symbol} that the token covers fire"
        return Obligation(Kind.MULTIPLICITY, Status.UNPROVED, a.text, message, span, a.text)
    r = sets.relation(a)
    points = (*a.src, *a.loops)
    if is_data(sets, m, points):
        return Obligation(Kind.MULTIPLICITY, Status.UNPROVED, a.text, f"the multiplicity {m} is data", span, a.text)
    if not a.stars and m.constant == 1:
        return Obligation(Kind.MULTIPLICITY, Status.PROVED, a.text, "one activation", span, a.text)
    terms = fibre_counts(r, a.dst, [m])
    if terms is None:
        message = f"cannot count the instances that a token of {a.text} covers{because(r)}"
        return Obligation(Kind.MULTIPLICITY, Status.UNPROVED, a.text, message, span, a.text)
    sends = r.project(points)
    if sends.lost:
        message = f"cannot count the instances that a token of {a.text} covers{because(sends)}"
        return Obligation(Kind.MULTIPLICITY, Status.UNPROVED, a.text, message, span, a.text)
    parts = list(sum_by_parts(sends, terms))
    for base, n in parts:
        if same_value(base, n, m):
            continue
        bad = _where_differ(base, n, m)
        if bad is None:
            message = f"cannot compare the multiplicity {m} with the number of instances {n}"
            return Obligation(Kind.MULTIPLICITY, Status.UNPROVED, a.text, message, span, a.text)
        has, needs = _at(sets, bad, m), _at(sets, bad, n)
        said = f"{instance(a.source, bad)}, but" if m.constant is not None else f"{instance(a.source, bad)} is {has}, but"
        covers = f"{needs} instance{'s' if needs != 1 else ''} of {a.target.symbol}"
        message = f"multiplicity {m} of {said} its token covers {covers}"
        help = "on an ordinary input the multiplicity is the number of instances that the token covers"
        help += f", here #{n}" if len(parts) == 1 else ""
        return Obligation(Kind.MULTIPLICITY, Status.REFUTED, a.text, message, span, a.text, bad, help)
    return Obligation(Kind.MULTIPLICITY, Status.PROVED, a.text, f"{m} instances", span, a.text)


def _at(sets: ProgramSets, witness: dict[str, int], e: IndexExpr) -> int:
    """The value of an expression at a witness, which also tells the entries of symbolic arrays."""

    def read(array: str, i: int) -> int:
        entry = witness.get(f"{array}[{i}]")
        return sets.ctx.read(array, i) if entry is None else entry

    return e.evaluate({**sets.ctx.constants, **witness}, read)


def _where_differ(s: PSet, a: IndexExpr, b: IndexExpr) -> dict[str, int] | None:
    """A point at which two expressions differ; None if isl cannot compare them."""
    differ = Formula.compare(a, CmpOp.NE, b)
    if s.ctx.not_affine(s.dims, differ) is None:
        return s.constrain(differ).sample()
    for part in s.with_entries(differ.lookups()).slices():
        here = part.resolve(differ)
        if s.ctx.not_affine(s.dims, here) is not None:
            return _small_witness(s, a, b)
        if (point := part.constrain(here).sample()) is not None:
            return point
    return None


SMALL = 4  # values of one name that a witness is looked for at


def _small_witness(s: PSet, a: IndexExpr, b: IndexExpr) -> dict[str, int] | None:
    """A point at which two polynomials differ, with small values of the names in them, parameters first."""
    a, b = a.substitute(s.ctx.constants), b.substitute(s.ctx.constants)
    names = [n for n in (*s.ctx.params, *s.dims) if n in a.names | b.names]
    for name in names:
        if name in s.dims:
            lo, hi = s.extent(name)
        else:
            lo, hi = s.extend(("size",)).constrain(Formula.compare("size", CmpOp.EQ, name)).extent("size")
        if lo is None or (hi is not None and hi < lo):
            continue
        for v in range(lo, min(lo + SMALL, hi + 1 if hi is not None else lo + SMALL)):
            there = s.constrain(Formula.compare(name, CmpOp.EQ, v))
            at = {name: IndexExpr.of(v)}
            if not there.is_empty() and (point := _where_differ(there, a.substitute(at), b.substitute(at))) is not None:
                return point
        return None
    return None


def of_gather(sets: ProgramSets, op: NodeOp, port: Port) -> Iterator[Obligation]:
    """A gathering input: exactly n summands at every instance, and all carried counts agree."""
    where = f"{op.symbol}.{port.name}"
    into = sets.into(op.symbol, port.name)
    domain, span = sets.domain(op.symbol), span_of(op)
    if port.open:
        yield Obligation(Kind.GATHER, Status.PROVED, where, "it ends when no summand can come any more", span)
        return
    dynamic = next((a for a in into if sets.dynamic(a)), None)
    counts = [(port.count, op.fields), *((a.send.multiplicity, (*a.src, *a.loops)) for a in into)]
    data = next((n for n, dims in counts if is_data(sets, n, dims)), None)
    if dynamic is not None or data is not None:
        why = _by_data(dynamic) if dynamic else f"the count `{data}` is data"
        yield Obligation(Kind.GATHER, Status.UNPROVED, where, why, span)
        return
    entry, point = (isinstance(port.count, IndexExpr) and missing_in_count(sets, op, port.count)) or (None, None)
    if point is not None:
        message = f"{instance(op, point)} reads {entry}, which does not exist"
        yield Obligation(Kind.GATHER, Status.REFUTED, where, message, span, None, point)
        return
    terms: list[tuple[PSet, IndexExpr]] = []
    rough: list[Arrow] = []
    for a in into:
        found = _summands(op, sets.relation(a), (*a.src, *a.loops), a.dst)
        if found is None:
            rough.append(a)
        else:
            terms += found
    together = _summands_together(sets, op, rough)
    if together is None:
        a = rough[0]
        message = f"cannot count the summands that {a.text} sends{because(sets.relation(a))}"
        yield Obligation(Kind.GATHER, Status.UNPROVED, where, message, span_of(a.send), a.text)
        return
    terms += together
    if port.count is Special.CARRIED:
        yield from _covered(sets, op, where, sets.images(op, into), into)
        for a in into:
            yield _carried(sets, op, port, a, terms)
        return
    assert isinstance(port.count, IndexExpr) and port.gather is not None
    parts = list(sum_by_parts(domain, terms))
    for part, total in parts:
        wanted = port.count
        bad = None if same_count(part, wanted, total) else _where_differ(part, at_least_0(wanted), total)
        if bad is not None:
            n, k = _at(sets, bad, wanted), _at(sets, bad, total)
            says = f"{wanted} = {n} summands" if wanted.constant is None else f"{n} summand{'s' if n != 1 else ''}"
            message = f"{instance(op, bad)} waits for {says} on `{where}`, but {k} come{'s' if k == 1 else ''}"
            help = f"if these are all, write `@({port.gather.value}) {port.name}[{total}]`" if len(parts) == 1 else None
            notes = tuple(Note(f"{a.text} sends some here", span_of(a.send)) for a in into[:MANY])
            yield Obligation(Kind.GATHER, Status.REFUTED, where, message, span, None, bad, help, notes)
            return
        if not same_count(part, wanted, total):
            message = f"cannot show that {total} summands are {wanted}"
            yield Obligation(Kind.GATHER, Status.UNPROVED, where, message, span)
            return
    yield Obligation(Kind.GATHER, Status.PROVED, where, f"{port.count} summands", span)


def _summands_together(sets: ProgramSets, op: NodeOp, arrows: Sequence[Arrow]) -> list[tuple[PSet, IndexExpr]] | None:
    """How many tokens several arrows send to an instance of which no one alone can be counted: as by ``if c`` and
    ``if !c``, whose points lie apart and are simpler together."""
    if not arrows:
        return []
    parts = [sets.together([a], arrows) for a in arrows]
    if any(not (p & q).is_empty() for n, p in enumerate(parts) for q in parts[:n]):
        return None
    whole, dst = sets.together(arrows), arrows[0].dst
    return _summands(op, whole, [d for d in whole.dims if d not in dst], dst)


def _summands(op: NodeOp, r: PSet, over: Sequence[str], dst: Sequence[str]) -> list[tuple[PSet, IndexExpr]] | None:
    """How many points `over` of a token relation reach an instance, over the target's fields, piece by piece."""
    r = r.in_terms_of(dst)
    back = dict(zip(dst, op.fields, strict=True))
    clash = {d: f'{d}"' for d in over}
    r = r.rename(clash).rename(back)
    over = tuple(clash[d] for d in over)
    return fibre_counts(r, over)


def _carried(sets: ProgramSets, op: NodeOp, port: Port, a: Arrow, terms: Sequence[tuple[PSet, IndexExpr]]) -> Obligation:
    """`[#]`: the multiplicity that a summand carries is the number of summands that come."""
    span = span_of(a.send)
    m = a.send.multiplicity
    where = f"{op.symbol}.{port.name}"
    if not isinstance(m, IndexExpr):
        return Obligation(Kind.GATHER, Status.REFUTED, where, "a summand cannot carry `##`", span, a.text)
    if missing_in_arrow(sets, a) is not None:  # which `of_arrow` refutes
        return Obligation(Kind.GATHER, Status.UNPROVED, where, f"{a.text} reads an entry that does not exist", span, a.text)
    r = sets.relation(a)
    to = dict(zip(op.fields, a.dst, strict=True))
    for part, total in sum_by_parts(sets.domain(op.symbol), terms):
        here = r & part.rename(to).extend(a.dims).reorder(a.dims)
        if here.is_empty():
            continue
        summands = total.substitute({f: IndexExpr.of(d) for f, d in to.items()})
        if same_value(here, m, summands):
            continue
        bad = _where_differ(here, m, summands)
        if bad is None:
            message = f"cannot show that the carried count {m} is the number of summands {total}"
            return Obligation(Kind.GATHER, Status.UNPROVED, where, message, span, a.text)
        has, needs = _at(sets, bad, m), _at(sets, bad, summands)
        there = {k: v for k, v in bad.items() if k not in (*a.src, *a.loops)}
        says = f"{m} = {has} summands" if m.constant is None else f"{has} summand{'s' if has != 1 else ''}"
        comes = f"{needs} come{'s' if needs == 1 else ''}"
        message = f"{instance(a.source, bad)} says that {instance(op, there)} gets {says}, but {comes}"
        help = f"each summand carries how many there are: #{summands}" if not summands.names & set(a.dst) else None
        return Obligation(Kind.GATHER, Status.REFUTED, where, message, span, a.text, _unprime(bad), help)
    return Obligation(Kind.GATHER, Status.PROVED, where, f"{a.text} carries the number of summands", span, a.text)


def of_domain(sets: ProgramSets, op: Endpoint) -> Iterator[Obligation]:
    """A declared domain is the computed one."""
    if op.declared is None or any(sets.dynamic(a) for a in sets.into(op.symbol)):
        return
    declared, computed = sets.domain(op.symbol), sets.served(op)
    if (idle := _never_called(sets, op)) is not None:
        computed = computed - (idle - declared)
    span = span_of(op)
    for extra, verb in ((declared - computed, "is declared but never served"), (computed - declared, "is not declared")):
        if not extra.is_empty():
            point = extra.sample()
            if point is None:
                message = f"whether the declared domain is the computed one is not decided{because(extra, computed)}"
                yield Obligation(Kind.DOMAIN, Status.UNPROVED, op.symbol, message, span)
                return
            message = f"{instance(op, point)} {verb}; the computed domain is {_domain(computed)}"
            notes = tuple(Note(_reaches(sets, a), span_of(a.send)) for a in sets.into(op.symbol)[:MANY])
            into = [a.send for a in sets.into(op.symbol)]
            if isinstance(op, NodeOp) and (field := undetermined(op, into)) is not None:
                message = f"nothing determines `{field}` of `{op.symbol}`; an arrow must name it"
            yield Obligation(Kind.DOMAIN, Status.REFUTED, op.symbol, message, span, None, point, None, notes)
            return
    yield Obligation(Kind.DOMAIN, Status.PROVED, op.symbol, "declared = computed", span)


def _reaches(sets: ProgramSets, a: Arrow) -> str:
    image = sets.image(a)
    where = describe(image.as_meant())
    said = "every index" if where.is_true else where.text(domain=True)
    return f"{a.text} reaches " + ("nothing" if image.is_empty() else said)


def _never_called(sets: ProgramSets, op: Endpoint) -> PSet | None:
    """Where no token makes a node of counted gathers fire: of these instances those fire (at the start) that are declared
    (LANGUAGE 3.3).  None for other nodes."""
    if not isinstance(op, NodeOp):
        return None
    nothing: list[Formula] = []
    for p in op.ports:
        if p.gather is None or not isinstance(p.count, IndexExpr) or any(op.port(n) for n in p.count.names):
            return None
        nothing.append(sets.no_summands(p.count))
    return sets.ctx.set(op.fields, Formula.all(nothing))
