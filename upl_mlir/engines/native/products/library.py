"""The functions on products that kernels share: each is compiled once for a machine and kept in the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from upl_mlir.engines.native.llvm.text import ATTRIBUTES
from upl_mlir.engines.native.products import gemm, packing, results, tables, thin
from upl_mlir.engines.native.products.tiles import TileFormat
from upl_mlir.engines.native.target import Effort


@dataclass(frozen=True)
class Shared:
    """A function of the library: its parameters, the texts that make it, and how much LLVM shall work on each of them.

    The first text of each part defines the function; it calls what `needs` names.
    """

    params: str
    parts: Callable[[TileFormat], list[tuple[str, Effort]]]
    needs: tuple[str, ...] = ()


def _gemm(f: TileFormat) -> list[tuple[str, Effort]]:
    """The tiles, where all of the time goes, written as the machine shall run them; loops over blocks, and packing."""
    widths, tiles = (f.tile[0], f.tile[1] * f.lanes), [*gemm.tiles(f, listed=False), *gemm.tiles(f, listed=True)]
    parts = [gemm.product(f), *(packing.pack(f, width) for width in widths), *(gemm.tile(f, t) for t in tiles)]
    parts += [results.move(f, name) for name in ("take", "put")]
    parts.append(f"declare void @upl.fill.{f.name}({SHARED['fill'].params})")
    return [("\n".join(parts), Effort.NONE)]


SHARED: dict[str, Shared] = {
    "fill": Shared("ptr, i64, i64, ptr, ptr", lambda f: [(tables.fill_tables(f), Effort.LIGHT)]),
    "gemm": Shared(", ".join(["ptr"] * 7 + ["i64"] * 6), _gemm, ("fill",)),
    "thin": Shared("i64, i64, i64, ptr, i64, ptr, ptr, ptr, ptr, i64, i64", lambda f: [(thin.thin(f), Effort.NONE)]),
    "dot": Shared("i64, i64, ptr, i64, ptr, ptr, i64, i64", lambda f: [(thin.dot(f), Effort.NONE)]),
}


def symbol(name: str, f: TileFormat) -> str:
    """The full name of a function of the library."""
    return f"upl.{name}.{f.name}"


def modules(name: str, f: TileFormat) -> list[tuple[str, Effort]]:
    """The LLVM modules that make a function of the library, with LLVM's effort for each."""
    attributes = f"\nattributes #2 = {{ noinline {ATTRIBUTES} }}\nattributes #5 = {{ noinline optsize {ATTRIBUTES} }}\n"
    return [(text + attributes, effort) for text, effort in SHARED[name].parts(f)]
