"""Dividing nodes that have more inputs than the machine's nodes may have.

A node's operations and arrows are put, in the order of the body, into parts of which each reads at most `limit` values that
it does not compute: inputs of the node, and what earlier parts compute. Each part is a node with the same index; values
travel between them as tokens. An input goes to the first part that reads it, which passes it on to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from xdsl.ir import BlockArgument, Operation, SSAValue

from upl_mlir.dialects.upl import LetOp, NodeOp, Port, ProgramOp, SendOp, port_ref, upl_type
from upl_mlir.dialects.upl.query import domain_of, nodes, symbols, value_names
from upl_mlir.passes.analysis.relations import ProgramSets, forgotten, mark
from upl_mlir.passes.arrows import connect, here, new_node
from upl_mlir.passes.build import unused
from upl_mlir.poly.expr import TRUE, IndexExpr


def limit_inputs(program: ProgramOp, limit: int) -> None:
    """Divide every node with more than `limit` inputs, in place. All domains must be known.

    What cannot be divided (an operation or an arrow that reads more than `limit` values by itself) stays as it is.
    """
    wide = [op for op in nodes(program) if len(list(tokens_for(op))) > limit]
    if not wide:
        return
    sets = ProgramSets(program)
    taken = symbols(program)
    divisions: list[_Division] = []
    for op in wide:
        parts = _Parts(op, limit)
        if parts.found():
            divisions.append(_Division(program, sets, op, parts, taken))
    for d in divisions:  # before any arrow is copied
        d.redirect(sets)
    for d in divisions:
        d.run()


def read_by_name(op: NodeOp, send: SendOp) -> list[SSAValue]:
    """The inputs and named values that an arrow reads in its index, its multiplicity and its static conditions."""
    read = set(send.when.names) | set(send.when_point.names)
    for e in (*send.index.data, send.multiplicity, *(x for it in send.loops for x in (it.lo, it.hi))):
        if isinstance(e, IndexExpr):
            read |= e.names
    named = {p.name: op.arg(p.name) for p in op.ports}
    named |= {o.var.data: o.result for o in op.block.ops if isinstance(o, LetOp)}
    return [v for n, v in named.items() if n in read]


def counting_only(op: NodeOp) -> set[str]:
    """The inputs that say how many summands a gather has, and are read by nothing else."""
    counts = {p.count.name for p in op.ports if p.gather is not None and isinstance(p.count, IndexExpr)}
    read = {id(v) for o in op.block.ops for v in o.operands}
    read |= {id(v) for s in op.sends for v in read_by_name(op, s)}
    return {p.name for p in op.ports if p.name in counts and id(op.arg(p.name)) not in read}


def tokens_for(op: NodeOp) -> Iterator[Port]:
    """The inputs that get a token of their own on the machine: those that only count are told by a summand."""
    hidden = counting_only(op)
    return (p for p in op.ports if p.name not in hidden)


@dataclass(eq=False)
class _Part:
    """One part: what it reads from outside, what it computes, its arrows."""

    reads: list[SSAValue] = field(default_factory=list[SSAValue])
    items: list[Operation] = field(default_factory=list[Operation])


class _Parts:
    """Which part each operation and arrow of a node belongs to."""

    def __init__(self, op: NodeOp, limit: int):
        self.op = op
        self.limit = limit
        self.parts: list[_Part] = []
        self.home: dict[SSAValue, int] = {}  # the part that computes a value; inputs: the first that reads it
        self._depends: dict[SSAValue, bool] = {}
        self.hidden = counting_only(op)

    def found(self) -> bool:
        """Divide; whether it can be done."""
        used = {v for o in self.op.block.ops for v in self._operands(o)}
        unread = [self.op.arg(p.name) for p in tokens_for(self.op) if self.op.arg(p.name) not in used]
        for v in unread:  # an input that only has to be there
            self._place(None, [v])
        return all(self._place(o, self._operands(o)) for o in self.op.block.ops if self._kept(o))

    def _kept(self, o: Operation) -> bool:
        return isinstance(o, SendOp) or self.depends(o.results[0])

    def depends(self, v: SSAValue) -> bool:
        """Whether a value depends on an input; what does not is computed wherever it is read."""
        if v not in self._depends:
            if isinstance(v, BlockArgument):
                self._depends[v] = v.index >= len(self.op.fields)
            else:
                assert isinstance(v.owner, Operation)
                self._depends[v] = any(self.depends(o) for o in v.owner.operands)
        return self._depends[v]

    def _operands(self, o: Operation) -> list[SSAValue]:
        """The values that an operation reads and that depend on inputs, inputs that count their gathers included."""
        read = [*o.operands, *(read_by_name(self.op, o) if isinstance(o, SendOp) else [])]
        out: dict[SSAValue, None] = {}
        for v in read:
            if self.depends(v):
                out[v] = None
        return list(out)

    def with_counts(self, values: Iterable[SSAValue]) -> list[SSAValue]:
        """The values, and for each gather among them the input that counts it."""
        out: dict[SSAValue, None] = {}
        for v in values:
            out[v] = None
            if isinstance(v, BlockArgument) and v.index >= len(self.op.fields):
                port = self.op.ports[v.index - len(self.op.fields)]
                name = port.count.name if port.gather is not None and isinstance(port.count, IndexExpr) else None
                if name is not None and self.op.port(name) is not None and name not in self.hidden:
                    out[self.op.arg(name)] = None
        return list(out)

    def _place(self, item: Operation | None, operands: list[SSAValue]) -> bool:
        """Put an operation into the first part that may have it: not before one that computes an operand."""
        first = max((self.home.get(v, 0) for v in operands if not isinstance(v, BlockArgument)), default=0)
        for n in range(first, len(self.parts) + 1):
            part = self.parts[n] if n < len(self.parts) else _Part()
            outside = [v for v in operands if self.home.get(v) != n or isinstance(v, BlockArgument)]
            # A gather and what counts it arrive where the gather is read first.
            new = [v for v in outside if v not in self.home]
            reads = list(dict.fromkeys([*part.reads, *outside, *self.with_counts(new)]))
            if len(reads) > self.limit:
                continue
            if n == len(self.parts):
                self.parts.append(part)
            part.reads = reads
            for v in reads:
                if isinstance(v, BlockArgument):
                    self.home[v] = min(n, self.home.get(v, n))
            if item is not None:
                part.items.append(item)
                for r in item.results:
                    self.home[r] = n
            return True
        return False


class _Division:
    """A node and its parts as nodes; the first part keeps the name."""

    def __init__(self, program: ProgramOp, sets: ProgramSets, op: NodeOp, parts: _Parts, taken: set[str]):
        self.program, self.op, self.parts = program, op, parts
        self.names = [op.symbol, *(unused(f"{op.symbol}_part", taken) for _ in parts.parts[1:])]
        used = {*op.fields, *value_names(sets.program), *(p.name for p in op.ports)}
        title: dict[SSAValue, str] = {op.arg(p.name): p.name for p in op.ports}
        for o in op.block.ops:
            if isinstance(o, LetOp):
                title[o.result] = o.var.data
        used |= set(title.values())
        self.ports: list[dict[SSAValue, Port]] = []
        for n, part in enumerate(parts.parts):
            ports: dict[SSAValue, Port] = {}
            for v in part.reads:
                if isinstance(v, BlockArgument) and parts.home[v] == n:
                    ports[v] = op.ports[v.index - len(op.fields)]
                    continue
                if v not in title:
                    title[v] = unused(f"v{len(title)}", used)
                ports[v] = Port(title[v], upl_type(v.type))
            counts = {q.count.name for q in ports.values() if q.gather is not None and isinstance(q.count, IndexExpr)}
            for p in op.ports:
                if p.name in parts.hidden and p.name in counts:
                    ports[op.arg(p.name)] = p
                    parts.home[op.arg(p.name)] = n
            self.ports.append(ports)

    def redirect(self, sets: ProgramSets) -> None:
        """Let arrows go to the parts that have their inputs."""
        for a in sets.into(self.op.symbol):
            a.send.target = port_ref(self.names[self.parts.home[self.op.arg(a.port.name)]], a.port.name)

    def run(self) -> None:
        """Make the nodes and the arrows between them."""
        op, program = self.op, self.program
        formula = domain_of(op) or TRUE
        made: list[NodeOp] = []
        for name, ports in zip(self.names, self.ports, strict=True):
            comment = f"part of {op.symbol}"
            made.append(new_node(program, name, list(ports.values()), (op.fields, formula), op, op.symbol, comment))
            mark(made[-1], forgotten(op))
        for n, (node, part) in enumerate(zip(made, self.parts.parts, strict=True)):
            known: dict[SSAValue, SSAValue] = dict(zip(op.block.args, node.block.args[: len(op.fields)], strict=False))
            known |= {v: node.arg(p.name) for v, p in self.ports[n].items()}
            _fill(node, part, known)
            for later in range(n + 1, len(made)):
                for v, p in self.ports[later].items():
                    if self.parts.home[v] == n:
                        to = port_ref(self.names[later], p.name)
                        connect(program, node, known[v], to, here(op.fields), rule="part", origin=op)
        for node in reversed(made):
            node.detach()
            program.body.block.insert_op_after(node, op)
        op.detach()
        op.erase()


def _fill(node: NodeOp, part: _Part, known: dict[SSAValue, SSAValue]) -> None:
    """Copy the part's operations and arrows, and what they read that depends on no input."""

    def copy(v: SSAValue) -> SSAValue:
        if v not in known:
            assert isinstance(v.owner, Operation)
            new = v.owner.clone({o: copy(o) for o in v.owner.operands})
            node.block.add_op(new)
            new.results[0].name_hint = v.name_hint
            known[v] = new.results[0]
        return known[v]

    for item in part.items:
        if isinstance(item, SendOp):
            node.block.add_op(item.clone({v: copy(v) for v in item.operands}))
        else:
            copy(item.results[0])
