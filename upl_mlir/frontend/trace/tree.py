# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Arguments and results with structure: tuples, lists and dicts of arrays, as in JAX ("pytrees")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeGuard


def _is_named(tree: Any) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(tree, tuple) and hasattr(tree, "_fields")


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves, in order, each with a name made of the keys that lead to it; None is a tree without leaves."""
    match tree:
        case None:
            return
        case tuple() | list():
            names = getattr(tree, "_fields", range(len(tree)))
            for name, item in zip(names, tree, strict=True):
                yield from leaves(item, f"{path}_{name}" if path else str(name))
        case dict():
            for key in sorted(tree, key=str):
                yield from leaves(tree[key], f"{path}_{key}" if path else str(key))
        case _:
            yield path, tree


def map_tree(f: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with every leaf replaced, in the order of `leaves`."""
    match tree:
        case None:
            return None
        case dict():
            new = {key: map_tree(f, tree[key]) for key in sorted(tree, key=str)}
            return {key: new[key] for key in tree}
        case list():
            return [map_tree(f, item) for item in tree]
        case tuple():
            items = [map_tree(f, item) for item in tree]
            return type(tree)(*items) if _is_named(tree) else tuple(items)
        case _:
            return f(tree)


def rebuilt(tree: Any, values: list[Any]) -> Any:
    """The tree with the given leaves in place of its own."""
    rest = iter(values)
    return map_tree(lambda _: next(rest), tree)


def structure(tree: Any) -> Any:
    """What is equal for trees that differ only in their leaves; hashable."""
    match tree:
        case None:
            return None
        case dict():
            return ("dict", tuple((key, structure(tree[key])) for key in sorted(tree, key=str)))
        case list() | tuple():
            return (type(tree).__name__, tuple(structure(item) for item in tree))
        case _:
            return "*"
