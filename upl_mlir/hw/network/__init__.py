"""Networks that carry tokens between cores: crossbar, ring, mesh."""
