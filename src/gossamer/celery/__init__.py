"""Gossamer for teams that run Celery: `attach(app)` gives an app the tasks of a project, and Beat the entries to send.

Here are the names, queues and options of the tasks; project/jobs/slices.py does the work. A Celery message never stands
for a page: it stands for a slice of work, and pages are leased from the project's own queue (docs/celery.md).
"""

from .attach import Attached, attach

__all__ = ["Attached", "attach"]
