"""Gathers as C++ source: how a summand is taken in, when a gather is complete, when open gathers end.

What is folded how is the interpreter's (`engines/interp/matching.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from upl_mlir.dialects.upl.kinds import Kind, folding
from upl_mlir.engines.interp.matching import fold_rule, identity
from upl_mlir.engines.interp.plan import Mode, NodePlan, Pattern, PortPlan
from upl_mlir.engines.token.bodies import c_text, unpack
from upl_mlir.engines.token.expressions import C_TYPES, CScope, CWriter
from upl_mlir.engines.token.tags import Layout, Tags
from upl_mlir.poly.expr import IndexExpr

_LIMITS = {"INT_MAX": "INT64_MAX", "INT_MIN": "INT64_MIN", "True": "true", "False": "false"}


def identity_of(p: PortPlan) -> str:
    """Source of the value of a gather without summands."""
    assert p.port.gather is not None
    text = identity(p.port.gather, p.kind)
    return f"({C_TYPES[p.kind]}){_LIMITS.get(text, text)}"


class Joins(Protocol):
    """What gathers need of a node's matching: how a token that has arrived is joined."""

    def arrival(self, w: CWriter, p: PortPlan, pattern: Pattern, single: bool) -> None:
        """Join a token that has just arrived, then store what is left of it."""

    def joins(self, w: CWriter, ports: Sequence[PortPlan], known: Pattern, single: bool, *, arriving: bool) -> None:
        """All joins of an arriving token, or of those under one key, with the inputs `ports`."""


@dataclass
class CGathers:
    """Writes the members of `struct Run` by which the gathering inputs of one node take summands.

    `scope` knows the fields as `f0, f1, ...`; `gathers` numbers the gathering inputs of the program by their names.
    """

    node: NodePlan
    scope: CScope
    tags: Tags
    gathers: Mapping[str, int]
    matching: Joins

    @property
    def _layout(self) -> Layout:
        return self.tags.layouts[self.node.at]

    def counters(self, p: PortPlan) -> list[int]:
        """The inputs whose values the count of a gather uses."""
        names = p.port.count.names if isinstance(p.port.count, IndexExpr) else frozenset[str]()
        return [q.at for q in self.node.ports if q.port.name in names] if p.mode is Mode.NAMED else []

    def write(self, w: CWriter, p: PortPlan) -> None:
        """Write the functions that take a summand, and the completed gather."""
        number, type_ = self.gathers[p.partial], C_TYPES[p.kind]
        if p.mode in (Mode.COUNTED, Mode.NAMED):
            self._count(w, p)
        if p.folded:
            with w.block(f"double fold{p.node}_{p.at}(u32 list)"):
                w.line("u32 e = summands.sorted(list);")
                w.line("const u32 first = e;")
                w.line("double total = get<double>(summands.pool[e].v);")
                w.line("while ((e = summands.pool[e].next) != NIL)")
                w.line(f"    total = {self._folded_in(p, 'total', 'get<double>(summands.pool[e].v)')};")
                w.line("summands.free_all(first);")
                w.line("return total;")
        if p.mode is Mode.NAMED:
            self._named_summand(w, p)
            return
        with w.block(f"inline void complete{p.node}_{p.at}(const Key key, const {type_} a{p.at})"):
            self.matching.arrival(w, p, self.node.full, True)
        if p.mode is Mode.OPEN:
            self._open_summand(w, p)
            return
        with w.block(f"inline void {p.receiver(self.node.full)}(const Token &t)"):
            w.line("const Key key = t.key;")
            w.line(f"Partial *g = {p.partial}.find(key);")
            with w.block("if (!g)"):
                w.line(f"const i64 n = {'t.m' if p.mode is Mode.CARRIED else f'count{p.node}_{p.at}(key)'};")
                w.line(f"if (UNLIKELY(n < 1 || {p.done}.has(key))) anomaly(SURPLUS, {number}, key, n);")
                with w.block("if (n == 1)"):
                    w.line(f"{p.done}.insert(key);")
                    w.line(f"complete{p.node}_{p.at}(key, get<{type_}>(t.v));")
                    w.line("return;")
                self._begin(w, p, "n - 1", "n")
                w.line("return;")
            if p.mode is Mode.CARRIED:
                w.line(f"if (UNLIKELY(t.m != g->count)) anomaly(DISAGREE, {number}, key, g->count, t.m);")
            self._take_in(w, p, "g->v")
            with w.block("if (!--g->left)"):
                total = f"fold{p.node}_{p.at}((u32)g->v)" if p.folded else f"get<{type_}>(g->v)"
                w.line(f"const {type_} total = {total};")
                w.line(f"{p.partial}.erase(g);")
                w.line(f"{p.done}.insert(key);")
                w.line("waiting--;")
                w.line(f"complete{p.node}_{p.at}(key, total);")

    def _begin(self, w: CWriter, p: PortPlan, left: str, count: str) -> None:
        """A gather under way, with its first summand."""
        w.line(f"g = {p.partial}.place(key);")
        w.line(f"g->mask = 1; g->left = {left}; g->count = {count};")
        w.line(f"g->v = {'summands.push(t.ord, t.v, NIL)' if p.folded else 't.v'};")
        w.line("arrived();")

    def _count(self, w: CWriter, p: PortPlan) -> None:
        """The function that computes the number of summands."""
        assert isinstance(p.port.count, IndexExpr)
        counters = self.counters(p)
        args = "".join(f", const i64 a{i}" for i in counters)
        names = {self.node.ports[i].port.name: f"a{i}" for i in counters}
        with w.block(f"inline i64 count{p.node}_{p.at}(const Key key{args})"):
            unpack(w, self._layout, "key")
            w.line(f"try {{ return {self.scope.extended(names).expr(p.port.count)}; }}")
            given = "".join(f", a{i}" for i in counters)
            w.line(f"catch (const Trap &) {{ anomaly(COUNT, {self.gathers[p.partial]}, key{given}); }}")

    def _folded_in(self, p: PortPlan, total: str, x: str) -> str:
        """Source of a total with one more summand; an integer overflow is a Trap."""
        assert p.port.gather is not None
        rule = fold_rule(p.port.gather, p.kind)
        value = c_text(folding(p.port.gather, p.kind), rule).format(total, x)
        return f"round_f32({value})" if p.kind is Kind.F32 and p.port.gather.rounds else value

    def _take_in(self, w: CWriter, p: PortPlan, total: str) -> None:
        """Fold the summand of token `t` into the gather under way."""
        if p.folded:
            w.line(f"{total} = summands.push(t.ord, t.v, (u32){total});")
            return
        type_ = C_TYPES[p.kind]
        value = self._folded_in(p, f"get<{type_}>({total})", f"get<{type_}>(t.v)")
        step = f"{total} = bits(({type_})({value}));"
        if p.kind is Kind.INT and p.port.gather is not None and p.port.gather.rounds:
            number = self.gathers[p.partial]
            step = f"try {{ {step} }} catch (const Trap &) {{ anomaly(OVERFLOW_, {number}, key, {total}, t.v); }}"
        w.line(step)

    def _open_summand(self, w: CWriter, p: PortPlan) -> None:
        with w.block(f"inline void {p.receiver(self.node.full)}(const Token &t)"):
            w.line("const Key key = t.key;")
            w.line(f"Partial *g = {p.partial}.find(key);")
            with w.block("if (!g)"):
                w.line(f"if (UNLIKELY({p.done}.has(key))) anomaly(LATE, {self.gathers[p.partial]}, key);")
                self._begin(w, p, "1", "0")
                w.line(f"await{p.node}(key);")
                w.line("return;")
            self._take_in(w, p, "g->v")
            w.line("g->left++;")

    def awaiting(self, w: CWriter) -> None:
        """The function that notes that the open gathers of an instance are to end."""
        n = self.node.at
        with w.block(f"inline void await{n}(const Key key)"):
            unpack(w, self._layout, "key")
            w.line(f"strata.add({{{', '.join(self.scope.expr(e) for e in self.node.rank)}}}, {n}, key);")

    def ending(self, w: CWriter) -> None:
        """The function that ends the open gathers of an instance: each arrives as one token."""
        n, open_ = self.node.at, self.node.open
        with w.block(f"void end{n}(const Key key)"):
            for p in open_:
                at, type_ = p.at, C_TYPES[p.kind]
                w.line(f"Partial *g{at} = {p.partial}.find(key);")
                w.line(f"{type_} a{at} = {identity_of(p)};")
                with w.block(f"if (g{at})"):
                    total = f"fold{n}_{at}((u32)g{at}->v)" if p.folded else f"get<{type_}>(g{at}->v)"
                    w.line(f"a{at} = {total};")
                    w.line(f"{p.partial}.erase(g{at});")
                    w.line("waiting--;")
                w.line(f"{p.done}.insert(key);")
            for p in open_:
                w.line(f"complete{n}_{p.at}(key, a{p.at});")

    def _named_summand(self, w: CWriter, p: PortPlan) -> None:
        number, store = self.gathers[p.partial], p.partial
        with w.block(f"inline void {p.receiver(self.node.full)}(const Token &t)"):
            w.line("const Key key = t.key;")
            w.line(f"const u32 e = {store}.find(key);")
            with w.block("if (e == NIL)"):
                w.line(f"if (UNLIKELY({p.done}.has(key))) anomaly(UNKNOWN_SURPLUS, {number}, key);")
                first = "summands.push(t.ord, t.v, NIL)" if p.folded else "t.v"
                w.line(f"{store}.insert(key, {first}, 1);")
                w.line("arrived();")
            with w.block("else"):
                self._take_in(w, p, f"{store}.pool[e].v")
                w.line(f"{store}.pool[e].left++;")
            self.matching.joins(w, self.node.ports, self.node.full, True, arriving=False)
