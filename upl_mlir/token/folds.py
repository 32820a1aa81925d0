"""How gathers fold two values in C++, and how the values that they start from are written."""

from __future__ import annotations

from upl_mlir.dialects.upl import Gather

FOLD_REAL = {Gather.SUM: "{0} + {1}", Gather.PRODUCT: "{0} * {1}", Gather.MIN: "minimum({0}, {1})",
             Gather.MAX: "maximum({0}, {1})"}  # fmt: skip
FOLD_INT = {Gather.SUM: "add({0}, {1})", Gather.PRODUCT: "mul({0}, {1})", Gather.MIN: "min({0}, {1})",
            Gather.MAX: "max({0}, {1})"}  # fmt: skip
FOLD_BOOL = {Gather.AND: "{0} && {1}", Gather.OR: "{0} || {1}"}
LIMITS = {"INT_MAX": "INT64_MAX", "INT_MIN": "INT64_MIN", "True": "true", "False": "false"}
