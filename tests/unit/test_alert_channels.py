"""Messages about alerts as their receivers get them: signed webhooks, Slack, mails; and hostile names in each."""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from gossamer.access.webhooks import new_secret
from gossamer.errors import Misconfigured
from gossamer.model.alert import AlertState, AlertTerms, Finding, Notice, NoticeSubject, Severity
from gossamer.monitor.alerts import look, title_of
from gossamer.project.access.callbacks import secret_view
from gossamer.project.alerts import channels as alert_channels
from gossamer.project.alerts.alerts import try_channels
from gossamer.project.alerts.channels import OWNER, Channels, mail_of, slack_text
from gossamer.project.open import open_project
from gossamer.settings import Settings, load
from gossamer.settings.alert_tables import ChannelTable
from tests.server.receiver import Receiver
from tests.server.receiver import receiver as receiver
from tests.services.mail import mailing
from tests.services.proxies import vouched_for

MAIL = {"kind": "email", "host": "127.0.0.1", "sender": "watch@shop.example", "to": ["ann@shop.example"]}


def notice(*subjects: str, channel: str = "team", **fields: Any) -> Notice:
    told = tuple(NoticeSubject(subject=one, words=f"{one} fails", value=0.5, since=1.8e9) for one in subjects)
    usual = {"id": "msg_1", "alert": "success", "severity": Severity.CRITICAL, "state_told": AlertState.FIRING}
    return Notice(channel=channel, subjects=told, count=len(told), made_at=1.8e9, **{**usual, **fields})


def toml(channel: dict[str, Any], name: str = "team") -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in channel.items()]
    return f'project = "books"\n[channels.{name}]\n' + "\n".join(lines)


async def sent(folder: Path, channel: dict[str, Any], *notices: Notice, environ: dict[str, str] | None = None):
    """Send them by this channel; what came of each, and what webhooks are signed with."""
    (folder / "gossamer.toml").write_text(toml(channel))
    async with open_project(load(start=folder, environ=environ or {}), to_look=True) as project:
        channels = Channels(project)
        return [await channels.send(one) for one in notices], (await secret_view(project, OWNER)).secret


async def test_a_webhook_is_signed_with_the_secret_of_the_project(tmp_path: Path, receiver: Receiver):
    channel = {"kind": "webhook", "url": receiver.url, "allow_private": True}
    (one,), secret = await sent(tmp_path, channel, notice("shop.example", "other.example"))

    (got,) = receiver.deliveries
    assert one.error == ""
    assert got.is_signed_with(secret)
    assert not got.is_signed_with(new_secret())
    assert got.id == "msg_1"
    assert got.told["type"] == "alert.firing"
    data = got.told["data"]
    assert (data["alert"], data["severity"], data["project"], data["count"]) == ("success", "critical", "books", 2)
    assert [one["subject"] for one in data["subjects"]] == ["shop.example", "other.example"]


async def test_a_private_address_is_refused_unless_the_operator_says_so(tmp_path: Path, receiver: Receiver):
    url = receiver.url
    (refused,), _ = await sent(tmp_path, {"kind": "webhook", "url": url}, notice("a"))
    assert refused.hopeless
    assert "or set channels.team.allow_private = true" in refused.error
    assert "fetch.allow_private" not in refused.error
    with mailing() as mail:
        (refused,), _ = await sent(tmp_path, {**MAIL, "port": mail.port, "security": "plain"}, notice("a"))
    assert refused.hopeless
    assert (receiver.deliveries, mail.lines) == ([], [])

    (tmp_path / "gossamer.toml").unlink()
    environ = {"GOSSAMER_FETCH__ALLOW_HOSTS": "receiver.localhost"}
    (taken,), _ = await sent(tmp_path, {"kind": "webhook", "url": url}, notice("a"), environ=environ)
    assert taken.error == ""


async def test_what_a_receiver_answers_is_told_and_redirects_are_not_followed(tmp_path: Path, receiver: Receiver):
    receiver.answers = [(500, {}), (302, {"location": receiver.url}), (429, {"retry-after": "120"}), (410, {})]
    channel = {"kind": "webhook", "url": receiver.url, "allow_private": True}
    found, _ = await sent(tmp_path, channel, *[notice("a")] * 5)

    assert [one.error.partition("answered ")[2] for one in found] == ["500.", "302.", "429.", "410.", ""]
    assert [one.hopeless for one in found] == [False, False, False, True, False]
    assert found[2].asked is not None
    assert found[2].asked.total_seconds() == 120
    assert len(receiver.deliveries) == 5


async def test_slack_gets_text_in_which_nobody_is_called(tmp_path: Path, receiver: Receiver, monkeypatch):
    monkeypatch.setenv("GOSSAMER_SECRET_SLACK", "T000/B000/XXXX")
    url = receiver.url.replace("/in", "/services/${SLACK}")
    channel = {"kind": "slack", "url": url, "allow_private": True}
    (one,), _ = await sent(tmp_path, channel, notice("<!channel>", "<@U1> & <https://evil.test|bank>"))

    (got,) = receiver.deliveries
    text = got.told["text"]
    assert one.error == ""
    assert "webhook-signature" not in got.headers
    assert "<" not in text
    assert ">" not in text
    assert "&lt;!channel&gt;" in text
    assert "&lt;@U1&gt; &amp; &lt;https" in text


async def test_the_secret_part_of_an_address_is_in_no_message(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("GOSSAMER_SECRET_SLACK", "T000/B000/XXXX")
    channel = {"kind": "slack", "url": "http://127.0.0.1:9/services/${SLACK}", "allow_private": True}
    (one,), _ = await sent(tmp_path, channel, notice("a"))
    assert one.error
    assert "XXXX" not in one.error
    monkeypatch.delenv("GOSSAMER_SECRET_SLACK")
    (lacking,), _ = await sent(tmp_path, channel, notice("a"))
    assert "GOSSAMER_SECRET_SLACK" in lacking.error


async def test_a_mail_goes_out_encrypted_and_logged_in_and_comes_as_it_was_written(tmp_path: Path, monkeypatch):
    context, authority = _certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    monkeypatch.setenv("GOSSAMER_SECRET_MAIL", "geheim-7")
    login = {"user": "watch", "password": "${MAIL}", "allow_private": True}
    with mailing(context=context, user="watch", password="geheim-7") as mail:
        channel = {**MAIL, "host": "localhost", "port": mail.port, **login}
        (one,), _ = await sent(tmp_path, channel, notice("shop.example"))
    assert one.error == ""
    (got,) = mail.mails
    assert mail.secured == [True]
    assert got["subject"] == "books: alert success fires for shop.example"
    assert got["message-id"] == "<msg_1@shop.example>"
    assert got["auto-submitted"] == "auto-generated"
    assert "shop.example fails" in got.get_content()
    assert mail.envelopes == [("watch@shop.example", ["ann@shop.example"])]

    monkeypatch.setenv("GOSSAMER_SECRET_MAIL", "geheim ☂")
    with mailing(context=context, user="watch", password="geheim ☂") as mail:  # which smtplib cannot say
        (odd,), _ = await sent(tmp_path, {**channel, "port": mail.port}, notice("shop.example"))
    assert odd.error
    assert "geheim" not in odd.error
    monkeypatch.setenv("GOSSAMER_SECRET_MAIL", "geheim-7")

    with mailing(context=context, tls=True, user="watch", password="other") as mail:
        channel = {**MAIL, "host": "localhost", "port": mail.port, "security": "tls", **login}
        (wrong,), _ = await sent(tmp_path, channel, notice("shop.example"))
    assert "535" in wrong.error
    assert "geheim" not in wrong.error
    assert mail.mails == []


async def test_a_name_server_that_is_slow_holds_up_nobody_but_the_mail(tmp_path: Path, monkeypatch):
    asking: list[bool] = []

    def name_of_this_machine(name: str = "") -> str:
        asking.append(threading.current_thread() is threading.main_thread())
        return "here.example"

    monkeypatch.setattr(socket, "getfqdn", name_of_this_machine)
    with mailing() as mail:
        channel = {**MAIL, "port": mail.port, "security": "plain", "allow_private": True}
        (one,), _ = await sent(tmp_path, channel, notice("a"))
    assert one.error == ""
    assert asking == [False], "it is asked in the thread of the mail, not in the loop"


async def test_no_mail_goes_out_in_clear_where_encryption_was_asked_for(tmp_path: Path, monkeypatch):
    with mailing() as mail:  # without STARTTLS
        (one,), _ = await sent(tmp_path, {**MAIL, "port": mail.port, "allow_private": True}, notice("a"))
    assert one.error
    context, _ = _certificate(tmp_path)  # of an authority that nobody trusts
    with mailing(context=context) as other:
        channel = {**MAIL, "host": "localhost", "port": other.port, "allow_private": True}
        (untrusted,), _ = await sent(tmp_path, channel, notice("a"))
    assert "certificate" in untrusted.error.lower()
    assert (mail.mails, other.mails) == ([], [])


async def test_a_mail_server_that_refuses_or_hangs_is_told(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(alert_channels, "TOTAL", timedelta(seconds=1))
    with mailing() as mail:
        channel = {**MAIL, "port": mail.port, "security": "plain", "allow_private": True}
        mail.answers = {"RCPT": "550 no such user"}
        (refused,), _ = await sent(tmp_path, channel, notice("a"))
        mail.answers = {"MAIL": "421 try later"}
        (later,), _ = await sent(tmp_path, channel, notice("a"))
        mail.silent.set()
        (hung,), _ = await sent(tmp_path, channel, notice("a"))
    assert "ann@shop.example" in refused.error
    assert "421" in later.error
    assert "No answer" in hung.error
    assert not any(one.hopeless for one in (refused, later, hung))


async def test_a_mail_that_was_taken_is_not_sent_again_whatever_comes_after(tmp_path: Path):
    with mailing() as mail:
        channel = {**MAIL, "port": mail.port, "security": "plain", "allow_private": True}
        mail.answers = {"QUIT": ""}  # it hangs up
        (taken,), _ = await sent(tmp_path, channel, notice("a"))
        mail.answers = {"rcpt TO:<bob@shop.example>": "550 no such user"}
        both = {**channel, "to": ["ann@shop.example", "bob@shop.example"]}
        (partly,), _ = await sent(tmp_path, both, notice("b"))
    assert taken.error == ""
    assert partly.hopeless
    assert "bob@shop.example" in partly.error
    assert [recipients for _, recipients in mail.envelopes] == [["ann@shop.example"], ["ann@shop.example"]]


async def test_a_mail_server_is_reached_by_the_first_of_its_addresses_that_answers(tmp_path: Path, monkeypatch):
    def found(host: str, port: int, *rest: object, **named: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in ("127.0.0.9", "127.0.0.1")]

    with mailing() as mail:
        monkeypatch.setattr(socket, "getaddrinfo", found)
        channel = {**MAIL, "host": "mail.example", "port": mail.port, "security": "plain"}
        (refused,), _ = await sent(tmp_path, channel, notice("a"))
        (taken,), _ = await sent(tmp_path, {**channel, "allow_private": True}, notice("a"))
    assert refused.hopeless
    assert taken.error == ""
    assert len(mail.mails) == 1


BOOKS = Settings(project="books")


def test_a_hostile_name_begins_no_header_and_no_second_line():
    step = look(
        {"success": AlertTerms(wait=timedelta(0))},
        {"success": {"a\r\nBcc: all@evil.test\r\n\r\nx" + "y" * 500: Finding(0.5, "w\r\n.\r\nQUIT")}},
        [],
        channels={"team": ChannelTable(kind="slack")},
        now=1.8e9,
    )
    (one,) = step.notices
    table = msgspec.convert({**MAIL, "kind": "email"}, ChannelTable)
    for told in (one, notice("b\r\nBcc: all@evil.test")):  # also one that was not made by the rules
        mail = mail_of(told, table, BOOKS)
        assert sorted(mail.keys()) == sorted(
            ["Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type",
             "Content-Transfer-Encoding"]
        )  # fmt: skip
        header = mail.as_bytes().partition(b"\n\n")[0]
        assert b"\nBcc" not in header
        assert len(title_of(told, "books")) <= 150
        assert "\n" not in title_of(told, "books")
    assert "<" not in slack_text(notice("<!channel>"), msgspec.structs.replace(BOOKS, project="<books>"))


async def test_apprise_is_named_by_the_command_that_installs_it(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    (one,), _ = await sent(tmp_path, {"kind": "apprise", "url": "json://127.0.0.1/"}, notice("a"))
    assert "pip install 'gossamer[apprise]'" in one.error


async def test_a_test_message_goes_to_the_channels_that_were_named(tmp_path: Path, receiver: Receiver):
    (tmp_path / "gossamer.toml").write_text(
        toml({"kind": "webhook", "url": receiver.url, "allow_private": True})
        + "\n"
        + toml({"kind": "webhook", "url": "http://127.0.0.1:9/", "allow_private": True}, "dead").partition("\n")[2]
    )
    async with open_project(load(start=tmp_path, environ={}), to_look=True) as project:
        (one,) = await try_channels(project, "team")
        both = await try_channels(project)
        with pytest.raises(Misconfigured, match="there is team, dead"):
            await try_channels(project, "tema")
    assert one.ok
    assert [found.ok for found in both] == [True, False]
    assert [got.told["type"] for got in receiver.deliveries] == ["alert.test", "alert.test"]


def _certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    made = vouched_for(folder)
    return made.server, made.file


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # it looks whether a module is there that Python gives up
async def test_apprise_sends_by_the_service_that_its_address_names(
    tmp_path: Path, receiver: Receiver, monkeypatch, caplog
):
    pytest.importorskip("apprise")
    monkeypatch.setenv("GOSSAMER_SECRET_HOST", f"127.0.0.1:{urlsplit(receiver.url).port}")
    (taken,), _ = await sent(tmp_path, {"kind": "apprise", "url": "json://${HOST}/in"}, notice("shop.example"))
    (unknown,), _ = await sent(tmp_path, {"kind": "apprise", "url": "nothing://secret/"}, notice("a"))
    assert taken.error == ""
    (got,) = receiver.deliveries
    assert got.told["title"] == "books: alert success fires for shop.example"
    assert "shop.example fails" in got.told["message"]
    assert "does not know" in unknown.error
    assert "secret" not in unknown.error + caplog.text
