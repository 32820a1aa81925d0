"""numpy's functions on traced arrays: of elements, folds, orders, matrices; and the table where numpy's protocols find them.

None of them has a derivative here: that is UPL's business.
"""
