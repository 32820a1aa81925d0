"""A node's code as the words of a core, and the functions that are sequences of its instructions."""
