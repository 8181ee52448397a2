"""The book of results that wait on the disks of workers: every machine reads the same, and nothing but a verb removes
a note."""

from __future__ import annotations

import msgspec
import pytest

from gossamer.store.contract import SpoolNote

from .frontiers import Backends

NOW = 1_800_000_000.123456


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as opened:
        yield opened


def note(name: str, **fields: object) -> SpoolNote:
    usual = {
        "host": "here",
        "folder": "/data/spool",
        "worker": "here/7/1",
        "results": {"books-1": 3},
        "bytes": 5_000_000_000,
        "noted_at": NOW,
    }
    return SpoolNote(name=name, **{**usual, **fields})


async def test_a_note_is_read_by_another_process_as_it_was_written(lab):
    written = note("a", results={"books-1": 3, 'odd "given_up":false}': 1})
    await lab.spools.note(written)

    async with lab.again() as other:
        assert await other.spools.notes() == [written]


async def test_the_latest_note_of_a_name_holds_and_notes_are_listed_by_name(lab):
    await lab.spools.note(note("b"))
    await lab.spools.note(note("a"))
    await lab.spools.note(note("b", results={"books-1": 9}))

    assert await lab.spools.notes() == [note("a"), note("b", results={"books-1": 9})]


async def test_notes_are_taken_away_by_name_and_others_stay(lab):
    for name in "abc":
        await lab.spools.note(note(name))
    await lab.spools.take_away(["a", "c", "unknown"])
    await lab.spools.take_away([])

    assert await lab.spools.notes() == [note("b")]


async def test_a_note_outlives_the_card_of_its_worker(lab):
    await lab.spools.note(note("a"))
    await lab.workers.sign_off("here/7/1")
    await lab.workers.forget(NOW + 1)

    assert await lab.spools.notes() == [note("a")]


async def test_results_that_were_given_up_are_marked_and_their_process_may_say_otherwise(lab):
    written = note("a", results={'odd "given_up":false}': 1, "books-1": 3})
    await lab.spools.note(written)
    given_up = msgspec.structs.replace(written, given_up=True)

    assert await lab.spools.give_up("a") == given_up
    assert await lab.spools.give_up("a") == given_up
    assert await lab.spools.notes() == [given_up]

    await lab.spools.note(written)  # the machine was not lost after all
    assert await lab.spools.notes() == [written]


async def test_nothing_is_given_up_that_nobody_noted(lab):
    assert await lab.spools.give_up("unknown") is None
    assert await lab.spools.notes() == []
