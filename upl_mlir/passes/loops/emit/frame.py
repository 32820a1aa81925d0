# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportDeprecated=false
# pyright: reportOptionalMemberAccess=false
# (xDSL leaves the types of attributes and results open)
"""What a function of loops is written in: its arguments, the memrefs of its arrays, and access to their elements.

`FunctionWriter` writes the loops, `values.py` the terms and `generic.py`, `boxes.py` the contractions into one frame.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from xdsl.dialects import arith, memref
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, i32, i64
from xdsl.dialects.utils import FastMathFlag as Flag
from xdsl.ir import Block, SSAValue

from upl_mlir.dialects.loops.attributes import Axis
from upl_mlir.dialects.upl import ArrayOp
from upl_mlir.dialects.upl.query import array_values
from upl_mlir.passes.loops.emit.code import INDEX, Code, name_of
from upl_mlir.passes.loops.program import Host, LoopProgram
from upl_mlir.passes.storage import Array, box
from upl_mlir.poly.expr import IndexExpr
from upl_mlir.poly.levels import attains, bounds
from upl_mlir.poly.linear import Cons

FAST = FastMathFlagsAttr([Flag.REASSOC, Flag.ALLOW_CONTRACT, Flag.NO_SIGNED_ZEROS])
"""What reordered sums of products may do."""


STATUS = MemRefType(i64, [])
"""Where a function notes a fault."""


class Frame:
    """The function, its arrays and the block that is being written.

    The outputs are arguments, as is the status; with `returned` the function makes them and returns them.
    `narrow` are integer inputs whose arrays hold 32 bits for each element, which are extended when they are read.
    """

    status: SSAValue

    def __init__(self, program: LoopProgram, *, returned: bool = False, narrow: Set[str] = frozenset()):
        self.returned, self.narrow = returned, narrow
        self.program, self.system, self.lin = program, program.system, program.system.lin
        self.arrays = dict(program.arrays or {})
        self.flags: FastMathFlagsAttr | None = None if program.ordered else FAST
        self.planar = any(eq.planar for eq in self.system.equations.values())
        self.index = INDEX
        self.hosts = program.hosts
        self.given = {h.name for h in program.hosts if not h.output}
        self.params = self.lin.ctx.params
        self.values_of: dict[str, SSAValue] = {}  # the memref of each array
        self._tables: dict[str, tuple[int, tuple[int | float, ...]]] = {}
        block = self._arguments()
        self.code = Code(self.lin, block, self.lin.ctx.arrays, name_of(program.name), program.begun)
        for name, arg in zip(self.params, block.args, strict=False):
            self.code.scope.known[IndexExpr.of(name)] = arg

    def _arguments(self) -> Block:
        types = [INDEX for _ in self.params]
        memrefs: list[MemRefType] = []
        passed = [h for h in self.hosts if not (h.output and self.returned)]
        for h in self.hosts:
            domain = self._domain(h)
            plain = len(domain) == 1 and all(len(c.e.names & set(h.fields)) <= 1 for c in domain[0])
            axes = [Axis(i, lo, hi - lo + 1) for i, (lo, hi) in enumerate(self._host_box(h, domain))]
            self.arrays[h.name] = Array(h.name, h.kind, tuple(axes))
            sizes = [self.lin.plain(axis.extent).constant for axis in axes]
            if h in passed:
                shape = [n if n is not None and n > 0 and plain else DYNAMIC_INDEX for n in sizes]
                memrefs.append(MemRefType(i32 if h.name in self.narrow else h.kind.mlir, shape))
        block = Block(arg_types=[*types, *memrefs, *([] if self.returned else [STATUS])])
        names = [*self.params, *(h.name for h in passed), *([] if self.returned else ["status"])]
        for arg, name in zip(block.args, names, strict=True):
            arg.name_hint = name_of(name)
        for h, arg in zip(passed, block.args[len(types) :], strict=False):
            self.values_of[h.name] = arg
        if not self.returned:
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
            if name in self.narrow:
                found = self.code.add(arith.ExtSIOp(found, i64))
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


def _bounds_one(e: IndexExpr, fields: Set[str]) -> bool:
    """Whether an affine constraint bounds one field, by a value that the field can take."""
    of = e.names & fields
    return not of or any(not (e - IndexExpr.of(f) * c).names & fields for f in of for c in (1, -1))
