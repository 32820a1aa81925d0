"""The product of two Jacobians as nodes: ``J_Y_X = J_Y_V J_V_X``, where two outputs of the program become one.

    node Mul_Y_X<y,v,x> { in a, b; a*b -> Sum_Y_X.s<y,x> }
    node Sum_Y_X<y,x>   { in @(+) s[n]; s -> J_Y_X<y,x> }          // V has n elements
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr

from upl_mlir.dialects.upl import Gather, OutputOp, Port, ProgramOp, SendOp, port_ref
from upl_mlir.dialects.upl.attributes import CountAttr, IndexAttr
from upl_mlir.dialects.upl.query import arrows, endpoints, symbols
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.passes.arrows import COMMENT, connect, free_names, here, new_node
from upl_mlir.passes.build import unused
from upl_mlir.poly.counts.counting import count
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import TRUE, Formula, IndexExpr


@dataclass(frozen=True)
class Factor:
    """A Jacobian: the output that has it, and how many fields, the first ones, are those of what is differentiated."""

    output: str
    first: int


def multiply(
    program: ProgramOp, left: Mapping[str, Factor], right: Mapping[str, Factor], width: IndexExpr,
    names: Mapping[tuple[str, str], str], belongs: str, note: str,
) -> None:  # fmt: skip
    """Replace outputs by their products: those of `left`, by what is differentiated, are Jacobians by the `width` values in
    the middle; those of `right`, by what it is differentiated by, are Jacobians of these.

    `names` has the results by both; the nodes belong to the node `belongs`.
    """
    sets = ProgramSets(program)
    sends = list(arrows(program))
    for (of, wrt), name in names.items():
        _Product(program, sets, left[of], right[wrt], width).write(name, belongs, f"{of} by {wrt}, {note}", sends)
    gone = {f.output for f in (*left.values(), *right.values())}
    for op in [*(s for s in sends if s.target_name in gone), *(endpoints(program)[n] for n in sorted(gone))]:
        op.detach()
        op.erase()


class _Product:
    """One product of two outputs."""

    def __init__(self, program: ProgramOp, sets: ProgramSets, left: Factor, right: Factor, width: IndexExpr):
        self.program, self.sets, self.width = program, sets, width
        self.a, self.b = self._output(left.output), self._output(right.output)
        self.rows, middle = self.a.fields[: left.first], self.a.fields[left.first :]
        own, columns = self.b.fields[: right.first], self.b.fields[right.first :]
        used = {*symbols(program), *self.rows}
        self.columns = tuple(unused(f, used) for f in columns)
        self.middle = tuple(unused(f, used) for f in middle)
        self.by_a = dict(zip(middle, self.middle, strict=True))
        self.by_b = dict(zip((*own, *columns), (*self.middle, *self.columns), strict=True))
        self.counts = (
            count(sets.domain(left.output).project(self.rows)),
            count(sets.domain(right.output).project(columns)),
        )

    def _output(self, name: str) -> OutputOp:
        op = self.sets.ends[name]
        assert isinstance(op, OutputOp)
        return op

    def write(self, name: str, belongs: str, text: str, sends: Sequence[SendOp]) -> None:
        """Make the product, and let it take what `sends` bring to its two factors."""
        rows, middle, columns, program = self.rows, self.middle, self.columns, self.program
        where = _told(self.a, self.by_a) & _told(self.b, self.by_b)
        whole = (*rows, *middle, *columns)
        ends = self.sets.ctx.set(whole, where).project((*rows, *columns))
        taken = symbols(program)
        out = OutputOp(unused(name, taken), ends.dims, self.a.type, describe(ends))
        out.domain = out.declared
        out.location = self.a.location
        out.attributes[COMMENT] = StringAttr(f"derivative of {text}")
        program.body.block.add_op(out)
        s, a, b = free_names(self.sets, whole, "s", "a", "b")
        of = name.removeprefix("J_")
        ports = [Port(s, out.type, Gather.SUM, self.width)]
        total = new_node(program, unused(f"Sum_{of}", taken), ports, ends, out, belongs, f"elements of {name}")
        connect(program, total, total.arg(s), port_ref(out.symbol), here(ends.dims), rule="product", origin=out)
        ports = [Port(a, self.a.type), Port(b, self.b.type)]
        each = new_node(program, unused(f"Mul_{of}", taken), ports, (whole, where), out, belongs, f"summands of {name}")
        body = Body(each.block, out.location)
        product = (body.val(each.arg(a)) * body.val(each.arg(b))).ssa
        connect(program, each, product, port_ref(total.symbol, s), here(ends.dims), rule="product", origin=out)
        for send in sends:
            if send.target_name == self.a.symbol:
                _copy(send, port_ref(each.symbol, a), (*send.index.data, *[None] * len(columns)), self.counts[1])
            elif send.target_name == self.b.symbol:
                _copy(send, port_ref(each.symbol, b), (*[None] * len(rows), *send.index.data), self.counts[0])


def _told(op: OutputOp, names: Mapping[str, str]) -> Formula:
    """The domain of an output in other names."""
    attr = op.domain or op.declared
    return TRUE if attr is None else attr.data.substitute(names)


def _copy(send: SendOp, target: SymbolRefAttr, index: tuple[IndexExpr | None, ...], n: IndexExpr | None) -> None:
    """Send the same to one input more, where `n` instances use it."""
    assert n is not None, "counts were known when the cut was chosen"
    new = send.clone({v: v for v in send.operands})
    new.target = target
    new.index = IndexAttr(index)
    new.count = CountAttr(n) if None in index and n != IndexExpr.of(1) else None
    parent = send.parent_block()
    assert parent is not None
    parent.insert_op_before(new, send)
