"""How values of UPL's types are represented: what `real` means is chosen when a program is run or lowered."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from xdsl.dialects.builtin import f32, f64, i1, i64
from xdsl.ir import Attribute, Operation

from upl_mlir.diagnostics import error
from upl_mlir.dialects.upl.attributes import UplType
from upl_mlir.dialects.upl.gathers import Gather
from upl_mlir.numbers.formats import SPELLING, Format, small_format
from upl_mlir.numbers.rounding import arithmetic
from upl_mlir.numbers.watching import Watch


@dataclass(frozen=True, eq=False)
class Kind:
    """How a value is represented and rounded.  There is one object for each, by `of`.

    `format`: of a small type (`numbers/formats.py`), whose numbers are carried as f64; None for all others.  `watch`: notes
    the range of all results, which are f64; the interpreter alone has such reals.
    """

    value: str
    format: Format | None = None
    watch: Watch | None = None

    BOOL: ClassVar[Kind]
    INT: ClassVar[Kind]
    F32: ClassVar[Kind]
    F64: ClassVar[Kind]

    @staticmethod
    def watched(watch: Watch) -> Kind:
        """Reals whose range is noted (`numbers/watching.py`)."""
        return Kind("f64", None, watch)

    @staticmethod
    @cache
    def of(name: str) -> Kind:
        """The representation by its name.  Raises ValueError for a name of none."""
        if name in _OTHERS:
            return _OTHERS[name]
        found = small_format(name)
        if found is None:
            raise ValueError(f"{name!r} is no type of numbers: expected {SPELLING}")
        return Kind(found.name, found) if name == found.name else Kind.of(found.name)

    @staticmethod
    def of_real(name: str) -> Kind:
        """What `real` may mean, by its name.  Raises UplError (UPL1802) for a name of nothing such."""
        try:
            kind = Kind.of(name)
            why = "" if kind.is_float else f"expected {SPELLING}"
        except ValueError as e:
            kind, why = Kind.F64, str(e)
        if why:
            raise error("UPL1802", f"real={name!r}: {why.removeprefix(f'{name!r} is no type of numbers: ')}")
        return kind

    def __reduce__(self) -> tuple[Any, ...]:
        return Kind.of, (self.value,)

    def nearest(self, x: float) -> float:
        """The number of a small type that is nearest to `x`; of other types `x` itself, noted if they are watched."""
        if self.watch is not None and x - x == 0:
            self.watch.round(x)
        return x if self.format is None else arithmetic(self.format).round(x)

    @property
    def calls(self) -> bool:
        """Whether each operation of the interpreter goes through a function: it rounds, or is watched."""
        return self.format is not None or self.watch is not None

    @property
    def is_float(self) -> bool:
        """Whether values are reals."""
        return self not in (Kind.BOOL, Kind.INT)

    @property
    def mlir(self) -> Attribute:
        """The MLIR type of a value."""
        return _MLIR.get(self, f64)

    @property
    def bytes(self) -> int:
        """The size of an element in an array."""
        return {Kind.BOOL: 1, Kind.F32: 4}.get(self, 8)


Kind.BOOL, Kind.INT, Kind.F32, Kind.F64 = map(Kind, ("bool", "int", "f32", "f64"))
_OTHERS = {k.value: k for k in (Kind.BOOL, Kind.INT, Kind.F32, Kind.F64)}
_MLIR: dict[Kind, Attribute] = {Kind.BOOL: i1, Kind.INT: i64, Kind.F32: f32, Kind.F64: f64}


def kind_of(type_: UplType, real: Kind) -> Kind:
    """The representation of a type; `real` is what `real` means."""
    match type_:
        case UplType.REAL:
            return real
        case UplType.F32:
            return Kind.F32
        case UplType.F64:
            return Kind.F64
        case UplType.INT:
            return Kind.INT
        case UplType.BOOL:
            return Kind.BOOL


def folding(gather: Gather, kind: Kind) -> type[Operation]:
    """The operation with which a gather joins two summands."""
    op = gather.real if kind.is_float else gather.truth if kind is Kind.BOOL else gather.integer
    assert op is not None, (gather, kind)
    return op
