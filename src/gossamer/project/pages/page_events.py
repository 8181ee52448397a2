"""Webhook messages in Firecrawl's format for each page of a job that is running or has just ended.

What it does: reads the pages that the job has fetched, and enters a message for each page without one. Each webhook has
only a few open messages at a time: the outbox does not grow with the crawl, and a slow receiver gets messages more
slowly. The message about the end of the job waits until all of them are finished.
How it fails: BackendUnavailable, and the next look continues. How it recovers: the next process recognises by the ids
of the messages which pages were reported; beyond the CALLBACKS_KEPT newest it may report a page again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from ...access.contract import Callback, CallbackState
from ...model.job import Job
from ..jobs.api_views import encode
from ..open import Project
from ..sites.api_sites import listed_pages
from .results import PageOutcome, PageReader

PAGE = "page"
MOST_OPEN = 20  # unfinished messages about pages of one job
MOST_BODY = 1024 * 1024  # bytes; a longer page is reported without its content
LOOKS_SHARE = 5  # the pause is this many times as long as the look before it

Document = Callable[[PageOutcome, str], dict[str, Any]]  # a page in Firecrawl's format


class _Progress:
    """Which pages of one job have been reported."""

    def __init__(self) -> None:
        self.told: set[str] = set()  # names of reported pages
        self.open: set[str] = set()  # ids of messages
        self.next_at = 0.0  # on the monotonic clock


class PageEvents:
    """The page messages of all webhooks that want them. `document` turns a page into a document, `message` turns that
    into a callback."""

    def __init__(
        self,
        project: Project,
        pages: PageReader,
        document: Document,
        message: Callable[[Callback, str, dict[str, Any]], Callback],
    ) -> None:
        self._project = project
        self._pages = pages
        self._document = document
        self._message = message
        self._progress: dict[str, _Progress] = {}  # by id of the callback that waits for the end of the job

    def ended(self, id: str) -> None:
        """The message with that id is finished."""
        for one in self._progress.values():
            one.open.discard(id)

    def keep_only(self, ids: set[str]) -> None:
        """Drop the progress of all other callbacks."""
        self._progress = {id: one for id, one in self._progress.items() if id in ids}

    async def tell(self, waiting: Callback, job: Job, *, ended: bool) -> bool:
        """Enter messages about pages not reported yet. True if the job has ended and all its pages are reported."""
        progress = self._progress.setdefault(waiting.id, _Progress())
        clock = self._project.clock
        if len(progress.open) >= MOST_OPEN or (not ended and clock.monotonic() < progress.next_at):
            return False
        began = clock.monotonic()
        full = await self._enter_new(waiting, job, progress)
        progress.next_at = clock.monotonic() + LOOKS_SHARE * (clock.monotonic() - began)
        return ended and not full and not progress.open

    async def _enter_new(self, waiting: Callback, job: Job, progress: _Progress) -> bool:
        """False if every fetched page is reported."""
        book = self._project.state.callbacks
        async with aclosing(listed_pages(self._project, job)) as listed:
            async for page in listed:
                name = page.id or page.request.url
                if name in progress.told:
                    continue
                if len(progress.open) >= MOST_OPEN:
                    return True
                known = await book.callback(self._message(waiting, name, {}).id)
                if known is None:
                    outcome = await self._pages.outcome(job, page)
                    if outcome.data is None:
                        continue  # not fetched yet, or cannot be fetched
                    known = self._message(waiting, name, self._bounded(self._document(outcome, name)))
                    await book.enter(known)
                progress.told.add(name)
                if known.state is CallbackState.DUE:
                    progress.open.add(known.id)
        return False

    def _bounded(self, document: dict[str, Any]) -> dict[str, Any]:
        if len(encode(document)) <= MOST_BODY:
            return document
        words = f"The page has more than {MOST_BODY >> 20} MiB in these formats: request the job."
        return {"metadata": document["metadata"], "warning": words}
