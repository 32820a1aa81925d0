"""The verifier of scheduled programs: it proves what the passes make, and sees what a broken pass makes."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from xdsl.parser import Parser

import upl_mlir as upl
from upl_mlir.dialects.loops.ops import LoopProgramOp
from upl_mlir.passes import storage
from upl_mlir.passes.loops import order, tree
from upl_mlir.passes.loops.ir import read, write
from upl_mlir.passes.loops.legal import faults
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.transform import unroll, wavefront
from upl_mlir.passes.loops.tree import Box, Loop, subtrees
from upl_mlir.passes.lower_to_loops import legal
from upl_mlir.passes.schedule import prepared, schedule
from upl_mlir.pipeline import new_context

EXAMPLES = Path(__file__).parents[2] / "examples"
PROVED = (
    "matmul", "jacobi1d", "cholesky", "floyd_warshall", "perceptron", "wave", "triangular_solve", "iris", "lstm", "digits",
)  # fmt: skip


def scheduled(name: str, *, gradient: bool = False, threads: int = 1) -> LoopProgram:
    """An example as loops, or the derivative of its first output."""
    p = upl.load(EXAMPLES / f"{name}.upl")
    if gradient:
        p = upl.vjp(p, of=next(iter(p.outputs)), wrt=[n for n, v in p.inputs.items() if v.dtype.kind == "f"])
    op = prepared(p.expanded().infer_domains().module.clone(), "f64", "relaxed")
    return schedule(op, threads=threads)


def found(p: LoopProgram) -> list[str]:
    return [str(f) for f in faults(p)]


@pytest.mark.parametrize("name", PROVED)
def test_schedules_are_proved(name: str) -> None:
    """Values and gradients, in memory and as read back."""
    assert not found(scheduled(name))
    assert not found(scheduled(name, gradient=True))
    assert not found(read(write(scheduled(name))))


def test_loops_shared_by_threads_are_proved() -> None:
    assert not found(scheduled("digits", threads=2))


# -- broken passes ----------------------------------------------------------------------------------------------------
def _zeros(self, slope):
    return dict.fromkeys({p.group for p in self.places.values()}, 0)


def _no_shifts(self, comp, plain, inner, places, context):
    return {s: order.Along(a.field, a.sign, 0) for s, a in plain.items()}


def _parallel(var, lows, highs, parallel, body):
    return Loop(var, lows, highs, True, body)


def _short(*args):
    values = _VALUES(*args)
    return None if values is None else values[:-1]


_VALUES = unroll._values
BROKEN = {
    "a place is taken although it is still read": (storage.Storage, "_in_place", lambda *_: True, ["jacobi1d", "wave"]),
    "an element is kept for its own step only": (storage.Storage, "_latest", lambda *_: 0, ["jacobi1d", "wave"]),
    "elements follow each other unasked": (storage.Storage, "_one_at_a_time", lambda *_: True, ["iris", "digits"]),
    "what is written before the loop is forgotten": (storage.Storage, "_keeps", lambda *_: True, ["lstm", "iris", "digits"]),
    "all rows of a wave at once": (wavefront._Tiler, "_shifts", _zeros, ["jacobi2d"]),
    "places of rows are given away too early": (wavefront._Tiler, "_reuses", [], ["jacobi2d", "wave"]),
    "statements of a loop are not shifted": (order.Scheduler, "_shifts", _no_shifts, ["jacobi1d", "wave", "cholesky"]),
    "every loop is parallel": (order, "Loop", _parallel, ["jacobi1d", "floyd_warshall"]),
    "neighbours change places": (order, "readers_first", lambda groups, before: groups[::-1], ["lstm"]),
    "a loop that is written out lacks its last iteration": (unroll, "_values", _short, ["perceptron", "digits"]),
    "guards are left out": (tree, "guarded", lambda lin, body, context: body, ["cholesky", "jacobi1d"]),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_pass_is_seen(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One change to a pass each; before any number is computed."""
    where, name, change, programs = BROKEN[what]
    monkeypatch.setattr(where, name, change)
    if where is tree:
        monkeypatch.setattr(order, name, change)
    seen: list[str] = []
    for program in programs:
        for gradient in (False, True):
            try:
                seen += found(scheduled(program, gradient=gradient))
            except upl.UplError:
                continue
            if seen:
                return
    assert seen


def edited(name: str, old: str, new: str) -> str:
    """The first complaint about a schedule that is edited; empty for none."""
    text = str(write(scheduled(name)))
    assert old in text
    module = Parser(new_context(), text.replace(old, new)).parse_module()
    try:
        legal(next(op for op in module.body.block.ops if isinstance(op, LoopProgramOp)))
    except upl.UplError as e:
        return str(e)
    return ""


def test_reads_outside_of_an_input_are_seen() -> None:
    """A text may say anything."""
    assert edited("triangular_solve", "@S0", "@S0") == ""
    assert "reads an element that `A` has not" in edited("matmul", '@A <"i,k_1">', '@A <"i+1,k_1">')


def test_writes_outside_of_an_output_are_seen() -> None:
    """Inside of what the program declares, whatever domains the text gives to its arrays."""
    told = edited("jacobi1d", '"output" in <"0<=i<n">', '"output" in <"0<=i<n-1">')
    assert "writes an element that `B` has not" in told


def test_writes_outside_of_a_private_loop_are_seen() -> None:
    """An array that each iteration has for itself is written in that loop."""
    told = edited("iris", 'upl_loops.schedule {', 'upl_loops.schedule { upl_loops.run @S7 at <"1,1,1">')
    assert "writes `Sum.s` outside of the loop `L7`" in told


def test_contractions_of_a_text_are_derived_again() -> None:
    """One that is not that of its statement is lowered as the plain loops of the statement."""
    text = str(write(scheduled("matmul")))
    module = Parser(new_context(), text).parse_module()
    broken = Parser(new_context(), text.replace('#upl.index<"i,k_1">', '#upl.index<"k_1,i">')).parse_module()
    trees = [legal(cast(LoopProgramOp, m.body.block.first_op)).tree for m in (module, broken)]
    assert [any(isinstance(t, Box) for t in subtrees(tree or [])) for tree in trees] == [True, False]
