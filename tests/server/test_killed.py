"""Servers and workers are killed while clients wait for batches: every job ends, whoever wants to hear of it is told,
and no request is done twice."""

from __future__ import annotations

import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from gossamer.client import Client, ServerError
from tests.faults.commands import CommandProject, children_of
from tests.patience import poll_until
from tests.sites.running import Park, park

from .receiver import receiving

T = TypeVar("T")
BATCHES, PAGES = 12, 10
SETTINGS = """
[server]
port = {port}
rate = "unlimited"
[politeness]
rate = "unlimited"
[lease]
duration = "5s"
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Park]:
    with park(pages=BATCHES * PAGES + 1, latency_ms=50) as opened:
        yield opened


@pytest.fixture
def project(tmp_path: Path) -> Iterator[CommandProject]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    made = CommandProject(tmp_path / "p", [], SETTINGS.format(port=port))
    with (made.folder / "gossamer.toml").open("a") as file:
        file.write('allow_hosts = ["site0.localhost", "receiver.localhost"]\n')
    yield made
    made.close()


def patiently(ask: Callable[[], T]) -> T:
    """Ask until there is a server again that answers."""

    def answer() -> tuple[T] | None:
        try:
            return (ask(),)
        except ConnectionError:
            return None
        except ServerError as error:
            if error.status not in (409, 503):
                raise
            return None

    found = poll_until(answer, every=0.1)
    assert found is not None
    return found[0]


def victims(up: int) -> dict[str, int]:
    """The server and the worker below `up`, by their verbs."""
    found = {}
    for pid in children_of(up):
        with suppress(OSError, IndexError, ValueError):  # it is gone, or is not yet the program that it will be
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            found[words[words.index(b"gossamer") + 1].decode()] = pid
    return {verb: pid for verb, pid in found.items() if verb in ("serve", "worker")}


@pytest.mark.long
def test_every_batch_ends_and_every_page_is_there_whoever_is_killed(project: CommandProject, site: Park) -> None:
    key = msgspec.json.decode(project.done("keys", "add", "robot", "--scopes", "scrape,jobs,records", "--json"))["key"]
    port = int((project.folder / "gossamer.toml").read_text().partition("port = ")[2].split()[0])
    up = project.run("up", "--quiet")
    with Client(f"http://127.0.0.1:{port}", key) as client, receiving() as receiver:
        # given batches that are asked for while servers and workers are killed
        jobs, killed = [], Counter[str]()
        for n in range(BATCHES):
            urls = [site.url(path=f"/page/{1 + n * PAGES + page}") for page in range(PAGES)]
            begun = patiently(lambda urls=urls: client.batch(urls, callback_url=receiver.url, formats=["metadata"]))
            jobs.append(begun.job_id)
            there = victims(up.pid)
            if n % 2 and there:
                verb = sorted(there)[n // 2 % len(there)]
                os.kill(there[verb], signal.SIGKILL)
                killed[verb] += 1

        # when all of them have ended
        ended = [patiently(lambda job=job: client.wait(job, every=0.2)) for job in jobs]
        pages = [page for job in jobs for page in patiently(lambda job=job: list(client.results(job)))]
        poll_until(lambda: len(receiver.ids()) >= BATCHES)
        secret = project.done("callbacks", "secret", "--key", "robot").strip()

    # then each is one job, and each page is there
    assert killed["serve"] >= 1
    assert killed["worker"] >= 1
    assert len(set(jobs)) == BATCHES == len(client_jobs(project))
    assert [(job.status, job.total) for job in ended] == [("completed", PAGES)] * BATCHES
    assert all(page.success for page in pages)
    assert {hit.path for hit in site.hits()} == {f"/page/{1 + n}" for n in range(BATCHES * PAGES)}
    assert {one.told["data"]["job_id"] for one in receiver.deliveries} == set(jobs)
    assert len({(one.id, one.body) for one in receiver.deliveries}) == BATCHES  # what came twice is the same
    assert all(one.is_signed_with(secret) for one in receiver.deliveries)
    up.signal(signal.SIGTERM)
    assert up.ended() == 0, up.said()


def client_jobs(project: CommandProject) -> list[str]:
    return [row[0] for row in project.sql("state.db", "SELECT id FROM jobs")]
