"""What a site sends does not decide how much memory a crawl takes."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from tests.journey.commands import QUICK
from tests.sites.hostile import hostile_site, huge_robots

ROOM = 150  # MB over what a crawl of one small page takes; some 80 were measured, 430 when trees outlived their pages

SCRIPT = """
import json, sys
from pathlib import Path
import gossamer
from gossamer.parse.site import SiteSpider

report = gossamer.run(SiteSpider([sys.argv[1]]), quiet=True)
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps({"done": report.counts.done, "dead": report.counts.dead, "peak": int(peak.split()[1]) // 1024}))
"""

# A page is parsed for seconds, and no other is read meanwhile: on a slow machine that takes longer than a minute.
PATIENT = QUICK.replace("60s", "1h").replace("100s", "1h")
REFUSED = ["/huge-header", "/huge-status-line", "/many-headers"]
BOMBS = [f"/bomb?with={names}" for names in ("gzip", "deflate", "br", "zstd", "gzip,gzip", "br,zstd", "zstd,gzip")]
HUGE = [*BOMBS, *REFUSED, "/endless", "/endless-chunked", "/endless-gzip", "/nested"]


async def peak_of(folder, url):
    folder.mkdir()
    (folder / "gossamer.toml").write_text(PATIENT)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, url, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return json.loads(out)


@pytest.mark.long
async def test_bombs_and_endless_answers_do_not_fill_the_memory(tmp_path):
    async with hostile_site() as site:
        small = await peak_of(tmp_path / "small", site.url("/plain"))
        assert small["done"] == 1

        site.robots = huge_robots
        paths = [*HUGE, *(f"/endless?{n}" for n in range(9))]  # many at once: one tree of theirs takes 20 MB
        huge = await peak_of(tmp_path / "huge", site.show("/start", "".join(f'<a href="{path}">' for path in paths)))

        assert (huge["done"], huge["dead"]) == (len(paths) + 1 - len(REFUSED), len(REFUSED))
        assert huge["peak"] - small["peak"] < ROOM
