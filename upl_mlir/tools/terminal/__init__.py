"""The terminal: how command lines are read, and messages coloured."""
