"""Programs of several statements, whose circuits have several processes: small ones, each for a way from one to another."""

from __future__ import annotations

from dataclasses import dataclass

from circuit.circuits import EXAMPLES, Case

import upl_mlir as upl

TEXTS = {
    "chain": """
        program chain
        param n >= 1
        input A<i> in 0<=i<n { -> S.a }
        input Z { -> S.s<0> }
        output B<i>
        output C<i>
        node S<i> in 0<=i<n { in a, s; b = s + a*a; b -> B; if i<n-1: b -> S.s<i+1>; b -> T.b; a -> T.a }
        node T<i> in 0<=i<n { in a, b; a + b -> C }
    """,
    "reversed": """
        program reversed
        param n >= 1
        input A<i> in 0<=i<n { -> S.a }
        input Z { -> S.s<0> }
        output C<i>
        node S<i> in 0<=i<n { in a, s; b = s + a; if i<n-1: b -> S.s<i+1>; b -> T.b<n-1-i>; b -> T.c }
        node T<i> in 0<=i<n { in b, c; b*c -> C }
    """,
    "transposed": """
        program transposed
        param m >= 1
        param n >= 1
        input A<i,j> in 0<=i<m, 0<=j<n { -> S.a }
        input Z<i> in 0<=i<m { -> S.s<i,0> }
        output C<j,i>
        node S<i,j> in 0<=i<m, 0<=j<n { in a, s; b = s + a; if j<n-1: b -> S.s<i,j+1>; b -> T.b<j,i> }
        node T<j,i> in 0<=j<n, 0<=i<m { in b; b*b -> C }
    """,
    "products": """
        program products
        param n >= 1
        input A<i,k> in 0<=i<n, 0<=k<n { #n -> AB.a<i,*,k> }
        input B<k,j> in 0<=k<n, 0<=j<n { #n -> AB.b<*,j,k> }
        input C<j,l> in 0<=j<n, 0<=l<n { #n -> PC.c<*,l,j> }
        output E<i,l>
        node AB<i,j,k> { in a, b; a*b -> P.s<i,j> }
        node P<i,j> in 0<=i<n, 0<=j<n { in @(+) s[n]; #n -> PC.p<i,*,j> }
        node PC<i,l,j> { in p, c; p*c -> Q.s<i,l> }
        node Q<i,l> in 0<=i<n, 0<=l<n { in @(+) s[n]; -> E }
    """,
    "centred": """
        program centred
        param r >= 1
        param n >= 1
        input A<i,j> in 0<=i<r, 0<=j<n { -> Mean.s<i>; -> Away.a }
        output D<i,j>
        node Mean<i> in 0<=i<r { in @(+) s[n]; s/4 #n -> Away.m<i,*> }
        node Away<i,j> in 0<=i<r, 0<=j<n { in a, m; a - m -> D }
    """,
    "scalar": """
        program scalar
        param n >= 1
        input A<i> in 0<=i<n { -> Sum.s<> }
        input B { -> Product.b<> }
        output C
        output D
        node Sum { in @(+) s[n]; -> C; -> Product.s<> }
        node Product { in s, b; b*b + s -> D }
    """,
}


@dataclass(frozen=True)
class Net(Case):
    """A program of this module with its sizes."""

    @property
    def program(self) -> upl.Program:
        """The program; "gradient NAME" is that of an example with respect to its first input."""
        if self.name in TEXTS:
            return upl.load(TEXTS[self.name])
        p = upl.load(EXAMPLES / f"{self.name.removeprefix('gradient ')}.upl")
        return upl.vjp(p, next(iter(p.outputs)), next(iter(p.inputs)))


def sizes(text: str) -> list[dict[str, int]]:
    """Three sizes of a program."""
    names = [line.split()[1] for line in text.splitlines() if line.split()[:1] == ["param"]]
    return [dict(zip(names, numbers, strict=False)) for numbers in ((4, 6, 5), (1, 1, 1), (16, 16, 16))]


NETS = [Net(name, tuple(s.items())) for name, text in TEXTS.items() for s in sizes(text)]
GRADIENTS = [Net("gradient jacobi1d", (("T", t), ("n", n))) for t, n in ((2, 5), (4, 24), (1, 3))]
GRADIENTS += [Net("gradient matmul", (("m", m), ("n", n), ("r", r))) for m, n, r in ((4, 5, 3), (16, 16, 16), (1, 1, 1))]
