"""Gossamer beside its peers and against its own promises. Each module is one command that prints one table."""
