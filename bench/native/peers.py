"""How the peers are imported and set up; one that is not installed is absent, and the table says so."""

from __future__ import annotations

from typing import Any

from bench.native.case import Absent, Task


def jax_for(task: Task) -> Any:
    """JAX with 64-bit numbers, on the processor.  Its threads follow the cores that this process may use."""
    try:
        import jax
    except ModuleNotFoundError:
        raise Absent("not installed") from None
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    return jax


def torch_for(task: Task) -> Any:
    """PyTorch with as many threads as the task allows."""
    try:
        import torch
    except (ModuleNotFoundError, OSError) as e:
        raise Absent("not installed" if isinstance(e, ModuleNotFoundError) else str(e)) from None
    torch.set_num_threads(task.threads)
    return torch


def tensors(torch: Any, task: Task, wrt: tuple[str, ...]) -> dict[str, Any]:
    """The inputs as tensors that own their memory; those in `wrt` ask for gradients."""
    return {n: torch.tensor(a, requires_grad=n in wrt) for n, a in task.arrays.items()}
