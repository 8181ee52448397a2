"""A state file that an older Gossamer wrote is brought up to date when it is opened, and its work goes on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import msgspec

from gossamer.backends.sqlite.connection import numbered_scripts, statements_of
from gossamer.backends.sqlite.state import APPLICATION_ID, open_sqlite_state
from gossamer.clock import VirtualClock
from gossamer.frontier.contract import JobTerms
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.task import UrlState
from gossamer.model.url import fingerprint
from tests.conformance.frontiers import candidate

CLOCK = VirtualClock()


def first_version(path: Path) -> None:
    """A file as the first version left it: two sites, one of them asleep, tasks with and without a fetcher."""
    (number, script), *_ = numbered_scripts("state")
    with closing(sqlite3.connect(path)) as file:
        for statement in statements_of(script):
            file.execute(statement)
        file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        file.execute(f"PRAGMA user_version = {number}")
        file.execute(
            "INSERT INTO jobs (number, id, name, state, sealed, created_at, terms, discovered, queued, waiting) "
            "VALUES (1, 'books-1', 'books', 'running', 1, 0, ?, 5, 4, 1)",
            (msgspec.json.encode(JobTerms(max_urls_per_site=6)).decode(),),
        )
        file.execute("INSERT INTO sites (number, name) VALUES (1, 'a.test'), (2, 'b.test')")
        queues = [(1, 1, "ready", 5, 10, None, 4), (1, 2, "sleeping", 0, 20, CLOCK.now() + 9, 1)]
        file.executemany(
            "INSERT INTO queues (job, site, state, priority, turn, wake_at, taken) VALUES (?, ?, ?, ?, ?, ?, ?)", queues
        )
        for site, url, state, priority, fetcher in (
            (1, "https://a.test/1", "queued", 1, None),
            (1, "https://a.test/2", "queued", 5, "browser"),
            (1, "https://a.test/3", "queued", 3, "browser"),
            (1, "https://a.test/4", "waiting", 0, "browser"),
            (2, "https://b.test/1", "queued", 0, None),
        ):
            file.execute(
                "INSERT INTO urls (job, site, state, priority, turn, depth, due_at, fingerprint, url, kind, "
                "created_at, changed_at, max_attempts, fetcher) "
                "VALUES (1, ?, ?, ?, 7, 0, 0, ?, ?, 'parse', 0, 0, 4, ?)",
                (site, state, priority, fingerprint(url), url, fetcher),
            )
        file.commit()


async def test_the_work_of_an_older_file_goes_on_in_its_lanes(tmp_path: Path) -> None:
    first_version(tmp_path / "state.db")
    newest = numbered_scripts("state")[-1][0]

    for _ in range(2):  # the second opening finds a file of today
        async with open_sqlite_state(
            tmp_path / "state.db",
            CLOCK,
            lease_duration=timedelta(seconds=30),
            terms_for=lambda site: SiteTerms(interval=None, concurrency=None),
        ) as state:
            with closing(sqlite3.connect(tmp_path / "state.db")) as file:
                assert file.execute("PRAGMA user_version").fetchone() == (newest,)
            frontier = state.frontier
            shown = (await frontier.lease("books-1", "w", 9, frozenset({"browser"}))).leases
            assert [lease.task.url for lease in shown] == [f"https://a.test/{n}" for n in (2, 3, 4)]
            plain = (await frontier.lease("books-1", "w", 9, frozenset({""}))).leases
            assert [(lease.task.url, lease.task.how) for lease in plain] == [("https://a.test/1", "")]
            for lease in (*shown, *plain):
                await frontier.release(lease, timedelta(0), "once more")

    async with open_sqlite_state(
        tmp_path / "state.db",
        CLOCK,
        lease_duration=timedelta(seconds=30),
        terms_for=lambda site: SiteTerms(interval=None, concurrency=None),
    ) as state:
        # What was taken before counts on, and the site that slept wakes when it meant to.
        added = await state.frontier.add("books-1", [candidate(f"https://a.test/new/{n}") for n in range(5)])
        assert (added.queued, added.dropped) == (2, 3)
        CLOCK.advance(9)
        leases = (await state.frontier.lease("books-1", "w", 20)).leases
        assert len(leases) == 7
        for lease in leases:
            await state.frontier.complete(lease, UrlState.DONE)
        assert (await state.frontier.lease("books-1", "w", 20)).drained
