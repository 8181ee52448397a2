"""How alerts change and who is told, decided without I/O: every way through the states, grouping, silences, repeats."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from gossamer.model.alert import MOST_NAMED, MOST_SUBJECTS, AlertState, AlertTerms, Finding, Severity, Silence
from gossamer.monitor.alerts import GROUP, RESOLVED_KEPT, look
from gossamer.settings.alert_tables import ChannelTable

TERMS = AlertTerms(wait=timedelta(seconds=60), keep_for=timedelta(seconds=120), repeat=timedelta(hours=1))
AMISS = {"shop.example": Finding(0.5, "half of it fails")}
PENDING, FIRING, RESOLVED = AlertState.PENDING, AlertState.FIRING, AlertState.RESOLVED


class Room:
    """Keeps what a state would keep, and what was told."""

    def __init__(self, **fields):
        self.now = 1000.0
        self.terms = {"success": msgspec.structs.replace(TERMS, **fields)}
        self.channels = {"team": ChannelTable(kind="slack")}
        self.silences = []
        self.standings = {}
        self.notices = []
        self.changes = []

    def look(self, findings, after=0.0, alert="success"):
        """Move the clock, look, and return the state of the shop."""
        self.now += after
        step = look(
            self.terms,
            {alert: findings},
            list(self.standings.values()),
            silences=self.silences,
            channels=self.channels,
            now=self.now,
        )
        for one in step.standings:
            self.standings[one.key] = one
        for key in step.forgotten:
            del self.standings[key]
        self.notices += step.notices
        self.changes += step.changes
        found = self.standings.get((alert, "shop.example"))
        return found.state if found is not None else AlertState.INACTIVE

    def told(self):
        """What was told since the last call: the state, and of whom."""
        found = [(one.state_told, tuple(subject.subject for subject in one.subjects)) for one in self.notices]
        self.notices = []
        return found

    def silence(self, lasting, alert="success", subject="*"):
        made = Silence(id="s", alert=alert, subject=subject, until=self.now + lasting, reason="r", made_at=self.now)
        self.silences.append(made)


@pytest.fixture
def room():
    return Room()


def test_an_alert_is_pending_then_fires_then_is_resolved_and_is_told_twice(room):
    assert room.look(AMISS) is PENDING
    assert room.look(AMISS, after=59) is PENDING
    assert room.told() == []
    assert room.look(AMISS, after=1) is FIRING
    assert room.told() == [(FIRING, ("shop.example",))]
    assert room.look(AMISS, after=300) is FIRING

    assert room.look({}, after=5) is FIRING  # its cause is gone, and it is kept
    assert room.look({}, after=119) is FIRING
    assert room.told() == []
    assert room.look({}, after=1) is RESOLVED
    assert room.told() == [(RESOLVED, ("shop.example",))]
    assert room.look({}, after=RESOLVED_KEPT.total_seconds() - 1) is RESOLVED
    assert room.look({}, after=1) is AlertState.INACTIVE
    assert room.told() == []
    assert [change.state for change in room.changes] == [FIRING, RESOLVED]


def test_what_is_gone_before_it_fires_leaves_nothing(room):
    room.look(AMISS)
    assert room.look({}, after=59) is AlertState.INACTIVE
    assert room.look(AMISS, after=1) is PENDING  # it begins anew
    assert room.look(AMISS, after=59) is PENDING
    assert (room.told(), room.changes) == ([], [])


def test_a_cause_that_comes_back_while_it_is_kept_does_not_resolve(room):
    room.look(AMISS)
    room.look(AMISS, after=60)
    for _ in range(5):
        assert room.look({}, after=100) is FIRING
        assert room.look(AMISS, after=100) is FIRING
    assert room.told() == [(FIRING, ("shop.example",))]


def test_an_alert_without_for_fires_at_once():
    room = Room(wait=timedelta(0))
    assert room.look(AMISS) is FIRING
    assert room.told() == [(FIRING, ("shop.example",))]


def test_what_is_not_known_stays_as_it_is(room):
    room.look(AMISS)
    assert room.look(None, after=300) is PENDING
    assert room.look(AMISS, after=1) is FIRING
    assert room.look(None, after=10_000) is FIRING
    room.look({}, after=1)
    assert room.look(None, after=10_000) is FIRING
    assert room.look({}, after=1) is RESOLVED


def test_it_fires_anew_after_it_was_resolved_and_both_are_told(room):
    for _ in range(2):
        room.look(AMISS, after=60)
        assert room.look(AMISS, after=60) is FIRING
        room.look({}, after=60)
        assert room.look({}, after=120) is RESOLVED
    assert [state for state, _ in room.told()] == [FIRING, RESOLVED, FIRING, RESOLVED]


def test_it_is_told_again_while_it_fires_and_each_message_has_an_id_of_its_own(room):
    room.look(AMISS)
    room.look(AMISS, after=60)
    room.look(AMISS, after=3599)
    room.look(AMISS, after=1)
    room.look(AMISS, after=3600)
    assert [one.again for one in room.notices] == [False, True, True]
    assert len({one.id for one in room.notices}) == 3

    room.look({}, after=1)
    room.look({}, after=3600)  # its cause is gone: that it is over is all that is left to say
    assert [one.again for one in room.notices] == [False, True, True, False]

    never = Room(repeat=None)
    never.look(AMISS)
    never.look(AMISS, after=60)
    never.look(AMISS, after=1_000_000)
    assert len(never.told()) == 1


def test_one_message_holds_all_sites_and_later_ones_wait_for_each_other():
    room = Room(wait=timedelta(0))
    sites = {f"s{n:02}.example": Finding(0.0, "w") for n in range(MOST_NAMED + 5)}
    room.look(sites)
    (one,) = room.notices
    assert (len(one.subjects), one.count) == (MOST_NAMED, MOST_NAMED + 5)
    room.told()

    more = {**sites, "t1.example": Finding(0.0, "w")}
    room.look(more, after=10)
    more["t2.example"] = Finding(0.0, "w")
    room.look(more, after=10)
    assert room.told() == []
    room.look(more, after=GROUP.total_seconds() - 20)
    assert room.told() == [(FIRING, ("t1.example", "t2.example"))]


def test_that_it_was_over_is_told_before_it_fires_again():
    room = Room(wait=timedelta(0), keep_for=timedelta(0))
    room.look(AMISS)
    room.look({}, after=10)  # over, and too soon for another message
    room.look(AMISS, after=10)
    room.look(AMISS, after=50)
    room.look(AMISS, after=60)
    assert [state for state, _ in room.told()] == [FIRING, RESOLVED, FIRING]


def test_the_same_news_has_the_same_id_whoever_works_it_out(room):
    room.look(AMISS)
    before = dict(room.standings)
    room.look(AMISS, after=60)
    room.standings = before  # a leader that died before this was entered
    room.look(AMISS)
    one, other = room.notices
    assert one.id == other.id


def test_what_a_silence_covers_is_told_at_its_end_if_it_fires_then(room):
    room.silence(500)
    room.look(AMISS)
    assert room.look(AMISS, after=60) is FIRING
    assert room.told() == []
    assert room.changes[0].silenced
    room.look(AMISS, after=440)
    assert room.told() == [(FIRING, ("shop.example",))]


def test_what_fires_and_ends_within_a_silence_is_never_told(room):
    room.silence(5000)
    room.look(AMISS)
    room.look(AMISS, after=60)
    room.look({}, after=10)
    assert room.look({}, after=120) is RESOLVED
    room.look({}, after=5000)
    assert room.told() == []


def test_the_end_of_what_was_told_is_told_also_within_a_silence_but_nothing_again(room):
    room.look(AMISS)
    room.look(AMISS, after=60)
    room.told()
    room.silence(100_000)
    room.look(AMISS, after=10_000)
    assert room.told() == []
    room.look({}, after=10)
    room.look({}, after=120)
    assert room.told() == [(RESOLVED, ("shop.example",))]


@pytest.mark.parametrize(
    ("alert", "subject", "covers"),
    [("*", "*", True), ("succ*", "*.example", True), ("success", "other.example", False), ("errors", "*", False)],
)
def test_a_silence_covers_what_its_patterns_say(room, alert, subject, covers):
    room.silence(1000, alert, subject)
    room.look(AMISS)
    room.look(AMISS, after=60)
    assert (room.told() == []) is covers


def test_an_alert_that_is_switched_off_is_resolved_at_once(room):
    room.look(AMISS)
    room.look(AMISS, after=60)
    room.told()
    room.terms = {}
    room.look(AMISS, after=61)
    assert room.told() == [(RESOLVED, ("shop.example",))]


def test_a_channel_hears_what_it_asked_for():
    room = Room(wait=timedelta(0), keep_for=timedelta(0), severity=Severity.WARNING)
    room.channels = {
        "all": ChannelTable(kind="slack"),
        "severe": ChannelTable(kind="slack", severity="critical"),
        "others": ChannelTable(kind="slack", alerts=("errors", "work*")),
        "some": ChannelTable(kind="slack", alerts=("suc*",), severity="warning", resolved=False),
    }
    room.look(AMISS)
    assert sorted(one.channel for one in room.notices) == ["all", "some"]
    assert len({one.id for one in room.notices}) == 2
    room.told()
    room.look({}, after=1)
    room.look({}, after=60)
    assert [one.channel for one in room.notices] == ["all"]


def test_a_flood_of_sites_is_bounded_and_those_that_have_a_standing_keep_it():
    room = Room(wait=timedelta(0))
    flood = {f"z{n:04}.example": Finding(0.0, "w") for n in range(MOST_SUBJECTS + 50)}
    room.look(flood)
    assert len(room.standings) == MOST_SUBJECTS
    room.look({"a.example": Finding(0.0, "w"), **flood}, after=10)
    assert len(room.standings) == MOST_SUBJECTS
    assert ("success", "a.example") not in room.standings


def test_hostile_names_become_one_visible_line():
    room = Room(wait=timedelta(0))
    room.look({"a\r\nBcc: x@evil.test": Finding(0.0, "one\nline \ud800 \x1b[31m" + "x" * 10_000)})
    ((_, subject),) = room.standings
    (one,) = room.notices
    assert "\n" not in subject
    assert "\r" not in subject
    assert "\x1b" not in one.subjects[0].words
    assert len(one.subjects[0].words) <= 500
    msgspec.json.encode(one)  # it can be kept
