"""Watched child processes: supervisor, signals, limits."""
