"""`python -m bench.api_kills`: 500 batches with callbacks, while servers, workers and schedulers are killed at random.

`gossamer up` on the laptop default or on Valkey and PostgreSQL. For two minutes one of its children after the other
gets SIGKILL; the supervisor starts it again. Clients repeat what was lost, as `gossamer.client` does.

Promised: every batch is one job, and ends; each of its pages is there; every callback arrives at least once with a
valid signature; one that comes again is the same message with the same id.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from tests.server.receiver import Delivery, receiving

from gossamer.client import Client, JobResult, ServerError

from .api import Served, served

T = TypeVar("T")
CLIENTS = 8
PATIENCE_SECONDS = 900.0
PAUSES = (1.0, 5.0)  # seconds between two kills
KILLED = ("serve", "worker", "scheduler")


@dataclass
class Story:
    """What happened."""

    killed: Counter[str] = field(default_factory=Counter)
    jobs: list[JobResult] = field(default_factory=list)
    pages: int = 0  # that are there
    errors: Counter[str] = field(default_factory=Counter)  # of the others
    words: dict[str, str] = field(default_factory=dict)  # one message for each of them
    deliveries: list[Delivery] = field(default_factory=list)
    secret: str = ""
    seconds: float = 0.0


def patiently(ask: Callable[[], T]) -> T:
    """Ask until there is a server again that answers."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except (ConnectionError, ServerError) as error:
            if time.monotonic() > deadline or (isinstance(error, ServerError) and error.status not in (409, 429, 503)):
                raise
            time.sleep(0.2)


def play(at: Served, batches: int, pages: int, seconds: float, chance: random.Random) -> Story:
    """Ask for the batches from several threads, while children are killed for that time; wait for all."""
    story, lock, began = Story(), threading.Lock(), time.monotonic()
    numbers = iter(range(batches))
    failures: list[BaseException] = []
    with receiving() as receiver:

        def ask(key: str) -> None:
            with Client(at.url, key) as client:
                while True:
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return
                    urls = [at.site.url(0, f"/page/{1 + number * pages + page}") for page in range(pages)]
                    begun = patiently(
                        lambda urls=urls: client.batch(urls, callback_url=receiver.url, formats=["metadata"])
                    )
                    ended = patiently(lambda id=begun.job_id: client.wait(id, every=1.0))
                    results = patiently(lambda id=begun.job_id: list(client.results(id)))
                    with lock:
                        story.jobs.append(ended)
                        story.pages += sum(page.success for page in results)
                        for page in results:
                            if page.error is not None:
                                story.errors[page.error.code] += 1
                                story.words[page.error.code] = page.error.message

        def asked() -> None:
            try:
                ask(at.keys[0])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=asked, daemon=True) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        while time.monotonic() - began < seconds and any(thread.is_alive() for thread in threads):
            time.sleep(chance.uniform(*PAUSES))
            there = [(verb, pid) for verb, pids in at.processes().items() if verb in KILLED for pid in pids]
            if there:
                verb, pid = chance.choice(there)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    story.killed[verb] += 1
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not failures and len(receiver.ids()) < len(story.jobs) and time.monotonic() < deadline:
            time.sleep(0.2)
        story.deliveries = list(receiver.deliveries)
    story.seconds = time.monotonic() - began
    story.secret = at.project.done("callbacks", "secret", "--key", "client0").strip()
    if failures:
        raise failures[0]
    return story


def faults_of(story: Story, batches: int, pages: int) -> list[str]:
    """What was promised and not kept."""
    ids = {job.id for job in story.jobs}
    told = {one.told["data"]["job_id"] for one in story.deliveries}
    found = {
        f"{batches - len(ids)} batches are no job of their own": len(ids) != batches,
        "a job has not ended well": any((job.status, job.total) != ("completed", pages) for job in story.jobs),
        f"{batches * pages - story.pages} pages are missing": story.pages != batches * pages,
        f"{len(ids - told)} callbacks are missing": bool(ids - told),
        "a callback is of no job": bool(told - ids),
        "a signature does not fit": not all(one.is_signed_with(story.secret) for one in story.deliveries),
        "a message came with two ids, or an id with two messages": len(told)
        != len({(one.id, one.body) for one in story.deliveries}),
        "not each kind of process was killed": {*KILLED} != {*story.killed},
    }
    return [words for words, is_so in found.items() if is_so]


def trial(on: str, batches: int, pages: int, seconds: float, seed: int) -> bool:
    with served(on, pages=batches * pages + 1, hosts=1, latency_ms=20, keys=1) as at:
        story = play(at, batches, pages, seconds, random.Random(seed))
        hits = Counter(hit.path for hit in at.site.hits())
    broken = faults_of(story, batches, pages)
    again = len(story.deliveries) - len({one.id for one in story.deliveries})
    kills = ", ".join(f"{verb} {count}" for verb, count in sorted(story.killed.items()))
    load = os.getloadavg()[0]
    print(f"\n{on}: {batches} batches of {pages} pages in {story.seconds:.0f} s; killed: {kills}; load {load:.1f}")
    print(f"callbacks: {len(story.deliveries)} came, {again} of them again with the same id")
    print(f"pages: {len(hits):,} fetched, {sum(hits.values()) - len(hits)} of them again")
    for code, count in story.errors.most_common():
        print(f"{count:,} pages: {code}: {story.words[code]}")
    print("Not kept: " + "; ".join(broken) if broken else "All kept.")
    return not broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--on", choices=("laptop", "fleet", "both"), default="laptop")
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--pages", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    kinds = ("laptop", "fleet") if given.on == "both" else (given.on,)
    kept = [trial(on, given.batches, given.pages, given.seconds, given.seed) for on in kinds]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
