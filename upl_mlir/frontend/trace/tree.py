# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Arguments and results with structure: tuples, lists and dicts of arrays, as in JAX ("pytrees")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeGuard


def _is_named(tree: Any) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(tree, tuple) and hasattr(tree, "_fields")


def leaves(tree: Any, path: str = "", separator: str = "_") -> Iterator[tuple[str, Any]]:
    """The leaves, in order, each with a name made of the keys that lead to it; None is a tree without leaves."""
    match tree:
        case None:
            return
        case tuple() | list():
            names = getattr(tree, "_fields", range(len(tree)))
            items = zip(names, tree, strict=True)
        case dict():
            items = [(key, tree[key]) for key in sorted(tree, key=str)]
        case _:
            yield path, tree
            return
    for name, item in items:
        yield from leaves(item, f"{path}{separator}{name}" if path else str(name), separator)


def map_tree(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """The tree with every leaf replaced, in the order of `leaves`; `f` also gets the leaves of `rest`, trees of as many
    leaves."""
    others = [iter([leaf for _, leaf in leaves(other)]) for other in rest]
    return _mapped(lambda leaf: f(leaf, *map(next, others)), tree)


def _mapped(f: Callable[[Any], Any], tree: Any) -> Any:
    match tree:
        case None:
            return None
        case dict():
            new = {key: _mapped(f, tree[key]) for key in sorted(tree, key=str)}
            return {key: new[key] for key in tree}
        case list():
            return [_mapped(f, item) for item in tree]
        case tuple():
            items = [_mapped(f, item) for item in tree]
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
            return (type(tree), tuple(structure(item) for item in tree))
        case _:
            return "*"


def order(tree: Any) -> Any:
    """The order of keys in the dicts of a tree, which `structure` leaves out: Python code may go by it."""
    match tree:
        case dict():
            return tuple(tree), tuple(order(tree[key]) for key in sorted(tree, key=str))
        case list() | tuple():
            return tuple(order(item) for item in tree)
        case _:
            return None


def exact(value: Any) -> Any:
    """What differs for values that Python code can tell apart, as the values may not: 1 == 1.0 == True, and 0.0 == -0.0."""
    match value:
        case float():
            return type(value), value.hex()
        case tuple():
            return type(value), tuple(map(exact, value))
        case _:
            return type(value), value
