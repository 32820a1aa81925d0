# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""What of a program has to live in arrays: inputs of nodes and sent values as a graph, and the choice among them.

A value that is used once, or costs less than reading it back, is computed where it is used; what is stored are
recurrences, sums that are used more than once, and costly values with several uses.  A sum is never computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from xdsl.dialects import arith, math
from xdsl.ir import BlockArgument, Operation, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import InputOp, LetOp, NodeOp, OutputOp, ProgramOp, RefOp, SendOp
from upl_mlir.dialects.upl.precision import resolve
from upl_mlir.dialects.upl.query import arrows, endpoints, nodes, source_of, span_of, target_port
from upl_mlir.frontend.upl_text.printing.printer import condition_text, target_text
from upl_mlir.ops import BY_OP
from upl_mlir.passes.analysis.at_sizes import refuse_open
from upl_mlir.passes.analysis.components import components
from upl_mlir.passes.loops.matches import compared_fields
from upl_mlir.passes.loops.pull import PulledArrow
from upl_mlir.passes.predicate.drafts import KEPT
from upl_mlir.poly.expr import TRUE, Formula
from upl_mlir.poly.linear import Linear

MANY = 1000
"""Evaluations of one value that are counted, at most; an unknown number counts as so many. Chosen, not measured."""
SUM = 1_000_000
"""Cost that is counted, at most, in additions; a sum of unknown length has it. Chosen, not measured."""
WORTH = 8
"""Recomputing up to this much (in additions) for each element is cheaper than an array. Chosen, not measured."""

FUNCTION = 25
"""What a function costs, in additions. Chosen: the polynomials take from 15 to 30."""
LOOKUP = 2
"""Reading an element that data choose, with the comparison that it is there, in additions. Chosen: it is about that of
reading what was kept of it, which had to be written before."""

DEEPEST = 32
"""Through so many nodes a value is computed where it is used, if each of them uses it once. Chosen: it bounds the
length of a statement."""

GRID = 3
"""Fields of an array that is large: steps, rows, and what lies in a row. Chosen, not measured."""
HANDED_ON = 4
"""Of so many inputs at most that depend on each other in circles arrays are saved: their conditions multiply. Chosen."""

_FREE = (arith.ConstantOp, RefOp, LetOp, arith.SIToFPOp, arith.UIToFPOp, arith.ExtUIOp, arith.ExtFOp, arith.TruncFOp)
_SLOW = (arith.FPToSIOp, arith.DivfOp, math.SqrtOp, arith.FloorDivSIOp, arith.CeilDivSIOp, arith.DivSIOp, arith.RemSIOp)
_FUNCTIONS = (math.PowFOp, *BY_OP)


def op_cost(op: Operation) -> int:
    """What an operation costs, in additions."""
    if isinstance(op, _FREE):
        return 0
    return 6 if isinstance(op, _SLOW) else FUNCTION if isinstance(op, _FUNCTIONS) else 1



Port = tuple[str, str]
"""An input of a node, or a host output: (name, input)."""


@dataclass
class Graph:
    """A program's inputs and values, and who uses whom."""

    program: ProgramOp
    lin: Linear
    worth: int = WORTH
    stored_ports: set[Port] = field(default_factory=set[Port])
    stored_values: set[SSAValue] = field(default_factory=set[SSAValue])

    def __post_init__(self) -> None:
        self.ends = endpoints(self.program)
        for op in nodes(self.program):
            refuse_open(op)
        self.into: dict[Port, list[PulledArrow]] = {}
        self.out_of: dict[SSAValue, list[PulledArrow]] = {}
        self.compared: dict[SendOp, frozenset[str]] = {}
        """The fields of sources that arrows compare with data."""
        for at, send in enumerate(arrows(self.program)):
            target = self.ends[send.target_name]
            port = target_port(target, send.target_port)
            a = PulledArrow(at, send, source_of(send), target, port)
            self._static(a)
            self.into.setdefault((target.symbol, port.name), []).append(a)
            if compared := compared_fields(send, port.gather):
                self.compared[send] = compared
            self.out_of.setdefault(resolve(send.value), []).append(a)
        self._evals: dict[Port | SSAValue, int] = {}
        self._costs: dict[SSAValue, int] = {}

    def _static(self, a: PulledArrow) -> None:
        """Refuse an arrow that data decide.  Raises UplError (UPL1821)."""
        send = a.send
        known = {*a.source.fields, *self.lin.ctx.params, *self.lin.ctx.constants, *(it.name for it in send.loops)}
        names = {n for e in send.index.data if e is not None for n in e.names}
        if send.predicate is not None or not names <= known:
            condition = condition_text(send)
            what = f"condition `{condition}`" if send.predicate is not None else f"index of `{target_text(send)}`,"
            message = f"loops are made of programs whose arrows follow from indices; data decide the {what} of {a.text}"
            if "**" in condition:
                message += " (a power whose exponent is no literal counts as data)"
            help_ = 'use --if-convert=compared=true before, or engine="native", which does'
            raise error("UPL1821", message, span_of(send), help=help_)

    def used_ports(self, v: SSAValue) -> list[Port]:
        """The inputs that a value is computed from."""
        return self._used(resolve(v))[0]

    def body_cost(self, v: SSAValue) -> int:
        """The cost of the operations of the body behind a value."""
        return self._used(resolve(v))[1]

    @cached_property
    def _uses(self) -> dict[SSAValue, tuple[list[Port], int]]:
        return {}

    def _used(self, v: SSAValue) -> tuple[list[Port], int]:
        found = self._uses.get(v)
        if found is None:
            ports: dict[Port, None] = {}
            cost = 0
            seen: set[SSAValue] = set()
            todo = [v]
            while todo:
                w = resolve(todo.pop())
                if w in seen:
                    continue
                seen.add(w)
                if isinstance(w, BlockArgument):
                    owner = w.block.parent_op()
                    if isinstance(owner, NodeOp) and w.index >= len(owner.fields):
                        ports[(owner.symbol, owner.ports[w.index - len(owner.fields)].name)] = None
                    continue
                op = w.owner
                assert isinstance(op, Operation)
                cost += op_cost(op)
                todo += op.operands
            found = self._uses[v] = (list(ports), cost)
        return found

    def stored_values_of(self, source: InputOp | NodeOp) -> list[SSAValue]:
        """The stored values of a node, in the order of its body."""
        values = dict.fromkeys(resolve(s.value) for s in source.sends)
        return [v for v in values if v in self.stored_values]

    # -- the choice ---------------------------------------------------------------------------------------------------
    def choose(self, *, again: bool = True) -> None:
        """Decide what is stored: first what closes cycles, then by cost, users before what they use, and, `again`, for what
        was stored because of what it needs."""
        self.stored_ports |= {p for p in self.into if self._added_to(p) or KEPT in self.ends[p[0]].attributes}
        for component in self._cycles():
            closing = {p for p in component if len(self.into.get(p, ())) > 1 or self._gathers(p)}
            searched = {p for p in closing if not (self._gathers(p) and self._read_at_once(p))}
            self.stored_ports |= searched if self._cut(component, searched) else closing
            if again:
                self._hand_on(component)
        order: list[Port] = []
        seen: set[Port] = set()
        for op in self.ends.values():
            if isinstance(op, OutputOp):
                self._visit((op.symbol, op.symbol), seen, order)
        for p in reversed(order):  # users first
            self._decide(p)
        if again:
            self._think_again(order)
        depth: dict[Port, int] = {}
        for p in order:  # chains of nodes are cut here and there: terms are made by recursion
            inner = [
                q for a in self.into.get(p, ()) if resolve(a.send.value) not in self.stored_values
                for q in self.used_ports(a.send.value)
            ]  # fmt: skip
            depth[p] = 1 + max((depth.get(q, 0) for q in inner if q not in self.stored_ports), default=0)
            if depth[p] % DEEPEST == 0 and not isinstance(self.ends[p[0]], OutputOp):
                self.stored_ports.add(p)

    def _hand_on(self, component: Sequence[Port]) -> None:
        """Of the inputs that close a cycle, those that are evaluated once for one that stays need no array of their own.

        So it is with grids.  The rows of a smaller array are still in the first cache when they are copied.
        """
        gone = 0
        for p in component:
            kept = self._gathers(p) or KEPT in self.ends[p[0]].attributes or len(self.ends[p[0]].fields) < GRID
            if p not in self.stored_ports or kept or gone == HANDED_ON:
                continue
            before, self.stored_ports = self.stored_ports, self.stored_ports - {p}
            self._evals.clear()
            if self.evals(p) == 1 and self._cut(component, self.stored_ports):
                gone += 1
            else:
                self.stored_ports = before
        self._evals.clear()

    def _added_to(self, p: Port) -> bool:
        """Whether data choose the elements of a gather."""
        for a in self.into[p]:
            index = {n for e in a.send.index.data if e is not None for n in e.names}
            if self.compared.get(a.send, frozenset()) & index:
                return True
        return False

    def _read_at_once(self, p: Port) -> bool:
        """Whether each summand of a gather is found without a search, as data say where it comes from."""
        if not self.compared:
            return False
        for a in self.into[p]:
            index = {n for e in a.send.index.data if e is not None for n in e.names}
            if a.send.loops or set(a.source.fields) - index - self.compared.get(a.send, frozenset()):
                return False
        return True

    def _gathers(self, p: Port) -> bool:
        op = self.ends[p[0]]
        return isinstance(op, NodeOp) and (port := op.port(p[1])) is not None and port.gather is not None

    def sources(self, p: Port) -> Iterable[Port]:
        """The inputs that an input depends on by one step."""
        for a in self.into.get(p, ()):
            yield from self.used_ports(a.send.value)

    def _visit(self, start: Port, seen: set[Port], order: list[Port]) -> None:
        """Depth first, without recursion; `order` gets an input after what it depends on (but for stored ones)."""
        if start in seen:
            return
        seen.add(start)
        stack = [(start, iter(self.sources(start)))]
        while stack:
            p, rest = stack[-1]
            for q in rest:
                if q not in seen:
                    seen.add(q)
                    stack.append((q, iter(self.sources(q))))
                    break
            else:
                order.append(p)
                stack.pop()

    def _cycles(self) -> list[list[Port]]:
        """Strongly connected components of inputs that lie on cycles."""
        edges = {p: list(dict.fromkeys(self.sources(p))) for p in self.into}
        return [c for c in components(list(edges), lambda p: edges.get(p, [])) if len(c) > 1 or c[0] in edges.get(c[0], [])]

    def _cut(self, component: Sequence[Port], stored: Collection[Port]) -> bool:
        """Whether no input of a component waits for itself but through a stored one."""
        left = {p: [q for q in self.sources(p) if q not in stored] for p in component if p not in stored}
        rings = components(list(left), lambda p: [q for q in left[p] if q in left])
        return all(len(c) == 1 and c[0] not in left[c[0]] for c in rings)

    def _decide(self, p: Port) -> None:
        op = self.ends[p[0]]
        if not isinstance(op, OutputOp) and p not in self.stored_ports:
            several = len(self.into.get(p, ())) > 1 or self._gathers(p)
            n = self.evals(p) if several else 1
            if n > 1 and not (self._gathers(p) and self._read_at_once(p) and (n - 1) * self._lookup_cost(p) <= self.worth):
                self.stored_ports.add(p)
                self._forget_evals(p)
        for a in self.into.get(p, ()):
            v = resolve(a.send.value)
            if v in self.stored_values or isinstance(a.source, InputOp) or self.body_cost(v) == 0:
                continue
            n = self.value_evals(v)
            several = n > 1 and (min(n, MANY) - 1) * self.value_cost(v) > self.worth
            if several or (self.worth and self._read_side_by_side(v) and self.value_cost(v) >= FUNCTION):
                self.stored_values.add(v)
                self._forget_evals(v)

    def _read_side_by_side(self, v: SSAValue) -> bool:
        """Whether one instance reads several elements of a value, as where pairs are joined.

        Its term would hold that of the value several times, and so on: it doubles with each level of a tree.  Stored, the
        value has a loop of its own, and that is one of vectors.
        """
        inputs = dict.fromkeys((a.target.symbol, a.port.name) for a in self.out_of.get(v, ()))
        return len({name for name, _ in inputs}) < len(inputs)

    def _think_again(self, order: Sequence[Port]) -> None:
        """Compute values where they are used that were stored because of what they need, which is stored itself by now."""
        self._costs.clear()
        for v in dict.fromkeys(resolve(a.send.value) for p in order for a in self.into.get(p, ())):
            if v not in self.stored_values or self._read_side_by_side(v):
                continue
            if (min(self.value_evals(v), MANY) - 1) * self.value_cost(v) <= self.worth:
                self.stored_values.remove(v)
                self._forget_evals(v)

    def _forget_evals(self, stored: Port | SSAValue) -> None:
        """Drop the counts that follow from those of an input or a value, which is stored now."""
        todo: list[Port | SSAValue] = [stored]
        while todo:
            of = todo.pop()
            self._evals.pop(of, None)
            fed = self.used_ports(of) if isinstance(of, SSAValue) else [resolve(a.send.value) for a in self.into.get(of, ())]
            todo += [x for x in fed if x in self._evals]

    def evals(self, p: Port) -> int:
        """How often an element of an input is evaluated if it is not stored, at most MANY."""
        if p in self.stored_ports or isinstance(self.ends[p[0]], OutputOp):
            return 1
        return _settled(p, self._evals, 1, self._evaluated_for, self._count_evals)

    def value_evals(self, v: SSAValue) -> int:
        """How often a sent value is evaluated for each instance of its source, at most MANY."""
        return _settled(v, self._evals, 1, self._evaluated_for, self._count_evals)

    def _evaluated_for(self, of: Port | SSAValue) -> list[Port | SSAValue]:
        """What an input or a value that is not stored is evaluated for."""
        if isinstance(of, SSAValue):
            ports = [(a.target.symbol, a.port.name) for a in self.out_of.get(of, ())]
            return [p for p in ports if p not in self.stored_ports and not isinstance(self.ends[p[0]], OutputOp)]
        node = self.ends[of[0]]
        assert isinstance(node, NodeOp)
        values = dict.fromkeys(resolve(s.value) for s in node.sends)
        return [v for v in values if v not in self.stored_values and of in self.used_ports(v)]

    def _count_evals(self, of: Port | SSAValue) -> int:
        """The evaluations of an input or a value, from those of what it is evaluated for."""
        if not isinstance(of, SSAValue):
            node = self.ends[of[0]]
            assert isinstance(node, NodeOp)
            values = dict.fromkeys(resolve(s.value) for s in node.sends)
            used = [v for v in values if of in self.used_ports(v)]
            return min(MANY, sum(1 if v in self.stored_values else self.value_evals(v) for v in used))
        always, sometimes = 0, list[tuple[PulledArrow, int]]()
        for a in self.out_of.get(of, ()):
            stars = any(e is None for e in a.send.index.data)
            fan = MANY if (stars or a.send.loops) and not self._used_once(a) else 1
            n = fan * self.evals((a.target.symbol, a.port.name))
            if a.send.when.is_true:
                always += n
            else:
                sometimes.append((a, n))
        exclusive = all(not self._together(a, b) for i, (a, _) in enumerate(sometimes) for b, _ in sometimes[:i])
        total = (max if exclusive else sum)([0, *(n for _, n in sometimes)])
        return min(MANY, always + total)

    def _used_once(self, a: PulledArrow) -> bool:
        """Whether of the instances that an arrow with `*` or a `for` serves only one counts, as data say which."""
        sends = a.target.sends if isinstance(a.target, NodeOp) else []
        compared = [self.compared.get(s, frozenset[str]()) for s in sends]
        loops = {it.name for it in a.send.loops}
        index = list(zip(a.target.fields, a.send.index.data, strict=True))
        stars = {f for f, e in index if e is None or e.name in loops}
        named = {e.name for _, e in index if e is not None}
        return len(compared) == 1 and stars <= compared[0] and loops <= named

    def _together(self, a: PulledArrow, b: PulledArrow) -> bool:
        """Whether two arrows of one source may both be taken."""
        domain = a.source.domain or a.source.declared
        where: Formula = Formula.all((domain.data if domain else TRUE, a.send.when, b.send.when))
        return any(self.lin.feasible(c) for c in self.lin.cases(where))

    def value_cost(self, v: SSAValue) -> int:
        """What it costs to compute a sent value from what is stored."""
        return _settled(v, self._costs, 0, self._computed_from, self._add_costs)

    def _computed_from(self, v: SSAValue) -> list[SSAValue]:
        """The values that are not stored among those that a value follows from by one step."""
        ports = [p for p in self.used_ports(v) if p not in self.stored_ports]
        values = [resolve(a.send.value) for p in ports for a in self.into.get(p, ())]
        return [w for w in values if w not in self.stored_values]

    def _add_costs(self, v: SSAValue) -> int:
        return min(SUM, self.body_cost(v) + sum(self._port_cost(p) for p in self.used_ports(v)))

    def _lookup_cost(self, p: Port) -> int:
        """What it costs to read an element that data choose where it is stored, or to compute it."""
        return LOOKUP + self._port_cost(p)

    def _port_cost(self, p: Port) -> int:
        if p in self.stored_ports:
            return 0
        if self._gathers(p) and not self._read_at_once(p):
            return SUM
        values = [resolve(a.send.value) for a in self.into.get(p, ())]
        return max((0 if v in self.stored_values else self.value_cost(v) for v in values), default=0)


K = TypeVar("K")


def _settled(key: K, memo: dict[K, int], first: int, needs: Callable[[K], list[K]], count: Callable[[K], int]) -> int:
    """A number that follows from those of other keys, found without recursion: chains of nodes may be long.

    Where keys need each other in a ring, the one that is met first counts `first`: a ring without a stored element is
    refused where it is built.
    """
    stack, open_ = [key], set[K]()
    while stack:
        k = stack[-1]
        if k in open_:
            memo[k] = count(k)
            open_.remove(k)
            stack.pop()
        elif k in memo:
            stack.pop()
        else:
            memo[k] = first
            open_.add(k)
            stack.extend(n for n in reversed(needs(k)) if n not in memo)
    return memo[key]
