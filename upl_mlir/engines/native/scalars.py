"""Types of scalars, as every form of native code knows them."""

from __future__ import annotations

from xdsl.dialects.builtin import Float32Type, Float64Type, IndexType, IntegerType
from xdsl.ir import Attribute

from upl_mlir.diagnostics import error

INDEX_BITS = 64  # of an index and of an integer


def scalar(t: Attribute, where: str = "native code") -> str | int:
    """"double" or "float", or the number of bits of an integer.  Raises UplError (UPL1820)."""
    match t:
        case Float64Type():
            return "double"
        case Float32Type():
            return "float"
        case IndexType():
            return INDEX_BITS
        case IntegerType():
            return t.width.data
        case _:
            raise error("UPL1820", f"{where} has no values of the type `{t}`")
