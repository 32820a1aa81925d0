"""`python -m upl_mlir`: the command `upl`, where its script is not on the path."""

import sys

from upl_mlir.tools.upl import main

if __name__ == "__main__":
    sys.exit(main())
