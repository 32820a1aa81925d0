"""Structural rules of a program that one operation alone cannot see: names, arities, targets, types.

`to_ir` reports these to authors of text with better words; here they guard `.mlir` input and the results of passes.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import Float32Type, Float64Type, IntegerAttr, SymbolRefAttr, i1, i64
from xdsl.ir import Attribute, Operation

from upl_mlir.dialects.bases import RuleError
from upl_mlir.dialects.upl import ops as upl
from upl_mlir.dialects.upl.attributes import Port, Special, UplType, count_text
from upl_mlir.dialects.upl.ops import ProgramOp
from upl_mlir.dialects.upl.query import is_integer_array
from upl_mlir.dialects.upl.values import LetOp, LookupOp, RefOp
from upl_mlir.poly.expr import Formula, IndexExpr


def verify_program(program: ProgramOp) -> None:
    """Raise RuleError on the first broken rule."""
    _Verifier(program).run()


class _Verifier:
    def __init__(self, program: ProgramOp) -> None:
        self.program = program
        self.symbols: dict[str, Operation] = {}  # constants, arrays, parameters, host ports, nodes
        self.integers: set[str] = set()  # constants and parameters that index expressions may use
        self.arrays: set[str] = set()
        self.values: set[str] = set()  # parameters, constants and arrays

    def run(self) -> None:
        for op in self.program.body.block.ops:
            if isinstance(op, upl.AdjointOp):
                continue
            if not isinstance(op, upl.ParamOp | upl.ConstOp | upl.ArrayOp | upl.InputOp | upl.OutputOp | upl.NodeOp):
                raise RuleError(f"`{op.name}` does not belong in a program", op)
            if op.symbol in self.symbols:
                raise RuleError(f"`{op.symbol}` is declared twice", op)
            self.symbols[op.symbol] = op
            if isinstance(op, upl.ParamOp | upl.ConstOp | upl.ArrayOp):
                self.values.add(op.symbol)
            if isinstance(op, upl.ParamOp) or (isinstance(op, upl.ConstOp) and isinstance(op.value, IntegerAttr)):
                self.integers.add(op.symbol)
            elif isinstance(op, upl.ArrayOp) and is_integer_array(op):
                self.arrays.add(op.symbol)
        for op in self.program.body.block.ops:
            match op:
                case upl.ParamOp() if op.condition:
                    self._names(op.condition.data, (), f"the condition of `{op.symbol}`", op)
                case upl.ConstOp() if op.expr:
                    self._names(op.expr.data, (), f"the expression of `{op.symbol}`", op)
                case upl.ArrayOp():
                    self._names(op.lower.data, (), f"a bound of `{op.symbol}`", op)
                    self._names(op.upper.data, (), f"a bound of `{op.symbol}`", op)
                    if op.condition:
                        self._names(op.condition.data, (op.symbol,), f"the condition of `{op.symbol}`", op)
                case upl.OutputOp():
                    self._fields(op, ())
                case upl.InputOp():
                    self._fields(op, (op.symbol,))
                    self._body(op, [Port(op.symbol, UplType(op.dtype.data))])
                case upl.NodeOp():
                    self._fields(op, [p.name for p in op.ports])
                    self._body(op, op.ports)
                    for port in op.ports:
                        self._port(op, port)
                case upl.AdjointOp():
                    self._adjoint(op)
                case _:
                    pass

    # -- names -------------------------------------------------------------------------------------------------
    def _names(self, e: IndexExpr | Formula, local: Iterable[str], what: str, op: Operation) -> None:
        """All names of a static expression must mean an integer."""
        known = {*self.integers, *local}
        for name in sorted(e.names - known):
            raise RuleError(f"unknown name `{name}` in {what}", op)
        for lookup in e.lookups():
            if lookup.array not in self.arrays:
                raise RuleError(f"unknown integer array `{lookup.array}` in {what}", op)

    def _fields(self, op: upl.InputOp | upl.OutputOp | upl.NodeOp, inputs: Iterable[str]) -> None:
        if not isinstance(op, upl.NodeOp) and op.dtype.data not in {t.value for t in UplType}:
            raise RuleError(f"`{op.symbol}` has the unknown type `{op.dtype.data}`", op)
        seen: set[str] = set()
        for kind, names in (("index field", op.fields), ("input", inputs)):
            for name in names:
                if name in seen:
                    raise RuleError(f"two fields or inputs of `{op.symbol}` are called `{name}`", op)
                if name in self.values:
                    raise RuleError(f"{kind} `{name}` of `{op.symbol}` has the name of a constant", op)
                seen.add(name)
        for attr, what in ((op.declared, "declared domain"), (op.domain, "domain")):
            if attr is not None:
                self._names(attr.data, op.fields, f"the {what} of `{op.symbol}`", op)
        for e in op.rank.data if isinstance(op, upl.NodeOp) and op.rank else ():
            self._names(e, op.fields, f"the rank of `{op.symbol}`", op)

    # -- nodes and arrows --------------------------------------------------------------------------------------
    def _port(self, op: upl.NodeOp, port: Port) -> None:
        if port.gather is None:
            if port.count is not None:
                raise RuleError(f"ordinary input `{port.name}` has a count", op)
            return
        if port.gather.of_truths != (port.type is UplType.BOOL):
            raise RuleError(f"`@({port.gather.value})` cannot gather `{port.name}: {port.type.value}`", op)
        if isinstance(port.count, Special):
            return
        if not isinstance(port.count, IndexExpr):
            raise RuleError(f"gathering input `{port.name}` has no count", op)
        other = op.port(port.count.name or "")
        if other is not None:
            if other is port or other.type is not UplType.INT:
                message = f"the count of `{port.name}` names `{other.name}`, which is not another `int` input"
                raise RuleError(message, op)
            return
        self._names(port.count, op.fields, f"the count of `{port.name}`", op)

    def _body(self, op: upl.InputOp | upl.NodeOp, ports: Iterable[Port]) -> None:
        args = [a.type for a in op.block.args]
        types = [UplType.INT] * len(op.fields) + [p.type for p in ports]
        if len(args) != len(types) or not all(_fits(a, t) for a, t in zip(args, types, strict=True)):
            message = f"the block arguments of `{op.symbol}` are not its fields and inputs"
            raise RuleError(message, op)
        variables: dict[str, Attribute] = {}
        taken = {*op.fields, *[p.name for p in ports]}
        data = {p.name for p in ports if p.type is UplType.INT}
        for inner in op.block.ops:
            match inner:
                case LetOp():
                    name = inner.var.data
                    if name in taken or name in variables:
                        raise RuleError(f"`{name}` is assigned twice, or is a field or an input", inner)
                    variables[name] = inner.result.type
                    if _fits(inner.result.type, UplType.INT):
                        data.add(name)
                case RefOp() | LookupOp():
                    self._reference(inner)
                case upl.SendOp():
                    self._send(op, inner, data)
                case _:
                    pass

    def _reference(self, op: Operation) -> None:
        """A constant or parameter used as a value, with its type."""
        assert isinstance(op, RefOp | LookupOp)
        name = op.symbol.string_value()
        found = self.symbols.get(name)
        wanted = (upl.ArrayOp,) if isinstance(op, LookupOp) else (upl.ConstOp, upl.ParamOp)
        if not isinstance(found, wanted):
            kind = "constant array" if isinstance(op, LookupOp) else "constant or parameter"
            raise RuleError(f"unknown {kind} `{name}`", op)
        whole = name in self.integers or name in self.arrays
        if not _fits(op.result.type, UplType.INT if whole else UplType.REAL):
            raise RuleError(f"`{name}` is {'an integer' if whole else 'real'}", op)

    def _send(self, source: upl.InputOp | upl.NodeOp, op: upl.SendOp, data: set[str]) -> None:
        fields, port = self._target(op)
        text = op.target.string_value()
        if len(op.index.data) != len(fields):
            given = len(op.index.data)
            raise RuleError(f"`{text}` has {len(fields)} index fields, the arrow gives {given}", op)
        if not _fits(op.value.type, port.type):
            raise RuleError(f"`{text}` takes {port.type.value}, the arrow sends {op.value.type}", op)
        local = set(source.fields)
        self._names(op.when, local, "the arrow's condition", op)
        for loop in op.loops:
            for bound in (loop.lo, loop.hi):
                self._names(bound, local, f"a bound of iterator `{loop.name}`", op)
            if loop.name in local or loop.name in self.symbols_with_values or loop.name in data:
                raise RuleError(f"iterator `{loop.name}` has the name of something else", op)
            local.add(loop.name)
        self._names(op.when_point, local, "the condition on iterators", op)
        for e in op.index.data:
            if e is not None:
                self._names(e, local | data, "the arrow's index", op)
            elif port.gather or op.target_port is None:
                raise RuleError(f"a token for `{text}` carries no `*`", op)
        if isinstance(op.multiplicity, IndexExpr):
            what = f"the multiplicity `{count_text(op.multiplicity)}`"
            self._names(op.multiplicity, local | data, what, op)

    @property
    def symbols_with_values(self) -> set[str]:
        """Names that iterators must not hide."""
        return self.integers | self.arrays

    def _target(self, op: upl.SendOp) -> tuple[tuple[str, ...], Port]:
        found = self.symbols.get(op.target_name)
        match found:
            case upl.NodeOp():
                port = found.port(op.target_port or "")
                if port is None:
                    raise RuleError(f"node `{found.symbol}` has no input `{op.target_port or ''}`", op)
                return found.fields, port
            case upl.OutputOp():
                if op.target_port is not None:
                    raise RuleError(f"host output `{found.symbol}` has no inputs of its own", op)
                return found.fields, Port(found.symbol, UplType(found.dtype.data))
            case _:
                raise RuleError(f"unknown target `{op.target_name}`", op)

    # -- directives --------------------------------------------------------------------------------------------
    def _adjoint(self, op: upl.AdjointOp) -> None:
        self._port_of(op, op.of, upl.OutputOp, "of")
        for ref in op.wrt:
            self._port_of(op, ref, upl.InputOp, "wrt")
        into = list(op.into) if op.into else []
        if into and len(into) != len(op.wrt):
            raise RuleError("`into` must name one input for each port of `wrt`", op)
        for ref in into:
            self._port_of(op, ref, None, "into")
        if op.seed is not None:
            node, variable = self.symbols.get(op.seed.root_reference.data), _member(op.seed)
            body = node.block.ops if isinstance(node, upl.NodeOp) else ()
            lets = [x.var.data for x in body if isinstance(x, LetOp)]
            if variable not in lets:
                raise RuleError(f"the seed `{op.seed.string_value()}` is not a variable of a node", op)

    def _port_of(self, op: upl.AdjointOp, ref: SymbolRefAttr, host: type[Operation] | None, what: str) -> None:
        """A reference of a directive: a node's input, or a host port of the given kind."""
        found = self.symbols.get(ref.root_reference.data)
        member = _member(ref)
        if isinstance(found, upl.NodeOp):
            good = member is not None and found.port(member) is not None
        else:
            good = host is not None and isinstance(found, host) and member is None
        if not good:
            raise RuleError(f"`{what}` names `{ref.string_value()}`, which is not such a port", op)


def _member(ref: SymbolRefAttr) -> str | None:
    nested = ref.nested_references.data
    return nested[0].data if nested else None


def _fits(t: Attribute, wanted: UplType) -> bool:
    """Whether an MLIR type is that of values of a UPL type; `real` may be either float."""
    match wanted:
        case UplType.BOOL | UplType.INT:
            return t == (i1 if wanted is UplType.BOOL else i64)
        case UplType.F32:
            return isinstance(t, Float32Type)
        case UplType.F64:
            return isinstance(t, Float64Type)
        case UplType.REAL:
            return isinstance(t, Float32Type | Float64Type)
