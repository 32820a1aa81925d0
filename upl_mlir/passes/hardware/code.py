"""Code of a node for the machine: operations of a UPL body, index expressions and conditions in the machine's types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, Float64Type, FloatAttr, IntegerAttr, f32, i32, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects import ttm, upl
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.dialects.upl.values import hint
from upl_mlir.ops import BY_OP, Body, expansion
from upl_mlir.passes.build import Lazy, condition, index_value
from upl_mlir.poly.expr import Atom, Formula, IndexExpr
from upl_mlir.poly.sets import PolyContext


def narrow(t: Attribute) -> Attribute:
    """The machine's type for a type of the body."""
    if isinstance(t, Float64Type):
        return f32
    return i32 if t == i64 else t


def constant_of(ctx: PolyContext, atom: Atom) -> IndexExpr | None:
    """A constant, or the entry of a table at a constant index, as a number; None for another atom."""
    value = ctx.constant(atom)
    return None if value is None else IndexExpr.of(value)


def all_branches(ctx: PolyContext) -> Lazy:
    """The machine computes all branches: what a branch needs must not stop it where the branch is not taken."""
    arrays = ctx.arrays
    return Lazy(lambda name: arrays[name].lower)


MAX_PRODUCTS = 4
"""Up to which constant exponent a power of a real becomes products: each may be off by half an ulp."""


def _small_power(op: math.IPowIOp | math.PowFOp) -> int | None:
    """The exponent of a power that becomes products: a whole constant, of a real at least 1 and not large."""
    exponent = op.operands[1].owner
    if not isinstance(exponent, arith.ConstantOp) or not isinstance(exponent.value, FloatAttr | IntegerAttr):
        return None
    number = exponent.value.value.data
    if isinstance(op, math.IPowIOp):
        return int(number) if number >= 0 else None
    return int(number) if float(number).is_integer() and 1 <= number <= MAX_PRODUCTS else None


class Code:
    """Writes one block; names of fields, iterators and inputs are values, constants are numbers."""

    def __init__(self, ctx: PolyContext, reals: Mapping[str, float], body: Body, names: Mapping[str, SSAValue]):
        self.ctx = ctx
        self.reals = reals
        self.body = body
        self.names = dict(names)

    def nested(self, make: Callable[[Region], Operation], iterators: tuple[str, ...]) -> Code:
        """A block inside this one."""
        block = Block(arg_types=[i32] * len(iterators))
        for arg, name in zip(block.args, iterators, strict=True):
            arg.name_hint = hint(name)
        self.body.emit(make(Region(block)))
        names = self.names | dict(zip(iterators, block.args, strict=True))
        return Code(self.ctx, self.reals, Body(block, self.body.location), names)

    def index(self, e: IndexExpr) -> SSAValue:
        """An index expression as i32 code."""
        folded = self._folded(e)
        return self._written(folded.names, lambda body, env: index_value(body, folded, env, all_branches(self.ctx)))

    def condition(self, f: Formula) -> SSAValue:
        """A formula as i1 code."""
        return self._written(f.names, lambda body, env: condition(body, f, env, all_branches(self.ctx)))

    def _folded(self, e: IndexExpr) -> IndexExpr:
        return e.rewrite(partial(constant_of, self.ctx))

    def _written(self, names: Iterable[str], write: Callable[[Body, Mapping[str, SSAValue]], SSAValue]) -> SSAValue:
        """Write code over i64 stand-ins for the names, then copy it into the body in the machine's types."""
        used = sorted(n for n in names if n in self.names)
        block = Block(arg_types=[i64] * len(used))
        value = write(Body(block), dict(zip(used, block.args, strict=True)))
        env: dict[SSAValue, SSAValue] = {a: self.names[n] for a, n in zip(block.args, used, strict=True)}
        for op in block.ops:
            env[op.results[0]] = self.operation(op, env)
        return env[value]

    def operation(self, op: Operation, env: Mapping[SSAValue, SSAValue]) -> SSAValue:
        """One operation of a UPL body in the machine's types."""
        args = [env.get(o, o) for o in op.operands]
        add = self.body.add
        match op:
            case upl.LetOp() | upl.StopGradientOp():
                args[0].name_hint = op.results[0].name_hint or args[0].name_hint
                return args[0]
            case arith.ExtFOp() | arith.TruncFOp():
                return args[0]
            case upl.AlongOp():
                return args[2]
            case upl.RefOp():
                return self._constant(op)
            case upl.LookupOp():
                return add(ttm.LoadOp(op.symbol.root_reference.data, args[0], narrow(op.results[0].type)))
            case upl.ModOp():
                return add(ttm.ModOp(args[0], args[1]))
            case upl.SigmoidOp():
                return add(ttm.SigmoidOp(args[0]))
            case arith.ConstantOp():
                return self._literal(op)
            case math.PowFOp() if (times := _small_power(op)) is not None:
                return reduce(lambda total, _: add(arith.MulfOp(total, args[0])), range(times - 1), args[0])
            case math.IPowIOp() if (times := _small_power(op)) is not None:
                return self._power(args[0], times)
            case _ if (function := BY_OP.get(type(op))) is not None and function.machine is not None:
                block, result = expansion(function, op.results[0].type)
                inner: dict[SSAValue, SSAValue] = {block.args[0]: args[0]}
                for step in block.ops:
                    inner[step.results[0]] = self.operation(step, inner)
                return inner[result]
            case _:
                types = [narrow(r.type) for r in op.results]
                copy = type(op).create(operands=args, result_types=types, properties=dict(op.properties))
                copy.results[0].name_hint = op.results[0].name_hint
                return add(copy)

    def _power(self, n: SSAValue, times: int) -> SSAValue:
        """A power of an integer, from the exponent's highest bit down: no product is larger than the power."""
        if not times:
            return self.body.constant(1, i32)
        total = n
        for bit in f"{times:b}"[1:]:
            total = self.body.add(arith.MuliOp(total, total))
            total = self.body.add(arith.MuliOp(total, n)) if bit == "1" else total
        return total

    def _literal(self, op: arith.ConstantOp) -> SSAValue:
        value = op.value
        if isinstance(value, FloatAttr):
            return self.body.constant(value.value.data, f32)
        assert isinstance(value, IntegerAttr)
        return self._integer(value.value.data, narrow(value.type), op)

    def _integer(self, value: int, type_: Attribute, at: Operation) -> SSAValue:
        if type_ == i32 and not -(2**31) <= value < 2**31:
            raise error("UPL1731", f"the constant {value} does not fit the machine's 32-bit integers", span_of(at))
        return self.body.constant(value, type_)

    def _constant(self, op: upl.RefOp) -> SSAValue:
        name = op.symbol.root_reference.data
        if isinstance(op.results[0].type, AnyFloat):
            return self.body.constant(self.reals[name], f32)
        return self._integer(self.ctx.constants[name], i32, op)
