"""What a lowered function takes: names, types, and which arguments it writes."""

from __future__ import annotations

from typing import Any, cast

from xdsl.dialects import func, memref
from xdsl.dialects.builtin import MemRefType, ModuleOp, StringAttr
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.ir import Attribute, SSAValue

from upl_mlir.diagnostics import error
from upl_mlir.engines.native.llvm.values import Argument, dtype_name


def function_of(module: ModuleOp) -> func.FuncOp:
    """The one function with a body.  Raises UplError (UPL1820)."""
    functions = [op for op in module.ops if isinstance(op, func.FuncOp) and op.body.blocks]
    if len(functions) != 1:
        raise error("UPL1820", f"native code is made of one function, {len(functions)} found")
    return functions[0]


def _argument_names(function: func.FuncOp) -> list[str]:
    """Names of the arguments: parameters, inputs, outputs, status."""
    found: list[str] = []
    for key in ("upl.parameters", "upl.inputs", "upl.outputs"):
        listed = cast(Any, function.attributes.get(key))
        found += [cast(StringAttr, s).data for s in listed] if listed is not None else []
    count = len(function.body.block.args)
    if len(found) != count - 1:
        found = [f"arg{i}" for i in range(count - 1)]
    return [*found, "status"][-count:]


def layouts_of(function: func.FuncOp) -> list[str]:
    """Which elements the array of each host port holds, such as ``Y<i> in 0<=i<n``; none of a function without."""
    listed = cast(Any, function.attributes.get("upl.layouts"))
    return [] if listed is None else [cast(StringAttr, s).data for s in listed]


def arguments_of(function: func.FuncOp) -> tuple[Argument, ...]:
    """What the function takes."""
    out: list[Argument] = []
    outputs = cast(Any, function.attributes.get("upl.outputs"))
    named = {cast(StringAttr, s).data for s in outputs} if outputs is not None else set[str]()
    status = function.body.block.args[-1]
    for name, arg in zip(_argument_names(function), function.body.block.args, strict=True):
        t = arg.type
        if isinstance(t, MemRefType):
            array = cast(MemRefType[Attribute], t)
            shape = tuple(array.get_shape())
            written = name in named or arg is status or is_written(arg)
            out.append(Argument(name, dtype_name(array.element_type), len(shape), shape, written))
        else:
            out.append(Argument(name, dtype_name(t), None))
    return tuple(out)


def is_written(value: SSAValue) -> bool:
    """Whether some operation writes to an array or to a view of it."""
    for use in value.uses:
        match use.operation:
            case memref.StoreOp():
                return True
            case memref.CopyOp():
                if use.index == 1:
                    return True
            case GenericOp() | FillOp():
                if value in use.operation.outputs:
                    return True
            case memref.SubviewOp() | memref.CastOp() | memref.CollapseShapeOp():
                if is_written(use.operation.results[0]):
                    return True
            case _:
                pass
    return False
