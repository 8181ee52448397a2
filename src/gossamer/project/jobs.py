"""The jobs of a project."""

from __future__ import annotations

import difflib

from ..errors import Misconfigured
from ..model.job import Job
from .open import Project


async def find_job(project: Project, wanted: str) -> Job:
    """The job with that id, else the newest one with that name. Raises Misconfigured with a suggestion."""
    every = await project.state.jobs.jobs()
    for job in every:
        if job.id == wanted:
            return job
    for job in every:
        if job.name == wanted:
            return job
    near = difflib.get_close_matches(wanted, [name for job in every for name in (job.id, job.name)], n=1)
    hint = f"Did you mean {near[0]}?" if near else "`gossamer status` lists all of them."
    raise Misconfigured(f"There is no job {wanted!r}. {hint}")
