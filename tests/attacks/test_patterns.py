"""A key holder, or someone who can write to the queue, sends text that is compiled or expanded: patterns, selectors,
cron, ranges, schemas. Each has a bound in size that holds before anything is compiled; docs/security.md lists them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from gossamer.fetch.robots_rules import read_robots
from gossamer.model.file import file_name
from gossamer.model.job import SITE_PART, Job, JobState, JobTerms
from gossamer.model.site_part import KEPT_PROGRAMS, LARGEST_PROGRAM, SitePart, _compiled
from gossamer.model.task import Request
from gossamer.parse.arguments import stored_arguments
from gossamer.project.jobs.site_crawl import SiteCrawl
from gossamer.project.pages import extraction, page_children
from gossamer.project.spiders.spiders import spider_of_job
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


SELECTORS = ["a" + " " * 65 + "a" + " " * 65 + "a" + " " * 60 + "!", "a:has(a:has(a))", "* * * * *", "p" * 10_000]
RULES: list[dict[str, Any]] = [
    {"a": {"regex": "a{999999}" * 20}}, {"a": {"regex": "(?:a{99}){99999}"}},
    {"a": {"xpath": "//*[" * 40 + "1" + "]" * 40}},
    {"a": {"css": ":is(" * 300 + "a" + ")" * 300}}, {"a": {"json": "$" + "..*" * 2000}}, {"a": "x" * 100_000},
]  # fmt: skip
SCHEDULES = [
    {"cron": "*/0 * * * *"}, {"cron": "0-999999999999 * * * *"}, {"cron": "0 0 31 2 *"},
    {"cron": "9" * 190 + " * * * *"},
    {"every": "9" * 90 + "d"}, {"at": "9999-12-31T23:59:59+14:00"}, {"cron": "0 3 * * *", "zone": "../../etc/passwd"},
    {"cron": "0 3 * * *", "zone": "Europe/" + "x" * 90}, {"every": "1d", "windows": "Mon" + " " * 990 + "x"},
    {"every": "1d", "windows": ";".join(["Mon-Sun 00:00-24:00"] * 60)},
    {"every": "1d", "urls": ["https://shop.example/{1..9}" + "{1..2}" * 11]},
    {"every": "1d", "urls": ["https://shop.example/{1..999999999999999999999}"]},
    {"every": "1d", "urls": ["https://shop.example/{1..1000000000}"]},
]  # fmt: skip


def memory() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(settings_of(tmp_path, fetch__allow_private=False), worker=False) as opened:
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


# -- other text that is interpreted ----------------------------------------------------------------------------------


async def test_selectors_that_could_cost_much_are_refused_before_a_page_is_fetched(door: Served) -> None:
    for selector in SELECTORS:
        content = {"url": SITE, "formats": ["markdown"], "content": {"exclude": [selector] * 50}}
        for path, body in (
            ("/api/v1/scrape/async", content),
            ("/v2/batch/scrape", {"urls": [SITE], "excludeTags": [selector] * 50}),
        ):
            answer = await beside_another(door, path, body)
            assert answer.status_code in (400, 422), (selector[:50], answer.text)


async def test_selectors_and_texts_for_a_browser_have_a_length(door: Served) -> None:
    for action in ({"do": "click", "selector": "a" * 501}, {"do": "type", "selector": "a", "text": "b" * 5001}):
        answer = await door.post("/api/v1/scrape/async", {"url": SITE, "actions": [action]})
        assert answer.status_code == 422
        assert "characters" in answer.text
    waits = await door.post("/api/v1/scrape/async", {"url": SITE, "wait_for": "a" * 501})
    assert waits.status_code == 422


async def test_rules_are_compiled_in_a_child_and_never_here(door: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "LIMIT", 0.5)
    monkeypatch.setattr(page_children, "GRACE", 0.5)
    before = memory()
    for rules in RULES:
        answer = await beside_another(door, "/api/v1/scrape/async", {"url": SITE, "extract": rules})
        assert answer.status_code in (202, 422), answer.text
    assert memory() - before < ROOM


async def test_a_schema_has_a_size(door: Served) -> None:
    many = {f"p{n}": {"type": "object", "properties": {"a": {"type": "string"}}} for n in range(2000)}
    schema = {"type": "object", "properties": many}
    ours = await door.post("/api/v1/scrape/async", {"url": SITE, "formats": ["json"], "schema": schema})
    theirs = await door.post("/v2/batch/scrape", {"urls": [SITE], "formats": [{"type": "json", "schema": schema}]})
    assert (ours.status_code, theirs.status_code) == (422, 400)
    assert "fewer properties" in ours.text
    assert "fewer properties" in theirs.text


async def test_triggers_zones_windows_and_ranges_are_bounded(door: Served) -> None:
    before = memory()
    for n, terms in enumerate(SCHEDULES):
        body = {"name": f"s{n}", "spider": SITE, **terms}
        answer = await beside_another(door, "/api/v1/schedules", body)
        assert answer.status_code == 422, (terms, answer.text)
        assert "private" not in answer.text
    assert memory() - before < ROOM
    wide = {"name": "wide", "spider": SITE, "every": "1d", "urls": ["https://shop.example/{1..9999999}"]}
    taken = await door.post("/api/v1/schedules", wide)
    assert taken.status_code == 201, taken.text  # counted, not written out
    assert memory() - before < ROOM


async def test_filters_are_texts_and_no_patterns(door: Served) -> None:
    for text in ("%" * 5000, "_%" * 2000, "(a+)+$", "*" * 5000, "' OR 1=1 --"):
        letters = await door.get("/api/v1/dead-letters", reason=text)
        sites = await door.get("/api/v1/sites", search=text[:250])
        assert (letters.status_code, sites.status_code) == (200, 200), letters.text
        assert (await door.call("GET", "/api/v1/records", params={"key": text})).status_code in (200, 422)


@pytest.mark.parametrize("charset", ["undefined", "idna", "punycode", "zip", "rot13", "unicode_escape", "no-such"])
def test_a_site_names_no_codec_that_breaks_the_name_of_a_file(charset: str) -> None:
    assert file_name("https://shop.example/a.pdf", f"attachment; filename*={charset}''%FF%00{'b-' * 500}")


def test_wildcards_of_robots_txt_take_linear_time() -> None:
    rules = "\n".join(f"disallow: /{'*a' * 19}{n}" for n in range(2000))
    found = read_robots(f"user-agent: *\n{rules}", "gossamer", timedelta(seconds=10))
    assert found.allowed(f"{SITE}{'a' * 2000}")  # an engine that backtracks would never come so far
