"""Tiles of a product's result that do not lie in rows of consecutive numbers, as functions in LLVM IR.

Such a tile is summed in memory of its own, where its rows are whole vectors.  If its columns are rows of the result, as
where lanes are the channels of an image, squares of it are transposed on the way; else its numbers move one by one.
"""

from __future__ import annotations

from upl_mlir.native.packing import transpose
from upl_mlir.native.tables import consecutive, entry, function
from upl_mlir.native.text import Code
from upl_mlir.native.tiles import TileFormat, first_lanes, load, store

PARAMS = "ptr noalias %c, ptr noalias %cm, ptr noalias %cn, i64 %m, i64 %n, ptr noalias %own, ptr noalias %turned"
TYPES = "ptr, ptr, ptr, i64, i64, ptr, ptr"


def height(f: TileFormat) -> int:
    """Rows of a tile, as whole vectors: the extent of a column in a transposed tile."""
    return -(-f.tile[0] // f.lanes) * f.lanes


def move(f: TileFormat, name: str) -> str:
    """``take(c, cm, cn, m, n, own, turned)``: copies the m by n numbers at c + cm[i] + cn[j] to a tile of our own;
    ``put`` copies them back.  `turned` has room for a transposed tile."""
    c = Code()
    width = f.tile[1] * f.lanes
    straight, crooked, done = c.label("straight"), c.label("crooked"), c.label("moved")
    c.branch(consecutive(c, f, "%cm", "%m", height(f) // f.lanes), straight, crooked)
    c.begin(straight)
    first = c.at("%c", entry(c, "%cm", "0"), f.real)
    if name == "take":
        _columns(c, f, first, back=False)
        _turn(c, f, "%turned", height(f), "%own", width, ("%n", "%m"))
    else:
        _turn(c, f, "%own", width, "%turned", height(f), ("%m", "%n"))
        _columns(c, f, first, back=True)
    c.jump(done)
    c.begin(crooked)
    with c.loop("0", "%m") as r:
        row = c.at("%c", entry(c, "%cm", r), f.real)
        own = c.at("%own", c.mul(r, str(width)), f.real)
        with c.loop("0", "%n") as j:
            there, here = c.at(row, entry(c, "%cn", j), f.real), c.at(own, j, f.real)
            source, target = (there, here) if name == "take" else (here, there)
            c.do(f"store {f.real} {c.let(f'load {f.real}, ptr {source}')}, ptr {target}")
    c.jump(done)
    c.begin(done)
    return function(f"upl.{name}.{f.name}", PARAMS, c)


def declaration(f: TileFormat, name: str) -> str:
    """The declaration of `take` or `put`."""
    return f"declare void @upl.{name}.{f.name}({TYPES})"


def _columns(c: Code, f: TileFormat, first: str, *, back: bool) -> None:
    """Copy the columns of the tile, which begin at first + cn[j], to the transposed tile or back."""
    masks = [first_lanes(c, f, c.sub("%m", str(v))) for v in range(0, height(f), f.lanes)]
    with c.loop("0", "%n", hint="column") as j:
        there = c.at(first, entry(c, "%cn", j), f.real)
        here = c.at("%turned", c.mul(j, str(height(f))), f.real)
        for v, mask in enumerate(masks):
            far, near = (c.at(x, str(v * f.lanes), f.real) for x in (there, here))
            if back:
                store(c, f, far, load(c, f, near), mask)
            else:
                store(c, f, near, load(c, f, far, mask))


def _turn(c: Code, f: TileFormat, source: str, step: int, target: str, step_t: int, extent: tuple[str, str]) -> None:
    """Transpose a tile, square by square; what stands beyond its extent does not matter."""
    with c.loop("0", extent[0], str(f.lanes), "down") as i, c.loop("0", extent[1], str(f.lanes), "along") as j:
        at = c.at(source, c.add(c.mul(i, str(step)), j), f.real)
        to = c.at(target, c.add(c.mul(j, str(step_t)), i), f.real)
        rows = [load(c, f, c.at(at, str(r * step), f.real)) for r in range(f.lanes)]
        for r, row in enumerate(transpose(c, f, rows)):
            store(c, f, c.at(to, str(r * step_t), f.real), row)
