"""What a generated program means, by enumerating all instances and tokens in plain Python: no sets, no matching order.

`run(program, params)` finds the instances that fire (least fixpoint) and everything that breaks a rule of LANGUAGE 3 and 4:
this is the truth about a program for given parameters, and independent of the readers of text too
(`upl_mlir.engines.reference`, with which engines are compared, starts from the dialect).  With `declared=True` declared
domains are taken as they stand instead, which is what `check` assumes: its witnesses are compared with that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agreement.model import CARRIED, UNBOUNDED, Arrow, End, Program
from agreement.static import Cond, Lin, OutOfRange, Var

Point = tuple[int, ...]
MAX_INSTANCES = 3000
MAX_TOKENS = 10000
MARGIN = 4
MAX_SPAN = 60


class TooLarge(Exception):
    """More instances than can be enumerated: a runaway, or too large parameters."""


@dataclass(frozen=True)
class Token:
    """A token: the arrow's source, number and point (fields, then iterators), index with None for `*`, multiplicity."""

    source: str
    number: int
    at: Point
    index: tuple[int | None, ...]
    mult: int | str

    def covers(self, x: Point) -> bool:
        """Whether it belongs to an instance."""
        return all(i is None or i == v for i, v in zip(self.index, x, strict=True))


@dataclass(frozen=True)
class Violation:
    """A broken rule: `kind` as `check` names it, `where` a port, node or arrow (source, number), the point."""

    kind: str
    where: str
    at: Point
    arrow: tuple[str, int] | None = None


@dataclass
class Result:
    """Instances by node, tokens by (end, port), and what is wrong."""

    domains: dict[str, set[Point]] = field(default_factory=dict[str, set[Point]])
    tokens: dict[tuple[str, str], list[Token]] = field(default_factory=dict[tuple[str, str], list[Token]])
    violations: list[Violation] = field(default_factory=list[Violation])

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.violations


class Naive:
    """One program with given parameters."""

    def __init__(self, program: Program, params: Mapping[str, int], *, declared: bool = False):
        self.program, self.assume = program, declared
        self.constants = {**dict(program.consts), **params}
        self.arrays = program.tables()
        self.by_name = {e.name: e for e in program.ends}
        self.span = (-MARGIN, MARGIN)
        self.known: dict[object, set[Point]] = {}

    # -- enumeration -----------------------------------------------------------------------------------------------
    def points(self, fields: tuple[str, ...], domain: Cond) -> set[Point]:
        """All points of a domain inside the span; conditions cut the search as soon as their names are known.

        Raises OutOfRange, TooLarge.
        """
        key = (fields, domain, self.span)
        if key in self.known:
            return self.known[key]
        order = _order(fields, domain)
        todo: list[list[Cond]] = [[] for _ in range(len(fields) + 1)]
        for c in domain.conjuncts():
            last = max((order.index(n) + 1 for n in c.names() if n in fields), default=0)
            todo[last].append(c)
        found: set[Point] = set()
        env = dict(self.constants)
        place = [order.index(f) for f in fields]

        def search(k: int, at: Point, unknown: str) -> None:
            for c in todo[k]:
                try:
                    if not c.eval(env, self.arrays):
                        return
                except OutOfRange as e:
                    unknown = str(e)  # it matters only if all the others hold
            if k == len(order):
                if unknown:
                    raise OutOfRange(unknown)
                found.add(tuple(at[i] for i in place))
                if len(found) > MAX_INSTANCES:
                    raise TooLarge(f"{len(found)} points")
                return
            lo, hi = self.span
            for c in todo[k + 1]:
                lo, hi = self._cut(c, order[k], env, lo, hi)
            for v in range(lo, hi + 1):
                env[order[k]] = v
                search(k + 1, (*at, v), unknown)
            env.pop(order[k], None)

        search(0, (), "")
        self.known[key] = found
        return found

    def _cut(self, c: Cond, name: str, env: dict[str, int], lo: int, hi: int) -> tuple[int, int]:
        """A range of values made smaller by a comparison that is linear in the name: nothing is lost, much time is won."""
        if c.kind != "cmp" or c.op == "!=":
            return lo, hi
        e = c.left - c.right
        k = next((k for k, a in e.terms if a == Var(name)), 0)
        if not k or name in Lin(0, tuple(t for t in e.terms if t[1] != Var(name))).names():
            return lo, hi
        try:
            rest = e.subst({name: Lin()}).eval(env, self.arrays)
        except OutOfRange:
            return lo, hi
        # k*name + rest  op  0
        op = c.op if k > 0 else {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}[c.op]
        edge = -rest if k > 0 else rest
        if op in ("<", "<=", "=="):
            hi = min(hi, edge // abs(k))
        if op in (">", ">=", "=="):
            lo = max(lo, -(-edge // abs(k)))
        return lo, hi

    def widen(self) -> None:
        """Choose the span of field values so that every declared domain lies inside, if it is bounded.

        A domain may lie beyond a span as a whole, so the span of twice the width must have no more.
        """
        wide = 10 + 4 * max((abs(v) for v in self.constants.values()), default=0)
        while True:
            lo, hi = self._extent(wide)
            inside = -wide <= lo - MARGIN and wide >= hi + MARGIN
            if wide > MAX_SPAN or (inside and self._extent(2 * wide) == (lo, hi)):
                self.span = (-wide, wide)
                return
            wide *= 2

    def _extent(self, wide: int) -> tuple[int, int]:
        """The least and the greatest value of a field in declared domains, in a span."""
        self.span = (-wide, wide)
        lo, hi = 0, 0
        for e in self.program.ends:
            if e.domain is not None:
                for p in self.points(e.fields, e.domain):
                    lo, hi = min([lo, *p]), max([hi, *p])
        return lo, hi

    def tokens_of(self, e: End, at: Point) -> Iterator[tuple[Arrow, Token]]:
        """What an instance sends."""
        base = {**self.constants, **dict(zip(e.fields, at, strict=True))}
        for number, a in enumerate(e.arrows):
            if not a.cond.eval(base, self.arrays):
                continue
            for its in self._loops(a, base, 0):
                env = {**base, **dict(zip((p.it for p in a.loops), its, strict=True))}
                if not a.loop_cond.eval(env, self.arrays):
                    continue
                index = tuple(None if i is None else i.eval(env, self.arrays) for i in a.index)
                mult = a.mult if isinstance(a.mult, str) else 1 if a.mult is None else a.mult.eval(env, self.arrays)
                yield a, Token(e.name, number, (*at, *its), index, mult)

    def _loops(self, a: Arrow, env: dict[str, int], k: int) -> Iterator[Point]:
        if k == len(a.loops):
            yield ()
            return
        p = a.loops[k]
        for v in range(p.lo.eval(env, self.arrays), p.hi.eval(env, self.arrays) + 1):
            inner = {**env, p.it: v}
            for rest in self._loops(a, inner, k + 1):
                yield (v, *rest)

    # -- the least fixpoint ----------------------------------------------------------------------------------------
    def run(self) -> Result:
        """Fire everything that can fire.  Raises TooLarge; OutOfRange where an arrow reads beyond an array."""
        self.widen()
        out = Result()
        for e in self.program.ends:
            out.domains[e.name] = set()
            for p in e.ports if e.kind == "node" else ((e,) if e.kind == "output" else ()):
                out.tokens[e.name, p.name] = []
        joins = {e.name: _Join(self, e) for e in self.program.ends if e.kind == "node"}
        flight: list[tuple[End, str, Token]] = []
        for e in self.program.ends:
            if e.kind == "input":
                start = self.points(e.fields, e.domain) if e.domain is not None else {()}
            elif e.kind == "node" and self.assume and e.domain is not None:
                start = self.points(e.fields, e.domain)
            elif e.kind == "node" and self._counted(e) and (e.domain is not None or not e.fields):
                inside = self.points(e.fields, e.domain) if e.domain is not None else {()}
                start = {x for x in inside if all(self.wanted(e, p, x) <= 0 for p in e.ports)}
            else:
                continue
            for x in sorted(start):
                self._fire(out, e, x, flight)
        sent = 0
        while sent < len(flight):
            e, port, t = flight[sent]
            sent += 1
            if e.kind == "node" and not (self.assume and e.domain is not None):
                for x in joins[e.name].add(port, t):
                    self._fire(out, e, x, flight)
        self._judge(out)
        return out

    def _fire(self, out: Result, e: End, x: Point, flight: list[tuple[End, str, Token]]) -> None:
        domain = out.domains[e.name]
        if x in domain:
            return
        domain.add(x)
        for a, t in self.tokens_of(e, x):
            target = self.by_name[a.target]
            port = target.name if target.kind == "output" else target.port(a.port).name
            out.tokens[target.name, port].append(t)
            flight.append((target, port, t))
        if len(domain) > MAX_INSTANCES or len(flight) > MAX_TOKENS:
            raise TooLarge("instances" if len(domain) > MAX_INSTANCES else "tokens")

    def _counted(self, e: End) -> bool:
        return all(isinstance(p.count, Lin) for p in e.ports)

    def wanted(self, e: End, p: object, x: Point) -> int:
        """The number of summands that a counted gather waits for."""
        count = getattr(p, "count", None)
        assert isinstance(count, Lin)
        return max(0, count.eval({**self.constants, **dict(zip(e.fields, x, strict=True))}, self.arrays))

    def served(self, out: Result, e: End) -> set[Point]:
        """The instances that have a token on every ordinary input and enough summands on every gather."""
        join = _Join(self, e)
        return {x for p in e.ports for t in out.tokens[e.name, p.name] for x in join.add(p.name, t)}

    def declares(self, e: End, x: Point) -> bool:
        """Whether the declared domain has a point.  Raises OutOfRange."""
        assert e.domain is not None
        return e.domain.eval({**self.constants, **dict(zip(e.fields, x, strict=True))}, self.arrays)

    def images(self, out: Result, e: End, x: Point) -> bool:
        """Whether every input of an instance is in the image of some token, or a gather of none (LANGUAGE 3.9)."""
        if e.kind == "output":
            return any(t.covers(x) for t in out.tokens[e.name, e.name])
        return all(
            any(t.covers(x) for t in out.tokens[e.name, p.name]) or (isinstance(p.count, Lin) and self.wanted(e, p, x) <= 0)
            for p in e.ports
        )

    def waits_for_itself(self, out: Result, name: str, x: Point) -> bool:
        """Whether an instance needs, through any number of others, a token of its own."""
        seen: set[tuple[str, Point]] = set()
        stack = [(name, x)]
        while stack:
            n, at = stack.pop()
            for a, t in self.tokens_of(self.by_name[n], at):
                for y in out.domains[a.target]:
                    if t.covers(y) and (a.target, y) not in seen:
                        if (a.target, y) == (name, x):
                            return True
                        seen.add((a.target, y))
                        if self.by_name[a.target].kind == "node":
                            stack.append((a.target, y))
        return False

    # -- judgement -------------------------------------------------------------------------------------------------
    def _judge(self, out: Result) -> None:
        found = out.violations
        for e in self.program.ends:
            if e.kind == "input":
                continue
            if e.kind == "output":
                if e.domain is not None:
                    domain = self.points(e.fields, e.domain)
                else:
                    domain = {t.index for t in out.tokens[e.name, e.name]} if e.fields else {()}
                out.domains[e.name] = domain  # type: ignore[assignment]
            domain = out.domains[e.name]
            if e.kind == "node" and e.domain is not None:
                claimed = self.points(e.fields, e.domain)
                computed = domain if not self.assume else self.served(out, e) | self._booted(e, claimed)
                found += [Violation("DOMAIN", e.name, x) for x in sorted(claimed ^ computed)]
            if e.kind == "output" and e.domain is not None:
                computed = {t.index for t in out.tokens[e.name, e.name]}
                found += [Violation("DOMAIN", e.name, x) for x in sorted(domain ^ computed)]  # type: ignore[arg-type]
            for p in e.ports if e.kind == "node" else (e,):
                where = f"{e.name}.{p.name}" if e.kind == "node" else e.name
                tokens = out.tokens[e.name, p.name]
                if getattr(p, "op", None) is None:
                    self._ordinary(found, e, where, domain, tokens)
                else:
                    self._gather(found, e, p, where, domain, tokens)

    def _booted(self, e: End, claimed: set[Point]) -> set[Point]:
        if not self._counted(e):
            return set()
        return {x for x in claimed if all(self.wanted(e, p, x) <= 0 for p in e.ports)}

    def _ordinary(self, found: list[Violation], e: End, where: str, domain: set[Point], tokens: list[Token]) -> None:
        hits = dict.fromkeys(domain, 0)
        by_pattern: dict[tuple[int, ...], dict[Point, list[Token]]] = {}
        for t in tokens:
            known = tuple(k for k, i in enumerate(t.index) if i is not None)
            by_pattern.setdefault(known, {}).setdefault(tuple(t.index[k] for k in known), []).append(t)  # type: ignore
        covered: dict[int, int] = {}
        for known, groups in by_pattern.items():
            for x in domain:
                for t in groups.get(tuple(x[k] for k in known), ()):
                    hits[x] += 1
                    covered[id(t)] = covered.get(id(t), 0) + 1
        for x, n in sorted(hits.items()):
            if n != 1:
                found.append(Violation("COVERAGE" if n == 0 else "UNIQUE", where, x))
        for t in tokens:
            n = covered.get(id(t), 0)
            if n == 0:
                found.append(Violation("EXISTS", where, t.at, (t.source, t.number)))
            if t.mult not in (UNBOUNDED, n):
                found.append(Violation("MULTIPLICITY", where, t.at, (t.source, t.number)))

    def _gather(
        self, found: list[Violation], e: End, p: object, where: str, domain: set[Point], tokens: list[Token]
    ) -> None:
        groups: dict[Point, list[Token]] = {x: [] for x in domain}
        for t in tokens:
            if t.index not in groups:
                found.append(Violation("EXISTS", where, t.at, (t.source, t.number)))
            else:
                groups[t.index].append(t)  # type: ignore[index]
        for x, ts in sorted(groups.items()):
            if getattr(p, "count", None) == CARRIED:
                if not ts:
                    found.append(Violation("COVERAGE", where, x))
                for t in ts:
                    if t.mult != len(ts):
                        found.append(Violation("GATHER", where, x, (t.source, t.number)))
            elif len(ts) != self.wanted(e, p, x):
                found.append(Violation("GATHER", where, x))


Index = tuple[int | None, ...]


class _Join:
    """The instances of a node that its tokens name together; each token that comes is joined with those before it."""

    def __init__(self, naive: Naive, end: End):
        self.naive, self.end = naive, end
        self.stored: dict[str, dict[Point, list[Index]]] = {p.name: {} for p in end.ports}
        self.seen: set[tuple[str, Index]] = set()
        self.tables: dict[tuple[str, Point, Point], dict[Index, list[Index]]] = {}
        self.summands: dict[tuple[str, Index], int] = {}
        self.rank = {p.name: isinstance(p.count, Lin) for p in end.ports}  # tokens name instances before gathers of 0 do

    def add(self, port: str, t: Token) -> list[Point]:
        """The instances that the token completes."""
        p = self.end.port(port)
        if p.op is not None:
            n = self.summands[port, t.index] = self.summands.get((port, t.index), 0) + 1
            enough = t.mult if p.count == CARRIED else self.naive.wanted(self.end, p, t.index) if None not in t.index else 1
            if not self.naive.assume and (not isinstance(enough, int) or n < enough):
                return []  # but a domain is made of all images (LANGUAGE 3.9): there the first summand names the instance
        if (port, t.index) in self.seen:
            return []
        self.seen.add((port, t.index))
        known = tuple(k for k, i in enumerate(t.index) if i is not None)
        self.stored[port].setdefault(known, []).append(t.index)
        for (name, mask, both), table in self.tables.items():
            if name == port and mask == known:
                table.setdefault(tuple(t.index[k] for k in both), []).append(t.index)
        partial: list[Index] = [t.index]
        for other in sorted(self.stored, key=self.rank.__getitem__):
            if other != port:
                partial = [y for x in partial for y in self._partners(other, x)]
            if len(partial) > MAX_TOKENS:
                raise TooLarge("a join")
        return sorted({x for x in partial if None not in x})  # type: ignore[type-var]

    def _partners(self, port: str, x: Index) -> list[Index]:
        """All ways to unify an index with those on another input."""
        out: list[Index] = []
        have = {k for k, i in enumerate(x) if i is not None}
        for known in self.stored[port]:
            both = tuple(k for k in known if k in have)
            for y in self._table(port, known, both).get(tuple(x[k] for k in both), ()):
                out.append(tuple(i if i is not None else j for i, j in zip(x, y, strict=True)))
        p = self.end.port(port)
        if not out and None not in x and isinstance(p.count, Lin) and self.naive.wanted(self.end, p, x) <= 0:  # type: ignore
            return [x]
        return out

    def _table(self, port: str, known: Point, both: Point) -> dict[Index, list[Index]]:
        key = (port, known, both)
        if key not in self.tables:
            table = self.tables[key] = {}
            for y in self.stored[port][known]:
                table.setdefault(tuple(y[k] for k in both), []).append(y)
        return self.tables[key]


def _order(fields: tuple[str, ...], domain: Cond) -> list[str]:
    """The fields in an order in which each is bounded by those before it, as far as there is one."""
    out: list[str] = []
    names = [c.names() & set(fields) for c in domain.conjuncts()]
    while len(out) < len(fields):
        rest = [f for f in fields if f not in out]
        out.append(max(rest, key=lambda f: sum(f in n and n <= {*out, f} for n in names)))
    return out


def run(program: Program, params: Mapping[str, int], *, declared: bool = False) -> Result:
    """The instances, tokens and broken rules.  Raises TooLarge, OutOfRange."""
    return Naive(program, params, declared=declared).run()


def small_params(program: Program, most: int = 12) -> list[dict[str, int]]:
    """Small values of the parameters, the least ones first."""
    ranges = [range(p.low, p.low + (4 if len(program.params) == 1 else 3)) for p in program.params]
    names = [p.name for p in program.params]
    every = [dict(zip(names, values, strict=True)) for values in itertools.product(*ranges)]
    return sorted(every, key=lambda d: sum(d.values()))[:most]
