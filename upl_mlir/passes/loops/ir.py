# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""Programs of loops as the dialect `upl_loops`: `write` and `read`, each the other's inverse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    ArrayAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    f32,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from upl_mlir.dialects.loops import ops as loops
from upl_mlir.dialects.loops.attributes import AxesAttr, ConsAttr, Range, RangesAttr
from upl_mlir.dialects.upl import ArrayOp as TableOp
from upl_mlir.dialects.upl import FormulaAttr, Gather, LookupOp
from upl_mlir.dialects.upl.attributes import ExprAttr, IndexAttr, NamesAttr
from upl_mlir.dialects.upl.kinds import Kind
from upl_mlir.dialects.upl.ops import ConstOp, ParamOp
from upl_mlir.dialects.upl.query import poly_context, span_of
from upl_mlir.frontend.upl_text.scope import loc
from upl_mlir.numbers.floats import as_single
from upl_mlir.passes.analysis.proved import ASSUMED
from upl_mlir.passes.build import unused
from upl_mlir.passes.loops import terms
from upl_mlir.passes.loops.program import Block as RankBlock
from upl_mlir.passes.loops.program import Cut, Host, LoopProgram
from upl_mlir.passes.loops.statements import Statement, statement
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Term, arguments, inner_first
from upl_mlir.passes.loops.transform.contractions import Contraction, Padded
from upl_mlir.passes.loops.transform.contractions import Term as Product
from upl_mlir.passes.loops.tree import Box, Exchange, Guard, Leaf, Loop, Tree, subtrees
from upl_mlir.passes.storage import Array
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.linear import Cons, Linear

_KINDS: dict[Attribute, Kind] = {k.mlir: k for k in (Kind.BOOL, Kind.INT, Kind.F32, Kind.F64)}


def _flag(on: bool) -> UnitAttr | None:
    return UnitAttr() if on else None


def _props(**found: Attribute | None) -> dict[str, Attribute]:
    return {k: v for k, v in found.items() if v is not None}


def _cases(cases: Iterable[Cons]) -> ArrayAttr[ConsAttr]:
    return ArrayAttr(map(ConsAttr, cases))


# -- writing ----------------------------------------------------------------------------------------------------------
def write(p: LoopProgram) -> loops.LoopProgramOp:
    """The operation that says what a program is."""
    ops: list[Operation] = [op.clone() for op in p.declarations]
    for b in sorted({c.block for c in p.cuts.values()}, key=lambda b: b.first):
        props = _props(first=StringAttr(b.first), last=StringAttr(b.last), low=ExprAttr(b.low), high=ExprAttr(b.high))
        ops.append(loops.BlockOp(properties=props))
    hosts = {h.name for h in p.hosts}
    for h in p.hosts:
        ops.append(_array(h.name, h.fields, h.kind, "output" if h.output else "input", h.cases, declared=h.declared))
    for eq in p.system.equations.values():
        if eq.name not in hosts:
            ops.append(_local(eq, None if p.arrays is None else p.arrays.get(eq.name)))
    for op in ops:
        if isinstance(op, loops.ArrayOp) and (cut := p.cuts.get(op.symbol)) is not None:
            b = cut.block
            ends = (IndexExpr.of(b.first),), (IndexExpr.of(b.last),)
            op.properties |= _props(cut=RangesAttr((Range(cut.field, *ends),)), domain=_cases(cut.whole))
        if isinstance(op, loops.ArrayOp) and (gather := p.partial.get(op.symbol)) is not None:
            op.properties |= _props(partial=StringAttr(gather.value))
        at = p.places.get(op.symbol) if isinstance(op, loops.ArrayOp) else None
        if at is not None:
            op.location = loc(at)
    out = loops.LoopProgramOp(p.name, "ordered" if p.ordered else "relaxed", None if p.small is None else p.small.value)
    if p.assumed is not None:
        out.attributes[ASSUMED] = p.assumed
    if p.tree is None:
        pieces = [(eq.name, cons, term) for eq in p.system.equations.values() for cons, term in eq.pieces]
        ops += [_statement(f"S{n}", *piece) for n, piece in enumerate(pieces)]
    else:
        names: dict[Statement, str] = {}
        taken = {op.sym_name.data for op in ops if not isinstance(op, loops.BlockOp)}  # pyright: ignore
        for s in sorted(dict.fromkeys(_statements(p.tree)), key=lambda s: s.at):
            names[s] = unused(f"S{s.at}", taken)
            ops.append(_statement(names[s], s.array, s.cons, s.term))
        block = Block(_tree(p.tree, names))
        ops.append(loops.ScheduleOp(regions=[Region(block)]))
    out.body.block.add_ops(ops)
    return out


def _statements(trees: Iterable[Tree]) -> Iterator[Statement]:
    """What runs; of a contraction also what its plain loops run, which may read elsewhere (`forward`)."""
    for t in subtrees(trees):
        if isinstance(t, Leaf):
            yield t.stmt
        elif isinstance(t, Box):
            yield t.leaf.stmt
            yield from _statements(t.plain)


def _array(
    name: str, fields: tuple[str, ...], kind: Kind, role: str, cases: Iterable[Cons],
    declared: Formula | None = None,
) -> loops.ArrayOp:
    return loops.ArrayOp(
        properties=_props(
            sym_name=StringAttr(name), index=NamesAttr(fields), element=kind.mlir, role=StringAttr(role),
            domain=_cases(cases),
            declared=None if declared is None else FormulaAttr(declared),
        )
    )  # fmt: skip


def _local(eq: Equation, a: Array | None) -> loops.ArrayOp:
    op = _array(eq.name, eq.fields, eq.kind, "local", eq.domain)
    op.properties |= _props(planar=_flag(eq.planar))
    if a is not None:
        private = None if a.private is None else StringAttr(a.private)
        op.properties |= _props(kept=AxesAttr(a.axes), private=private, in_turn=_flag(a.in_turn))
    return op


def _statement(name: str, array: str, cons: Cons, term: Term) -> loops.StatementOp:
    block = Block()
    _body(block, term, {})
    props = _props(sym_name=StringAttr(name), array=SymbolRefAttr(array), where=ConsAttr(cons))
    return loops.StatementOp(properties=props, regions=[Region(block)])


def _body(block: Block, term: Term, known: Mapping[Term, SSAValue]) -> None:
    """The operations of a term, and what hands its value on; `known` are the values of terms outside."""
    values = dict(known)
    for t in inner_first(term, arguments):
        if t not in values:
            op = _operation(t, values)
            block.add_op(op)
            values[t] = op.results[0]
    block.add_op(loops.YieldOp(values[term]))


def _operation(t: Term, values: Mapping[Term, SSAValue]) -> Operation:
    match t:
        case terms.Number(kind, value):
            return _constant(kind, value)
        case terms.IndexValue(e):
            return loops.IndexOp(properties={"value": ExprAttr(e)}, result_types=[i64])
        case terms.Get(kind, array, index):
            props = _props(array=SymbolRefAttr(array), index=IndexAttr(index))
            return loops.ReadOp(properties=props, result_types=[kind.mlir])
        case terms.Entry(kind, table, at):
            return LookupOp(table, values[at], kind.mlir)
        case terms.Convert(kind, arg):
            return (arith.ExtFOp if kind is Kind.F64 else arith.TruncFOp)(values[arg], kind.mlir)  # pyright: ignore
        case terms.Apply(kind, op, args):
            given = [values[a] for a in args]
            return type(op).create(operands=given, result_types=[kind.mlir], properties=dict(op.properties))
        case terms.Fold(kind, gather, parts, count):
            block = Block([_part(p, values) for p in parts])
            props = _props(gather=StringAttr(gather.value), count=None if count is None else ExprAttr(count))
            return loops.FoldOp(properties=props, regions=[Region(block)], result_types=[kind.mlir])
        case terms.Choice(kind, cases):
            block = Block([_case(when, value, values) for when, value in cases])
            return loops.ChooseOp(regions=[Region(block)], result_types=[kind.mlir])


def _constant(kind: Kind, value: float) -> arith.ConstantOp:
    if kind.is_float:
        number = as_single(value) if kind.mlir == f32 else float(value)
        return arith.ConstantOp(FloatAttr(number, kind.mlir))  # pyright: ignore
    return arith.ConstantOp(IntegerAttr(int(value), i1 if kind is Kind.BOOL else i64))


def _part(p: terms.Part, values: Mapping[Term, SSAValue]) -> loops.PartOp:
    block = Block()
    _body(block, p.body, values if not p.dims else {})  # of other points, other values
    props = _props(over=NamesAttr(p.dims), where=ConsAttr(p.cons), guards=_cases(p.guards))
    return loops.PartOp(properties=props, regions=[Region(block)])


def _case(when: Cons, value: Term, values: Mapping[Term, SSAValue]) -> loops.CaseOp:
    block = Block()
    _body(block, value, values)
    return loops.CaseOp(properties={"where": ConsAttr(when)}, regions=[Region(block)])


def _tree(trees: Iterable[Tree], names: Mapping[Statement, str]) -> list[Operation]:
    return [_node(t, names) for t in trees]


def _region(trees: Iterable[Tree], names: Mapping[Statement, str]) -> Region:
    return Region(Block(_tree(trees, names)))


def _node(t: Tree, names: Mapping[Statement, str]) -> Operation:
    match t:
        case Loop():
            props = _props(
                var=StringAttr(t.var), lows=IndexAttr(t.lows), highs=IndexAttr(t.highs), parallel=_flag(t.parallel),
                tiled=_flag(t.tiled),
            )  # fmt: skip
            return loops.ForOp(properties=props, regions=[_region(t.body, names)])
        case Guard(cons, body, other):
            more = [_region(other, names)] if other else []
            return loops.IfOp(properties={"where": ConsAttr(cons)}, regions=[_region(body, names), more])
        case Leaf(s, env):
            props = _props(statement=SymbolRefAttr(names[s]), at=IndexAttr(tuple(env[f] for f in s.fields)))
            return loops.RunOp(properties=props)
        case Exchange(array, ranges, number):
            at = ExprAttr(IndexExpr.of(number))
            return loops.ExchangeOp(properties=_props(number=at, array=SymbolRefAttr(array), box=RangesAttr(ranges)))
        case Box(leaf, found, plain):
            s = leaf.stmt
            products = [_product(x) for x in found.terms] + ([] if found.padded is None else [_padded(found.padded)])
            props = _props(
                statement=SymbolRefAttr(names[s]), at=IndexAttr(tuple(leaf.env.get(f) for f in s.fields)),
                around=RangesAttr(found.around), over=RangesAttr(found.fields), index=IndexAttr(found.index),
            )  # fmt: skip
            return loops.ContractOp(properties=props, regions=[Region(Block(products)), _region(plain, names)])


def contraction_text(leaf: Leaf, found: Contraction) -> str:
    """What a contraction of a statement is, to compare it with another one."""
    return str(_node(Box(leaf, found, []), {leaf.stmt: "S"}))


def _product(t: Product) -> loops.ProductOp:
    props = _props(
        where=ConsAttr(t.cons), around=RangesAttr(t.around), over=RangesAttr(t.fields), summed=RangesAttr(t.summed),
        of=ArrayAttr(SymbolRefAttr(g.array) for g in t.arrays), reads=ArrayAttr(IndexAttr(g.index) for g in t.arrays),
        indices=ArrayAttr(map(IndexAttr, t.indices)),
    )  # fmt: skip
    return loops.ProductOp(properties=props)


def _padded(p: Padded) -> loops.ProductOp:
    out = _product(p.term)
    limits = tuple(Range(str(i), lows, highs) for i, (lows, highs) in p.limits.items())
    out.properties |= _props(padded=ExprAttr(IndexExpr.of(p.factor)), limits=RangesAttr(limits))
    return out


# -- reading ----------------------------------------------------------------------------------------------------------
def read(op: loops.LoopProgramOp) -> LoopProgram:
    """The program that a verified operation says."""
    return _Reader(op).program()


class _Reader:
    def __init__(self, op: loops.LoopProgramOp):
        self.op = op
        self.lin = Linear(poly_context(op))
        self.declarations = [o for o in op.body.block.ops if isinstance(o, ParamOp | ConstOp | TableOp)]
        self.array_ops = {o.symbol: o for o in op.body.block.ops if isinstance(o, loops.ArrayOp)}
        small = op.real
        self.small = None if small is None else Kind.of(small.data)
        self.kinds = {name: self._kind(o.element) for name, o in self.array_ops.items()}
        self.statements: dict[str, Statement] = {}

    def _kind(self, t: Attribute) -> Kind:
        """The representation of values of a type: of f64 the small type, if there is one."""
        return self.small if self.small is not None and t == f64 else _KINDS[t]

    def program(self) -> LoopProgram:
        ops = list(self.op.body.block.ops)
        hosts: list[Host] = []
        equations: dict[str, Equation] = {}
        blocks = {
            o.first.data: RankBlock(o.first.data, o.last.data, o.low.data, o.high.data)
            for o in ops if isinstance(o, loops.BlockOp)
        }  # fmt: skip
        cuts: dict[str, Cut] = {}
        for name, o in self.array_ops.items():
            cases = tuple(c.data for c in o.domain)
            role = o.role.data
            if role != "local":
                declared = None if o.declared is None else o.declared.data
                hosts.append(Host(name, self.kinds[name], o.fields, declared, cases, role == "output"))
            if o.cut is not None:
                (r,) = o.cut.data
                cuts[name] = cut = Cut(r.var, blocks[str(r.lows[0])], cases)
                own = cut.block.holds(IndexExpr.of(r.var))
                cases = tuple(c for case in cases if self.lin.feasible(c := (*case, *own)))
            if role != "input":
                output, planar = role == "output", o.planar is not None
                equations[name] = Equation(name, self.kinds[name], o.fields, cases, output=output, planar=planar)
        system = System(self.lin, equations, {h.name: (h.kind, h.fields, h.cases) for h in hosts if not h.output})
        schedule = next((o for o in ops if isinstance(o, loops.ScheduleOp)), None)
        for n, o in enumerate(o for o in ops if isinstance(o, loops.StatementOp)):
            eq = equations[o.array.root_reference.data]
            term = self._body(o.body.block, {})
            eq.pieces.append((o.where.data, term))
            number = re.match(r"S(\d+)", o.symbol)
            at = n if number is None else int(number[1])
            self.statements[o.symbol] = statement(system, at, eq, o.where.data, term)
        tree = None if schedule is None else self._trees(schedule.body)
        assumed = self.op.attributes.get(ASSUMED)
        return LoopProgram(
            self.op.sym_name.data, self.declarations, hosts, system, self.op.gather.data == "ordered",
            assumed if isinstance(assumed, ArrayAttr) else None, tree, None, self._arrays(),
            {name: span_of(o) for name, o in self.array_ops.items()}, self.small, cuts,
            {name: Gather(o.partial.data) for name, o in self.array_ops.items() if o.partial is not None},
        )  # fmt: skip

    def _arrays(self) -> dict[str, Array] | None:
        out: dict[str, Array] = {}
        for name, o in self.array_ops.items():
            if o.kept is not None:
                private = None if o.private is None else o.private.data
                out[name] = Array(name, self.kinds[name], o.kept.data, private, in_turn=o.in_turn is not None)
        needed = any(o.role.data == "local" for o in self.array_ops.values())
        return out if out or not needed else None

    # -- terms ----------------------------------------------------------------------------------------------------------
    def _body(self, block: Block, known: Mapping[SSAValue, Term]) -> Term:
        values = dict(known)
        for op in block.ops:
            if isinstance(op, loops.YieldOp):
                return values[op.value]
            values[op.results[0]] = self._term(op, values)
        raise AssertionError("a body that the verifier has seen yields")

    def _term(self, op: Operation, values: Mapping[SSAValue, Term]) -> Term:
        kind = self._kind(op.results[0].type)
        match op:
            case arith.ConstantOp():
                assert isinstance(op.value, FloatAttr | IntegerAttr)
                value = op.value.value.data
                return terms.Number(kind, bool(value) if kind is Kind.BOOL else value)
            case loops.IndexOp():
                return terms.IndexValue(op.value.data)
            case loops.ReadOp():
                return terms.Get(kind, op.array.root_reference.data, _full(op.index))
            case LookupOp():
                return terms.Entry(kind, op.symbol.root_reference.data, values[op.at])
            case arith.ExtFOp() | arith.TruncFOp():
                return terms.Convert(kind, values[op.operands[0]])
            case loops.FoldOp():
                parts = tuple(self._part(o, values) for o in op.parts.block.ops if isinstance(o, loops.PartOp))
                return terms.Fold(kind, Gather(op.gather.data), parts, None if op.count is None else op.count.data)
            case loops.ChooseOp():
                cases = (o for o in op.cases.block.ops if isinstance(o, loops.CaseOp))
                return terms.Choice(kind, tuple((o.where.data, self._body(o.body.block, values)) for o in cases))
            case _:
                return terms.Apply(kind, op, tuple(values[v] for v in op.operands))

    def _part(self, op: loops.PartOp, values: Mapping[SSAValue, Term]) -> terms.Part:
        guards = tuple(g.data for g in op.guards)
        return terms.Part(op.over.data, op.where.data, self._body(op.body.block, values), guards)

    # -- trees ----------------------------------------------------------------------------------------------------------
    def _trees(self, region: Region) -> list[Tree]:
        return [self._node(op) for op in region.block.ops]

    def _node(self, op: Operation) -> Tree:
        match op:
            case loops.ForOp():
                body, tiled = self._trees(op.body), op.tiled is not None
                return Loop(op.var.data, _full(op.lows), _full(op.highs), op.parallel is not None, body, tiled)
            case loops.IfOp():
                return Guard(op.where.data, self._trees(op.then), self._trees(op.other) if op.other else [])
            case loops.RunOp():
                s = self.statements[op.statement.root_reference.data]
                return Leaf(s, dict(zip(s.fields, _full(op.at), strict=True)))
            case loops.ExchangeOp():
                return Exchange(op.array.root_reference.data, op.box.data, op.number.data.constant or 0)
            case loops.ContractOp():
                s = self.statements[op.statement.root_reference.data]
                assert isinstance(s.term, terms.Fold)
                env = {f: e for f, e in zip(s.fields, op.at.data, strict=True) if e is not None}
                products = [o for o in op.products.block.ops if isinstance(o, loops.ProductOp)]
                parts = tuple(self._product(o) for o in products if o.padded is None)
                padded = next((self._padded(o) for o in products if o.padded is not None), None)
                found = Contraction(s.term, op.around.data, op.over.data, _full(op.index), parts, padded)
                return Box(Leaf(s, env), found, self._trees(op.plain))
            case _:
                raise AssertionError(op.name)

    def _product(self, op: loops.ProductOp) -> Product:
        names = [ref.root_reference.data for ref in op.of]
        a, b = (terms.Get(self.kinds[n], n, _full(x)) for n, x in zip(names, op.reads, strict=True))
        x, y, z = (_full(i) for i in op.indices)
        return Product(op.where.data, op.around.data, op.over.data, op.summed.data, (a, b), (x, y, z))

    def _padded(self, op: loops.ProductOp) -> Padded:
        assert op.padded is not None
        limits = {int(r.var): (r.lows, r.highs) for r in op.limits.data} if op.limits is not None else {}
        return Padded(self._product(op), op.padded.data.constant or 0, limits)


def _full(index: IndexAttr) -> tuple[IndexExpr, ...]:
    """An index without stars, as the verifier has seen."""
    return tuple(e for e in index.data if e is not None)


