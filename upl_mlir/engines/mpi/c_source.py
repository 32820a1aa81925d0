"""A distributed program as one C file with calls of MPI: `emit_ranks`.

The function of a rank is written as that of a program for one rank is (`engines/native/c`). Its exchanges are those of the
plan which the engine "mpi" follows (`plan.py`): for each, a C function computes the box that a rank needs, from the same
expressions. What sends and receives is the same for all programs (`ranks.h`).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (xDSL leaves the types of results open)

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from xdsl.dialects import func, memref
from xdsl.ir import Block

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl import Gather
from upl_mlir.engines.mpi.plan import Moved, exchanges_of, moved_of, whole_results
from upl_mlir.engines.native.c.c_expressions import Expr
from upl_mlir.engines.native.c.c_source import CFile, comment, header, prototype
from upl_mlir.engines.native.c.c_statements import FunctionWriter
from upl_mlir.passes.distribute.inputs import blocks_of, inputs_in_blocks, outputs_in_blocks
from upl_mlir.passes.loops.emit.code import INDEX, Code, name_of
from upl_mlir.passes.loops.emit.function import EXCHANGE
from upl_mlir.passes.loops.emit.standard import to_standard
from upl_mlir.passes.loops.program import LoopProgram
from upl_mlir.passes.loops.show import box_text
from upl_mlir.passes.lower_to_loops import Lowered, written
from upl_mlir.poly.expr import IndexExpr, extremum
from upl_mlir.poly.operators import Extremum

RUNTIME = Path(__file__).with_name("ranks.h")
TYPES = {"float64": ("double", "MPI_DOUBLE"), "float32": ("float", "MPI_FLOAT"), "int64": ("int64_t", "MPI_INT64_T"),
         "bool": ("bool", "MPI_C_BOOL")}  # fmt: skip
"""The types of elements in C, and as MPI names them."""
OPERATORS = {Gather.SUM: "MPI_SUM", Gather.PRODUCT: "MPI_PROD", Gather.MIN: "MPI_MIN", Gather.MAX: "MPI_MAX"}
LESS = {Gather.MIN: "<", Gather.MAX: ">"}
COMBINE = """/* MPI does not say what its own operator makes of NaN. */
static void {name}(void *a, void *b, int *count, MPI_Datatype *type)
{{
    const {c} *const from = a;
    {c} *const into = b;
    (void)type;
    for (int i = 0; i < *count; ++i)
        if (from[i] {less} into[i] || isnan(from[i])) into[i] = from[i];
}}"""


class RankWriter(FunctionWriter):
    """Writes the function of a rank."""

    def exchange(self, op: func.CallOp) -> None:
        array, *variables = op.operands
        number = op.callee.root_reference.data.removeprefix(EXCHANGE)
        a = self.array(array)
        sizes, at = ([e.text for e in found] for found in (a.sizes, self.scalars(variables)))
        self.line(f"upl_exchanged(upl_all, &upl_exchange_{number}, {a.name}, {_numbers(sizes)}, {_numbers(at)});")


def emit_ranks(p: LoopProgram, *, only_header: bool = False) -> str:
    """A distributed program with a schedule as one C file, or the header of its function.

    Raises UplError (UPL1820) for what C code lacks."""
    for number, x in enumerate(exchanges_of(p)):
        x.number = number
    lowered = written(p)
    to_standard(lowered.module)
    return RankFile(p, lowered).text(only_header=only_header)


class RankFile:
    """The file of a distributed program that is lowered.

    All names that are not the program's own begin with ``upl_``, which no name of the program does in C."""

    def __init__(self, p: LoopProgram, lowered: Lowered):
        self.p, self.module = p, lowered.module
        self.params, self.blocks = tuple(p.system.lin.ctx.params), blocks_of(p.cuts)
        self.bounds = {n for b in self.blocks for n in (b.first, b.last)}
        self.moved = moved_of(p, lowered)
        self.results = whole_results(p, lowered)
        for m in self.moved:
            if any(a.every is not None for a in m.axes):
                message = f"C code does not exchange `{m.array}`, of which not every element is kept"
                raise error("UPL1820", message, p.places.get(m.array))
        ends = [(f"[{i}]", e) for i, e in enumerate(e for b in self.blocks for e in (b.low, b.high))]
        computed = [("upl_blocks", "int64_t *ends", ends, ())]
        computed += [
            (f"upl_box_{n}", "upl_box *box", _box(m), m.variables) for n, m in enumerate((*self.moved, *self.results))
        ]
        blocks = [self._computed([e for _, e in found], names) for _, _, found, names in computed]
        self.file = CFile(self.module, writer=RankWriter)
        self.functions = [
            self._function(name, result, block, [place for place, _ in found])
            for (name, result, found, _), block in zip(computed, blocks, strict=True)
        ]
        self.given = [q for q in self.file.parameters if q.argument.name not in self.bounds]
        self.comm, self.whole = self.file.name_for("comm"), self.file.name_for("whole")

    def text(self, *, only_header: bool) -> str:
        """The file, or its header."""
        f = self.file
        about = comment(
            f"{f.name}: what all ranks of an MPI job call alike, generated from a UPL program.",
            [
                f"{self.comm}: the ranks",
                f"{self.whole}: whether every rank gets whole results, not only its block of those in blocks",
                *(q.comment + self._in_blocks(q.argument.name) for q in self.given), "", *self._blocks_told(),
            ],
            f.assumed,
        )  # fmt: skip
        outer = [f"MPI_Comm {self.comm}", f"bool {self.whole}", *(d for q in self.given for d in q.declarations)]
        declared = prototype(f.name, outer)
        if only_header:
            return header(f.name, declared, about, "#include <mpi.h>\n")
        inner = f.function("static " + prototype("upl_rank", ["const upl_ranks *upl_all", *f.declarations]), "upl_all")
        main = self._main(declared)
        moved = (*self.moved, *self.results)
        fields = max(max(len(m.ranges), len(m.axes), 1) for m in moved) if moved else 1
        runtime = RUNTIME.read_text(encoding="utf-8").rstrip()
        f.need("scratch")
        includes, *parts = f.parts("string.h", "stdio.h", "mpi.h")
        return "\n\n".join([
            about, f"#include <stdbool.h>\n#include <stdint.h>\n{includes}", *parts,
            f"enum {{ UPL_FIELDS = {fields} }};", runtime, *_combining(moved), *self.functions,
            *(self._table(n, m) for n, m in enumerate(moved)), inner, main,
        ]) + "\n"  # fmt: skip

    # -- what the comment tells --------------------------------------------------------------------------------------
    def _in_blocks(self, name: str) -> str:
        found = {**inputs_in_blocks(self.p), **outputs_in_blocks(self.p)}.get(name)
        if found is None:
            return ""
        at, b = found
        field = next(h.fields[at] for h in self.p.hosts if h.name == name)
        return f"; in blocks {self.blocks.index(b) + 1} by {field}"

    def _blocks_told(self) -> list[str]:
        return [
            "Of an input in blocks a rank reads its own block only. It writes its block of a result in blocks.",
            "Rank r of R has indices low + n*r/R to low + n*(r+1)/R - 1, of the n indices from low to high:",
            *(f"blocks {i}: from {b.low} to {b.high}" for i, b in enumerate(self.blocks, start=1)),
        ]

    # -- functions that compute indices ------------------------------------------------------------------------------
    def _computed(self, expressions: Sequence[IndexExpr], variables: Sequence[str]) -> Block:
        """The operations for expressions over a rank's numbers and variables; the module gets the tables that they read."""
        names = (*self.params, *variables)
        block = Block(arg_types=[INDEX for _ in names])
        lin = self.p.system.lin
        code = Code(lin, block, lin.ctx.arrays, name_of(self.p.name))
        for name, arg in zip(names, block.args, strict=True):
            arg.name_hint = name_of(name)
            code.scope.known[IndexExpr.of(name)] = arg
        code.emit(func.ReturnOp(*(code.index(lin.plain(e)) for e in expressions)))
        there = {op.sym_name.data for op in self.module.ops if isinstance(op, memref.GlobalOp)}
        self.module.body.block.add_ops(table for name, table in code.globals.items() if name not in there)
        return block

    def _function(self, name: str, result: str, block: Block, places: Sequence[str]) -> str:
        """A function that writes what was computed to places of its result."""
        w, into = self.file.another(), result.rpartition("*")[2]
        w.taken[0] |= {"of", "at", into}
        for i, arg in enumerate(block.args):
            if arg.uses:
                local, n = w.name(arg.name_hint, "p"), i - len(self.params)
                w.line(f"const int64_t {local} = {f'of[{i}]' if n < 0 else f'at[{n}]'};")
                w.values[arg] = Expr(local)
        for place, value in zip(places, w.body(block), strict=True):
            w.line(f"{into}{place} = {value.text};")
        body = "\n".join(w.lines)
        silent = "".join(f"    (void){n};\n" for n in ("of", "at", into) if not re.search(rf"\b{n}\b", body))
        return f"static void {name}(const int64_t *of, const int64_t *at, {result})\n{{\n{silent}{body}\n}}"

    # -- exchanges ---------------------------------------------------------------------------------------------------
    def _table(self, number: int, m: Moved) -> str:
        """The description of an exchange."""
        c, mpi = TYPES[m.dtype]
        ends = (-1, 0, 0) if m.block is None else (m.at, *map(self.params.index, (m.block.first, m.block.last)))
        combine = _combine(m)
        op = "MPI_OP_NULL" if m.combined is None or combine else OPERATORS[m.combined]
        axes = [_braces(map(str, x)) for x in ([a.at for a in m.axes] or [0], [a.modulus or 0 for a in m.axes] or [0])]
        lines = [
            ", ".join(map(str, (number, len(m.ranges), len(m.axes), *ends))) + f", {', '.join(axes)},",
            f"sizeof({c}), {mpi}, upl_box_{number}, {op}, {combine or 'NULL'}",
        ]
        body = "".join(f"\n    {line}" for line in lines)
        return f"/* {m.array} for {box_text(m.ranges)} */\nstatic const upl_exchange upl_exchange_{number} = {{{body}\n}};"

    # -- the function that all ranks call ----------------------------------------------------------------------------
    def _main(self, declared: str) -> str:
        f, n = self.file, len(self.params)
        names = {q.argument.name: q.name for q in f.parameters}
        lines = [
            "int upl_me, upl_n;",
            f"MPI_Comm_rank({self.comm}, &upl_me);",
            f"MPI_Comm_size({self.comm}, &upl_n);",
            f"int64_t *const upl_of = scratch((int64_t)sizeof(*upl_of) * {n} * upl_n);",
            "for (int upl_r = 0; upl_r < upl_n; ++upl_r) {",
            f"    int64_t *const upl_own = upl_of + (int64_t)upl_r * {n};",
            f"    int64_t upl_ends[{2 * len(self.blocks)}];",
            *(f"    upl_own[{i}] = {names[q]};" for i, q in enumerate(self.params) if q not in self.bounds),
            "    upl_blocks(upl_own, NULL, upl_ends);",
        ]
        for i, b in enumerate(self.blocks):
            own = [f"upl_own[{self.params.index(x)}]" for x in (b.first, b.last)]
            lines.append(f"    upl_block(upl_ends[{2 * i}], upl_ends[{2 * i + 1}], upl_r, upl_n, &{own[0]}, &{own[1]});")
        own = [f"upl_of[upl_me * {n} + {i}]" for i in range(n)]
        passed = ["&upl_all", *own, *(_name(d) for q in f.parameters[n:] for d in q.declarations)]
        status = f.parameters[-1].name
        lines += [
            "}",
            f"const upl_ranks upl_all = {{{self.comm}, upl_me, upl_n, {n}, upl_of}};",
            f"upl_rank({', '.join(passed)});",
            f"MPI_Allreduce(MPI_IN_PLACE, {status}, 1, MPI_INT64_T, MPI_MAX, {self.comm});",
            f"if ({self.whole} && !*{status}) {{" if self.results else f"(void){self.whole};",
            *(self._gathered(number, m) for number, m in enumerate(self.results, start=len(self.moved))),
            *(["}"] if self.results else []),
            "free(upl_of);",
        ]
        body = "\n".join(f"    {line}" for line in lines)
        return f"{declared}\n{{\n{body}\n}}"

    def _gathered(self, number: int, m: Moved) -> str:
        q = next(q for q in self.file.parameters if q.argument.name == m.array)
        return f"    upl_exchanged(&upl_all, &upl_exchange_{number}, {q.name}, {_numbers(q.sizes)}, NULL);"


def _box(m: Moved) -> list[tuple[str, IndexExpr]]:
    """The members of a box in C, with what they are."""
    out: list[tuple[str, IndexExpr]] = []
    for i, r in enumerate(m.ranges):
        out.append((f"->low[{i}]", extremum(Extremum.MAX, r.lows)))
        out.append((f"->high[{i}]", extremum(Extremum.MIN, r.highs)))
    return [*out, *((f"->origin[{i}]", a.origin) for i, a in enumerate(m.axes))]


def _combine(m: Moved) -> str | None:
    """The function that combines the parts of a partial array, where MPI's own does not do it."""
    made = m.combined in LESS and m.dtype.startswith("float")
    return f"upl_{m.combined.name.lower()}_{TYPES[m.dtype][0]}" if made and m.combined is not None else None


def _combining(moved: Sequence[Moved]) -> list[str]:
    """The functions that exchanges combine parts with."""
    found = {name: m for m in moved if (name := _combine(m)) is not None}
    return [
        COMBINE.format(name=name, c=TYPES[m.dtype][0], less=LESS[m.combined])
        for name, m in found.items() if m.combined is not None
    ]  # fmt: skip


def _numbers(texts: Sequence[str]) -> str:
    """An array of 64-bit integers in place."""
    return f"(const int64_t[]){_braces(texts)}" if texts else "NULL"


def _braces(texts: Iterable[str]) -> str:
    return f"{{{', '.join(texts)}}}"


def _name(declaration: str) -> str:
    return declaration.rsplit(maxsplit=1)[-1].lstrip("*")
