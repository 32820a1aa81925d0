"""Random UPL programs of the affine class that are valid by construction.

    program, mix = generate(seed)          # a `model.Program`, and the features it has
    print(program.text())

Every node stands for points of an iteration space (`spaces`).  An ordinary input is fed by a partition of the node's
points, one arrow to each part; a gather by terms whose numbers of points are known as products of extents; a recurrence by
the points whose predecessor exists, and an entry for those that have none.  So the counts, conditions and domains that are
written are right for all parameter values, and no analysis is needed to know it.

    python -m agreement.generator 7 --count 3       (with the folder `test` on the path)
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agreement.bodies import TYPES, clamp, expression
from agreement.layers import layer_chain
from agreement.model import CARRIED, UNBOUNDED, Assign, End, Port, Program
from agreement.spaces import Space
from agreement.static import TRUE, Cond, Lin, cmp, conj, num, var
from agreement.values import RANK, Val, lit, name, op
from agreement.wiring import Source, Wiring

WIDE = 9_000_000
"""Seeds from here on have programs of the wider class; those before keep theirs, so that counts can be repeated."""


@dataclass(frozen=True)
class Pending:
    """An input that waits for its recurrent arrow: from `g` to ``g + step``, where `out` holds."""

    node: str
    port: str
    step: dict[str, int]
    out: Cond
    along: str
    mult: Lin | str | None


class Generator(Wiring):
    """One program in the making."""

    def __init__(self, seed: int, size: int = 5):
        super().__init__(seed)
        self.size = size
        self.outputs: list[End] = []
        self.pending: list[Pending] = []

    # -- nodes -----------------------------------------------------------------------------------------------------
    def node(self, space: Space) -> None:
        """A new node with all its inputs fed (recurrent ones later)."""
        rng = self.rng
        n = sum(s.end.kind == "node" for s in self.sources.values())
        vs = space.closed(rng.sample(space.names, rng.randrange(0 if n else 1, len(space.names) + 1)))
        if rng.random() < 0.4:
            vs = frozenset(space.names)
        only = TRUE
        if vs and rng.random() < 0.12:
            only = self.restriction(space, vs) or TRUE
            self.features.append("part of a space")
        layout = self.lay_out(space, vs)
        target = Source(End("node", "ABCDEFGHIJKLMNOPQRSTUVW"[n], layout.names), space, layout, only)
        target.level = n
        plans = self._plan(target)
        taken = {*layout.names, *(p.name for p in self.params)}
        letters = [c for c in "xyzsuwo" if c not in taken]
        ports: list[Port] = []
        for i, plan in enumerate(plans):
            type_ = rng.choice(TYPES)
            if plan[0] == "gather":
                op = rng.choice(("+", "+", "+", "*", "min", "max")) if type_ != "bool" else rng.choice(("&&", "||"))
                ports.append(Port(letters[i], type_, op, CARRIED))
            else:
                ports.append(Port(letters[i], type_))
        target.end = replace(target.end, ports=tuple(ports))
        recurrent = False
        may_start = True
        for i, plan in enumerate(plans):
            match plan[0]:
                case "full":
                    may_start = False
                    for c in self.parts(space, vs):
                        self.feed(target, ports[i], vs, c, None)
                case "wild":
                    may_start = False
                    self._feed_wild(target, ports[i], plan[1])
                case "recurrent":
                    may_start, recurrent = False, True
                    self._feed_recurrent(target, ports[i], None)
                case _:
                    count, rec, safe = self._feed_gather(target, ports[i], may_count=len(plans) == 1 or "full" in
                                                         {p[0] for p in plans})  # fmt: skip
                    recurrent |= rec
                    may_start &= safe
                    target.end = replace(
                        target.end, ports=tuple(replace(p, count=count) if p == ports[i] else p for p in target.end.ports)
                    )
        if layout.names and (
            (recurrent and (self.params or rng.random() < 0.5)) or (may_start and "gather" in {p[0] for p in plans})
            or rng.random() < 0.25
        ):  # fmt: skip
            target.end = replace(target.end, domain=layout.domain(space, only))
            self.features.append("declared domain")
        self._body(target, recurrent)
        self.sources[target.end.name] = target

    def _plan(self, target: Source) -> list[tuple[str, frozenset[str]]]:
        """What kinds of inputs the node has; some of them determine its whole index."""
        rng, space, vs = self.rng, target.space, target.vars
        wild = [
            c for c in {space.closed(w) for w in (rng.sample(sorted(vs), rng.randrange(len(vs) + 1)) for _ in range(6))}
            if c < vs and space.count(vs - c) is not None and target.layout.visible(c) is not None
        ] if vs and target.only.is_true else []  # fmt: skip
        wild.sort(key=sorted)
        time = [v for v in vs if v in self.time[space.kind]]
        out: list[tuple[str, frozenset[str]]] = []
        joint = self._join(target, wild)
        if joint is not None and rng.random() < 0.3:
            out = [("wild", c) for c in joint]
            self.features.append("join of wildcards")
        else:
            kinds = ["full", "full", "gather"] + (["recurrent"] * 3 if time else [])
            out = [(rng.choice(kinds), vs)]
            while len(out) < 3 and rng.random() < 0.45:
                kind = rng.choice(["full", "wild", "wild", "gather"])
                if kind == "wild" and wild:
                    out.append(("wild", rng.choice(wild)))
                elif kind != "wild":
                    out.append((kind, vs))
            rng.shuffle(out)
        return out

    def _join(self, target: Source, wild: Sequence[frozenset[str]]) -> list[frozenset[str]] | None:
        """Two sets of variables that together give every field of the node."""
        pairs = [(a, b) for a in wild for b in wild if a | b == target.vars and a and b and a != b]
        layout = target.layout
        good = [
            (a, b) for a, b in pairs if all(layout.over(n) <= a or layout.over(n) <= b for n in range(len(layout.fields)))
        ]
        return list(self.rng.choice(good)) if good else None

    def _feed_wild(self, target: Source, port: Port, known: frozenset[str]) -> None:
        space = target.space
        rest = target.vars - known
        count = space.count(rest)
        assert count is not None
        self.features.append("wildcard")
        guard = conj(*(cmp(b.lo, "<=", b.hi) for b in map(space.bound, space.order(rest)) if b.empty))
        mult: Lin | str = UNBOUNDED if self.rng.random() < 0.04 and guard.is_true else count
        for c in self.parts(space, known, 0.2):
            self.feed(target, port, known, conj(guard, c), mult)

    def _feed_recurrent(self, target: Source, port: Port, mult: Lin | str | None) -> None:
        """Part of the points come from a predecessor, the others from an entry."""
        rng, space, vs = self.rng, target.space, target.vars
        time = self.time[space.kind]
        along = rng.choice([v for v in space.order(vs) if v in time])
        step = {along: time[along] * rng.choice((1, 1, 1, 2))}
        for w in space.order(vs - {along}):
            if rng.random() < 0.3:
                step[w] = time[w] if w in time else rng.choice((-1, 1))
        back = {v: var(v) - c for v, c in step.items()}
        on = {v: var(v) + c for v, c in step.items()}
        comes = self._inside(target, step, back, -1)
        leaves = self._inside(target, step, on, 1)
        self.features.append("recurrence" if len(step) == 1 else "recurrence aslant")
        entry = comes.negated() if rng.random() < 0.8 else Cond("not", (comes,))
        for c in self.parts(space, vs, 0.15):
            self.feed(target, port, vs, conj(entry, c), mult)
        self.pending.append(Pending(target.end.name, port.name, step, leaves, along, mult))

    def _inside(self, target: Source, step: dict[str, int], moved: dict[str, Lin], sign: int) -> Cond:
        """The constraints of the moved point that the unmoved one does not imply by itself."""
        space = target.space
        out: list[Cond] = []
        for b in (space.bound(v) for v in space.order(target.vars)):
            c = step.get(b.name, 0) * sign
            for cond, grows in zip(b.cond().conjuncts(), (False, True), strict=True):
                new = cond.subst(moved)
                bound = b.hi if grows else b.lo
                if new == cond:
                    continue
                still = not (bound.names() & step.keys())
                if still and ((c <= 0) if grows else (c >= 0)):
                    continue
                out.append(new)
        out += [c.subst(moved) for c in target.only.conjuncts()]
        return conj(*out)

    def _feed_gather(self, target: Source, port: Port, *, may_count: bool) -> tuple[Lin | str, bool, bool]:
        """The summands.  Returns the declared count, whether there is a recurrence, and whether 0 summands are possible."""
        rng, space, vs = self.rng, target.space, target.vars
        terms: list[frozenset[str]] = []
        total = num(0)
        for _ in range(rng.choice((1, 1, 1, 2))):
            free = [v for v in space.names if v not in vs]
            more = space.closed(rng.sample(free, rng.randrange(len(free) + 1))) - vs if free else frozenset[str]()
            count = space.count(more)
            if count is None:
                more, count = frozenset(), num(1)
            terms.append(more)
            total = total + count
        sure = any(not space.may_be_empty(t) for t in terms)
        carried = sure and rng.random() < 0.55
        if not carried and not may_count:
            if not sure:
                terms.append(frozenset())
                total = total + 1
            carried = True
        back = target.layout.back
        written: Lin | str = CARRIED if carried else total.subst(back)
        mult = total if carried else None
        self.features.append(
            f"@({port.op}) " + ("carried" if carried else "constant" if total.is_const else "expression")
        )
        recurrent = False
        time = [v for v in vs if v in self.time[space.kind]]
        for t in terms:
            if not t and time and rng.random() < 0.4:
                self._feed_recurrent(target, port, mult)
                recurrent = True
                continue
            for c in self.parts(space, vs | t, 0.2):
                self._feed_summand(target, port, vs | t, c, mult)
        return written, recurrent, not carried and not total.is_const

    def _feed_summand(self, target: Source, port: Port, vs: frozenset[str], cond: Cond, mult: Lin | None) -> None:
        """As `feed`, but the token's index has only the target's variables."""
        rng, space = self.rng, target.space
        found = [s for s in self._candidates(space, vs, target.only, target.end.name) if s.vars <= vs]
        n_inputs = sum(s.end.kind == "input" for s in self.sources.values())
        if found and (rng.random() < 0.65 or n_inputs >= 5):
            source = rng.choice(found)
        else:
            source = self.host_input(space, vs, TRUE, port.type if rng.random() < 0.8 else rng.choice(TYPES))
        self.connect(source, target, port, vs, cond, mult)

    def _body(self, target: Source, recurrent: bool) -> None:
        rng = self.rng
        values = [name(p.name, p.type) for p in target.end.ports]
        body: list[Assign] = []
        taken = {*(p.name for p in target.end.ports), *target.end.fields}
        free = [c for c in ("v", "a", "b", "s", "x", "y") if c not in taken]
        used = list(values)
        for _ in range(rng.choice((0, 1, 1, 2)) or (1 if recurrent or len(values) > 1 else 0)):
            widest = max((v.type for v in used), key=RANK.__getitem__)
            type_ = widest if rng.random() < 0.8 else rng.choice(TYPES)
            v = expression(rng, used, target.end.fields, type_, rng.choice((1, 2, 2)))
            if RANK[v.type] > RANK[type_] and type_ != "f32":
                type_ = v.type
            if recurrent:
                v = clamp(v, 4.0) if RANK[v.type] >= 2 else v if v.type == "bool" else coerce_int(v)
            n = free.pop(0)
            said = type_ if v.type != type_ or rng.random() < 0.2 else None
            if said is not None and (said == "bool") != (v.type == "bool") and said == "bool":
                said = None
            body.append(Assign(n, v, said))
            used.append(name(n, said or v.type))
        if recurrent or rng.random() < 0.5:
            used = used[len(values) :] or used
        target.end = replace(target.end, body=tuple(body))
        target.values = used if used[0] in values or not values else [*values[:1], *used] if not recurrent else used

    # -- the rest --------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Draw the recurrent arrows, each from a node from which nothing leads round without its variable."""
        for p in self.pending:
            target = self.sources[p.node]
            good = [
                s for s in self.sources.values()
                if s.end.kind == "node" and s.space is target.space and s.vars == target.vars
                and s.only in (TRUE, target.only) and self._keeps(p.node, s.end.name, p.along)
            ]  # fmt: skip
            others = [s for s in good if s is not target]
            source = self.rng.choice(others) if others and self.rng.random() < 0.6 else target
            if source is not target:
                self.features.append("cycle of nodes")
            step_only = conj(p.out, *(target.only.conjuncts() if source.only != target.only else ()))
            saved, target.only = target.only, source.only  # both ends' conditions are in `out` and above
            self.connect(source, target, target.end.port(p.port), target.vars, step_only, p.mult, p.step)
            target.only = saved

    def _keeps(self, start: str, end: str, along: str) -> bool:
        """Whether all ways from `start` to `end` pass only arrows that leave the variable as it is, or let it grow."""
        reach = self._reach(start) | {start}
        return not any(
            along not in kept and (to == end or end in self._reach(to)) for n in reach for to, kept in self.edges.get(n, ())
        )

    def _reach(self, start: str) -> set[str]:
        seen: set[str] = set()
        stack = [start]
        while stack:
            for t, _ in self.edges.get(stack.pop(), ()):
                if t not in seen:
                    seen.add(t)
                    stack.append(t)
        return seen

    def results(self) -> None:
        """A host output for every node that sends nothing, and for some others."""
        rng = self.rng
        nodes = [s for s in self.sources.values() if s.end.kind == "node"]
        for s in nodes:
            if (s.end.arrows and rng.random() < 0.8) or not s.only.affine:
                continue
            if self.outputs and rng.random() < 0.05:
                self.features.append("value nobody consumes")
                continue
            vs = s.vars
            slices = [v for v in vs if self.slices(s.space, vs, v)]
            if slices and s.only.is_true and rng.random() < 0.2:
                vs -= {rng.choice(sorted(slices))}
            layout = self.lay_out(s.space, vs, 0.75)
            type_ = s.values[-1].type
            out = End("output", f"R{len(self.outputs)}" if self.outputs else "R", layout.names, None, type_)
            if rng.random() < 0.3 and layout.names:
                out = replace(out, domain=layout.domain(s.space, s.only))
            target = Source(out, s.space, layout, s.only)
            port = Port(out.name, out.type)
            for c in self.parts(s.space, vs, 0.2):
                others = [t for t in nodes if t.space is s.space and t.vars == vs and t.only == s.only]
                self.connect(rng.choice(others) if others and rng.random() < 0.3 else s, target, port, vs, c, None)
            self.outputs.append(out)

    def program(self) -> Program:
        """The whole."""
        rng = self.rng
        spaces: list[Space] = []
        if rng.random() < 0.15:
            space, outputs = layer_chain(self)
            spaces.append(space)
            self.outputs += outputs
        spaces += [self.space() for _ in range(rng.choice((1, 1, 1, 2)))]
        for n in range(rng.randrange(2, self.size + 1)):
            self.node(spaces[n % len(spaces)])
        self.close()
        self.results()
        inputs = [s.end for s in self.sources.values() if s.end.kind == "input"]
        nodes = [self._glue(s.end) for s in self.sources.values() if s.end.kind == "node"]
        ends = [*inputs, *self.outputs, *nodes]
        if rng.random() < 0.2:
            rng.shuffle(ends)
        self.features += [f"type {p.type}" for e in nodes for p in e.ports if p.type != "real"]
        return Program(
            f"random{self.seed}", tuple(self.params), tuple(self.consts), tuple(self.arrays), tuple(ends),
            tuple(self.features),
        )  # fmt: skip

    def _glue(self, end: End) -> End:
        if end.arrows and self.rng.random() < 0.08:
            self.features.append("glued")
            return replace(end, glued=self.rng.randrange(1, len(end.arrows) + 1))
        return end


def coerce_int(v: Val) -> Val:
    """An integer that stays small round a recurrence."""
    return op("mod", v, lit(9))


def generate(seed: int, size: int = 5) -> Program:
    """The program of a seed; those from `WIDE` on have more features (`wide`)."""
    if seed >= WIDE:
        from agreement.wide import WideGenerator

        return WideGenerator(seed, size).program()
    return Generator(seed, size).program()


def mix(programs: Sequence[Program]) -> Counter[str]:
    """In how many programs each feature occurs."""
    return Counter(f for p in programs for f in set(p.features))


def main(argv: Sequence[str]) -> None:
    """``SEED [--count N]``: print programs, then the mix."""
    first = int(argv[0]) if argv else 0
    count = int(argv[argv.index("--count") + 1]) if "--count" in argv else 1
    programs = [generate(s) for s in range(first, first + count)]
    for p in programs:
        print(p.text())
    for feature, n in sorted(mix(programs).items()):
        print(f"// {n:5} {feature}")


if __name__ == "__main__":
    main(sys.argv[1:])
