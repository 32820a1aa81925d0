"""The statements of a circuit: the equations of a program in the form in which each becomes a process."""
