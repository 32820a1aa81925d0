"""What a program of loops must be for its passes to read it: names, ranks, types and scopes; each fault at its operation.

Whether it computes what its statements say (every element before it is read, none overwritten too early) is another
question, of sets: `passes/loops/legal.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, SymbolRefAttr, f32, f64, i1, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue

from upl_mlir.dialects.bases import RuleError, by_symbol
from upl_mlir.dialects.loops import ops as loops
from upl_mlir.dialects.loops.attributes import Range
from upl_mlir.dialects.loops.ops import ROLES
from upl_mlir.dialects.upl.ops import ArrayOp as TableOp
from upl_mlir.dialects.upl.ops import ConstOp, ParamOp
from upl_mlir.dialects.upl.query import is_integer_array
from upl_mlir.dialects.upl.values import LookupOp, ModOp, SigmoidOp
from upl_mlir.numbers.formats import small_format
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.linear import Cons

TYPES: tuple[Attribute, ...] = (f64, f32, i64, i1)
GATHERS = ("ordered", "relaxed")


def verify_program(op: loops.LoopProgramOp) -> None:
    """Raise RuleError for the first fault."""
    _Verifier(op).run()


class _Verifier:
    def __init__(self, op: loops.LoopProgramOp):
        self.op = op
        body = op.body.block
        self.arrays, self.statements = by_symbol(body, loops.ArrayOp), by_symbol(body, loops.StatementOp)
        self.tables = by_symbol(body, TableOp)
        self.blocks: set[tuple[str, ...]] = set()
        self.values = {
            o.symbol for o in body.ops
            if isinstance(o, ParamOp) or (isinstance(o, ConstOp) and isinstance(o.value, IntegerAttr))
        }  # fmt: skip

    def run(self) -> None:
        if self.op.gather.data not in GATHERS:
            raise RuleError(f"expected one of {', '.join(GATHERS)}, found `{self.op.gather.data}`", self.op)
        if self.op.real is not None:
            self._small(self.op.real.data)
        schedules: list[loops.ScheduleOp] = []
        for o in self.op.body.block.ops:
            match o:
                case loops.ArrayOp():
                    self._array(o)
                case loops.StatementOp():
                    self._statement(o)
                case loops.ScheduleOp():
                    schedules.append(o)
                case ParamOp() | ConstOp() | TableOp():
                    self._declared(o)
                case loops.BlockOp():
                    self._block(o)
                case _:
                    raise RuleError(f"`{o.name}` cannot stand in a program of loops", o)
        if len(schedules) > 1:
            raise RuleError("a program has one schedule at most", schedules[1])
        by_var: dict[str, loops.ForOp] = {}
        for o in schedules:
            self._trees(o.body.block, frozenset(), by_var)
        for a in self.arrays.values():
            if a.private is not None and (a.private.data not in by_var or a.kept is None):
                raise RuleError(f"`{a.symbol}` is private to the loop `{a.private.data}`, which there is not", a)

    def _small(self, name: str) -> None:
        """The type of reals is a small one, sums keep their order, and there is no other real."""
        try:
            known = small_format(name)
        except ValueError as e:
            raise RuleError(f"`{name}`: {e}", self.op) from None
        if known is None or known.name != name:
            raise RuleError(f"expected a small type, such as `bf16` or `q8.8`, found `{name}`", self.op)
        if self.op.gather.data != "ordered":
            raise RuleError(f"sums of {name} keep their order: expected `ordered`", self.op)
        for o in self.op.walk():
            if any(v.type == f32 for v in o.results) or (isinstance(o, loops.ArrayOp) and o.element == f32):
                raise RuleError(f"f32 beside {name}, which f64 stands for here", o)

    def _declared(self, op: ParamOp | ConstOp | TableOp) -> None:
        """What a declaration says of its values names values."""
        of_table = (op.lower, op.upper) if isinstance(op, TableOp) else ()
        local = (op.symbol,) if isinstance(op, TableOp) else ()
        for e in (*of_table, op.expr if isinstance(op, ConstOp) else op.condition):
            if e is not None:
                self._known(e.data, local, op)

    def _block(self, op: loops.BlockOp) -> None:
        """The ends of a block are parameters of their own."""
        for name in (op.first.data, op.last.data):
            if name not in self.values:
                raise RuleError(f"there is no parameter `{name}`", op)
        for e in (op.low.data, op.high.data):
            self._known(e, (), op)
        self.blocks.add((op.first.data, op.last.data))

    def _cut(self, op: loops.ArrayOp) -> None:
        """An array is cut by one field, at the ends of a block."""
        found = () if op.cut is None else op.cut.data
        for r in found:
            ends = tuple(str(e) for e in (*r.lows, *r.highs))
            if len(found) > 1 or r.var not in op.fields or ends not in self.blocks or op.role.data == "input":
                raise RuleError(f"`{r}` does not say by which field `{op.symbol}` is cut, and into which block", op)

    def _exchange(self, op: loops.ExchangeOp, scope: frozenset[str]) -> None:
        array = self._ref(op.array, op)
        if array.cut is None and array.partial is None:
            raise RuleError(f"`{array.symbol}` is neither cut nor partial: there is nothing to exchange", op)
        if tuple(r.var for r in op.box.data) != array.fields:
            raise RuleError(f"the box of an exchange has a range for each field of `{array.symbol}`, in their order", op)
        for r in op.box.data:
            for e in (*r.lows, *r.highs):
                self._known(e, scope, op)

    # -- names ----------------------------------------------------------------------------------------------------------
    def _known(self, e: IndexExpr | Formula, names: Iterable[str], op: Operation) -> None:
        """Names of an expression must be these, parameters, constants or tables, all of integers."""
        for name in sorted(e.names - self.values - {*names}):
            raise RuleError(f"`{name}` in `{e}` is no name here", op)
        for name in sorted({lookup.array for lookup in e.lookups()}):
            if name not in self.tables:
                raise RuleError(f"there is no table `{name}`", op)
            if not is_integer_array(self.tables[name]):
                raise RuleError(f"the table `{name}` in `{e}` has entries that are no integers", op)

    def _cons(self, cons: Cons, names: Iterable[str], op: Operation) -> None:
        for c in cons:
            self._known(c.e, names, op)

    def _new(self, names: Iterable[str], scope: Iterable[str], op: Operation) -> frozenset[str]:
        """The scope with new names, which must be no other thing's."""
        out = {*scope}
        for n in names:
            if n in out or n in self.values or n in self.tables:
                raise RuleError(f"`{n}` has a meaning here already", op)
            out.add(n)
        return frozenset(out)

    def _ref(self, ref: SymbolRefAttr, op: Operation) -> loops.ArrayOp:
        found = self.arrays.get(ref.root_reference.data)
        if found is None:
            raise RuleError(f"there is no array `{ref.root_reference.data}`", op)
        return found

    def _stated(self, ref: SymbolRefAttr, op: Operation) -> loops.StatementOp:
        found = self.statements.get(ref.root_reference.data)
        if found is None:
            raise RuleError(f"there is no statement `{ref.root_reference.data}`", op)
        return found

    # -- arrays and statements --------------------------------------------------------------------------------------------
    def _array(self, op: loops.ArrayOp) -> None:
        if op.role.data not in ROLES:
            raise RuleError(f"expected one of {', '.join(ROLES)}, found `{op.role.data}`", op)
        if op.element not in TYPES:
            raise RuleError(f"`{op.symbol}` has elements of type {op.element}", op)
        fields = self._new(op.fields, (), op)
        for case in op.domain:
            self._cons(case.data, fields, op)
        if op.declared is not None:
            self._known(op.declared.data, fields, op)
        self._cut(op)
        if op.kept is None:
            return
        if op.role.data != "local":
            raise RuleError(f"the host says how `{op.symbol}` is kept", op)
        seen: set[int] = set()
        for a in op.kept.data:
            if not 0 <= a.at < len(op.fields) or a.at in seen:
                raise RuleError(f"`{op.symbol}` has no field number {a.at} left for an axis", op)
            seen.add(a.at)
            least = [(a.modulus, 1), (a.lead, 0), (a.line, 1), (None if a.every is None else abs(a.every), 1)]
            if any(n is not None and n < low for n, low in least):
                raise RuleError(f"`{a}` is no axis", op)
            if a.every is not None and (a.modulus is not None or a.lead or a.line is not None):
                raise RuleError(f"`{a}` keeps values at a step, and so neither the last ones nor in lines", op)
            if a.modulus is not None and a.extent.constant != a.modulus:
                raise RuleError(f"`{a}` has not as many places as values are kept", op)
            for e in (a.lower, a.extent):
                self._known(e, (), op)

    def _statement(self, op: loops.StatementOp) -> None:
        array = self._ref(op.array, op)
        if array.role.data == "input":
            raise RuleError(f"`{array.symbol}` is an input: nothing writes it", op)
        self._cons(op.where.data, array.fields, op)
        found = self._body(op.body.block, frozenset(array.fields), frozenset(), op)
        if found != array.element:
            raise RuleError(f"elements of `{array.symbol}` are of type {array.element}, found {found}", op)

    def _body(self, block: Block, names: frozenset[str], known: frozenset[SSAValue], op: Operation) -> Attribute:
        """The type that a body yields; `known` are the values that the bodies around it have computed."""
        last = block.last_op
        if not isinstance(last, loops.YieldOp):
            raise RuleError("a body ends with `upl_loops.yield`", op)
        for o in block.ops:
            if not known.issuperset(o.operands):
                raise RuleError(f"`{o.name}` uses a value that is not computed before it", o)
            self._value(o, names, known)
            known = known.union(o.results)
        return last.value.type

    def _value(self, op: Operation, names: frozenset[str], known: frozenset[SSAValue]) -> None:
        match op:
            case loops.YieldOp():
                if op.next_op is not None:
                    raise RuleError("`upl_loops.yield` ends a body", op)
                return
            case loops.ReadOp():
                array = self._ref(op.array, op)
                self._index(op.index.data, len(array.fields), names, op, array.symbol)
                if op.result.type != array.element:
                    raise RuleError(f"elements of `{array.symbol}` are of type {array.element}", op)
            case loops.IndexOp():
                self._known(op.value.data, names, op)
            case LookupOp():
                if op.symbol.root_reference.data not in self.tables:
                    raise RuleError(f"there is no table `{op.symbol.root_reference.data}`", op)
            case loops.FoldOp():
                self._fold(op, names, known)
            case loops.ChooseOp():
                cases = list(op.cases.block.ops)
                if not cases:
                    raise RuleError("a choice has a case at least", op)
                for case in cases:
                    if not isinstance(case, loops.CaseOp):
                        raise RuleError("a choice has cases only", case)
                    self._cons(case.where.data, names, case)
                    self._same(self._body(case.body.block, names, known, case), op.result.type, case)
            case _:
                plain = op.name.startswith(("arith.", "math.")) or isinstance(op, ModOp | SigmoidOp)
                if not plain or len(op.results) != 1 or op.regions:
                    raise RuleError(f"`{op.name}` cannot stand in a body", op)
        if op.results[0].type not in TYPES:
            raise RuleError(f"there are no values of type {op.results[0].type}", op)
        if isinstance(op, arith.ConstantOp) and op.result.type not in TYPES:
            raise RuleError(f"there are no values of type {op.result.type}", op)

    def _fold(self, op: loops.FoldOp, names: frozenset[str], known: frozenset[SSAValue]) -> None:
        if op.count is not None:
            self._known(op.count.data, names, op)
        for part in op.parts.block.ops:
            if not isinstance(part, loops.PartOp):
                raise RuleError("a fold has parts only", part)
            inside = self._new(part.over.data, names, part)
            for cons in (part.where.data, *(g.data for g in part.guards)):
                self._cons(cons, inside, part)
            self._same(self._body(part.body.block, inside, known, part), op.result.type, part)

    def _same(self, found: Attribute, wanted: Attribute, op: Operation) -> None:
        if found != wanted:
            raise RuleError(f"expected a value of type {wanted}, found {found}", op)

    def _index(
        self, index: tuple[IndexExpr | None, ...], rank: int, names: Iterable[str], op: Operation, of: str, *,
        stars: bool = False,
    ) -> None:  # fmt: skip
        if len(index) != rank:
            raise RuleError(f"`{of}` has {rank} fields, found {len(index)}", op)
        for e in index:
            if e is None and not stars:
                raise RuleError(f"an index of `{of}` has no `*` here", op)
            if e is not None:
                self._known(e, names, op)

    # -- schedules --------------------------------------------------------------------------------------------------------
    def _trees(self, block: Block, scope: frozenset[str], by_var: dict[str, loops.ForOp]) -> None:
        for op in block.ops:
            match op:
                case loops.ForOp():
                    inside = self._new([op.var.data], scope, op)
                    for bounds in (op.lows, op.highs):
                        if not bounds.data:
                            raise RuleError(f"the loop `{op.var.data}` has a bound on each side at least", op)
                        self._index(bounds.data, len(bounds.data), scope, op, op.var.data)
                    by_var[op.var.data] = op
                    self._trees(op.body.block, inside, by_var)
                case loops.IfOp():
                    self._cons(op.where.data, scope, op)
                    self._trees(op.then.block, scope, by_var)
                    if op.other is not None:
                        self._trees(op.other.block, scope, by_var)
                case loops.RunOp():
                    array = self._ref(self._stated(op.statement, op).array, op)
                    self._index(op.at.data, len(array.fields), scope, op, array.symbol)
                case loops.ContractOp():
                    self._contract(op, scope, by_var)
                case loops.ExchangeOp():
                    self._exchange(op, scope)
                case _:
                    raise RuleError(f"`{op.name}` cannot stand in a schedule", op)

    def _contract(self, op: loops.ContractOp, scope: frozenset[str], by_var: dict[str, loops.ForOp]) -> None:
        stated = self._stated(op.statement, op)
        array = self._ref(stated.array, op)
        folds = [o for o in stated.body.block.ops if not isinstance(o, loops.YieldOp)]
        if not folds or not isinstance(folds[-1], loops.FoldOp):
            raise RuleError(f"`{stated.symbol}` is no sum of products", op)
        self._index(op.at.data, len(array.fields), scope, op, array.symbol, stars=True)
        inside = self._ranges(op.around.data, scope, op)
        whole = self._ranges(op.over.data, inside, op)
        self._index(op.index.data, len(array.fields), whole, op, array.symbol)
        padded = 0
        for o in op.products.block.ops:
            if not isinstance(o, loops.ProductOp):
                raise RuleError("expected products", o)
            padded += o.padded is not None
            self._product(o, scope if o.padded is not None else inside, array)
        if padded > 1 or (padded and padded == len(list(op.products.block.ops))):
            raise RuleError("a contraction has one padded form at most, beside its products", op)
        self._trees(op.plain.block, scope, by_var)

    def _product(self, op: loops.ProductOp, scope: frozenset[str], array: loops.ArrayOp) -> None:
        if len(op.of) != 2 or len(op.reads) != 2 or len(op.indices) != 3:
            raise RuleError("a product has two factors, and three indices with that of the result", op)
        inside = self._ranges(op.around.data, scope, op)
        inside = self._ranges(op.over.data, inside, op)
        inside = self._ranges(op.summed.data, inside, op)
        self._cons(op.where.data, inside, op)
        factors = [self._ref(ref, op) for ref in op.of]
        for a, index in zip((*factors, array), op.indices, strict=True):
            self._index(index.data, len(a.fields), inside, op, a.symbol)
        for a, index in zip(factors, op.reads, strict=True):
            self._index(index.data, len(a.fields), index_names(index.data), op, a.symbol)
        if op.padded is not None:
            at = op.padded.data.constant
            if at not in (0, 1) or op.limits is None:
                raise RuleError("factor number 0 or 1 is padded, outside of limits", op)
            for r in op.limits.data:
                if not r.var.isdigit() or int(r.var) >= len(factors[at].fields):
                    raise RuleError(f"`{factors[at].symbol}` has no index number {r.var}", op)

    def _ranges(self, ranges: Iterable[Range], scope: frozenset[str], op: Operation) -> frozenset[str]:
        for r in ranges:
            for e in (*r.lows, *r.highs):
                self._known(e, scope, op)
            scope = self._new([r.var], scope, op)
        return scope


def index_names(index: Iterable[IndexExpr | None]) -> set[str]:
    """The names in an index."""
    return {n for e in index if e is not None for n in e.names}
