"""What the C++ classes of models have in common, with a lane or with several: ports, functions, memories, tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from upl_mlir.netsim.expression import Variable, literal, ones
from upl_mlir.netsim.linear import BYTE
from upl_mlir.netsim.program import Program, Table
from upl_mlir.netsim.read import WORD


@dataclass(eq=False)
class Model:
    """What C++ is made of. `steady`: inputs that change between runs only, when `ports` is called. `probes`: outputs that
    are made only when `probe` is called."""

    program: Program
    steady: Collection[str] = ()
    probes: Collection[str] = ()


def file_of(model: Model, name: str, header: str, made: tuple[str, str]) -> tuple[str, str]:
    """Header and source of a class that has been made, with its tables."""
    units = {u.kind.header for u in model.program.netlist.units}
    head = ["#pragma once", *(f'#include "{h}"' for h in (header, *sorted(units)))]
    tables = (_table(table_name, table) for table, table_name in model.program.tables.items())
    return "\n".join([*head, made[0]]), "\n".join([f'#include "{name.lower()}.h"', *tables, made[1]])


def _table(name: str, table: Table) -> str:
    """A linear map by its rows, and by a matrix for each byte of argument and result."""
    rows = ", ".join(f"{{{', '.join(map(hex, row))}}}" for row in table.rows)
    each = ((literal(_matrix(row, low)) for low in range(0, table.bits, BYTE)) for row in table.rows)
    matrices = ", ".join(f"{{{', '.join(some)}}}" for some in each)
    kind = f"Linear<uint{table.bits}_t, {len(table.rows)}>"
    return f"static const {kind} {name} = {{{{{rows}}}, {{{matrices}}}}};"


def _matrix(row: Sequence[int], low: int) -> int:
    """How a byte of the argument changes the byte of the result that begins at bit `low`, as the processor's instruction
    `gf2p8affineqb` has it: for each bit of the result, the last one first, a byte with the bits that change it."""
    columns = [row[1 << n] if 1 << n < len(row) else 0 for n in range(BYTE)]
    masks = (sum((c >> low + bit & 1) << n for n, c in enumerate(columns)) for bit in reversed(range(BYTE)))
    return sum(mask << BYTE * at for at, mask in enumerate(masks))


FUNCTIONS = [f"    void {name}();" for name in ("settle", "probe", "ports", "edge")]
"""The functions of a class."""


def members(program: Program, more: int = 0) -> tuple[list[str], list[str]]:
    """Memories, with `more` rows, and units as members of a class, and statements for rows that do not begin with 0."""
    lines: list[str] = []
    starts: list[str] = []
    for m in program.netlist.memories:
        for v in program.variables[m.word]:
            lines.append(f"    uint{size(v.width)}_t m{v.number}[{m.size + more}] = {{}};")
            for n in range(m.size) if m.initial else ():
                x = m.initial >> n * m.width + v.low & ones(v.width)
                if x:
                    starts.append(f"m{v.number}[{n}] = {literal(x)};")
    for u in program.netlist.units:
        lines.append(f"    {u.kind.name}<{', '.join(map(str, u.parameters))}> u{u.number};")
    return lines, starts


PART = 4000
"""Of a class of 41,000 members g++ 12 read the header in 130 s, and in 2 to 7 s in parts of 2,000 to 8,000; the source took
30 to 33 s with all of these, and 64 s with parts of 500."""


def struct(name: str, data: Sequence[str], rest: Sequence[str], aligned: str = "") -> list[str]:
    """A class with the members `data` and `rest`, in their order.

    Compilers compare each member's name with all those before it, until the class is complete.  So `data` are in classes of
    at most `PART` members, each the base of the next one.
    """
    *parts, last = [data[n : n + PART] for n in range(0, len(data), PART)] or [[]]
    lines: list[str] = []
    base = ""
    for n, part in enumerate(parts):
        lines += [f"struct {name}_{n}{base} {{", *part, "};"]
        base = f" : {name}_{n}"
    return [*lines, f"struct {aligned}{name}{base} {{", *last, *rest, "};", ""]


def size(bits: int) -> int:
    """Bits of the smallest type that holds so many."""
    return next(n for n in (8, 16, 32, 64) if bits <= n)


def port(bits: int) -> str:
    """The type of a port."""
    return "u64" if bits <= WORD else f"Wide<{-(-bits // WORD)}>"


def take(name: str, wide: int, v: Variable) -> str:
    """The bits of a variable, from a port of `wide` bits."""
    if wide > WORD:
        return f"get({name}, {v.low}, {v.width})"
    return f"({name} >> {v.low} & {literal(ones(v.width))})" if v.width < WORD else name
