"""From equations to a circuit: one process with a static schedule in space and time, its units, channels and ports."""
