"""`gossamer reparse`: whose spider parses a page, what a dry run foretells, and pages that misbehave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from gossamer.errors import Misconfigured, Permanent, SpiderNotFound
from gossamer.model.job import REPARSE, Job, JobState, JobTerms
from gossamer.model.page import Snapshot
from gossamer.project.records.records import is_reparse
from gossamer.project.reparse.archive_job import ReparseTerms, entering, terms_of
from gossamer.project.reparse.messages import Order, ParseOrder
from gossamer.project.reparse.parser_pool import PORTION_BYTES, ParserDesk, _portions, size_of
from gossamer.project.reparse.parser_process import ArchiveParser
from gossamer.schedule.spider_loader import Spiders
from gossamer.settings import Settings, load
from tests.unit.archived import SHOP, archived_visit, crawled
from tests.unit.commandline import ProjectFolder, Said
from tests.unit.commandline import project as project

if TYPE_CHECKING:
    from gossamer.store.contract import Archive

SPIDER = """
from gossamer import Item, Page, Spider

class Thing(Item, key="sku"):
    sku: str
    title: str
    depth: int = 0

class {name}(Spider):
    {more}
    def parse(self, page: Page):
        for title in page.css("li::text").getall():
            if title != "{without}":
                yield Thing(sku=title, title="{listed}", depth=page.depth)

    def detail(self, page: Page):
        yield Thing(sku=page.css("h1::text").get(), title="{detailed}", depth=page.depth)
"""


def spider(
    project: ProjectFolder, name: str = "Shop", *, file: str = "shop.py", item: str = "Thing", **parts: str
) -> None:
    filled = {"listed": "from the list", "detailed": "in detail", "more": "", "without": "", **parts}
    project.write(f"spiders/{file}", SPIDER.format(name=name, **filled).replace("Thing", item))


def reparse(project: ProjectFolder, *words: str) -> Said:
    return project.run("reparse", "--processes", "1", *words)


def stored(project: ProjectFolder, *words: str) -> dict[str, dict[str, Any]]:
    lines = project.run("export", "--format", "jsonl", *words).lines
    return {one["sku"]: one for one in (json.loads(line) for line in lines)}


def test_a_spider_of_the_project_goes_before_one_of_ours_with_the_same_name(project):
    spider(project, "Site")
    project.fill(crawled("site", {"/a": "<li>1</li>"}, depth=3))
    project.fill(crawled("site", {"/b": "<title>Bare</title>"}, name=f"{SHOP}/"))

    assert reparse(project).code == 0

    found = {one["_meta"]["url"]: one for one in map(json.loads, project.run("export").lines)}
    thing, page = found[f"{SHOP}/a"], found[f"{SHOP}/b"]
    assert (thing["_meta"]["type"], thing["title"], thing["depth"]) == ("Thing", "from the list", 3)
    assert (page["_meta"]["type"], page["title"]) == ("WebPage", "Bare")  # whose crawl began with a mere address


@pytest.mark.long
def test_a_dry_run_foretells_what_the_run_does(project):
    spider(project)
    project.fill(crawled("shop", {"/list": "<li>1</li><li>2</li><li>3</li>"}))
    project.fill(crawled("shop", {"/1": "<h1>1</h1>", "/2": "<h1>2</h1>"}, kind="detail"))
    first = reparse(project)
    assert "records  5, of which 5 new or changed" in first.out
    assert {sku: one["title"] for sku, one in stored(project).items()} == {
        "1": "in detail", "2": "in detail", "3": "from the list",
    }  # fmt: skip
    assert "0 would be new or changed" in reparse(project, "--dry-run").out

    # The list has no say in what newer pages say in detail, and 3 is not given any more.
    spider(project, listed="new on the list", detailed="better", without="3")
    told = [json.loads(line) for line in reparse(project, "--dry-run", "--json").lines]
    assert sorted((one["kind"], one["key"]) for one in told) == [("changed", "1"), ("changed", "2"), ("gone", "3")]

    second = reparse(project)
    assert "of which 2 new or changed" in second.out
    assert "1 marked as gone" in second.out
    runs = [said.out.split("job ")[1].split()[0] for said in (first, second)]
    assert runs[0] != runs[1]
    assert all(map(is_reparse, runs))
    assert not is_reparse("reparse-1")
    assert "gone: no longer found when its page was parsed again" in project.run("history", "3").out
    assert "0 would be new or changed" in reparse(project, "--dry-run").out


@pytest.mark.long
def test_what_one_spider_parses_does_not_make_the_records_of_another_gone(project):
    spider(project)
    spider(project, "Other", file="other.py", item="Same")
    project.fill(crawled("shop", {"/list": "<li>1</li>"}))
    project.fill(crawled("other", {"/list": "<li>1</li>"}))
    assert "pages    2 parsed" in reparse(project).out

    spider(project, listed='" + str(1 / 0) + "')
    spider(project, "Other", file="other.py", item="Same", listed="mended")
    said = reparse(project)

    assert "of which 1 new or changed" in said.out
    assert "1 could not be parsed" in said.out
    assert "gone" not in said.out
    assert len(project.run("export").lines) == 2


@pytest.mark.long
def test_a_spider_that_is_not_here_or_was_renamed(project):
    spider(project, more='name = "shop.example"')
    project.fill(crawled("shop.example", {"/list": "<li>1</li>"}))
    assert "pages    1 parsed" in reparse(project, "--spider", "shop.example").out

    spider(project, "Renamed", listed="renamed")
    missing = reparse(project)
    assert (missing.code, missing.out) == (1, "")
    assert "1 page left out: no spider 'shop.example' is here." in missing.err
    assert "--as OLD-NAME" in reparse(project, "--spider", "spiders/shop.py").err
    assert "goes with --spider" in reparse(project, "--as", "shop.example").err
    taken = reparse(project, "--spider", "spiders/shop.py", "--as", "shop.example")
    assert "1 new or changed" in taken.out
    assert stored(project)["1"]["title"] == "renamed"
    assert "0 new or changed" in reparse(project).out  # the pages are its own now

    project.write("spiders/shop.py", "x = 1\ny = x / 0\n")
    said = reparse(project)
    assert said.code == 1
    assert "shop.py, line 2: ZeroDivisionError" in said.err


def test_a_page_that_kills_its_process_or_asks_for_input_fails_alone(project):
    spider(project)
    page = (project.folder / "spiders/shop.py").read_text()
    poison = """        import os
        if page.url.endswith("/7"): os._exit(3)
        if page.url.endswith("/4"): input("Well? ")
        yield"""
    project.write("spiders/shop.py", page.replace("        yield Thing(sku=page", f"{poison} Thing(sku=page"))
    project.fill(crawled("shop", {f"/{n}": f"<h1>{n}</h1>" for n in range(12)}, kind="detail"))

    said = reparse(project)

    assert "10 of 12 parsed" in said.out
    assert "2 could not be parsed" in said.out
    assert "/7: the process that parsed it ended with exit code 3" in said.err
    assert "EOFError" in said.err
    assert set(stored(project)) == {str(n) for n in range(12)} - {"4", "7"}
    assert "ended with exit code 3" in project.run("why", f"{SHOP}/7").out


def test_where_every_raw_page_is_lost_the_run_has_failed(project):
    spider(project)
    project.fill(crawled("shop", {"/list": "<li>1</li>"}))
    (project.folder / "gossamer-data/archive").rename(project.folder / "elsewhere")

    said = reparse(project)

    assert said.code == 1
    assert "0 of 1 parsed" in said.out
    assert "raw page lost  1" in said.out


def test_all_records_of_a_page_are_told_to_programs(project):
    spider(project)
    project.fill(crawled("shop", {"/list": "".join(f"<li>{n}</li>" for n in range(30))}))
    reparse(project)

    assert len(project.run("history", f"{SHOP}/list", "--json").json) == 30
    assert "The first 10 records" in project.run("history", f"{SHOP}/list").out


@pytest.mark.parametrize(
    ("lengths", "cut"),
    [
        ([10] * 120, [50, 50, 20]),
        ([PORTION_BYTES // 2] * 5, [2, 2, 1]),
        ([10, PORTION_BYTES * 3, 10], [1, 1, 1]),
        ([], []),
    ],
)
async def test_portions_are_bounded_by_pages_and_by_bytes(lengths, cut):
    async def pages():
        for length in lengths:
            yield ParseOrder(
                run="r", ref=f"2027-01-31/host-1.zst#5+{length}", fingerprint=b"", body_hash=b"", url="", job="",
                spider="",
            )  # fmt: skip

    assert [len(portion) async for portion in _portions(pages())] == cut
    assert size_of("2027-01-31/host-1.zst#5+77") == 77
    assert size_of("nonsense") == 0


# -- as a job ------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_workers_do_what_is_left_to_them_and_people_pause_and_cancel_it(project):
    spider(project)
    project.fill(crawled("shop", {f"/{n}": f"<h1>{n}</h1>" for n in range(5)}, kind="detail"))
    assert "reparse-shop-2 has started" in reparse(project, "--detach").out

    project.run("job", "pause", "reparse-shop-2")
    project.run("worker", "--until-idle", "--quiet")
    assert stored(project) == {}
    assert project.run("status", "reparse-shop-2", "--json").json["phase"] == "paused"

    project.run("job", "resume", "reparse-shop-2")
    project.run("worker", "--until-idle", "--quiet")
    status = project.run("status", "reparse-shop-2", "--json").json
    assert (status["ending"], status["outcome"], status["counts"]["done"], status["adds_up"]) == (
        "done",
        "done",
        5,
        True,
    )
    assert set(stored(project, "--job", "reparse-shop-2")) == {"0", "1", "2", "3", "4"}

    spider(project, detailed="better")
    reparse(project, "--detach")
    project.run("job", "cancel", "reparse-shop-3")
    project.run("worker", "--until-idle", "--quiet")
    assert {one["title"] for one in stored(project).values()} == {"in detail"}


@pytest.mark.long
def test_what_was_begun_goes_on_with_its_own_pages_unless_it_is_begun_anew(project):
    spider(project)
    project.fill(crawled("shop", {"/1": "<h1>1</h1>", "/2": "<h1>2</h1>"}, kind="detail"))
    reparse(project, "--detach", "--failed")  # there are none: nothing is begun
    assert len(project.run("status", "--json").json) == 1
    reparse(project, "--detach", "--job", "shop-1")

    said = reparse(project, "--failed", "--spider", "shop")  # other pages: none, and that is no reason to go on
    assert "No archived page matches" in said.err
    said = reparse(project)
    assert "reparse-shop-2 is resumed" in said.err
    assert "pages    2 parsed" in said.out

    reparse(project, "--detach")
    reparse(project, "--fresh")
    endings = {job["id"]: job["ending"] for job in project.run("status", "--json").json}
    assert (endings["reparse-shop-3"], endings["reparse-shop-4"]) == ("replaced", "done")


def test_no_pace_of_a_site_and_no_order_of_an_operator_keeps_archived_pages_waiting(project):
    project.write("gossamer.toml", '[politeness]\nrate = "1/h"\nconcurrency = 1\n')
    spider(project)
    project.fill(crawled_now("shop", 60))
    assert project.run("site", "rest", "shop.example", "1h").code == 0

    assert "pages    60 parsed" in reparse(project).out


def crawled_now(name: str, pages: int):
    """Archived pages, without the turns of a queue."""

    async def fill(system):
        job, _ = await system.state.jobs.open_job(name, JobTerms(), fresh=True)
        for number in range(pages):
            url = f"{SHOP}/{number}"
            await system.records.save([await archived_visit(system, url, job.id, name, "detail", f"<h1>{number}</h1>")])

    return fill


def test_an_older_worker_knows_no_spider_of_that_name(project):
    with pytest.raises(SpiderNotFound):
        Spiders(load(start=project.folder, environ={})).find(REPARSE)


def test_pages_that_a_dead_reader_had_entered_are_entered_once(project):
    spider(project)
    project.fill(crawled("shop", {f"/{n}": f"<h1>{n}</h1>" for n in range(9)}, kind="detail"))
    reparse(project, "--detach")

    async def enter_some(system):
        (job,) = (one for one in await system.state.jobs.jobs() if one.parses_again)
        async for judged in entering(system, terms_of(system.settings, job)):
            await system.state.frontier.add(job.id, judged.candidates[:4])

    project.fill(enter_some)
    project.run("worker", "--until-idle", "--quiet")

    counts = project.run("status", "reparse-shop-2", "--json").json["counts"]
    assert (counts["done"], counts["duplicates"], counts["stats"]["records"]) == (9, 4, 9)


def test_a_file_outside_of_the_project_is_not_named_to_a_fleet(project, tmp_path_factory):
    outside = tmp_path_factory.mktemp("elsewhere") / "shop.py"
    outside.write_text(SPIDER.format(name="Shop", more="", listed="", detailed="from elsewhere", without=""))
    project.fill(crawled("shop", {"/1": "<h1>1</h1>"}, kind="detail"))
    assert "1 new or changed" in reparse(project, "--spider", str(outside)).out  # whose state is a file of its own

    shared = msgspec.structs.replace(load(start=project.folder, environ={}), state="redis://state.example/0")
    job = Job(
        id="reparse-shop-9", name="reparse shop", state=JobState.RUNNING, created_at=0.0, spider=REPARSE,
        arguments=msgspec.json.encode(ReparseTerms(crawled_as="shop", spider=str(outside))).decode(),
    )  # fmt: skip
    with pytest.raises(Misconfigured, match="only the state names"):
        terms_of(shared, job)


async def test_a_desk_answers_each_caller_and_outlives_what_one_of_them_did(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gossamer.toml").write_text("")
    (tmp_path / "spiders").mkdir()
    lost = ParseOrder(run="r", ref="x.zst#0+1", fingerprint=b"1", body_hash=b"", url=f"{SHOP}/1", job="", spider="shop")
    async with ParserDesk(1.0, size=2, patience=timedelta(minutes=1)) as desk:
        outcomes = await asyncio.gather(
            *(desk.parse(msgspec.structs.replace(lost, url=f"{SHOP}/{n}")) for n in range(20))
        )
        given_up = asyncio.create_task(desk.parse(lost))
        await asyncio.sleep(0)
        given_up.cancel()
        again = await desk.parse(lost)

    assert [one.wanted.url for one in outcomes] == [f"{SHOP}/{n}" for n in range(20)]
    assert {one.failure for one in outcomes} == {again.failure} == {"lost"}


class CountedReads:
    """An archive that has lost every page, and remembers how many it was asked for at a time."""

    def __init__(self) -> None:
        self.reads: list[int] = []

    async def get_many(self, refs: Sequence[str]) -> list[Snapshot | Permanent]:
        self.reads.append(len(refs))
        return [Permanent(ref) for ref in refs]


async def test_the_next_pages_are_on_their_way_while_some_are_parsed() -> None:
    archive = CountedReads()
    pages = tuple(
        ParseOrder(run="r", ref=f"{n}", fingerprint=b"", body_hash=b"", url="", job="", spider="") for n in range(20)
    )
    parser = ArchiveParser(Settings(), cast("Archive", archive))
    answers = parser.work(Order(reparsed_at=0.0, pages=pages))
    first = await anext(answers)
    assert archive.reads == [8, 8]
    rest = [one async for one in answers]
    assert [one.outcome.wanted for one in (first, *rest) if one.outcome is not None] == list(pages)
    assert sum(archive.reads) == 20
