"""The writer of C functions: lines, names, and which values get variables."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects import func, memref
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Attribute, Operation, SSAValue

from upl_mlir.engines.native.c.c_expressions import ATOM, HELPERS, NEEDS, PLUS, TIMES, Expr, c_type

WIDTH = 90
"""Expressions are kept below this by giving their parts variables."""
_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm typeof "
    "bool true false main status NULL NAN INFINITY HUGE_VAL EXIT_SUCCESS EXIT_FAILURE RAND_MAX MB_CUR_MAX errno "
    "math_errhandling MATH_ERRNO MATH_ERREXCEPT signgam size_t ptrdiff_t wchar_t div_t ldiv_t lldiv_t float_t double_t "
    "FILE EOF BUFSIZ FILENAME_MAX FOPEN_MAX TMP_MAX SEEK_CUR SEEK_END SEEK_SET L_tmpnam fpos_t stdin stdout stderr "
    "isnan isinf isfinite isnormal signbit fpclassify isgreater isgreaterequal isless islessequal islessgreater isunordered"
)
_MATH = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax "
    "fmin fmod frexp gamma hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan "
    "nearbyint nextafter nexttoward pow remainder remquo rint round scalbln scalbn scalb sin sinh sqrt tan tanh tgamma "
    "trunc y0 y1 yn drem significand finite exp10 pow10 sincos"
)
_STDLIB = (
    "abort abs atexit atof atoi atol atoll bsearch calloc div exit free getenv labs ldiv llabs lldiv malloc mblen mbstowcs "
    "mbtowc qsort rand random realloc srand srandom strtod strtof strtol strtold strtoll strtoul strtoull system wcstombs "
    "wctomb alloca select index memcpy memset memmove"
)
_OF_HEADERS = re.compile(
    r"u?int(_fast|_least)?\d+_t|u?int(max|ptr)_t|U?INT(_FAST|_LEAST)?\d+_(MIN|MAX|C)|U?INT(MAX|PTR)_(MIN|MAX|C)|"
    r"(PTRDIFF|SIZE|SIG_ATOMIC|WCHAR|WINT)_(MIN|MAX)|FP_\w+|M_\w+|_\w*|"
    r"P?MPIX?_\w+|(upl|UPL)_\w+"
)
RESERVED = frozenset([*_WORDS.split(), *(f"{n}{end}" for n in _MATH.split() for end in ("", "f", "l")), *_STDLIB.split()])
"""Words of C, and what the headers declare that the code includes."""


def is_reserved(name: str) -> bool:
    """Whether C, its headers or our helpers give a name a meaning."""
    return name in RESERVED or name in HELPERS or _OF_HEADERS.fullmatch(name) is not None


@dataclass(frozen=True)
class Array:
    """A memref in C: a pointer, sizes, and strides (None: dense row-major)."""

    name: str
    element: str
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...] | None = None

    def place(self, index: Sequence[Expr]) -> Expr:
        """The offset of an element."""
        if not index:
            return Expr("0")
        if self.strides is not None:
            terms = [times(i, s) for i, s in zip(index, self.strides, strict=True)]
            total = terms[0]
            for term in terms[1:]:
                total = plus(total, term)
            return total
        total = index[0]
        for i, size in zip(index[1:], self.sizes[1:], strict=True):
            total = plus(times(total, size), i)
        return total

    def element_at(self, index: Sequence[Expr]) -> str:
        """The element as C text."""
        return f"{self.name}[{self.place(index).text}]" if index else f"*{self.name}"


def plus(a: Expr, b: Expr) -> Expr:
    """a + b, without zeros."""
    if a.text == "0" or b.text == "0":
        return b if a.text == "0" else a
    if b.text.startswith("-") and b.text[1:].isdigit():
        return Expr(f"{a.at(PLUS)} - {b.text[1:]}", PLUS)
    return Expr(f"{a.at(PLUS)} + {b.at(TIMES)}", PLUS, a.reads or b.reads)


def times(a: Expr, b: Expr) -> Expr:
    """a * b, without ones."""
    if a.text == "1" or b.text == "1":
        return b if a.text == "1" else a
    if a.text == "0" or b.text == "0":
        return Expr("0")
    return Expr(f"{a.at(TIMES)} * {b.at(ATOM)}", TIMES, a.reads or b.reads)


@dataclass
class Writer:
    """The text of one C function; `c_statements.py` says what is written for each operation."""

    values: dict[SSAValue, Expr | Array] = field(default_factory=dict[SSAValue, Any])
    lines: list[str] = field(default_factory=list[str])
    helpers: set[str] = field(default_factory=set[str])
    tables: dict[str, Array] = field(default_factory=dict[str, Array])
    taken: list[set[str]] = field(default_factory=lambda: [set[str]()])
    depth: int = 1
    limit: int = WIDTH // 2
    """Longer expressions get a variable."""
    heap: list[list[str]] = field(default_factory=lambda: [list[str]()])

    # -- text ----------------------------------------------------------------------------------------------------
    def line(self, text: str) -> None:
        """Add a line at the current depth."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Generator[None]:
        """A block in braces, with names and scratch of its own."""
        self.line(f"{head} {{")
        self.depth += 1
        self.taken.append(set())
        self.heap.append([])
        yield
        for name in self.heap.pop():
            self.line(f"free({name});")
        self.taken.pop()
        self.depth -= 1
        self.line(tail)

    def name(self, hint: str | None, default: str) -> str:
        """A name that is free here: of the hint if there is one."""
        base = re.sub(r"\W", "_", hint or default, flags=re.ASCII)
        base = base if base[0].isalpha() else f"v{base}"
        if is_reserved(f"{base}_2"):  # all names that begin so, `FP_` and `M_` for example
            base = f"v_{base}"
        used = set[str]().union(*self.taken)
        found, n = base, 2
        if base == "i":
            found = next((letter for letter in "ijklmn" if letter not in used), base)
        while found in used or is_reserved(found):
            found, n = f"{base}_{n}", n + 1
        self.taken[-1].add(found)
        return found

    def call(self, text: str) -> None:
        """Note the helpers that a text calls."""
        for name in re.findall(r"\b([a-z_]+)\(", text):
            if name in HELPERS:
                self.helpers |= {name, *NEEDS.get(name, ())}

    # -- values --------------------------------------------------------------------------------------------------
    def define(self, value: SSAValue, e: Expr) -> None:
        """A value: in place where it is used, if that is once and soon, else in a variable.  Unused ones vanish."""
        self.call(e.text)
        uses = list(value.uses)
        if not uses:
            return
        op = value.owner
        assert isinstance(op, Operation)
        if e.level == ATOM and not e.reads and "(" not in e.text:
            self.values[value] = e  # a name or a literal
        elif len(uses) == 1 and len(e.text) < self.limit and _may_move(op, uses[0].operation, e.reads):
            self.values[value] = e
        else:
            name = self.name(value.name_hint, "t")
            self.line(f"const {c_type(value.type)} {name} = {e.text};")
            self.values[value] = Expr(name)

    def variable(self, value: SSAValue, start: Expr | None, default: str = "acc") -> str:
        """A variable that changes, for a value of a loop or a condition."""
        name = self.name(value.name_hint, default)
        self.line(f"{c_type(value.type)} {name}{'' if start is None else f' = {start.text}'};")
        return name

    def assign(self, names: Sequence[str], values: Sequence[Expr], types: Sequence[Attribute]) -> None:
        """Set variables together: through copies where one's new value needs another's old one."""
        texts = [v.text for v in values]
        for i, text in enumerate(texts):
            if any(re.search(rf"\b{earlier}\b", text) for earlier in names[:i]):
                copy = self.name(None, f"next_{names[i]}")
                self.line(f"const {c_type(types[i])} {copy} = {text};")
                texts[i] = copy
        for name, text in zip(names, texts, strict=True):
            if name != text:
                self.line(f"{name} = {text};")


def _may_move(op: Operation, user: Operation, reads: bool) -> bool:
    """Whether a value may be computed at its user: in the same block, and past no store if it reads memory."""
    if user.parent is not op.parent:
        return False
    if not reads:
        return True
    between = op.next_op
    while between is not None and between is not user:
        if any(isinstance(o, memref.StoreOp | memref.CopyOp | GenericOp | FillOp | func.CallOp) for o in between.walk()):
            return False
        between = between.next_op
    return not user.regions
