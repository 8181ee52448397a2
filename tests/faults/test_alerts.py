"""Schedulers that are killed while an alert fires and while it ends. Witness: a receiver that checks signatures."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from gossamer.model.alert import AlertState
from gossamer.project.access.callbacks import secret_view
from gossamer.project.alerts.channels import OWNER
from gossamer.project.open import open_project
from gossamer.settings import load
from gossamer.store.contract import SpoolNote
from tests import patience
from tests.faults.commands import Command, CommandProject, until
from tests.server.receiver import Receiver, receiving
from tests.services.mail import MailServer, mailing
from tests.services.postgres import PASSWORD, PostgresServer
from tests.services.valkey import ValkeyServer, running_valkey

pytestmark = pytest.mark.long

SCHEDULERS = 2
LOST = SpoolNote(name="w1", host="far", folder="/spool", worker="far/1/x", results={"b-1": 7}, bytes=9, noted_at=0.0)


class Watchers(CommandProject):
    """A few schedulers on one state, of which one leads. The alert `spool` fires at once, and is kept for a second."""

    def __init__(self, folder: Path, state: str, receiver: Receiver, mail: MailServer) -> None:
        super().__init__(
            folder,
            [],
            f"{state}[alerts.spool]\nfor = '0s'\nkeep_for = '1s'\n"
            f"[channels.hook]\nkind = 'webhook'\nurl = '{receiver.url}'\nallow_private = true\nalerts = ['spool']\n"
            f"[channels.mail]\nkind = 'email'\nhost = '127.0.0.1'\nport = {mail.port}\nsecurity = 'plain'\n"
            "allow_private = true\nsender = 'watch@shop.example'\nto = ['ann@shop.example']\nalerts = ['spool']\n",
        )
        self.schedulers = [self.run("scheduler", "--json-logs") for _ in range(SCHEDULERS)]

    def leader(self) -> Command | None:
        for one in self.schedulers:
            said = [event["leads"] for event in one.logged("Leading")]
            if said and said[-1] and one.process.poll() is None:
                return one
        return None

    async def kill_leader(self) -> None:
        """kill -9, and another scheduler is started."""
        leader = await patience.until(self.leader, "a scheduler leads")
        leader.process.kill()
        leader.process.wait()
        self.schedulers.remove(leader)
        self.schedulers.append(self.run("scheduler", "--json-logs"))


@pytest.mark.parametrize("where", ["sqlite", "valkey"])
async def test_what_fires_and_ends_is_told_once_though_leaders_are_killed(
    tmp_path: Path, valkey: ValkeyServer, where: str
) -> None:
    state = f"state = '{valkey.address()}'\nproject = 'alerts-{uuid4().hex[:8]}'\n" if where == "valkey" else ""
    with receiving() as receiver, mailing() as mail:
        receiver.answers = [(503, {})] * 2  # the first leaders do not get rid of it
        watchers = Watchers(tmp_path, state, receiver, mail)
        try:
            async with open_project(load(start=tmp_path, environ={}), to_look=True) as project:
                alerts = project.state.alerts

                async def reached(wanted: AlertState) -> None:
                    async def holds() -> bool:
                        return wanted in [one.state for one in await alerts.standings() if one.alert == "spool"]

                    await patience.until(holds, f"the alert is {wanted}")

                await project.state.spools.note(LOST)
                await reached(AlertState.FIRING)
                await watchers.kill_leader()  # as soon as it fires
                await patience.until(lambda: len(receiver.deliveries) >= 2)
                await watchers.kill_leader()  # while its channel is down
                await project.state.spools.take_away([LOST.name])
                await reached(AlertState.RESOLVED)
                await watchers.kill_leader()  # as soon as it is over
                await receiver.has(2)

                async def all_ended() -> bool:
                    return all(one.ended_at is not None for one in await alerts.notices(100))

                await patience.until(all_ended)
                notices = await alerts.notices(100)
                history = await alerts.history(100, "spool")
                secret = (await secret_view(project, OWNER)).secret
        finally:
            watchers.close()

    assert [one.state for one in history] == [AlertState.RESOLVED, AlertState.FIRING]
    assert sorted((one.channel, one.state_told.value) for one in notices) == [
        ("hook", "firing"), ("hook", "resolved"), ("mail", "firing"), ("mail", "resolved"),
    ]  # fmt: skip
    assert all(one.is_signed_with(secret) for one in receiver.deliveries)
    told = [(one.id, one.told["type"]) for one in receiver.deliveries]
    assert list(dict.fromkeys(told)) == [(told[0][0], "alert.firing"), (told[-1][0], "alert.resolved")]
    mails = [(one["message-id"], one["subject"].rpartition(": ")[2]) for one in mail.mails]
    assert [words for _, words in dict.fromkeys(mails)] == [
        "alert spool fires for far",
        "alert spool is resolved for far",
    ]


async def test_stores_that_stop_are_told_and_that_they_are_back(tmp_path: Path, lone_postgres: PostgresServer) -> None:
    with receiving() as receiver, running_valkey("--appendonly", "yes") as state:
        project = CommandProject(
            tmp_path,
            [],
            f"state = '{state.address()}'\nproject = 'stores'\nrecords = '{lone_postgres.address(password=PASSWORD)}'\n"
            "[alerts.stores]\nfor = '1s'\nkeep_for = '1s'\n"
            f"[channels.hook]\nkind = 'webhook'\nurl = '{receiver.url}'\nallow_private = true\nalerts = ['stores']\n",
        )

        def told() -> list[tuple[str, str]]:
            found = [one.told["data"] for one in receiver.deliveries]
            return [(one["subjects"][0]["subject"], one["state"]) for one in found]

        scheduler = project.run("scheduler", "--json-logs")
        try:
            until(lambda: any(event["leads"] for event in scheduler.logged("Leading")), scheduler)
            for server, subject in ((lone_postgres, "records"), (state, "state")):
                server.stop()
                until(lambda subject=subject: (subject, "firing") in told(), scheduler)
                server.start()
                until(lambda subject=subject: (subject, "resolved") in told(), scheduler)
        finally:
            project.close()
    assert told() == [("records", "firing"), ("records", "resolved"), ("state", "firing"), ("state", "resolved")]
