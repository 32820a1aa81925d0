# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportAttributeAccessIssue=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownLambdaType=false, reportIncompatibleMethodOverride=false
# (an extra, which need not be there; JAX and PyTorch are typed in part)
"""A UPL program as a function for PyTorch, with its derivative: `torch_function`.  Needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from upl_mlir.api.programs import Program
from upl_mlir.interop.pullback import Pullback

try:
    import torch
    from torch.autograd.function import once_differentiable
except ModuleNotFoundError as e:
    from upl_mlir.diagnostics import error

    raise error("UPL1804", "PyTorch is not installed", help="pip install 'upl-mlir[torch]'") from e


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pullback: Pullback, *tensors: Any) -> Any:
        arrays = [t.detach().cpu().numpy() for t in tensors]
        ctx.pullback, ctx.real = pullback, pullback.real_of([a.dtype for a in arrays])
        ctx.save_for_backward(*tensors)
        return torch.from_numpy(np.array(pullback.value(arrays, ctx.real), order="C"))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        pullback: Pullback = ctx.pullback
        tensors = ctx.saved_tensors
        arrays = [t.detach().cpu().numpy() for t in tensors]
        found = pullback.pull(arrays, grad_outputs[0].detach().cpu().numpy(), ctx.real)
        out: list[Any] = [None] * len(tensors)
        for name, d in zip(pullback.wrt, found, strict=True):
            at = pullback.names.index(name)
            out[at] = torch.from_numpy(np.array(d, order="C")).to(tensors[at])
        return None, *out


def torch_function(
    p: Program,
    /,
    of: str,
    wrt: str | Sequence[str] | None = None,
    *,
    engine: Literal["native", "interp", "token"] = "native",
    gather: Literal["relaxed", "ordered"] = "relaxed",
    **params: int,
) -> Callable[..., Any]:
    """The output `of` as a function of all inputs in text order, tensors on the processor, for autograd.

        f = torch_function(upl.load("matmul.upl"), "C")
        f(a, b).sum().backward()

    `wrt` are the inputs to differentiate by (all real ones unless told).  The program's own derivative runs backwards
    (a `torch.autograd.Function`); there is no second derivative.  f32 tensors compute in f32.  Raises UplError.
    """
    pullback = Pullback(p, of, wrt, engine, gather, params)

    def f(*tensors: Any) -> Any:
        return _Call.apply(pullback, *map(torch.as_tensor, tensors))

    return f
