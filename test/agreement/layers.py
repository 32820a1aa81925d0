"""The third pattern of the generator: a chain of layers of different widths, as in a perceptron, laid out at random.

    Res<k,i> --(a token for all j)--> Link<k,i,j> --(N[k-1] summands)--> Sum<k,j> --> Res<k+1,j>

Inputs have letters that are never fields.  The widths are entries of a constant array, so the space of one layer's results
is another than that of its links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agreement.bodies import clamp, coerce
from agreement.model import CARRIED, Arrow, Assign, End, Loop, Port
from agreement.spaces import Bound, Space
from agreement.static import TRUE, Cond, Lin, cmp, look, num, var
from agreement.values import Val, lit, name, op
from agreement.wiring import Source, Wiring


def layer_chain(g: Wiring) -> tuple[Space, list[End]]:
    """Add a chain to a program under construction; returns the space of its results, and its host output."""
    rng = g.rng
    g.features.append("layer chain")
    depth = rng.randrange(2, 4)
    g.consts.append(("K", depth))
    g.arrays.append(("N", 0, tuple(rng.randrange(1, 4) for _ in range(depth))))
    k, last = var("k"), var("K")
    batch = [Bound("d", num(1), var(g.param()))] if rng.random() < 0.4 else []
    below, above = look("N", k - 1), look("N", k)
    results = Space((*batch, Bound("k", num(1), last), Bound("i", num(1), below)), "results")
    links = Space((*batch, Bound("k", num(1), last - 1), Bound("i", num(1), below), Bound("j", num(1), above)), "links")
    g.time |= {"results": {}, "links": {}}
    shared = {b.name: var(b.name) for b in batch}

    def made(kind: str, n: str, space: Space, names: set[str], ports: tuple[Port, ...]) -> Source:
        vs = frozenset(names) | frozenset(shared)
        layout = g.lay_out(space, vs)
        declared = kind == "input" or n == "Res" or rng.random() < 0.2
        type_, inputs = (ports[0].type, ()) if kind == "input" else ("real", ports)
        end = End(kind, n, layout.names, layout.domain(space) if declared else None, type_, inputs)
        s = Source(end, space, layout)
        s.values = [name(n if kind == "input" else p.name, p.type) for p in ports]
        g.sources[n] = s
        return s

    def send(
        s: Source, t: Source, port: str | None, via: Mapping[str, Lin], value: Val | None, *, cond: Cond = TRUE,
        mult: Lin | None = None, known: set[str] | None = None, loops: tuple[Loop, ...] = (),
    ) -> None:  # fmt: skip
        env = dict(s.layout.back)
        seen = t.layout.visible(frozenset(t.layout.vars if known is None else known | shared.keys()))
        assert seen is not None
        index = tuple(
            e.subst({**shared, **via}).subst(env) if x else None for (_, e), x in zip(t.layout.fields, seen, strict=True)
        )
        walks = tuple(replace(p, lo=p.lo.subst(env), hi=p.hi.subst(env)) for p in loops)
        a = Arrow(t.end.name, port, index, cond.subst(env), value, mult.subst(env) if mult is not None else None, walks)
        s.end = replace(s.end, arrows=(*s.end.arrows, a))
        g.edges.setdefault(s.end.name, []).append((t.end.name, frozenset(shared)))

    x = made("input", "Xs", results, {"i", "k"}, (Port("Xs"),))
    only_first = cmp(k, "==", num(1))
    x.end = replace(x.end, domain=x.layout.domain(results, only_first))
    x.only = only_first
    w = made("input", "Ws", links, {"k", "i", "j"}, (Port("Ws", rng.choice(("real", "real", "f32", "int"))),))
    res = made("node", "Res", results, {"k", "i"}, (Port("x"),))
    link = made("node", "Link", links, {"k", "i", "j"}, (Port("x"), Port("w", rng.choice(("real", w.end.type)))))
    carried = rng.random() < 0.6
    total = made("node", "Sum", links, {"k", "j"}, (Port("s", "real", rng.choice(("+", "+", "max", "min")), CARRIED),))
    if not carried:
        count = below.subst(total.layout.back)
        total.end = replace(total.end, ports=(replace(total.end.ports[0], count=count),), domain=total.layout.domain(links))
    same = {v: var(v) for v in ("k", "i", "j")}
    send(x, res, "x", same, None)
    send(w, link, "w", same, coerce(w.values[0], link.end.ports[1].type))
    inner = cmp(k, "<", last) if rng.random() < 0.5 else cmp(k, "!=", last)
    if link.layout.visible(frozenset({"k", "i"} | shared.keys())) is not None and rng.random() < 0.7:
        send(res, link, "x", same, None, cond=inner, mult=above, known={"k", "i"})
    else:
        taken = {*res.end.fields}
        it = "j" if "j" not in taken else "j1"
        send(res, link, "x", {**same, "j": var(it)}, None, cond=inner, loops=(Loop(it, num(1), above),))
    product = op("*", name("x", "real"), name("w", link.end.ports[1].type))
    send(link, total, "s", same, product, mult=below if carried else None)
    value = name("s", "real")
    active = rng.choice((clamp(value, 4.0), op("max", value, lit(0.0)), op("tanh", value)))
    total.end = replace(total.end, body=(Assign("a", active),))
    total.values = [name("a", "real")]
    send(total, res, "x", {"k": k + 1, "i": var("j")}, name("a", "real"))
    final = Space((*batch, Bound("i", num(1), look("N", last - 1))), "last")
    layout = g.lay_out(final, frozenset({"i"} | shared.keys()), 0.75)
    out = End("output", "Rs", layout.names)
    send(res, Source(out, results, layout), None, same, None, cond=cmp(k, "==", last))
    return results, [out]
