"""General products of arrays as functions in LLVM IR: cache blocks, packed panels, and the tiles of `tiles.py`.

    C[m, n] += Σ_k A[m, k] · B[k, n]        where m, n and k may each stand for several dimensions (see `tables.py`)

B is packed: its panels stay in L1 while a block of A streams from L2, as in GotoBLAS/BLIS.  A is packed where its numbers
are used by several panels of B; where one number stands for many elements of A (the windows of a convolution), packing
would multiply it, and it is read where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from upl_mlir.engines.native.llvm.text import Code
from upl_mlir.engines.native.products.tables import (
    BORDER_WORDS,
    GLUE,
    GROUP_WORDS,
    SLACK,
    consecutive,
    entry,
    function,
    group_size,
    runs,
)
from upl_mlir.engines.native.products.tiles import TileFormat, accumulate, first_lanes, splat

KC, NC = 256, 1024
"""Extent of a cache block along k and n."""
LONG = 1024
"""The most that a block may have along k, where it has little along n. Chosen, no measurement is on record."""


def rows_of_block(f: TileFormat) -> int:
    """Extent of a cache block along m: about 240, whole tiles."""
    return 240 // f.tile[0] * f.tile[0]


@dataclass(frozen=True)
class Panels:
    """Byte offsets of what a call keeps in its scratch: tables of places, tiles of our own, packed blocks of A and B."""

    f: TileFormat

    @property
    def offsets(self) -> dict[str, int]:
        """Where each part begins; "end" is the size of all."""
        f = self.f
        rows, vectors = f.tile
        mc, width = rows_of_block(f), vectors * f.lanes
        sizes = {
            "am": (mc + SLACK) * 8, "cm": (mc + SLACK) * 8, "bn": (NC + SLACK) * 8, "cn": (NC + SLACK) * 8,
            "ak": (LONG + SLACK) * 8, "bk": (LONG + SLACK) * 8, "count": rows * 8, "rows": rows * 8,
            "own": (mc + SLACK) * width * f.bytes, "spare": f.lanes * f.bytes,
            "a": mc * KC * f.bytes, "b": (NC + width) * KC * f.bytes,
        }  # fmt: skip
        out, at = dict[str, int](), 0
        for name, size in sizes.items():
            out[name] = at
            at += (size + 63) // 64 * 64 + 64
        return out | {"end": at}


@dataclass(frozen=True)
class Tile:
    """A tile kernel: its rows and columns, and whether a table says where A's numbers stand (else they have a step).

    With a table there are fewer rows: each has a register for its address.
    """

    rows: int
    columns: int
    listed: bool

    def name(self, f: TileFormat) -> str:
        """The name of the function."""
        return f"upl.{'list' if self.listed else 'tile'}{self.rows}x{self.columns}.{f.name}"

    @property
    def params(self) -> str:
        """Its last parameters."""
        if self.listed:
            return "ptr noalias %along_a, ptr noalias %b, ptr noalias %own, i64 %kept"
        return "i64 %step_a, ptr %b, ptr %rows_c, i64 %n, i64 %kept"

    def declaration(self, f: TileFormat) -> str:
        """Its declaration."""
        return f"declare void @{self.name(f)}(i64 %k, ptr %a, ptr %rows_a, {self.params})"


def tiles(f: TileFormat, listed: bool) -> list[Tile]:
    """The tile kernels, smaller ones first: whole tiles, and what is left over."""
    columns = [v * f.lanes for v in range(1, f.tile[1] + 1)]
    if listed and f.lanes >= 8:  # few channels: half a vector takes less time
        columns.insert(0, f.lanes // 2)
    return [Tile(rows, n, listed) for n in columns for rows in (f.few, f.listed if listed else f.tile[0])]


def tile(f: TileFormat, t: Tile) -> str:
    """``tile(k, a, rows_a, step_a, b, rows_c, n, kept)``: adds a product to one tile of C.

    The numbers of A stand at a + rows_a[r] + k·step_a, B is a packed panel, row r of C begins at the address rows_c[r], and
    has n numbers, of which the first `kept` are added to; the others are written anew.

    ``list(k, a, rows_a, along_a, b, own, kept)``: the same for A at a + rows_a[r] + along_a[k], and a tile of our own.
    """
    c = Code()
    width, vectors = f.tile[1] * f.lanes, -(-t.columns // f.lanes)
    name, f = t.name(f), replace(f, lanes=min(t.columns, f.lanes))
    sources = [c.at("%a", entry(c, "%rows_a", str(r)), f.real) for r in range(t.rows)]
    if t.listed:
        targets = [c.at("%own", str(r * width), f.real) for r in range(t.rows)]
        masks, there = None, [splat(c, f, c.let("icmp ne i64 %kept, 0"), "i1")] * vectors
    else:
        targets = [c.let(f"load ptr, ptr {c.at('%rows_c', str(r), 'ptr')}") for r in range(t.rows)]
        masks, there = (
            [first_lanes(c, f, c.sub(count, str(v * f.lanes))) for v in range(vectors)] for count in ("%n", "%kept")
        )

    def step(k: str) -> tuple[list[str], str]:
        at = entry(c, "%along_a", k) if t.listed else c.mul(k, "%step_a")
        return [c.at(s, at, f.real) for s in sources], c.at("%b", c.mul(k, str(width)), f.real)

    accumulate(c, f, vectors, "%k", targets, step, masks, padded=True, there=there)
    return function(name, f"i64 %k, ptr %a, ptr %rows_a, {t.params}", c)


def product(f: TileFormat) -> str:
    """``gemm(m, n, k, a, b, c, scratch, m0, m1, n0, n1, anew, repeated)``: a part m0 ≤ m < m1, n0 ≤ n < n1 of a product.

    m, n and k are groups.  What stands in C does not count if `anew` is 1; A is not packed if `repeated` is 1.
    """
    c = Code()
    rows, vectors = f.tile
    width, mc = vectors * f.lanes, rows_of_block(f)
    part = {name: c.at("%scratch", str(offset), "i8") for name, offset in Panels(f).offsets.items() if name != "end"}
    for r in range(rows):
        c.do(f"store i64 {r}, ptr {c.at(part['count'], str(r), 'i64')}")
    k_all = group_size(c, "%k")
    columns = c.least(c.sub("%n1", "%n0"), str(NC))
    panels = c.most(c.let(f"udiv i64 {c.add(columns, str(width - 1))}, {width}"), "1")
    # packing A pays where several panels of B use it; then a block is no longer than one of A
    packs = c.let(f"icmp sgt i64 {panels}, 1")
    packs = c.let(f"and i1 {packs}, {c.let('icmp eq i64 %repeated, 0')}")
    longest = c.least(c.let(f"udiv i64 {NC // width * KC}, {panels}"), str(LONG))
    longest = c.let(f"select i1 {packs}, i64 {KC}, i64 {longest}")
    blocks = c.most(c.let(f"udiv i64 {c.add(k_all, c.sub(longest, '1'))}, {longest}"), "1")
    even = c.most(c.let(f"udiv i64 {c.add(k_all, c.sub(blocks, '1'))}, {blocks}"), "1")
    zeros = _zeros(c, c.let(f"and i1 {c.let('icmp eq i64 %anew, 1')}, {c.let(f'icmp eq i64 {blocks}, 1')}"))

    def fill(group: str, start: str, count: str, first: str, second: str) -> None:
        tables = f"ptr {part[first]}, ptr {part[second]}"
        c.do(f"call void @upl.fill.{f.name}(ptr %{group}, i64 {start}, i64 {count}, {tables})")

    with c.loop("%n0", "%n1", str(NC), "jc") as jc:
        nb = c.least(c.sub("%n1", jc), str(NC))
        fill("n", jc, nb, "bn", "cn")
        _pad(c, part["bn"], nb, width)
        with c.loop("0", k_all, even, "pc") as pc:
            kb = c.least(c.sub(k_all, pc), even)
            fill("k", pc, kb, "ak", "bk")
            c.do(f"call void @upl.pack{width}.{f.name}(ptr %b, ptr {part['bn']}, ptr {part['bk']}, i64 {nb}, i64 {kb}, "
                 f"ptr {part['b']})")  # fmt: skip
            first_block = c.let(f"icmp eq i64 {pc}, 0")
            anew = c.let(f"select i1 {first_block}, i64 %anew, i64 0")
            in_rows = _in_rows(c, part["ak"], kb)
            packing = c.let(f"and i1 {packs}, {c.let(f'xor i1 {in_rows}, true')}")
            way = _Way(c.let(f"or i1 {packs}, {in_rows}"), packing, c.let(f"select i1 {packing}, i64 {rows}, i64 1"))
            with c.loop("%m0", "%m1", str(mc), "ic") as ic:
                mb = c.least(c.sub("%m1", ic), str(mc))
                fill("m", ic, mb, "am", "cm")
                _pad(c, part["am"], mb, rows)
                with c.when(packing, "packa"):
                    c.do(f"call void @upl.pack{rows}.{f.name}(ptr %a, ptr {part['am']}, ptr {part['ak']}, i64 {mb}, "
                         f"i64 {kb}, ptr {part['a']})")  # fmt: skip
                _tiles(c, f, part, way, (mb, nb, kb), anew, replace(zeros, row=ic))
    params = ("ptr noalias %m, ptr noalias %n, ptr noalias %k, ptr noalias %a, ptr noalias %b, ptr noalias %c, "
              "ptr noalias %scratch, i64 %m0, i64 %m1, i64 %n0, i64 %n1, i64 %anew, i64 %repeated")  # fmt: skip
    return function(f"upl.gemm.{f.name}", params, c, GLUE)


@dataclass(frozen=True)
class _Way:
    """How a block of A is read, as truth values: with a step along k, which is `step`; from packed panels."""

    stepped: str
    packed: str
    step: str


@dataclass(frozen=True)
class _Zeros:
    """The words of `BORDER_WORDS`; `row` is where a block begins along m."""

    run: str
    each: str
    size: str
    slope: str
    first: str
    behind: str
    last: str
    row: str = "0"

    def part(self, c: Code, at: str, rows: str, products: str) -> tuple[str, str, str]:
        """For the rows of a block from `at` on: the end of those (of `rows`) that meet the same products, and which these
        are (of `products`), the first and how many.  Rows that meet none are given all."""
        d = c.let(f"udiv i64 {c.add(self.row, at)}, {self.run}")
        moved = c.mul(self.slope, d)
        first = c.most(c.add(moved, self.first), "0")
        behind = c.least(c.add(moved, self.behind), self.size)
        some, all_ = c.let(f"icmp slt i64 {first}, {behind}"), c.let(f"icmp eq i64 {c.sub(behind, first)}, {self.size}")
        same = c.let(f"select i1 {all_}, i64 {c.most(self.last, d)}, i64 {d}")
        end = c.least(c.sub(c.mul(c.add(same, "1"), self.run), self.row), rows)
        first = c.mul(c.let(f"select i1 {some}, i64 {first}, i64 0"), self.each)
        behind = c.least(c.mul(c.let(f"select i1 {some}, i64 {behind}, i64 {self.size}"), self.each), products)
        return end, first, c.sub(behind, first)


def _zeros(c: Code, once: str) -> _Zeros:
    """What the description says; where it says nothing, all rows meet all products.

    So they do unless a sum is made at `once`: the last tile of alike rows may begin the ones behind it, but not add to them.
    """
    words = [entry(c, "%k", str(GROUP_WORDS + i)) for i in range(BORDER_WORDS)]
    known = c.let(f"and i1 {once}, {c.let(f'icmp ne i64 {words[0]}, 0')}")
    many = str(1 << 40)
    return _Zeros(*(
        c.let(f"select i1 {known}, i64 {word}, i64 {all_}")
        for word, all_ in zip(words, (many, many, "1", "0", "0", "1", "0"), strict=True)
    ))  # fmt: skip


def _in_rows(c: Code, table: str, count: str) -> str:
    """Whether a block of A has rows of consecutive numbers; not asked where its numbers are `repeated`."""
    before, ask, asked = c.block, c.label("ask"), c.label("asked")
    c.branch(c.let("icmp eq i64 %repeated, 0"), ask, asked)
    c.begin(ask)
    found, last = runs(c, table, count), c.block
    c.jump(asked)
    c.begin(asked)
    answer = c.phi("i1")
    answer.close(("false", before), (found, last))
    return answer.name


def _pad(c: Code, table: str, count: str, width: int) -> None:
    """Repeat the first place behind the last one: any place will do to fill up a tile."""
    first = entry(c, table, "0")
    with c.loop("0", str(width), hint="pad") as i:
        c.do(f"store i64 {first}, ptr {c.at(table, c.add(count, i), 'i64')}")


def _tiles(
    c: Code, f: TileFormat, part: dict[str, str], way: _Way, block: tuple[str, str, str], anew: str, zeros: _Zeros
) -> None:
    """The loops over the tiles of a block, of extents m, n and k; `anew` is 1 for the first one along k of a new sum.

    What is summed by tables leaves products with zeros out, for which rows are taken together that have the same ones.
    """
    mb, nb, kb = block
    rows, width = f.tile[0], f.tile[1] * f.lanes
    added = c.let(f"icmp eq i64 {anew}, 0")
    high = c.let(f"select i1 {way.stepped}, i64 {rows}, i64 {f.listed}")
    first_k = c.at("%a", c.let(f"select i1 {way.stepped}, i64 {entry(c, part['ak'], '0')}, i64 0"), f.real)
    with c.loop("0", nb, str(width), "jr") as jr:
        b = c.at(part["b"], c.mul(jr, kb), f.real)
        cn = c.at(part["cn"], jr, "i64")
        nr = c.least(c.sub(nb, jr), str(width))
        # what is summed by tables goes to rows of our own, and so does what has no rows in C
        together = c.let(f"and i1 {way.stepped}, {consecutive(c, f, cn, nr, f.tile[1])}")
        apart = c.let(f"xor i1 {together}, true")
        first_n = entry(c, cn, "0")
        kept = c.let(f"select i1 {added}, i64 {nr}, i64 0")
        moved = f"ptr %c, ptr {part['cm']}, ptr {cn}, i64 {mb}, i64 {nr}, ptr {part['own']}, ptr {part['spare']}"
        with c.when(c.let(f"and i1 {apart}, {added}"), "take"):
            c.do(f"call void @upl.take.{f.name}({moved})")
        header, same, moved_on = c.label("same"), c.label("alike"), c.label("moved")
        begin, before = c.counting(header, "row", mb, same, moved_on)
        c.begin(same)
        end, first, some = zeros.part(c, begin.name, mb, kb)
        along = c.at(part["ak"], first, "i64")
        below = c.at(b, c.mul(first, str(width)), f.real)
        with c.loop(begin.name, end, high, "ir") as ir:
            mr = c.least(c.sub(end, ir), high)
            cm, am = c.at(part["cm"], ir, "i64"), c.at(part["am"], ir, "i64")
            a = c.let(f"select i1 {way.packed}, ptr {c.at(part['a'], c.mul(ir, kb), f.real)}, ptr {first_k}")
            places = c.let(f"select i1 {way.packed}, ptr {part['count']}, ptr {am}")
            own = c.at(part["own"], c.mul(ir, str(width)), f.real)
            stepped, listed, ran = c.label("stepped"), c.label("listed"), c.label("ran")
            c.branch(way.stepped, stepped, listed)
            c.begin(stepped)
            with c.loop("0", str(rows), hint="row") as r:
                # for rows that are not there, any row of A will do, and the result is not used
                there = c.let(f"icmp slt i64 {r}, {mr}")
                row = c.at("%c", c.add(entry(c, cm, r), first_n), f.real)
                direct = c.let(f"and i1 {there}, {together}")
                target = c.let(f"select i1 {direct}, ptr {row}, ptr {c.at(own, c.mul(r, str(width)), f.real)}")
                c.do(f"store ptr {target}, ptr {c.at(part['rows'], r, 'ptr')}")
            given = f"{way.step}, ptr {b}, ptr {part['rows']}, i64 {nr}, i64 {kept}"
            _tile(c, f, tiles(f, listed=False), (mr, nr), f"i64 {kb}, ptr {a}, ptr {places}, i64 {given}", ran)
            c.begin(listed)
            given = f"{along}, ptr {below}, ptr {own}, i64 {kept}"
            _tile(c, f, tiles(f, listed=True), (mr, nr), f"i64 {some}, ptr {a}, ptr {places}, ptr {given}", ran)
            c.begin(ran)
        begin.close(("0", before), (end, c.block))
        c.jump(header)
        c.begin(moved_on)
        with c.when(apart, "put"):
            c.do(f"call void @upl.put.{f.name}({moved})")


def _tile(c: Code, f: TileFormat, kernels: list[Tile], extent: tuple[str, str], arguments: str, ran: str) -> None:
    """Call the smallest kernel that does, and go on at `ran`."""
    for t in kernels:
        larger = None
        if t is not kernels[-1]:
            fits = c.let(f"icmp sle i64 {extent[0]}, {t.rows}")
            fits = c.let(f"and i1 {fits}, {c.let(f'icmp sle i64 {extent[1]}, {t.columns}')}")
            yes, larger = c.label("fits"), c.label("larger")
            c.branch(fits, yes, larger)
            c.begin(yes)
        c.do(f"call void @{t.name(f)}({arguments})")
        c.jump(ran)
        if larger is not None:
            c.begin(larger)
