"""Arguments of spiders: typed by annotations, checked, part of a job's identity."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from gossamer import Page, Results, Spider
from gossamer.errors import Misconfigured
from gossamer.model.job import RAW_PAGES, JobState, JobTerms, read_arguments
from gossamer.parse.arguments import checked_arguments, declared_arguments, job_name, written_arguments
from gossamer.project.open import open_project
from gossamer.project.spiders.spiders import spider_of_job
from gossamer.schedule.authority import demand_own_job, sealed_terms
from gossamer.settings import load
from gossamer.terms import routing_of
from tests.journey.crawling import crawled, settings_for
from tests.sites.hostile import hostile_site


class Members(Spider):
    category: str = "all"
    pages: int = 10
    share: float = 0.5
    deep: bool = False
    only: list[int] = []  # noqa: RUF012 - as users write it
    order: Literal["up", "down"] = "up"
    until: str | None = None
    known: ClassVar[dict[str, Any]] = {}
    helper: Path = Path()
    _own: str = ""
    rate = "5/s"

    def parse(self, page: Page) -> Results:
        yield {"url": page.url, "category": self.category, "pages": self.pages}


class Guests(Members):
    guest: str


def test_annotated_attributes_of_plain_types_are_arguments() -> None:
    assert list(declared_arguments(Members)) == ["category", "pages", "share", "deep", "only", "order", "until"]
    assert list(declared_arguments(Guests))[-1] == "guest"
    assert declared_arguments(Spider) == {}


def test_values_that_people_write_get_their_types() -> None:
    words = ["category=a=b", "pages=3", "share=1", "deep=true", "only=1, 2", "order=down", "until=x"]
    assert checked_arguments(Members, written_arguments(words)) == {
        "category": "a=b", "pages": 3, "share": 1.0, "deep": True, "only": [1, 2], "order": "down", "until": "x",
    }  # fmt: skip
    assert checked_arguments(Members, written_arguments(["only=1", "only=2"])) == {"only": [1, 2]}
    assert checked_arguments(Members, {"category": "all", "pages": "10", "until": None}) == {}  # as they are anyway


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["categry=x"], r"no argument 'categry'; it has category, .* Did you mean category\?"),
        (["pages=many"], "Argument pages of members cannot be 'many'"),
        (["order=sideways"], "Argument order of members cannot be 'sideways'"),
        (["share=nan"], "Argument share of members cannot be 'nan'"),
        (["share=-inf"], "Argument share of members cannot be '-inf'"),
        (["only=1,x"], "Argument only of members"),
        (["rate=1/s"], "rate is an attribute of every spider"),
        (["known=x"], "no argument 'known'"),
        (["category"], "Write name=value"),
        (["=x"], "Write name=value"),
        ([f"category={'x' * 20_000}"], "longer than 10,000"),
        (["category=\ud800"], "cannot be stored"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(Misconfigured, match=message):
        checked_arguments(Members, written_arguments(words))


def test_other_arguments_are_another_job() -> None:
    names = {job_name("m", given) for given in ({}, {"a": 1}, {"a": "1" * 80}, {"a": "1" * 81}, {"a": "1", "b": "\n"})}
    assert len(names) == 5
    assert job_name("m", {"b": True, "a": "x"}) == job_name("m", {"a": "x", "b": True}) == "m (a=x, b=true)"
    assert all(len(name) < 100 and name.isprintable() for name in names)


async def test_a_crawl_goes_on_only_with_the_same_arguments(tmp_path: Path) -> None:
    async with hostile_site() as site:
        site.show("/start", "<p>Start</p>")
        settings = settings_for(tmp_path, fetch__allow_private=True)

        def spider() -> Members:
            made = Members()
            made.start_urls = [site.url("/start")]
            return made

        lamps = await crawled(spider(), settings, arguments={"category": "lamps", "pages": "3"})
        plain = await crawled(spider(), settings)
        # given an unfinished job with arguments
        async with open_project(settings) as project:
            terms = JobTerms(spider="members", arguments='{"category":"rugs"}')
            begun, _ = await project.state.jobs.open_job("members (category=rugs)", terms, fresh=False)
        again = await crawled(spider(), settings, arguments={"category": "rugs"})

    assert (lamps.report.job.name, lamps.report.job.spider_name) == ("members (category=lamps, pages=3)", "members")
    assert lamps.record(site.url("/start")) == {"url": site.url("/start"), "category": "lamps", "pages": 3}
    assert plain.record(site.url("/start"))["category"] == "all"
    assert (again.report.job.id, again.report.resumed) == (begun.id, True)
    assert again.record(site.url("/start"))["category"] == "rugs"


SPIDER = """
from gossamer import Spider

class Members(Spider):
    start_urls = ["https://club.example/"]
    category: str = "all"
"""


async def test_a_worker_runs_the_job_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "spiders").mkdir()
    (tmp_path / "spiders" / "members.py").write_text(SPIDER)
    settings = load(start=tmp_path, environ={})
    async with open_project(settings) as project:
        terms = JobTerms(spider="members", arguments='{"category":"lamps"}')
        job, _ = await project.state.jobs.open_job("members (category=lamps)", terms, fresh=False)
        assert job.state is JobState.RUNNING
        spider, _ = spider_of_job(settings, job)
    assert spider.category == "lamps"  # type: ignore[attr-defined]
    assert read_arguments(job.arguments) == {"category": "lamps"}


async def test_the_jobs_of_keys_share_the_settings_and_what_is_derived_from_them(tmp_path: Path) -> None:
    settings = load(start=tmp_path, environ={})
    private = load(start=tmp_path, environ={}, flags={"fetch.allow_private": True})
    async with open_project(settings) as project:
        job, _ = await project.state.jobs.open_job("scrape-1", JobTerms(spider=RAW_PAGES, owner="k"), fresh=False)

    assert spider_of_job(settings, job)[1] is settings
    assert not spider_of_job(private, job)[1].fetch.allow_private
    assert routing_of(settings) is routing_of(settings)
    assert routing_of(settings) is not routing_of(private)


def test_the_seal_of_a_job_covers_its_arguments(tmp_path: Path) -> None:
    settings = load(start=tmp_path, environ={}, flags={"fleet.key": "k" * 40})
    terms = sealed_terms(settings, "m", JobTerms(arguments='{"a":1}'))
    demand_own_job(settings, "m", terms)
    with pytest.raises(Misconfigured, match="seal"):
        demand_own_job(settings, "m", JobTerms(arguments='{"a":2}', seal=terms.seal))
