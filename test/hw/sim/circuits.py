"""Circuits written in Amaranth, at random and cell by cell, and what both simulators say of them in each cycle."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# Amaranth's values are untyped.

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.hdl import Array, Cat, Const, Fragment, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from upl_mlir.hw.sim import build
from upl_mlir.hw.verilog import netlist

WIDTHS = (1, 7, 64, 65, 100, 128)
WIDEST = 128
"""Bits of the widest arithmetic that models have."""

Draw = np.random.Generator


def cut(value: Any, bits: int) -> Any:
    """The lowest bits, with the sign there is."""
    v = Value.cast(value)
    if len(v) <= bits:
        return v
    return v[:bits].as_signed() if v.shape().signed else v[:bits]


CELLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "and": lambda a, b, c: a & b,
    "or": lambda a, b, c: a | b,
    "xor": lambda a, b, c: a ^ b,
    "not": lambda a, b, c: ~a,
    "neg": lambda a, b, c: -cut(a, 127),
    "add": lambda a, b, c: cut(a, 126) + cut(b, 126),
    "sub": lambda a, b, c: cut(a, 126) - cut(b, 126),
    "mul": lambda a, b, c: cut(a, 64) * cut(b, 64),
    "narrow": lambda a, b, c: (a * b)[: min(64, len(a))],
    "eq": lambda a, b, c: cut(a, 127) == cut(b, 127),
    "ne": lambda a, b, c: cut(a, 127) != cut(b, 127),
    "lt": lambda a, b, c: cut(a, 127) < cut(b, 127),
    "le": lambda a, b, c: cut(a, 127) <= cut(b, 127),
    "gt": lambda a, b, c: cut(a, 127) > cut(b, 127),
    "ge": lambda a, b, c: cut(a, 127) >= cut(b, 127),
    "constant": lambda a, b, c: Cat(a[:90] == 5, cut(a, 127) < 3, cut(a, 127) > 40, cut(a, 127) == -1),
    "any": lambda a, b, c: a.any(),
    "all": lambda a, b, c: a.all(),
    "xorall": lambda a, b, c: a.xor(),
    "parities": lambda a, b, c: Cat((Cat(a, b) & (0x9E3779B97F4A7C15F39CC0605CEDC834 >> n)).xor() for n in range(9)),
    "odd": lambda a, b, c: Cat(~(Cat(a, c) & (0xB5297A4D3F84D5B5 >> n)).xor() for n in range(4)),
    "logic": lambda a, b, c: Cat(a.bool() & b.bool(), a.bool() | ~b.bool()),
    "shl": lambda a, b, c: (a << c)[:WIDEST],
    "shr": lambda a, b, c: cut(a, 128) >> c,
    "far": lambda a, b, c: Cat(a[0] << c[:7], (a[:30] >> c)[:20]),
    "high": lambda a, b, c: (Cat(Const(0, 129), a[:60]) >> c)[:WIDEST],
    "fixed": lambda a, b, c: Cat((a << 3)[:WIDEST], cut(a, 128) >> 5, cut(a, 128) >> 90),
    "slices": lambda a, b, c: Cat(b[len(b) // 2 :], a[: len(a) // 2 + 1], b[:1])[:WIDEST],
    "replicated": lambda a, b, c: b[0].replicate(40) & Cat(a, a),
    "part": lambda a, b, c: Cat(cut(a, 128)).bit_select(c, min(len(a), 9)),
    "field": lambda a, b, c: Cat(cut(a, 128)).word_select(c[:2], min(len(a), 16)),
    "word": lambda a, b, c: Cat(cut(a, 128)).word_select(c[:3], min(len(a), 5)),
    "mux": lambda a, b, c: Mux(c, a, b),
    "muxes": lambda a, b, c: Mux(c[0], a, Mux(c[1], b, Mux(c[2] ^ c[3], a, ~b))),
    "array": lambda a, b, c: Array([a, b, a ^ b, ~a, a & b])[c[:3]],
}
"""Of two values of any width and sign, and one of eight bits without. (`bit_select` of a number with a sign is right in
Verilog only: Amaranth's simulator shifts the sign in.)"""


class Circuit(wiring.Component):
    """Inputs i0, i1, … of these shapes; `made(m, inputs)` gives the outputs o0, o1, …"""

    def __init__(self, shapes: list[Shape], made: Callable[[Module, list[Any]], list[Any]]):
        self.made = made
        m = Module()
        trial = made(m, [Signal(shape) for shape in shapes])
        Fragment.get(m, None)  # Amaranth warns of a module that nobody elaborates
        self.sizes = [len(Value.cast(value)) for value in trial]
        outputs = {f"o{n}": Out(bits) for n, bits in enumerate(self.sizes)}
        super().__init__({f"i{n}": In(shape) for n, shape in enumerate(shapes)} | outputs)
        self.shapes = shapes

    def elaborate(self, platform: object) -> Module:
        m = Module()
        values = self.made(m, [getattr(self, f"i{n}") for n in range(len(self.shapes))])
        for n, value in enumerate(values):
            m.d.comb += getattr(self, f"o{n}").eq(value)
        return m


def cells() -> Circuit:
    """Every operation on operands of all widths, both with and without a sign, by turns from ports and from registers."""
    shapes = [kind(bits) for bits in WIDTHS for kind in (unsigned, signed)]

    def made(m: Module, inputs: list[Any]) -> list[Any]:
        *operands, amount = inputs
        kept: list[Any] = []
        for n, value in enumerate([*operands, amount]):
            register = Signal(value.shape(), name=f"kept{n}", init=n % (1 << len(value) - 1))
            m.d.sync += register.eq(value)
            kept.append(register)
        out: list[Any] = []
        for k, each in enumerate(CELLS.values()):
            for n in range(len(operands)):
                source = kept if (n + k) % 2 else inputs
                other = (n + 2 * (k % len(WIDTHS))) % len(operands)
                other = other if k % 3 else other ^ 1
                result = Value.cast(each(source[n], source[other], source[-1]))
                if n % 3 == 0:  # what only registers need is evaluated at the edge
                    late = Signal(result.shape(), name=f"late{k}_{n}")
                    m.d.sync += late.eq(result)
                    result = late
                out.append(result)
        return out

    return Circuit([*shapes, unsigned(8)], made)


def random_circuit(seed: int, size: int, behind: bool = False) -> Circuit:
    """Values of values of values; registers with and without a condition, `Switch`, memories of all kinds. `behind`: inputs
    go to registers only, and outputs come from registers."""
    rng = np.random.default_rng(seed)
    shapes = [_shape(rng) for _ in range(8)]

    def made(m: Module, inputs: list[Any]) -> list[Any]:
        made = _Random(np.random.default_rng([seed, 1]), m, _kept(m, "in", inputs) if behind else inputs, size)
        return _kept(m, "out", made.outputs) if behind else made.outputs

    return Circuit(shapes, made)


def _kept(m: Module, name: str, values: list[Any]) -> list[Any]:
    """Registers with these values."""
    registers = [Signal(Value.cast(value).shape(), name=f"{name}{n}") for n, value in enumerate(values)]
    m.d.sync += [register.eq(value) for register, value in zip(registers, values, strict=True)]
    return registers


def _shape(rng: Draw) -> Shape:
    bits = int(rng.choice([*WIDTHS, int(rng.integers(1, WIDEST))]))
    return signed(bits) if rng.random() < 0.3 else unsigned(bits)


class _Random:
    def __init__(self, rng: Draw, m: Module, inputs: list[Any], size: int):
        self.rng, self.m, self.values, self.inputs = rng, m, list(inputs), inputs
        self.outputs: list[Any] = []
        feedback = [Signal(_shape(rng), name=f"r{n}") for n in range(size // 4)]
        self.values += feedback
        for n in range(size):
            (self._memory if n % 10 == 9 else self._switch if n % 10 == 4 else self._cell)(n)
        for register in feedback:
            if rng.random() < 0.5:
                m.d.sync += register.eq(self.one())
            else:
                with m.If(self.bits(1)):
                    m.d.sync += register.eq(self.one())
        self.outputs += [v for v in self.values[len(inputs) :] if rng.random() < 0.15] + feedback[:3]

    def one(self) -> Any:
        """Often an input: values of values of values tend to be constants."""
        some = self.inputs if self.rng.random() < 0.4 else self.values[-60:]
        return some[int(self.rng.integers(0, len(some)))]

    def bits(self, count: int) -> Any:
        """So many bits of a value, without a sign."""
        value = self.one()
        first = int(self.rng.integers(0, max(1, len(value) - count + 1)))
        return Cat(value[first : first + count], self.one(), Const(0, count))[:count]

    def _signal(self, name: str) -> Any:
        shape = _shape(self.rng)
        signal = Signal(shape, name=name, init=int(self.rng.integers(0, 9)) % (1 << shape.width - 1))
        self.values.append(signal)
        return signal

    def _cell(self, n: int) -> None:
        each = CELLS[str(self.rng.choice(list(CELLS)))]
        value = each(self.one(), self.one(), self.bits(8))
        if self.rng.random() < 0.2:
            self.m.d.sync += self._signal(f"s{n}").eq(value)
        else:
            self.m.d.comb += self._signal(f"c{n}").eq(value)

    def _switch(self, n: int) -> None:
        """Cases of constants, some of them with bits that do not matter; what no case names keeps what was before."""
        key, options = self.bits(4), [self.one() for _ in range(4)]
        first = self.one()
        signal = self._signal(f"w{n}")
        domain = self.m.d.sync if self.rng.random() < 0.4 else self.m.d.comb
        if self.rng.random() < 0.7:
            domain += signal.eq(first)
        with self.m.Switch(key):
            for pattern, option in zip(("0001", "001-", "1--0", "1111"), options, strict=True):
                with self.m.Case(pattern):
                    domain += signal.eq(option)

    def _memory(self, n: int) -> None:
        rng, m = self.rng, self.m
        bits, depth = int(rng.choice([3, 16, 72, 130])), int(rng.choice([1, 3, 8, 13]))
        init = [int(x) for x in rng.integers(0, 8, depth if rng.random() < 0.5 else 0)]
        memory = Memory(shape=unsigned(bits), depth=depth, init=init)
        m.submodules[f"memory{n}"] = memory
        parts = {3: (None, 1), 16: (None, 4, 8), 72: (None, 8, 24), 130: (None, 13, 65)}[bits]
        write = memory.write_port(granularity=parts[int(rng.integers(0, len(parts)))])
        m.d.comb += [write.addr.eq(self.bits(4)), write.data.eq(Cat(self.one(), self.one()))]
        m.d.comb += write.en.eq(self.bits(len(write.en)))
        for kind in range(int(rng.integers(1, 4))):
            if rng.random() < 0.4:
                read = memory.read_port(domain="comb")
            else:
                read = memory.read_port(transparent_for=(write,) if rng.random() < 0.5 else ())
                m.d.comb += read.en.eq(self.bits(1) | (kind == 0))
            m.d.comb += read.addr.eq(self.bits(4))
            self.values.append(read.data)


def stimuli(shapes: list[Shape], cycles: int, seed: int) -> list[list[int]]:
    """Inputs for each cycle: any bits, small numbers, those near to the bits of words, and the ends; each changes only
    now and then."""
    rng = np.random.default_rng(seed)
    now = [0] * len(shapes)
    out: list[list[int]] = []
    for _ in range(cycles):
        busy = rng.choice([0.0, 0.1, 0.5, 1.0])
        for n, shape in enumerate(shapes):
            if rng.random() < busy:
                ones = (1 << shape.width) - 1
                anything = int.from_bytes(rng.bytes(16), "little") & ones
                few = int(rng.integers(0, 70)) & ones
                ends = int(rng.choice([0, 1])) * ones ^ (int(rng.choice([0, 1])) << shape.width - 1)
                words = int(rng.choice([31, 32, 63, 64, 65, 127, 128])) & ones
                now[n] = (anything, few, words, ends, now[n] ^ 1)[int(rng.integers(0, 5))]
        out.append(list(now))
    return out


def by_amaranth(circuit: Circuit, inputs: list[list[int]]) -> list[list[int]]:
    """The outputs in each cycle, as Amaranth's simulator has them."""
    out: list[list[int]] = []

    async def bench(ctx: Any) -> None:
        for row in inputs:
            for n, x in enumerate(row):
                ctx.set(getattr(circuit, f"i{n}"), x)
            out.append([ctx.get(getattr(circuit, f"o{n}")) for n in range(len(circuit.sizes))])
            await ctx.tick()

    simulator = Simulator(circuit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return out


def by_us(
    folder: Path, circuits: Mapping[str, Any], inputs: Mapping[str, list[list[int]]], lanes: int = 1,
    flags: Sequence[str] = build.QUICK,
) -> dict[str, list[list[int]]]:  # fmt: skip
    """The outputs of circuits in each cycle, as our models have them: all in one library. With several lanes these share
    the cycles, each has its part of the inputs. Without optimisation, which takes the compiler minutes, unless `flags` say
    otherwise. Most inputs are said to be steady, some outputs to be probes."""
    objects: list[Path] = []
    texts = ["#include <cstring>"]
    for name, circuit in circuits.items():
        steady = [f"i{n}" for n in range(len(circuit.shapes)) if n % 4]
        probes = [f"o{n}" for n in range(0, len(circuit.sizes), 3)]
        objects.append(build.model(folder, netlist(circuit, name), name, lanes, steady, probes, flags=flags))
        lane = "[k]" if lanes > 1 else ""
        ins, outs = [s.width for s in circuit.shapes], circuit.sizes
        sets = " ".join(f"std::memcpy(&m.i{n}{lane}, x, {8 * _words(b)}); x += {_words(b)};" for n, b in enumerate(ins))
        gets = " ".join(f"std::memcpy(y, &m.o{n}{lane}, {8 * _words(b)}); y += {_words(b)};" for n, b in enumerate(outs))
        into, from_ = (f"{p} + (k * cycles + n) * {sum(map(_words, bits))}" for p, bits in (("in", ins), ("out", outs)))
        each = f"for (u64 k = 0; k < {lanes}; k++)"
        texts += [
            f'#include "{name}.h"\nextern "C" void run_{name}(u64 cycles, const u64* in, u64* out) {{',
            f"    static {name.capitalize()} m;",
            "    for (u64 n = 0; n < cycles; n++) {",
            f"        {each} {{ const u64* x = {into}; {sets} }}",
            "        m.ports(); m.settle(); m.probe();",
            f"        {each} {{ u64* y = {from_}; {gets} }}",
            "        m.edge();\n    }\n}",
        ]
    (folder / "harness.cpp").write_text("\n".join(texts), encoding="utf-8")
    objects.append(build.compile_source(folder / "harness.cpp", lanes, flags))
    library = ctypes.CDLL(str(build.link(objects, folder / "circuits.so")))
    out: dict[str, list[list[int]]] = {}
    for name, circuit in circuits.items():
        rows = inputs[name]
        pairs = [(x, s.width) for row in rows for x, s in zip(row, circuit.shapes, strict=True)]
        given = np.array([x >> 64 * k & (1 << 64) - 1 for x, bits in pairs for k in range(_words(bits))], np.uint64)
        got = np.zeros((len(rows), sum(map(_words, circuit.sizes))), np.uint64)
        places = [ctypes.c_void_p(a.ctypes.data) for a in (given, got)]
        getattr(library, f"run_{name}")(ctypes.c_uint64(len(rows) // lanes), *places)
        out[name] = [_numbers(row, circuit.sizes) for row in got.tolist()]
    return out


def _words(bits: int) -> int:
    return -(-bits // 64)


def _numbers(words: list[int], sizes: list[int]) -> list[int]:
    out: list[int] = []
    at = 0
    for bits in sizes:
        out.append(sum(words[at + k] << 64 * k for k in range(_words(bits))))
        at += _words(bits)
    return out
