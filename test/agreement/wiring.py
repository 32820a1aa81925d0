"""The second layer of the generator: sources, and the arrows that serve a part of a target's points from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agreement.bodies import TYPES, coerce, expression, small
from agreement.draft import Draft
from agreement.model import Arrow, End, Loop, Port
from agreement.spaces import Layout, Space
from agreement.static import TRUE, Cond, Lin, cmp, conj, num, var
from agreement.values import Val, name


@dataclass
class Source:
    """A host input or node under construction, with what it stands for."""

    end: End
    space: Space
    layout: Layout
    only: Cond = TRUE  # a further condition over the variables
    values: list[Val] = field(default_factory=list[Val])
    level: int = 0

    @property
    def vars(self) -> frozenset[str]:
        """The variables."""
        return frozenset(self.layout.vars)


class Wiring(Draft):
    """The ends made so far, and how they are connected."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.sources: dict[str, Source] = {}
        self.edges: dict[str, list[tuple[str, frozenset[str]]]] = {}  # to whom, with the variables that both points share

    def host_input(self, space: Space, vs: frozenset[str], only: Cond, type_: str) -> Source:
        """A new host input."""
        n = sum(s.end.kind == "input" for s in self.sources.values())
        layout = self.lay_out(space, vs)
        end = End("input", "XYZWVUQP"[n] if n < 8 else f"X{n}", layout.names, layout.domain(space, only), type_)
        s = Source(end, space, layout, only, [name(end.name, type_)], 0)
        self.sources[end.name] = s
        return s

    def _candidates(self, space: Space, vs: frozenset[str], only: Cond, target: str) -> list[Source]:
        out: list[Source] = []
        for s in self.sources.values():
            if s.space is not space or s.end.name == target:
                continue
            if s.only.is_true or (s.only == only and s.vars <= vs):
                missing, extra = vs - s.vars, s.vars - vs
                if (not extra and len(missing) <= 2) or (
                    not missing and len(extra) == 1 and self.slices(space, s.vars, next(iter(extra)))
                ):
                    out.append(s)
        return out

    def slices(self, space: Space, vs: frozenset[str], v: str) -> bool:
        return not (space.above(v) & vs) and not space.bound(v).empty

    def feed(self, target: Source, port: Port, vs: frozenset[str], cond: Cond, mult: Lin | str | None) -> None:
        """One arrow for the points of `vs` where `cond` holds, from some source; `mult` is over those variables."""
        rng, space = self.rng, target.space
        found = self._candidates(space, vs, target.only, target.end.name)
        host = [s for s in found if s.end.kind == "input"]
        nodes = [s for s in found if s.end.kind == "node"]
        same = [s for s in nodes if s.vars == vs]
        n_inputs = sum(s.end.kind == "input" for s in self.sources.values())
        pick = rng.random()
        if same and pick < 0.6:
            source = rng.choice(same)
        elif nodes and pick < 0.8:
            source = rng.choice(nodes)
        elif host and (pick < 0.88 or n_inputs >= 5):
            source = rng.choice(host)
        else:
            own = vs
            smaller = [space.closed([v]) for v in space.order(vs)]
            smaller = [c for c in smaller if c < vs]
            if smaller and rng.random() < 0.2:
                own = rng.choice(smaller)
            alike = target.only.names() & frozenset(space.names) <= own and rng.random() < 0.5
            only = target.only if alike and target.only.affine else TRUE
            source = self.host_input(space, own, only, port.type if rng.random() < 0.8 else rng.choice(TYPES))
        self.connect(source, target, port, vs, cond, mult)

    def connect(
        self, source: Source, target: Source, port: Port, vs: frozenset[str], cond: Cond, mult: Lin | str | None,
        step: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        """The arrow from `source` that serves the points of `vs` where `cond` holds (over the source's point)."""
        rng, space = self.rng, target.space
        env = dict(source.layout.back)
        loops: list[Loop] = []
        taken = {*source.end.fields, *(p.name for p in source.end.ports), *(a.name for a in source.end.body),
                 *(p.name for p in self.params), *(n for n, _ in self.consts), source.end.name}  # fmt: skip
        for w in space.order(vs - source.vars):
            b = space.bound(w)
            it = w if w not in taken else next(f"{w}{n}" for n in range(1, 9) if f"{w}{n}" not in taken)
            taken.add(it)
            loops.append(Loop(it, b.lo.subst(env), b.hi.subst(env)))
            env[w] = var(it)
            self.features.append("for")
        parts = [*cond.conjuncts()]
        if source.only != target.only or source.vars != vs:
            parts += [c for c in target.only.conjuncts() if source.only != target.only]
        for v in source.vars - vs:
            b = space.bound(v)
            at = b.hi if rng.random() < 0.6 else b.lo
            parts.append(cmp(var(v), "==", at))
            self.features.append("slice")
        own = [c.subst(env) for c in parts if c.names() & frozenset(space.names) <= source.vars]
        late = [c.subst(env) for c in parts if not c.names() & frozenset(space.names) <= source.vars]
        forward = {v: var(v) + c for v, c in (step or {}).items()}
        seen = target.layout.visible(vs)
        assert seen is not None
        index = tuple(
            e.subst(forward).subst(env) if s else None for (_, e), s in zip(target.layout.fields, seen, strict=True)
        )
        value = self._value(source, target, port, loops)
        count = mult.subst(forward).subst(env) if isinstance(mult, Lin) else mult
        if count == num(1) and rng.random() < 0.7:
            count = None
        arrow = Arrow(
            target.end.name, port.name if target.end.kind == "node" else None, index, conj(*own), value, count,
            tuple(loops), conj(*late),
        )  # fmt: skip
        arrow = self._shorten(source, target, arrow)
        source.end = replace(source.end, arrows=(*source.end.arrows, arrow))
        self.edges.setdefault(source.end.name, []).append((target.end.name, source.vars & vs & target.vars))

    def _shorten(self, source: Source, target: Source, arrow: Arrow) -> Arrow:
        """Leave out the index or the input's name where the language fills them in."""
        rng = self.rng
        own = {*source.end.fields}
        if target.end.fields and all(
            (e == var(f) and f in own) if e is not None else f not in own
            for f, e in zip(target.end.fields, arrow.index, strict=True)
        ) and rng.random() < 0.5:  # fmt: skip
            arrow = replace(arrow, bare=True)
            self.features.append("index left out")
        if not target.end.fields and rng.random() < 0.5:
            arrow = replace(arrow, bare=True)
        if target.end.kind == "node" and len(target.end.ports) == 1 and rng.random() < 0.5:
            arrow = replace(arrow, portless=True)
        return arrow

    def _value(self, source: Source, target: Source, port: Port, loops: Sequence[Loop]) -> Val | None:
        rng = self.rng
        want = port.type
        own = [*source.end.ports] if source.end.kind == "node" else []
        default: Val | None = None
        wanted = port.name if target.end.kind == "node" else target.end.name
        assigned = [a for a in source.end.body if a.name == wanted]
        if source.end.kind == "input":
            default = source.values[0]
        elif assigned and len(own) != 1:
            default = next((v for v in source.values if v.what == wanted), None)
        elif len(own) == 1 and not assigned:
            default = name(own[0].name, own[0].type)
        fits = default is not None and (coerce(default, want) == default) and (want != "bool" or default.type == "bool")
        if fits and rng.random() < 0.4 and port.op != "*":
            self.features.append("value left out")
            return None
        best = [v for v in source.values if v.type == want] or source.values
        v = rng.choice(best[-2:] if rng.random() < 0.7 else best)
        if rng.random() < 0.25:
            hidden = {p.it for p in loops}
            v = expression(rng, source.values, [f for f in source.end.fields if f not in hidden], want, 1)
        return small(rng, coerce(v, want), port.op or "")
