"""A UPL program of the affine class printed back as an einsum case, where it is one, for people who want to read it.

The kernel is made from the program's gather form and then read again: only if that gives the same statements, with the
same index ranges and the sums at the same places, is it the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from upl_mlir.api.programs import Program
from upl_mlir.diagnostics import UplError, error
from upl_mlir.dialects.upl import UplType
from upl_mlir.frontend.einsum.case import Case
from upl_mlir.frontend.einsum.gather_form import gather_form
from upl_mlir.frontend.einsum.kernel import parse_kernel
from upl_mlir.frontend.einsum.patterns import ModOf, Quotient, differentiable, pattern
from upl_mlir.frontend.einsum.resolve import resolve
from upl_mlir.frontend.tensor import (
    Apply,
    Cases,
    Chain,
    Expr,
    Number,
    Position,
    Read,
    Statement,
    Sum,
    Tensor,
    TensorProgram,
)
from upl_mlir.frontend.tensor.form import free_names
from upl_mlir.frontend.tensor.wiring import unused
from upl_mlir.poly.expr import Div, Formula, IndexExpr, Var
from upl_mlir.poly.operators import DivKind
from upl_mlir.poly.sets import PolyContext

_SUM, _PRODUCT, _FACTOR = 0, 1, 2  # binding strength


def recognise(program: Program, outputs: Sequence[str] | None = None) -> Case:
    """The einsum case that means the same as the program (or as those of its outputs).

    Real numbers of any width are `float`.  Raises UplError (UPL1910) saying what is no einsum.
    """
    form = gather_form(program, outputs)
    form = replace(form, statements=tuple(part for s in form.assignments for part in _parts(s)))
    try:
        return _case(form)
    except _SumsElsewhere as e:
        return _case(_apart(form, e.statements))


class _SumsElsewhere(UplError):
    """Sums that a kernel, as written, would put somewhere else."""

    def __init__(self, statements: Sequence[Statement]):
        names = ", ".join(f"`{s.target}`" for s in statements)
        super().__init__(*_no(f"the sums of {names} stand elsewhere than a kernel would put them").diagnostics)
        self.statements = list(statements)


def _case(form: TensorProgram) -> Case:
    """The statements as a case.  Raises UplError (UPL1910) if it does not mean the same."""
    kernel = "\n".join(_statement(form, s) for s in form.assignments)
    type_ = "int" if form.type is UplType.INT else "float"
    case = Case(name=form.name, ins=list(form.inputs), outs=list(form.outputs), data_type=type_, kernel=kernel)
    _same(form, case)
    return case


def _apart(form: TensorProgram, statements: Sequence[Statement]) -> TensorProgram:
    """The program in which each sum inside the given statements has a statement and a tensor of its own."""
    tensors, out = dict(form.tensors), list[Statement]()
    made: dict[tuple[str, Expr], Expr] = {}  # by statement and sum

    def named(s: Statement, e: Expr) -> Expr:
        match e:
            case Sum() | Chain() if (s.target, e) in made:
                return made[s.target, e]
            case Sum() | Chain():
                free = tuple(n for n in s.free if n in free_names(e))
                name = unused(f"{s.target}_sum", tensors)
                if any(s.ranges[n][0] for n in free):
                    raise _SumsElsewhere([s])
                tensors[name] = Tensor(name, tuple(s.ranges[n][1] + 1 for n in free))
                index = tuple(IndexExpr.of(n) for n in free)
                ranges = {n: r for n, r in s.ranges.items() if n in free or n not in s.free}
                out.append(replace(s, target=name, index=index, value=e, ranges=ranges))
                made[s.target, e] = Read(name, index)
                return made[s.target, e]
            case Apply(args=args):
                return replace(e, args=tuple(named(s, a) for a in args))
            case _:
                return e

    for s in form.assignments:
        out.append(replace(s, value=named(s, s.value)) if s in statements else s)
    return replace(form, tensors=tensors, statements=tuple(out))


def _no(why: str) -> UplError:
    return error("UPL1910", f"this program is no einsum: {why}")


def _parts(s: Statement) -> list[Statement]:
    """A statement whose value depends on where it is, as one for each place; elements left out are 0 by themselves."""
    if not isinstance(s.value, Cases):
        return [s]
    out: list[Statement] = []
    ctx, dims = PolyContext(), s.free
    box = ctx.set(dims, _box({d: s.ranges[d] for d in dims}))
    for condition, value in s.value.cases:
        here = box.constrain(condition)
        box = box - here
        if value == Number(0):
            continue
        bounds = {d: here.extent(d) for d in dims}
        ranges = {d: (lo, hi) for d, (lo, hi) in bounds.items() if lo is not None and hi is not None}
        if not ctx.set(dims, _box(ranges)).equals(here):
            raise _no(f"`{s.target}` has different values where `{condition}`, which are not whole intervals of indices")
        one = {d: IndexExpr.of(lo) for d, (lo, hi) in ranges.items() if lo == hi and s.ranges[d] != (lo, hi)}
        index = tuple(e.substitute(one) for e in s.index)
        kept = {n: r for n, r in {**s.ranges, **ranges}.items() if n not in one}
        out.append(replace(s, index=index, value=_at(value, one), ranges=kept))
    return out


def _at(e: Expr, values: Mapping[str, IndexExpr]) -> Expr:
    """The expression with values for some of its indices."""
    match e:
        case Read(index=index):
            return replace(e, index=tuple(i.substitute(values) for i in index))
        case Apply(args=args):
            return replace(e, args=tuple(_at(a, values) for a in args))
        case Sum(body=body):
            return replace(e, body=_at(body, values))
        case Chain(parts=parts):
            return replace(e, parts=tuple(replace(p, body=_at(p.body, values)) for p in parts))
        case Number():
            return e
        case Position(e=at):
            return replace(e, e=at.substitute(values))
        case Cases(cases=cases):
            return replace(e, cases=tuple((f.substitute(values), _at(v, values)) for f, v in cases))


def _box(ranges: dict[str, tuple[int, int]]) -> Formula:
    parts = (Formula.compare(lo, "<=", n) & Formula.compare(n, "<=", hi) for n, (lo, hi) in ranges.items())
    return Formula.all(parts)


# -- text ------------------------------------------------------------------------------------------------------------
def _statement(form: TensorProgram, s: Statement) -> str:
    return f"{_access(form.tensors[s.target], s.index)} = {_text(form, s.value, _SUM)};"


def _access(t: Tensor, index: Sequence[IndexExpr]) -> str:
    if not t.shape:
        return f"{t.name}<1>"
    return f"{t.name}<{', '.join(map(str, t.shape))}>[{', '.join(_index(e, _SUM) for e in index)}]"


def _text(form: TensorProgram, e: Expr, strength: int) -> str:
    """An expression; in parentheses where only operators that bind more strongly than `strength` may stand."""

    def binary(op: str, left: Expr, right: Expr, mine: int) -> str:
        text = f"{_text(form, left, mine)} {op} {_text(form, right, mine + 1)}"
        return f"({text})" if strength > mine else text

    match pattern(e):
        case Quotient(a=a, b=b, op=op):
            return binary(op, a, b, _PRODUCT)
        case ModOf(a=a, b=b):
            return binary("%", a, b, _PRODUCT)
        case None:
            pass
    match e:
        case Read():
            return _access(form.tensors[e.tensor], e.index)
        case Number(value=value):
            text = str(value if form.type is UplType.INT else float(value))
            return f"({text})" if strength == _FACTOR and value < 0 else text
        case Apply(op="+" | "-" as op, args=(a, b)):
            return binary(op, a, b, _SUM)
        case Apply(op="*" | "/" as op, args=(a, b)):
            return binary(op, a, b, _PRODUCT)
        case Apply(op="neg", args=(a,)):
            text = f"-{_text(form, a, _FACTOR)}"
            return f"({text})" if strength > _SUM else text
        case Sum(body=body):
            return _text(form, body, strength)
        case Chain(parts=parts):
            text = _text(form, parts[0], _SUM)
            for part in parts[1:]:
                match part.body:
                    case Apply(op="neg", args=(a,)):
                        text += f" - {_text(form, a, _PRODUCT)}"
                    case body:
                        text += f" + {_text(form, body, _PRODUCT)}"
            return f"({text})" if strength > _SUM else text
        case Apply(op=op):
            raise _no(f"it computes `{op}`")
        case Position(e=at):
            raise _no(f"it computes with the index `{at}`")
        case Cases(cases=cases):
            raise _no(f"something is left out where `{cases[0][0]}` does not hold")


def _index(e: IndexExpr, strength: int) -> str:
    parts: list[str] = []
    for m, c in sorted(e.terms, key=lambda t: (not t[0], t[1] < 0)):
        match m:
            case ():
                text = str(abs(c))
            case (Var(name=name),):
                text = name if abs(c) == 1 else f"{abs(c)}*{name}"
            case (Div(kind=DivKind.FLOORDIV | DivKind.MOD as kind, num=num, den=den),):
                text = f"{_index(num, _FACTOR)}{'//' if kind is DivKind.FLOORDIV else '%'}{den}"
                text = text if abs(c) == 1 else f"{abs(c)}*({text})"
            case _:
                raise _no(f"`{e}` is no index expression of a kernel")
        parts.append((" - " if parts else "-") + text if c < 0 else (" + " if parts else "") + text)
    out = "".join(parts) or "0"
    return f"({out})" if strength == _FACTOR and (len(parts) != 1 or not out.isalnum()) else out


# -- the proof -------------------------------------------------------------------------------------------------------
def _same(form: TensorProgram, case: Case) -> None:
    """Read the kernel again, and compare."""
    try:
        again = resolve(case, parse_kernel(case.kernel, "<kernel>"))
    except UplError as e:
        raise _no(f"its kernel would not be accepted: {e.diagnostics[0].message}") from None
    elsewhere: list[Statement] = []
    for mine, read in zip(form.assignments, again.assignments, strict=True):
        if _sorted(differentiable(mine.value)) != _sorted(differentiable(read.value)) or mine.index != read.index:
            elsewhere.append(mine)
            continue
        for name, bounds in read.ranges.items():
            if mine.ranges[name] != bounds:
                lo, hi = mine.ranges[name]
                raise _no(
                    f"in the statement for `{mine.target}`, `{name}` goes from {lo} to {hi}, but the accesses allow "
                    f"{bounds[0]} to {bounds[1]}"
                )
    if elsewhere:
        raise _SumsElsewhere(elsewhere)


def _sorted(e: Expr) -> Expr:
    """The expression with the indices of each sum in alphabetical order: a kernel's order is that of its text."""
    match e:
        case Sum(over=over, body=body):
            return Sum(tuple(sorted(over)), _sorted(body))
        case Chain(parts=parts):
            return Chain(tuple(Sum(tuple(sorted(p.over)), _sorted(p.body)) for p in parts))
        case Apply(op=op, args=args):
            return Apply(op, tuple(map(_sorted, args)))
        case _:
            return e
