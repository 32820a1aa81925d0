"""Parallel loops as nests that one thread runs, the innermost one in vectors where that can be.

A row into which a loop folds others is read and written once for several of them (`several_rows`):

    for r: for s: A[s] = max(A[s], B[r] + M[r,s])
    ->
    for r in steps of 4: for s: A[s] = max(max(max(max(A[s], B[r] + M[r,s]), B[r+1] + M[r+1,s]), …
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import SSAValue
from xdsl.traits import is_side_effect_free

from upl_mlir.engines.native.llvm import tails, vector_loops
from upl_mlir.engines.native.llvm.emitter import Emitter


def nest(e: Emitter, op: scf.ParallelOp, depth: int = 0) -> None:
    """The loops of a parallel operation from `depth` inwards, one after the other."""
    if depth == len(op.lowerBound):
        e.body(op.body.block)
        return
    bounds = e.texts((op.lowerBound[depth], op.upperBound[depth], op.step[depth]))
    along(e, op, depth, *bounds)


def along(e: Emitter, op: scf.ParallelOp, depth: int, lower: str, upper: str, step: str) -> None:
    """The loops of a parallel operation from `depth` inwards, of which the first has these bounds."""
    if depth == len(op.lowerBound) - 1 and vector_loops.emitted(e, op, lower, upper, step) is not None:
        return
    for low, high in _parts(e, op, depth, lower, upper, step):
        with parallel_loop(e, op, depth, low, high, step) as iv:
            e.values[op.body.block.args[depth]] = iv
            nest(e, op, depth + 1)


def _parts(e: Emitter, op: scf.ParallelOp, depth: int, lower: str, upper: str, step: str) -> list[tuple[str, str]]:
    """The bounds of the loops that a loop is written as: one of the longest vectors, and what they leave over by halves.

    LLVM would take shorter vectors for a row of 30 numbers, as they leave less over, and twice as many of them.
    """
    if e.ordered or depth < len(op.lowerBound) - 1 or step != "1" or not (tails.is_row(op) or tails.is_short(op)):
        return [(lower, upper)]
    at, end, lanes = int(lower), int(upper), e.library.vector_bytes // 8
    out: list[tuple[str, str]] = []
    while at < end:
        size = (end - at) // lanes * lanes
        if size:
            out.append((str(at), str(at + size)))
        at += size
        lanes //= 2
    return out


@contextmanager
def parallel_loop(e: Emitter, op: scf.ParallelOp, depth: int, lower: str, upper: str, step: str) -> Generator[str]:
    """The loop of one dimension of a parallel operation; the innermost one is marked so that LLVM asks for no proof.

    Not if the body has loops of its own, or scratch, which all iterations share.  In a large program a loop with
    others inside stays a loop: LLVM would write out small nests whole, which takes it twice the time.
    """
    if depth < len(op.lowerBound) - 1 or not innermost(op):
        with e.code.loop(lower, upper, step, note=e.library.around(tails.A_LOOP)) as iv:
            yield iv
        return
    with faults_noted(e, op):
        e.code.access, note = e.library.independent("" if e.ordered else tails.metadata(op))
        with e.code.loop(lower, upper, step, note=note) as iv:
            yield iv
        e.code.access = ""


def innermost(op: scf.ForOp | scf.ParallelOp) -> bool:
    """Whether the body of a loop has no loops of its own, nor scratch."""
    others = scf.ForOp | scf.WhileOp | scf.ParallelOp | GenericOp | FillOp | memref.AllocOp | memref.AllocaOp
    return not any(isinstance(o, others) for o in op.body.walk())


@contextmanager
def faults_noted(e: Emitter, op: scf.ForOp | scf.ParallelOp) -> Generator[None]:
    """What writes a loop, faults of which stay in a register to its end, one bit for each number, so that the lanes of its
    vectors are joined: a store under a condition would be scattered, which takes as long as all the rest."""
    found = {o: s for o in op.body.block.ops if isinstance(o, scf.IfOp) and (s := _fault(o)) is not None}
    cells = {s.memref for s in found.values()}
    if len(cells) != 1:
        yield
        return
    word = e.stack(1)
    e.code.do(f"store i64 0, ptr {word}")
    e.noted = {o: (word, _number(s)) for o, s in found.items()}
    yield
    e.noted = {}
    last = e.code.let(f"load i64, ptr {word}")
    with e.code.when(e.code.let(f"icmp ne i64 {last}, 0", "c")):
        zeros = e.code.let(f"call i64 @llvm.ctlz.i64(i64 {last}, i1 true)")
        e.view(cells.pop()).store(e.code, [], e.code.let(f"sub i64 63, {zeros}"))


def _fault(op: scf.IfOp) -> memref.StoreOp | None:
    """The store of a positive number to a cell that is all that a condition decides."""
    if op.output or (op.false_region.blocks and len(list(op.false_region.block.ops)) > 1):
        return None
    ops = [o for o in op.true_region.block.ops if not isinstance(o, arith.ConstantOp | scf.YieldOp)]
    store = ops[0] if len(ops) == 1 else None
    if not isinstance(store, memref.StoreOp) or store.indices or store.value.type != i64:
        return None
    return store if store.memref.owner is not op.true_region.block and 0 < _number(store) < 63 else None


def _number(store: memref.StoreOp) -> int:
    """The number that is stored, 0 where it is not known."""
    value = store.value.owner
    if not isinstance(value, arith.ConstantOp) or not isinstance(value.value, IntegerAttr):
        return 0
    return value.value.value.data


ROWS = 4
"""Rows that are folded into one at once.  Viterbi's score and gradient: 52 ms with 1, 47 with 2, 44.5 with 4, 45 with 8."""


def several_rows(e: Emitter, op: scf.ForOp, lower: str, upper: str, step: str) -> str:
    """Write most rounds of a loop that folds rows into one, `ROWS` at a time; gives the round with which the rest begins.

    The summands of each element come in their order.  Source: unroll-and-jam (Allen and Kennedy 2001, section 8.4).
    """
    inner = folding(e, op)
    if inner is None or step != "1" or e.scalar_code or (e.parallel and e.library.threads > 1):
        return lower
    c, variable = e.code, op.body.block.args[0]
    first = [o for o in op.body.block.ops if o is not inner][:-1]
    rounds = c.let(f"sub i64 {upper}, {lower}")
    some = c.let(f"icmp sgt i64 {rounds}, 0", "c")
    whole = c.let(f"select i1 {some}, i64 {c.let(f'and i64 {rounds}, {-ROWS}')}, i64 0")
    rest = c.add(lower, whole)
    with c.loop(lower, rest, str(ROWS)) as iv:
        made: list[dict[SSAValue, object]] = []
        for k in range(ROWS):
            e.values[variable] = c.add(iv, str(k))
            e.run(first)
            made.append({v: e.values[v] for v in (variable, *(r for o in first for r in o.results))})
        bounds = e.texts((inner.lowerBound[0], inner.upperBound[0], inner.step[0]))
        with parallel_loop(e, inner, 0, *bounds) as at:
            for values in made:
                e.values.update(values)
                e.values[inner.body.block.args[0]] = at
                e.body(inner.body.block)
    return rest


def folding(e: Emitter, op: scf.ForOp) -> scf.ParallelOp | None:
    """The loop over a row in a loop over rows, where these are folded into rows that stay the same."""
    *ops, _ = op.body.block.ops
    inner = [o for o in ops if isinstance(o, scf.ParallelOp)]
    if len(inner) != 1 or op.iter_args or len(inner[0].lowerBound) != 1 or inner[0].initVals:
        return None
    (row,) = inner
    around, body = [o for o in ops if o is not row], [*row.body.block.ops][:-1]
    accesses = [o for o in (*around, *body) if isinstance(o, memref.LoadOp | memref.StoreOp)]
    if not all(o in accesses or (not o.regions and is_side_effect_free(o)) for o in (*around, *body)):
        return None
    changing: set[SSAValue] = {op.body.block.args[0]}  # with the round, or with what is read
    for o in (*around, *body):
        if isinstance(o, memref.LoadOp) or any(v in changing for v in o.operands):
            changing.update(o.results)
    made = {op.body.block.args[0], *(v for o in (*around, *body) for v in o.results)}
    if any(v in made for v in (*row.lowerBound, *row.upperBound, *row.step, *(o.memref for o in accesses))):
        return None
    stores = [o for o in accesses if isinstance(o, memref.StoreOp)]
    written = {e.view(o.memref).root: o for o in stores}
    again = [o for o in accesses if o not in stores and e.view(o.memref).root in written]
    if not again or len(written) < len(stores) or any(o in around for o in (*stores, *again)):
        return None
    for o in (*stores, *again):
        store = written[e.view(o.memref).root]
        if o.memref is not store.memref or list(o.indices) != list(store.indices):
            return None
        if any(v in changing for v in o.indices):
            return None
    return row
