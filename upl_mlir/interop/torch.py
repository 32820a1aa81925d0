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


def _array(t: Any) -> Any:
    """A tensor as an array of numpy's, which has no bf16."""
    t = t.detach().cpu().resolve_neg()
    return (t.float() if t.dtype == torch.bfloat16 else t).numpy()


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pullback: Pullback, *tensors: Any) -> Any:
        arrays = list(map(_array, tensors))
        pullback.shape([a.shape for a in arrays])  # which are as many as there are inputs, and fit
        ctx.pullback, ctx.real = pullback, pullback.real_of([a.dtype for a in arrays])
        ctx.save_for_backward(*tensors)
        return torch.from_numpy(np.array(pullback.value(arrays, ctx.real), order="C"))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        pullback: Pullback = ctx.pullback
        tensors = ctx.saved_tensors
        found = pullback.pull(list(map(_array, tensors)), _array(grad_outputs[0]), ctx.real)
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
    (a `torch.autograd.Function`); there is no second derivative.  f32 tensors and shorter ones compute
    in f32.  Raises UplError.
    """
    pullback = Pullback(p, of, wrt, engine, gather, params)

    def f(*tensors: Any) -> Any:
        return _Call.apply(pullback, *map(torch.as_tensor, tensors))

    return f
