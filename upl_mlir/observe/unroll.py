"""What the picture of instances shows: by the program alone, step by step, or by a recorded run, event by event.

Without a run an instance fires in the step after the last of its tokens was sent, as on a machine without limits; a run of
the interpreter has events, one of a machine has cycles and cores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from upl_mlir.api.programs import Program
from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import NodeOp
from upl_mlir.dialects.upl.query import endpoints, span_of
from upl_mlir.host.arrays import bind_parameters
from upl_mlir.observe.replay import Firing, Trace
from upl_mlir.passes.analysis.relations import ProgramSets
from upl_mlir.picture.unrolled import Grid, Unrolled

MOST = 2000
"""Instances that a picture shows at most."""
Instance = tuple[str, tuple[int, ...]]


@dataclass
class _Found:
    """Instances as they are found, with their tokens: the sender (None: the host) and when it was sent."""

    numbers: dict[Instance, int] = field(default_factory=dict[Instance, int])
    tokens: list[list[tuple[int | None, int]]] = field(default_factory=list[list[tuple[int | None, int]]])

    def add(self, instance: Instance) -> int:
        """The number of an instance.  Raises UplError (UPL1807) if there are too many."""
        if instance not in self.numbers:
            if len(self.numbers) == MOST:
                help_ = "make the sizes smaller, -D NAME=VALUE"
                raise error("UPL1807", f"there are more than {MOST} instances: a picture shows no more", help=help_)
            self.numbers[instance] = len(self.numbers)
            self.tokens.append([])
        return self.numbers[instance]


def unrolled(p: Program, trace: Trace | None = None) -> Unrolled:
    """The instances of a program whose sizes are known, `adjoint of` expanded; with a trace those that fired in it.

    Raises UplError: UPL1505 for an open parameter, UPL1807 for more than 2,000 instances, or where data decide what fires
    and there is no trace.
    """
    program = p.expanded().infer_domains()
    with program.errors():
        found = _Found()
        fields = {n: op.fields for n, op in endpoints(program.op).items() if isinstance(op, NodeOp)}
        time, core, unit = _of_trace(found, trace) if trace is not None else _by_steps(found, program)
        return _picture(p.name, found, fields, time, core, unit)


def _by_steps(found: _Found, p: Program) -> tuple[list[int | None], None, str]:
    """The instances and arrows that the program says, and the step of each."""
    sets = ProgramSets(p.op, bind_parameters(p.op, {}, {}))
    for name in (n for n, op in sets.ends.items() if n in sets.dynamic_nodes and isinstance(op, NodeOp)):
        raise error("UPL1807", f"data decide which instances of `{name}` fire", span_of(sets.ends[name]),
                    help="record a run, `upl run FILE --trace T.json`, and give it: --trace T.json")  # fmt: skip
    for name, op in sets.ends.items():
        for x in sets.domain(name).points() if isinstance(op, NodeOp) else ():
            found.add((name, tuple(x)))
    after: list[list[int]] = [[] for _ in found.numbers]
    for a in sets.arrows:
        if not isinstance(a.target, NodeOp):
            continue
        for point in sets.relation(a).points():
            to = found.numbers.get((a.target.symbol, tuple(point[len(point) - len(a.dst) :])))
            source = found.numbers.get((a.source.symbol, tuple(point[: len(a.src)])))
            if to is not None:
                found.tokens[to].append((source, 0))
                if source is not None:
                    after[source].append(to)
    missing = [sum(s is not None for s, _ in tokens) for tokens in found.tokens]
    time: list[int | None] = [None] * len(missing)
    now = [n for n, count in enumerate(missing) if not count]
    step = 1
    while now:
        following: list[int] = []
        for n in now:
            time[n] = step
            for to in after[n]:
                missing[to] -= 1
                if not missing[to]:
                    following.append(to)
        now, step = following, step + 1
    found.tokens = [[(s, (time[s] or 0) if s is not None else 0) for s, _ in tokens] for tokens in found.tokens]
    return time, None, "step"


def _of_trace(found: _Found, trace: Trace) -> tuple[list[int | None], list[int] | None, str]:
    """The instances that fired, and when; of a machine also where."""
    inputs = len(trace.targets) - len(trace.outputs)
    owner = [t.partition(".")[0] for t in trace.targets[:inputs]]
    targets: dict[str, list[int]] = defaultdict(list)
    for t, name in enumerate(owner):
        targets[name].append(t)
    time: list[int | None] = []
    core: list[int] = []
    sent: list[dict[tuple[int, ...], dict[tuple[int, ...], list[tuple[int | None, int]]]]] = [{} for _ in range(inputs)]
    sender: int | None = None
    for at, e in enumerate(trace.events):
        where, when = trace.places[at] if trace.places else (0, at)
        if isinstance(e, Firing):
            name = trace.nodes[e.node]
            known = len(found.numbers)
            sender = found.add((name, tuple(e.index))) if name in targets else None
            if sender is None or sender < known:  # of the host; or it fires again
                continue
            time.append(when)
            core.append(max(where, 0))
            for t in targets[name]:
                for pattern, tokens in sent[t].items():
                    found.tokens[sender] += tokens.get(tuple(e.index[k] for k in pattern), ())
        elif e.target < inputs:
            pattern = tuple(k for k, i in enumerate(e.tag) if i is not None)
            key = tuple(i for i in e.tag if i is not None)
            source = None if trace.places and where < 0 else sender
            sent[e.target].setdefault(pattern, {}).setdefault(key, []).append((source, when))
    return time, core if trace.places else None, "cycle" if trace.places else "event"


def _picture(
    name: str, found: _Found, fields: Mapping[str, tuple[str, ...]], time: Sequence[int | None], core: list[int] | None,
    unit: str,
) -> Unrolled:  # fmt: skip
    points: dict[str, list[tuple[int, ...]]] = {}
    for node, index in found.numbers:
        points.setdefault(node, []).append(index)
    number: dict[int, int] = {}
    grids: list[Grid] = []
    for node, indices in points.items():
        first = len(number)
        for index in sorted(indices):
            number[found.numbers[node, index]] = len(number)
        names = fields.get(node, tuple(f"{k}" for k in range(len(indices[0]))))
        grids.append(Grid(node, names, tuple(sorted(indices)), first))
    back = sorted(number, key=lambda n: number[n])
    arrows = sorted({(number[s], number[n]) for n, tokens in enumerate(found.tokens) for s, _ in tokens if s is not None})
    times = [time[n] for n in back]
    waited = [sum(max(0, (time[n] or 0) - when - (unit == "step")) for _, when in found.tokens[n]) for n in back]
    return Unrolled(
        name, tuple(grids), tuple(arrows), times, unit, waited, None if core is None else [core[n] for n in back],
        *_chains(arrows, times),
    )  # fmt: skip


def _chains(arrows: Sequence[tuple[int, int]], time: Sequence[int | None]) -> tuple[list[int], tuple[int, ...]]:
    """By how much the longest chain through each instance, of firings that need one another, is shorter than the longest of
    all; and one of these.
    """
    ordered = sorted((t, n) for n, t in enumerate(time) if t is not None)
    before: dict[int, list[int]] = defaultdict(list)
    after: dict[int, list[int]] = defaultdict(list)
    for a, b in arrows:
        if (time[a] is not None) and (time[b] is not None):
            before[b].append(a)
            after[a].append(b)
    up: dict[int, int] = {}
    down: dict[int, int] = {}
    for _, n in ordered:
        up[n] = 1 + max((up.get(a, 0) for a in before[n]), default=0)
    for _, n in reversed(ordered):
        down[n] = 1 + max((down.get(b, 0) for b in after[n]), default=0)
    most = max(up.values(), default=0)
    chain: list[int] = []
    at = next((n for n in up if down[n] == most), None)
    while at is not None:
        chain.append(at)
        at = next((b for b in after[at] if down.get(b) == down[chain[-1]] - 1 and up[b] == up[chain[-1]] + 1), None)
    return [most - up[n] - down[n] + 1 if n in up else most for n in range(len(time))], tuple(chain)


def require_colour(u: Unrolled, colour: str) -> None:
    """Raise UplError (UPL1807) for cores where there are none."""
    if colour == "core" and u.core is None:
        help_ = "record one: `upl run FILE --engine rtl --machine M.toml --trace T.json`"
        raise error("UPL1807", "cores are known of a machine's run only", help=help_)
