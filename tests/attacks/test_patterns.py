"""A key holder, or someone who can write to the queue, sends text that is compiled or expanded: patterns, selectors,
cron, ranges, schemas. Each has a bound in size that holds before anything is compiled; docs/security.md lists them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from gossamer.model.job import Job, JobState, JobTerms
from gossamer.model.site_part import KEPT_PROGRAMS, LARGEST_PROGRAM, SitePart, _compiled
from gossamer.model.task import Request
from gossamer.parse.arguments import stored_arguments
from gossamer.parse.site import SITE_PART
from gossamer.project.site_crawl import SiteCrawl
from gossamer.project.spiders import spider_of_job
from gossamer.schedule.sources import WantedPage
from tests.server.serving import Served, serving, settings_of

SITE = "https://shop.example/"
ROOM = 60 * 2**20  # bytes: more than the allocator keeps, far less than one hostile pattern took
BOMBS = [
    "a{999999}", "(?:a{9}){9999999}", "(?:a{999}){999}", "((a{100}){100}){100}", "(((((x{9}){9}){9}){9}){9}){9}",
    r"(?:\pL\pN){900}", "[a-z]{1,1000}" * 20, "(?:(?:(?:a?){10}){10}){10}" * 10,
]  # fmt: skip
FOREIGN = ["(?=a)b", "(?!/admin)", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?>a)", "a*+", "(?R)", "(?(1)a|b)", r"\Z", "(?P=x)"]
EXPONENTIAL = ["(a|aa)+$", "(a+)+$", "([a-z]+)*!", "(.*a){20}$", "(x+x+)+y"]


def memory() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(settings_of(tmp_path), worker=False) as opened:
        yield opened


async def beside_another(door: Served, path: str, body: Any) -> httpx.Response:
    """The answer; meanwhile the server answers someone else, before it or with it."""
    hostile = asyncio.create_task(door.post(path, body))
    await asyncio.sleep(0)
    assert (await door.http.get("/healthz")).status_code == 200
    return await hostile


@pytest.mark.parametrize("field", ["includePaths", "excludePaths"])
@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_a_pattern_that_would_fill_the_memory_is_refused(door: Served, version: str, field: str) -> None:
    await door.post(f"/{version}/crawl", {"url": SITE, field: ["a"]})  # loads the engine
    before = memory()
    for bomb in BOMBS:
        answer = await beside_another(door, f"/{version}/crawl", {"url": SITE, field: [bomb] * 5})
        assert answer.status_code == 400, (bomb, answer.text)
    assert memory() - before < ROOM


async def test_what_the_engine_does_not_know_is_refused_with_what_to_do(door: Served) -> None:
    for pattern in FOREIGN:
        answer = await door.post("/v2/crawl", {"url": SITE, "includePaths": [pattern]})
        assert answer.status_code == 400, (pattern, answer.text)
        assert "look-around" in answer.text
        assert "exclude" in answer.text
    assert await door.project.state.jobs.jobs() == []


def test_many_different_patterns_keep_no_more_memory_than_their_cache_allows() -> None:
    SitePart(url=SITE, include=("a",)).check()
    text, before = f"{SITE}{'ab' * 1000}", memory()
    for n in range(4 * KEPT_PROGRAMS):
        assert not SitePart(url=SITE, include=(f"{n}(?:[ab]?){{400}}z",)).has(text)
    assert _compiled.cache_info().currsize <= KEPT_PROGRAMS
    assert memory() - before < KEPT_PROGRAMS * LARGEST_PROGRAM + ROOM


def test_no_pattern_backtracks() -> None:
    hostile = f"{SITE}{'a' * 2000}!"
    part = SitePart(url=SITE, exclude=tuple(EXPONENTIAL))
    part.check()
    assert part.has(hostile) is False  # `([a-z]+)*!` matches; an engine that backtracks would never come so far


def test_patterns_out_of_the_queue_are_bounded_where_a_worker_reads_them(tmp_path: Path) -> None:
    settings, before = settings_of(tmp_path), memory()
    for bomb in (*BOMBS, *FOREIGN, "a" * 100_000):
        crawl = SiteCrawl(part=SitePart(url=SITE, include=(bomb,)), page=WantedPage(request=Request(url=SITE)))
        job = _job_of(stored_arguments(msgspec.to_builtins(crawl)))
        with pytest.raises(Exception, match="pattern"):
            spider_of_job(settings, job)
    assert memory() - before < ROOM


def _job_of(arguments: str) -> Job:
    terms = JobTerms(spider=SITE_PART, arguments=arguments, owner="k1")
    return Job.under(terms, id="j1", name="site-1", state=JobState.RUNNING, created_at=0.0)
