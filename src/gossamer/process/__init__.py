"""A child process that is watched: supervisor, signals, limits."""
