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
    """A program of this module, or an example, with its sizes; entries of arrays of constants in `layers`."""

    layers: tuple[int, ...] = ()

    @property
    def program(self) -> upl.Program:
        """The program; "gradient NAME" is that of an example, of its first output with respect to its first input that has
        a derivative."""
        if self.name in TEXTS:
            return upl.load(TEXTS[self.name])
        text = (EXAMPLES / f"{self.name.removeprefix('gradient ')}.upl").read_text(encoding="utf-8")
        p = upl.load(text, **({"K": len(self.layers), "N": list(self.layers)} if self.layers else {}))
        if not self.name.startswith("gradient "):
            return p
        return upl.vjp(p, next(iter(p.outputs)), WITH_RESPECT_TO.get(p.name, next(iter(p.inputs))))


WITH_RESPECT_TO = {"wave": "C", "mlp": "W"}


def sizes(text: str) -> list[dict[str, int]]:
    """Three sizes of a program."""
    names = [line.split()[1] for line in text.splitlines() if line.split()[:1] == ["param"]]
    return [dict(zip(names, numbers, strict=False)) for numbers in ((4, 6, 5), (1, 1, 1), (16, 16, 16))]


def nets(name: str, *sizes: dict[str, int], layers: tuple[tuple[int, ...], ...] = ()) -> list[Net]:
    """A program with its sizes, and with the widths of its layers, if it has them."""
    return [Net(name, tuple(s.items()), *([layers[n]] if layers else [])) for n, s in enumerate(sizes)]


NETS = [Net(name, tuple(s.items())) for name, text in TEXTS.items() for s in sizes(text)]
GRADIENTS = [
    *nets("gradient jacobi1d", {"T": 2, "n": 5}, {"T": 4, "n": 24}, {"T": 1, "n": 3}),
    *nets("gradient matmul", {"m": 4, "n": 5, "r": 3}, {"m": 16, "n": 16, "r": 16}, {"m": 1, "n": 1, "r": 1}),
]
SOLVERS = [
    *nets("gradient jacobi2d", {"T": 2, "m": 5, "n": 6}, {"T": 1, "m": 3, "n": 3}, {"T": 3, "m": 8, "n": 7}),
    *nets("gradient wave", {"T": 3, "n": 8}, {"T": 2, "n": 3}, {"T": 5, "n": 16}),
    *nets("jacobi2d", {"T": 2, "m": 5, "n": 6}, {"T": 1, "m": 3, "n": 3}, {"T": 3, "m": 8, "n": 7}),
    *nets("floyd_warshall", {"n": 5}, {"n": 1}, {"n": 12}),
    *nets("triangular_solve", {"n": 5}, {"n": 1}, {"n": 30}),
    *nets("cholesky", {"n": 4}, {"n": 2}, {"n": 9}),
]
"""Triangles, values of the iteration before in any order, gathers that may be empty."""
LEARNING = [
    *nets("softmax", {"D": 3, "n": 5}, {"D": 1, "n": 1}, {"D": 8, "n": 16}),
    *nets("lstm", {"T": 2, "E": 2, "H": 3}, {"T": 1, "E": 1, "H": 1}, {"T": 3, "E": 4, "H": 8}),
    *nets("mlp", {"D": 3}, {"D": 1}, {"D": 4}, layers=((3, 4, 2), (1, 1, 1), (5, 8, 6, 3))),
    *nets("gradient mlp", {"D": 3}, {"D": 1}, {"D": 4}, layers=((3, 4, 2), (1, 1, 1), (5, 8, 6, 3))),
    *nets("iris_batch", {"D": 4}, {"D": 1}, {"D": 8}, layers=((4, 5, 3), (1, 1, 1), (12, 16, 10))),
]
"""Layers of unequal widths, and functions that are not the interpreter's to the last bit."""
