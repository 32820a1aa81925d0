"""Making a failing program smaller while it still fails: ends, arrows, inputs, assignments and conditions are dropped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from agreement.model import Arrow, End, Program
from agreement.static import TRUE, Cond, conj
from agreement.values import Val, lit

LITERALS = {"real": lit(1.5), "f32": lit(1.5), "int": lit(1), "bool": lit(True)}


def shrink(program: Program, fails: Callable[[Program], bool], seconds: float = 20.0) -> Program:
    """The smallest program found in the time that still fails."""
    end = time.monotonic() + seconds
    found = True
    while found:
        found = False
        for candidate in smaller(program):
            if time.monotonic() > end:
                return program
            if fails(candidate):
                program, found = candidate, True
                break
    return program


def smaller(p: Program) -> Iterator[Program]:
    """Programs with something less, the greatest pieces first; they need not be right."""
    for e in p.ends:
        yield _tidy(_without_end(p, e))
    for e in p.ends:
        for q in e.ports if len(e.ports) > 1 else ():
            yield _tidy(_without_port(p, e, q.name, q.type))
    for e, n, _ in p.arrows():
        yield _tidy(p.with_end(replace(e, arrows=(*e.arrows[:n], *e.arrows[n + 1 :]), glued=0)))
    for e in p.ends:
        for n, b in enumerate(e.body):
            rest = replace(e, body=(*e.body[:n], *e.body[n + 1 :]))
            yield p.with_end(_replaced(rest, b.name, LITERALS[b.type or b.value.type]))
    if any(e.glued for e in p.ends):
        yield replace(p, ends=tuple(replace(e, glued=0) for e in p.ends))
    for e, n, a in p.arrows():
        for new in _simpler_arrows(a):
            yield p.with_end(replace(e, arrows=(*e.arrows[:n], new, *e.arrows[n + 1 :])))
    for e in p.ends:
        for n, b in enumerate(e.body):
            for v in _simpler(b.value):
                new = replace(b, value=v, type=b.type or b.value.type)
                yield p.with_end(replace(e, body=(*e.body[:n], new, *e.body[n + 1 :])))
        if e.domain is not None and e.kind != "input":
            yield p.with_end(replace(e, domain=None))
        if e.domain is not None:
            for c in _fewer(e.domain):
                yield p.with_end(replace(e, domain=c))


def _without_end(p: Program, gone: End) -> Program:
    ends = [
        replace(e, arrows=tuple(a for a in e.arrows if a.target != gone.name), glued=0) for e in p.ends if e != gone
    ]
    return replace(p, ends=tuple(ends))


def _without_port(p: Program, end: End, name: str, type_: str) -> Program:
    ends: list[End] = []
    for e in p.ends:
        arrows = tuple(
            a for a in e.arrows if not (a.target == end.name and (a.port == name))
        )
        new = replace(e, arrows=arrows, glued=0)
        if e.name == end.name:
            new = _replaced(replace(new, ports=tuple(q for q in e.ports if q.name != name)), name, LITERALS[type_])
        ends.append(new)
    return replace(p, ends=tuple(ends))


def _replaced(e: End, name: str, value: Val) -> End:
    """A name replaced in the body and in what is sent; arrows that left their value out say it now, if it was the name."""
    arrows: list[Arrow] = []
    for a in e.arrows:
        if a.value is None:
            arrows.append(replace(a, value=value) if a.port == name else a)
        else:
            arrows.append(replace(a, value=_substituted(a.value, name, value)))
    body = tuple(replace(b, value=_substituted(b.value, name, value), type=b.type or b.value.type) for b in e.body)
    return replace(e, arrows=tuple(arrows), body=body)


def _substituted(v: Val, name: str, new: Val) -> Val:
    if v.op == "name":
        return new if v.what == name else v
    return replace(v, args=tuple(_substituted(a, name, new) for a in v.args))


def _simpler_arrows(a: Arrow) -> Iterator[Arrow]:
    for c in _fewer(a.cond):
        yield replace(a, cond=c)
    for c in _fewer(a.loop_cond):
        yield replace(a, loop_cond=c)
    if a.value is not None:
        for v in _simpler(a.value):
            yield replace(a, value=v)


def _fewer(c: Cond) -> Iterator[Cond]:
    if c.is_true:
        return
    yield TRUE
    parts = c.parts
    for n in range(len(parts)):
        rest = (*parts[:n], *parts[n + 1 :])
        if c.kind in ("and", "or") and rest:
            yield conj(*rest) if c.kind == "and" else replace(c, parts=rest)


def _simpler(v: Val) -> Iterator[Val]:
    if v.op in ("lit", "name"):
        return
    yield LITERALS[v.type]
    for a in v.args:
        if a.type == v.type:
            yield a
    for n, a in enumerate(v.args):
        for b in _simpler(a):
            yield replace(v, args=(*v.args[:n], b, *v.args[n + 1 :]))


def _tidy(p: Program) -> Program:
    """Without the parameters, constants and arrays that nothing reads any more."""
    words = "".join(e.text() for e in p.ends)
    return replace(
        p,
        params=tuple(q for q in p.params if q.name in words),
        consts=tuple(c for c in p.consts if c[0] in words),
        arrays=tuple(a for a in p.arrays if a[0] in words),
    )
