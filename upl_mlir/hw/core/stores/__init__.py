"""The stores of a core: sets of records, backing memory, parity."""
