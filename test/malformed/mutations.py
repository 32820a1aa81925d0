"""Malformed texts: mutations of right ones by bytes, by tokens and by lines, and texts from a grammar of nonsense."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

PIECES = (
    b"{",
    b"}",
    b"<",
    b">",
    b"[",
    b"]",
    b"(",
    b")",
    b"*",
    b"#",
    b"##",
    b"->",
    b"..",
    b",",
    b";",
    b":",
    b"\n",
    b"0",
    b"-1",
    b"K",
    b"N[K]",
    b"99999999999999999999",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"4294967296",
    b"1e999",
    b"nan",
    b"/*",
    b"//",
    b"@",
    b"@(max)",
    b"@(&&)",
    b"for",
    b"if",
    b"in",
    b"adjoint of",
    b"node",
    b"int",
    b"f64",
    b"bool",
    b"true",
    b"\xff",
    b"\xc3",
    b"\x00",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    "δ".encode(),
    "\u202e".encode(),
    b'"',
    b"'",
    b"\\",
    b"?",
    b"mod 0",
    b"floordiv 0",
    b"**",
    b"&&",
    b"==",
    b"!",
    b"i999999999999",
    b"1.0.0",
    b"0x",
    b"0xFFFFFFFFFFFFFFFFFF",
    b"%0",
    b"!upl.gather",
    b"tensor<9999999x9999999xf32>",
    b"dense<0>",
    b"null",
    b"[[",
    b"{}",
    b"\t",
    b"\r",
    b"",
)
NUMBERS = (
    b"0",
    b"1",
    b"-1",
    b"2",
    b"1000",
    b"1000000000",
    b"9223372036854775808",
    b"99999999999999999999999",
    b"1e400",
    b"0.5",
)
_TOKEN = re.compile(rb'[^\W\d]\w*|\d+(?:\.\d+)?|"(?:[^"\\\n]|\\.)*"|->|\.\.|&&|\|\||[<>=!]=|##|\s+|.', re.DOTALL)

Mutate = Callable[[bytes, random.Random], bytes]


def by_bytes(text: bytes, rng: random.Random) -> bytes:
    """One to three places cut out, doubled, replaced, or with bits turned."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((0, 1, 1, 2, 5, 30)))
        flipped = bytes(b ^ (1 << rng.randrange(8)) for b in text[at:end])
        middle = rng.choice((rng.choice(PIECES), text[at:end] * 2, b"", flipped))
        text = text[:at] + middle + text[end:]
    return text


def by_tokens(text: bytes, rng: random.Random) -> bytes:
    """Tokens left out, doubled, exchanged, or replaced by others of the text."""
    tokens = _TOKEN.findall(text)
    if not tokens:
        return text
    solid = [n for n, t in enumerate(tokens) if t.strip()] or [0]
    for _ in range(rng.randint(1, 4)):
        a, b = rng.choice(solid), rng.choice(solid)
        if a >= len(tokens) or b >= len(tokens):
            continue
        match rng.randrange(6):
            case 0:
                tokens[a] = b""
            case 1:
                tokens[a] = tokens[a] + b" " + tokens[a]
            case 2:
                tokens[a], tokens[b] = tokens[b], tokens[a]
            case 3:
                tokens[a] = tokens[b]
            case 4:
                tokens[a] = rng.choice(PIECES)
            case _:
                numbers = [n for n in solid if tokens[n][:1].isdigit()]
                if numbers:
                    tokens[rng.choice(numbers)] = rng.choice(NUMBERS)
    return b"".join(tokens)


def one_word(text: bytes, rng: random.Random) -> bytes:
    """A word or a number replaced by another one of the text: what the grammar has nothing against, as a rule."""
    words = list(re.finditer(rb"\w+", text))
    if not words:
        return text
    at = rng.choice(words)
    others = [w[0] for w in words if w[0].isdigit() == at[0].isdigit() and w[0] != at[0]] or [at[0]]
    return text[: at.start()] + rng.choice(others) + text[at.end() :]


def by_lines(text: bytes, rng: random.Random) -> bytes:
    """Lines left out, doubled, moved."""
    lines = text.split(b"\n")
    for _ in range(rng.randint(1, 3)):
        at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(3):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines.insert(to, lines[at])
            case _:
                lines.insert(to, lines.pop(at))
    return b"\n".join(lines)


def cut(text: bytes, rng: random.Random) -> bytes:
    """Cut off somewhere."""
    return text[: rng.randrange(len(text) + 1)]


def repeated(text: bytes, rng: random.Random) -> bytes:
    """A piece repeated very often: deep nesting, long chains, long numbers."""
    at = rng.randrange(len(text) + 1)
    piece = rng.choice(
        (b"(", b"[", b"{", b"<", b"-", b"!", b"9", b"x+", b"a ? b : ", b"/*", b'"', b"2**", b"if i<1: ", b"\n")
    )
    return text[:at] + piece * rng.choice((200, 2000, 20_000)) + text[at:]


def spliced(texts: Sequence[bytes]) -> Mutate:
    """The beginning of one text and the end of another."""

    def mutate(text: bytes, rng: random.Random) -> bytes:
        other = rng.choice(texts)
        return text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other) + 1) :]

    return mutate


MUTATIONS: tuple[tuple[Mutate, int], ...] = ((by_bytes, 4), (by_tokens, 6), (by_lines, 1), (cut, 1), (repeated, 1))
"""With their weights."""


def mutated(texts: Sequence[bytes], rng: random.Random) -> bytes:
    """A mutation of one of the texts."""
    ways = [m for m, n in MUTATIONS for _ in range(n)] + [spliced(texts)]
    return rng.choice(ways)(rng.choice(texts), rng)


# -- from a grammar ---------------------------------------------------------------------------------------------------
_RULES: dict[str, tuple[str, ...]] = {
    "program": (
        "program p\nDECL\nDECL\nDECL\nDECL\n",
        "program p\nparam n >= 1\ninput X<i> in BOUNDS { ARROW }\nDECL\nDECL\n",
    ),
    "DECL": (
        "param NAME >= INT",
        "const NAME = INT",
        "const NAME[INT:INT] = [INT, INT]",
        "input NAMEINDEX in BOUNDS { ARROW }",
        "input X<i> in BOUNDS { ARROW }",
        "output NAMEINDEX",
        "output R<i> in BOUNDS",
        "node NAMEINDEX { BODY }",
        "node NAMEINDEX in BOUNDS { BODY }",
        "adjoint of NAME wrt NAME",
        "node A<i> { BODY }",
        "node A<i> { in x; BODY }",
    ),
    "BODY": (
        "in PORT; ARROW",
        "in PORT, PORT; v = EXPR; ARROW",
        "ARROW; ARROW",
        "in PORT; NAME: TYPE = EXPR; v -> R<i>",
        "",
    ),
    "PORT": ("NAME", "NAME: TYPE", "@(OP) NAME[IDX]", "@(OP) NAME[#]", "@(OP) NAME[IDX]: TYPE"),
    "ARROW": (
        "-> TARGET",
        "EXPR -> TARGET",
        "if COND: EXPR #IDX -> TARGET",
        "EXPR ## -> TARGET",
        "-> TARGET for i in IDX..IDX",
        "EXPR #IDX -> TARGET for k in IDX..IDX if COND",
    ),
    "TARGET": ("R<i>", "A.x<IDX>", "NAME", "NAMEINDEX", "NAME.NAME<IDX,IDX>", "A<*>", "NAME<IDX>"),
    "INDEX": ("", "<i>", "<i,j>", "<i,j,k>", "<NAME>"),
    "BOUNDS": ("0<=i<n", "0<=i<IDX", "IDX<=i<=IDX, 0<=j<i", "i==IDX", "0<=i", "COND", "0<=i<INT"),
    "IDX": (
        "i",
        "j",
        "n",
        "INT",
        "IDX+IDX",
        "IDX-IDX",
        "IDX*IDX",
        "IDX floordiv INT",
        "IDX mod INT",
        "N[IDX]",
        "NAME",
        "(IDX)",
    ),
    "COND": ("IDX<IDX", "IDX==IDX", "COND && COND", "COND || COND", "!(COND)", "IDX<=IDX<IDX", "x>0", "true"),
    "EXPR": (
        "x",
        "v",
        "INT",
        "REAL",
        "EXPR+EXPR",
        "EXPR*EXPR",
        "EXPR/EXPR",
        "EXPR**EXPR",
        "CALL(EXPR)",
        "CALL(EXPR,EXPR)",
        "x>0 ? EXPR : EXPR",
        "-EXPR",
        "NAME",
        "EXPR mod EXPR",
        "int(EXPR)",
        "(EXPR)",
        "b && EXPR",
        "stop_gradient(EXPR)",
    ),
    "CALL": ("min", "max", "abs", "sqrt", "exp", "log", "tanh", "floor", "atan2", "sigmoid", "erf", "NAME"),
    "OP": ("+", "*", "min", "max", "&&", "||", "-", "/"),
    "TYPE": ("real", "f32", "f64", "int", "bool", "i32"),
    "NAME": ("X", "A", "B", "R", "x", "v", "n", "i", "N", "K", "δ", "in", "node", "K2"),
    "INT": (
        "0",
        "1",
        "2",
        "3",
        "-1",
        "7",
        "1000000",
        "9223372036854775807",
        "9223372036854775808",
        "99999999999999999999999",
    ),
    "REAL": ("0.5", "1e-9", "1e308", "1e999", "0.0", "3.14159"),
}
_SYMBOL = re.compile("|".join(sorted((k for k in _RULES if k.isupper()), key=len, reverse=True)))


def from_grammar(rng: random.Random) -> bytes:
    """A text that looks like UPL and means nothing, as a rule."""

    def expand(symbol: str, depth: int) -> str:
        options = _RULES[symbol]
        if depth > 9:
            options = options[:2]
        return _SYMBOL.sub(lambda m: expand(m[0], depth + 1), rng.choice(options))

    return expand("program", 0).encode()
