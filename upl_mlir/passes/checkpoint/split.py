"""Dividing nodes by what depends on some inputs: one part computes what does not, the other what does.

A tangent sits in the node of its primal; before it is batched the two are taken apart, so that the primal is computed once
and its outputs stay what they are.  The values that the dependent part reads travel between the two as tokens, chosen like
the stashes of an adjoint node: the cheapest cut (AUTODIFF rule 7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.dialects.builtin import i1
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from upl_mlir.dialects.upl import (
    InputOp,
    LetOp,
    NodeOp,
    OutputOp,
    Port,
    ProgramOp,
    SendOp,
    Special,
    UplType,
    port_ref,
    upl_type,
)
from upl_mlir.dialects.upl.attributes import PortsAttr
from upl_mlir.dialects.upl.query import symbols, value_names
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.arrows import COMMENT, PRIMAL, connect, here, new_node
from upl_mlir.passes.autodiff.cut import cheapest_cut
from upl_mlir.passes.autodiff.eliminate_dead_derivatives import erase_unused
from upl_mlir.passes.build import unused
from upl_mlir.poly.expr import TRUE, IndexExpr
from upl_mlir.poly.sets import PSet


class Dependents:
    """What depends on host inputs and node inputs, by any path of tokens: values, conditions, indices, counts.

    `ports` has the dependent inputs of each node.  A node in `whole` cannot be divided: all that it sends depends.
    `enough` names inputs of nodes on which these are known to fire, as they did before the others were added.
    """

    def __init__(
        self, sets: ProgramSets, names: Iterable[str], *, divide: bool = True,
        enough: Mapping[str, frozenset[str]] | None = None,
    ):  # fmt: skip
        self.sets = sets
        self.enough = enough or {}
        self.hosts = {n for n in names if isinstance(sets.ends[n.partition(".")[0]], InputOp)}
        self.ports: dict[str, set[str]] = {n: set() for n, op in sets.ends.items() if isinstance(op, NodeOp)}
        self.whole: set[str] = set() if divide else set(self.ports)
        for n in names:
            node, _, port = n.partition(".")
            if node in self.ports:
                self.ports[node].add(port)
        self._memo: dict[SSAValue, bool] = {}
        changed = True
        while changed:
            self._memo.clear()
            changed = sum(map(self._grow, self.ports)) + sum(map(self._pass_on, sets.arrows)) > 0

    def _pass_on(self, a: Arrow) -> bool:
        """Mark what an arrow enters; whether that is new."""
        name = a.target.symbol
        if isinstance(a.target, OutputOp) or a.port.name in self.ports[name] or not self.arrow(a):
            return False
        self.ports[name].add(a.port.name)
        return True

    def _grow(self, name: str) -> bool:
        """A gather completes together with the input that counts it; a node that cannot be divided is noted."""
        op, ports = self.sets.ends[name], self.ports[name]
        assert isinstance(op, NodeOp)
        more = {
            p.name for p in op.ports
            if p.name not in ports and isinstance(p.count, IndexExpr) and p.count.names & ports
        }  # fmt: skip
        ports |= more
        if ports and name not in self.whole and not self._divisible(op):
            self.whole.add(name)
            return True
        return bool(more)

    def _divisible(self, op: NodeOp) -> bool:
        """Whether the other inputs alone make the node fire, at a determined index, and anything is computed from them."""
        rest = [p for p in op.ports if p.name not in self.ports[op.symbol]]
        if not any(not self.arrow(a) for a in self.sets.out_of(op.symbol)):
            return False
        enough = self.enough.get(op.symbol)
        return (enough is not None and enough <= {p.name for p in rest}) or determined(self.sets, op, rest)

    def arrow(self, a: Arrow) -> bool:
        """Whether what an arrow sends, or whether and where it sends it, depends on the inputs."""
        name = a.source.symbol
        if isinstance(a.source, InputOp):
            return name in self.hosts
        if name in self.whole:
            return bool(self.ports[name])
        values = [a.send.value, *([a.send.predicate] if a.send.predicate else []), *_by_name(a.source, a.send)]
        return any(self.value(a.source, v) for v in values)

    def value(self, op: NodeOp, v: SSAValue) -> bool:
        """Whether a value of a body depends on the inputs."""
        if v not in self._memo:
            if isinstance(v, BlockArgument):
                at = v.index - len(op.fields)
                self._memo[v] = at >= 0 and op.ports[at].name in self.ports[op.symbol]
            else:
                assert isinstance(v.owner, Operation)
                self._memo[v] = any(self.value(op, o) for o in v.owner.operands)
        return self._memo[v]


def determined(sets: ProgramSets, op: NodeOp, ports: Iterable[Port]) -> bool:
    """Whether tokens on the given inputs alone always determine the node's index."""
    ports = list(ports)
    counted = [p.gather is not None and p.count is not Special.CARRIED for p in ports]
    if not ports or all(counted):  # instances with empty gathers fire at the start
        return bool(ports)
    for at in range(len(op.fields)):
        open_ = sets.domain(op.symbol)
        for p in ports:
            if not open_.is_empty():
                open_ = open_ - (_telling(sets, op, p, at) if p.gather is None else gathered(sets, op, p))
        if not open_.is_empty():
            return False
    return True


def _telling(sets: ProgramSets, op: NodeOp, p: Port, at: int) -> PSet:
    """The instances at which a token on an ordinary input says the field at a place: it has no `*` there."""
    into = sets.into(op.symbol, p.name)
    telling = [a for a in into if a.send.index.data[at] is not None]
    if len(telling) == len(into):  # the input is served everywhere
        return sets.domain(op.symbol) if into else sets.ctx.empty(op.fields)
    out = sets.ctx.empty(op.fields)
    for a in telling:
        if a.exact:
            out = out | sets.image(a)
    return out


def gathered(sets: ProgramSets, op: NodeOp, p: Port) -> PSet:
    """The instances at which a gather surely has a summand, whose full index says all, or ends without one."""
    whole = sets.domain(op.symbol)
    if p.count is Special.CARRIED:
        return whole
    if p.open:
        return whole if op.declared is not None else sets.ctx.empty(op.fields)
    assert isinstance(p.count, IndexExpr)
    if any(op.port(n) for n in p.count.names):
        return sets.ctx.empty(op.fields)
    return whole - sets.ctx.set(op.fields, sets.no_summands(p.count))


def _by_name(op: NodeOp, send: SendOp) -> list[SSAValue]:
    """The values that an arrow reads by name: in its index and its multiplicity."""
    read: set[str] = set()
    for e in (*send.index.data, send.multiplicity):
        if isinstance(e, IndexExpr):
            read |= e.names
    lets = {o.var.data: o.result for o in op.block.ops if isinstance(o, LetOp)}
    ports = {p.name: op.arg(p.name) for p in op.ports}
    return [v for n, v in {**lets, **ports}.items() if n in read]


def split(
    program: ProgramOp, names: Iterable[str], prefix: str, enough: Mapping[str, frozenset[str]] | None = None
) -> None:
    """Divide every node of which only a part depends on the given inputs, in place.

    The dependent part of node ``N`` becomes a node of its own, ``prefix`` + N.  All domains must be known; for `enough` see
    `Dependents`.
    """
    sets = ProgramSets(program)
    dependents = Dependents(sets, names, enough=enough)
    taken = symbols(program)
    divisions: list[_Division] = []
    for name, ports in dependents.ports.items():
        op = sets.ends[name]
        if isinstance(op, NodeOp) and ports and name not in dependents.whole:
            divisions.append(_Division(program, sets, dependents, op, unused(f"{prefix}{name}", taken)))
    for d in divisions:  # before any arrow is copied
        d.redirect()
    for d in divisions:
        d.run()


class _Division:
    """One node being divided."""

    def __init__(self, program: ProgramOp, sets: ProgramSets, dependents: Dependents, op: NodeOp, name: str):
        self.program, self.sets, self.op = program, sets, op
        self.ports = [p for p in op.ports if p.name in dependents.ports[op.symbol]]
        self.moved = [a.send for a in sets.out_of(op.symbol) if dependents.arrow(a)]
        body = op.block.ops
        inside = [o for o in body if not isinstance(o, SendOp) and dependents.value(op, o.results[0])]
        self.inside = set(inside)
        self.name = name
        self.dependents = dependents

    def redirect(self) -> None:
        """Let what the dependent inputs take go to the new node."""
        for p in self.ports:
            for a in self.sets.into(self.op.symbol, p.name):
                a.send.target = port_ref(self.name, p.name)

    def run(self) -> None:
        """Make the dependent part, and leave the rest."""
        op = self.op
        stash = self._stash()
        used = {*op.fields, *value_names(self.sets.program)}
        used |= {p.name for p in self.ports} | {o.var.data for o in self.inside if isinstance(o, LetOp)}
        extra = {v: Port(unused(n, used), upl_type(v.type)) for v, n in stash.items()}
        ports = [*self.ports, *extra.values()]
        alone = not extra and not determined(self.sets, op, self.ports)
        if alone:
            ports.append(Port(unused("go", used), UplType.BOOL))
        attr = op.domain or op.declared
        formula = attr.data if attr else TRUE
        part = new_node(self.program, self.name, ports, (op.fields, formula), op, op.symbol, f"the rest of {op.symbol}")
        part.attributes |= {k: v for k, v in op.attributes.items() if k not in (PRIMAL, COMMENT)}
        self._fill(part, {v: part.arg(p.name) for v, p in extra.items()})
        for s in self.moved:
            s.detach()
            s.erase()
        for v, p in extra.items():
            connect(self.program, op, v, port_ref(part.symbol, p.name), here(op.fields), rule="stash", origin=op)
        if alone:
            true = Body(op.block, op.location).constant(1, i1)
            connect(
                self.program, op, true, port_ref(part.symbol, ports[-1].name), here(op.fields), rule="stash", origin=op
            )
        self._shrink(op)  # now that all that it sends is used

    def _stash(self) -> dict[SSAValue, str]:
        """The values that the rest must send over, with their names."""
        op = self.op
        out: dict[SSAValue, str] = {}
        names = {n for p in self.ports if isinstance(p.count, IndexExpr) for n in p.count.names}
        forced = [v for s in self.moved for v in _by_name(op, s)] + [
            op.arg(p.name) for p in op.ports if p.name in names
        ]
        for v in forced:  # read by name: they must come under it
            if not self.dependents.value(op, v):
                out[v] = v.owner.var.data if isinstance(v.owner, LetOp) else self._port_of(v)
        needed = [v for s in self.moved for v in s.operands]
        needed += [v for o in self.inside for v in o.operands]
        free = [v for v in needed if not self.dependents.value(op, v) and v not in out]
        inputs = {op.arg(p.name) for p in op.ports}
        for n, v in enumerate(cheapest_cut(free, inputs.__contains__, lambda v: upl_type(v.type).bits)):
            if v not in out:
                named = next((u.operation for u in v.uses if isinstance(u.operation, LetOp)), v.owner)
                let = named.var.data if isinstance(named, LetOp) else None
                out[v] = let or (self._port_of(v) if isinstance(v, BlockArgument) else f"v{n + 1}")
        return out

    def _port_of(self, v: SSAValue) -> str:
        assert isinstance(v, BlockArgument)
        return self.op.ports[v.index - len(self.op.fields)].name

    def _fill(self, part: NodeOp, known: dict[SSAValue, SSAValue]) -> None:
        """Copy the dependent operations and arrows, and what they need and can compute anew."""
        op = self.op
        copies = dict(known)
        copies.update(zip(op.block.args, part.block.args[: len(op.fields)], strict=False))
        for p in self.ports:
            copies[op.arg(p.name)] = part.arg(p.name)

        def copy(v: SSAValue) -> SSAValue:
            if v not in copies:
                assert isinstance(v.owner, Operation), "the cut separates inputs from needed values"
                source = v.owner
                for o in source.operands:
                    copy(o)
                if isinstance(source, LetOp) and source not in self.inside:
                    copies[v] = copies[source.value]  # the name may be that of the token that brings it
                    return copies[v]
                new = source.clone({o: copies[o] for o in source.operands})
                part.block.add_op(new)
                new.results[0].name_hint = v.name_hint
                copies[v] = new.results[0]
            return copies[v]

        for o in op.block.ops:
            if o in self.inside:
                copy(o.results[0])
            elif o in self.moved:
                for v in o.operands:
                    copy(v)
                part.block.add_op(o.clone({v: copies[v] for v in o.operands}))

    def _shrink(self, op: NodeOp) -> None:
        """Take the dependent inputs and operations out of the node."""
        block: Block = op.block
        for o in reversed(list(block.ops)):
            if o in self.inside:
                o.detach()
                o.erase()
        for p in self.ports:
            block.erase_arg(op.arg(p.name))
            op.inputs = PortsAttr(tuple(q for q in op.ports if q.name != p.name))
        if PRIMAL in op.attributes:
            erase_unused(block.ops)
        if all(p.gather is not None and p.count is not Special.CARRIED for p in op.ports):
            op.declared = op.domain  # such a node must say where it fires
