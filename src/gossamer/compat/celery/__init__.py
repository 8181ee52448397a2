"""Gossamer for teams that run Celery: `attach(app)` gives an app the tasks of a project, and Beat the entries to send.

Here are the names, queues and options of the tasks; project/jobs/slices.py does the work. A Celery message never stands
for a page: it stands for a slice of work, and pages are leased from the project's own queue (docs/celery.md).

`celery -A gossamer.compat.celery worker -B -c 4` runs the project of the working directory with no app of one's own.
"""

from typing import Any

from .attach import Attached, attach

__all__ = ["Attached", "attach"]


def __getattr__(name: str) -> Any:  # Any: a Celery app
    """The app of the project in the working directory, made when `celery -A` asks for it."""
    if name != "app":
        raise AttributeError(name)
    from .attach import project_app

    app = globals()["app"] = project_app()
    return app
