"""From functions of loops over memrefs to functions on tensors, with `linalg.generic` for parallel loops and sums."""
