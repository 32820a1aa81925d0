"""Set-up of the tests of circuits: their common module can be imported, and all share a cache of libraries."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
