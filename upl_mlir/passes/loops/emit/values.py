# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# pyright: reportPrivateImportUsage=false, reportUnnecessaryCast=false
# (xDSL leaves the types of attributes and results open)
"""Terms as operations: arithmetic with its faults, elements of arrays, folds with register accumulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from xdsl.dialects import arith, math, memref
from xdsl.dialects.arith import FastMathFlag as Flag
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import f64, i1, i64
from xdsl.ir import Attribute, Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import Gather, ModOp
from upl_mlir.dialects.upl.kinds import Kind, folding
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.passes.loops import terms
from upl_mlir.passes.loops.emit.code import INDEX, Code
from upl_mlir.passes.loops.emit.frame import Frame
from upl_mlir.passes.loops.emit.known import Known, noted
from upl_mlir.passes.loops.emit.small import Small
from upl_mlir.passes.loops.emit.split import Body, in_parts
from upl_mlir.passes.loops.matches import Match, between, few, taken
from upl_mlir.passes.loops.terms import Term, arguments, inner_first, names_in
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.linear import Con, Cons

OVERFLOW, DIVISION, COUNT, NO_INTEGER, OUTSIDE = 1, 2, 3, 4, 5
"""What the status says: integer overflow, integer division by zero, a wrong count, a real without an integer value, an
index outside a constant array."""

APART = FastMathFlagsAttr([Flag.ALLOW_CONTRACT, Flag.NO_SIGNED_ZEROS])
"""As `frame.FAST`, but what is so added is not added in another order."""
EITHER_ZERO = FastMathFlagsAttr([Flag.NO_SIGNED_ZEROS])
"""Of 0.0 and -0.0 the greatest, and the least, is either: to tell them takes more than all else."""
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

Env = Mapping[str, IndexExpr]


def neutral(code: Code, t: terms.Fold) -> SSAValue:
    """What a fold starts from: leaves every summand as it is, -0.0 included."""
    return code.constant(t.gather.neutral if t.kind.is_float else identity(t.gather, t.kind), t.kind.mlir)


class Values:
    """Writes terms; `f` is the function under construction."""

    def __init__(self, f: Frame):
        self.f = f
        self.code = f.code
        self.lin = f.lin
        self._taken: dict[terms.Part, tuple[terms.Part, dict[str, Match]]] = {}
        self._single: dict[terms.Part, bool] = {}
        """Of parts without a loop, whether their one summand is all that there is."""
        self.known = Known(self.code, self.lin)
        self._by_data = f.program.compared
        self._envs: list[Env] = []  # kept, as what is known of a block is known by their identity

    def value(self, t: Term, env: Env) -> SSAValue:
        """The value of a term, whose names mean `env`; computed once in a block and those inside it."""
        key = (t, id(env))
        found = self.code.scope.find(key)
        if found is None:
            inner = inner_first(t, lambda x: self._needed(x, env)) if arguments(t) else [t]
            for part in inner:
                key = (part, id(env))
                found = self.code.scope.find(key)
                if found is None:
                    found = self.code.scope.known[key] = self._value(part, env)
            assert found is not None
        return found

    def _needed(self, t: Term, env: Env) -> tuple[Term, ...]:
        """The arguments of a term, without those that a known condition makes idle."""
        if not self._by_data or not isinstance(t, terms.Apply):
            return arguments(t)
        if self.known.truth(t, env) is not None:
            return ()
        if isinstance(t.op, arith.SelectOp) and (known := self.known.truth(t.args[0], env)) is not None:
            return (t.args[1 if known else 2],)
        if t.kind is Kind.BOOL and isinstance(t.op, arith.AndIOp | arith.OrIOp):
            return tuple(a for a in t.args if self.known.truth(a, env) is None)
        return t.args

    def _value(self, t: Term, env: Env) -> SSAValue:
        code = self.code
        match t:
            case terms.Number(kind, value):
                return code.constant(kind.nearest(value), kind.mlir)
            case terms.IndexValue(e):
                e = self.lin.plain(e.substitute(dict(env)))
                key = ("i64", e)
                found = code.scope.find(key)
                if found is None:
                    n = e.constant
                    found = code.constant(n, i64) if n is not None else code.integer(e)
                    code.scope.known[key] = found
                return found
            case terms.Get(kind, array, index):
                v = self.f.load(array, tuple(self.lin.plain(e.substitute(dict(env))) for e in index))
                given = kind.format is not None and array in self.f.given
                return self.small(kind).rounded(v) if given else v
            case terms.Entry(kind, table, at):
                return self._entry(kind, table, self.value(at, env))
            case terms.Convert(kind, arg):
                v = self.value(arg, env)
                return code.add(arith.ExtFOp(v, kind.mlir) if kind is Kind.F64 else arith.TruncFOp(v, kind.mlir))
            case terms.Apply():
                return self._apply(t, env)
            case terms.Fold():
                return self._fold(t, env)
            case terms.Choice():
                return self._choice(t, env, list(t.cases))

    def _choice(self, t: terms.Choice, env: Env, cases: list[tuple[Cons, Term]]) -> SSAValue:
        (cons, value), *rest = cases
        if not rest:
            return self.value(value, env)
        here = self.at(cons, env)
        (out,) = self.code.when(
            self.code.all(here), here, [t.kind.mlir],
            lambda: [self.value(value, env)], lambda: [self._choice(t, env, rest)],
        )  # fmt: skip
        return out

    def at(self, cons: Cons, env: Env) -> Cons:
        """Constraints whose names mean `env`."""
        values = dict(env)
        return self.lin.tidy(Con(self.lin.plain(c.e.substitute(values)), c.eq) for c in cons)

    # -- arithmetic -----------------------------------------------------------------------------------------------------
    def _apply(self, t: terms.Apply, env: Env) -> SSAValue:
        op, code = t.op, self.code
        needed = self._needed(t, env)
        if needed != t.args and not needed:
            return code.constant(int(bool(self.known.truth(t, env))), i1)
        if needed != t.args:
            return self.value(needed[0], env)
        if (within := between(t)) is not None:  # as the loops of gathers ask, so that it is asked once
            x, low, high = within
            at = code.add(arith.IndexCastOp(self.value(x, env), INDEX))
            ends = ([self.lin.plain(e.substitute(dict(env)))] for e in (low, high))
            return code.between(at, *ends)
        args = [self.value(a, env) for a in t.args]
        if t.kind.format is not None and isinstance(op, math.PowFOp) and isinstance(t.args[1], terms.Number):
            args[1] = code.constant(t.args[1].value, f64)  # an exponent that is a constant is no number of the type
        match op:
            case arith.AddiOp() | arith.SubiOp() | arith.MuliOp():
                return self.checked(type(op), args[0], args[1])
            case arith.FloorDivSIOp() | arith.CeilDivSIOp() | arith.DivSIOp() | arith.RemSIOp() | ModOp():
                return self._division(op, args[0], args[1])
            case math.AbsIOp():
                self.fault(code.add(arith.CmpiOp(args[0], code.constant(INT_MIN, i64), "eq")), OVERFLOW)
            case arith.FPToSIOp():
                self._no_integer(args[0])
            case math.IPowIOp():
                raise error("UPL1826", "the native engine has no `**` on integers yet", span_of(op),
                            help="write the product out, or use reals")  # fmt: skip
            case _:
                pass
        if t.kind.format is not None:
            return self.small(t.kind).apply(op, args)
        properties = dict(op.properties)
        if isinstance(op, arith.MaximumfOp | arith.MinimumfOp) and self.f.flags is not None:
            properties["fastmath"] = EITHER_ZERO
        return code.add(type(op).create(operands=args, result_types=[t.kind.mlir], properties=properties))

    def small(self, kind: Kind) -> Small:
        """Writes arithmetic of a small type."""
        assert kind.format is not None
        return Small(self.code, kind.format)

    def checked(self, make: type[arith.AddiOp | arith.SubiOp | arith.MuliOp], a: SSAValue, b: SSAValue) -> SSAValue:
        """Integer arithmetic that notes an overflow."""
        code = self.code
        if make is arith.MuliOp:
            op = arith.MulSIExtendedOp(a, b)
            code.emit(op)
            low, high = op.results
            sign = code.add(arith.ShRSIOp(low, code.constant(63, i64)))
            self.fault(code.add(arith.CmpiOp(high, sign, "ne")), OVERFLOW)
            return low
        out = code.add(make(a, b))
        changed = code.add(arith.XOrIOp(a, out))
        other = code.add(arith.XOrIOp(b, out) if make is arith.AddiOp else arith.XOrIOp(a, b))
        both = code.add(arith.AndIOp(changed, other))
        self.fault(code.add(arith.CmpiOp(both, code.constant(0, i64), "slt")), OVERFLOW)
        return out

    def _division(self, op: Operation, a: SSAValue, b: SSAValue) -> SSAValue:
        code = self.code
        self.fault(code.add(arith.CmpiOp(b, code.constant(0, i64), "eq")), DIVISION)
        if isinstance(op, arith.FloorDivSIOp | arith.CeilDivSIOp | arith.DivSIOp):
            least = code.add(arith.CmpiOp(a, code.constant(INT_MIN, i64), "eq"))
            minus = code.add(arith.CmpiOp(b, code.constant(-1, i64), "eq"))
            self.fault(code.add(arith.AndIOp(least, minus)), OVERFLOW)
        if isinstance(op, ModOp):
            q = code.add(arith.FloorDivSIOp(a, b))
            return code.add(arith.SubiOp(a, code.add(arith.MuliOp(q, b))))
        return code.add(type(op).create(operands=[a, b], result_types=[i64]))

    def _no_integer(self, x: SSAValue) -> None:
        code = self.code
        low = code.add(arith.CmpfOp(x, code.constant(-(2.0**63), x.type), "oge"))
        high = code.add(arith.CmpfOp(x, code.constant(2.0**63, x.type), "olt"))
        good = code.add(arith.AndIOp(low, high))
        self.fault(code.add(arith.XOrIOp(good, code.constant(1, i1))), NO_INTEGER)

    def fault(self, cond: SSAValue, status: int) -> None:
        """Note a fault where the condition holds."""

        def write() -> Sequence[SSAValue]:
            self.code.emit(memref.StoreOp.get(self.code.constant(status, i64), self.f.status, []))
            return ()

        self.code.when(cond, (), (), write)

    def _entry(self, kind: Kind, table: str, at: SSAValue) -> SSAValue:
        code = self.code
        lower, values = self.f.entries(table)
        if kind.format is not None:
            values = tuple(map(kind.nearest, values))
            table = f"{table}.{kind.value}"
        place = code.add(arith.SubiOp(at, code.constant(lower, i64)))
        last = len(values) - 1
        low = code.add(arith.CmpiOp(place, code.constant(0, i64), "slt"))
        high = code.add(arith.CmpiOp(place, code.constant(last, i64), "sgt"))
        outside = code.add(arith.OrIOp(low, high))
        self.fault(outside, OUTSIDE)
        place = code.add(arith.SelectOp(outside, code.constant(0, i64), place))
        index = code.add(arith.IndexCastOp(place, code.constant(0, self.f.index).type))
        return code.add(memref.LoadOp.get(code.table(table, values, kind.mlir), [index]))

    # -- folds ----------------------------------------------------------------------------------------------------------
    def _fold(self, t: terms.Fold, env: Env) -> SSAValue:
        code = self.code
        acc: SSAValue | None = None
        for part in t.parts:
            acc = self._part(t, part, env, acc)
        if t.count is None:
            assert acc is not None
            return acc
        empty = code.constant(t.kind.nearest(identity(t.gather, t.kind)), t.kind.mlir)
        if acc is None:
            return empty
        # The sum of -0.0 alone is -0.0, of nothing 0.0; what the others start from need not be a number of a small type.
        if not (t.gather is Gather.SUM and t.kind.is_float) and t.kind.format is None:
            return acc
        count = self.lin.plain(t.count.substitute(dict(env)))
        return code.add(arith.SelectOp(code.holds(Con(-count)), empty, acc))

    def _part(self, t: terms.Fold, part: terms.Part, env: Env, acc: SSAValue | None) -> SSAValue:
        known = self.code.scope.find(("part", part, id(env)))
        if known is not None:
            return known if acc is None else self.step(t, acc, known, few=few_in(t, part))
        if not part.dims and not part.guards:
            v = self.value(part.body, env)
            return v if acc is None else self.step(t, acc, v)
        start = neutral(self.code, t) if acc is None else acc
        if part.guards and not part.dims:
            guards = [self.at(g, env) for g in part.guards]
            (out,) = self.code.when(
                self.code.any(guards), guards[0] if len(guards) == 1 else (), [t.kind.mlir],
                lambda: [self._summand(t, part, env, start)], lambda: [start],
            )  # fmt: skip
            return out
        outside = [g for g in part.guards if not any(c.e.names & set(part.dims) for c in g)]
        if part.guards and len(outside) == len(part.guards):
            guards = [self.at(g, env) for g in part.guards]
            (out,) = self.code.when(
                self.code.any(guards), guards[0] if len(guards) == 1 else (), [t.kind.mlir],
                lambda: [self._loops(t, part, (), env, start)], lambda: [start],
            )  # fmt: skip
            return out
        return self._loops(t, part, part.guards, env, start)

    def _loops(self, t: terms.Fold, part: terms.Part, guards: Sequence[Cons], env: Env, start: SSAValue) -> SSAValue:
        """The loops of a part round its body; an iterator that is compared with data needs none."""
        part, chosen = self.matched(t, part)
        self._single[part] = len(chosen) == len(part.dims) and start is neutral(self.code, t)
        cons = self.at(part.cons, env)

        def level(dims: Sequence[str], acc: SSAValue) -> SSAValue:
            if not dims:
                return self._tested(t, part, cons, guards, env, acc)
            lows, highs = self.f.limits(cons, dims)
            if dims[0] in chosen:
                return self._picked(chosen[dims[0]], lows, highs, env, acc, lambda: level(dims[1:], acc))
            some = _few(lows, highs, SOME)
            if some is not None and len(some) >= FEW and not dims[1:] and not guards and self._chains(t):
                return in_two(dims, some, acc)
            few = _few(lows, highs, FEW) if self.f.planar else None
            if few is not None:
                for n in few:
                    acc = written_out(dims, n, acc)
                return acc
            bodies = self._bodies(t, part, dims, chosen, env)
            (out,) = in_parts(self, dims[0], lows, highs, [acc], bodies, lambda args: [level(dims[1:], args[0])])
            return out

        def in_two(dims: Sequence[str], some: range, acc: SSAValue) -> SSAValue:
            """Two chains of half as many sums, as in a net of small layers each waits for the one before."""
            chains = [acc, neutral(self.code, t)]
            for n in some:
                chains[n % 2] = written_out(dims, n, chains[n % 2])
            return self.code.add(arith.AddfOp(chains[0], chains[1], APART))

        def written_out(dims: Sequence[str], n: int, acc: SSAValue) -> SSAValue:
            """One of a few iterations."""
            nonlocal cons, env
            around = cons, env
            env = {**env, dims[0]: IndexExpr.of(n)}
            cons = self.at(cons, env)
            acc = level(dims[1:], acc)
            cons, env = around
            return acc

        return level(part.dims, start)

    def _bodies(
        self, t: terms.Fold, part: terms.Part, dims: Sequence[str], chosen: Mapping[str, Match], env: Env
    ) -> list[Body]:
        """What an innermost loop of a part computes in each iteration; nothing for others."""
        if part.guards or any(d not in chosen for d in dims[1:]):
            return []
        inner = replace(part, dims=tuple(dims[1:]))
        self._taken[inner] = inner, dict(chosen)
        return [Body(dims[0], replace(t, parts=(inner,)), env)]

    def matched(self, t: terms.Fold, part: terms.Part) -> tuple[terms.Part, dict[str, Match]]:
        """A part with the iterators that data choose behind the others, and what they are."""
        if part not in self._taken:
            new, found = taken(t, part, part.dims)
            chosen = {m.name: m for m in found}
            self._taken[part] = replace(new, dims=(*(d for d in part.dims if d not in chosen), *chosen)), chosen
        return self._taken[part]

    def chosen(self, m: Match, env: Env) -> SSAValue:
        """The index that data choose."""
        inner = dict(env)
        self._envs.append(inner)
        code, rest = self.code, self.lin.plain(m.rest.substitute(inner))
        if m.total is not None and m.name not in names_in(m.total) and code.fact(noted(m)) is None:
            self.value(m.total, inner)
        at = code.add(arith.IndexCastOp(self.value(m.value, inner), INDEX))
        if rest.constant == 0:
            return at if m.sign > 0 else code.add(arith.SubiOp(code.constant(0, INDEX), at))
        other = code.index(rest)
        return code.add(arith.SubiOp(at, other) if m.sign > 0 else arith.SubiOp(other, at))

    def _picked(
        self, m: Match, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr], env: Env, acc: SSAValue,
        write: Callable[[], SSAValue],
    ) -> SSAValue:  # fmt: skip
        """The one iteration of a loop whose variable is what data say, if it is within the bounds."""
        code, x = self.code, IndexExpr.of(m.name)
        asked = self.known.picked(m, lows, highs, env) if self._by_data else None
        known = self.known.within(asked) if asked else None
        if m.total is not None and m.name in names_in(m.total) and code.fact(noted(m)) is None:
            self.note_chosen(m, lows, highs, env)
        if known is False:
            return acc
        at = self.chosen(m, env)
        code.reach.enter(m.name, lows, highs)
        if known:
            with code.taken_for(x, at, lows, highs):
                return write()
        context = (*(Con(x - b) for b in lows), *(Con(b - x) for b in highs))

        def inside() -> Sequence[SSAValue]:
            code.scope.known[x] = at
            return [write()]

        (out,) = code.when(code.between(at, lows, highs), context, [acc.type], inside, lambda: [acc])
        return out

    def note(self, t: Term, env: Env) -> None:
        """Note an overflow of a sum of integers."""
        inner = dict(env)
        self._envs.append(inner)
        self.value(t, inner)

    def note_chosen(self, m: Match, lows: Sequence[IndexExpr], highs: Sequence[IndexExpr], env: Env) -> None:
        """Note an overflow of the sum that is compared, for some value of an iterator that data choose."""
        code = self.code
        assert m.total is not None
        if m.name not in names_in(m.total):
            self.note(m.total, env)
            return
        low, high = code.extremum(lows, arith.MaxSIOp), code.extremum(highs, arith.MinSIOp)

        def write() -> Sequence[SSAValue]:
            for at in (low, high):
                with code.apart({m.name: at}):
                    assert m.total is not None
                    self.note(m.total, env)
            return ()

        code.when(code.add(arith.CmpiOp(low, high, "sle")), (), (), write)

    def _chains(self, t: terms.Fold) -> bool:
        """Whether a fold may be summed in several chains."""
        return self.f.flags is not None and not self.f.planar and t.gather is Gather.SUM and t.kind.is_float

    def _tested(
        self, t: terms.Fold, part: terms.Part, cons: Cons, guards: Sequence[Cons], env: Env, acc: SSAValue
    ) -> SSAValue:
        """The innermost body, under what the loops' bounds do not ensure."""
        context = self.code.scope.context
        open_ = tuple(c for c in cons if not self.lin.implies(context, c))
        if not open_ and not guards:
            return self._summand(t, part, env, acc)
        cond = self.code.all(open_)
        if guards:
            cond = self.code.add(arith.AndIOp(cond, self.code.any([self.at(g, env) for g in guards])))
        (out,) = self.code.when(
            cond, open_, [t.kind.mlir], lambda: [self._summand(t, part, env, acc)], lambda: [acc]
        )
        return out

    def know(self, part: terms.Part, env: Env, value: SSAValue) -> None:
        """What the summands of a part come to is known in this block."""
        self.code.scope.known["part", part, id(env)] = value

    def summand(self, t: terms.Fold, part: terms.Part, env: Env, acc: SSAValue) -> SSAValue:
        """A fold so far and the summand at hand."""
        return self._summand(t, part, env, acc)

    def _summand(self, t: terms.Fold, part: terms.Part, env: Env, acc: SSAValue) -> SSAValue:
        inner = dict(env)  # a new one: what it computes is known in its block only
        self._envs.append(inner)
        v = self.value(part.body, env if not part.dims else inner)
        if self._single.get(part):
            return v
        return self.step(t, acc, v, few=few_in(t, part))

    def step(self, t: terms.Fold, acc: SSAValue, v: SSAValue, *, few: bool = False) -> SSAValue:
        """One more summand; `few` say that no sum of integers overflows."""
        code = self.code
        op = folding(t.gather, t.kind)
        make = cast("Callable[..., Operation]", op)
        if not t.gather.rounds:
            exact = not t.kind.is_float or t.kind.format is not None or self.f.flags is None
            return code.add(make(acc, v) if exact else make(acc, v, EITHER_ZERO))
        if t.kind is Kind.INT and few and t.gather is Gather.SUM:
            return code.add(arith.AddiOp(acc, v))
        if t.kind is Kind.INT:
            return self.checked(cast("type[arith.AddiOp | arith.MuliOp]", op), acc, v)
        if t.kind.format is not None:
            small = self.small(t.kind)
            return small.product(acc, v) if t.gather is Gather.PRODUCT else small.rounded(code.add(make(acc, v)))
        if t.gather is Gather.SUM and self.f.flags is not None and isinstance(v.owner, arith.MulfOp):
            v.owner.properties["fastmath"] = self.f.flags
        return code.add(make(acc, v, self.f.flags))


def few_in(t: terms.Fold, part: terms.Part) -> bool:
    """Whether the summands of a part are integers that never overflow."""
    return t.kind is Kind.INT and few(part.body)


def identity(gather: Gather, kind: Kind) -> float:
    """The value of a gather without summands."""
    return gather.empty_integer() if kind is Kind.INT else gather.empty


FEW = 4
"""Folds of so many summands are written out where loops round them are to become vectors. Chosen, not measured."""
SOME = 8
"""Sums of `FEW` to so many summands are written out as two, which LLVM may reassociate, but not with each other.
Chosen, not measured."""


def _few(lows: Sequence[IndexExpr], highs: Sequence[IndexExpr], most: int) -> range | None:
    """The values between bounds if these are numbers, and at most so many."""
    low, high = ([e.constant for e in bounds] for bounds in (lows, highs))
    if not low or not high or None in low or None in high:
        return None
    first, last = max(n for n in low if n is not None), min(n for n in high if n is not None)
    return range(first, last + 1) if last - first < most else None


Writer = Callable[[], Sequence[SSAValue]]


def typed(v: SSAValue, t: Attribute) -> SSAValue:
    """The value, asserted to have a type."""
    assert v.type == t, (v.type, t)
    return cast("SSAValue", v)
