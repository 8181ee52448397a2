"""The sites of a job whose source another worker reads: links may lead there, and only he knows them all.

Asked for before the links of a page are judged. A site that is known costs nothing; an unknown one is looked up, until
all of the source is in. A state that is away leaves things as they are: what is dropped then was never certain to stay.
"""

from __future__ import annotations

from ..errors import Transient
from ..frontier.contract import JobBook, SeedBook


class Neighbours:
    """Of one job in one process. `sites` grows."""

    def __init__(self, jobs: JobBook, seeds: SeedBook, job: str, sites: set[str]) -> None:
        self._jobs = jobs
        self._seeds = seeds
        self._job = job
        self._sites = sites
        self._complete = False

    async def meet(self, site: str) -> None:
        """See that `site` is among them, if anybody has found it."""
        if self._complete or site in self._sites:
            return
        try:
            sealed = await self._jobs.is_sealed(self._job)
            self._sites.update((await self._seeds.findings(self._job)).sites)
        except Transient:
            return
        self._complete = sealed
