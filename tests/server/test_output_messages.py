"""An output with a web address: its receiver is told what changes, signed, again and again until it takes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gossamer.access.webhooks import new_secret
from gossamer.errors import Misconfigured
from gossamer.model.output import OutputProgress
from gossamer.project.access.callbacks import secrets_of
from gossamer.project.access.keys import OWNER
from gossamer.project.open import Project, open_project
from gossamer.project.outputs.outputs import (
    NoFilter,
    OutputName,
    OutputView,
    check_output,
    list_outputs,
    remove_output,
    resume_output,
    rewind_output,
    show_output,
)
from gossamer.project.outputs.run import follower_of
from gossamer.settings import load
from gossamer.store.outputs.book import OutputBook
from tests.conformance.stores import book, result
from tests.patience import until

from .receiver import Receiver
from .receiver import receiver as receiver

NAME = OutputName(name="hook")


@asynccontextmanager
async def telling(folder: Path, receiver: Receiver, terms: str = "allow_private = true\n") -> AsyncIterator[Project]:
    """A project with an output to the receiver."""
    (folder / "gossamer.toml").write_text(f'[outputs.hook]\nurl = "{receiver.url}"\n{terms}', encoding="utf-8")
    async with open_project(load(start=folder, environ={})) as project:
        yield project


@asynccontextmanager
async def following(project: Project) -> AsyncIterator[None]:
    """The output follows the records, without the pauses between two tries."""
    follower = follower_of(project, "hook", project.settings.outputs["hook"])
    follower.hurry()
    working = asyncio.create_task(follower.run())
    try:
        yield
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def store(project: Project, count: int, **fields: Any) -> None:
    await project.records.save([result(*(book(f"b{n}", n=n, **fields) for n in range(count)))])


async def reached(project: Project, state: str) -> OutputView:
    async def look() -> OutputView | None:
        found = await show_output(project, OWNER, NAME)
        return found if found.state == state else None

    found = await until(look, f"the output is {state}")
    assert found is not None
    return found


async def test_a_message_that_was_not_taken_comes_again_as_it_was(tmp_path: Path, receiver: Receiver) -> None:
    async with telling(tmp_path, receiver) as project:
        receiver.answers = [(503, {})]
        await store(project, 80)
        async with following(project):
            await reached(project, "up-to-date")

    assert [len(one.told["data"]["changes"]) for one in receiver.deliveries] == [80, 80]
    assert len(receiver.ids()) == 1


async def test_a_message_that_is_too_large_comes_in_halves(tmp_path: Path, receiver: Receiver) -> None:
    async with telling(tmp_path, receiver) as project:
        receiver.answers = [(413, {}), (413, {})]
        await store(project, 40)
        async with following(project):
            await reached(project, "up-to-date")

    assert [len(one.told["data"]["changes"]) for one in receiver.deliveries] == [40, 20, 10, 10, 20]
    assert len(receiver.ids()) == 5


async def test_messages_are_at_most_of_a_megabyte(tmp_path: Path, receiver: Receiver) -> None:
    async with telling(tmp_path, receiver) as project:
        await store(project, 30, blurb="x" * 100_000)
        async with following(project):
            await reached(project, "up-to-date")

    assert sum(len(one.told["data"]["changes"]) for one in receiver.deliveries) == 30
    assert max(len(one.body) for one in receiver.deliveries) < 1_000_000


async def test_changes_are_told_in_signed_messages_of_a_hundred(tmp_path: Path, receiver: Receiver) -> None:
    async with telling(tmp_path, receiver) as project:
        await store(project, 250)
        async with following(project):
            told = await reached(project, "up-to-date")
        (secret, *_) = [one.text for one in await secrets_of(project, OWNER.id)]

    assert all(one.is_signed_with(secret) for one in receiver.deliveries)
    assert not any(one.is_signed_with(new_secret()) for one in receiver.deliveries)
    assert [len(one.told["data"]["changes"]) for one in receiver.deliveries] == [100, 100, 50]
    assert {one.told["type"] for one in receiver.deliveries} == {"records.changed"}
    changes = [change for one in receiver.deliveries for change in one.told["data"]["changes"]]
    assert [change["key"] for change in changes] == [f"b{n}" for n in range(250)]
    assert {(change["change"], change["version"]) for change in changes} == {("put", 1)}
    assert [change["record"]["n"] for change in changes] == [*range(250)]
    assert told.written == 250


async def test_a_message_that_was_not_taken_comes_again_with_the_same_id_and_content(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.answers = [(500, {}), (302, {"location": "http://127.0.0.1:1/"}), (429, {})]
    async with telling(tmp_path, receiver) as project:
        await store(project, 3)
        async with following(project):
            await reached(project, "up-to-date")

    assert len(receiver.deliveries) == 4  # the redirect was not followed
    assert len(receiver.ids()) == 1
    assert all(one.told["data"] == receiver.deliveries[0].told["data"] for one in receiver.deliveries)


async def test_a_process_that_died_before_it_noted_the_answer_repeats_the_message_with_its_id(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with telling(tmp_path, receiver) as project:
        progress = OutputBook(project.state.shelf).progress
        await store(project, 3)

        def unsent(known: OutputProgress | None) -> OutputProgress:
            return OutputProgress(name="hook", id=known.id if known is not None else "hook")

        for _ in range(2):
            await progress.change("hook", unsent)
            async with following(project):
                await reached(project, "up-to-date")

    assert (len(receiver.deliveries), len(receiver.ids())) == (2, 1)


async def test_a_rewind_tells_everything_again_as_new_messages(tmp_path: Path, receiver: Receiver) -> None:
    async with telling(tmp_path, receiver) as project:
        await store(project, 3)
        async with following(project):
            await reached(project, "up-to-date")
            await rewind_output(project, OWNER, NAME)
            await receiver.has(2)

    first, again = receiver.deliveries
    assert first.told["data"]["changes"] == again.told["data"]["changes"]


async def test_a_receiver_that_is_away_is_waited_for(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [(503, {})] * 10_000
    async with telling(tmp_path, receiver) as project:
        await store(project, 3)
        async with following(project):
            away = await reached(project, "waiting")
            receiver.answers.clear()
            back = await reached(project, "up-to-date")

    assert away.lag == 3
    assert "answered 503" in away.error
    assert (back.lag, back.error, back.written) == (0, "", 3)


async def test_a_receiver_that_is_gone_is_told_no_more_until_a_person_resumes_it(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.answers = [(410, {})]
    async with telling(tmp_path, receiver) as project:
        await store(project, 3)
        async with following(project):
            stopped = await reached(project, "stopped")
            await store(project, 4)
            assert len(receiver.deliveries) == 1
            await resume_output(project, OWNER, NAME)
            await reached(project, "up-to-date")

    assert "410" in stopped.error
    assert "gossamer output resume hook" in stopped.error
    assert len(receiver.deliveries) > 1


async def test_a_private_address_is_dialled_only_where_it_is_allowed(tmp_path: Path, receiver: Receiver) -> None:
    async with telling(tmp_path, receiver, terms="") as project:
        await store(project, 1)
        async with following(project):
            stopped = await reached(project, "stopped")

    assert receiver.deliveries == []
    assert "outputs.hook.allow_private" in stopped.error


async def test_a_check_sends_a_signed_message_without_records(tmp_path: Path, receiver: Receiver) -> None:
    async with telling(tmp_path, receiver) as project:
        await store(project, 1)
        found = await check_output(project, OWNER, NAME)
        (secret, *_) = [one.text for one in await secrets_of(project, OWNER.id)]

    (one,) = receiver.deliveries
    assert one.is_signed_with(secret)
    assert (one.told["type"], one.told["data"]["changes"]) == ("output.check", [])
    assert found.found == f"{receiver.url} accepted a message without records."


async def test_what_a_process_with_older_settings_still_writes_is_not_removed(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with telling(tmp_path, receiver) as project:
        await store(project, 3)
        (tmp_path / "gossamer.toml").write_text("", encoding="utf-8")
        async with open_project(load(start=tmp_path, environ={})) as later:
            async with following(project):
                await reached(project, "up-to-date")
                with pytest.raises(Misconfigured, match="A process still writes hook"):
                    await remove_output(later, OWNER, NAME)
                assert (await show_output(later, OWNER, NAME)).written == 3
            removed = await remove_output(later, OWNER, NAME)
            left = await list_outputs(later, OWNER, NoFilter())

    assert (removed.name, left) == ("hook", [])
    assert len(receiver.deliveries) == 1
