"""Addition and multiplication at high clocks: an operation a cycle, rounded to nearest even, subnormals included.

A step is what fits between two registers at 150 MHz and more on an ECP5 of speed 6: a level or two of a shifter, a carry
chain, or the count of zeros of a word.  `latency` is the number of registers: all of them, or fewer, evenly spread, for
lower clocks.  `Multiplier` takes ECP5's blocks as they are (`target="ecp5"`), because yosys moves no registers into them.

    adder       compare | order | distance | align | align | add | carry | zeros | limit | shift | shift | round
    multiplier  classes | order | zeros | zeros | shift | shift and block | block | sums | sums | sums | one place |
                tiny | align | align | round
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Mux, Signal, Value, signed

from upl_mlir.hw.fp.model import Format
from upl_mlir.hw.fp.units import Binary

Step = dict[str, Signal]
"""The values that cross a register, by name."""
GROUP = 4
"""Zeros are counted in groups of so many bits: one step finds the first group with a 1, the next one the bit."""


class Pipe:
    """The registers between steps; `kept` are the numbers of the steps that end with them, from 1 on."""

    def __init__(self, m: Module, enable: Value, kept: Collection[int]):
        self.m, self.enable, self.kept, self.step = m, enable, kept, 0

    def cut(self, before: Step | None = None, without: Collection[str] = (), **values: Value) -> Step:
        """End a step: the values of `before`, but some, and new ones."""
        self.step += 1
        whole: dict[str, Value] = {k: v for k, v in (before or {}).items() if k not in without}
        out: Step = {}
        for name, value in (whole | values).items():
            value = Value.cast(value)
            out[name] = Signal(value.shape(), name=f"{name}_{self.step}")
            if self.step in self.kept:
                with self.m.If(self.enable):
                    self.m.d.sync += out[name].eq(value)
            else:
                self.m.d.comb += out[name].eq(value)
        return out

    def named(self, value: Value, name: str) -> Signal:
        """The value as a signal, so that it can be sliced."""
        value = Value.cast(value)
        out = Signal(value.shape(), name=f"{name}_in_{self.step + 1}")
        self.m.d.comb += out.eq(value)
        return out

    def right(self, bits: Value, distance: Value, powers: Collection[int], name: str) -> Signal:
        """`bits` moved right by the bits of `distance` for these powers of two; the lowest bit keeps that any was lost."""
        width = len(bits)
        x = self.named(bits, name)
        for place, k in enumerate(powers):
            by = 1 << k
            near = by < width - 1
            moved = Cat(x[: by + 1].any(), x[by + 1 :], Const(0, by)) if near else Cat(x.any(), Const(0, width - 1))
            x = self.named(Mux(distance[place], moved[:width], x), f"{name}{k}")
        return x

    def left(self, bits: Value, distance: Value, powers: Collection[int], name: str) -> Signal:
        """`bits` moved left by the bits of `distance` for these powers of two."""
        x = self.named(bits, name)
        for place, k in enumerate(powers):
            x = self.named(Mux(distance[place], (x << (1 << k))[: len(x)], x), f"{name}{k}")
        return x

    def filled(self, bits: Signal) -> Any:
        """Which groups of bits, counted from the highest bit down, have a 1; the group with the lowest bits comes first."""
        padded = _padded(bits)
        return Cat(*(padded[n : n + GROUP].any() for n in range(0, len(padded), GROUP)))

    def zeros(self, bits: Signal, filled: Signal, name: str) -> Signal:
        """The number of zeros above the highest 1, which there is."""
        padded = self.named(_padded(bits), f"{name}_padded")
        groups = len(filled)
        group, nibble = Signal(range(max(2, groups)), name=f"{name}_group"), Signal(GROUP, name=f"{name}_nibble")
        for n in range(groups):  # the last one that holds decides
            with self.m.If(filled[n]):
                self.m.d.comb += [group.eq(groups - 1 - n), nibble.eq(padded[GROUP * n : GROUP * n + GROUP])]
        within = Mux(nibble[3], 0, Mux(nibble[2], 1, Mux(nibble[1], 2, 3)))
        return self.named(Cat(self.named(within, f"{name}_within")[:2], group), name)


def _padded(bits: Value) -> Any:
    return Cat(Const(0, -len(bits) % GROUP), bits)


def _powers(width: int) -> tuple[list[int], list[int]]:
    """The powers of two of a shift by less than `width`, the largest first, for two steps."""
    powers = list(range(max(1, (width - 1).bit_length())))[::-1]
    return powers[: len(powers) // 2], powers[len(powers) // 2 :]


def _picked(distance: Value, powers: Collection[int]) -> Any:
    return Cat(*(distance[k] for k in powers))


def _spread(steps: int, latency: int, always: Collection[int] = ()) -> frozenset[int]:
    """The steps that end with a register: `latency` of them, evenly, the last one among them, and those of `always`."""
    if not 1 + len(always) <= latency <= steps:
        raise ValueError(f"latency={latency}: expected {1 + len(always)} to {steps}")
    free = [n for n in range(1, steps + 1) if n not in always]
    count = latency - len(always)
    chosen = {n for at, n in enumerate(free, 1) if at * count // len(free) > (at - 1) * count // len(free)}
    return frozenset(chosen | set(always))


class _Pipelined(Binary):
    """As `units.Binary`; `target` says what the hardware is made of."""

    STEPS = 0
    ALWAYS: frozenset[int] = frozenset()

    def __init__(
        self, f: Format, latency: int | None = None, passed: int = 1, target: Literal["generic", "ecp5"] = "generic"
    ):
        super().__init__(f, self.STEPS if latency is None else latency, passed)
        self.kept = _spread(self.STEPS, self.latency, self.ALWAYS)
        self.target = target

    def _parts(self, bits: Signal, some: Value) -> tuple[Any, Any, Any]:
        """Significand with its hidden bit, exponent field (1 for subnormals), sign; `some`: the field is not 0."""
        f = self.format
        fraction, field = bits[: f.mantissa], bits[f.mantissa : f.mantissa + f.exponent]
        return Cat(fraction, some), Cat(field[0] | ~some, field[1:]), bits[-1]

    def _classes(self, pipe: Pipe, **more: Value) -> Step:
        """The first step: what the fields of both operands are."""
        f = self.format
        out: dict[str, Value] = {"p": self.pass_in, **more}
        for name, bits in (("a", self.a), ("b", self.b)):
            field = bits[f.mantissa : f.mantissa + f.exponent]
            out |= {name: bits, f"{name}_ones": field.all(), f"{name}_some": field.any()}
            out[f"{name}_low"] = bits[: f.mantissa].any()
        return pipe.cut(**out)

    def _rounded(self, x: Signal, field: Signal) -> Any:
        """Exponent and fraction of a significand with three bits more, the lowest of them sticky."""
        up = x[2] & (x[0] | x[1] | x[3])
        # A carry out of the fraction goes into the exponent, up to infinity: this is how the encoding is made.
        return (Cat(x[3 : 3 + self.format.mantissa], field) + up)[: self.format.bits - 1]

    def _shown(self, s: Step) -> None:
        self._m.d.comb += [self.result.eq(s["r"]), self.pass_out.eq(s["p"])]

    def elaborate(self, platform: object) -> Module:
        """The steps, one after the other."""
        self._m = Module()
        self._shown(self._steps(Pipe(self._m, self.enable, self.kept)))
        return self._m

    def _steps(self, pipe: Pipe) -> Step:
        raise NotImplementedError


class Adder(_Pipelined):
    """a + b."""

    STEPS = 12

    def _steps(self, pipe: Pipe) -> Step:
        return self._round(pipe, self._normalise(pipe, self._add(pipe, self._align(pipe, self._order(pipe)))))

    def _order(self, pipe: Pipe) -> Step:
        """The operand of greater magnitude comes first."""
        s = self._classes(pipe, swap=self.a[:-1] < self.b[:-1])
        significand_a, field_a, sign_a = self._parts(s["a"], s["a_some"])
        significand_b, field_b, sign_b = self._parts(s["b"], s["b_some"])
        swap, subtract = s["swap"], sign_a ^ sign_b
        nan = s["a_ones"] & s["a_low"] | s["b_ones"] & s["b_low"] | s["a_ones"] & s["b_ones"] & subtract
        return pipe.cut(
            big=Mux(swap, significand_b, significand_a), small=Mux(swap, significand_a, significand_b),
            field=Mux(swap, field_b, field_a), other=Mux(swap, field_a, field_b), sign=Mux(swap, sign_b, sign_a),
            subtract=subtract, both=sign_a & sign_b, infinite=s["a_ones"] | s["b_ones"], nan=nan, p=s["p"],
        )  # fmt: skip

    def _align(self, pipe: Pipe, s: Step) -> Step:
        """The lesser one moved to the place of the greater one, with three bits more; then the sum's operands are there."""
        s = pipe.cut(s, ("other",), distance=(s["field"] - s["other"])[: self.format.exponent])
        wide = Cat(Const(0, 3), s["small"])
        width = len(wide)
        first, last = _powers(width)
        distance = s["distance"]
        far = distance[(width - 1).bit_length() :].any()
        near = pipe.right(wide, _picked(distance, first), first, "aligned")
        s = pipe.cut(
            s, ("small", "distance"), x=Mux(far, s["small"].any(), near)[:width], rest=Mux(far, 0, _picked(distance, last))
        )
        return pipe.cut(s, ("x", "rest"), x=pipe.right(s["x"], s["rest"], last, "aligned"))

    def _add(self, pipe: Pipe, s: Step) -> Step:
        """Sum or difference; a carry moves it right by one, and the exponent up."""
        width = len(s["x"])
        subtract = s["subtract"]
        total = pipe.named(Cat(Const(0, 3), s["big"]) + (s["x"] ^ subtract.replicate(width)) + subtract, "total")
        s = pipe.cut(s, ("big", "x", "subtract"), total=total[:width], carry=total[width] & ~subtract)
        total, carry = s["total"], s["carry"]
        value = pipe.named(Mux(carry, Cat(total[0] | total[1], total[2:], 1), total), "value")
        return pipe.cut(
            s, ("total",), value=value, filled=pipe.filled(value), room=(s["field"] - 1)[: self.format.exponent],
            field=s["field"] + carry, zero=~value.any(),
        )  # fmt: skip

    def _normalise(self, pipe: Pipe, s: Step) -> Step:
        """The highest 1 to the top, as far as the exponent has room."""
        f = self.format
        s = pipe.cut(s, ("filled",), zeros=pipe.zeros(s["value"], s["filled"], "zeros"))
        left = Mux(s["carry"], 0, Mux(s["zeros"] > s["room"], s["room"], s["zeros"]))[: len(s["zeros"])]
        s = pipe.cut(s, ("zeros", "room", "carry"), left=left)
        first, last = _powers(1 << len(s["left"]))
        s = pipe.cut(
            s, ("left",), value=pipe.left(s["value"], _picked(s["left"], first), first, "normal"),
            rest=_picked(s["left"], last), field=(s["field"] - s["left"])[: f.exponent + 1],
        )  # fmt: skip
        value = pipe.left(s["value"], s["rest"], last, "normal")
        return pipe.cut(s, ("rest",), value=value, field=Mux(value[-1], s["field"], 0)[: f.exponent])

    def _round(self, pipe: Pipe, s: Step) -> Step:
        f = self.format
        infinite = s["infinite"] | (s["field"] == f.exponent_ones)
        sign = Mux(s["zero"] & ~s["infinite"], s["both"], s["sign"])
        number = Mux(infinite, Const(f.infinity, f.bits - 1), self._rounded(s["value"], s["field"]))
        return pipe.cut(p=s["p"], r=Mux(s["nan"], Const(f.nan, f.bits), Cat(number[: f.bits - 1], sign)))


class Multiplier(_Pipelined):
    """a * b, on three blocks of 18 by 18 bits for binary32."""

    STEPS = 15
    ALWAYS = frozenset((6, 7))  # registers in the blocks

    def __init__(
        self, f: Format, latency: int | None = None, passed: int = 1, target: Literal["generic", "ecp5"] = "generic"
    ):
        if not 2 <= f.mantissa <= 23 or f.bias < f.mantissa + 2:
            raise ValueError(f"{f}: expected a mantissa of 2 to 23 bits, and a bias that is greater by 2 at least")
        super().__init__(f, latency, passed, target)

    def _steps(self, pipe: Pipe) -> Step:
        return self._round(pipe, self._align(pipe, self._multiply(pipe, self._normalise(pipe, self._order(pipe)))))

    def _order(self, pipe: Pipe) -> Step:
        """A subnormal operand comes second; the product of two is below half of the least number, and rounds to 0."""
        s = self._classes(pipe)
        significand_a, field_a, sign_a = self._parts(s["a"], s["a_some"])
        significand_b, field_b, sign_b = self._parts(s["b"], s["b_some"])
        zero = ~s["a_some"] & ~s["a_low"] | ~s["b_some"] & ~s["b_low"]
        infinite = s["a_ones"] | s["b_ones"]
        nan = s["a_ones"] & s["a_low"] | s["b_ones"] & s["b_low"] | infinite & zero
        swap = ~s["a_some"]
        return pipe.cut(
            x=Mux(swap, significand_b, significand_a), y=Mux(swap, significand_a, significand_b), exponent=field_a + field_b,
            sign=sign_a ^ sign_b, nan=nan, infinite=infinite, zero=zero | ~s["a_some"] & ~s["b_some"], p=s["p"],
        )  # fmt: skip

    def _normalise(self, pipe: Pipe, s: Step) -> Step:
        """The second operand's highest 1 to the top; then the exponent without bias, of a product below 2."""
        f = self.format
        s = pipe.cut(s, filled=pipe.filled(s["y"]))
        s = pipe.cut(s, ("filled",), zeros=pipe.zeros(s["y"], s["filled"], "zeros"))
        first, last = _powers(1 << len(s["zeros"]))
        exponent = Signal(signed(f.exponent + 3))
        self._m.d.comb += exponent.eq(s["exponent"] - s["zeros"] - f.bias)
        s = pipe.cut(
            s, ("zeros",), y=pipe.left(s["y"], _picked(s["zeros"], first), first, "normal"),
            rest=_picked(s["zeros"], last), exponent=exponent,
        )  # fmt: skip
        return s | {"y": pipe.left(s["y"], s["rest"], last, "normal")}

    def _multiply(self, pipe: Pipe, s: Step) -> Step:
        """Three products of parts by blocks, the smallest one of rows; in two steps their registers are the blocks'."""
        size = self.format.mantissa + 1
        low = min(18, size - 3)  # what is lost of the lowest product is sticky only: rounding needs three bits more
        high = size - low
        x, y = s["x"], s["y"]
        blocks = {
            name: self._block(name, a, b)
            for name, a, b in (("low", x[:low], y[:low]), ("cross", x[:low], y[low:]), ("other", y[:low], x[low:]))
        }
        s = pipe.cut(s, ("x", "y", "rest"), a=x[low:], b=y[low:])
        rows = [Mux(s["b"][k], Cat(Const(0, k), s["a"]), 0) for k in range(high)]
        halves = [sum(some, Const(0)) for some in (rows[: high // 2], rows[high // 2 :])]
        s = pipe.cut(s, ("a", "b"), first=halves[0], last=halves[1])
        s = pipe.cut(s, ("first", "last"), low=blocks["low"], middle=blocks["cross"] + blocks["other"],
                     high=(s["first"] + s["last"])[: 2 * high])  # fmt: skip
        s = pipe.cut(s, ("middle", "high"), upper=(s["middle"] + Cat(Const(0, low), s["high"]))[: 2 * size - low])
        return pipe.cut(
            s, ("low", "upper"), upper=(s["upper"] + s["low"][low:])[: 2 * size - low], lost=s["low"][:low].any()
        )

    def _block(self, name: str, a: Value, b: Value) -> Any:
        """a*b of at most 18 bits each, with a register before and one behind."""
        m = self._m
        if self.target == "generic":
            x, y = Signal(len(a), name=f"{name}_x"), Signal(len(b), name=f"{name}_y")
            product = Signal(len(a) + len(b), name=f"{name}_product")
            with m.If(self.enable):
                m.d.sync += [x.eq(a), y.eq(b), product.eq(x * y)]
            return product
        wide = [Signal(18, name=f"{name}_{end}") for end in ("x", "y")]
        product = Signal(36, name=f"{name}_product")
        m.d.comb += [to.eq(value) for to, value in zip(wide, (a, b), strict=True)]
        clocked = {f"p_REG_{r}_{what}": f"{what}0" for r in ("INPUTA", "INPUTB", "OUTPUT") for what in ("CLK", "CE", "RST")}
        m.submodules[name] = Instance(
            "MULT18X18D", **clocked, p_REG_INPUTC_CLK="NONE", p_REG_PIPELINE_CLK="NONE", p_GSR="DISABLED",
            p_SOURCEB_MODE="B_SHIFT", i_SIGNEDA=Const(0), i_SIGNEDB=Const(0), i_SOURCEA=Const(0), i_SOURCEB=Const(0),
            i_CLK0=ClockSignal(), i_CE0=self.enable, i_RST0=Const(0),
            **{f"i_{kind}{n}": Const(0) for kind in ("CLK", "CE", "RST") for n in (1, 2, 3)},
            **{f"i_{port}{n}": value[n] for port, value in zip("AB", wide, strict=True) for n in range(18)},
            **{f"i_C{n}": Const(0) for n in range(18)}, **{f"o_P{n}": product[n] for n in range(36)},
        )  # fmt: skip
        return product[: len(a) + len(b)]

    def _align(self, pipe: Pipe, s: Step) -> Step:
        """One place to the left if the product is below 2; to the right where the number is subnormal."""
        f = self.format
        upper, width = s["upper"], f.mantissa + 4
        top = upper[-1]
        value = pipe.named(Mux(top, upper, Cat(Const(0, 1), upper[:-1])), "value")
        more = len(value) - (width - 1)  # bits of the value that only the sticky bit has
        lost = s["lost"] | (value[:more].any() if more > 0 else Const(0))
        field, below = Signal(signed(f.exponent + 3)), Signal(signed(f.exponent + 3))
        self._m.d.comb += [field.eq(s["exponent"] + top), below.eq(1 - s["exponent"] - top)]
        kept = Cat(Const(0, max(0, -more)), value[max(0, more) :])
        s = pipe.cut(s, ("upper", "lost", "exponent"), x=Cat(lost, kept), field=field, below=below)
        first, last = _powers(width)
        below = s["below"]
        tiny = ~below[-1] & (below != 0)
        far = tiny & below[(width - 1).bit_length() : -1].any()
        distance = Mux(tiny, below[: (width - 1).bit_length()], 0)
        s = pipe.cut(s, ("below",), tiny=tiny, far=far, distance=distance)
        near = pipe.right(s["x"], _picked(s["distance"], first), first, "aligned")
        rest = Mux(s["far"], 0, _picked(s["distance"], last))
        s = pipe.cut(s, ("x", "far", "distance"), x=Mux(s["far"], 1, near)[:width], rest=rest)
        over = ~s["field"][-1] & (s["field"] >= f.exponent_ones)
        return pipe.cut(
            s, ("rest", "tiny"), x=pipe.right(s["x"], s["rest"], last, "aligned"), over=over,
            field=Mux(s["tiny"], 0, s["field"])[: f.exponent],
        )  # fmt: skip

    def _round(self, pipe: Pipe, s: Step) -> Step:
        f = self.format
        infinite = s["infinite"] | s["over"]
        number = Mux(infinite, Const(f.infinity, f.bits - 1), self._rounded(s["x"], s["field"]))
        number = Mux(s["zero"], 0, number)[: f.bits - 1]
        return pipe.cut(p=s["p"], r=Mux(s["nan"], Const(f.nan, f.bits), Cat(number, s["sign"])))
