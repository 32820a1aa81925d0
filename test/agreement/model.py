"""Generated programs as plain data, and their `.upl` text.

A `Program` can be printed, enumerated (`naive`), broken (`mutants`) and made smaller (`shrink`) without the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from agreement.static import TRUE, Arrays, Cond, Lin, domain_text
from agreement.values import Val

CARRIED = "#"
UNBOUNDED = "##"


@dataclass(frozen=True)
class Port:
    """An input of a node; `count` is None for an ordinary one, else `CARRIED` or an expression."""

    name: str
    type: str = "real"
    op: str | None = None
    count: Lin | str | None = None

    def __str__(self) -> str:
        text = self.name if self.op is None else f"@({self.op}) {self.name}[{self.count}]"
        return text if self.type == "real" else f"{text}: {self.type}"


@dataclass(frozen=True)
class Loop:
    """``it in lo..hi``"""

    it: str
    lo: Lin
    hi: Lin


@dataclass(frozen=True)
class Arrow:
    """An arrow; `index` has None for `*`; `value` None: left out; `mult` None: left out."""

    target: str
    port: str | None
    index: tuple[Lin | None, ...]
    cond: Cond = TRUE
    value: Val | None = None
    mult: Lin | str | None = None
    loops: tuple[Loop, ...] = ()
    loop_cond: Cond = TRUE
    split: Val | None = None  # data that decide which of two copies of the arrow sends: together they send what one would
    bare: bool = False  # the index is left out of the text: it follows from the names of the fields
    portless: bool = False  # so is the name of the target's only input

    def __str__(self) -> str:
        if self.split is None:
            return self._line("" if self.cond.is_true else f"{self.cond}")
        also = "" if self.cond.is_true else f"({self.cond}) && "
        return f"{self._line(f'{also}({self.split})')}\n  {self._line(f'{also}!({self.split})')}"

    def _line(self, cond: str) -> str:
        parts = [f"if {cond}:"] if cond else []
        if self.value is not None:
            parts.append(str(self.value))
        if self.mult is not None:
            parts.append(UNBOUNDED if self.mult == UNBOUNDED else f"#{self.mult}")
        port = "" if self.port is None or self.portless else f".{self.port}"
        index = "" if self.bare else f"<{','.join('*' if e is None else str(e) for e in self.index)}>"
        parts.append(f"-> {self.target}{port}{index}")
        if self.loops:
            parts.append("for " + ", ".join(f"{p.it} in {p.lo}..{p.hi}" for p in self.loops))
            if not self.loop_cond.is_true:
                parts.append(f"if {self.loop_cond}")
        return " ".join(parts)


@dataclass(frozen=True)
class Assign:
    """``name: type = value``; type None: left out."""

    name: str
    value: Val
    type: str | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.type} = {self.value}" if self.type else f"{self.name} = {self.value}"


@dataclass(frozen=True)
class End:
    """A host port or a node: `kind` is "input", "output" or "node"; `domain` is the declared one."""

    kind: str
    name: str
    fields: tuple[str, ...]
    domain: Cond | None = None
    type: str = "real"
    ports: tuple[Port, ...] = ()
    body: tuple[Assign, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    glued: int = 0  # how many of the last arrows stand in a second block

    def port(self, name: str | None) -> Port:
        """An input; the only one for None."""
        if self.kind == "output":
            return Port(self.name, self.type)
        return self.ports[0] if name is None else next(p for p in self.ports if p.name == name)

    def head(self) -> str:
        """The line that opens it."""
        index = f"<{','.join(self.fields)}>" if self.fields else ""
        type_ = f": {self.type}" if self.kind != "node" and self.type != "real" else ""
        domain = "" if self.domain is None or not self.fields else f" in {domain_text(self.domain)}"
        return f"{self.kind} {self.name}{index}{type_}{domain}"

    def text(self) -> str:
        """The block."""
        if self.kind == "output":
            return self.head()
        inside = [f"in {', '.join(map(str, self.ports))}"] if self.ports else []
        inside += [str(a) for a in self.body]
        first = self.arrows[: len(self.arrows) - self.glued]
        inside += [str(a) for a in first]
        return self.head() + (" {\n" + "".join(f"  {line}\n" for line in inside) + "}" if inside else " { }")

    def second(self) -> str | None:
        """The second block of a glued node."""
        if not self.glued:
            return None
        inside = [str(a) for a in self.arrows[len(self.arrows) - self.glued :]]
        return f"node {self.name} {{\n" + "".join(f"  {line}\n" for line in inside) + "}"


@dataclass(frozen=True)
class Param:
    """``param name >= low``"""

    name: str
    low: int


@dataclass(frozen=True)
class Program:
    """Parameters, constants, ends in text order; `features` counts what the generator put in."""

    name: str
    params: tuple[Param, ...] = ()
    consts: tuple[tuple[str, int], ...] = ()
    arrays: tuple[tuple[str, int, tuple[int, ...]], ...] = ()  # name, first index, entries
    ends: tuple[End, ...] = ()
    features: tuple[str, ...] = field(default=(), compare=False)

    def end(self, name: str) -> End:
        """A port or node by name."""
        return next(e for e in self.ends if e.name == name)

    def with_end(self, new: End) -> Program:
        """The program with one end replaced."""
        return replace(self, ends=tuple(new if e.name == new.name else e for e in self.ends))

    def arrows(self) -> Iterator[tuple[End, int, Arrow]]:
        """Source, number at the source, arrow; in text order, as LANGUAGE 3.10 counts: host inputs first."""
        for kind in ("input", "node"):
            for e in self.ends:
                if e.kind == kind:
                    for i, a in enumerate(e.arrows):
                        yield e, i, a

    def tables(self) -> Arrays:
        """The constant arrays by index."""
        return {n: {first + i: v for i, v in enumerate(vs)} for n, first, vs in self.arrays}

    def text(self) -> str:
        """The `.upl` text."""
        out = [f"program {self.name}"]
        out += [f"param {p.name} >= {p.low}" for p in self.params]
        out += [f"const {n} = {v}" for n, v in self.consts]
        out += [f"const {n}[{a}:{a + len(vs) - 1}] = [{', '.join(map(str, vs))}]" for n, a, vs in self.arrays]
        later = list[str]()
        for e in self.ends:
            out.append(e.text())
            if (second := e.second()) is not None:
                later.append(second)
        return "\n".join([*out, *later]) + "\n"
