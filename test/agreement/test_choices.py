"""Bodies choose lazily: what `?:`, `&&` and `||` do not choose makes no error, on any engine (LANGUAGE 2)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from support.mpi import MPI

import upl_mlir as upl

TEXT = """program choices
const N[0:3] = [2, 0, 3, 1]
input A<i>: int in 0<=i<3 {{ -> S.a<i>; -> T.a<i> }}
input B<i>: int in 0<=i<3 {{ -> S.b<i>; -> T.b<i> }}
output Y<i>: int
output Z<i>: int in 0<=i<3
node S<i> {{
  in a: int, b: int
{first}  {last} -> Y<i>
}}
node T<i> {{
  in a: int, b: int
{first}  if {case}: {one} -> Z<i>
  if !({case}): {other} -> Z<i>
}}
"""


class Bodies:
    """Random bodies, most of which divide by zero, overflow or read beyond the array where they do not choose."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.names: list[str] = []

    def integer(self, depth: int) -> str:
        kind = self.rng.randrange(7) if depth else 0
        match kind:
            case 0:
                return self.rng.choice((*"aabbii", "1", "2", "4611686018427387904", *self.names))
            case 1:
                return f"({self.integer(depth - 1)} {self.rng.choice('+-*')} {self.integer(depth - 1)})"
            case 2 | 3:
                what = self.rng.choice(("floordiv", "ceildiv", "mod"))
                return f"({self.integer(depth - 1)} {what} {self.rng.choice(('a', 'b', '(b-1)', '(i-1)'))})"
            case 4:
                return f"N[{self.rng.choice(('a', 'b', 'i', 'i+1'))}]"
            case _:
                return f"({self.truth(depth - 1)} ? {self.integer(depth - 1)} : {self.integer(depth - 1)})"

    def truth(self, depth: int) -> str:
        match self.rng.randrange(4) if depth else 0:
            case 0:
                return self.rng.choice(("a>0", "b!=0", "i<2", "a<b", "0<=a<4", "0<=b<4", "i<=b", "b>1 && i!=1"))
            case 1:
                return f"!({self.truth(depth - 1)})"
            case 2:
                return f"({self.truth(depth - 1)} {self.rng.choice(('&&', '||'))} {self.truth(depth - 1)})"
            case _:
                return f"{self.integer(depth - 1)} {self.rng.choice(('<', '==', '>='))} {self.integer(depth - 1)}"

    def text(self) -> str:
        first = ""
        for n in range(self.rng.randrange(1, 4)):
            first += f"  v{n} = {self.integer(2)}\n"
            self.names.append(f"v{n}")
        last, one, other = (self.integer(2) for _ in range(3))
        return TEXT.format(first=first, last=last, one=one, other=other, case=self.truth(2))


def outcome(p: upl.Program, engine: Any, data: Mapping[str, Any]) -> dict[str, list[int]] | str:
    try:
        return {n: x.tolist() for n, x in upl.compile(p, engine=engine)(**data).items()}
    except upl.UplError as e:
        return e.diagnostics[0].code


def drawn(seed: int) -> tuple[upl.Program, list[dict[str, Any]]]:
    """A program that can be compiled, and data for it."""
    rng = np.random.default_rng(seed)
    while True:
        seed += 1_000_000
        try:
            p = upl.load(Bodies(seed).text())
        except upl.UplError:  # a divisor that is the number 0
            continue
        return p, [{n: rng.integers(-1, 5, 3) for n in "AB"} for _ in range(4)] + [{n: np.arange(1, 4) for n in "AB"}]


def agree(p: upl.Program, data: list[dict[str, Any]], engines: tuple[str, ...]) -> int:
    """How many runs have results: those of the reference, on each engine; where it has none, nor have they."""
    right = 0
    for d in data:
        wanted = outcome(p, "reference", d)
        right += isinstance(wanted, dict)
        for engine in engines:
            found = outcome(p, engine, d)
            both = isinstance(found, str) and isinstance(wanted, str)
            assert both or found == wanted, (engine, wanted, found, str(p), d)
    return right


@pytest.mark.parametrize("seed", range(40))
def test_the_interpreter(seed: int) -> None:
    agree(*drawn(seed), ("interp",))


@pytest.mark.parametrize("seed", [6, 9])
def test_the_others(seed: int) -> None:
    """Programs with results on some data, and none on others."""
    p, data = drawn(seed)
    assert 0 < agree(p, data, ("token", "native")) < len(data)


HEAD = "program chosen\nconst N[0:3] = [4, 5, 6, 7]\nconst R[1:2] = [0.5, 2.5]\ninput D<i>: int in 0<=i<6 { -> S.d<i> }\n"
CHOICES = [
    ("i<3 ? d*N[i+1] : d", [1, 2, 3, 4, 5, 0], [5, 12, 21, 4, 5, 0]),
    ("d != 0 ? 12 floordiv d : 7", [1, 2, 3, 4, 5, 0], [12, 6, 4, 3, 2, 7]),
    ("d != 0 && 12 mod d == 0 ? 1 : 0", [1, 2, 3, 4, 5, 0], [1, 1, 1, 1, 0, 0]),
    ("d == 0 || 12 ceildiv d > 3 ? 1 : 0", [1, 2, 3, 4, 5, 0], [1, 1, 1, 0, 0, 1]),
    ("0<=d<4 ? N[d] : i<3 ? N[i] : 0", [1, 9, -1, 4, 3, 0], [5, 5, 6, 0, 7, 4]),
    ("d < 1000 ? d*d : 0", [1, 2, 3, 4, 5, 2**33], [1, 4, 9, 16, 25, 0]),
    ("1<=d<=2 ? int(4.0*R[d]) : 0", [1, 2, 3, 4, 5, 0], [2, 10, 0, 0, 0, 0]),
]


@pytest.mark.parametrize(("value", "d", "wanted"), CHOICES)
@pytest.mark.parametrize("engine", ["interp", "reference", "token", "native", MPI, "rtl"])
def test_choices(engine: Any, value: str, d: list[int], wanted: list[int]) -> None:
    p = upl.load(HEAD + f"node S<i> {{ in d: int; v = {value}; v -> Y }}\noutput Y<i>: int\n")
    if engine == "rtl" and 2**33 in d:
        d = [*d[:-1], 2**30]  # its integers have 32 bits
    assert upl.compile(p, engine=engine)(D=np.array(d))["Y"].tolist() == wanted


SHARED = """program shared
const N[0:3] = [1, 2, 3, 0]
input D<i>: int in 0<=i<5 {{ -> S.d<i> }}
output Y<i>: int
output Z: int
node S<i> {{
  in d: int
  q = N[i]
{rest}
}}
"""


@pytest.mark.parametrize(
    ("rest", "right"),
    [
        ("b = i<4 ? q : 0; w = b>0 ? q : 7; w -> Y<i>; if i==3: q -> Z<>", True),  # the second choice is made by the first
        ("w = i<4 ? q : 0; w -> Y<i>; if i==3: q -> Z<>", True),
        ("w = i<4 ? q : 0; w -> Y<i>; if i==4: q -> Z<>", False),
        ("w = i<4 ? q : 0; w -> Y<i>; if d>7: q -> Z<>", True),  # of arrow and choice, each by its own condition
        ("w = d>7 ? q : 0; w -> Y<i>; if d>7: w -> Z<>", True),
        ("w = i<4 ? q : 0; v = i<5 ? w+q : w; v -> Y<i>; if d>7: q -> Z<>", False),
        ("w = i<4 ? q : 0; v = i<2 ? q : w; v -> Y<i>; if d>7 && (i<4 && q==1): q -> Z<>", True),
    ],
)
def test_what_several_need(rest: str, right: bool) -> None:
    p, d = upl.load(SHARED.format(rest=rest)), {"D": np.array([9, 1, 1, 1, 1])}
    wanted = outcome(p, "reference", d)
    assert isinstance(wanted, dict) is right
    for engine in ("interp", "token", "native"):
        found = outcome(p, engine, d)
        assert found == wanted if right else isinstance(found, str), engine


@pytest.mark.parametrize("condition", ["i != 1 && b > 0", "i != 1", "b > 0 || i < 0"])
@pytest.mark.parametrize("engine", ["interp", "token", "native", "rtl"])
def test_an_arrow_that_is_not_taken(engine: Any, condition: str) -> None:
    """Its value makes no error either; the machine computed it all the same."""
    text = "program guarded\ninput B<i>: int in 0<=i<3 { -> S.b<i> }\noutput Z<i>: int in 0<=i<3\nnode S<i> in 0<=i<3 {\n"
    text += f"  in b: int\n  if {condition}: 12 floordiv (b*(i-1)) -> Z<i>\n  if !({condition}): b -> Z<i>\n}}\n"
    p, d = upl.load(text), {"B": np.array([-3, 0, 4]) if "||" in condition else np.array([3, 2, 4])}
    assert outcome(p, engine, d) == outcome(p, "reference", d) != "UPL1604"


UNDER_CONDITIONS = [  # conditions on fields of an arrow, and what it sends
    ("i>=1 && j<3", "N[i-1] + N[2-j]"),
    ("i+j>0", "12 floordiv (i+j)"),
    ("i+j<3 && i*j != 2", "(20000*(i+j))*(20000*(i+j))"),  # beyond 32 bits elsewhere
    ("j != 0 && i mod j == 0", "i floordiv j"),
    ("j == 0 || i mod j != 1", "(j == 0 ? 5 : i mod j)"),
    ("(i+j < 3 ? 30000*i*30000*j : 1) != 1", "i"),
]


@pytest.mark.parametrize(("condition", "value"), UNDER_CONDITIONS)
@pytest.mark.parametrize("engine", ["interp", "token", "native", "rtl"])
def test_what_an_arrow_needs_where_it_is_taken(engine: Any, condition: str, value: str) -> None:
    """Conditions on fields: what they need, or the value, where they do not hold makes no error."""
    text = "program guarded\nconst N[0:2] = [1, 2, 3]\ninput B<i,j>: int in 0<=i<4, 1<=j<=3 { -> S.b<i,j-1> }\n"
    text += "output Z<i,j>: int in 0<=i<4, 0<=j<3\nnode S<i,j> in 0<=i<4, 0<=j<3 {\n"
    text += f"  in b: int\n  if {condition}: {value} + b -> Z\n  if !({condition}): b -> Z\n}}\n"
    p, d = upl.load(text), {"B": np.arange(12).reshape(4, 3)}
    found = outcome(p, engine, d)
    assert isinstance(found, dict)
    assert found == outcome(p, "reference", d)


@pytest.mark.parametrize("engine", ["interp", "token", "native", "rtl"])
def test_conditions_of_host_inputs_and_loops(engine: Any) -> None:
    """`j != 0 && i mod j == 0` is right for every `j` (LANGUAGE 4), wherever it stands."""
    text = "program divisors\ninput X<i,j> in 0<=i<4, 0<=j<4 { if j != 0 && i mod j == 0: -> S.s<> }\n"
    text += "input Y<i> in 0<=i<4 { -> A }\nnode A<i> { in y; y #8 -> S.t<> for j in 0..3 if j != 0 && i mod j == 0 }\n"
    text += "output Z\nnode S { in @(+) s[8], @(+) t[#]; s + t -> Z }\n"
    x, y = np.arange(16.0).reshape(4, 4), np.array([1.0, 2.0, 4.0, 8.0])
    wanted = sum(x[i, j] + y[i] for i in range(4) for j in range(1, 4) if i % j == 0)
    assert outcome(upl.load(text), engine, {"X": x, "Y": y}) == {"Z": wanted}


SLOPES = """program slopes
const T[0:1] = [1.0, 2.0]
input X<i>: real in 0<=i<3 { -> S.x<i> }
input K<i>: int in 0<=i<3 { -> S.k<i> }
node S<i> { in x: real, k: int
  n = k > 5 ? 8 floordiv (k-7) : k
  s = T[n]
  q = x*x
  with_derivative(q, x, s) -> Y<i>
}
output Y<i>: real in 0<=i<3
"""


@pytest.mark.parametrize("engine", ["interp", "reference", "token", "native", "rtl"])
def test_what_only_derivatives_need(engine: Any) -> None:
    """The value needs no slope, so a slope that has no value is an error of the derivative alone."""
    p, x, k = upl.load(SLOPES), np.array([1.0, 2.0, 3.0]), np.array([0, 2, 7])
    assert upl.compile(p, engine=engine)(X=x, K=k)["Y"].tolist() == [1, 4, 9]
    d = upl.vjp(p, "Y", "X")
    found = upl.compile(d, engine=engine)(X=x, K=[0, 1, 1], d_Y=np.ones(3))
    assert found["d_X"].tolist() == [1, 2, 2]
    with pytest.raises(upl.UplError, match=r"UPL1604|UPL1706"):
        upl.compile(d, engine=engine)(X=x, K=[0, 1, 2], d_Y=np.ones(3))


@pytest.mark.parametrize("engine", ["interp", "token", "native"])
def test_what_no_result_needs(engine: Any) -> None:
    """Tokens are made all the same, and their errors told; native code computes what results need (docs/native.md)."""
    text = SLOPES.replace("S.k<i>", "S.k<i>; -> D.k<i>") + "node D<i> { in k: int; k*k -> S.unread<i> }\n"
    p = upl.load(text.replace("in x: real, k: int", "in x: real, k: int, unread: int"))
    wanted = {"Y": [1, 4, 9]} if engine == "native" else "UPL1604"
    assert outcome(p, engine, {"X": np.array([1.0, 2.0, 3.0]), "K": np.array([0, 1, 2**40])}) == wanted


@pytest.mark.parametrize("engine", ["interp", "reference", "token", "native", "rtl"])
def test_arrays_without_entries(engine: Any) -> None:
    text = "program none\nconst K = 0\nconst N[0:K-1] = []\ninput B<i>: int in 0<=i<3 { -> S.b<i> }\n"
    text += "node S<i> { in b: int; v = b>K ? b : N[i]; v -> Z }\noutput Z<i>: int\n"
    p = upl.load(text)
    assert outcome(p, engine, {"B": np.array([1, 2, 3])}) == {"Z": [1, 2, 3]}
    assert isinstance(outcome(p, engine, {"B": np.array([1, 0, 3])}), str)
