"""What a circuit's netlist has before synthesis, counted in seconds: memories, multipliers, and the bits of each kind of
operation.

The netlist is the one that synthesis gets, in yosys' language (RTLIL, in the appendix of its manual). Each kind of unit is
elaborated once; in the circuit a box stands for it.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportAttributeAccessIssue=false, reportInconsistentConstructor=false
# Amaranth's values and components are untyped.

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from math import ceil

from amaranth.hdl import Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from upl_mlir.hw.circuit.circuit import Circuit
from upl_mlir.hw.circuit.fixed_units import units_of
from upl_mlir.hw.synth.figures import as_rtlil
from upl_mlir.passes.circuit.numbers import Numbers
from upl_mlir.passes.circuit.plan import Plan

BOX = "box_"
"""Begins the type of the cell that stands for a unit; the number of its operation comes behind it."""
RAM_WORDS, RAM_BITS = 16, 4
"""Of a memory in LUTs (TRELLIS_DPR16X4)."""

Contents = Counter[str]
"""By kind: `arithmetic` bits that are added, subtracted, compared by < and the like; `equal`: compared for equality;
`logic`: of and, or, exclusive or, also over the bits of a word; `choice`: chosen between two values, and between registers'
next values; `table`: chosen between constants; `shift`: bits times those of the distance; `ff`: bits of registers;
`lut_ram`, `block_ram`, `dsp`: blocks of the device."""

_KINDS = {
    **dict.fromkeys(("add", "sub", "neg", "lt", "le", "gt", "ge"), "arithmetic"),
    **dict.fromkeys(("eq", "ne", "eqx", "nex"), "equal"),
    **dict.fromkeys(("and", "or", "xor", "xnor"), "logic"),
    **dict.fromkeys(("reduce_and", "reduce_or", "reduce_xor", "reduce_xnor", "reduce_bool", "logic_not"), "logic"),
    **dict.fromkeys(("shl", "shr", "sshl", "sshr", "shift", "shiftx"), "shift"),
    "mux": "choice", "dff": "ff",
}  # fmt: skip
_FREE = frozenset(("not", "pos", "memrd_v2", "memwr_v2", "meminit_v2"))
"""Cells that become part of others, or are counted as memories."""
_BLOCKS = {"\\DP16KD": "block_ram", "\\MULT18X18D": "dsp"}

_CELL = re.compile(r"^  cell (\S+) \S+\n(.*?)^  end$", re.MULTILINE | re.DOTALL)
_PARAMETER = re.compile(r"parameter \\(\w+) (\d+)$", re.MULTILINE)
_OPERAND = re.compile(r"connect \\([ABY]) (.+)$", re.MULTILINE)
_CONSTANT = re.compile(r"\d+'[01-]+")
_MEMORY = re.compile(r"^  memory width (\d+) size (\d+) ", re.MULTILINE)
_PROCESS = re.compile(r"^  process \S+\n(.*?)^  end$", re.MULTILINE | re.DOTALL)
_ASSIGN = re.compile(r"assign \S+ \[(\d+)(?::(\d+))?\] ")


REST = ""
"""The key of what is in no unit."""


def contents(plan: Plan) -> dict[str, Contents]:
    """What the circuit of a plan has, for the ECP5: in its units by their operation (`operation`), and in the `REST`."""
    boxes = _Boxes(plan)
    found = counted(as_rtlil(Circuit(plan, target="ecp5", units=boxes)))
    out = {REST: Counter({what: n for what, n in found.items() if not what.startswith(BOX)})}
    for number, (kind, has) in enumerate(boxes.kinds.items()):
        of = out.setdefault(operation(plan.numbers, kind), Counter())
        for what, bits in has.items():
            of[what] += found[f"{BOX}{number}"] * bits
    return out


def operation(numbers: Numbers, kind: str) -> str:
    """What units have in common that differ in their width or their constant; `kind` is that of a body's operation."""
    name = kind.partition(" ")[0]
    name = {"sub": "add", "max": "min"}.get(name, name)
    return f"fixed {name}" if numbers.fixed is not None else name


def counted(rtlil: str) -> Contents:
    """What a design in yosys' language has.  Raises ValueError for a cell that is not known."""
    out: Contents = Counter()
    for module in re.split(r"^module ", rtlil, flags=re.MULTILINE):
        _cells(module, out)
    for width, size in _MEMORY.findall(rtlil):
        out["lut_ram"] += ceil(int(width) / RAM_BITS) * ceil(int(size) / RAM_WORDS)
    for process in _PROCESS.findall(rtlil):
        out["choice"] += _chosen(process)
    return out


def _cells(module: str, out: Contents) -> None:
    """Count a module's cells, which come after those whose results they take."""
    tables: set[str] = set()  # what is chosen between constants alone
    for kind, text in _CELL.findall(module):
        name = kind[1:]
        if kind in _BLOCKS:
            out[_BLOCKS[kind]] += 1
        elif name.startswith(BOX):
            out[name] += 1
        if kind.startswith("\\") or name in _FREE:
            continue
        if name not in _KINDS:
            raise ValueError(f"a cell {kind}")
        widths = {n: int(w) for n, w in _PARAMETER.findall(text)}
        bits = max(widths.get(n, 0) for n in ("A_WIDTH", "B_WIDTH", "WIDTH"))
        what = _KINDS[name]
        if name == "mux":
            operands = dict(_OPERAND.findall(text))
            if all(_CONSTANT.fullmatch(operands[x]) or operands[x].partition(" ")[0] in tables for x in "AB"):
                tables.add(operands["Y"])
                what = "table"
        elif what == "shift":
            bits = widths["Y_WIDTH"] * widths["B_WIDTH"]
        out[what] += bits


def _chosen(process: str) -> int:
    """Bits that a process chooses: those of all assignments but the first one, which is the enable of a register, unless it
    takes the place of a constant; resets cost nothing."""
    out, default, resets = 0, True, list[bool]()
    for line in map(str.strip, process.splitlines()):
        if line.startswith("switch"):
            resets.append("\\rst " in line)
        elif line == "end":
            resets.pop()
        elif (found := _ASSIGN.match(line)) and not any(resets):
            width = 1 + int(found[1]) - int(found[2] or found[1])
            constant = _CONSTANT.fullmatch(line[found.end() :]) is not None
            if not resets:
                default = constant
            elif default:
                out += width
            else:
                default = True
    return out


class _Box(wiring.Component):
    """Stands for a unit with these ports."""

    def __init__(self, name: str, ports: wiring.Signature):
        self.name = name
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        wires = {f"{'i' if p.flow == In else 'o'}_{n}": getattr(self, n) for n, p in self.signature.members.items()}
        m.submodules.box = Instance(self.name, **wires)
        return m


class _Boxes:
    """As the units of a plan's numbers, with boxes for units.  `kinds`: what each kind of unit has, in the order of their
    numbers."""

    def __init__(self, plan: Plan):
        self.units = units_of(plan.numbers, plan.units, "ecp5")
        self.key = plan.numbers, tuple(plan.units.items())
        self.wires, self.operands, self.result = self.units.wires, self.units.operands, self.units.result
        self.kinds: dict[str, Contents] = {}
        self.ports: dict[str, wiring.Signature] = {}

    def unit(self, kind: str) -> _Box:
        """A box for a unit of an operation."""
        if kind not in self.kinds:
            self.kinds[kind], self.ports[kind] = unit_contents(*self.key, kind)
        return _Box(f"{BOX}{[*self.kinds].index(kind)}", self.ports[kind])


@lru_cache(1000)
def unit_contents(numbers: Numbers, latency: tuple[tuple[str, int], ...], kind: str) -> tuple[Contents, wiring.Signature]:
    """What a unit has, and its ports; `kind` is that of a body's operation."""
    made = units_of(numbers, dict(latency), "ecp5").unit(kind)
    return counted(as_rtlil(made)), made.signature
