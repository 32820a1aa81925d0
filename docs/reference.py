"""Writes the reference pages of passes and operations from the code that they describe.

    python docs/reference.py            # writes docs/passes.md and the pages of the dialects; a test compares them
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from types import ModuleType

from xdsl.ir import Dialect

from upl_mlir.dialects.loops import ops as loops_ops
from upl_mlir.dialects.loops.ops import UPL_LOOPS
from upl_mlir.dialects.ppn import PPN
from upl_mlir.dialects.ppn import ops as ppn_ops
from upl_mlir.dialects.ttm import TTM
from upl_mlir.dialects.ttm import ops as ttm_ops
from upl_mlir.dialects.upl import UPL
from upl_mlir.passes.pipelines import PIPELINES
from upl_mlir.universe import PASSES

HERE = Path(__file__).resolve().parent
NOTE = "<!-- Written by `python docs/reference.py` from the docstrings; change those. -->\n\n"


def markdown(doc: str) -> str:
    """A docstring in the house style as Markdown: code blocks fenced, the facts as a list, literals in single backquotes."""
    out: list[str] = []
    for part in re.split(r"\n\n+", doc):
        if part.startswith("    "):
            out.append("```mlir\n" + inspect.cleandoc(part) + "\n```")
        elif re.match(r"(Requires|Establishes|Source):", part):
            joined = re.sub(r"\n(?!\w+: )", " ", part)
            out.append(re.sub(r"^(Requires|Establishes|Source):", r"* **\1:**", joined, flags=re.M))
        else:
            out.append(part.replace("\n", " "))
    return "\n\n".join(re.sub(r"``([^`]+)``", r"`\1`", p) if not p.startswith("```") else p for p in out)


def doc_of(thing: object) -> str:
    """The docstring; an operation without one would leave a hole in the page."""
    doc = inspect.getdoc(thing)
    assert doc, f"{thing} has no docstring"
    return doc


def passes() -> str:
    """The page of passes, in the order in which a program meets them."""
    text = NOTE + (
        "# Passes\n\nEach is a flag of `upl-opt` and a name in `-p`: `upl-opt f.upl --autodiff=of=R,wrt=W --simplify` is "
        "`upl-opt f.upl -p 'autodiff{of=\"R\" wrt=\"W\"},simplify'`. A pass over `upl` whose *Requires* does not "
        "hold first runs the pass that establishes it; one over `upl_loops` is refused with the name of the missing pass.\n"
    )
    text += "\n## Pipelines\n\n| pipeline | passes, in this order | why |\n|---|---|---|\n"
    for p in PIPELINES.values():
        passes = ", ".join(f"[`{n}`](#{n})" for n in p.passes)
        text += f"| {p.name} | {passes} | {p.reason} |\n"
    for name, load in PASSES.items():
        cls = load()
        text += f"\n## {name}\n\n{markdown(doc_of(cls))}\n"
        options = dataclasses.fields(cls)
        if options:
            text += "\n| option | type | default |\n|---|---|---|\n"
            for option in options:
                kind = str(option.type).replace("|", "\\|").replace("tuple[str, ...]", "names").replace(" \\| None", "")
                default = "required" if option.default is dataclasses.MISSING else f"`{option.default}`"
                text += f"| `{option.name}` | {kind} | {default.replace('`None`', '–').replace('`()`', '–')} |\n"
    return text


def dialect() -> str:
    """The page of the dialect's operations."""
    text = NOTE + (
        "# The dialect `upl`\n\nThe program in MLIR's form: `upl-opt f.upl` prints it and reads it back. Bodies use `arith` "
        "and `math`; the operations below are what these lack. Index expressions, conditions and domains are attributes "
        "in the syntax of UPL's text, in `<\"…\">`.\n"
    )
    for op in UPL.operations:
        text += f"\n## {op.name}\n\n{markdown(doc_of(op))}\n"
    return text


def page_of(found: Dialect, title: str, about: ModuleType) -> str:
    """The page of a dialect: what its module says of the whole, then its operations and attributes."""
    text = NOTE + f"# {title}\n\n{markdown(doc_of(about))}\n\n## Operations\n"
    for op in found.operations:
        text += f"\n### {op.name}\n\n{markdown(doc_of(op))}\n"
    text += "\n## Attributes\n"
    for attribute in found.attributes:
        text += f"\n### #{attribute.name}\n\n{markdown(doc_of(attribute))}\n"
    return text


def loops() -> str:
    """The page of the dialect of loops."""
    return page_of(UPL_LOOPS, "The dialect `upl_loops`", loops_ops)


def machine() -> str:
    """The page of the dialect of machine programs."""
    return page_of(TTM, "The dialect `ttm`", ttm_ops)


def circuits() -> str:
    """The page of the dialect of circuits."""
    return page_of(PPN, "The dialect `ppn`", ppn_ops)


PAGES = {
    "passes.md": passes, "dialect.md": dialect, "dialect_loops.md": loops, "dialect_ttm.md": machine,
    "dialect_ppn.md": circuits,
}  # fmt: skip

if __name__ == "__main__":
    for file, page in PAGES.items():
        (HERE / file).write_text(page(), encoding="utf-8")
