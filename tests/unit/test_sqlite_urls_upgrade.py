"""A state file from before URLs took less room: every URL in it keeps its address, its place and its story."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from gossamer.backends.sqlite.connection import numbered_scripts, statements_of
from gossamer.backends.sqlite.state import APPLICATION_ID, open_sqlite_state
from gossamer.backends.state import State
from gossamer.clock import VirtualClock
from gossamer.frontier.contract import DeadFilter, JobTerms
from gossamer.frontier.politeness import SiteTerms
from gossamer.frontier.state_rows import DumpedUrl
from gossamer.model.task import UrlState
from gossamer.model.url import fingerprint
from tests.conformance.frontiers import candidate

BEFORE = 28
CLOCK = VirtualClock()
LONG_HOST = "https://" + "sub." * 90 + "shop.test"  # no origin that is worth a row
NOW = CLOCK.now()

COLUMNS: dict[str, Any] = {  # of a row that has nothing special
    "job": 1, "site": 1, "state": "done", "reason": "", "priority": 0, "turn": 0, "depth": 0, "attempts": 1,
    "deliveries": 0, "token": 1, "lease_until": None, "due_at": None, "worker": None, "kind": "parse", "found_on": None,
    "created_at": NOW - 100, "changed_at": NOW - 50, "max_attempts": 4, "data": "", "redirects": "", "message": "",
    "fetcher": None, "proxy_pool": None, "country": None, "how": "",
}  # fmt: skip

ROWS: tuple[dict[str, Any], ...] = (
    {"url": "https://shop.test/"},
    {"url": "http://a/", "state": "unchanged", "reason": "not modified", "found_on": 1, "kind": "book"},
    {"url": "https://shop.test/third", "state": "queued", "turn": int((NOW - 10) * 1e6), "changed_at": NOW - 90},
    {"url": "https://shop.test/second", "state": "queued", "turn": int((NOW - 20) * 1e6), "found_on": 1},
    {
        "url": "https://www.shop.test/first?a=/b/", "state": "queued", "priority": 7, "turn": int(NOW * 1e6),
        "data": '{"a": "\\""}', "redirects": '["https://shop.test/from"]',
        "country": "de", "proxy_pool": "", "how": '{"method": "POST"}',
    },
    {"url": f"{LONG_HOST}/x", "state": "waiting", "due_at": NOW + 5, "reason": "http-503", "fetcher": "browser"},
    {"url": "https://shop.test/held", "state": "leased", "token": 3, "worker": "w", "lease_until": NOW + 20},
    {"url": "not an address", "state": "dropped", "reason": "invalid"},
    {"url": "https://shop.test", "state": "dropped", "reason": "depth", "depth": 9},
    {"url": "https://shop.test/gone", "state": "dead", "reason": "http-404", "message": "no luck", "attempts": 4},
)  # fmt: skip


def written_before(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        for number, script in numbered_scripts("state"):
            for statement in statements_of(script) if number <= BEFORE else ():
                file.execute(statement)
        file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        file.execute(f"PRAGMA user_version = {BEFORE}")
        counts = {state: sum(row.get("state", "done") == state for row in ROWS) for state in map(str, UrlState)}
        columns = {"number": 1, "id": "books-1", "name": "books", "state": "running", "created_at": 0, **counts}
        columns |= {"terms": msgspec.json.encode(JobTerms()).decode(), "state": "running", "sealed": 1}
        _insert(file, "jobs", columns)
        file.execute("INSERT INTO sites (number, name, in_flight) VALUES (1, 'shop.test', 1)")
        file.execute("INSERT INTO queues (job, site, lane, state, priority) VALUES (1, 1, '', 'ready', 7)")
        for row in ROWS:
            _insert(file, "urls", COLUMNS | row | {"fingerprint": fingerprint(row["url"])})
        file.execute("INSERT INTO incidents VALUES (10, 5.0, 'w died; delivery 1 of 5')")
        file.commit()


def _insert(file: sqlite3.Connection, table: str, columns: dict[str, Any]) -> None:
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    file.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values()))


async def urls_of(state: State) -> dict[str, DumpedUrl]:
    return {row.url: row async for batch in state.stream.dump() for row in batch if isinstance(row, DumpedUrl)}


async def test_urls_of_an_older_file_are_what_they_were(tmp_path: Path) -> None:
    written_before(tmp_path / "state.db")
    async with open_sqlite_state(
        tmp_path / "state.db",
        CLOCK,
        lease_duration=timedelta(seconds=30),
        terms_for=lambda site: SiteTerms(interval=None, concurrency=None),
        is_gone=lambda worker: False,
    ) as state:
        found = await urls_of(state)
        assert set(found) == {row["url"] for row in ROWS}
        for row in ROWS:
            url, wanted = found[row["url"]], COLUMNS | row
            for name in ("reason", "priority", "depth", "attempts", "max_attempts", "created_at", "kind", "data",
                         "message", "fetcher", "proxy_pool", "country", "how"):  # fmt: skip
                assert getattr(url, name) == wanted[name], (row["url"], name)
            leased = wanted["state"] == "leased"  # nobody holds it after a move
            assert url.state == ("queued" if leased else wanted["state"])
            assert url.parent == (fingerprint("https://shop.test/") if wanted["found_on"] else None)
        assert found["https://www.shop.test/first?a=/b/"].redirects == ("https://shop.test/from",)
        assert found["https://shop.test/gone"].incidents == ((5.0, "w died; delivery 1 of 5"),)

        [held] = await state.queue.story("shop.test", fingerprint("https://shop.test/held"))
        assert (held.state, held.worker, held.lease_until) == (UrlState.LEASED, "w", NOW + 20)
        [letter] = await state.queue.dead(DeadFilter(url="https://shop.test/gone"))
        assert (letter.reason, letter.message, letter.found_on) == ("http-404", "no luck", None)

        again = [candidate(row["url"]) for row in ROWS if row["url"].startswith("https://")]
        added = await state.frontier.add("books-1", again)
        assert (added.duplicates, added.queued) == (len(again), 1)  # the one that was too deep may enter after all
        leases = (await state.frontier.lease("books-1", "new", 9)).leases
        assert [lease.task.url.rpartition("/")[2] for lease in leases][1:3] == ["second", "third"]
        assert leases[0].task.redirects == ("https://shop.test/from",)
        await state.frontier.complete(leases[0], UrlState.DONE)
        CLOCK.advance(21)  # the lease of the older worker has ended
        [held] = (await state.frontier.lease("books-1", "new", 1, frozenset({""}))).leases
        assert (held.task.url, held.token) == ("https://shop.test/held", 4)
