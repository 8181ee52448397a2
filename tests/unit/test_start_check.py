"""What can never work is refused at the start, and what a job waits for is told."""

from __future__ import annotations

import asyncio
import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gossamer import Spider
from gossamer.cli import progress
from gossamer.cli.layout import print_tips
from gossamer.cli.progress import ProgressLine
from gossamer.clock import SystemClock
from gossamer.errors import Misconfigured
from gossamer.frontier.contract import JobTerms
from gossamer.model.job import JobCounts
from gossamer.project.jobs.status import job_status
from gossamer.project.open import open_project
from gossamer.project.start_check import check_start, disguise_warnings
from tests.patience import until

from ..conformance.frontiers import candidate
from ..journey.crawling import crawled, look, settings_for


class Wares(Spider):
    start_urls = ("https://shop.example/",)


def settings(folder: Path, toml: str) -> Any:
    (folder / "gossamer.toml").write_text(toml, encoding="utf-8")
    return settings_for(folder)


POOL = '[proxies.home]\nurls = ["http://{host}:9"]\n{more}\n[routes.home]\npool = "home"\nprice = 2\n'


@pytest.mark.parametrize("host", ["10.1.2.3", "127.0.0.1", "[::1]", "proxy.localhost", "169.254.169.254"])
async def test_a_pool_at_a_private_address_is_refused_before_a_job_is_opened(tmp_path, host):
    read = settings(tmp_path, POOL.format(host=host, more=""))
    with pytest.raises(Misconfigured, match=r"private address.*allow_private = true"):
        await crawled(Wares(), read)
    assert await look(read, lambda project: project.state.jobs.jobs()) == []
    assert await look(read, lambda project: project.state.budgets.spent()) == {}


@pytest.mark.parametrize(("host", "more"), [("10.1.2.3", "allow_private = true"), ("proxy.example", "")])
def test_a_pool_that_may_work_is_left_to_the_crawl(tmp_path, host, more):
    check_start(settings(tmp_path, POOL.format(host=host, more=more)), Wares())


def test_a_pool_that_no_route_uses_is_not_looked_at(tmp_path):
    check_start(settings(tmp_path, '[proxies.home]\nurls = ["http://10.1.2.3:9"]\n'), Wares())


@pytest.mark.parametrize(
    ("toml", "fields", "said"),
    [
        ("", {"fetcher": "brwser"}, "Spider wares: There is no route 'brwser'"),
        ("", {"proxy_pool": "home"}, r"no pool \[proxies.home\]"),
        ("[router]\nbudget_job = 3\n", {"fetcher": "browser"}, "3 credits do not pay for one page by route browser"),
        ("[router]\nbudget_day = 0\n", {}, "a budget is a number of credits above 0"),
    ],
)
def test_a_wish_that_cannot_be_fulfilled_is_refused(tmp_path, toml, fields, said):
    spider = Wares()
    for name, value in fields.items():
        setattr(spider, name, value)
    with pytest.raises(Misconfigured, match=said):
        check_start(settings(tmp_path, toml), spider)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("www.shop.example", r'belong to the site shop.example. Write \[domains."shop.example"\]'),
        ("Shop.Example", "the site shop.example"),
        ("shop.example:8080", "the site shop.example"),
        ("https://www.shop.example/a", "the site shop.example"),
        ("*.shop.example", "the site shop.example"),
        ("a b", "names no site"),
    ],
)
def test_terms_for_what_is_no_site_are_refused_with_the_right_name(tmp_path, name, said):
    with pytest.raises(Misconfigured, match=said):
        check_start(settings(tmp_path, f'[domains."{name}"]\nrate = "1/m"\n'), Wares())


@pytest.mark.parametrize(
    "name",
    [
        "shop.example",
        "*.example",
        "*.co.uk",
        "shop.co.uk",
        "localhost",
        "127.0.0.1",
        "::1",
        "*shop*",
        "xn--mnchen-3ya.de",
    ],
)
def test_terms_for_a_site_or_a_pattern_of_sites_are_taken(tmp_path, name):
    check_start(settings(tmp_path, f'[domains."{name}"]\nrate = "1/m"\n'), Wares())


@pytest.mark.parametrize(
    ("toml", "headers", "told"),
    [
        ("", {"User-Agent": "mine"}, 1),
        ("", {"X-Token": "t"}, 0),
        ('[fetch.headers]\nAccept-Language = "de"\n', {}, 1),
        ('[domains."shop.example"]\nheaders = { Accept = "text/html" }\n', {}, 1),
    ],
)
@pytest.mark.parametrize("profile", [True, False])
def test_a_header_that_goes_before_a_profiles_own_is_warned_of(tmp_path, toml, headers, told, profile):
    route = '[routes.chrome]\ntransport = "profile"\nprofile = "chrome"\n' if profile else ""
    spider = Wares()
    spider.headers = headers
    found = disguise_warnings(settings(tmp_path, route + toml), spider)
    assert len(found) == (told if profile else 0)
    assert all("profile 'chrome'" in one for one in found)


async def test_status_says_what_a_job_waits_for(tmp_path):
    async with open_project(settings_for(tmp_path)) as project:
        job, _ = await project.state.jobs.open_job("wares", JobTerms(), fresh=False)
        await project.state.frontier.add(job.id, [candidate(f"https://shop.example/{n}") for n in range(3)])
        leases = (await project.state.frontier.lease(job.id, "w", 9)).leases
        assert (await job_status(project, job.id)).waits_for is None
        for lease, reason in zip(leases, ("budget", "budget", "proxies-rest"), strict=True):
            await project.state.frontier.release(lease, timedelta(hours=1), reason)
        told = (await job_status(project, job.id)).waits_for
    assert told is not None
    assert told.startswith("2 pages wait for credits: a budget is spent")
    assert "1 page waits for a proxy" in told


async def test_a_crawl_says_again_and_again_what_it_waits_for(monkeypatch):
    monkeypatch.setattr(progress, "WAIT_TOLD_EVERY", timedelta(0))
    monkeypatch.setattr(progress, "LOOK_EVERY", timedelta(0))
    monkeypatch.setattr(progress, "PLAIN_EVERY", timedelta(milliseconds=1))
    said = io.StringIO()

    class Still:
        async def counts(self, job: str) -> JobCounts:
            return JobCounts(waiting=1, discovered=1)

    async def nothing() -> int:
        return 0

    async def waits() -> str:
        return "1 page waits for credits"

    line = ProgressLine(Still(), nothing, SystemClock(), Console(file=said), job="j", limit=None, waits=waits)
    showing = asyncio.create_task(line.show())
    await until(lambda: said.getvalue().count("Waiting: 1 page waits for credits") >= 3)
    showing.cancel()


async def test_a_crawl_that_is_being_stopped_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_EVERY", timedelta(milliseconds=1))
    said = io.StringIO()

    class Busy:
        async def counts(self, job: str) -> JobCounts:
            return JobCounts(leased=1, discovered=1)

    async def nothing() -> int:
        return 0

    console = Console(file=said, width=120)
    line = ProgressLine(Busy(), nothing, SystemClock(), console, job="j", limit=None, draining=lambda: True)
    showing = asyncio.create_task(line.show())
    await until(lambda: said.getvalue().count("j: ") >= 3)
    showing.cancel()
    assert said.getvalue().count("Stopping: the pages in flight are finished first. Ctrl-C again stops at once.") == 1


def test_tips_name_the_program_as_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "gossamer"
    program.parent.mkdir()
    program.touch(mode=0o755)
    shown: list[str] = []
    for argv, path in (("bin/gossamer", ""), ("bin/gossamer", str(program.parent)), ("gossamer/__main__.py", "")):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", [argv])
        monkeypatch.setenv("PATH", path)
        said = io.StringIO()
        print_tips(Console(file=said, width=80), [("gossamer x", "one thing")])
        shown.append(said.getvalue().split("  ")[1])
    assert shown == ["bin/gossamer x", "gossamer x", "gossamer x"]


@pytest.mark.parametrize(("width", "shown"), [(80, "  gossamer x  one thing"), (20, "  gossamer x\n      one thing")])
def test_tips_fit_the_terminal(width: int, shown: str) -> None:
    said = io.StringIO()
    print_tips(Console(file=said, width=width, force_terminal=True, color_system=None), [("gossamer x", "one thing")])
    assert said.getvalue().strip("\n") == shown
