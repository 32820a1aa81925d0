"""From an einsum case to a program, and to the program of its derivatives."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from upl_mlir.api.programs import Program, grad, vjp
from upl_mlir.diagnostics import Sources, Span, UplError, error
from upl_mlir.dialects.upl import UplType
from upl_mlir.frontend.einsum.case import Case, kernel_file, parse_case, read_case
from upl_mlir.frontend.einsum.kernel import Assignment, Binary, Negated, Tree, parse_kernel
from upl_mlir.frontend.einsum.resolve import resolve
from upl_mlir.frontend.tensor import TensorProgram, lower
from upl_mlir.frontend.tensor.lower import output_name
from upl_mlir.frontend.tensor.objective import with_objective


@dataclass(frozen=True)
class Gradient:
    """A program with derivatives: `seeds` has the input that weights each of `outs`, `derivatives` the output for each of
    `grad_to`.  Their names are ``d_`` and the port's, where that is free.
    """

    program: Program
    seeds: dict[str, str]
    derivatives: dict[str, str]


@dataclass(frozen=True)
class Loaded:
    """A case that has been read: its kernel as statements, and the texts that positions refer to."""

    case: Case
    kernel: tuple[Assignment, ...]
    sources: Sources
    span: Span

    def tensors(self, type_: UplType | None = None) -> TensorProgram:
        """The case as statements on tensors; `type_` replaces its data type.  Raises UplError (UPL19xx)."""
        with self._texts():
            return resolve(self.case, self.kernel, self.span, type_)

    def program(self) -> Program:
        """The UPL program.  Raises UplError (UPL19xx)."""
        return self._lowered(self.tensors())

    def gradient(self) -> Gradient:
        """The program with derivatives; see the function `gradient`.  Raises UplError (UPL14xx, UPL19xx)."""
        if not self.case.grad_to:
            with self._texts():
                raise error("UPL1901", "`grad_to` is empty: there is nothing to differentiate by", self.span)
        type_ = None
        if self.case.data_type == "int":
            self._polynomial()
            type_ = UplType.F64  # holds every 32-bit integer: the derivative of a polynomial is exact in it
        tensors = self.tensors(type_)
        first = tensors.outputs[0]
        if len(tensors.outputs) == 1 and tensors.tensors[first].shape:
            p = self._lowered(tensors)
            g = vjp(p, of=output_name(tensors, first), wrt=self.case.grad_to)
            (seed,) = (name for name in g.inputs if name not in p.inputs)
            seeds = {first: seed}
        else:  # a seed weights one result with fields; several results, or a number, are weighted in the program
            before = len(tensors.inputs)
            tensors, objective = with_objective(tensors)
            p = self._lowered(tensors)
            g = grad(p, of=objective, wrt=self.case.grad_to)
            seeds = dict(zip(self.case.outs, tensors.inputs[before:], strict=True))
        new = [name for name in g.outputs if name not in p.outputs]
        return Gradient(g, seeds, dict(zip(self.case.grad_to, new, strict=True)))

    def _lowered(self, tensors: TensorProgram) -> Program:
        with self._texts():
            return Program(lower(tensors), self.sources)

    @contextmanager
    def _texts(self) -> Generator[None]:
        """Errors inside learn the texts, so that they can show the line."""
        try:
            yield
        except UplError as e:
            e.sources.texts.update(self.sources.texts)
            raise

    def _polynomial(self) -> None:
        """Refuse derivatives of integer kernels that divide."""
        todo: list[Tree] = [s.value for s in self.kernel]
        while todo:
            match part := todo.pop():
                case Binary(op=op, left=left, right=right):
                    if op not in "+-*":
                        help = "take the data type float"
                        with self._texts():
                            raise error("UPL1909", f"`{op}` on integers has no derivative", part.span, help=help)
                    todo += [left, right]
                case Negated(operand=operand):
                    todo.append(operand)
                case _:
                    pass


def read(source: str | Path) -> Loaded:
    """A case from a file or from JSON text, with its kernel parsed.  Raises UplError (UPL1001, UPL19xx)."""
    text = str(source)
    if isinstance(source, Path) or "{" not in text:
        file = text
        case, sources = read_case(Path(text))
    else:
        file = "<json>"
        case, sources = parse_case(text, file)
    name = kernel_file(file)
    try:
        kernel = parse_kernel(case.kernel, name)
    except UplError as e:
        e.sources.texts.update(sources.texts)
        raise
    return Loaded(case, tuple(kernel), sources, Span(name, 1, 1))


def load(source: str | Path) -> Program:
    """The program of a case: a host input for each of `ins`, a host output for each of `outs`.

    A scalar is a port without fields.  A result whose old contents are read is an input as well, as is a tensor in both
    lists: the input is ``NAME`` and the output ``NAME_out``.  `source` is a path or JSON text.
    Raises UplError (UPL1001, UPL19xx).
    """
    return read(source).program()


def gradient(source: str | Path) -> Program:
    """The program of a case with derivatives: inputs ``d_<out>``, outputs ``d_<grad_to>``; the outputs are kept.

    Of several results, or of a number, it is the gradient of ``objective``, the sum of all their elements times ``d_<out>``.

    Derivatives of integer kernels are those of polynomials, computed in f64; kernels that divide integers have none.
    Raises UplError (UPL1001, UPL19xx).
    """
    return read(source).gradient().program
