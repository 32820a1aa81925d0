"""Attributes of the `ttm` dialect: the index fields of a tag with their layout, and the inputs of a node."""

from __future__ import annotations

import re
from dataclasses import dataclass

from xdsl.dialects.builtin import f32, i1, i32
from xdsl.ir import Attribute
from xdsl.irdl import irdl_attr_definition

from upl_mlir.dialects.upl.attributes import ListAttr, matched
from upl_mlir.dialects.upl.gathers import Gather
from upl_mlir.poly.parse import PolySyntaxError

TYPES: dict[str, Attribute] = {"f32": f32, "i32": i32, "i1": i1}
"""The types of the machine's values, by name."""

MAX_FIELD_BITS = 64
"""Width of an index field that can be written; what a machine has is in its description."""


@dataclass(frozen=True)
class Field:
    """An index field: value v travels as ``v - bias`` in `bits` bits."""

    name: str
    bias: int
    bits: int

    @property
    def last(self) -> int:
        """The greatest value that fits; the least is `bias`."""
        return self.bias + (1 << self.bits) - 1

    def __str__(self) -> str:
        return f"{self.name} from {self.bias} bits {self.bits}"


@dataclass(frozen=True)
class Input:
    """An input: `type` is f32, i32 or i1; `gather` its operator, or None for an ordinary input; `open`: the gather ends when
    no summand can come any more."""

    name: str
    type: Attribute
    gather: Gather | None = None
    open: bool = False

    def __str__(self) -> str:
        operator = f"@({self.gather.value}) " if self.gather else ""
        return f"{operator}{self.name}{'[##]' if self.open else ''}: {self.type}"


_NAME = r"[^\W\d]\w*"
_FIELD = re.compile(rf"({_NAME}) from (-?\d+) bits (\d{{1,9}})")
_INPUT = re.compile(rf"(?:@\(([^()]*)\) *)?({_NAME})(\[##\])? *: *(\w+)")


@irdl_attr_definition
class FieldsAttr(ListAttr[Field]):
    """Index fields in a tag, the first one lowest: ``#ttm.fields<"d from 1 bits 2, k from 0 bits 3">``.

    A field holds the values from its bias on that fit in its bits: `k` those from 0 to 7.
    """

    name = "ttm.fields"

    @classmethod
    def _item(cls, text: str) -> Field:
        name, bias, bits = matched(_FIELD, text, "`NAME from BIAS bits WIDTH`").groups()
        if int(bits) > MAX_FIELD_BITS:
            raise PolySyntaxError(f"the field `{name}` has {bits} bits; at most {MAX_FIELD_BITS} can be written", 0)
        return Field(name, int(bias), int(bits))


@irdl_attr_definition
class InputsAttr(ListAttr[Input]):
    """The inputs of a node, with their types: ``#ttm.inputs<"x: f32, n: i32, @(+) s: f32">``.

    An input with an operator in front is a gather: it folds its summands, and each summand says how many there are.
    With `[##]` behind the name it is an open gather, which ends when no summand can come any more: ``@(+) s[##]: f32``.
    """

    name = "ttm.inputs"

    @classmethod
    def _item(cls, text: str) -> Input:
        operator, name, open_, type_ = matched(_INPUT, text, "`NAME: TYPE` or `@(OPERATOR) NAME: TYPE`").groups()
        if type_ not in TYPES:
            raise PolySyntaxError(f"unknown type `{type_}`: expected one of {', '.join(TYPES)}", 0)
        operators = {g.value: g for g in Gather}
        if operator is not None and operator not in operators:
            raise PolySyntaxError(f"unknown gather operator `{operator}`: expected one of {', '.join(operators)}", 0)
        if open_ and operator is None:
            raise PolySyntaxError(f"`{name}[##]` is an open gather and needs an operator: `@(+) {name}[##]`", 0)
        return Input(name, TYPES[type_], None if operator is None else operators[operator], open_ is not None)
