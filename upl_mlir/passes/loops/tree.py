"""Schedules as trees: loops, guards, statements at one point, statements over a box of points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from upl_mlir.dialects.loops.attributes import Range
from upl_mlir.passes.loops.statements import Statement
from upl_mlir.passes.loops.transform.contractions import Contraction
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Cons, Linear


@dataclass(eq=False)
class Loop:
    """``for var in max(lows)..min(highs)``, both included; `parallel`: no iteration needs another.

    Only copies of a loop, for other values outside, have the same variable: what is private to one is so to all.
    """

    var: str
    lows: tuple[IndexExpr, ...]
    highs: tuple[IndexExpr, ...]
    parallel: bool
    body: list[Tree]
    tiled: bool = False
    """Whether this is a loop over blocks of steps, which is not tiled again."""
    lag: int = -1
    """Of a loop over blocks, each with one loop over waves: a wave needs those of the block before that are at most so
    far ahead of it, and blocks may run at the same time.  -1: one after the other.  IR has none: its loops have an order."""

    @property
    def context(self) -> Cons:
        """What holds of the variable inside."""
        x = IndexExpr.of(self.var)
        return (*(Con(x - b) for b in self.lows), *(Con(b - x) for b in self.highs))


@dataclass(frozen=True)
class Along:
    """How a statement takes part in a loop: the loop's variable is ``sign * field + shift``."""

    field: str
    sign: int
    shift: int

    def value(self, var: str) -> IndexExpr:
        """The field by the loop's variable."""
        return (IndexExpr.of(var) - self.shift) * self.sign

    def time(self, value: IndexExpr) -> IndexExpr:
        """The loop's variable at a value of the field."""
        return value * self.sign + self.shift


@dataclass(eq=False)
class Leaf:
    """A statement at one point: `env` gives its fields by the loops' variables."""

    stmt: Statement
    env: dict[str, IndexExpr]


@dataclass(eq=False)
class Guard:
    """`body` where the constraints hold, `other` elsewhere."""

    cons: Cons
    body: list[Tree]
    other: list[Tree] = field(default_factory=list["Tree"])


@dataclass(eq=False)
class Box:
    """A statement for all values of the fields that `leaf` leaves open, as the contraction that it is.

    `plain` computes the same by loops, for where the arrays' places are no linear functions of the indices.
    """

    leaf: Leaf
    contraction: Contraction
    plain: list[Tree]


@dataclass(eq=False)
class Exchange:
    """Every rank receives the elements of an array in a box from the ranks that own them: those of the box that it has not.

    `ranges` is the box that a rank needs, a range for each field, by the variables of the loops around, and by the
    rank's blocks.  Copies of an exchange have its `number`.  Of a partial array, the ranks' parts of the elements in the box
    are combined instead, and each rank has the results in their place.
    """

    array: str
    ranges: tuple[Range, ...]
    number: int

    @property
    def cons(self) -> Cons:
        """What holds of the elements of the box."""
        return tuple(c for r in self.ranges for c in r.cons)


Tree = Loop | Leaf | Guard | Box | Exchange


def guarded(lin: Linear, body: list[Tree], context: Cons) -> list[Tree]:
    """The tree with a guard round what the loops' bounds do not ensure, as far out as it can stand."""
    out: list[Tree] = []
    for t in body:
        match t:
            case Leaf(stmt, env):
                cons = lin.tidy(Con(lin.plain(c.e.substitute(env)), c.eq) for c in stmt.cons)
                needed = tuple(c for c in cons if not lin.implies(context, c))
                new: Tree = Guard(needed, [t]) if needed else t
            case Loop():
                t.body = guarded(lin, t.body, (*context, *t.context))
                *parts, t = _distributed(lin, t)
                out += [_hoisted(p) for p in parts]
                new = _hoisted(t)
            case Guard():
                new = t
            case Box():
                new = _boxed(lin, t, context)
            case Exchange():
                new = t
        last = out[-1] if out else None
        if isinstance(last, Guard) and isinstance(new, Guard) and last.cons == new.cons:
            last.body += new.body
        else:
            out.append(new)
    return out


def _distributed(lin: Linear, loop: Loop) -> list[Loop]:
    """A parallel loop as several if that lets guards move out, and what stands in them has nothing to do with the rest."""
    if not loop.parallel or len(loop.body) < 2:
        return [loop]
    outer = [
        tuple(c for c in t.cons if loop.var not in c.e.names) if isinstance(t, Guard) else () for t in loop.body
    ]
    if not any(outer):
        return [loop]
    stmts = [[leaf.stmt for leaf, _ in leaves([t])] for t in loop.body]
    for i, mine in enumerate(stmts):
        written = {s.array for s in mine}
        if any(r.array in written for later in stmts[i + 1 :] for s in later for r in s.reads):
            return [loop]  # what goes from one to the other stays at hand in one loop
    out: list[Loop] = []
    for at, t in enumerate(loop.body):
        if out and outer[at] == outer[at - 1]:
            out[-1].body.append(t)
        else:
            out.append(Loop(loop.var, loop.lows, loop.highs, True, [t]))
    for n, part in enumerate(out[1:], start=2):  # each loop has a variable of its own
        own = {loop.var: IndexExpr.of(f"{loop.var}_{n}")}
        part.body = [new for t in part.body if (new := replaced(lin, t, own)) is not None]
        part.var = f"{loop.var}_{n}"
    return out


def _hoisted(loop: Loop) -> Tree:
    """A guard that is all of a loop's body, moved out as far as it does not depend on the loop."""
    if len(loop.body) != 1 or not isinstance(loop.body[0], Guard):
        return loop
    guard = loop.body[0]
    out = tuple(c for c in guard.cons if loop.var not in c.e.names)
    if not out:
        return loop
    rest = tuple(c for c in guard.cons if loop.var in c.e.names)
    loop.body = [Guard(rest, guard.body)] if rest else guard.body
    return Guard(out, [loop])


def _boxed(lin: Linear, box: Box, context: Cons) -> Tree:
    """A guard round a box for what does not depend on its fields."""
    box.plain = guarded(lin, box.plain, context)
    env = box.leaf.env
    cons = lin.tidy(Con(lin.plain(c.e.substitute(env)), c.eq) for c in box.leaf.stmt.cons)
    open_ = {f for f in box.leaf.stmt.fields if f not in env}
    needed = tuple(c for c in cons if not c.e.names & open_ and not lin.implies(context, c))
    return Guard(needed, [box]) if needed else box


def leaves(tree: Sequence[Tree]) -> Iterator[tuple[Leaf, tuple[Loop, ...]]]:
    """Every leaf with the loops round it, in order."""
    stack: list[tuple[Tree, tuple[Loop, ...]]] = [(t, ()) for t in reversed(tree)]
    while stack:
        t, loops = stack.pop()
        match t:
            case Leaf():
                yield t, loops
            case Box():
                yield t.leaf, loops
            case Loop():
                stack += [(b, (*loops, t)) for b in reversed(t.body)]
            case Guard():
                stack += [(b, loops) for b in reversed((*t.body, *t.other))]
            case Exchange():
                pass


def subtrees(trees: Iterable[Tree]) -> Iterator[Tree]:
    """Every node, outer ones first."""
    for t in trees:
        yield t
        if isinstance(t, Loop | Guard):
            yield from subtrees(t.body)
        if isinstance(t, Guard):
            yield from subtrees(t.other)


def replaced(lin: Linear, t: Tree, values: Mapping[str, IndexExpr]) -> Tree | None:
    """A copy of a tree with variables replaced; None if it never runs."""
    given = dict(values)

    def new(e: IndexExpr) -> IndexExpr:
        return lin.plain(e.substitute(given))

    match t:
        case Leaf(stmt, env):
            return Leaf(stmt, {f: new(e) for f, e in env.items()})
        case Guard(cons, body, other):
            kept = lin.tidy(Con(new(c.e), c.eq) for c in cons)
            copies, others = ([c for b in x if (c := replaced(lin, b, values)) is not None] for x in (body, other))
            if any((n := c.e.constant) is not None and (n != 0 if c.eq else n < 0) for c in kept):
                return Guard((), others) if others else None
            if not kept and len(copies) == 1:
                return copies[0]
            return Guard(kept, copies, others if kept else [])
        case Loop():
            copies = [c for b in t.body if (c := replaced(lin, b, values)) is not None]
            lows, highs = tuple(map(new, t.lows)), tuple(map(new, t.highs))
            return Loop(t.var, lows, highs, t.parallel, copies, t.tiled, t.lag)
        case Box(leaf, contraction, plain):
            copies = [c for b in plain if (c := replaced(lin, b, values)) is not None]
            return Box(Leaf(leaf.stmt, {f: new(e) for f, e in leaf.env.items()}), contraction.rewritten(new), copies)
        case Exchange(array, ranges, number):
            return Exchange(array, tuple(r.rewritten(new) for r in ranges), number)
