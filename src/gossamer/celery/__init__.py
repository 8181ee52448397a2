"""Gossamer for teams that operate Celery: `attach(app)` gives an app the tasks of a project, and Beat what it sends.

What lives here: names, queues and options of the tasks. What they do is in project/slices.py. A message of Celery never
stands for a page: it stands for a slice of work, and pages are leased from the project's own queue (docs/celery.md).
"""

from .attach import Attached, attach

__all__ = ["Attached", "attach"]
