"""Index arithmetic: whole numbers that follow from positions and loop indices alone are indices, not data.

In ``x[np.clip(k - np.arange(n), 0, n - 1)]`` no datum says which elements are read.  So the array is a view of `x`, and its
index the expression ``max(0, k - i)``, as if the program had said so.  Nothing is compared at run time, and all that is
proved of arrows holds of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from upl_mlir.frontend.tensor import Apply, Expr, Number, Position
from upl_mlir.frontend.trace.array import Array, computed, numbers
from upl_mlir.frontend.trace.build import line
from upl_mlir.frontend.trace.node import Compute, Fill, Leaf, Loop, Operand
from upl_mlir.poly.describe import tidy
from upl_mlir.poly.expr import Div, IndexExpr, MinMax, Select, Var, divide, extremum
from upl_mlir.poly.operators import CmpOp, DivKind, Extremum

MOST_NODES = 64
"""Computations from which an index is made. Chosen, not measured: they are written out as a tree."""
MOST_CHOICES = 2
"""Minima, maxima and quotients in an index. Chosen, not measured: each divides the arrows."""

Ranges = Mapping[str, tuple[int, int]]
_EXTREMA = {"min": Extremum.MIN, "max": Extremum.MAX}
_AS_THEY_ARE = ("int", "floor", "ceil", "round", "trunc", "real", "f32", "f64", "stop_gradient")
"""What leaves a whole number as it is."""


def whole_numbers(at: Array) -> tuple[IndexExpr, tuple[int, int]] | None:
    """An array of whole numbers as an index expression over its positions, and between which numbers that lies; None where
    data take part."""
    read, ranges = at.operand(), {f"i{n}": (0, extent - 1) for n, extent in enumerate(at.shape)}
    ranges |= _loops(read)
    tree = _tree(read, [MOST_NODES])
    found = None if tree is None else _index(tree, ranges)
    if found is None:
        return None
    e = tidy(found)
    around = _between(e, ranges)
    return None if around is None else (e, around)


def by_arithmetic(a: Array, at: object, axis: int, *, wraps: bool = True) -> Array | None:
    """What an array of whole numbers chooses along an axis, as numpy's `take`, where no data take part; else None.

    None as well for a number out of bounds: who asks data says what is wrong.
    """
    found = whole_numbers(at) if isinstance(at, Array) else None
    if found is None or not isinstance(at, Array):
        return None
    (e, around), extent = found, a.shape[axis]
    if wraps and -extent <= around[0] and around[1] < 0:
        e, around = e + extent, (around[0] + extent, around[1] + extent)
    if not 0 <= around[0] <= around[1] < extent or sum(not isinstance(x, Var) for x in e.atoms()) > MOST_CHOICES:
        return None
    chosen = e.substitute({f"i{n}": f"i{axis + n}" for n in range(at.ndim)})
    index = [IndexExpr.of(f"i{n}") for n in range(axis)]
    behind = [IndexExpr.of(f"i{n + at.ndim - 1}") for n in range(axis + 1, a.ndim)]
    shown = numbers(a).view((*a.shape[:axis], *at.shape, *a.shape[axis + 1 :]), (*index, chosen, *behind))
    return computed(_itself, shown, word="take")  # a copy, as in numpy


def _itself(e: Expr) -> Expr:
    return e


def _loops(o: Operand) -> dict[str, tuple[int, int]]:
    """The ranges of the loops' indices that a value may depend on."""
    found: dict[str, Loop] = {}
    todo, seen = [o.node], set[int]()
    while todo and len(seen) < MOST_NODES:
        node = todo.pop()
        if node.number not in seen:
            seen.add(node.number)
            found |= {x.name: x for x in node.loops}
            todo += [r.node for r in node.operands] if isinstance(node, Compute) else []
    return {name: (0, x.extent - 1) for name, x in found.items()}


def _tree(o: Operand, left: list[int]) -> Expr | None:
    """An operand as an expression of positions and numbers; None if anything else is in it, or more than is `left`."""
    left[0] -= 1
    node = o.node
    if left[0] < 0:
        return None
    match node:
        case Fill():
            return Number(node.value)
        case Leaf() if node.value is not None:
            if not node.shape:
                return Number(float(node.value))
            known = line(node.value)
            return None if known is None else Position(o.index[0] * known[0] + known[1])
        case Compute() if not node.over:
            names: dict[str, IndexExpr | int | str] = {f"i{n}": e for n, e in enumerate(o.index)}
            parts = [_tree(Operand(r.node, tuple(e.substitute(names) for e in r.index)), left) for r in node.reads]
            return None if any(p is None for p in parts) else node.make(*parts)
        case _:
            return None


def _index(e: Expr, ranges: Ranges) -> IndexExpr | None:
    """An expression as one of indices."""
    match e:
        case Number(value=value):
            return IndexExpr.of(int(value)) if float(value).is_integer() else None
        case Position(e=at):
            return at
        case Apply(op="?:", args=(condition, yes, no)):
            truth = _truth(condition, ranges)
            return None if truth is None else _index(yes if truth else no, ranges)
        case Apply(op="floor", args=(inside,)) if (ratio := _ratio(inside)) is not None:
            num, den = (_index(a, ranges) for a in ratio)
            positive = den is not None and (den.constant or 0) > 0
            return divide(DivKind.FLOORDIV, num, den) if num is not None and den is not None and positive else None
        case Apply(op=op, args=args):
            values = [_index(a, ranges) for a in args]
            if any(v is None for v in values):
                return None
            return _applied(op, [v for v in values if v is not None], ranges)
        case _:
            return None


def _ratio(e: Expr) -> tuple[Expr, Expr] | None:
    """The two parts of a quotient."""
    while isinstance(e, Apply) and e.op == "stop_gradient":
        (e,) = e.args
    return (e.args[0], e.args[1]) if isinstance(e, Apply) and e.op == "/" else None


def _applied(op: str, args: Sequence[IndexExpr], ranges: Ranges) -> IndexExpr | None:
    """An operation on indices."""
    match op, args:
        case "+", (a, b):
            return a + b
        case "-", (a, b):
            return a - b
        case "neg", (a,):
            return -a
        case "*", (a, b):
            return a * b if a.constant is not None or b.constant is not None else None
        case ("min" | "max"), (a, b):
            apart = _between(a - b, ranges)
            if apart is not None and (apart[0] >= 0 or apart[1] <= 0):
                return a if (apart[0] >= 0) == (op == "max") else b
            return extremum(_EXTREMA[op], (a, b))
        case "abs", (a,):
            return _applied("max", (a, -a), ranges)
        case _, (a,) if op in _AS_THEY_ARE:
            return a
        case _:
            return None


def _truth(e: Expr, ranges: Ranges) -> bool | None:
    """Whether a condition holds everywhere, or nowhere; None if it is not known."""
    if isinstance(e, Number):
        return bool(e.value)
    if not isinstance(e, Apply):
        return None
    if e.op in ("&&", "||", "!"):
        parts = [_truth(a, ranges) for a in e.args]
        if e.op == "!":
            return None if parts[0] is None else not parts[0]
        decisive = e.op == "||"
        return decisive if decisive in parts else None if None in parts else not decisive
    if e.op not in {op.value for op in CmpOp}:
        return None
    args = [*e.args]
    ratio = _ratio(args[0])
    if ratio is not None and _index(args[1], ranges) == IndexExpr() and (_constant(ratio[1], ranges) or 0) > 0:
        args[0] = ratio[0]  # its sign is that of the numerator
    first, second = (_index(a, ranges) for a in args)
    apart = None if first is None or second is None else _between(first - second, ranges)
    if apart is None:
        return None
    # A comparison with 0 is the same between two numbers if it is at both, and at 0 if that is between them.
    points = (*apart, *((0,) if apart[0] <= 0 <= apart[1] else ()))
    found = {CmpOp(e.op).holds(x, 0) for x in points}
    return found.pop() if len(found) == 1 else None


def _constant(e: Expr, ranges: Ranges) -> int | None:
    found = _index(e, ranges)
    return None if found is None else found.constant


def _between(e: IndexExpr, ranges: Ranges) -> tuple[int, int] | None:
    """Numbers between which an index lies; None if they are not known."""
    low = high = 0
    for monomial, c in e.terms:
        if len(monomial) > 1:
            return None
        found = _of_atom(monomial[0], ranges) if monomial else (1, 1)
        if found is None:
            return None
        ends = (c * found[0], c * found[1])
        low, high = low + min(ends), high + max(ends)
    return low, high


def _of_atom(atom: object, ranges: Ranges) -> tuple[int, int] | None:
    match atom:
        case Var(name):
            return ranges.get(name)
        case MinMax(kind, args):
            found = [_between(a, ranges) for a in args]
            known = [f for f in found if f is not None]
            if len(known) < len(found):
                return None
            choose = min if kind is Extremum.MIN else max
            return choose(lo for lo, _ in known), choose(hi for _, hi in known)
        case Div(kind, num, den):
            d, around = den.constant, _between(num, ranges)
            if not d or around is None:
                return None
            return (0, d - 1) if kind is DivKind.MOD else (kind.apply(around[0], d), kind.apply(around[1], d))
        case Select():
            return None
        case _:
            return None
