"""How alerts change, and who is notified: inactive, pending, firing, resolved. Pure; model/alert_table.py finds what
is wrong.

    inactive -> pending    its cause appeared
    pending  -> firing     the cause lasted for all of `for`; a message is sent
    pending  -> inactive   the cause went away before that
    firing   -> resolved   the cause has been gone for all of `keep_for`; a message is sent, if the firing was reported
    resolved -> pending    the cause is back
    resolved -> inactive   after a day

If it is unknown whether a cause exists, an alert stays as it is. All news of one alert at one time is one message per
channel; further news of the same alert waits for GROUP. What a silence covers is reported when the silence ends, if it
still fires; that it was resolved is reported even during a silence, if its beginning was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from hashlib import blake2b

import msgspec

from ..model.alert import (
    LONGEST_WORDS,
    MOST_NAMED,
    MOST_SUBJECTS,
    TEST,
    AlertChange,
    AlertState,
    AlertTerms,
    Finding,
    Findings,
    Notice,
    NoticeSubject,
    Severity,
    Silence,
    Standing,
)
from ..schedule.alert_book import AlertStep
from ..settings.alert_tables import ChannelTable
from ..units import visible

GROUP = timedelta(minutes=1)  # between two messages about one alert
RESOLVED_KEPT = timedelta(days=1)
LONGEST_TITLE = 150
SWITCHED_OFF = AlertTerms(keep_for=timedelta(0), repeat=None)

_ACTIVE = (AlertState.PENDING, AlertState.FIRING)


def look(
    terms: Mapping[str, AlertTerms],
    found: Mapping[str, Findings | None],
    known: Sequence[Standing],
    *,
    silences: Sequence[Silence] = (),
    channels: Mapping[str, ChannelTable],
    now: float,
) -> AlertStep:
    """Evaluate the alerts once. `terms` are those of the enabled alerts. Findings that are None, or missing, are
    unknown."""
    standings = {one.key: one for one in known}
    changes: list[AlertChange] = []
    for alert in {*terms, *(one.alert for one in known)}:
        own = terms.get(alert, SWITCHED_OFF)
        findings = found.get(alert) if alert in terms else {}
        if findings is None:
            continue
        clean = {_clean(subject): finding for subject, finding in findings.items()}
        for subject in _subjects(alert, clean, standings.values()):
            before = standings.pop((alert, subject), None)
            after = advance(before, clean.get(subject), own, now, alert=alert, subject=subject)
            if after is not None:
                standings[after.key] = after
                if (before is None or before.state is not after.state) and after.state is not AlertState.PENDING:
                    changes.append(_change(after, silences, now))
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
    )


def advance(
    before: Standing | None, finding: Finding | None, terms: AlertTerms, now: float, *, alert: str, subject: str
) -> Standing | None:
    """The new standing of an alert for a subject; None: it is inactive. `finding` None: nothing is wrong."""
    state = before.state if before is not None else AlertState.INACTIVE
    if before is not None and state is AlertState.RESOLVED and before.untold:
        return before  # first it must be reported that it was over
    if finding is None:
        if before is None or state is AlertState.PENDING:
            return None
        if state is AlertState.RESOLVED:
            return before if now - before.since < RESOLVED_KEPT.total_seconds() else None
        clear_since = now if before.clear_since is None else before.clear_since
        if now - clear_since < terms.keep_for.total_seconds():
            return msgspec.structs.replace(before, clear_since=clear_since)
        return msgspec.structs.replace(
            before, state=AlertState.RESOLVED, since=now, clear_since=None, untold=before.told_at is not None
        )
    words, value = visible(finding.words)[:LONGEST_WORDS], finding.value
    if before is None or state is AlertState.RESOLVED:
        before = Standing(alert=alert, subject=subject, state=AlertState.PENDING, since=now, began_at=now)
    before = msgspec.structs.replace(before, words=words, value=value, severity=terms.severity, clear_since=None)
    if before.state is AlertState.PENDING and now - before.since >= terms.wait.total_seconds():
        return msgspec.structs.replace(before, state=AlertState.FIRING, since=now, untold=True)
    return before


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
    firing = [one for one in heard if one.state is AlertState.FIRING]
    for news, again in (
        ([one for one in firing if one.untold], False),
        ([one for one in firing if not one.untold and _is_due_again(one, terms, now)], True),
        ([one for one in standings if one.state is AlertState.RESOLVED and one.untold], False),
    ):
        if news:
            notices += _notices(sorted(news, key=lambda one: one.subject), channels, now, again=again)
            told += [msgspec.structs.replace(one, untold=False, told_at=now) for one in news]
    return told, notices


def wants(channel: ChannelTable, alert: str, severity: Severity, state: AlertState) -> bool:
    """Does the channel want this message?"""
    return (
        severity.reaches(Severity(channel.severity))
        and (state is not AlertState.RESOLVED or channel.resolved)
        and (not channel.alerts or any(fnmatchcase(alert, pattern) for pattern in channel.alerts))
    )


def title_of(notice: Notice, project: str) -> str:
    """`books: alert success fires for shop.example`, on one line."""
    before = f"{project}: " if project else ""
    if notice.alert == TEST:
        return f"{before}a test of alerts"
    what = "is resolved" if notice.state_told is AlertState.RESOLVED else "still fires" if notice.again else "fires"
    subject = notice.subjects[0].subject if notice.count == 1 else str(notice.count)
    whom = f" for {subject}" if subject else ""
    return visible(f"{before}alert {notice.alert} {what}{whom}")[:LONGEST_TITLE]


def _notices(news: list[Standing], channels: Mapping[str, ChannelTable], now: float, *, again: bool) -> list[Notice]:
    first = news[0]
    severity = max((one.severity for one in news), key=list(Severity).index)
    subjects = tuple(
        NoticeSubject(subject=one.subject, words=one.words, value=one.value, since=one.began_at)
        for one in news[:MOST_NAMED]
    )
    return [
        Notice(
            id=_notice_id(name, news),
            channel=name,
            alert=first.alert,
            state_told=first.state,
            severity=severity,
            subjects=subjects,
            count=len(news),
            made_at=now,
            again=again,
            next_at=now,
        )
        for name, channel in channels.items()
        if wants(channel, first.alert, severity, first.state)
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
    room = MOST_SUBJECTS - sum(one.state in _ACTIVE for one in own)
    old = [one.subject for one in own]
    new = sorted(subject for subject in found if subject not in old)
    return old + new[: max(0, room)]


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
    """False while its cause is gone and it is only kept."""
    if terms.repeat is None or one.told_at is None or one.clear_since is not None:
        return False
    return now - one.told_at >= terms.repeat.total_seconds()


def _clean(subject: str) -> str:
    """Names of sites and spiders come from strangers."""
    return visible(subject)[:LONGEST_WORDS]
