# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# pyright: reportOptionalMemberAccess=false
# (xDSL leaves the types of attributes and results open)
"""The function of a scheduled program: arguments, arrays, loops, elements."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    FunctionType,
    MemRefType,
    ModuleOp,
    StringAttr,
    i1,
    i64,
)
from xdsl.ir import Block, Operation, Region, SSAValue

from upl_mlir.dialects.loops.attributes import Axis
from upl_mlir.dialects.upl import ArrayOp
from upl_mlir.dialects.upl.query import array_values
from upl_mlir.passes.loops.boxes import write_box
from upl_mlir.passes.loops.code import INDEX, Code, name_of
from upl_mlir.passes.loops.program import Host, LoopProgram
from upl_mlir.passes.loops.tree import Box, Guard, Leaf, Loop, Tree
from upl_mlir.passes.loops.values import FAST, Values
from upl_mlir.passes.proved import ASSUMED
from upl_mlir.passes.storage import Array, box
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.levels import attains, bounds
from upl_mlir.poly.linear import Con, Cons


class FunctionWriter:
    """Writes one `func.func`."""

    def __init__(self, program: LoopProgram):
        self.program, self.system, self.lin = program, program.system, program.system.lin
        self.arrays = dict(program.arrays or {})
        self.flags: FastMathFlagsAttr | None = None if program.ordered else FAST
        self.planar = any(eq.planar for eq in self.system.equations.values())
        self.index = INDEX
        self.hosts = program.hosts
        self.params = self.lin.ctx.params
        self.values_of: dict[str, SSAValue] = {}  # the memref of each array
        self._allocated: list[memref.AllocOp] = []  # more than one for an array private to a loop that has copies
        self._tables: dict[str, tuple[int, tuple[int | float, ...]]] = {}
        block = self._arguments()
        self.code = Code(self.lin, block, self.lin.ctx.arrays, name_of(program.name))
        for name, arg in zip(self.params, block.args, strict=False):
            self.code.scope.known[IndexExpr.of(name)] = arg
        self.values = Values(self)
        self._stored: dict[SSAValue, int] = {}

    def _arguments(self) -> Block:
        types = [INDEX for _ in self.params]
        memrefs: list[MemRefType] = []
        for h in self.hosts:
            domain = self._domain(h)
            plain = len(domain) == 1 and all(len(c.e.names & set(h.fields)) <= 1 for c in domain[0])
            axes = [Axis(i, lo, hi - lo + 1) for i, (lo, hi) in enumerate(self._host_box(h, domain))]
            self.arrays[h.name] = Array(h.name, h.kind, tuple(axes))
            sizes = [self.lin.plain(axis.extent).constant for axis in axes]
            memrefs.append(
                MemRefType(h.kind.mlir, [n if n is not None and n > 0 and plain else DYNAMIC_INDEX for n in sizes])
            )
        block = Block(arg_types=[*types, *memrefs, MemRefType(i64, [])])
        names = [*self.params, *(h.name for h in self.hosts), "status"]
        for arg, name in zip(block.args, names, strict=True):
            arg.name_hint = name_of(name)
        for h, arg in zip(self.hosts, block.args[len(types) :], strict=False):
            self.values_of[h.name] = arg
        self.status = block.args[-1]
        return block

    def _host_box(self, h: Host, domain: Sequence[Cons]) -> list[tuple[IndexExpr, IndexExpr]]:
        """The bounds of each field: exact where isl finds them, else a hull; `upl.layouts` tells callers."""
        found = box(self.lin, domain, h.fields, h.name)
        own = set(h.fields)
        if h.declared is None or (len(domain) == 1 and all(_bounds_one(c.e, own) for c in domain[0])):
            return found
        s = self.lin.ctx.set(h.fields, h.declared)
        return [b if attains(s, f, *b) else bounds(s, f) or b for f, b in zip(h.fields, found, strict=True)]

    def _domain(self, h: Host) -> list[Cons]:
        """The domain by which the host lays a port out."""
        return [()] if h.declared is None else [c for c in self.lin.cases(h.declared) if self.lin.feasible(c)]

    def _layout(self, h: Host) -> str:
        """The box that the array of a host port holds, such as ``Y<i> in 0<=i<n``."""
        if not h.fields:
            return h.name

        def side(f: str, a: Axis) -> str:
            end = a.lower + a.extent
            return f"{a.lower}<={f}" + min(f"<{end}", f"<={end - 1}", key=len)

        sides = map(side, h.fields, self.arrays[h.name].axes)
        return f"{h.name}<{','.join(h.fields)}> in {' && '.join(sides)}"

    # -- the whole ------------------------------------------------------------------------------------------------------
    def write(self) -> ModuleOp:
        """The module."""
        assert self.program.tree is not None
        for h in self.hosts:
            if h.output:
                self._zeros(h)
        for a in self.arrays.values():
            if a.name not in self.values_of and a.private is None:
                self._allocate(a)
        self.body(self.program.tree)
        self.code.emit(func.ReturnOp())
        self._drop_unread()
        block = self.code.entry
        name = name_of(self.program.name)
        f = func.FuncOp(name, FunctionType.from_lists([a.type for a in block.args], []), Region(block))

        def names(found: Sequence[str]) -> ArrayAttr[StringAttr]:
            return ArrayAttr([StringAttr(n) for n in found])

        f.attributes["upl.parameters"] = names(self.params)
        f.attributes["upl.inputs"] = names([h.name for h in self.hosts if not h.output])
        f.attributes["upl.layouts"] = names([self._layout(h) for h in self.hosts])
        f.attributes["upl.outputs"] = names([h.name for h in self.hosts if h.output])
        if self.program.assumed is not None:
            f.attributes[ASSUMED] = self.program.assumed
        f.attributes["upl.gather"] = StringAttr("ordered" if self.program.ordered else "relaxed")
        return ModuleOp([*self.code.globals.values(), f])

    def _zeros(self, h: Host) -> None:
        """Zeros over the whole array of an output whose domain is not all of its box."""
        array = self.arrays[h.name]
        domain = self._domain(h)
        inside: list[Con] = []
        for f, axis in zip(h.fields, array.axes, strict=True):
            x = IndexExpr.of(f)
            inside += [Con(x - axis.lower), Con(axis.lower + axis.extent - 1 - x)]
        if len(domain) == 1 and all(self.lin.implies(inside, c) for c in domain[0]):
            return
        code, target = self.code, self.values_of[h.name]
        sizes = [code.add(memref.DimOp(target, code.constant(i, INDEX))) for i in range(len(h.fields))]

        def level(at: int, index: list[SSAValue]) -> None:
            if at == len(sizes):
                code.emit(memref.StoreOp.get(code.constant(0, array.kind.mlir), target, index))
                return
            block = Block(arg_types=[INDEX])

            def write() -> None:
                level(at + 1, [*index, block.args[0]])
                code.emit(scf.YieldOp())

            zero, one = code.constant(0, INDEX), code.constant(1, INDEX)
            code.inside(block, write=write)
            code.emit(scf.ForOp(zero, sizes[at], one, [], Region(block)))

        level(0, [])

    def _allocate(self, a: Array) -> None:
        sizes = [self.lin.plain(axis.size) for axis in a.axes]
        shape = [DYNAMIC_INDEX if (n := e.constant) is None else max(n, 0) for e in sizes]
        dynamic: list[SSAValue] = []
        for e in sizes:
            if e.constant is None:
                size = self.code.index(e)
                dynamic.append(self.code.add(arith.MaxSIOp(size, self.code.constant(0, INDEX))))
        op = memref.AllocOp(dynamic, [], MemRefType(a.kind.mlir, shape))
        self.values_of[a.name] = self.code.add(op)
        self._allocated.append(op)
        op.results[0].name_hint = name_of(a.name)

    # -- control --------------------------------------------------------------------------------------------------------
    def body(self, trees: Sequence[Tree]) -> None:
        """Loops, guards and statements in order."""
        for t in trees:
            match t:
                case Leaf():
                    self._leaf(t)
                case Guard():
                    other = partial(self._nothing_from, t.other) if t.other else None
                    self.code.when(self.code.all(t.cons), t.cons, (), partial(self._nothing_from, t.body), other)
                case Loop():
                    self._loop(t)
                case Box():
                    if not write_box(self, t):
                        self.body(t.plain)

    def _nothing_from(self, trees: Sequence[Tree]) -> Sequence[SSAValue]:
        """`body`, for blocks that hand nothing on."""
        self.body(trees)
        return ()

    def _loop(self, t: Loop) -> None:
        def inside() -> None:
            for a in self.arrays.values():
                if a.private == t.var:
                    self._allocate(a)
            self.body(t.body)

        if t.lows == t.highs and len(t.lows) == 1 and not any(a.private == t.var for a in self.arrays.values()):
            self._once(t)
            return
        if t.parallel:
            code = self.code
            lb = code.extremum(t.lows, arith.MaxSIOp)
            ub = code.extremum([h + 1 for h in t.highs], arith.MinSIOp)
            block = Block(arg_types=[INDEX])
            block.args[0].name_hint = name_of(t.var)

            def write() -> None:
                code.scope.known[IndexExpr.of(t.var)] = block.args[0]
                inside()
                code.emit(scf.ReduceOp())

            code.inside(block, t.context, write=write)
            code.emit(scf.ParallelOp([lb], [ub], [code.constant(1, INDEX)], Region(block)))
            return
        self.code.loop(t.var, t.lows, t.highs, [], lambda _: (inside(), ())[1])

    def _once(self, t: Loop) -> None:
        """A loop of one iteration."""
        code = self.code
        at = code.index(t.lows[0])

        def write() -> Sequence[SSAValue]:
            code.scope.known[IndexExpr.of(t.var)] = at
            self.body(t.body)
            return ()

        code.when(code.constant(1, i1), t.context, (), write)

    def _leaf(self, t: Leaf) -> None:
        eq = self.system.equations[t.stmt.array]
        value = self.values.value(t.stmt.term, t.env)
        index = tuple(self.lin.plain(t.env[f]) for f in eq.fields)
        self.store(eq.name, index, value)

    # -- elements -------------------------------------------------------------------------------------------------------
    def place(self, name: str, index: Sequence[IndexExpr]) -> list[SSAValue]:
        """The position of an element in its array."""
        axes = self.arrays[name].axes
        return [self.code.index(self.lin.plain(axis.place(index[axis.at]))) for axis in axes]

    def load(self, name: str, index: tuple[IndexExpr, ...]) -> SSAValue:
        """An element of an array; what has just been stored there is not read back."""
        key = ("element", name, index)
        found = self.code.scope.find(key)
        if found is None:
            found = self.code.add(memref.LoadOp.get(self.values_of[name], self.place(name, index)))
            self.code.scope.known[key] = found
        return found

    def store(self, name: str, index: tuple[IndexExpr, ...], value: SSAValue) -> None:
        """Write an element."""
        self.code.emit(memref.StoreOp.get(value, self.values_of[name], self.place(name, index)))
        self.code.scope.known[("element", name, index)] = value

    def limits(self, cons: Cons, dims: Sequence[str]) -> tuple[list[IndexExpr], list[IndexExpr]]:
        """Bounds of the first of some iterators by what is outside of them."""
        context = self.code.scope.context
        inner = dims[1:]
        projected = self.lin.project(cons, inner) if inner else cons
        outer = {n for c in projected for n in c.e.names} - {dims[0]}
        lows, highs = self.lin.limits(projected, dims[0], outer)
        known = (*context, *(c for c in projected if dims[0] not in c.e.names))
        return self.lin.strongest(lows, 1, known), self.lin.strongest(highs, -1, known)

    def entries(self, table: str) -> tuple[int, tuple[int | float, ...]]:
        """The lower bound and the entries of a constant array."""
        if table not in self._tables:
            for op in self.program.declarations:
                if isinstance(op, ArrayOp):
                    self._tables[op.symbol] = (op.base.value.data, array_values(op))
        return self._tables[table]

    def _drop_unread(self) -> None:
        """Arrays that nothing reads: all their elements were at hand where they were needed."""
        for op in self._allocated:
            users: list[Operation] = [u.operation for u in op.memref.uses]
            if all(isinstance(u, memref.StoreOp) for u in users):
                for u in users:
                    u.detach()
                    u.erase()
                op.detach()
                op.erase()


def _bounds_one(e: IndexExpr, fields: Set[str]) -> bool:
    """Whether an affine constraint bounds one field, by a value that the field can take."""
    of = e.names & fields
    return not of or any(not (e - IndexExpr.of(f) * c).names & fields for f in of for c in (1, -1))
