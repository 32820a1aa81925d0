"""Loops, conditions, memory and products as C statements."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from xdsl.dialects import func, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr

from upl_mlir.engines.native.c.c_expressions import ATOM, PLUS, Expr, c_type
from upl_mlir.engines.native.c.c_products import square_of, write_squares
from upl_mlir.engines.native.c.c_writer import Array, Writer, plus, times
from upl_mlir.engines.native.products.affine import linear
from upl_mlir.engines.native.signature import is_written


# -- control -----------------------------------------------------------------------------------------------------
def _for(w: Writer, op: scf.ForOp) -> None:
    iv, *args = op.body.block.args
    names = [
        w.variable(r if r.name_hint else a, s) for r, a, s in zip(op.res, args, w.exprs(op.iter_args), strict=True)
    ]
    w.values.update({a: Expr(n) for a, n in zip(args, names, strict=True)})
    with _counting(w, iv, *w.exprs((op.lb, op.ub, op.step))):
        after = w.body(op.body.block)
        w.assign(names, after, [a.type for a in args])
    w.values.update({r: Expr(n) for r, n in zip(op.res, names, strict=True)})
    _unused(w, op.res, names)


@contextmanager
def _counting(w: Writer, iv: SSAValue, lower: Expr, upper: Expr, step: Expr) -> Generator[None]:
    """A counting loop around what the `with` writes."""
    name = w.name(iv.name_hint, "i")
    w.taken[-1].discard(name)
    up = f"++{name}" if step.text == "1" else f"{name} += {step.text}"
    with w.block(f"for (int64_t {name} = {lower.text}; {name} < {upper.at(PLUS)}; {up})"):
        w.taken[-1].add(name)
        w.values[iv] = Expr(name)
        yield


def _unused(w: Writer, results: Sequence[SSAValue], names: Sequence[str]) -> None:
    """Variables that are only set would be warned of."""
    for r, n in zip(results, names, strict=True):
        if not r.uses:
            w.line(f"(void){n};")


def _if(w: Writer, op: scf.IfOp) -> None:
    names = [w.variable(r, None, "chosen") for r in op.output]
    types = [r.type for r in op.output]
    otherwise = bool(op.false_region.blocks) and len(list(op.false_region.block.ops)) > (0 if names else 1)
    condition = w.expr(op.cond).text
    with w.block(f"if ({condition})", "} else {" if otherwise else "}"):
        w.assign(names, w.body(op.true_region.block), types)
    if otherwise:
        w.depth += 1
        w.taken.append(set())
        w.heap.append([])
        w.assign(names, w.body(op.false_region.block), types)
        for name in w.heap.pop():
            w.line(f"free({name});")
        w.taken.pop()
        w.depth -= 1
        w.line("}")
    w.values.update({r: Expr(n) for r, n in zip(op.output, names, strict=True)})
    _unused(w, op.output, names)


def _while(w: Writer, op: scf.WhileOp) -> None:
    test, work = op.before_region.block, op.after_region.block
    state = [w.variable(a, s, "state") for a, s in zip(test.args, w.exprs(op.arguments), strict=True)]
    names = [w.variable(a, None, "now") for a in work.args]
    w.values.update({a: Expr(n) for a, n in zip(test.args, state, strict=True)})
    w.values.update({a: Expr(n) for a, n in zip(work.args, names, strict=True)})
    with w.block("for (;;)"):
        condition, *handed = w.body(test)
        w.assign(names, handed, [a.type for a in work.args])
        w.line(f"if (!{condition.at(ATOM)}) break;")
        w.assign(state, w.body(work), [a.type for a in test.args])
    w.values.update({r: Expr(n) for r, n in zip(op.res, names, strict=True)})
    _unused(w, op.res, names)


def _parallel(w: Writer, op: scf.ParallelOp) -> None:
    w.line("/* the iterations of this loop are independent of each other */")
    bounds = [w.exprs(x) for x in (op.lowerBound, op.upperBound, op.step)]

    def nest(d: int) -> None:
        if d == len(op.lowerBound):
            w.body(op.body.block)
            return
        with _counting(w, op.body.block.args[d], *(b[d] for b in bounds)):
            nest(d + 1)

    nest(0)


# -- memory ------------------------------------------------------------------------------------------------------
def _load(w: Writer, op: memref.LoadOp) -> None:
    text = w.array(op.memref).element_at(w.exprs(op.indices))
    w.define(op.res, Expr(text, ATOM, reads=True))


def _store(w: Writer, op: memref.StoreOp) -> None:
    target = w.array(op.memref).element_at(w.exprs(op.indices))
    assign(w, target, w.expr(op.value).text)


def assign(w: Writer, target: str, value: str) -> None:
    """Write an assignment to an element; `x = x + y` as `x += y`."""
    start = f"{target} + "
    rest = value.removeprefix(start)
    if value.startswith(start) and _is_one_term(rest):
        w.line(f"{target} += {rest};")
    else:
        w.line(f"{target} = {value};")


def _is_one_term(text: str) -> bool:
    """Whether a text has no sum outside parentheses and brackets: adding it is one addition."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if not depth and c in "+-?<>=|&^" and i:
            return False
    return True


def _alloc(w: Writer, op: memref.AllocOp | memref.AllocaOp) -> None:
    t = op.memref.type
    sizes = _sizes(t, w.exprs(op.dynamic_sizes))
    name, element = w.name(op.memref.name_hint, "scratch"), c_type(t.element_type)
    total = Expr(f"(int64_t)sizeof(*{name})")
    for size in sizes:
        total = times(total, size)
    w.helpers.add("scratch")
    w.line(f"{element} *restrict const {name} = scratch({total.text});")
    w.heap[-1].append(name)
    w.values[op.memref] = Array(name, element, sizes)


def _sizes(t: MemRefType[Attribute], dynamic: Sequence[Expr]) -> tuple[Expr, ...]:
    rest = iter(dynamic)
    return tuple(next(rest) if n == DYNAMIC_INDEX else Expr(str(n)) for n in t.get_shape())


def _dim(w: Writer, op: memref.DimOp) -> None:
    w.values[op.result] = w.array(op.source).sizes[int(w.expr(op.index).text)]


def _strides(a: Array) -> tuple[Expr, ...]:
    if a.strides is not None:
        return a.strides
    out = [Expr("1")]
    for size in reversed(a.sizes[1:]):
        out.append(times(size, out[-1]))
    return tuple(reversed(out)) if a.sizes else ()


def _subview(w: Writer, op: memref.SubviewOp) -> None:
    source = w.array(op.source)

    def listed(fixed: Any, given: Sequence[SSAValue]) -> list[Expr]:
        rest = iter(given)
        return [w.expr(next(rest)) if n == DYNAMIC_INDEX else Expr(str(n)) for n in fixed.get_values()]

    offsets = listed(op.static_offsets, op.offsets)
    sizes, steps = listed(op.static_sizes, op.sizes), listed(op.static_strides, op.strides)
    strides = [times(a, b) for a, b in zip(_strides(source), steps, strict=True)]
    kept = list(range(len(sizes)))
    target = op.result.type
    assert isinstance(target, MemRefType)
    extra = len(sizes) - target.get_num_dims()
    dropped = [i for i in kept if sizes[i].text == "1"][:extra]
    kept = [i for i in kept if i not in dropped]
    name = w.name(op.result.name_hint, f"{source.name}_part")
    constant = "const " if _is_constant(w, op.source) else ""
    w.line(f"{constant}{source.element} *const {name} = &{source.element_at(offsets)};")
    w.values[op.result] = Array(name, source.element, tuple(sizes[i] for i in kept), tuple(strides[i] for i in kept))


def _is_constant(w: Writer, value: SSAValue) -> bool:
    return isinstance(value.owner, memref.GetGlobalOp) or not is_written(value)


def _copy(w: Writer, op: memref.CopyOp) -> None:
    source, target = w.array(op.source), w.array(op.destination)
    with _dimensions(w, [(None, n) for n in source.sizes]) as index:
        w.line(f"{target.element_at(index)} = {source.element_at(index)};")


@contextmanager
def _dimensions(w: Writer, dims: Sequence[tuple[str | None, Expr]]) -> Generator[list[Expr]]:
    """Loops from 0 to the sizes; gives the indices."""
    if not dims:
        yield []
        return
    (hint, size), *rest = dims
    name = w.name(hint, "i")
    w.taken[-1].discard(name)
    with w.block(f"for (int64_t {name} = 0; {name} < {size.at(PLUS)}; ++{name})"):
        w.taken[-1].add(name)
        with _dimensions(w, rest) as inner:
            yield [Expr(name), *inner]


def _affine(expr: AffineExpr, index: Sequence[Expr]) -> Expr:
    """An index expression of a product."""
    coefficients, constant = linear(expr, len(index))
    total = Expr("0")
    for factor, i in zip(coefficients, index, strict=True):
        if factor:
            total = plus(total, times(Expr(str(factor)), i))
    return plus(total, Expr(str(constant)))


LETTERS = "ijklmnopqrstuvwxyz"


def _generic(w: Writer, op: GenericOp) -> None:
    maps = [a.data for a in op.indexing_maps]
    arrays = [w.array(v) for v in (*op.inputs, *op.outputs)]
    sizes: dict[int, Expr] = {}
    for array, m in zip(arrays, maps, strict=True):
        for axis, expr in enumerate(m.results):
            if isinstance(expr, AffineDimExpr):
                sizes.setdefault(expr.position, array.sizes[axis])
    kinds = [kind.data for kind in op.iterator_types]
    order = sorted(range(len(kinds)), key=lambda d: kinds[d] == IteratorType.REDUCTION)  # sums innermost
    square = square_of(op)
    if square is not None:
        outer = [d for d in order if kinds[d] != IteratorType.REDUCTION and d not in (square.row, square.column)]
        with _dimensions(w, [(LETTERS[d % len(LETTERS)], sizes[d]) for d in outer]) as made:
            at = [made[outer.index(d)] if d in outer else Expr("0") for d in range(len(order))]

            def element(which: int, at: Sequence[Expr]) -> str:
                return arrays[which].element_at([_affine(expr, at) for expr in maps[which].results])

            sums = [d for d in order if kinds[d] == IteratorType.REDUCTION]
            write_squares(w, square, arrays[2].element, sizes, sums, at, element)
        return
    with _dimensions(w, [(LETTERS[d % len(LETTERS)], sizes[d]) for d in order]) as made:
        index = [made[order.index(d)] for d in range(len(order))]
        places = [[_affine(expr, index) for expr in m.results] for m in maps]
        for arg, array, place in zip(op.body.block.args, arrays, places, strict=True):
            w.values[arg] = Expr(array.element_at(place), ATOM, reads=True)
        limit, w.limit = w.limit, 1000  # one statement is what is expected here, however long
        results = w.body(op.body.block)
        w.limit = limit
        targets = list(zip(arrays, places, strict=True))[-len(results) :]
        for (array, place), value in zip(targets, results, strict=True):
            assign(w, array.element_at(place), value.text)


def _fill(w: Writer, op: FillOp) -> None:
    array = w.array(op.outputs[0])
    with _dimensions(w, [(None, n) for n in array.sizes]) as index:
        w.line(f"{array.element_at(index)} = {w.expr(op.inputs[0]).text};")


def _cast(w: Writer, op: memref.CastOp) -> None:
    w.values[op.dest] = w.array(op.source)


def _collapse(w: Writer, op: memref.CollapseShapeOp) -> None:
    source, total = w.array(op.src), Expr("1")
    for size in source.sizes:
        total = times(total, size)
    w.values[op.result] = Array(source.name, source.element, (total,))


def _get_global(w: Writer, op: memref.GetGlobalOp) -> None:
    w.values[op.memref] = w.tables[op.name_.root_reference.data]


def _nothing(w: Writer, op: Operation) -> None:
    """Scratch is freed at the end of its block."""


STATEMENTS: dict[type[Operation], Callable[[Writer, Any], None]] = {
    scf.ForOp: _for,
    scf.IfOp: _if,
    scf.WhileOp: _while,
    scf.ParallelOp: _parallel,
    memref.LoadOp: _load,
    memref.StoreOp: _store,
    memref.AllocOp: _alloc,
    memref.AllocaOp: _alloc,
    memref.DeallocOp: _nothing,
    memref.DimOp: _dim,
    memref.SubviewOp: _subview,
    memref.CopyOp: _copy,
    memref.CastOp: _cast,
    memref.CollapseShapeOp: _collapse,
    memref.GetGlobalOp: _get_global,
    GenericOp: _generic,
    FillOp: _fill,
    func.ReturnOp: _nothing,
}
