# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# (xDSL leaves the types of attributes and results open)
"""Chains of steps that data end: a loop stops where no further step exists.

    for k in 2..30:  X<k-1> = f(E<k-1>);  there<k> = there<k-1> && more<k-1>;  E<k> = X<k-1>
    Y = max[there<k> && … ? X<k> : -inf for k in 1..30]
    ->
    for k in 2..30 while there<k-1>: …;  Y = max[Y; there<k-1> && … ? X<k-1> : -inf]

`there` says which steps exist: once it is false it stays so.  The loop may stop if all that it writes is read only where the
step exists that wrote it, or by such a step.  Gathers behind the loop over its steps, of which each summand asks whether the
step exists, are folded in it.  What other statements read of steps that are left out is zeros, the same in each run.

Source: an exit from a loop by a predicate of its instances (Allen, Kennedy, Porterfield and Warren 1983).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import i1
from xdsl.ir import Block, Region, SSAValue

from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.passes.loops.emit.code import INDEX, Span, name_of
from upl_mlir.passes.loops.emit.folds import Single, singles
from upl_mlir.passes.loops.emit.frame import Frame
from upl_mlir.passes.loops.emit.values import Values, neutral
from upl_mlir.passes.loops.matches import conjuncts, is_neutral
from upl_mlir.passes.loops.statements import Statement
from upl_mlir.passes.loops.terms import Apply, Fold, Get, Part, Term, inner_first, made_of
from upl_mlir.passes.loops.tree import Guard, Leaf, Loop, Tree, leaves
from upl_mlir.poly.expr import IndexExpr, Var
from upl_mlir.poly.linear import Con, Cons

Index = tuple[IndexExpr, ...]


@dataclass(frozen=True, eq=False)
class Chain:
    """The loop's iteration exists if the element `index` of the array `there` is true.

    `folds` are folded in the loop, each with its iterator by the loop's variable, where the constraints hold.  `cleared` are
    the arrays of which others read behind the loop, `preset` elements that they read.
    """

    there: str
    index: Index
    folds: tuple[tuple[Single, Cons], ...]
    cleared: frozenset[str]
    preset: tuple[tuple[str, Index], ...]


def chain_of(values: Values, t: Loop, behind: Sequence[object]) -> Chain | None:
    """What says which iterations of a loop exist, if those behind the last one may be left out; `behind` stands after it."""
    f = values.f
    if not f.program.compared or t.parallel or any(a.private == t.var for a in f.arrays.values()):
        return None
    own = list(_leaves(t.body))
    if len(own) != len(list(leaves(t.body))) or f.program.tree is None:
        return None
    written = {leaf.stmt.array: leaf for leaf in own}
    if len(written) != len(own) or any(h.output and h.name in written for h in f.hosts):
        return None
    for leaf in own:
        index = _before(f, t, leaf)
        if index is None:
            continue
        folds = tuple(_folds(values, t, leaf, index, written, behind))
        found = _free(f, t, leaf, index, written, {one.part for one, _ in folds})
        if found is not None:
            return Chain(leaf.stmt.array, index, folds, *found)
    return None


def _folds(
    values: Values, t: Loop, there: Leaf, index: Index, written: Mapping[str, Leaf], behind: Sequence[object]
) -> Iterator[tuple[Single, Cons]]:
    """The parts of folds behind a loop, over steps of it, that may be folded in it, and when."""
    f, x = values.f, IndexExpr.of(t.var)
    made: set[str] = set()
    for leaf in behind:
        if not isinstance(leaf, Leaf):
            return
        for (lows, highs), one in singles(values, leaf, made):
            shift = (t.lows[0] - lows[0]).constant if len(lows) == 1 else None
            if shift is None:
                continue
            k = x - shift
            inside = tuple(Con(b - k) for b in highs)
            within = (*f.code.scope.context, *(Con(x - b) for b in t.lows), *inside)
            env = {**one.env, one.part.dims[0]: k}
            all_there = all(f.lin.implies(within, Con(b - x)) for b in t.highs)
            if all_there and _only_there(f, t, one.fold, one.part, env, there, index, written):
                context = (*f.code.scope.context, *t.context)
                yield Single(one.fold, one.part, env, one.env), tuple(c for c in inside if not f.lin.implies(context, c))
        made.add(leaf.stmt.array)


def _only_there(
    f: Frame, t: Loop, fold: Fold, part: Part, env: Mapping[str, IndexExpr], there: Leaf, index: Index,
    written: Mapping[str, Leaf],
) -> bool:  # fmt: skip
    """Whether a summand changes nothing where the step does not exist, and reads nothing that later steps write."""
    body, x = part.body, IndexExpr.of(t.var)
    if not isinstance(body, Apply) or not isinstance(body.op, arith.SelectOp) or not is_neutral(body.args[2], fold):
        return False

    def at(g: Get) -> Index:
        return tuple(f.lin.plain(e.substitute(dict(env))) for e in g.index)

    if not any(isinstance(g, Get) and g.array == there.stmt.array and at(g) == index for g in conjuncts(body.args[0])):
        return False
    for g in inner_first(body, made_of):
        if isinstance(g, Fold):
            return False
        if isinstance(g, Get) and g.array in written and g.array != there.stmt.array:
            step = _step(f, written[g.array], at(g)).get(t.var)
            late = None if step is None else (x - step).constant
            if late is None or late < 0:
                return False
        elif isinstance(g, Get) and g.array == there.stmt.array and at(g) != index:
            return False
    return True


def _leaves(trees: Sequence[Tree]) -> Iterator[Leaf]:
    """The statements of a loop that has no loops inside."""
    for t in trees:
        if isinstance(t, Leaf):
            yield t
        elif isinstance(t, Guard):
            yield from _leaves((*t.body, *t.other))


def _before(f: Frame, t: Loop, leaf: Leaf) -> Index | None:
    """The element on which an iteration's element of truth values depends: it is false if that one is."""
    s, lin = leaf.stmt, f.lin
    if s.term.kind is not Kind.BOOL or not isinstance(s.term, Apply):
        return None
    x = IndexExpr.of(t.var)
    mine = [lin.plain(leaf.env[n]) for n in s.fields]
    for g in conjuncts(s.term):
        if not isinstance(g, Get) or g.array != s.array:
            continue
        index = tuple(lin.plain(e.substitute(leaf.env)) for e in g.index)
        back = [lin.plain(a.substitute({t.var: x - 1})) for a in mine]
        if list(index) == back and list(index) != mine and _made(f, t, leaf, index):
            return index
    return None


def _made(f: Frame, t: Loop, leaf: Leaf, index: Index) -> bool:
    """Whether the element that says whether an iteration exists is there for all iterations, made by the one before or, for
    the first one, before the loop."""
    lin, s, x = f.lin, leaf.stmt, IndexExpr.of(t.var)
    context = (*f.code.scope.context, *t.context)
    if len(t.lows) != 1:
        return False
    at = dict(zip(s.fields, index, strict=True))

    def implied(where: Cons, cons: Cons, values: Mapping[str, IndexExpr]) -> bool:
        return all(lin.implies(where, Con(lin.plain(c.e.substitute(dict(values))), c.eq)) for c in cons)

    later, first = (*context, Con(x - t.lows[0] - 1)), (*context, Con(x - t.lows[0], True))
    others = [p for p in f.system.equations[s.array].pieces if p[1] is not s.term]
    return (
        implied(later, s.cons, at) and implied(first, s.cons, leaf.env)
        and any(implied(first, cons, at) for cons, _ in others)
    )  # fmt: skip


def _free(
    f: Frame, t: Loop, there: Leaf, index: Index, written: Mapping[str, Leaf], folded: Collection[Part]
) -> tuple[frozenset[str], tuple[tuple[str, Index], ...]] | None:
    """The arrays of a loop that are read behind it, other than by what is folded in it, and elements of which this is all
    that is read, if each read is by a step that exists, or is of the truth values."""
    cleared: set[str] = set()
    preset: dict[tuple[str, Index], None] = {}
    inside = {leaf.stmt for leaf in written.values()}
    assert f.program.tree is not None
    for leaf, _ in leaves(f.program.tree):
        mine = leaf.stmt in inside
        for g, gates in _reads(leaf.stmt, folded):
            if g.array not in written:
                continue
            if not mine:
                one = tuple(f.lin.plain(e.substitute(leaf.env)) for e in g.index)
                if _one_step(f, t, written[g.array], one):
                    preset[g.array, one] = None
                else:
                    cleared.add(g.array)
            if g.array == there.stmt.array:
                continue
            values: Mapping[str, IndexExpr] = leaf.env if mine else {}
            read = tuple(f.lin.plain(e.substitute(dict(values))) for e in g.index)
            those = [h for h in gates if h.array == there.stmt.array]
            asked = [tuple(f.lin.plain(e.substitute(dict(values))) for e in h.index) for h in those]
            if mine:
                asked.append(index)
            if not any(_exists(f, t, written[g.array], index, read, h) for h in asked):
                return None
    return frozenset(cleared), tuple(p for p in preset if p[0] not in cleared)


def _one_step(f: Frame, t: Loop, writer: Leaf, read: Index) -> bool:
    """Whether an element, whose index is known before the loop, is one that the loop writes or leaves out."""
    names = {n for e in read for n in e.names}
    x = _step(f, writer, read).get(t.var)
    if x is None or any(f.code.scope.find(IndexExpr.of(n)) is None for n in names):
        return False
    context = f.code.scope.context
    return all(f.lin.implies(context, c) for c in (*(Con(x - b) for b in t.lows), *(Con(b - x) for b in t.highs)))


def _exists(f: Frame, t: Loop, writer: Leaf, index: Index, read: Index, asked: Index) -> bool:
    """Whether the step that writes an element, which is read, exists if an element of the truth values is true."""
    at = _step(f, writer, read)
    names = {n for e in index for n in e.names} - {*f.lin.ctx.params, *f.lin.ctx.constants}
    if not names <= at.keys():
        return False
    for e, h in zip(index, asked, strict=True):
        k = dict(e.terms).get((Var(t.var),), 0)
        later = f.lin.plain(h - e.substitute(at)).constant
        if later is None or (later != 0 if k == 0 else later * k < 0):
            return False
    return True


def _step(f: Frame, writer: Leaf, read: Index) -> dict[str, IndexExpr]:
    """The variables of the loops at which an element is written, as far as its index says."""
    at: dict[str, IndexExpr] = {}
    for name, e in zip(writer.stmt.fields, read, strict=True):
        mine = f.lin.plain(writer.env[name])
        for m, k in mine.terms:
            if len(m) == 1 and isinstance(m[0], Var) and abs(k) == 1:
                rest = mine - IndexExpr.of(m[0].name) * k
                if rest.constant is not None:
                    at[m[0].name] = (e - rest) * k
    return at


def _reads(s: Statement, folded: Collection[Part]) -> Iterator[tuple[Get, tuple[Get, ...]]]:
    """The elements that a statement reads otherwise than by some parts of folds, each with the truth values without which
    it does not matter."""
    stack: list[tuple[Term, tuple[Get, ...]]] = [(s.term, ())]
    seen: set[tuple[Term, tuple[Get, ...]]] = set()
    while stack:
        t, gates = stack.pop()
        if (t, gates) in seen:
            continue
        seen.add((t, gates))
        match t:
            case Get():
                yield t, gates
            case Apply(_, arith.SelectOp(), (cond, yes, no)):
                stack += [(cond, gates), (no, gates), (yes, (*gates, *_gets(conjuncts(cond))))]
            case Apply(_, arith.AndIOp(), _):
                terms = list(conjuncts(t))
                stack += [(c, (*gates, *_gets(o for o in terms if o is not c))) for c in terms]
            case Fold(_, _, parts):
                stack += [(p.body, gates) for p in parts if p not in folded]
            case _:
                stack += [(a, gates) for a in made_of(t)]


def _gets(terms: Iterator[Term]) -> Iterator[Get]:
    return (t for t in terms if isinstance(t, Get))


def write_chain(values: Values, t: Loop, chain: Chain, inside: Callable[[], None]) -> None:
    """Write a loop that ends where no further step exists; `inside` writes an iteration.  `values` knows the folds then."""
    f, code, x = values.f, values.code, IndexExpr.of(t.var)
    for array, index in chain.preset:
        _zero(f, array, index)
    whole = code.span(t.lows, t.highs)
    starts = [neutral(code, one.fold) for one, _ in chain.folds]
    types = [INDEX, *(v.type for v in starts)]
    code.reach.enter(t.var, t.lows, t.highs)
    test, work = Block(arg_types=types), Block(arg_types=types)
    for block in (test, work):
        block.args[0].name_hint = name_of(t.var)

    def ask() -> None:
        def read() -> Sequence[SSAValue]:
            code.scope.known[x] = test.args[0]
            return [f.load(chain.there, chain.index)]

        more = code.add(arith.CmpiOp(test.args[0], whole.behind, "slt"))
        (on,) = code.when(more, t.context, [i1], read, lambda: [code.constant(0, i1)])
        code.emit(scf.ConditionOp(on, *test.args))

    def step() -> None:
        at, *accs = work.args
        code.scope.known[x] = at
        code.scope.known["element", chain.there, chain.index] = code.constant(1, i1)
        inside()
        after = [folded(one, cons, acc) for (one, cons), acc in zip(chain.folds, accs, strict=True)]
        code.emit(scf.YieldOp(code.add(arith.AddiOp(at, code.constant(1, INDEX))), *after))

    def folded(one: Single, cons: Cons, acc: SSAValue) -> SSAValue:
        if not cons:
            return values.summand(one.fold, one.part, one.env, acc)
        (out,) = code.when(
            code.all(cons), cons, [acc.type], lambda: [values.summand(one.fold, one.part, one.env, acc)], lambda: [acc]
        )
        return out

    code.inside(test, write=ask)
    code.inside(work, t.context, write=step)
    op = scf.WhileOp([whole.first, *starts], types, Region(test), Region(work))
    code.emit(op)
    end, *found = op.res
    for (one, _), v in zip(chain.folds, found, strict=True):
        values.know(one.part, one.outside or one.env, v)
    if chain.cleared:
        rest = Span(end, whole.behind, whole.facts)
        code.loop(t.var, t.lows, t.highs, [], lambda _: (_clear(f, t.body, chain), ())[1], rest)


def _clear(f: Frame, trees: Sequence[Tree], chain: Chain) -> None:
    """Zeros for what an iteration that is left out would have written."""
    code = f.code
    for t in trees:
        if isinstance(t, Leaf) and t.stmt.array in chain.cleared:
            _zero(f, t.stmt.array, tuple(f.lin.plain(t.env[n]) for n in t.stmt.fields))
        elif isinstance(t, Guard):
            other = (lambda t=t: (_clear(f, t.other, chain), ())[1]) if t.other else None
            code.when(code.all(t.cons), t.cons, (), lambda t=t: (_clear(f, t.body, chain), ())[1], other)


def _zero(f: Frame, array: str, index: Index) -> None:
    zero = f.code.constant(0, f.arrays[array].kind.mlir)
    f.code.emit(memref.StoreOp.get(zero, f.values_of[array], f.place(array, index)))
