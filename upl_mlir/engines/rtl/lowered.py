"""The machine's program of a module: the one that it holds, or the one that its UPL program is lowered to."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp

from upl_mlir.diagnostics import error
from upl_mlir.dialects.ttm import ProgramOp
from upl_mlir.dialects.ttm.query import machine_program
from upl_mlir.dialects.upl.query import program_of, span_of
from upl_mlir.hw.machine import Machine, load_machine
from upl_mlir.passes.bind_parameters import bind_parameters
from upl_mlir.passes.chain_gathers import chain_gathers
from upl_mlir.passes.hardware.lower_hw import lower_hw
from upl_mlir.passes.infer_domains import infer_domains


def machine_of(module: ModuleOp) -> Machine:
    """The machine that a module is meant for: the one that its machine program names, else the default.

    Raises UplError (UPL172x) for a description that is none.
    """
    program = machine_program(module)
    return Machine() if program is None or program.machine is None else load_machine(program.machine.data)


def lowered(
    module: ModuleOp, params: Mapping[str, int], machine: Machine, name: str | None, *, ordered: bool = False
) -> ProgramOp:  # fmt: skip
    """The machine program; the module stays as it is.  `name` is the file of the machine description, if there is one;
    `ordered`: sums keep their order, by `chain-gathers`.

    Raises UplError: UPL1505 a parameter for a program that has none, UPL1422 a sum whose order cannot be said or is lowered,
    and what lowering raises.
    """
    program = machine_program(module)
    if program is not None:
        for param in params:
            raise error("UPL1505", f"the program has no parameter `{param}`: it is lowered", span_of(program))
        if ordered:
            help = "lower with `--chain-gathers --lower-hw`, then use gather=relaxed"
            found = "sums of a lowered program are taken as their summands arrive"
            raise error("UPL1422", found, span_of(program), help=help)
        return program
    source = program_of(module.clone())
    bind_parameters(source, params)
    infer_domains(source)
    if ordered:
        chain_gathers(source)
    return lower_hw(source, name, machine.token.max_inputs)
