"""Blocks of a tiled loop over time on several threads, each some waves behind the one before it.

A wave of a block needs those of the block before that are at most a lag ahead of it, and nothing that comes later (the pass
`tile-time` says so).  So each thread takes the next block that nobody has, and before each wave it waits until the block
before is far enough.  Whoever took that block is at work on it, or done: nobody waits for a thread that has yet to begin.

How far a block is, is told by a number that grows from block to block: the block's number times 2**32, plus its waves that
are done.  Blocks that run at the same time have cells of their own, a cache line each.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import SSAValue

from upl_mlir.engines.native.llvm.emitter import Emitter
from upl_mlir.engines.native.llvm.parallel import Capture, captured, fork, take_scratch
from upl_mlir.engines.native.llvm.scratch import ScratchPlan
from upl_mlir.engines.native.llvm.text import Code
from upl_mlir.engines.native.llvm.values import View
from upl_mlir.passes.loops.emit.code import WAVE

LINE = 8
"""Words of a cache line."""
LEAST = 50_000
"""Elements of the largest array, times blocks, from which threads share the blocks: half a millisecond of work, about."""
PATIENCE = 255
"""Looks at a cell, less one, after which a waiting thread offers its core to others."""
LONG = 1 << 16
"""Looks after which it sleeps for a while: then the thread that it waits for has no core, which others want."""
SLEEP_US = 50
"""Microseconds of such a sleep, about what waking takes. Not measured."""


def lag(op: scf.ForOp) -> int | None:
    """The lag of a loop over blocks, -1 if its blocks run one after the other; None for another loop."""
    found = op.attributes.get(WAVE)
    return found.value.data if isinstance(found, IntegerAttr) else None


def emit_blocks(e: Emitter, op: scf.ForOp, behind: int) -> None:
    """A loop over blocks that wait for each other; with little work, or one thread, one after the other."""
    c = e.code
    lower, upper = e.texts((op.lb, op.ub))
    cells = 2 * e.library.threads  # of two blocks with one cell the first is over before the second one begins
    board = e.stack(LINE * (cells + 1))
    c.do(f"store i64 {lower}, ptr {board}, align 8")
    for n in range(cells):
        c.do(f"store i64 0, ptr {c.at(board, str(LINE * (n + 1)), 'i64')}, align 8")
    capture = Capture()
    inner = type(e)(e.library, ScratchPlan(), parallel=False)
    inner.values.update(captured(e, op.body.block.ops, capture))
    take_scratch(e, op, capture, inner)
    largest = "0"
    for found in dict.fromkeys(e.values[v] for v in _used(op) if v in e.values):
        if isinstance(found, View):
            largest = c.most(largest, e.product("1", found.sizes))
    blocks = c.sub(upper, lower)
    some = c.let(f"icmp sge i64 {blocks}, 2", "c")
    much = c.let(f"icmp sge i64 {c.mul(blocks, largest)}, {LEAST}", "c")
    place, first, end = capture.scalar(board, "ptr"), capture.scalar(lower, "i64"), capture.scalar(upper, "i64")
    code = inner.code
    claim, work, done = code.label("claim"), code.label("block"), code.label("done")
    code.jump(claim)
    code.begin(claim)
    block = code.let(f"atomicrmw add ptr {place}, i64 1 acq_rel, align 8", "b")
    code.branch(code.let(f"icmp slt i64 {block}, {end}", "c"), work, done)
    code.begin(work)
    inner.values[op.body.block.args[0]] = block
    *before, waves, _ = op.body.block.ops
    assert isinstance(waves, scf.ForOp), "a loop over blocks is one over waves"
    inner.run(before)
    low, high, _ = inner.texts((waves.lb, waves.ub, waves.step))
    mine, others = (_cell(code, place, x, cells) for x in (block, code.sub(block, "1")))
    own, other = (code.let(f"shl i64 {x}, 32") for x in (block, code.sub(block, "1")))
    with code.loop(low, high) as wave:
        needed = code.sub(code.least(code.add(wave, str(behind + 1)), high), low)
        with code.when(code.let(f"icmp sgt i64 {block}, {first}", "c"), "later"):
            _wait(e, code, others, code.add(other, needed))
        inner.values[waves.body.block.args[0]] = wave
        inner.body(waves.body.block)
        told = code.add(own, code.sub(code.add(wave, "1"), low))
        code.do(f"store atomic i64 {told}, ptr {mine} release, align 8")
    inner.release()
    code.jump(claim)
    code.begin(done)
    fork(e, capture, code, str(e.library.threads), c.let(f"and i1 {some}, {much}", "c"), lambda: alone(e, op))


def alone(e: Emitter, op: scf.ForOp) -> None:
    """The blocks one after the other, on one thread: rows are too short to be shared."""
    shared, e.parallel = e.parallel, False
    e.run([op])
    e.parallel = shared


def _used(op: scf.ForOp) -> dict[SSAValue, None]:
    return dict.fromkeys(v for o in op.walk() for v in o.operands)


def _cell(code: Code, place: str, block: str, cells: int) -> str:
    """Where it stands how far a block is."""
    at = code.mul(code.add(code.let(f"srem i64 {block}, {cells}"), "1"), str(LINE))
    return code.at(place, at, "i64")


def _wait(e: Emitter, code: Code, cell: str, needed: str) -> None:
    """Wait until a cell holds a number, or a larger one."""
    e.library.functions["sched_yield"] = "declare i32 @sched_yield()\ndeclare i32 @usleep(i32)"
    look, again, offer, give, sleep, done = (code.label(x) for x in ("look", "again", "offer", "give", "sleep", "done"))
    before = code.block
    code.jump(look)
    code.begin(look)
    tries = code.phi("i64", "n")
    seen = code.let(f"load atomic i64, ptr {cell} acquire, align 8")
    code.branch(code.let(f"icmp sge i64 {seen}, {needed}", "c"), done, again)
    code.begin(again)
    more = code.add(tries.name, "1")
    impatient = code.let(f"icmp eq i64 {code.let(f'and i64 {more}, {PATIENCE}')}, 0", "c")
    code.branch(impatient, offer, look)
    code.begin(offer)
    code.branch(code.let(f"icmp slt i64 {more}, {LONG}", "c"), give, sleep)
    for label, call in ((give, "@sched_yield()"), (sleep, f"@usleep(i32 {SLEEP_US})")):
        code.begin(label)
        code.let(f"call i32 {call}")
        code.jump(look)
    tries.close(("0", before), (more, again), (more, give), (more, sleep))
    code.begin(done)
