# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# (xDSL leaves the types of attributes and results open)
"""What notes that a run goes wrong: outputs besides the program's own, and the nodes that serve them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from xdsl.ir import Operation

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import FormulaAttr, Gather, OutputOp, ProgramOp, UplType, port_ref
from upl_mlir.dialects.upl.query import span_of
from upl_mlir.passes.arrows import here
from upl_mlir.passes.autodiff.adjoint_plan import total
from upl_mlir.passes.build import unused
from upl_mlir.passes.predicate.checks import mark
from upl_mlir.passes.predicate.drafts import Draft, Make, Way
from upl_mlir.passes.predicate.indices import OTHER_ENGINES
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import TRUE, IndexExpr
from upl_mlir.poly.fibres import fibre_counts
from upl_mlir.poly.sets import PSet

FAULT = "fault"
"""The one output that says whether something went wrong; with a number behind it where that is taken."""


@dataclass(eq=False)
class Faults:
    """Outputs that say what went wrong, one for each kind; or, as `one`, an output for all of them.

    `made` gets the nodes that are to be built.
    """

    program: ProgramOp
    used: set[str]
    one: bool
    made: list[Draft] = field(default_factory=list[Draft])
    looks: dict[object, Draft] = field(default_factory=dict[object, Draft])
    """The nodes that note faults, by what their instances are."""
    some: list[tuple[Draft, str]] = field(default_factory=list[tuple[Draft, str]])
    """Nodes that say whether something went wrong, and by which of their inputs."""

    def check(self, name: str, type_: UplType, kind: str, about: str, like: Operation) -> OutputOp:
        """A new output that a run is judged by: with the elements of another one, or with one element."""
        name = unused(name, self.used)
        if isinstance(like, OutputOp):
            op = OutputOp(name, like.fields, type_, like.declared.data if like.declared else None)
            op.domain = like.domain
        else:
            op = OutputOp(name, (), type_, None)
            op.domain = FormulaAttr(TRUE)
        mark(op, kind, about)
        op.location = like.location
        self.program.body.block.add_op(op)
        return op

    def note(
        self, gate: Draft, domain: PSet, bit: Make, what: str, origin: Operation, name: str | None = None
    ) -> None:
        """An output that says whether a bit is 1 in some instance of a new node; with `compared`, one for all of them."""
        name = name or gate.name
        if self.one:
            self._look(gate, domain, bit, origin, name)
            return
        n = total(counted(domain.extend(()), domain.dims, origin), domain.project(()))
        merge = Draft(unused(f"{name}_faults", self.used), (), TRUE, origin, set(self.used))
        port = merge.port("some", UplType.BOOL, gather=Gather.OR, count=n)
        check = self.check(f"{name}_fault", UplType.BOOL, "fault", what, origin)
        merge.send(lambda body, values: values[port], port_ref(check.symbol), Way(()))
        self.made.append(merge)
        gate.send(bit, port_ref(merge.name, port), Way(()))

    def _look(self, gate: Draft, domain: PSet, bit: Make, origin: Operation, name: str) -> None:
        """Note a fault where a bit is 1, for all values of the last field together.  Loops keep what is noted, so that it
        is asked where the values are at hand."""
        outer = outer_fields(domain.dims)
        inner = [f for f in domain.dims if f not in outer]
        where = domain.project(outer)
        n = total(counted(domain, inner, origin), where) if inner else IndexExpr.of(1)
        text = describe(where.as_meant())
        draft = self.looks.get((outer, text))
        if draft is None:
            draft = Draft(unused(f"{name}_faulty", self.used), outer, text, origin, set(self.used))
            draft.kept = True
            draft.port("some", UplType.BOOL, gather=Gather.OR, count=n)
            self.looks[outer, text] = draft
            self.made.append(draft)
            self._summed_up(draft, where, origin)
        else:
            port = draft.ports[0]
            assert isinstance(port.count, IndexExpr)
            draft.ports[0] = replace(port, count=port.count + n)
        gate.send(bit, port_ref(draft.name, draft.ports[0].name), Way(here(outer)))

    def _summed_up(self, draft: Draft, where: PSet, origin: Operation) -> None:
        """Whether a node says so anywhere."""
        n = total(counted(where.extend(()), where.dims, origin), where.project(()))
        merge = Draft(unused(f"{draft.name}_some", self.used), (), TRUE, origin, set(self.used))
        port = merge.port("some", UplType.BOOL, gather=Gather.OR, count=n)
        some = draft.ports[0].name
        draft.send(lambda body, values: values[some], port_ref(merge.name, port), Way(()))
        self.made.append(merge)
        self.some.append((merge, port))

    def finish(self) -> None:
        """The output that says whether something went wrong."""
        check = self.check(FAULT, UplType.BOOL, "fault", "a token is left over, comes twice or never", self.program)
        merge = Draft(unused("faults", self.used), (), TRUE, self.program, set(self.used))
        number = IndexExpr.of(len(self.some))
        port = merge.port("some", UplType.BOOL, gather=Gather.OR, count=number)
        for found, one in self.some:
            found.send(lambda body, values, one=one: values[one], port_ref(merge.name, port), Way(()))
        merge.send(lambda body, values: values[port], port_ref(check.symbol), Way(()))
        self.made.append(merge)


def outer_fields(fields: tuple[str, ...]) -> tuple[str, ...]:
    """All fields but the last; one that stands alone."""
    return fields[:-1] or fields


def counted(r: PSet, over: Sequence[str], at: Operation) -> list[tuple[PSet, IndexExpr]]:
    """How many points a set has over some of its dimensions."""
    found = fibre_counts(r, over)
    if found is None:
        raise error("UPL1821", "how many tokens there may be cannot be counted", span_of(at), help=OTHER_ENGINES)
    return list(found)
