"""A UPL program of the affine class as statements on tensors, in gather form: each element pulls what it needs.

Arrows are read backwards.  The value at an ordinary input is that of the one instance whose token arrives there, the value
at a gathering input is the sum over all of them; both come from the inverse of the arrows' relations.  So left sides have
plain indices only, and what is out of reach is guarded by conditions on indices.  Only what the asked outputs need is
followed: an input that is not read does not occur.

A node's value becomes a tensor of its own if it holds a sum, or if it is computed and used more than once; otherwise it is
written out where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from upl_mlir.api.programs import Program
from upl_mlir.diagnostics import Span, error
from upl_mlir.dialects.upl import Gather, InputOp, NodeOp, OutputOp, Port, UplType
from upl_mlir.dialects.upl.query import inputs, outputs, span_of
from upl_mlir.frontend.einsum.scalars import SAME, operation
from upl_mlir.frontend.tensor import Apply, Cases, Expr, Number, Read, Statement, Sum, Tensor, TensorProgram, chained
from upl_mlir.frontend.tensor.wiring import unused
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.poly.describe import describe, disjoint_pieces
from upl_mlir.poly.expr import TRUE, Atom, Div, Formula, IndexExpr, divide
from upl_mlir.poly.nest import nest
from upl_mlir.poly.operators import DivKind
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
    return _Reader(program, type_).run(wanted)


@dataclass(frozen=True)
class _Source:
    """One way in which a value reaches an instance: where (over the instance's fields), from which value at which index.

    `loops` are enumerated dimensions with constant bounds; `point` is what must hold of them; `wishes` are the names that
    they had in the program.
    """

    condition: Formula
    op: InputOp | NodeOp
    value: SSAValue
    index: tuple[IndexExpr, ...]
    loops: tuple[tuple[str, int, int], ...] = ()
    point: Formula = TRUE
    wishes: tuple[str, ...] = ()


@dataclass
class _Scope:
    """The statement that is being written: names and ranges of its indices, and what is known of them."""

    ranges: dict[str, tuple[int, int]]
    context: PSet

    def with_loops(self, loops: Sequence[tuple[str, int, int]], guard: Formula) -> _Scope:
        bounds = [Formula.compare(lo, "<=", n) & Formula.compare(n, "<=", hi) for n, lo, hi in loops]
        inner = self.context.extend([n for n, _, _ in loops]).constrain(Formula.all((*bounds, guard)))
        return _Scope(self.ranges, inner)


_Maker = Callable[[_Scope, Env], Expr]


@dataclass
class _Reader:
    program: Program
    type: UplType | None
    tensors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    statements: list[Statement] = field(default_factory=list[Statement])
    kept: dict[tuple[str, SSAValue], str | None] = field(default_factory=dict[tuple[str, SSAValue], "str | None"])
    sources: dict[tuple[str, str], list[_Source]] = field(default_factory=dict[tuple[str, str], list[_Source]])

    def __post_init__(self) -> None:
        self.sets = ProgramSets(self.program.op)
        self.names = {op.symbol for op in (*inputs(self.program.op), *outputs(self.program.op))}
        self.active: list[str] = []  # nodes whose values are being written: twice the same is a recurrence
        self.read: dict[str, None] = {}

    def run(self, wanted: Sequence[str] | None) -> TensorProgram:
        outs = [op for op in outputs(self.program.op) if wanted is None or op.symbol in wanted]
        type_ = self._type(outs)
        for op in outs:
            self._claim(op)
        for op in outs:
            self._output(op)
        ins = tuple(op.symbol for op in inputs(self.program.op) if op.symbol in self.read)
        names = tuple(op.symbol for op in outs)
        return TensorProgram(self.program.name, type_, self.tensors, ins, names, tuple(self.statements))

    def _type(self, outs: Sequence[OutputOp]) -> UplType:
        """The one type of all numbers: a data type of reals (f32 stands for all of them), or int."""
        if self.type is not None:
            return self.type
        types = {op.type for op in (*inputs(self.program.op), *outs)}
        if types == {UplType.INT}:
            return UplType.INT
        if types & {UplType.INT, UplType.BOOL}:
            raise error("UPL1910", f"the ports have several types: {', '.join(sorted(t.value for t in types))}")
        return UplType.F32

    # -- tensors -------------------------------------------------------------------------------------------------
    def _tensor(self, name: str, domain: PSet, span: Span | None) -> tuple[Tensor, tuple[int, ...]]:
        """A tensor over the bounding box of a domain, and its least index."""
        lower: list[int] = []
        shape: list[int] = []
        for d in domain.dims:
            lo, hi = domain.extent(d)
            if lo is None or hi is None:
                raise error("UPL1910", f"`{name}` has no bounds along `{d}`", span)
            lower.append(lo)
            shape.append(hi - lo + 1)
        tensor = self.tensors.setdefault(name, Tensor(name, tuple(shape), span, domain.dims))
        return tensor, tuple(lower)

    def _claim(self, op: OutputOp) -> None:
        """An output that is one node's value at the same index serves everybody who reads that value."""
        arrows = self.sets.into(op.symbol)
        if len(arrows) != 1 or not isinstance(arrows[0].source, NodeOp):
            return
        a = arrows[0]
        assert isinstance(a.source, NodeOp)
        same = a.send.index.data == tuple(IndexExpr.of(f) for f in a.source.fields) and not a.loops
        key = (a.source.symbol, a.send.value)
        domain = self.sets.domain(op.symbol)
        mine = self.sets.domain(a.source.symbol).rename(dict(zip(a.source.fields, op.fields, strict=False)))
        if same and key not in self.kept and self._kept_apart(a.source, a.send.value) and mine.equals(domain):
            self.kept[key] = op.symbol

    def _output(self, op: OutputOp) -> None:
        if any(s.target == op.symbol for s in self.statements):
            return  # written when somebody read it
        arrows = self.sets.into(op.symbol)
        for a in arrows:
            if self.kept.get((a.source.symbol, a.send.value)) == op.symbol:
                assert isinstance(a.source, NodeOp)
                self._node_statement(op.symbol, a.source, a.send.value)
                return
        port = Port(op.symbol, op.type)
        domain = self.sets.domain(op.symbol)
        self._write(op.symbol, op.fields, domain, span_of(op), lambda scope, env: self._arriving(op, port, env, scope))

    def _node_statement(self, name: str, op: NodeOp, value: SSAValue) -> None:
        self._enter(op)
        domain = self.sets.domain(op.symbol)
        self._write(name, op.fields, domain, span_of(op), lambda scope, env: self._value(op, value, env, scope))
        self.active.pop()

    def _write(self, name: str, fields: tuple[str, ...], domain: PSet, span: Span | None, value: _Maker) -> None:
        """The statement that fills a tensor; it runs over the whole box, and writes 0 outside the domain."""
        tensor, lower = self._tensor(name, domain, span)
        ranges = {f: (0, n - 1) for f, n in zip(fields, tensor.shape, strict=True)}
        bounds = [Formula.compare(0, "<=", f) & Formula.compare(f, "<=", hi) for f, (_, hi) in ranges.items()]
        context = domain.ctx.set(fields, Formula.all(bounds))
        env = {f: IndexExpr.of(f) + lo for f, lo in zip(fields, lower, strict=True)}
        inside = describe(domain).rewrite(self._known).substitute(env)
        scope = _Scope(ranges, context.constrain(inside))
        made = value(scope, env)
        guard = describe(scope.context, context)
        if not guard.is_true:
            made = Cases(((guard, made),))
        index = tuple(IndexExpr.of(f) for f in fields)
        self.statements.append(Statement(name, index, made, scope.ranges, span))

    # -- values --------------------------------------------------------------------------------------------------
    def _value(self, op: InputOp | NodeOp, v: SSAValue, env: Env, scope: _Scope) -> Expr:
        """A value of a body at the index that `env` gives for the fields."""
        if isinstance(op, InputOp) and v is op.value:
            self.read[op.symbol] = None
            _, lower = self._tensor(op.symbol, self.sets.domain(op.symbol), span_of(op))
            return Read(op.symbol, tuple(_tidy(env[f] - lo) for f, lo in zip(op.fields, lower, strict=True)))
        if isinstance(v.owner, Block):
            at = list(op.block.args).index(v) - len(op.fields)  # pyright: ignore[reportArgumentType]
            if at < 0:
                raise error("UPL1910", f"`{op.symbol}` computes with its index `{op.fields[at]}`", span_of(op))
            assert isinstance(op, NodeOp)
            return self._arriving(op, op.ports[at], env, scope)
        assert isinstance(v.owner, Operation)
        made = operation(v.owner)
        if made is None:
            raise error("UPL1910", f"`{v.owner.name}` has no place in a statement on tensors", span_of(v.owner))
        if isinstance(made, Number):
            return made
        args = tuple(self._value(op, a, env, scope) for a in made.operands)
        return args[0] if made.op == SAME else _folded(Apply(made.op, args))

    def _arriving(self, op: NodeOp | OutputOp, port: Port, env: Env, scope: _Scope) -> Expr:
        """What arrives at an input of an instance."""
        sources = self._sources(op, port)
        if port.gather is not None:
            return self._summed(sources, env, scope)
        cases: list[tuple[Formula, Expr]] = []
        rest = scope.context
        for s in sources:
            here = scope.context.constrain(s.condition.substitute(dict(env)))
            if here.is_empty():
                continue
            condition = describe(here, scope.context)
            rest = rest - here
            cases.append((condition, self._sent(s, env, _Scope(scope.ranges, here))))
        if not cases:
            raise error("UPL1910", f"nothing arrives at `{op.symbol}.{port.name}`", span_of(op))
        if rest.is_empty():
            cases[-1] = (TRUE, cases[-1][1])
        return cases[0][1] if cases[0][0].is_true else Cases(tuple(cases))

    def _summed(self, sources: Sequence[_Source], env: Env, scope: _Scope) -> Expr:
        """The sum of all that arrives at a gathering input, arrow by arrow, in one accumulator."""
        terms: list[tuple[str, Expr]] = []
        for s in sources:
            names: dict[str, str] = {}
            for (n, lo, hi), wish in zip(s.loops, s.wishes, strict=True):
                names[n] = self._loop_name(wish, (lo, hi), scope, names.values())
            loops = [(names[n], lo, hi) for n, lo, hi in s.loops]
            inner = dict(env) | {n: IndexExpr.of(m) for n, m in names.items()}
            guard = (s.condition & s.point).substitute(inner)
            free = scope.with_loops(loops, TRUE).context
            here = free.constrain(guard)
            if here.is_empty():
                continue
            term = self._sent(s, inner, _Scope(scope.ranges, here))
            condition = describe(here, free)
            if not condition.is_true:
                term = Cases(((condition, term),))
            if loops:
                term = Sum(tuple(n for n, _, _ in loops), term)
            terms.append(("+", term))
        return chained(terms) if terms else Number(0)

    def _loop_name(self, name: str, bounds: tuple[int, int], scope: _Scope, taken: Iterable[str]) -> str:
        """A name for an enumerated dimension; one that an earlier sum used over the same range may serve again."""
        inside = {*scope.context.dims, *taken}
        out, n = name, 2
        while out in inside or scope.ranges.get(out, bounds) != bounds:
            out, n = f"{name}_{n}", n + 1
        scope.ranges[out] = bounds
        return out

    def _sent(self, s: _Source, env: Env, scope: _Scope) -> Expr:
        """The value that a source sends, at the index from which it comes."""
        index = [_tidy(e.substitute(dict(env))) for e in s.index]
        if isinstance(s.op, NodeOp) and self._kept_apart(s.op, s.value):
            key = (s.op.symbol, s.value)
            name = self.kept.setdefault(key, None)
            if name is None:
                name = self.kept[key] = unused(s.op.symbol, self.names)
                self.names.add(name)
            if not any(st.target == name for st in self.statements):
                self._node_statement(name, s.op, s.value)
            _, lower = self._tensor(name, self.sets.domain(s.op.symbol), span_of(s.op))
            return Read(name, tuple(_tidy(e - lo) for e, lo in zip(index, lower, strict=True)))
        self._enter(s.op)
        out = self._value(s.op, s.value, dict(zip(s.op.fields, index, strict=True)), scope)
        self.active.pop()
        return out

    def _enter(self, op: InputOp | NodeOp) -> None:
        if op.symbol in self.active:
            help = "statements on tensors run one after the other, each as a whole"
            raise error("UPL1910", f"`{op.symbol}` depends on itself: that is a recurrence", span_of(op), help=help)
        self.active.append(op.symbol)

    def _kept_apart(self, op: NodeOp, value: SSAValue) -> bool:
        """Whether a value gets a tensor of its own; see the module's docstring."""
        if isinstance(value.owner, Block):
            at = list(op.block.args).index(value) - len(op.fields)  # pyright: ignore[reportArgumentType]
            if at < 0 or op.ports[at].gather is None:
                return False
            return self._summands(op, op.ports[at])
        sums, work, todo = False, False, [value]
        while todo:
            v = todo.pop()
            if isinstance(v.owner, Operation):
                made = operation(v.owner)
                work = work or not (isinstance(made, Number) or (made is not None and made.op == SAME))
                todo += v.owner.operands
            else:
                at = list(op.block.args).index(v) - len(op.fields)  # pyright: ignore[reportArgumentType]
                sums = sums or (at >= 0 and op.ports[at].gather is not None and self._summands(op, op.ports[at]))
        arrows = [a for a in self.sets.out_of(op.symbol) if a.send.value is value]
        once = len(arrows) == 1 and not arrows[0].loops and not arrows[0].stars
        return sums or (work and not once)

    def _summands(self, op: NodeOp, port: Port) -> bool:
        """Whether anything ever arrives at a gathering input."""
        return bool(self.sets.into(op.symbol, port.name))

    # -- arrows --------------------------------------------------------------------------------------------------
    def _sources(self, op: NodeOp | OutputOp, port: Port) -> list[_Source]:
        key = (op.symbol, port.name)
        if key not in self.sources:
            if port.gather not in (None, Gather.SUM):
                raise error("UPL1910", f"`{op.symbol}.{port.name}` gathers by `{port.gather.value}`", span_of(op))
            found: list[_Source] = []
            for a in self.sets.into(op.symbol, port.name):
                found += self._backwards(a)
            self.sources[key] = found
        return self.sources[key]

    def _backwards(self, a: Arrow) -> list[_Source]:
        """An arrow as seen from its target: over the target's fields, one source for each convex part."""
        if not a.exact:
            raise error("UPL1910", f"the arrow {a.text} depends on data", span_of(a.send))
        # the target's fields keep their names, so that they mean what the environment says; the source's give way
        fresh: dict[str, str] = {}
        for d in (*a.src, *a.loops):
            others = {*a.src, *a.loops} - {d}
            fresh[d] = unused(d, {*a.target.fields, *others, *fresh.values()})
        r = self.sets.relation(a).numeric().rename({**fresh, **dict(zip(a.dst, a.target.fields, strict=True))})
        given = a.target.fields
        domain = self.sets.domain(a.target.symbol)
        over = tuple(fresh[d] for d in (*a.src, *a.loops))
        whole = r.coalesce()
        single = all(whole.express(IndexExpr.of(d), given) is not None for d in over)
        out: list[_Source] = []
        for piece in [whole] if single else disjoint_pieces(r):
            found = nest(piece, over, given, domain)
            if found is None:
                raise error("UPL1910", f"the arrow {a.text} cannot be read backwards", span_of(a.send))
            loops: list[tuple[str, int, int]] = []
            own = {new: old for old, new in fresh.items()}
            for d, _ in found.loops:
                lo, hi = piece.extent(d)
                assert lo is not None and hi is not None
                loops.append((d, lo, hi))
            names = tuple(d for d, _, _ in loops)
            box = [Formula.compare(lo, "<=", d) & Formula.compare(d, "<=", hi) for d, lo, hi in loops]
            walked = domain.extend(names).constrain(Formula.all((found.condition, *box)))
            point = describe(piece.project((*given, *names)), walked)
            index = tuple(self._number(found.names[fresh[d]]) for d in a.src)
            condition = found.condition.rewrite(self._known)
            point, wishes = point.rewrite(self._known), tuple(own[d] for d in names)
            out.append(_Source(condition, a.source, a.send.value, index, tuple(loops), point, wishes))
        return out

    def _known(self, atom: Atom) -> IndexExpr | None:
        """A constant of the program as a number."""
        value = self.sets.ctx.constant(atom)
        return None if value is None else IndexExpr.of(value)

    def _number(self, e: IndexExpr) -> IndexExpr:
        return e.rewrite(self._known)


def _folded(e: Apply) -> Expr:
    """The expression without a product by 1: the seed of a gradient comes in as one."""
    if e.op == "*" and Number(1) in e.args:
        return e.args[1] if e.args[0] == Number(1) else e.args[0]
    return e


def _tidy(e: IndexExpr) -> IndexExpr:
    """The expression with ``a - m*(a floordiv m)`` written as ``a mod m`` where that makes it shorter."""
    for m, c in e.terms:
        match m:
            case (Div(kind=DivKind.FLOORDIV, num=num, den=den),) if den.constant is not None and c % den.constant == 0:
                times = -(c // den.constant)
                rest = e - IndexExpr.of(m[0]) * c - num * times
                if times and len(rest.terms) < len(e.terms) - 1:
                    return _tidy(rest + divide(DivKind.MOD, num, den) * times)
            case _:
                pass
    return e
