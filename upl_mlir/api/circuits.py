"""Programs as circuits: the plan of a program at its sizes, or of a text of `ppn`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from upl_mlir.api.programs import Program, Value, load
from upl_mlir.diagnostics import Sources, decode, read_bytes
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.plan import Plan
from upl_mlir.passes.lower_to_circuit import planned_circuit


def plan_of_program(p: Program, params: Mapping[str, int], wish: Wish) -> Plan:
    """The plan of a program with its sizes.  Raises UplError: UPL13xx if it is wrong, UPL20xx if it has no circuit."""
    program = p.expanded().infer_domains()
    with program.errors():
        return planned_circuit(program.module.clone(), params, wish)[1]


def plan_of_text(path: Path) -> Plan | None:
    """The plan of an `.mlir` file with a circuit; None if it holds none.  Raises UplError."""
    from upl_mlir.api.mlir_text import read_module
    from upl_mlir.api.program import WithSources
    from upl_mlir.dialects.verifying import verify
    from upl_mlir.hw.circuit.verilog import circuit_of
    from upl_mlir.pipeline import new_context

    text = decode(read_bytes(path), str(path))
    if "ppn.circuit" not in text:
        return None
    module = read_module(text, str(path), new_context())
    with WithSources(Sources({str(path): text})):
        verify(module)
        return circuit_of(module)


def circuit_plan(path: Path, overrides: Mapping[str, Value], wish: Wish) -> Plan:
    """The plan of a file: of a program with its sizes, or of a circuit as it stands.

    Raises UplError.
    """
    found = plan_of_text(path) if path.suffix == ".mlir" and path.is_file() else None
    return found if found is not None else plan_of_program(load(path, **overrides), {}, wish)
