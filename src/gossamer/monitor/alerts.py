"""How alerts change, and who is notified. Pure; model/alert_table.py finds what is wrong.

    inactive -> pending    its cause appeared
    pending  -> firing     the cause lasted for all of `for`; a message is sent
    pending  -> inactive   the cause went away before that, or nothing was measured for all of `window`
    firing   -> no data    there is nothing to measure, or it cannot be read: it holds
    no data  -> firing     something is measured again, good or bad
    firing   -> resolved   it was good for all of `keep_for`, as measured; a message is sent, if the firing was reported
    firing   -> closed     a person closed it, or switched the alert off, which is reported likewise; also from no data
    resolved -> pending    the cause is back
    closed   -> pending    the cause is back after it was gone, or another event of the same sort, or after `repeat`, or
                           it is wrong and the alert is switched on again
    resolved, closed -> inactive   after a day, if the cause is gone

An alert is over only by evidence or by a person, never because there is nothing left to measure. All news of one alert
at one time is one message per channel; further news of the same alert waits for GROUP. What a silence covers is
reported when the silence ends, if it still holds; that it is over is reported even during a silence, if its beginning
was.

An alert that fires belongs to an incident (incidents.py), whose id is in every message about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from hashlib import blake2b

import msgspec

from ..model.alert import (
    GOOD,
    LONGEST_WORDS,
    MOST_NAMED,
    MOST_SUBJECTS,
    NO_DATA,
    TEST,
    AlertChange,
    AlertState,
    AlertTerms,
    Finding,
    Findings,
    Good,
    NoData,
    Notice,
    NoticeSubject,
    Reading,
    Severity,
    Silence,
    Standing,
)
from ..model.alert_table import ALERTS
from ..model.incident import Closing, Incident, Subject, SubjectKind
from ..schedule.alert_book import AlertStep
from ..settings.alert_tables import ChannelTable
from ..units import visible
from .incidents import BY_A_SETTING, sort_into_incidents

GROUP = timedelta(minutes=1)  # between two messages about one alert
OVER_KEPT = timedelta(days=1)
LONGEST_TITLE = 150
SWITCHED_OFF = AlertTerms(keep_for=timedelta(0), repeat=None)
_OVER = (AlertState.RESOLVED, AlertState.CLOSED)
UNKNOWN = NoData(unknown=True)


def look(
    terms: Mapping[str, AlertTerms],
    found: Mapping[str, Findings | None],
    known: Sequence[Standing],
    *,
    silences: Sequence[Silence] = (),
    closings: Sequence[Closing] = (),
    incidents: Sequence[Incident] = (),
    channels: Mapping[str, ChannelTable],
    now: float,
) -> AlertStep:
    """Evaluate the alerts once. `terms` are those of the enabled alerts. Findings that are None, or missing, are
    unknown. `incidents` are the open ones, and those that may open again."""
    standings = {one.key: one for one in known}
    closed = {one.incident: one for one in closings}
    causes: dict[tuple[str, str], Subject] = {}
    changes: list[AlertChange] = []
    for alert in {*terms, *(one.alert for one in known)}:
        own = terms.get(alert, SWITCHED_OFF)
        findings = found.get(alert) if alert in terms else {}
        absent: Reading = NO_DATA if alert in terms and ALERTS[alert].sampled else GOOD
        clean = {_clean(subject): reading for subject, reading in (findings or {}).items()}
        for subject in _subjects(alert, clean, standings.values()):
            before = standings.pop((alert, subject), None)
            reading = UNKNOWN if findings is None else clean.get(subject, absent)
            if alert not in terms and before is not None and before.state.holds:
                after: Standing | None = close(before, BY_A_SETTING, now)
            elif before is not None and before.incident in closed and not before.state.over:
                after = close(before, closed[before.incident].by, now)
            else:
                after = advance(before, reading, own, now, alert=alert, subject=subject)
            if after is not None:
                standings[after.key] = after
                causes[after.key] = _cause(alert, subject, reading)
                if _is_news(before, after):
                    changes.append(_change(after, silences, now))
    sorted_into = sort_into_incidents(list(standings.values()), known, incidents, closings, causes, now)
    standings = {one.key: one for one in sorted_into.standings}
    notices: list[Notice] = []
    for alert in {one.alert for one in standings.values()}:
        of_alert = [one for one in standings.values() if one.alert == alert]
        told, messages = tell(of_alert, terms.get(alert, SWITCHED_OFF), silences, channels, now)
        notices += messages
        standings.update({one.key: one for one in told})
    before_it = {one.key: one for one in known}
    return AlertStep(
        standings=tuple(one for key, one in standings.items() if before_it.get(key) != one),
        forgotten=tuple(key for key in before_it if key not in standings),
        notices=tuple(sorted(notices, key=lambda one: one.id)),
        changes=tuple(changes),
        incidents=sorted_into.incidents,
        closings=tuple(closed),
    )


def advance(
    before: Standing | None, reading: Reading, terms: AlertTerms, now: float, *, alert: str, subject: str
) -> Standing | None:
    """The new standing of an alert for a subject; None: it is inactive."""
    if before is not None and before.state.over and before.untold:
        return before  # first it must be reported that it was over
    match reading:
        case Finding():
            return _wrong(before, reading, terms, now, alert=alert, subject=subject)
        case Good():
            return _good(before, reading, terms, now) if before is not None else None
        case NoData():
            return _unmeasured(before, reading, terms, now) if before is not None else None


def close(before: Standing, by: str, now: float) -> Standing:
    """A person closes it."""
    return msgspec.structs.replace(
        before,
        state=AlertState.CLOSED,
        since=now,
        clear_since=None,
        no_data_since=None,
        untold=before.told_at is not None,
        closed_by=by,
    )


def _wrong(
    before: Standing | None, found: Finding, terms: AlertTerms, now: float, *, alert: str, subject: str
) -> Standing:
    if before is not None and before.state is AlertState.CLOSED and not _is_back(before, found, terms, now):
        return before
    if before is None or before.state.over:
        before = Standing(alert=alert, subject=subject, state=AlertState.PENDING, since=now, began_at=now)
    limit = before.limit if before.state.holds and before.mark == found.mark else found.limit
    words = visible(found.words)[:LONGEST_WORDS]
    held = before.state is AlertState.NO_DATA
    before = msgspec.structs.replace(
        before, words=words, value=found.value, severity=terms.severity, clear_since=None, no_data_since=None,
        limit=limit, mark=found.mark, state=AlertState.FIRING if held else before.state,
        since=now if held else before.since,
    )  # fmt: skip
    if before.state is AlertState.PENDING and now - before.since >= terms.wait.total_seconds():
        return msgspec.structs.replace(before, state=AlertState.FIRING, since=now, untold=True)
    return before


def _is_back(closed: Standing, found: Finding, terms: AlertTerms, now: float) -> bool:
    """Is it new to the person who closed it? Not while it has gone on without a break, for as long as `repeat`; and the
    same event never is."""
    if closed.closed_by == BY_A_SETTING:
        return True  # it is switched on again
    if closed.mark and found.mark == closed.mark:
        return False
    went_on = closed.clear_since is None and closed.mark == found.mark
    return not went_on or (terms.repeat is not None and now - closed.since >= terms.repeat.total_seconds())


def _good(before: Standing, reading: Good, terms: AlertTerms, now: float) -> Standing | None:
    if before.state is AlertState.PENDING:
        return None
    if before.state.over:
        return _aged(before, now)
    if before.state is AlertState.NO_DATA:
        before = msgspec.structs.replace(before, state=AlertState.FIRING, since=now, no_data_since=None)
    if not _is_within(before, reading):
        return msgspec.structs.replace(before, clear_since=None)
    clear_since = now if before.clear_since is None else before.clear_since
    if now - clear_since < terms.keep_for.total_seconds():
        return msgspec.structs.replace(before, clear_since=clear_since)
    return msgspec.structs.replace(
        before, state=AlertState.RESOLVED, since=now, clear_since=None, untold=before.told_at is not None
    )


def _is_within(before: Standing, reading: Good) -> bool:
    """Has the number come back to the other side of the limit that it had when the alert fired?"""
    if before.limit is None or reading.value is None:
        return True
    return (reading.value - before.limit) * (before.value - before.limit) <= 0


def _unmeasured(before: Standing, reading: NoData, terms: AlertTerms, now: float) -> Standing | None:
    if before.state.over:
        return _aged(before, now) if not reading.unknown else before
    since = now if before.no_data_since is None else before.no_data_since
    if before.state is AlertState.PENDING:
        if not reading.unknown and now - since >= terms.window.total_seconds():
            return None
        return msgspec.structs.replace(before, no_data_since=since)
    if before.state is AlertState.NO_DATA:
        return before
    # Good for a moment and then nothing is no evidence: it must be good for all of `keep_for` again.
    return msgspec.structs.replace(before, state=AlertState.NO_DATA, since=now, no_data_since=since, clear_since=None)


def _aged(before: Standing, now: float) -> Standing | None:
    """What is over, and is not wrong: forgotten after a while."""
    if now - before.since >= OVER_KEPT.total_seconds():
        return None
    if before.state is AlertState.CLOSED and before.clear_since is None:
        return msgspec.structs.replace(before, clear_since=now)
    return before


def _cause(alert: str, subject: str, reading: Reading) -> Subject:
    """What an alert is about."""
    if isinstance(reading, Finding) and reading.cause is not None:
        return reading.cause
    kind = ALERTS[alert].about if alert in ALERTS else SubjectKind.PROJECT
    if not subject and kind is not SubjectKind.WORKERS:
        kind = SubjectKind.PROJECT
    return Subject(kind, subject)


def _is_news(before: Standing | None, after: Standing) -> bool:
    """Is it a line of the history that an alert fires, or is over?"""
    was = before.state if before is not None else AlertState.INACTIVE
    if after.state.holds:
        return not was.holds
    return after.state.over and was is not after.state


def tell(
    standings: Sequence[Standing],
    terms: AlertTerms,
    silences: Sequence[Silence],
    channels: Mapping[str, ChannelTable],
    now: float,
) -> tuple[list[Standing], list[Notice]]:
    """The due messages about one alert, and the standings they report, marked as told."""
    last = max((one.told_at for one in standings if one.told_at is not None), default=None)
    if last is not None and last <= now < last + GROUP.total_seconds():
        return [], []
    told: list[Standing] = []
    notices: list[Notice] = []
    heard = [one for one in standings if not _is_silenced(one, silences, now)]
    firing = [one for one in heard if one.state.holds]
    for state, news, again in (
        (AlertState.FIRING, [one for one in firing if one.untold], False),
        (AlertState.FIRING, [one for one in firing if not one.untold and _is_due_again(one, terms, now)], True),
        *((state, [one for one in standings if one.state is state and one.untold], False) for state in _OVER),
    ):
        if news:
            notices += _notices(sorted(news, key=lambda one: one.subject), state, channels, now, again=again)
            told += [msgspec.structs.replace(one, untold=False, told_at=now) for one in news]
    return told, notices


def wants(channel: ChannelTable, alert: str, severity: Severity, state: AlertState) -> bool:
    """Does the channel want this message?"""
    return (
        severity.reaches(Severity(channel.severity))
        and (not state.over or channel.resolved)
        and (not channel.alerts or any(fnmatchcase(alert, pattern) for pattern in channel.alerts))
    )


def title_of(notice: Notice, project: str) -> str:
    """`books: alert success fires for shop.example`, on one line."""
    before = f"{project}: " if project else ""
    if notice.alert == TEST:
        return f"{before}a test of alerts"
    fires = "still fires" if notice.again else "fires"
    what = f"is {notice.state_told.value}" if notice.state_told.over else fires
    subject = notice.subjects[0].subject
    if notice.count > 1:
        subject = f"{subject} and {notice.count - 1:,} more"
    whom = f" for {subject}" if subject else ""
    return visible(f"{before}alert {notice.alert} {what}{whom}")[:LONGEST_TITLE]


def _notices(
    news: list[Standing], state: AlertState, channels: Mapping[str, ChannelTable], now: float, *, again: bool
) -> list[Notice]:
    first = news[0]
    severity = max((one.severity for one in news), key=list(Severity).index)
    subjects = tuple(
        NoticeSubject(subject=one.subject, words=one.words, value=one.value, since=one.began_at, incident=one.incident)
        for one in news[:MOST_NAMED]
    )
    return [
        Notice(
            id=_notice_id(name, news),
            channel=name,
            alert=first.alert,
            state_told=state,
            severity=severity,
            subjects=subjects,
            count=len(news),
            made_at=now,
            again=again,
            next_at=now,
        )
        for name, channel in channels.items()
        if wants(channel, first.alert, severity, state)
    ]


def _notice_id(channel: str, news: Iterable[Standing]) -> str:
    """The same for the same news, whichever process computes it."""
    digest = blake2b(channel.encode(), digest_size=16)
    for one in news:
        digest.update(f"\0{one.alert}\0{one.subject}\0{one.state}\0{one.since!r}\0{one.told_at!r}".encode())
    return f"msg_{digest.hexdigest()}"


def _subjects(alert: str, found: Findings, known: Iterable[Standing]) -> list[str]:
    """The subjects that have a standing, then new ones while there is room, so that a flood of sites costs no more."""
    own = [one for one in known if one.alert == alert]
    room = MOST_SUBJECTS - sum(not one.state.over for one in own)
    old = {one.subject: None for one in own}
    new = sorted(subject for subject, reading in found.items() if subject not in old and isinstance(reading, Finding))
    return [*old, *new[: max(0, room)]]


def _change(one: Standing, silences: Sequence[Silence], now: float) -> AlertChange:
    return AlertChange(
        at=now,
        alert=one.alert,
        subject=one.subject,
        state=one.state,
        words=one.words,
        severity=one.severity,
        silenced=_is_silenced(one, silences, now),
    )


def _is_silenced(one: Standing, silences: Sequence[Silence], now: float) -> bool:
    return any(silence.covers(one.alert, one.subject, now) for silence in silences)


def _is_due_again(one: Standing, terms: AlertTerms, now: float) -> bool:
    """False while its cause is gone and it is only kept, and while nothing is measured."""
    if terms.repeat is None or one.told_at is None or one.clear_since is not None or one.no_data_since is not None:
        return False
    return now - one.told_at >= terms.repeat.total_seconds()


def _clean(subject: str) -> str:
    """Names of sites and spiders come from strangers."""
    return visible(subject)[:LONGEST_WORDS]
