"""Sitemaps and feeds become URLs: in flat memory, and whatever their servers try."""

from __future__ import annotations

import gzip
import os
import tempfile
import tracemalloc
from contextlib import aclosing, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from gossamer.schedule.sources import FeedSource, SitemapSource, SourceEntry
from gossamer.schedule.sources.reader import entries
from gossamer.schedule.sources.sitemap_walk import sitemaps_in
from tests.corpora import corpus
from tests.sites.sitemaps import FIRST_LASTMOD, bomb, endless, index, nested, page, urlset

from .sourced import Scene, a_scene, paths

# --- what sitemaps lead to -------------------------------------------------------------------------------------------


async def test_nested_packed_indexes_give_every_page_once_and_dates_that_can_be_believed() -> None:
    async with a_scene() as scene:
        found = await scene.entries(SitemapSource(url=nested(scene.site, 20_000)))
        assert [entry.url for entry in found] == [page(scene.site, number) for number in range(20_000)]
    assert [entry.lastmod for entry in found[:8]] == [FIRST_LASTMOD, None, None, None] * 2
    assert len(scene.asked) == 1 + 2 + 8
    assert scene.reports == []


async def test_memory_does_not_grow_with_the_sitemap() -> None:
    async def peak(scene: Scene, count: int) -> int:
        context = scene.files.context(report=scene.reports.append)
        url = nested(scene.site, count, per_file=500)
        tracemalloc.start()
        try:
            assert len([1 async for _ in entries(SitemapSource(url=url), context)]) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    async with a_scene() as scene:
        few = await peak(scene, 1_000)
        assert await peak(scene, 8_000) < few + 500_000  # the list of the entries would be 1.5 MB


async def test_slow_consumer_holds_no_connection() -> None:
    async with a_scene() as scene:
        url = scene.site.show("/s.xml", urlset(f"/{n}" for n in range(3_000)))
        async with aclosing(entries(SitemapSource(url=url), scene.files.context(report=print))) as found:
            # given that one entry was taken of many
            assert (await anext(found)).url.endswith("/0")
            # then the whole file has been sent already, whatever happens to the server
            assert scene.site.sent_for["/s.xml"] > 3_000 * 20
            del scene.site.shown["/s.xml"]
            assert len([1 async for _ in found]) == 2_999


def temporary_files() -> int:
    links = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{number}"))
    return sum("(deleted)" in link for link in links)


async def test_reading_that_is_left_in_the_middle_leaves_no_file() -> None:
    async with a_scene() as scene:
        before = temporary_files()
        found = entries(SitemapSource(url=nested(scene.site, 1_000, per_file=500)), scene.files.context(report=print))
        async with aclosing(found):
            await anext(found)
            assert temporary_files() == before + 3  # the index, the one inside of it, and the sitemap
        assert temporary_files() == before


async def test_without_room_for_temporary_files_the_source_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    async with a_scene() as scene:
        scene.site.show("/s.xml", urlset(["/1"]))
        words = await scene.failure("/s.xml")
    assert "No such file or directory" in words
    assert "TMPDIR" in words


async def test_robots_txt_leads_to_the_sitemaps_that_it_names() -> None:
    async with a_scene() as scene:
        scene.site.answer_robots(
            200,
            "SITEMAP: /a.xml\nUser-agent: *\nDisallow: /x\n Sitemap : b.xml # both\nSitemap: mailto:x\nsitemap: /a.xml",
        )
        scene.site.show("/a.xml", urlset(["/1"]))
        scene.site.show("/b.xml", "https://shop.example/2\n")
        found = await scene.urls("/robots.txt")
        assert found == [scene.site.url("/1"), "https://shop.example/2"]
    async with a_scene() as scene:
        scene.site.answer_robots(200, "User-agent: *\nDisallow:\n")
        assert "names no sitemap. Give the URL of the sitemap itself." in await scene.failure("/robots.txt")
    async with a_scene() as scene:
        scene.site.answer_robots(404)
        assert "answered 404" in await scene.failure("/robots.txt")


def test_sitemap_lines_are_found_among_hostile_ones() -> None:
    noise = "Sitemap:" * 60_000 + "\n" + "sitemap \t" * 60_000 + "\n" + " " * 100_000 + "\r"
    assert sitemaps_in(f"{noise}Sitemap: /a\n{noise}sitemap:b#c d", "https://x.example/robots.txt") == [
        "https://x.example/a",
        "https://x.example/b#c",
    ]


async def test_feed_gives_its_entries_with_their_dates() -> None:
    rss = """<rss><channel><item><link>/a</link><pubDate>Mon, 06 May 2024 07:08:09 GMT</pubDate></item>
    <item><title>no link</title></item><item><link>/b</link><pubDate>Mon, 06 May 2999 07:08:09 GMT</pubDate></item>
    </channel></rss>"""
    async with a_scene() as scene:
        feed = FeedSource(url=scene.site.show("/rss", rss, kind="application/rss+xml"))
        assert await scene.entries(feed) == [
            SourceEntry(url=scene.site.url("/a"), lastmod=FIRST_LASTMOD),
            SourceEntry(url=scene.site.url("/b")),
        ]
        assert scene.reports == [f"{feed.url}: 1 entries without a URL were left out."]
        scene.site.show("/rss", "<html>no feed")
        assert (await scene.failure(feed)).startswith(f"{feed.url} is not a feed that can be read. ")
        assert "answered 404" in await scene.failure(FeedSource(url=scene.site.url("/nothing")))


async def test_packed_feed_is_read_within_bounds() -> None:
    rss = b"<rss><channel><item><link>/a</link></item></channel></rss>"
    async with a_scene() as scene:
        feed = FeedSource(url=scene.site.show("/rss.xml.gz", gzip.compress(rss), kind="application/gzip"))
        assert await scene.urls(feed) == [scene.site.url("/a")]
        for body, words in {
            gzip.compress(gzip.compress(rss)): "packed with gzip twice",
            gzip.compress(rss)[:-9]: "packed with gzip and damaged: it ends too early",
            gzip.compress(rss + b" " * (11 << 20)): "unpacks to more than 10 MiB, the limit for a feed",
        }.items():
            scene.site.show("/rss.xml.gz", body, kind="application/gzip")
            assert words in await scene.failure(feed)


async def test_password_of_a_sitemap_is_sent_and_shown_to_nobody() -> None:
    async with a_scene() as scene:
        root = scene.site.url("/").replace("//", "//user:hunter2@")
        # given an index with a password in its address, which leads to a page of its own and to nothing
        scene.site.show("/i.xml", index([f"{root}s.xml", f"{root}gone.xml", f"{root}s.xml"]))
        scene.site.show("/s.xml", urlset([f"{root}page", f"{root}ba d", "http://user:hunter2@ba d/"]))
        # when it is read
        found = await scene.urls(SitemapSource(url=f"{root}i.xml"))
        words = [
            *scene.reports,
            await scene.failure(SitemapSource(url=f"{root}none.xml")),
            await scene.failure(FeedSource(url=f"{root}none.rss")),
        ]
        # then the site got it, pages have it, and no message does
        assert found[0] == f"{root}page"
        assert len(scene.reports) >= 3
        assert "hunter2" not in " ".join(words)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("sitemaps/sitemap.ns.xml", 2),
        ("sitemaps/sitemap.badns.xml", 2),
        ("sitemaps/sitemap-with-bom.txt", 2),
        ("sitemaps/sitemap.txt.gz", 5),
        ("sitemaps/xmlSitemap.gz", 5),
        ("sitemaps/atom.xml", 1),
        ("rss/feed.rss", 4),
        ("rss/xmlRss_pubDate.xml", 7),
        ("sitemaps/extension/hebdenbridgetimes-articles-sitemap.xml", 74),
        ("sitemaps/extension/sitemap-links.xml", 3),
        ("sitemaps/extension/sitemap-videos.xml", 3),
    ],
)
async def test_sitemaps_of_the_crawler_commons_set(name: str, count: int) -> None:
    async with a_scene() as scene:
        scene.site.show("/s", corpus("crawler-commons", name).read_bytes(), kind="application/octet-stream")
        assert len(await scene.urls("/s")) == count
        assert scene.reports == []
        feed = name.startswith("rss/") or "atom" in name
        if feed:
            assert len(await scene.urls(FeedSource(url=scene.site.url("/s")))) == count


# --- what goes wrong -------------------------------------------------------------------------------------------------


async def test_sitemap_that_fails_is_told_and_the_rest_goes_on() -> None:
    async with a_scene() as scene:
        scene.site.show("/good.xml", urlset(["/1"]))
        scene.site.show("/garbage.xml", b"\x00\x01\x02 garbage")
        scene.site.show("/page.xml", "<!doctype html><html>Sorry")
        scene.site.show("/cut.xml.gz", gzip.compress(urlset(f"/{n}" for n in range(5_000)))[:-2_000])
        scene.site.show("/error.xml", "x", status=500)
        scene.site.show(
            "/i.xml", index(["/gone.xml", "/garbage.xml", "/page.xml", "/error.xml", "/cut.xml.gz", "/good.xml"])
        )
        found = paths(await scene.urls("/i.xml"))
    assert found[-1] == "/1"
    assert 100 < len(found) < 5_000
    assert len(scene.reports) == 5
    for words, report in zip(
        ["answered 404", "lists no address", "<html>", "answered 500", "ends too early"], scene.reports, strict=True
    ):
        assert words in report


async def test_when_everything_fails_the_source_fails() -> None:
    async with a_scene() as scene:
        scene.site.show("/i.xml", index(["/gone.xml", "/lost.xml"]))
        assert "Nothing of" in await scene.failure("/i.xml")
        assert "gone.xml answered 404" in await scene.failure("/i.xml")
        assert "answered 404" in await scene.failure("/nothing.xml")
        scene.site.show("/empty.xml", urlset([]))
        assert await scene.urls("/empty.xml") == []


async def test_sitemaps_that_lead_back_are_read_once_and_told() -> None:
    async with a_scene() as scene:
        scene.site.show("/a.xml", index(["/a.xml", "/b.xml", "/back", "/s.xml", "/s.xml#again"]))
        scene.site.show("/b.xml", index(["/a.xml"]))
        scene.site.show("/back", "", "Location: /b.xml", status=302)
        scene.site.show("/s.xml", urlset(["/1"]))
        assert paths(await scene.urls("/a.xml")) == ["/1"]
        assert sorted(scene.asked) == ["/a.xml", "/b.xml", "/b.xml", "/back", "/s.xml"]
    assert ["listed before" in words for words in scene.reports] == [True, True, False, True]
    assert "which was read before" in scene.reports[2]


async def test_indexes_are_followed_so_deep_and_no_deeper() -> None:
    async with a_scene() as scene:
        for depth in range(5):
            scene.site.show(f"/{depth}.xml", index([f"/{depth + 1}.xml"]))
        scene.site.show("/s.xml", urlset(["/1"]))
        scene.site.show("/0.xml", index(["/1.xml", "/s.xml"]))
        assert paths(await scene.urls("/0.xml")) == ["/1"]
        assert "/4.xml" not in scene.asked
    (words,) = scene.reports
    assert "4 levels below" in words
    assert "Make it a separate source" in words


async def test_indexes_may_list_so_many_sitemaps_and_no_more() -> None:
    async with a_scene() as scene:
        scene.site.show("/i.xml", index(f"/{n}.xml" for n in range(10)))
        for n in range(10):
            scene.site.show(f"/{n}.xml", urlset([f"/{n}"]))
        assert "leads to more than 5 sitemaps" in await scene.failure("/i.xml", sitemaps=5)
        assert len(scene.asked) == 6


async def test_sitemap_that_takes_for_ever_to_parse_is_given_up() -> None:
    async with a_scene() as scene:
        scene.site.show("/s.xml", urlset(["/1"]))
        words = await scene.failure("/s.xml", reading=timedelta(0))
    assert "takes more than 0 minutes to parse" in words


async def test_many_failures_are_counted_and_a_dead_site_is_given_up() -> None:
    async with a_scene() as scene:
        scene.site.show("/s.xml", urlset(["/1"]))
        scene.site.show("/i.xml", index([*(f"/{n}.xml" for n in range(30)), "/s.xml"]))
        assert paths(await scene.urls("/i.xml")) == ["/1"]
        assert len(scene.reports) == 21
        assert scene.reports[-1].endswith(": 10 more sitemaps were left out.")
        for n in range(30):
            scene.site.show(f"/{n}.xml", "x", status=500)
        assert "3 sitemaps of" in await scene.failure("/i.xml", lost_in_a_row=3)


LAUGHS = '<!DOCTYPE u [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><urlset><url><loc>/&b;</loc></url></urlset>'
OUTSIDE = '<!DOCTYPE u [<!ENTITY a SYSTEM "file:///etc/passwd">]><urlset><url><loc>/&a;</loc></url></urlset>'


@pytest.mark.parametrize("text", [LAUGHS, OUTSIDE])
async def test_sitemap_with_entities_of_its_own_is_refused(text: str) -> None:
    async with a_scene() as scene:
        scene.site.show("/s.xml", text)
        assert "declares entities" in await scene.failure("/s.xml")


@pytest.mark.parametrize("packed", [False, True])
async def test_sitemap_without_end_is_refused_and_not_read(packed: bool) -> None:
    async with a_scene() as scene:
        endless(scene.site, "/s.xml", packed=packed)
        scene.site.show("/i.xml", index(["/s.xml", "/good.xml"]))
        scene.site.show("/good.xml", urlset(["/1"]))
        assert paths(await scene.urls("/i.xml", download=2 * 1024 * 1024)) == ["/1"]
        assert "is longer than 2 MiB" in scene.reports[0]
        assert scene.site.sent_for["/s.xml"] < 16 * 1024 * 1024


async def test_bomb_gives_nothing_rather_than_a_part() -> None:
    async with a_scene() as scene:
        scene.site.show("/s.xml.gz", bomb(6_000_000), kind="application/gzip")
        assert "unpacks to more than 5 MiB" in await scene.failure("/s.xml.gz", unpacked=5 * 1024 * 1024)
        scene.site.show("/parts.xml.gz", gzip.compress(urlset(["/x"])) + gzip.compress(b"") * 10_001)
        assert "unpacks to more than 10,000 parts" in await scene.failure("/parts.xml.gz")
        assert paths(await scene.urls("/s.xml.gz")) == ["/x", "/x"]


async def test_file_that_the_server_packs_on_the_way_is_read_like_any_other() -> None:
    async with a_scene() as scene:
        body = gzip.compress(urlset(f"/{n}" for n in range(100)))
        scene.site.show("/s.xml.gz", body, "Content-Encoding: gzip")
        assert len(await scene.urls("/s.xml.gz")) == 100
        scene.site.show("/s.xml.gz", body[:-100], "Content-Encoding: gzip")
        assert 0 < len(await scene.urls("/s.xml.gz")) < 100
    assert "is incomplete: truncated gzip" in scene.reports[0]
