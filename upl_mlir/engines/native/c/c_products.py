"""Products of matrices as C: squares of the result in variables, so that each number that is read serves many sums.

Four rows of sixteen sums each stand in arrays that compilers keep in registers; the sums run in the order of plain loops, so
the bits are the same. At 384x384x384 plain loops reached 2.4 GFLOP/s on a Xeon whatever the compiler and its options; this
9 to 21 (gcc 12 and clang 14, `-O2` to `-O3 -march=native`). Squares that are not whole are plain loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, Float64Type
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir.affine import AffineDimExpr, AffineExpr

from upl_mlir.engines.native.c.c_expressions import PLUS, Expr
from upl_mlir.engines.native.c.c_writer import Writer, plus
from upl_mlir.engines.native.products.affine import linear

ROWS, COLUMNS = 4, 16

Element = Callable[[int, Sequence[Expr]], str]
"""The element of an operand (by number; the output is the last) at values of all dimensions, as C text."""


@dataclass(frozen=True)
class Square:
    """A product whose result is computed in squares: which input (0 or 1) goes along its rows, which along its columns,
    and the dimensions of these."""

    rows_of: int
    columns_of: int
    row: int
    column: int


def square_of(op: GenericOp) -> Square | None:
    """The squares of a product ``out + a*b``; None for other operations, and where an input serves one sum only."""
    maps = [a.data for a in op.indexing_maps]
    parallel = [d for d, kind in enumerate(op.iterator_types) if kind.data != IteratorType.REDUCTION]
    if not _is_product(op) or len(parallel) == len(op.iterator_types):
        return None
    used = [_used(m.results, len(op.iterator_types)) for m in maps]
    plain = [e.position for e in maps[2].results if isinstance(e, AffineDimExpr)]
    if len(plain) != len(maps[2].results) or not plain:
        return None
    column = plain[-1]  # along which the result lies side by side
    for a, b in ((0, 1), (1, 0)):
        rows = [d for d in parallel if d in used[a] and d not in used[b] and d in used[2]]
        if column in used[b] and column not in used[a] and rows:
            return Square(a, b, rows[-1], column)
    return None


def _used(results: Sequence[AffineExpr], dims: int) -> set[int]:
    return {d for e in results for d, factor in enumerate(linear(e, dims)[0]) if factor}


def _is_product(op: GenericOp) -> bool:
    """Whether the body is ``out + a*b`` of reals."""
    ops = list(op.body.block.ops)
    if len(ops) != 3 or len(op.inputs) != 2 or len(op.outputs) != 1:
        return False
    a, b, out = op.body.block.args
    times, add, end = ops
    return (
        isinstance(times, arith.MulfOp) and isinstance(add, arith.AddfOp) and isinstance(out.type, Float64Type | Float32Type)
        and a.type == b.type == out.type and {times.lhs, times.rhs} == {a, b}
        and {add.lhs, add.rhs} == {out, times.result} and tuple(end.operands) == (add.result,)
    )  # fmt: skip


def write_squares(w: Writer, s: Square, type_: str, sizes: dict[int, Expr], sums: Sequence[int], at: list[Expr],
                  element: Element) -> None:  # fmt: skip
    """The loops over rows, columns and sums; `at` has the values of the other dimensions, and takes those of these."""
    i, j = w.name("row", "i"), w.name("column", "j")
    m, n = sizes[s.row], sizes[s.column]
    w.line(f"/* {ROWS} rows of {COLUMNS} sums at a time */")
    over_rows = f"for (int64_t {i} = 0; {i} < {m.at(PLUS)}; {i} += {ROWS})"
    over_columns = f"for (int64_t {j} = 0; {j} < {n.at(PLUS)}; {j} += {COLUMNS})"
    with w.block(over_rows), w.block(over_columns):
        whole = f"{m.at(PLUS)} - {i} >= {ROWS} && {n.at(PLUS)} - {j} >= {COLUMNS}"
        with w.block(f"if ({whole})"):
            _whole(w, s, type_, sizes, sums, at, element, (i, j))
        with w.block("else"):
            r, c = w.name(None, "r"), w.name(None, "c")
            rows = f"for (int64_t {r} = {i}; {r} < {m.at(PLUS)} && {r} < {i} + {ROWS}; ++{r})"
            columns = f"for (int64_t {c} = {j}; {c} < {n.at(PLUS)} && {c} < {j} + {COLUMNS}; ++{c})"
            with w.block(rows), w.block(columns):
                at[s.row], at[s.column] = Expr(r), Expr(c)
                _summed(w, sizes, sums, at, lambda: w.line(f"{element(2, at)} += {element(0, at)} * {element(1, at)};"))


def _whole(w: Writer, s: Square, type_: str, sizes: dict[int, Expr], sums: Sequence[int], at: list[Expr], element: Element,
           start: tuple[str, str]) -> None:  # fmt: skip
    """A whole square."""
    i, j = start
    totals, factors = ([w.name(None, f"{letter}{r}") for r in range(ROWS)] for letter in "sx")
    c, y = w.name(None, "c"), w.name(None, "y")
    columns = f"for (int {c} = 0; {c} < {COLUMNS}; ++{c})"
    at[s.column] = plus(Expr(j), Expr(c))

    def moved(text: Callable[[str, str], str]) -> None:
        with w.block(columns):
            for r, total in enumerate(totals):
                at[s.row] = plus(Expr(i), Expr(str(r)))
                w.line(text(f"{total}[{c}]", element(2, at)))

    def step() -> None:
        for r, factor in enumerate(factors):
            at[s.row] = plus(Expr(i), Expr(str(r)))
            w.line(f"const {type_} {factor} = {element(s.rows_of, at)};")
        with w.block(columns):
            w.line(f"const {type_} {y} = {element(s.columns_of, at)};")
            for total, factor in zip(totals, factors, strict=True):
                w.line(f"{total}[{c}] += {factor} * {y};")

    w.line(f"{type_} {', '.join(f'{total}[{COLUMNS}]' for total in totals)};")
    moved(lambda total, place: f"{total} = {place};")
    _summed(w, sizes, sums, at, step)
    moved(lambda total, place: f"{place} = {total};")


def _summed(w: Writer, sizes: dict[int, Expr], sums: Sequence[int], at: list[Expr], inside: Callable[[], None]) -> None:
    """The loops over the dimensions that are summed."""
    if not sums:
        inside()
        return
    k = w.name(None, "k")
    with w.block(f"for (int64_t {k} = 0; {k} < {sizes[sums[0]].at(PLUS)}; ++{k})"):
        at[sums[0]] = Expr(k)
        _summed(w, sizes, sums[1:], at, inside)
