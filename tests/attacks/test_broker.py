"""Who can write to the broker of Celery, and who can write to the state that Celery's workers share.

Tried:

- messages for `gossamer.enqueue` with the path of a program as spider, private addresses, arguments of wrong types,
  huge ones, unknown fields, `on_finished` that is no signature, or one of several tasks
- messages for `gossamer.scrape` and `gossamer.work` of the same kinds
- a message that is a pickle
- a row in the state that lets a worker send any task of the app, with any arguments: without `fleet.key`, with it, with
  the seal of another job

Not prevented: who can write to the broker can send every task of the app, ours and yours, and let workers fetch any
public address. Protect it as you protect the state.
"""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from celery import Celery
from kombu import Message as BrokerMessage
from kombu.exceptions import ContentDisallowed

from gossamer.access.contract import Callback, CallbackState
from gossamer.compat.celery import attach
from gossamer.errors import Misconfigured, Permanent
from gossamer.model.job import JobTerms
from gossamer.project.jobs.api_requests import BadRequest
from gossamer.project.jobs.celery_terms import findings
from gossamer.project.jobs.messages import DueMessage, Message, deliver_messages, enter_message
from gossamer.project.open import Project, open_project
from gossamer.settings import Settings, load
from tests.services.valkey import ValkeyServer
from tests.unit.test_celery import app_of

KEY = "a key of the whole fleet"
THEIRS = '{"task":"shop.pay","args":["thief",999],"immutable":true,"options":{},"kwargs":{},"subtask_type":null}'


def attached(folder: Path, **more: Any) -> tuple[Celery, Any]:
    app = app_of()
    return app, attach(app, folder=folder, **more)


# -- messages of the broker ------------------------------------------------------------------------------------------

ENQUEUED: list[dict[str, Any]] = [
    {"spider": "pictures/x.py"}, {"spider": "../../tmp/x.py"}, {"spider": "os:system"}, {"spider": "/etc/passwd"},
    {"spider": 5}, {"spider": ["a"]}, {"recipe": "../x.toml"}, {"recipe": {"start": ["http://127.0.0.1/"]}},
    {"url": "http://127.0.0.1/"}, {"url": "http://169.254.169.254/latest"}, {"url": "file:///etc/passwd"}, {"url": 5},
    {"url": "https://shop.example/", "limit": -1}, {"url": "https://shop.example/", "limit": 2**70},
    {"url": "https://shop.example/", "depth": "deep"}, {"url": "https://shop.example/", "arguments": "rm"},
    {"url": "https://shop.example/" + "a" * 1_000_000}, {},
]  # fmt: skip


@pytest.mark.parametrize("fields", ENQUEUED, ids=lambda fields: str(fields)[:60])
def test_a_forged_request_for_a_crawl_begins_nothing(tmp_path: Path, fields: dict[str, Any]) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "x.py").write_text("raise SystemExit('it was loaded')")
    _, own = attached(tmp_path)
    with pytest.raises(Permanent):
        own.enqueue.apply(kwargs=fields, throw=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "http://127.0.0.1/"}, {"url": "http://[::1]/"}, {"url": 5}, {"url": "https://a.example/", "code": "x"},
        {"url": "https://a.example/", "timeout": -1}, {"url": "https://a.example/", "formats": "all"},
        {"url": "https://a.example/", "actions": "x" * 100},
        {"url": "https://a.example/", "extract": {"a": {"css": 5}}},
    ],
)  # fmt: skip
def test_a_forged_request_for_a_page_fetches_nothing(tmp_path: Path, fields: dict[str, Any]) -> None:
    _, own = attached(tmp_path)
    with pytest.raises(Permanent):
        own.scrape.apply(kwargs=fields, throw=True)


@pytest.mark.parametrize("lanes", [["../x"], "http", ["no such route"]])
def test_a_slice_for_a_lane_that_there_is_not_works_on_nothing(tmp_path: Path, lanes: Any) -> None:
    _, own = attached(tmp_path)
    with pytest.raises(Misconfigured):
        own.work.apply(kwargs={"seconds": 1, "lanes": lanes}, throw=True)


@pytest.mark.parametrize(
    "told",
    [
        {}, {"task": 5}, {"task": None, "args": []}, "report", ["report"], {"task": "report", "subtask_type": "chord"},
        {"task": "celery.chain", "subtask_type": "chain", "kwargs": {"tasks": [{"task": "report"}]}},
        {"task": "report", "args": ["x" * 50_000]},
    ],
)  # fmt: skip
def test_what_is_no_signature_of_one_task_is_refused_before_the_crawl_begins(tmp_path: Path, told: Any) -> None:
    _, own = attached(tmp_path)
    with pytest.raises(Misconfigured):
        own.enqueue.apply(kwargs={"url": "https://shop.example/", "on_finished": told}, throw=True)


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    app, own = attached(tmp_path)
    mark = tmp_path / "opened"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (mark,)

    message = BrokerMessage(
        body=pickle.dumps(Bomb()),
        content_type="application/x-python-serialize",
        content_encoding="binary",
        accept=app.amqp.queues and app.conf.accept_content,
    )
    with pytest.raises(ContentDisallowed):
        message.decode()
    assert not mark.exists()
    assert [one for one in findings(own.terms, app.conf, "redis") if "accept_content" in one.detail] == []

    app.conf.accept_content = ["json", "pickle"]
    (warning,) = [one for one in findings(own.terms, app.conf, "redis") if "accept_content" in one.detail]
    assert "runs programs on your workers" in warning.detail


# -- rows of the state -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def shared(folder: Path, valkey: ValkeyServer, **flags: Any) -> AsyncIterator[Project]:
    async with open_project(fleet_settings(folder, valkey, **flags)) as project:
        yield project


def fleet_settings(folder: Path, valkey: ValkeyServer, **flags: Any) -> Settings:
    dotted = {name.replace("__", "."): value for name, value in flags.items()}
    return load(start=folder, environ={}, flags={"state": valkey.address(), "project": folder.name, **dotted})


async def planted(project: Project, text: str, job: str, seal: str = "") -> None:
    """As somebody would who can write to the state and nowhere else."""
    body = msgspec.json.encode({"text": text, "seal": seal, "report": {}}).decode()
    row = Callback(
        id=f"msg_{job}", owner="local", url="celery:shop.pay", job=job, made_at=0.0, body=body, state=CallbackState.DUE
    )
    await project.state.callbacks.enter(row)


@pytest.mark.parametrize("key", ["", KEY])
async def test_the_state_alone_sends_no_task(tmp_path: Path, valkey: ValkeyServer, key: str) -> None:
    sent: list[DueMessage] = []
    async with shared(tmp_path, valkey, fleet__key=key) as project:
        await planted(project, THEIRS, "shop-1")

        assert await deliver_messages(project, sent.append, [Message(to="report", text='{"task":"report"}')]) == 0

        row = await project.state.callbacks.callback("msg_shop-1")
        assert row is not None
        assert (sent, row.state) == ([], CallbackState.FAILED)
        assert "seal" in row.message if key else "only the state names" in row.message


async def test_the_seal_of_one_job_is_none_of_another(tmp_path: Path, valkey: ValkeyServer) -> None:
    sent: list[DueMessage] = []
    async with shared(tmp_path, valkey, fleet__key=KEY) as project:
        job, _ = await project.state.jobs.open_job("shop", JobTerms(), fresh=False)
        await enter_message(project, job.id, Message(to="shop.pay", text=THEIRS))
        (entered,) = await project.state.callbacks.waiting(10)
        seal = msgspec.json.decode(entered.body)["seal"]
        await project.state.jobs.close_job(job.id, "done")
        await planted(project, THEIRS, "other-1", seal)

        assert await deliver_messages(project, sent.append) == 1

        assert [one.id for one in sent] == [entered.id]


async def test_what_the_program_itself_names_is_sent_though_the_state_is_shared(
    tmp_path: Path, valkey: ValkeyServer
) -> None:
    sent: list[DueMessage] = []
    own = Message(to="report", text='{"task":"report"}')
    async with shared(tmp_path, valkey) as project:
        job, _ = await project.state.jobs.open_job("shop", JobTerms(), fresh=False)
        await enter_message(project, job.id, own)
        await project.state.jobs.close_job(job.id, "done")
        assert await deliver_messages(project, sent.append, [own]) == 1
    assert [one.text for one in sent] == [own.text]


def test_a_crawl_is_not_begun_whose_message_could_not_be_sent(tmp_path: Path, valkey: ValkeyServer) -> None:
    (tmp_path / "gossamer.toml").write_text(f'state = "{valkey.address()}"\nproject = "{tmp_path.name}"\n')
    app, own = attached(tmp_path)
    fields = {"url": "https://shop.example/", "on_finished": dict(app.signature("report"))}
    with pytest.raises(Misconfigured, match=r"attach\(on_finished"):
        own.enqueue.apply(kwargs=fields, throw=True)
    with pytest.raises(BadRequest):
        own.enqueue.apply(kwargs={"url": "http://127.0.0.1/"}, throw=True)
