"""What failed is said where people look: one sentence, the same in the summary, in every view of the job, in its
outcome and in the alert."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from gossamer.model.alert_rules import dead_letters
from gossamer.model.alert_table import USUAL
from gossamer.model.situation import LettersReading, Situation
from gossamer.project.alerts.failed_work import letters_by_site
from gossamer.project.dead_letters.dead_letters import DeadLetterChoice, list_letters
from gossamer.project.jobs.api_views import job_report
from gossamer.project.jobs.jobs import find_job, show_job
from gossamer.project.open import Project, open_project
from gossamer.settings import load
from tests.journey.commands import QUICK, gossamer, started
from tests.patience import PATIENCE
from tests.sites.moving import moving_shop
from tests.unit.commandline import on_a_terminal

SPIDER = """
from gossamer import Item, Spider


class Product(Item, key="url"):
    stock: {type}


class Shop(Spider):
    start_urls = ["{start}"]

    def parse(self, page):
        yield from page.follow_all("li a", self.product)

    def product(self, page):
        if page.url.endswith("/7"):
            raise KeyError("price")
        yield Product(url=page.url, stock=page.url.rpartition("/")[2])
"""
SAID = "stock should be int but is '"


async def ask(folder: Path, question):
    async with open_project(load(start=folder, environ={})) as project:
        return await question(project)


@pytest.mark.long
async def test_the_failure_of_most_pages_is_said_everywhere(tmp_path: Path) -> None:
    with moving_shop(30) as shop:
        spider = tmp_path / "shop.py"
        spider.write_text(SPIDER.format(type="int", start=shop.url))
        (tmp_path / "gossamer.toml").write_text(QUICK.replace("[fetch]", '[fetch]\nallow_hosts = ["127.0.0.1"]'))
        shop.missing = {9}

        # given a crawl in which 28 of 31 pages fail alike
        said = await gossamer(tmp_path, "crawl", "shop.py")
        summary = said.err
        assert f"28 parse: Product: 1 field is not as declared: {SAID}" in summary
        assert "field stock; for example" in summary
        assert "1 parse: Shop.product failed: KeyError: 'price' (shop.py, line 17)" in summary
        assert "1 http-404: answered 404." in summary
        command = summary.partition("gossamer dead show ")[2].split()[0]
        shown = await started(tmp_path, "dead", "show", command)
        assert SAID.encode() in (await shown.communicate())[0]

        # then every view of the job says it
        for words in (("job", "show", "shop"), ("status", "shop"), ("dead", "list", "--job", "shop")):
            told = await gossamer(tmp_path, *words)
            assert f"28 parse: Product: 1 field is not as declared: {SAID}" in told.out, words
        for words in (("job", "show", "shop", "--json"), ("status", "shop", "--json")):
            found = json.loads((await gossamer(tmp_path, *words)).out)["failures"]
            assert [group["count"] for group in found["groups"]] == [28, 1, 1], words
            assert (found["total"], found["looked_at"], found["others"]) == (30, 30, 0)

        async def views(project: Project) -> None:
            job = await find_job(project, "shop")
            report = await job_report(project, job)
            assert report.failures is not None
            assert (report.failures.groups[0].count, report.failures.groups[0].field) == (28, "stock")
            assert job.outcome is not None
            # what is kept and sent quotes nothing of a page
            assert any(SAID.rstrip("'") in reason.message for reason in job.outcome.reasons)
            assert not any(SAID in reason.message for reason in job.outcome.reasons)
            assert (await list_letters(project, DeadLetterChoice(), limit=3)).failures == report.failures
            letters = await list_letters(project, DeadLetterChoice(message="KeyError: 'price'"), limit=10)
            assert [letter.url for letter in letters.dead_letters] == [f"{shop.url}p/7"]
            assert letters.total == 1

        await ask(tmp_path, views)

        # and at 80 columns the end of a message is there, whatever stands before it
        narrow = " ".join(on_a_terminal(tmp_path, "dead", "list", "--limit", "40", columns=80).split())
        assert "(shop.py, line 17)" in narrow
        assert narrow.count("got str)") >= 28

        # when the spider is mended and the pages are parsed again, their group is gone
        spider.write_text(SPIDER.format(type="str", start=shop.url))
        await gossamer(tmp_path, "dead", "replay", "--reason", "parse", "--spider", "shop.py")
        left = (await ask(tmp_path, lambda project: show_job(project, "shop"))).failures
        assert left is not None
        assert [(group.count, group.reason) for group in left.groups] == [(1, "http-404"), (1, "parse")]
        assert "KeyError" in left.groups[1].in_words


@pytest.mark.long
async def test_verbose_prints_tracebacks_as_they_come(tmp_path: Path) -> None:
    with moving_shop(8) as shop:
        (tmp_path / "shop.py").write_text(SPIDER.format(type="str", start=shop.url))
        (tmp_path / "gossamer.toml").write_text(QUICK.replace("[fetch]", '[fetch]\nallow_hosts = ["127.0.0.1"]'))
        process = await started(tmp_path, "crawl", "shop.py", "-v")
        async with asyncio.timeout(PATIENCE):
            _, err = await process.communicate()
        lines = err.decode()
        assert f"Shop.product failed on {shop.url}p/7: KeyError: 'price' (shop.py, line 17)" in lines
        assert "    Traceback (most recent call last):" in lines
        assert 'raise KeyError("price")' in lines
        assert lines.index("Traceback") < lines.index("dead letters")


@pytest.mark.long
async def test_the_alert_about_dead_letters_says_what_most_of_them_say(tmp_path: Path) -> None:
    with moving_shop(8) as shop:
        (tmp_path / "shop.py").write_text(SPIDER.format(type="int", start=shop.url))
        (tmp_path / "gossamer.toml").write_text(QUICK.replace("[fetch]", '[fetch]\nallow_hosts = ["127.0.0.1"]'))
        await gossamer(tmp_path, "crawl", "shop.py", "-q")

        async def letters(project: Project) -> list[LettersReading]:
            return list(await letters_by_site(project, project.clock.now() - 3600, {}, 3600.0) or ())

        found = [one for one in await ask(tmp_path, letters) if one.site]
        (here,) = found
        assert here.recent == 8
        assert "stock should be int" in here.words
        terms = msgspec.structs.replace(USUAL["dead-letters"], threshold=8)
        (finding,) = (dead_letters(Situation(dead=tuple(found)), terms) or {}).values()
        assert finding.words.endswith(here.words)
