"""Loops, conditions, memory and products as C statements."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr

from upl_mlir.diagnostics import error
from upl_mlir.engines.native.c.c_expressions import ATOM, PAIRS, PLUS, ROWS, Expr, c_type, literal
from upl_mlir.engines.native.c.c_products import square_of, write_squares
from upl_mlir.engines.native.c.c_writer import Array, Writer, plus, times
from upl_mlir.engines.native.products.affine import linear
from upl_mlir.engines.native.signature import is_written
from upl_mlir.engines.native.walk import Walk

LETTERS = "ijklmnopqrstuvwxyz"


class FunctionWriter(Writer, Walk[Expr, Array]):
    """Writes each operation of a function."""

    def compute(self, op: Operation) -> bool:
        operands = self.scalars(op.operands) if type(op) in ROWS or type(op) in PAIRS else []
        reads = any(x.reads for x in operands)
        if isinstance(op, arith.ConstantOp):
            self.values[op.result] = literal(op)
        elif type(op) in ROWS:
            text, level = ROWS[type(op)](op, operands)
            self.define(op.results[0], Expr(text, level, reads))
        elif type(op) in PAIRS:
            for result, text in zip(op.results, PAIRS[type(op)], strict=True):
                self.define(result, Expr(text.format(*(x.text for x in operands)), ATOM, reads))
        else:
            return False
        return True

    def exchange(self, op: func.CallOp) -> None:
        message = "C code of a program for several ranks is made of its schedule, which the module has no longer"
        raise error("UPL1820", message, help="leave out `--lower-loops`")

    def unknown(self, op: Operation) -> Exception:
        return error("UPL1820", f"C code does not know the operation `{op.name}`")

    # -- control -----------------------------------------------------------------------------------------------------
    def for_loop(self, op: scf.ForOp) -> None:
        iv, *args = op.body.block.args
        starts = zip(op.res, args, self.scalars(op.iter_args), strict=True)
        names = [self.variable(r if r.name_hint else a, s) for r, a, s in starts]
        self.values.update({a: Expr(n) for a, n in zip(args, names, strict=True)})
        with self._counting(iv, *self.scalars((op.lb, op.ub, op.step))):
            after = self.body(op.body.block)
            self.assign(names, after, [a.type for a in args])
        self.values.update({r: Expr(n) for r, n in zip(op.res, names, strict=True)})
        self._unused(op.res, names)

    @contextmanager
    def _counting(self, iv: SSAValue, lower: Expr, upper: Expr, step: Expr) -> Generator[None]:
        """A counting loop around what the `with` writes."""
        name = self.name(iv.name_hint, "i")
        self.taken[-1].discard(name)
        up = f"++{name}" if step.text == "1" else f"{name} += {step.text}"
        with self.block(f"for (int64_t {name} = {lower.text}; {name} < {upper.at(PLUS)}; {up})"):
            self.taken[-1].add(name)
            self.values[iv] = Expr(name)
            yield

    def _unused(self, results: Sequence[SSAValue], names: Sequence[str]) -> None:
        """Variables that are only set would be warned of."""
        for r, n in zip(results, names, strict=True):
            if not r.uses:
                self.line(f"(void){n};")

    def branch(self, op: scf.IfOp) -> None:
        names = [self.variable(r, None, "chosen") for r in op.output]
        types = [r.type for r in op.output]
        otherwise = bool(op.false_region.blocks) and len(list(op.false_region.block.ops)) > (0 if names else 1)
        condition = self.scalar(op.cond).text
        with self.block(f"if ({condition})", "} else {" if otherwise else "}"):
            self.assign(names, self.body(op.true_region.block), types)
        if otherwise:
            self.depth += 1
            self.taken.append(set())
            self.heap.append([])
            self.assign(names, self.body(op.false_region.block), types)
            for name in self.heap.pop():
                self.line(f"free({name});")
            self.taken.pop()
            self.depth -= 1
            self.line("}")
        self.values.update({r: Expr(n) for r, n in zip(op.output, names, strict=True)})
        self._unused(op.output, names)

    def while_loop(self, op: scf.WhileOp) -> None:
        test, work = op.before_region.block, op.after_region.block
        state = [self.variable(a, s, "state") for a, s in zip(test.args, self.scalars(op.arguments), strict=True)]
        names = [self.variable(a, None, "now") for a in work.args]
        self.values.update({a: Expr(n) for a, n in zip(test.args, state, strict=True)})
        self.values.update({a: Expr(n) for a, n in zip(work.args, names, strict=True)})
        with self.block("for (;;)"):
            condition, *handed = self.body(test)
            self.assign(names, handed, [a.type for a in work.args])
            self.line(f"if (!{condition.at(ATOM)}) break;")
            self.assign(state, self.body(work), [a.type for a in test.args])
        self.values.update({r: Expr(n) for r, n in zip(op.res, names, strict=True)})
        self._unused(op.res, names)

    def parallel_loop(self, op: scf.ParallelOp) -> None:
        self.line("/* the iterations of this loop are independent of each other */")
        bounds = [self.scalars(x) for x in (op.lowerBound, op.upperBound, op.step)]

        def nest(d: int) -> None:
            if d == len(op.lowerBound):
                self.body(op.body.block)
                return
            with self._counting(op.body.block.args[d], *(b[d] for b in bounds)):
                nest(d + 1)

        nest(0)

    # -- memory ------------------------------------------------------------------------------------------------------
    def load(self, op: memref.LoadOp) -> None:
        text = self.array(op.memref).element_at(self.scalars(op.indices))
        self.define(op.res, Expr(text, ATOM, reads=True))

    def store(self, op: memref.StoreOp) -> None:
        target = self.array(op.memref).element_at(self.scalars(op.indices))
        self._set(target, self.scalar(op.value).text)

    def _set(self, target: str, value: str) -> None:
        """Write an assignment to an element; `x = x + y` as `x += y`."""
        start = f"{target} + "
        rest = value.removeprefix(start)
        if value.startswith(start) and _is_one_term(rest):
            self.line(f"{target} += {rest};")
        else:
            self.line(f"{target} = {value};")

    def allocate(self, op: memref.AllocOp | memref.AllocaOp) -> None:
        name, element = self.name(op.memref.name_hint, "scratch"), c_type(op.memref.type.element_type)
        sizes = tuple(self._size(e, f"{name}_size{d}") for d, e in enumerate(self.extents(op)))
        total = self.product(Expr(f"(int64_t)sizeof(*{name})"), sizes)
        self.helpers.add("scratch")
        self.line(f"{element} *restrict const {name} = scratch({total.text});")
        self.heap[-1].append(name)
        self.values[op.memref] = Array(name, element, sizes)

    def _size(self, e: Expr, name: str) -> Expr:
        """The size of an array, in a variable if it has to be computed: each element's place needs it."""
        if e.level == ATOM and "(" not in e.text:
            return e
        name = self.name(name, "size")
        self.line(f"const int64_t {name} = {e.text};")
        return Expr(name)

    def strides(self, a: Array) -> Sequence[Expr]:
        if a.strides is not None:
            return a.strides
        out = [Expr("1")]
        for size in reversed(a.sizes[1:]):
            out.append(times(size, out[-1]))
        return tuple(reversed(out)) if a.sizes else ()

    def part(
        self, op: memref.SubviewOp, offsets: Sequence[Expr], sizes: tuple[Expr, ...], strides: tuple[Expr, ...]
    ) -> Array:
        source = self.array(op.source)
        name = self.name(op.result.name_hint, f"{source.name}_part")
        constant = "const " if _is_constant(op.source) else ""
        self.line(f"{constant}{source.element} *const {name} = &{source.element_at(offsets)};")
        return Array(name, source.element, sizes, strides)

    def row(self, source: Array, size: Expr) -> Array:
        return Array(source.name, source.element, (size,))

    def table(self, name: str) -> Array:
        return self.tables[name]

    def number(self, n: int) -> Expr:
        return Expr(str(n))

    def times(self, a: Expr, b: Expr) -> Expr:
        return times(a, b)

    def copy(self, op: memref.CopyOp) -> None:
        source, target = self.array(op.source), self.array(op.destination)
        with self._dimensions([(None, n) for n in source.sizes]) as index:
            self.line(f"{target.element_at(index)} = {source.element_at(index)};")

    @contextmanager
    def _dimensions(self, dims: Sequence[tuple[str | None, Expr]]) -> Generator[list[Expr]]:
        """Loops from 0 to the sizes; gives the indices."""
        if not dims:
            yield []
            return
        (hint, size), *rest = dims
        name = self.name(hint, "i")
        self.taken[-1].discard(name)
        with self.block(f"for (int64_t {name} = 0; {name} < {size.at(PLUS)}; ++{name})"):
            self.taken[-1].add(name)
            with self._dimensions(rest) as inner:
                yield [Expr(name), *inner]

    def contract(self, op: GenericOp) -> None:
        maps = [a.data for a in op.indexing_maps]
        arrays = [self.array(v) for v in (*op.inputs, *op.outputs)]
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
            with self._dimensions([(LETTERS[d % len(LETTERS)], sizes[d]) for d in outer]) as made:
                at = [made[outer.index(d)] if d in outer else Expr("0") for d in range(len(order))]

                def element(which: int, at: Sequence[Expr]) -> str:
                    return arrays[which].element_at([_affine(expr, at) for expr in maps[which].results])

                sums = [d for d in order if kinds[d] == IteratorType.REDUCTION]
                write_squares(self, square, arrays[2].element, sizes, sums, at, element)
            return
        with self._dimensions([(LETTERS[d % len(LETTERS)], sizes[d]) for d in order]) as made:
            index = [made[order.index(d)] for d in range(len(order))]
            places = [[_affine(expr, index) for expr in m.results] for m in maps]
            for arg, array, place in zip(op.body.block.args, arrays, places, strict=True):
                self.values[arg] = Expr(array.element_at(place), ATOM, reads=True)
            limit, self.limit = self.limit, 1000  # one statement is what is expected here, however long
            results = self.body(op.body.block)
            self.limit = limit
            targets = list(zip(arrays, places, strict=True))[-len(results) :]
            for (array, place), value in zip(targets, results, strict=True):
                self._set(array.element_at(place), value.text)

    def fill(self, op: FillOp) -> None:
        array = self.array(op.outputs[0])
        with self._dimensions([(None, n) for n in array.sizes]) as index:
            self.line(f"{array.element_at(index)} = {self.scalar(op.inputs[0]).text};")


def _is_one_term(text: str) -> bool:
    """Whether a text has no sum outside parentheses and brackets: adding it is one addition."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if not depth and c in "+-?<>=|&^" and i:
            return False
    return True


def _affine(expr: AffineExpr, index: Sequence[Expr]) -> Expr:
    """An index expression of a product."""
    coefficients, constant = linear(expr, len(index))
    total = Expr("0")
    for factor, i in zip(coefficients, index, strict=True):
        if factor:
            total = plus(total, times(Expr(str(factor)), i))
    return plus(total, Expr(str(constant)))


def _is_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, memref.GetGlobalOp) or not is_written(value)
