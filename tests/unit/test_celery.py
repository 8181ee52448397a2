"""The tasks of a project in an app of Celery, without a broker: options, refusals, and messages that are sent once."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
from celery import Celery, chain

from gossamer.compat.celery import attach
from gossamer.compat.celery.attach import project_app
from gossamer.errors import BackendUnavailable, Misconfigured
from gossamer.model.job import JobTerms
from gossamer.project.access.callbacks import list_callbacks
from gossamer.project.jobs.api_requests import BadRequest, CrawlRequest
from gossamer.project.jobs.celery_terms import examine_app
from gossamer.project.jobs.messages import DueMessage, Message, deliver_messages, enter_message
from gossamer.project.jobs.slices import enqueue, request_of
from gossamer.project.jobs.status import job_status
from gossamer.project.open import open_project
from gossamer.settings import load


def app_of(broker: str = "memory://") -> Celery:
    app = Celery("shop", broker=broker, set_as_current=False)

    @app.task(name="report", shared=False)
    def report(job: dict[str, object]) -> None: ...

    return app


def test_every_message_of_beat_expires_and_every_lane_has_its_queue(tmp_path):
    app = app_of()
    app.conf.beat_schedule = {"theirs": {"task": "report", "schedule": 5}}

    own = attach(app, folder=tmp_path, slices={"http": 2, "browser": 1}, seconds=30, every=7)

    entries = {name: entry for name, entry in app.conf.beat_schedule.items() if name != "theirs"}
    assert "theirs" in app.conf.beat_schedule
    assert {entry["options"]["expires"] for entry in entries.values()} == {7, 10}
    queues = sorted(entry["options"]["queue"] for entry in entries.values())
    assert queues == ["gossamer", "gossamer.browser", "gossamer.http", "gossamer.http"]
    assert app.conf.worker_prefetch_multiplier == 1
    for task in (own.work, own.tick, own.enqueue, own.scrape):
        assert (task.acks_late, task.reject_on_worker_lost) == (True, True)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"slices": {"http,browser": 1}}, "is not a lane"),
        ({"slices": {"http": 0}}, "between 1 and 1,000"),
        ({"seconds": 0.5}, "seconds must be between"),
        ({"tick_every": 7200}, "tick_every must be between"),
    ],
)
def test_terms_that_cannot_be_are_refused(tmp_path, terms, words):
    with pytest.raises(Misconfigured, match=words):
        attach(app_of(), folder=tmp_path, **terms)


def test_a_chain_cannot_be_sent_once(tmp_path):
    app = app_of()
    report = app.tasks["report"]
    with pytest.raises(Misconfigured, match="the signature of one task, not a chain"):
        attach(app, folder=tmp_path, on_finished=chain(report.s(), report.si({})))


def test_a_slice_refuses_to_share_its_process(tmp_path):
    own = attach(app_of(), folder=tmp_path)
    raised: list[str] = []

    def in_a_thread() -> None:
        try:
            own.work(seconds=1)
        except Misconfigured as error:
            raised.append(str(error))

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert "--pool prefork" in raised[0]


def test_doctor_warns_of_a_visibility_timeout_below_two_slices(tmp_path, monkeypatch):
    (tmp_path / "doctors_tasks.py").write_text(
        "from celery import Celery\nfrom gossamer.compat.celery import attach\n"
        "app = Celery('shop', broker='redis://127.0.0.1:1/0', set_as_current=False)\n"
        "app.conf.broker_transport_options = {'visibility_timeout': 90}\n"
        "attach(app, seconds=60)\n"
    )

    def found(app: str) -> list[str]:
        settings = load(start=tmp_path, environ={}, flags={"celery.app": app})
        return [f"{finding.level} {finding.detail}" for finding in examine_app(settings)]

    assert found("") == []
    assert found("doctors_tasks:app") == [
        "warn visibility_timeout is 90 s, shorter than two slices of 60 s: the broker gives a slice to a second worker "
        "while the first is at it."
    ]
    assert found("nowhere:app")[0].startswith("fail nowhere:app cannot be examined")


async def test_a_job_that_ends_is_told_once_and_after_a_kill_under_the_same_id(tmp_path):
    sent: list[DueMessage] = []
    refuse = True

    def send(due: DueMessage) -> None:
        if refuse:
            raise ConnectionError("the broker is away")
        sent.append(due)

    async with open_project(load(start=tmp_path, environ={})) as project:
        # given a job with one message, however often it is entered
        job, _ = await project.state.jobs.open_job("lamps", JobTerms(), fresh=False)
        message = Message(to="report", text='{"task":"report"}')
        assert await enter_message(project, job.id, message)
        assert not await enter_message(project, job.id, message)
        assert await deliver_messages(project, send) == 0  # it runs

        # when it has ended, and the broker is away at first
        await project.state.jobs.close_job(job.id, "done")
        assert await deliver_messages(project, send) == 0
        (waiting,) = await list_callbacks(project)
        assert (waiting.state, waiting.message) == ("due", "ConnectionError: the broker is away")
        refuse = False

        # and the process dies between sending and noting it
        book = type(project.state.callbacks)
        keep, book.keep = book.keep, dying
        with pytest.raises(BackendUnavailable):
            await deliver_messages(project, send)
        book.keep = keep
        assert await deliver_messages(project, send) == 1

        # then it came twice, with one id and one content, and never again
        assert await deliver_messages(project, send) == 0
        assert len(sent) == 2
        assert sent[0] == sent[1]
        told = msgspec.json.decode(msgspec.json.encode(await job_status(project, job.id)))
        assert sent[0].report == told
        assert (told["id"], told["records"], told["outcome"]) == (job.id, 0, None)
        assert [one.state for one in await list_callbacks(project)] == ["delivered"]


async def dying(book: object, callback: object) -> None:
    raise BackendUnavailable("killed")


async def test_a_request_that_is_delivered_twice_begins_one_job(tmp_path):
    settings = load(start=tmp_path, environ={})
    wish = request_of({"url": "https://shop.example/", "limit": 3, "depth": None}, CrawlRequest)
    first = await enqueue(settings, wish, once="task-1")
    async with open_project(settings) as project:
        await project.state.jobs.close_job(first.job_id, "done")

    assert await enqueue(settings, wish, once="task-1") == first
    assert (await enqueue(settings, wish, once="task-2")).job_id != first.job_id
    with pytest.raises(BadRequest, match="private"):
        await enqueue(settings, request_of({"url": "http://127.0.0.1/"}, CrawlRequest), once="task-3")
    with pytest.raises(BadRequest, match="limit"):
        request_of({"url": "https://shop.example/", "limit": "many"}, CrawlRequest)
    assert Path(tmp_path / "gossamer-data").exists()


def test_the_ready_made_app_has_the_queues_of_all_lanes_and_says_what_it_lacks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CELERY_BROKER_URL", raising=False)
    (tmp_path / "gossamer.toml").write_text("[celery]\nslices = { http = 2, browser = 1 }\n")
    with pytest.raises(Misconfigured, match=r"Set celery\.broker in gossamer\.toml, or CELERY_BROKER_URL"):
        project_app()
    monkeypatch.setenv("CELERY_BROKER_URL", "memory://")

    app = project_app()

    assert {queue.name for queue in app.conf.task_queues} == {
        "celery", "gossamer", "gossamer.http", "gossamer.browser",
    }  # fmt: skip
    entries = [entry for entry in app.conf.beat_schedule.values() if entry["task"] == "gossamer.work"]
    assert len(entries) == 3
    # So many slices at once that a process of four is free for ticks, where one slice is named.
    assert {entry["kwargs"]["seconds"] / entry["schedule"] for entry in entries} == {3.0}
