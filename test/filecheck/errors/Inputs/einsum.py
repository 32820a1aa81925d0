"""Write an einsum case from B to A: FILE KERNEL."""

import json
import sys
from pathlib import Path

file, kernel = sys.argv[1:]
case = {"name": "t", "ins": ["B"], "outs": ["A"], "data_type": "float", "kernel": kernel}
Path(file).write_text(json.dumps(case), encoding="utf-8")
