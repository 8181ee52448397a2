"""A station: one process that works on every running job of the project. What `gossamer worker` runs.

Here: serving.py (the station itself), places.py (who is served next, pure), obstacles.py (why a job cannot work now),
bulletin.py (what is said about jobs).
"""

from .serving import WorkerPool

__all__ = ["WorkerPool"]
