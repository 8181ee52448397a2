"""What happens while a crawl is under way, from its first request on: it is killed, people look at the project, another
program keeps the record store from it."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.patience import PATIENCE

from .model import Wrong
from .story import LOOKS, Crawl

LOOK = 0.005  # seconds between two looks at the log
AWAY = 1.0  # seconds in which the record store does not answer


class Meanwhile:
    """`requests` counts what the crawl has asked for; `begin` starts a command, and returns its process."""

    def __init__(
        self, crawl: Crawl, folder: Path, requests: Callable[[], int], begin: Callable[[Sequence[str]], int]
    ) -> None:
        self._requests, self.begin = requests, begin
        self.is_eventful = crawl.dies_at is not None or crawl.is_watched or crawl.loses_store
        self._dies_at = crawl.dies_at
        self._looks = LOOKS if crawl.is_watched else ()
        self._lookers: list[int] = []
        self._records = folder / "gossamer-data" / "records.db" if crawl.loses_store else None
        self._lock: sqlite3.Connection | None = None
        self._until = 0.0

    def pass_time(self, crawl: int) -> None:
        """Do what is due. `crawl` is the process that may be killed."""
        asked = self._requests()
        if asked and self._looks:
            self._lookers, self._looks = [self.begin(words) for words in self._looks], ()
        if asked and self._records is not None:
            self._lock = sqlite3.connect(self._records, isolation_level=None, timeout=PATIENCE)
            self._lock.execute("BEGIN EXCLUSIVE")
            self._records, self._until = None, time.monotonic() + AWAY
        if self._lock is not None and time.monotonic() >= self._until:
            self._give_back()
        if self._dies_at is not None and asked >= self._dies_at:
            os.killpg(crawl, signal.SIGKILL)
            self._dies_at = None
        time.sleep(LOOK)

    def end(self) -> None:
        """The crawl has ended. Raises Wrong if somebody could not look."""
        self._give_back()
        for looker, words in zip(self._lookers, LOOKS, strict=False):
            _, status = os.waitpid(looker, 0)
            if code := os.waitstatus_to_exitcode(status):
                raise Wrong(f"gossamer {' '.join(words)}, given while a crawl was under way, ended with {code}.")

    def _give_back(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
