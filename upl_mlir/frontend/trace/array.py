# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The traced array: what a traced function sees in place of a numpy array.

It knows its shape and not its values.  Operators, numpy's functions (by numpy's own protocols), indexing and writing
work as in numpy; each leaves a node in the trace.  Slices and transposes are views, as in numpy: they see what is
written into the array, and writing into them writes into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from upl_mlir.diagnostics import UplError
from upl_mlir.frontend.tensor import Apply, Expr, Number
from upl_mlir.frontend.trace.indexing import LoopIndex, by_data, select
from upl_mlir.frontend.trace.late import LATE, METHODS
from upl_mlir.frontend.trace.node import (
    Fill,
    Index,
    Leaf,
    Node,
    Operand,
    Shape,
    Storage,
    Trace,
    Update,
    current,
    places,
    whole,
)
from upl_mlir.frontend.trace.position import asks_for_rounds, fail, here
from upl_mlir.poly.expr import IndexExpr


class Array(NDArrayOperatorsMixin):
    """Element ``i0, i1, …`` is element `index` of what `storage` holds."""

    __array_priority__ = 1000

    def __init__(self, storage: Storage, shape: Shape, index: Index, *, writable: bool = True):
        self._storage, self._shape, self._index, self._writable = storage, shape, index, writable

    # -- what numpy arrays know ------------------------------------------------------------------------------------
    @property
    def shape(self) -> Shape:
        """The extents."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self._shape, dtype=int))

    @property
    def boolean(self) -> bool:
        """Whether the elements are truth values."""
        return getattr(self._storage.node, "boolean", False)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type that the elements have."""
        return np.dtype(np.bool_ if self.boolean else np.float32 if self._storage.trace.single else np.float64)

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a number")
        return self._shape[0]

    def __iter__(self) -> Iterator[Array]:
        return iter([self[n] for n in range(len(self))])

    def __repr__(self) -> str:
        return f"<traced {self.dtype} array of shape {self._shape}>"

    # -- access ----------------------------------------------------------------------------------------------------
    def operand(self) -> Operand:
        """How the array is read now.  Raises UplError (UPL1935) outside the run that made it."""
        trace, node = current(), self._storage.node
        if self._storage.trace is not trace:
            raise fail(
                "UPL1935", "this value belongs to another run of a traced function",
                help="pass it in as an argument, do not keep it in a variable outside",
            )  # fmt: skip
        if not isinstance(node, Leaf) and any(node.number in numbers for numbers in trace.dropped):
            raise fail(
                "UPL1935", "the loop binds this variable to a new array in every round",
                help="write into an array that exists before the loop: x[:] = … in place of x = …; or use upl.fori_loop",
            )  # fmt: skip
        if any(loop not in trace.loops for loop in node.loops):
            raise fail(
                "UPL1935", "this value was made inside a loop that is over",
                help="write it into an array that exists before the loop",
            )  # fmt: skip
        return Operand(node, self._index)

    def view(self, shape: Shape, index: Index, *, writable: bool = True) -> Array:
        """The same storage at other elements; `index` is over the view's indices and says which of mine it shows."""
        own = {f"i{n}": e for n, e in enumerate(index)}
        composed = tuple(e.substitute(own) for e in self._index)
        storage = self._storage
        if not shape:  # a number does not change when the array does
            storage = Storage(storage.trace, storage.node)
        return Array(storage, shape, composed, writable=writable and self._writable)

    def __getitem__(self, key: Any) -> Array:
        if (found := by_data(self._shape, key)) is not None:
            return LATE["elements"](self, found)
        shape, index = select(self._shape, key)
        return self.view(shape, index)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.operand()  # is it still valid?
        if by_data(self._shape, key) is not None:
            raise fail(
                "UPL1932", "elements that an array of numbers chooses cannot be written: two of them may be the same",
                help="add to them: x.at[k].add(v), or upl.segment_sum(v, k, n)",
            )  # fmt: skip
        if not self._writable:
            raise fail(
                "UPL1932", "this array is read-only: it shows elements more than once, or in another order",
                help="write into a copy: y = x.copy()",
            )  # fmt: skip
        shape, index = select(self._shape, key)
        new = as_array(value)
        if new.shape != shape:
            try:
                new = broadcast(new, shape)
            except ValueError:
                message = f"an array of shape {new.shape} does not fit into elements of shape {shape}"
                raise fail("UPL1931", message, help="make the shapes equal, or such that they broadcast") from None
        if 0 in shape:
            return
        target = self.view(shape, index)._index
        if not self.boolean:
            self._storage.write(_updated(self._storage.node, target, numbers(new), shape))
            return
        held = made(_updated(self._storage.node, target, numbers(truths(new)), shape))  # as numpy converts what is written
        self._storage.write(truths(held).operand().node)

    @property
    def at(self) -> _At:
        """JAX's way to write: ``x.at[1:].set(v)`` is a new array."""
        return _At(self)

    # -- numpy's protocols -----------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", None)
        result = LATE["call_ufunc"](ufunc, method, inputs, options)
        if out is None:
            return result
        (target,) = out
        if not isinstance(target, Array):
            raise _into_numpy()
        if not target.shape and not result.shape:
            return result  # `x += 1` on a number makes a new one
        target[...] = result
        return target

    def __array_function__(self, func: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        return LATE["call_function"](func, args, kwargs)

    def __array__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise _into_numpy()

    # -- what needs values -----------------------------------------------------------------------------------------
    def __bool__(self) -> bool:
        loop = asks_for_rounds(here())
        raise fail(
            "UPL1933", "this condition depends on values, which are not known while the function is traced",
            help=("write upl.while_loop(cond, body, init)" if loop else "write np.where(condition, a, b)")
            + "; for an argument that is no data, upl.function(f, static_argnums=…)",
        )  # fmt: skip

    def _number(self, what: str, help: str) -> UplError:
        return fail("UPL1933", f"{what} needs the value, which is not known while the function is traced", help=help)

    def __int__(self) -> int:
        raise self._number("int(…)", "use np.floor, or pass the number as a static argument (static_argnums)")

    def __float__(self) -> float:
        what = "float(…), a function of `math`, or an element of a numpy array"
        help = "write np.exp(x), not math.exp(x), and np.zeros_like(x) or np.zeros(n, like=x), not np.zeros(n)"
        raise self._number(what, help)

    def __complex__(self) -> complex:
        raise self._number("complex(…)", "traced functions compute with real numbers")

    def __index__(self) -> int:
        raise self._number("range(…), or an index,", "pass it as a static argument: upl.function(f, static_argnums=…)")

    def __hash__(self) -> int:
        return id(self)

    def item(self, *_: Any) -> NoReturn:
        """Not known while tracing."""
        raise self._number("item()", "go on with the array itself")

    def tolist(self) -> NoReturn:
        """Not known while tracing."""
        raise self._number("tolist()", "go on with the array itself")

    # -- methods that are functions ----------------------------------------------------------------------------------
    @property
    def T(self) -> Array:
        """The axes reversed."""
        return self._call("transpose")

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            return lambda *args, **kwargs: METHODS[name](self, *args, **kwargs)
        if name.startswith("__") or not hasattr(np.ndarray, name):
            raise AttributeError(f"a traced array has no attribute `{name}`")
        raise fail(
            "UPL1932", f"`{name}` of arrays cannot be traced",
            help="docs/frontends.md lists what can; write it with elementwise functions, sums and slices",
        )  # fmt: skip

    def _call(self, name: str, *args: Any) -> Any:
        return self.__getattr__(name)(*args)

    def copy(self) -> Array:
        """An array of its own with the same elements."""
        return Array(Storage(self._storage.trace, self._storage.node), self._shape, self._index).own()

    def own(self) -> Array:
        """Itself if it has storage of its own, else a copy that has."""
        node = self._storage.node
        if self._index == places(node.shape) and self._shape == node.shape:
            return self
        return computed(lambda a: a, self, word="copy", boolean=self.boolean)


class _At:
    """``x.at``"""

    def __init__(self, array: Array):
        self.array = array

    def __getitem__(self, key: Any) -> _AtPlace:
        return _AtPlace(self.array, key)


class _AtPlace:
    """``x.at[key]``: writing makes a new array."""

    def __init__(self, array: Array, key: Any):
        self.array, self.key = array, key

    def set(self, value: Any) -> Array:
        """The array with other elements at the place."""
        out = self.array.copy()
        out[self.key] = value
        return out

    def add(self, value: Any) -> Array:
        """The array with something added at the place; what an array of numbers names twice is added twice."""
        if (found := by_data(self.array.shape, self.key)) is not None:
            return self.array + LATE["added"](self.array, value, found)
        return self.set(self.array[self.key] + value)

    def multiply(self, value: Any) -> Array:
        """The array with the place multiplied."""
        return self.set(self.array[self.key] * value)

    mul = multiply


def _into_numpy() -> UplError:
    return fail(
        "UPL1933", "a traced value is put into a numpy array, which needs the value",
        help="make the array with np.zeros_like(x), np.zeros(n, like=x) or np.stack([…]), so that it is traced too",
    )  # fmt: skip


# -- making arrays -----------------------------------------------------------------------------------------------------


def made(node: Node, trace: Trace | None = None) -> Array:
    """The array that holds a new node."""
    return Array(Storage(trace or current(), node), node.shape, places(node.shape))


def filled(shape: Shape, value: float) -> Array:
    """An array of one number."""
    trace = current()
    number, loops, span = trace.common()
    return made(Fill(number, shape, loops, span, value))


def as_array(x: Any) -> Array:
    """A traced array of what can stand beside one: numbers, numpy arrays, loop indices, lists of all these.

    Raises UplError (UPL1932) for anything else.
    """
    if isinstance(x, Array):
        return x
    if isinstance(x, LoopIndex):
        return _loop_values(x)
    if isinstance(x, list | tuple) and any(isinstance(v, Array | LoopIndex) for v in _flat(x)):
        return LATE["stack"]([as_array(v) for v in cast(Sequence[Any], x)])
    value = real_numbers(x)
    if value is None:
        raise fail(
            "UPL1932", f"a traced array cannot be combined with {type(x).__name__}",
            help="use numbers and arrays of real numbers",
        )  # fmt: skip
    node = current().constant(value)
    out = made(node)
    return computed(lambda a: Apply("!=", (a, Number(0))), out, boolean=True) if value.dtype.kind == "b" else out


def real_numbers(x: Any) -> NDArray[Any] | None:
    """What numpy makes of `x`; None if that is no array of real numbers or booleans."""
    try:
        value = np.asarray(x)
    except ValueError:
        return None
    return value if value.dtype.kind in "biuf" else None


def _flat(x: Any) -> Iterator[Any]:
    for v in x:
        if isinstance(v, list | tuple):
            yield from _flat(v)
        else:
            yield v


def _loop_values(k: LoopIndex) -> Array:
    """The number that a loop index is, as an array: an element of a constant array of all the values."""
    lo, hi = k.bounds
    table = np.arange(lo, hi + 1, dtype=np.float64)
    node = current().constant(table)
    return made(node).view((), (k.expr - lo,))


# -- computing ---------------------------------------------------------------------------------------------------------


def broadcast(a: Array, shape: Shape) -> Array:
    """The array seen at a larger shape, as numpy does it.  Raises ValueError."""
    if a.shape == shape:
        return a
    if np.broadcast_shapes(a.shape, shape) != shape:
        raise ValueError
    missing = len(shape) - a.ndim
    index = tuple(
        IndexExpr.of(0) if m == 1 else IndexExpr.of(f"i{n + missing}") for n, m in enumerate(a.shape)
    )  # fmt: skip
    return a.view(shape, index, writable=False)


def numbers(a: Array) -> Array:
    """Truth values as 0 and 1; other arrays as they are."""
    if not a.boolean:
        return a
    return computed(lambda b: Apply("?:", (b, Number(1), Number(0))), a, word="number")


def truths(a: Array) -> Array:
    """Whether the elements differ from 0."""
    return a if a.boolean else computed(lambda x: Apply("!=", (x, Number(0))), a, boolean=True, word="truth")


def common_shape(shapes: Sequence[Shape], word: str) -> Shape:
    """The shape to which all of them broadcast.  Raises UplError (UPL1931)."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise fail(
            "UPL1931", f"{word}: the shapes {' and '.join(map(str, shapes))} do not broadcast",
            help="extents must be equal or 1, counted from the last dimension; x[:, None] adds a dimension",
        ) from None  # fmt: skip


def computed(make: Callable[..., Expr], *args: Any, boolean: bool = False, word: str = "operation") -> Array:
    """A function of the elements at one place; the operands broadcast.  Raises UplError (UPL1931)."""
    arrays = [as_array(a) for a in args]
    shape = common_shape([a.shape for a in arrays], word)
    reads = [broadcast(a, shape).operand() for a in arrays]
    return made(current().compute(shape, make, reads, boolean=boolean, word=word))


def _updated(old: Node, index: Index, value: Array, shape: Shape) -> Node:
    """What a storage holds after `value` was written to its elements `index`."""
    trace = current()
    if index == places(old.shape) and shape == old.shape:
        return trace.compute(shape, lambda a: a, [value.operand()], word="write")
    old, new = trace.standing(old), trace.brought(value.operand(), trace.loops)
    number, loops, span = trace.common()
    return Update(number, old.shape, loops, span, whole(old), new, index, shape)


LATE.update(as_array=as_array, filled=filled, is_traced=lambda x: isinstance(x, Array))
