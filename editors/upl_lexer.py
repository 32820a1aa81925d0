"""A Pygments lexer for `.upl` text: colours in documents (Sphinx, LaTeX's minted) and terminals.

It is not registered with Pygments; hand it the file: ``pygmentize -x -l editors/upl_lexer.py:UplLexer FILE``.
"""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, include, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, Whitespace

_NAME = r"[^\W\d][\w\u0300-\u036f]*"

DECLARATIONS = ("program", "param", "const", "input", "output", "node", "adjoint")
CONTROL = ("in", "if", "for", "of", "wrt", "seed")
WORD_OPERATORS = ("floordiv", "ceildiv", "mod")
TYPES = ("real", "f32", "f64", "int", "bool")
LITERALS = ("true", "false")


class UplLexer(RegexLexer):
    """UPL; as everywhere in Pygments, an error in the text shows as a token of type `Error`."""

    name = "UPL"
    aliases: ClassVar = ["upl"]
    filenames: ClassVar = ["*.upl"]
    mimetypes: ClassVar = ["text/x-upl"]

    tokens: ClassVar = {
        "root": [
            (r"\b(node|input|output)(\s+)(" + _NAME + r")(\s*)(<)",
             bygroups(Keyword.Declaration, Whitespace, Name.Class, Whitespace, Punctuation), "index"),
            (r"\b(node|input|output|program)(\s+)(" + _NAME + r")\b",
             bygroups(Keyword.Declaration, Whitespace, Name.Class)),
            (r"\b(param|const)(\s+)(" + _NAME + r")\b", bygroups(Keyword.Declaration, Whitespace, Name.Constant)),
            (r"(->)(\s*)(" + _NAME + r")(?:(\s*)(\.)(\s*)(" + _NAME + r"))?(\s*)(<)",
             bygroups(Operator, Whitespace, Name.Class, Whitespace, Punctuation, Whitespace, Name.Attribute, Whitespace,
                      Punctuation), "index"),
            (r"(->)(\s*)(" + _NAME + r")(?:(\s*)(\.)(\s*)(" + _NAME + r"))?",
             bygroups(Operator, Whitespace, Name.Class, Whitespace, Punctuation, Whitespace, Name.Attribute)),
            (r"->|\#\#|\#|@", Operator),
            (r"[{}]", Punctuation),
            include("expression"),
        ],
        "expression": [
            (r"\s+|\A\ufeff", Whitespace),
            (r"//[^\n]*", Comment.Single),
            (r"/\*[\s\S]*?\*/", Comment.Multiline),
            (words(DECLARATIONS, prefix=r"\b", suffix=r"\b"), Keyword.Declaration),
            (words(CONTROL, prefix=r"\b", suffix=r"\b"), Keyword),
            (words(WORD_OPERATORS, prefix=r"\b", suffix=r"\b"), Operator.Word),
            (words(TYPES, prefix=r"\b", suffix=r"\b"), Keyword.Type),
            (words(LITERALS, prefix=r"\b", suffix=r"\b"), Keyword.Constant),
            (_NAME + r"(?=\s*\()", Name.Builtin),
            (r"[0-9]+(?:\.(?!\.)[0-9]*(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)", Number.Float),
            (r"[0-9]+", Number.Integer),
            (_NAME, Name),
            (r"\.\.|\*\*|&&|\|\||<=|>=|==|!=|[-+*/<>=!?:]", Operator),
            (r"[\[\](),;.]", Punctuation),
        ],
        "index": [
            (r">", Punctuation, "#pop"),
            (r"\(", Punctuation, "parentheses"),
            include("expression"),
        ],
        "parentheses": [
            (r"\)", Punctuation, "#pop"),
            (r"\(", Punctuation, "#push"),
            include("expression"),
        ],
    }  # fmt: skip
