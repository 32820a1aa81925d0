"""What the condition sweep puts into programs: index conditions, counts and rearrangements, by class.

Each is UPL text that is true Python too once its operators are spelt as there (`python`), so what a program means is known
without the compiler.  Fields are `i`, `j` (each from 0 to n-1) and `k` (0 to 2); `q` is a parameter beside `n`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

TABLES: Mapping[str, list[int]] = {"P": [1, 2, 4], "Q": [2, 0, 1], "Z": [0, 3, 1]}
"""Constant arrays over 0:2; Q is a permutation."""
SYMBOLIC = "N"
"""A symbolic array over 0:2, given by the caller of a program."""


@dataclass(frozen=True)
class Term:
    """A condition, or an expression; `kind` is its class in the tables of results."""

    kind: str
    text: str

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it needs, always with `i`."""
        return tuple(f for f in "ijk" if f == "i" or re.search(rf"\b{f}\b", self.text))

    @property
    def tables(self) -> tuple[str, ...]:
        """The constant arrays that it reads."""
        return tuple(t for t in TABLES if re.search(rf"\b{t}\[", self.text))

    @property
    def symbolic(self) -> bool:
        """Whether it reads the symbolic array."""
        return f"{SYMBOLIC}[" in self.text

    def value(self, **env: Any) -> Any:
        """What it is at an index."""
        # The text is one of this file's own.
        return eval(_code(self.text), {"__builtins__": {}}, {**FUNCTIONS, **TABLES, **env})  # noqa: S307


def _ceildiv(a: int, b: int) -> int:
    return -(-a // b)


class _Ceildiv:
    """``a * CEIL * b`` is ``a ceildiv b``: an operator that binds as the others do."""

    def __init__(self, a: int | None = None):
        self.a = a

    def __rmul__(self, a: int) -> _Ceildiv:
        return _Ceildiv(a)

    def __mul__(self, b: int) -> int:
        assert self.a is not None
        return _ceildiv(self.a, b)


FUNCTIONS: Mapping[str, Any] = {"min": min, "max": max, "abs": abs, "CEIL": _Ceildiv(), "true": True, "false": False}


def python(text: str) -> str:
    """The text as a Python expression; `?:` must stand in parentheses."""
    text = re.sub(r"!(?!=)", " not ", text)
    for old, new in (("&&", " and "), ("||", " or "), (" mod ", " % "), (" floordiv ", " // "), (" ceildiv ", " *CEIL* ")):
        text = text.replace(old, new)
    text = text.strip()
    return re.sub(r"\(([^()?]*(?:\([^()]*\)[^()?]*)*) \? ([^:()]*) : ([^()]*)\)", r"((\2) if (\1) else (\3))", text)


@cache
def _code(text: str) -> CodeType:
    return compile(python(text), text, "eval")


def _terms(**kinds: str) -> tuple[Term, ...]:
    each = ((kind.replace("_", " "), text.strip()) for kind, texts in kinds.items() for text in texts.split(";"))
    return tuple(Term(kind, text) for kind, text in each)


CONDITIONS = _terms(
    affine="""i<q; i+j<=q; 2*i==j; i==j; i<j && j<q; i<q || j>2; !(i<j); i!=j; k<2 && i<=k; 0<i<q; i>=n-q; i<j || i>j""",
    by_number="""i mod 2==0; i floordiv 2==j floordiv 2; (i+j) mod 3==1; (i+2*j) mod 4<2; i ceildiv 2==j;
        i mod 2==j mod 3; (i mod 3)*2<=j; i floordiv 2 mod 2==0; (i+q) mod 3!=0""",
    by_parameter="""i mod q==0; i mod q!=0; i floordiv q==j floordiv q; i ceildiv q<=j; (i+j) mod q<2; i mod (q+1)==0;
        i mod (2*q)<q; (i mod q)*2<q; i floordiv q mod 2==0; n mod q==0; (n-1-i) floordiv q==0; i mod (n+q)==j""",
    by_table="""i mod P[k]==0; i mod (2*P[k])<P[k]; i floordiv P[k] mod 2==0; i floordiv P[k]==1; i ceildiv P[k]<2;
        i mod P[Q[k]]==0; i floordiv P[2-k]<=k; i mod P[i mod 3]==0""",
    by_sum="""i mod (j+1)==0; i floordiv (j+1)==1; (i+j) mod (i+1)==0; i ceildiv (j+q+1)==1; (n-1-i) floordiv (j+1)<q;
        (i+q) mod (j+2)==1""",
    product="""i*j<=4; i*i<=j; i*j==2*i; i*j mod 3==0; (i+1)*(j+1)<=q+2; (i-q)*(j-q)>0; i*i*i<q+5; i*j!=q""",
    by_parameter_product="""q*i<=4; q*i<j+q*q; n*i>=j*q; q*(i-j)<=0; n*q>4""",
    power="""i**2<q; 2**i<=q; 2**k<=i; i**2+j**2<=q**2; i**j<4; q**2>i; (i-j)**2<=1""",
    min_max_abs="""min(i,j)<q; max(i,j)==q; abs(i-j)<=1; abs(i-j)<q && i mod 2==0; min(i*j,q)<2; max(i,j)-min(i,j)<q;
        abs(2*i-q)<3""",
    table="""i<P[k]; P[k]*i<=4; i==Q[k]; P[i mod 3]<=j; P[k]+P[2-k]<=i+4; Z[k]==i; Z[k]>0 && i<Z[k]""",
    nested_table="""P[Q[k]]<=i; P[Q[Q[k]]]==2; Z[Q[k]]<i; P[Q[i mod 3]]<=j+1""",
    symbolic_array="""i<N[k]; N[k]<=N[0]; i mod (N[k]+1)==0; i*N[k]<=3; N[k]==i; i<N[Q[k]]; N[i mod 3]>j""",
    mixed="""i mod q==0 && j<i; i*j<=4 || i==j; !(i mod q==0 || j mod q==0); i mod 2==0 && i*i<q || j==q;
        !(i**2<q) && !(j==0); (i*j<=4 && i<j) || (i*j>4 && i>j); i mod q==0 && i floordiv q==1;
        i mod q==0 && !(i mod q==0); i mod q==0 || i mod q!=0; i*j<=4 && i*j<=2""",
    select="""(i<q ? i : j)<2; (i mod q==0 ? i : j)==j; (i*j>2 ? 1 : 0)==1; (i<j ? i mod 2 : j mod 2)==0""",
    truth="""true; false; n>q; i mod q==i mod q; i*j==j*i""",
)  # fmt: skip

COUNTS = _terms(
    affine="i; i+1; n-i; q; 3; i-j; 0; i+q-1",
    by_number="i mod 2; i floordiv 2; i ceildiv 2",
    by_parameter="i mod q; i floordiv q; i ceildiv q; (i+j) mod (q+1)",
    by_table="i mod P[k]; i ceildiv P[k]",
    by_sum="i mod (j+1); i floordiv (j+1)",
    product="i*j; i*i; (i-j)*(i-j)",
    by_parameter_product="q*i; n*q; q*(i-j)",
    power="i**2; 2**k; q**2",
    min_max_abs="min(i,j); max(i,q); abs(i-j); min(i*j,q)",
    table="P[k]; P[k]*i; Z[k]",
    nested_table="P[Q[k]]; Z[Q[i mod 3]]",
    symbolic_array="N[k]; N[k]+i; N[Q[k]]",
    select="(i<q ? i : 0); (i mod q==0 ? 2 : 1); (i*j>2 ? 0 : 1)",
)


@dataclass(frozen=True)
class Rearrangement:
    """A bijection of a domain: where index `fields` goes."""

    kind: str
    fields: tuple[str, ...]
    domain: str
    to: tuple[str, ...]

    @property
    def texts(self) -> str:
        """All that it says."""
        return "; ".join((self.domain, *self.to))


def _moves(kind: str, *rows: str) -> tuple[Rearrangement, ...]:
    """Rows such as ``0<=i<n -> n-1-i``, with several fields ``…, … -> …; …``."""
    out = list[Rearrangement]()
    for row in rows:
        domain, to = row.split(" -> ")
        parts = tuple(t.strip() for t in to.split(";"))
        out.append(Rearrangement(kind, tuple("ijk"[: len(parts)]), domain, parts))
    return tuple(out)


MOVES = (
    *_moves("affine", "0<=i<n -> n-1-i", "0<=i<n, 0<=j<n -> j; i", "0<=i<n, 0<=j<n -> i+j; j", "0<=i<n -> i*1+0",
            "0<=i<n -> 2*i+q", "0<=i<2*n -> i"),
    *_moves("by number", "0<=i<2*n -> i+1-2*(i mod 2)", "0<=i<3*n -> 3*(i floordiv 3)+(i+1) mod 3",
            "0<=i<8 -> (i mod 2)*4+(i floordiv 2 mod 2)*2+i floordiv 4", "0<=i<5 -> 3*i mod 5",
            "0<=i<6 -> 2*(i mod 3)+i floordiv 3"),
    *_moves("by parameter", "0<=i<n -> (i+1) mod n", "0<=i<n -> (i+q) mod n", "0<=i<q -> (i+q-1) mod q",
            "0<=i<n*q -> q*(i floordiv q)+q-1-i mod q", "0<=i<n*q -> n*(i mod q)+i floordiv q",
            "0<=i<n, 0<=j<n -> i; (i+j) mod n", "0<=i<n*q -> i*1"),
    *_moves("by table", "0<=i<3 -> Q[i]", "0<=i<n, 0<=j<3 -> i; Q[j]", "0<=i<3, 0<=j<4 -> i; (j+P[i]) mod 4",
            "0<=i<3 -> P[i]"),
    *_moves("nested table", "0<=i<3 -> Q[Q[i]]"),
    *_moves("product", "0<=i<n, 0<=j<q -> i*q+j; 0", "0<=i<n, 0<=j<n -> i; j+i*i", "0<=i<n -> i*i"),
    *_moves("power", "0<=i<n -> i**2", "0<=i<3 -> 2**i"),
    *_moves("min max abs", "0<=i<n -> max(i,0)", "0<=i<n -> abs(i-n+1)", "0<=i<n, 0<=j<n -> min(i,j)+n*(j-i); max(i,j)"),
    *_moves("select", "0<=i<n -> (i<n-1 ? i+1 : 0)", "0<=i<2*q -> (i<q ? 2*i : 2*i-2*q+1)",
            "0<=i<2*n -> (i mod 2==0 ? i+1 : i-1)"),
)  # fmt: skip
