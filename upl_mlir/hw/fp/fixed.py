"""Fixed point: functions as tables of polynomials, and products of more than 18 bits on multiplier blocks.

Each is here twice: as hardware, and as the same arithmetic on arrays of integers, bit for bit.  All numbers of a table are
in units of 2**-fraction, and what is below is cut off after each product.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from amaranth.hdl import Cat, Const, Mux, Value
from numpy.typing import NDArray

from upl_mlir.hw.fp.blocks import WIDTH
from upl_mlir.hw.fp.pipe import Pipe, Pipelined, Step, chosen

Integers = NDArray[np.int64]
DIGITS = 50
"""Decimal digits with which tables are made."""
NODES = {
    2: ("0.06698730", "0.5", "0.93301270"), 3: ("0.03806023", "0.30865828", "0.69134172", "0.96193977"),
}  # fmt: skip
"""Chebyshev's places in 0..1, by degree: a polynomial with the right values there is nearly the best one."""


@dataclass(frozen=True)
class Table:
    """A function of a row and of d, a number of `bits` places after the point: the sum of the row's numbers times 1, d,
    d**2, …"""

    fraction: int
    bits: int
    rows: tuple[tuple[int, ...], ...]

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """Least and greatest value of the sums of Horner's rule, the last one first; a unit more for what is cut off."""
        out: list[tuple[int, int]] = []
        spans = [(0, 0)] * len(self.rows)
        for column in range(len(self.rows[0]) - 1, -1, -1):
            more = 0 if not out else 2
            spans = [(row[column] + min(low, 0) - more, row[column] + max(high, 0) + more)
                     for row, (low, high) in zip(self.rows, spans, strict=True)]  # fmt: skip
            out.insert(0, (min(low for low, _ in spans), max(high for _, high in spans)))
        return out

    def magnitude(self, column: int) -> int:
        """The bits of the sum from this column on, without its sign."""
        return _magnitude(self.ranges[column])

    def taken(self, column: int) -> int:
        """How many bits of d, from its highest one on, this sum is multiplied by."""
        return min(self.bits, self.magnitude(column) + 1)

    def evaluate(self, row: Integers, d: Integers) -> Integers:
        """The function on arrays."""
        columns = np.array(self.rows, np.int64).T
        total = columns[-1][row]
        for column in range(len(columns) - 2, -1, -1):
            size, taken = self.magnitude(column + 1), self.taken(column + 1)
            top = d >> (self.bits - taken)
            product = multiplied(total & (1 << size) - 1, size, top, taken, False) >> taken
            total = columns[column][row] + product - np.where(total < 0, top << size >> taken, 0)
        return total


def table(
    f: Callable[[Decimal], Decimal], pieces: Sequence[tuple[str, str]], fraction: int, bits: int, degree: int
) -> Table:
    """The table of a function, with a polynomial for each piece, from its begin to its end."""
    with localcontext() as context:
        context.prec = DIGITS
        return Table(fraction, bits, tuple(_row(f, Decimal(a), Decimal(b), fraction, degree) for a, b in pieces))


def pieces(low: float, high: float, count: int) -> list[tuple[str, str]]:
    """Equal pieces between two numbers."""
    ends = [Decimal(low) + (Decimal(high) - Decimal(low)) * n / count for n in range(count + 1)]
    return [(str(a), str(b)) for a, b in pairwise(ends)]


def _row(f: Callable[[Decimal], Decimal], low: Decimal, high: Decimal, fraction: int, degree: int) -> tuple[int, ...]:
    """By Newton's divided differences."""
    nodes = [Decimal(n) for n in NODES[degree]]
    differences = [f(low + (high - low) * n) for n in nodes]
    for k in range(1, degree + 1):
        for i in range(degree, k - 1, -1):
            differences[i] = (differences[i] - differences[i - 1]) / (nodes[i] - nodes[i - k])
    coefficients = [Decimal(0)] * (degree + 1)
    for k in range(degree, -1, -1):  # times (d - node), plus the difference
        moved = [Decimal(0), *coefficients[:-1]]
        coefficients = [m - nodes[k] * c for m, c in zip(moved, coefficients, strict=True)]
        coefficients[0] += differences[k]
    # What the last product loses is half a unit on the average.
    return tuple(int((c * 2**fraction + (Decimal("0.5") if k == 0 else 0)).to_integral_value())
                 for k, c in enumerate(coefficients))  # fmt: skip


def parts(bits: int) -> int:
    """How many of the lowest bits do not fit into a block with the others."""
    return max(0, bits - WIDTH)


def multiplied(a: Integers, a_bits: int, b: Integers, b_bits: int, whole: bool) -> Integers:
    """a * b as `Fixed.product` has it: if it is not `whole`, what two lowest parts give is left out."""
    low_a, low_b = parts(a_bits), parts(b_bits)
    if whole or not (low_a and low_b):
        return a * b
    return a * b - (a & (1 << low_a) - 1) * (b & (1 << low_b) - 1)


class Fixed(Pipelined):
    """A pipelined unit with fixed point in it."""

    def product(
        self, pipe: Pipe, s: Step, name: str, a: Value, b: Value, whole: bool = True,
        more: Sequence[Callable[[Step], Mapping[str, Value]]] = (), without: Sequence[str] = (),
    ) -> Step:  # fmt: skip
        """a * b, of at most 36 bits each, as the value `name`, in `product_steps` steps; `more` are values that these
        steps make besides."""
        a, b = pipe.named(a, f"{name}_a"), pipe.named(b, f"{name}_b")
        low_a, low_b = parts(len(a)), parts(len(b))
        steps = iter(more)

        def made() -> Mapping[str, Value]:
            make = next(steps, None)
            return make(s) if make is not None else {}

        halves = {"high": (a[low_a:], b[low_b:]), "a": (a[:low_a], b[low_b:]), "b": (a[low_a:], b[:low_b]),
                  "low": (a[:low_a], b[:low_b])}  # fmt: skip
        if not whole:
            del halves["low"]
        blocks = {n: self._block(pipe, f"{name}_{pipe.step}_{n}", x, y) for n, (x, y) in halves.items() if len(x) and len(y)}
        s = pipe.cut(s, without, **made())
        s = pipe.cut(s, **made())
        if len(blocks) == 1:
            return s | {name: pipe.named(blocks["high"], name)}
        size = len(a) + len(b)
        if len(blocks) == 2:
            small = blocks.get("a", blocks.get("b"))
            total = Cat(Const(0, low_a + low_b), blocks["high"]) + small
            return pipe.cut(s, **{name: total[:size]}, **made())
        middle = Cat(Const(0, low_b), blocks["a"]) + Cat(Const(0, low_a), blocks["b"])
        low = blocks.get("low", Const(0, low_a + low_b))
        s = pipe.cut(s, outer=Cat(low, blocks["high"]), middle=middle[: size + 1], **made())
        return pipe.cut(s, ("outer", "middle"), **{name: (s["outer"] + s["middle"])[:size]}, **made())

    def polynomial(self, pipe: Pipe, s: Step, t: Table) -> Step:
        """The function `t` of the row `at` and of `d` as the value `total`, in `polynomial_steps` steps; `at` and `d` are
        gone then."""
        degree = len(t.rows[0]) - 1
        s = pipe.cut(s, total=_looked_up(t, s["at"], degree))
        for column in range(degree - 1, -1, -1):
            size, taken, last = t.magnitude(column + 1), t.taken(column + 1), column == 0
            top, total = s["d"][t.bits - taken :], s["total"]
            signed = t.ranges[column + 1][0] < 0
            minus = {"minus": Mux(total[-1], Cat(Const(0, size), top)[taken:], 0)} if signed else {}

            def base(s: Step, column: int = column) -> Mapping[str, Value]:
                return {"base": _looked_up(t, s["at"], column)}

            def less(s: Step) -> Mapping[str, Value]:
                return {"base": s["base"] - s["minus"]} if "minus" in s else {}

            low = total[:size]
            s = self.product(pipe, s | {k: pipe.named(v, k) for k, v in minus.items()}, "product", low, top, False,
                             [base, less], ("total", "d") if last else ("total",))  # fmt: skip
            total = s["base"] + s["product"][taken:]
            gone = ("product", "base", "minus", *(("at",) if last else ()))
            bits = _bits(t.ranges[column])
            total = total[:bits]
            s = pipe.cut(s, gone, total=total.as_signed() if t.ranges[column][0] < 0 else total)
        return s


def product_steps(a_bits: int, b_bits: int) -> int:
    """Steps of a product."""
    return 2 + bool(parts(a_bits)) + bool(parts(b_bits))


def polynomial_steps(t: Table) -> int:
    """Steps of a polynomial."""
    return 1 + sum(product_steps(t.magnitude(k), t.taken(k)) + 1 for k in range(1, len(t.rows[0])))


def _magnitude(span: tuple[int, int]) -> int:
    """The bits of the numbers of a span, without a sign."""
    low, high = span
    return max(high.bit_length(), (-low - 1).bit_length() if low < 0 else 0, 1)


def _bits(span: tuple[int, int]) -> int:
    """The bits of the numbers of a span, with a sign if one of them is below 0."""
    return _magnitude(span) + (span[0] < 0)


def _looked_up(t: Table, at: Any, column: int) -> Value:
    """A number of a row; of the last column with as many bits as the sum from there on has."""
    low, high = (min(r[column] for r in t.rows), max(r[column] for r in t.rows))
    if column == len(t.rows[0]) - 1:
        low, high = t.ranges[column]
    bits = _bits((low, high))
    rows = [r[column] & (1 << bits) - 1 for r in t.rows]
    rows += rows[-1:] * ((1 << (len(rows) - 1).bit_length()) - len(rows))
    value = chosen(at, rows, bits)
    return value.as_signed() if low < 0 else value
