"""The second opinion on a run of a machine in RTL: its firings and additions once more, in binary32 by NumPy.

Floating-point sums depend on the order of additions, and the machine adds in the order in which things come. What it did
is recorded: which instance fired when, and which two operands met in each operation of a gather. The same firings and
the same trees of additions are then computed here, from the host's tokens on; the outputs must be the same bits, whatever
the data. On the way the rules of matching are checked: every firing finds a token on each input, no instance fires twice,
no token is used more often than its multiplicity says, none is left, each gather uses every summand once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from upl_mlir.diagnostics import UplError, error
from upl_mlir.engines.rtl.observe.stranded import place
from upl_mlir.engines.rtl.observe.watch import Events
from upl_mlir.hw.core.code.encode import Encoded
from upl_mlir.hw.core.layouts import FIRST_GATHER, LAST_PIPELINED, Mode
from upl_mlir.hw.execute import Scalar, Sent, from_bits, run_activation, to_bits
from upl_mlir.hw.image import Node, ProgramImage, pack, unpack
from upl_mlir.hw.microcode import ToHost, ToNode, ValueType
from upl_mlir.hw.results import HostToken, OutputElement

Operation = tuple[int, int]
"""The bits of the operands that met."""


class Observer:
    """Who wants to know what happens in a re-execution; tokens have the numbers that `sent` and `given` return."""

    def fired(self, node: int, index: Sequence[int], used: Sequence[int], spent: Sequence[int], event: int) -> None:
        """The firing that is the `event`-th record of them took part in the use of some tokens; of those `spent` is nothing
        left."""

    def sent(self, target: ToNode | ToHost, index: tuple[int | None, ...], value: Scalar | float, times: int | None) -> int:
        """A token is sent by the host, if nothing has fired yet, or else by the firing before."""
        return 0


def check_run(
    image: ProgramImage, program: Encoded, tokens: Iterable[HostToken], outputs: Iterable[OutputElement],
    seen: dict[str, Events],
) -> None:  # fmt: skip
    """Compare a finished run with its re-execution.

    Raises `UplError` UPL1709 where they differ: a fault of the machine, not of the program.
    """
    repeat(image, program, tokens, seen, Observer()).compare(list(outputs))


def repeat(
    image: ProgramImage, program: Encoded, tokens: Iterable[HostToken], seen: dict[str, Events], observer: Observer
) -> _Run:
    """Execute a recorded run again, as far as it went.  Raises as `check_run`."""
    again = _Run(image, program, observer)
    for _, _, node, input_, tag, left, right in seen["added"].rows("node", "input", "tag", "left", "right"):
        again.trees.setdefault((node, input_, tag), []).append((left, right))
    for boot in image.boot:
        node = image.nodes[boot.node]
        there = again.whole if boot.rank is None else again.empty
        there[boot.node, boot.input, pack(node.fields, boot.index, "")[0]] = to_bits(
            boot.value, node.inputs[boot.input].type
        )
    for token in tokens:
        value, times = cast("Scalar", token.value), token.multiplicity
        again.take(Sent(ToNode(token.node, token.input), token.index, value, times, token.present))
    for n, (_, _, node, tag) in enumerate(seen["fired"].rows("node", "tag")):
        again.fire(n, node, tag)
    return again


def _wrong(what: str) -> UplError:
    notes = ["this is a fault of the machine, not of the program"]
    return error("UPL1709", f"the machine's run is not what its program says: {what}", notes=notes)


@dataclass
class _Token:
    number: int
    bits: int
    left: int | None


@dataclass
class _Gather:
    summands: list[int] = field(default_factory=list[int])
    numbers: list[int] = field(default_factory=list[int])
    stated: int | None = None


@dataclass
class _Run:
    """The state of the re-execution: tokens that wait, by node, input, and the bits of the tag that the input has."""

    image: ProgramImage
    program: Encoded
    observer: Observer
    trees: dict[tuple[int, int, int], list[Operation]] = field(default_factory=dict[tuple[int, int, int], list[Operation]])
    waiting: dict[tuple[int, int, int], list[_Token]] = field(default_factory=dict[tuple[int, int, int], list[_Token]])
    gathers: dict[tuple[int, int, int], _Gather] = field(default_factory=dict[tuple[int, int, int], _Gather])
    whole: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int])
    empty: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int])
    """Open gathers that are known to exist, and what they have without summands."""
    fired: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    outputs: dict[tuple[str, tuple[int | None, ...]], int] = field(
        default_factory=dict[tuple[str, tuple[int | None, ...]], int]
    )

    def take(self, sent: Sent) -> None:
        """A token comes to a node."""
        target, index, value, times = sent.target, sent.index, sent.value, sent.multiplicity
        assert isinstance(target, ToNode)
        node = self.image.nodes[target.node]
        tag, wild = pack(node.fields, index, "")
        key = (target.node, target.input, _open_key(tag, [n for n in range(len(index)) if wild >> n & 1]))
        bits = to_bits(value, node.inputs[target.input].type)
        if sent.present:
            self.empty[key] = bits
            return
        token = self.observer.sent(target, index, value, times)
        if self.program.modes[target.node][target.input] >= FIRST_GATHER:
            gather = self.gathers.setdefault(key, _Gather())
            gather.summands.append(bits)
            gather.numbers.append(token)
            if times is not None:
                if gather.stated not in (None, times):
                    raise _wrong(f"{place(node, target.input, index)} has two numbers of summands, or two ranks")
                gather.stated = times
        else:
            self.waiting.setdefault(key, []).append(_Token(token, bits, times))

    def fire(self, event: int, number: int, tag: int) -> None:
        """An instance fires: its tokens are used up, what it sends is on its way."""
        node = self.image.nodes[number]
        index = [i for i in unpack(node.fields, tag) if i is not None]
        if (number, tag) in self.fired:
            raise _wrong(f"{_name(node, index)} fires twice")
        self.fired.add((number, tag))
        values: list[Scalar] = []
        used, spent = list[int](), list[int]()
        for input_, port in enumerate(node.inputs):
            values.append(from_bits(self._used(node, number, input_, tag, index, used, spent), port.type))
        self.observer.fired(number, index, used, spent, event)
        for sent in run_activation(self.image, node, index, values):
            self._send(sent)

    def _used(
        self, node: Node, number: int, input_: int, tag: int, index: Sequence[int], used: list[int], spent: list[int]
    ) -> int:  # fmt: skip
        """The bits of the token that a firing takes from an input; it is noted in `used`, and in `spent` if it was the last
        time."""
        mode = self.program.modes[number][input_]
        if mode >= FIRST_GATHER:
            gather = self.gathers.get((number, input_, tag), _Gather())
            used += gather.numbers
            spent += gather.numbers
            return self._gathered(node, mode, (number, input_, tag))
        pattern = self.program.patterns.get((number, input_))
        tokens: list[_Token] = []
        for wild in pattern.choices if pattern is not None else [frozenset[int]()]:
            key = tag
            for n in wild:
                key &= ~node.fields[n].mask
            tokens = tokens or self.waiting.get((number, input_, _open_key(key, wild)), [])
        if not tokens:
            raise _wrong(f"{_name(node, index)} fires without a token on `{node.inputs[input_].name}`")
        first = tokens[0]
        used.append(first.number)
        if first.left is not None:
            first.left -= 1
            if not first.left:
                spent.append(first.number)
                tokens.pop(0)
        return first.bits

    def _gathered(self, node: Node, mode: Mode, key: tuple[int, int, int]) -> int:
        """The result of a gather, by the tree of operations that the machine made."""
        if key in self.whole:
            return self.whole.pop(key)
        where = place(node, key[1], unpack(node.fields, key[2]))
        gather, empty = self.gathers.pop(key, None), self.empty.pop(key, None)
        if gather is None and empty is not None:
            return empty
        if gather is None or not (node.inputs[key[1]].open or gather.stated == len(gather.summands)):
            there, wanted = (0, "some") if gather is None else (len(gather.summands), gather.stated)
            raise _wrong(f"{where} was complete with {there} of {wanted} summands")
        operation = _OPERATIONS[mode]
        if mode > LAST_PIPELINED:
            result = gather.summands[0]
            for bits in gather.summands[1:]:
                result = operation(result, bits)
            return result
        values = Counter(gather.summands)
        for left, right in self.trees.pop(key, []):
            for bits in (left, right):
                if not values[bits]:
                    raise _wrong(f"an operation of {where} has the operand {bits:#010x}, which is not there")
                values[bits] -= 1
            values[operation(left, right)] += 1
        rest = list(values.elements())
        if len(rest) != 1:
            raise _wrong(f"the operations of {where} leave {len(rest)} values")
        return rest[0]

    def _send(self, sent: Sent) -> None:
        match sent.target:
            case ToNode():
                self.take(sent)
            case ToHost(number):
                output = self.image.outputs[number]
                self.observer.sent(sent.target, sent.index, sent.value, 1)
                self.outputs[output.name, sent.index] = to_bits(sent.value, output.type)

    def compare(self, outputs: list[OutputElement]) -> None:
        """The outputs of the machine against ours; and nothing may be left over."""
        types = {o.name: o.type for o in self.image.outputs}
        for name, index, value in outputs:
            wanted = self.outputs.pop((name, index), None)
            got = to_bits(value, types[name])
            if wanted != got:
                expected = "nothing" if wanted is None else f"{from_bits(wanted, types[name])}"
                raise _wrong(f"{name}<{','.join(map(str, index))}> is {value}, computed again it is {expected}")
        if self.outputs:
            name, index = next(iter(self.outputs))
            raise _wrong(f"{name}<{','.join(map(str, index))}> never came")
        for (number, input_, tag), tokens in self.waiting.items():
            if any(t.left is not None for t in tokens):
                node = self.image.nodes[number]
                raise _wrong(f"a token at {place(node, input_, unpack(node.fields, tag))} was not used")
        for number, input_, tag in (*self.gathers, *self.trees, *self.whole, *self.empty):
            node = self.image.nodes[number]
            raise _wrong(f"the gather at {place(node, input_, unpack(node.fields, tag))} was not used")


def _open_key(tag: int, wild: Iterable[int]) -> int:
    """A tag with its `*` fields, which may differ from token to token, noted above its 64 bits."""
    return tag | sum(1 << (64 + n) for n in wild)


def _name(node: Node, index: Sequence[int]) -> str:
    return f"{node.name}<{','.join(map(str, index))}>"


def _real(function: Callable[[np.float32, np.float32], np.float32]) -> Callable[[int, int], int]:
    """An operation on binary32 as one on bits; NaNs come out canonical."""

    def on_bits(left: int, right: int) -> int:
        with np.errstate(all="ignore"):
            value = function(np.uint32(left).view(np.float32), np.uint32(right).view(np.float32))
        return to_bits(value, ValueType.F32)

    return on_bits


def _integer(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def on_bits(left: int, right: int) -> int:
        return function(left - (left >> 31 << 32), right - (right >> 31 << 32)) & 0xFFFFFFFF

    return on_bits


def _least(left: np.float32, right: np.float32) -> np.float32:
    """A NaN wins over numbers, -0 is less than +0."""
    if np.isnan(left) or np.isnan(right):
        return np.float32(np.nan)
    return min(left, right, key=lambda v: (v, not np.signbit(v)))


_OPERATIONS: dict[Mode, Callable[[int, int], int]] = {
    Mode.ADD_F32: _real(lambda a, b: a + b),
    Mode.MUL_F32: _real(lambda a, b: a * b),
    Mode.MIN_F32: _real(_least),
    Mode.MAX_F32: _real(lambda a, b: -_least(-a, -b)),
    Mode.MUL_I32: _integer(lambda a, b: a * b),
    Mode.ADD_I32: _integer(lambda a, b: a + b),
    Mode.MIN_I32: _integer(min),
    Mode.MAX_I32: _integer(max),
    Mode.AND_BOOL: _integer(lambda a, b: a & b),
    Mode.OR_BOOL: _integer(lambda a, b: a | b),
    Mode.XOR_BOOL: _integer(lambda a, b: a ^ b),
}
