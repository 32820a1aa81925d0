"""The matching store as Python source: for every input and token pattern, the function that takes an arriving token.

An arriving token is joined once with the tokens stored on the node's other inputs: their indices unify field by field,
and the result has no `*`.  Each token used loses 1 multiplicity and leaves at 0; what is left of the arriving one is
stored (LANGUAGE 3.1).  Tokens lie in dictionaries by (node, input, pattern), key → value (or [value, multiplicity]); a
join that does not know all fields of a pattern goes through an index by the fields that it knows.

Gathers fold as summands arrive.  A gather counted by an expression or by its summands completes into one token; one
counted by another input completes when a join finds the count.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from upl_mlir.dialects.upl import Gather
from upl_mlir.dialects.upl.kinds import Kind, folding
from upl_mlir.engines.interp.bodies import TABLE, TRUTH_RULES, Rule
from upl_mlir.engines.interp.exprs import Scope, Writer, number_text, tuple_text
from upl_mlir.engines.interp.plan import Mode, NodePlan, Pattern, PortPlan, mask
from upl_mlir.engines.interp.small import small_text
from upl_mlir.poly.expr import IndexExpr

_FIELD = re.compile(r"\bf\d+\b")


def fold_rule(gather: Gather, kind: Kind) -> Rule:
    """How two summands are joined."""
    return (TRUTH_RULES if kind is Kind.BOOL else TABLE)[folding(gather, kind)]


def identity_value(gather: Gather, kind: Kind) -> bool | int | float:
    """The value of a gather without summands."""
    if kind is Kind.BOOL:
        return bool(gather.empty)
    return kind.nearest(float(gather.empty)) if kind.is_float else gather.empty_integer()


def identity(gather: Gather, kind: Kind) -> str:
    """Source of that value; the least and the greatest integer have names."""
    if kind is Kind.INT and math.isinf(gather.empty):
        greatest = gather.empty > 0
        return "INT_MAX" if greatest else "INT_MIN"
    return number_text(identity_value(gather, kind))


@dataclass(frozen=True)
class _Token:
    """A token that takes part in a join: the identifiers of its key, entry and value."""

    port: PortPlan
    pattern: Pattern
    key: str
    value: str
    single: bool  # it has multiplicity 1 and is used up
    optional: bool = False  # it may be the identity of an empty gather, which is not stored


@dataclass
class NodeMatching:
    """Writes the receiving functions of one node.

    `scope` knows the fields as `f0, f1, ...` and the inputs as `a0, a1, ...`.
    """

    node: NodePlan
    scope: Scope
    indices: dict[tuple[int, Pattern], set[Pattern]] = field(default_factory=dict[tuple[int, Pattern], set[Pattern]])

    # -- what is written once --------------------------------------------------------------------------------------
    def write(self, w: Writer) -> None:
        """Write all functions of the node."""
        self._functions(Writer())  # a first time, to find the indices that joins need
        for p in self.node.ports:
            for pattern in p.patterns:
                if p.mode is not Mode.NAMED:
                    w.line(f"{p.store(pattern)} = {{}}")
                for known in sorted(self.indices.get((p.at, pattern), ())):
                    w.line(f"{self._index(p, pattern, known)} = {{}}")
            if p.gathers:
                w.line(f"{p.partial} = {{}}")
                w.line(f"{p.done} = set()")
        if self.node.open:
            self._awaiting(w)
        self._functions(w)
        if self.node.open:
            self._ending(w)

    def _functions(self, w: Writer) -> None:
        for p in self.node.ports:
            if p.gathers:
                self._gather(w, p)
            else:
                for pattern, single in p.patterns.items():
                    self._ordinary(w, p, pattern, single)

    def _store(self, p: PortPlan, pattern: Pattern) -> str:
        return p.partial if p.mode is Mode.NAMED else p.store(pattern)

    def _index(self, p: PortPlan, pattern: Pattern, known: Pattern) -> str:
        return f"x{self._store(p, pattern)}_{mask(known)}"

    def _function(self, w: Writer, head: str, body: Writer) -> None:
        w.line(f"def {head}:")
        w.line("    nonlocal waiting, peak")
        w.lines += body.lines

    def _body(self, w: Writer) -> Writer:
        inner = Writer()
        inner.depth = w.depth + 1
        return inner

    # -- ordinary inputs -------------------------------------------------------------------------------------------
    def _ordinary(self, w: Writer, p: PortPlan, pattern: Pattern, single: bool) -> None:
        name = p.receiver(pattern)
        if len(self.node.ports) == 1 and single and pattern == self.node.full:
            w.line(f"{name} = fire{self.node.at}")
            return
        body = self._body(w)
        self._arrival(body, p, pattern, single)
        self._function(w, f"{name}(key, a{p.at}, m)", body)

    def _arrival(self, w: Writer, p: PortPlan, pattern: Pattern, single: bool) -> None:
        """Join a token that has just arrived, then store what is left of it."""
        inner = Writer()
        inner.depth = w.depth
        others = [q for q in self.node.ports if q is not p]
        self._joins(inner, others, _Token(p, pattern, "key", f"a{p.at}", single))
        store = self._store(p, pattern)
        port = f"PORTS[{self.node.at}][{p.at}]"
        inner.line(f"if key in {store}: duplicate({port}, {pattern}, key, {store}[key], a{p.at})")
        self._insert(inner, p, pattern, f"a{p.at}" if single else f"[a{p.at}, m]")
        _unpack(w, pattern, inner.lines)
        w.lines += inner.lines

    def _insert(self, w: Writer, p: PortPlan, pattern: Pattern, entry: str) -> None:
        """Store a token (or a gather under way) under `key`."""
        store = self._store(p, pattern)
        known = sorted(self.indices.get((p.at, pattern), ()))
        w.line(f"{store}[key] = {'e = ' if known else ''}{entry}")
        for k in known:
            index = self._index(p, pattern, k)
            w.line(f"b = {index}.get(k := {_fields(k)})")
            w.line(f"if b is None: {index}[k] = {{key: e}}")
            w.line("else: b[key] = e")
        w.line("waiting += 1")
        w.line("if waiting > peak: peak = waiting")

    def _remove(self, w: Writer, p: PortPlan, pattern: Pattern, key: str) -> None:
        """Take a token out of the store; all fields are known."""
        w.line(f"del {self._store(p, pattern)}[{key}]")
        for k in sorted(self.indices.get((p.at, pattern), ())):
            index = self._index(p, pattern, k)
            w.line(f"b = {index}[k := {_fields(k)}]")
            w.line(f"del b[{key}]")
            w.line(f"if not b: del {index}[k]")
        w.line("waiting -= 1")

    # -- joins -----------------------------------------------------------------------------------------------------
    def _joins(self, w: Writer, ports: Sequence[PortPlan], arriving: _Token | None) -> None:
        """All joins of an arriving token with the inputs `ports`, one choice of patterns after the other.

        Without an arriving token all fields are known, and the tokens under `key` are joined if all are there.
        """
        known = set(arriving.pattern if arriving else self.node.full)
        for choice in itertools.product(*(q.patterns for q in ports)):
            depth = w.depth
            self._join(w, dict(zip((q.at for q in ports), choice, strict=True)), known, [], arriving)
            w.depth = depth

    def _join(
        self, w: Writer, left: Mapping[int, Pattern], known: set[int], found: list[_Token], arriving: _Token | None
    ) -> None:
        """Find a partner on one more input; `left` maps the inputs still to be joined to their patterns."""
        if not left:
            self._fire(w, known, found, arriving)
            return
        depth = w.depth
        for at in self.next_inputs(left, known):
            w.depth = depth
            self._join_with(w, at, left, known, found, arriving)

    def _join_with(
        self, w: Writer, at: int, left: Mapping[int, Pattern], known: set[int], found: list[_Token],
        arriving: _Token | None,
    ) -> None:  # fmt: skip
        """Find a partner on input `at`, then on the others."""
        q, pattern = self.node.ports[at], left[at]
        direct = set(pattern) <= known
        token = self._direct(w, q, pattern, found, arriving) if direct else self._loop(w, q, pattern, known, found)
        value = f"e{at}" if q.patterns[pattern] else f"e{at}[0]"
        if q.mode is Mode.NAMED:
            self._named(w, q, token.key, direct=direct)
            value = self._folded(q, f"e{at}[0]")
        w.line(f"if e{at} is not None:")
        w.depth += 1
        w.line(f"a{at} = {value}")
        rest = {k: v for k, v in left.items() if k != at}
        self._join(w, rest, known | set(pattern), [*found, token], arriving)

    def next_inputs(self, left: Mapping[int, Pattern], known: set[int]) -> list[int]:
        """The input to join next: one whose key is known, else the one of which most fields are.

        Several where that one may be a gather that waits for nothing: it has no token at such an instance, so that only
        the tokens of another one lead there.  Each instance is found by the first of them that has a token.
        """

        def rank(at: int) -> tuple[bool, bool, int, int]:
            q, direct = self.node.ports[at], set(left[at]) <= known
            waits = q.mode is Mode.NAMED and bool(_count_inputs(q) & {self.node.ports[i].port.name for i in left})
            if q.mode is Mode.OPEN:  # looked for when all others are there: then the instance is known to wait for it
                waits = any(not self.node.ports[i].maybe_zero for i in left)
            return (waits, not direct, q.maybe_zero + (q.mode is Mode.OPEN), -len(known & set(left[at])))

        first = min(left, key=rank)
        waits, searched, maybe_zero, _ = rank(first)
        if waits or not searched or not maybe_zero:
            return [first]
        return sorted((at for at in left if rank(at)[:2] == (False, True) and rank(at)[2]), key=rank)

    def _direct(
        self, w: Writer, q: PortPlan, pattern: Pattern, found: Sequence[_Token], arriving: _Token | None
    ) -> _Token:
        """Look up the one token that can match."""
        at = q.at
        same = [t.key for t in (*([arriving] if arriving else []), *found) if t.pattern == pattern]
        key = same[0] if same else "key" if arriving is None and pattern == self.node.full else f"k{at}"
        if key == f"k{at}":
            w.line(f"{key} = {_fields(pattern)}")
        w.line(f"e{at} = {self._store(q, pattern)}.get({key})")
        empty = q.maybe_zero and q.mode is Mode.COUNTED
        if empty:
            assert q.port.gather is not None and isinstance(q.port.count, IndexExpr)
            w.line(f"if e{at} is None and {self.scope.expr(q.port.count)} <= 0:")
            w.line(f"    e{at} = {identity(q.port.gather, q.kind)}")
        if q.mode is Mode.OPEN:
            w.line(f"if e{at} is None and {key} not in {q.done}: await{q.node}({key})")
        return _Token(q, pattern, key, f"a{at}", self._single(q, pattern), empty or q.mode is Mode.NAMED)

    def _loop(self, w: Writer, q: PortPlan, pattern: Pattern, known: set[int], found: Sequence[_Token]) -> _Token:
        """Go through the tokens that agree in the fields known so far."""
        at = q.at
        shared = tuple(i for i in pattern if i in known)
        store = self._store(q, pattern)
        if shared:
            self.indices.setdefault((at, pattern), set()).add(shared)
            store = f"{self._index(q, pattern, shared)}.get({_fields(shared)})"
        w.line(f"b{at} = {store}")
        w.line(f"if b{at}:")
        w.depth += 1
        w.line(f"for k{at}, e{at} in list(b{at}.items()):")
        w.depth += 1
        for t in found:  # used up by a firing in an earlier turn of this loop
            w.line(f"if {t.key} not in {self._store(t.port, t.pattern)}: break")
        w.line(f"{_fields(pattern)} = k{at}")
        return _Token(q, pattern, f"k{at}", f"a{at}", self._single(q, pattern))

    def _single(self, q: PortPlan, pattern: Pattern) -> bool:
        return q.patterns[pattern] or q.mode is Mode.NAMED

    def _named(self, w: Writer, q: PortPlan, key: str, *, direct: bool) -> None:
        """Make entry `e` of a gather that another input counts None unless it is complete."""
        assert q.port.gather is not None and isinstance(q.port.count, IndexExpr)
        e, port = f"e{q.at}", f"PORTS[{self.node.at}][{q.at}]"
        names = {p.port.name: f"a{p.at}" for p in self.node.ports}
        w.line(f"c = {self.scope.extended(names).expr(q.port.count)}")
        w.line(f"if {e} is not None and {e}[1] != c:")
        w.line(f"    if {e}[1] > c: surplus({port}, {key}, c)")
        w.line(f"    {e} = None")
        if direct:
            empty = "[]" if q.folded else identity(q.port.gather, q.kind)
            w.line(f"elif {e} is None and c <= 0: {e} = [{empty}]")

    def _folded(self, p: PortPlan, summands: str) -> str:
        return f"fold{p.node}_{p.at}({summands})" if p.folded else summands

    def _fire(self, w: Writer, known: set[int], found: Sequence[_Token], arriving: _Token | None) -> None:
        """All inputs are there: use the tokens up and fire.  Nothing happens if the index is not determined."""
        if len(known) < len(self.node.full):
            w.line("pass")
            return
        joined = [*([arriving] if arriving else []), *found]
        full = next((t.key for t in joined if t.pattern == self.node.full), _fields(self.node.full))
        for t in found:
            if not t.single:
                w.line(f"e{t.port.at}[1] -= 1")
                w.line(f"if not e{t.port.at}[1]:")
            elif t.optional:
                w.line(f"if {t.key} in {self._store(t.port, t.pattern)}:")
            nested = not t.single or t.optional
            w.depth += nested
            self._remove(w, t.port, t.pattern, t.key)
            w.depth -= nested
            if t.port.mode is Mode.NAMED:
                w.line(f"{t.port.done}.add({full})")
        values = ", ".join(t.value for t in sorted(joined, key=lambda t: t.port.at))
        w.line(f"fire{self.node.at}({full}, {values})")
        if arriving is None or arriving.single:
            w.line("return")
        else:
            w.line("m -= 1")
            w.line("if not m: return")

    # -- gathers ---------------------------------------------------------------------------------------------------
    def _gather(self, w: Writer, p: PortPlan) -> None:
        """Functions that take a summand, and the completed gather."""
        assert p.port.gather is not None
        fold = self._fold_text(p)
        if p.folded:
            w.line(f"def fold{p.node}_{p.at}(summands):")
            w.line(f"    if not summands: return {identity(p.port.gather, p.kind)}")
            w.line("    summands.sort(key=FIRST)")
            w.line("    total = summands[0][1]")
            w.line("    for _, x in summands[1:]:")
            w.lines += ["    " * (w.depth + 2) + line for line in self._step(p, "total", "x", fold)]
            w.line("    return total")
        if p.mode is Mode.NAMED:
            self._named_summand(w, p, fold)
            return
        body = self._body(w)
        if p.mode is Mode.OPEN:
            self._open_summand(body, p, fold)
        else:
            self._counted_summand(body, p, fold)
        self._function(w, f"{p.receiver(self.node.full)}(key, x, m)", body)
        if len(self.node.ports) == 1:
            w.line(f"complete{p.node}_{p.at} = fire{p.node}")
            return
        body = self._body(w)
        with body.block("try:"):
            self._arrival(body, p, self.node.full, True)
        body.line(f"except Trap as trap: trapped(trap, SOURCES[{self.node.at}], key)")
        self._function(w, f"complete{p.node}_{p.at}(key, a{p.at})", body)

    def _fold_text(self, p: PortPlan) -> str:
        assert p.port.gather is not None
        return fold_rule(p.port.gather, p.kind).text

    def _step(self, p: PortPlan, total: str, x: str, fold: str) -> list[str]:
        """Lines that add one summand to a total."""
        assert p.port.gather is not None
        arithmetic = p.port.gather.rounds
        value = fold.format(total, x)
        if p.kind.calls and arithmetic:
            op = folding(p.port.gather, p.kind)
            return [f"{total} = {small_text(op, fold, False, p.kind).format(total, x)}"]
        if p.kind is Kind.F32 and arithmetic:
            return [f"F[0] = {value}", f"{total} = F[0]"]
        if p.kind is Kind.INT and arithmetic:
            return [f"{total} = in_range({value})"]
        return [f"{total} = {value}"]

    def _counted_summand(self, w: Writer, p: PortPlan, fold: str) -> None:
        carried = p.mode is Mode.CARRIED
        port, g = f"PORTS[{p.node}][{p.at}]", p.partial
        count = "m"
        if not carried:
            assert isinstance(p.port.count, IndexExpr)
            count = self.scope.expr(p.port.count)
        inner = Writer()
        inner.depth = w.depth + 1
        inner.line(f"g = {g}.get(key)")
        with inner.block("if g is None:"):
            inner.line(f"n = {count}")
            inner.line(f"if key in {p.done} or n < 1: surplus({port}, key, n)")
            with inner.block("if n == 1:"):
                inner.line(f"{p.done}.add(key)")
                inner.line(f"complete{p.node}_{p.at}(key, {'x[1]' if p.folded else 'x'})")
            with inner.block("else:"):
                inner.line(f"{g}[key] = [{'[x]' if p.folded else 'x'}, n - 1{', n' if carried else ''}]")
                inner.line("waiting += 1")
                inner.line("if waiting > peak: peak = waiting")
        with inner.block("else:"):
            if carried:
                inner.line(f"if m != g[2]: disagree({port}, key, g[2], m)")
            for line in ["g[0].append(x)"] if p.folded else self._step(p, "g[0]", "x", fold):
                inner.line(line)
            inner.line("g[1] -= 1")
            with inner.block("if not g[1]:"):
                inner.line(f"del {g}[key]")
                inner.line(f"{p.done}.add(key)")
                inner.line("waiting -= 1")
                inner.line(f"complete{p.node}_{p.at}(key, {self._folded(p, 'g[0]')})")
        _unpack(w, self.node.full, inner.lines)
        w.line("try:")
        w.lines += inner.lines
        w.line(f"except Trap as trap: trapped(trap, SOURCES[{self.node.at}], key)")

    def _open_summand(self, w: Writer, p: PortPlan, fold: str) -> None:
        g = p.partial
        w.line("try:")
        w.depth += 1
        w.line(f"g = {g}.get(key)")
        with w.block("if g is None:"):
            w.line(f"if key in {p.done}: late(PORTS[{p.node}][{p.at}], key)")
            w.line(f"{g}[key] = [{'[x]' if p.folded else 'x'}, 1]")
            w.line("waiting += 1")
            w.line("if waiting > peak: peak = waiting")
            w.line(f"await{p.node}(key)")
        with w.block("else:"):
            w.lines += [
                "    " * w.depth + line for line in (["g[0].append(x)"] if p.folded else self._step(p, "g[0]", "x", fold))
            ]  # fmt: skip
            w.line("g[1] += 1")
        w.depth -= 1
        w.line(f"except Trap as trap: trapped(trap, SOURCES[{self.node.at}], key)")

    def _awaiting(self, w: Writer) -> None:
        """The function that notes that the open gathers of an instance are to end."""
        n, rank = self.node.at, tuple_text([self.scope.expr(e) for e in self.node.rank])
        with w.block(f"def await{n}(key):"):
            w.line(f"{_fields(self.node.full)} = key" if self.node.full else "pass")
            w.line(f"strata.add({rank}, {n}, key)")

    def _ending(self, w: Writer) -> None:
        """The function that ends the open gathers of an instance: each arrives as one token."""
        n, open_ = self.node.at, self.node.open
        with w.block(f"def end{n}(key):"):
            w.line("nonlocal waiting")
            for p in open_:
                assert p.port.gather is not None
                w.line(f"g{p.at} = {p.partial}.pop(key, None)")
                w.line(f"if g{p.at} is not None: waiting -= 1")
                w.line(f"{p.done}.add(key)")
            for p in open_:
                assert p.port.gather is not None
                nothing, total = identity(p.port.gather, p.kind), self._folded(p, f"g{p.at}[0]")
                w.line(f"complete{n}_{p.at}(key, {nothing} if g{p.at} is None else {total})")

    def _named_summand(self, w: Writer, p: PortPlan, fold: str) -> None:
        body = self._body(w)
        inner = Writer()
        inner.depth = body.depth + 1
        port, g, full = f"PORTS[{p.node}][{p.at}]", p.partial, self.node.full
        inner.line(f"e{p.at} = {g}.get(key)")
        with inner.block(f"if e{p.at} is None:"):
            inner.line(f"if key in {p.done}: surplus({port}, key, None)")
            self._insert(inner, p, full, f"[{'[x]' if p.folded else 'x'}, 1]")
        with inner.block("else:"):
            for line in ["{}.append(x)"] if p.folded else self._step(p, "{}", "x", fold):
                inner.line(line.replace("{}", f"e{p.at}[0]"))
            inner.line(f"e{p.at}[1] += 1")
        self._joins(inner, self.node.ports, None)
        _unpack(body, full, inner.lines)
        body.line("try:")
        body.lines += inner.lines
        body.line(f"except Trap as trap: trapped(trap, SOURCES[{self.node.at}], key)")
        self._function(w, f"{p.receiver(full)}(key, x, _)", body)


def _count_inputs(p: PortPlan) -> frozenset[str]:
    return p.port.count.names if isinstance(p.port.count, IndexExpr) else frozenset()


def _fields(pattern: Sequence[int]) -> str:
    """Source of the key of a token of a pattern, from the fields."""
    return tuple_text([f"f{i}" for i in pattern])


def _unpack(w: Writer, pattern: Pattern, body: Sequence[str]) -> None:
    """Unpack `key`, of a token of the pattern, where the body uses its fields."""
    if pattern and any(_FIELD.search(line) for line in body):
        w.line(f"{_fields(pattern)} = key")
