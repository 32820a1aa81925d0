"""Host ports as arrays: layouts, conversion of what a caller passes, parameters from shapes (LANGUAGE 3.7).

    bound = bind_parameters(program, {"X": x, "W": [w1, w2]}, {"K": 3})     # D follows from the shape of X
    ports = host_ports(program, bound)
    dense = bind_arrays(ports, {"X": x, "W": [w1, w2]})                     # checked, in the ports' types

Errors are UplError with these codes:

| code    | meaning                                                                   |
|---------|---------------------------------------------------------------------------|
| UPL1501 | an array, or an element of one given by index, is missing                 |
| UPL1502 | there is no such input                                                    |
| UPL1503 | wrong shape                                                               |
| UPL1504 | values that the port's type does not have                                 |
| UPL1505 | parameters: unknown, undetermined, contradictory, or against a condition  |
| UPL1506 | an array would be larger than `MAX_ARRAY_BYTES`                           |
| UPL1507 | the domain of a port is not known, not affine or not bounded              |
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from upl_mlir.diagnostics import Span, UplError, error, nearest_or_all
from upl_mlir.dialects.upl import InputOp, OutputOp, ParamOp, ProgramOp, UplType
from upl_mlir.dialects.upl.query import domain_of, endpoints, inputs, outputs, poly_context, span_of
from upl_mlir.host.given import Array, Dense, Given, Ragged, Sparse, cast_values, classify
from upl_mlir.poly.convert import NotAffine
from upl_mlir.poly.counts.dense import (
    Box,
    Contradiction,
    Extents,
    Unbounded,
    bounding_box,
    holds,
    mask,
    points,
    solve_parameters,
)
from upl_mlir.poly.expr import Formula
from upl_mlir.poly.sets import PolyContext

MAX_ARRAY_BYTES = 8 * 2**30
"""Bytes of an input or output as a dense array; a larger one is refused before memory is asked for. Chosen: a mistake
in a size is likelier than such an array."""
LISTED = 10  # how many missing elements a message lists


def dtype_of(type_: UplType, real: np.dtype[Any] | None = None) -> np.dtype[Any]:
    """The numpy type of a port's elements; `real` is what `real` means (f64 unless told)."""
    match type_:
        case UplType.REAL:
            return real if real is not None else np.dtype(np.float64)
        case UplType.F32:
            return np.dtype(np.float32)
        case UplType.F64:
            return np.dtype(np.float64)
        case UplType.INT:
            return np.dtype(np.int64)
        case UplType.BOOL:
            return np.dtype(np.bool_)


@dataclass(frozen=True, eq=False)
class HostPort:
    """A host port with every parameter bound: where its elements lie in a dense array.

    `inside` has shape ``box.shape`` and says which elements of the box belong to the domain.
    """

    name: str
    fields: tuple[str, ...]
    type: UplType
    dtype: np.dtype[Any]
    box: Box
    inside: NDArray[np.bool_]
    span: Span | None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the port's dense array."""
        return self.box.shape

    @property
    def origin(self) -> tuple[int, ...]:
        """The index of element 0: the lower bounds."""
        return self.box.lower

    def points(self) -> Iterator[tuple[int, ...]]:
        """The indices of the domain, in lexicographic order."""
        return points(self.box, self.inside)

    def zeros(self) -> Array:
        """A dense array of zeros."""
        return np.zeros(self.shape, self.dtype)


def make_port(op: InputOp | OutputOp, ctx: PolyContext, real: np.dtype[Any] | None = None) -> HostPort:
    """The layout of one host port; `ctx` has a value for every parameter.  Raises UplError (UPL1506, UPL1507)."""
    return port_layout(op.symbol, op.fields, op.type, known_domain(op), ctx, span_of(op), real)


def port_layout(
    name: str,
    fields: tuple[str, ...],
    type_: UplType,
    domain: Formula,
    ctx: PolyContext,
    span: Span | None,
    real: np.dtype[Any] | None = None,
) -> HostPort:
    """The layout of an array over a domain of which `ctx` knows all that it reads.  Raises UplError (UPL1506, UPL1507)."""
    with boxed(name, span):
        box = bounding_box(ctx, fields, domain)
    dtype = dtype_of(type_, real)
    if box.size * dtype.itemsize > MAX_ARRAY_BYTES:
        size = " x ".join(map(str, box.shape))
        raise error(
            "UPL1506", f"the array of `{name}`, {size}, needs {box.size * dtype.itemsize} bytes; the limit is "
            f"{MAX_ARRAY_BYTES}", span,
        )  # fmt: skip
    return HostPort(name, fields, type_, dtype, box, mask(ctx, fields, domain, box), span)


def known_domain(op: InputOp | OutputOp) -> Formula:
    """The domain by which a port's array is laid out: the declared one, else the inferred.

    Raises UplError (UPL1507).
    """
    if op.declared:
        return op.declared.data
    domain = domain_of(op)
    if domain is None:
        raise error(
            "UPL1507", f"the domain of `{op.symbol}` is not known", span_of(op),
            help="run `infer-domains` first, or declare the domain",
        )  # fmt: skip
    return domain


@contextmanager
def boxed(name: str, span: Span | None) -> Generator[None]:
    """Turns what the mathematics cannot do with the domain of `name` into a diagnostic there (UPL1507)."""
    try:
        yield
    except NotAffine as e:
        why = f"`{e.what}` is not affine"
    except Unbounded as e:
        why = f"`{e.field}` has no bound"
    else:
        return
    raise error("UPL1507", f"the domain of `{name}` has no bounding box: {why}", span)


def host_ports(program: ProgramOp, params: Mapping[str, int], real: np.dtype[Any] | None = None) -> dict[str, HostPort]:
    """The layouts of all host ports, inputs first, in text order.  `params` binds every parameter.

    Raises UplError (UPL1506, UPL1507).
    """
    ctx = poly_context(program, params)
    return {op.symbol: make_port(op, ctx, real) for op in (*inputs(program), *outputs(program))}


# -- parameters ----------------------------------------------------------------------------------------------------
def bind_parameters(
    program: ProgramOp, arrays: Mapping[str, object], given: Mapping[str, object] | None = None, *, any_port: bool = False
) -> dict[str, int]:
    """Values for all parameters: those given, the others from the shapes of the arrays; conditions are checked.

    With `any_port` the arrays may be those of outputs too, which a run has made, and inputs may be left out.

    Raises UplError (UPL1501, UPL1502, UPL1503, UPL1505).
    """
    declared = [op for op in program.body.block.ops if isinstance(op, ParamOp)]
    known: dict[str, int] = {}
    for name, value in (given or {}).items():
        if name not in {op.symbol for op in declared}:
            raise error(
                "UPL1505", f"the program has no parameter `{name}`", span_of(program),
                help=nearest_or_all(name, [op.symbol for op in declared]),
            )  # fmt: skip
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise error("UPL1505", f"the parameter `{name}` must be an integer, not {value!r}")
        if not -(2**63) <= int(cast(int, value)) < 2**63:
            raise error("UPL1505", f"the parameter `{name}` does not fit 64 bits: {value}")
        known[name] = int(cast(int, value))
    open_ = [op.symbol for op in declared if op.symbol not in known]
    if open_:
        known |= _solved(program, arrays, known, any_port)
    ctx = poly_context(program, known)
    for op in declared:
        if op.condition and not holds(ctx, op.condition.data):
            raise error(
                "UPL1505", f"the parameter `{op.symbol}` = {known[op.symbol]} breaks its condition "
                f"`{op.condition.data}`", span_of(op),
            )  # fmt: skip
    return known


def _solved(
    program: ProgramOp, arrays: Mapping[str, object], known: Mapping[str, int], any_port: bool
) -> dict[str, int]:
    """Values of the parameters that are not known, from the shapes of the arrays."""
    ctx = poly_context(program, known)
    if not any_port:
        check_names(program, arrays)
    ports: list[InputOp | OutputOp] = []
    extents: list[Extents] = []
    for op in (*inputs(program), *outputs(program)):
        if op.symbol in arrays and op.fields:
            found = _extents(op, classify(op.symbol, op.fields, arrays[op.symbol], span_of(op)))
            if found is not None:
                ports.append(op)
                extents.append(found)
    try:
        values = solve_parameters(ctx, extents)
    except Contradiction as e:
        op, found = ports[e.at], extents[e.at]
        sizes = " or ".join(
            ", ".join(f"{field}: {n}" for field, n in alternative.items()) for alternative in found.alternatives
        )
        names = ", ".join(f"`{p}`" for p in ctx.params)
        raise error(
            "UPL1505", f"no value of {names} gives `{op.symbol}` the extents of the array given ({sizes}) together "
            "with the arrays before it" if e.at else f"no value of {names} gives `{op.symbol}` the extents of the "
            f"array given ({sizes})", span_of(op), help=f"the domain of `{op.symbol}` is {found.domain}",
        ) from None  # fmt: skip
    except NotAffine as e:
        names = ", ".join(f"{p}=…" for p in ctx.params)
        raise error(
            "UPL1505", f"parameters cannot be found from the shapes: `{e.what}` is not affine", help=f"give {names}"
        ) from None
    out: dict[str, int] = {}
    for name, value in values.items():
        if value is None:
            telling = [op for op in inputs(program) if op.symbol not in arrays and name in known_domain(op).names]
            if telling and not any_port:
                op = telling[0]
                absent = [p for p in inputs(program) if p.symbol not in arrays]
                needed = ", ".join(f"{p.symbol}<{','.join(p.fields)}>" if p.fields else p.symbol for p in absent)
                raise error(
                    "UPL1501", f"nothing is given for the input `{op.symbol}`, whose shape tells the parameter `{name}`",
                    span_of(op), help=f"give arrays for {needed}; on the command line by --input {op.symbol}=FILE.npy",
                )  # fmt: skip
            raise error(
                "UPL1505", f"the parameter `{name}` does not follow from the shapes of the arrays given",
                next(span_of(op) for op in program.body.block.ops if isinstance(op, ParamOp) and op.symbol == name),
                help=f"give it as {name}=…, on the command line with -D {name}=…",
            )  # fmt: skip
        out[name] = value
    return out


def _extents(op: InputOp | OutputOp, given: Given) -> Extents | None:
    """What an array tells of its port's bounding box."""
    domain = known_domain(op)
    match given:
        case Dense(values):
            if values.ndim != len(op.fields):
                raise _wrong_shape(op.symbol, op.fields, None, values.shape, span_of(op))
            return Extents(op.fields, domain, (dict(zip(op.fields, values.shape, strict=True)),))
        case Ragged(slices):
            return Extents(op.fields, domain, tuple({field: len(slices)} for field in op.fields))
        case Sparse(values):
            return Extents(op.fields, domain, (dict(zip(op.fields, given.extents(), strict=True)),)) if values else None


# -- arrays --------------------------------------------------------------------------------------------------------
def check_names(program: ProgramOp, arrays: Mapping[str, object]) -> None:
    """Every array is one of an input.  Raises UplError (UPL1502)."""
    names = [op.symbol for op in inputs(program)]
    for name in arrays:
        if name not in names:
            what = "is not an input of the program" if name in endpoints(program) else "is not a port of the program"
            raise error("UPL1502", f"`{name}` {what}", span_of(program), help=nearest_or_all(name, names))


def bind_arrays(program: ProgramOp, ports: Mapping[str, HostPort], arrays: Mapping[str, object]) -> dict[str, Array]:
    """The inputs as dense arrays in the types of their ports, shape ``port.shape``; elements outside a domain are 0.

    Raises UplError (UPL1501, UPL1502, UPL1503, UPL1504).
    """
    check_names(program, arrays)
    return dense_arrays([ports[op.symbol] for op in inputs(program)], arrays)


def dense_arrays(ports: Iterable[HostPort], arrays: Mapping[str, object]) -> dict[str, Array]:
    """One array for each of these inputs, as `bind_arrays`.  Raises UplError (UPL1501, UPL1503, UPL1504)."""
    out: dict[str, Array] = {}
    for port in ports:
        if port.name not in arrays:
            what = f"an array of shape {port.shape}" if port.fields else "a number"
            raise error("UPL1501", f"nothing is given for the input `{port.name}`: expected {what}", port.span)
        out[port.name] = to_dense(port, arrays[port.name])
    return out


def to_dense(port: HostPort, value: object) -> Array:
    """What was passed for a port as its dense array.  Raises UplError (UPL1501, UPL1503, UPL1504)."""
    if value is None:
        raise error("UPL1501", f"nothing is given for the input `{port.name}`", port.span)
    match classify(port.name, port.fields, value, port.span):
        case Dense(values):
            if values.shape == port.shape:
                return _masked(port, values)
            if isinstance(value, list | tuple) and values.ndim == len(port.fields) and values.ndim > 0:
                return _from_slices(port, tuple(values))  # a list whose slices happen to be of one shape
            raise wrong_shape(port, values.shape)
        case Ragged(slices):
            return _from_slices(port, slices)
        case Sparse(values):
            return _from_entries(port, values)


def wrong_shape(port: HostPort, found: tuple[int, ...]) -> UplError:
    """The error (UPL1503) for an array of a shape that a port has not."""
    return _wrong_shape(port.name, port.fields, port.shape, found, port.span)


def _wrong_shape(
    name: str, fields: Sequence[str], expected: tuple[int, ...] | None, found: tuple[int, ...], span: Span | None
) -> UplError:
    over = f" over <{','.join(fields)}>" if fields else ""
    wanted = f"shape {expected}" if expected is not None else f"{len(fields)} dimension{'s' * (len(fields) != 1)}"
    return error("UPL1503", f"`{name}`: expected {wanted}{over}, found shape {found}", span)


def _masked(port: HostPort, values: Array) -> Array:
    """The values inside the domain, checked; zeros outside."""
    out = port.zeros()
    out[port.inside] = cast_values(port.name, port.type, port.dtype, values[port.inside], port.span)
    return out


def _slice_box(inside: NDArray[np.bool_]) -> tuple[slice, ...]:
    """The bounding box of the true elements."""
    if not inside.any():
        return tuple(slice(0, 0) for _ in inside.shape)
    where = np.argwhere(inside)
    return tuple(slice(int(lo), int(hi) + 1) for lo, hi in zip(where.min(axis=0), where.max(axis=0), strict=True))


def _slices(port: HostPort, axis: int) -> list[tuple[slice, ...]]:
    """The bounding box, within the port's box, of each slice across one field."""
    return [_slice_box(np.take(port.inside, i, axis=axis)) for i in range(port.shape[axis])]


def _size(box: Sequence[slice]) -> tuple[int, ...]:
    return tuple(s.stop - s.start for s in box)


def _from_slices(port: HostPort, slices: Sequence[Array]) -> Array:
    """A dense array from a list along the field that the list's length and its slices' shapes fit."""
    reasons: list[str] = []
    for axis, field in enumerate(port.fields):
        if port.shape[axis] != len(slices):
            reasons.append(f"along `{field}`: {port.shape[axis]} slices")
            continue
        boxes = _slices(port, axis)
        wrong = next((i for i, (b, s) in enumerate(zip(boxes, slices, strict=True)) if _size(b) != s.shape), None)
        if wrong is not None:
            reasons.append(
                f"along `{field}`: slice {field}={port.origin[axis] + wrong} of shape {_size(boxes[wrong])}, "
                f"found {slices[wrong].shape}"
            )
            continue
        kind = np.result_type(*slices) if all(s.dtype.kind in "biuf" for s in slices) else np.dtype(object)
        whole = np.zeros(port.shape, kind)
        for i, (b, s) in enumerate(zip(boxes, slices, strict=True)):
            whole[(*b[:axis], i, *b[axis:])] = s
        return _masked(port, whole)
    raise error(
        "UPL1503", f"the list of {len(slices)} arrays given for `{port.name}` fits no field", port.span,
        notes=[f"expected, {r}" for r in reasons],
    )  # fmt: skip


def _from_entries(port: HostPort, values: Mapping[tuple[int, ...], Any]) -> Array:
    """A dense array from `{index: value}`; indices outside the domain are ignored."""
    order = list(port.points())
    absent = [p for p in order if p not in values]
    if absent:
        raise error(
            "UPL1501", f"{len(absent)} of {len(order)} elements of `{port.name}` are not given: "
            f"{listed(absent, lambda p: f'{port.name}<{index_text(p)}>')}", port.span,
        )  # fmt: skip
    out = port.zeros()
    for p in order:
        if np.ndim(values[p]):
            message = f"what is given for `{port.name}<{index_text(p)}>` is not a number"
            raise error("UPL1504", message, port.span)
    column = np.asarray([values[p] for p in order]) if order else np.zeros(0, port.dtype)
    out[port.inside] = cast_values(port.name, port.type, port.dtype, column, port.span)
    return out


def index_text(index: Sequence[int]) -> str:
    """``1,2,3``"""
    return ",".join(map(str, index))


def listed(items: Sequence[Any], show: Callable[[Any], str] = str, limit: int = LISTED) -> str:
    """The first few items, then how many more there are."""
    text = ", ".join(show(i) for i in items[:limit])
    return f"{text} and {len(items) - limit} more" if len(items) > limit else text


def ragged(array: Array, port: HostPort, field: str) -> list[Array]:
    """A dense array over the port's box as a list along `field`, each slice dense over its own bounding box.

    The inverse of passing such a list.  Raises UplError (UPL1502, UPL1503).
    """
    if field not in port.fields:
        raise error(
            "UPL1502", f"`{port.name}` has no field `{field}`", port.span, help=nearest_or_all(field, port.fields)
        )
    if array.shape != port.shape:
        raise wrong_shape(port, array.shape)
    axis = port.fields.index(field)
    return [np.take(array, i, axis=axis)[box] for i, box in enumerate(_slices(port, axis))]
