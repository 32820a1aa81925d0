"""Program images: packing of indices, what contradicts itself, the plain form."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upl_mlir.diagnostics import UplError
from upl_mlir.hw.image import BootToken, HostOutput, Input, Node, ProgramImage, Table, layout_fields, pack, unpack
from upl_mlir.hw.machine import Machine
from upl_mlir.hw.microcode import Constant, Instruction, Loop, Op, Send, ToHost, ToNode, ValueType

I32 = ValueType.I32
FIELD = Instruction(0, Op.FIELD, immediate=0)
SEND = Send(ToHost(0), value=0, index=(0,))
NODE = Node("N", layout_fields([("i", -3, 4)]), (Input("x", I32),), (FIELD,), (SEND,))
IMAGE = ProgramImage("p", (NODE,), (HostOutput("O", ("i",), I32),), (Table("T", I32, (0,), (2,), (5, 6)),))


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 70), st.integers(0, 70), st.booleans()), max_size=5))
def test_packing_is_reversible(parts: list[tuple[int, int, int, bool]]) -> None:
    fields = layout_fields([(f"f{n}", low, low + extent) for n, (low, extent, _, _) in enumerate(parts)])
    index = tuple(None if wild else low + min(at, extent) for low, extent, at, wild in parts)
    assert unpack(fields, *pack(fields, index, "a token")) == index
    covered = 0
    for place in fields:
        assert not covered & place.mask
        covered |= place.mask


def test_a_value_outside_of_its_field() -> None:
    with pytest.raises(UplError, match=r"error\[UPL1712\]: a token: i = 5 does not fit in its 3 bits \(-3..4\)"):
        pack(NODE.fields, (5,), "a token")


def test_a_sound_image() -> None:
    IMAGE.validate(Machine())
    assert IMAGE.node("N") == 0
    with pytest.raises(KeyError):
        IMAGE.node("M")


def with_send(**changes: object) -> ProgramImage:
    return replace(IMAGE, nodes=(replace(NODE, sends=(replace(SEND, **changes),)),))  # pyright: ignore


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (with_send(value=7), "value, index or multiplicity is not computed"),
        (with_send(index=()), "the index has 0 fields, the target 1"),
        (with_send(index=(None,)), r"`\*` in the index of an output"),
        (with_send(target=ToHost(3)), "no such output"),
        (with_send(target=ToNode(4, 0)), "no such node"),
        (with_send(target=ToNode(0, 4)), "no such input of N"),
        (with_send(guard=5), "the guard is not computed"),
        (with_send(predicate=5), "the predicate is not computed"),
        (with_send(loops=(Loop(1, 0, 5),)), "a bound is not computed"),
        (with_send(multiplicity=Constant(0)), "multiplicity 0"),
        (replace(IMAGE, nodes=(replace(NODE, body=(FIELD, FIELD)),)), "register 0 is written twice"),
        (replace(IMAGE, nodes=(replace(NODE, body=(Instruction(1, Op.NEG_I32, (0,)), FIELD)),)), "is not written"),
        (replace(IMAGE, nodes=(replace(NODE, inputs=()),)), "has no input"),
        (replace(IMAGE, nodes=(replace(NODE, fields=NODE.fields * 2),)), "field i overlaps another"),
        (replace(IMAGE, boot=(BootToken(0, 0, (0,), 0),)), "a boot token for an ordinary input"),
        (replace(IMAGE, tables=(Table("T", I32, (0,), (3,), (5, 6)),)), "shape and values disagree"),
    ],
)
def test_images_that_contradict_themselves(image: ProgramImage, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        image.validate(Machine())


def test_the_plain_form_is_json() -> None:
    plain = IMAGE.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert set(plain) == {"name", "nodes", "outputs", "tables", "boot"}
    text = json.dumps(plain)
    assert '"op": "field"' in text
    assert '"kind": "ToHost", "output": 0' in text
