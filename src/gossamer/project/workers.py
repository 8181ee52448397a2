"""The processes that work on a project: which there are, and whether a scheduler begins the runs of its schedules."""

from __future__ import annotations

from .open import Project


async def lacks_scheduler(project: Project) -> bool:
    """Does the project have schedules, and no scheduler that begins their runs?"""
    if await project.state.schedules.leader() is not None:
        return False
    return bool(project.settings.schedules or await project.state.schedules.schedules())
