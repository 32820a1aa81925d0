"""A UPL program of the affine class as statements on tensors, in gather form: each element pulls what it needs.

They are made from the program's equations, of which native code is made too (`passes/loops/equations.py`): arrows are
turned round there, and what is kept in an array is chosen there.  Here each equation becomes one statement over the box
around its domain; what is out of reach is guarded by conditions on indices.  Only what the asked outputs need is
followed: an input that is not read does not occur.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from upl_mlir.api.programs import Program
from upl_mlir.diagnostics import Span, UplError, error
from upl_mlir.dialects.upl import Gather, NodeOp, OutputOp, ProgramOp, UplType
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.dialects.upl.query import arrows, endpoints, inputs, outputs, source_of, span_of
from upl_mlir.frontend.einsum.scalars import SAME, operation
from upl_mlir.frontend.tensor import Apply, Cases, Expr, Number, Read, Statement, Sum, Tensor, TensorProgram, chained
from upl_mlir.frontend.tensor.wiring import unused
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.loops import terms
from upl_mlir.passes.loops.equations import equations
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.poly.describe import describe, tidy
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.linear import Cons
from upl_mlir.poly.sets import PSet

Env = Mapping[str, IndexExpr]


def gather_form(program: Program, wanted: Sequence[str] | None = None, *, type_: UplType | None = None) -> TensorProgram:
    """The program as statements that compute the outputs `wanted` (all, if None), in an order in which they can run.

    Tensors are the host ports by name, and one for each value that is kept; `inputs` are those that are read.  Element 0
    of a tensor is the lower bound of its domain.  `type_` is the one type that all numbers then have; without it, the ports
    must be all of real types, or all `int`.  Raises UplError (UPL1910) for what is outside the class: open parameters,
    data-dependent arrows, recurrences, gathers other than sums.
    """
    program = program.expanded().infer_domains()
    if program.params:
        names = ", ".join(program.params)
        raise error("UPL1910", f"the sizes must be known, but these are open: {names}", help="bind them with -D")
    op = program.op.clone()
    _keep(op, [o.symbol for o in outputs(op) if wanted is None or o.symbol in wanted])
    type_ = type_ or _type(op)
    _refuse(op)
    try:
        system = equations(op, Kind.F64, ordered=True, plain=True)
    except UplError as e:
        d = e.diagnostics[0]
        raise error("UPL1910", d.message, d.span) from None
    return _Reader(op, system).run(type_)


def _keep(program: ProgramOp, wanted: Iterable[str]) -> None:
    """Take away what none of the wanted outputs depends on."""
    sends = list(arrows(program))
    kept, more = set[str](), set(wanted)
    while more:
        kept |= more
        more = {source_of(s).symbol for s in sends if s.target_name in more} - kept
    for s in sends:
        if s.target_name not in kept:
            s.detach()
            s.erase()
    for end in endpoints(program).values():
        if isinstance(end, NodeOp | OutputOp) and end.symbol not in kept:
            end.detach()
            end.erase()


def _type(program: ProgramOp) -> UplType:
    """The one type of all numbers: a data type of reals (f32 stands for all of them), or int."""
    types = {op.type for op in (*inputs(program), *outputs(program))}
    if types == {UplType.INT}:
        return UplType.INT
    if types & {UplType.INT, UplType.BOOL}:
        raise error("UPL1910", f"the ports have several types: {', '.join(sorted(t.value for t in types))}")
    return UplType.F32


def _refuse(program: ProgramOp) -> None:
    """Say what of the program no statement on tensors can be."""
    for a in ProgramSets(program).arrows:
        if not a.exact:
            raise error("UPL1910", f"the arrow {a.text} depends on data", span_of(a.send))
    for op in endpoints(program).values():
        if not isinstance(op, NodeOp):
            continue
        for port in op.ports:
            if port.gather not in (None, Gather.SUM):
                raise error("UPL1910", f"`{op.symbol}.{port.name}` gathers by `{port.gather.value}`", span_of(op))
        for field, value in zip(op.fields, op.block.args, strict=False):
            if value.uses:
                raise error("UPL1910", f"`{op.symbol}` computes with its index `{field}`", span_of(op))


@dataclass
class _Scope:
    """The statement that is being written: ranges of its indices, and what is known of them."""

    ranges: dict[str, tuple[int, int]]
    context: PSet


class _Reader:
    def __init__(self, program: ProgramOp, system: System):
        self.program, self.system = program, system
        self.ctx = system.lin.ctx
        self.ends = endpoints(program)
        self.tensors: dict[str, Tensor] = {}
        self.lower: dict[str, tuple[int, ...]] = {}  # the least index of each tensor, by array
        self.statements: list[Statement] = []
        self.names = {name: name for name, eq in system.equations.items() if eq.output}  # of tensors, by array
        self.taken = {*system.hosts, *self.names}
        self.copies: dict[str, Statement] = {}  # what is read where it comes from; a tensor only if it is an output
        self.active: list[str] = []  # arrays that are being written: twice the same is a recurrence

    def run(self, type_: UplType) -> TensorProgram:
        outs = [eq for eq in self.system.equations.values() if eq.output]
        claimed = {eq.name: array for eq in outs if (array := self._claimed(eq)) is not None}
        for eq in outs:
            array = claimed.get(eq.name, eq.name)
            self._write(array)
            if array in self.copies:
                self.statements.append(self.copies[array])
        ins = tuple(name for name in self.system.hosts if name in self.lower)
        names = tuple(eq.name for eq in outs)
        unwritten = {s.target for s in self.copies.values()} - {*names}
        tensors = {name: t for name, t in self.tensors.items() if name not in unwritten}
        return TensorProgram(self.program.sym_name.data, type_, tensors, ins, names, tuple(self.statements))

    def _claimed(self, out: Equation) -> str | None:
        """The array that an output passes on as it is: it is written in the output's place, for everybody who reads it."""
        match out.pieces:
            case [(_, terms.Get(_, array, index))] if array in self.system.equations and array not in self.names:
                eq = self.system.equations[array]
                if index != tuple(map(IndexExpr.of, out.fields)):
                    return None
                if not self._set(eq).rename(dict(zip(eq.fields, out.fields, strict=True))).equals(self._set(out)):
                    return None
                self.names[array] = out.name
                return array
            case _:
                return None

    # -- tensors -----------------------------------------------------------------------------------------------------
    def _set(self, eq: Equation) -> PSet:
        return self.ctx.set(eq.fields, _any(eq.domain)).numeric()

    def _tensor(self, array: str) -> Tensor:
        """The tensor of an array, over the bounding box of its domain."""
        if array not in self.lower:
            eq = self.system.equations.get(array)
            fields, domain = (eq.fields, eq.domain) if eq else self.system.hosts[array][1:]
            bounds = _extents(self.ctx.set(fields, _any(domain)).numeric(), fields, array, self._span(array))
            if array not in self.names and eq:
                self.names[array] = unused(self._symbol(array), self.taken)
                self.taken.add(self.names[array])
            name = self.names.get(array, array)
            self.lower[array] = tuple(lo for lo, _ in bounds)
            self.tensors[name] = Tensor(name, tuple(hi - lo + 1 for lo, hi in bounds), self._span(array), fields)
        return self.tensors[self.names.get(array, array)]

    def _symbol(self, array: str) -> str:
        """The node, or the host port, that an array belongs to."""
        return array.partition(".")[0].partition(":")[0]

    def _span(self, array: str) -> Span | None:
        return span_of(self.ends[self._symbol(array)])

    def _write(self, array: str) -> None:
        """The statement that fills a tensor, unless there is one; it writes 0 where the equation says nothing."""
        if array in self.active:
            raise error(
                "UPL1910", f"`{self._symbol(array)}` depends on itself: that is a recurrence", self._span(array),
                help="statements on tensors run one after the other, each as a whole",
            )  # fmt: skip
        if array in self.lower:
            return
        tensor, eq = self._tensor(array), self.system.equations[array]
        self.active.append(array)
        ranges = {f: (0, n - 1) for f, n in zip(eq.fields, tensor.shape, strict=True)}
        env = {f: IndexExpr.of(f) + lo for f, lo in zip(eq.fields, self.lower[array], strict=True)}
        scope = _Scope(ranges, self.ctx.set(eq.fields, _box(ranges)))
        value = self._chosen(eq.pieces, env, scope)
        self.active.pop()
        index = tuple(map(IndexExpr.of, eq.fields))
        statement = Statement(tensor.name, index, value, ranges, self._span(array))
        if isinstance(value, Read):
            self.copies[array] = statement
        else:
            self.statements.append(statement)

    # -- values ------------------------------------------------------------------------------------------------------
    def _chosen(self, cases: Sequence[tuple[Cons, terms.Term]], env: Env, scope: _Scope) -> Expr:
        out: list[tuple[Formula, Expr]] = []
        rest = scope.context
        for cons, term in cases:
            here = (scope.context.constrain(_all(cons, env)) & rest).numeric().coalesce()
            if here.is_empty():
                continue
            condition, rest = describe(here, scope.context), rest - here
            out.append((condition, self._value(term, env, _Scope(scope.ranges, here))))
        if out and rest.is_empty():
            out[-1] = (TRUE, out[-1][1])
        return out[0][1] if out and out[0][0].is_true else Cases(tuple(out))

    def _value(self, t: terms.Term, env: Env, scope: _Scope) -> Expr:
        match t:
            case terms.Number(_, value):
                return Number(value)
            case terms.Get(_, array, index):
                return self._element(array, tuple(e.substitute(dict(env)) for e in index))
            case terms.Convert(_, arg):
                return self._value(arg, env, scope)
            case terms.Choice(_, cases):
                return self._chosen(cases, env, scope)
            case terms.Fold(_, _, parts):
                summands = [s for p in parts if (s := self._part(p, env, scope)) is not None]
                return chained([("+", s) for s in summands]) if summands else Number(0)
            case terms.Apply(_, op, args):
                made = operation(op)
                if made is None or isinstance(made, Number):
                    raise error("UPL1910", f"`{op.name}` has no place in a statement on tensors", span_of(op))
                given = dict(zip(op.operands, args, strict=True))
                values = tuple(self._value(given[v], env, scope) for v in made.operands)
                return values[0] if made.op == SAME else _folded(Apply(made.op, values))
            case terms.IndexValue(e):
                raise error("UPL1910", f"the program computes with the index `{e}`")
            case terms.Entry(_, table):
                raise error("UPL1910", f"an entry of `{table}` has no place in a statement on tensors")

    def _element(self, array: str, index: Sequence[IndexExpr]) -> Read:
        if array in self.system.hosts:
            self._tensor(array)
        else:
            self._write(array)
        index = tuple(tidy(e - lo) for e, lo in zip(index, self.lower[array], strict=True))
        if array in self.copies:
            at, copied = dict(zip(self.system.equations[array].fields, index, strict=True)), self.copies[array].value
            assert isinstance(copied, Read)
            return Read(copied.tensor, tuple(tidy(e.substitute(at)) for e in copied.index))
        return Read(self._tensor(array).name, index)

    def _part(self, p: terms.Part, env: Env, scope: _Scope) -> Expr | None:
        """The sum of what an arrow brings; None if that is nothing."""
        guard = _all(p.cons, env) & (Formula.any(_all(g, env) for g in p.guards) if p.guards else TRUE)
        here = scope.context.extend(p.dims).constrain(guard).numeric().coalesce()
        if here.is_empty():
            return None
        names: dict[str, str] = {}
        for d, bounds in zip(p.dims, _extents(here, p.dims, "a sum", None), strict=True):
            names[d] = self._index(d.rpartition("_")[0], bounds, scope, names.values())
        here, dims = here.rename(names), tuple(names.values())
        free = scope.context.extend(dims).constrain(_box({d: scope.ranges[d] for d in dims}))
        out = self._value(p.body, {**env, **{d: IndexExpr.of(n) for d, n in names.items()}}, _Scope(scope.ranges, here))
        condition = describe(here, free)
        if not condition.is_true:
            out = Cases(((condition, out),))
        return Sum(dims, out) if dims else out

    def _index(self, name: str, bounds: tuple[int, int], scope: _Scope, taken: Iterable[str]) -> str:
        """A name for an index that is summed over; one that an earlier sum used over the same range may serve again."""
        inside = {*scope.context.dims, *taken}
        out, n = name, 2
        while out in inside or scope.ranges.get(out, bounds) != bounds:
            out, n = f"{name}_{n}", n + 1
        scope.ranges[out] = bounds
        return out


def _extents(s: PSet, dims: Sequence[str], name: str, span: Span | None) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for d in dims:
        lo, hi = s.extent(d)
        if lo is None or hi is None:
            raise error("UPL1910", f"`{name}` has no bounds along `{d}`", span)
        out.append((lo, hi))
    return out


def _box(ranges: Mapping[str, tuple[int, int]]) -> Formula:
    return Formula.all(Formula.compare(lo, "<=", d) & Formula.compare(d, "<=", hi) for d, (lo, hi) in ranges.items())


def _all(cons: Cons, env: Env) -> Formula:
    return Formula.all(Formula.compare(c.e.substitute(dict(env)), "==" if c.eq else ">=", 0) for c in cons)


def _any(cases: Iterable[Cons]) -> Formula:
    return Formula.any(_all(c, {}) for c in cases)


def _folded(e: Apply) -> Expr:
    """The expression without a product by 1: the seed of a gradient comes in as one."""
    if e.op == "*" and Number(1) in e.args:
        return e.args[1] if e.args[0] == Number(1) else e.args[0]
    return e
