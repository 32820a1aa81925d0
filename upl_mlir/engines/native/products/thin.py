"""Products that are not worth packing, as functions in LLVM IR: few rows, matrix times vector, short sums.

`thin` reads B in place, along its consecutive numbers; `dot` sums along consecutive numbers of both operands.
"""

from __future__ import annotations

from upl_mlir.engines.native.llvm.text import Code
from upl_mlir.engines.native.products.tiles import (
    NOTHING,
    TileFormat,
    accumulate,
    first_lanes,
    load,
    multiply_add,
    splat,
    store,
)

LITTLE = 16384
"""Bytes of B that stay in the first-level cache beside rows of C."""
NEAR = 512 * 1024
"""Bytes of B that the second-level cache holds. Chosen: half of it, or a quarter."""
HELD = 16
"""Vectors of a row of C that stay in registers beside numbers of A and B, of 32."""
STREAM = 8
"""How many rows of B are read side by side where there is one row of A."""


def thin(f: TileFormat) -> str:
    """``thin(m, n, k, a, step_a, along_a, b, along_b, c, step_c, anew)``: C[i, j] += Σ_k A[i, k] · B[k, j].

    A's numbers stand at a + i·step_a + along_a[k], B's at b + along_b[k] + j, C's at c + i·step_c + j.
    What stands in C does not count if `anew` is 1.
    """
    c = Code()
    whole = c.let(f"and i64 %m, {-f.few}")
    with c.when(c.let(f"icmp sgt i64 {whole}, 0")):
        _strips(c, f, whole)
    with c.loop(whole, "%m") as i:
        _row(c, f, i)
    params = ("i64 %m, i64 %n, i64 %k, ptr noalias %a, i64 %step_a, ptr noalias %along_a, ptr noalias %b, "
              "ptr noalias %along_b, ptr noalias %c, i64 %step_c, i64 %anew")  # fmt: skip
    return f"define void @upl.thin.{f.name}({params}) #2 {{\nstart:\n" + "\n".join(c.lines) + "\n  ret void\n}\n"


def _place(c: Code, table: str, i: str) -> str:
    return c.let(f"load i64, ptr {c.at(table, i, 'i64')}", "e")


def _strips(c: Code, f: TileFormat, rows: str) -> None:
    """The rows in groups: strips of C stay in registers for the whole sum.

    Where B stays in the first-level cache anyway, whole rows of C come one after the other.
    """
    little = c.let(f"icmp sle i64 {c.mul('%n', '%k')}, {LITTLE // f.bytes}")
    with c.loop("0", rows, c.let(f"select i1 {little}, i64 {f.few}, i64 {rows}")) as begin:
        _columns(c, f, begin, c.let(f"select i1 {little}, i64 {c.add(begin, str(f.few))}, i64 {rows}"))


def _columns(c: Code, f: TileFormat, begin: str, end: str) -> None:
    """Strips of some rows."""
    width = f.thin * f.lanes
    added = c.let("icmp eq i64 %anew, 0")
    kept = splat(c, f, added, "i1")
    with c.loop("0", "%n", str(width)) as j:
        left = c.sub("%n", j)
        full, edge, done = c.label("full"), c.label("edge"), c.label("strip")
        c.branch(c.let(f"icmp sge i64 {left}, {width}"), full, edge)
        c.begin(full)
        _strip(c, f, (begin, end), j, [kept] * f.thin, None)
        c.jump(done)
        c.begin(edge)
        for vectors in range(1, f.thin + 1):  # of what is left over no more vectors than there are
            larger = c.label("larger") if vectors < f.thin else None
            if larger is not None:
                fits = c.label("fits")
                c.branch(c.let(f"icmp sle i64 {left}, {vectors * f.lanes}"), fits, larger)
                c.begin(fits)
            masks = [first_lanes(c, f, c.sub(left, str(v * f.lanes))) for v in range(vectors)]
            _strip(c, f, (begin, end), j, [c.let(f"and <{f.lanes} x i1> {m}, {kept}") for m in masks], masks)
            c.jump(done)
            if larger is not None:
                c.begin(larger)
        c.begin(done)


def _strip(
    c: Code, f: TileFormat, rows: tuple[str, str], j: str, there: list[str], masks: list[str] | None
) -> None:
    """Some rows of as many vectors as there are masks, from column `j` on."""
    with c.loop(*rows, str(f.few)) as i:
        lines = [c.add(i, str(r)) for r in range(f.few)]
        targets = [c.at("%c", c.add(c.mul(line, "%step_c"), j), f.real) for line in lines]
        sources = [c.at("%a", c.mul(line, "%step_a"), f.real) for line in lines]
        below = c.at("%b", j, f.real)

        def step(k: str) -> tuple[list[str], str]:
            a, b = _place(c, "%along_a", k), _place(c, "%along_b", k)
            return [c.at(s, a, f.real) for s in sources], c.at(below, b, f.real)

        accumulate(c, f, len(there), "%k", targets, step, masks, there=there)


def _row(c: Code, f: TileFormat, i: str) -> None:
    """One row.  Where B comes from the second-level cache, strips of C stay in registers for the whole sum, wide ones, so
    that as much of a row of B as can be is read at once."""
    near = c.let(f"icmp sle i64 {c.mul('%n', '%k')}, {NEAR // f.bytes}")
    count = HELD if f.lanes * f.bytes == 64 else HELD // 2  # of 32 registers, or of 16
    begin = c.let(f"select i1 {near}, i64 {c.let(f'and i64 %n, {-count * f.lanes}')}, i64 0")
    source, kept = c.at("%a", c.mul(i, "%step_a"), f.real), splat(c, f, c.let("icmp eq i64 %anew, 0"), "i1")
    with c.loop("0", begin, str(count * f.lanes)) as j:
        target, below = c.at("%c", c.add(c.mul(i, "%step_c"), j), f.real), c.at("%b", j, f.real)

        def step(k: str) -> tuple[list[str], str]:
            a, b = _place(c, "%along_a", k), _place(c, "%along_b", k)
            return [c.at(source, a, f.real)], c.at(below, b, f.real)

        accumulate(c, f, count, "%k", [target], step, None, there=[kept] * count)
    with c.when(c.let(f"icmp slt i64 {begin}, %n")):
        _stream(c, f, i, begin)


def _stream(c: Code, f: TileFormat, i: str, begin: str) -> None:
    """One row from a column on: B is read once, some of its rows side by side from end to end, as memory likes it; C stays
    in L1."""
    source, target = c.at("%a", c.mul(i, "%step_a"), f.real), c.at("%c", c.mul(i, "%step_c"), f.real)
    blocks, vectors = c.let(f"and i64 %k, {-STREAM}"), c.let(f"and i64 %n, {-f.lanes}")
    tail = first_lanes(c, f, c.sub("%n", vectors))
    rest = c.let(f"icmp slt i64 {vectors}, %n")
    for first, end, count in (("0", blocks, STREAM), (blocks, "%k", 1)):
        with c.loop(first, end, str(count)) as k:
            each = [c.add(k, str(r)) for r in range(count)]
            numbers = [
                splat(c, f, c.let(f"load {f.real}, ptr {c.at(source, _place(c, '%along_a', x), f.real)}")) for x in each
            ]
            lines = [c.at("%b", _place(c, "%along_b", x), f.real) for x in each]
            later = c.let(f"or i1 {c.let(f'icmp ne i64 {k}, 0')}, {c.let('icmp eq i64 %anew, 0')}")
            kept = splat(c, f, later, "i1")

            def step(
                j: str, mask: str | None, lines: list[str] = lines, numbers: list[str] = numbers, kept: str = kept
            ) -> None:
                place = c.at(target, j, f.real)
                there = kept if mask is None else c.let(f"and <{f.lanes} x i1> {mask}, {kept}")
                total = load(c, f, place, there, other=NOTHING.format(real=f.real))
                for number, line in zip(numbers, lines, strict=True):
                    total = multiply_add(c, f, number, load(c, f, c.at(line, j, f.real), mask), total)
                store(c, f, place, total, mask)

            with c.loop(begin, vectors, str(f.lanes)) as j:
                step(j, None)
            with c.when(rest):
                step(vectors, tail)


def dot(f: TileFormat) -> str:
    """``dot(n, k, a, step_a, x, y, step_y, anew)``: y[i·step_y] += Σ_k a[i·step_a + k] · x[k], or = if `anew` is 1.

    Four rows of A share the loads of x.  The sum is split among lanes: for products whose order is free.
    """
    c = Code()
    span = 2 * f.lanes
    for rows in (4, 1):
        begin = "0" if rows > 1 else c.let("and i64 %n, -4")
        end = c.let("and i64 %n, -4") if rows > 1 else "%n"
        with c.loop(begin, end, str(rows)) as i:
            lines = [c.at("%a", c.mul(c.add(i, str(r)), "%step_a"), f.real) for r in range(rows)]
            whole = c.let(f"and i64 %k, {-span}")
            sums = _sums(c, f, lines, "0", whole, span, masked=False, start=None)
            sums = _sums(c, f, lines, whole, "%k", f.lanes, masked=True, start=sums)
            for r in range(rows):
                both = c.let(f"fadd reassoc {f.vector} {sums[r][0]}, {sums[r][1]}")
                total = c.let(
                    f"call reassoc {f.real} @llvm.vector.reduce.fadd.{f.suffix}({f.real} -0.0, {f.vector} {both})"
                )
                place = c.at("%y", c.mul(c.add(i, str(r)), "%step_y"), f.real)
                stands = c.let(f"load {f.real}, ptr {place}")
                there = c.let(f"select i1 {c.let('icmp eq i64 %anew, 0')}, {f.real} {stands}, {f.real} -0.0")
                c.do(f"store {f.real} {c.let(f'fadd {f.real} {there}, {total}')}, ptr {place}")
    params = "i64 %n, i64 %k, ptr noalias %a, i64 %step_a, ptr noalias %x, ptr noalias %y, i64 %step_y, i64 %anew"
    return f"define void @upl.dot.{f.name}({params}) #2 {{\nstart:\n" + "\n".join(c.lines) + "\n  ret void\n}\n"


def _sums(
    c: Code,
    f: TileFormat,
    lines: list[str],
    begin: str,
    end: str,
    span: int,
    *,
    masked: bool,
    start: list[list[str]] | None,
) -> list[list[str]]:
    """The loop over k of `dot`: sums of two vectors for each row, added to `start`."""
    start = start or [["zeroinitializer"] * 2 for _ in lines]
    header, inside, done, before = c.label("k"), c.label("work"), c.label("kdone"), c.block
    c.jump(header)
    c.begin(header)
    k = c.phi("i64", "k")
    phis = [[c.phi(f.vector, "s") for _ in row] for row in start]
    c.branch(c.let(f"icmp slt i64 {k.name}, {end}"), inside, done)
    c.begin(inside)
    mask = first_lanes(c, f, c.sub(end, k.name)) if masked else None
    after = [[p.name for p in row] for row in phis]
    for v in range(span // f.lanes):
        at = c.add(k.name, str(v * f.lanes))
        x = load(c, f, c.at("%x", at, f.real), mask)
        for r, line in enumerate(lines):
            after[r][v] = multiply_add(c, f, load(c, f, c.at(line, at, f.real), mask), x, phis[r][v].name)
    following = c.let(f"add nuw nsw i64 {k.name}, {span}")
    k.close((begin, before), (following, c.block))
    for first, row, new in zip(start, phis, after, strict=True):
        for s, phi, value in zip(first, row, new, strict=True):
            phi.close((s, before), (value, c.block))
    c.jump(header)
    c.begin(done)
    return [[p.name for p in row] for row in phis]
