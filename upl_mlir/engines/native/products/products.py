"""The ways to compute a product, and the choice among them when the kernel runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce

from upl_mlir.engines.native.llvm.emitter import Emitter
from upl_mlir.engines.native.llvm.parallel import fork_product
from upl_mlir.engines.native.llvm.text import is_number
from upl_mlir.engines.native.products.contraction import (
    FEW_PRODUCTS,
    MANY_MORE,
    MANY_PRODUCTS,
    PACKED_PRODUCTS,
    THIN_K,
    Operand,
    Product,
    emit_loops,
    fill,
)
from upl_mlir.engines.native.products.gemm import Panels
from upl_mlir.engines.native.products.tables import DESCRIPTION_WORDS, GROUP_WORDS, MAX_DIMS, SLACK
from upl_mlir.engines.native.products.thin import LITTLE

Way = tuple[str, Callable[[], None]]
"""A condition (a text, or "true") and what to write where it holds."""


def emit_product(e: Emitter, p: Product) -> None:
    """Write a product: the first way whose condition holds, else plain loops."""
    end = e.code.label("product")
    for way in (_packed(e, p), _thin(e, p), _dot(e, p)):
        if way is None or way[0] == "false":
            continue
        condition, write = way
        if condition == "true":
            write()
            break
        yes, no = e.code.label("way"), e.code.label("other")
        e.code.branch(condition, yes, no)
        e.code.begin(yes)
        write()
        e.code.jump(end)
        e.code.begin(no)
    else:
        fill_result(e, p)
        emit_loops(e, p.nest)
    e.code.jump(end)
    e.code.begin(end)


def fill_result(e: Emitter, p: Product) -> None:
    """Zeros, where what stands in C does not count."""
    if p.anew:
        dims = (*p.batch, *p.m, *p.n)
        sizes, strides = tuple(p.nest.sizes[d] for d in dims), tuple(p.c.strides[d] for d in dims)
        view = replace(p.c.view.shifted(e.code, p.c.start), sizes=sizes, strides=strides)
        fill(e, view, "-0.0")


def _count(e: Emitter, p: Product, dims: Sequence[int]) -> str:
    """How many points a group has."""
    return reduce(e.code.mul, (p.nest.sizes[d] for d in dims), "1")


def _choose(e: Emitter, condition: str, yes: str, no: str) -> str:
    if condition in ("true", "false"):
        return yes if condition == "true" else no
    return e.code.let(f"select i1 {condition}, i64 {yes}, i64 {no}")


def _at_least(e: Emitter, value: str, bound: int | str) -> str:
    if is_number(value) and is_number(str(bound)):
        return "true" if int(value) >= int(bound) else "false"
    return e.code.let(f"icmp sge i64 {value}, {bound}", "c")


def _all(e: Emitter, *conditions: str) -> str:
    if "false" in conditions:
        return "false"
    asked = [c for c in conditions if c != "true"]
    return reduce(lambda a, b: e.code.let(f"and i1 {a}, {b}", "c"), asked) if asked else "true"


def _place(e: Emitter, o: Operand, at: str) -> str:
    return e.code.at(o.view.pointer, at, o.view.type)


def _loops(e: Emitter, p: Product, dims: Sequence[int], write: Callable[[str, str, str], None]) -> None:
    """Loops over dimensions around a call; `write` gets the places in A, B and C."""
    places = [o.start for o in (p.a, p.b, p.c)]
    with ExitStack() as stack:
        for d in dims:
            i = stack.enter_context(e.code.loop("0", p.nest.sizes[d]))
            places = [e.code.add(x, e.code.mul(i, o.strides[d])) for x, o in zip(places, (p.a, p.b, p.c), strict=True)]
        a, b, c = (_place(e, o, x) for o, x in zip((p.a, p.b, p.c), places, strict=True))
        write(a, b, c)


def _write_group(
    e: Emitter, p: Product, group: str, dims: Sequence[int], first: Operand, second: Operand, swap: str = "false"
) -> None:
    """Write a group's description to memory at `group`; the operands are exchanged where `swap` holds."""
    words = [(0, str(max(len(dims), 1)))]
    if not dims:
        words += [(1, "1"), (1 + MAX_DIMS, "0"), (1 + 2 * MAX_DIMS, "0")]
    for i, d in enumerate(dims):
        words += [
            (1 + i, p.nest.sizes[d]),
            (1 + MAX_DIMS + i, _choose(e, swap, second.strides[d], first.strides[d])),
            (1 + 2 * MAX_DIMS + i, _choose(e, swap, first.strides[d], second.strides[d])),
        ]
    for word, value in words:
        e.code.do(f"store i64 {value}, ptr {e.code.at(group, str(word), 'i64')}")


def _packed(e: Emitter, p: Product) -> Way | None:
    """Packed panels: for products with enough of everything."""
    if not (p.m and p.n):
        return None
    m, n, k = (_count(e, p, g) for g in (p.m, p.n, p.k))
    work = e.code.mul(m, e.code.mul(n, k))
    row, along = _row_dimension(p), _sum_dimension(p)
    # where operands can be used in place, few rows of A or short sums are not worth packing B for
    wide = p.f.lanes // 2 if p.n == (row,) else 2 * p.f.lanes
    in_place = "false" if row is None else _at_least(e, p.nest.sizes[row], wide)
    dots = "false" if along is None else _at_least(e, p.nest.sizes[along], 4 * p.f.lanes)
    rows = _choose(e, in_place, str(2 * p.f.tile[0]), _choose(e, dots, "8", "4"))
    many = str(MANY_PRODUCTS)
    if p.n == (row,) and len(p.k) == 1:  # of a B that stays in the first-level cache, packing only makes a copy
        many = _choose(e, _at_least(e, str(LITTLE // p.f.bytes), e.code.mul(n, k)), str(MANY_MORE), many)
    least = _choose(e, in_place, many, str(PACKED_PRODUCTS))
    depth = _choose(e, in_place, "16", "4")
    enough = _all(e, *(_at_least(e, x, y) for x, y in ((work, least), (m, rows), (n, p.f.lanes // 2), (k, depth))))

    def write() -> None:
        e.library.uses("gemm", p.f)
        groups = e.stack(DESCRIPTION_WORDS)
        # lanes run along m where B is windows of an array and A is not: then the smaller operand is packed, once
        turned = _windows(p, p.b, p.n) and not _windows(p, p.a, p.m)
        swap = _at_least(e, m, p.f.lanes // 2) if turned else "false"
        places = [_choose(e, swap, str(i * GROUP_WORDS), str(j * GROUP_WORDS)) for i, j in ((1, 0), (0, 1), (2, 2))]
        description = [e.code.at(groups, place, "i64") for place in places]
        for group, (dims, x, y) in zip(description, ((p.m, p.a, p.c), (p.n, p.b, p.c), (p.k, p.a, p.b)), strict=True):
            _write_group(e, p, group, dims, x, y, swap if dims is p.k else "false")
        rows, lanes = (e.code.at(groups, str(i * GROUP_WORDS), "i64") for i in range(2))
        extent = _choose(e, swap, n, m), _choose(e, swap, m, n), work
        repeated = _choose(e, swap, "1", str(int(_windows(p, p.a, p.m))))
        _write_border(e, p, description, swap)

        def call(a: str, b: str, c: str) -> None:
            if swap != "false":
                a, b = _exchanged(e, swap, a, b)
            pointers = (rows, lanes, description[2], a, b, c)
            if e.parallel and e.library.threads > 1:
                fork_product(e, p, pointers, extent, repeated)
            else:
                given = ", ".join(f"ptr {x}" for x in (*pointers, e.scratch.panels))
                e.code.do(f"call void @upl.gemm.{p.f.name}({given}, i64 0, i64 {extent[0]}, i64 0, i64 {extent[1]}, "
                          f"i64 {int(p.anew)}, i64 {repeated})")  # fmt: skip

        _loops(e, p, p.batch, call)

    return enough, write


def _write_border(e: Emitter, p: Product, description: Sequence[str], swap: str) -> None:
    """Write which products are with zeros, if they stand round the operand that is not packed.

    Their indices then come first in their groups, so that rows, and products along k, stand together that are alike.
    """
    known, border = p.nest.border, e.code.at(description[2], str(GROUP_WORDS), "i64")
    e.code.do(f"store i64 0, ptr {border}")
    if known is None:
        return
    a, dims, group, used = (p.a, p.m, description[0], "true") if swap == "false" else (p.b, p.n, description[1], swap)
    if p.nest.operands[known.operand] is not a or known.field not in dims or not _windows(p, a, dims):
        return
    dims, k = ((first, *(d for d in all_ if d != first)) for first, all_ in ((known.field, dims), (known.summed, p.k)))
    with e.code.when(used):
        _write_group(e, p, group, dims, a, p.c)
        _write_group(e, p, description[2], k, p.a, p.b, swap)
        size = p.nest.sizes[k[0]]
        words = (_count(e, p, dims[1:]), _count(e, p, k[1:]), size, str(known.slope), known.first, known.behind)
        words = (*words, known.last(e, size))
        for i, word in enumerate(words):
            e.code.do(f"store i64 {word}, ptr {e.code.at(border, str(i), 'i64')}")


def _exchanged(e: Emitter, condition: str, a: str, b: str) -> tuple[str, str]:
    """Two addresses, exchanged where the condition holds."""
    if condition == "true":
        return b, a
    first, second = (e.code.let(f"select i1 {condition}, ptr {yes}, ptr {no}") for yes, no in ((b, a), (a, b)))
    return first, second


def _windows(p: Product, o: Operand, group: tuple[int, ...]) -> bool:
    """Whether one number of an operand stands for several elements: an axis has an index of the group and a summed one."""
    return any(
        {x in group, y in group} == {True, False} and {x in p.k, y in p.k} == {True, False} for x, y in o.together
    )


def _row_dimension(p: Product) -> int | None:
    """The dimension along which both B and C are consecutive."""
    return next((d for d in p.n if p.b.strides[d] == "1" and p.c.strides[d] == "1"), None)


def _sum_dimension(p: Product) -> int | None:
    """The summed dimension along which both A and B are consecutive, where the order of the sum is free."""
    return next((d for d in p.k if p.free and p.a.strides[d] == "1" and p.b.strides[d] == "1"), None)


def _thin(e: Emitter, p: Product) -> Way | None:
    """B in place, row by row."""
    row = _row_dimension(p)
    if row is None:
        return None
    work = e.code.mul(_count(e, p, (*p.m, *p.n)), _count(e, p, p.k))
    enough = _all(e, _at_least(e, work, FEW_PRODUCTS), _at_least(e, p.nest.sizes[row], p.f.lanes // 2))
    line = p.m[-1] if p.m else None

    def write() -> None:
        e.library.uses("fill", p.f)
        e.library.uses("thin", p.f)
        group = e.stack(GROUP_WORDS)
        _write_group(e, p, group, p.k, p.a, p.b)
        k = _count(e, p, p.k)
        offset = Panels(p.f).offsets["a"]
        tables = [e.code.at(e.scratch.panels, str(offset + i * (THIN_K + SLACK) * 8), "i8") for i in range(2)]
        with e.code.loop("0", k, str(THIN_K)) as start:
            part = e.code.least(e.code.sub(k, start), str(THIN_K))
            anew = "0"
            if p.anew:
                anew = e.code.let(f"zext i1 {e.code.let(f'icmp eq i64 {start}, 0', 'c')} to i64")
            e.code.do(f"call void @upl.fill.{p.f.name}(ptr {group}, i64 {start}, i64 {part}, "
                      f"ptr {tables[0]}, ptr {tables[1]})")  # fmt: skip
            lines, step_a, step_c = "1", "0", "0"
            if line is not None:
                lines, step_a, step_c = p.nest.sizes[line], p.a.strides[line], p.c.strides[line]

            def call(a: str, b: str, c: str) -> None:
                e.code.do(
                    f"call void @upl.thin.{p.f.name}(i64 {lines}, i64 {p.nest.sizes[row]}, i64 {part}, ptr {a}, "
                    f"i64 {step_a}, ptr {tables[0]}, ptr {b}, ptr {tables[1]}, ptr {c}, i64 {step_c}, i64 {anew})"
                )

            _loops(e, p, [d for d in (*p.batch, *p.m, *p.n) if d not in (line, row)], call)

    return enough, write


def _dot(e: Emitter, p: Product) -> Way | None:
    """Sums along consecutive numbers of both operands."""
    along = _sum_dimension(p)
    if along is None or not (p.m or p.n):
        return None
    matrix, group = (p.b, p.n) if p.n else (p.a, p.m)
    line = group[-1]
    work = e.code.mul(_count(e, p, (*p.m, *p.n)), _count(e, p, p.k))
    enough = _all(e, _at_least(e, work, FEW_PRODUCTS), _at_least(e, p.nest.sizes[along], p.f.lanes))

    def write() -> None:
        e.library.uses("dot", p.f)
        at_once = p.anew and p.k == (along,)
        if not at_once:
            fill_result(e, p)

        def call(a: str, b: str, c: str) -> None:
            rows, x = (b, a) if matrix is p.b else (a, b)
            e.code.do(
                f"call void @upl.dot.{p.f.name}(i64 {p.nest.sizes[line]}, i64 {p.nest.sizes[along]}, ptr {rows}, "
                f"i64 {matrix.strides[line]}, ptr {x}, ptr {c}, i64 {p.c.strides[line]}, i64 {int(at_once)})"
            )

        _loops(e, p, [d for d in (*p.batch, *p.k, *p.m, *p.n) if d not in (line, along)], call)

    return enough, write
