"""The proofs of a plan: they hold for the plans that the compiler makes, and refute seeded defects at an instance.

A defect is a number of a plan that is changed by hand, as if another step of the compiler had been wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from circuit.circuits import CASES, EXAMPLES, Case
from circuit.networks import NETS, Net

from upl_mlir.passes.circuit.channels.buffers import Buffer
from upl_mlir.passes.circuit.channels.feeds import Read, Steps
from upl_mlir.passes.circuit.channels.inner import Stream
from upl_mlir.passes.circuit.channels.inputs import Input
from upl_mlir.passes.circuit.channels.links import Link
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.circuit.plan import Part, Plan, at_sites
from upl_mlir.passes.circuit.prove import Proof, proofs
from upl_mlir.passes.lower_to_circuit import planned_circuit
from upl_mlir.tools.circuits import as_json, as_text
from upl_mlir.tools.upl import main

INSTANCE = re.compile(r"[\w.]+<(\w+=-?\d+)(, \w+=-?\d+)*>")


def product() -> Plan:
    """A product of matrices with a lane for each row: all lanes send, and take turns."""
    case = Case("matmul", (("m", 4), ("n", 4), ("r", 4)))
    return planned_circuit(case.program.infer_domains().module.clone(), case.params, Wish(4, "i"))[1]


def rows() -> Plan:
    """The same in fixed point: each lane keeps one word until its turn, and the next word comes in that slot."""
    return Case("matmul", (("m", 4), ("n", 4), ("r", 4))).planned(4, "q4.14")[1]


def stencil() -> Plan:
    """A stencil with four lanes, which read each other's values."""
    return Case("jacobi1d", (("T", 6), ("n", 100))).planned(4)[1]


NETWORKS = {
    "chain": ("chain-4", 2),  # processes that read one of them by links of varying length
    "sticky": ("centred-16-16", 4),  # a buffer whose words are read several times one after the other
    "fifo": ("transposed-4-6", 4),  # a buffer whose words are read once, in their order
    "reordered": ("products-4", 1),  # a buffer whose words are read in another order
    "turns": ("transposed-4-6", 3),  # a stream for which lanes take turns
    "dealt": ("products-4", 4),  # a stream of one lane, whose words are dealt to lanes
}
"""Plans with several processes: the program, with its sizes, and the lanes."""


def sound(name: str) -> Plan:
    """One of the plans in which defects are seeded."""
    match name:
        case "product":
            return product()
        case "rows":
            return rows()
        case "stencil":
            return stencil()
        case _:
            net, lanes = NETWORKS[name]
            return next(n for n in NETS if str(n) == net).planned(lanes)[1]


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("case", [*CASES, *NETS], ids=str)
def test_the_compilers_plans_are_proved(case: Case | Net, lanes: int) -> None:
    _, plan = case.planned(lanes)
    found = proofs(plan)
    assert [str(p) for p in found if not p.holds] == []
    own = [s for _, s in at_sites(plan) if s.written is not None]
    assert len(found) >= 2 * len(own) + len(plan.inputs) + len(plan.outputs)


def with_part(plan: Plan, which: int, change: Callable[[Part], Part]) -> Plan:
    """A plan with one process changed."""
    return replace(plan, parts=tuple(change(p) if n == which else p for n, p in enumerate(plan.parts)))


def with_link(plan: Plan, which: int, change: Callable[[Link], Link]) -> Plan:
    """A plan with one link of one lane of a process changed."""
    part = plan.parts[which]
    site = next(s for s in part.sites if s in part.links)
    first, *rest = part.links[site]
    return with_part(plan, which, lambda p: replace(p, links={**p.links, site: (change(first), *rest)}))


def longer(by: int) -> Callable[[Link], Link]:
    """A link that is so many slots longer."""
    return lambda k: replace(k, lengths=tuple(None if n is None else n + by for n in k.lengths))


def short_link(plan: Plan) -> Plan:
    """One link of one lane of the first process is a slot shorter."""
    return with_link(plan, 0, longer(-1))


def short_link_between(plan: Plan) -> Plan:
    """One link of one lane of the last process, from another one, is a slot shorter."""
    return with_link(plan, len(plan.parts) - 1, longer(-1))


def long_link_between(plan: Plan) -> Plan:
    """The same is a slot longer."""
    return with_link(plan, len(plan.parts) - 1, longer(1))


def early_start(plan: Plan) -> Plan:
    """The last process starts a slot early."""
    return with_part(plan, len(plan.parts) - 1, lambda p: replace(p, nest=replace(p.nest, start=p.nest.start - 1)))


def with_buffer(plan: Plan, change: Callable[[Buffer], Buffer]) -> Plan:
    """A plan with the last process's buffer changed."""
    part = plan.parts[-1]
    ((site, b),) = part.buffers.items()
    return with_part(plan, len(plan.parts) - 1, lambda p: replace(p, buffers={site: change(b)}))


def small_buffer(plan: Plan) -> Plan:
    """A buffer has half of its places."""
    return with_buffer(plan, lambda b: replace(b, places=b.places // 2))


def moved(at: Steps) -> Steps:
    """Addresses that go on a word further in each iteration of each loop; some loops have one iteration."""
    return replace(at, steps=tuple(n + 1 for n in at.steps))


def wrong_read_step(plan: Plan) -> Plan:
    """The addresses of a buffer's reads take a wrong step."""
    return with_buffer(plan, lambda b: replace(b, read=moved(b.read)))


def wrong_write_step(plan: Plan) -> Plan:
    """The addresses of a buffer's writes take a wrong step."""
    return with_buffer(plan, lambda b: replace(b, write=moved(b.write)))


def less_depth(plan: Plan) -> Plan:
    """A word less waits in a buffer than it says."""
    return with_buffer(plan, lambda b: replace(b, depth=b.depth + 1))


def more_depth(plan: Plan) -> Plan:
    """A word more waits in a buffer than it says."""
    return with_buffer(plan, lambda b: replace(b, depth=b.depth - 1))


def with_stream(plan: Plan, change: Callable[[Stream], Stream]) -> Plan:
    """A plan with its stream changed."""
    (x,) = plan.streams
    return replace(plan, streams=(change(x),))


def small_stream(plan: Plan) -> Plan:
    """The window of a stream has a quarter of its words."""
    return with_stream(plan, lambda x: replace(x, window=x.window // 4))


def wrong_stream_step(plan: Plan) -> Plan:
    """The addresses of a stream's reads take a wrong step."""

    def change(x: Stream) -> Stream:
        first, *rest = x.feed.reads
        return replace(x, feed=replace(x.feed, reads=(replace(first, at=moved(first.at)), *rest)))

    return with_stream(plan, change)


def short_stream_queue(plan: Plan) -> Plan:
    """The queues of lanes of a stream hold a word less."""
    return with_stream(plan, lambda x: replace(x, sent=replace(x.sent, depth=x.sent.depth - 1)))


def early_stream_turn(plan: Plan) -> Plan:
    """Lanes take turns for a stream a slot too early."""
    return with_stream(plan, lambda x: replace(x, sent=replace(x.sent, wait=x.sent.wait - 1)))


def other_lane(plan: Plan) -> Plan:
    """One link comes of another lane."""
    return with_link(plan, 0, lambda k: replace(k, source=k.source + 1))


def with_input(plan: Plan, change: Callable[[Input], Input], which: int = 0) -> Plan:
    """A plan with one input changed."""
    ins = [change(i) if n == which else i for n, i in enumerate(plan.inputs)]
    return replace(plan, inputs=tuple(ins))


def small_window(plan: Plan) -> Plan:
    """The last input's window has a quarter of its size."""
    return with_input(plan, lambda i: replace(i, window=i.window // 4), len(plan.inputs) - 1)


def late_need(plan: Plan) -> Plan:
    """The last group needs all words that the others did."""

    def change(i: Input) -> Input:
        groups = sum(n for n, _ in i.need.runs)
        return replace(i, need=replace(i.need, runs=((groups - 1, 0), (1, i.words))))

    return with_input(plan, change)


def early_free(plan: Plan) -> Plan:
    """The first group frees all words."""

    def change(i: Input) -> Input:
        groups = sum(n for n, _ in i.free.runs)
        return replace(i, free=replace(i.free, runs=((1, i.words), (groups - 1, 0))))

    return with_input(plan, change, len(plan.inputs) - 1)


def further(r: Read) -> Read:
    """A read that begins one word further on."""
    return replace(r, at=replace(r.at, first=r.at.first + 1))


def second_feed(plan: Plan) -> Plan:
    """The second process that reads the first input begins one word further on."""

    def change(i: Input) -> Input:
        f = i.feeds[1]
        return replace(i, feeds=(i.feeds[0], replace(f, reads=tuple(map(further, f.reads))), *i.feeds[2:]))

    return with_input(plan, change)


def wrong_address(plan: Plan) -> Plan:
    """A read begins one word further on."""

    def change(i: Input) -> Input:
        (f,) = i.feeds
        first, *rest = f.reads
        return replace(i, feeds=(replace(f, reads=(further(first), *rest)),))

    return with_input(plan, change)


def short_queue(plan: Plan) -> Plan:
    """The queues of lanes hold a word less."""
    return replace(plan, outputs=tuple(replace(o, depth=o.depth - 1) for o in plan.outputs))


def early_turn(plan: Plan) -> Plan:
    """Lanes take turns a slot too early."""
    return replace(plan, outputs=tuple(replace(o, wait=o.wait - 1) for o in plan.outputs))


def late_turn(plan: Plan) -> Plan:
    """Lanes take turns a slot too late: the next word comes before the last one is read."""
    return replace(plan, outputs=tuple(replace(o, wait=o.wait + 1) for o in plan.outputs))


DEFECTS = [
    ("product", short_link, "link 0 of C", "is as long as the time between write and read"),
    ("stencil", short_link, "link 0 of U.u", "is as long as the time between write and read"),
    ("stencil", other_lane, "link 0 of U.u", "is as long as the time between write and read"),
    ("product", small_window, "port B", "what is waited for has room"),
    ("stencil", small_window, "port A", "what is waited for has room"),
    ("product", late_need, "read 0 of A", "a word has come when it is read"),
    ("product", early_free, "read 0 of B", "a word is kept until it is read"),
    ("product", wrong_address, "read 0 of A", "the address is that of the element"),
    ("product", short_queue, "port C", "the queue of a lane holds what waits"),
    ("product", early_turn, "port C", "a word is there when its lane has its turn"),
    ("rows", short_queue, "port C", "the queue of a lane holds what waits"),
    ("rows", late_turn, "port C", "the queue of a lane holds what waits"),
    ("chain", short_link_between, "link 2 of S.s", "is as long as the time between write and read"),
    ("chain", long_link_between, "link 2 of S.s", "is as long as the time between write and read"),
    ("chain", early_start, "link 2 of S.s", "is as long as the time between write and read"),
    ("chain", second_feed, "read 1 of A", "the address is that of the element"),
    ("sticky", early_start, "buffer 1 of Mean:0", "the place has the element that is read"),
    ("sticky", small_buffer, "buffer 1 of Mean:0", "the place has the element that is read"),
    ("sticky", wrong_read_step, "buffer 1 of Mean:0", "the place has the element that is read"),
    ("fifo", small_buffer, "buffer 1 of S.s", "the place has the element that is read"),
    ("fifo", wrong_write_step, "buffer 1 of S.s", "the place has the element that is read"),
    ("fifo", less_depth, "buffer 1 of S.s", "6 words wait at once at most, and fit"),
    ("fifo", more_depth, "buffer 1 of S.s", "4 words wait at once at most, and fit"),
    ("reordered", small_buffer, "buffer 1 of P.s", "the place has the element that is read"),
    ("reordered", early_start, "buffer 1 of P.s", "the place has the element that is read"),
    ("turns", small_stream, "stream S.s to C", "read 0: a word is kept until it is read"),
    ("turns", wrong_stream_step, "stream S.s to C", "read 0: the address is that of the element"),
    ("turns", early_start, "stream S.s to C", "read 0: a word has come when it is read"),
    ("turns", short_stream_queue, "stream S.s to C", "the queue of a lane holds what waits"),
    ("turns", early_stream_turn, "stream S.s to C", "a word is there when its lane has its turn"),
    ("dealt", small_stream, "stream P.s to E", "read 0: a word is kept until it is read"),
    ("dealt", wrong_stream_step, "stream P.s to E", "read 0: the address is that of the element"),
    ("dealt", early_start, "stream P.s to E", "read 0: a word has come when it is read"),
]


NAMES = [f"{name}-{defect.__name__}" for name, defect, *_ in DEFECTS]


@pytest.mark.parametrize(("name", "defect", "subject", "claim"), DEFECTS, ids=NAMES)
def test_a_seeded_defect_is_refuted(name: str, defect: Callable[[Plan], Plan], subject: str, claim: str) -> None:
    plan = sound(name)
    assert all(p.holds for p in proofs(plan))
    found = proofs(defect(plan))
    refuted = {(p.subject, p.claim): p for p in found if not p.holds}
    assert (subject, claim) in refuted, list(map(str, found))
    assert INSTANCE.search(refuted[subject, claim].counterexample)


def test_what_is_printed_of_a_refuted_plan() -> None:
    found = [Proof("port C", "waits", 3, True), Proof("link 0 of C", "is long", 5, False, "C<i=0, j=1>")]
    assert as_text("f.upl", found) == (
        "port C: waits: holds in all 3\nlink 0 of C: is long: fails: C<i=0, j=1>\nf.upl: 1 proved, 1 refuted"
    )
    said = json.loads(as_json(found))
    assert not said["ok"]
    assert [p["counterexample"] for p in said["proofs"]] == [None, "C<i=0, j=1>"]


def command(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    """`upl check matmul.upl` with more options: status, output, errors."""
    status = main(["check", str(EXAMPLES / "matmul.upl"), *more])
    got = capsys.readouterr()
    return status, got.out, got.err


SIZES = ("-D", "m=4", "-D", "n=4", "-D", "r=4")


def test_the_command_prints_the_proofs(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = command(capsys, "--circuit", "--lanes", "4", "--along", "i", *SIZES)
    lines = out.splitlines()
    assert status == 0
    assert len(lines) > 10
    assert all(": holds in all " in line for line in lines[:-1])
    assert lines[-1].endswith(f"matmul.upl: {len(lines) - 1} proved")
    status, out, _ = command(capsys, "--circuit", "--lanes", "4", "--along", "i", "--json", *SIZES)
    said = json.loads(out)
    assert (status, said["ok"], len(said["proofs"])) == (0, True, len(lines) - 1)


def test_the_command_fails_with_a_counterexample(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_args: object) -> Plan:
        return short_link(product())

    monkeypatch.setattr("upl_mlir.api.circuits.circuit_plan", wrong)
    status, out, _ = command(capsys, "--circuit", *SIZES)
    assert status == 1
    assert re.search(r"link 0 of C: .*: fails: C<i=0, j=0, k_1=1>", out)
    assert out.splitlines()[-1].endswith("1 refuted")


def test_what_the_command_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, "--circuit")[0] == 1  # sizes are open
    status, _, err = command(capsys, "--lanes", "4", *SIZES)
    assert (status, "--lanes, --along, --share and --real go with --circuit" in err) == (2, True)
    status, _, err = command(capsys, "--circuit", "--lanes", "0", *SIZES)
    assert (status, "UPL2004" in err) == (1, True)
