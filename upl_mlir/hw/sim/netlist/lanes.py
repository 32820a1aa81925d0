"""C++ of a model of several cores: each variable holds a bit or a number of every core, a *lane* for each.

Where several cores work there is always something to do in some of them, so nothing is looked at for whether it is due:
all steps are done for all lanes at once, with the vectors of AVX-512 (`lanes.h`). The class has the ports of `emit`'s as
arrays with an element for each lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from upl_mlir.hw.sim.netlist.classes import (
    class_names,
    copies,
    file_of,
    functions,
    members,
    port,
    ports_head,
    size,
    take,
)
from upl_mlir.hw.sim.netlist.expression import Variable
from upl_mlir.hw.sim.netlist.partition import Part
from upl_mlir.hw.sim.netlist.program import Commit, Step
from upl_mlir.hw.sim.netlist.read import WORD, Memory
from upl_mlir.hw.sim.netlist.schedule import Readers, Region, Stage
from upl_mlir.hw.sim.netlist.vector import Unknown, statement

LIMIT = 300
"""Cost of the steps of a function: much longer ones keep too many vectors in memory."""


def emit_lanes(parts: Sequence[Part], regions: Sequence[Sequence[Region]], name: str) -> tuple[str, str]:
    """The header with the class `name`, and the source, which includes `NAME.h` in small letters; `regions` of each part.
    Both are compiled with the number of lanes (2, 4, 8) as macro LANES. Memories have a row more, as a look at the last
    number takes what comes after it, too."""
    names = class_names(name, parts)
    each = [_Lanes(part, r, names, n).text() for n, (part, r) in enumerate(zip(parts, regions, strict=True))]
    return file_of(parts, names, "lanes.h", each)


def _all_lanes(statements: str) -> str:
    return f"for (int k = 0; k < LANES; k++) {{ {statements} }}"


class _Lanes:
    def __init__(self, part: Part, regions: Sequence[Region], names: Sequence[str], number: int):
        self.part, self.program, self.regions, self.names, self.name = part, part.program, regions, names, names[number]
        program = part.program
        self.imports, self.exports = set(part.imports), set(part.exports)
        self.readers = Readers(program, regions)
        self.ports = {v: port for port, variables in program.outputs.items() for v in variables}
        self.wide = {port for port, variables in program.outputs.items() if sum(v.width for v in variables) > WORD}
        self.fields: dict[Variable, None] = {}
        self.late: list[tuple[Variable, Variable]] = []

    def text(self) -> tuple[str, str]:
        p = self.program
        bodies = [self._function(f"static void r{r.number}({self.name}& m)", self._region(r)) for r in self.regions]
        moving, steady = ([n for n in p.netlist.inputs if (n in self.part.steady) is which] for which in (False, True))
        settle = [self._input(name, True) for name in moving]
        settle += self._evaluate(Stage.SHOWN)
        settle += [self._show(port) for port in sorted(self.wide) if port not in self.part.probes]
        probe = [self._show(port) for port in sorted(self.wide) if port in self.part.probes]
        new = [self._input(name, False) for name in moving]
        late = [f"m.{q.name} = m.{v.name};" for q, v in self.late]
        finish = [*self._evaluate(Stage.KEPT), *late, *map(self._commit, p.commits)]
        if len(self.names) > 1:
            tell = ["o = &out[turn = (turn + 1) % 3];", *new, *self._evaluate(Stage.TOLD)]
            edge = {"tell": tell, "finish": ["claim(out[(turn + 1) % 3], ~0u);", *finish]}
        else:
            edge = {"edge": [*new, *finish]}
        rows, starts = members(p, more=1)
        kept = sorted(self.fields, key=lambda v: v.width == 1)
        begin = [_all_lanes(f"auto& c = core[k]; {' '.join(f'c.{s}' for s in starts)}")] if starts else []
        ports = {name: w.width for name, w in p.netlist.inputs.items()}
        ports |= {name: sum(v.width for v in variables) for name, variables in p.outputs.items()}
        others = [name for name in self.names if name != self.name]
        told = " ".join(map(self._told, sorted(self.part.exports, key=lambda v: -v.width)))
        taken = ["in = &from.out[turn];", "fetch(*in);"]
        header = [
            f"struct alignas(64) {self.name}_out {{ {told} }};" if others else "",
            f"struct {self.name} {{",
            "    struct Rows {", *(f"    {row}" for row in rows), "        uint64_t end;", "    };",
            *(f"    alignas(64) {port(bits)} {name}[LANES] = {{}};" for name, bits in ports.items()),
            *(f"    {self._member(v)}" for v in kept), "    Rows core[LANES];",
            *(f"    {self.name}_out out[3], *o; const struct {x}_out* in; unsigned turn = 0;" for x in others),
            f"    {self.name}();", *functions(self.names, self.name), "};", "",
        ]  # fmt: skip
        me = "auto& m = *this; (void)m;"
        source = [
            *bodies,
            self._function(f"{self.name}::{self.name}()", begin),
            self._function(f"void {self.name}::settle()", settle, me),
            *(self._function(f"void {self.name}::{name}()", lines, me) for name, lines in edge.items()),
            *(self._function(f"void {self.name}::take(const {x}& from)", taken) for x in others),
            self._function(f"void {self.name}::probe()", probe),
            self._function(
                ports_head(self.names, self.name), [*copies(self.names, self.name, p), *map(self._input, steady)]
            ), "",
        ]  # fmt: skip
        return "\n".join(header), "\n".join(source)

    def _evaluate(self, stage: Stage) -> list[str]:
        return [f"r{r.number}(m);" for r in self.regions if r.stage is stage]

    def _function(self, head: str, lines: Sequence[str], first: str = "") -> str:
        return "\n".join([f"{head} {{", f"    {first}", *(f"    {line}" for line in lines), "}"])

    def _member(self, v: Variable) -> str:
        return f"{self._type(v)} {v.name} = {self._initial(v)};"

    def _told(self, v: Variable) -> str:
        """What another part is told."""
        if v.width == 1:
            return self._member(v)
        x = self.program.initial.get(v, 0)
        return f"Narrow<uint{size(v.width)}_t> {v.name} = {{{f'{x:#x}ull' if x else ''}}};"

    def _place(self, v: Variable) -> str:
        return f"widen(in.{v.name})" if v in self.imports else f"m.{v.name}"

    def _type(self, v: Variable) -> str:
        return "Mask" if v.width == 1 else "Vector"

    def _initial(self, v: Variable) -> str:
        x = self.program.initial.get(v, 0)
        return "{}" if not x else "ALL" if v.width == 1 else f"all({x:#x}ull)"

    def _region(self, r: Region) -> list[str]:
        known = {v for s in r.steps for v in s.outs}
        lines = [f"{self._type(v)} {v.name};" for s in r.steps for v in s.outs]
        if not self.imports.isdisjoint(v for s in r.steps for v in s.ins):
            lines.append("const auto& in = *m.in;")
        if not self.exports.isdisjoint(s.register for s in r.steps if s.register is not None):
            lines.append("auto& o = *m.o;")
        last: list[str] = []
        for s in r.steps:  # what is read, and what is kept, near to where it is used, as there are few registers
            loads = [v for v in dict.fromkeys(s.ins) if v not in known]
            known.update(loads)
            self.fields.update(dict.fromkeys(v for v in loads if v not in self.imports))
            lines += [*(f"const {self._type(v)} {v.name} = {self._place(v)};" for v in loads), self._step(s)]
            for v in s.outs:
                self._store(r, s, v, lines, last)
        return [*lines, *last]

    def _store(self, r: Region, s: Step, v: Variable, lines: list[str], last: list[str]) -> None:
        """Keeps a result, if somebody else needs it."""
        q = s.register
        if q is not None:
            if q in self.exports:
                lines.append(f"narrow(o.{q.name}, {v.name});")
                if q not in self.readers:
                    return
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
