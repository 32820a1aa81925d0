"""Puts the folder `test` on the path: the modules of this folder are a package of their own, `mutation`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
