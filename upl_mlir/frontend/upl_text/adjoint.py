"""The directive ``adjoint of PORT [seed NODE.var] wrt [total] PORT, … [-> NODE.input, …]``: its references resolved."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import SymbolRefAttr

from upl_mlir.diagnostics import Note, did_you_mean, error
from upl_mlir.dialects.upl import AdjointOp, LetOp, NodeOp, Port, port_ref
from upl_mlir.frontend.upl_text import ast
from upl_mlir.frontend.upl_text.arrows import Endpoint, find_endpoint, find_input
from upl_mlir.frontend.upl_text.ranks import UPL_RANK, rank_of
from upl_mlir.frontend.upl_text.scope import Poisoned, Role, Scope

CODE = "UPL1110"


def read_adjoint(
    item: ast.Adjoint, endpoints: Mapping[str, Endpoint], scope: Scope, nodes: Mapping[str, NodeOp | None]
) -> AdjointOp:
    """The operation of a directive; `nodes` has the bodies in which seeds are sought.  Raises UplError (UPL1110)."""

    def resolve(ref: ast.PortRef, excluded: Role | None, what: str) -> tuple[Endpoint, SymbolRefAttr]:
        end = find_endpoint(endpoints, scope, ref, CODE)
        if end.role is excluded:
            notes = (Note(f"{end.role.value} `{end.name}` is declared here", end.span),)
            raise error(CODE, f"{what}, not a {end.role.value}", ref.span, notes=notes)
        port = find_input(end, ref, CODE)
        _check_real(port, ref)
        return end, port_ref(end.name, port.name if end.role is Role.NODE else None)

    of, of_ref = resolve(item.of, Role.HOST_INPUT, "`of` names a host output or a node's input")
    wrt = [resolve(r, Role.HOST_OUTPUT, "`wrt` names a host input or a node's input") for r in item.wrt]
    for i, (ref, (_, symbol)) in enumerate(zip(item.wrt, wrt, strict=True)):
        if symbol in [s for _, s in wrt[:i]]:
            raise error(CODE, f"`{_text(ref)}` is named twice after `wrt`", ref.span)
    seed = _seed(item.seed, of, endpoints, scope, nodes) if item.seed else None
    into: list[SymbolRefAttr] = []
    if item.targets and len(item.targets) != len(wrt):
        message = f"{len(wrt)} derivatives and {len(item.targets)} inputs for them"
        raise error(CODE, message, item.targets[0].span, help="name one node input for each port after `wrt`")
    for ref, (by, _) in zip(item.targets, wrt, strict=False):
        end = find_endpoint(endpoints, scope, ref, CODE)
        if end.role is not Role.NODE:
            raise error(CODE, f"a derivative goes to a node's input, not to a {end.role.value}", ref.span)
        port = find_input(end, ref, CODE)
        _check_real(port, ref)
        _check_arity(end, by, ref)
        into.append(port_ref(end.name, port.name))
    return AdjointOp(of_ref, [s for _, s in wrt], seed, into, total=item.total)


def _seed(
    ref: ast.PortRef, of: Endpoint, endpoints: Mapping[str, Endpoint], scope: Scope, nodes: Mapping[str, NodeOp | None]
) -> SymbolRefAttr:
    """The body variable that the derivative starts from, at the same index as `of`."""
    end = find_endpoint(endpoints, scope, ref, CODE)
    if end.role is not Role.NODE or ref.member is None:
        raise error(CODE, "a seed is a variable of a node", ref.span, help="write `NODE.variable`")
    _check_arity(end, of, ref)
    variable = ref.member.name
    node = nodes.get(end.name)
    if node is None:
        raise Poisoned
    lets = {op.var.data: op for op in node.block.ops if isinstance(op, LetOp)}
    if variable not in lets:
        message = f"node `{end.name}` has no variable `{variable}`"
        help = did_you_mean(variable, lets)
        if help is None and variable in end.ports:
            help = f"`{variable}` is an input; assign it to a variable first"
        elif help is None and lets:
            help = f"its variables are {', '.join(f'`{n}`' for n in lets)}"
        raise error(CODE, message, ref.member.span, help=help)
    if not rank_of(lets[variable].result.type).is_float:
        raise error(CODE, f"the seed `{_text(ref)}` is not real", ref.span)
    return port_ref(end.name, variable)


def _check_real(port: Port, ref: ast.PortRef) -> None:
    if not UPL_RANK[port.type].is_float:
        raise error(CODE, f"`{_text(ref)}` is {port.type.value}: derivatives are of and by reals", ref.span)


def _check_arity(end: Endpoint, other: Endpoint, ref: ast.PortRef) -> None:
    """Both must have as many fields: values go from one to the other at the same index."""
    given, wanted = len(end.known_fields), len(other.known_fields)
    if given != wanted:
        message = f"`{_text(ref)}` has the index {end.bracketed}, but `{other.name}` has {other.bracketed}"
        raise error(CODE, message, ref.span, help="both stand at the same index")


def _text(ref: ast.PortRef) -> str:
    return ref.port.name + (f".{ref.member.name}" if ref.member else "")
