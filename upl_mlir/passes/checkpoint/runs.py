"""Which steps of a loop fire again together, and when: segments of equal length, or the schedule Revolve.

A run fires the steps of a range once more, after the adjoint of the step behind it is done, and gives the adjoint what it
needs.  Steps are index expressions; formulas are over the step and the run's index field, if it has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from xdsl.dialects.builtin import DenseArrayBase, i64

from upl_mlir.dialects.upl import ArrayOp, ProgramOp
from upl_mlir.dialects.upl.query import symbols
from upl_mlir.passes.build import unused
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr, Lookup, divide
from upl_mlir.poly.operators import DivKind


class Runs(Protocol):
    """What the copies of a loop's nodes must know of a schedule."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The copies' index field for the number of the run; none where each step is in one run."""
        ...

    @property
    def text(self) -> str:
        """The schedule in a few words."""
        ...

    @property
    def numbers(self) -> Formula:
        """Which runs there are: said where tables are read by the run's number, so that it never leaves them."""
        ...

    def again(self, step: IndexExpr) -> Formula:
        """Whether a step fires again (in the run)."""
        ...

    def same(self, a: IndexExpr, b: IndexExpr) -> Formula:
        """Whether two steps, the second of the run, are of one run."""
        ...

    def after(self, step: IndexExpr) -> IndexExpr:
        """The step that follows on the run of a step."""
        ...

    def answers(self, step: IndexExpr) -> Formula:
        """Whether the run serves the adjoint of a step."""
        ...

    def replaced(self, step: IndexExpr) -> Formula:
        """Whether some run serves the adjoint of a step."""
        ...

    def begins(self, step: IndexExpr) -> Formula:
        """Whether the run begins with a step."""
        ...

    def inner(self, step: IndexExpr) -> Formula:
        """Whether states that enter a step come from inside the loop."""
        ...

    def users(self, step: IndexExpr) -> IndexExpr | None:
        """The number of runs that a step is in."""
        ...

    def stored_by_main(self, step: IndexExpr) -> Formula:
        """Whether the state that enters a step is stored for a run when the loop comes there first."""
        ...

    def stored_by_run(self, step: IndexExpr) -> Formula:
        """Whether it is the run that stores it."""
        ...

    def first_user(self, step: IndexExpr) -> tuple[IndexExpr, ...]:
        """The number of the first run that begins with a step."""
        ...

    def next_user(self) -> tuple[Formula, tuple[IndexExpr, ...]]:
        """Whether another run begins with the same step later, and its number."""
        ...


@dataclass(frozen=True)
class Segments:
    """Runs of `size` steps from `first` on; those before step `last`, where the last one begins, fire again."""

    first: IndexExpr
    last: IndexExpr
    size: int
    fields: tuple[str, ...] = ()
    text: str = "segment by segment"

    @staticmethod
    def over(first: IndexExpr, end: IndexExpr, size: int) -> Segments:
        """Segments of the steps from `first` to `end`, both included."""
        whole = divide(DivKind.FLOORDIV, end - first, IndexExpr.of(size))
        return Segments(first, first + whole * size, size)

    def _number(self, step: IndexExpr) -> IndexExpr:
        return divide(DivKind.FLOORDIV, step - self.first, IndexExpr.of(self.size))

    @property
    def numbers(self) -> Formula:
        return TRUE

    def again(self, step: IndexExpr) -> Formula:
        return Formula.compare(step, "<", self.last)

    def same(self, a: IndexExpr, b: IndexExpr) -> Formula:
        return Formula.compare(self._number(a), "==", self._number(b))

    def after(self, step: IndexExpr) -> IndexExpr:
        return self.first + (self._number(step) + 1) * self.size

    def answers(self, step: IndexExpr) -> Formula:
        return TRUE

    def replaced(self, step: IndexExpr) -> Formula:
        return self.again(step)

    def begins(self, step: IndexExpr) -> Formula:
        return Formula.compare(self.first + self._number(step) * self.size, "==", step)

    def inner(self, step: IndexExpr) -> Formula:
        return Formula.compare(step, ">", self.first)

    def users(self, step: IndexExpr) -> IndexExpr | None:
        return IndexExpr.of(1)

    def stored_by_main(self, step: IndexExpr) -> Formula:
        return TRUE

    def stored_by_run(self, step: IndexExpr) -> Formula:
        return Formula.any(())

    def first_user(self, step: IndexExpr) -> tuple[IndexExpr, ...]:
        return ()

    def next_user(self) -> tuple[Formula, tuple[IndexExpr, ...]]:
        return Formula.any(()), ()


@dataclass(frozen=True)
class Schedule:
    """A schedule of `len(start)` steps: run s begins with step ``start[s]`` and serves the adjoint of step s; the last step
    is served by the loop itself.  ``maker[q]`` is the run in which the state that enters step q is stored (-1: none; the
    last: the loop itself), ``user[q]`` the first run that begins with it (-1: none)."""

    start: tuple[int, ...]
    maker: tuple[int, ...]
    user: tuple[int, ...]
    following: tuple[int, ...]  # the next run, in time, that begins where run s does (-1: none)

    @property
    def repeated(self) -> int:
        """The number of steps that fire again."""
        return sum(s - first + 1 for s, first in enumerate(self.start[:-1]))


@cache
def _advance(steps: int, spare: int) -> tuple[int, int]:
    """The least number of steps to advance so that all adjoints can be done, and how far the first advance goes to the
    next state that is stored; `spare` states may be stored beside the first."""
    if steps == 1 or spare == 0:
        return steps * (steps - 1) // 2, 1 if steps > 1 else 0
    return min((m + _advance(steps - m, spare - 1)[0] + _advance(m, spare)[0], m) for m in range(1, steps))


def revolve(steps: int, states: int) -> Schedule:
    """The schedule of fewest steps for `steps` steps when at most `states` states, the first included, are stored.

    Source: A. Griewank, A. Walther, "Algorithm 799: Revolve", ACM TOMS 26 (2000); the recurrence is theirs, solved by
    tabulation.
    """
    start, maker = [0] * steps, [-1] * steps
    todo = [(0, steps, states - 1, 0)]  # the steps lo..hi-1, spare states, where the run for step hi-1 begins
    while todo:
        lo, hi, spare, begin = todo.pop()
        start[hi - 1] = begin
        if hi - lo == 1:
            continue
        far = _advance(hi - lo, spare)[1] if spare else hi - lo - 1
        mid = lo + far
        if spare:
            maker[mid] = hi - 1
            todo += [(mid, hi, spare - 1, begin), (lo, mid, spare, lo)]
        else:
            todo += [(mid, hi, 0, begin), (lo, mid, 0, lo)]
    user, following = [-1] * steps, [-1] * steps
    for s in range(steps - 1):  # in time, runs go from the last step to the first
        following[s] = user_before(start, s)
    for s in range(steps - 1):
        user[start[s]] = s  # the greatest is the first in time
    maker[0] = steps - 1
    maker = [m if user[q] >= 0 else -1 for q, m in enumerate(maker)]  # nobody begins with a state: it is not stored
    return Schedule(tuple(start), tuple(maker), tuple(user), tuple(following))


def user_before(start: Sequence[int], s: int) -> int:
    """The greatest run below s that begins where s does; -1 if there is none."""
    return next((r for r in range(s - 1, -1, -1) if start[r] == start[s]), -1)


MARGIN = (
    2  # entries of a table before the first step and behind the last: of the step after, and of a node with a phase
)


@dataclass(frozen=True)
class Revolve:
    """The runs of a schedule; its tables are constant arrays of the program, indexed by steps.

    Steps from `lowest` to `first` are as one: where a loop starts from states of several steps, they are entered together.
    """

    lowest: int
    first: int
    last: int
    run: str
    start: str
    maker: str
    user: str
    following: str
    covers: str
    text: str = "run by run"

    @staticmethod
    def declare(program: ProgramOp, steps: tuple[int, int], first: int, schedule: Schedule, run: str) -> Revolve:
        """Add the tables to a program; `steps` are the first and the last step that there is.

        The tables go on beyond the steps, because an engine may read an entry before it looks at the condition that makes
        the entry matter: there no state is stored and no run begins.
        """
        taken = symbols(program) | {run}
        lowest, highest = steps
        last = first + len(schedule.start) - 1

        def table(name: str, values: Sequence[int], none: int) -> str:
            name = unused(name, taken)
            lo, hi = lowest - MARGIN, highest + MARGIN
            inside = [*[values[0]] * (first - lowest), *values]
            all_ = [*[none] * MARGIN, *inside, *[none] * (hi - last)]
            op = ArrayOp(name, IndexExpr.of(lo), IndexExpr.of(hi), lo, DenseArrayBase.from_list(i64, all_))
            top = program.body.block.first_op
            assert top is not None
            program.body.block.insert_op_before(op, top)
            return name

        def moved(values: Sequence[int]) -> list[int]:
            return [v + first if v >= 0 else first - 1 for v in values]

        covers = [
            sum(begin <= q <= s for s, begin in enumerate(schedule.start[:-1])) for q in range(len(schedule.start))
        ]
        tables = (
            ("begins", moved(schedule.start), first), ("stored", moved(schedule.maker), first - 1),
            ("taken", moved(schedule.user), first - 1), ("then", moved(schedule.following), first - 1), ("uses", covers, 0),
        )  # fmt: skip
        return Revolve(lowest, first, last, run, *(table(*t) for t in tables))

    def forget_users(self, program: ProgramOp) -> None:
        """Take out the table of the numbers of users, where nothing reads it."""
        for op in list(program.body.block.ops):
            if isinstance(op, ArrayOp) and op.symbol == self.covers:
                op.detach()
                op.erase()

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.run,)

    def _at(self, table: str, step: IndexExpr | str) -> IndexExpr:
        return IndexExpr.of(Lookup(table, IndexExpr.of(step)))

    def _reaches(self, step: IndexExpr) -> Formula:
        """Whether the run begins with a step or before it."""
        start = self._at(self.start, self.run)
        reached = Formula.compare(start, "<=", step)
        return reached if self.lowest == self.first else reached | Formula.compare(start, "==", self.first)

    def _up_to(self, step: IndexExpr, whole: IndexExpr) -> Formula:
        """Whether a step is `whole`, or before the first where that is meant."""
        same = Formula.compare(step, "==", whole)
        if self.lowest == self.first:
            return same
        return same | (Formula.compare(whole, "==", self.first) & Formula.compare(step, "<", self.first))

    @property
    def numbers(self) -> Formula:
        return Formula.compare(self.first, "<=", self.run) & Formula.compare(self.run, "<=", self.last - 1)

    def again(self, step: IndexExpr) -> Formula:
        return Formula.all((self.numbers, self._reaches(step), Formula.compare(step, "<=", self.run)))

    def same(self, a: IndexExpr, b: IndexExpr) -> Formula:
        return self._reaches(a)

    def after(self, step: IndexExpr) -> IndexExpr:
        return IndexExpr.of(self.run) + 1

    def answers(self, step: IndexExpr) -> Formula:
        return self._up_to(step, IndexExpr.of(self.run))

    def replaced(self, step: IndexExpr) -> Formula:
        return Formula.compare(step, "<", self.last)

    def begins(self, step: IndexExpr) -> Formula:
        return self._up_to(step, self._at(self.start, self.run))

    def inner(self, step: IndexExpr) -> Formula:
        return Formula.compare(step, ">", self.first)

    def users(self, step: IndexExpr) -> IndexExpr | None:
        return self._at(self.covers, step)

    def stored_by_main(self, step: IndexExpr) -> Formula:
        return Formula.compare(self._at(self.maker, step), "==", self.last)

    def stored_by_run(self, step: IndexExpr) -> Formula:
        return Formula.compare(self._at(self.maker, step), "==", self.run)

    def first_user(self, step: IndexExpr) -> tuple[IndexExpr, ...]:
        return (self._at(self.user, step),)

    def next_user(self) -> tuple[Formula, tuple[IndexExpr, ...]]:
        then = self._at(self.following, self.run)
        return Formula.compare(then, ">=", self.first), (then,)
