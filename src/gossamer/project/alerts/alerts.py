"""Alerts as people and programs see them: which fire, what each means, which messages were sent; silences and test
messages.

Every value has the shape that `--json` prints; times are ISO 8601 in UTC. The leading scheduler evaluates alerts and
notifies (alert_watch.py). How it fails: Misconfigured for an alert, silence or channel that does not exist;
BackendUnavailable.
"""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta

import msgspec

from ...clock import iso_time
from ...errors import Misconfigured
from ...model.alert import (
    TEST,
    AlertChange,
    AlertState,
    AlertTerms,
    Notice,
    NoticeState,
    NoticeSubject,
    Severity,
    Silence,
    Standing,
)
from ...model.alert_table import ALERTS, alert_hint
from ...monitor.alerts import title_of
from ...settings import Settings
from ...settings.alert_tables import terms_of
from ...units import setting_text, visible
from ..open import Project
from ..view_fields import view_of

LONGEST_SILENCE = timedelta(days=365)
LONGEST_REASON = 500
LONGEST_PATTERN = 300
MOST_SILENCES = 1000
SHOWN = 20  # changes and messages shown with an alert


class AlertView(msgspec.Struct, frozen=True, kw_only=True):
    """Where an alert stands for one subject: a site, a job, a pool; "" is the project as a whole."""

    alert: str
    subject: str
    state: AlertState
    severity: Severity
    since: str  # of this state
    began_at: str  # when its cause was first seen
    told_at: str | None  # of the last message that mentioned it
    message: str
    value: float  # the number that the rule judges
    no_data_since: str | None  # since then there is nothing to measure, and it holds
    closed_by: str
    incident: str  # its id; "" before it fired
    silenced_until: str | None


class SilenceView(msgspec.Struct, frozen=True, kw_only=True):
    """No messages are sent about these alerts until `until`. `alert` and `subject` may be patterns."""

    id: str
    alert: str
    subject: str
    until: str
    reason: str
    made_at: str
    made_by: str


class AlertList(msgspec.Struct, frozen=True, kw_only=True):
    """`watched`: a scheduler leads, so that alerts are evaluated. Those that fire come first."""

    watched: bool
    alerts: list[AlertView]
    silences: list[SilenceView]
    channels: list[str]


class AlertTermsView(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of an alert. Durations are written as in gossamer.toml; `repeat` None: it is sent once."""

    severity: Severity
    wait: str = msgspec.field(name="for")
    keep_for: str
    repeat: str | None
    threshold: float
    window: str
    minimum: int


class AlertChangeView(msgspec.Struct, frozen=True, kw_only=True):
    """An alert fired, was resolved or was closed. `silenced`: a silence covered it at that time."""

    at: str
    alert: str
    subject: str
    state: AlertState
    severity: Severity
    message: str
    silenced: bool


class NoticeView(msgspec.Struct, frozen=True, kw_only=True):
    """A message to a channel, and its delivery."""

    id: str
    channel: str
    alert: str
    title: str
    state: NoticeState
    made_at: str
    tries: int
    next_at: str | None  # when it is sent next; None when it is over
    ended_at: str | None
    error: str  # why the last try failed


class AlertDetail(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one alert. `terms` None: it is switched off."""

    alert: str
    meaning: str
    advice: str
    terms: AlertTermsView | None
    alerts: list[AlertView]
    history: list[AlertChangeView]
    notices: list[NoticeView]


class ChannelTest(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a test message."""

    channel: str
    kind: str
    ok: bool
    error: str


# -- looking -------------------------------------------------------------------------------------------------------


async def list_alerts(project: Project, state: AlertState | None = None) -> AlertList:
    """All alerts that are not inactive, or those in one state; and the silences."""
    silences = await project.state.alerts.silences()
    now = project.clock.now()
    order = [AlertState.FIRING, AlertState.NO_DATA, AlertState.PENDING, AlertState.CLOSED, AlertState.RESOLVED]
    severities = list(Severity)
    views = [_view(one, silences, now) for one in await project.state.alerts.standings()]
    views.sort(key=lambda one: (order.index(one.state), -severities.index(one.severity), one.alert, one.subject))
    return AlertList(
        watched=await project.state.schedules.leader() is not None,
        alerts=[one for one in views if state in (None, one.state)],
        silences=[_silence_view(one) for one in silences],
        channels=list(project.settings.channels),
    )


async def firing_alerts(project: Project) -> list[AlertView]:
    """Alerts that have fired and are not over, also those for which there is nothing to measure now."""
    return [one for one in (await list_alerts(project)).alerts if one.state.holds]


async def show_alert(project: Project, alert: str) -> AlertDetail:
    """Raises Misconfigured for an alert that does not exist."""
    demand_alert(alert)
    terms = terms_of(project.settings.alerts).get(alert)
    notices = [one for one in await list_notices(project, limit=SHOWN * 10) if one.alert == alert]
    return AlertDetail(
        alert=alert,
        meaning=ALERTS[alert].meaning,
        advice=ALERTS[alert].advice,
        terms=_terms_view(terms) if terms is not None else None,
        alerts=[one for one in (await list_alerts(project)).alerts if one.alert == alert],
        history=await alert_history(project, alert, limit=SHOWN),
        notices=notices[:SHOWN],
    )


async def alert_history(project: Project, alert: str | None = None, *, limit: int = 100) -> list[AlertChangeView]:
    """Alerts that fired and were resolved, newest first."""
    if alert is not None:
        demand_alert(alert)
    return [_change_view(one) for one in await project.state.alerts.history(limit, alert)]


async def list_notices(project: Project, *, limit: int = 100) -> list[NoticeView]:
    """Messages: first those to be sent, then finished ones, newest first."""
    name = project.settings.project
    return [_notice_view(one, name) for one in await project.state.alerts.notices(limit)]


def demand_alert(alert: str) -> None:
    """Raises Misconfigured for an alert that does not exist."""
    if alert not in ALERTS:
        raise Misconfigured(f"There is no alert {visible(alert[:100])!r}. {alert_hint(alert)}")


# -- silences ------------------------------------------------------------------------------------------------------


async def silence(
    project: Project, alert: str, *, subject: str = "*", lasting: timedelta, reason: str, by: str = ""
) -> SilenceView:
    """Send no messages about these alerts for that long. `alert` and `subject` may be patterns. Raises
    Misconfigured."""
    if not any(mark in alert for mark in "*?["):
        demand_alert(alert)
    if not timedelta(0) < lasting <= LONGEST_SILENCE:
        raise Misconfigured(f"A silence must end between now and {LONGEST_SILENCE.days}d from now.")
    if not reason.strip() or len(reason) > LONGEST_REASON:
        raise Misconfigured(f"Say why it is silenced, in 1 to {LONGEST_REASON} characters: others will want to know.")
    if max(len(alert), len(subject)) > LONGEST_PATTERN:
        raise Misconfigured(f"A pattern has at most {LONGEST_PATTERN} characters.")
    book, now = project.state.alerts, project.clock.now()
    if len(await book.silences()) >= MOST_SILENCES:
        raise Misconfigured(f"There are {MOST_SILENCES} silences already. End some: gossamer alerts unsilence ID.")
    made = Silence(
        id=f"s{secrets.token_hex(4)}",
        alert=visible(alert),
        subject=visible(subject),
        until=now + lasting.total_seconds(),
        reason=visible(reason.strip()),
        made_at=now,
        made_by=visible(by),
    )
    await book.silence(made)
    return _silence_view(made)


async def unsilence(project: Project, id: str) -> SilenceView:
    """End a silence. Raises Misconfigured if there is none with that id."""
    found = [one for one in await project.state.alerts.silences() if one.id == id]
    if not found or not await project.state.alerts.unsilence(id):
        raise Misconfigured(f"There is no silence {visible(id[:100])}. `gossamer alerts list` lists them.")
    return _silence_view(found[0])


# -- channels ------------------------------------------------------------------------------------------------------


async def try_channels(project: Project, channel: str | None = None) -> list[ChannelTest]:
    """Send a test message to all channels, or to one, at once. Raises Misconfigured if there is none."""
    from .channels import Channels  # loads fetch code, which read-only commands should not wait for

    names = _chosen(project.settings, channel)
    channels, now = Channels(project), project.clock.now()
    subject = NoticeSubject(subject="", words="This is a test.", value=0.0, since=now)
    sent = await asyncio.gather(
        *(
            channels.send(
                Notice(
                    id=f"msg_{secrets.token_hex(16)}",
                    channel=name,
                    alert=TEST,
                    state_told=AlertState.FIRING,
                    severity=Severity.INFO,
                    subjects=(subject,),
                    count=1,
                    made_at=now,
                )
            )
            for name in names
        )
    )
    kinds = project.settings.channels
    return [
        ChannelTest(channel=name, kind=kinds[name].kind, ok=not one.error, error=one.error)
        for name, one in zip(names, sent, strict=True)
    ]


def _chosen(settings: Settings, channel: str | None) -> list[str]:
    if not settings.channels:
        raise Misconfigured(
            "There is no channel yet. Write a table [channels.NAME] in gossamer.toml; see docs/alerts.md."
        )
    if channel is None:
        return list(settings.channels)
    if channel not in settings.channels:
        raise Misconfigured(f"There is no channel {visible(channel[:100])!r}; there is {', '.join(settings.channels)}.")
    return [channel]


# -- views ---------------------------------------------------------------------------------------------------------


def _view(one: Standing, silences: list[Silence], now: float) -> AlertView:
    ends = [silence.until for silence in silences if silence.covers(one.alert, one.subject, now)]
    until = iso_time(max(ends)) if ends else None
    times = ("since", "began_at", "told_at", "no_data_since")
    return view_of(AlertView, one, *times, message=one.words, silenced_until=until)


def _silence_view(one: Silence) -> SilenceView:
    return view_of(SilenceView, one, "until", "made_at")


def _terms_view(terms: AlertTerms) -> AlertTermsView:
    durations = {name: getattr(terms, name) for name in ("wait", "keep_for", "repeat", "window")}
    written = {name: setting_text(one) if one is not None else None for name, one in durations.items()}
    return view_of(AlertTermsView, terms, **written)


def _change_view(one: AlertChange) -> AlertChangeView:
    return view_of(AlertChangeView, one, "at", message=one.words)


def _notice_view(one: Notice, project: str) -> NoticeView:
    due = iso_time(one.next_at) if one.state is NoticeState.DUE else None
    return view_of(NoticeView, one, "made_at", "ended_at", title=title_of(one, project), next_at=due)
