"""The transformations of programs of loops; `loops/passes.py` makes passes of them."""
