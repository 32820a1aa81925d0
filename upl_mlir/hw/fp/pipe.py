"""The parts of pipelined units: registers between steps, shifters, the count of zeros; and what all such units are.

A step is what fits between two registers at 150 MHz and more on an ECP5 of speed 6: a level or two of a shifter, a carry
chain, or the count of zeros of a word.  `latency` is the number of registers: all of them, or fewer, evenly spread, for
lower clocks.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false, reportUnknownMemberType=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.fp.blocks import Block
from upl_mlir.hw.fp.model import Format

Step = dict[str, Signal]
"""The values that cross a register, by name."""
PASSED = "p"
"""The name of what goes with an operation."""
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
            # What is in the registers at a reset is nobody's; only what is passed along may say whether there is anything.
            out[name] = Signal(value.shape(), name=f"{name}_{self.step}", reset_less=name != PASSED)
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
        group, nibble = self.group(bits, filled, name)
        return self.named(Cat(self.within(nibble, name), group), name)

    def group(self, bits: Signal, filled: Signal, name: str) -> tuple[Signal, Signal]:
        """The number of groups above the highest 1, and the group that has it."""
        padded = self.named(_padded(bits), f"{name}_padded")
        groups = len(filled)
        group, nibble = Signal(range(max(2, groups)), name=f"{name}_group"), Signal(GROUP, name=f"{name}_nibble")
        for n in range(groups):  # the last one that holds decides
            with self.m.If(filled[n]):
                self.m.d.comb += [group.eq(groups - 1 - n), nibble.eq(padded[GROUP * n : GROUP * n + GROUP])]
        return group, nibble

    def within(self, nibble: Signal, name: str) -> Any:
        """The number of zeros above the highest 1 of a group."""
        return self.named(Mux(nibble[3], 0, Mux(nibble[2], 1, Mux(nibble[1], 2, 3))), f"{name}_within")[:2]


def _padded(bits: Value) -> Any:
    return Cat(Const(0, -len(bits) % GROUP), bits)


def chosen(at: Any, rows: list[int], width: int) -> Value:
    """The row at a place. Of a tree yosys makes tables with few LUTs; of cases it makes three times as many."""
    if len(rows) == 1:
        return Const(rows[0], width)
    half = len(rows) // 2
    return Mux(at[-1], chosen(at[:-1], rows[half:], width), chosen(at[:-1], rows[:half], width))


def powers_of_shift(width: int) -> tuple[list[int], list[int]]:
    """The powers of two of a shift by less than `width`, the largest first, for two steps."""
    powers = list(range(max(1, (width - 1).bit_length())))[::-1]
    return powers[: len(powers) // 2], powers[len(powers) // 2 :]


def picked(distance: Value, powers: Collection[int]) -> Any:
    return Cat(*(distance[k] for k in powers))


def spread(steps: int, latency: int) -> frozenset[int]:
    """The steps that end with a register: `latency` of them, evenly, the last one among them; or all, and empty ones."""
    if latency < 1:
        raise ValueError(f"latency={latency}: expected 1 at least")
    if latency >= steps:
        return frozenset(range(1, latency + 1))
    return frozenset(n for n in range(1, steps + 1) if n * latency // steps > (n - 1) * latency // steps)


class Pipelined(wiring.Component):
    """Operands (in) and `pass_in` (in, `passed` bits: whatever belongs to the operation); after `latency` cycles the results
    (out), with their `pass_out`. enable (in, 1): 0 holds everything. An operation can begin in every cycle.

    A subclass says what its operands and results are, of how many steps it is, and does them. `target`: "generic", or
    "ecp5" for the blocks of that family.
    """

    def __init__(
        self, f: Format, latency: int | None = None, passed: int = 1, target: Literal["generic", "ecp5"] = "generic"
    ):
        self.format, self.target = f, target
        self.latency = self.steps(f) if latency is None else latency
        self.kept = spread(self.steps(f), self.latency)
        ports = {name: In(shape) for name, shape in self.operands(f).items()}
        self.outputs = self.results(f)
        ports |= {name: Out(shape) for name, shape in self.outputs.items()}
        super().__init__({**ports, "pass_in": In(passed), "pass_out": Out(passed), "enable": In(1, init=1)})

    @classmethod
    def steps(cls, f: Format) -> int:
        """The latency of the highest clock; more is registers at the end."""
        raise NotImplementedError

    @classmethod
    def operands(cls, f: Format) -> dict[str, int]:
        """The widths of the operands, by name."""
        return {"a": f.bits, "b": f.bits}

    @classmethod
    def results(cls, f: Format) -> dict[str, int]:
        """The widths of the results, by name."""
        return {"result": f.bits}

    def elaborate(self, platform: object) -> Module:
        """The steps, one after the other."""
        self._m = m = Module()
        pipe = Pipe(m, self.enable, self.kept)
        s = self._steps(pipe)
        assert pipe.step == self.steps(self.format)
        for _ in range(self.latency - pipe.step):
            s = pipe.cut(s)
        m.d.comb += [getattr(self, name).eq(s[name]) for name in self.outputs]
        m.d.comb += self.pass_out.eq(s[PASSED])
        return m

    def _steps(self, pipe: Pipe) -> Step:
        raise NotImplementedError

    def _block(self, pipe: Pipe, name: str, a: Value, b: Value, *, signed: bool = False) -> Any:
        """a * b of at most 18 bits each; the registers that end this step and the next one are the block's."""
        step = pipe.step + 1
        registers = (step in self.kept, step + 1 in self.kept)
        self._m.submodules[name] = block = Block(len(a), len(b), self.target, registers, signed=signed)
        self._m.d.comb += [block.a.eq(a), block.b.eq(b), block.enable.eq(self.enable)]
        return block.product

    def _classes(self, pipe: Pipe, **more: Value) -> Step:
        """The first step: what the fields of the operands are."""
        f = self.format
        out: dict[str, Value] = {PASSED: self.pass_in, **more}
        for name in self.operands(f):
            bits = getattr(self, name)
            field = bits[f.mantissa : f.mantissa + f.exponent]
            out |= {name: bits, f"{name}_ones": field.all(), f"{name}_some": field.any()}
            out[f"{name}_low"] = bits[: f.mantissa].any()
        return pipe.cut(**out)

    def _parts(self, s: Step, name: str) -> tuple[Any, Any, Any]:
        """After `_classes`: significand with its hidden bit, exponent field (1 for subnormals), sign."""
        f = self.format
        bits, some = s[name], s[f"{name}_some"]
        fraction, field = bits[: f.mantissa], bits[f.mantissa : f.mantissa + f.exponent]
        return Cat(fraction, some), Cat(field[0] | ~some, field[1:]), bits[-1]

    def _nan(self, s: Step, name: str) -> Any:
        return s[f"{name}_ones"] & s[f"{name}_low"]

    def _zero(self, s: Step, name: str) -> Any:
        return ~s[f"{name}_some"] & ~s[f"{name}_low"]

    def _not_below_zero(self, pipe: Pipe) -> tuple[Step, tuple[Any, Any, Any], Any, Any]:
        """The first step of a function that has no value below 0: what it ends with, the parts of `a`, whether that is 0,
        whether the result is a NaN."""
        s = self._classes(pipe)
        parts = self._parts(s, "a")
        zero = self._zero(s, "a")
        return s, parts, zero, self._nan(s, "a") | parts[-1] & ~zero

    def _normalise(self, pipe: Pipe, s: Step, *names: str) -> Step:
        """Three steps, and what one more begins with: the highest 1 of these to the top, by `{name}_zeros` places."""
        s = pipe.cut(s, **{f"{n}_filled": pipe.filled(s[n]) for n in names})
        filled = [f"{n}_filled" for n in names]
        s = pipe.cut(s, filled, **{f"{n}_zeros": pipe.zeros(s[n], s[f"{n}_filled"], f"{n}_zeros") for n in names})
        powers = {n: powers_of_shift(1 << len(s[f"{n}_zeros"])) for n in names}
        s = pipe.cut(s, **{n: pipe.left(s[n], picked(s[f"{n}_zeros"], powers[n][0]), powers[n][0], n) for n in names})
        return s | {n: pipe.left(s[n], picked(s[f"{n}_zeros"], powers[n][1]), powers[n][1], n) for n in names}

    def _rounded(self, x: Signal, field: Signal) -> Any:
        """Exponent and fraction of a significand with three bits more, the lowest of them sticky."""
        up = x[2] & (x[0] | x[1] | x[3])
        # A carry out of the fraction goes into the exponent, up to infinity: this is how the encoding is made.
        return (Cat(x[3 : 3 + self.format.mantissa], field) + up)[: self.format.bits - 1]

    def _finish(self, pipe: Pipe, s: Step, upper: Signal, lost: Value) -> Step:
        """The last five steps of products and quotients.

        The highest 1 of `upper` is its highest bit or the next one, whose exponent field is `exponent` (signed); below is
        more if `lost`. One place to the left, if need be; to the right where the number is subnormal; rounding. Where the
        result is no such number its significand is 0 from the second step on, and the field is that of zero or infinity.
        """
        f, m = self.format, self._m
        width = f.mantissa + 4
        top = upper[-1]
        value = pipe.named(Mux(top, upper, Cat(Const(0, 1), upper[:-1])), "value")
        more = len(value) - (width - 1)  # bits of the value that only the sticky bit has
        if more > 0:
            lost = lost | value[:more].any()
        field = Signal(signed(f.exponent + 3))
        m.d.comb += field.eq(s["exponent"] + top)
        s = pipe.cut(x=Cat(lost, Const(0, max(0, -more)), value[max(0, more) :]), field=field,
                     **{name: s[name] for name in ("sign", "nan", "infinite", "zero", PASSED)})  # fmt: skip
        field = s["field"].as_unsigned()
        negative, bits = field[-1], (width - 1).bit_length()
        low = field[:bits]
        tiny = negative | (field == 0)
        # The distance is 1 - field.
        distance = Cat(~low[0], *(low[k] ^ low[1:k].any() for k in range(1, bits)))
        far = negative & (~field[bits:-1].all() | ~low[1:].any())
        over = ~negative & (field[f.exponent : -1].any() | field[: f.exponent].all())
        ones = s["nan"] | s["infinite"] | over & ~s["zero"]
        s = pipe.cut(
            s, ("infinite", "zero"), distance=Mux(tiny, distance, 0)[:bits], empty=far | s["zero"] | ones, ones=ones,
            none=tiny | s["zero"], field=field[: f.exponent],
        )  # fmt: skip
        first, last = powers_of_shift(width)
        near = pipe.right(s["x"], picked(s["distance"], first), first, "aligned")
        s = pipe.cut(
            s, ("distance", "ones", "none", "empty"), x=Mux(s["empty"], 1, near)[:width],
            rest=Mux(s["empty"], 0, picked(s["distance"], last)),
            field=Mux(s["ones"], f.exponent_ones, Mux(s["none"], 0, s["field"]))[: f.exponent],
        )  # fmt: skip
        s = pipe.cut(s, ("rest",), x=pipe.right(s["x"], s["rest"], last, "aligned"))
        return pipe.cut(p=s[PASSED], result=self._special(self._rounded(s["x"], s["field"]), s["sign"], s["nan"]))

    def _special(self, number: Value, sign: Value, nan: Value) -> Any:
        """The result of a magnitude, which for a NaN is that of infinity."""
        quiet = self.format.mantissa - 1
        return Cat(number[:quiet], number[quiet] | nan, number[quiet + 1 :], sign & ~nan)


__all__ = ["PASSED", "Pipe", "Pipelined", "Step", "chosen", "picked", "powers_of_shift"]
