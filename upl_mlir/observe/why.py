"""`why`: what an instance waits for after a run, and who should have sent it, back to the first cause.

    print("\n".join(why(upl.load("f.upl"), "Link.w<1,2,3,4>", {"X": x, "W": w}).lines()))

The program runs once on the interpreter, with a trace; who sends what is read off the arrows' relations (LANGUAGE 3.9).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from upl_mlir.api.programs import Program
from upl_mlir.diagnostics import UplError, error, nearest_or_all
from upl_mlir.dialects.upl import InputOp, NodeOp, OutputOp, Port
from upl_mlir.dialects.upl.query import Endpoint, span_of, target_port
from upl_mlir.engines.interp.engine import Engine, Event
from upl_mlir.engines.interp.errors import tag, unify
from upl_mlir.host.arrays import bind_arrays, bind_parameters, host_ports
from upl_mlir.passes.analysis.relations import Arrow, ProgramSets
from upl_mlir.poly.expr import Formula, IndexExpr

Index = tuple[int, ...]
MOST_SENDERS = 3  # instances that are named where there are more
DEEPEST = 40  # links of a chain of causes
_PLACE = re.compile(r"\s*(?P<node>[^\W\d]\w*)(\.(?P<input>[^\W\d]\w*))?\s*([<⟨](?P<index>[^<>⟨⟩]*)[>⟩])?\s*")


@dataclass
class Cause:
    """One line of the answer, and what it comes from."""

    text: str
    causes: list[Cause] = field(default_factory=list["Cause"])
    came: bool = False  # a token, or all summands, came

    def lines(self, depth: int = 0) -> Iterator[str]:
        """The answer as indented text."""
        yield "  " * depth + self.text
        for c in self.causes:
            yield from c.lines(depth + 1)


def why(p: Program, place: str, arrays: Mapping[str, Any], /, **params: int) -> Cause:
    """Why the instance or input `place` (``Link<1,2,3,4>``, ``Link.w<1,2,3,4>``, ``R<1,2>``) has or has not got its tokens.

    `arrays` and `params` are those of a run; its own errors (stranded tokens) are no errors here.  Raises UplError: UPL1810
    for a place that does not exist, and what binding the arrays raises.
    """
    program = p.expanded().infer_domains()
    with program.errors():
        bound = bind_parameters(program.op, arrays, params)
        ports = host_ports(program.op, bound, np.dtype(np.float64))
        dense = bind_arrays(program.op, ports, arrays)
        return _Search(ProgramSets(program.op, bound), _Record(program, bound, dense)).answer(place)


class _Record:
    """What happened in one run: who fired, what was sent where, and the message with which it ended."""

    def __init__(self, p: Program, bound: Mapping[str, int], dense: Mapping[str, Any]):
        self.fired: dict[str, set[Index]] = defaultdict(set)
        self.sent: dict[str, list[tuple[tuple[int | None, ...], Any]]] = defaultdict(list)
        self.stopped: str | None = None
        try:
            Engine(p.op, bound, trace=self._note).run(dense)
        except UplError as e:
            first = e.diagnostics[0]
            self.stopped = None if first.code in ("UPL1601", "UPL1603") else first.head()

    def _note(self, event: Event, name: str, index: tuple[int | None, ...], value: Any) -> None:
        if event is Event.FIRE:
            self.fired[name].add(tuple(i for i in index if i is not None))
        else:
            self.sent[name].append((index, value))

    def arrived(self, target: str, index: Index) -> list[Any]:
        """The values of all tokens that cover an index of an input or output."""
        return [value for pattern, value in self.sent[target] if unify(pattern, index) is not None]


class _Search:
    def __init__(self, sets: ProgramSets, record: _Record):
        self.sets, self.record = sets, record
        self.seen: set[tuple[str, Index]] = set()

    def answer(self, place: str) -> Cause:
        """The tree of causes for a place as the user writes it."""
        op, port, index = self._parse(place)
        top = self._port(op, port, index, 0) if port and isinstance(op, NodeOp) else self._end(op, index, 0)
        if self.record.stopped:
            top.causes.append(Cause(f"the run stopped early: {self.record.stopped}"))
        return top

    def _parse(self, place: str) -> tuple[Endpoint, Port | None, Index]:
        found = _PLACE.fullmatch(place)
        if found is None:
            raise error("UPL1810", f"`{place}` is not a place in a program", help="write NODE<1,2> or NODE.input<1,2>")
        ends = {name: op for name, op in self.sets.ends.items() if isinstance(op, NodeOp | OutputOp)}
        op = ends.get(found["node"])
        if op is None:
            what = "is a host input: nothing is sent to it"
            what = what if found["node"] in self.sets.ends else "is neither a node nor an output"
            raise error("UPL1810", f"`{found['node']}` {what}", help=nearest_or_all(found["node"], ends))
        port = None
        if found["input"] is not None:
            names = [q.name for q in op.ports] if isinstance(op, NodeOp) else []
            if found["input"] not in names:
                raise error("UPL1810", f"`{op.symbol}` has no input `{found['input']}`", span_of(op),
                            help=nearest_or_all(found["input"], names))  # fmt: skip
            port = target_port(op, found["input"])
        texts = [t.strip() for t in (found["index"] or "").split(",") if t.strip()]
        if len(texts) != len(op.fields) or not all(re.fullmatch(r"[+-]?\d+", t) for t in texts):
            wanted = f"{op.symbol}<{','.join(op.fields)}>"
            raise error("UPL1810", f"`{place}` has not one whole number for each field of {wanted}", span_of(op))
        return op, port, tuple(map(int, texts))

    # -- instances ---------------------------------------------------------------------------------------------------
    def _end(self, op: Endpoint, index: Index, depth: int) -> Cause:
        """A node's instance or an output's element."""
        name, verb = f"{op.symbol}{tag(index)}", "came" if isinstance(op, OutputOp) else "fired"
        if isinstance(op, OutputOp) and (came := self.record.arrived(op.symbol, index)):
            return Cause(f"{name} = {came[0]!r}")
        if index in self.record.fired[op.symbol]:
            return Cause(f"{name} fired")
        if (op.symbol, index) in self.seen:
            return Cause(f"{name} never {verb}: see above")
        self.seen.add((op.symbol, index))
        at = Formula.all(Formula.compare(f, "==", i) for f, i in zip(op.fields, index, strict=True))
        if self.sets.domain(op.symbol).constrain(at).is_empty():
            known = op.domain or op.declared
            return Cause(f"{name} never {verb}: it is outside the domain" + (f", {known.data}" if known else ""))
        if not isinstance(op, NodeOp):
            return self._absent(op, target_port(op, None), index, name, depth)
        parts = [self._port(op, port, index, depth + 1) for port in op.ports]
        absent = [p for p in parts if not p.came]
        return Cause(f"{name} never fired", absent or [*parts, *self._used_up(op, index)])

    def _port(self, op: NodeOp, port: Port, index: Index, depth: int) -> Cause:
        """One input of an instance."""
        name = f"{op.symbol}.{port.name}{tag(index)}"
        came = self.record.arrived(f"{op.symbol}.{port.name}", index)
        if port.gather is None:
            return Cause(f"{name}: {came[0]!r} came", came=True) if came else self._absent(op, port, index, name, depth)
        sends = [self._sends(a, index) for a in self.sets.into(op.symbol, port.name)]
        wanted = sum(len(s) for s in sends if s is not None)
        name = f"{name}: {len(came)} of {wanted} summands came"
        if len(came) >= wanted and None not in sends:
            return Cause(name, came=True)
        return self._absent(op, port, index, name, depth)

    def _used_up(self, op: NodeOp, index: Index) -> Iterator[Cause]:
        """The tokens for several instances of which others took all there was."""
        for port in op.ports:
            for arrow in self.sets.into(op.symbol, port.name):
                count = arrow.send.multiplicity
                if not arrow.stars or not isinstance(count, IndexExpr):
                    continue
                for sent in self._sends(arrow, index) or ():
                    many = self.sets.ctx.number(count.substitute(sent))
                    stars = {d.removesuffix("'") for d in arrow.stars}
                    pattern = tuple(None if f in stars else i for f, i in zip(op.fields, index, strict=True))
                    users = sorted(i for i in self.record.fired[op.symbol] if unify(pattern, i) is not None)
                    if many is not None and len(users) >= many:
                        took = ", ".join(map(tag, users[:MOST_SENDERS])) + (", …" if len(users) > MOST_SENDERS else "")
                        token = f"{op.symbol}.{port.name}{tag(pattern)} of `{arrow.text}`{_at(arrow)}"
                        yield Cause(f"the token {token} was for {many}, and {took} took it")

    # -- what did not come -------------------------------------------------------------------------------------------
    def _absent(self, op: Endpoint, port: Port, index: Index, text: str, depth: int) -> Cause:
        """A token that did not come: who sends it."""
        out = Cause(text if text.endswith("came") else f"{text} never came")
        nobody: list[Cause] = []
        for arrow in self.sets.into(op.symbol, port.name if isinstance(op, NodeOp) else None):
            where = f"`{arrow.text}`{_at(arrow)}"
            sends = self._sends(arrow, index)
            if sends is None:
                out.causes.append(Cause(f"{where}: data decide which instance of {arrow.source.symbol} sends there"))
                continue
            senders = dict.fromkeys(tuple(sent[f] for f in arrow.src) for sent in sends)
            if not senders:
                nobody.append(Cause(f"{where}: no instance of {arrow.source.symbol} sends there"))
            late = [s for s in senders if not self._sent(arrow, s)]
            out.causes += [self._sender(arrow, where, sender, depth) for sender in late[:MOST_SENDERS]]
            if len(late) > MOST_SENDERS:
                out.causes.append(Cause(f"{where}: and {len(late) - MOST_SENDERS} more"))
        out.causes = out.causes or nobody or [Cause("no arrow leads there")]
        return out

    def _sent(self, arrow: Arrow, sender: Index) -> bool:
        """Whether an instance did send what the arrow says."""
        return arrow.exact and (isinstance(arrow.source, InputOp) or sender in self.record.fired[arrow.source.symbol])

    def _sender(self, arrow: Arrow, where: str, sender: Index, depth: int) -> Cause:
        name = f"{arrow.source.symbol}{tag(sender)}"
        if isinstance(arrow.source, InputOp):
            return Cause(f"{where}: data decide whether {name} goes there")
        if sender in self.record.fired[arrow.source.symbol]:
            return Cause(f"{where}: {name} fired; data decide whether it sends there")
        if depth >= DEEPEST:
            return Cause(f"{where}: {name} never fired; and so on")
        return Cause(f"{where} should send it", [self._end(arrow.source, sender, depth + 1)])

    def _sends(self, arrow: Arrow, index: Index) -> list[dict[str, int]] | None:
        """The points (source fields and iterators) at which the arrow sends a token that covers an index.

        None if data decide, and without them there is no bound.
        """
        at = [Formula.compare(d, "==", i) for d, i in zip(arrow.dst, index, strict=True) if d not in arrow.stars]
        dims = (*arrow.src, *arrow.loops)
        found = self.sets.relation(arrow, inside_target=False).constrain(Formula.all(at)).project(dims)
        if found.is_empty():
            return []
        if any(None in found.extent(d) for d in dims):
            return None
        return [dict(zip(dims, point, strict=True)) for point in found.points()]


def _at(arrow: Arrow) -> str:
    """Where the arrow stands in the text, for messages."""
    span = span_of(arrow.send)
    return f" ({span})" if span else ""
