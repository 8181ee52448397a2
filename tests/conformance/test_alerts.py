"""Alerts in the state: a step is entered as one, by the scheduler that leads and nobody else; silences end."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from gossamer.errors import LeaseLost
from gossamer.model.alert import (
    Activity,
    AlertChange,
    AlertMemory,
    AlertState,
    Notice,
    NoticeState,
    NoticeSubject,
    Sample,
    Severity,
    Silence,
    Standing,
)
from gossamer.model.schedule import Term
from gossamer.schedule.alert_book import AlertStep

from .frontiers import Backends, Lab

TERM = timedelta(seconds=6)


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def lead(lab: Lab, who: str = "one") -> Term:
    term = await lab.ticks.lead(who, TERM)
    assert term is not None
    return term


def standing(subject: str = "shop.example", **fields: object) -> Standing:
    usual = {"alert": "success", "state": AlertState.FIRING, "since": 5.5, "began_at": 1.25, "words": "ä <&>"}
    return Standing(subject=subject, **{**usual, **fields})


def notice(id: str, made_at: float = 10.0, **fields: object) -> Notice:
    subject = NoticeSubject(subject="shop.example", words="below", value=0.25, since=5.5)
    usual = {"channel": "team", "alert": "success", "severity": Severity.WARNING, "state_told": AlertState.FIRING}
    return Notice(id=id, made_at=made_at, subjects=(subject,), count=1, **{**usual, **fields})


def over(id: str, at: float) -> Notice:
    return notice(id, state=NoticeState.DELIVERED, ended_at=at, tries=1)


def change(subject: str, alert: str = "success", at: float = 1.0) -> AlertChange:
    return AlertChange(
        at=at, alert=alert, subject=subject, state=AlertState.FIRING, words="w", severity=Severity.CRITICAL
    )


async def test_a_step_is_read_as_it_was_entered(lab):
    memory = AlertMemory(samples=(Sample(1.5, 10, 20),), jobs={"books-1": Activity(3, 1.25)})
    step = AlertStep(
        standings=(standing("b"), standing("a"), standing("", alert="backlog")),
        notices=(notice("n1"),),
        changes=(change("a"),),
        memory=memory,
    )
    assert await lab.alerts.memory() == AlertMemory()

    await lab.alerts.settle(await lead(lab), step)

    found = await lab.alerts.standings()
    assert [one.key for one in found] == [("backlog", ""), ("success", "a"), ("success", "b")]
    assert found[1] == standing("a")
    assert await lab.alerts.notices(10) == await lab.alerts.due(10) == [notice("n1")]
    assert await lab.alerts.history(10) == [change("a")]
    assert await lab.alerts.memory() == memory


async def test_what_changed_replaces_and_what_is_inactive_is_forgotten(lab):
    term = await lead(lab)
    await lab.alerts.settle(term, AlertStep(standings=(standing("a"), standing("b")), memory=AlertMemory()))

    later = standing("a", state=AlertState.RESOLVED, told_at=7.0)
    await lab.alerts.settle(term, AlertStep(standings=(later,), forgotten=(("success", "b"), ("success", "c"))))

    assert await lab.alerts.standings() == [later]


async def test_a_leader_whose_term_is_over_changes_nothing(lab):
    term = await lead(lab)
    await lab.alerts.settle(term, AlertStep(notices=(notice("n1"),)))
    step = AlertStep(
        standings=(standing(),), notices=(notice("n2"),), changes=(change("a"),), memory=AlertMemory(jobs={})
    )
    lab.clock.advance(TERM.total_seconds() + 1)
    for _ in range(2):  # nobody leads yet; then another one does
        with pytest.raises(LeaseLost):
            await lab.alerts.settle(term, step)
        with pytest.raises(LeaseLost):
            await lab.alerts.note(term, over("n1", 11.0))
        await lead(lab, "two")

    assert await lab.alerts.standings() == []
    assert await lab.alerts.history(10) == []
    assert await lab.alerts.notices(10) == [notice("n1")]


async def test_a_message_is_entered_once_and_noted_in_its_place(lab):
    term = await lead(lab)
    await lab.alerts.settle(term, AlertStep(notices=(notice("n2", 12.0), notice("n1", 11.0))))
    tried = notice("n1", 11.0, tries=1, next_at=99.5, error="The receiver answered 500.")
    await lab.alerts.note(term, tried)

    await lab.alerts.settle(term, AlertStep(notices=(notice("n1", 50.0),)))  # a step that is entered again
    assert await lab.alerts.due(10) == [tried, notice("n2", 12.0)]
    assert await lab.alerts.due(1) == [tried]

    await lab.alerts.note(term, over("n1", 20.0))
    assert await lab.alerts.due(10) == [notice("n2", 12.0)]
    assert await lab.alerts.notices(10) == [notice("n2", 12.0), over("n1", 20.0)]
    await lab.alerts.settle(term, AlertStep(notices=(notice("n1"),)))
    assert await lab.alerts.due(10) == [notice("n2", 12.0)]


async def test_what_is_over_and_what_was_is_bounded(lab, monkeypatch):
    monkeypatch.setattr("gossamer.schedule.alert_book.NOTICES_KEPT", 3)
    monkeypatch.setattr("gossamer.schedule.alert_book.CHANGES_KEPT", 4)
    term = await lead(lab)
    await lab.alerts.settle(term, AlertStep(notices=(notice("open"),)))
    for number in range(6):
        await lab.alerts.note(term, over(f"n{number}", float(number)))
        await lab.alerts.settle(
            term, AlertStep(changes=(change(f"s{number}", alert=f"a{number % 2}", at=float(number)),))
        )

    assert [one.id for one in await lab.alerts.notices(10)] == ["open", "n5", "n4", "n3"]
    assert [one.id for one in await lab.alerts.notices(2)] == ["open", "n5"]
    assert [one.subject for one in await lab.alerts.history(10)] == ["s5", "s4", "s3", "s2"]
    assert [one.subject for one in await lab.alerts.history(10, "a0")] == ["s4", "s2"]
    assert [one.subject for one in await lab.alerts.history(1, "a0")] == ["s4"]


async def test_a_silence_holds_until_its_end_or_until_it_is_ended(lab):
    now = lab.clock.now()
    short, long = (
        Silence(id=id, alert="*", subject="*", until=now + seconds, reason="we know ☂", made_at=now)
        for id, seconds in (("s1", 10), ("s2", 100))
    )
    await lab.alerts.silence(long)
    await lab.alerts.silence(short)
    assert await lab.alerts.silences() == [short, long]

    lab.clock.advance(10)
    assert await lab.alerts.silences() == [long]
    longer = msgspec.structs.replace(long, until=now + 500)
    await lab.alerts.silence(longer)
    assert await lab.alerts.silences() == [longer]
    assert not await lab.alerts.unsilence("s1")  # it was over, and is deleted by now
    assert await lab.alerts.unsilence("s2")
    assert not await lab.alerts.unsilence("s2")
    assert await lab.alerts.silences() == []
