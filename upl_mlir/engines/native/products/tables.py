"""Tables of places, as functions in LLVM IR: where the elements of a product's operands stand in memory.

A *group* is an index that may stand for several dimensions: sizes, and for each of its dimensions the strides in the two
arrays that have it.  Its linear index runs row-major.  A place in an array is a sum of one entry per group: so transposed
operands, convolutions (`A[y+dy]`) and reversed ones are all read alike.
"""

from __future__ import annotations

from upl_mlir.engines.native.llvm.text import Code
from upl_mlir.engines.native.products.tiles import TileFormat, first_lanes, splat

MAX_DIMS = 8
"""Dimensions of a group of a contraction that a table describes. Chosen, not measured."""
GROUP_WORDS = 1 + 3 * MAX_DIMS
"""A group in memory: number of dimensions, then sizes, first strides, second strides (MAX_DIMS places each)."""
BORDER_WORDS = 7
"""Which products along k are not with zeros that stand round A: those with ``slope*d + first <= e < slope*d + behind``,
where d is an index of m, `run` rows long, and e one of k, `each` long and of `size` values; up to the d called `last`, all.
The words are run, each, size, slope, first, behind, last.  run = 0: nothing is known."""
DESCRIPTION_WORDS = 3 * GROUP_WORDS + BORDER_WORDS
"""The groups m (strides in A and C), n (B and C), k (A and B); behind k what is known of zeros."""
SLACK = 32
"""Entries behind a table's end that may be read and written: two vectors of any format."""

GLUE = "#5"
"""Attributes of functions whose loops are short: unrolling and vectorising them would only cost compile time."""


def function(name: str, params: str, code: Code, attributes: str = "#2") -> str:
    """The definition of a function without a result."""
    return f"define void @{name}({params}) {attributes} {{\nstart:\n" + "\n".join(code.lines) + "\n  ret void\n}\n"


def entry(c: Code, table: str, i: str) -> str:
    """An entry of a table."""
    return c.let(f"load i64, ptr {c.at(table, i, 'i64')}", "e")


def group_size(c: Code, group: str) -> str:
    """How many points a group has."""
    total = c.let("alloca i64", "var")
    c.do(f"store i64 1, ptr {total}")
    with c.loop("0", c.let(f"load i64, ptr {group}")) as d:
        size = c.let(f"load i64, ptr {c.at(group, c.add(d, '1'), 'i64')}")
        c.do(f"store i64 {c.mul(c.let(f'load i64, ptr {total}'), size)}, ptr {total}")
    return c.let(f"load i64, ptr {total}")


def _fill_whole(c: Code, f: TileFormat) -> None:
    """The tables of a whole group: for each dimension, the last one first, what stands there once for each index."""
    ints = f"<{f.lanes} x i64>"
    length = c.let("alloca i64", "var")
    dims = c.let("load i64, ptr %group")

    def fields(d: str) -> list[str]:
        return [c.let(f"load i64, ptr {c.at('%group', c.add(d, str(1 + w * MAX_DIMS)), 'i64')}") for w in range(3)]

    size, *steps = fields(c.sub(dims, "1"))
    c.do(f"store i64 {size}, ptr {length}")
    digits = ", ".join(f"i64 {i}" for i in range(f.lanes))
    with c.loop("0", size, str(f.lanes), hint="entries") as j:
        index = c.let(f"add {ints} {splat(c, f, j, 'i64')}, <{digits}>")
        for table, step in zip(("%first", "%second"), steps, strict=True):
            places = c.let(f"mul {ints} {index}, {splat(c, f, step, 'i64')}")
            c.do(f"store {ints} {places}, ptr {c.at(table, j, 'i64')}, align 8")
    with c.loop("1", dims, hint="dim") as i:
        size, *steps = fields(c.sub(c.sub(dims, "1"), i))
        run = c.let(f"load i64, ptr {length}")
        with c.loop("0", run, str(f.lanes), hint="entries") as j:
            mask = first_lanes(c, f, c.sub(run, j))
            once = [c.let(f"load {ints}, ptr {c.at(table, j, 'i64')}, align 8") for table in ("%first", "%second")]
            with c.loop("1", size, hint="copy") as x:
                place = c.add(c.mul(x, run), j)
                for table, entries, step in zip(("%first", "%second"), once, steps, strict=True):
                    moved = c.let(f"add {ints} {entries}, {splat(c, f, c.mul(x, step), 'i64')}")
                    c.do(f"call void @llvm.masked.store.v{f.lanes}i64.p0({ints} {moved}, ptr align 8 "
                         f"{c.at(table, place, 'i64')}, <{f.lanes} x i1> {mask})")  # fmt: skip
        c.do(f"store i64 {c.mul(run, size)}, ptr {length}")


def fill_tables(f: TileFormat) -> str:
    """``fill(group, start, count, first, second)``: places of `count` indices of a group in its two arrays.

    A whole group is filled by copies of what stands there already.  Otherwise digits of the first index are found by
    division, the following ones by counting on.  Up to `SLACK` entries behind the last one are overwritten.
    """
    c = Code()
    place = c.let("alloca i64", "var")
    digits = c.let(f"alloca [{MAX_DIMS} x i64]", "digits")
    bases = [c.let("alloca i64", "var") for _ in range(2)]
    rest = c.let("alloca i64", "var")
    dims = c.let("load i64, ptr %group")
    last = c.sub(dims, "1")
    total = group_size(c, "%group")
    part, whole = c.label("part"), c.label("whole")
    all_ = c.let(f"and i1 {c.let(f'icmp eq i64 {total}, %count')}, {c.let('icmp sgt i64 %count, 0')}")
    c.branch(all_, whole, part)
    c.begin(whole)
    _fill_whole(c, f)
    c.do("ret void")
    c.begin(part)

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
    return function(f"upl.fill.{f.name}", params, c, GLUE)


def consecutive(c: Code, f: TileFormat, table: str, left: str | None = None, vectors: int = 1) -> str:
    """Whether entries of a table are consecutive places: the first `left`, or `vectors` times as many as a vector has."""
    ints, truths = f"<{f.lanes} x i64>", f"<{f.lanes} x i1>"
    first = splat(c, f, entry(c, table, "0"), "i64")
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


def runs(c: Code, table: str, count: str) -> str:
    """Whether the first `count` entries of a table are consecutive places."""
    first = entry(c, table, "0")
    header, done, before = c.label("run"), c.label("rundone"), c.block
    c.jump(header)
    c.begin(header)
    i, good = c.phi("i64"), c.phi("i1")
    same = c.let(f"icmp eq i64 {entry(c, table, i.name)}, {c.add(first, i.name)}")
    still = c.let(f"and i1 {same}, {good.name}")
    following = c.let(f"add nuw nsw i64 {i.name}, 1")
    i.close(("0", before), (following, header))
    good.close(("true", before), (still, header))
    c.branch(c.let(f"icmp slt i64 {following}, {count}"), header, done)
    c.begin(done)
    return still
