"""The files of a circuit on a bus: Verilog, a C header for its driver, a module for LiteX."""

from __future__ import annotations

import re
from importlib import resources
from string import Template

from upl_mlir.hw.circuit.bus.layout import BYTES, Array, Memory
from upl_mlir.hw.circuit.bus.master import master_ports
from upl_mlir.hw.circuit.bus.wishbone import BASES, Wishbone, slave_ports
from upl_mlir.hw.circuit.circuit import identifiers
from upl_mlir.hw.circuit.verilog import target_of
from upl_mlir.hw.verilog import convert, waivers
from upl_mlir.passes.circuit.plan import Plan


def wishbone_files(plan: Plan, memory: Memory, device: str = "generic") -> dict[str, str]:
    """The texts of `upl_NAME.v`, `upl_NAME.h` and `upl_NAME.py` by these names.  Raises UplError UPL2004 for a device that
    there is not."""
    top = module_name(plan)
    verilog = waivers() + convert(Wishbone(plan, memory, target_of(device)), top)
    return {f"{top}.v": verilog, f"{top}.h": header(plan, memory), f"{top}.py": litex_module(plan, memory)}


def module_name(plan: Plan) -> str:
    """The name of the Verilog module, and the beginning of those of C functions."""
    return "upl_" + re.sub(r"\W", "_", plan.name)


def header(plan: Plan, memory: Memory) -> str:
    """The C header: registers, arrays, and functions that start runs and wait for them."""
    top = module_name(plan)
    upper, names = top.upper(), identifiers(memory.arrays)
    kind = "float" if plan.numbers.width == 32 and not plan.numbers.fixed else plan.numbers.kind.value
    return _text(
        "driver.h", name=top, upper=upper, program=plan.name, element=_element(plan, kind),
        arrays="\n".join(_array(a) for a in memory.arrays.values()),
        bases="\n".join(
            f"#define {upper}_BASE_{names[n]} {BYTES * (BASES + k):#04x}u" for k, n in enumerate(memory.arrays)
        ),
        words="\n".join(f"#define {upper}_WORDS_{names[n]} {a.words}u" for n, a in memory.arrays.items()),
        members="\n".join(f"    uint32_t {names[n]}_at;" for n in memory.arrays),
        writes="\n".join(f"    UPL_WRITE(registers + {upper}_BASE_{n}, at->{n}_at);" for n in names.values()),
    )  # fmt: skip


def _element(plan: Plan, kind: str) -> str:
    """How a number lies in its word."""
    fixed, width = plan.numbers.fixed, plan.numbers.width
    if fixed is not None:
        return f"an int32_t, the number times 2^{fixed.fraction} ({kind})"
    return "a float" if width == 32 else f"the lower {width} bits, of type {kind}; of results the others are 0"


def _array(a: Array) -> str:
    """The comment on an array."""
    fields = ",".join(d.name for d in a.dims)
    ranges = ", ".join(f"{d.low}<={d.name}<={d.low + d.extent - 1}" for d in a.dims)
    indices = [f"({d.name} - {d.low})" if d.low else d.name for d in a.dims]
    terms = [f"{s} * {i}" if s != 1 else i for i, s in zip(indices, a.strides, strict=True)]
    where = f"<{fields}>, {ranges}; element {' + '.join(terms)}" if a.dims else ", one element"
    return f"     {a.name}{where} ({'result' if a.output else 'input'})"


def litex_module(plan: Plan, memory: Memory) -> str:
    """The Python module with a `LiteXModule`."""
    top = module_name(plan)
    camel = "".join(part[:1].upper() + part[1:] for part in top.removeprefix("upl_").split("_"))
    pins = [
        f"            {'o' if port.flow.name == 'Out' else 'i'}_{side}_{n}=self.{bus}.{n},"
        for side, bus, ports in (("wbs", "registers", slave_ports()), ("wbm", "memory", master_ports()))
        for n, port in ports.items()
    ]
    size = 1 << (BYTES * (BASES + len(memory.arrays)) - 1).bit_length()
    values = {"name": top, "upper": top.upper(), "program": plan.name, "camel": f"UPL{camel}", "size": str(size)}
    return _text("litex.py", pins="\n".join(pins), **values)


def _text(template: str, **values: str) -> str:
    """A text of this folder with its places filled in."""
    text = resources.files("upl_mlir.hw.circuit.bus").joinpath(f"{template}.template").read_text(encoding="utf-8")
    return Template(text).substitute(values)
