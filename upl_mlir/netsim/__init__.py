"""Machine code of a circuit: a netlist becomes C++ that evaluates, each cycle, only the parts whose inputs have changed."""
