"""The `upl_loops` dialect: programs as arrays, statements and schedules."""
