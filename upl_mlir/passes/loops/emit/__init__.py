"""From scheduled programs of loops to functions of `scf`, `memref` and `linalg`."""
