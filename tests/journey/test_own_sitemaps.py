"""A crawl of a URL takes the pages that the site's sitemaps list, and does not mind where there are none."""

from __future__ import annotations

from collections import Counter

from gossamer.model.events import Trouble
from gossamer.parse.site import SiteSpider
from gossamer.parse.spider import Spider
from tests.sites.api import Asked, api_site

from .crawling import crawled, settings_for

XML = {"Content-Type": "application/xml"}


def listing(site, *paths: str) -> bytes:
    return f"<urlset>{''.join(f'<url><loc>{site.url(path)}</loc></url>' for path in paths)}</urlset>".encode()


async def visit(site, answers, tmp_path, **flags):
    """Crawl the site, which answers by path; return what was left, and how often each path was asked for."""

    def answer(asked: Asked) -> tuple[int, dict[str, str], bytes]:
        return answers.get(asked.path, (404, {}, b"nothing"))

    site.answer = answer
    left = await crawled(SiteSpider([site.url("/")]), settings_for(tmp_path, fetch__allow_private=True, **flags))
    return left, Counter(asked.path for asked in site.log)


def page(*links: str) -> tuple[int, dict[str, str], bytes]:
    body = f"<p>{'Calm words. ' * 30}</p>" + "".join(f"<a href={link}>on</a>" for link in links)
    return 200, {"Content-Type": "text/html"}, body.encode()


async def test_pages_that_only_a_sitemap_names_are_fetched_once_and_those_of_other_sites_are_not(tmp_path):
    async with api_site() as site:
        index = f"<sitemapindex><sitemap><loc>{site.url('/b.xml')}</loc></sitemap></sitemapindex>".encode()
        answers = {
            "/robots.txt": (200, {}, f"User-agent: *\nDisallow: /shut\nSitemap: {site.url('/a.xml')}\n".encode()),
            "/a.xml": (200, XML, index),
            "/b.xml": (
                200,
                XML,
                listing(site, "/", "/only", "/shut").replace(
                    b"<urlset>", b"<urlset><url><loc>http://other.test/</loc></url>"
                ),
            ),
            "/": page("/linked"),
            **{path: page() for path in ("/linked", "/only", "/shut", "/sitemap.xml")},
        }
        left, asked = await visit(site, answers, tmp_path)

        assert {record.url for record in left.records} == {site.url(path) for path in ("/", "/linked", "/only")}
        assert asked["/only"] == asked["/b.xml"] == asked["/"] == 1
        assert asked["/shut"] == asked["/sitemap.xml"] == 0
        assert left.report.counts.dead == 0
        assert left.heard.of(Trouble) == []


async def test_without_a_word_in_robots_txt_the_well_known_place_is_looked_at_and_none_is_no_trouble(tmp_path):
    async with api_site() as site:
        answers = {"/": page(), "/only": page(), "/sitemap.xml": (200, XML, listing(site, "/only"))}
        left, _ = await visit(site, answers, tmp_path / "a")
        assert {record.url for record in left.records} == {site.url("/"), site.url("/only")}

        del answers["/sitemap.xml"]
        left, asked = await visit(site, answers, tmp_path / "b")
        assert [record.url for record in left.records] == [site.url("/")]
        assert (left.report.counts.dead, left.heard.of(Trouble)) == (0, [])
        assert asked["/sitemap.xml"] == 2


async def test_links_alone_count_where_the_depth_is_limited_or_nobody_wants_sitemaps(tmp_path):
    async with api_site() as site:
        answers = {"/": page(), "/only": page(), "/sitemap.xml": (200, XML, listing(site, "/only"))}
        for folder, flags in (("a", {"crawl__depth": 3}), ("b", {"crawl__sitemaps": False})):
            left, asked = await visit(site, answers, tmp_path / folder, **flags)
            assert [record.url for record in left.records] == [site.url("/")]
            assert asked["/sitemap.xml"] == 0


async def test_a_sitemap_that_is_named_and_broken_is_no_trouble(tmp_path):
    async with api_site() as site:
        named = f"Sitemap: {site.url('/broken.xml')}".encode()
        answers = {"/robots.txt": (200, {}, named), "/": page(), "/broken.xml": (200, XML, b"<html>Sorry")}
        left, _ = await visit(site, answers, tmp_path)
        assert [record.url for record in left.records] == [site.url("/")]
        assert (left.report.counts.dead, left.heard.of(Trouble)) == (0, [])


class Asking(Spider):
    sitemaps = True

    def parse(self, page):
        yield {"url": page.url}


async def test_a_spider_that_asks_for_sitemaps_is_told_what_could_not_be_read(tmp_path):
    async with api_site() as site:
        named = f"Sitemap: {site.url('/good.xml')}\nSitemap: {site.url('/broken.xml')}".encode()
        answers = {
            "/robots.txt": (200, {}, named),
            "/good.xml": (200, XML, listing(site, "/only")),
            "/broken.xml": (200, XML, b"<html>Sorry"),
            "/": page(),
            "/only": page(),
        }
        site.answer = lambda asked: answers.get(asked.path, (404, {}, b"nothing"))
        spider = Asking()
        spider.start_urls = [site.url("/")]
        left = await crawled(spider, settings_for(tmp_path / "broken", fetch__allow_private=True))
        assert {record.url for record in left.records} == {site.url("/"), site.url("/only")}
        (trouble,) = left.heard.of(Trouble)
        assert (trouble.stage, "/broken.xml" in trouble.message) == ("sitemap", True)

        # and where there are none at all
        del answers["/robots.txt"]
        left = await crawled(spider, settings_for(tmp_path / "none", fetch__allow_private=True))
        (trouble,) = left.heard.of(Trouble)
        assert trouble.message.startswith("No page was found in sitemaps of http://")


async def test_sitemaps_and_pages_of_one_process_ask_for_robots_txt_once(tmp_path):
    async with api_site() as site:
        robots = f"User-agent: *\nDisallow: /shut\nSitemap: {site.url('/a.xml')}\n".encode()
        answers = {
            "/robots.txt": (200, {}, robots),
            "/a.xml": (200, XML, listing(site, "/only", "/shut")),
            **{path: page("/linked", "/shut") for path in ("/", "/only", "/linked")},
        }
        left, asked = await visit(site, answers, tmp_path / "named")
        assert asked == {"/robots.txt": 1, "/a.xml": 1, "/": 1, "/only": 1, "/linked": 1}
        assert left.report.counts.dead == 0

        # also where there is none, and where its rules do not count
        site.log.clear()
        del answers["/robots.txt"]
        _, asked = await visit(site, answers, tmp_path / "none")
        assert asked["/robots.txt"] == 1
        site.log.clear()
        _, asked = await visit(site, answers, tmp_path / "ignored", politeness__robots=False)
        assert asked["/robots.txt"] == 1


async def test_a_spider_with_a_start_of_its_own_gets_the_sitemaps_of_the_sites_it_starts_at(tmp_path):
    class Own(Spider):
        sitemaps = True

        def __init__(self, url: str = "") -> None:
            self._url = url

        def start(self):
            yield self._url

        def parse(self, page):
            yield {"url": page.url}

    async with api_site() as site:
        answers = {"/sitemap.xml": (200, XML, listing(site, "/only")), "/": page(), "/only": page()}
        site.answer = lambda asked: answers.get(asked.path, (404, {}, b"nothing"))
        left = await crawled(Own(site.url("/")), settings_for(tmp_path, fetch__allow_private=True))

    assert {record.url for record in left.records} == {site.url("/"), site.url("/only")}
