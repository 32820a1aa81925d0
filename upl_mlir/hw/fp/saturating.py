"""Fixed-point units: exact results rounded to nearest even and held in range, as docs/numbers.md says.

    product     block | block | rounding                     (up to 18 bits, one block)
                blocks | blocks | sum | sum | sum | rounding  (up to 32 bits, four blocks)
    multiplier  product | sum
    divider     sizes | range | a digit in each of so many bits | rounding | sum | sign
    other       one step

A product is a number and a bit to add to it, which rounds it.  Where the number is the greatest one already, the bit is
0: so their sum cannot go over, and a running sum may take the bit as its carry.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false, reportIncompatibleMethodOverride=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from typing import Any, Literal

from amaranth.hdl import Cat, Const, Instance, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.fp.blocks import WIDTH
from upl_mlir.hw.fp.pipe import PASSED, Pipe, Pipelined, Step
from upl_mlir.numbers.formats import FixedFormat

LOW = WIDTH - 1
"""Bits of the lower part of a factor that takes two blocks: without sign, in a block with signs."""
ADD, BRING = 0x6A6A, 0x000A
"""Tables of one half of a carry cell: input A is added to B & C; or the carry out is A, whatever came in (D is 1). An entry
says whether a carry passes, and if none does, the carry out is what the four lowest entries say of A and B: A."""


def held(total: Value, width: int) -> Any:
    """A number with sign in fewer bits: the greatest or the least one where it has no room."""
    sign = total[-1]
    outside = Cat(*(bit ^ sign for bit in total[width - 1 : -1])).any()
    return Mux(outside, Cat((~sign).replicate(width - 1), sign), total[:width])


def added(a: Value, b: Value) -> Any:
    """a + b."""
    return held(Value.cast(a.as_signed() + b.as_signed()), len(a))


def subtracted(a: Value, b: Value) -> Any:
    """a - b."""
    return held(Value.cast(a.as_signed() - b.as_signed()), len(a))


def negated(a: Value) -> Any:
    """-a."""
    return held(Value.cast(-a.as_signed())[: len(a) + 1], len(a))


def sized(a: Value) -> Any:
    """|a|."""
    return Mux(a[-1], negated(a), a)


def moved_up(a: Value, places: int) -> Any:
    """a * 2**places."""
    return held(Cat(Const(0, places), a), len(a))


def moved_down(a: Value, places: int) -> Any:
    """a / 2**places."""
    width = len(a)
    wide = Cat(a, a[-1].replicate(max(0, places + 1 - width)))
    up = wide[places - 1] & (wide[: places - 1].any() | wide[places])
    return (wide[places:].as_signed() + up)[:width].as_signed()


class FixedProduct(Pipelined):
    """a * b of two numbers of a fixed-point type, not rounded yet: `result` has a number, and above it the bit to add."""

    def __init__(self, f: FixedFormat, latency: int | None = None, target: Literal["generic", "ecp5"] = "generic"):
        super().__init__(f, latency, target=target)

    @classmethod
    def steps(cls, f: FixedFormat) -> int:
        """As listed above."""
        return 3 if f.bits <= WIDTH else 6

    @classmethod
    def results(cls, f: FixedFormat) -> dict[str, int]:
        """The number and the bit."""
        return {"result": f.bits + 1}

    def _steps(self, pipe: Pipe) -> Step:
        s = self._whole(pipe) if self.format.bits <= WIDTH else self._parts_of(pipe)
        return self._fitted(pipe, s)

    def _whole(self, pipe: Pipe) -> Step:
        product = self._block(pipe, "whole", self.a, self.b, signed=True)
        s = pipe.cut(pipe.cut(p=self.pass_in))
        return s | {"product": pipe.named(product, "product")}

    def _parts_of(self, pipe: Pipe) -> Step:
        low, high = {}, {}
        for name in "ab":
            value = getattr(self, name)
            low[name], high[name] = Cat(value[:LOW], Const(0, 1)), value[LOW:]
        pairs = {"ll": (low, low), "hl": (high, low), "lh": (low, high), "hh": (high, high)}
        blocks = {name: self._block(pipe, name, x["a"], y["b"], signed=True) for name, (x, y) in pairs.items()}
        s = pipe.cut(pipe.cut(p=self.pass_in))
        middle = Value.cast(blocks["hl"].as_signed() + blocks["lh"].as_signed())
        s = pipe.cut(s, low=blocks["ll"], middle=middle, high=blocks["hh"])
        upper = Value.cast(s["low"][LOW:].as_signed() + s["middle"].as_signed())
        s = pipe.cut(s, ("middle", "low"), rest=s["low"][:LOW], upper=upper)
        upper = Value.cast(s["upper"].as_signed() + Cat(Const(0, LOW), s["high"]).as_signed())
        width = 2 * self.format.bits
        return pipe.cut(s, ("high", "rest", "upper"), product=Cat(s["rest"], upper)[:width])

    def _fitted(self, pipe: Pipe, s: Step) -> Step:
        f, product = self.format, s["product"]
        width, places = f.bits, f.fraction
        kept = pipe.named(held(product[places:], width), "kept")
        up = product[places - 1] & (product[: places - 1].any() | product[places]) if places else Const(0, 1)
        sign = product[-1]
        outside = Cat(*(bit ^ sign for bit in product[places + width - 1 : -1])).any()
        greatest = product[places : places + width - 1].all() & ~sign
        return pipe.cut(s, ("product",), result=Cat(kept, up & ~outside & ~greatest))


class FixedMultiplier(FixedProduct):
    """a * b of two numbers of a fixed-point type."""

    @classmethod
    def steps(cls, f: FixedFormat) -> int:
        """As listed above."""
        return super().steps(f) + 1

    @classmethod
    def results(cls, f: FixedFormat) -> dict[str, int]:
        """The product."""
        return {"result": f.bits}

    def _steps(self, pipe: Pipe) -> Step:
        s = super()._steps(pipe)
        number = s["result"][:-1]
        return pipe.cut(p=s[PASSED], result=(number + s["result"][-1])[: len(number)])


class FixedSum(wiring.Component):
    """A step of a running sum: `result` is a + b, `latency` cycles later, or b where c is 0.

    a (in): a number; b (in): a number, and above it a bit to add to both; c (in, 1).  The sum may be rounded and held in
    range at once, as b with its bit is in range.  enable (in, 1): 0 holds everything. No reset.
    """

    def __init__(self, f: FixedFormat, latency: int = 1, target: Literal["generic", "ecp5"] = "generic"):
        self.width, self.latency, self.target = f.bits, latency, target
        super().__init__(
            {
                "a": In(f.bits), "b": In(f.bits + 1), "c": In(1), "result": Out(f.bits), "enable": In(1, init=1),
            }
        )  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        """The sum with its sign, held; registers behind it."""
        m = Module()
        total = Signal(self.width + 1)
        if self.target == "ecp5":
            self._carries(m, total)
        else:
            before = self.a & self.c.replicate(self.width)
            m.d.comb += total.eq(before.as_signed() + self.b[:-1].as_signed() + self.b[-1])
        value = held(total, self.width)
        for n in range(self.latency):
            register = Signal(self.width, name=f"result_{n}", reset_less=True)
            with m.If(self.enable):
                m.d.sync += register.eq(value)
            value = register
        m.d.comb += self.result.eq(value)
        return m

    def _carries(self, m: Module, total: Signal) -> None:
        """Carry cells by name, two bits each: yosys would make LUTs of their own for what `c` does.

        The first bit brings the carry; the last ones have the signs."""
        bits = [(self.b[-1], None), *zip(self.b[:-1], self.a, strict=True), (self.b[-2], self.a[-1])]
        bits += [(Const(0, 1), None)] * (len(bits) % 2)
        found, carry = Signal(len(bits)), Const(0, 1)
        for n in range(0, len(bits), 2):
            out = Signal(name=f"carry_{n}")
            halves = {
                port: x
                for k, (b, a) in enumerate(bits[n : n + 2])
                for port, x in {
                    f"i_A{k}": b, f"i_B{k}": Const(0, 1) if a is None else a, f"i_C{k}": self.c, f"i_D{k}": Const(1, 1),
                    f"o_S{k}": found[n + k], f"p_INIT{k}": BRING if a is None else ADD, f"p_INJECT1_{k}": "NO",
                }.items()
            }  # fmt: skip
            m.submodules[f"bits_{n}"] = Instance("CCU2C", i_CIN=carry, o_COUT=out, **halves)
            carry = out
        m.d.comb += total.eq(found[1:])


class FixedDivider(Pipelined):
    """a / b of two numbers of a fixed-point type; of one number with a `divisor`, a number of steps other than 0."""

    def __init__(self, f: FixedFormat, latency: int | None = None, divisor: int | None = None):
        self.divisor = divisor
        super().__init__(f, latency)

    @classmethod
    def steps(cls, f: FixedFormat) -> int:
        """As listed above."""
        return f.bits + 5

    def _steps(self, pipe: Pipe) -> Step:
        """Digits of |a| * 2**fraction / |b|, from the highest one that a number has; what is beyond is out of range."""
        f = self.format
        width, a, b = f.bits, self.a, self.b
        size_a = Mux(a[-1], (-a)[:width], a)[:width]
        if self.divisor is None:
            s = pipe.cut(p=self.pass_in, a=size_a, b=Mux(b[-1], (-b)[:width], b)[:width], sign=a[-1] ^ b[-1])
        else:
            s = pipe.cut(p=self.pass_in, a=size_a, sign=a[-1] ^ (self.divisor < 0))
        # The dividend is |a| with `fraction` zeros below; its upper part is the first rest.
        first = Cat(s["a"][width - f.fraction :], Const(0, width + 1 - f.fraction))[: width + 1] if f.fraction else Const(0)
        rest = pipe.named(Cat(first, Const(0, width + 1))[: width + 1], "rest")
        left = Cat(Const(0, f.fraction), s["a"])[:width]
        over = rest >= self._divisor(s)
        s = pipe.cut(s, ("a",), rest=Mux(over, 0, rest)[: width + 1], left=left, over=over, zero=~s["a"].any())
        for n in range(width):
            digit, rest = self._digit(pipe, s)
            quotient = Cat(digit, s["quotient"]) if n else digit
            more = {"left": s["left"][:-1]} if n < width - 1 else {}
            s = pipe.cut(s, ("left",), rest=rest, quotient=quotient, **more)
        twice = Cat(Const(0, 1), s["rest"][:width])
        divisor = self._divisor(s)
        up = (twice > divisor) | (twice == divisor) & s["quotient"][0]
        s = pipe.cut(s, ("rest", "b"), up=up)
        s = pipe.cut(s, ("up", "quotient"), size=s["quotient"] + s["up"])
        least = Const(1 << width - 1, width)
        over = s["over"] | (s["size"] > Mux(s["sign"], 1 << width - 1, (1 << width - 1) - 1))
        size = Mux(over, Mux(s["sign"], least, least - 1), s["size"])[:width]
        number = Mux(s["sign"], (-size)[:width], size)
        return pipe.cut(p=s[PASSED], result=Mux(s["zero"], 0, number)[:width])

    def _divisor(self, s: Step) -> Any:
        """Its size."""
        return s["b"] if self.divisor is None else Const(abs(self.divisor), self.format.bits)

    def _digit(self, pipe: Pipe, s: Step) -> tuple[Any, Signal]:
        """A digit of the quotient, and the rest below the divisor."""
        width = self.format.bits
        value = pipe.named(Cat(s["left"][-1], s["rest"][:width]), "value")
        less = pipe.named((value - self._divisor(s))[: width + 2], "less")
        return ~less[-1], pipe.named(Mux(less[-1], value, less)[: width + 1], "remains")
