"""`lower-hw`: from a UPL program to a program of the tagged-token machine (docs/machine_program.md, "Program")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import cast

from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    DenseArrayBase,
    ModuleOp,
    f32,
    i1,
    i32,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass

from upl_mlir.diagnostics import error
from upl_mlir.dialects import ttm, upl
from upl_mlir.dialects.upl import Port, Special, UplType
from upl_mlir.dialects.upl.query import (
    Endpoint,
    domain_of,
    endpoints,
    first_index,
    inputs,
    is_integer_array,
    poly_context,
    program_of,
    real_constants,
    require_determined,
    source_of,
    span_of,
    symbols,
    target_port,
)
from upl_mlir.ops import Body
from upl_mlir.ops.choices import Tell, guard_operands
from upl_mlir.passes.analysis.proved import require_proved
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets, because
from upl_mlir.passes.analysis.streams import streams
from upl_mlir.passes.arrows import connect, here, new_node
from upl_mlir.passes.build import condition, unused
from upl_mlir.passes.expand import expand
from upl_mlir.passes.hardware.code import Code, all_branches, constant_of, narrow
from upl_mlir.passes.hardware.limit_inputs import counting_only, limit_inputs, tokens_for
from upl_mlir.passes.hardware.strata import announcer, ends_on_domain, rank_numbers
from upl_mlir.poly.counts.dense import points_where
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.sets import PolyContext

MAX_BOOT_TOKENS = 1 << 20
"""Gathers that are complete from the start, at most: each is a line of the program. Chosen, not measured."""
MAX_EXPANDED = 1 << 16
"""Tokens that an arrow with `*` may become at most."""
OPEN_RUNS = 2
"""Runs of neighbouring `*` fields that the machine's tokens may have."""


@dataclass(frozen=True)
class LowerHwPass(ModulePass):
    """Replace the UPL program by one for the machine.

    Requires: all domains known; no `adjoint of` directives; all parameters bound (the widths of index fields come from
    the domains), no declared f64; nothing that `check` refutes. (`upl run --force` runs even a refuted program, and the
    machine detects the error.)
    Establishes: a `ttm.program` instead of the `upl.program`. It has all that a run needs: domains of nodes and ports,
    and the fields along which the program streams.
    Source: docs/machine_program.md, "Program"; Klimov's PPVS as the model of the machine.

        upl.node @Sum <"d,k,i"> <"@(+) s[#]"> { upl.send %s -> @AF_ReLU::@s <"d,k,i"> }
        ->
        ttm.node @Sum <"d from 1 bits 2, k from 1 bits 3, i from 1 bits 3"> <"@(+) s: f32"> in <"1<=d<=3 && ..."> {
          ttm.send %s -> @AF_ReLU::@s tag %d, %k, %i as "xxx" : f32
        }
    """

    name = "lower-hw"
    machine: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = program_of(op)
        expand(program)
        require_proved(program)
        new = lower_hw(program, self.machine)
        op.body.block.insert_op_before(new, program)
        program.detach()
        program.erase()


def lower_hw(program: upl.ProgramOp, machine: str | None = None, max_inputs: int = 4) -> ttm.ProgramOp:
    """The machine's program; the UPL program is prepared in place: nodes with more than `max_inputs` inputs are divided, and
    a node stands wherever the host would send to itself.

    Raises UplError (UPL1730–UPL1732, UPL1306).
    """
    require_determined(program)
    guard_operands(program, arrows=partial(_tell, poly_context(program)))
    _through_nodes(program)
    limit_inputs(program, max_inputs)
    return _Lowering(program).run(machine)


def _tell(ctx: PolyContext, op: upl.InputOp | upl.NodeOp) -> Tell:
    """What writes a condition of an arrow into the body of its node: the machine computes the body before all conditions."""
    env = dict(zip(op.fields, op.block.args, strict=False))
    return lambda body, f: condition(body, f, env, all_branches(ctx))


def _through_nodes(program: upl.ProgramOp) -> None:
    """Between a host input and a host output comes a node that passes tokens on."""
    taken = symbols(program)
    made: dict[str, str] = {}
    ends = endpoints(program)
    for send in [s for op in inputs(program) for s in op.sends]:
        target = ends[send.target_name]
        if not isinstance(target, upl.OutputOp):
            continue
        name = made.get(target.symbol)
        if name is None:
            made[target.symbol] = name = unused(f"{target.symbol}_through", taken)
            whole = target.fields, domain_of(target) or TRUE
            node = new_node(
                program, name, [Port("x", target.type)], whole, target, name, f"on the way to {target.symbol}"
            )
            to = upl.port_ref(target.symbol)
            connect(program, node, node.arg("x"), to, here(target.fields), rule="through", origin=send)
        send.target = upl.port_ref(name, "x")


def _element(t: UplType, at: Operation, what: str) -> Attribute:
    match t:
        case UplType.REAL | UplType.F32:
            return f32
        case UplType.INT:
            return i32
        case UplType.BOOL:
            return i1
        case UplType.F64:
            raise error("UPL1731", f"{what} is declared f64, the machine computes in f32", span_of(at),
                        help="declare it real or f32")  # fmt: skip


class _Lowering:
    """One program."""

    def __init__(self, program: upl.ProgramOp):
        self.program = program
        self.sets = ProgramSets(program)
        self.reals = real_constants(program)
        if self.sets.ctx.params:
            names = ", ".join(f"`{p}`" for p in self.sets.ctx.params)
            raise error(
                "UPL1730", f"the parameter {names} is open: the widths of index fields depend on it", span_of(program),
                help=f"bind it, for instance with -D {self.sets.ctx.params[0]}=2",
            )  # fmt: skip
        self.ranks = rank_numbers(program, self.sets)

    def run(self, machine: str | None) -> ttm.ProgramOp:
        for op in self.program.body.block.ops:
            if isinstance(op, upl.NodeOp):
                self._inputs(op)  # what cannot be built is said before anything uses it
        ops: list[Operation] = []
        for op in self.program.body.block.ops:
            new: Operation | None = None
            match op:
                case upl.ArrayOp():
                    element = i32 if is_integer_array(op) else f32
                    new = ttm.TableOp(op.symbol, first_index(op), cast(DenseArrayBase, op.values), element)
                case upl.OutputOp():
                    element = _element(op.type, op, f"`{op.symbol}`")
                    new = ttm.OutputOp(op.symbol, self._fields(op), element, self._elements(op))
                case upl.InputOp():
                    inputs = [ttm.Input(op.symbol, _element(op.type, op, f"`{op.symbol}`"))]
                    domain = self._elements(op)
                    new = ttm.NodeOp(op.symbol, self._fields(op), inputs, self._body(op), domain=domain, host=True)
                case upl.NodeOp():
                    domain = self._domain(domain_of(op))
                    new = ttm.NodeOp(op.symbol, self._fields(op), self._inputs(op), self._body(op), domain=domain)
                    ops += self._boot(op)
                case _:
                    continue
            new.location = op.location
            ops.append(new)
        out = ttm.ProgramOp(self.program.sym_name.data, ops, machine, tuple(streams(self.program)))
        out.location = self.program.location
        return out

    def _elements(self, op: upl.InputOp | upl.OutputOp) -> Formula | None:
        """The elements of a host port's array: its declared domain, else what was inferred."""
        return self._domain(op.declared.data if op.declared else domain_of(op))

    def _domain(self, domain: Formula | None) -> Formula | None:
        """A domain over fields and tables alone; None where there is nothing to say of it."""
        return None if domain is None or domain.is_true else domain.rewrite(partial(constant_of, self.sets.ctx))

    def _fields(self, op: Endpoint) -> list[ttm.Field]:
        domain = self.sets.domain(op.symbol)
        out: list[ttm.Field] = []
        for f in op.fields:
            lo, hi = domain.extent(f)
            if lo is None or hi is None:
                if domain.is_empty():
                    lo = hi = 0
                else:
                    raise error(
                        "UPL1732", f"the field `{f}` of `{op.symbol}` has no bound{because(domain)}", span_of(op)
                    )
            out.append(ttm.Field(f, lo, max(0, hi - lo).bit_length()))
        return out

    def _inputs(self, op: upl.NodeOp) -> list[ttm.Input]:
        out: list[ttm.Input] = []
        for p in tokens_for(op):
            what = f"`{op.symbol}.{p.name}`"
            out.append(ttm.Input(p.name, _element(p.type, op, what), p.gather, p.open))
        return out

    def _boot(self, op: upl.NodeOp) -> list[Operation]:
        """Gathers without summands are complete from the start, open ones exist where the domain says so (LANGUAGE 3.3)."""
        out: list[Operation] = []
        ends = ends_on_domain(op)
        for p in op.ports:
            if p.open and ends:
                where = TRUE
            elif p.gather is None or not isinstance(p.count, IndexExpr) or _counted_by_input(op, p):
                continue
            else:
                where = Formula.compare(p.count, CmpOp.LE, 0)
            for n, point in enumerate(points_where(self.sets.ctx, op.fields, domain_of(op) or TRUE, where)):
                if n >= MAX_BOOT_TOKENS:
                    raise error("UPL1732", f"`{op.symbol}.{p.name}` has too many gathers without summands", span_of(op))
                at = dict(zip(op.fields, point, strict=True))
                rank = self.ranks[op.symbol].evaluate(at, self.sets.ctx.read) if p.open else None
                out.append(ttm.BootOp(upl.port_ref(op.symbol, p.name), point, rank))
        return out

    # -- code --------------------------------------------------------------------------------------------------------
    def _body(self, op: upl.InputOp | upl.NodeOp) -> Region:
        args = list(op.block.args)
        names_: list[str] = [*op.fields, op.symbol]
        if isinstance(op, upl.NodeOp):
            ports = [p.name for p in tokens_for(op)]
            names_ = [*op.fields, *ports]
            args = [*args[: len(op.fields)], *map(op.arg, ports)]
        block = Block(arg_types=[narrow(a.type) for a in args])
        env: dict[SSAValue, SSAValue] = {}
        for old, new in zip(args, block.args, strict=True):
            new.name_hint = old.name_hint
            env[old] = new
        names: dict[str, SSAValue] = dict(zip(names_, block.args, strict=True))
        code = Code(self.sets.ctx, self.reals, Body(block), names)
        for o in op.block.ops:
            code.body.location = o.location
            if isinstance(o, upl.SendOp):
                self._send(code, o, env)
            else:
                env[o.results[0]] = code.operation(o, env)
        return Region(block)

    def _send(self, code: Code, send: upl.SendOp, env: Mapping[SSAValue, SSAValue]) -> None:
        fits, inside = self._fits(send), bool(send.loops)
        when = send.when if inside else send.when & fits
        guard: SSAValue | None = code.condition(when) if not when.is_true else None
        if send.predicate is not None:
            data = env[send.predicate]
            guard = data if guard is None else code.body.add(arith.AndIOp(guard, data))
        inner = code
        if guard is not None:
            inner = code.nested(partial(ttm.WhenOp, guard), ())
        for it in send.loops:
            lo, hi = inner.index(it.lo), inner.index(it.hi)
            inner = inner.nested(partial(ttm.ForOp, lo, hi), (it.name,))
        point, index, count = send.when_point & fits if inside else send.when_point, send.index.data, self._count(send)
        if self._expands(send):
            inner, index, there = self._each(inner, send)
            point = point & there
            count = count if isinstance(count, Special) else IndexExpr.of(1)
        if not point.is_true:
            inner = inner.nested(partial(ttm.WhenOp, inner.condition(point)), ())
        tag = [None if e is None else inner.index(e) for e in index]
        times = None if isinstance(count, Special) or count.constant == 1 else inner.index(count)
        node, name = endpoints(self.program)[send.target_name], send.target_port
        if isinstance(node, upl.NodeOp):
            for p in node.ports:
                if p.gather is not None and isinstance(p.count, IndexExpr) and p.count.name == name:
                    self._tell(inner, send, node, p, tag, env[send.value])
            if name in counting_only(node):
                return
            times = self._announce(inner, send, node, tag) or times
        inner.body.emit(ttm.SendOp(env[send.value], send.target, tag, times, unbounded=count is Special.UNBOUNDED))

    def _tell(
        self, code: Code, send: upl.SendOp, node: upl.NodeOp, port: Port, tag: Sequence[SSAValue | None], n: SSAValue
    ) -> None:
        """Tell a gather the number of its summands by one more of them, which changes nothing."""
        if send.multiplicity is Special.UNBOUNDED or None in tag:
            where = f"`{node.symbol}.{send.target_port}`"
            message = f"{where} counts summands, and is sent with `##` or `*`: not built yet"
            raise error("UPL1732", message, span_of(send))
        add, constant = code.body.add, code.body.constant
        assert port.gather is not None
        type_ = narrow(port.type.mlir())
        least, greatest = -(2**31), 2**31 - 1
        neutral = constant(port.gather.neutral if type_ == f32 else port.gather.empty_integer(least, greatest), type_)
        n = add(arith.MaxSIOp(n, constant(0, i32)))  # LANGUAGE 3.2: a count below 0 is 0
        if port.gather.value == "+" and type_ == f32:
            # Only -0 leaves every sum as it is; without summands the sum is +0.
            none = add(arith.CmpiOp(n, constant(0, i32), "eq"))
            neutral = add(arith.SelectOp(none, constant(0.0, f32), neutral))
        total = add(arith.AddiOp(n, constant(1, i32)))
        code.body.emit(ttm.SendOp(neutral, upl.port_ref(node.symbol, port.name), tag, total, unbounded=False))

    def _fits(self, send: upl.SendOp) -> Formula:
        """The condition that the index of a `##` token has room in the fields of its target: such a token may be for
        instances that there are not, and then does nothing."""
        out = TRUE
        if send.multiplicity is not Special.UNBOUNDED:
            return out
        target, source = endpoints(self.program)[send.target_name], source_of(send)
        from_, to = self.sets.domain(source.symbol), self.sets.domain(send.target_name)
        for f, e in zip(target.fields, send.index.data, strict=True):
            if e is None or (
                e.name is not None and e.name in source.fields and _within(from_.extent(e.name), to.extent(f))
            ):
                continue
            lo, hi = to.extent(f)
            if lo is None or hi is None:  # there is no instance: the field has no bits
                lo = hi = 0
            out = out & Formula.compare(e, CmpOp.GE, lo) & Formula.compare(e, CmpOp.LE, hi)
        return out

    def _announce(
        self, code: Code, send: upl.SendOp, node: upl.NodeOp, tag: Sequence[SSAValue | None]
    ) -> SSAValue | None:
        """Say that the open gathers of an instance exist, where a token for another input of it tells that.

        The value is what the token carries as multiplicity if it is a summand of an open gather: its rank, plus 1.
        """
        open_ = [p for p in node.ports if p.open]
        to = node.port(send.target_port or "")
        summand = to is not None and to.open
        tells = not ends_on_domain(node) and (summand or announcer(node, self.sets) == send.target_port)
        if not open_ or None in tag or not (summand or tells):
            return None
        index = {f: e for f, e in zip(node.fields, send.index.data, strict=True) if e is not None}
        rank = code.index(self.ranks[node.symbol].substitute(index) + IndexExpr.of(1))
        for p in open_:
            if tells and p.name != send.target_port:
                assert p.gather is not None
                type_ = narrow(p.type.mlir())
                empty = p.gather.empty if type_ == f32 else p.gather.empty_integer(-(2**31), 2**31 - 1)
                none = code.body.constant(empty, type_)
                code.body.emit(ttm.SendOp(none, upl.port_ref(node.symbol, p.name), tag, rank, present=True))
        return rank if summand else None

    def _count(self, send: upl.SendOp) -> IndexExpr | Special:
        """The multiplicity on the machine: every summand carries the number of summands (docs/machine_program.md, "Token");
        it is `##` if an input tells it."""
        target = endpoints(self.program)[send.target_name]
        port = target_port(target, send.target_port)
        if port.gather is None or not isinstance(port.count, IndexExpr):
            return send.multiplicity
        if _counted_by_input(target, port):
            return Special.UNBOUNDED
        index = {f: e for f, e in zip(target.fields, send.index.data, strict=True) if e is not None}
        return port.count.substitute(index)

    # -- `*` where an input gets tokens with different ones: a token for each point instead
    def _expands(self, send: upl.SendOp) -> bool:
        """Whether an arrow's `*` becomes tokens: its input gets others with different `*`, or counts summands, or there are
        too many `*` for the machine."""
        if None not in send.index.data:
            return False
        into = self.sets.into(send.target_name, send.target_port)
        stars = {tuple(e is None for e in a.send.index.data) for a in into}
        runs = sum(is_open for is_open, _ in groupby(e is None for e in send.index.data))
        node = self.sets.ends[send.target_name]
        counts = isinstance(node, upl.NodeOp) and any(_counts(p) == send.target_port for p in node.ports)
        if len(stars) == 1 and not counts and runs <= OPEN_RUNS:
            return False
        return all(self._exact_fibres(a) for a in into if None in a.send.index.data)

    def _exact_fibres(self, a: Arrow) -> bool:
        """Whether every token of an arrow is for as many points of the target as its multiplicity says."""
        count = a.send.multiplicity
        relation = self.sets.relation(a)
        if isinstance(count, Special):
            return count is Special.UNBOUNDED
        at = (*a.src, *a.loops)
        found: dict[tuple[int, ...], int] = {}
        place = [a.dims.index(d) for d in at]
        for n, point in enumerate(relation.points()):
            if n >= MAX_EXPANDED:
                return False
            key = tuple(point[i] for i in place)
            found[key] = found.get(key, 0) + 1
        ctx = self.sets.ctx
        return all(
            count.evaluate({**ctx.constants, **dict(zip(at, key, strict=True))}, ctx.read) == n
            for key, n in found.items()
        )

    def _each(self, code: Code, send: upl.SendOp) -> tuple[Code, tuple[IndexExpr, ...], Formula]:
        """Loops over the `*` fields of an arrow's target; the index then, and the condition that it is in the domain."""
        target = endpoints(self.program)[send.target_name]
        domain = self.sets.domain(send.target_name)
        index: list[IndexExpr] = []
        for f, e in zip(target.fields, send.index.data, strict=True):
            if e is None:
                lo, hi = domain.extent(f)
                assert lo is not None and hi is not None  # else the field has no width
                bounds = code.index(IndexExpr.of(lo)), code.index(IndexExpr.of(hi))
                code = code.nested(partial(ttm.ForOp, *bounds), (f"{f}'",))
                e = IndexExpr.of(f"{f}'")
            index.append(e)
        inside = domain_of(target) or TRUE
        return code, tuple(index), inside.substitute(dict(zip(target.fields, index, strict=True)))


def _within(inner: tuple[int | None, int | None], outer: tuple[int | None, int | None]) -> bool:
    (a, b), (lo, hi) = inner, outer
    return a is not None and b is not None and lo is not None and hi is not None and lo <= a and b <= hi


def _counts(port: Port) -> str | None:
    """The input that counts a gather's summands, if one does."""
    return port.count.name if port.gather is not None and isinstance(port.count, IndexExpr) else None


def _counted_by_input(op: Endpoint, port: Port) -> bool:
    name = _counts(port)
    return isinstance(op, upl.NodeOp) and name is not None and op.port(name) is not None
