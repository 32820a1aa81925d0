"""A program of loops cut into blocks for several ranks, which exchange what they need of each other."""
