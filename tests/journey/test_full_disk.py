"""No room left: the crawl waits, ends with one line when that does not help, and loses nothing."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gossamer.model.events import Event, Trouble
from gossamer.model.task import UrlState
from gossamer.parse.site import SiteSpider
from gossamer.project.jobs.crawl import RunningCrawl
from gossamer.project.open import Project
from gossamer.store.contract import RecordQuery
from tests.journey.commands import QUICK, Said, ended, gossamer
from tests.journey.crawling import Heard, crawled, look, settings_for
from tests.sites.hostile import HostileSite, hostile_site, noise

pytestmark = pytest.mark.long

PAGES = 60

# The command as it is, but for the minute that it gives a disk to recover.
IN_A_HURRY = """
from gossamer.cli import main
from gossamer.crawl import outages
outages.LONGEST_OUTAGE /= 200
main()
"""

# A settlement is tried again for as long as a lease lasts. The command that goes on afterwards has a usual one.
BRIEFLY = f'{QUICK}[lease]\nduration = "5s"\nmax_deliveries = 100\n'


class Listening(Heard):
    """Knows when the first trouble came."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble = asyncio.Event()

    def emit(self, event: Event) -> None:
        super().emit(event)
        if isinstance(event, Trouble):
            self.trouble.set()


@pytest.fixture
async def site():
    """A site of 3 MB that does not pack well."""
    async with hostile_site() as site:
        links = "".join(f'<a href="/page/{n}">{n}</a>' for n in range(PAGES))
        site.show("/start", f"<title>Start</title>{links}")
        for n in range(PAGES):
            site.show(f"/page/{n}", f"<title>Page {n}</title>".encode() + noise(50_000 + 997 * n))
        yield site


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A folder on a disk of 1.2 MB, and what makes it larger. Only root can make a disk."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1200k,mode=0700", "tmpfs", str(place)], capture_output=True
    )
    if made.returncode != 0:
        pytest.skip("only root can make a small disk; the test with a limit on the size of files needs none")

    def enlarge() -> None:
        subprocess.run(["mount", "-o", "remount,size=50m", str(place)], check=True)

    try:
        yield place, enlarge
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


async def in_a_hurry(folder: Path, url: str, before: Callable[[], None] | None = None) -> Said:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", IN_A_HURRY, "crawl", url),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=before,
    )
    return await ended(process)


def pages_of(site: HostileSite) -> list[str]:
    return sorted([site.url("/start"), *(site.url(f"/page/{n}") for n in range(PAGES))])


async def test_a_disk_that_gets_room_in_time_ends_nothing(small_disk, site):
    folder, enlarge = small_disk
    heard = Listening()

    async def make_room(running: RunningCrawl) -> None:
        await heard.trouble.wait()
        enlarge()

    read = settings_for(folder, fetch__allow_hosts=["127.0.0.1"])
    after = await crawled(SiteSpider([site.url("/start")]), read, attend=make_room, heard=heard)

    assert heard.trouble.is_set()
    assert {(state, reason) for _, state, reason in after.fates} == {("done", "")}
    assert sorted(record.url for record in after.records) == pages_of(site)
    after.assert_adds_up()


async def test_a_disk_that_stays_full_ends_the_crawl_with_one_line_and_it_goes_on_later(small_disk, site):
    folder, enlarge = small_disk
    (folder / "gossamer.toml").write_text(BRIEFLY)

    said = await in_a_hurry(folder, site.url("/start"))

    assert "Free some space" in said.one_line()
    assert "Trouble: " in said.err  # it was told at once, too
    enlarge()
    assert await finished(folder, site) > 0


async def test_a_file_that_may_not_grow_ends_the_crawl_with_one_line_and_it_goes_on_later(tmp_path, site):
    (tmp_path / "gossamer.toml").write_text(BRIEFLY)

    def no_file_over_1_mb() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    said = await in_a_hurry(tmp_path, site.url("/start"), before=no_file_over_1_mb)

    assert "Free some space" in said.one_line()
    assert await finished(tmp_path, site) > 0


async def finished(folder: Path, site: HostileSite) -> int:
    """Go on with the real command and look: everything is there, once. How many pages needed no second request."""
    before = len(site.log)
    (folder / "gossamer.toml").write_text(QUICK)
    said = await gossamer(folder, "crawl", site.url("/start"))
    assert said.code == 0, said
    assert "Going on with" in said.err
    asked = len(site.log) - before

    async def question(system: Project) -> None:
        (job,) = await system.state.jobs.jobs()
        assert {fate[1:] async for fate in system.state.queue.urls(job.id)} == {(UrlState.DONE, "")}
        counts = await system.state.jobs.counts(job.id)
        assert (counts.done, counts.open, counts.dead) == (PAGES + 1, 0, 0)
        records = [record async for record in system.records.records(RecordQuery(job=job.id))]
        assert sorted(record.url for record in records) == pages_of(site)
        assert {record.version for record in records} == {1}

    await look(settings_for(folder), question)
    return PAGES + 1 - asked
