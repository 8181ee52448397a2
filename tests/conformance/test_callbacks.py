"""The outbox of callbacks: what is to be delivered, what is over, and what it is signed with."""

from __future__ import annotations

from math import inf

import msgspec
import pytest

from gossamer.access.contract import Callback, CallbackSecret, CallbackState

from .frontiers import Backends

NOW = 1_800_000_000.0


@pytest.fixture(params=Backends.UNSHARDED)
async def book(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab.callbacks


def callback(id: str, **fields: object) -> Callback:
    usual = {"owner": "k", "url": "https://there.test/in", "made_at": NOW, "job": f"job-{id}"}
    return Callback(id=id, **{**usual, **fields})


def over(id: str, at: float, state: CallbackState = CallbackState.DELIVERED) -> Callback:
    return callback(id, state=state, ended_at=at, body="{}", tries=1, status=200)


async def test_a_callback_comes_back_as_it_was_entered_and_is_entered_once(book):
    entered = callback("a", body='{"ä": 1}')
    assert await book.enter(entered)
    assert not await book.enter(callback("a", url="https://elsewhere.test/"))

    assert await book.callback("a") == entered
    assert await book.callback("b") is None
    assert await book.pending() == 1


async def test_open_ones_come_in_the_order_of_their_time(book):
    for id, next_at in (("late", NOW + 60), ("soon", NOW), ("waits", 0.0)):
        state = CallbackState.WAITING if id == "waits" else CallbackState.DUE
        await book.enter(callback(id, next_at=next_at, state=state))
    await book.enter(over("over", NOW))

    assert [one.id for one in await book.due(NOW + 60, 10)] == ["soon", "late"]
    assert [one.id for one in await book.due(NOW + 59, 10)] == ["soon"]
    assert [one.id for one in await book.due(inf, 1)] == ["soon"]
    assert [one.id for one in await book.waiting(10)] == ["waits"]
    assert await book.pending() == 3


async def test_receivers_have_their_turns_however_much_waits_for_one_of_them(book, monkeypatch):
    monkeypatch.setattr("gossamer.backends.redis.shelf.IDS_AT_ONCE", 7)
    due = {"state": CallbackState.DUE}
    for number in range(30):
        await book.enter(callback(f"msg_slowhost{number:03}", next_at=NOW + number, **due))
    for number in range(3):
        await book.enter(callback(f"msg_otherone{number}", next_at=NOW + 100 + number, **due))

    first = [f"msg_slowhost{number:03}" for number in range(2)]
    assert [one.id for one in await book.due(NOW + 200, 10, 2)] == [*first, "msg_otherone0", "msg_otherone1"]
    assert [one.id for one in await book.due(NOW + 200, 3, 2)] == [*first, "msg_otherone0"]
    assert [one.id for one in await book.due(NOW + 99, 10, 2)] == first
    assert len(await book.due(NOW + 200, 100)) == 33


async def test_one_that_is_over_is_open_no_more_until_it_is_sent_again(book):
    await book.enter(callback("a"))
    await book.keep(over("a", NOW))
    assert await book.waiting(10) == []
    assert await book.ended(10) == [over("a", NOW)]

    again = msgspec.structs.replace(over("a", NOW), state=CallbackState.DUE, ended_at=None, next_at=NOW + 5)
    await book.keep(again)
    assert await book.due(NOW + 5, 10) == [again]
    assert await book.ended(10) == []


async def test_of_those_that_are_over_the_newest_are_kept(book, monkeypatch):
    monkeypatch.setattr("gossamer.access.contract.CALLBACKS_KEPT", 3)
    for number in range(6):
        await book.keep(over(f"c{number}", NOW + number))
    await book.enter(callback("open"))

    assert [one.id for one in await book.ended(10)] == ["c5", "c4", "c3"]
    assert await book.callback("c0") is None
    assert await book.pending() == 1


async def test_secrets_are_those_of_their_owner_and_the_first_are_entered_once(book):
    first = (CallbackSecret(text="whsec_b25l"),)
    assert await book.secrets("k") == ()
    assert await book.enter_secrets("k", first)
    assert not await book.enter_secrets("k", (CallbackSecret(text="whsec_dHdv"),))
    assert await book.secrets("k") == first

    rotated = (CallbackSecret(text="whsec_dHdv"), CallbackSecret(text="whsec_b25l", until=NOW))
    await book.keep_secrets("k", rotated)
    assert await book.secrets("k") == rotated
    assert await book.secrets("other") == ()
