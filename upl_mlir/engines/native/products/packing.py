"""Packing: panels of an operand as the tiles of a product read them, as functions in LLVM IR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from upl_mlir.engines.native.llvm.text import Code
from upl_mlir.engines.native.products.tables import consecutive, entry, function
from upl_mlir.engines.native.products.tiles import TileFormat, first_lanes, load, store


def pack(f: TileFormat, width: int) -> str:
    """``pack(x, across, along, n, k, panels)``: copies x[across[i] + along[j]] to panels of `width` numbers for each j.

    Behind the n entries of `across` there are enough places to fill the last panel; what stands there does not matter.
    """
    c = Code()
    vectors = -(-width // f.lanes)
    rest = width % f.lanes
    cut = first_lanes(c, f, str(rest)) if rest else None  # the last vector of a row that is no whole number of vectors
    with c.loop("0", "%n", str(width), "panel") as i:
        target = c.at("%panels", c.mul(i, "%k"), f.real)
        here = c.at("%across", i, "i64")
        left = c.least(c.sub("%n", i), str(width))
        direct, other, done = c.label("direct"), c.label("other"), c.label("packed")
        c.branch(consecutive(c, f, here, left, vectors), direct, other)
        c.begin(direct)  # rows of the panel are rows of x
        source = c.at("%x", entry(c, here, "0"), f.real)
        masks = [first_lanes(c, f, c.sub(left, str(v * f.lanes))) for v in range(vectors)]
        with c.loop("0", "%k") as j:
            row, to = c.at(source, entry(c, "%along", j), f.real), c.at(target, c.mul(j, str(width)), f.real)
            for v, mask in enumerate(masks):
                value = load(c, f, c.at(row, str(v * f.lanes), f.real), mask)
                store(c, f, c.at(to, str(v * f.lanes), f.real), value, cut if v == vectors - 1 else None)
        c.jump(done)
        c.begin(other)
        whole = width - rest
        with c.loop("0", c.least(str(whole), left), str(f.lanes)) as first:
            _pack_squares(c, f, c.at(here, first, "i64"), c.at(target, first, f.real), width)
        if cut is not None:
            places = c.at(here, str(whole), "i64")
            with c.loop("0", "%k") as j:
                to = c.at(target, c.add(c.mul(j, str(width)), str(whole)), f.real)
                store(c, f, to, _gather(c, f, places, j, cut), cut)
        c.jump(done)
        c.begin(done)
    params = "ptr noalias %x, ptr noalias %across, ptr noalias %along, i64 %n, i64 %k, ptr noalias %panels"
    return function(f"upl.pack{width}.{f.name}", params, c)


def square_format(f: TileFormat) -> TileFormat:
    """The format whose vectors are as long as the squares that are transposed."""
    return replace(f, lanes=f.side)


def _pack_squares(c: Code, f: TileFormat, places: str, target: str, width: int) -> None:
    """A column of a panel, as wide as a vector: transposed squares where x runs along the panel, else single numbers."""
    s = square_format(f)
    sources = [c.at("%x", entry(c, places, str(r)), f.real) for r in range(f.lanes)]
    header, ask, look, straight, crooked, done = (
        c.label(x) for x in ("along", "ask", "look", "straight", "crooked", "packed")
    )
    j, before = c.counting(header, "k", "%k", ask, done)
    c.begin(ask)
    table, to = c.at("%along", j.name, "i64"), c.at(target, c.mul(j.name, str(width)), f.real)
    c.branch(c.let(f"icmp sle i64 {c.add(j.name, str(s.lanes))}, %k", "c"), look, crooked)
    c.begin(look)
    c.branch(consecutive(c, s, table), straight, crooked)
    c.begin(straight)
    at = entry(c, table, "0")
    parts = [load(c, s, c.at(x, at, f.real)) for x in sources]
    rows = [joined(c, s, parts[r :: s.lanes]) for r in range(s.lanes)]
    for r, row in enumerate(transpose(c, f, rows)):
        store(c, f, c.at(to, str(r * width), f.real), row)
    after_square = c.add(j.name, str(s.lanes))
    c.jump(header)
    c.begin(crooked)
    store(c, f, to, _gather(c, f, places, j.name, "splat (i1 true)"))
    after_one = c.add(j.name, "1")
    c.jump(header)
    j.close(("0", before), (after_square, straight), (after_one, crooked))
    c.begin(done)


def joined(c: Code, s: TileFormat, parts: Sequence[str]) -> str:
    """Vectors one behind the other in one."""
    while len(parts) > 1:
        lanes = ", ".join(f"i32 {x}" for x in range(2 * s.lanes))
        parts = [
            c.let(f"shufflevector {s.vector} {a}, {s.vector} {b}, <{2 * s.lanes} x i32> <{lanes}>")
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
        s = replace(s, lanes=2 * s.lanes)
    return parts[0]


def _gather(c: Code, f: TileFormat, places: str, j: str, mask: str) -> str:
    """The numbers x[places[r] + along[j]] as a vector."""
    ints, pointers = f"<{f.lanes} x i64>", f"<{f.lanes} x ptr>"
    entries = c.let(f"load {ints}, ptr {places}, align 8")
    row = c.at("%x", entry(c, "%along", j), f.real)
    there = c.let(f"getelementptr inbounds {f.real}, ptr {row}, {ints} {entries}")
    args = f"{pointers} align {f.bytes} {there}, <{f.lanes} x i1> {mask}, {f.vector} zeroinitializer"
    return c.let(f"call {f.vector} @llvm.masked.gather.{f.suffix}.v{f.lanes}p0({args})")


def transpose(c: Code, f: TileFormat, rows: list[str]) -> list[str]:
    """Squares of numbers, side by side in vectors, each transposed: blocks of 1, 2, 4… are exchanged across its diagonal.

    `rows` are as many as a square has, a power of two, at most the lanes of a vector.
    """
    size = 1
    while size < len(rows):
        new = list(rows)
        for i in range(len(rows)):
            if i & size:
                continue
            upper = [lane + f.lanes - size if lane & size else lane for lane in range(f.lanes)]
            lower = [lane + f.lanes if lane & size else lane + size for lane in range(f.lanes)]
            for place, lanes in ((i, upper), (i + size, lower)):
                mask = ", ".join(f"i32 {lane}" for lane in lanes)
                pair = f"{f.vector} {rows[i]}, {f.vector} {rows[i + size]}"
                new[place] = c.let(f"shufflevector {pair}, <{f.lanes} x i32> <{mask}>")
        rows, size = new, 2 * size
    return rows
