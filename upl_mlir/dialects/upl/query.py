"""Questions that every pass and engine asks of a program: declarations by name, and what polyhedral code may know."""

from __future__ import annotations

from collections.abc import Iterator as Iter
from collections.abc import Mapping, Sequence
from typing import cast

from xdsl.dialects.builtin import (
    DenseArrayBase,
    FileLineColLoc,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    StringAttr,
)
from xdsl.ir import Attribute, Operation

from upl_mlir.diagnostics import Span, error
from upl_mlir.dialects.upl import ops as upl
from upl_mlir.dialects.upl.attributes import Port, UplType
from upl_mlir.dialects.upl.ops import ProgramOp
from upl_mlir.poly.expr import TRUE, Formula
from upl_mlir.poly.knowledge import Table, Unknown
from upl_mlir.poly.sets import PolyContext

Endpoint = upl.InputOp | upl.OutputOp | upl.NodeOp
"""What arrows connect."""


def program_of(module: ModuleOp) -> ProgramOp:
    """The one program of a module.  Raises UplError (UPL1101) if there is none or more than one."""
    programs = [op for op in module.body.block.ops if isinstance(op, ProgramOp)]
    if len(programs) != 1:
        raise error("UPL1101", f"expected one `upl.program` in the module, found {len(programs)}")
    return programs[0]


def span_of(op: Operation) -> Span | None:
    """Where the operation comes from in the source, if its location says so."""
    loc: Attribute = op.location
    while not isinstance(loc, FileLineColLoc):
        inner = getattr(loc, "locations", None) or getattr(loc, "child_loc", None) or getattr(loc, "callee", None)
        if inner is None:
            return None
        loc = next(iter(inner)) if hasattr(inner, "__iter__") else cast(Attribute, inner)
    return Span(loc.filename.data, loc.line.data, loc.column.data)


def poly_context(program: upl.SymbolScope, bindings: Mapping[str, int] | None = None) -> PolyContext:
    """Parameters, constants and arrays of a program; parameters in `bindings` become constants."""
    bound = dict(bindings or {})
    params: list[str] = []
    condition: list[Formula] = []
    arrays: dict[str, Table] = {}
    unknown: dict[str, Unknown] = {}
    for op in program.body.block.ops:
        match op:
            case upl.ParamOp():
                if op.symbol not in bound:
                    params.append(op.symbol)
                if op.condition:
                    condition.append(op.condition.data)
            case upl.ConstOp(value=IntegerAttr()):
                bound.setdefault(op.symbol, cast(IntegerAttr, op.value).value.data)
            case upl.ArrayOp() if op.symbolic:
                each = op.condition.data if op.condition else TRUE
                unknown[op.symbol] = Unknown(op.symbol, op.lower.data, op.upper.data, each)
            case upl.ArrayOp() if is_integer_array(op):
                arrays[op.symbol] = Table(first_index(op), tuple(int(v) for v in array_values(op)))
            case _:
                pass
    return PolyContext(tuple(params), Formula.all(condition), bound, arrays, unknown)


def is_integer_array(op: upl.ArrayOp) -> bool:
    """Whether the entries are integers (usable in index expressions)."""
    return op.symbolic or isinstance(cast(DenseArrayBase, op.values).elt_type, IntegerType)


def first_index(op: upl.ArrayOp) -> int:
    """The index of a constant array's first entry.  Raises UplError (UPL1513) if its entries are not known."""
    if op.base is None:
        message = f"the array parameter `{op.symbol}` has no values"
        raise error("UPL1513", message, span_of(op), help=f"give them when loading: -D {op.symbol}=[...]")
    return op.base.value.data


def array_values(op: upl.ArrayOp) -> tuple[int | float, ...]:
    """The entries of a constant array, from its lower bound on.  Raises UplError (UPL1513) if they are not known."""
    first_index(op)
    return tuple(cast("DenseArrayBase[IntegerType]", op.values).get_values())


def real_constants(program: ProgramOp) -> dict[str, float]:
    """Scalar constants with real values."""
    return {
        op.symbol: op.value.value.data
        for op in program.body.block.ops
        if isinstance(op, upl.ConstOp) and isinstance(op.value, FloatAttr)
    }


def symbols(program: ProgramOp) -> set[str]:
    """All names that the program declares."""
    found: set[str] = set()
    for op in program.body.block.ops:
        name = op.properties.get("sym_name")
        if isinstance(name, StringAttr):
            found.add(name.data)
    return found


def value_names(program: ProgramOp) -> set[str]:
    """Parameters, constants and arrays: names that no field, input or iterator may hide."""
    return {op.symbol for op in program.body.block.ops if isinstance(op, upl.ParamOp | upl.ConstOp | upl.ArrayOp)}


def ports_and_fields(program: ProgramOp) -> set[str]:
    """All names that the program declares, and the index fields: what a new port must not be called."""
    return symbols(program).union(*(op.fields for op in endpoints(program).values()))


def endpoints(program: ProgramOp) -> dict[str, Endpoint]:
    """Host ports and nodes by name, in text order."""
    return {op.symbol: op for op in program.body.block.ops if isinstance(op, upl.InputOp | upl.OutputOp | upl.NodeOp)}


def endpoint(program: ProgramOp, name: str) -> Endpoint:
    """The host port or node of a name.  Raises KeyError."""
    op = program.body.block.last_op
    while op is not None:  # the last ones first: whoever builds a program asks for what was made just now
        if isinstance(op, upl.InputOp | upl.OutputOp | upl.NodeOp) and op.symbol == name:
            return op
        op = op.prev_op
    raise KeyError(name)


def nodes(program: ProgramOp) -> list[upl.NodeOp]:
    """The nodes, in text order."""
    return [op for op in program.body.block.ops if isinstance(op, upl.NodeOp)]


def inputs(program: ProgramOp) -> list[upl.InputOp]:
    """The host inputs, in text order."""
    return [op for op in program.body.block.ops if isinstance(op, upl.InputOp)]


def outputs(program: ProgramOp) -> list[upl.OutputOp]:
    """The host outputs, in text order."""
    return [op for op in program.body.block.ops if isinstance(op, upl.OutputOp)]


def directives(program: ProgramOp) -> list[upl.AdjointOp]:
    """The `adjoint of` directives that are not expanded, in text order."""
    return [op for op in program.body.block.ops if isinstance(op, upl.AdjointOp)]


def arrows(program: ProgramOp) -> Iter[upl.SendOp]:
    """All arrows: host inputs first, then nodes, each in text order."""
    for op in inputs(program):
        yield from op.sends
    for op in nodes(program):
        yield from op.sends


def source_of(send: upl.SendOp) -> upl.InputOp | upl.NodeOp:
    """The host input or node that an arrow starts at."""
    parent = send.parent_op()
    assert isinstance(parent, upl.InputOp | upl.NodeOp)
    return parent


def domain_of(op: Endpoint) -> Formula | None:
    """The inferred domain, else the declared one."""
    attr = op.domain or op.declared
    return attr.data if attr else None


def target_port(op: Endpoint, port: str | None) -> Port:
    """The input that an arrow to ``op.port`` enters; a host output counts as one ordinary input."""
    if isinstance(op, upl.NodeOp):
        found = op.port(port or "")
        assert found is not None, (op.symbol, port)
        return found
    return Port(op.symbol, UplType(op.dtype.data))


def undetermined(op: upl.NodeOp, into: Sequence[upl.SendOp]) -> str | None:
    """A field of a node for which every arrow to it has a `*`.

    None for a node with a gather, which may wait for nothing, or with an input that nothing reaches: then it never fires.
    """
    reached = {target_port(op, a.target_port).name for a in into}
    if any(p.gather or p.name not in reached for p in op.ports) or not into:
        return None
    return next((f for i, f in enumerate(op.fields) if all(a.index.data[i] is None for a in into)), None)


def require_determined(program: ProgramOp) -> None:
    """Raise UplError (UPL1306) for a node of which a declared domain alone says which instances there are."""
    into: dict[str, list[upl.SendOp]] = {}
    for send in arrows(program):
        into.setdefault(send.target_name, []).append(send)
    for op in program.body.block.ops:
        if isinstance(op, upl.NodeOp) and (field := undetermined(op, into.get(op.symbol, ()))) is not None:
            message = f"nothing determines `{field}` of `{op.symbol}`; an arrow must name it"
            raise error("UPL1306", message, span_of(op), help="a declared domain is a claim: no token comes from it")
