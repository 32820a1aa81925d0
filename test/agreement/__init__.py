"""Agreement of everything with everything on random programs: generator, naive reference, mutants, properties, soak."""
