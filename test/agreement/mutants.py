"""Small mistakes put into a program, and the truth about what they do, found without the compiler.

A mutant may still be right (an arrow whose condition never held is dropped): `truth` enumerates all instances at small
parameter values and tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from agreement import naive
from agreement.model import CARRIED, Arrow, End, Program
from agreement.static import TRUE, Cond, Lin, OutOfRange, cmp, conj, num

Arrows = list[tuple[End, int, Arrow]]


@dataclass(frozen=True)
class Mutant:
    """A changed program: `kind` of the mistake and where it is."""

    kind: str
    where: str
    program: Program


def _replace(p: Program, end: End, n: int, *new: Arrow) -> Program:
    arrows = (*end.arrows[:n], *new, *end.arrows[n + 1 :])
    return p.with_end(replace(end, arrows=arrows, glued=min(end.glued, len(arrows))))


def _count_off(rng: Random, p: Program, arrows: Arrows) -> Program | None:
    """A multiplicity (or carried count) that is one off, or left out."""
    able = [t for t in arrows if t[2].port is not None and not isinstance(t[2].mult, str)]
    if not able:
        return None
    end, n, a = rng.choice([t for t in able if t[2].mult is not None] or able)
    old = a.mult if isinstance(a.mult, Lin) else num(1)
    new = rng.choice((old + 1, old - 1, old.times(2), None if a.mult is not None else old + 1))
    return _replace(p, end, n, replace(a, mult=new))


def _index_off(rng: Random, p: Program, arrows: Arrows) -> Program | None:
    """An index that is one off."""
    able = [t for t in arrows if any(e is not None for e in t[2].index)]
    if not able:
        return None
    end, n, a = rng.choice(able)
    k = rng.choice([k for k, e in enumerate(a.index) if e is not None])
    old = a.index[k]
    assert old is not None
    index = (*a.index[:k], old + rng.choice((1, -1, 1, 2)), *a.index[k + 1 :])
    return _replace(p, end, n, replace(a, index=index, bare=False))


def _index_swapped(rng: Random, p: Program, arrows: Arrows) -> Program | None:
    """Two fields of an index exchanged."""
    able = [t for t in arrows if len(set(t[2].index)) > 1]
    if not able:
        return None
    end, n, a = rng.choice(able)
    i, j = rng.sample(range(len(a.index)), 2)
    index = list(a.index)
    index[i], index[j] = index[j], index[i]
    return _replace(p, end, n, replace(a, index=tuple(index), bare=False))


def _dropped(rng: Random, p: Program, arrows: Arrows) -> Program | None:
    """An arrow that is missing."""
    end, n, a = rng.choice(arrows)
    if sum(b.target == a.target and b.port == a.port for _, _, b in arrows) < 2 and rng.random() < 0.7:
        return None  # without any arrow the mistake is too plain; mostly look for another
    return _replace(p, end, n)


def _doubled(rng: Random, p: Program, arrows: Arrows) -> Program | None:
    """An arrow that stands twice."""
    end, n, a = rng.choice(arrows)
    return _replace(p, end, n, a, a)


def _condition_flipped(rng: Random, p: Program, arrows: Arrows) -> Program | None:
    """A comparison turned round or widened."""
    able = [t for t in arrows if not t[2].cond.is_true or not t[2].loop_cond.is_true]
    if not able:
        return None
    end, n, a = rng.choice(able)
    name = rng.choice([f for f in ("cond", "loop_cond") if not getattr(a, f).is_true])
    return _replace(p, end, n, replace(a, **{name: _other(rng, getattr(a, name))}))


def _other(rng: Random, c: Cond) -> Cond:
    """One comparison in a condition replaced by another."""
    leaves = [x for x in c.walk() if x.kind == "cmp"]
    if not leaves:
        return c.negated()
    leaf = rng.choice(leaves)
    swaps = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
    how = rng.random()
    if how < 0.4:
        new = cmp(leaf.left, swaps[leaf.op], leaf.right)
    elif how < 0.7:
        new = leaf.negated()
    else:
        new = cmp(leaf.left, leaf.op, leaf.right + rng.choice((1, -1)))
    return _substituted(c, leaf, new)


def _substituted(c: Cond, old: Cond, new: Cond) -> Cond:
    if c == old:
        return new
    return replace(c, parts=tuple(_substituted(q, old, new) for q in c.parts))


def _condition_dropped(rng: Random, p: Program, arrows: Arrows) -> Program | None:
    """A part of a condition that is missing, or one too many."""
    able = [t for t in arrows if not t[2].cond.is_true]
    if not able:
        return None
    end, n, a = rng.choice(able)
    parts = list(a.cond.conjuncts())
    del parts[rng.randrange(len(parts))]
    return _replace(p, end, n, replace(a, cond=conj(*parts) if parts else TRUE))


def _gather_count(rng: Random, p: Program, arrows: Arrows) -> Program | None:
    """A gather that waits for another number of summands."""
    able = [(e, q) for e in p.ends for q in e.ports if q.op is not None and q.count != CARRIED]
    if not able:
        return None
    end, q = rng.choice(able)
    assert isinstance(q.count, Lin)
    new = replace(q, count=q.count + rng.choice((1, -1, 1, -1, 2)))
    return p.with_end(replace(end, ports=tuple(new if o == q else o for o in end.ports)))


def _domain(rng: Random, p: Program, arrows: Arrows) -> Program | None:
    """A declared domain with a wrong bound."""
    able = [e for e in p.ends if e.domain is not None and e.fields and not e.domain.is_true]
    if not able:
        return None
    end = rng.choice(able)
    assert end.domain is not None
    leaves = [x for x in end.domain.walk() if x.kind == "cmp" and x.op in ("<", "<=")]
    if not leaves:
        return None
    leaf = rng.choice(leaves)
    c = rng.choice((1, -1))
    new = cmp(leaf.left + c, leaf.op, leaf.right) if leaf.left.is_const else cmp(leaf.left, leaf.op, leaf.right + c)
    return p.with_end(replace(end, domain=_substituted(end.domain, leaf, new)))


def _loop(rng: Random, p: Program, arrows: Arrows) -> Program | None:
    """A `for` with one point more or less."""
    able = [t for t in arrows if t[2].loops]
    if not able:
        return None
    end, n, a = rng.choice(able)
    k = rng.randrange(len(a.loops))
    old = a.loops[k]
    c = rng.choice((1, -1))
    new = replace(old, lo=old.lo + c) if rng.random() < 0.5 else replace(old, hi=old.hi + c)
    return _replace(p, end, n, replace(a, loops=(*a.loops[:k], new, *a.loops[k + 1 :])))


def _star(rng: Random, p: Program, arrows: Arrows) -> Program | None:
    """A `*` in place of an index, or an index in place of a `*`."""
    able = [t for t in arrows if t[2].index and t[2].port is not None and p.end(t[2].target).port(t[2].port).op is None]
    if not able:
        return None
    end, n, a = rng.choice(able)
    k = rng.randrange(len(a.index))
    new = None if a.index[k] is not None else num(rng.randrange(2))
    index = (*a.index[:k], new, *a.index[k + 1 :])
    return _replace(p, end, n, replace(a, index=index, bare=False))


def _retargeted(rng: Random, p: Program, arrows: Arrows) -> Program | None:
    """An arrow that enters another input of its target."""
    able = [t for t in arrows if t[2].port is not None and len(p.end(t[2].target).ports) > 1 and t[2].value is not None]
    if not able:
        return None
    end, n, a = rng.choice(able)
    now = p.end(a.target).port(a.port)
    others = [q for q in p.end(a.target).ports if q != now and q.type == now.type]
    if not others or None in a.index:
        return None
    return _replace(p, end, n, replace(a, port=rng.choice(others).name, portless=False))


MISTAKES: Mapping[str, Callable[[Random, Program, Arrows], Program | None]] = {
    "count off": _count_off,
    "index off": _index_off,
    "fields swapped": _index_swapped,
    "arrow dropped": _dropped,
    "arrow doubled": _doubled,
    "condition flipped": _condition_flipped,
    "condition dropped": _condition_dropped,
    "gather count": _gather_count,
    "declared domain": _domain,
    "for": _loop,
    "star": _star,
    "other input": _retargeted,
}


def mutants(p: Program, seed: int, count: int) -> Iterator[Mutant]:
    """Some mutants of a program, each with one mistake."""
    rng = Random(f"{seed} {p.name}")
    seen = {p.text()}
    for _ in range(20 * count):
        arrows = list(p.arrows())
        if not arrows or count == 0:
            return
        kind = rng.choice(list(MISTAKES))
        new = MISTAKES[kind](rng, p, arrows)
        if new is None or (text := new.text()) in seen:
            continue
        seen.add(text)
        count -= 1
        yield Mutant(kind, p.name, new)


@dataclass(frozen=True)
class Truth:
    """`wrong` with the least parameters that show it and a broken rule, or right as far as small parameters tell.

    `open`: neither, because the enumeration was too large.
    """

    wrong: bool
    params: Mapping[str, int] | None = None
    rule: naive.Violation | str | None = None
    open: bool = False


def truth(p: Program, params: list[dict[str, int]] | None = None) -> Truth:
    """Whether a program is right at all of some small parameter values."""
    too_large = False
    for values in params if params is not None else naive.small_params(p):
        try:
            result = naive.run(p, values)
        except OutOfRange as e:
            return Truth(True, values, str(e))
        except naive.TooLarge as e:
            too_large = True
            if _runs_away(p, values):
                return Truth(True, values, f"runaway: {e}")
            continue
        if not result.ok:
            return Truth(True, values, result.violations[0])
    return Truth(False, open=too_large)


def _runs_away(p: Program, values: Mapping[str, int]) -> bool:
    """Whether more fires than could be meant: the original programs have a few hundred instances at these sizes."""
    return sum(values.values()) < 12
