"""The engine "circuit": a program as hardware of its own, simulated clock by clock."""
