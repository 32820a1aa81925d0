"""A lowered module as one readable C99 file and its header: `emit`; `emit_one_file` is the same without a header.

The same operations as `emit.py` turns into LLVM IR, as C: loops are `for`, sums are variables, values used once are
written where they are used, arrays are flat with their open sizes beside them.  Nothing but libm is needed.  Products of
matrices are computed in squares (`c_products.py`), in the order of plain loops: the file is meant to be read, and compiled
by whatever compiler is at hand (`-std=c99`, so that products and sums are not fused; `-O3 -march=native` for speed).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from xdsl.dialects import func, memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    Float32Type,
    MemRefType,
    ModuleOp,
    StringAttr,
)
from xdsl.ir import Attribute
from xdsl.transforms.dead_code_elimination import dce

from upl_mlir.diagnostics import error
from upl_mlir.engines.native.c.c_expressions import HELPERS, Expr, c_type, integer_text, real_text
from upl_mlir.engines.native.c.c_statements import FunctionWriter
from upl_mlir.engines.native.c.c_writer import Array, Writer, is_reserved
from upl_mlir.engines.native.llvm.values import Argument
from upl_mlir.engines.native.signature import arguments_of, function_of, layouts_of
from upl_mlir.passes.analysis.proved import ASSUMED
from upl_mlir.passes.layouts import REACH, Term

KEEP_ROUNDING = """#if defined __GNUC__ && !defined __clang__
#pragma GCC optimize ("no-tree-slp-vectorize") /* gcc 12 leaves out `(float)` in `(double)(float)x`, for two at once */
#endif"""

REACHES = 6
"""The status of a run that was not begun, because an index may pass 64 bits."""


@dataclass(frozen=True)
class Parameter:
    """An argument in C: its declarations, and what its comment says."""

    argument: Argument
    name: str
    sizes: tuple[str, ...]
    declarations: tuple[str, ...]
    layout: str = ""
    """Which elements the array holds, such as ``Y<i> in 0<=i<n``."""
    status: bool = False
    """Whether this is the function's last one, which says if the run failed."""

    @property
    def comment(self) -> str:
        a = self.argument
        if a.rank is None:
            return f"{self.name}: a parameter of the program"
        shape = " x ".join(self.sizes) if self.sizes else "one"
        what = "set to 0 by the caller; not 0 afterwards: the run failed" if self.status else ""
        holds = f"; {self.layout}" if self.sizes and self.layout else ""
        return f"{self.name}: {what or ('result, ' if a.written else 'input, ') + shape}{holds}"


def emit(module: ModuleOp, name: str | None = None) -> tuple[str, str]:
    """C source and header of a lowered module with one function; `name` replaces the function's.

    The source includes ``NAME.h``.  Raises UplError (UPL1820) for what C code lacks.
    """
    file = CFile(module, name)
    text = file.function(file.prototype)
    head = f'/* {file.name}: generated C; see {file.name}.h. */\n\n#include "{file.name}.h"'
    return "\n\n".join([head, *file.parts(), text]) + "\n", header(file.name, file.prototype, _about(file))


def emit_one_file(module: ModuleOp, name: str | None = None) -> str:
    """As `emit`, as one file that includes no header of its own."""
    file = CFile(module, name)
    text = file.function(file.prototype)
    head = f"{_about(file)}\n\n#include <stdbool.h>\n#include <stdint.h>"
    return "\n".join([head, "\n\n".join([*file.parts(), text])]) + "\n"


class CFile:
    """A C file for a lowered module: its one function, tables, and the small helpers that the functions of the file share.

    Raises UplError (UPL1820)."""

    def __init__(self, module: ModuleOp, name: str | None = None, writer: type[FunctionWriter] = FunctionWriter):
        """`name` replaces the function's."""
        dce(module)  # compilers warn of variables that nothing uses
        self._function = function_of(module)
        self._writer = w = writer()
        self.name = identifier(name or self._function.sym_name.data, set())
        w.taken[0].add(self.name)
        parameters = _parameters(w, arguments_of(self._function), [arg.type for arg in self._function.body.block.args])
        layouts = dict(
            zip((p.name for p in parameters if p.argument.rank is not None), layouts_of(self._function), strict=False)
        )
        self.parameters = [replace(p, layout=layouts.get(p.name, "")) for p in parameters]
        self.assumed = _taken(module)
        self._narrows = False  # whether numbers are rounded to those of `float`
        self._tables = [_table(w, op) for op in module.ops if isinstance(op, memref.GlobalOp)]

    @property
    def declarations(self) -> list[str]:
        """Those of the function's parameters."""
        return [d for p in self.parameters for d in p.declarations]

    @property
    def prototype(self) -> str:
        """The function's declaration."""
        return prototype(self.name, self.declarations)

    def name_for(self, text: str) -> str:
        """A name like the text for something else in the file."""
        name = identifier(text, self._writer.taken[0])
        self._writer.taken[0].add(name)
        return name

    def another(self) -> FunctionWriter:
        """What writes another function of the file."""
        w = self._writer
        names = {self.name, *(t.name for t in w.tables.values())}
        return FunctionWriter(helpers=w.helpers, tables=w.tables, taken=[names])

    def function(self, declared: str, *others: str) -> str:
        """The text of the function, as it is declared, with parameters of these names before its own."""
        w, f = self._writer, self._function
        for arg, p in zip(f.body.block.args, self.parameters, strict=True):
            if p.argument.rank is None:
                w.values[arg] = Expr(p.name)
            else:
                element = c_type(cast(MemRefType[Attribute], arg.type).element_type)
                w.values[arg] = Array(p.name, element, tuple(Expr(s) for s in p.sizes))
        w.lines += _checked_reach(f, self.parameters)
        w.body(f.body.block)
        for scratch in reversed(w.heap[0]):
            w.line(f"free({scratch});")
        body = "\n".join(w.lines)
        names = [*others, *(d.split()[-1].lstrip("*") for d in self.declarations)]
        unused = [n for n in names if not re.search(rf"\b{n}\b", body)]
        silent = "".join(f"    (void){n};\n" for n in unused)
        self._narrows = "(double)" in body and "(float)" in body
        return f"{declared}\n{{\n{silent}{body}\n}}"

    def need(self, helper: str) -> None:
        """Have a helper in the file."""
        self._writer.helpers.add(helper)

    def parts(self, *includes: str) -> list[str]:
        """What stands in front of the functions, once all of them are written."""
        helpers = [text for key, text in HELPERS.items() if key in self._writer.helpers]
        found = ["math.h", "stdlib.h", *(["string.h"] if "bits_of" in self._writer.helpers else []), *includes]
        return [
            "\n".join(f"#include <{name}>" for name in dict.fromkeys(found)),
            "#ifdef __clang__\n#pragma STDC FP_CONTRACT OFF /* a * b + c keeps its two roundings */\n#endif",
            *([KEEP_ROUNDING] if self._narrows else []), *self._tables, *helpers,
        ]  # fmt: skip


def _about(f: CFile) -> str:
    return comment(f"{f.name}: generated from a UPL program.", [p.comment for p in f.parameters], f.assumed)


def comment(title: str, lines: Sequence[str], assumed: Sequence[str]) -> str:
    """What stands before a function: a title, a line for each parameter, what is asked of arrays and of `assumed` inputs."""
    listed = "\n".join(f"   {line}".rstrip() for line in lines)
    return f"""/* {title}

{listed}

   Arrays are dense, row by row, from the least indices; no two of them may overlap.{_assumed(assumed)} */"""


def _assumed(inputs: Sequence[str]) -> str:
    """What nobody has proved for all sizes, for the comment."""
    if not inputs:
        return ""
    return f"""

   Not proved for all sizes, and not looked at here: that every instance gets its tokens on
   {", ".join(inputs)}.
   The other engines of upl-mlir look at it for the sizes that they are given."""


def _taken(module: ModuleOp) -> list[str]:
    """The inputs whose numbers of tokens the function takes for granted."""
    names = function_of(module).attributes.get(ASSUMED)
    if not isinstance(names, ArrayAttr):
        return []
    return [n.data for n in cast("ArrayAttr[Attribute]", names).data if isinstance(n, StringAttr)]


def _checked_reach(f: func.FuncOp, parameters: Sequence[Parameter]) -> list[str]:
    """The test that no index passes 64 bits, where one may."""
    found = f.attributes.get(REACH)
    if not isinstance(found, ArrayAttr):
        return []
    called = {p.argument.name: p.name for p in parameters}
    terms: list[str] = []
    for text in cast("ArrayAttr[StringAttr]", found):
        t = Term.of(text.data)
        terms.append(" * ".join((f"{t.factor}.0", *(f"fabs((double){called[n]})" for n in t.names))))
    return [
        f"    if ({' + '.join(terms)} >= 0x1p63) {{ /* an index may pass 64 bits */",
        f"        *status = {REACHES};", "        return;", "    }",
    ]  # fmt: skip


def header(name: str, declared: str, about: str, includes: str = "") -> str:
    """A header with the declaration of one function."""
    guard = f"{name.upper()}_H"
    return f"""{about}
#ifndef {guard}
#define {guard}

{includes}#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
#define restrict __restrict
extern "C" {{
#endif

{declared};

#ifdef __cplusplus
}}
#undef restrict
#endif

#endif
"""


def prototype(name: str, listed: Sequence[str]) -> str:
    """The declaration of a function with these parameters."""
    lines, line = list[str](), f"void {name}("
    for i, d in enumerate(listed):
        piece = d + (")" if i == len(listed) - 1 else ", ")
        if len(line) + len(piece) > 110:
            lines.append(line.rstrip())
            line = "    "
        line += piece
    return "\n".join([*lines, line])


def identifier(text: str, taken: set[str]) -> str:
    """A C name like the text that is not taken."""
    base = re.sub(r"\W", "_", text, flags=re.ASCII)
    base = base if base[:1].isalpha() and not is_reserved(f"{base}_2") else f"x{base}"  # as all that begin with `M_`
    found, n = base, 2
    while found in taken or is_reserved(found):
        found, n = f"{base}_{n}", n + 1
    return found


def _parameters(w: Writer, arguments: Sequence[Argument], types: Sequence[Attribute]) -> list[Parameter]:
    out: list[Parameter] = []
    taken = w.taken[0]
    for a, t in zip(arguments, types, strict=True):
        last = a is arguments[-1]
        name = "status" if last else identifier(a.name, taken)  # a word that no other thing has: it is reserved
        taken.add(name)
        if a.rank is None:
            out.append(Parameter(a, name, (), (f"{c_type(t)} {name}",)))
            continue
        sizes: list[str] = []
        for d, n in enumerate(a.shape):
            sizes.append(identifier(f"{name}_size{d}", taken) if n == DYNAMIC_INDEX else str(n))
            taken.add(sizes[-1])
        element = c_type(cast(MemRefType[Attribute], t).element_type)
        pointer = f"{'' if a.written else 'const '}{element} *restrict {name}"
        declared = [f"int64_t {s}" for s in sizes if not s.isdigit()]
        out.append(Parameter(a, name, tuple(sizes), (pointer, *declared), status=last))
    return out


def _table(w: Writer, op: memref.GlobalOp) -> str:
    """A constant array."""
    t = op.type
    if not isinstance(op.initial_value, DenseIntOrFPElementsAttr):
        raise error("UPL1820", f"the global `{op.sym_name.data}` has no values")
    element, count = c_type(t.element_type), t.element_count()
    values = cast(list[float | int], list(op.initial_value.get_values()))
    values = values * count if len(values) == 1 else values
    single = isinstance(t.element_type, Float32Type)
    texts = [real_text(v, single) if isinstance(v, float) else integer_text(int(v)) for v in values]
    name = identifier(op.sym_name.data, w.taken[0])
    w.taken[0].add(name)
    w.tables[op.sym_name.data] = Array(name, element, tuple(Expr(str(n)) for n in t.get_shape()))
    return f"static const {element} {name}[{count}] = {{{', '.join(texts)}}};"
