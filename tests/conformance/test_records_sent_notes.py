"""Notes of requests that must not be sent twice, in each record store."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from gossamer.store.contract import SentNote

from .stores import NOW, backend, clock, fingerprint_of, open_records, record_store

__all__ = ["backend", "clock", "open_records", "record_store"]

PAGE, OTHER = fingerprint_of("https://shop.example/order"), fingerprint_of("https://shop.example/other")


def note(owner: str, *, job: str = "orders-1", page: bytes = PAGE, at: float = NOW) -> SentNote:
    return SentNote(job=job, fingerprint=page, owner=owner, at=at)


async def test_a_request_is_noted_by_one_owner_only(record_store):
    noted = await asyncio.gather(*(record_store.note_sent(note(f"lease {n}")) for n in range(8)))

    assert sum(noted) == 1
    assert await record_store.note_sent(note(f"lease {noted.index(True)}", at=NOW + 1))  # its own again


async def test_notes_of_other_jobs_and_pages_do_not_matter(record_store):
    assert await record_store.note_sent(note("a"))
    assert await record_store.note_sent(note("b", job="orders-2"))
    assert await record_store.note_sent(note("c", page=OTHER))


async def test_a_note_outlives_the_process_that_made_it(open_records):
    async with open_records() as store:
        assert await store.note_sent(note("a"))
    async with open_records() as store:
        assert not await store.note_sent(note("b"))


async def test_a_request_that_may_be_sent_again_replaces_older_notes_only(record_store):
    assert await record_store.note_sent(note("a"))

    assert not await record_store.note_sent(note("b", at=NOW + 9), replaces_before=NOW)
    assert await record_store.note_sent(note("b", at=NOW + 9), replaces_before=NOW + 5)
    assert not await record_store.note_sent(note("a"), replaces_before=NOW + 5)


async def test_a_note_that_was_removed_does_not_count(record_store):
    assert await record_store.note_sent(note("a"))
    assert await record_store.note_sent(note("a", page=OTHER))
    await record_store.forget_sent("orders-1", [PAGE, fingerprint_of("unknown")])

    assert await record_store.note_sent(note("b"))
    assert not await record_store.note_sent(note("b", page=OTHER))


async def test_old_notes_are_pruned(record_store, clock):
    assert await record_store.note_sent(note("a"))
    assert await record_store.note_sent(note("a", page=OTHER, at=clock.now()))
    assert await record_store.prune(timedelta(hours=1)) == 0

    assert await record_store.note_sent(note("b"))
    assert not await record_store.note_sent(note("b", page=OTHER))
