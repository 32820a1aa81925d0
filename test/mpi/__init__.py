"""Programs on several ranks: distribution, proofs, runs under `mpiexec`."""
