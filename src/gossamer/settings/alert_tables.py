"""[alerts.NAME] and [channels.NAME]: which alerts notify whom, and how; and checks of these tables.

model/alert_table.py says what each alert checks. An alert with its usual terms needs no table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

import msgspec

from ..model.alert import AlertTerms, Severity
from ..model.alert_table import USUAL, alert_hint
from ..units import Secret

WEBHOOK, SLACK, EMAIL, APPRISE = KINDS = ("webhook", "slack", "email", "apprise")
STARTTLS, TLS, PLAIN = SECURITY = ("starttls", "tls", "plain")


class AlertTable(msgspec.Struct, frozen=True, kw_only=True):
    """[alerts.NAME]: the terms of one alert. None: its usual value."""

    enabled: bool = True
    severity: str | None = None  # info, warning or critical
    wait: timedelta | None = msgspec.field(default=None, name="for")  # it must last this long before it fires
    keep_for: timedelta = timedelta(minutes=5)  # it goes on firing for this long after its cause is gone
    repeat: timedelta | None = timedelta(hours=12)  # the message is repeated after this; None: never
    threshold: float | None = None
    window: timedelta | None = None
    minimum: int | None = None


class ChannelTable(msgspec.Struct, frozen=True, kw_only=True):
    """[channels.NAME]: a way to notify people or programs. ${NAME} in `url` and `password` is a secret."""

    kind: str = ""  # webhook, slack, email or apprise
    url: Secret = Secret("")  # not for email
    alerts: tuple[str, ...] = ()  # names or patterns; empty: all
    severity: str = Severity.INFO.value  # the lowest severity that is sent here
    resolved: bool = True  # also send a message when an alert is resolved
    allow_private: bool = False  # may it be in a private network?

    # email
    host: str = ""
    port: int = 587
    security: str = STARTTLS
    user: str = ""
    password: Secret = Secret("")
    sender: str = ""
    to: tuple[str, ...] = ()


def terms_of(alerts: Mapping[str, AlertTable]) -> dict[str, AlertTerms]:
    """The enabled alerts with their terms."""
    found = {}
    for name, usual in USUAL.items():
        table = alerts.get(name, AlertTable())
        if table.enabled:
            own = {
                "severity": None if table.severity is None else Severity(table.severity),
                **{field: getattr(table, field) for field in ("wait", "threshold", "window", "minimum")},
            }
            written = {field: value for field, value in own.items() if value is not None}
            found[name] = msgspec.structs.replace(usual, keep_for=table.keep_for, repeat=table.repeat, **written)
    return found


def alert_faults(alerts: Mapping[str, AlertTable], channels: Mapping[str, ChannelTable]) -> Iterator[tuple[str, str]]:
    """What is wrong with them: the dotted key, and a sentence."""
    for name, table in alerts.items():
        key = f"alerts.{name}"
        if name not in USUAL:
            yield key, f"there is no such alert. {alert_hint(name)}"
            continue
        if table.severity is not None and table.severity not in list(Severity):
            yield f"{key}.severity", f"must be {_one_of(Severity)}."
        if table.repeat is not None and table.repeat < timedelta(minutes=1):
            yield f"{key}.repeat", "must be 1m or more; none sends the message once."
        if table.threshold is not None and not 0 <= table.threshold < 1e12:
            yield f"{key}.threshold", "must be 0 or more."
        if table.window is not None and not timedelta(minutes=1) <= table.window <= timedelta(days=30):
            yield f"{key}.window", "must be between 1m and 30d."
        if table.minimum is not None and table.minimum < 0:
            yield f"{key}.minimum", "must be 0 or more."
    for name, channel in channels.items():
        for field, fault in _channel_faults(channel):
            yield f"channels.{name}.{field}", fault


def _channel_faults(channel: ChannelTable) -> Iterator[tuple[str, str]]:
    if channel.kind not in KINDS:
        yield "kind", f"must be {_one_of(KINDS)}."
        return
    if channel.severity not in list(Severity):
        yield "severity", f"must be {_one_of(Severity)}."
    for pattern in channel.alerts:
        if not any(mark in pattern for mark in "*?[") and pattern not in USUAL:
            yield "alerts", f"there is no alert {pattern!r}. {alert_hint(pattern)}"
    if channel.kind != EMAIL:
        if not channel.url:
            yield "url", "is needed for this kind of channel."
        return
    for field in ("host", "sender", "to"):
        if not getattr(channel, field):
            yield field, "is needed for e-mail."
    if channel.security not in SECURITY:
        yield "security", f"must be {_one_of(SECURITY)}."
    if not 1 <= channel.port <= 65535:
        yield "port", "must be between 1 and 65535."
    if channel.password and not channel.user:
        yield "user", "is needed beside a password."
    if channel.password and channel.security == PLAIN and not channel.allow_private:
        yield "security", "a password must not cross the internet without encryption: write starttls or tls."
    for address in (channel.sender, *channel.to):
        if not address.isascii() or not address.isprintable() or address.count("@") != 1 or " " in address:
            yield "to" if address in channel.to else "sender", "write plain addresses: watch@shop.example."


def _one_of(words: Iterable[str]) -> str:
    *others, last = list(words)
    return f"{', '.join(others)} or {last}"
