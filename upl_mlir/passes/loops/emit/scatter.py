# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Gathers whose elements data choose, for all elements at once: an array is filled, and added to as the summands come.

Several such gathers that stand together and whose summands come by the same loops are added to in one loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from xdsl.dialects import arith, memref
from xdsl.ir import SSAValue

from upl_mlir.dialects.upl import Gather
from upl_mlir.passes.loops import terms
from upl_mlir.passes.loops.emit.folds import Single, share, singles
from upl_mlir.passes.loops.emit.frame import Frame
from upl_mlir.passes.loops.emit.generic import Writer
from upl_mlir.passes.loops.emit.values import Values, identity, neutral
from upl_mlir.passes.loops.matches import Match, taken
from upl_mlir.passes.loops.statements import adds_to
from upl_mlir.passes.loops.terms import inner_first, made_of, names_in
from upl_mlir.passes.loops.tree import Box, Leaf, Loop, Tree, leaves
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Cons


@dataclass(frozen=True, eq=False)
class _Summands:
    """What one arrow adds: to which array, at `index`, where the fields that data choose are `matches`."""

    box: Box
    part: terms.Part
    matches: tuple[Match, ...]
    cons: Cons

    @property
    def fold(self) -> terms.Fold:
        """The gather."""
        assert isinstance(self.box.leaf.stmt.term, terms.Fold)
        return self.box.leaf.stmt.term


def is_scatter(box: Box) -> bool:
    """Whether a box is a gather whose elements data choose."""
    return not box.contraction.terms


def together(
    f: Frame, values: Values, trees: Sequence[Tree], begun: Mapping[Box, int] | None = None
) -> list[Tree | Together]:
    """The trees; gathers whose elements data choose share a loop with others over the same values where they can, and with
    parallel loops and folds of single elements.  Of boxes that are `begun` so many loops are there already."""
    begun = begun or {}
    out: list[Tree | Together] = []
    left = list(trees)
    while left:
        t = left.pop(0)
        ends = _ends(f, t, begun)
        if ends is None or not (begun or isinstance(t, Box)):
            out.append(t)
            continue
        group: list[Tree] = [t]
        passed: list[Tree] = []
        folds: list[Single] = []
        for u in left:
            if isinstance(u, Leaf):
                written = _written([*group, *passed])
                folds += [one for at, one in singles(values, u, written) if at == ends]
            if _ends(f, u, begun) == ends and not any(_depend(u, x) for x in (*group, *passed)):
                group.append(u)
            else:
                passed.append(u)
        if not any(isinstance(u, Box) for u in group):  # plain loops are as the schedule has them
            out.append(t)
            continue
        shared = len(group) > 1 or folds
        out.append(Together(tuple(group), *ends, tuple(folds), begun) if shared else t)
        left = [u for u in left if u not in group]
    return out


@dataclass(frozen=True, eq=False)
class Together:
    """Boxes of which `is_scatter` holds, and parallel loops, that share a loop with these bounds; and folds of statements
    that come later."""

    members: tuple[Tree, ...]
    lows: tuple[IndexExpr, ...]
    highs: tuple[IndexExpr, ...]
    folds: tuple[Single, ...]
    begun: Mapping[Box, int]


def _ends(f: Frame, t: Tree, begun: Mapping[Box, int]) -> tuple[tuple[IndexExpr, ...], tuple[IndexExpr, ...]] | None:
    """The bounds of the loop of a tree that may share it."""
    match t:
        case Loop(var=var, lows=lows, highs=highs, parallel=True):
            return None if any(a.private == var for a in f.arrays.values()) else (lows, highs)
        case Box() if is_scatter(t) and len(t.contraction.fold.parts) == 1:
            s = _summands(f, t, t.contraction.fold.parts[0])
            dims = s.part.dims[begun.get(t, 0) :]
            if not dims:
                return None
            lows, highs = f.limits(s.cons, (*dims, *(r.var for r in t.contraction.fields)))
            return tuple(lows), tuple(highs)
        case _:
            return None


def _depend(a: Tree, b: Tree) -> bool:
    """Whether two trees read or write what the other one writes."""
    reads, writes = zip(*((
        {g.array for leaf, _ in leaves([t]) for g in inner_first(leaf.stmt.term, made_of) if isinstance(g, terms.Get)},
        _written([t]),
    ) for t in (a, b)), strict=True)  # fmt: skip
    return bool(writes[0] & (reads[1] | writes[1]) or writes[1] & reads[0])


def _written(trees: Sequence[Tree]) -> set[str]:
    return {leaf.stmt.array for leaf, _ in leaves(trees)}


def write_together(f: Frame, values: Values, t: Together, body: Callable[[Sequence[Tree]], None]) -> None:
    """Fill the arrays, then one loop for all, and inside of it again what can share one; `body` writes trees."""
    code = f.code
    boxes = [m for m in t.members if isinstance(m, Box)]
    for box in boxes:
        if box not in t.begun:
            Writer(f, box.leaf.stmt.array, box.contraction).zeros(_start(f, box))
    begun = {box: t.begun.get(box, 0) + 1 for box in boxes}

    def variable(m: Tree) -> str:
        assert isinstance(m, Box | Loop)
        return m.var if isinstance(m, Loop) else m.contraction.fold.parts[0].dims[begun[m] - 1]

    def inside() -> None:
        at = code.index(IndexExpr.of(var))
        with ExitStack() as same:
            for m in t.members:
                same.enter_context(code.taken_for(IndexExpr.of(variable(m)), at, t.lows, t.highs))
            trees = [x for m in t.members for x in (m.body if isinstance(m, Loop) else [m])]
            for x in together(f, values, _leaves_last(trees), begun):
                match x:
                    case Together():
                        write_together(f, values, x, body)
                    case Box() if x in begun:
                        _add(f, values, _summands(f, x, x.contraction.fold.parts[0]), outer=begun[x])
                    case _:
                        body([x])

    var = variable(boxes[0])
    share(values, var, (t.lows, t.highs), t.folds, inside)


def _leaves_last(trees: Sequence[Tree]) -> list[Tree]:
    """The trees, single elements that need no others of them, nor are needed, behind those: their folds share loops then."""
    last = [t for t in trees if isinstance(t, Leaf) and not any(_depend(t, x) for x in trees if x is not t)]
    return [*(t for t in trees if t not in last), *last]


def write_scatter(f: Frame, values: Values, box: Box) -> None:
    """Write a box of which `is_scatter` holds."""
    own = _own(f, box)
    if own is None:
        Writer(f, box.leaf.stmt.array, box.contraction).zeros(_start(f, box))
    for n, part in enumerate(box.contraction.fold.parts):
        if n != own:
            _add(f, values, _summands(f, box, part))


def _own(f: Frame, box: Box) -> int | None:
    """The number of the part that is the element itself before it is added to, and is in its place already."""
    at = adds_to(box.leaf.stmt)
    if at is None:
        return None
    part = box.contraction.fold.parts[at]
    assert isinstance(part.body, terms.Get)
    before = [e.substitute(dict(box.leaf.env)) for e in part.body.index]
    for x in f.arrays[box.leaf.stmt.array].axes:
        shift = f.lin.plain(before[x.at] - box.contraction.index[x.at]).constant
        if shift is None or (shift % x.modulus if x.modulus else shift):
            return None
    return at


def _start(f: Frame, box: Box) -> SSAValue:
    """What the elements start from."""
    fold, code = box.contraction.fold, f.code
    signed = f.program.ordered or fold.gather is not Gather.SUM
    start = neutral(code, fold) if signed else code.constant(identity(fold.gather, fold.kind), fold.kind.mlir)
    if fold.counted is None:
        return start
    count = f.lin.plain(fold.counted.substitute(dict(box.leaf.env)))
    empty = code.constant(identity(fold.gather, fold.kind), fold.kind.mlir)
    return code.add(arith.SelectOp(code.holds(Con(-count)), empty, start))


def _summands(f: Frame, box: Box, part: terms.Part) -> _Summands:
    left = [r.var for r in box.contraction.fields]
    part, matches = taken(box.contraction.fold, part, left)
    cons = f.lin.tidy(Con(f.lin.plain(c.e.substitute(dict(box.leaf.env))), c.eq) for c in (*box.leaf.stmt.cons, *part.cons))
    return _Summands(box, part, matches, cons)


def _add(f: Frame, values: Values, s: _Summands, *, outer: int = 0) -> None:
    """The loops of the summands, and inside of them those of the fields that data do not choose (as far as no index that
    they choose is that of such a field).  The first `outer` loops are there already."""
    code, env = f.code, s.box.leaf.env
    chosen = {m.name: m for m in s.matches}
    others = [r.var for r in s.box.contraction.fields if r.var not in chosen]
    needed = {n for m in s.matches for n in names_in(m.value)}
    before, behind = ([n for n in others if (n in needed) is first] for first in (True, False))
    names = (*s.part.dims, *before, *chosen, *behind)

    def level(left: Sequence[str]) -> None:
        if not left:
            _tested(f, values, s)
            return
        name, rest = left[0], left[1:]
        lows, highs = f.limits(s.cons, left)
        if name not in chosen:
            code.loop(name, lows, highs, [], lambda _: (level(rest), ())[1])
            return
        x = IndexExpr.of(name)
        at = values.chosen(chosen[name], env)
        code.reach.enter(name, lows, highs)
        context = (*(Con(x - b) for b in lows), *(Con(b - x) for b in highs))

        def inside() -> Sequence[SSAValue]:
            code.scope.known[x] = at
            level(rest)
            return ()

        code.when(code.between(at, lows, highs), context, (), inside)

    level(names[outer:])


def _tested(f: Frame, values: Values, s: _Summands) -> None:
    """One summand, where the loops' bounds do not say that it is one."""
    code, array = f.code, s.box.leaf.stmt.array
    open_ = tuple(c for c in s.cons if not f.lin.implies(code.scope.context, c))

    def add() -> Sequence[SSAValue]:
        place = f.place(array, s.box.contraction.index)
        before = code.add(memref.LoadOp.get(f.values_of[array], place))
        after = values.summand(s.fold, s.part, s.box.leaf.env, before)
        code.emit(memref.StoreOp.get(after, f.values_of[array], place))
        return ()

    if open_ or s.part.guards:
        cond = code.all(open_)
        if s.part.guards:
            cond = code.add(arith.AndIOp(cond, code.any(s.part.guards)))
        code.when(cond, open_, (), add)
    else:
        add()


