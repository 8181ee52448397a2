"""How good the results are, measured on pages and texts with known answers. `python -m quality` prints the tables."""
