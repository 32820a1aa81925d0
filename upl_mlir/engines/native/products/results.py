"""Parts of a product's result that are summed in memory of their own, and moved to the result: functions in LLVM IR.

There the rows are whole vectors.  They are rows of the result, or parts of its columns, as where lanes are the channels of
an image: then squares are transposed on the way.  Else numbers move one by one.
"""

from __future__ import annotations

from upl_mlir.engines.native.llvm.text import Code
from upl_mlir.engines.native.products.packing import joined, square_format, transpose
from upl_mlir.engines.native.products.tables import consecutive, entry, function
from upl_mlir.engines.native.products.tiles import TileFormat, first_lanes, load, splat, store

PARAMS = "ptr noalias %c, ptr noalias %cm, ptr noalias %cn, i64 %m, i64 %n, ptr noalias %own, ptr noalias %spare"
TYPES = "ptr, ptr, ptr, i64, i64, ptr, ptr"


def move(f: TileFormat, name: str) -> str:
    """``take(c, cm, cn, m, n, own, spare)``: copies the m by n numbers at c + cm[i] + cn[j] to rows of our own;
    ``put`` copies them back.  `spare` is a vector that may be overwritten."""
    c = Code()
    back = name == "put"
    rows, columns, done = (c.label(x) for x in ("rows", "columns", "moved"))
    c.branch(consecutive(c, f, "%cn", "%n", f.tile[1]), rows, columns)
    c.begin(rows)
    _rows(c, f, back=back)
    c.jump(done)
    c.begin(columns)
    header, body, square, single, after = (c.label(x) for x in ("from", "run", "square", "single", "after"))
    i, before = c.counting(header, "row", "%m", body, done)
    c.begin(body)
    run = _run(c, square_format(f), i.name)
    c.branch(c.let(f"icmp sgt i64 {run}, 2", "c"), square, single)
    c.begin(square)
    _columns(c, f, i.name, run, back=back)
    c.jump(after)
    c.begin(single)
    _singly(c, f, i.name, run, back=back)
    c.jump(after)
    c.begin(after)
    i.close(("0", before), (c.add(i.name, run), after))
    c.jump(header)
    c.begin(done)
    return function(f"upl.{name}.{f.name}", PARAMS, c)


def declaration(f: TileFormat, name: str) -> str:
    """The declaration of `take` or `put`."""
    return f"declare void @upl.{name}.{f.name}({TYPES})"


def _own(c: Code, f: TileFormat, row: str, column: str = "0") -> str:
    return c.at("%own", c.add(c.mul(row, str(f.tile[1] * f.lanes)), column), f.real)


def _rows(c: Code, f: TileFormat, *, back: bool) -> None:
    """Copy rows that are rows of the result."""
    masks = [first_lanes(c, f, c.sub("%n", str(v * f.lanes))) for v in range(f.tile[1])]
    first = entry(c, "%cn", "0")
    with c.loop("0", "%m") as r:
        row = c.at("%c", c.add(entry(c, "%cm", r), first), f.real)
        for v, mask in enumerate(masks):
            near, far = _own(c, f, r, str(v * f.lanes)), c.at(row, str(v * f.lanes), f.real)
            if back:
                store(c, f, far, load(c, f, near), mask)
            else:
                store(c, f, near, load(c, f, far, mask))


def _run(c: Code, s: TileFormat, i: str) -> str:
    """How many rows from i on, at most as many as a square has, are consecutive places in the result."""
    ints, lanes = f"<{s.lanes} x i64>", s.lanes
    here = c.at("%cm", i, "i64")
    steps = ", ".join(f"i64 {x}" for x in range(lanes))
    wanted = c.let(f"add {ints} {splat(c, s, entry(c, here, '0'), 'i64')}, <{steps}>")
    found = c.let(f"load {ints}, ptr {here}, align 8")
    other = c.let(f"bitcast <{lanes} x i1> {c.let(f'icmp ne {ints} {found}, {wanted}')} to i{lanes}")
    run = c.let(f"call i{lanes} @llvm.cttz.i{lanes}(i{lanes} {other}, i1 false)")
    return c.least(c.let(f"zext i{lanes} {run} to i64"), c.sub("%m", i))


def _singly(c: Code, f: TileFormat, i: str, count: str, *, back: bool) -> None:
    """Copy the numbers of some rows one by one."""
    with c.loop("0", count) as r:
        row = c.add(i, r)
        there, here = c.at("%c", entry(c, "%cm", row), f.real), _own(c, f, row)
        with c.loop("0", "%n") as j:
            far, near = c.at(there, entry(c, "%cn", j), f.real), c.at(here, j, f.real)
            source, target = (near, far) if back else (far, near)
            c.do(f"store {f.real} {c.let(f'load {f.real}, ptr {source}')}, ptr {target}")


def _columns(c: Code, f: TileFormat, i: str, count: str, *, back: bool) -> None:
    """Copy some rows, which are parts of the result's columns, by squares side by side in vectors."""
    s = square_format(f)
    side, top = s.lanes, c.at("%c", entry(c, "%cm", i), f.real)
    mask = first_lanes(c, s, count)
    with c.loop("0", "%n", str(f.lanes), "along") as j:
        near = [_own(c, f, c.add(i, str(r)), j) for r in range(side)]
        far: list[list[str]] = []
        for begin in range(0, f.lanes, side):
            there = [c.add(j, str(begin + x)) for x in range(side)]
            inside = [c.let(f"icmp slt i64 {x}, %n", "c") for x in there]
            places = [c.at(top, entry(c, "%cn", x), f.real) for x in there]
            far.append([
                c.let(f"select i1 {yes}, ptr {place}, ptr %spare") for yes, place in zip(inside, places, strict=True)
            ])  # fmt: skip
        if back:
            turned = transpose(c, f, [load(c, f, row) for row in near])
            for begin, places in zip(range(0, f.lanes, side), far, strict=True):
                with c.when(c.let(f"icmp slt i64 {c.add(j, str(begin))}, %n", "c")):
                    for row, place in zip(turned, places, strict=True):
                        store(c, s, place, _part(c, f, s, row, begin), mask)
        else:
            columns = [[load(c, s, place, mask) for place in places] for places in far]
            together = [joined(c, s, parts) for parts in zip(*columns, strict=True)]
            for row, value in zip(near, transpose(c, f, together), strict=True):
                store(c, f, row, value)


def _part(c: Code, f: TileFormat, s: TileFormat, value: str, begin: int) -> str:
    """The lanes of a vector from `begin` on, as many as a square has."""
    if s.lanes == f.lanes:
        return value
    lanes = ", ".join(f"i32 {begin + x}" for x in range(s.lanes))
    return c.let(f"shufflevector {f.vector} {value}, {f.vector} poison, <{s.lanes} x i32> <{lanes}>")
