"""What the tools print for some generated programs: run under several PYTHONHASHSEED, the texts must be equal.

    python -m agreement.outputs 0 1 2          (seeds; with the folder `test` on the path)
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agreement.generator import generate
from agreement.properties import real_ports


def main(seeds: Sequence[str]) -> None:
    """Print everything about the programs of the seeds."""
    import upl_mlir as upl
    from upl_mlir.tools import upl as workbench
    from upl_mlir.tools import upl_opt

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for seed in map(int, seeds):
            text = generate(seed).text()
            print(text)
            path = f"random{seed}.upl"  # reports name it
            Path(path).write_text(text, encoding="utf-8")
            outs, ins = real_ports(upl.load(text))
            print("exit", upl_opt.main([path, "--infer-domains", "-t", "upl"]))
            print("exit", upl_opt.main([path, "--infer-domains", "-t", "mlir"]))
            if outs and ins:
                wrt = ",".join(f"wrt={w}" for w in ins)
                print("exit", upl_opt.main([path, f"--autodiff=of={outs[0]},{wrt}", "-t", "upl"]))
            print("exit", workbench.main(["check", path, "--json"]))


if __name__ == "__main__":
    main(sys.argv[1:])
