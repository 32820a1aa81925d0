"""What a sweep over circuits varies: how the circuit of a program is to be made."""

from __future__ import annotations

from typing import Any

import msgspec

from upl_mlir.diagnostics import UplError, did_you_mean, error
from upl_mlir.hw.toml_file import Places
from upl_mlir.passes.circuit.choose import Wish
from upl_mlir.passes.lower_to_circuit import wish

SECTION = "circuit"


class Design(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of `lower-circuit`."""

    lanes: int = 1
    along: str | None = None
    share: bool = False
    real: str = "f32"

    @property
    def wish(self) -> Wish:
        """The same as the pass takes it.  Raises UplError as there."""
        return wish(self.lanes, self.along, None, self.share, self.real)


def design_of(data: dict[str, Any], places: Places, what: str) -> Design:
    """The design of a table's contents.  `UplError` UPL1741 for a key that is not known, UPL1742 for a wrong value, at the
    key's line; `what` is the file that has them."""
    known = Design.__struct_fields__
    for key, value in data.items():
        place = places.of(f"{SECTION}.{key}")
        if key not in known:
            helping = did_you_mean(key, known) or "known keys: " + ", ".join(known)
            raise error("UPL1741", f"{what}: unknown key `{key}` in [{SECTION}]", place, help=helping)
        try:
            msgspec.convert({key: value}, Design)
        except msgspec.ValidationError as cause:
            message = str(cause).partition(" - at ")[0]
            raise error("UPL1742", f"{what}: {SECTION}.{key}: {message}", place) from None
    made = msgspec.convert(data, Design)
    try:
        _ = made.wish
    except UplError as e:
        found = e.diagnostics[0]
        key = "lanes" if made.lanes < 1 else "real"
        raise error("UPL1742", f"{what}: {found.message}", places.of(f"{SECTION}.{key}"), help=found.help) from None
    return made
