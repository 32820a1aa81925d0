"""Statements in which data decide what is computed: branches and loops, as nodes whose arrows have conditions; elements that
an array of numbers chooses, as nodes whose arrows have data in their index.

    y[i] = x[i] > 0 ? exp(x[i]) : x[i]*x[i]         only what is chosen is computed
    ->
    node y_1_if<i>   { in x; c: bool = x > 0; if c: x -> y_1_then.x<i>; if !c: x -> y_1_else.x<i> }
    node y_1_then<i> { in x; exp(x) -> y_1.v<i> }
    node y_1_else<i> { in x; x*x -> y_1.v<i> }
    node y_1<i>      { in v, go; v -> ... }        y_1_if sends go, too: this node surely fires

    while abs(x[i]) > 1: x[i] = x[i]/2               each element as often as its own value says
    ->
    node y_1_while<i,k> { in s; c: bool = abs(s) > 1; if c: s/2 -> y_1_while.s<i,k+1>; if !c: s -> y_1.v<i> }

    y[i] = x[id[i]]
    ->
    node y_1_at<i>     { in id; k: int = int(id); id -> y_1_pick.on<k,i> }
    node y_1_pick<r,i> { in x, on; x -> y_1.v<i> }           x comes with `##`: who chooses an element is data

    y = the sum of all x[i] at id[i]
    ->
    node y_1_at<i> { in x, id; k: int = int(id); x -> y_1.s<k> }
    node y_1<i0>   { in @(+) s[##]; s -> ... }

Establishes: nodes with declared domains, that of a loop without an end; what data decide stays unproved (LANGUAGE 3.6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import SymbolRefAttr, i64
from xdsl.ir import SSAValue

from upl_mlir.diagnostics import Span
from upl_mlir.dialects import upl
from upl_mlir.dialects.upl import NodeOp, UplType, port_ref
from upl_mlir.frontend.tensor import form
from upl_mlir.frontend.tensor.values import ValueWriter
from upl_mlir.frontend.tensor.wiring import Piece, Use, Wiring, locate, unused
from upl_mlir.ops import Body
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.sets import PolyContext


@dataclass
class Decided:
    """Lowers such statements; `add` takes a node, `pieces` has what each tensor is at the moment."""

    type: UplType
    ctx: PolyContext
    wiring: Wiring
    fresh: Callable[[str], str]
    add: Callable[[NodeOp], None]
    pieces: Mapping[str, list[Piece]]

    def branch(self, s: form.Branch, name: str) -> list[Piece]:
        """The elements that a branch gives."""
        fields, box = s.names, form.box(s.names, s.ranges)
        condition, *arms = s.condition, s.then, s.otherwise
        result, piece = self._result(name, fields, box, s.span)
        reads = list(dict.fromkeys(r for e in (condition, *arms) for r in _reads(e)))
        choose, names = self._node(f"{name}_if", fields, box, reads, s.span)
        uses = [Use(names[r], self.pieces[r.tensor], r.index, s.span) for r in reads]
        whole = self.ctx.set(fields, box)
        for use in uses:
            self.wiring.arrows(use, choose, whole, {})
        go = port_ref(result.symbol, result.ports[1].name)
        self._send(choose, choose.arg(choose.ports[0].name), go, fields, None, s.span)
        for word, arm, chosen in zip(("then", "else"), arms, self._both(choose, condition, names, s.span), strict=True):
            needed = list(dict.fromkeys(_reads(arm)))
            node, ports = self._node(f"{name}_{word}", fields, box, needed, s.span)
            sent = {ports[r]: choose.arg(names[r]) for r in needed}
            if not needed:  # something must tell it to fire
                sent = {node.ports[0].name: choose.arg(choose.ports[0].name)}
            for port, value in sent.items():
                self._send(choose, value, port_ref(node.symbol, port), fields, chosen, s.span)
            value = ValueWriter(node, self.type).emit(arm, ports, s.span)
            self._send(node, value, port_ref(result.symbol, result.ports[0].name), fields, None, s.span)
        return [piece]

    def loop(self, s: form.While, names: Mapping[str, str]) -> dict[str, list[Piece]]:
        """The elements of each target after the loop; `names` has names for their nodes."""
        fields, box = s.names, form.box(s.names, s.ranges)
        found = {t: self._result(name, fields, box, s.span) for t, name in names.items()}
        round_ = unused("k", fields)
        index = tuple(map(IndexExpr.of, fields))
        states = [form.Read(f"{form.STATE}{n}", index) for n in range(len(s.targets))]
        inside = box & Formula.compare(0, "<=", round_)
        node, ports = self._node(f"{next(iter(names.values()))}_while", (*fields, round_), inside, states, s.span)
        entry, whole = self.ctx.set(node.fields, box & Formula.compare(round_, "==", 0)), self.ctx.set(fields, box)
        on, out = self._both(node, s.condition, ports, s.span)
        writer = ValueWriter(node, self.type)
        following = [writer.emit(e, ports, s.span) for e in s.body]
        later = (*index, IndexExpr.of(round_) + 1)
        for state, first, value, target in zip(states, s.first, following, s.targets, strict=True):
            assert isinstance(first, form.Read), "loops begin with elements of tensors"
            pieces = self.pieces[first.tensor]
            self.wiring.arrows(Use(ports[state], pieces, first.index, s.span), node, entry, {})
            self._send(node, value, port_ref(node.symbol, ports[state]), later, on, s.span)
            if target is not None:
                result, _ = found[target]
                self.wiring.arrows(Use(result.ports[1].name, pieces, first.index, s.span), result, whole, {})
                self._send(node, node.arg(ports[state]), port_ref(result.symbol, result.ports[0].name), index, out, s.span)
        return {t: [piece] for t, (_, piece) in found.items()}

    def gate(self, s: form.Gate, names: Mapping[str, str]) -> dict[str, list[Piece]]:
        """The elements that pass, and those that are left after the loop; `names` has names for their nodes."""
        fields, box = s.names, form.box(s.names, s.ranges)
        reads = list(dict.fromkeys([s.value, *_reads(s.condition)]))
        node, ports = self._node(f"{next(iter(names.values()))}_while", fields, box, reads, s.span)
        domain, index = self.ctx.set(fields, box), tuple(map(IndexExpr.of, fields))
        self.wiring.connect(node, [Use(ports[r], self.pieces[r.tensor], r.index, s.span) for r in reads], domain, s.ranges)
        on, left = self._both(node, s.condition, ports, s.span)
        value = node.arg(ports[s.value])
        found: dict[str, list[Piece]] = {}
        if s.target is not None:
            passed, names_in = self._node(names[s.target], fields, box, [s.value], s.span)
            port = names_in[s.value]
            self._send(node, value, port_ref(passed.symbol, port), index, on, s.span)
            found[s.target] = [Piece(passed, passed.arg(port), index, domain, domain)]
        if s.out is not None:
            after = tuple(f for f in fields if f != s.rounds)
            inside = form.box(after, s.ranges)
            result, piece = self._result(names[s.out], after, inside, s.span)
            first = Use(result.ports[1].name, self.pieces[s.first.tensor], s.first.index, s.span)
            self.wiring.arrows(first, result, self.ctx.set(after, inside), {})
            self._send(node, value, port_ref(result.symbol, result.ports[0].name), after, left, s.span)
            found[s.out] = [piece]
        return found

    # -- what an array of numbers chooses ----------------------------------------------------------------------------
    def pick(self, s: form.Pick, name: str, extent: int) -> list[Piece]:
        """The elements that are chosen; `extent` is that of the source where the number is."""
        fields, box = s.names, form.box(s.names, s.ranges)
        result, piece = self._result(name, fields, box, s.span)
        place, names, number = self._number(name, fields, box, [s.at], s, extent)
        value = place.arg(names[s.at])
        self._send(place, value, port_ref(result.symbol, result.ports[1].name), fields, None, s.span)
        row = unused("r", fields)
        inside = box & Formula.compare(0, "<=", row) & Formula.compare(row, "<", extent)
        ports = [upl.Port(unused(n, (row, *fields)), self.type) for n in ("x", "on")]
        chosen = NodeOp(self.fresh(f"{name}_pick"), (row, *fields), ports, inside)
        locate(chosen, s.span)
        self.add(chosen)
        self._send(place, value, port_ref(chosen.symbol, ports[1].name), (number, *fields), None, s.span)
        self._send(chosen, chosen.arg(ports[0].name), port_ref(result.symbol, result.ports[0].name), fields, None, s.span)
        for p in self.pieces[s.source]:
            at = dict(zip(s.index, p.index, strict=True))
            index = (at[None], *(at.get(f) for f in fields))
            send = upl.SendOp(
                p.value, port_ref(chosen.symbol, ports[0].name), index, count=upl.Special.UNBOUNDED,
                condition=describe(p.domain, p.all),
            )  # fmt: skip
            locate(send, s.span)
            p.source.block.add_op(send)
        return [piece]

    def scatter(self, s: form.Scatter, name: str, shape: Sequence[int]) -> list[Piece]:
        """What arrives at each element of the target, which has the given shape, joined."""
        extent = shape[s.index.index(None)]
        place, names, number = self._number(
            name, s.names, form.box(s.names, s.ranges), [s.value, s.at], s, extent
        )  # fmt: skip
        fields = tuple(f"i{n}" for n in range(len(shape)))
        box = form.within(fields, shape)
        port = upl.Port(unused("s", fields), self.type, s.op, upl.Special.UNBOUNDED)
        op = NodeOp(self.fresh(name), fields, [port], box)
        locate(op, s.span)
        self.add(op)
        to = [number if n is None else n for n in s.index]
        self._send(place, place.arg(names[s.value]), port_ref(op.symbol, port.name), to, None, s.span)
        domain = self.ctx.set(fields, box)
        return [Piece(op, op.arg(port.name), tuple(map(IndexExpr.of, fields)), domain, domain)]

    def _number(
        self, name: str, fields: Sequence[str], box: Formula, reads: Sequence[form.Read], s: form.Pick | form.Scatter,
        extent: int,
    ) -> tuple[NodeOp, dict[form.Expr, str], str]:  # fmt: skip
        """A node that reads some elements, its inputs' names, and the name of the integer that one of them is, an index."""
        reads, at, span = list(dict.fromkeys(reads)), s.at, s.span
        node, names = self._node(f"{name}_at", fields, box, reads, span)
        whole = self.ctx.set(fields, box)
        for r in reads:
            self.wiring.arrows(Use(names[r], self.pieces[r.tensor], r.index, span), node, whole, {})
        number: form.Expr = at
        if s.wraps:
            below = form.Apply("<", (at, form.Number(0)))
            number = form.Apply("?:", (below, form.Apply("+", (at, form.Number(extent))), at))
        value = ValueWriter(node, self.type).emit(number, names, span)
        if self.type is not UplType.INT:
            value = Body(node.block, node.location).add(arith.FPToSIOp(value, i64))
        let = upl.LetOp(unused("k", {*fields, *names.values()}), value)
        locate(let, span)
        node.block.add_op(let)
        return node, names, let.var.data

    # -- parts -------------------------------------------------------------------------------------------------------
    def _node(
        self, name: str, fields: Sequence[str], box: Formula, reads: Sequence[form.Read], span: Span | None
    ) -> tuple[NodeOp, dict[form.Expr, str]]:
        """A node with an input for each read, and the inputs' names."""
        used = set(fields)
        names: dict[form.Expr, str] = {}
        for r in reads:
            names[r] = unused("s" if r.tensor.startswith(form.STATE) else r.tensor.lower(), used)
            used.add(names[r])
        ports = [upl.Port(n, self.type) for n in names.values()] or [upl.Port(unused("go", used), self.type)]
        op = NodeOp(self.fresh(name), tuple(fields), ports, box)
        locate(op, span)
        self.add(op)
        return op, names

    def _result(
        self, name: str, fields: Sequence[str], box: Formula, span: Span | None
    ) -> tuple[NodeOp, Piece]:
        """The node that gets an element whichever way it was computed, and beside it a token that surely comes: so it is
        known that it fires, and sums over its elements can be differentiated."""
        ports = [upl.Port(unused(n, fields), self.type) for n in ("v", "go")]
        op = NodeOp(self.fresh(name), tuple(fields), ports, box)
        locate(op, span)
        self.add(op)
        domain = self.ctx.set(fields, box)
        return op, Piece(op, op.arg(ports[0].name), tuple(map(IndexExpr.of, fields)), domain, domain)

    def _both(
        self, node: NodeOp, condition: form.Expr, names: Mapping[form.Expr, str], span: Span | None
    ) -> tuple[SSAValue, SSAValue]:
        """Whether the condition holds, under a name, and whether it does not."""
        writer = ValueWriter(node, self.type)
        let = upl.LetOp(unused("c", {*node.fields, *names.values()}), writer.truth(condition, names, span))
        locate(let, span)
        node.block.add_op(let)
        return let.result, writer.negation(let.result, span)

    @staticmethod
    def _send(
        source: NodeOp, value: SSAValue, target: SymbolRefAttr, index: Sequence[str | IndexExpr],
        condition: SSAValue | None, span: Span | None,
    ) -> None:  # fmt: skip
        send = upl.SendOp(value, target, tuple(map(IndexExpr.of, index)), predicate=condition)
        locate(send, span)
        source.block.add_op(send)


def _reads(e: form.Expr) -> list[form.Read]:
    """The elements that an expression reads."""
    found = list(form.walk(e))
    assert not any(isinstance(p, form.Sum | form.Chain) for p in found), "branches and loops are of elements"
    return [p for p in found if isinstance(p, form.Read)]
