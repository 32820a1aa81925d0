"""Programs on several ranks: native code for each rank's blocks, and MPI for what the ranks need of each other."""
