"""C++ of a model of several cores: each variable holds a bit or a number of every core, a *lane* for each.

Where several cores work there is always something to do in some of them, so nothing is looked at for whether it is due:
all steps are done for all lanes at once, with the vectors of AVX-512 (`lanes.h`). The class has the ports of `emit`'s as
arrays with an element for each lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from upl_mlir.netsim.classes import FUNCTIONS, Model, file_of, members, port, struct, take
from upl_mlir.netsim.expression import Variable
from upl_mlir.netsim.program import Commit, Step
from upl_mlir.netsim.read import WORD, Memory
from upl_mlir.netsim.schedule import Readers, Region, Stage, schedule
from upl_mlir.netsim.vector import Unknown, statement

LIMIT = 300
"""Cost of the steps of a function: much longer ones keep too many vectors in memory. No table of trials is on
record."""


def emit_lanes(model: Model, name: str) -> tuple[str, str]:
    """The header with the class `name`, and the source, which includes `NAME.h` in small letters. Both are compiled with the
    number of lanes (2, 4, 8) as macro LANES. Memories have a row more, as a look at the last number takes what comes after
    it, too."""
    return file_of(model, name, "lanes.h", _Lanes(model, schedule(model.program, LIMIT), name).text())


def _all_lanes(statements: str) -> str:
    return f"for (int k = 0; k < LANES; k++) {{ {statements} }}"


class _Lanes:
    def __init__(self, model: Model, regions: Sequence[Region], name: str):
        self.model, self.program, self.regions, self.name = model, model.program, regions, name
        program = model.program
        self.readers = Readers(program, regions)
        self.ports = {v: port for port, variables in program.outputs.items() for v in variables}
        self.wide = {port for port, variables in program.outputs.items() if sum(v.width for v in variables) > WORD}
        self.fields: dict[Variable, None] = {}
        self.late: list[tuple[Variable, Variable]] = []

    def text(self) -> tuple[str, str]:
        p = self.program
        bodies = [self._function(f"static void r{r.number}({self.name}& m)", self._region(r)) for r in self.regions]
        moving, steady = ([n for n in p.netlist.inputs if (n in self.model.steady) is which] for which in (False, True))
        settle = [self._input(name, True) for name in moving]
        settle += self._evaluate(Stage.SHOWN)
        settle += [self._show(port) for port in sorted(self.wide) if port not in self.model.probes]
        probe = [self._show(port) for port in sorted(self.wide) if port in self.model.probes]
        new = [self._input(name, False) for name in moving]
        late = [f"m.{q.name} = m.{v.name};" for q, v in self.late]
        edge = [*new, *self._evaluate(Stage.KEPT), *late, *map(self._commit, p.commits)]
        rows, starts = members(p, more=1)
        kept = sorted(self.fields, key=lambda v: v.width == 1)
        begin = [_all_lanes(f"auto& c = core[k]; {' '.join(f'c.{s}' for s in starts)}")] if starts else []
        ports = {name: w.width for name, w in p.netlist.inputs.items()}
        ports |= {name: sum(v.width for v in variables) for name, variables in p.outputs.items()}
        data = [
            "\n".join(["    struct Rows {", *(f"    {row}" for row in rows), "        uint64_t end;", "    };"]),
            *(f"    alignas(64) {port(bits)} {name}[LANES] = {{}};" for name, bits in ports.items()),
            *(f"    {self._member(v)}" for v in kept), "    Rows core[LANES];",
        ]  # fmt: skip
        header = struct(self.name, data, [f"    {self.name}();", *FUNCTIONS])
        me = "auto& m = *this; (void)m;"
        source = [
            *bodies,
            self._function(f"{self.name}::{self.name}()", begin),
            self._function(f"void {self.name}::settle()", settle, me),
            self._function(f"void {self.name}::edge()", edge, me),
            self._function(f"void {self.name}::probe()", probe),
            self._function(f"void {self.name}::ports()", list(map(self._input, steady))), "",
        ]  # fmt: skip
        return "\n".join(header), "\n".join(source)

    def _evaluate(self, stage: Stage) -> list[str]:
        return [f"r{r.number}(m);" for r in self.regions if r.stage is stage]

    def _function(self, head: str, lines: Sequence[str], first: str = "") -> str:
        return "\n".join([f"{head} {{", f"    {first}", *(f"    {line}" for line in lines), "}"])

    def _member(self, v: Variable) -> str:
        return f"{self._type(v)} {v.name} = {self._initial(v)};"

    def _type(self, v: Variable) -> str:
        return "Mask" if v.width == 1 else "Vector"

    def _initial(self, v: Variable) -> str:
        x = self.program.initial.get(v, 0)
        return "{}" if not x else "ALL" if v.width == 1 else f"all({x:#x}ull)"

    def _region(self, r: Region) -> list[str]:
        known = {v for s in r.steps for v in s.outs}
        lines = [f"{self._type(v)} {v.name};" for s in r.steps for v in s.outs]
        last: list[str] = []
        for s in r.steps:  # what is read, and what is kept, near to where it is used, as there are few registers
            loads = [v for v in dict.fromkeys(s.ins) if v not in known]
            known.update(loads)
            self.fields.update(dict.fromkeys(loads))
            lines += [*(f"const {self._type(v)} {v.name} = m.{v.name};" for v in loads), self._step(s)]
            for v in s.outs:
                self._store(r, s, v, lines, last)
        return [*lines, *last]

    def _store(self, r: Region, s: Step, v: Variable, lines: list[str], last: list[str]) -> None:
        """Keeps a result, if somebody else needs it."""
        q = s.register
        if q is not None:
            self.fields[q] = None
            if self.readers.wait(q, r):
                self.fields[v] = None
                self.late.append((q, v))
                lines.append(f"m.{v.name} = {v.name};")
            else:
                last.append(f"m.{q.name} = {v.name};")
        elif v in self.ports and self.ports[v] not in self.wide:
            lines.append(f"spill(m.{self.ports[v]}, {v.name});")
        elif s.writes is not None or v in self.readers or v in self.ports:
            self.fields[v] = None
            lines.append(f"m.{v.name} = {v.name};")

    def _step(self, s: Step) -> str:
        """A step for all lanes at once, or one after the other if it has no other form."""
        try:
            return statement(s)
        except Unknown:
            ins, outs = list(dict.fromkeys(s.ins)), s.outs
            before = [f"u64 in{v.number}[LANES]; spill(in{v.number}, {v.name});" for v in ins]
            before += [f"u64 out{v.number}[LANES];" for v in outs]
            inner = [f"const u64 {v.name} = in{v.number}[k];" for v in ins] + [f"u64 {v.name};" for v in outs]
            inner += [s.scalar("m.core[k]"), *(f"out{v.number}[k] = {v.name};" for v in outs)]
            after = [f"fill({v.name}, out{v.number});" for v in outs]
            return f"{{ {' '.join(before)} {_all_lanes(' '.join(inner))} {' '.join(after)} }}"

    def _input(self, name: str, early: bool | None = None) -> str:
        """Takes from an input what early regions read, or what only others do, or both."""
        word = self.program.netlist.inputs[name]
        read = [v for v in self.program.variables[word] if v in self.readers]
        if early is not None:
            read = [v for v in read if any(r.stage is Stage.SHOWN for r in self.readers[v]) is early]
        self.fields.update(dict.fromkeys(read))
        moves: list[str] = []
        for v in read:
            each = _all_lanes(f"x[k] = {take(f'{name}[k]', word.width, v)};")
            moves.append(f"{{ u64 x[LANES]; {each} fill({v.name}, x); }}")
        return " ".join(moves)

    def _show(self, port: str) -> str:
        puts = (f"put({port}[k], {v.low}, {v.width}, lane({v.name}, k));" for v in self.program.outputs[port])
        return _all_lanes(f"{port}[k] = {{}}; {' '.join(puts)}")

    def _commit(self, c: Commit) -> str:
        loads = {v: f"const u64 {v.name} = lane(m.{v.name}, k);" for v in c.variables()}
        does = c.scalar("m.core[k]")
        if isinstance(c.memory, Memory):  # lanes that do not write do so to the row after the last one: no branches
            assert c.place is not None
            loads[c.place] = f"const u64 {c.place.name} = at[k];"
            where = f"u64 at[LANES]; spill(at, pick(on, as_vector(m.{c.place.name}), all({c.memory.size})));"
            return f"if (const Mask on = m.{c.on.name}) {{ {where} {_all_lanes(' '.join([*loads.values(), does]))} }}"
        each = f"if (on >> k & 1) {{ {' '.join(loads.values())} {does} }}"
        return f"if (const Mask on = m.{c.on.name}) {_all_lanes(each)}"
