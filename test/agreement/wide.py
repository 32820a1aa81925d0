"""Random programs of the wider class: what decides an arrow, or how often it sends, need not be affine.

As `generator`, valid by construction, and with these features, each with a probability of its own:

- conditions with quotients by parameters, by sums and by table entries, products, powers, `min max abs`, choices, tables;
- two nodes of which each point has one, as such a condition says, and a third that both feed;
- gathers whose number of summands is such an expression, sent by a `for`;
- an arrow that data decide, beside its complement, so that what is sent stays the same;
- a host output that depends on no input.
"""

from __future__ import annotations

from dataclasses import replace

from agreement.bodies import expression
from agreement.generator import Generator
from agreement.model import CARRIED, Assign, End, Loop, Port
from agreement.spaces import Space
from agreement.static import TRUE, Call, Choice, Cond, Lin, Look, Pow, cmp, conj, num, var
from agreement.values import lit
from agreement.wiring import Source

NODES = "ABCDEFGH"
TABLES = ("Ta", "Tb", "Tc")


def _lin(atom: Call | Choice | Look | Pow) -> Lin:
    return Lin(0, ((1, atom),))


class WideGenerator(Generator):
    """One program in the making."""

    narrow = False
    """Whether conditions are to be affine just now: a declared domain must be."""

    # -- expressions -----------------------------------------------------------------------------------------------
    def _table(self, space: Space, v: str, entries: range) -> str | None:
        """A constant array over the values of a variable, if these are numbers."""
        b = space.bound(v)
        if not (b.lo.is_const and b.hi.is_const) or b.hi.const < b.lo.const:
            return None
        widths = b.hi.const - b.lo.const + 1
        for name, first, values in self.arrays:
            if name in TABLES and first == b.lo.const and len(values) == widths and {*values} <= {*entries}:
                return name
        free = [t for t in TABLES if all(t != name for name, _, _ in self.arrays)]
        if not free:
            return None
        self.arrays.append((free[0], b.lo.const, tuple(self.rng.choice(entries) for _ in range(widths))))
        return free[0]

    def _positive(self, space: Space, names: list[str]) -> tuple[str, Lin]:
        """A divisor that is no number, if there is one."""
        rng = self.rng
        for _ in range(4):
            kind = rng.choice(("parameter", "sum", "table"))
            if kind == "parameter" and self.params:
                p = var(rng.choice(self.params).name)
                return "by a parameter", rng.choice((p, p, p + 1, p.times(2)))
            w = rng.choice(names)
            lo = space.bound(w).lo
            if kind == "sum" and lo.is_const:
                return "by a sum", var(w) + (1 - min(0, lo.const) + rng.randrange(2))
            if kind == "table" and (table := self._table(space, w, range(1, 4))):
                return "by a table entry", _lin(Look(table, var(w)))
        return "by a number", num(rng.choice((2, 3)))

    def wide(self, space: Space, vs: frozenset[str]) -> tuple[str, Lin]:
        """An expression of some variables that mostly is not affine, and its kind.  It may be negative."""
        rng = self.rng
        names = list(space.order(vs))
        v, w = rng.choice(names), rng.choice(names)
        match rng.randrange(8):
            case 0 | 1:
                kind, m = self._positive(space, names)
                top = var(v) + (var(w) if rng.random() < 0.3 else num(rng.randrange(3)))
                den = m.const if m.is_const else m
                return kind, top.mod(den) if rng.random() < 0.7 else top.floordiv(den)
            case 2:
                return "product", (var(v) + rng.randrange(2)).mul(var(w))
            case 3 if self.params:
                return "product with a parameter", var(rng.choice(self.params).name).mul(var(v))
            case 4:
                return "power", _lin(Pow(var(v), 2)) - (var(w) if rng.random() < 0.5 else num(0))
            case 5:
                if v == w:
                    return "abs", _lin(Call("abs", (var(v) - rng.randrange(1, 4),)))
                name = rng.choice(("min", "max", "abs"))
                return name, _lin(Call(name, (var(v) - var(w),) if name == "abs" else (var(v), var(w) + 1)))
            case 6:
                table = self._table(space, v, range(3))
                if table is None:
                    return "power", _lin(Pow(var(v), 2))
                first, entries = next((f, e) for n, f, e in self.arrays if n == table)
                if first == 0 and max(entries) < len(entries) and rng.random() < 0.5:
                    return "nested table", _lin(Look(table, _lin(Look(table, var(v)))))
                return "table entry", _lin(Look(table, var(v)))
            case _:
                left = cmp(var(v).mod(2), "==", num(0)) if rng.random() < 0.5 else cmp(var(v), "<", var(w) + 1)
                return "choice", _lin(Choice(left, var(v), var(w) + 1))

    def condition(self, space: Space, vs: frozenset[str]) -> Cond | None:
        """A random condition over some variables, half of them of the wider class."""
        rng = self.rng
        if self.narrow or not vs or rng.random() < 0.4:
            return super().condition(space, vs)
        kind, e = self.wide(space, vs)
        self.features.append(f"condition: {kind}")
        first = cmp(e, rng.choice(("==", "!=", "<", "<=", ">")), num(rng.randrange(3)))
        if rng.random() < 0.75 or (second := self.condition(space, vs)) is None:
            return first
        self.features.append("condition: mixed")
        return conj(first, second) if rng.random() < 0.5 else Cond("or", (first, second))

    def restriction(self, space: Space, vs: frozenset[str]) -> Cond | None:
        """A condition that a declared domain may have."""
        self.narrow = True
        try:
            return super().condition(space, vs)
        finally:
            self.narrow = False

    # -- nodes -----------------------------------------------------------------------------------------------------
    def node(self, space: Space) -> None:
        """A new node; or three, of which each point has two; or one with a gather of many."""
        n = sum(s.end.kind == "node" for s in self.sources.values())
        way = self.rng.random()
        if way < 0.35 and n <= len(NODES) - 4 and self._fork(space):
            return
        if way > 0.8 and n <= len(NODES) - 2 and self._counted(space):
            return
        super().node(space)

    def _new(self, space: Space, vs: frozenset[str], only: Cond, port: Port) -> Source:
        n = sum(s.end.kind == "node" for s in self.sources.values())
        layout = self.lay_out(space, vs)
        target = Source(End("node", NODES[n], layout.names, None, "real", (port,)), space, layout, only)
        target.level = n
        return target

    def _kept(self, target: Source) -> None:
        self._body(target, False)
        self.sources[target.end.name] = target

    def _some(self, space: Space) -> frozenset[str]:
        return space.closed(self.rng.sample(space.names, self.rng.randrange(1, len(space.names) + 1)))

    def _port(self, space: Space, **more: str) -> Port:
        """An input with a name that no variable, field or iterator has."""
        return Port(next(c for c in "xyzsuw" if c not in space.names), **more)

    def _fork(self, space: Space) -> bool:
        rng, vs = self.rng, self._some(space)
        yes = self.condition(space, vs)
        if yes is None:
            return False
        no = yes.negated() if rng.random() < 0.5 else Cond("not", (yes,))
        both: list[Source] = []
        for only in (yes, no):
            s = self._new(space, vs, only, self._port(space))
            self.feed(s, s.end.ports[0], vs, TRUE, None)
            self._kept(s)
            both.append(s)
        free = [v for v in space.order(vs) if not space.above(v) & vs and not space.bound(v).empty]
        if free and rng.random() < 0.5:
            w = rng.choice(free)
            port = replace(self._port(space), op=rng.choice(("+", "+", "max")), count=CARRIED)
            target = self._new(space, vs - {w}, TRUE, port)
            mult: Lin | None = space.bound(w).extent
            self.features.append("two nodes into a gather")
        else:
            target, mult = self._new(space, vs, TRUE, self._port(space)), None
            self.features.append("one of two nodes")
        for s in both:
            self.connect(s, target, target.end.ports[0], vs, TRUE, mult)
        self._kept(target)
        return True

    def _counted(self, space: Space) -> bool:
        vs = self._some(space)
        same = [s for s in self.sources.values() if s.space is space and s.vars == vs and s.only.is_true]
        source = self.rng.choice(same) if same else self.host_input(space, vs, TRUE, "real")
        kind, n = self.wide(space, vs)
        target = self._new(space, vs, TRUE, self._port(space))
        back = target.layout.back
        port = replace(target.end.ports[0], op="+", count=n.subst(back))  # 0 summands of `max` are infinite
        target.end = replace(target.end, ports=(port,), domain=target.layout.domain(space))
        self.connect(source, target, port, vs, TRUE, None)
        *arrows, last = source.end.arrows
        loop = Loop("it", num(0), n.subst(source.layout.back) - 1)
        source.end = replace(source.end, arrows=(*arrows, replace(last, loops=(*last.loops, loop))))
        self.features.append(f"count: {kind}")
        self._kept(target)
        return True

    # -- the rest --------------------------------------------------------------------------------------------------
    def results(self) -> None:
        """Host outputs; now and then one that depends on no input, and an arrow that data decide."""
        super().results()
        rng = self.rng
        nodes = [s for s in self.sources.values() if s.end.kind == "node" and s.only.affine]
        if nodes and rng.random() < 0.3:
            s = rng.choice(nodes)
            layout = self.lay_out(s.space, s.vars, 0.75)
            out = End("output", "Ro", layout.names)
            self.connect(s, Source(out, s.space, layout, s.only), Port(out.name), s.vars, TRUE, None)
            *arrows, last = s.end.arrows
            said = Assign("one", lit(1.0)) if rng.random() < 0.5 else None
            body = s.end.body if said is None else (*s.end.body, said)
            value = lit(2.0) if said is None else replace(lit(1.0), op="name", what="one")
            s.end = replace(s.end, body=body, arrows=(*arrows, replace(last, value=value)))
            self.outputs.append(out)
            self.features.append("output that depends on no input")
        if rng.random() < 0.15:
            self._split([s for s in self.sources.values() if s.end.kind == "node"])

    def _split(self, nodes: list[Source]) -> None:
        ports = {(s.end.name, p.name): p for s in nodes for p in s.end.ports}
        able = [
            (s, n) for s in nodes for n, a in enumerate(s.end.arrows)
            if a.port is None or ports[a.target, a.port].op is None
        ]  # fmt: skip
        if not able:
            return
        s, n = self.rng.choice(able)
        taken = {p.it for a in s.end.arrows for p in a.loops}
        fields = [f for f in s.end.fields if f not in taken]
        data = expression(self.rng, s.values, fields, "bool", 1)
        arrows = list(s.end.arrows)
        arrows[n] = replace(arrows[n], split=data)
        s.end = replace(s.end, arrows=tuple(arrows))
        self.features.append("arrow that data decide")


def features(program_features: tuple[str, ...]) -> list[str]:
    """Those that only programs of this class have."""
    mine = ("condition: ", "count: ", "two nodes into", "one of two", "output that depends on no", "arrow that data")
    return sorted({f for f in program_features if f.startswith(mine)})
