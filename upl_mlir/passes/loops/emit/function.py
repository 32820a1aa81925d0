# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# pyright: reportOptionalMemberAccess=false
# (xDSL leaves the types of attributes and results open)
"""The function of a scheduled program: arguments, arrays, loops, elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import partial

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, ArrayAttr, FunctionType, MemRefType, ModuleOp, StringAttr, i1, i64
from xdsl.ir import Block, Operation, Region, SSAValue

from upl_mlir.passes.analysis.proved import ASSUMED
from upl_mlir.passes.layouts import REACH
from upl_mlir.passes.loops.emit.bits import set_where_asked
from upl_mlir.passes.loops.emit.boxes import write_box
from upl_mlir.passes.loops.emit.code import INDEX, Span, name_of
from upl_mlir.passes.loops.emit.ended import chain_of, write_chain
from upl_mlir.passes.loops.emit.folds import fold_together
from upl_mlir.passes.loops.emit.frame import STATUS, Frame
from upl_mlir.passes.loops.emit.scatter import Together, is_scatter, together, write_scatter, write_together
from upl_mlir.passes.loops.emit.split import parts_of
from upl_mlir.passes.loops.emit.values import Values
from upl_mlir.passes.loops.program import Host, LoopProgram
from upl_mlir.passes.loops.transform.invariant import chosen_by_data
from upl_mlir.passes.loops.tree import Box, Exchange, Guard, Leaf, Loop, Tree
from upl_mlir.passes.storage import Array
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.knowledge import Knowledge
from upl_mlir.poly.linear import Con

EXCHANGE = "upl_exchange_"
"""What the names of functions begin with that exchange elements between ranks; the number of the exchange follows."""


def exchange_variables(t: Exchange, known: Knowledge) -> list[str]:
    """The loops' variables that say which elements are exchanged, in the order in which the call has them."""
    names = {n for r in t.ranges for e in (*r.lows, *r.highs) for n in e.names}
    return sorted(names - {*known.params, *known.constants})


class FunctionWriter(Frame):
    """Writes one `func.func`."""

    def __init__(self, program: LoopProgram, *, returned: bool = False, narrow: Set[str] = frozenset()):
        super().__init__(program, returned=returned, narrow=narrow)
        self._allocated: list[memref.AllocOp] = []  # more than one for an array private to a loop that has copies
        self.values = Values(self)
        self._by_data = program.compared or chosen_by_data(self.system)
        self._stored: dict[SSAValue, int] = {}
        self.outside: dict[str, func.FuncOp] = {}
        """The functions that the function calls and that others write."""

    # -- the whole ------------------------------------------------------------------------------------------------------
    def write(self) -> ModuleOp:
        """The module."""
        assert self.program.tree is not None
        if self.returned:
            self._own_results()
        for h in self.hosts:
            if h.output:
                self._zeros(h)
        for a in self.arrays.values():
            if a.name not in self.values_of and a.private is None:
                self._allocate(a)
        self.body(self.program.tree)
        results = [*(self.values_of[h.name] for h in self.hosts if h.output), self.status] if self.returned else []
        self.code.emit(func.ReturnOp(*results))
        self._drop_unread()
        block = self.code.entry
        if self._by_data:
            set_where_asked(block)
        name = name_of(self.program.name)
        types = [a.type for a in block.args], [r.type for r in results]
        f = func.FuncOp(name, FunctionType.from_lists(*types), Region(block))

        def names(found: Sequence[str]) -> ArrayAttr[StringAttr]:
            return ArrayAttr([StringAttr(n) for n in found])

        f.attributes["upl.parameters"] = names(self.params)
        reach = list(self.code.reach.terms.values())
        if any(t.steep for t in reach):
            f.attributes[REACH] = names(list(map(str, reach)))
        f.attributes["upl.inputs"] = names([h.name for h in self.hosts if not h.output])
        f.attributes["upl.layouts"] = names([self._layout(h) for h in self.hosts])
        f.attributes["upl.outputs"] = names([h.name for h in self.hosts if h.output])
        if self.program.assumed is not None:
            f.attributes[ASSUMED] = self.program.assumed
        f.attributes["upl.gather"] = StringAttr("ordered" if self.program.ordered else "relaxed")
        return ModuleOp([*self.code.globals.values(), *self.outside.values(), f])

    def _own_results(self) -> None:
        """Room for the outputs, and a status without a fault."""
        for h in self.hosts:
            if h.output:
                self._allocate(self.arrays[h.name])
        self.status = self.code.add(memref.AllocOp([], [], STATUS))
        self.status.name_hint = "status"
        self.code.emit(memref.StoreOp.get(self.code.constant(0, i64), self.status, []))

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
        if self._by_data:
            fold_together(self.values, trees)
        whole = together(self, self.values, trees)
        for at, t in enumerate(whole):
            match t:
                case Together():
                    write_together(self, self.values, t, self.body)
                case Leaf():
                    self._leaf(t)
                case Guard():
                    other = partial(self._nothing_from, t.other) if t.other else None
                    self.code.when(self.code.all(t.cons), t.cons, (), partial(self._nothing_from, t.body), other)
                case Loop():
                    self._loop(t, whole[at + 1 :])
                case Box() if is_scatter(t):
                    write_scatter(self, self.values, t)
                case Box():
                    if not write_box(self, t):
                        self.body(t.plain)
                case Exchange():
                    self._exchange(t)

    def _nothing_from(self, trees: Sequence[Tree]) -> Sequence[SSAValue]:
        """`body`, for blocks that hand nothing on."""
        self.body(trees)
        return ()

    def _loop(self, t: Loop, behind: Sequence[object] = ()) -> None:
        def inside() -> None:
            for a in self.arrays.values():
                if a.private == t.var:
                    self._allocate(a)
            for number, array in self.program.saved.get(t.var, ()):
                self._call(number, array, [t.var])
            self.body(t.body)

        if t.lows == t.highs and len(t.lows) == 1 and not any(a.private == t.var for a in self.arrays.values()):
            self._once(t)
            return
        # functions on tensors compute all steps: `tensors/convert.py` has loops that count only
        if not self.returned and (chain := chain_of(self.values, t, behind)) is not None:
            write_chain(self.values, t, chain, inside)
            return
        for part in parts_of(self.values, t) or [self.code.span(t.lows, t.highs)]:
            if t.parallel:
                self._parallel(t, part, inside)
            else:
                self.code.loop(t.var, t.lows, t.highs, [], lambda _: (inside(), ())[1], part, _lag(t) if t.tiled else None)

    def _parallel(self, t: Loop, part: Span, inside: Callable[[], None]) -> None:
        """A parallel loop over some of the values of its variable."""
        code, block = self.code, Block(arg_types=[INDEX])
        block.args[0].name_hint = name_of(t.var)
        code.reach.enter(t.var, t.lows, t.highs)

        def write() -> None:
            code.scope.known[IndexExpr.of(t.var)] = block.args[0]
            inside()
            code.emit(scf.ReduceOp())

        code.inside(block, t.context, part.facts, write=write)
        code.emit(scf.ParallelOp([part.first], [part.behind], [code.constant(1, INDEX)], Region(block)))

    def _once(self, t: Loop) -> None:
        """A loop of one iteration."""
        code = self.code
        at = code.index(t.lows[0])
        code.reach.enter(t.var, t.lows[:1], t.lows[:1])

        def write() -> Sequence[SSAValue]:
            code.scope.known[IndexExpr.of(t.var)] = at
            self.body(t.body)
            return ()

        code.when(code.constant(1, i1), t.context, (), write)

    def _exchange(self, t: Exchange) -> None:
        """A call of what exchanges elements between ranks: with the array, and the variables that say which."""
        self._call(t.number, t.array, exchange_variables(t, self.lin.ctx))
        if t.array in self.program.partial:
            self.code.scope.forget(("element", t.array))

    def _call(self, number: int, array: str, variables: Sequence[str]) -> None:
        """A call of what is done outside with an array, at values of the loops' variables."""
        given = [self.values_of[array], *(self.code.index(IndexExpr.of(v)) for v in variables)]
        name = f"{EXCHANGE}{number}"
        self.outside[name] = func.FuncOp.external(name, [v.type for v in given], [])
        self.code.emit(func.CallOp(name, given, []))

    def _leaf(self, t: Leaf) -> None:
        eq = self.system.equations[t.stmt.array]
        value = self.values.value(t.stmt.term, t.env)
        index = tuple(self.lin.plain(t.env[f]) for f in eq.fields)
        self.store(eq.name, index, value)

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


def _lag(t: Loop) -> int:
    """The lag of a loop over blocks, if its blocks may run at the same time as they stand; else -1."""
    return t.lag if len(t.body) == 1 and isinstance(t.body[0], Loop) else -1
