"""The processes of `gossamer crawl --processes N`, as each sees the others. process/lone_child.py forks them."""

from __future__ import annotations

import sys
import time
from datetime import timedelta

from ...errors import Misconfigured
from ...process.black_box import PARENT
from ...process.black_box import Crew as Crew  # re-exported for callers that crawl with a crew
from ...process.lone_child import MOST_PROCESSES, process_count

LOOK = timedelta(milliseconds=20)  # how often a helper checks whether there is work


def crew_of(processes: str, *, replay: bool) -> Crew | None:
    """The processes of this crawl; None for a single process. A helper waits here until the job is open. Raises
    Misconfigured."""
    crew = PARENT.crew
    if crew is not None and crew.helps:
        from ..workers import service  # noqa: F401  # loads what fetches while the first process does so, too

        while not crew.job:  # if the first process fails, its helpers end with it
            time.sleep(LOOK.total_seconds())
        crew.join()
    count = process_count(processes)
    if count is None:
        raise Misconfigured(f"--processes takes 1 to {MOST_PROCESSES}, or auto: one for each core.")
    if count > 1 and replay:
        raise Misconfigured("--replay runs in one process: leave out --processes.")
    if count > 1 and crew is None:
        needed = "a program that began as `gossamer` or `python -m gossamer`" if sys.platform == "linux" else "Linux"
        raise Misconfigured(
            f"--processes needs {needed}. Or start the same command in several terminals: they share the work."
        )
    return crew
