# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Writing `arith`, `scf` and `memref`: blocks with what has been computed in them, index expressions, conditions, tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    Float32Type,
    Float64Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    StringAttr,
    TensorType,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.numbers.floats import as_single
from upl_mlir.passes.loops.emit.reach import Reach
from upl_mlir.poly.expr import Atom, Div, Formula, IndexExpr, Lookup, MinMax, Select, Var
from upl_mlir.poly.knowledge import Table
from upl_mlir.poly.linear import Con, Cons, Linear
from upl_mlir.poly.operators import DivKind, Extremum

INDEX = IndexType()
NOTHING: Mapping[object, bool] = {}
FACTOR = 2**31
"""From here on a factor of an index is refused: its product with a number of 32 bits may not fit 64 bits."""
WAVE = "upl.wave"
"""Attribute of an `scf.for` over blocks of steps: by how many waves a block has to be behind the one before (`Loop.lag`)."""


@dataclass(frozen=True, eq=False)
class Span:
    """Values of a loop's variable, from `first` to before `behind`, and what is known of conditions there."""

    first: SSAValue
    behind: SSAValue
    facts: Mapping[object, bool]


@dataclass(eq=False)
class Scope:
    """A block under construction and what is known in it; what outer blocks know is known inside."""

    block: Block
    outer: Scope | None = None
    context: Cons = ()
    """What holds of loop variables here."""
    known: dict[object, SSAValue] = field(default_factory=dict[object, SSAValue])
    facts: Mapping[object, bool] = field(default_factory=dict[object, bool])
    """Answers to questions about data: see `emit/known.py`."""

    def find(self, key: object) -> SSAValue | None:
        """A value computed here or outside."""
        at: Scope | None = self
        while at is not None:
            found = at.known.get(key)
            if found is not None:
                return found
            at = at.outer
        return None

    def forget(self, begin: tuple[object, ...]) -> None:
        """Values whose keys begin so are no longer what they were, here or outside."""
        at: Scope | None = self
        while at is not None:
            at.known = {k: v for k, v in at.known.items() if not (isinstance(k, tuple) and k[: len(begin)] == begin)}
            at = at.outer


class Code:
    """Appends operations to the innermost block."""

    def __init__(self, lin: Linear, block: Block, tables: Mapping[str, Table], function: str, begun: Collection[str] = ()):
        """`begun` are parameters of which nothing is known, as loops have other bounds, too: see `LoopProgram.begun`."""
        self.lin = lin
        self.function = function
        self.tables = tables
        self.globals: dict[str, memref.GlobalOp] = {}
        self.entry = block
        self.scope = Scope(block)
        self._inside: dict[tuple[Lookup, Cons], bool] = {}
        self.reach = Reach([n for n in lin.ctx.params if n not in begun], tables)

    # -- operations ---------------------------------------------------------------------------------------------------
    def add(self, op: Operation) -> SSAValue:
        """Append an operation with one result."""
        self.scope.block.add_op(op)
        return op.results[0]

    def emit(self, op: Operation) -> None:
        """Append an operation for its effect."""
        self.scope.block.add_op(op)

    def constant(self, value: float, type_: Attribute) -> SSAValue:
        """A literal; one operation for each value and block."""
        key = ("constant", type_, repr(value))
        found = self.scope.find(key)
        if found is None:
            attr: FloatAttr | IntegerAttr
            if isinstance(type_, Float32Type | Float64Type):
                attr = FloatAttr(as_single(value) if isinstance(type_, Float32Type) else float(value), type_)
            else:
                assert isinstance(type_, IntegerType | IndexType)
                attr = IntegerAttr(int(value), type_)
            found = self.scope.known[key] = self.add(arith.ConstantOp(attr))
        return found

    def inside(
        self, block: Block, context: Cons = (), facts: Mapping[object, bool] = NOTHING, *, write: Callable[[], None]
    ) -> None:
        """Write into an inner block."""
        outer = self.scope
        self.scope = Scope(block, outer, (*outer.context, *context), facts=facts)
        write()
        self.scope = outer

    def fact(self, key: object) -> bool | None:
        """What the block and those outside know of a question."""
        at: Scope | None = self.scope
        while at is not None:
            if key in at.facts:
                return at.facts[key]
            at = at.outer
        return None

    def span(self, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr]) -> Span:
        """The values of a loop's variable: from the first to before the second."""
        return Span(self.extremum(lows, arith.MaxSIOp), self.extremum([h + 1 for h in highs], arith.MinSIOp), NOTHING)

    def loop(
        self,
        var: str,
        lows: Sequence[IndexExpr],
        highs: Sequence[IndexExpr],
        start: Sequence[SSAValue],
        write: Callable[[Sequence[SSAValue]], Sequence[SSAValue]],
        part: Span | None = None,
        lag: int | None = None,
    ) -> Sequence[SSAValue]:
        """``for var in max(lows)..min(highs)``, or over a part of these, that hands values on; returns the last ones.

        `lag` is that of a loop over blocks.
        """
        at = part or self.span(lows, highs)
        one = self.constant(1, INDEX)
        block = Block(arg_types=[INDEX, *(v.type for v in start)])
        block.args[0].name_hint = name_of(var)
        x = IndexExpr.of(var)
        self.reach.enter(var, lows, highs)

        def body() -> None:
            self.scope.known[x] = block.args[0]
            self.emit(scf.YieldOp(*write(block.args[1:])))

        self.inside(block, (*(Con(x - b) for b in lows), *(Con(b - x) for b in highs)), at.facts, write=body)
        op = scf.ForOp(at.first, at.behind, one, list(start), Region(block))
        if lag is not None:
            op.attributes[WAVE] = IntegerAttr(lag, i64)
        self.emit(op)
        return op.results

    def when(
        self,
        cond: SSAValue,
        context: Cons,
        types: Sequence[Attribute],
        yes: Callable[[], Sequence[SSAValue]],
        no: Callable[[], Sequence[SSAValue]] | None = None,
    ) -> Sequence[SSAValue]:
        """``if``; `no` is needed where values come out."""
        regions: list[Region] = []
        for write, known in ((yes, context), (no, ())):
            block = Block()
            if write is not None:
                w = write
                self.inside(block, known, write=lambda w=w: self.emit(scf.YieldOp(*w())))
                regions.append(Region(block))
            else:
                regions.append(Region())
        op = scf.IfOp(cond, list(types), regions[0], regions[1])
        self.emit(op)
        return op.results

    # -- index expressions ---------------------------------------------------------------------------------------------
    def extremum(self, parts: Sequence[IndexExpr], make: Callable[[SSAValue, SSAValue], Operation]) -> SSAValue:
        """The least or the greatest of some expressions.  Raises UplError (UPL1825) if there are none."""
        if not parts:
            raise error("UPL1825", "no bounds found for a loop of native code", help='use engine="interp" or "token"')
        first, *rest = [self.index(p) for p in parts]
        for r in rest:
            first = self.add(make(first, r))
        return first

    def index(self, e: IndexExpr) -> SSAValue:
        """The value of an expression over loop variables and parameters, of type `index`."""
        found = self.scope.find(e)
        if found is None:
            self.reach.note(e)
            found = self._index(e)
            self.scope.known[e] = found
        return found

    def _index(self, e: IndexExpr) -> SSAValue:
        n = e.constant
        if n is not None:
            return self.constant(n, INDEX)
        total: SSAValue | None = None
        rest = 0
        for m, c in sorted(e.terms, key=lambda t: t[1] < 0):
            if not m:
                rest = c
                continue
            v: SSAValue | None = None
            for a in m:
                w = self._atom(a)
                v = w if v is None else self.add(arith.MuliOp(v, w))
            assert v is not None
            size = abs(c)
            if size >= FACTOR:
                what = f"native code computes indices in 64 bits, which may not do for `{e}`: a factor of 2^31 or more"
                raise error("UPL1826", what, help='use engine="interp" or "token"')
            if size != 1:
                v = self.add(arith.MuliOp(v, self.constant(size, INDEX)))
            if total is None:
                total = v if c > 0 else self.add(arith.SubiOp(self.constant(0, INDEX), v))
            else:
                total = self.add((arith.AddiOp if c > 0 else arith.SubiOp)(total, v))
        assert total is not None
        if rest:
            total = self.add((arith.AddiOp if rest > 0 else arith.SubiOp)(total, self.constant(abs(rest), INDEX)))
        return total

    def _atom(self, a: Atom) -> SSAValue:
        key = IndexExpr.of(a)
        found = self.scope.find(key)
        if found is not None:
            return found
        match a:
            case Var(name):
                raise AssertionError(f"no value for `{name}`")
            case Lookup(array, index):
                found = self.entry_of(array, a, index)
            case Div(kind, num, den):
                found = self._divided(kind, self.index(num), den)
            case MinMax(kind, args):
                found = self.extremum(args, arith.MinSIOp if kind is Extremum.MIN else arith.MaxSIOp)
            case Select(cond, then, other):
                found = self.add(arith.SelectOp(self.formula(cond), self.index(then), self.index(other)))
        self.scope.known[key] = found
        return found

    def _divided(self, kind: DivKind, num: SSAValue, den: IndexExpr) -> SSAValue:
        n, d = den.constant, self.index(den)
        if kind is DivKind.MOD:
            if n is not None and n > 0 and n & (n - 1) == 0:
                return self.add(arith.AndIOp(num, self.constant(n - 1, INDEX)))
            q = self.add(arith.FloorDivSIOp(num, d))
            return self.add(arith.SubiOp(num, self.add(arith.MuliOp(q, d))))
        return self.add((arith.FloorDivSIOp if kind is DivKind.FLOORDIV else arith.CeilDivSIOp)(num, d))

    def entry_of(self, array: str, entry: Lookup, index: IndexExpr) -> SSAValue:
        """An entry of a constant array; the index is kept inside the array where it may lie outside (the entry is then
        not used)."""
        table = self.tables[array]
        place = self.index(index - table.lower)
        last = len(table.values) - 1
        key = (entry, self.scope.context)
        if key not in self._inside:
            bounds = (Con(index - table.lower), Con(-index + (table.lower + last)))
            self._inside[key] = all(self.lin.implies(self.scope.context, c) for c in bounds)
        if not self._inside[key]:
            place = self.add(arith.MaxSIOp(place, self.constant(0, INDEX)))
            place = self.add(arith.MinSIOp(place, self.constant(last, INDEX)))
        return self.add(memref.LoadOp.get(self.table(array, table.values, INDEX), [place]))

    def table(self, name: str, values: Sequence[float], type_: Attribute) -> SSAValue:
        """A constant array in memory."""
        key = ("table", name, type_)
        found = self.scope.find(key)
        if found is None:
            symbol = name if type_ == INDEX and name != self.function else f"{name}.{type_}"  # no name of UPL has a dot
            shape = MemRefType(type_, [len(values)])
            if symbol not in self.globals:
                tensor = TensorType(type_, [len(values)])
                numbers = [float(v) for v in values] if isinstance(type_, Float32Type | Float64Type) else list(values)
                dense = DenseIntOrFPElementsAttr.from_list(tensor, numbers)  # pyright: ignore
                self.globals[symbol] = memref.GlobalOp.get(
                    StringAttr(symbol), shape, dense, StringAttr("private")
                )
            found = self.scope.known[key] = self.add(memref.GetGlobalOp(symbol, shape))
        return found

    # -- conditions ---------------------------------------------------------------------------------------------------
    def formula(self, f: Formula) -> SSAValue:
        """The truth of a formula."""
        return self.any([self.lin.tidy(c) for c in self.lin.cases(f)])

    def any(self, cases: Sequence[Cons]) -> SSAValue:
        """Whether one of the cases holds."""
        return self._joined(arith.OrIOp, map(self.all, cases), 0)

    def all(self, cons: Cons) -> SSAValue:
        """Whether all constraints hold."""
        return self._joined(arith.AndIOp, map(self.holds, cons), 1)

    def _joined(self, by: type[arith.AndIOp | arith.OrIOp], bits: Iterable[SSAValue], none: int) -> SSAValue:
        """The bits as one; `none` if there are none."""
        out: SSAValue | None = None
        for bit in bits:
            out = bit if out is None else self.add(by(out, bit))
        return self.constant(none, i1) if out is None else out

    def holds(self, c: Con) -> SSAValue:
        """Whether a constraint holds."""
        found = self.scope.find(c)
        if found is None:
            plus = IndexExpr(tuple((m, k) for m, k in c.e.terms if m and k > 0))
            minus = plus - c.e
            found = self.add(arith.CmpiOp(self.index(plus), self.index(minus), "eq" if c.eq else "sge"))
            self.scope.known[c] = found
        return found

    @contextmanager
    def taken_for(self, x: IndexExpr, at: SSAValue, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr]):
        """Inside of it the variable `x` has the value `at`, and lies between bounds."""
        scope = self.scope
        before = scope.context
        scope.known[x] = at
        scope.context = (*before, *(Con(x - b) for b in lows), *(Con(b - x) for b in highs))
        yield
        scope.context = before

    @contextmanager
    def supposing(self, context: Cons):
        """Inside of it constraints are taken to hold."""
        scope = self.scope
        before = scope.context
        scope.context = (*before, *context)
        yield
        scope.context = before

    @contextmanager
    def apart(self, values: Mapping[str, SSAValue]):
        """Inside of it names have values; what is computed is not known behind it."""
        outer = self.scope
        self.scope = Scope(outer.block, outer, outer.context, {IndexExpr.of(n): v for n, v in values.items()})
        yield
        self.scope = outer

    def between(self, at: SSAValue, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr]) -> SSAValue:
        """Whether an index lies between the greatest and the least of some bounds, both included."""
        low, behind = self.extremum(lows, arith.MaxSIOp), self.extremum([h + 1 for h in highs], arith.MinSIOp)
        size = self.add(arith.MaxSIOp(self.add(arith.SubiOp(behind, low)), self.constant(0, INDEX)))
        return self.add(arith.CmpiOp(self.add(arith.SubiOp(at, low)), size, "ult"))  # what is below is a great number

    def integer(self, e: IndexExpr) -> SSAValue:
        """An index expression as an i64 value."""
        return self.add(arith.IndexCastOp(self.index(e), i64))


def name_of(var: str) -> str:
    """A name that MLIR text can show at a value."""
    return "".join(ch if ch.isascii() and ch.isalnum() else "_" for ch in var)


def float_type(t: Attribute) -> bool:
    """Whether a type is a real one."""
    return isinstance(t, Float32Type | Float64Type) or t == f64
