"""The JSON of an einsum case: read strictly, so that a misspelt key is an error and not a default."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from upl_mlir.diagnostics import Sources, Span, UplError, decode, did_you_mean, error, read_bytes

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kernel with its interface.

    `ins` and `outs` name tensors of `kernel`; `grad_to` names those by which derivatives are wanted: of `ins`, and of the
    `outs` whose old contents are read.  The data types `float32` and `int32` are `float` and `int`, and are called so once
    a case has been read.
    """

    name: str
    ins: list[str]
    outs: list[str]
    data_type: Literal["float", "int", "float32", "int32"]
    kernel: str
    grad_to: list[str] = []


KEYS = tuple(f.name for f in msgspec.structs.fields(Case))


def read_case(path: Path) -> tuple[Case, Sources]:
    """The case in a file, with the texts that positions refer to.  Raises UplError (UPL1001, UPL1901)."""
    return parse_case(read_bytes(path), str(path))


def parse_case(data: bytes | str, file: str = "<json>") -> tuple[Case, Sources]:
    """The case that a JSON text states, with the texts that positions refer to.  Raises UplError (UPL1901).

    Positions inside the kernel are given in the file ``FILE:kernel``.
    """
    raw = data.encode("utf-8") if isinstance(data, str) else data
    text = decode(raw, file)
    sources = Sources({file: text})
    try:
        case = msgspec.json.decode(raw, type=Case, strict=True)
        _check(case, text, file)
        case = msgspec.structs.replace(case, data_type=case.data_type.removesuffix("32"))
    except msgspec.ValidationError as e:
        message, _, place = str(e).partition(" - at ")
        field = re.search(r"\$\.(\w+)", place) or re.search(r"unknown field `(\w+)`", message)
        name = field.group(1) if field else ""
        help = did_you_mean(name, KEYS) if name not in KEYS else None
        help = "one of `float` and `int`, both of 32 bits" if name == "data_type" else help
        raise _with(sources, error("UPL1901", _plain(message, place), _key_span(text, file, name), help=help)) from None
    except msgspec.DecodeError as e:
        at = re.search(r"byte (\d+)", str(e))
        span = _offset_span(raw, file, int(at.group(1)) if at else len(raw))
        what = re.sub(r"^JSON is malformed: ?| ?\(byte \d+\)", "", str(e))
        raise _with(sources, error("UPL1901", f"this is not JSON: {_lower(what)}", span)) from None
    except UplError as e:
        raise _with(sources, e) from None
    sources.add(kernel_file(file), case.kernel)
    return case, sources


def kernel_file(file: str) -> str:
    """The name under which positions inside the kernel of a file are reported."""
    return f"{file}:kernel"


def _with(sources: Sources, e: UplError) -> UplError:
    e.sources.texts.update(sources.texts)
    return e


def _plain(message: str, place: str) -> str:
    """msgspec's message in a sentence of ours, with the place it names."""
    message = re.sub(r"^Object contains unknown field `(\w+)`.*", r"there is no key `\1`", message)
    message = re.sub(r"^Object missing required field `(\w+)`.*", r"the key `\1` is missing", message)
    inside = place.strip("`").removeprefix("$").removeprefix(".")
    return f"`{inside}`: {_lower(message)}" if inside else _lower(message)


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _key_span(text: str, file: str, key: str) -> Span:
    """Where a key stands in the text; its first line where it does not."""
    found = re.search(rf'"{re.escape(key)}"\s*:', text) if key else None
    return _text_span(text, file, found.start(), len(key) + 2) if found else Span(file, 1, 1)


def _offset_span(raw: bytes, file: str, offset: int) -> Span:
    before = raw[:offset].decode("utf-8", "replace")
    return _text_span(before, file, len(before), 1)


def _text_span(text: str, file: str, at: int, width: int) -> Span:
    line = text.count("\n", 0, at) + 1
    col = at - (text.rfind("\n", 0, at) + 1) + 1
    return Span(file, line, col, line, col + width)


def _check(case: Case, text: str, file: str) -> None:
    """What JSON types do not say: names are names, lists have no doubles, derivatives are by inputs."""

    def complain(key: str, message: str, help: str | None = None) -> UplError:
        return error("UPL1901", f"`{key}`: {message}", _key_span(text, file, key), help=help)

    for key, names in (("name", [case.name]), ("ins", case.ins), ("outs", case.outs), ("grad_to", case.grad_to)):
        for name in names:
            if not NAME.match(name):
                raise complain(key, f"`{name}` is not a name", "letters, digits and `_`, no digit first")
        twice = _first_double(names)
        if twice is not None:
            raise complain(key, f"`{twice}` is listed twice")
    if not case.outs:
        raise complain("outs", "there is no result")
    ports = list(dict.fromkeys((*case.ins, *case.outs)))
    for name in case.grad_to:
        if name not in ports:
            raise complain("grad_to", f"`{name}` is not one of `ins` or `outs`", did_you_mean(name, ports))


def _first_double(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for n in names:
        if n in seen:
            return n
        seen.add(n)
    return None
