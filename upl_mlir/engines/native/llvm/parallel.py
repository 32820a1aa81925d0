"""Loops and products shared by the threads of the pool in `call.c`.

What runs on several threads becomes a function of its own, ``part(begin, end, thread, …)`` with one parameter for each
value from outside; `upl_entry`'s slots hold the function that forks (null: one thread), see `entry.py`.  Arrays keep their
`noalias` where one name for them goes in.  Nothing is forked that would take less than some hundred microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Operation, SSAValue

from upl_mlir.engines.native.llvm.emitter import Emitter
from upl_mlir.engines.native.llvm.nests import along, nest
from upl_mlir.engines.native.llvm.scratch import ScratchPlan
from upl_mlir.engines.native.llvm.text import Code, is_number, llvm_type
from upl_mlir.engines.native.llvm.values import Root, View
from upl_mlir.engines.native.products.contraction import Product
from upl_mlir.engines.native.products.gemm import NC, Panels

FORK_WORK = 200_000
"""Least work of a loop, in operations, that is shared: some 100 microseconds, as waking a thread may take half of that."""
FORK_PRODUCTS = 20 * FORK_WORK
"""The same for products, which are that much faster than other operations. The factor was estimated."""
UNKNOWN_TRIPS = 16
"""How often a loop is taken to run whose bounds are not known outside. A guess."""


@dataclass
class Capture:
    """The values from outside that a part needs: what they are called there and here."""

    names: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """outer text → (type, inner name)"""
    attributes: dict[str, str] = field(default_factory=dict[str, str])

    def scalar(self, text: str, type_: str) -> str:
        """The inner name of an outer value; literals and globals keep theirs."""
        if not text.startswith("%"):
            return text
        return self.names.setdefault(text, (type_, f"%in.{len(self.names)}"))[1]

    def view(self, v: View) -> View:
        """The inner view of an outer one."""
        sizes, strides = (tuple(self.scalar(x, "i64") for x in xs) for xs in (v.sizes, v.strides))
        return replace(v, pointer=self.scalar(v.pointer, "ptr"), sizes=sizes, strides=strides)


def fork(
    e: Emitter, capture: Capture, part: Code, count: str, wanted: str, here: Callable[[], None] | None = None
) -> None:
    """Write the function `part`, and a call that shares 0..count-1 where `wanted` holds; else what `here` writes, or a call
    that does all."""
    number = sum(key.startswith("@part") for key in e.library.functions)
    name = f"@part{number}"
    formal = ["i64 %begin", "i64 %end", "i64 %thread"]
    formal += [f"{t} {capture.attributes.get(inner, '')}{inner}" for t, inner in capture.names.values()]
    head = f"define internal void {name}({', '.join(formal)}) #2 {{"
    e.library.functions[name] = f"{head}\nstart:\n{part.text}\n  ret void\n}}\n"
    thunk, actual = Code(), ["i64 %begin", "i64 %end", "i64 %thread"]
    for i, (t, _) in enumerate(capture.names.values()):
        place = thunk.at("%context", str(i), "i64")
        actual.append(f"{t} {thunk.let(f'load {t}, ptr {place}, align 8')}")
    thunk.do(f"call void {name}({', '.join(actual)})")
    e.library.functions[f"{name}.thunk"] = (
        f"define internal void {name}.thunk(ptr %context, i64 %begin, i64 %end, i64 %thread) #0 {{\n"
        f"start:\n{thunk.text}\n  ret void\n}}\n"
    )
    c = e.code
    share, alone, done = c.label("share"), c.label("alone"), c.label("done")
    there = c.let("icmp ne ptr %fork, null", "c")
    c.branch(c.let(f"and i1 {there}, {wanted}", "c"), share, alone)
    c.begin(share)
    context = e.stack(max(len(capture.names), 1))
    for i, (outer, (t, _)) in enumerate(capture.names.items()):
        c.do(f"store {t} {outer}, ptr {c.at(context, str(i), 'i64')}, align 8")
    c.do(f"call void %fork(i64 %pool, ptr {name}.thunk, ptr {context}, i64 {count})")
    c.jump(done)
    c.begin(alone)
    if here is not None:
        here()
    else:
        values = "".join(f", {t} {outer}" for outer, (t, _) in capture.names.items())
        c.do(f"call void {name}(i64 0, i64 {count}, i64 0{values})")
    c.jump(done)
    c.begin(done)


# -- loops -------------------------------------------------------------------------------------------------------
def emit_threaded(e: Emitter, op: scf.ParallelOp) -> None:
    """A parallel loop: its iterations (all dimensions but the innermost one together) are shared."""
    c = e.code
    lower, upper, step = (e.texts(x) for x in (op.lowerBound, op.upperBound, op.step))
    trips = [_trips(c, lo, up, st) for lo, up, st in zip(lower, upper, step, strict=True)]
    outer = max(len(trips) - 1, 1)
    count = reduce(c.mul, trips[:outer], "1")
    work = c.mul(reduce(c.mul, trips, "1"), _work(e, op.body.block.ops))
    wanted = c.let(f"icmp sge i64 {work}, {FORK_WORK}", "c")

    capture = Capture()
    inner = type(e)(e.library, ScratchPlan(), parallel=False)
    inner.values.update(captured(e, op.body.block.ops, capture))
    take_scratch(e, op, capture, inner)
    bounds = [[capture.scalar(x, "i64") for x in xs] for xs in (lower, upper, step)]
    sizes = [capture.scalar(x, "i64") for x in trips]
    if len(trips) == 1:
        first, last = (inner.code.add(bounds[0][0], inner.code.mul(x, bounds[2][0])) for x in ("%begin", "%end"))
        along(inner, op, 0, first, last, bounds[2][0])
    else:
        with inner.code.loop("%begin", "%end") as rest:
            for d in reversed(range(outer)):
                digit = rest
                if d:
                    digit = inner.code.let(f"urem i64 {rest}, {sizes[d]}")
                    rest = inner.code.let(f"udiv i64 {rest}, {sizes[d]}")
                inner.values[op.body.block.args[d]] = inner.code.add(bounds[0][d], inner.code.mul(digit, bounds[2][d]))
            along(inner, op, outer, bounds[0][outer], bounds[1][outer], bounds[2][outer])
    fork(e, capture, inner.code, count, wanted, (lambda: _alone(e, op)) if _repeated(op) else None)


def _repeated(op: Operation) -> bool:
    """Whether an operation stands in a loop: if its work is little, a call for it each time would tell."""
    above = op.parent_op()
    while above is not None:
        if isinstance(above, scf.ForOp | scf.WhileOp):
            return True
        above = above.parent_op()
    return False


def _alone(e: Emitter, op: scf.ParallelOp) -> None:
    """A parallel loop as one thread runs it."""
    e.parallel = False
    nest(e, op)
    e.parallel = True


def _trips(c: Code, lower: str, upper: str, step: str) -> str:
    """How often a counting loop runs."""
    span = c.most(c.sub(upper, lower), "0")
    if step == "1":
        return span
    up = c.add(span, c.sub(step, "1"))
    if is_number(up) and is_number(step):
        return str(int(up) // int(step))
    return c.let(f"sdiv i64 {up}, {step}")


def captured(e: Emitter, ops: Iterable[Operation], capture: Capture) -> Iterator[tuple[SSAValue, str | View]]:
    """What the values from outside that operations use are inside."""
    used = dict.fromkeys(v for op in ops for o in op.walk() for v in o.operands if v in e.values)
    pointers: dict[Root, set[str]] = {}
    for value in used:
        found = e.values[value]
        if isinstance(found, View):
            pointers.setdefault(found.root, set()).add(found.pointer)
            yield value, capture.view(found)
        else:
            yield value, capture.scalar(found, llvm_type(value.type))
    for names in pointers.values():
        for pointer in names if len(names) == 1 else ():
            if pointer.startswith("%"):
                capture.attributes[capture.scalar(pointer, "ptr")] = "noalias "


def take_scratch(e: Emitter, op: Operation, capture: Capture, inner: Emitter) -> None:
    """Scratch of inner allocations becomes the thread's own."""
    inside = set(op.walk())
    own = [(o, place) for o, place in e.scratch.places.items() if o in inside]
    for o, place in own:
        inner.scratch.places[o] = _own(e, capture, inner.code, place)
    if any(isinstance(o, GenericOp) for o in inside):
        inner.scratch.panels = _own(e, capture, inner.code, e.scratch.panels)


def _own(e: Emitter, capture: Capture, code: Code, place: str) -> str:
    """The part of a scratch array that belongs to the thread."""
    base, each = capture.scalar(place, "ptr"), capture.scalar(e.scratch.strides[place], "i64")
    capture.attributes[base] = "noalias "
    return code.at(base, code.mul("%thread", each), "i8")


def _work(e: Emitter, ops: Iterable[Operation]) -> str:
    """A rough count of the operations that run, as far as it is known outside."""
    total = "0"
    for op in ops:
        match op:
            case scf.ForOp() | scf.ParallelOp():
                bounds = (op.lb, op.ub) if isinstance(op, scf.ForOp) else (op.lowerBound[0], op.upperBound[0])
                lower, upper = (_known(e, v) for v in bounds)
                trips = str(UNKNOWN_TRIPS)
                if lower is not None and upper is not None:
                    trips = e.code.most(e.code.sub(upper, lower), "0")
                total = e.code.add(total, e.code.mul(trips, _work(e, op.body.block.ops)))
            case scf.IfOp() | scf.WhileOp():
                for region in op.regions:
                    for block in region.blocks:
                        total = e.code.add(total, _work(e, block.ops))
            case GenericOp():
                total = e.code.add(total, str(UNKNOWN_TRIPS**2))
            case arith.ConstantOp() | memref.DimOp() | memref.AllocOp() | memref.AllocaOp():
                pass
            case _:
                total = e.code.add(total, "1")
    return total


def _known(e: Emitter, value: SSAValue) -> str | None:
    """The text of a value that is known already, or of a constant."""
    found = e.values.get(value)
    if found is None and isinstance(value.owner, arith.ConstantOp):
        e.run([value.owner])
        found = e.values[value]
    return found if isinstance(found, str) else None


# -- products ----------------------------------------------------------------------------------------------------
def fork_product(
    e: Emitter, p: Product, pointers: tuple[str, ...], extent: tuple[str, str, str], repeated: str
) -> None:
    """A packed product, shared along the longer one of m and n, in whole tiles; `extent` is m, n and the work.

    `pointers` and `repeated` are arguments of `gemm.product`.
    """
    c, f, (m, n, work) = e.code, p.f, extent
    threads = str(e.library.threads)
    along_n = c.let(f"icmp sge i64 {n}, {m}", "c")
    longer = c.let(f"select i1 {along_n}, i64 {n}, i64 {m}")
    quantum = c.let(f"select i1 {along_n}, i64 {f.tile[1] * f.lanes}, i64 {f.tile[0]}")
    tiles = c.let(f"sdiv i64 {c.add(longer, c.sub(quantum, '1'))}, {quantum}")
    each = c.mul(c.let(f"sdiv i64 {c.add(tiles, str(e.library.threads - 1))}, {threads}"), quantum)
    each = c.least(each, c.let(f"select i1 {along_n}, i64 {NC}, i64 {longer}"))
    count = c.let(f"sdiv i64 {c.add(longer, c.sub(each, '1'))}, {each}")
    wanted = c.let(f"icmp sge i64 {work}, {FORK_PRODUCTS}", "c")

    capture, code = Capture(), Code()
    given = [capture.scalar(x, "ptr") for x in pointers]
    truth, in_place = capture.scalar(along_n, "i1"), capture.scalar(repeated, "i64")
    step, whole_m, whole_n = (capture.scalar(x, "i64") for x in (each, m, n))
    scratch = _own(e, capture, code, e.scratch.panels)
    with code.loop("%begin", "%end") as index:
        first = code.mul(index, step)
        last = code.add(first, step)
        ranges = [
            code.let(f"select i1 {truth}, i64 {yes}, i64 {no}")
            for yes, no in (
                ("0", first), (whole_m, code.least(last, whole_m)), (first, "0"), (code.least(last, whole_n), whole_n),
            )
        ]  # fmt: skip
        numbers = [f"i64 {x}" for x in (*ranges, int(p.anew), in_place)]
        code.do(f"call void @upl.gemm.{f.name}({', '.join([*(f'ptr {x}' for x in (*given, scratch)), *numbers])})")
    assert Panels(f).offsets["end"] > 0
    fork(e, capture, code, count, wanted)
