"""A project outgrows its machine: a crawl that was stopped half-way goes on elsewhere, and comes back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer import settings as settings_module
from gossamer.project.open import open_project
from gossamer.store.contract import RecordQuery
from tests.faults.crawlers import Project, kill
from tests.patience import PATIENCE, poll_until
from tests.services.postgres import PostgresServer, schema_of
from tests.services.seaweed import Seaweed
from tests.services.valkey import ValkeyServer, running_valkey
from tests.sites.running import Park, park

pytestmark = pytest.mark.long

SETTINGS = 'project = "park"\n[politeness]\nrate = "unlimited"\nconcurrency = 8'
LAPTOP = ("sqlite:///gossamer-data/state.db", "sqlite:///gossamer-data/records.db", "folder:///gossamer-data/archive")


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with running_valkey("--appendonly", "yes", "--appendfsync", "no") as server:
        yield server


@pytest.fixture
def fleet(valkey: ValkeyServer, postgres: PostgresServer, s3: Seaweed, tmp_path: Path) -> tuple[str, str, str]:
    """Three addresses of real servers, for this test alone."""
    valkey.say("FLUSHALL")
    return (
        valkey.address(),
        f"{postgres.address()}?schema={schema_of(tmp_path)}",
        s3.address(f"move/{schema_of(tmp_path)}"),
    )


def gossamer(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gossamer", *words],
        cwd=folder,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def move(folder: Path, addresses: tuple[str, str, str], *flags: str) -> subprocess.CompletedProcess[str]:
    state, records, archive = addresses
    words = ("--to-state", state, "--to-records", records, "--to-archive", archive)
    return gossamer(folder, "move", *words, *flags)


def crawl_some(project: Project, site: Park, pages: int) -> None:
    """Crawl until the site has seen so many requests, and some in any case; then Ctrl-C."""
    goal = max(pages, len(site.hits()) + 20)  # a crawl that was stopped finishes what it has begun
    process = project.start()
    wait_for_hits(site, goal, process)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, said.decode()


def wait_for_hits(site: Park, count: int, process: subprocess.Popen[bytes]) -> None:
    poll_until(lambda: len(site.hits()) >= count or process.poll() is not None)
    assert process.poll() is None, "The crawl ended before it could be stopped."


async def standing(folder: Path) -> tuple[dict[str, int], dict[str, str], int]:
    """Where the newest job stands, the title of every record by its sku, and how many raw pages can be read."""
    async with open_project(settings_module.load(start=folder, environ={})) as system:
        job = (await system.state.jobs.jobs())[0]
        counts = await system.state.jobs.counts(job.id)
        assert counts.discovered == counts.open + counts.settled + counts.dropped + counts.duplicates
        titles: dict[str, str] = {}
        pages = 0
        async for record in system.records.records(RecordQuery()):
            assert record.key not in titles
            titles[record.key] = record.data["title"]
            fingerprint = system.rules.fingerprint(record.url)
            for visit in await system.records.visits(fingerprint):
                snapshot = await system.archive.get(visit.archive_ref)
                assert record.data["title"].encode() in snapshot.body
                pages += 1
        states = {name: getattr(counts, name) for name in ("queued", "waiting", "leased", "done", "dead")}
        return {name: count for name, count in states.items() if count}, titles, pages


async def test_a_crawl_goes_on_in_the_fleet_and_comes_back(tmp_path: Path, fleet: tuple[str, str, str]) -> None:
    with park(pages=300, hosts=3, latency_ms=60, missing=2, flaky=2) as site:
        # given a crawl on a laptop that was stopped half-way
        project = Project(tmp_path, site.seeds(), SETTINGS)
        crawl_some(project, site, 150)
        before, titles, pages = await standing(tmp_path)
        assert 100 < pages == len(titles) < 700

        # when it is moved to servers
        said = move(tmp_path, fleet, "--write")

        # then all of it is there, and goes on there to its end
        assert said.returncode == 0, said.stdout + said.stderr
        assert "The move is complete" in said.stdout
        written = tomllib.loads((tmp_path / "gossamer.toml").read_text())
        assert (written["state"], written["records"], written["archive"]) == fleet
        assert written["politeness"] == {"rate": "unlimited", "concurrency": 8}
        assert await standing(tmp_path) == (before, titles, pages)
        project.finish()
        counts, titles, pages = await standing(tmp_path)
        truth = site.truth()
        assert titles == {sku: record["title"] for sku, record in truth.items()}
        assert pages >= len(truth)
        assert counts == {"done": len(truth), "dead": 6}
        # By the servers' own log: every page once in all, the flaky ones once more.
        hits = Counter((hit.host, hit.path) for hit in site.hits())
        assert {many for (_, path), many in hits.items() if not path.startswith(("/flaky", "/missing"))} == {1}
        assert {many for (_, path), many in hits.items() if path.startswith("/flaky")} == {2}

        # and when it is moved back, nothing has been lost on either way, and nothing is left to do
        back = move(tmp_path, LAPTOP, "--write")
        assert back.returncode == 0, back.stdout + back.stderr
        assert await standing(tmp_path) == (counts, titles, pages)
        assert project.records().keys() == truth.keys()
        project.assert_sound()
        assert len(site.hits()) == sum(hits.values())


async def test_what_a_killed_crawler_had_in_hand_is_queued_on_the_other_side(
    tmp_path: Path, fleet: tuple[str, str, str]
) -> None:
    with park(pages=200, latency_ms=200) as site:
        project = Project(tmp_path, site.seeds(), SETTINGS)
        process = project.start()
        wait_for_hits(site, 60, process)
        kill(process)
        ((in_progress,),) = project.sql("state.db", "SELECT count(*) FROM url_list WHERE state = 'leased'")
        assert in_progress > 0

        said = move(tmp_path, fleet, "--write")

        assert said.returncode == 0, said.stdout + said.stderr
        counts, _, _ = await standing(tmp_path)
        assert "leased" not in counts
        project.finish()
        counts, titles, _ = await standing(tmp_path)
        assert counts == {"done": 200}
        assert titles.keys() == site.truth().keys()
        assert len(site.hits()) - 200 <= in_progress


async def test_a_move_that_was_killed_leaves_a_target_that_refuses_and_can_be_run_again(
    tmp_path: Path, fleet: tuple[str, str, str]
) -> None:
    with park(pages=300, latency_ms=150) as site:
        project = Project(tmp_path, site.seeds(), SETTINGS)
        crawl_some(project, site, 150)
        before = await standing(tmp_path)

        # given a move that is killed while it carries; the bucket is filled first, then records, then state
        state, records, _ = fleet
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED_HALFWAY, "move", "--to-state", state, "--to-records", records],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL, said.decode()

        # then nobody can work on the target by accident
        moved = tmp_path / "elsewhere"
        moved.mkdir()
        Project(moved, site.seeds(), f'project = "park"\nstate = "{state}"\n')
        refused = gossamer(moved, "status")
        assert refused.returncode == 1
        assert "not complete" in refused.stderr
        assert "gossamer move" in refused.stderr

        # and the source is as it was, goes on, and can be moved again, what was done since included
        assert await standing(tmp_path) == before
        crawl_some(project, site, 200)
        before = await standing(tmp_path)
        again = move(tmp_path, fleet, "--write")
        assert again.returncode == 0, again.stdout + again.stderr
        assert await standing(tmp_path) == before
        project.finish()
        assert set(Counter(hit.path for hit in site.hits()).values()) == {1}


async def test_a_backup_in_the_middle_of_a_crawl_goes_on_elsewhere_with_nothing_lost_or_doubled(
    tmp_path: Path, fleet: tuple[str, str, str]
) -> None:
    with park(pages=300, latency_ms=150, missing=2) as site:
        # given a crawl whose process was killed: some pages are in its hands
        project = Project(tmp_path, site.seeds(), SETTINGS)
        process = project.start()
        wait_for_hits(site, 80, process)
        kill(process)
        ((in_progress,),) = project.sql("state.db", "SELECT count(*) FROM url_list WHERE state = 'leased'")
        assert in_progress > 0
        _, titles, pages = await standing(tmp_path)
        assert gossamer(tmp_path, "backup", "first.backup").returncode == 0

        # when the machine is lost, and the backup is restored on servers
        shutil.rmtree(tmp_path / "gossamer-data")
        laptop = (tmp_path / "gossamer.toml").read_text()
        lines = [f'{role} = "{address}"' for role, address in zip(("state", "records", "archive"), fleet, strict=True)]
        (tmp_path / "gossamer.toml").write_text("\n".join([*lines, laptop]))
        said = gossamer(tmp_path, "restore", "first.backup")

        # then all of it is there, with nothing in progress
        assert said.returncode == 0, said.stdout + said.stderr
        counts, *rest = await standing(tmp_path)
        assert "leased" not in counts
        assert rest == [titles, pages]

        # and it goes on there, and from a backup of the servers on the laptop again, to its end
        crawl_some(project, site, 180)
        before = await standing(tmp_path)
        said = gossamer(tmp_path, "backup", "second.backup")
        assert said.returncode == 0, said.stdout + said.stderr
        (tmp_path / "gossamer.toml").write_text(laptop)
        assert gossamer(tmp_path, "restore", "second.backup").returncode == 0
        assert await standing(tmp_path) == before
        project.finish()
        counts, titles, pages = await standing(tmp_path)
        truth = site.truth()
        assert counts == {"done": len(truth), "dead": 2}
        assert titles == {sku: record["title"] for sku, record in truth.items()}
        project.assert_sound()
        # By the server's own log: only what was in the hands of the killed process was fetched twice.
        again = sum(many - 1 for path, many in Counter(hit.path for hit in site.hits()).items())
        assert again <= in_progress


# The command itself, in a process that is killed when the second batch of URLs is taken in.
KILLED_HALFWAY = """
import os, signal
from gossamer.backends.redis.state_stream import RedisStateStream
from gossamer.frontier.state_rows import DumpedUrl
load = RedisStateStream.load
async def load_once(self, batch):
    await load(self, batch[:len(batch) // 2])
    if any(isinstance(item, DumpedUrl) for item in batch):
        os.kill(os.getpid(), signal.SIGKILL)
    await load(self, batch)
RedisStateStream.load = load_once
from gossamer.cli import main
main()
"""
