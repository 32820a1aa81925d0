"""Short ways to write programs in the dialect, as fixtures: `ir.program(ir.input(...), ir.node(...), ...)`."""

from __future__ import annotations

import re

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import Builtin
from xdsl.parser import Parser

from upl_mlir.dialects.upl import UPL, ProgramOp
from upl_mlir.dialects.upl.query import program_of

_TYPES = {"real": "f64", "f64": "f64", "f32": "f32", "int": "i64", "bool": "i1"}


class Ir:
    """Pieces of a program as text; the block arguments are written from the heads."""

    @staticmethod
    def _head(head: str) -> tuple[str, list[str]]:
        name, _, fields = head.rstrip(">").partition("<")
        return name, [f for f in fields.split(",") if f]

    @staticmethod
    def _args(fields: list[str], values: list[tuple[str, str]]) -> str:
        return ", ".join([*(f"%{f}: i64" for f in fields), *(f"%{v}: {_TYPES[t]}" for v, t in values)])

    def input(self, head: str, where: str, body: str, type_: str = "real") -> str:
        """``input NAME<fields> in where { body }``; the value is %NAME."""
        name, fields = self._head(head)
        args = self._args(fields, [(name, type_)])
        block = f"^bb0({args}):" if args else ""
        return f'upl.input @{name} <"{",".join(fields)}"> "{type_}" in <"{where}"> {{\n{block}\n{body}\n}}'

    def node(self, head: str, ports: str, body: str, domain: str | None = None) -> str:
        """``node NAME<fields> { in ports; body }``"""
        name, fields = self._head(head)
        values: list[tuple[str, str]] = []
        for port in re.split(r",(?![^(\[]*[)\]])", ports):
            text, _, type_ = port.partition(":")
            found = re.search(r"(\w+)\s*(\[.*\])?\s*$", text.strip())
            assert found
            values.append((found.group(1), type_.strip() or "real"))
        given = f' domain <"{domain}">' if domain is not None else ""
        block = f"^bb0({self._args(fields, values)}):"
        return f'upl.node @{name} <"{",".join(fields)}"> <"{ports}">{given} {{\n{block}\n{body}\n}}'

    def output(self, head: str, domain: str, type_: str = "real") -> str:
        """``output NAME<fields>`` with its domain."""
        name, fields = self._head(head)
        return f'upl.output @{name} <"{",".join(fields)}"> "{type_}" domain <"{domain}">'

    def param(self, name: str, where: str) -> str:
        """``param NAME`` with a condition."""
        return f'upl.param @{name} where <"{where}">'

    def program(self, *pieces: str) -> ProgramOp:
        """The parsed and verified program."""
        context = Context()
        for dialect in (Builtin, UPL, arith.Arith, math.Math):
            context.load_dialect(dialect)
        module = Parser(context, "builtin.module { upl.program @p {\n" + "\n".join(pieces) + "\n} }").parse_module()
        module.verify()
        return program_of(module)

    def perceptron(self, sizes: list[int]) -> ProgramOp:
        """The perceptron of LANGUAGE section 2 with layers of the given sizes and parameter D."""
        table = ", ".join(map(str, sizes))
        return self.program(
            self.param("D", "D>=1"),
            f"upl.const @K = {len(sizes)} : i64",
            f'upl.array @N <"0"> to <"K-1"> from 0 : i64 = array<i64: {table}>',
            self.input("X<d,i>", "1<=d<=D && 1<=i<=N[0]", 'upl.send %X -> @Res::@r <"d,1,i"> : f64'),
            self.input(
                "W<d,k,i,j>", "1<=d<=D && 1<=k<K && 1<=i<=N[k-1] && 1<=j<=N[k]",
                'upl.send %W -> @Link::@w <"d,k,i,j"> : f64',
            ),
            self.node(
                "Res<d,k,i>", "r",
                """upl.send %r -> @Link::@r <"d,k,i,*"> count <"N[k]"> when <"k<K"> : f64
                upl.send %r -> @R <"d,i"> when <"k==K"> : f64""",
            ),
            self.node(
                "Link<d,k,i,j>", "r, w",
                """%p = arith.mulf %r, %w : f64
                upl.send %p -> @Sum::@s <"d,k,j"> count <"N[k-1]"> : f64""",
            ),
            self.node("Sum<d,k,i>", "@(+) s[#]", 'upl.send %s -> @AF_ReLU::@s <"d,k,i"> : f64'),
            self.node(
                "AF_ReLU<d,k,i>", "s",
                """%0 = arith.constant 0.0 : f64
                %1 = arith.cmpf ogt, %s, %0 : f64
                %b = upl.let "b" %1 : i1
                %2 = arith.uitofp %b : i1 to f64
                %3 = arith.mulf %2, %s : f64
                upl.send %3 -> @Res::@r <"d,k+1,i"> : f64""",
            ),
            self.output("R<d,i>", "1<=d<=D && 1<=i<=N[K-1]"),
        )  # fmt: skip


@pytest.fixture(scope="session")
def ir() -> Ir:
    """Writer of programs."""
    return Ir()


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator of reproducible data."""
    return np.random.default_rng(20240229)
