"""How a message about an alert reaches people and programs: webhook, Slack, e-mail, Apprise.

What it does: `Channels.send` formats a message for its channel and sends it once. Webhooks are signed like callbacks.
How it fails: it never raises for a fault of a channel or its settings; `Sent` says what was wrong, whether another try
may help, and when. Addresses are checked when they are dialled: private ones are allowed only if the channel says
`allow_private` or the host is in fetch.allow_hosts. How it recovers: alert_watch.py sends again, with the same id.

Slack and mail do not go through Apprise: it dials addresses that nobody has checked, and would be one more package for
what most people want. Names of sites and spiders come from strangers: in Slack they cannot mention anyone, in an e-mail
they cannot start a header.
"""

from __future__ import annotations

import asyncio
import logging
import smtplib
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from functools import partial
from urllib.parse import urlsplit

import msgspec

from ... import __version__
from ...access.webhooks import GONE, signed_headers
from ...clock import iso_time
from ...errors import AddressRefused, GossamerError, Misconfigured, MissingExtra, Transient
from ...fetch.addresses import AddressGuard
from ...fetch.contract import Limits, TransportRequest
from ...fetch.http import AiohttpTransport
from ...fetch.retry_after import parse_retry_after
from ...model.alert import TEST, AlertState, Notice
from ...model.secret_text import revealed, stored_setting
from ...model.url import parse_url
from ...monitor.alerts import title_of
from ...settings import Settings
from ...settings.alert_tables import APPRISE, EMAIL, SLACK, STARTTLS, TLS, ChannelTable
from ...terms import secrets_of as secrets_by_name
from ...units import many, visible
from ..access.callbacks import secrets_of
from ..jobs.api_views import encode
from ..open import Project
from .incidents import incident_address

OWNER = ""  # the project itself, whose secret signs messages
TOTAL = timedelta(seconds=30)  # for one message
ONE_STEP = timedelta(seconds=10)  # one step of sending it: an answer from a server
LIMITS = Limits(connect=ONE_STEP, read=ONE_STEP, total=timedelta(seconds=20), max_body=1024)
LONGEST_LINE = 300
MOST_TIPS = 3  # commands that show an incident


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one try to send a message. `error` "": it was accepted. `hopeless`: another try would not help."""

    error: str = ""
    hopeless: bool = False
    asked: timedelta | None = None  # the pause that the receiver asked for


class Channels:
    """Sends messages to the channels of a project."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._signing: tuple[str, ...] = ()  # secrets that sign webhooks, as last read

    async def send(self, notice: Notice) -> Sent:
        """Send it once."""
        table = self._project.settings.channels.get(notice.channel)
        if table is None:
            return Sent(error=f"There is no channel {notice.channel} any more.", hopeless=True)
        way = {EMAIL: self._mail, APPRISE: self._apprise}.get(table.kind, self._post)
        hidden: list[str] = []
        try:
            async with asyncio.timeout(TOTAL.total_seconds()):
                return await way(notice, table, hidden)
        except AddressRefused as refusal:
            return Sent(error=_discreet(str(refusal), hidden), hopeless=True)
        except Exception as error:  # servers and third-party packages may raise anything; the next try may succeed
            return Sent(error=_discreet(_words(error), hidden))

    # -- over HTTP ---------------------------------------------------------------------------------------------

    async def _post(self, notice: Notice, table: ChannelTable, hidden: list[str]) -> Sent:
        settings, now = self._project.settings, self._project.clock.now()
        url = parse_url(self._revealed(table.url.reveal(), hidden))
        parts = urlsplit(url)
        hidden += [part for part in (parts.path, parts.query) if len(part) > 1]  # Slack's secret is here
        headers: tuple[tuple[str, str], ...] = (
            ("Content-Type", "application/json"),
            ("User-Agent", f"Gossamer/{__version__}"),
        )
        if table.kind == SLACK:
            body = encode({"text": slack_text(notice, settings), "unfurl_links": False})
        else:
            body = encode(webhook_body(notice, settings))
            headers += signed_headers(notice.id, int(now), body, await self._secrets())
        guard = _guard(settings, notice.channel)
        async with AiohttpTransport(guard) as transport:
            response = await transport.fetch(
                TransportRequest(url=url, method="POST", headers=headers, body=body, limits=LIMITS)
            )
        if 200 <= response.status < 300:
            return Sent()
        asked = parse_retry_after(response.headers.get("retry-after"), now)
        return Sent(error=f"The receiver answered {response.status}.", hopeless=response.status == GONE, asked=asked)

    async def _secrets(self) -> tuple[str, ...]:
        """The project's secrets; those last read if the state does not answer."""
        try:
            self._signing = tuple(secret.text for secret in await secrets_of(self._project, OWNER))
        except Transient:
            if not self._signing:
                raise
        return self._signing

    # -- e-mail ------------------------------------------------------------------------------------------------

    async def _mail(self, notice: Notice, table: ChannelTable, hidden: list[str]) -> Sent:
        settings = self._project.settings
        password = self._revealed(table.password.reveal(), hidden) if table.password else ""
        message = mail_of(notice, table, settings)
        guard = _guard(settings, notice.channel)
        found = await asyncio.get_running_loop().getaddrinfo(table.host, table.port, type=socket.SOCK_STREAM)
        addresses = [str(one[4][0]) for one in found]
        permitted = [one for one in addresses if guard.permits(table.host, one)]
        if not permitted:
            guard.check(table.host, addresses[0])
        server = await asyncio.to_thread(MailServer, table, permitted)  # asks DNS for this machine's name
        work = asyncio.ensure_future(asyncio.to_thread(server.deliver, message, password))
        try:
            refused = await asyncio.shield(work)
        finally:
            server.end()  # a thread cannot be cancelled, but it ends without its connection
            await asyncio.wait([work])
            work.exception()  # already raised, or no longer awaited
        if refused:  # or each retry would send it to the accepted recipients again
            words = f"The mail server refused {', '.join(sorted(refused))}; the others received it."
            return Sent(error=words, hopeless=True)
        return Sent()

    # -- Apprise -----------------------------------------------------------------------------------------------

    async def _apprise(self, notice: Notice, table: ChannelTable, hidden: list[str]) -> Sent:
        try:
            import apprise
        except ImportError as error:
            raise MissingExtra("Channels of kind apprise need a package: pip install 'gossamer[apprise]'") from error
        logging.getLogger("apprise").disabled = True  # its log shows addresses with their secrets
        target = apprise.Apprise()
        if not target.add(self._revealed(table.url.reveal(), hidden)):
            raise Misconfigured("Apprise does not know this kind of address: see its list of services.")
        name = self._project.settings.project
        text = partial(
            target.notify,
            title=title_of(notice, name),
            body=text_of(notice, self._project.settings),
            body_format="text",
        )
        return Sent() if await asyncio.to_thread(text) else Sent(error="The service did not accept it.")

    def _revealed(self, text: str, hidden: list[str]) -> str:
        """The text with its secrets filled in. Raises Misconfigured."""
        found = revealed(stored_setting(text), secrets_by_name(self._project.settings))
        hidden.append(found)
        return found


class MailServer(smtplib.SMTP):
    """A mail server at the first of its addresses that answers, for one message, in a thread. The addresses were
    checked before; the name is the one in its certificate."""

    def __init__(self, table: ChannelTable, addresses: Sequence[str]) -> None:
        super().__init__(timeout=ONE_STEP.total_seconds())
        self._table = table
        self._addresses = addresses
        self._ended = False

    def deliver(self, message: EmailMessage, password: str) -> set[str]:
        """Returns the refused recipients, if others were accepted. Raises OSError and SMTPException."""
        table = self._table
        try:
            self.connect(table.host, table.port)
            if table.security == STARTTLS:
                # Raises if the server has no STARTTLS: nothing is sent in clear text.
                self.starttls(context=ssl.create_default_context())
            if password:
                self.login(table.user, password)
            refused = self.send_message(message)
            with suppress(OSError, smtplib.SMTPException):  # the message was accepted, whatever happens on closing
                self.quit()
            return set(refused)
        finally:
            self.close()

    def end(self) -> None:
        """Stop waiting, whatever it waits for."""
        self._ended = True
        if (connection := self.sock) is not None:
            with suppress(OSError):  # already closed
                connection.shutdown(socket.SHUT_RDWR)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        self._host = host  # checked by starttls
        connection = self._dial(port, timeout)
        if self._ended:
            connection.close()
            raise OSError("Sending this message was cancelled.")
        if self._table.security == TLS:
            return ssl.create_default_context().wrap_socket(connection, server_hostname=host)
        return connection

    def _dial(self, port: int, timeout: float) -> socket.socket:
        *others, last = self._addresses
        for address in others:
            with suppress(OSError):  # the machine may not be able to use an address of this family
                return socket.create_connection((address, port), timeout)
        return socket.create_connection((last, port), timeout)


# -- the text ---------------------------------------------------------------------------------------------------------


def text_of(notice: Notice, settings: Settings) -> str:
    """The faults, line by line, with the addresses of their incidents, and the commands to type."""
    lines: list[str] = []
    for one in notice.subjects:
        lines.append(f"{one.subject or 'the project'}: {one.words[:LONGEST_LINE]} (since {iso_time(one.since)})")
        if address := incident_address(settings, one.incident):
            lines.append(address)
    if notice.count > len(notice.subjects):
        lines.append(f"... and {many(notice.count - len(notice.subjects), 'more', 'more')}")
    if notice.alert == TEST:
        return "This is a test message. Alerts of the project are sent here.\n"
    if notice.state_told.over:
        over = (
            "What was closed, by a person or because the alert is switched off:"
            if notice.state_told is AlertState.CLOSED
            else "What is good again:"
        )
        return "\n".join([over, *lines, ""])
    incidents = list(dict.fromkeys(one.incident for one in notice.subjects if one.incident))
    tips = [f"gossamer incident show {one}" for one in incidents[:MOST_TIPS]]
    tips.append(f"gossamer alerts silence {notice.alert} --for 2h --reason ...")
    return "\n".join([f"Severity: {notice.severity}", *lines, "", *tips, ""])


def webhook_body(notice: Notice, settings: Settings) -> dict[str, object]:
    """The body of a webhook, also of `alerts test`."""
    project = settings.project
    data = {
        "alert": notice.alert,
        "state": notice.state_told.value,
        "severity": notice.severity.value,
        "project": project,
        "title": title_of(notice, project),
        "again": notice.again,
        "count": notice.count,
        "subjects": [
            {
                "subject": one.subject,
                "message": one.words,
                "value": one.value,
                "since": iso_time(one.since),
                "incident": one.incident or None,
                "url": incident_address(settings, one.incident) or None,
            }
            for one in notice.subjects
        ],
    }
    kind = TEST if notice.alert == TEST else notice.state_told.value
    return {"type": f"alert.{kind}", "timestamp": iso_time(notice.made_at), "data": data}


def slack_text(notice: Notice, settings: Settings) -> str:
    """The text in Slack's markup, where only `&`, `<` and `>` start something active: <!channel>, <@user>, links."""
    text = f"{title_of(notice, settings.project)}\n{text_of(notice, settings)}"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def mail_of(notice: Notice, table: ChannelTable, settings: Settings) -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = title_of(notice, settings.project)
    message["From"] = Address("Gossamer", addr_spec=table.sender)
    message["To"] = [Address(addr_spec=one) for one in table.to]
    message["Date"] = format_datetime(datetime.fromtimestamp(notice.made_at, UTC))
    message["Message-ID"] = f"<{notice.id}@{table.sender.rpartition('@')[2]}>"  # the same for every try
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text_of(notice, settings))
    return message


def _guard(settings: Settings, channel: str) -> AddressGuard:
    """Which addresses a channel may dial, by its own settings, not by those of crawls."""
    fetch, table = settings.fetch, settings.channels[channel]
    switch = f"channels.{channel}.allow_private"
    return AddressGuard(table.allow_private, frozenset(fetch.allow_hosts), fetch.deny, switch=switch)


def _discreet(words: str, hidden: list[str]) -> str:
    for secret in sorted(hidden, key=len, reverse=True):
        if secret:
            words = words.replace(secret, "***")
    return visible(" ".join(words.split()))[:500]


def _words(error: Exception) -> str:
    match error:
        case TimeoutError():
            return f"No answer within {TOTAL.total_seconds():.0f} s."
        case smtplib.SMTPRecipientsRefused():
            return f"The mail server refused {', '.join(sorted(error.recipients))}."
        case smtplib.SMTPResponseException():
            said = (
                error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
            )
            return f"The mail server answered {error.smtp_code}: {said}"
        case GossamerError():
            return str(error)
        case _:
            return f"{type(error).__name__}: {error}"
