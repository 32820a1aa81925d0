"""From a tensor program to UPL: a node for each statement and for each sum, an arrow for each read.

Requires: the indices of every statement have ranges in which all accesses stay in bounds.
Establishes: a `upl.program` with a host input for each tensor that is read in from outside, a host output for each
result.  A product under a sum is a node whose fields are the statement's indices and those summed over; it sends into a
gathering input.  A chain of sums is one such node for each part, all into one gathering input.  A value that many
instances need is one token with `*`.

    C[i,j] = sum over k of A[i,k]*B[k,j]
    ->
    node C_1_term<i,j,k> { in a, b; a*b #K -> C_1.s<i,j> }
    node C_1<i,j> { in @(+) s[#]; -> C<i,j> }
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.ir import Operation, SSAValue

from upl_mlir.diagnostics import Span, error
from upl_mlir.dialects import upl
from upl_mlir.dialects.upl import InputOp, NodeOp, OutputOp, ProgramOp, port_ref
from upl_mlir.dialects.verifying import verify_made
from upl_mlir.frontend.tensor import form
from upl_mlir.frontend.tensor.decided import Decided
from upl_mlir.frontend.tensor.values import ValueWriter
from upl_mlir.frontend.tensor.wiring import Piece, Use, Wiring, locate, restricted, unused
from upl_mlir.frontend.upl_text.lexer import RESERVED
from upl_mlir.poly.describe import describe
from upl_mlir.poly.expr import Formula, IndexExpr
from upl_mlir.poly.operators import CmpOp
from upl_mlir.poly.sets import PolyContext, PSet

Ranges = Mapping[str, tuple[int, int]]


MANY = 12
"""An array that was written in parts gets a node of its own before a statement that reads so many elements of it: each
read would come from each part, under its condition. Chosen, not measured."""


def lower(program: form.TensorProgram) -> ModuleOp:
    """The program as a module with one `upl.program`.

    Raises UplError: UPL1903 (a result that nothing assigns), UPL1908 (an element assigned twice by one statement).
    """
    return _Lowering(program).run()


class _Lowering:
    def __init__(self, program: form.TensorProgram):
        self.program = program
        self.ctx = PolyContext()
        self.taken = {*RESERVED, *program.tensors}
        self.outputs = {t: self._fresh(output_name(program, t)) if t in program.inputs else t for t in program.outputs}
        self.inputs: list[Operation] = []
        self.nodes: list[Operation] = []
        self.wiring = Wiring(program.type, self._fresh, self.nodes)
        self.pieces: dict[str, list[Piece]] = {}
        self.versions: dict[str, int] = {}
        # tensors by which derivatives are asked: a node of its own receives each, so that there is one input to name
        self.watched = {w for d in program.statements if isinstance(d, form.Derivative) for w in (*d.wrt, *d.held)}
        self.relays: dict[str, NodeOp] = {}
        self.carriers: dict[str, NodeOp] = {}  # the nodes of tensors that loops carry
        self.zeros: list[NodeOp] = []

    def _fresh(self, name: str) -> str:
        out = unused(name, self.taken)
        self.taken.add(out)
        return out

    def run(self) -> ModuleOp:
        for name in self.program.inputs:
            self._input(name)
        for s in self.program.statements:
            match s:
                case form.Statement():
                    self._statement(s)
                case form.Derivative():
                    self._derivative(s)
                case form.Carry():
                    self._carry(s)
                case form.Branch() | form.While() | form.Gate():
                    self._decided(s)
                case form.Pick() | form.Scatter():
                    self._by_data(s)
        outs = [self._output(t, name) for t, name in self.outputs.items()]
        self._drop_zeros()
        op = ProgramOp(self.program.name, [*self.inputs, *outs, *self.nodes])
        module = ModuleOp([op])
        locate(op, self.program.span)
        locate(module, self.program.span)
        verify_made(module)
        return module

    # -- host ports ----------------------------------------------------------------------------------------------
    def _fields(self, name: str) -> tuple[str, ...]:
        """Names for the dimensions of a host port: those wished, if they are distinct names that nothing else has."""
        tensor = self.program.tensors[name]
        wished = tensor.fields if len(tensor.fields) == len(tensor.shape) else ("",) * len(tensor.shape)
        out: list[str] = []
        for at, wish in enumerate(wished):
            good = wish and wish not in self.taken and wish not in out
            out.append(wish if good else unused(f"i{at}", {*out, *self.taken, *wished}))
        return tuple(out)

    def _input(self, name: str) -> None:
        tensor, fields = self.program.tensors[name], self._fields(name)
        box = form.within(fields, tensor.shape)
        op = InputOp(name, fields, self.program.type, box)
        locate(op, tensor.span)
        self.inputs.append(op)
        index = tuple(IndexExpr.of(f) for f in fields)
        domain = self.ctx.set(fields, box)
        self._assign(name, [Piece(op, op.value, index, domain, domain)])

    def _output(self, tensor: str, name: str) -> OutputOp:
        t = self.program.tensors[tensor]
        if tensor not in self.pieces:
            raise error("UPL1903", f"the result `{tensor}` is never assigned", t.span, help="assign it in some statement")
        fields = self._fields(tensor)
        box = form.within(fields, t.shape)
        op = OutputOp(name, fields, self.program.type, box)
        locate(op, t.span)
        use = Use("", self.pieces[tensor], tuple(IndexExpr.of(f) for f in fields), t.span)
        self.wiring.arrows(use, op, self.ctx.set(fields, box), {})
        return op

    # -- statements ----------------------------------------------------------------------------------------------
    def _statement(self, s: form.Statement) -> None:
        for tensor, n in _reads(s).items():
            if n >= MANY and len(self.pieces.get(tensor, ())) > 1:
                _, self.pieces[tensor] = self._relay(f"{tensor}_whole", tensor, "x")
        tensor = self.program.tensors[s.target]
        name = self._version(s.target)
        rename = {v: self._index_name(v) for v in s.ranges}
        value = _renamed(s.value, rename)
        ranges = {rename[v]: r for v, r in s.ranges.items()}
        index = tuple(e.substitute(rename) for e in s.index)
        fields = tuple(rename[v] for v in s.free)
        domain = self._domain(fields, ranges)
        self._once(s, index, domain)
        op, result = self._node(name, fields, value, ranges, s.span)
        new = Piece(op, result, index, domain, domain)
        elements = tuple(f"element {i}" for i in range(len(tensor.shape)))
        rest = self.ctx.set(elements, form.within(elements, tensor.shape)) - new.covered(elements)
        if rest.is_empty():
            self._assign(s.target, [new])
            return
        if s.target not in self.pieces:
            self.pieces[s.target] = [self._zeros(s.target, rest.coalesce(), elements, s.span)]
        kept = [restricted(p, elements, rest) for p in self.pieces[s.target]]
        self._assign(s.target, [new, *(p for p in kept if not p.domain.is_empty())])

    def _assign(self, tensor: str, pieces: list[Piece]) -> None:
        """A tensor has a new value."""
        self.pieces[tensor] = pieces
        if tensor in self.watched:
            assert tensor not in self.relays, f"{tensor}: what one differentiates by is assigned once"
            self.relays[tensor], self.pieces[tensor] = self._relay(f"{tensor}_var", tensor, "x")

    def _relay(self, name: str, tensor: str, port: str, also: str | None = None) -> tuple[NodeOp, list[Piece]]:
        """A node that receives every element of a tensor (and of another one), and the tensor as what that node holds."""
        op, piece = self._receiver(name, tensor, port, 1 if also is None else 2)
        for port_, read in zip(op.ports, (tensor, also), strict=False):
            if read in self.pieces:
                self.wiring.arrows(Use(port_.name, self.pieces[read], piece.index, None), op, piece.domain, {})
        return op, [piece]

    def _receiver(self, name: str, tensor: str, port: str, inputs: int = 1) -> tuple[NodeOp, Piece]:
        """A node with an instance for every element of a tensor, and the tensor as what arrives at its first input."""
        fields = self._fields(tensor)
        box = form.within(fields, self.program.tensors[tensor].shape)
        domain, index = self.ctx.set(fields, box), tuple(IndexExpr.of(f) for f in fields)
        ports = [upl.Port(unused(port, fields), self.program.type)]
        if inputs > 1:
            ports.append(upl.Port(unused("w", {*fields, ports[0].name}), self.program.type))
        op = NodeOp(self._fresh(name), fields, ports, box)
        locate(op, self.program.tensors[tensor].span)
        self.nodes.append(op)
        return op, Piece(op, op.arg(op.ports[0].name), index, domain, domain)

    def _carry(self, c: form.Carry) -> None:
        """Some elements of a tensor that loops carry; the first such statement makes the node that receives them."""
        if c.target not in self.carriers:
            self.carriers[c.target], pieces = self._relay(f"{c.target}_at", c.target, "x")
            self._assign(c.target, pieces)
        op = self.carriers[c.target]
        rename = dict(zip(c.names, op.fields, strict=True))
        domain = self.ctx.set(op.fields, form.within(op.fields, self.program.tensors[c.target].shape))
        index = tuple(e.substitute(rename) for e in c.value.index)
        use = Use(op.ports[0].name, self.pieces[c.value.tensor], index, c.span)
        self.wiring.arrows(use, op, domain.constrain(c.when.substitute(rename)), {})

    def _derivative(self, d: form.Derivative) -> None:
        """The derivative as a directive of the language: seeds where `of` arrives, results in nodes of their own."""
        seed, _ = self._relay(f"{d.of}_seed", d.of, "y", also=d.seed)
        one = unused("one", {*seed.fields, *(p.name for p in seed.ports)})
        if d.seed is None:
            value = ValueWriter(seed, self.program.type).emit(form.Number(1), {}, d.span)
        else:
            value = seed.arg(seed.ports[1].name)
        seed.block.add_op(upl.LetOp(one, value))
        targets: list[SymbolRefAttr] = []
        for name in d.into:
            op, pieces = self._relay(f"{name}_sum", name, "d")
            targets.append(port_ref(op.symbol, op.ports[0].name))
            self._assign(name, pieces)
        for name in d.held:  # derivatives end at what one differentiates by; nobody reads these results
            op, _ = self._receiver(f"{name}_held", name, "d")
            targets.append(port_ref(op.symbol, op.ports[0].name))
        wrt = [port_ref(self.relays[w].symbol, self.relays[w].ports[0].name) for w in (*d.wrt, *d.held)]
        of = port_ref(seed.symbol, seed.ports[0].name)
        directive = upl.AdjointOp(of, wrt, port_ref(seed.symbol, one), targets, total=d.total)
        locate(directive, d.span)
        self.nodes.append(directive)

    def _decided(self, s: form.Branch | form.While | form.Gate) -> None:
        """What data decide; the nodes are in `decided.py`."""
        lower = Decided(self.program.type, self.ctx, self.wiring, self._fresh, self.nodes.append, self.pieces)
        rename = {v: self._index_name(v) for v in s.ranges}
        ranges = {rename[v]: r for v, r in s.ranges.items()}
        names = tuple(rename[v] for v in s.names)
        condition = _renamed(s.condition, rename)
        match s:
            case form.Branch():
                then, otherwise = _renamed(s.then, rename), _renamed(s.otherwise, rename)
                made = replace(s, names=names, condition=condition, then=then, otherwise=otherwise, ranges=ranges)
                found = {s.target: lower.branch(made, self._version(s.target))}
            case form.While():
                first, body = (tuple(_renamed(e, rename) for e in es) for es in (s.first, s.body))
                made = replace(s, names=names, condition=condition, first=first, body=body, ranges=ranges)
                found = lower.loop(made, {t: self._version(t) for t in s.targets if t is not None})
            case form.Gate():
                value, first = _renamed(s.value, rename), _renamed(s.first, rename)
                assert isinstance(value, form.Read) and isinstance(first, form.Read)
                made = replace(
                    s, names=names, rounds=rename[s.rounds], condition=condition, value=value, first=first, ranges=ranges
                )  # fmt: skip
                found = lower.gate(made, {t: self._version(t) for t in (s.target, s.out) if t is not None})
        for t, pieces in found.items():
            self._assign(t, pieces)

    def _version(self, tensor: str) -> str:
        """The name of the node for the next assignment of a tensor."""
        self.versions[tensor] = version = self.versions.get(tensor, 0) + 1
        return f"{tensor}_{version}"

    def _by_data(self, s: form.Pick | form.Scatter) -> None:
        """What an array of numbers chooses; the nodes are in `decided.py`."""
        lower = Decided(self.program.type, self.ctx, self.wiring, self._fresh, self.nodes.append, self.pieces)
        rename = {v: self._index_name(v) for v in s.ranges}
        index = tuple(None if n is None else rename[n] for n in s.index)
        at = _renamed(s.at, rename)
        assert isinstance(at, form.Read)
        names, ranges = tuple(rename[v] for v in s.names), {rename[v]: r for v, r in s.ranges.items()}
        s = replace(s, names=names, index=index, at=at, ranges=ranges)
        name = self._version(s.target)
        if isinstance(s, form.Pick):
            found = lower.pick(s, name, self.program.tensors[s.source].shape[index.index(None)])
        else:
            value = _renamed(s.value, rename)
            assert isinstance(value, form.Read)
            found = lower.scatter(replace(s, value=value), name, self.program.tensors[s.target].shape)
        self._assign(s.target, found)

    def _index_name(self, name: str) -> str:
        return unused(name, self.taken)

    def _domain(self, fields: Sequence[str], ranges: Ranges) -> PSet:
        return self.ctx.set(fields, form.box(fields, ranges))

    def _once(self, s: form.Statement, index: tuple[IndexExpr, ...], domain: PSet) -> None:
        """Refuse a left side that two points of the ranges share."""
        if len({e.name for e in index if e.name} & set(domain.dims)) == len(domain.dims):
            return  # every index stands alone somewhere
        other = {d: f"{d}'" for d in domain.dims}
        both = domain.extend(tuple(other.values()))
        both = both & domain.rename(other).extend(both.dims)
        same = Formula.all(Formula.compare(e, "==", e.substitute(other)) for e in index)
        differ = Formula.any(Formula.compare(d, CmpOp.NE, o) for d, o in other.items())
        point = both.constrain(same & differ).sample()
        if point is None:
            return
        one = ", ".join(f"{d}={point[d]}" for d in domain.dims)
        two = ", ".join(f"{d}={point[o]}" for d, o in other.items())
        where = ",".join(str(e.evaluate(point, self.ctx.read)) for e in index)
        raise error(
            "UPL1908", f"this statement assigns `{s.target}[{where}]` twice: at {one} and at {two}", s.span,
            help="each element may have one value; make the left side's indices distinct",
        )  # fmt: skip

    def _zeros(self, tensor: str, where: PSet, elements: tuple[str, ...], span: Span | None) -> Piece:
        """The elements that a statement leaves out, as a node of zeros: an empty sum for each."""
        fields = self._fields(tensor)
        domain = where.rename(dict(zip(elements, fields, strict=True)))
        port = upl.Port("z", self.program.type, upl.Gather.SUM, IndexExpr())
        op = NodeOp(self._fresh(f"{tensor}_0"), fields, [replace(port, name=unused("z", fields))], describe(domain))
        locate(op, span)
        self.nodes.append(op)
        self.zeros.append(op)
        return Piece(op, op.block.args[-1], tuple(IndexExpr.of(f) for f in fields), domain, domain)

    def _drop_zeros(self) -> None:
        """Forget the zeros that nobody reads: later statements have assigned all those elements."""
        dead = {op for op in self.zeros if not any(isinstance(o, upl.SendOp) for o in op.block.ops)}
        self.nodes[:] = [op for op in self.nodes if op not in dead]

    # -- nodes ---------------------------------------------------------------------------------------------------
    def _node(
        self, name: str, fields: tuple[str, ...], value: form.Expr, ranges: Ranges, span: Span | None
    ) -> tuple[NodeOp, SSAValue]:
        """A node that computes an expression at every point of its fields, with the arrows that bring what it reads."""
        name = self._fresh(name)
        type_ = self.program.type
        used = {*fields, *self.taken}
        domain = self._domain(fields, ranges)
        ports: list[upl.Port] = []
        names: dict[form.Expr, str] = {}
        sums: list[form.Sum | form.Chain] = []
        for part in _inputs(value):
            if isinstance(part, form.Sum | form.Chain):
                names[part] = port = unused("s", used)
                sums.append(part)
                whole = _used(part, fields) == fields
                summands = upl.Port(port, type_, _parts(part)[0].op, upl.Special.CARRIED)
                ports.append(summands if whole else upl.Port(port, type_))
            else:
                names[part] = port = unused(part.tensor.lower(), used)
                ports.append(upl.Port(port, type_))
            used.add(port)
        if not ports:  # nothing arrives: an empty sum makes each instance fire once
            ports.append(upl.Port(unused("z", used), type_, upl.Gather.SUM, IndexExpr()))
        op = NodeOp(name, fields, ports, form.box(fields, ranges))
        locate(op, span)
        uses = [Use(names[r], self.pieces[r.tensor], r.index, r.span) for r in names if isinstance(r, form.Read)]
        for part in sums:
            inner = self._sum(op, names[part], part, fields, ranges)
            uses += [inner] if inner is not None else []
        self.nodes.append(op)
        self.wiring.connect(op, uses, domain, ranges)
        result = ValueWriter(op, type_).emit(value, names, span)
        return op, result

    def _sum(
        self, op: NodeOp, port: str, sum_: form.Sum | form.Chain, fields: tuple[str, ...], ranges: Ranges
    ) -> Use | None:
        """The nodes of a sum that `op` needs at `port`: one for each part, in the order in which they are folded.

        Summands go straight into its gather if the sum depends on all fields; else into a node of the fields that it does
        depend on, and the result is a use, to be multicast.
        """
        mine, parts = _used(sum_, fields), _parts(sum_)
        index = tuple(IndexExpr.of(f) for f in mine)
        terms = [self._node(f"{op.symbol}_term", (*mine, *p.over), p.body, ranges, p.span) for p in parts]
        target, into = op, port
        if mine != fields:
            inner = unused("s", {*mine, *self.taken})
            ports = [upl.Port(inner, self.program.type, parts[0].op, upl.Special.CARRIED)]
            target = NodeOp(self._fresh(f"{op.symbol}_sum"), mine, ports, form.box(mine, ranges))
            locate(target, sum_.span)
            self.nodes.append(target)
            into = inner
        count = IndexExpr.of(sum(_size(p.over, ranges) for p in parts))
        for (term, value), part in zip(terms, parts, strict=True):
            send = upl.SendOp(value, port_ref(target.symbol, into), index, count=count)
            locate(send, part.span)
            term.block.add_op(send)
        if target is op:
            return None
        all_ = self._domain(mine, ranges)
        return Use(port, [Piece(target, target.block.args[-1], index, all_, all_)], index, sum_.span)


def output_name(program: form.TensorProgram, tensor: str) -> str:
    """What the host output for a result is called: ports share one name space, so an input's gets another name."""
    return unused(f"{tensor}_out", program.tensors) if tensor in program.inputs else tensor


def _reads(s: form.Statement) -> Counter[str]:
    """How many elements of each tensor an element of a statement reads near each other: at other places, or in a window."""
    found = Counter[str]()
    for read in dict.fromkeys(e for e in form.walk(s.value) if isinstance(e, form.Read)):  # in the order of the text
        window = {n for e in read.index if len(e.names) > 1 for n in e.names} - {*s.free}
        found[read.tensor] += _size([*window], s.ranges)
    return found


def _inputs(e: form.Expr) -> list[form.Read | form.Sum | form.Chain]:
    """What a node of the expression has to receive: its reads and its sums, each once, in text order."""
    match e:
        case form.Read() | form.Sum() | form.Chain():
            return [e]
        case form.Apply(args=args):
            return list(dict.fromkeys(p for a in args for p in _inputs(a)))
        case form.Number() | form.Position() | form.Cases():
            return []


def _parts(e: form.Sum | form.Chain) -> tuple[form.Sum, ...]:
    """What one gather folds, in order."""
    return e.parts if isinstance(e, form.Chain) else (e,)


def _used(part: form.Sum | form.Chain, fields: tuple[str, ...]) -> tuple[str, ...]:
    """The fields that a sum depends on."""
    names = form.free_names(part)
    return tuple(f for f in fields if f in names)


def _size(over: Sequence[str], ranges: Ranges) -> int:
    n = 1
    for f in over:
        lo, hi = ranges[f]
        n *= hi - lo + 1
    return n


def _renamed(e: form.Expr, names: Mapping[str, str]) -> form.Expr:
    """The expression with other names for its indices."""
    match e:
        case form.Read():
            return replace(e, index=tuple(i.substitute(dict(names)) for i in e.index))
        case form.Sum():
            return _renamed_sum(e, names)
        case form.Chain():
            return replace(e, parts=tuple(_renamed_sum(p, names) for p in e.parts))
        case form.Apply():
            return replace(e, args=tuple(_renamed(a, names) for a in e.args))
        case form.Position():
            return replace(e, e=e.e.substitute(dict(names)))
        case form.Number() | form.Cases():
            return e


def _renamed_sum(e: form.Sum, names: Mapping[str, str]) -> form.Sum:
    return replace(e, over=tuple(names[v] for v in e.over), body=_renamed(e.body, names))
