"""The reference: UPL programs by the letter of docs/language.md, one function for each thing of the language.

`evaluate` moves tokens (LANGUAGE 3), `bodies` says what one instance sends, `values` computes with numbers, `points` reads
index expressions and finds the points of a domain, `reports` says what went wrong.  Nothing here is generated, compiled or
shared with what it checks: it imports the dialect and the data of `poly.expr` and `poly.operators`, no pass, no engine.
"""

from upl_mlir.engines.reference.evaluate import Evaluator, Result

__all__ = ["Evaluator", "Result"]
