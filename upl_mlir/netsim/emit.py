"""C++ of a model: a class with the module's ports as members, `settle` and `edge`.

`settle` makes the outputs follow from registers and inputs, `edge` is an edge of the clock; where outputs depend on inputs,
`settle` comes before `edge`, and these inputs stay as they are between the two. `ports` looks for changes of the inputs that
are steady, `probe` makes the outputs that are probes. `settle` and `edge` evaluate a region only if its bit in `due` is set,
which is done by whoever changes what the region reads. A register takes its next value at once if all regions that read it
have been evaluated already in this cycle, else at the end (`late`), as memories do (`rows`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from upl_mlir.netsim.classes import FUNCTIONS, Model, file_of, members, port, size, struct, take
from upl_mlir.netsim.expression import Variable, literal
from upl_mlir.netsim.program import Step
from upl_mlir.netsim.read import WORD, Memory, Unit
from upl_mlir.netsim.schedule import Readers, Region, Stage, schedule

_GROUP = 8
"""Flags that are looked at together before each of them is."""


def emit(model: Model, name: str) -> tuple[str, str]:
    """The header with the class `name`, and the source, which includes `NAME.h` in small letters."""
    return file_of(model, name, "model.h", _Emitter(model, schedule(model.program), name).text())


class _Emitter:
    def __init__(self, model: Model, regions: Sequence[Region], name: str):
        self.model, self.program, self.regions, self.name = model, model.program, regions, name
        program = model.program
        self.readers = Readers(program, regions)
        self.rows: dict[Memory | Unit, set[Region]] = defaultdict(set)
        for r in regions:
            for s in r.steps:
                if s.rows is not None:
                    self.rows[s.rows].add(r)
        self.ports = {v: name for name, variables in program.outputs.items() for v in variables}
        self.wide = [name for name, variables in program.outputs.items() if _width(variables) > WORD]
        self.fields: dict[Variable, None] = {}
        self.commits: dict[Variable, int] = {c.on: n for n, c in enumerate(program.commits)}
        self.late: dict[Region, list[tuple[Variable, Variable]]] = defaultdict(list)

    def text(self) -> tuple[str, str]:
        p = self.program
        bodies = [self._region(r) for r in self.regions]
        shown, kept = ([r for r in self.regions if r.stage is stage] for stage in Stage)
        seen, new = self._inputs(shown)
        settle = [*seen, *self._evaluate(shown), *self._ports(False)]
        edge = [*new, *self._evaluate(kept), *self._late(), *self._commits()]
        rows, starts = members(p)
        ports = [f"    {port(w.width)} {name}{{}};" for name, w in p.netlist.inputs.items()]
        ports += [f"    {port(_width(variables))} {name}{{}};" for name, variables in p.outputs.items()]
        kept = sorted(self.fields, key=lambda v: -size(v.width))
        due = _words(len(self.regions))
        data = [  # first what is used most: the code is shorter for members that are near
            f"    u64 due[{due}] = {{{', '.join(['~0ull'] * due)}}}, late[{due}] = {{}};",
            f"    u64 rows[{_words(len(p.commits))}] = {{}}, shown[{_words(len(self.wide))}] = {{}};",
            *ports,
            *(f"    uint{size(v.width)}_t {v.name} = {literal(p.initial.get(v, 0))};" for v in kept), *rows,
        ]  # fmt: skip
        header = struct(self.name, data, [f"    {self.name}();", *FUNCTIONS], "alignas(64) ")
        source = [
            *bodies,
            *self._function(f"{self.name}::{self.name}()", starts),
            *self._function(f"void {self.name}::settle()", settle),
            *self._function(f"void {self.name}::edge()", edge),
            *self._function(f"void {self.name}::probe()", self._ports(True)),
            *self._function(f"void {self.name}::ports()", self._steady()), "",
        ]  # fmt: skip
        return "\n".join(header), "\n".join(source)

    def _function(self, head: str, lines: Sequence[str]) -> list[str]:
        return [f"{head} {{", f"    {self.name}& m = *this;", "    (void)m;", *(f"    {line}" for line in lines), "}"]

    def _due(self, regions: Iterable[Region]) -> str:
        return _set("m.due", (r.number for r in regions))

    def _region(self, r: Region) -> str:
        """A function that does the steps of a region, then says what has changed."""
        inside = {v: None for s in r.steps for v in s.outs}
        lines: list[str] = []
        last: list[str] = []
        known = set(inside)
        together: dict[str, list[Variable]] = defaultdict(list)
        stores: dict[Step, list[str]] = defaultdict(list)
        for s in r.steps:
            for v in s.outs:
                self._store(r, s, v, stores[s], last, together)
        made = {v: s for s in r.steps for v in s.outs}
        for then, variables in together.items():
            test = " | ".join(f"({v.name} != m.{v.name})" for v in variables)
            moves = " ".join(f"m.{v.name} = {v.name};" for v in variables)
            stores[made[variables[-1]]].append(f"if ({test}) {{ {moves} {then} }}")
        for s in r.steps:  # what is read, and what is kept, near to where it is used, as there are few registers
            loads = [v for v in dict.fromkeys(s.ins) if v not in known]
            known.update(loads)
            self.fields.update(dict.fromkeys(loads))
            lines += [*(f"const u64 {v.name} = m.{v.name};" for v in loads), s.scalar(), *stores[s]]
        return "\n".join([
            f"static __attribute__((noinline)) void r{r.number}({self.name}& m) {{",
            f"    u64 {', '.join(v.name for v in inside)};", *(f"    {line}" for line in [*lines, *last]), "}",
        ])  # fmt: skip

    def _store(
        self, r: Region, s: Step, v: Variable, stores: list[str], last: list[str], together: dict[str, list[Variable]]
    ) -> None:
        """Keeps a result, if somebody else needs it. Those that mean the same to others are compared `together`."""
        if s.register is not None:
            q = s.register
            self.fields[q] = None
            if self.readers.wait(q, r):
                self.fields[v] = None
                self.late[r].append((q, v))
                stores.append(f"m.{v.name} = {v.name};")
                stores.append(f"if ({v.name} != m.{q.name}) {{ {_set('m.late', [r.number])} }}")
            else:
                then = self._due(self.readers[q])
                last.append(f"if ({v.name} != m.{q.name}) {{ m.{q.name} = {v.name}; {then} }}")
        elif s.writes is not None:
            if v in self.commits:
                n = self.commits[v]
                stores.append(
                    f"{_clear('m.rows', n)} m.rows[{n // WORD}] |= {v.name} << {n % WORD};"
                )
            else:
                self.fields[v] = None
                stores.append(f"m.{v.name} = {v.name};")
        elif v in self.ports and self.ports[v] not in self.wide:
            stores.append(f"m.{self.ports[v]} = {v.name};")
        else:
            then = self._due(self.readers[v]) if v in self.readers else ""
            if v in self.ports:
                then += _set("m.shown", [self.wide.index(self.ports[v])])
            if then:
                self.fields[v] = None
                together[then].append(v)

    def _inputs(self, early: Sequence[Region]) -> tuple[list[str], list[str]]:
        """Looks for changed inputs: those that these regions read, and those that only others do."""
        lines: tuple[list[str], list[str]] = [], []
        for name in self.program.netlist.inputs:
            if name not in self.model.steady:
                for v, line in self._changed(name):
                    lines[self.readers[v].isdisjoint(early)].append(line)
        return lines

    def _steady(self) -> list[str]:
        return [line for name in self.program.netlist.inputs if name in self.model.steady for _, line in self._changed(name)]

    def _changed(self, name: str) -> Iterable[tuple[Variable, str]]:
        word = self.program.netlist.inputs[name]
        for v in self.program.variables[word]:
            if v in self.readers:
                self.fields[v] = None
                x = take(name, word.width, v)
                yield v, f"if (const u64 x = {x}; x != {v.name}) {{ {v.name} = x; {self._due(self.readers[v])} }}"

    def _evaluate(self, regions: Sequence[Region]) -> list[str]:
        each = {r.number: f"{_clear('due', r.number)} r{r.number}(m);" for r in regions}
        return _tests("due", each)

    def _late(self) -> list[str]:
        """Registers take their next values."""
        each: dict[int, str] = {}
        for r, pairs in self.late.items():
            moves = (
                f"if ({q.name} != {v.name}) {{ {q.name} = {v.name}; {self._due(self.readers[q])} }}"
                for q, v in pairs
            )
            each[r.number] = f"{_clear('late', r.number)} {' '.join(moves)}"
        return _tests("late", dict(sorted(each.items())))

    def _commits(self) -> list[str]:
        """Memories take what is written, each cycle in which their write is on."""
        commits = enumerate(self.program.commits)
        return _tests("rows", {n: f"{c.scalar()} {self._due(self.rows[c.memory])}" for n, c in commits})

    def _ports(self, probes: bool) -> list[str]:
        each: dict[int, str] = {}
        for n, name in enumerate(self.wide):
            if (name in self.model.probes) is probes:
                puts = (f"put({name}, {v.low}, {v.width}, {v.name});" for v in self.program.outputs[name])
                each[n] = f"{_clear('shown', n)} {name} = {{}}; {' '.join(puts)}"
        return _tests("shown", each)


def _tests(flags: str, each: dict[int, str]) -> list[str]:
    """Does what is said for each bit that is set, in this order. What is done may set bits that are still to come."""
    lines: list[str] = []
    groups: dict[int, list[int]] = defaultdict(list)
    for n in each:
        groups[n // _GROUP].append(n)
    for numbers in groups.values():
        word = numbers[0] // WORD
        any_ = sum(1 << n % WORD for n in numbers)
        inner = [f"    if ({flags}[{word}] & {1 << n % WORD:#x}ull) {{ {each[n]} }}" for n in numbers]
        lines += (
            [f"if ({flags}[{word}] & {any_:#x}ull) {{", *inner, "}"] if len(numbers) > 2 else [x[4:] for x in inner]
        )
    return lines


def _set(flags: str, numbers: Iterable[int]) -> str:
    words: dict[int, int] = {}
    for n in numbers:
        words[n // WORD] = words.get(n // WORD, 0) | 1 << n % WORD
    return " ".join(f"{flags}[{n}] |= {bits:#x}ull;" for n, bits in sorted(words.items()))


def _clear(flags: str, n: int) -> str:
    return f"{flags}[{n // WORD}] &= ~{1 << n % WORD:#x}ull;"


def _words(flags: int) -> int:
    """Words that hold so many flags, at least one."""
    return max(1, -(-flags // WORD))


def _width(variables: Sequence[Variable]) -> int:
    return sum(v.width for v in variables)
