"""Large files under kill -9, by one worker and by four, and what they do to the memory; by the site's log."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import sys
from pathlib import Path

import pytest

from tests.journey.commands import QUICK
from tests.patience import PATIENCE, until
from tests.services.valkey import ValkeyServer
from tests.sites.downloads import BLOCK, Content, DownloadSite, download_site

pytestmark = pytest.mark.long

SCRIPT = """
import json, sys
from pathlib import Path
import gossamer
from gossamer import Page, Spider

class Files(Spider):
    start_urls = [sys.argv[1]]

    def parse(self, page: Page):
        for link in page.css("a"):
            yield page.download(link)

report = gossamer.run(Files, quiet=True)
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps({"done": report.counts.done, "dead": report.counts.dead, "peak": int(peak.split()[1]) // 1024}))
"""
ROOM = 60  # MB over what a crawl of a small file takes


def project(folder: Path, head: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "gossamer.toml").write_text(f'{head}\n{QUICK}\n[lease]\nduration = "2s"\nmax_deliveries = 50\n')
    return folder


async def start(folder: Path, url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, url, cwd=folder, stdout=asyncio.subprocess.PIPE
    )


async def finish(process: asyncio.subprocess.Process) -> dict[str, int]:
    out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0
    return json.loads(out)


def hashes(folder: Path) -> dict[str, str]:
    with sqlite3.connect(folder / "gossamer-data/records.db") as connection:
        rows = connection.execute("SELECT data FROM records WHERE type = 'File'").fetchall()
    connection.close()
    found = [json.loads(data) for (data,) in rows]
    assert len({one["url"] for one in found}) == len(found)
    return {one["url"]: one["sha256"] for one in found}


def kept(folder: Path) -> set[str]:
    return {path.name for path in (folder / "gossamer-data/archive/files").rglob("*") if path.is_file()}


async def test_the_memory_does_not_grow_with_the_file(tmp_path):
    async with download_site() as site:
        site.shown["/small"] = Content(size=BLOCK)
        site.shown["/large"] = large = Content(size=300 * BLOCK, cut=64 * BLOCK)
        small = await finish(await start(project(tmp_path / "small"), site.show("/1", '<a href="/small">')))
        huge = await finish(await start(project(tmp_path / "large"), site.show("/2", '<a href="/large">')))

    assert (small["done"], huge["done"]) == (2, 2)
    assert hashes(tmp_path / "large") == {site.url("/large"): large.sha256}
    begins = [one.begins for one in site.asked("/large")]
    assert len(begins) == 5
    assert all((n * 64 - 1) * BLOCK <= begin <= n * 64 * BLOCK for n, begin in enumerate(begins))
    assert huge["peak"] - small["peak"] < ROOM


async def test_a_download_goes_on_after_kill_9(tmp_path):
    async with download_site() as site:
        site.shown["/large"] = large = Content(size=40 * BLOCK, stall=24 * BLOCK)
        url, folder = site.show("/", '<a href="/large">'), project(tmp_path)
        first = await start(folder, url)
        await asyncio.wait_for(site.stalled.wait(), PATIENCE)
        part = await patiently_grown(folder, 20 * BLOCK)
        first.send_signal(signal.SIGKILL)
        await first.wait()
        large.stall = None

        report = await finish(await start(folder, url))

    assert report["done"] == 2
    assert hashes(folder) == {site.url("/large"): large.sha256}
    again = site.asked("/large")[1]
    assert (again.status, again.headers["if-range"]) == (206, '"v1"')
    assert again.begins >= part
    assert not [*(folder / "gossamer-data/parts").iterdir()]


async def patiently_grown(folder: Path, size: int) -> int:
    def big_enough() -> int:
        sizes = [part.stat().st_size for part in (folder / "gossamer-data/parts").glob("*.part")]
        return next((found for found in sizes if found >= size), 0)

    return await until(big_enough)


@pytest.mark.parametrize("state", ["sqlite", "valkey"])
async def test_four_workers_that_are_killed_at_random_leave_every_file_once(tmp_path, state, valkey: ValkeyServer):
    chance = random.Random(7)
    async with download_site() as site:
        files = {f"/{n}": Content(size=12 * BLOCK + n, seed=n % 5, cut=5 * BLOCK) for n in range(12)}
        site.shown.update(files)
        url = site.show("/", "".join(f'<a href="{path}">' for path in files))
        head = "" if state == "sqlite" else f'project = "downloads"\nstate = "{valkey.address(database=3)}"'
        folder = project(tmp_path, head)
        workers = [await start(folder, url)]
        await asyncio.wait_for(_asked_for(site, 2), PATIENCE)
        workers += [await start(folder, url) for _ in range(3)]
        for wanted in (6, 9, 12):
            await asyncio.wait_for(_asked_for(site, wanted), PATIENCE)
            victim = workers.pop(chance.randrange(len(workers)))
            if victim.returncode is None:
                victim.send_signal(signal.SIGKILL)
            await victim.wait()
            workers.append(await start(folder, url))
        for worker in workers:
            await finish(worker)

    assert hashes(folder) == {site.url(path): content.sha256 for path, content in files.items()}
    assert kept(folder) == {content.sha256 for content in files.values()}


async def _asked_for(site: DownloadSite, number: int) -> None:
    await until(lambda: sum(1 for one in site.log if one.path.removeprefix("/").isdecimal()) >= number)
