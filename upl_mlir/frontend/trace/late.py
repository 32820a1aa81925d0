"""Functions that traced arrays call, and that are made of traced arrays: `array.py` and `functions` put them here.

So that arrays, loop indices and numpy's functions can stand in modules that import each other in one direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LATE: dict[str, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}
"""The methods of arrays, as numpy's have them, by name."""
