"""Frontends: from what users write (`.upl` text, einsums, Python) to the dialect."""
