"""A circuit on a Wishbone bus: its arrays lie in memory, which it reads and writes by itself; registers start it."""
