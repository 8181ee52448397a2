"""`gossamer crawl` of a list of addresses: several URLs, a file, standard input. The site's log is the witness."""

from __future__ import annotations

import asyncio

import pytest

from tests.journey.commands import QUICK, ended, gossamer, started
from tests.patience import until
from tests.sites.hostile import hostile_site

LINKED = '<title>{n}</title><a href="/behind/{n}">behind</a>'

LISTED = """
from gossamer import Spider


class Listed(Spider):
    start_urls = {urls}
    allowed_domains = ["127.0.0.1"]

    def parse(self, page):
        yield {{"url": page.url, "title": page.title}}
"""


@pytest.fixture
async def site(tmp_path):
    (tmp_path / "gossamer.toml").write_text(QUICK.replace("[fetch]", "[fetch]\nallow_private = true"))
    async with hostile_site() as site:
        for n in range(150):
            site.show(f"/page/{n}", LINKED.format(n=n))
            site.show(f"/behind/{n}", "<title>behind</title>")
        yield site


def asked(site) -> list[str]:
    return sorted(path for path in (seen.path for seen in site.log) if path.startswith(("/page/", "/behind/")))


async def test_a_list_in_a_file_is_crawled_page_by_page_and_no_further(tmp_path, site):
    lines = [f"{site.url(f'/page/{n}')}  # number {n}" for n in range(150)]
    (tmp_path / "urls.txt").write_text("\n".join(["# the pages", *lines, ""]))

    said = await gossamer(tmp_path, "crawl", "urls.txt")

    assert said.code == 0, said
    assert said.err.startswith("Only the listed pages are crawled; --depth 1 also follows their links.\n")
    assert asked(site) == sorted(f"/page/{n}" for n in range(150))


async def test_the_links_of_listed_pages_are_followed_when_asked_for(tmp_path, site):
    (tmp_path / "urls.csv").write_text(f"name,url\none,{site.url('/page/1')}\n")

    assert (await gossamer(tmp_path, "crawl", "urls.csv", "--depth", "1", "--processes", "2")).code == 0

    assert asked(site) == ["/behind/1", "/page/1"]


async def test_a_list_comes_from_standard_input(tmp_path, site):
    text = f"{site.url('/page/1')}\n{site.url('/page/2')}\n"
    process = await started(tmp_path, "crawl", "-", stdin=asyncio.subprocess.PIPE)
    said = await ended(process, text.encode())

    assert said.code == 0, said
    assert asked(site) == ["/page/1", "/page/2"]
    other = await gossamer(tmp_path, "crawl", "-", "--processes", "2")
    assert other.code == 1
    assert "write the list to a file" in other.err


async def test_several_urls_are_several_sites(tmp_path, site):
    said = await gossamer(tmp_path, "crawl", site.url("/page/1"), site.url("/page/2"))

    assert said.code == 0, said
    assert asked(site) == ["/behind/1", "/behind/2", "/page/1", "/page/2"]
    mixed = await gossamer(tmp_path, "crawl", site.url("/page/1"), "books")
    assert "Of several targets each must be a URL" in mixed.one_line()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "There is no address in urls.txt"),
        ("http://127.0.0.1/ok\nnonsense\n", "urls.txt line 2: it is not an http or https URL."),
        ("mailto:you@shop.example\n", "urls.txt line 1"),
    ],
)
async def test_a_list_with_a_wrong_line_is_refused_before_any_request(tmp_path, site, text, message):
    (tmp_path / "urls.txt").write_text(text)

    assert message in (await gossamer(tmp_path, "crawl", "urls.txt")).one_line()
    assert asked(site) == []


async def test_a_list_that_is_not_there_is_a_file_and_not_a_spider(tmp_path):
    said = await gossamer(tmp_path, "crawl", "mistyped.txt")
    assert said.one_line() == f"There is no file mistyped.txt in {tmp_path}."


async def test_a_worker_goes_on_with_a_list_that_was_read(tmp_path, site):
    (tmp_path / "urls.txt").write_text("".join(f"{site.url(f'/page/{n}')}\n" for n in range(150)))
    crawl = await started(tmp_path, "crawl", "urls.txt", "--rate", "20/s")
    await until(lambda: len(asked(site)) >= 5)
    crawl.terminate()
    await ended(crawl)
    assert len(asked(site)) < 150

    said = await gossamer(tmp_path, "worker", "--until-idle")

    assert said.code == 0, said
    assert sorted(set(asked(site))) == sorted(f"/page/{n}" for n in range(150))
    assert "going on with urls-txt-1, which was begun" in said.err


@pytest.mark.parametrize("target", ["urls.txt", "listed.py"])
async def test_pages_that_were_added_to_a_stopped_crawl_are_crawled(tmp_path, site, target):
    """A person stops a crawl, adds pages in front of its list, and gives the same command again."""

    def write(pages: range) -> None:
        urls = [site.url(f"/page/{n}") for n in pages]
        if target == "urls.txt":
            (tmp_path / target).write_text("\n".join(urls))
        else:
            (tmp_path / target).write_text(LISTED.format(urls=urls))

    write(range(50, 100))
    crawl = await started(tmp_path, "crawl", target, "--rate", "20/s")
    await until(lambda: len(asked(site)) >= 5)
    crawl.terminate()
    assert (await ended(crawl)).code == 130
    write(range(40, 100))

    said = await gossamer(tmp_path, "crawl", target)

    assert said.code == 0, said
    assert "Going on with" in said.err
    assert sorted(asked(site)) == sorted(f"/page/{n}" for n in range(40, 100))
