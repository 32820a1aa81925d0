"""The files in `editors/`: the Pygments lexer and the TextMate grammar know the parser's words and colour every example."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pygments.lexers import load_lexer_from_file
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Token

from upl_mlir.frontend.upl_text.fold import ARITY
from upl_mlir.frontend.upl_text.lexer import ITEM_WORDS, LITERAL_WORDS, RESERVED, TYPE_WORDS, WORD_OPERATORS

ROOT = Path(__file__).resolve().parents[2]
EDITORS = ROOT / "editors"
TEXTS = {p.stem: p.read_text(encoding="utf-8") for p in sorted((ROOT / "examples").glob("*.upl"))}
TEXTS |= {
    f"language.md {n}": m
    for n, m in enumerate(re.findall(r"```upl\n(.*?)```", (ROOT / "docs/language.md").read_text(encoding="utf-8"), re.S))
}
KINDS = {  # of words: (Pygments token, start of the TextMate scope)
    **dict.fromkeys(ITEM_WORDS, (Keyword.Declaration, "keyword.declaration")),
    **dict.fromkeys(TYPE_WORDS, (Keyword.Type, "storage.type")),
    **dict.fromkeys(LITERAL_WORDS, (Keyword.Constant, "constant.language")),
    **dict.fromkeys(WORD_OPERATORS, (Operator.Word, "keyword.operator.word")),
}
OTHER = (Keyword, "keyword.control")  # in, if, for, of, wrt, seed

SCRAP = """/* two
lines */ node Звено<d,k> in (d<3), 1<=k<=K { in @(max) δ[#]: f32, w; b: bool = δ > 1e-9 && !true; b ? w : 0.5
  if (d > k): δ*w #N[k-1] -> Σум.s<d,k+1,*>  // note
  ## -> R<(d < k ? d : k), i mod 2> for i in 0..2 if i != k }
adjoint of R wrt Звено.w -> Upd.dw
"""


@pytest.fixture(scope="module")
def lexer() -> Any:
    return load_lexer_from_file(str(EDITORS / "upl_lexer.py"), "UplLexer", stripnl=False, ensurenl=False)


@pytest.mark.parametrize("name", [*TEXTS, "scrap"])
def test_the_lexer_understands_every_program(lexer: Any, name: str) -> None:
    text = TEXTS.get(name, SCRAP)
    found = list(lexer.get_tokens(text))
    assert [v for t, v in found if t is Error] == []
    assert "".join(v for _, v in found) == text


def test_the_lexer_tells_the_parts_of_a_line_apart(lexer: Any) -> None:
    found = [(t, v) for t, v in lexer.get_tokens("node A<d> { b*s #N[k-1] -> Res.r<(d>1),*>  // one\n") if v.strip()]
    assert (Name.Class, "A") in found and (Name.Class, "Res") in found and (Name.Attribute, "r") in found
    assert (Operator, "#") in found and (Operator, "->") in found and (Number.Integer, "1") in found
    assert [v for t, v in found if t is Comment.Single] == ["// one"]
    inside = found[found.index((Name.Attribute, "r")) + 1 :]
    assert [t for t, v in inside if v == ">"] == [Operator, Token.Punctuation], "a comparison, then the end of the index"
    assert [v for t, v in lexer.get_tokens("node $") if t is Error] == ["$"]


def test_the_lexer_has_the_parsers_words(lexer: Any) -> None:
    for word in sorted(RESERVED):
        kind = KINDS.get(word, OTHER)[0]
        assert (kind, word) in list(lexer.get_tokens(f"{word} ")), word
    for word in sorted(ARITY.keys() - TYPE_WORDS):
        assert (Name.Builtin, word) in list(lexer.get_tokens(f"{word}(x)")), word
    assert (Name, "programs") in list(lexer.get_tokens("programs"))


# -- the TextMate grammar ---------------------------------------------------------------------------------------------
GRAMMAR: dict[str, Any] = json.loads((EDITORS / "vscode" / "upl.tmLanguage.json").read_text(encoding="utf-8"))


def rules(part: Any = GRAMMAR) -> Iterator[dict[str, Any]]:
    """Every rule of the grammar."""
    if isinstance(part, dict):
        if part.keys() & {"match", "begin", "include"}:
            yield part
        for v in part.values():
            yield from rules(v)
    elif isinstance(part, list):
        for v in part:
            yield from rules(v)


def test_the_grammar_holds_together() -> None:
    """Its expressions (Oniguruma's; none uses what Python's `re` lacks) compile, and each capture has its group."""
    found = list(rules())
    assert len(found) > 20
    for rule in found:
        for key, captures in (("match", "captures"), ("begin", "beginCaptures"), ("end", "endCaptures")):
            if key in rule:
                groups = re.compile(rule[key]).groups
                assert all(int(n) <= groups for n in rule.get(captures, {})), rule
        if "include" in rule:
            assert rule["include"].removeprefix("#") in GRAMMAR["repository"], rule
        assert ("begin" in rule) == ("end" in rule), rule


def flat(patterns: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Patterns in the order in which an editor tries them."""
    for rule in patterns:
        part = GRAMMAR["repository"][rule["include"][1:]] if "include" in rule else None
        if part is None:
            yield rule
        else:
            yield from flat(part["patterns"]) if "match" not in part and "begin" not in part else iter([part])


def scope(text: str) -> str:
    """The scope that an editor gives the beginning of a text."""
    for rule in flat(GRAMMAR["patterns"]):
        found = re.match(rule.get("match", rule.get("begin")), text)
        if found and found.end():
            first = {**rule.get("captures", {}), **rule.get("beginCaptures", {})}
            at = [c["name"] for n, c in first.items() if n != "0" and found.start(int(n)) == 0]
            return at[0] if at else rule["name"]
    return ""


def test_the_grammar_has_the_parsers_words() -> None:
    for word in sorted(RESERVED):
        assert scope(f"{word} ").startswith(KINDS.get(word, OTHER)[1]), word
    for word in sorted(ARITY.keys() - TYPE_WORDS):
        assert scope(f"{word}(x)") == "support.function.upl", word
    assert scope("programs ") == "variable.other.upl" and scope("b: bool = s") == "variable.other.upl"
    assert scope("-> Res.r<d>") == "keyword.operator.arrow.upl" and scope("1e-9") == "constant.numeric.upl"


@pytest.mark.parametrize("name", TEXTS)
def test_the_grammar_reaches_the_end_of_every_program(name: str) -> None:
    """No character but white space and brackets is left without a scope."""
    lines = re.sub(r"/\*.*?\*/", "", TEXTS[name], flags=re.S).splitlines()
    for line in lines:
        rest = line
        while rest:
            if rest[0].isspace() or rest[0] in "{}()[]<>|":
                rest = rest[1:]
                continue
            assert scope(rest), rest
            best = max((re.match(r.get("match", r.get("begin")), rest) for r in flat(GRAMMAR["patterns"])),
                       key=lambda m: m.end() if m else 0)  # fmt: skip
            assert best is not None
            rest = rest[best.end() :]
