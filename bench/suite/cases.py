"""The programs with their arguments, and which of these are differentiated by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.suite import functions as f
from bench.suite import recurrences


@dataclass(frozen=True)
class Case:
    """A function of JAX that gives one number, its arguments, and the positions of those to differentiate by."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    wrt: tuple[int, ...]
    later: bool = False
    """JAX was ahead of it when it was first tried: such programs joined later, and have means of their own."""


def _cases() -> dict[str, Case]:
    rng = np.random.default_rng(0)

    def n(*shape: int) -> Any:
        return rng.normal(size=shape)

    def u(*shape: int) -> Any:
        return rng.random(shape)

    src, dst, ids = rng.integers(0, 1000, 10_000), rng.integers(0, 1000, 10_000), rng.integers(0, 5000, 256)
    found: list[tuple[str, Any, tuple[Any, ...], tuple[int, ...]]] = [
        ("attention", f.attention, (n(128, 64), n(64, 64) / 8, n(64, 64) / 8, n(64, 64) / 8), (0, 1, 2, 3)),
        ("GRU", f.gru, (n(32, 64) / 8, n(64, 64) / 8, n(32, 64) / 8, n(64, 64) / 8, n(50, 32)), (0, 1, 2, 3)),
        ("Kalman filter", f.kalman, (np.eye(6) * 0.9 + n(6, 6) / 20, n(3, 6), np.eye(6), np.eye(3), n(50, 3)), (0, 1)),
        ("LU with solve", f.lu_solve, (n(64, 64) + 8 * np.eye(64), n(64)), (0, 1)),
        ("QR", f.qr, (n(32, 32),), (0,)),
        ("Cholesky", f.cholesky, (n(64, 64),), (0,)),
        ("Smith–Waterman", f.smith_waterman, (n(200, 200),), (0,)),
        ("seidel-2d", f.seidel_2d, (u(100, 100),), (0,)),
        ("n-body", f.n_body, (n(100, 3), n(100, 3), u(100)), (0, 1, 2)),
        ("HMM forward", f.hmm, (u(128) / 64, u(128, 128) / 64, u(200, 128)), (0, 1, 2)),
        ("Lorenz", f.lorenz, (np.ones(3), np.array([10.0, 28.0, 8 / 3])), (0, 1)),
        ("LeNet", f.lenet, (n(6, 1, 5, 5) / 5, n(16, 6, 5, 5) / 12, n(400, 10) / 20, n(8, 1, 28, 28)), (0, 1, 2)),
        ("American put", f.american_put, (np.array(100.0), np.array(95.0), np.array(0.2)), (0, 2)),
        ("heat-3d", f.heat_3d, (u(32, 32, 32),), (0,)),
        ("batch norm", f.batch_norm, (n(1000, 256), n(256), n(256)), (0, 1, 2)),
        ("delay line", f.delay_line, (n(2000), np.array(0.5)), (0, 1)),
        ("tree", f.tree, (n(1024), np.array([0.7, 0.4])), (0, 1)),
        ("Newton–Schulz", f.newton_schulz, (n(64, 64) / 8 + np.eye(64),), (0,)),
        ("Thomas", f.thomas, (u(1000), u(1000) + 3, u(1000), n(1000)), (0, 1, 2, 3)),
        ("conjugate gradients", f.conjugate_gradients, (n(100, 100), n(100)), (0, 1)),
        ("k-means", f.k_means, (n(1000, 8), n(16, 8)), (0, 1)),
        ("Levinson", f.levinson, (np.concatenate([[2.0], u(64) / 64]),), (0,)),
        ("odd-even sort", f.odd_even_sort, (n(128), n(128)), (0, 1)),
        ("TV descent", f.tv_descent, (u(64, 64), u(64, 64)), (0, 1)),
        ("FFT", f.fft, (n(1024), n(1024)), (0, 1)),
        ("Viterbi", f.viterbi, (u(64), u(64, 64), u(200, 64)), (0, 1, 2)),
        ("PageRank", f.page_rank, (u(10_000) / 20, u(1000), src, dst), (0, 1)),
        ("embedding", f.embedding, (n(5000, 32), n(32, 32) / 6, ids), (0, 1)),
        ("gemm family", f.gemm_family, (n(128, 128) / 11, n(128, 128) / 11, n(128, 128) / 11), (0, 1, 2)),
        ("doitgen", f.doitgen, (n(40, 40, 48), n(48, 48)), (0, 1)),
        ("adi", f.adi, (u(64, 64),), (0,)),
        ("fdtd-2d", f.fdtd_2d, (n(64, 64), n(64, 64), n(64, 64)), (0, 1, 2)),
    ]
    later: list[tuple[str, Any, tuple[Any, ...], tuple[int, ...]]] = [
        ("attention, 4 heads", f.heads, (n(64, 64), n(64, 192) / 8, n(64, 64) / 8), (0, 1, 2)),
        ("Black–Scholes", f.black_scholes, (75 + 50 * u(10_000), 75 + 50 * u(10_000), 0.1 + 0.4 * u(10_000)), (0, 2)),
        ("Lax–Wendroff", f.lax_wendroff, (u(1000), np.array(0.4)), (0, 1)),
        ("27-point stencil", f.stencil_27, (u(24, 24, 24), u(27) / 27), (0, 1)),
        ("Sinkhorn", f.sinkhorn, (u(64, 64),), (0,)),
        ("Kronecker product", f.kronecker, (n(12, 12), n(10, 10)), (0, 1)),
        ("transposed convolution", f.transposed_convolution, (n(2, 8, 14, 14), n(8, 6, 4, 4) / 5), (0, 1)),
        ("cumulative sums", f.cumulative, (u(300, 200),), (0,)),
        *((name, *given) for name, given in recurrences.arguments(rng).items()),
    ]
    return {name: Case(f, args, wrt, at >= len(found)) for at, (name, f, args, wrt) in enumerate([*found, *later])}


CASES = _cases()
