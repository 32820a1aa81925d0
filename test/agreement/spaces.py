"""Iteration spaces of generated programs, and how nodes lay them out in their index fields.

A `Space` is a nest of variables with affine bounds.  A node of a generated program stands for some of the variables of a
space, seen through a `Layout`: a bijection between the variables and the node's fields.  Since both directions are kept as
expressions, any two nodes on the same space can be connected, and the index expressions follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from agreement.static import TRUE, Cond, Lin, cmp, conj, look, num, var


@dataclass(frozen=True)
class Bound:
    """One variable of a nest: ``lo <= name <= hi``; `empty`: the interval may be empty; it is never shorter than -0."""

    name: str
    lo: Lin
    hi: Lin
    empty: bool = False

    @property
    def extent(self) -> Lin:
        """The number of values; at least 0."""
        return self.hi - self.lo + 1

    def cond(self, text_lo: Lin | None = None) -> Cond:
        """``lo <= name <= hi``"""
        v = var(self.name) if text_lo is None else text_lo
        return conj(cmp(self.lo, "<=", v), cmp(v, "<=", self.hi))


@dataclass(frozen=True)
class Space:
    """A nest of variables, outermost first; `time`: variables along which recurrences may go (they only grow)."""

    bounds: tuple[Bound, ...]
    kind: str = ""

    def bound(self, name: str) -> Bound:
        """A variable."""
        return next(b for b in self.bounds if b.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        """The variables."""
        return tuple(b.name for b in self.bounds)

    def needs(self, name: str) -> frozenset[str]:
        """The variables that a variable's bounds depend on, itself included, transitively."""
        b = self.bound(name)
        out = {name}
        for n in b.lo.names() | b.hi.names():
            if n in self.names:
                out |= self.needs(n)
        return frozenset(out)

    def closed(self, names: Iterable[str]) -> frozenset[str]:
        """The least set of variables with these on which a nest can stand alone."""
        return frozenset().union(*(self.needs(n) for n in names))

    def order(self, names: Iterable[str]) -> tuple[str, ...]:
        """The variables in the order of the nest."""
        inside = set(names)
        return tuple(n for n in self.names if n in inside)

    def where(self, names: Iterable[str]) -> Cond:
        """The constraints of some variables."""
        return conj(*(self.bound(n).cond() for n in self.order(names)))

    def above(self, name: str) -> frozenset[str]:
        """The variables whose bounds depend on this one directly."""
        return frozenset(b.name for b in self.bounds if name in b.lo.names() | b.hi.names())

    def count(self, names: Iterable[str]) -> Lin | None:
        """The number of points in some variables for fixed others; None if it is no product of extents."""
        chosen = set(names)
        out = num(1)
        for n in self.order(chosen):
            b = self.bound(n)
            if b.extent.names() & chosen:
                return None
            out = out.mul(b.extent)
        return out

    def may_be_empty(self, names: Iterable[str]) -> bool:
        """Whether `count` may be 0."""
        return any(self.bound(n).empty for n in names)


@dataclass(frozen=True)
class Layout:
    """Fields of a node over variables of a space.

    `fields` are (name, expression over variables); `back` gives each variable as an expression over fields; `extra` are
    conditions over fields that say which field values are of the image (strides, digits).
    """

    vars: tuple[str, ...]
    fields: tuple[tuple[str, Lin], ...]
    back: Mapping[str, Lin] = field(default_factory=dict[str, Lin])
    extra: Cond = TRUE

    @property
    def names(self) -> tuple[str, ...]:
        """The fields."""
        return tuple(n for n, _ in self.fields)

    def over(self, n: int) -> frozenset[str]:
        """The variables that a field depends on."""
        return self.fields[n][1].names() & frozenset(self.vars)

    def domain(self, space: Space, also: Cond = TRUE) -> Cond:
        """The domain over the fields; `also` is a further condition over the variables."""
        bounds = conj(space.where(self.vars), also).subst(self.back)
        return conj(self.extra, bounds)

    def visible(self, known: frozenset[str]) -> list[bool] | None:
        """For a token that knows some variables: which fields it can fill (the others get `*`).

        None if those fields do not tell the known variables apart.
        """
        out = [self.over(n) <= known for n in range(len(self.fields))]
        seen = {self.fields[n][0] for n, s in enumerate(out) if s}
        back = self.back
        if all(back[v].names() & frozenset(self.names) <= seen for v in self.vars if v in known):
            return out
        return None


FRESH = ("e", "f", "g", "h", "p", "q", "c", "r")


def make_layout(
    rng: Random, space: Space, names: Iterable[str], plain: float, shifts: Iterable[Lin]
) -> tuple[Layout, list[str]]:
    """A layout with some changes of coordinates; with probability `plain` there are none.  Also the features used."""
    vs = list(space.order(names))
    fields: dict[str, Lin] = {v: var(v) for v in vs}
    back: dict[str, Lin] = {v: var(v) for v in vs}
    extra = list[Cond]()
    used = list[str]()
    order = list(vs)
    free = [f for f in FRESH if f not in space.names]
    rng.shuffle(free)
    if rng.random() >= plain and vs:
        for _ in range(rng.choice((1, 1, 2))):
            v = rng.choice(vs)
            if fields.get(v) != var(v) or not free or len(order) > 4:
                continue  # changed before
            how = rng.choice(("rename", "shift", "shift", "reverse", "scale", "skew", "split", "merge"))
            new = free.pop()
            at = order.index(v)
            b = space.bound(v)
            if how == "rename":
                f, g = var(v), var(new)
            elif how == "shift":
                c = rng.choice([num(1), num(-1), num(2), *shifts])
                f, g = var(v) + c, var(new) - c
            elif how == "reverse":
                c = b.hi if not (b.hi.names() & set(space.names)) else num(rng.choice((0, 5)))
                f, g = c - var(v), c - var(new)
            elif how == "scale":
                m, r = rng.choice(((2, 0), (2, 1), (3, 1)))
                f, g = var(v).times(m) + r, (var(new) - r).floordiv(m)
                extra.append(cmp(var(new).mod(m), "==", num(r)))
            elif how == "skew":
                others = [w for w in vs if w != v and v not in back[w].names()]
                if not others:
                    continue
                w = rng.choice(others)
                c = rng.choice((1, 1, -1, 2))
                f, g = var(v) + var(w).times(c), var(new) - back[w].times(c)
            elif how == "split":
                m = rng.choice((2, 3))
                low = free.pop()
                del fields[v]
                fields[new], fields[low] = var(v).floordiv(m), var(v).mod(m)
                back[v] = var(new).times(m) + var(low)
                order[at : at + 1] = [new, low]
                extra.append(conj(cmp(num(0), "<=", var(low)), cmp(var(low), "<", num(m))))
                _resolve(back, v)
                used.append("split")
                continue
            else:
                others = [w for w in vs if w != v and fields.get(w) == var(w) and space.bound(w).extent.is_const
                          and space.bound(w).lo.is_const and space.bound(w).extent.const > 0]  # fmt: skip
                if not others:
                    continue
                w = rng.choice(others)
                m, lo = space.bound(w).extent.const, space.bound(w).lo
                del fields[v], fields[w]
                fields[new] = var(v).times(m) + (var(w) - lo)
                back[v], back[w] = var(new).floordiv(m), var(new).mod(m) + lo
                order[at] = new
                order.remove(w)
                _resolve(back, v, w)
                used.append("merge")
                continue
            del fields[v]
            fields[new], back[v] = f, g
            order[at] = new
            _resolve(back, v)
            used.append(how)
    if len(order) > 1 and rng.random() < 0.3:
        rng.shuffle(order)
        used.append("permuted fields")
    layout = Layout(tuple(vs), tuple((n, fields[n]) for n in order), back, conj(*extra))
    return layout, used


def _resolve(back: dict[str, Lin], *changed: str) -> None:
    """Replace variables that are no fields any more in the other variables' expressions."""
    new = {v: back[v] for v in changed}
    for w, e in back.items():
        if w not in changed:
            back[w] = e.subst(new)


def layered(array: str, v: str, *, base: int) -> tuple[Lin, Lin]:
    """Bounds of a layer's width: ``0 .. N[v]-1`` or ``1 .. N[v-1]``."""
    return (num(0), look(array, var(v)) - 1) if base == 0 else (num(1), look(array, var(v) - 1))
