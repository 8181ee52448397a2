"""Turns events into counts, progress and logs. No stage imports this package, and it draws nothing: the command line
does."""
