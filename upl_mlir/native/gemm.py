"""General products of arrays as functions in LLVM IR: cache blocks, packed panels, and the tiles of `tiles.py`.

    C[m, n] += Σ_k A[m, k] · B[k, n]        where m, n and k may each stand for several dimensions

A *group* describes such an index: sizes, and for each of its dimensions the strides in the two arrays that have it.  Its
linear index runs row-major.  Places in an array are sums of one entry per group from small tables, made for one cache
block at a time: so transposed operands, convolutions (`A[y+dy]`) and reversed ones take the same way as plain matrices.

Blocking as in GotoBLAS/BLIS: panels of B stay in L1 while a block of A streams from L2.
"""

from __future__ import annotations

from dataclasses import dataclass

from upl_mlir.native.text import Code
from upl_mlir.native.tiles import TileFormat, accumulate, first_lanes, load, splat, store

MAX_DIMS = 8
GROUP_WORDS = 1 + 3 * MAX_DIMS
"""A group in memory: number of dimensions, then sizes, first strides, second strides (MAX_DIMS places each)."""
DESCRIPTION_WORDS = 3 * GROUP_WORDS
"""The groups m (strides in A and C), n (B and C), k (A and B)."""

GLUE = "#5"
"""Attributes of functions whose loops are short: unrolling and vectorising them would only cost compile time."""

KC, NC = 256, 1024
"""Extent of a cache block along k and n."""


def rows_of_block(f: TileFormat) -> int:
    """Extent of a cache block along m: about 240, whole tiles."""
    return 240 // f.tile[0] * f.tile[0]


@dataclass(frozen=True)
class Panels:
    """Byte offsets of what a call keeps in its scratch: tables of places, an edge tile, packed blocks of A and B."""

    f: TileFormat

    @property
    def offsets(self) -> dict[str, int]:
        """Where each part begins; "end" is the size of all."""
        rows, vectors = self.f.tile
        mc, width = rows_of_block(self.f), vectors * self.f.lanes
        slack = 2 * width  # tables are read in whole vectors
        sizes = {
            "am": (mc + slack) * 8, "cm": mc * 8, "bn": (NC + slack) * 8, "cn": (NC + slack) * 8, "ak": KC * 8, "bk": KC * 8,
            "count": rows * 8, "rows": rows * 8,
            "edge": rows * width * self.f.bytes, "a": mc * KC * self.f.bytes, "b": (NC + width) * KC * self.f.bytes,
        }  # fmt: skip
        out, at = dict[str, int](), 0
        for name, size in sizes.items():
            out[name] = at
            at += (size + 63) // 64 * 64 + 64
        return out | {"end": at}


def _function(name: str, params: str, code: Code, attributes: str = "#2") -> str:
    return f"define void @{name}({params}) {attributes} {{\nstart:\n" + "\n".join(code.lines) + "\n  ret void\n}\n"


def fill_tables(f: TileFormat) -> str:
    """``fill(group, start, count, first, second)``: places of `count` indices of a group in its two arrays.

    Digits of the first index are found by division, the following ones by counting on.
    """
    c = Code()
    place = c.let("alloca i64", "var")
    digits = c.let(f"alloca [{MAX_DIMS} x i64]", "digits")
    bases = [c.let("alloca i64", "var") for _ in range(2)]
    rest = c.let("alloca i64", "var")
    dims = c.let("load i64, ptr %group")
    last = c.sub(dims, "1")

    def field(which: int, d: str) -> str:
        return c.let(f"load i64, ptr {c.at('%group', c.add(d, str(1 + which * MAX_DIMS)), 'i64')}")

    def add_to(cell: str, value: str) -> None:
        c.do(f"store i64 {c.add(c.let(f'load i64, ptr {cell}'), value)}, ptr {cell}")

    for cell in (place, *bases):
        c.do(f"store i64 0, ptr {cell}")
    c.do(f"store i64 %from, ptr {rest}")
    with c.loop("0", dims) as i:
        d = c.sub(last, i)
        size, left = field(0, d), c.let(f"load i64, ptr {rest}")
        digit = c.let(f"urem i64 {left}, {size}")
        c.do(f"store i64 {c.let(f'udiv i64 {left}, {size}')}, ptr {rest}")
        c.do(f"store i64 {digit}, ptr {c.at(digits, d, 'i64')}")
        for which, base in enumerate(bases):
            add_to(base, c.mul(digit, field(1 + which, d)))
    size, inner = field(0, last), c.at(digits, last, "i64")
    steps = [field(1 + i, last) for i in range(2)]
    head, work, carry, turn, end = (c.label(x) for x in ("head", "work", "carry", "turn", "end"))
    c.jump(head)
    c.begin(head)
    at = c.let(f"load i64, ptr {place}")
    c.branch(c.let(f"icmp slt i64 {at}, %count"), work, end)
    c.begin(work)  # a run along the last dimension
    run = c.least(c.sub(size, c.let(f"load i64, ptr {inner}")), c.sub("%count", at))
    starts = [c.let(f"load i64, ptr {base}") for base in bases]
    with c.loop("0", run) as j:
        for table, start, step in zip(("%first", "%second"), starts, steps, strict=True):
            c.do(f"store i64 {c.add(start, c.mul(j, step))}, ptr {c.at(table, c.add(at, j), 'i64')}")
    c.do(f"store i64 {c.add(at, run)}, ptr {place}")
    add_to(inner, run)
    for base, step in zip(bases, steps, strict=True):
        add_to(base, c.mul(run, step))
    before = c.block
    c.jump(carry)
    c.begin(carry)  # digits that have come to their size begin again, and the next one counts
    d_phi = c.phi("i64", "d")
    d = d_phi.name
    digit = c.let(f"load i64, ptr {c.at(digits, d, 'i64')}")
    full = c.let(f"icmp sge i64 {digit}, {field(0, d)}")
    outer = c.let(f"icmp sgt i64 {d}, 0")
    c.branch(c.let(f"and i1 {full}, {outer}"), turn, head)
    c.begin(turn)
    up = c.sub(d, "1")
    c.do(f"store i64 0, ptr {c.at(digits, d, 'i64')}")
    add_to(c.at(digits, up, "i64"), "1")
    for which, base in enumerate(bases):
        add_to(base, c.sub(field(1 + which, up), c.mul(digit, field(1 + which, d))))
    d_phi.close((last, before), (up, c.block))
    c.jump(carry)
    c.begin(end)
    params = "ptr noalias %group, i64 %from, i64 %count, ptr noalias %first, ptr noalias %second"
    return _function(f"upl.fill.{f.name}", params, c, GLUE)


def _entry(c: Code, table: str, i: str) -> str:
    return c.let(f"load i64, ptr {c.at(table, i, 'i64')}", "e")


def _consecutive(c: Code, f: TileFormat, table: str, left: str | None = None, vectors: int = 1) -> str:
    """Whether entries of a table are consecutive places: the first `left`, or `vectors` times as many as a vector has."""
    ints, truths = f"<{f.lanes} x i64>", f"<{f.lanes} x i1>"
    first = splat(c, f, _entry(c, table, "0"), "i64")
    good = "true"
    for v in range(vectors):
        place = c.at(table, str(v * f.lanes), "i64")
        entries = c.let(f"load {ints}, ptr {place}, align 8")
        steps = ", ".join(f"i64 {v * f.lanes + i}" for i in range(f.lanes))
        right = c.let(f"icmp eq {ints} {c.let(f'sub {ints} {entries}, {first}')}, <{steps}>")
        if left is not None:
            beyond = c.let(f"xor {truths} {first_lanes(c, f, c.sub(left, str(v * f.lanes)))}, splat (i1 true)")
            right = c.let(f"or {truths} {right}, {beyond}")
        all_ = c.let(f"call i1 @llvm.vector.reduce.and.v{f.lanes}i1({truths} {right})")
        good = all_ if good == "true" else c.let(f"and i1 {good}, {all_}")
    return good


def _runs(c: Code, table: str, count: str) -> str:
    """Whether the first `count` entries of a table are consecutive places."""
    first = _entry(c, table, "0")
    header, done, before = c.label("run"), c.label("rundone"), c.block
    c.jump(header)
    c.begin(header)
    i, good = c.phi("i64"), c.phi("i1")
    same = c.let(f"icmp eq i64 {_entry(c, table, i.name)}, {c.add(first, i.name)}")
    still = c.let(f"and i1 {same}, {good.name}")
    following = c.let(f"add nuw nsw i64 {i.name}, 1")
    i.close(("0", before), (following, header))
    good.close(("true", before), (still, header))
    c.branch(c.let(f"icmp slt i64 {following}, {count}"), header, done)
    c.begin(done)
    return still


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
        c.branch(_consecutive(c, f, here, left, vectors), direct, other)
        c.begin(direct)  # rows of the panel are rows of x
        source = c.at("%x", _entry(c, here, "0"), f.real)
        masks = [first_lanes(c, f, c.sub(left, str(v * f.lanes))) for v in range(vectors)]
        with c.loop("0", "%k") as j:
            row, to = c.at(source, _entry(c, "%along", j), f.real), c.at(target, c.mul(j, str(width)), f.real)
            for v, mask in enumerate(masks):
                value = load(c, f, c.at(row, str(v * f.lanes), f.real), mask)
                store(c, f, c.at(to, str(v * f.lanes), f.real), value, cut if v == vectors - 1 else None)
        c.jump(done)
        c.begin(other)
        whole = width - rest
        with c.loop("0", str(whole), str(f.lanes)) as first:
            _pack_squares(c, f, c.at(here, first, "i64"), c.at(target, first, f.real), width)
        if cut is not None:
            places = c.at(here, str(whole), "i64")
            with c.loop("0", "%k") as j:
                to = c.at(target, c.add(c.mul(j, str(width)), str(whole)), f.real)
                store(c, f, to, _gather(c, f, places, j, cut), cut)
        c.jump(done)
        c.begin(done)
    params = "ptr noalias %x, ptr noalias %across, ptr noalias %along, i64 %n, i64 %k, ptr noalias %panels"
    return _function(f"upl.pack{width}.{f.name}", params, c)


def _pack_squares(c: Code, f: TileFormat, places: str, target: str, width: int) -> None:
    """A column of a panel, as wide as a vector: transposed squares where x runs along the panel, else single numbers."""
    sources = [c.at("%x", _entry(c, places, str(r)), f.real) for r in range(f.lanes)]
    squares = c.let(f"and i64 %k, {-f.lanes}")
    with c.loop("0", squares, str(f.lanes)) as j:
        table, to = c.at("%along", j, "i64"), c.at(target, c.mul(j, str(width)), f.real)
        straight, crooked, done = c.label("straight"), c.label("crooked"), c.label("square")
        c.branch(_consecutive(c, f, table), straight, crooked)
        c.begin(straight)
        at = _entry(c, table, "0")
        for r, row in enumerate(transpose(c, f, [load(c, f, c.at(s, at, f.real)) for s in sources])):
            store(c, f, c.at(to, str(r * width), f.real), row)
        c.jump(done)
        c.begin(crooked)
        with c.loop("0", str(f.lanes)) as r:
            store(c, f, c.at(to, c.mul(r, str(width)), f.real), _gather(c, f, places, c.add(j, r), "splat (i1 true)"))
        c.jump(done)
        c.begin(done)
    with c.loop(squares, "%k") as j:
        to = c.at(target, c.mul(j, str(width)), f.real)
        store(c, f, to, _gather(c, f, places, j, "splat (i1 true)"))


def _gather(c: Code, f: TileFormat, places: str, j: str, mask: str) -> str:
    """The numbers x[places[r] + along[j]] as a vector."""
    ints, pointers = f"<{f.lanes} x i64>", f"<{f.lanes} x ptr>"
    entries = c.let(f"load {ints}, ptr {places}, align 8")
    row = c.at("%x", _entry(c, "%along", j), f.real)
    there = c.let(f"getelementptr inbounds {f.real}, ptr {row}, {ints} {entries}")
    args = f"{pointers} align {f.bytes} {there}, <{f.lanes} x i1> {mask}, {f.vector} zeroinitializer"
    return c.let(f"call {f.vector} @llvm.masked.gather.{f.suffix}.v{f.lanes}p0({args})")


def transpose(c: Code, f: TileFormat, rows: list[str]) -> list[str]:
    """A square of vectors, transposed: blocks of 1, 2, 4… lanes are exchanged across the diagonal."""
    size = 1
    while size < f.lanes:
        new = list(rows)
        for i in range(f.lanes):
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


def tile(f: TileFormat, rows: int) -> str:
    """``tile(k, a, rows_a, step_a, b, rows_c, n, kept)``: adds a product to one tile of C.

    The numbers of A stand at a + rows_a[r] + k·step_a, B is a packed panel, row r of C begins at the address rows_c[r], and
    has n numbers, of which the first `kept` are added to; the others are written anew.
    """
    c = Code()
    vectors = f.tile[1]
    targets = [c.let(f"load ptr, ptr {c.at('%rows_c', str(r), 'ptr')}") for r in range(rows)]
    sources = [c.at("%a", _entry(c, "%rows_a", str(r)), f.real) for r in range(rows)]
    masks = [first_lanes(c, f, c.sub("%n", str(v * f.lanes))) for v in range(vectors)]

    def step(k: str) -> tuple[list[str], str]:
        at = c.mul(k, "%step_a")
        return [c.at(s, at, f.real) for s in sources], c.at("%b", c.mul(k, str(vectors * f.lanes)), f.real)

    there = [first_lanes(c, f, c.sub("%kept", str(v * f.lanes))) for v in range(vectors)]
    accumulate(c, f, vectors, "%k", targets, step, masks, padded=True, there=there)
    params = "i64 %k, ptr %a, ptr %rows_a, i64 %step_a, ptr %b, ptr %rows_c, i64 %n, i64 %kept"
    return _function(f"upl.tile{rows}.{f.name}", params, c)


def product(f: TileFormat) -> str:
    """``gemm(groups, a, b, c, scratch, m0, m1, n0, n1, anew)``: the part m0 ≤ m < m1, n0 ≤ n < n1 of a product.

    What stands in C does not count if `anew` is 1.
    """
    c = Code()
    rows, vectors = f.tile
    width, mc = vectors * f.lanes, rows_of_block(f)
    part = {name: c.at("%scratch", str(offset), "i8") for name, offset in Panels(f).offsets.items() if name != "end"}
    groups = {name: c.at("%groups", str(i * GROUP_WORDS), "i64") for i, name in enumerate("mnk")}
    with c.loop("0", str(rows)) as r:
        c.do(f"store i64 {r}, ptr {c.at(part['count'], r, 'i64')}")
    c.do(f"call void @llvm.memset.p0.i64(ptr {part['edge']}, i8 0, i64 {rows * width * f.bytes}, i1 false)")
    dims = c.let(f"load i64, ptr {groups['k']}")
    total = c.let("alloca i64", "var")
    c.do(f"store i64 1, ptr {total}")
    with c.loop("0", dims) as d:
        size = c.let(f"load i64, ptr {c.at(groups['k'], c.add(d, '1'), 'i64')}")
        c.do(f"store i64 {c.mul(c.let(f'load i64, ptr {total}'), size)}, ptr {total}")
    k_all = c.let(f"load i64, ptr {total}")

    def fill(group: str, start: str, count: str, first: str, second: str) -> None:
        tables = f"ptr {part[first]}, ptr {part[second]}"
        c.do(f"call void @upl.fill.{f.name}(ptr {groups[group]}, i64 {start}, i64 {count}, {tables})")

    with c.loop("%n0", "%n1", str(NC), "jc") as jc:
        nb = c.least(c.sub("%n1", jc), str(NC))
        fill("n", jc, nb, "bn", "cn")
        _pad(c, part["bn"], nb, width)
        blocks = c.most(c.let(f"udiv i64 {c.add(k_all, str(KC - 1))}, {KC}"), "1")
        even = c.most(c.let(f"udiv i64 {c.add(k_all, c.sub(blocks, '1'))}, {blocks}"), "1")
        with c.loop("0", k_all, even, "pc") as pc:
            kb = c.least(c.sub(k_all, pc), even)
            fill("k", pc, kb, "ak", "bk")
            c.do(f"call void @upl.pack{width}.{f.name}(ptr %b, ptr {part['bn']}, ptr {part['bk']}, i64 {nb}, i64 {kb}, "
                 f"ptr {part['b']})")  # fmt: skip
            first_block = c.let(f"icmp eq i64 {pc}, 0")
            anew = c.let(f"select i1 {first_block}, i64 %anew, i64 0")
            in_rows = _runs(c, part["ak"], kb)
            first_k = _entry(c, part["ak"], "0")
            with c.loop("%m0", "%m1", str(mc), "ic") as ic:
                mb = c.least(c.sub("%m1", ic), str(mc))
                fill("m", ic, mb, "am", "cm")
                _pad(c, part["am"], mb, rows)
                packing = c.let(f"xor i1 {in_rows}, true")
                with c.when(packing, "packa"):
                    c.do(f"call void @upl.pack{rows}.{f.name}(ptr %a, ptr {part['am']}, ptr {part['ak']}, i64 {mb}, "
                         f"i64 {kb}, ptr {part['a']})")  # fmt: skip
                _tiles(c, f, part, in_rows, first_k, (mb, nb, kb), anew)
    params = ("ptr noalias %groups, ptr noalias %a, ptr noalias %b, ptr noalias %c, ptr noalias %scratch, "
              "i64 %m0, i64 %m1, i64 %n0, i64 %n1, i64 %anew")  # fmt: skip
    return _function(f"upl.gemm.{f.name}", params, c, GLUE)


def _pad(c: Code, table: str, count: str, width: int) -> None:
    """Repeat the first place behind the last one: any place will do to fill up a tile."""
    first = _entry(c, table, "0")
    with c.loop("0", str(width), hint="pad") as i:
        c.do(f"store i64 {first}, ptr {c.at(table, c.add(count, i), 'i64')}")


def _tiles(
    c: Code, f: TileFormat, part: dict[str, str], in_rows: str, first_k: str, block: tuple[str, str, str], anew: str
) -> None:
    """The loops over the tiles of a block, of extents m, n and k; `anew` is 1 for the first one along k of a new sum."""
    mb, nb, kb = block
    added = c.let(f"icmp eq i64 {anew}, 0")
    width = f.tile[1] * f.lanes
    step = c.let(f"select i1 {in_rows}, i64 1, i64 {f.tile[0]}")
    with c.loop("0", nb, str(width), "jr") as jr:
        b = c.at(part["b"], c.mul(jr, kb), f.real)
        cn = c.at(part["cn"], jr, "i64")
        nr = c.least(c.sub(nb, jr), str(width))
        together = _consecutive(c, f, cn, nr, f.tile[1])
        first_n = _entry(c, cn, "0")
        kept = c.let(f"select i1 {added}, i64 {nr}, i64 0")
        with c.loop("0", mb, str(f.tile[0]), "ir") as ir:
            mr = c.least(c.sub(mb, ir), str(f.tile[0]))
            cm, am = c.at(part["cm"], ir, "i64"), c.at(part["am"], ir, "i64")
            packed = c.at(part["a"], c.mul(ir, kb), f.real)
            a = c.let(f"select i1 {in_rows}, ptr {c.at('%a', first_k, f.real)}, ptr {packed}")
            places = c.let(f"select i1 {in_rows}, ptr {am}, ptr {part['count']}")
            scatter = c.let(f"xor i1 {together}, true")
            with c.when(scatter, "gather"):
                _edge(c, f, part, cm, cn, mr, nr, back=False)
            with c.loop("0", str(f.tile[0]), hint="row") as r:
                # rows that are not there: any row of A will do, and the result goes to a tile of our own
                there = c.let(f"icmp slt i64 {r}, {mr}")
                own = c.at(part["edge"], c.mul(r, str(width)), f.real)
                row = c.at("%c", c.add(_entry(c, cm, r), first_n), f.real)
                direct = c.let(f"and i1 {there}, {together}")
                c.do(
                    f"store ptr {c.let(f'select i1 {direct}, ptr {row}, ptr {own}')}, ptr {c.at(part['rows'], r, 'ptr')}"
                )
            few, many, ran = c.label("few"), c.label("many"), c.label("ran")
            c.branch(c.let(f"icmp sle i64 {mr}, {f.few}"), few, many)
            for label, rows in ((few, f.few), (many, f.tile[0])):
                c.begin(label)
                c.do(f"call void @upl.tile{rows}.{f.name}(i64 {kb}, ptr {a}, ptr {places}, i64 {step}, ptr {b}, "
                     f"ptr {part['rows']}, i64 {nr}, i64 {kept})")  # fmt: skip
                c.jump(ran)
            c.begin(ran)
            with c.when(scatter, "scatter"):
                _edge(c, f, part, cm, cn, mr, nr, back=True)


def _edge(c: Code, f: TileFormat, part: dict[str, str], cm: str, cn: str, mr: str, nr: str, *, back: bool) -> None:
    """Copy a tile of C, of any shape, to the edge tile or back."""
    width = f.tile[1] * f.lanes
    with c.loop("0", mr) as r:
        row = c.at("%c", _entry(c, cm, r), f.real)
        own = c.at(part["edge"], c.mul(r, str(width)), f.real)
        with c.loop("0", nr) as j:
            there, here = c.at(row, _entry(c, cn, j), f.real), c.at(own, j, f.real)
            source, target = (here, there) if back else (there, here)
            c.do(f"store {f.real} {c.let(f'load {f.real}, ptr {source}')}, ptr {target}")


def tile_declaration(f: TileFormat, rows: int) -> str:
    """The declaration of a tile kernel."""
    return f"declare void @upl.tile{rows}.{f.name}(i64, ptr, ptr, i64, ptr, ptr, i64, i64)"
