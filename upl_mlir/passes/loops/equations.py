# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""A checked affine program as a system of equations between arrays (the pull form).

    Sum.s<d,k,i>  =  fold + over j of  Res.r<d,k,j> * W<d,k,j,i>
    Res.r<d,k,i>  =  X<d,i>                      where k == 1
                  =  (Sum.s<d,k-1,i> > 0) * ...  where k > 1

Every arrow is turned round (`pull`), so that each element is written once and nothing is scattered: the adjoint of a stencil
comes out as a stencil.  Where several arrows serve an input, the equation's domain is cut into pieces on each of which one
form holds; what is left undecided becomes a choice, or a guard inside a fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import BlockArgument, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import ConstOp, Gather, InputOp, NodeOp, OutputOp, Port, ProgramOp, Special
from upl_mlir.dialects.upl.kinds import Kind, kind_of
from upl_mlir.dialects.upl.precision import require_one_real, resolve
from upl_mlir.dialects.upl.query import (
    Endpoint,
    arrows,
    poly_context,
    real_constants,
    span_of,
    target_port,
    value_names,
)
from upl_mlir.ops.choices import choose_lazily
from upl_mlir.passes.analysis.at_sizes import refuse_data_count
from upl_mlir.passes.analysis.relations import ProgramSets, because
from upl_mlir.passes.build import unused
from upl_mlir.passes.loops.emit.bodies import Bodies
from upl_mlir.passes.loops.graph import WORTH, Graph
from upl_mlir.passes.loops.iterators import common, determined, few, here, hull, thin_piece
from upl_mlir.passes.loops.known import truth
from upl_mlir.passes.loops.places import place_of
from upl_mlir.passes.loops.pull import Inverse, PulledArrow, disjoint, invert, subtract, union
from upl_mlir.passes.loops.system import Equation, System
from upl_mlir.passes.loops.terms import Choice, Convert, Fold, Get, IndexValue, Number, Part, Term, alike
from upl_mlir.poly.expr import TRUE, Div, Formula, IndexExpr
from upl_mlir.poly.linear import Con, Cons, Linear

MAX_PIECES = 16
"""Into so many pieces a domain is cut; conditions left then are tested inside. Chosen, not measured."""
MAX_TERMS = 100
"""So many terms are built for an equation before its domain is cut no more, though it has few pieces: elimination takes
parts for possible that have no point. Of one random program 1,000 were built in four minutes. Chosen: most build 3."""
MAX_FOR_FEW = 6
"""Beyond so many pieces a domain is not cut any more for folds of few summands. More pieces are no faster in the gradient of
`examples/jacobi2d.upl`, and take LLVM half as long again."""

Env = Mapping[str, IndexExpr]


@dataclass
class _NothingArrives(Exception):
    """No arrow serves an input (`what`, of `op`) under the constraints at hand."""

    what: str
    op: Endpoint


class Builder:
    """Builds the equations that the outputs of a program need."""

    def __init__(
        self, program: ProgramOp, real: Kind, *, ordered: bool, fixed: Mapping[str, int], plain: bool, split: bool,
        again: bool,
    ):  # fmt: skip
        self.program, self.real, self.ordered = program, real, ordered
        self.most = 0 if plain else MAX_PIECES
        self.split = split and not plain
        by_tables = any(e.lookups() for send in arrows(program) for e in send.index.data if e is not None)
        self.lin = Linear(poly_context(program, fixed), one_by_one=by_tables)
        self.graph = Graph(program, self.lin, worth=0 if plain else WORTH)
        self.graph.choose(again=again and not plain)
        self.reals = real_constants(program)
        self.bodies = Bodies(self)
        self._inverses: dict[int, list[Inverse]] = {}
        self._domains: dict[str, tuple[Cons, ...]] = {}
        self._sets: ProgramSets | None = None
        self._fresh = 0
        self._taken = value_names(program).union(*(op.fields for op in self.graph.ends.values()))
        self.equations: dict[str, Equation] = {}
        self._todo: list[Equation] = []
        self._define: dict[str, tuple[str, object]] = {}
        # of the piece that is being built
        self.fields: frozenset[str] = frozenset()
        self.undecided: dict[Cons, bool] = {}
        """The conditions that are open. If False, one is only asked by summands of a fold of few."""
        self.borders: dict[Con, None] = {}
        """Where a truth changes along the iterators of the folds that are being built."""
        self._memo: dict[object, Term] = {}
        self._building: set[object] = set()
        self._terms = 0  # built for the equation at hand, those of parts that were cut again among them

    # -- the system ---------------------------------------------------------------------------------------------------
    def build(self) -> System:
        """All equations.  Raises UplError (UPL19xx)."""
        hosts: dict[str, tuple[Kind, tuple[str, ...], tuple[Cons, ...]]] = {}
        for op in self.graph.ends.values():
            if isinstance(op, InputOp):
                hosts[op.symbol] = (kind_of(op.type, self.real), op.fields, self.domain(op))
            elif isinstance(op, OutputOp):
                self._equation(op.symbol, kind_of(op.type, self.real), op.fields, self.domain(op), output=True)
        while self._todo:
            self._fill(self._todo.pop(0))
        return System(self.lin, self.equations, hosts)

    def _equation(
        self, name: str, kind: Kind, fields: tuple[str, ...], domain: tuple[Cons, ...], *, output: bool = False
    ) -> Equation:
        if name not in self.equations:
            self.equations[name] = Equation(name, kind, fields, domain, output=output)
            self._todo.append(self.equations[name])
        return self.equations[name]

    def domain(self, op: Endpoint) -> tuple[Cons, ...]:
        """The domain of a port or node as disjoint cases."""
        if op.symbol not in self._domains:
            attr = op.domain or op.declared
            cases = self.lin.cases(attr.data if attr else TRUE)
            cases = [self.lin.minimal(c) for c in cases if self.lin.feasible(c)]
            self._domains[op.symbol] = tuple(disjoint(self.lin, cases))
        return self._domains[op.symbol]

    def inverses(self, a: PulledArrow) -> list[Inverse]:
        """The arrow turned round; a gather's is one."""
        if a.at not in self._inverses:
            self._inverses[a.at] = invert(
                self.lin, a, ordered=self.ordered, express=self._express, context=self.domain(a.target),
                places=lambda a, entry, value: place_of(self._exact_sets(), a, entry, value, self.lin),
            )  # fmt: skip
        return self._inverses[a.at]

    def _express(self, a: PulledArrow, unknown: str) -> IndexExpr | None:
        """A source field over the target's fields by exact sets, for arrows that elimination alone cannot turn round."""
        sets = self._exact_sets()
        arrow = sets.arrows[a.at]
        e = sets.relation(arrow).express(IndexExpr.of(unknown.removesuffix("'")), arrow.dst)
        return None if e is None else e.substitute(dict(zip(arrow.dst, a.target.fields, strict=True)))

    def _exact_sets(self) -> ProgramSets:
        if self._sets is None:
            self._sets = ProgramSets(self.program)
        return self._sets

    # -- pieces -------------------------------------------------------------------------------------------------------
    def _fill(self, eq: Equation) -> None:
        """Cut the domain into pieces and build each one's term."""
        self._terms = 0
        for case in eq.domain:
            self._cut(eq, case)
        self._join(eq)
        if not eq.pieces and eq.domain:
            raise self._no_token(eq.name, self.graph.ends[eq.name.partition(".")[0].partition(":")[0]])

    def _cut(self, eq: Equation, at: Cons) -> None:
        self._terms += 1
        try:
            term = self._term(eq, at)
        except _NothingArrives as e:
            if self._exists(at):
                raise self._no_token(e.what, e.op) from None
            return
        thin = self.split and (len(eq.pieces) >= MAX_FOR_FEW or thin_piece(self.lin, at, eq.fields))
        conditions = [c for c, always in self.undecided.items() if always or not thin]
        if not conditions or len(eq.pieces) >= self.most or self._terms > MAX_TERMS:
            eq.pieces.append((at, term))
            return
        whole = self.lin.tidy(c for cond in conditions for c in cond)
        if not self.lin.feasible((*at, *whole)) or self._pinned(eq, at, whole):
            whole = conditions[0]
        inside = (*at, *whole)
        outside = subtract(self.lin, at, whole)
        if self.lin.feasible(inside):
            self._cut(eq, inside)
        for rest in outside:
            self._cut(eq, rest)

    def _join(self, eq: Equation) -> None:
        """Make one of neighbouring pieces of the same form: cutting goes by one condition after the other."""
        pieces: list[tuple[Cons, Term]] = []
        for at, term in eq.pieces:
            for i, (other, same) in enumerate(pieces):
                divided = any(isinstance(x, Div) for c in (*other, *at) for x in c.e.atoms())
                both = union(self.lin, other, at, self._exists if divided else None) if alike(same, term) else None
                if both is not None:
                    pieces[i] = (both, same)
                    break
            else:
                pieces.append((at, term))
        eq.pieces = pieces

    def _exists(self, at: Cons) -> bool:
        """Whether the constraints have a point: False is a proof."""
        where = Formula.all(Formula.compare(c.e, "==" if c.eq else ">=", 0) for c in at)
        ctx = self.lin.ctx
        names = {n for c in at for n in c.e.names} - {*ctx.params, *ctx.constants}
        return not ctx.set(sorted(names), where).is_empty()

    def _pinned(self, eq: Equation, at: Cons, cond: Cons) -> bool:
        """Whether a condition leaves one value of a field."""
        return any(c.eq for c in cond)

    def _term(self, eq: Equation, at: Cons) -> Term:
        """The term of one piece; `undecided` then holds the conditions that were left open in it."""
        self.fields = frozenset(eq.fields)
        self.undecided = {}
        self._memo, self._building = {}, set()
        env = {f: IndexExpr.of(f) for f in eq.fields}
        what, of = self._define.get(eq.name, ("port", None))
        if what == "value":
            assert isinstance(of, SSAValue)
            return self.bodies.compute(of, env, at)
        if eq.output:
            op = self.graph.ends[eq.name]
            return self._ordinary(op, target_port(op, None), env, at)
        node = self.graph.ends[eq.name.partition(".")[0]]
        assert isinstance(node, NodeOp)
        port = node.port(eq.name.partition(".")[2])
        assert port is not None
        return self._fold(node, port, env, at) if port.gather else self._ordinary(node, port, env, at)

    # -- inputs -------------------------------------------------------------------------------------------------------
    def port_value(self, node: NodeOp, port: Port, env: Env, at: Cons) -> Term:
        """What arrives on an input of the instance `env` of a node."""
        key = (node.symbol, port.name)
        if key in self.graph.stored_ports:
            name = f"{node.symbol}.{port.name}"
            self._equation(name, kind_of(port.type, self.real), node.fields, self.domain(node))
            return Get(kind_of(port.type, self.real), name, tuple(env[f] for f in node.fields))
        memo = (key, tuple(env[f] for f in node.fields), at)
        if memo not in self._memo:
            if key in self._building:  # a ring of inputs of one arrow each has no entry, wherever it leads
                if not self._exists(at):
                    raise _NothingArrives(_name(node, port), node)
                what = f"`{_name(node, port)}` waits for itself"
                raise error("UPL1823", what, span_of(node), help="run `upl check`, which shows the ring")
            self._building.add(key)
            try:
                self._memo[memo] = (self._fold if port.gather else self._ordinary)(node, port, env, at)
            finally:
                self._building.remove(key)
        return self._memo[memo]

    def _ordinary(self, op: Endpoint, port: Port, env: Env, at: Cons) -> Term:
        kind = kind_of(port.type, self.real)
        found: list[tuple[Cons, Inverse]] = []
        for a in self.graph.into.get((op.symbol, port.name), ()):
            for inverse in self.inverses(a):
                for case in inverse.cases:
                    own = here(self.lin, case, env)
                    if self.lin.feasible((*at, *own)):
                        found.append((own, inverse))
        if len(found) == 1:  # every instance gets a token: no need to ask
            return self._sent(found[0][1], {}, env, kind, at)
        before = dict(self.undecided)
        cases = [(here, self._sent_if_any(inverse, {}, env, kind, (*at, *here))) for here, inverse in found]
        there = [(here, t) for here, t in cases if t is not None]
        if not there:
            raise _NothingArrives(_name(op, port), op)
        sent = [t for _, t in there]
        if all(_same_element(sent[0], t) for t in sent):  # every case reads the same: no need to ask either
            return sent[0]
        open_ = [tuple(c for c in here if not self.lin.implies(at, c)) for here, _ in there]
        inside, self.undecided = self.undecided, before  # what is asked here first comes first
        for cond in open_:
            self._leave_open(cond)
        self.undecided |= inside
        return Choice(kind, tuple(zip(open_, sent, strict=True)))

    def _leave_open(self, cond: Cons, *, always: bool = True) -> None:
        """Note a condition by which the equation's domain may be cut; unless `always`, only where that makes long loops."""
        if cond and all(c.e.names <= self.fields | set(self.lin.ctx.params) for c in cond):
            self.undecided[cond] = always or self.undecided.get(cond, False)

    def _no_token(self, what: str, op: Endpoint) -> Exception:
        sets = self._exact_sets()
        why = because(sets.domain(op.symbol), *map(sets.relation, sets.into(op.symbol)))
        if why:  # an open question, no fault that was found
            message = f"native code cannot tell that something arrives at `{what}` for each of its instances{why}"
            return error("UPL1823", message, span_of(op), help='use engine="interp" or "token"')
        message = f"nothing arrives at `{what}` for some of its instances"
        return error("UPL1823", message, span_of(op), help="run `upl check`, which shows the instances")

    def _sent_if_any(self, inverse: Inverse, free: Env, env: Env, kind: Kind, at: Cons) -> Term | None:
        """As `_sent`; None for constraints that elimination takes for possible, and that have no point.

        So it is with entries of arrays, of which elimination knows only between which numbers all of them are.
        """
        before = dict(self.undecided)
        try:
            return self._sent(inverse, free, env, kind, at)
        except _NothingArrives:
            if self._exists(at):
                raise
            self.undecided = before
            return None

    def _sent(self, inverse: Inverse, free: Env, env: Env, kind: Kind, at: Cons) -> Term:
        """The value of an arrow's token at its target's instance `env`; `free` names the unknowns that stay."""
        values = {**env, **free}
        source = inverse.arrow.source
        own = {f: inverse.values[f].substitute(values) for f in source.fields}
        term = self.source_value(source, inverse.arrow.send.value, own, at)
        if term.kind is kind or not kind.is_float or not term.kind.is_float:
            return term
        return Number(kind, term.value) if isinstance(term, Number) else Convert(kind, term)

    def source_value(self, source: InputOp | NodeOp, v: SSAValue, env: Env, at: Cons) -> Term:
        """A sent value at an instance of its source: read where it is stored, else computed."""
        v = resolve(v)
        if v in self.graph.stored_values:
            name = self._value_name(source, v)
            kind = self.bodies.kind(v)
            if name not in self.equations:
                self._define[name] = ("value", v)
                self._equation(name, kind, source.fields, self._needed(source, v))
            return Get(kind, name, tuple(env[f] for f in source.fields))
        memo = (v, tuple(env[f] for f in source.fields), at)
        if memo not in self._memo:
            self._memo[memo] = self.bodies.compute(v, env, at)
        return self._memo[memo]

    def _value_name(self, source: InputOp | NodeOp, v: SSAValue) -> str:
        at = list(self.graph.stored_values_of(source)).index(v)
        return f"{source.symbol}:{at}"

    def _needed(self, source: InputOp | NodeOp, v: SSAValue) -> tuple[Cons, ...]:
        """The instances at which some arrow sends the value."""
        whole = self.domain(source)
        conditions = [a.send.when for a in self.graph.out_of[v]]
        if any(c.is_true for c in conditions):
            return whole
        out: list[Cons] = []
        for case in self.lin.cases(Formula.any(conditions)):
            out += [(*d, *case) for d in whole if self.lin.feasible((*d, *case))]
        return tuple(self.lin.minimal(c) for c in disjoint(self.lin, out))

    # -- gathers ------------------------------------------------------------------------------------------------------
    def _fold(self, node: NodeOp, port: Port, env: Env, at: Cons) -> Term:
        kind = kind_of(port.type, self.real)
        assert port.gather is not None
        parts: list[Part] = []
        for a in self.graph.into.get((node.symbol, port.name), ()):
            (inverse,) = self.inverses(a)
            parts += self._parts(inverse, env, kind, at)
        if port.gather is Gather.SUM and not self.ordered:  # summands that are 0 add nothing
            parts = [p for p in parts if not isinstance(p.body, Number) or p.body.value] or parts[:1]
        count: IndexExpr | None = None
        if port.count is not Special.CARRIED:
            assert isinstance(port.count, IndexExpr)
            refuse_data_count(node, port)
            count = self.lin.plain(port.count).substitute(dict(env))
            if self.lin.implies(at, Con(count - 1)):
                count = None
        if not parts and count is None:
            raise _NothingArrives(_name(node, port), node)
        return Fold(kind, port.gather, tuple(parts), count)

    def _parts(self, inverse: Inverse, env: Env, kind: Kind, at: Cons) -> list[Part]:
        free: dict[str, IndexExpr] = {}
        for u in inverse.free:
            free[u] = IndexExpr.of(self._iterator(u.removesuffix("'")))
        dims = tuple(e.name or "" for e in free.values())
        names = {**env, **free}
        cases = [case for c in inverse.cases if self.lin.feasible((*at, *(case := here(self.lin, c, names))))]
        if not cases:
            return []
        together = tuple(cases) if dims and len(cases) > 1 and self.ordered else ()  # one loop keeps the order
        if together:
            shared = common(self.lin, cases, at)
            written_out = self.split and few(self.lin, dims, shared) is not None
            cases = [shared if written_out else hull(self.lin, cases, dims, at, self.fields)]
        out: list[Part] = []
        spare = 0 if self.ordered else self.most  # parts would put the summands in another order
        todo = [(c, False) for c in reversed(cases)]
        while todo:
            whole, one_of_few = todo.pop()
            left, case, fixed = determined(self.lin, dims, whole)
            if self.split and left and (values := few(self.lin, left, case)) is not None:
                x = IndexExpr.of(left[0])
                points = ((*whole, Con(x - e, True)) for e in reversed(values))
                todo += [(c, True) for c in points if self.lin.feasible((*at, *c))]
                continue
            guarded = self._guarded(left, case, [here(self.lin, t, fixed) for t in together], at)
            if guarded is None:
                continue
            over, case, guards = guarded
            own = {u: e.substitute(fixed) for u, e in free.items()}
            outside, self.borders, before = self.borders, {}, dict(self.undecided)
            for guard in guards:
                self._leave_open(guard, always=not one_of_few)
            body = self._sent_if_any(inverse, own, env, kind, (*at, *case))
            border = next((c for c in self.borders if c.e.names & set(left)), None)
            self.borders = outside | {c: None for c in self.borders if not c.e.names & set(dims)}
            if body is None:
                continue
            if border is not None and spare > 0:
                self.undecided, spare = before, spare - 1
                apart = [(*case, n) for n in border.negated()]
                todo += [(c, False) for c in (*reversed(apart), (*case, border)) if self.lin.feasible((*at, *c))]
                continue
            out.append(Part(left, over, body, guards))
        return out

    def _guarded(
        self, left: tuple[str, ...], case: Cons, together: Sequence[Cons], at: Cons
    ) -> tuple[Cons, Cons, tuple[Cons, ...]] | None:
        """What bounds the iterators that are `left`, all that holds of a summand, and of what one has to hold beside it;
        None for no summand.  Of the cases that come `together` one holds, if there are any."""
        found = [c for c in together if self.lin.feasible((*at, *case, *c))]
        if together and not found:
            return None
        rest = [tuple(c for c in t if not self.lin.implies((*at, *case), c)) for t in found]
        if len(found) == 1:
            case, rest = self.lin.tidy((*case, *rest[0])), []
        over = tuple(c for c in case if c.e.names & set(left))
        guard = tuple(c for c in case if not c.e.names & set(left) and not self.lin.implies(at, c))
        if not rest or not all(rest):
            return over, case, (guard,) if guard else ()
        return (case, case, tuple(rest)) if left else ((), case, tuple((*guard, *r) for r in rest))

    def _iterator(self, name: str) -> str:
        """A name like the given one that nothing else has, no other fold's iterator either."""
        self._fresh += 1
        return unused(f"{name}_{self._fresh}", self._taken)

    def holds(self, condition: Term, at: Cons) -> bool | None:
        """Whether a condition of a body holds throughout `at`; what decides it is noted as a border."""
        return truth(self.lin, condition, at, self._border) if self.split else None

    def _border(self, con: Con) -> None:
        if con.e.names <= self.fields | set(self.lin.ctx.params):
            self.undecided[(con,)] = True
        else:
            self.borders[con] = None

    # -- what bodies ask ----------------------------------------------------------------------------------------------
    def argument(self, arg: BlockArgument, env: Env, at: Cons) -> Term:
        """A block argument: a field, an input of a node, or the element of a host input."""
        owner = arg.block.parent_op()
        assert isinstance(owner, NodeOp | InputOp)
        n = len(owner.fields)
        if arg.index < n:
            return IndexValue(env[owner.fields[arg.index]])
        if isinstance(owner, InputOp):
            return Get(kind_of(owner.type, self.real), owner.symbol, tuple(env[f] for f in owner.fields))
        return self.port_value(owner, owner.ports[arg.index - n], env, at)

    def symbol(self, name: str) -> Term:
        """A constant or parameter as a value."""
        if name in self.reals:
            return Number(self.real, self.reals[name])
        if name in self.lin.ctx.constants:
            return Number(Kind.INT, self.lin.ctx.constants[name])
        for op in self.program.body.block.ops:
            if isinstance(op, ConstOp) and op.symbol == name:
                assert isinstance(op.value, FloatAttr | IntegerAttr)
                return Number(self.real, op.value.value.data)
        return IndexValue(IndexExpr.of(name))


def _name(op: Endpoint, port: Port) -> str:
    """What an input is called in messages."""
    return f"{op.symbol}.{port.name}" if isinstance(op, NodeOp) else op.symbol


def _same_element(a: Term, b: Term) -> bool:
    """Whether two terms are the same element of an array."""
    return isinstance(a, Get) and isinstance(b, Get) and (a.kind, a.array, a.index) == (b.kind, b.array, b.index)


def equations(
    program: ProgramOp, real: Kind, *, ordered: bool, fixed: Mapping[str, int] | None = None, plain: bool = False,
    split: bool = True, again: bool = True,
) -> System:  # fmt: skip
    """The equations of a checked affine program with known domains.

    `real` is what `real` means, `ordered` whether folds keep the order of LANGUAGE 3.10, `fixed` parameters that are
    numbers.  `plain` ones are for readers: conditions stay inside, and nothing is computed twice.  Unless `split`, domains
    are not cut by the conditions of bodies; unless `again`, values behind sums are not computed again.

    Raises UplError (UPL1808, UPL18xx).
    """
    require_one_real(program, real)
    if not plain:
        program = choose_lazily(program, indices_fit=True)  # whoever calls the function sees to it
    return Builder(program, real, ordered=ordered, fixed=fixed or {}, plain=plain, split=split, again=again).build()
