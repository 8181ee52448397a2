"""Targets of outputs, one file per kind. open.py opens one by its address."""
