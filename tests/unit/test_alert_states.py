"""How alerts change and who is told, decided without I/O: every way through the states, grouping, silences, repeats."""

from __future__ import annotations

import itertools
from datetime import timedelta

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gossamer.model.alert import (
    GOOD,
    MOST_NAMED,
    MOST_SUBJECTS,
    NO_DATA,
    AlertState,
    AlertTerms,
    Finding,
    Good,
    Severity,
    Silence,
)
from gossamer.model.incident import Closing, IncidentState
from gossamer.monitor.alerts import GROUP, OVER_KEPT, look
from gossamer.settings.alert_tables import ChannelTable

TERMS = AlertTerms(wait=timedelta(seconds=60), keep_for=timedelta(seconds=120), repeat=timedelta(hours=1))
AMISS = {"shop.example": Finding(0.5, "half of it fails")}
WELL = {"shop.example": GOOD}
PENDING, FIRING, RESOLVED = AlertState.PENDING, AlertState.FIRING, AlertState.RESOLVED
HOLDS, CLOSED = AlertState.NO_DATA, AlertState.CLOSED


class Room:
    """Keeps what a state would keep, and what was told."""

    def __init__(self, **fields):
        self.now = 1000.0
        self.terms = {"success": msgspec.structs.replace(TERMS, **fields)}
        self.channels = {"team": ChannelTable(kind="slack")}
        self.silences = []
        self.closings = []
        self.incidents = {}
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
            closings=self.closings,
            incidents=list(self.incidents.values()),
            channels=self.channels,
            now=self.now,
        )
        for one in step.standings:
            self.standings[one.key] = one
        for key in step.forgotten:
            del self.standings[key]
        self.incidents |= {one.id: one for one in step.incidents}
        self.closings = [one for one in self.closings if one.incident not in step.closings]
        self.notices += step.notices
        self.changes += step.changes
        found = self.standings.get((alert, "shop.example"))
        return found.state if found is not None else AlertState.INACTIVE

    def told(self):
        """What was told since the last call: the state, and of whom."""
        found = [(one.state_told, tuple(subject.subject for subject in one.subjects)) for one in self.notices]
        self.notices = []
        return found

    def close(self):
        """A person closes every incident."""
        self.closings = [Closing(incident=one, by="ann", at=self.now, reason="seen") for one in self.incidents]

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

    assert room.look(WELL, after=5) is FIRING  # its cause is gone, and it is kept
    assert room.look(WELL, after=119) is FIRING
    assert room.told() == []
    assert room.look(WELL, after=1) is RESOLVED
    assert room.told() == [(RESOLVED, ("shop.example",))]
    assert room.look(WELL, after=OVER_KEPT.total_seconds() - 1) is RESOLVED
    assert room.look(WELL, after=1) is AlertState.INACTIVE
    assert room.told() == []
    assert [change.state for change in room.changes] == [FIRING, RESOLVED]


def test_what_is_gone_before_it_fires_leaves_nothing(room):
    room.look(AMISS)
    assert room.look(WELL, after=59) is AlertState.INACTIVE
    assert room.look(AMISS, after=1) is PENDING  # it begins anew
    assert room.look(AMISS, after=59) is PENDING
    assert (room.told(), room.changes) == ([], [])


def test_a_cause_that_comes_back_while_it_is_kept_does_not_resolve(room):
    room.look(AMISS)
    room.look(AMISS, after=60)
    for _ in range(5):
        assert room.look(WELL, after=100) is FIRING
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
    assert room.look(None, after=10_000) is HOLDS
    room.look(WELL, after=1)
    assert room.look(None, after=10_000) is HOLDS
    assert room.look(WELL, after=1) is FIRING
    assert room.look(WELL, after=120) is RESOLVED


def test_it_fires_anew_after_it_was_resolved_and_both_are_told(room):
    for _ in range(2):
        room.look(AMISS, after=60)
        assert room.look(AMISS, after=60) is FIRING
        room.look(WELL, after=60)
        assert room.look(WELL, after=120) is RESOLVED
    assert [state for state, _ in room.told()] == [FIRING, RESOLVED, FIRING, RESOLVED]


def test_it_is_told_again_while_it_fires_and_each_message_has_an_id_of_its_own(room):
    room.look(AMISS)
    room.look(AMISS, after=60)
    room.look(AMISS, after=3599)
    room.look(AMISS, after=1)
    room.look(AMISS, after=3600)
    assert [one.again for one in room.notices] == [False, True, True]
    assert len({one.id for one in room.notices}) == 3

    room.look(WELL, after=1)
    room.look(WELL, after=3600)  # its cause is gone: that it is over is all that is left to say
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
    room.look(WELL, after=10)  # over, and too soon for another message
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
    room.look(WELL, after=10)
    assert room.look(WELL, after=120) is RESOLVED
    room.look(WELL, after=5000)
    assert room.told() == []


def test_the_end_of_what_was_told_is_told_also_within_a_silence_but_nothing_again(room):
    room.look(AMISS)
    room.look(AMISS, after=60)
    room.told()
    room.silence(100_000)
    room.look(AMISS, after=10_000)
    assert room.told() == []
    room.look(WELL, after=10)
    room.look(WELL, after=120)
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


def test_an_alert_that_is_switched_off_is_closed_and_fires_again_when_it_is_switched_on(room):
    room.look(AMISS)
    room.look(AMISS, after=60)
    room.told()
    terms, room.terms = room.terms, {}
    room.look(AMISS, after=61)
    assert room.told() == [(CLOSED, ("shop.example",))]
    (incident,) = room.incidents.values()
    assert (incident.state, incident.ended_by) == (IncidentState.ENDED, "a setting")
    assert incident.reason == "alerts.success.enabled is false"  # nothing was seen to be good

    room.terms = terms
    room.look(AMISS, after=10)
    assert room.look(AMISS, after=60) is FIRING
    (incident,) = room.incidents.values()
    assert (incident.state, incident.ended_by) == (IncidentState.OPEN, "")


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
    room.look(WELL, after=1)
    room.look(WELL, after=60)
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


# -- what ends an alert ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", [{}, {"shop.example": NO_DATA}, None])
def test_an_alert_holds_while_there_is_nothing_to_measure_and_says_since_when(room, nothing):
    room.look(AMISS)
    room.look(AMISS, after=60)
    assert room.look(nothing, after=10) is HOLDS
    assert room.look(nothing, after=1_000_000) is HOLDS
    (one,) = room.standings.values()
    assert one.no_data_since == 1070.0
    (incident,) = room.incidents.values()
    assert (incident.state, incident.alerts[0].no_data_since) == (IncidentState.OPEN, 1070.0)
    assert len(room.told()) == 1  # not again either: there is no news
    assert room.look(AMISS, after=1) is FIRING
    assert [change.state for change in room.changes] == [FIRING]


def test_a_level_that_is_not_found_wrong_is_good(room):
    room.terms = {"budget": room.terms["success"]}
    room.look(AMISS, alert="budget")
    room.look(AMISS, after=60, alert="budget")
    room.look({}, after=1, alert="budget")
    room.look({}, after=120, alert="budget")
    assert [one.state for one in room.standings.values()] == [RESOLVED]


def test_a_good_moment_before_there_is_nothing_is_no_evidence(room):
    room.look(AMISS)
    room.look(AMISS, after=60)
    room.look(WELL, after=10)  # the last requests of a job that fails came well
    assert room.look({}, after=119) is HOLDS
    assert room.look(WELL, after=10) is FIRING
    assert room.look(WELL, after=119) is FIRING
    assert room.look(WELL, after=1) is RESOLVED


def test_it_is_compared_with_the_limit_of_the_day_on_which_it_fired(room):
    room.look({"shop.example": Finding(0.6, "w", limit=0.3)})
    room.look({"shop.example": Finding(0.6, "w", limit=0.3)}, after=60)
    usual_by_now = {"shop.example": Good(0.6)}
    for _ in range(5):
        assert room.look(usual_by_now, after=200) is FIRING
    room.look({"shop.example": Good(0.2)}, after=1)
    assert room.look({"shop.example": Good(0.2)}, after=120) is RESOLVED


def test_what_a_person_closes_is_over_and_told_and_fires_again_only_if_it_comes_back(room):
    room.look(AMISS)
    room.look(AMISS, after=60)
    room.close()
    assert room.look(AMISS, after=5) is CLOSED
    room.look(AMISS, after=60)
    assert [state for state, _ in room.told()] == [FIRING, CLOSED]
    (incident,) = room.incidents.values()
    assert (incident.ended_by, incident.reason, incident.ended_at) == ("ann", "seen", 1065.0)
    assert room.look(AMISS, after=1800) is CLOSED  # the person knew that it goes on
    room.look(WELL, after=10)
    assert room.look(AMISS, after=10) is PENDING
    assert room.look(AMISS, after=60) is FIRING
    (again,) = room.incidents.values()
    assert (again.id, again.state, again.reopened) == (incident.id, IncidentState.OPEN, (room.now,))


def test_what_is_closed_and_goes_on_is_told_again_after_repeat_but_never_the_same_event(room):
    room.look(AMISS)
    room.look(AMISS, after=60)
    room.close()
    room.look(AMISS, after=5)
    assert room.look(AMISS, after=60) is CLOSED
    assert room.look(AMISS, after=3600) is PENDING
    assert room.look(AMISS, after=60) is FIRING

    other = Room(wait=timedelta(0))
    failed = {"shop.example": Finding(1.0, "books-3 failed", mark="books-3")}
    other.look(failed)
    other.close()
    for _ in range(10):
        assert other.look(failed, after=40_000) is CLOSED
    assert other.look({"shop.example": Finding(1.0, "books-4 failed", mark="books-4")}, after=1) is FIRING


def test_an_incident_has_all_alerts_about_its_subject_and_ends_with_the_last():
    room = Room(wait=timedelta(0), keep_for=timedelta(0))
    room.terms["errors"] = room.terms["success"]
    room.look(AMISS)
    room.look(AMISS, after=1, alert="errors")  # and nothing is known of success
    (incident,) = room.incidents.values()
    assert [one.alert for one in incident.alerts] == ["success", "errors"]
    assert {one.subjects[0].incident for one in room.notices} == {incident.id}
    room.look(WELL, after=60, alert="errors")
    (incident,) = room.incidents.values()
    assert incident.ended_at is None
    room.look(WELL, after=60)
    (incident,) = room.incidents.values()
    assert (incident.ended_at, incident.ended_by) == (room.now, "")


def test_an_incident_that_comes_back_much_later_is_another_one():
    room = Room(wait=timedelta(0), keep_for=timedelta(0))
    room.look(AMISS)
    room.look(WELL, after=61)
    room.look(WELL, after=61)
    room.look(AMISS, after=2 * 86_400)
    room.look(AMISS, after=60)
    assert len(room.incidents) == 2


class AlertStory(RuleBasedStateMachine):
    """Anything may be read of one subject in any order. What is told must be what a person could have found out: it
    fires once, holds whatever is not measured, and is over by evidence or by a person alone."""

    def __init__(self):
        super().__init__()
        self.room = Room()
        self.state = AlertState.INACTIVE
        self.good_since = None  # without a break
        self.wrong_since = None
        self.told = []

    def read(self, what, after):
        before, self.state = self.state, self.room.look(what, after=after)
        now = self.room.now
        reading = (what or {}).get("shop.example")
        self.good_since = (self.good_since or now) if reading == GOOD else None
        if isinstance(reading, Finding):
            self.wrong_since = self.wrong_since or now
        elif reading == GOOD:
            self.wrong_since = None
        self.told += [state for state, _ in self.room.told()]
        if before.holds and self.state is RESOLVED:
            assert self.good_since is not None
            assert now - self.good_since >= TERMS.keep_for.total_seconds()
        if before.holds and not self.state.holds:
            assert self.state.over
        if self.state.holds and not before.holds:
            assert isinstance(reading, Finding)
            assert now - self.wrong_since >= TERMS.wait.total_seconds()
        if before.holds and not isinstance(reading, (Finding, Good)) and self.state is not CLOSED:
            assert self.state is HOLDS
        assert not (before is CLOSED and self.state.holds)  # it is pending first

    @rule(after=st.sampled_from([1, 61, 200, 5000, 100_000]), mark=st.sampled_from(["", "books-1", "books-2"]))
    def wrong(self, after, mark):
        self.read({"shop.example": Finding(0.5, "w", mark=mark)}, after)

    @rule(after=st.sampled_from([1, 61, 121, 100_000]))
    def well(self, after):
        self.read(WELL, after)

    @rule(after=st.sampled_from([1, 61, 100_000]), nothing=st.sampled_from([{}, {"shop.example": NO_DATA}, None]))
    def not_measured(self, after, nothing):
        self.read(nothing, after)

    @precondition(lambda self: self.state.holds)
    @rule()
    def a_person_closes_it(self):
        self.room.close()
        self.read(AMISS, 1)
        assert self.state is CLOSED

    @invariant()
    def firing_and_over_are_told_in_turn(self):
        ends = [state.over for state in self.told]
        begun = [not over for over in ends]
        for earlier, later in itertools.pairwise(zip(begun, ends, strict=True)):
            assert not (earlier[1] and later[1]), "it was over twice"
        assert not ends or not ends[0]

    @invariant()
    def every_alert_that_holds_has_one_open_incident(self):
        for one in self.room.standings.values():
            if one.state.holds:
                assert self.room.incidents[one.incident].ended_at is None
        held = {one.incident for one in self.room.standings.values() if one.state.holds}
        assert held == {id for id, one in self.room.incidents.items() if one.ended_at is None}


TestAlertStory = AlertStory.TestCase
TestAlertStory.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
