"""Programs for several ranks on the command line."""
