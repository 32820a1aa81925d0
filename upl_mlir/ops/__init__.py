"""The registry of elementary functions: what all parts of the compiler know of one stands in one row.

`functions.py` has the rows; `values.py` the Python values with which a row writes derivatives and expansions.  What a part
must do for arithmetic itself (`+`, comparisons, conversions) stands with that part; gather operators are rows of
`dialects/upl/gathers.py`, for the dialect reads them.
"""

from upl_mlir.ops.functions import BY_OP, FUNCTIONS, SPOKEN, Function, expansion, total
from upl_mlir.ops.values import Body, Val

__all__ = ["BY_OP", "FUNCTIONS", "SPOKEN", "Body", "Function", "Val", "expansion", "total"]
