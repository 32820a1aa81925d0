"""`tangent`: forward mode (AUTODIFF section 4).  Every active input gets a twin that carries its tangent.

Arrows keep their direction, index, count and conditions; the twin arrow sends the tangent of the value.  A source whose
value does not depend on the independent variables sends 0 to the twin of an active input, so counts stay what they are.
Conditions and indices that depend on data are copied: a branch or a loop differentiates as it was taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass

from upl_mlir.dialects.upl import Gather, Index, InputOp, NodeOp, OutputOp, Port, ProgramOp, SendOp, port_ref
from upl_mlir.dialects.upl.attributes import PortsAttr
from upl_mlir.dialects.upl.query import endpoint, nodes, ports_and_fields, program_of, target_port, value_names
from upl_mlir.dialects.upl.values import hint
from upl_mlir.ops import Body
from upl_mlir.passes.analysis.effort import bounded
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.passes.analysis.strata import forget_ranks
from upl_mlir.passes.arrows import HostPort, connect, free_names, here, host_port, new_node
from upl_mlir.passes.autodiff.activity import Dependence, PortKey, held_fixed, input_ports, key_of, operands_of, reach
from upl_mlir.passes.autodiff.adjoint_gather import EXTREMA, SELECTING, check_first_order, check_gather
from upl_mlir.passes.autodiff.derivative_table import apply, entry
from upl_mlir.passes.autodiff.differentiable import refuse_firing_twice, refuse_rounding
from upl_mlir.passes.autodiff.request import note_held, port_key
from upl_mlir.passes.autodiff.tangent_gather import tangent_gather
from upl_mlir.passes.build import unused
from upl_mlir.passes.expand import expand
from upl_mlir.passes.loops.terms import inner_first
from upl_mlir.poly.expr import IndexExpr


@dataclass(frozen=True)
class TangentPass(ModulePass):
    """Add the tangents of each `of` along all `wrt` together.

    Requires: all domains known; no `adjoint of` directives.
    Establishes: an input ``t_W`` for each `wrt`, an output ``t_R``. ``t_W`` replaces the tangent that arrives at its
    port. With `total` it is added to the tangent that arrives. Ports of `held` have tangent 0.
    Source: AUTODIFF section 4; rows of the derivative table are linear in ``d``, so the same row serves.

        node Sum { in @(+) s[#]; s -> F.x }      ->      node Sum { in @(+) s[#], @(+) t_s[#]; s -> F.x; t_s -> F.t_x }
    """

    name = "tangent"
    of: tuple[str, ...]
    wrt: tuple[str, ...]
    total: bool = False
    held: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = program_of(op)
        expand(program)
        _tangent(program, self)


@bounded("differentiation")
def _tangent(program: ProgramOp, asked: TangentPass) -> None:
    """Add the tangents to the program in place.  Raises UplError (UPL14xx)."""
    _Tangent(program, asked).run()
    forget_ranks(program)


class _Tangent:
    """One forward-mode request."""

    def __init__(self, program: ProgramOp, asked: TangentPass):
        self.program = program
        self.sets = ProgramSets(program)
        self.of = tuple(dict.fromkeys(port_key(self.sets, o, "of", None) for o in asked.of))
        self.wrt = tuple(dict.fromkeys(port_key(self.sets, w, "wrt", None) for w in asked.wrt))
        held = (port_key(self.sets, w, "wrt", None) for w in asked.held)
        self.total = asked.total
        self.cut = frozenset((*held, *(() if asked.total else self.wrt)))
        for key in self.of:
            refuse_rounding(self.sets, key, self.wrt, self.cut)
        self.taken = ports_and_fields(program)
        self.dependence = {
            op.symbol: Dependence(op) for op in self.sets.ends.values() if isinstance(op, InputOp | NodeOp)
        }
        self.active: set[PortKey] = set().union(
            *(reach(self.sets, self.dependence, key, self.wrt, self.cut) for key in self.of)
        )
        moved = {key_of(a) for a in self.sets.arrows if self._moves(a)}
        self.cut |= {key for key in self.wrt if key not in moved}  # nothing comes beside the port's own tangent
        self.twins: dict[PortKey, str] = {}  # of node inputs
        self.seeds: dict[PortKey, str] = {}  # of node inputs in `wrt`: what takes their own tangent
        self.hosts: dict[str, tuple[NodeOp, dict[SSAValue, SSAValue]]] = {}
        self.tangents: dict[str, dict[SSAValue, SSAValue]] = {}

    def run(self) -> None:
        """Differentiate."""
        self._refuse_unsupported()
        arrows = list(self.sets.arrows)
        for node in nodes(self.program):
            self._add_twins(node)
        if not self.total:
            note_held(self.program, held_fixed(self.sets, self.dependence, self.of, self.wrt))
        self.inputs = {key: self._host(InputOp, key) for key in self.wrt}
        self.outputs = {key: self._host(OutputOp, key) for key in self.of}
        for a in arrows:
            if self._carries(a) and a.port.gather not in SELECTING:
                self._twin_arrow(a)
        for node in nodes(self.program):
            for p in node.ports:
                if p.gather in SELECTING and (node.symbol, p.name) in self.twins and (node.symbol, p.name) not in self.cut:
                    self._gather(node, p)
        for key in self.wrt:
            if key in self.seeds:
                self._feed(key)
        for key in self.of:
            if isinstance(self.sets.ends[key[0]], NodeOp):
                self._report(key)

    def _refuse_unsupported(self) -> None:
        refuse_firing_twice(self.sets)
        for a in self.sets.arrows:
            if key_of(a) in self.active:
                check_gather(a)
        for node in nodes(self.program):
            if any((node.symbol, p.name) in self.active for p in node.ports):
                check_first_order(node)

    def _carries(self, a: Arrow) -> bool:
        """Whether the arrow's target has a twin that this arrow must serve."""
        key = key_of(a)
        if isinstance(a.target, OutputOp):
            return key in self.of
        return key in self.twins and key not in self.cut

    def _moves(self, a: Arrow) -> bool:
        """Whether what the arrow sends has a tangent."""
        name = a.source.symbol
        return not a.virtual and any((name, p) in self.active for p in self.dependence[name].of(a.send.value))

    def _fresh(self, name: str) -> str:
        return unused(name, self.taken)

    # -- ports -------------------------------------------------------------------------------------------------------
    def _add_twins(self, node: NodeOp) -> None:
        used = {*node.fields, *(p.name for p in node.ports), *value_names(self.program)}
        new: list[tuple[Port, Attribute]] = []
        for p in node.ports:
            key = (node.symbol, p.name)
            if key in self.active:
                self.twins[key] = unused(f"t_{p.name}", used)
                if p.gather in EXTREMA or key in self.cut:  # of an extremum it is put together elsewhere
                    twin = Port(self.twins[key], p.type)
                else:
                    twin = replace(p, name=self.twins[key], gather=p.gather and Gather.SUM)
                new.append((twin, node.arg(p.name).type))
                if key in self.wrt:
                    self.seeds[key] = self.twins[key]
                    if key not in self.cut:
                        self.seeds[key] = unused(f"t_{p.name}_own", used)
                        new.append((Port(self.seeds[key], p.type), node.arg(p.name).type))
        for p, type_ in new:
            arg = node.block.insert_arg(type_, len(node.block.args))
            arg.name_hint = hint(p.name)
        node.inputs = PortsAttr((*node.ports, *(p for p, _ in new)))

    def _host(self, kind: type[HostPort], key: PortKey) -> HostPort:
        """The host input that brings the tangent of a `wrt`, or the output that takes that of an `of`."""
        op = self.sets.ends[key[0]]
        name = self._fresh("t_" + (key[0] if isinstance(op, kind) else "_".join(key)))
        attr = op.domain or op.declared
        assert attr is not None
        return host_port(self.program, kind, name, (op, key[1]), attr, f"tangent of {'.'.join(dict.fromkeys(key))}")

    # -- arrows ------------------------------------------------------------------------------------------------------
    def _gather(self, node: NodeOp, port: Port) -> None:
        twin = port_ref(node.symbol, self.twins[node.symbol, port.name])
        arrows = self.sets.into(node.symbol, port.name)
        tangent_gather(self.program, self.sets, node, port, twin, arrows, self._fresh, self._send_tangent)

    def _twin_arrow(self, a: Arrow) -> None:
        """The arrow's twin, from the body that knows the tangent of its value."""
        key = key_of(a)
        if isinstance(a.target, OutputOp):
            target = port_ref(self.outputs[key].symbol)
        else:
            target = port_ref(key[0], self.twins[key])
        self._send_tangent(a, target, None)

    def _send_tangent(self, a: Arrow, target: SymbolRefAttr, index: Index | None) -> None:
        """Send the tangent of an arrow's value along it, or from its points to another index."""
        source = a.source
        value, send = a.send.value, a.send
        if isinstance(source, InputOp) and (source.symbol, source.symbol) in self.wrt:
            seed = self.inputs[(source.symbol, source.symbol)]
            if value is source.value and send.predicate is None:
                self._copy(send, seed, seed.value, target, index)
                return
            source, copies = self._host_node(source)
            value = copies[value]
            predicate = None if send.predicate is None else copies[send.predicate]
        else:
            predicate = send.predicate
        self._copy(send, source, self._tangent(source, value), target, index, predicate)

    def _host_node(self, op: InputOp) -> tuple[NodeOp, dict[SSAValue, SSAValue]]:
        """A node that has both an element of a host input and its tangent, and computes what the input's arrows send;
        with the copies of the input's values there."""
        if op.symbol not in self.hosts:
            seed = self.inputs[(op.symbol, op.symbol)]
            x, t = free_names(self.sets, op.fields, op.symbol, seed.symbol)
            ports = [Port(x, op.type), Port(t, op.type)]
            comment = f"{op.symbol} and its tangent"
            name = self._fresh(f"T{op.symbol}")
            domain = self.sets.domain(op.symbol)
            attr = op.domain or op.declared
            shape = domain if attr is None else (op.fields, attr.data)
            node = new_node(self.program, name, ports, shape, op, op.symbol, comment)
            for source, port in ((op, x), (seed, t)):
                connect(self.program, source, source.value, port_ref(name, port), here(op.fields), rule="tangent",
                        origin=op)  # fmt: skip
            self.twins[name, x] = t
            self.dependence[name] = Dependence(node)
            copies: dict[SSAValue, SSAValue] = dict(zip(op.block.args, node.block.args, strict=False))
            for inner in op.block.ops:
                if not isinstance(inner, SendOp):
                    new = inner.clone({o: copies[o] for o in inner.operands})
                    node.block.add_op(new)
                    copies.update(zip(inner.results, new.results, strict=True))
            self.hosts[op.symbol] = node, copies
        return self.hosts[op.symbol]

    def _copy(
        self,
        send: SendOp,
        into: InputOp | NodeOp,
        value: SSAValue,
        target: SymbolRefAttr,
        index: Index | None,
        predicate: SSAValue | None = None,
    ) -> None:
        """The arrow `send` with another value, converted to the target's type."""
        count = send.count.data if send.count and index is None else None
        new = SendOp(
            self._as(into, value, target), target, send.index.data if index is None else index, count=count,
            condition=send.when, predicate=predicate, iterators=send.loops, point_condition=send.when_point,
            rule="tangent",
        )  # fmt: skip
        new.location = send.location
        into.block.add_op(new)

    def _as(self, source: InputOp | NodeOp, value: SSAValue, target: SymbolRefAttr) -> SSAValue:
        """A value in the type of the port that takes it: a seed is real also where what it moves is f32."""
        names = [n.data for n in target.nested_references.data]
        root = target.root_reference.data
        end = self.sets.ends[root] if root in self.sets.ends else endpoint(self.program, root)  # a node made since
        wanted = target_port(end, names[0] if names else None).type
        return Body(source.block, source.location).like(value, wanted.mlir())

    def _tangent(self, source: InputOp | NodeOp, value: SSAValue) -> SSAValue:
        """The tangent of a value of a body, 0 where it has none."""
        memo = self.tangents.setdefault(source.symbol, {})
        body = Body(source.block, value.owner.location if isinstance(value.owner, Operation) else source.location)
        found = self._push(source, value, memo, body)
        return found if found is not None else body.constant(0.0, value.type)

    def _push(
        self, source: InputOp | NodeOp, v: SSAValue, memo: dict[SSAValue, SSAValue], body: Body
    ) -> SSAValue | None:
        """Forward propagation; None is 0."""
        depends = self.dependence[source.symbol].of

        def before(x: SSAValue) -> Sequence[SSAValue]:
            known = x in memo or not any((source.symbol, p) in self.twins for p in depends(x))
            return () if known else operands_of(x)

        return [self._push_one(source, x, memo, body) for x in inner_first(v, before)][-1]

    def _push_one(
        self, source: InputOp | NodeOp, v: SSAValue, memo: dict[SSAValue, SSAValue], body: Body
    ) -> SSAValue | None:
        """The same of a value of whose operands it is known."""
        if v in memo:
            return memo[v]
        if not any((source.symbol, p) in self.twins for p in self.dependence[source.symbol].of(v)):
            return None
        op = v.owner
        if not isinstance(op, Operation):
            assert isinstance(source, NodeOp)
            at = list(source.block.args).index(v) - len(source.fields)  # pyright: ignore[reportArgumentType]
            key = source.symbol, input_ports(source)[at]
            memo[v] = source.arg(self.twins[key])
            if key in self.seeds and key not in self.cut:
                memo[v] = body.add(arith.AddfOp(memo[v], source.arg(self.seeds[key])))
            return memo[v]
        parts = [(i, memo.get(o)) for i, o in enumerate(op.operands)]
        total: SSAValue | None = None
        if isinstance(op, arith.SelectOp):
            arms = [p if p is not None else body.constant(0.0, v.type) for _, p in parts[1:]]
            total = body.add(arith.SelectOp(op.cond, arms[0], arms[1]))
        else:
            values = {x: x for x in (*op.operands, v)}
            for i, d in parts:
                rule = entry(op, i)
                if d is None or rule is None:
                    continue
                term = body.like(apply(rule, body, op, body.like(d, v.type), values), v.type)
                total = term if total is None else body.add(arith.AddfOp(total, term))
        if total is not None:
            memo[v] = total
        return total

    def _feed(self, key: PortKey) -> None:
        """`wrt NODE.input`: the tangent arrives at every instance."""
        seed = self.inputs[key]
        index = tuple(IndexExpr.of(f) for f in seed.fields)
        twin = port_ref(key[0], self.seeds[key])
        send = SendOp(self._as(seed, seed.value, twin), twin, index, rule="tangent")
        send.location = seed.location
        seed.block.add_op(send)

    def _report(self, key: PortKey) -> None:
        """`of NODE.input`: the node itself sends the tangent out."""
        node = self.sets.ends[key[0]]
        assert isinstance(node, NodeOp)
        value = self._tangent(node, node.arg(key[1]))
        index = tuple(IndexExpr.of(f) for f in node.fields)
        out = port_ref(self.outputs[key].symbol)
        send = SendOp(self._as(node, value, out), out, index, rule="tangent")
        send.location = node.location
        node.block.add_op(send)
