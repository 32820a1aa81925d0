"""Division and square root, one operation at a time, several bits a cycle; and Euclidean division of integers."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAssignmentType=false
# pyright: reportMissingParameterType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from upl_mlir.hw.fp.model import Format
from upl_mlir.hw.fp.parts import normalised, round_normal, unpack


class _Iterative(wiring.Component):
    """start (in, 1), while not busy: take a, b (in). busy (out, 1). done (out, 1): for one cycle, result (out) is there."""

    def __init__(self, width: int, cycles: int, extra: dict[str, Any] | None = None):
        self.cycles = cycles
        super().__init__(
            {
                "start": In(1),
                "a": In(width),
                "b": In(width),
                "busy": Out(1),
                "done": Out(1),
                "result": Out(width),
                **(extra or {}),
            }
        )

    def rounds(self, steps: int) -> tuple[int, int]:
        """How many steps must be done in a cycle so that, with one cycle to begin and one to end, `cycles` are enough; and
        how many cycles these are."""
        at_once = -(-steps // max(1, self.cycles - 2))
        return at_once, -(-steps // at_once)


class _Floating(_Iterative):
    """An operation on numbers of a format."""

    def __init__(self, f: Format, cycles: int):
        self.format = f
        super().__init__(f.bits, cycles)


class Divider(_Floating):
    """a / b in a floating-point format, by restoring division."""

    def elaborate(self, platform: object) -> Module:
        """The quotient of normalised significands lies in (1/2, 2): mantissa + 3 bits of it, and whether a rest is left."""
        f = self.format
        m = Module()
        steps = f.mantissa + 3
        at_once, rounds = self.rounds(steps)
        a, b = unpack(m, f, self.a, "a"), unpack(m, f, self.b, "b")
        exponent_a, significand_a = normalised(m, f, a, "a_normal")
        exponent_b, significand_b = normalised(m, f, b, "b_normal")
        rest, divisor = Signal(f.mantissa + 2), Signal(f.mantissa + 1)
        quotient = Signal(rounds * at_once)
        exponent = Signal(signed(f.exponent + 3))
        sign, nan, infinite, zero = Signal(), Signal(), Signal(), Signal()
        left = Signal(range(rounds + 2))
        m.d.comb += self.busy.eq(left != 0)
        with m.If(self.start & ~self.busy):
            m.d.sync += [
                rest.eq(significand_a), divisor.eq(significand_b), exponent.eq(exponent_a - exponent_b), quotient.eq(0),
                sign.eq(a.sign ^ b.sign), left.eq(rounds + 1),
                nan.eq(a.nan | b.nan | (a.infinite & b.infinite) | (a.zero & b.zero)),
                infinite.eq(a.infinite | b.zero), zero.eq(b.infinite | a.zero),
            ]  # fmt: skip
        with m.Elif(left > 1):
            current, bits = rest, []
            for n in range(at_once):
                fits, after = Signal(name=f"fits{n}"), Signal(f.mantissa + 2, name=f"after{n}")
                m.d.comb += [fits.eq(current >= divisor), after.eq((current - Mux(fits, divisor, 0)) << 1)]
                current = after
                bits.insert(0, fits)
            m.d.sync += [rest.eq(current), quotient.eq(Cat(*bits, quotient)), left.eq(left - 1)]
        with m.Elif(self.busy):
            m.d.comb += self.done.eq(1)
            m.d.sync += left.eq(0)
        # The first bit of the quotient is 1 if a's significand is at least b's.
        high = Signal(len(quotient))
        m.d.comb += high.eq(Mux(quotient[-1], quotient, quotient << 1))
        whole = Cat(rest != 0, high)
        rounded = round_normal(m, f, sign, exponent - ~quotient[-1], whole, "quotient")
        with m.If(nan):
            m.d.comb += self.result.eq(f.nan)
        with m.Elif(infinite):
            m.d.comb += self.result.eq(Cat(Const(f.infinity, f.bits - 1), sign))
        with m.Elif(zero):
            m.d.comb += self.result.eq(Cat(Const(0, f.bits - 1), sign))
        with m.Else():
            m.d.comb += self.result.eq(rounded)
        return m


class SquareRoot(_Floating):
    """The square root of a (b is not used), bit by bit."""

    def elaborate(self, platform: object) -> Module:
        """The root of a significand in [1, 4) lies in [1, 2): mantissa + 2 bits of it, and whether a rest is left."""
        f = self.format
        m = Module()
        steps = f.mantissa + 3
        at_once, rounds = self.rounds(steps)
        steps = rounds * at_once
        a = unpack(m, f, self.a, "a")
        exponent_a, significand_a = normalised(m, f, a, "a_normal")
        radicand = Signal(2 * steps)
        rest, root = Signal(steps + 2), Signal(steps)
        exponent = Signal(signed(f.exponent + 2))
        nan, same = Signal(), Signal()
        kept = Signal(f.bits)
        left = Signal(range(rounds + 2))
        m.d.comb += self.busy.eq(left != 0)
        with m.If(self.start & ~self.busy):
            # An odd exponent gives its lowest bit to the significand, whose integer part has two bits then.
            wide = Mux(exponent_a[0], significand_a << 1, significand_a)
            m.d.sync += [
                radicand.eq(Cat(Const(0, 2 * steps - f.mantissa - 2), wide[: f.mantissa + 2])), rest.eq(0), root.eq(0),
                exponent.eq(exponent_a >> 1), left.eq(rounds + 1), kept.eq(self.a),
                nan.eq(a.nan | (a.sign & ~a.zero)), same.eq(a.zero | (a.infinite & ~a.sign)),
            ]  # fmt: skip
        with m.Elif(left > 1):
            at, so_far, pairs = rest, root, radicand
            for n in range(at_once):
                trial, fits = Signal(steps + 2, name=f"trial{n}"), Signal(name=f"fits{n}")
                down = Signal(steps + 2, name=f"down{n}")
                m.d.comb += [
                    down.eq(Cat(pairs[-2:], at)), trial.eq(Cat(Const(1, 2), so_far)), fits.eq(down >= trial)
                ]
                after, longer = Signal(steps + 2, name=f"after{n}"), Signal(steps, name=f"longer{n}")
                m.d.comb += [after.eq(down - Mux(fits, trial, 0)), longer.eq(Cat(fits, so_far))]
                at, so_far, pairs = after, longer, Cat(Const(0, 2), pairs[:-2])
            m.d.sync += [rest.eq(at), root.eq(so_far), radicand.eq(pairs), left.eq(left - 1)]
        with m.Elif(self.busy):
            m.d.comb += self.done.eq(1)
            m.d.sync += left.eq(0)
        rounded = round_normal(m, f, Const(0), exponent, Cat(rest != 0, root), "root")
        m.d.comb += self.result.eq(Mux(nan, f.nan, Mux(same, kept, rounded)))
        return m


class IntegerDivider(_Iterative):
    """Signed integers: result is a divided by b rounded down, rest (out) is a - b * result; b must not be 0."""

    def __init__(self, width: int, cycles: int):
        self.width = width
        super().__init__(width, cycles, {"rest": Out(width)})

    def elaborate(self, platform: object) -> Module:
        """Division of magnitudes, then one step down if the signs differ and a rest is left."""
        m = Module()
        width = self.width
        at_once, rounds = self.rounds(width)
        total = rounds * at_once
        dividend, divisor = Signal(total), Signal(width)
        rest = Signal(width + 1)
        negative_a, negative_b = Signal(), Signal()
        left = Signal(range(rounds + 2))
        m.d.comb += self.busy.eq(left != 0)
        with m.If(self.start & ~self.busy):
            m.d.sync += [
                dividend.eq(Mux(self.a[-1], -self.a.as_signed(), self.a)[:width]), rest.eq(0), left.eq(rounds + 1),
                divisor.eq(Mux(self.b[-1], -self.b.as_signed(), self.b)[:width]),
                negative_a.eq(self.a[-1]), negative_b.eq(self.b[-1]),
            ]  # fmt: skip
        with m.Elif(left > 1):
            at, quotient = rest, dividend
            for n in range(at_once):
                down, fits = Signal(width + 1, name=f"down{n}"), Signal(name=f"fits{n}")
                after = Signal(width + 1, name=f"after{n}")
                m.d.comb += [down.eq(Cat(quotient[-1], at)), fits.eq(down >= divisor)]
                m.d.comb += after.eq(down - Mux(fits, divisor, 0))
                at, quotient = after, Cat(fits, quotient[:-1])
            m.d.sync += [rest.eq(at), dividend.eq(quotient), left.eq(left - 1)]
        with m.Elif(self.busy):
            m.d.comb += self.done.eq(1)
            m.d.sync += left.eq(0)
        differ, more = Signal(), Signal()
        magnitude, size = Signal(width), Signal(width)
        m.d.comb += [
            differ.eq(negative_a ^ negative_b),
            more.eq(differ & (rest != 0)),
            magnitude.eq(dividend[:width] + more),
            size.eq(Mux(more, divisor - rest, rest)),
            self.result.eq(Mux(differ, -magnitude, magnitude)),
            self.rest.eq(Mux(negative_b, -size, size)),
        ]
        return m
