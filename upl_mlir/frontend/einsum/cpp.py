"""Programs in gather form as C++11: one function on arrays of fixed sizes, loops as a person would write them.

Left sides have plain indices; what is out of reach is guarded by `if` or `?:`.  A sum is accumulated in the data type, in
the order of its indices; nothing is reassociated, and products are not contracted into fused multiply–adds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import UplType
from upl_mlir.engines.native.c.c_expressions import real_text
from upl_mlir.frontend.einsum.patterns import ModOf, Quotient, pattern
from upl_mlir.frontend.tensor import Apply, Cases, Chain, Expr, Number, Position, Read, Statement, Sum, TensorProgram
from upl_mlir.frontend.tensor.form import walk
from upl_mlir.frontend.tensor.wiring import unused
from upl_mlir.poly.expr import Atom, Div, Formula, IndexExpr, Var, divide
from upl_mlir.poly.operators import Connective, DivKind

KEYWORDS: frozenset[str] = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl
    const const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit
    export extern false float for friend goto if inline int long main mutable namespace new noexcept not
    not_eq nullptr operator or or_eq private protected public register reinterpret_cast return short signed
    sizeof static static_assert static_cast std struct switch template this thread_local throw true try
    typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq upl_floordiv
    upl_mod""".split()
)
STACK_ELEMENTS = 4096
"""A tensor of the function's own with more elements than this lives on the heap."""

_CHOICE, _OR, _AND, _COMPARE, _SUM, _PRODUCT, _UNARY, _PRIMARY = range(8)  # binding strength

_HELPERS = {
    "upl_floordiv": "int upl_floordiv(int a, int b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }",
    "upl_mod": "int upl_mod(int a, int b) { return a - b * upl_floordiv(a, b); }",
}
_NO_CONTRACTION = """\
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("-ffp-contract=off")
#endif
"""


@dataclass(frozen=True)
class Argument:
    """A parameter of the function: `name` as in the case; the tensor that it brings and the one that it takes, or one."""

    name: str
    shape: tuple[int, ...]
    brings: str | None = None
    takes: str | None = None


def emit_cpp(name: str, form: TensorProgram, arguments: Sequence[Argument], *, ordered: bool, comment: str = "") -> str:
    """The text of ``void name(…)`` for a program in gather form; `comment` says what it is.

    With `ordered`, compilers are told not to contract products and sums.  Raises UplError (UPL1910) for what C++ cannot say.
    """
    return _Function(name, form, arguments).text(ordered, comment)


@dataclass
class _Function:
    name: str
    form: TensorProgram
    arguments: Sequence[Argument]
    lines: list[str] = field(default_factory=list[str])
    depth: int = 1
    helpers: set[str] = field(default_factory=set[str])
    includes: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.ctype = "int" if self.form.type is UplType.INT else "float"
        self.zero = "0" if self.ctype == "int" else "0.0f"
        self.taken: set[str] = set(KEYWORDS)
        self.function = self._name(self.name)
        self.where: dict[str, str] = {}  # the C++ name of each tensor
        self.names: dict[Argument, str] = {}  # of each argument
        for a in self.arguments:
            self.names[a] = c = self._name(a.name)
            for tensor in (a.brings, a.takes):
                if tensor is not None:
                    self.where[tensor] = c
        # what is passed on as it came, in one place, is there already
        there = {a.takes: a.brings for a in self.arguments if a.takes is not None}
        passes = {s.target for s in self.form.assignments if s.value == Read(there.get(s.target) or "", s.index)}
        self.statements = [s for s in self.form.assignments if s.target not in passes]
        self.ranges: Mapping[str, tuple[int, int]] = {}
        self.indices: dict[str, str] = {}

    def _name(self, name: str) -> str:
        """A name that nothing else in the function has."""
        out = f"{name}_" if name in KEYWORDS else name
        out = unused(out, self.taken)
        self.taken.add(out)
        return out

    def text(self, ordered: bool, comment: str) -> str:
        """The whole file."""
        kept = [s for s in self.statements if s.target not in self.where]
        heap = [self._own(s.target) for s in kept] + self._saved_inputs()
        for s in self.statements:
            self._statement(s)
        for c in filter(None, heap):
            self._line(f"delete[] {c};")
        head = [f"// {line}".rstrip() for line in comment.splitlines()]
        if ordered and self.ctype == "float":
            head.append("// Sums are taken in the order of the loops; products are rounded before they are added.")
        used = set(re.findall(r"\w+", "\n".join(self.lines)))
        body = [*(f"    (void){c};" for c in self.names.values() if c not in used), *self.lines]
        signature = f"void {self.function}({', '.join(self._parameter(a) for a in self.arguments)}) {{"
        parts = ["\n".join(head)] if head else []
        parts += ["\n".join(f"#include <{h}>" for h in sorted(self.includes))] if self.includes else []
        parts += [_NO_CONTRACTION.rstrip()] if ordered and self.ctype == "float" else []
        if "upl_mod" in self.helpers:
            self.helpers.add("upl_floordiv")
        parts += ["\n".join(f"static inline {t}" for h, t in _HELPERS.items() if h in self.helpers)] if self.helpers else []
        parts.append("\n".join([signature, *body, "}"]))
        return "\n\n".join(parts) + "\n"

    def _parameter(self, a: Argument) -> str:
        c = self.names[a]
        return f"{self.ctype} (&{c}){_dimensions(a.shape)}" if a.shape else f"{self.ctype} &{c}"

    def _own(self, tensor: str) -> str | None:
        """Declare a tensor of the function's own; its name if it has to be freed."""
        c = self.where[tensor] = self._name(tensor)
        shape = self.form.tensors[tensor].shape
        if int(np.prod(shape, dtype=object)) <= STACK_ELEMENTS:
            self._line(f"{self.ctype} {c}{_dimensions(shape)};")
            return None
        self._line(f"{self.ctype} (*{c}){_dimensions(shape[1:])} = new {self.ctype}{_dimensions(shape)};")
        return c

    def _saved_inputs(self) -> list[str | None]:
        """Of an argument that is both: what came in is saved first, if it is read after its place is written."""
        heap: list[str | None] = []
        for a in self.arguments:
            if a.brings is None or a.takes is None or not self._read_late(a.brings, a.takes):
                continue
            heap.append(self._own(a.brings))
            fields = tuple(f"i{n}" for n in range(len(a.shape)))
            bounds = {f: (0, n - 1) for f, n in zip(fields, a.shape, strict=True)}
            self._begin(bounds)
            for f in fields:
                self._loop(f)
            index = tuple(map(IndexExpr.of, fields))
            self._line(f"{self._element(self.where[a.brings], index)} = {self._element(self.names[a], index)};")
            self._close(len(fields))
        return heap

    def _read_late(self, brings: str, takes: str) -> bool:
        written = False
        for s in self.statements:
            for r in walk(s.value):
                if isinstance(r, Read) and r.tensor == brings and (written or (s.target == takes and r.index != s.index)):
                    return True
            written = written or s.target == takes
        return False

    # -- statements ----------------------------------------------------------------------------------------------
    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def _open(self, text: str) -> None:
        self._line(f"{text} {{".lstrip())
        self.depth += 1

    def _close(self, levels: int = 1) -> None:
        for _ in range(levels):
            self.depth -= 1
            self._line("}")

    def _loop(self, name: str) -> None:
        lo, hi = self.ranges[name]
        c = self.indices[name]
        self._open(f"for (int {c} = {lo}; {c} < {hi + 1}; ++{c})")

    def _begin(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Start a statement: its indices get C++ names."""
        self.ranges, self.indices, self.accumulators = ranges, {}, 0
        for name in ranges:
            self.indices[name] = unused(name, {*self.taken, *self.indices.values()})

    def _statement(self, s: Statement) -> None:
        self._begin(s.ranges)
        block = not s.free and any(isinstance(p, Sum | Chain) for p in walk(s.value))  # the accumulators of a number
        if block:
            self._open("")
        for name in s.free:
            self._loop(name)
        value, _ = self._value(s.value)
        self._line(f"{self._element(self.where[s.target], s.index)} = {value};")
        self._close(len(s.free) + block)

    def _element(self, c: str, index: Sequence[IndexExpr]) -> str:
        return c + "".join(f"[{self._index(e)[0]}]" for e in index)

    def _variable(self) -> str:
        """A new accumulator."""
        self.accumulators += 1
        name = "s" if self.accumulators == 1 else f"s{self.accumulators}"
        return unused(name, {*self.taken, *self.indices.values()})

    # -- values: C++ text with its binding strength; what needs statements is written first ----------------------
    def _value(self, e: Expr) -> tuple[str, int]:
        match pattern(e):
            case Quotient(a=a, b=b, op=op):
                return self._quotient(a, b, op)
            case ModOf(a=a, b=b) if self.ctype == "int":
                return self._call("upl_mod", a, b)
            case _:
                pass
        match e:
            case Read(tensor=tensor, index=index):
                return self._element(self.where[tensor], index), _PRIMARY
            case Number(value=value):
                return self._literal(value)
            case Sum():
                return self._sum((e,)), _PRIMARY
            case Chain(parts=parts):
                return self._sum(parts), _PRIMARY
            case Cases():
                return self._cases(e)
            case Position():
                raise AssertionError("no program is read back with indices as numbers")
            case Apply(op="+" | "-" | "*" | "/" as op, args=(a, b)):
                strength = _SUM if op in "+-" else _PRODUCT
                left, right = self._value(a), self._value(b)
                return f"{_inside(left, strength)} {op} {_inside(right, strength + 1)}", strength
            case Apply(op="neg", args=(a,)):
                return f"-{_inside(self._value(a), _PRIMARY)}", _UNARY
            case Apply(op="stop_gradient", args=(a,)):
                return self._value(a)
            case Apply(op="floor", args=(a,)):
                self.includes.add("cmath")
                return f"std::floor({self._value(a)[0]})", _PRIMARY
            case Apply(op=op):
                raise _no(f"`{op}` is not an operation of a kernel")

    def _quotient(self, a: Expr, b: Expr, op: str) -> tuple[str, int]:
        if self.ctype == "int" and op == "//":
            return self._call("upl_floordiv", a, b)
        text = f"{_inside(self._value(a), _PRODUCT)} / {_inside(self._value(b), _UNARY)}"
        if op == "/":
            return text, _PRODUCT
        self.includes.add("cmath")
        return f"std::floor({text})", _PRIMARY

    def _call(self, helper: str, a: Expr, b: Expr) -> tuple[str, int]:
        self.helpers.add(helper)
        return f"{helper}({self._value(a)[0]}, {self._value(b)[0]})", _PRIMARY

    def _literal(self, value: float) -> tuple[str, int]:
        text = str(int(value)) if self.ctype == "int" else real_text(value, single=True)
        return text, _UNARY if value < 0 else _PRIMARY

    def _sum(self, parts: Sequence[Sum]) -> str:
        """Loops that add up, part after part; each piece of a guard stands as far out as its indices allow."""
        s = self._variable()
        first = parts[0].body
        plain = not parts[0].over and not isinstance(first, Cases)
        self._line(f"{self.ctype} {s} = {self._value(first)[0] if plain else self.zero};")
        for part in parts[1:] if plain else parts:
            self._add(s, part)
        return s

    def _add(self, s: str, part: Sum) -> None:
        guards: list[Formula] = []
        body = part.body
        if isinstance(body, Cases) and len(body.cases) == 1:
            guard, body = body.cases[0]
            guards = list(guard.conjuncts)
        opened, todo = 0, set(part.over)
        for name in (None, *part.over):
            if name is not None:
                self._loop(name)
                todo.discard(name)
                opened += 1
            ready = [g for g in guards if not g.names & todo]
            guards = [g for g in guards if g not in ready]
            if ready:
                self._open(f"if ({self._formula(Formula.all(ready))[0]})")
                opened += 1
        match body:
            case Apply(op="neg", args=(a,)):
                self._line(f"{s} -= {self._value(a)[0]};")
            case _:
                self._line(f"{s} += {self._value(body)[0]};")
        self._close(opened)

    def _cases(self, e: Cases) -> tuple[str, int]:
        if any(isinstance(p, Sum) for _, v in e.cases for p in walk(v)):
            return self._branches(e), _PRIMARY
        out = (self.zero, _PRIMARY)
        for condition, value in reversed(e.cases):
            text = self._value(value)
            if condition.is_true:
                out = text
            else:
                out = f"{_inside(self._formula(condition), _OR)} ? {_inside(text, _OR)} : {_inside(out, _CHOICE)}", _CHOICE
        return out

    def _branches(self, e: Cases) -> str:
        s = self._variable()
        self._line(f"{self.ctype} {s} = {self.zero};")
        for at, (condition, value) in enumerate(e.cases):
            head = "" if condition.is_true else f"if ({self._formula(condition)[0]})"
            self._open(f"else {head}".rstrip() if at else head)
            self._line(f"{s} = {self._value(value)[0]};")
            self._close()
        return s

    # -- indices -------------------------------------------------------------------------------------------------
    def _index(self, e: IndexExpr) -> tuple[str, int]:
        out: tuple[str, int] | None = None
        for m, c in sorted(e.rewrite(self._cut_off).terms, key=lambda t: (t[1] < 0, not t[0])):
            match m:
                case ():
                    text = str(abs(c)), _PRIMARY
                case (Var(name=name),):
                    text = self.indices[name], _PRIMARY
                case (Div(kind=kind, num=num, den=den),) if kind is not DivKind.CEILDIV and den.constant is not None:
                    operator = "/" if kind is DivKind.FLOORDIV else "%"
                    text = f"{_inside(self._index(num), _PRODUCT)} {operator} {den}", _PRODUCT
                case _:
                    raise _no(f"the index `{e}` is not affine")
            if m and abs(c) != 1:
                text = f"{abs(c)} * {_inside(text, _UNARY)}", _PRODUCT
            if out is None:
                out = (f"-{_inside(text, _UNARY)}", _UNARY) if c < 0 else text
            else:
                out = f"{out[0]} {'-' if c < 0 else '+'} {_inside(text, _PRODUCT)}", _SUM
        return out or ("0", _PRIMARY)

    def _cut_off(self, a: Atom) -> IndexExpr | None:
        """A division whose numerator is not negative: only then C++, which cuts off towards 0, rounds down."""
        if not isinstance(a, Div) or a.kind is DivKind.CEILDIV or (n := a.den.constant) is None:
            return None
        rest = IndexExpr(tuple((m, c if m else c % n) for m, c in a.num.terms if c % n))
        rest += max(0, -(self._least(rest) // n)) * n
        quotient = divide(DivKind.FLOORDIV, rest, a.den) + divide(DivKind.FLOORDIV, a.num - rest, a.den)
        return quotient if a.kind is DivKind.FLOORDIV else divide(DivKind.MOD, rest, a.den)

    def _least(self, e: IndexExpr) -> int:
        """A lower bound of an expression over the ranges of its indices."""
        total = 0
        for m, c in e.terms:
            lo, hi = 1, 1
            for atom in m:
                match atom:
                    case Var(name=name):
                        lo, hi = self.ranges[name]
                    case Div(kind=DivKind.MOD, den=den) if den.constant:
                        lo, hi = 0, den.constant - 1
                    case Div(num=num, den=den) if den.constant:
                        lo, hi = self._least(num) // den.constant, -(self._least(-num) // den.constant)
                    case _:
                        return -1
            total += min(c * lo, c * hi)
        return total

    def _formula(self, f: Formula) -> tuple[str, int]:
        match f.kind:
            case Connective.CMP:
                left, right = _inside(self._index(f.lhs), _SUM), _inside(self._index(f.rhs), _SUM)
                return f"{left} {f.op.value} {right}", _COMPARE
            case Connective.NOT:
                return f"!({self._formula(f.args[0])[0]})", _UNARY
            case Connective.AND | Connective.OR:
                if not f.args:
                    return ("true" if f.is_true else "false"), _PRIMARY
                word, strength = ("&&", _AND) if f.kind is Connective.AND else ("||", _OR)
                parts = [_inside(self._formula(a), _COMPARE) for a in f.args]
                return f" {word} ".join(parts), strength if len(parts) > 1 else _COMPARE


def _no(why: str) -> UplError:
    return error("UPL1910", f"this program cannot be written in C++: {why}")


def _inside(text: tuple[str, int], strength: int) -> str:
    return text[0] if text[1] >= strength else f"({text[0]})"


def _dimensions(shape: Sequence[int]) -> str:
    return "".join(f"[{n}]" for n in shape)
