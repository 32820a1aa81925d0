"""The matching store as C++ source: for every input and token pattern, the function that takes an arriving token.

What is joined with what, and in which sequence, is the interpreter's (`engines/interp/matching.py`).  Where the tokens lie
is not: tokens of multiplicity 1 with a full index, which no join has to search for, share one open addressing table for each
node, a slot for each instance (a *record*), so that an arrival is one look-up; all others, and gathers that another input
counts, lie in a *store* by key with lists for the joins that know only some fields.  Keys are packed tags, in which the
fields of `*` are 0, so the tag of an instance is the bitwise or of the tags of its tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from upl_mlir.engines.interp.matching import NodeMatching
from upl_mlir.engines.interp.plan import Mode, NodePlan, Pattern, PortPlan
from upl_mlir.engines.token.expressions import C_TYPES, CScope, CWriter
from upl_mlir.engines.token.gathers import CGathers, identity_of
from upl_mlir.engines.token.tags import Layout, Tags

_MASK_BITS = 64
"""How many inputs a record has marks for."""


@dataclass(frozen=True)
class _Found:
    """A stored token that takes part in a join."""

    port: PortPlan
    pattern: Pattern
    key: str
    searched: bool  # found by going through a list
    optional: bool  # it may be the identity of an empty gather, which is not stored


@dataclass
class CMatching:
    """Writes the members of `struct Run` by which one node receives tokens.

    `scope` knows the fields as `f0, f1, ...`; `receivers` and `gathers` number the receiving functions and the gathering
    inputs of the program by the names that the plan gives them.
    """

    node: NodePlan
    scope: CScope
    tags: Tags
    receivers: Mapping[str, int]
    gathers: Mapping[str, int]
    indices: dict[tuple[int, Pattern], list[Pattern]] = field(default_factory=dict[tuple[int, Pattern], list[Pattern]])

    def __post_init__(self) -> None:
        self._sequence = NodeMatching(self.node, self.scope)
        self._gathers = CGathers(self.node, self.scope, self.tags, self.gathers, self)
        self._written = CWriter()
        self._functions(self._written)  # a first time, to find the lists that joins need
        self._written = CWriter()
        self._written.depth = 1
        self._functions(self._written)

    # -- where tokens lie ------------------------------------------------------------------------------------------
    @property
    def _layout(self) -> Layout:
        return self.tags.layouts[self.node.at]

    def _mask(self, pattern: Pattern) -> str:
        return self.tags.literal(self._layout.mask(pattern))

    def recorded(self, p: PortPlan, pattern: Pattern) -> bool:
        """Whether the tokens of a pattern lie in records."""
        return (
            p.mode is not Mode.NAMED
            and pattern == self.node.full
            and p.patterns[pattern]
            and (p.at, pattern) not in self.indices
            and p.at < _MASK_BITS
        )

    @property
    def _direct(self) -> bool:
        """Whether nothing of the node is stored: its only input fires it."""
        (p, *more) = self.node.ports
        return (
            not more
            and p.mode is not Mode.NAMED
            and all(single and pattern == self.node.full for pattern, single in p.patterns.items())
        )

    @property
    def _slots(self) -> dict[int, int]:
        """The place in the record of each input that has one."""
        found = [] if self._direct else [p.at for p in self.node.ports if self._may_record(p)]
        if len(self.node.ports) == len(found) == 2 and self._simple():
            return dict.fromkeys(found, 0)  # of two inputs only one is ever stored
        return {at: i for i, at in enumerate(found)}

    def _may_record(self, p: PortPlan) -> bool:
        return any(self.recorded(p, pattern) for pattern in p.patterns)

    @property
    def _record(self) -> str:
        return f"r{self.node.at}"

    def _bit(self, p: PortPlan) -> str:
        return f"{1 << p.at}ull"

    def _store(self, p: PortPlan, pattern: Pattern) -> str:
        return p.partial if p.mode is Mode.NAMED else p.store(pattern)

    def _type(self, p: PortPlan) -> str:
        return C_TYPES[p.kind]

    def _stores(self) -> list[tuple[PortPlan, Pattern]]:
        return [] if self._direct else [
            (p, pattern) for p in self.node.ports for pattern in p.patterns if not self.recorded(p, pattern)
        ]  # fmt: skip

    # -- what the program consists of ------------------------------------------------------------------------------
    def write(self, w: CWriter) -> None:
        """Write the tables and the functions."""
        if self._slots:
            w.line(f"struct Record{self.node.at} {{ Key key; u64 v[{max(self._slots.values()) + 1}], mask; }};")
            w.line(f"Table<Record{self.node.at}> {self._record};")
        for p, pattern in self._stores():
            w.line(f"Store<{len(self.indices.get((p.at, pattern), ()))}> {self._store(p, pattern)};")
        for p in self.node.ports:
            if p.gathers:
                if p.mode is not Mode.NAMED:
                    w.line(f"Table<Partial> {p.partial};")
                w.line(f"Done {p.done};")
        w.lines += self._written.lines

    def starts(self) -> list[str]:
        """Statements that make the tables ready."""
        out = [f"{self._record}.start(&big);"] if self._slots else []
        for p, pattern in self._stores():
            store = self._store(p, pattern)
            out.append(f"{store}.start(&big);")
            for i, known in enumerate(self.indices.get((p.at, pattern), ())):
                out.append(f"{store}.masks[{i}] = {self._mask(known)};")
        for p in self.node.ports:
            if p.gathers:
                out.append(f"{p.done}.start(&big);")
                if p.mode is not Mode.NAMED:
                    out.append(f"{p.partial}.start(&big);")
        return out

    def prefetches(self, p: PortPlan, pattern: Pattern) -> str | None:
        """The statement that asks for what a token `t` will touch first, None if it touches nothing."""
        if p.gathers and p.mode is not Mode.NAMED:
            return f"{p.partial}.prefetch(t.key);"
        if self._direct:
            return None
        if self.recorded(p, pattern):
            return f"{self._record}.prefetch(t.key);"
        store = p.partial if p.mode is Mode.NAMED else self._store(p, pattern)
        return f"{store}.keys.prefetch(t.key);"

    def leftovers(self) -> list[tuple[PortPlan, Pattern | None, str]]:
        """What may remain: for each input and pattern (None: its gathers under way) a call that lists it to `out`."""
        found: list[tuple[PortPlan, Pattern | None, str]] = []
        for p in self.node.ports:
            for pattern in p.patterns:
                if p.mode is Mode.NAMED or self._direct:
                    continue
                if self.recorded(p, pattern):
                    call = f"list_record({self._record}, {self._bit(p)}, {self._slots[p.at]}, out)"
                else:
                    call = f"list_store({self._store(p, pattern)}, out)"
                found.append((p, pattern, call))
        for p in self.node.ports:
            if p.gathers:
                how = "list_store" if p.mode is Mode.NAMED else "list_partial"
                found.append((p, None, f"{how}({p.partial}, out)"))
        return found

    # -- functions -------------------------------------------------------------------------------------------------
    def _functions(self, w: CWriter) -> None:
        if self.node.open:
            self._gathers.awaiting(w)
            self._gathers.ending(w)
        for p in self.node.ports:
            if p.gathers:
                self._gathers.write(w, p)
                continue
            for pattern, single in p.patterns.items():
                with w.block(f"inline void {p.receiver(pattern)}(const Token &t)"):
                    w.line("const Key key = t.key;")
                    w.line(f"const {self._type(p)} a{p.at} = get<{self._type(p)}>(t.v);")
                    if not single:
                        w.line("i64 m = t.m;")
                    self.arrival(w, p, pattern, single)

    def arrival(self, w: CWriter, p: PortPlan, pattern: Pattern, single: bool) -> None:
        """Join a token that has just arrived, then store what is left of it."""
        if self._direct:
            w.line(f"fire{self.node.at}(key, a{p.at});")
            return
        if self._simple():
            self._match_record(w, p, pattern)
            return
        others = [q for q in self.node.ports if q is not p]
        self.joins(w, others, pattern, single, arriving=True)
        receiver = self.receivers[p.receiver(pattern)]
        if self.recorded(p, pattern):
            slot = f"v[{self._slots[p.at]}]"
            w.line(f"auto *r = {self._record}.place(key);")
            w.line(
                f"if (UNLIKELY(r->mask & {self._bit(p)})) anomaly(DUPLICATE, {receiver}, key, r->{slot}, bits(a{p.at}));"
            )
            w.line(f"r->mask |= {self._bit(p)};")
            w.line(f"r->{slot} = bits(a{p.at});")
        else:
            store = self._store(p, pattern)
            w.line(f"const u32 o = {store}.find(key);")
            w.line(f"if (UNLIKELY(o != NIL)) anomaly(DUPLICATE, {receiver}, key, {store}.pool[o].v, bits(a{p.at}));")
            w.line(f"{store}.insert(key, bits(a{p.at}), {'1' if single else 'm'});")
        w.line("arrived();")

    def _simple(self) -> bool:
        """Whether all tokens of the node lie in records, so that an instance fires when its record is full."""
        return all(
            list(p.patterns) == [self.node.full] and self.recorded(p, self.node.full)
            and not (p.mode in (Mode.COUNTED, Mode.OPEN) and p.maybe_zero)
            for p in self.node.ports
        )  # fmt: skip

    def _match_record(self, w: CWriter, p: PortPlan, pattern: Pattern) -> None:
        slots, others = self._slots, [q for q in self.node.ports if q is not p]
        bit, rest = self._bit(p), sum(1 << q.at for q in others)
        w.line(f"auto *r = {self._record}.place(key);")
        with w.block(f"if (r->mask == {rest}ull)"):
            for q in others:
                w.line(f"const {self._type(q)} a{q.at} = get<{self._type(q)}>(r->v[{slots[q.at]}]);")
            w.line(f"{self._record}.erase(r);")
            w.line(f"waiting -= {len(others)};")
            w.line(f"fire{self.node.at}(key, {', '.join(f'a{q.at}' for q in self.node.ports)});")
            w.line("return;")
        slot, receiver = f"r->v[{slots[p.at]}]", self.receivers[p.receiver(pattern)]
        w.line(f"if (UNLIKELY(r->mask & {bit})) anomaly(DUPLICATE, {receiver}, key, {slot}, bits(a{p.at}));")
        w.line(f"r->mask |= {bit};")
        w.line(f"{slot} = bits(a{p.at});")
        w.line("arrived();")

    # -- joins -----------------------------------------------------------------------------------------------------
    def joins(self, w: CWriter, ports: Sequence[PortPlan], known: Pattern, single: bool, *, arriving: bool) -> None:
        """All joins of an arriving token with the inputs `ports`, one choice of patterns after the other.

        Without an arriving token all fields are known, and the tokens under `key` are joined if all are there.
        """
        for choice in itertools.product(*(q.patterns for q in ports)):
            if set(known).union(*choice) != set(self.node.full):
                continue  # the index would not be determined
            left = dict(zip((q.at for q in ports), choice, strict=True))
            with w.block(""):
                self._join(w, left, set(known), "key", [], (single, arriving))

    def _join(
        self, w: CWriter, left: Mapping[int, Pattern], known: set[int], tag: str, found: list[_Found],
        arriving: tuple[bool, bool], at: int | None = None,
    ) -> None:  # fmt: skip
        """Find a partner on one more input (`at`); `left` maps the inputs still to be joined to their patterns.

        `tag` is the packed tag of the fields `known`.
        """
        if not left:
            self._fire(w, tag, found, arriving)
            return
        inputs = self._sequence.next_inputs(left, known) if at is None else [at]
        if len(inputs) > 1:
            for one_of_them in inputs:
                with w.block(""):
                    self._join(w, left, known, tag, found, arriving, one_of_them)
            return
        (at,) = inputs
        q, pattern = self.node.ports[at], left[at]
        rest = {k: v for k, v in left.items() if k != at}
        direct = set(pattern) <= known
        depth = w.depth
        if direct:
            one = self._look_up(w, q, pattern, tag if set(pattern) == known else f"{tag} & {self._mask(pattern)}")
        else:
            one, tag = self._search(w, q, pattern, known, tag, found)
        if q.mode is Mode.NAMED:
            self._named(w, q, one, direct=direct)
        self._join(w, rest, known | set(pattern), tag, [*found, one], arriving)
        while w.depth > depth:
            w.depth -= 1
            w.line("}")

    def _look_up(self, w: CWriter, q: PortPlan, pattern: Pattern, key: str) -> _Found:
        """Look up the one token that can match."""
        at, type_ = q.at, self._type(q)
        w.line(f"const Key k{at} = {key};")
        w.line(f"bool u{at} = false;")
        if self.recorded(q, pattern):
            w.line(f"const auto *e{at} = {self._record}.find(k{at});")
            there, value = f"e{at} && (e{at}->mask & {self._bit(q)})", f"e{at}->v[{self._slots[at]}]"
        else:
            store = self._store(q, pattern)
            w.line(f"const u32 e{at} = {store}.find(k{at});")
            there, value = f"e{at} != NIL", f"{store}.pool[e{at}].v"
        empty = q.maybe_zero and q.mode is Mode.COUNTED
        if q.mode is Mode.NAMED:
            return _Found(q, pattern, f"k{at}", False, True)
        if q.mode is Mode.OPEN:
            w.line(f"if (!({there}) && !{q.done}.has(k{at})) await{q.node}(k{at});")
        if empty:
            w.line(f"const bool h{at} = {there};")
            w.line(f"const {type_} a{at} = h{at} ? get<{type_}>({value}) : {identity_of(q)};")
            self._open(w, f"if (h{at} || count{q.node}_{at}(k{at}) <= 0)")
        else:
            self._open(w, f"if ({there})")
            w.line(f"const {type_} a{at} = get<{type_}>({value});")
        return _Found(q, pattern, f"k{at}", False, empty)

    def _search(
        self, w: CWriter, q: PortPlan, pattern: Pattern, known: set[int], tag: str, found: Sequence[_Found]
    ) -> tuple[_Found, str]:
        """Go through the tokens that agree in the fields known so far."""
        at, type_ = q.at, self._type(q)
        shared = tuple(i for i in pattern if i in known)
        lists = self.indices.setdefault((at, pattern), [])
        if shared not in lists:
            lists.append(shared)
        part, store = lists.index(shared), self._store(q, pattern)
        self._open(
            w,
            f"for (u32 e{at} = {store}.first({part}, {tag} & {self._mask(shared)}), n{at}; e{at} != NIL; e{at} = n{at})",
        )
        w.line(f"n{at} = {store}.pool[e{at}].next[{part}];")
        for t in found:  # used up by a firing in an earlier turn of this loop
            w.line(f"if (u{t.port.at}) break;")
        w.line(f"bool u{at} = false;")
        w.line(f"const Key k{at} = {store}.pool[e{at}].key;")
        w.line(f"const Key t{at} = {tag} | k{at};")
        if q.mode is not Mode.NAMED:
            w.line(f"const {type_} a{at} = get<{type_}>({store}.pool[e{at}].v);")
        return _Found(q, pattern, f"k{at}", True, q.mode is Mode.NAMED), f"t{at}"

    def _open(self, w: CWriter, head: str) -> None:
        w.line(head + " {")
        w.depth += 1

    def _named(self, w: CWriter, q: PortPlan, one: _Found, *, direct: bool) -> None:
        """Go on only if a gather that another input counts is complete."""
        at, type_, store = q.at, self._type(q), q.partial
        w.line(f"const bool h{at} = e{at} != NIL;")
        given = ", ".join([one.key, *(f"a{i}" for i in self._gathers.counters(q))])
        w.line(f"const i64 c{at} = count{q.node}_{at}({given});")
        w.line(
            f"if (UNLIKELY(h{at} && {store}.pool[e{at}].left > c{at})) "
            f"anomaly(SURPLUS, {self.gathers[q.partial]}, {one.key}, c{at});"
        )
        empty = f" : c{at} <= 0" if direct else " : false"
        self._open(w, f"if (h{at} ? {store}.pool[e{at}].left == c{at}{empty})")
        if not q.folded:
            w.line(f"const {type_} a{at} = h{at} ? get<{type_}>({store}.pool[e{at}].v) : {identity_of(q)};")

    def _fire(self, w: CWriter, tag: str, found: Sequence[_Found], arriving: tuple[bool, bool]) -> None:
        """All inputs are there: use the tokens up and fire."""
        single, is_arriving = arriving
        for t in found:
            p, at = t.port, t.port.at
            if p.mode is Mode.NAMED and p.folded:
                w.line(
                    f"const double a{at} = h{at} ? fold{p.node}_{at}((u32){p.partial}.pool[e{at}].v) : {identity_of(p)};"
                )
            if p.mode is Mode.NAMED:
                w.line(f"{p.done}.insert({tag});")
            guard = f"if (h{at}) " if t.optional else ""
            if self.recorded(p, t.pattern):
                take = f"{self._record}.take({t.key}, {self._bit(p)});"
            else:
                store = self._store(p, t.pattern)
                take = f"{store}.remove(e{at});"
                if p.mode is not Mode.NAMED and not p.patterns[t.pattern]:
                    guard = f"if ({store}.pool[e{at}].left != FOREVER && --{store}.pool[e{at}].left == 0) "
            w.line(f"{guard}{{ {take} waiting--; u{at} = true; }}")
        w.line(f"fire{self.node.at}({', '.join([tag, *(f'a{p.at}' for p in self.node.ports)])});")
        if single or not is_arriving:
            w.line("return;")
        else:
            w.line("if (m != FOREVER && --m == 0) return;")


def matchings(nodes: Sequence[NodePlan], scope: CScope, tags: Tags) -> list[CMatching]:
    """The matching of every node, with receiving functions and gathering inputs numbered through the program."""
    ports = [p for n in nodes for p in n.ports]
    receivers = {p.receiver(pattern): 0 for p in ports for pattern in p.patterns}
    receivers = {name: i for i, name in enumerate(receivers)}
    gathers = {p.partial: i for i, p in enumerate(p for p in ports if p.gathers)}
    out: list[CMatching] = []
    for n in nodes:
        names = {f: f"f{i}" for i, f in enumerate(n.op.fields)}
        out.append(CMatching(n, scope.extended(names), tags, receivers, gathers))
    return out
