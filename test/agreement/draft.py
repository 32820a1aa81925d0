"""The first layer of the generator: parameters, constants, random iteration spaces, conditions on them, layouts."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from agreement.model import Param
from agreement.spaces import Bound, Layout, Space, layered, make_layout
from agreement.static import TRUE, Cond, cmp, conj, num, var

LETTERS = ("i", "j", "k", "l", "t", "d", "m")
PLAIN = 0.55  # how often a node's fields are the variables of its space


class Draft:
    """What a program under construction has besides its nodes."""

    def __init__(self, seed: int):
        self.rng = Random(seed)
        self.seed = seed
        self.params: list[Param] = []
        self.consts: list[tuple[str, int]] = []
        self.arrays: list[tuple[str, int, tuple[int, ...]]] = []
        self.features: list[str] = []
        self.time: dict[str, dict[str, int]] = {}  # per space kind: variable → direction

    # -- spaces ----------------------------------------------------------------------------------------------------
    def param(self) -> str:
        """A symbolic parameter, perhaps one that there is."""
        if self.params and (len(self.params) == 2 or self.rng.random() < 0.5):
            return self.rng.choice(self.params).name
        new = ("n", "T")[len(self.params)]
        self.params.append(Param(new, self.rng.choice((1, 1, 1, 2, 2, 3))))
        return new

    def _low(self, p: str) -> int:
        return next(q.low for q in self.params if q.name == p)

    def space(self) -> Space:
        """A random nest of one to three variables."""
        rng = self.rng
        letters = rng.sample(LETTERS, 3)
        bounds: list[Bound] = []
        kind = f"space {len(self.time)}"
        for v in letters[: rng.choice((1, 2, 2, 2, 3))]:
            bounds.append(self._bound(v, bounds))
        direction: dict[str, int] = {}
        for b in bounds:
            if rng.random() < 0.5:
                direction[b.name] = rng.choice((1, 1, 1, -1))
        self.time[kind] = direction
        return Space(tuple(bounds), kind)

    def _bound(self, v: str, outer: Sequence[Bound]) -> Bound:
        rng = self.rng
        how = rng.choice(("const", "const", "param", "param", "param", "inner", "inner", "layers"))
        if how == "inner" and outer:
            u = rng.choice(outer)
            w = var(u.name)
            self.features.append("non-box")
            if u.lo.is_const and u.lo.const >= 0 and rng.random() < 0.6:
                if rng.random() < 0.3 or u.lo.const > 0:
                    return Bound(v, num(0), w - 1, u.lo.const < 1)
                return Bound(v, num(0), w)
            if not (u.hi.names() & {b.name for b in outer}) and rng.random() < 0.5:
                return Bound(v, w + 1, u.hi, True) if rng.random() < 0.3 else Bound(v, w, u.hi)
            return Bound(v, w, w + rng.choice((1, 1, 2)))
        if how == "layers":
            inner = [b for b in outer if b.lo.is_const and b.hi.is_const]
            if inner and len(self.arrays) < 2:
                u = rng.choice(inner)
                base = rng.choice((0, 1)) if u.lo.const >= 1 else 0
                first, last = u.lo.const - base, u.hi.const - base
                array = ("N", "M")[len(self.arrays)]
                widths = tuple(rng.randrange(1, 4) for _ in range(first, last + 1))
                may_be_empty = rng.random() < 0.15
                if may_be_empty:
                    at = rng.randrange(len(widths))
                    widths = (*widths[:at], 0, *widths[at + 1 :])
                self.arrays.append((array, first, widths))
                self.features.append("layers")
                lo, hi = layered(array, u.name, base=base)
                return Bound(v, lo, hi, may_be_empty)
            how = "const"
        if how == "param":
            p = self.param()
            self.features.append("symbolic")
            style = rng.random()
            if style < 0.6:
                return Bound(v, num(0), var(p) - 1)
            if style < 0.85:
                return Bound(v, num(1), var(p))
            if style < 0.93:
                return Bound(v, num(1), var(p) - 1, self._low(p) < 2)
            return Bound(v, var(p).times(-1), var(p))
        lo = rng.choice((0, 0, 1, -1))
        width = rng.choice((1, 2, 2, 3, 3, 4))
        if rng.random() < 0.3 and len(self.consts) < 2 and lo >= 0:
            c = ("K", "L")[len(self.consts)]
            self.consts.append((c, lo + width - 1 if lo else width))
            return Bound(v, num(lo), var(c) - (0 if lo else 1))
        return Bound(v, num(lo), num(lo + width - 1))

    # -- conditions ------------------------------------------------------------------------------------------------
    def condition(self, space: Space, vs: frozenset[str]) -> Cond | None:
        """A random condition over some variables."""
        rng = self.rng
        names = list(space.order(vs))
        if not names:
            return None
        v = rng.choice(names)
        b = space.bound(v)
        how = rng.random()
        if how < 0.35:
            lo = b.lo if not (b.lo.names() - vs) and rng.random() < 0.7 else num(rng.randrange(-1, 3))
            return cmp(var(v), rng.choice(("<", "<=", ">", "==")), lo + rng.randrange(2))
        if how < 0.6:
            return cmp(var(v), rng.choice(("<", "==", "!=", ">=")), b.hi - rng.randrange(2))
        if how < 0.8:
            self.features.append("mod condition")
            return cmp(var(v).mod(rng.choice((2, 2, 3))), rng.choice(("==", "!=")), num(rng.randrange(2)))
        if len(names) > 1:
            w = rng.choice([n for n in names if n != v])
            if rng.random() < 0.5:
                return cmp(var(v), rng.choice(("<", "==", ">=")), var(w))
            return cmp(var(v) + var(w), rng.choice(("<", ">=")), num(rng.randrange(1, 4)))
        other = self.condition(space, vs)
        if other is None or other.kind != "cmp":
            return other
        first = cmp(var(v), "<=", b.lo)
        return Cond("or", (first, other)) if rng.random() < 0.5 else conj(first, other)

    def restriction(self, space: Space, vs: frozenset[str]) -> Cond | None:
        """A random condition that a domain may have."""
        return self.condition(space, vs)

    def parts(self, space: Space, vs: frozenset[str], p: float = 0.3) -> list[Cond]:
        """A partition of the points: usually one part."""
        if self.rng.random() >= p:
            return [TRUE]
        c = self.condition(space, vs)
        if c is None:
            return [TRUE]
        self.features.append("guarded arrows")
        no = c.negated() if self.rng.random() < 0.7 else Cond("not", (c,))
        if self.rng.random() < 0.2:
            d = self.condition(space, vs)
            if d is not None:
                return [c, conj(no, d), conj(no, d.negated())]
        return [c, no]

    # -- layouts ---------------------------------------------------------------------------------------------------
    def lay_out(self, space: Space, vs: frozenset[str], plain: float = PLAIN) -> Layout:
        """A random layout of some variables."""
        shifts = [var(p.name) for p in self.params]
        layout, used = make_layout(self.rng, space, vs, plain, shifts)
        self.features += [f"layout: {u}" for u in used]
        return layout
