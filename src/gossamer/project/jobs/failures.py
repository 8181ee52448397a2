"""What the failed pages of a job have in common: the largest groups of its dead letters. The rules are in
model/failure_groups.py.

The latest LOOKED_AT letters are read, however many there are, and the answer says so. Letters that a replay has mended
are no letters any more, so groups shrink with them.
"""

from __future__ import annotations

from ...frontier.contract import DeadFilter
from ...model.failure_groups import LARGEST, Failures, group_failures
from ..open import Project

LOOKED_AT = 1_000  # dead letters


async def failures_of(project: Project, which: DeadFilter, total: int, *, largest: int = LARGEST) -> Failures | None:
    """The largest groups of these dead letters, of which there are `total`; None if there are none."""
    if not total:
        return None
    return group_failures(await project.state.queue.dead(which, LOOKED_AT), total=total, largest=largest)
