"""Hardware: the tagged-token machine that UPL programs run on, as RTL, and its simulation."""
