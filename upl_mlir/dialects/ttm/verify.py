"""The verifier of machine programs: what can be read off the text.

Every name means something here; tags, patterns and block arguments fit the fields and inputs of their nodes; values have
the types that are wanted where they go, and are computed before they are used; guards and loops have the shape that the
machine's send engine runs.  The first fault is told at the operation it concerns.

What depends on a machine (widths, numbers of nodes and inputs) is another question: `ProgramImage.validate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import (
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    SymbolRefAttr,
    f32,
    f64,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue

from upl_mlir.dialects.bases import RuleError, by_symbol
from upl_mlir.dialects.ttm import ops as ttm
from upl_mlir.dialects.ttm.attributes import TYPES, Field, Input
from upl_mlir.dialects.upl.attributes import FormulaAttr

_INTEGERS = (
    arith.AddiOp, arith.SubiOp, arith.MuliOp, arith.FloorDivSIOp, arith.CeilDivSIOp, arith.MinSIOp, arith.MaxSIOp,
    math.AbsIOp,
)  # fmt: skip
_OPERANDS: dict[type[Operation], Attribute] = {
    **dict.fromkeys(_INTEGERS, i32), **dict.fromkeys((arith.AndIOp, arith.OrIOp, arith.XOrIOp), i1),
    arith.SIToFPOp: i32, arith.ExtUIOp: i1, arith.UIToFPOp: i1,
}  # fmt: skip
"""What operations on integers compute with on this machine; the rest is of f32, or says so in its own definition."""


def verify_program(op: ttm.ProgramOp) -> None:
    """Raise RuleError for the first fault."""
    _Verifier(op).run()


class _Verifier:
    def __init__(self, op: ttm.ProgramOp):
        self.op = op
        body = op.body.block
        self.nodes, self.outputs = by_symbol(body, ttm.NodeOp), by_symbol(body, ttm.OutputOp)
        self.tables = by_symbol(body, ttm.TableOp)

    def run(self) -> None:
        for o in self.op.body.block.ops:
            match o:
                case ttm.TableOp():
                    self._table(o)
                case ttm.OutputOp():
                    self._fields(o.fields, o)
                    self._type(o.element, f"the output `{o.symbol}`", o)
                    self._domain(o.domain, o.fields, o)
                case ttm.NodeOp():
                    self._node(o)
                case ttm.BootOp():
                    self._boot(o)
                case _:
                    raise RuleError(f"`{o.name}` cannot stand in a program of the machine", o)
        self._streams()
        for node in self.nodes.values():  # now that all that they name is right
            _Body(self, node).block(node.body.block, node)

    def _streams(self) -> None:
        streams = () if self.op.streams is None else self.op.streams.data
        known = {f.name for o in self.nodes.values() if o.host is None for f in o.fields}
        for name in streams:
            if name not in known:
                raise RuleError(f"the program streams along `{name}`, which no node has as a field", self.op)

    # -- declarations ---------------------------------------------------------------------------------------------------
    def _table(self, op: ttm.TableOp) -> None:
        name = op.symbol
        if op.element not in (i32, f32):
            raise RuleError(f"the table `{name}` has entries of type {op.element}: expected i32 or f32", op)
        wanted = i64 if op.element == i32 else f64
        if not _is_array(op.values, wanted):
            raise RuleError(f"the table `{name}` of {op.element} is written as an array of {wanted}", op)
        if op.element == i32:
            for value in _integers(op.values):
                _word(value, f"the entry {value} of `{name}`", op)
        _word(op.lower.value.data, f"the first index of `{name}`", op)

    def _type(self, found: Attribute, what: str, op: Operation) -> None:
        if found not in TYPES.values():
            raise RuleError(f"{what} is of type {found}: expected one of {', '.join(TYPES)}", op)

    def _fields(self, fields: Sequence[Field], op: Operation) -> None:
        self._once((f.name for f in fields), "field", op)

    def _once(self, names: Iterable[str], what: str, op: Operation) -> None:
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise RuleError(f"there are two {what}s `{name}`", op)
            seen.add(name)

    def _domain(self, domain: FormulaAttr | None, fields: Sequence[Field], op: Operation) -> None:
        """A domain is over the fields, and reads tables of integers."""
        if domain is None:
            return
        for name in sorted(domain.data.names - {f.name for f in fields}):
            raise RuleError(f"`{name}` in `{domain.data}` is no field here", op)
        for entry in domain.data.lookups():
            table = self.tables.get(entry.array)
            if table is None:
                raise RuleError(f"there is no table `{entry.array}`", op)
            if table.element != i32:
                raise RuleError(f"the domain reads the table `{entry.array}`, whose entries are no integers", op)

    def _node(self, op: ttm.NodeOp) -> None:
        self._fields(op.fields, op)
        self._once((i.name for i in op.ports), "input", op)
        if not op.ports:
            raise RuleError(f"`{op.symbol}` has no input: nothing makes it fire", op)
        if op.host is not None and (len(op.ports) != 1 or op.ports[0].gather is not None):
            raise RuleError(f"the host input `{op.symbol}` has one input, which is the element, and no gather", op)
        for port in op.ports:
            if port.gather is not None and port.gather.of_truths != (port.type == i1):
                raise RuleError(f"`{op.symbol}.{port.name}` cannot gather {port.type} by `{port.gather.value}`", op)
        self._domain(op.domain, op.fields, op)
        wanted = [i32] * len(op.fields) + [p.type for p in op.ports]
        _arguments(op.body.block, wanted, f"`{op.symbol}`: its block has an argument for each field and input", op)

    # -- references -----------------------------------------------------------------------------------------------------
    def port(self, target: SymbolRefAttr, op: Operation) -> tuple[ttm.NodeOp, Input]:
        """The input of a node that `@node::@input` means."""
        name = target.root_reference.data
        node = self.nodes.get(name)
        if node is None:
            raise RuleError(f"there is no node `{name}`", op)
        if node.host is not None:
            raise RuleError(f"`{name}` is a host input: nothing is sent to it", op)
        nested = [r.data for r in target.nested_references]
        found = next((p for p in node.ports if nested == [p.name]), None)
        if found is None:
            given = "::".join(nested)
            have = ", ".join(f"`{p.name}`" for p in node.ports)
            raise RuleError(f"`{name}` has no input `{given}`: it has {have}", op)
        return node, found

    def _boot(self, op: ttm.BootOp) -> None:
        node, port = self.port(op.target, op)
        if port.gather is None:
            raise RuleError(f"`{node.symbol}.{port.name}` is no gather, and cannot be complete from the start", op)
        if not _is_array(op.index, i64):
            raise RuleError("an index is written as an array of i64", op)
        if port.open != (op.rank is not None):
            what = f"`{node.symbol}.{port.name}`"
            raise RuleError(f"{what} is an open gather: expected `rank`" if port.open else f"{what} has no rank", op)
        index = _integers(op.index)
        if len(index) != len(node.fields):
            raise RuleError(f"`{node.symbol}` has {len(node.fields)} fields, found {len(index)}", op)
        for f, value in zip(node.fields, index, strict=True):
            if not f.bias <= value <= f.last:
                raise RuleError(f"{f.name} = {value} does not fit in its {f.bits} bits ({f.bias}..{f.last})", op)


class _Body:
    """The code of one node."""

    def __init__(self, verifier: _Verifier, node: ttm.NodeOp):
        self.verifier = verifier
        self.node = node
        self.known: set[SSAValue] = set()

    def block(self, block: Block, around: Operation) -> None:
        """A block: the node's own, or that of a guard or loop."""
        self.known.update(block.args)
        for op in block.ops:
            for value in op.operands:
                if value not in self.known:
                    raise RuleError("a value is used before it is computed", op)
            match op:
                case ttm.SendOp():
                    self._send(op)
                case ttm.WhenOp():
                    if isinstance(around, ttm.WhenOp) or (isinstance(around, ttm.ForOp) and _loops(op)):
                        message = "the machine has one guard outside of all loops, and one inside"
                        raise RuleError(f"{message}: join conditions by `arith.andi`", op)
                    self._nested(op, op.body.block, ())
                case ttm.ForOp():
                    self._nested(op, op.body.block, (i32,))
                case _:
                    self._value(op)
            self.known.update(op.results)

    def _nested(self, op: Operation, block: Block, arguments: tuple[Attribute, ...]) -> None:
        what = "a loop has one iterator" if arguments else "a guard has no block arguments"
        _arguments(block, arguments, what, op)
        self.block(block, op)

    def _value(self, op: Operation) -> None:
        plain = op.name.startswith(("arith.", "math.")) or isinstance(op, ttm.LoadOp | ttm.ModOp | ttm.SigmoidOp)
        if not plain or len(op.results) != 1 or op.regions:
            raise RuleError(f"`{op.name}` cannot stand in a node", op)
        for value in (*op.operands, *op.results):
            if value.type not in TYPES.values():
                raise RuleError(f"there are no values of type {value.type} on the machine", op)
        wanted = _OPERANDS.get(type(op))
        if wanted is not None and op.operands[0].type != wanted:
            raise RuleError(f"`{op.name}` is of {wanted} on the machine, found {op.operands[0].type}", op)
        result = op.results[0]
        match op:
            case ttm.LoadOp():
                name = op.symbol.root_reference.data
                table = self.verifier.tables.get(name)
                if table is None or len(op.symbol.nested_references):
                    raise RuleError(f"there is no table `{name}`", op)
                if result.type != table.element:
                    raise RuleError(f"entries of `{name}` are of type {table.element}, found {result.type}", op)
            case ttm.SigmoidOp() if result.type != f32:
                raise RuleError(f"`{op.name}` is of f32, found {result.type}", op)
            case arith.ConstantOp() if not isinstance(op.value, IntegerAttr | FloatAttr):
                raise RuleError("a constant is a number", op)
            case _:
                pass

    def _send(self, op: ttm.SendOp) -> None:
        name, pattern = op.target.root_reference.data, op.pattern.data
        output = self.verifier.outputs.get(name)
        if op.present is not None and (output is not None or not self.verifier.port(op.target, op)[1].open):
            raise RuleError(f"`{name}` has no open gather here: `present` says that there is one", op)
        if output is not None:
            if self.node.host is not None:
                raise RuleError(f"the host input `{self.node.symbol}` sends to nodes only, `{name}` is an output", op)
            if len(op.target.nested_references):
                raise RuleError(f"`{name}` is an output and has no inputs", op)
            fields, wanted, stars = output.fields, output.element, False
        else:
            node, port = self.verifier.port(op.target, op)
            fields, wanted, stars = node.fields, port.type, port.gather is None
            if port.open and op.multiplicity is None:
                message = f"`{name}.{port.name}` is an open gather: its tokens say its rank, plus 1, by `times`"
                raise RuleError(message, op)
        if set(pattern) - {"x", "*"}:
            raise RuleError(f"the pattern `{pattern}` is of `x` and `*`, one for each field", op)
        if len(pattern) != len(fields):
            raise RuleError(f"`{name}` has {len(fields)} fields, the pattern `{pattern}` has {len(pattern)}", op)
        if pattern.count("x") != len(op.tag):
            found = f"{len(op.tag)} value{'s' if len(op.tag) != 1 else ''}"
            raise RuleError(f"the pattern `{pattern}` takes {pattern.count('x')} from the tag, found {found}", op)
        if "*" in pattern and not stars:
            raise RuleError(f"`{name}` takes no `*`: " + ("it is an output" if output else "its input gathers"), op)
        if op.value.type != wanted:
            raise RuleError(f"`{name}` takes a value of type {wanted}, found {op.value.type}", op)
        if op.unbounded is not None and op.multiplicity is not None:
            raise RuleError("a token that is unbounded has no multiplicity", op)


def _word(value: int, what: str, op: Operation) -> None:
    if not -(2**31) <= value < 2**31:
        raise RuleError(f"{what} does not fit the machine's 32-bit integers", op)


def _arguments(block: Block, wanted: Sequence[Attribute], what: str, op: Operation) -> None:
    found = [a.type for a in block.args]
    if found != list(wanted):
        raise RuleError(f"{what}: expected ({_list(wanted)}), found ({_list(found)})", op)


def _loops(op: ttm.WhenOp) -> bool:
    """Whether a guard has loops in it."""
    return any(isinstance(o, ttm.ForOp) for o in op.body.block.ops)


def _is_array(values: Attribute, element: Attribute) -> bool:
    return isinstance(values, DenseArrayBase) and cast("DenseArrayBase[IntegerType]", values).elt_type == element


def _integers(values: Attribute) -> tuple[int, ...]:
    return tuple(cast("DenseArrayBase[IntegerType]", values).get_values())


def _list(types: Sequence[Attribute]) -> str:
    return ", ".join(map(str, types))
