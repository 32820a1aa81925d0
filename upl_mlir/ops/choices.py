# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false
# (xDSL leaves the types of attributes and results open)
"""Bodies in which nothing fails that no choice needs: `?:`, `&&` and `||` choose lazily (LANGUAGE 2).

Engines compute bodies operation by operation.  So an operation that may fail gets an operand with which it cannot, where
the choices that need its result do not choose it:

    c ? x*N[i+1] : x        ->    c ? x*N[c ? i+1 : 0] : x
    d != 0 && 8 mod d == 1  ->    d != 0 && 8 mod (d != 0 ? d : 1) == 1

What an arrow needs under a condition of its own is left to engines that compute it where the arrow is taken: an
operation that one arrow needs anyway and another one by choice is written twice. For an engine that computes a body as a
whole, an arrow's condition is a choice like the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, IntegerAttr, i1, i64
from xdsl.ir import Block, Operation, SSAValue

from upl_mlir.dialects.upl import ArrayOp, InputOp, LetOp, LookupOp, ModOp, NodeOp, ProgramOp, RefOp, SendOp, Special
from upl_mlir.dialects.upl.precision import needed, resolve
from upl_mlir.dialects.upl.query import array_values, first_index
from upl_mlir.ops.values import Body
from upl_mlir.poly.expr import TRUE, Formula

_SUMS = (arith.AddiOp, arith.SubiOp, arith.MuliOp)
_DIVISIONS = (arith.FloorDivSIOp, arith.CeilDivSIOp, arith.DivSIOp, arith.RemSIOp, ModOp)


def choose_lazily(program: ProgramOp, *, indices_fit: bool = False) -> ProgramOp:
    """The program itself if no choice guards an operation that may fail, else a copy in which these cannot.

    With `indices_fit`, sums and products of fields, parameters and literals are taken to fit 64 bits."""
    arrays = {op.symbol: op for op in program.body.block.ops if isinstance(op, ArrayOp)}
    if not any(Needs(op.block, arrays, indices_fit).guarded() for op in _sources(program)):
        return program
    out = program.clone()
    guard_operands(out, indices_fit=indices_fit)
    return out


Tell = Callable[[Body, Formula], SSAValue]
"""Writes a condition on the fields of a node or host input into its body; the i1 value."""


def guard_operands(
    program: ProgramOp, *, indices_fit: bool = False, arrows: Callable[[NodeOp | InputOp], Tell] | None = None
) -> None:
    """The same in place.  With `arrows`, the conditions of an arrow guard what it needs in the same way; what `arrows` makes
    for a node writes those on fields."""
    arrays = {op.symbol: op for op in program.body.block.ops if isinstance(op, ArrayOp)}
    for op in _sources(program):
        Needs(op.block, arrays, indices_fit, None if arrows is None else arrows(op)).write()


def _sources(program: ProgramOp) -> Iterator[NodeOp | InputOp]:
    for op in program.body.block.ops:
        if isinstance(op, NodeOp | InputOp):
            yield op


@dataclass(eq=False)
class Case:
    """Where something is needed: always (`above` is None), or a part of the case `above`: where an arrow's condition on
    fields, `when`, or on data, `given`, holds; where the operation `by` chooses one side; in one of some cases.

    `root` is the arrow's case, or the one of all that is needed always.
    """

    above: Case | None = None
    root: Case | None = None
    by: Operation | None = None
    yes: bool = True
    any_of: tuple[Case, ...] = ()
    when: Formula = TRUE
    given: SSAValue | None = None

    @property
    def asked(self) -> SSAValue | None:
        """What `yes` is the truth of."""
        return self.given if self.by is None else self.by.operands[0]

    @property
    def chosen(self) -> bool:
        """Whether a choice takes part in it."""
        return any(c.chosen for c in self.any_of) if self.any_of else self.root is not self

    def around(self) -> Iterator[Case]:
        """The case and those that it is part of."""
        case: Case | None = self
        while case is not None:
            yield case
            case = case.above


@dataclass(eq=False)
class Needs:
    """In which case each operation of a body is needed that may fail, or whose operands may."""

    block: Block
    arrays: Mapping[str, ArrayOp]
    indices_fit: bool = False
    tell: Tell | None = None
    always: Case = field(default_factory=Case)
    cases: dict[Operation, Case] = field(default_factory=dict[Operation, Case])
    uses: dict[Operation, dict[Case, list[tuple[Operation, int]]]] = field(
        default_factory=dict[Operation, dict[Case, list[tuple[Operation, int]]]]
    )

    def __post_init__(self) -> None:
        self.may_fail: dict[Operation, bool] = {}
        self._indices: set[SSAValue] = set(self.block.args[: len(cast("NodeOp | InputOp", self.block.parent_op()).fields)])
        for op in list(self.block.ops):
            if not isinstance(op, LetOp | SendOp):
                static = isinstance(op, (*_SUMS, arith.ConstantOp, RefOp))
                if static and all(resolve(v) in self._indices for v in op.operands):
                    self._indices.add(op.results[0])
                self.may_fail[op] = self._guard(op) is not None or any(map(self._fails, needed(op)))

    def _fails(self, v: SSAValue) -> bool:
        op = resolve(v).owner
        return isinstance(op, Operation) and self.may_fail[op]

    def guarded(self) -> list[Operation]:
        """The operations that may fail, and that a choice guards."""
        choices = any(map(_chooses, self.may_fail)) or self.tell is not None
        if not any(self.may_fail.values()) or not choices:
            return []
        self._find(copy=False)
        return [op for op, case in self.cases.items() if case.chosen and self._guard(op) is not None]

    def fragile(self) -> list[tuple[Operation, Case]]:
        """The operations that may fail, and where they are needed."""
        if any(self.may_fail.values()) and not self.cases:
            self._find(copy=False)
        return [(op, case) for op, case in self.cases.items() if self._guard(op) is not None]

    # -- who needs what -------------------------------------------------------------------------------------------------
    def _find(self, *, copy: bool) -> None:
        """Find the cases; with `copy`, an operation that is needed in cases of different arrows is written for each."""
        self.always.root = self.always
        lets = {op.var.data: op for op in self.block.ops if isinstance(op, LetOp)}
        for send in self.block.ops:
            if isinstance(send, SendOp):
                self._arrow(send, lets)
        for op in reversed([op for op in self.block.ops if op in self.may_fail]):
            if self.may_fail[op] and op in self.uses:
                self._settle(op, copy=copy)

    def _arrow(self, send: SendOp, lets: Mapping[str, LetOp]) -> None:
        test = self.always if send.when.is_true else Case(self.always, self.always, when=send.when)
        value = test if send.predicate is None else Case(test, self.always, given=send.predicate)
        if self.tell is None:  # the arrow's own conditions are no choices
            test, value = self._root(test), self._root(value)
        operands = list(send.operands)
        if send.predicate is not None:
            self._use(send, operands.index(send.predicate, 1), test)
        self._use(send, 0, value)
        names: set[str] = set(send.when_point.names)
        for e in (*send.index.data, send.multiplicity, *(x for it in send.loops for x in (it.lo, it.hi))):
            names |= frozenset() if e is None or isinstance(e, Special) else e.names
        for name in names & lets.keys():
            self._use(lets[name], 0, value)

    @staticmethod
    def _root(case: Case) -> Case:
        case.root = case
        return case

    def _use(self, user: Operation, at: int, case: Case) -> None:
        op = resolve(user.operands[at]).owner
        if isinstance(op, Operation) and self.may_fail[op]:
            self.uses.setdefault(op, {}).setdefault(case, []).append((user, at))

    def _settle(self, op: Operation, *, copy: bool) -> None:
        """Say in which case an operation is needed, and tell its operands."""
        cases = _without_inner(self.uses[op])
        if not copy:
            self._needed(op, cases)
            return
        apart: dict[Case, list[Case]] = {}
        for case in cases:
            apart.setdefault(cast(Case, case.root), []).append(case)
        free = [root for root, inside in apart.items() if root in inside]
        groups = [inside for root, inside in apart.items() if root not in inside]
        if free:  # where arrows are taken, whose conditions engines test
            self._needed(op, free)
        for inside in groups:
            parts = [inside] if len(inside) == 1 or not self._waits(inside, op) else [[c] for c in inside]
            for part in parts:
                self._needed(self._copied(op, part) if op in self.cases else op, part)

    def _copied(self, op: Operation, inside: list[Case]) -> Operation:
        """A copy of an operation for its uses in some cases and all that they contain."""
        new = op.clone()
        self.block.insert_op_before(new, op)
        self.may_fail[new] = True
        for case, users in self.uses[op].items():
            if any(c in inside for c in case.around()):
                for user, at in users:
                    user.operands[at] = new.results[0]
        return new

    def _needed(self, op: Operation, cases: list[Case]) -> None:
        together = self.cases[op] = cases[0] if len(cases) == 1 else _joined(cases)
        for case in cases if all(c.root is c for c in cases) else [together]:
            for at in (i for i, v in enumerate(op.operands) if v in needed(op)):
                side = _side(op, at)
                self._use(op, at, case if side is None else Case(case, case.root, op, side))

    def _waits(self, cases: Iterable[Case], op: Operation) -> bool:
        """Whether what chooses a case depends on the operation, so that no condition can be asked before it."""
        todo: list[SSAValue] = [v for c in cases for v in _conditions(c)]
        seen: set[Operation] = set()
        while todo:
            found = resolve(todo.pop()).owner
            if found is op:
                return True
            if isinstance(found, Operation) and found not in seen:
                seen.add(found)
                todo += needed(found)
                if found in self.cases:
                    todo += _conditions(self.cases[found])
        return False

    # -- operands with which nothing fails --------------------------------------------------------------------------------
    def _guard(self, op: Operation) -> tuple[int, int] | None:
        """An operand of an operation that may fail, and a number in its place with which it does not; None for others."""
        at = next((n for n in (1, 0) if n < len(op.operands) and _number(op.operands[n]) is None), len(op.operands) - 1)
        match op:
            case _ if isinstance(op, _SUMS) and op.results[0].type != i1:
                return None if self.indices_fit and op.results[0] in self._indices else (at, 0)
            case arith.FPToSIOp() | math.AbsIOp():
                return 0, 0
            case math.IPowIOp():
                return (0, 0) if (_number(op.rhs) or -1) >= 0 else (1, 0)
            case LookupOp():
                array = self.arrays[op.symbol.root_reference.data]
                n = _number(op.at)
                if array.symbolic:  # no engine runs it
                    return None
                inside = n is not None and 0 <= n - first_index(array) < len(array_values(array))
                return None if inside else (0, first_index(array))
            case _ if isinstance(op, _DIVISIONS):
                return (1, 1) if _number(op.operands[1]) in (None, 0, -1) else None
            case _:
                return None

    def write(self) -> None:
        """Give all guarded operations such operands."""
        if not self.guarded():
            return
        self.cases, self.uses, self.always = {}, {}, Case()
        self._find(copy=True)
        made: dict[Case, SSAValue] = {}
        for op, case in list(self.cases.items()):
            found = self._guard(op)
            if found is not None and case.chosen:
                at, harmless = found
                body = Body(self.block, op.location)
                holds, old = self._holds(body, case, made), op.operands[at]
                if isinstance(op, LookupOp) and not array_values(self.arrays[op.symbol.root_reference.data]):
                    _replace(body, op, holds)
                else:
                    op.operands[at] = body.add(arith.SelectOp(holds, old, body.constant(harmless, old.type)))
        _in_order(self.block)

    def _holds(self, body: Body, case: Case, made: dict[Case, SSAValue]) -> SSAValue:
        """Whether a case is there, if its root is."""
        todo = [case]
        while todo:
            c = todo[-1]
            first = [x for x in (*c.any_of, *([] if c.any_of or c.above is c.root else [c.above])) if x not in made]
            if first:
                todo += cast("list[Case]", first)
                continue
            todo.pop()
            if c in made:
                continue
            if c.any_of:
                out, *others = (made[x] for x in c.any_of)
                for x in others:
                    out = body.add(arith.OrIOp(out, x))
            else:
                if c.asked is None:
                    assert self.tell is not None
                    out = self.tell(body, c.when)
                else:
                    out = resolve(c.asked)
                if not c.yes:
                    out = body.add(arith.XOrIOp(out, body.constant(1, i1)))
                if c.above is not c.root:
                    out = body.add(arith.AndIOp(made[cast(Case, c.above)], out))
            made[c] = out
        return made[case]


def _replace(body: Body, op: LookupOp, holds: SSAValue) -> None:
    """In place of an entry of an array without entries: 0, or a division by 0 where the entry is needed."""
    divisor = body.add(arith.SelectOp(holds, body.constant(0, i64), body.constant(1, i64)))
    value = body.add(arith.FloorDivSIOp(body.constant(0, i64), divisor))
    old = op.results[0]
    old.replace_all_uses_with(body.add(arith.SIToFPOp(value, old.type)) if isinstance(old.type, AnyFloat) else value)


def _chooses(op: Operation) -> bool:
    return isinstance(op, arith.SelectOp | arith.AndIOp | arith.OrIOp) and (
        isinstance(op, arith.SelectOp) or op.results[0].type == i1
    )


def _side(op: Operation, at: int) -> bool | None:
    """What the first operand of a choice is where an operand is needed; None if it always is."""
    if at == 0 or not _chooses(op):
        return None
    return at == 1 if isinstance(op, arith.SelectOp) else isinstance(op, arith.AndIOp)


def _conditions(case: Case) -> list[SSAValue]:
    """What is asked to tell whether a case is there."""
    out: list[SSAValue] = []
    todo = [case]
    while todo:
        for c in todo.pop().around():
            todo += c.any_of
            out += [] if c.asked is None else [c.asked]
    return out


def _number(v: SSAValue) -> int | None:
    """The number that an integer is, if it is a literal."""
    op = resolve(v).owner
    return op.value.value.data if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr) else None


def _without_inner(cases: Iterable[Case]) -> list[Case]:
    """Cases without those that are part of others of them; both sides of a choice are the case that it is in."""
    found = dict.fromkeys(cases)
    while True:
        found = dict.fromkeys(c for c in found if not any(x in found for x in c.around() if x is not c))
        sides: dict[tuple[Operation, Case], Case] = {}
        for c in found:
            if c.by is None or not isinstance(c.by, arith.SelectOp):
                continue
            key = c.by, cast(Case, c.above)
            other = sides.setdefault(key, c)
            if other.yes is not c.yes:
                found[key[1]] = None
                break
        else:
            return list(found)


def _joined(cases: list[Case]) -> Case:
    """One of some cases."""
    first, *others = ([*c.around()] for c in cases)
    above = next(c for c in first[1:] if all(c in other for other in others))
    return Case(above, above.root, any_of=tuple(cases))


def _in_order(block: Block) -> None:
    """Put each operation behind its operands; otherwise the order stays."""
    placed: set[Operation] = set()
    order: list[Operation] = []
    for op in list(block.ops):
        stack = [op]
        while stack:
            at = stack[-1]
            first = [v.owner for v in at.operands if isinstance(v.owner, Operation) and v.owner not in placed]
            if first and at not in placed:
                stack += first
                continue
            stack.pop()
            if at not in placed:
                placed.add(at)
                order.append(at)
    for op in order:
        op.detach()
    block.add_ops(order)
