"""Kernels on small tiles, as LLVM IR: the inner loops of all contractions.

A tile is `rows` × `vectors` vector registers of accumulators.  Each step along the summed index loads one row of `vectors`
vectors, broadcasts one number for each row, and adds the products (an outer product).  Every element of the result is
summed in the order of the index, starting from what stands there: without `fused` that is exactly the sum that plain
loops give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from upl_mlir.engines.native.llvm.lanes import FORMATS
from upl_mlir.engines.native.llvm.text import Code


@dataclass(frozen=True)
class TileFormat:
    """Element type (`double` or `float`), numbers in a vector, registers, and whether products are fused with sums."""

    real: str
    lanes: int
    registers: int
    fused: bool

    @property
    def vector(self) -> str:
        """The LLVM type of a vector."""
        return f"<{self.lanes} x {self.real}>"

    @property
    def bytes(self) -> int:
        """Bytes of an element."""
        return 8 if self.real == "double" else 4

    @property
    def suffix(self) -> str:
        """How the names of vector intrinsics end."""
        return f"v{self.lanes}{FORMATS[self.real].suffix}"

    @property
    def name(self) -> str:
        """How the names of functions for this format end."""
        return FORMATS[self.real].suffix + ("" if self.fused else ".ordered")

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and vectors of the tile of packed products: as many accumulators as leave registers for operands."""
        return (12, 2) if self.registers >= 32 else (6, 2)

    @property
    def listed(self) -> int:
        """Rows of the tile of products that read A by a table, where each row has an address of its own.

        Each sum waits for the one before it, four cycles on x86-64, where two vectors are added in a cycle: more than eight
        rows keep it busy.  Ten addresses are as many as there are registers for.
        """
        return 10 if self.registers >= 32 else 4

    @property
    def side(self) -> int:
        """The side of the squares that are transposed: at most the lanes of a vector, a power of two."""
        return min(8 if self.registers >= 32 else 4, self.lanes)

    @property
    def few(self) -> int:
        """Rows of the smaller tile, for what is left over."""
        return 4 if self.registers >= 32 else 2

    @property
    def thin(self) -> int:
        """Vectors in a row of the kernels for few rows."""
        return 4 if self.registers >= 32 else 2


def multiply_add(code: Code, f: TileFormat, a: str, b: str, c: str, type_: str | None = None) -> str:
    """a*b + c on vectors."""
    t = type_ or f.vector
    if f.fused:
        suffix = f.suffix if t == f.vector else FORMATS[f.real].suffix
        return code.let(f"call {t} @llvm.fmuladd.{suffix}({t} {a}, {t} {b}, {t} {c})")
    return code.let(f"fadd {t} {c}, {code.let(f'fmul {t} {a}, {b}')}")


def splat(code: Code, f: TileFormat, value: str, scalar: str | None = None) -> str:
    """A vector of one number (of type `scalar` if that is not the format's)."""
    scalar = scalar or f.real
    vector = f"<{f.lanes} x {scalar}>"
    one = code.let(f"insertelement {vector} poison, {scalar} {value}, i64 0")
    return code.let(f"shufflevector {vector} {one}, {vector} poison, <{f.lanes} x i32> zeroinitializer")


NOTHING = "splat ({real} -0.0)"
"""What a sum starts from if it starts anew: leaves every first summand as it is."""


def load(
    code: Code,
    f: TileFormat,
    address: str,
    mask: str | None = None,
    align: int | None = None,
    other: str = "zeroinitializer",
) -> str:
    """A vector from memory; lanes outside the mask are `other`, or 0."""
    align = align or f.bytes
    if mask is None:
        return code.let(f"load {f.vector}, ptr {address}, align {align}")
    m = f"<{f.lanes} x i1>"
    args = f"ptr align {align} {address}, {m} {mask}, {f.vector} {other}"
    return code.let(f"call {f.vector} @llvm.masked.load.{f.suffix}.p0({args})")


def store(code: Code, f: TileFormat, address: str, value: str, mask: str | None = None) -> None:
    """A vector to memory; lanes outside the mask are left alone."""
    if mask is None:
        code.do(f"store {f.vector} {value}, ptr {address}, align {f.bytes}")
        return
    m = f"<{f.lanes} x i1>"
    code.do(
        f"call void @llvm.masked.store.{f.suffix}.p0({f.vector} {value}, ptr align {f.bytes} {address}, {m} {mask})"
    )


def first_lanes(code: Code, f: TileFormat, count: str) -> str:
    """The mask of the first `count` lanes (all if there are fewer)."""
    n = code.least(code.most(count, "0"), str(f.lanes))
    all_ = splat(code, f, n, "i64")
    steps = ", ".join(f"i64 {i}" for i in range(f.lanes))
    return code.let(f"icmp slt <{f.lanes} x i64> <{steps}>, {all_}")


Step = Callable[[str], tuple[Sequence[str], str]]
"""Writes the addresses for one step: of the number of each row, and of the row of vectors."""


def accumulate(
    code: Code,
    f: TileFormat,
    vectors: int,
    count: str,
    targets: Sequence[str],
    step: Step,
    masks: Sequence[str] | None = None,
    padded: bool = False,
    there: Sequence[str] | None = None,
) -> None:
    """Write the loop over the summed index: adds all products to the rows of vectors at `targets`.

    `masks` hold for `targets`, and for the rows that are loaded unless these are `padded` to whole, aligned vectors.
    Sums start from what stands at `targets` where the masks `there` (by default `masks`) hold, else anew.
    """
    lanes: list[str | None] = list(masks) if masks else [None] * vectors
    places = [[code.at(t, str(v * f.lanes), f.real) for v in range(vectors)] for t in targets]
    kept = there or lanes
    anew = NOTHING.format(real=f.real)
    sums = [[load(code, f, p, m, other=anew) for p, m in zip(row, kept, strict=True)] for row in places]
    header, done, before = code.label("k"), code.label("kdone"), code.block
    code.branch(code.let(f"icmp sgt i64 {count}, 0", "c"), header, done)
    code.begin(header)
    k = code.phi("i64", "k")
    phis = [[code.phi(f.vector, "s") for _ in row] for row in sums]
    numbers, row = step(k.name)
    alignment = f.lanes * f.bytes if padded else None
    loaded = [
        load(code, f, code.at(row, str(v * f.lanes), f.real), None if padded else m, alignment)
        for v, m in enumerate(lanes)
    ]
    after: list[list[str]] = []
    for number, totals in zip(numbers, phis, strict=True):
        a = splat(code, f, code.let(f"load {f.real}, ptr {number}, align {f.bytes}"))
        after.append([multiply_add(code, f, a, b, s.name) for b, s in zip(loaded, totals, strict=True)])
    following = code.let(f"add nuw nsw i64 {k.name}, 1", "k")
    last = code.block
    code.branch(code.let(f"icmp slt i64 {following}, {count}", "c"), header, done)
    k.close(("0", before), (following, last))
    for start, phi_row, new in zip(sums, phis, after, strict=True):
        for s, phi, n in zip(start, phi_row, new, strict=True):
            phi.close((s, before), (n, last))
    code.begin(done)
    finals = [[code.phi(f.vector, "t") for _ in row] for row in sums]
    for i, row_of_places in enumerate(places):
        for v, place in enumerate(row_of_places):
            finals[i][v].close((sums[i][v], before), (after[i][v], last))
            store(code, f, place, finals[i][v].name, lanes[v])
