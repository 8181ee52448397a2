"""The journey of one URL (journey.py, read this first) and the worker that makes many at once (worker.py)."""
