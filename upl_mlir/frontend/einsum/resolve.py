"""From the text of a kernel to a tensor program: names, shapes and types checked, ranges found, sums placed.

Where a sum stands.  An index that occurs only on the right is summed in each additive term by itself.  A term may stand
inside parentheses: if all of the term's uses of an index are in one factor, and that factor contains a ``+`` or ``-``, the
index is summed inside that factor, term by term; otherwise over the whole product.  So

    alpha<1> * (B<4,8>[i,k]*C<8>[k] + D<4>[i])     is   alpha * ((sum over k of B*C) + D)
    (B<4,8>[i,k] + C<4>[i]) * D<8>[k]              is   sum over k of (B + C)*D
    E<4>[i] / (B<4,8>[i,k] + C<4>[i])              is   E / ((sum over k of B) + C)

which for sums of products is what multiplying out gives, where each index stands in one factor.

The order of a sum is that of loops: an accumulator takes the terms from left to right, of each term all summands, with the
indices nested in the order in which the right side first names them.  ``A[i,j] + B[i,k]*C[k,j]`` starts from A.

Old contents.  A tensor of `outs` that is read before any statement has assigned it is an input, too, as if it were in `ins`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from upl_mlir.diagnostics import Note, Span, did_you_mean, error
from upl_mlir.dialects.upl import UplType
from upl_mlir.frontend.einsum.case import Case
from upl_mlir.frontend.einsum.kernel import Access, Assignment, Binary, Literal, Negated, Tree
from upl_mlir.frontend.einsum.patterns import remainder, rounded_down, truncated
from upl_mlir.frontend.einsum.ranges import find_ranges
from upl_mlir.frontend.tensor import Apply, Expr, Number, Read, Statement, Sum, Tensor, TensorProgram, chained

MAX_INT = 2**31 - 1
"""The greatest constant: integers are `int` in the C++ that is written."""
MAX_FLOAT = float(np.finfo(np.float32).max)
MAX_TERMS = 200  # operations of a statement along one path: bodies are translated by recursion


def resolve(
    case: Case, kernel: Sequence[Assignment], span: Span | None = None, type_: UplType | None = None
) -> TensorProgram:
    """The program of a case whose kernel has been parsed; `type_` replaces the type of its numbers.

    Raises UplError (UPL1903 to UPL1909).
    """
    return _Resolver(case).run(kernel, span, type_)


def accesses(e: Tree) -> Iterator[Access]:
    """The tensors in an expression, left to right."""
    match e:
        case Access():
            yield e
        case Negated(operand=operand):
            yield from accesses(operand)
        case Binary(left=left, right=right):
            yield from accesses(left)
            yield from accesses(right)
        case Literal():
            pass


@dataclass
class _Resolver:
    case: Case
    uses: dict[str, Access] = field(default_factory=dict[str, Access])  # the first use of each tensor
    assigned: set[str] = field(default_factory=set[str])
    updated: set[str] = field(default_factory=set[str])  # of `outs`: those whose old contents are read
    fields: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def run(self, kernel: Sequence[Assignment], span: Span | None, type_: UplType | None) -> TensorProgram:
        statements = [self._statement(s) for s in kernel]
        for name in self.case.ins:
            if name not in self.uses:
                names = [n for n in self.uses if n not in self.case.ins]
                help = did_you_mean(name, names) or "leave it out of `ins`: its shape is not known"
                raise error("UPL1903", f"`{name}` is in `ins`, but the kernel does not use it", span, help=help)
        for name in self.case.outs:
            if name not in self.assigned:
                where = self.uses[name].name_span if name in self.uses else span
                help = did_you_mean(name, self.assigned)
                raise error("UPL1903", f"`{name}` is in `outs`, but no statement assigns it", where, help=help)
        inputs = (*self.case.ins, *(n for n in self.case.outs if n in self.updated))
        for name in self.case.grad_to:
            if name not in inputs:
                where = self.uses[name].name_span if name in self.uses else span
                message = f"`grad_to`: `{name}` is no input: the kernel does not read its old contents"
                help = f"derivatives are by inputs: {', '.join(inputs) or 'there are none'}"
                raise error("UPL1901", message, where, help=help)
        tensors = {n: Tensor(n, _shape(a), a.name_span, self.fields.get(n, ())) for n, a in self.uses.items()}
        type_ = type_ or (UplType.INT if self.case.data_type == "int" else UplType.F32)
        return TensorProgram(self.case.name, type_, tensors, inputs, tuple(self.case.outs), tuple(statements), span)

    def _statement(self, s: Assignment) -> Statement:
        reads = list(accesses(s.value))
        _shallow(s.value)
        for a in reads:
            self._known(a)
        for a in (*reads, s.target):
            self._use(a)
        self.assigned.add(s.target.name)
        every = (s.target, *reads)
        names = tuple(dict.fromkeys(n for a in every for n in a.names))
        ranges = find_ranges(every, names)
        order = {n: i for i, n in enumerate(dict.fromkeys(n for a in reads for n in a.names))}
        summed = [n for n in sorted(order, key=order.__getitem__) if n not in s.target.names]
        value = self._place(s.value, summed)
        return Statement(s.target.name, s.target.index or (), value, ranges, s.span)

    # -- names and shapes ----------------------------------------------------------------------------------------
    def _known(self, a: Access) -> None:
        if a.name in self.case.ins or a.name in self.assigned:
            return
        if a.name in self.case.outs:
            self.updated.add(a.name)
            return
        names = [*self.case.ins, *self.case.outs, *self.assigned]
        help = did_you_mean(a.name, names) or f"add it to `ins`, or assign it first; known: {', '.join(names) or 'none'}"
        raise error("UPL1903", f"`{a.name}` is neither an input nor assigned before", a.name_span, help=help)

    def _use(self, a: Access) -> None:
        """Check the shape of a use, and against the first use."""
        if a.index is None and a.shape != (1,):
            shape = ", ".join(map(str, a.shape))
            help = "only a scalar, `<1>`, is written without an index"
            raise error("UPL1904", f"`{a.name}<{shape}>` needs an index in brackets", a.span, help=help)
        if a.index is not None and len(a.index) != len(a.shape):
            message = f"`{a.name}` has {_plural(len(a.shape), 'dimension')} and {_plural(len(a.index), 'index', 'indices')}"
            raise error("UPL1904", message, a.span)
        first = self.uses.setdefault(a.name, a)
        if first.shape != a.shape or (first.index is None) != (a.index is None):
            notes = (Note(f"`{_written(first)}` is used first here", first.span),)
            raise error("UPL1904", f"`{a.name}` is `{_written(a)}` here and `{_written(first)}` before", a.span, notes=notes)
        names = [e.name or "" for e in a.index or ()]
        plain = tuple(n if names.count(n) == 1 else "" for n in names)
        if sum(map(bool, plain)) > sum(map(bool, self.fields.get(a.name, ()))):
            self.fields[a.name] = plain

    # -- values --------------------------------------------------------------------------------------------------
    def _place(self, e: Tree, pending: Sequence[str]) -> Expr:
        """The expression with the indices `pending` summed where they belong; see the module's docstring."""
        names = {n for a in accesses(e) for n in a.names}
        pending = [n for n in pending if n in names]
        match e:
            case Literal():
                return self._number(e)
            case Access():
                read = Read(e.name, e.index or (), e.span)
                return Sum(tuple(pending), read, e.span) if pending else read
            case Negated(operand=operand):
                return chained([("-", self._place(operand, pending))], e.span)
            case Binary(op="+" | "-"):
                return chained([(sign, self._place(t, pending)) for sign, t in _terms(e)], e.span)
            case Binary():
                inside: list[list[str]] = [[], []]
                here: list[str] = []
                for n in pending:
                    holders = [i for i, f in enumerate((e.left, e.right)) if n in _names(f)]
                    alone = len(holders) == 1 and _has_terms((e.left, e.right)[holders[0]])
                    (inside[holders[0]] if alone else here).append(n)
                value = self._binary(e, self._place(e.left, inside[0]), self._place(e.right, inside[1]))
                return Sum(tuple(here), value, e.span) if here else value

    def _number(self, e: Literal) -> Number:
        if self.case.data_type == "int":
            if isinstance(e.value, float):
                help = "the data type is int: write a whole number, or take `float`"
                raise error("UPL1909", f"`{e.value}` is not an integer", e.span, help=help)
            if e.value > MAX_INT:
                raise error("UPL1909", f"`{e.value}` does not fit 32 bits", e.span)
        elif e.value > MAX_FLOAT:
            raise error("UPL1909", "this number does not fit a float: the greatest is 3.4e38", e.span)
        return Number(e.value, e.span)

    def _binary(self, e: Binary, a: Expr, b: Expr) -> Expr:
        """``* / // %``; on integers `/` cuts off towards 0 as in C, `//` and `%` are those of Python on both types."""
        if self.case.data_type == "int" and e.op != "*" and isinstance(e.right, Literal) and not e.right.value:
            raise error("UPL1909", "an integer is divided by 0", e.right.span)
        if e.op == "*" or (e.op == "/" and self.case.data_type == "float"):
            return Apply(e.op, (a, b), e.span)
        if self.case.data_type == "float":
            return rounded_down(a, b, e.span) if e.op == "//" else remainder(a, b, e.span)
        if e.op == "/":
            return truncated(a, b, e.span)
        return Apply("floordiv" if e.op == "//" else "mod", (a, b), e.span)


def _terms(e: Tree) -> list[tuple[str, Tree]]:
    """What is added and subtracted from left to right, with signs; a right operand in parentheses is one term."""
    out: list[tuple[str, Tree]] = []
    while isinstance(e, Binary) and e.op in "+-":
        out.append((e.op, e.right))
        e = e.left
    return [("+", e), *reversed(out)]


def _names(e: Tree) -> set[str]:
    return {n for a in accesses(e) for n in a.names}


def _has_terms(e: Tree) -> bool:
    """Whether there is a sum or a difference in the expression."""
    match e:
        case Binary(op="+" | "-"):
            return True
        case Binary(left=left, right=right):
            return _has_terms(left) or _has_terms(right)
        case Negated(operand=operand):
            return _has_terms(operand)
        case _:
            return False


def _shallow(e: Tree) -> None:
    """Refuse expressions that the translation, which is recursive, cannot walk."""
    todo: list[tuple[Tree, int]] = [(e, 1)]
    while todo:
        part, depth = todo.pop()
        if depth > MAX_TERMS:
            help = "assign parts of it to tensors of their own"
            raise error("UPL1902", f"more than {MAX_TERMS} operations in a row", part.span, help=help)
        match part:
            case Binary(left=left, right=right):
                todo += [(left, depth + 1), (right, depth + 1)]
            case Negated(operand=operand):
                todo.append((operand, depth + 1))
            case _:
                pass


def _shape(a: Access) -> tuple[int, ...]:
    return () if a.index is None else a.shape


def _written(a: Access) -> str:
    shape = f"{a.name}<{', '.join(map(str, a.shape))}>"
    return shape if a.index is None else f"{shape}[…]"


def _plural(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"
