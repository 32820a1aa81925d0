"""Pipelines as mlir-opt writes them, `builtin.module(a,upl.program(b{x=1},c))`, and what a reproducer keeps of one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MODULE = "builtin.module"
_NESTED = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)", re.S)
_RESOURCES = re.compile(r"\{-#(.*?)#-\}\s*\Z", re.S)
_PIPELINE = re.compile(r'pipeline:\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Step:
    """A pass as text, and the operation that it is for: it runs where the module has one ("" for any module)."""

    text: str
    anchor: str = ""


def steps(pipeline: str) -> list[Step]:
    """The passes of a pipeline, in order.  Raises ValueError for brackets that do not match."""
    return list(_steps(pipeline.strip(), ""))


def _steps(pipeline: str, anchor: str) -> Iterator[Step]:
    for part in _parts(pipeline):
        nested = _NESTED.fullmatch(part)
        if nested is None:
            yield Step(part, anchor)
        else:
            yield from _steps(nested[2], anchor if nested[1] == MODULE else nested[1])


def _parts(pipeline: str) -> list[str]:
    """What stands between commas outside of all brackets and quotes."""
    out, depth, quoted, begin = list[str](), 0, False, 0
    for n, c in enumerate(pipeline):
        if c == '"':
            quoted = not quoted
        elif not quoted:
            depth += (c in "({") - (c in ")}")
            if depth < 0:
                raise ValueError(f"`{c}` closes nothing")
            if c == "," and depth == 0:
                out.append(pipeline[begin:n].strip())
                begin = n + 1
    if depth or quoted:
        raise ValueError("a bracket or a quote is not closed")
    out.append(pipeline[begin:].strip())
    return out if out != [""] else []


def nested(passes: Sequence[Step]) -> str:
    """The pipeline as text."""
    return f"{MODULE}({','.join(f'{p.anchor}({p.text})' if p.anchor else p.text for p in passes)})"


def reproducer(before: str, passes: Sequence[Step], *, verify_each: bool) -> str:
    """A text in which mlir-opt's resources keep the pipeline: `upl-opt --run-reproducer` runs it."""
    pipeline = nested(passes).replace("\\", "\\\\").replace('"', '\\"')
    kept = f'mlir_reproducer: {{\n      pipeline: "{pipeline}",\n      verify_each: {str(verify_each).lower()}\n    }}'
    return f"{before}\n\n{{-#\n  external_resources: {{\n    {kept}\n  }}\n#-}}\n"


def without_resources(text: str) -> tuple[str, str | None]:
    """A text without its resources, and the pipeline of a reproducer among them."""
    found = _RESOURCES.search(text)
    if found is None:
        return text, None
    kept = _PIPELINE.search(found[1])
    return text[: found.start()], None if kept is None else re.sub(r"\\(.)", r"\1", kept[1])
