"""What the floating-point units share: taking numbers apart, normalising, rounding; and registers between steps."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# Amaranth's values are untyped.

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from upl_mlir.hw.fp.model import Format


def leading_zeros(m: Module, bits: Value, name: str) -> Signal:
    """The number of zeros above the highest 1 of `bits` (their number if there is none), by halving."""
    width = len(bits)
    size = 1 << max(0, (width - 1).bit_length())
    padded = Cat(Const((1 << (size - width)) - 1, size - width), bits) if size > width else bits
    count: list[Value] = []
    rest: Value = padded
    while len(rest) > 1:
        half = len(rest) // 2
        empty = Signal(name=f"{name}_empty{half}")
        m.d.comb += empty.eq(rest[half:] == 0)
        count.insert(0, empty)
        chosen = Signal(half, name=f"{name}_half{half}")
        m.d.comb += chosen.eq(Mux(empty, rest[:half], rest[half:]))
        rest = chosen
    out = Signal(range(width + 1), name=name)
    m.d.comb += out.eq(Cat(*count) + Mux(rest, 0, 1) if count else ~rest)
    return out


def shift_right_sticky(m: Module, bits: Value, distance: Value, name: str) -> Signal:
    """`bits` moved right; the lowest bit of the result is 1 if any bit moved out was. Distances beyond the width do."""
    width = len(bits)
    out = Signal(width, name=name)
    lost = Signal(width, name=f"{name}_lost")
    steps = width.bit_length()
    near = distance[:steps]
    far = (distance >> steps) != 0 if len(distance) > steps else Const(0)
    wide = Signal(2 * width + (1 << steps), name=f"{name}_wide")
    full = Cat(Const(0, width), bits)
    m.d.comb += wide.eq(full >> near)
    m.d.comb += lost.eq(wide[:width])
    m.d.comb += out.eq(Mux(far, (bits != 0), wide[width : 2 * width] | (lost != 0)))
    return out


@dataclass(frozen=True)
class Unpacked:
    """A number taken apart: `field` is its exponent field, 1 for subnormals; `significand` has the hidden bit on top."""

    sign: Value
    field: Value
    significand: Value
    zero: Value
    infinite: Value
    nan: Value


def unpack(m: Module, f: Format, bits: Value, name: str) -> Unpacked:
    """Take a number apart; its class is that of the bits, whatever the rest is."""
    fraction = bits[: f.mantissa]
    field = bits[f.mantissa : f.mantissa + f.exponent]
    ones, none = Signal(name=f"{name}_ones"), Signal(name=f"{name}_none")
    m.d.comb += [ones.eq(field == f.exponent_ones), none.eq(field == 0)]
    return Unpacked(
        sign=bits[-1],
        field=Mux(none, 1, field),
        significand=Cat(fraction, ~none),
        zero=none & (fraction == 0),
        infinite=ones & (fraction == 0),
        nan=ones & (fraction != 0),
    )


def normalised(m: Module, f: Format, u: Unpacked, name: str) -> tuple[Signal, Signal]:
    """Exponent without bias (signed, wide enough for subnormals) and significand with its highest bit set."""
    exponent = Signal(signed(f.exponent + 2), name=f"{name}_exponent")
    significand = Signal(f.mantissa + 1, name=f"{name}_significand")
    zeros = leading_zeros(m, u.significand, f"{name}_zeros")
    m.d.comb += [significand.eq(u.significand << zeros), exponent.eq(u.field - f.bias - zeros)]
    return exponent, significand


def round_normal(m: Module, f: Format, sign: Value, exponent: Value, significand: Value, name: str) -> Signal:
    """The bits of a number with unbiased `exponent` (signed) and `significand`: highest bit set, one bit of weight 1 on
    top, at least 2 bits more than the format has (guard, and sticky as the lowest one)."""
    width = len(significand)
    extra = width - f.mantissa - 1
    assert extra >= 2
    distance = Signal(signed(f.exponent + 4), name=f"{name}_distance")
    m.d.comb += distance.eq(1 - f.bias - exponent)
    tiny = distance > 0
    shifted = shift_right_sticky(m, significand, Mux(tiny, distance, 0)[: f.exponent + 3], f"{name}_shifted")
    field = Signal(signed(f.exponent + 4), name=f"{name}_field")
    m.d.comb += field.eq(Mux(tiny, 0, exponent + f.bias))
    return round_field(m, f, sign, field, shifted, name)


def round_field(m: Module, f: Format, sign: Value, field: Value, significand: Value, name: str) -> Signal:
    """Round a significand (hidden bit on top, which is 0 exactly if `field` is 0) and put the parts together."""
    extra = len(significand) - f.mantissa - 1
    kept = significand[extra : extra + f.mantissa]
    guard = significand[extra - 1]
    sticky = significand[: extra - 1] != 0
    up = guard & (sticky | significand[extra])
    out = Signal(f.bits, name=f"{name}_rounded")
    with m.If(field >= f.exponent_ones):
        m.d.comb += out.eq(Cat(Const(f.infinity, f.bits - 1), sign))
    with m.Else():
        # A carry out of the fraction goes into the exponent, up to infinity: this is how the encoding is made.
        magnitude = Signal(f.bits - 1, name=f"{name}_magnitude")
        m.d.comb += magnitude.eq(Cat(kept, field[: f.exponent]) + up)
        m.d.comb += out.eq(Cat(magnitude, sign))
    return out


class Stages:
    """Registers between the steps of a pipeline that moves on whenever `enable` is 1.

    `cut(n, values)` ends step n of `steps`: each value comes back registered if the latency asks for a register there.
    Latencies below `steps` leave out the first registers; longer ones put the extra registers at the end.
    """

    def __init__(self, m: Module, steps: int, latency: int, enable: Value | None = None):
        self.m = m
        self.steps = steps
        self.latency = latency
        self.enable = Const(1) if enable is None else enable

    def registers(self, step: int) -> int:
        """How many registers stand at the end of a step, counted from 1."""
        if step == self.steps:
            return max(self.latency - self.steps + 1, min(self.latency, 1))
        return int(self.latency > self.steps - step)

    def cut(self, step: int, **values: Value) -> dict[str, Value]:
        """End a step."""
        out: dict[str, Value] = dict(values)
        for n in range(self.registers(step)):
            for name, value in list(out.items()):
                register = Signal.like(value, name=f"{name}_{step}_{n}")
                with self.m.If(self.enable):
                    self.m.d.sync += register.eq(value)
                out[name] = register
        return out


__all__ = [
    "Stages", "Unpacked", "leading_zeros", "normalised", "round_field", "round_normal", "shift_right_sticky",
    "unpack",
]  # fmt: skip
