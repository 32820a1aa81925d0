"""The machine: cores, and the fabric that joins them with each other and with the host."""
