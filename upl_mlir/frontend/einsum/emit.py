"""An einsum case, or its gradient, as a C++ function: the UPL program's gather form, with the case's parameters.

Forward: `ins`, then the outs that are not among them; what is updated comes in and goes out in one place.  Gradient: the
inputs that the derivatives read (`ins`, then old contents), then ``d<out>`` for each of `outs`, then ``d<grad_to>`` for each
of `grad_to`.  A tensor that is asked for twice is one parameter.
"""

from __future__ import annotations

from upl_mlir.dialects.upl import UplType
from upl_mlir.frontend.einsum.cpp import Argument, emit_cpp
from upl_mlir.frontend.einsum.gather_form import gather_form
from upl_mlir.frontend.einsum.load import Loaded
from upl_mlir.frontend.tensor.lower import output_name


def cpp_of(loaded: Loaded, *, grad: bool = False, ordered: bool = True) -> str:
    """The C++11 text of a case.  Raises UplError (UPL19xx)."""
    case, tensors = loaded.case, loaded.tensors()
    # f32 and f64 programs alike are written in the data type
    type_ = UplType.INT if case.data_type == "int" else UplType.F32
    results = {t: output_name(tensors, t) for t in case.outs}
    args: dict[tuple[str, str], Argument] = {}  # by what stands before the name, and the tensor

    def add(prefix: str, tensor: str, brings: str | None = None, takes: str | None = None) -> None:
        old = args.get((prefix, tensor))
        if old is not None:
            brings, takes = old.brings or brings, old.takes or takes
        args[prefix, tensor] = Argument(prefix + tensor, tensors.tensors[tensor].shape, brings, takes)

    if grad:
        g = loaded.gradient()
        form = gather_form(g.program, list(g.derivatives.values()), type_=type_)
        for t in tensors.inputs:
            if t in form.inputs:
                add("", t, brings=t)
        for t, seed in g.seeds.items():
            add("d", t, brings=seed)
        for t, derivative in g.derivatives.items():
            add("d", t, takes=derivative)
    else:
        form = gather_form(loaded.program(), list(results.values()), type_=type_)
        for t in case.ins:
            add("", t, brings=t)
        for t, out in results.items():
            add("", t, brings=t if t in tensors.inputs else None, takes=out)
    what = f"the gradient of {case.name} by {', '.join(case.grad_to)}" if grad else case.name
    kernel = "\n".join(f"    {line.strip()}" for line in case.kernel.splitlines())
    comment = f"{what}, from\n{kernel}"
    return emit_cpp(case.name, form, list(args.values()), ordered=ordered, comment=comment)
