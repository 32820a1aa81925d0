"""What a derivative is asked of and by: ports by name, as every mode of differentiation reads them."""

from __future__ import annotations

from upl_mlir.diagnostics import Span, error, nearest_or_all
from upl_mlir.dialects.upl import InputOp, NodeOp, OutputOp, ProgramOp, UplType
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.autodiff.activity import Held, PortKey
from upl_mlir.passes.notes import add_note


def port_key(sets: ProgramSets, text: str, role: str, span: Span | None) -> PortKey:
    """The port that ``NAME`` or ``NODE.input`` names; `role` is "of" or "wrt", `span` where it was asked for.

    Raises UplError (UPL1401).
    """
    name, _, port = text.partition(".")
    op = sets.ends.get(name)
    other = InputOp if role == "of" else OutputOp
    if op is None:
        raise error(
            "UPL1401", f"`{role} {text}`: there is no port or node `{name}`", span,
            help=nearest_or_all(name, [n for n, end in sets.ends.items() if not isinstance(end, other)]),
        )  # fmt: skip
    wanted = "a host output or a node input" if role == "of" else "a host input or a node input"
    if isinstance(op, other) or (port and not isinstance(op, NodeOp)):
        raise error("UPL1401", f"`{role} {text}`: expected {wanted}", span)
    if isinstance(op, NodeOp):
        if not port:
            names = ", ".join(f"`{name}.{p.name}`" for p in op.ports)
            raise error("UPL1401", f"`{role} {text}` names a node; say which input", span, help=f"one of {names}")
        found = op.port(port)
        if found is None:
            raise error(
                "UPL1401", f"`{role} {text}`: `{name}` has no input `{port}`", span,
                help=nearest_or_all(port, [p.name for p in op.ports]),
            )  # fmt: skip
        type_, key = found.type, (name, port)
    else:
        type_, key = op.type, (name, name)
    if type_ in (UplType.INT, UplType.BOOL):
        raise error("UPL1401", f"`{role} {text}` is of type {type_.value}: derivatives are of reals", span)
    return key


def note_held(program: ProgramOp, held: Held) -> None:
    """Say of each derivative what it holds fixed."""
    for key, through in held.items():
        others = ", ".join(f"`{'.'.join(k)}`" + (" at other indices" if k == key else "") for k in through)
        add_note(program, f"the derivative by `{'.'.join(key)}` holds {others} fixed; `--total` (`total=True`) adds what "
                 "passes there")  # fmt: skip
