"""Servers that break, lie, drip or never end: each bad page ends with its reason, beside it all goes on."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.journey.crawling import Aftermath, crawled, settings_for
from tests.journey.visiting import Curious, among_good_pages, closed_port
from tests.sites.certificates import self_signed
from tests.sites.hostile import HostileSite, bomb, hostile_site

LIMIT = 1024 * 1024  # fetch.max_body of these crawls

BROKEN = {
    "/reset-before-headers": "dropped-connection",
    "/close-before-headers": "dropped-connection",
    "/reset-mid-body": "dropped-connection",
    "/short-body": "dropped-connection",
    "/short-chunked": "dropped-connection",
    "/endless-informational": "bad-response",
    "/huge-header": "bad-response",
    "/huge-status-line": "bad-response",
    "/many-headers": "bad-response",
    "/wide-headers": "bad-response",
    "/garbage": "bad-response",
    "/http09": "bad-response",
    "/bad-chunked": "bad-response",
    "/bad-chunked-late": "bad-response",
    "/two-lengths": "bad-response",
    "/hundredfold": "bad-response",
    "/junk-label?with=gzip": "bad-response",
    "/junk-label?with=br": "bad-response",
    "/junk-label?with=zstd": "bad-response",
}

# What can be read is read, up to the limit: (size, cut)
ODD = {
    "/endless": (LIMIT, True),
    "/endless-chunked": (LIMIT, True),
    "/endless-gzip": (0, True),
    "/bomb?with=gzip": (LIMIT, True),
    "/bomb?with=deflate": (LIMIT, True),
    "/bomb?with=br": (LIMIT, True),
    "/bomb?with=zstd": (LIMIT, True),
    "/bomb?with=gzip,br,zstd": (LIMIT, True),
    "/empty": (0, False),
    "/empty-gzip": (0, False),
    "/binary-as-html": (4096, False),
    "/nested": (LIMIT, True),
}


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> tuple[HostileSite, Aftermath]:
    """One crawl of all that, and more."""

    for path in ODD:
        if path.startswith("/bomb?with="):
            bomb(path.removeprefix("/bomb?with=").split(","))  # they are packed before anybody waits for one

    async def visit() -> tuple[HostileSite, Aftermath]:
        async with hostile_site(drip=timedelta(milliseconds=100)) as site:
            more = ["/truncated?with=gzip", "/damaged-gzip", "/wrong-charset"]
            links = [site.url(path) for path in [*BROKEN, *ODD, *more]]
            return site, await among_good_pages(site, tmp_path_factory.mktemp("visited"), links)

    return asyncio.run(visit())


@pytest.mark.parametrize("path", BROKEN)
def test_a_broken_answer_ends_as_a_dead_letter_with_one_line(visited, path):
    site, after = visited
    assert after.fate(site.url(path)) == ("dead", BROKEN[path])
    letter = after.letters[site.url(path)]
    assert letter.message
    assert "\n" not in letter.message
    # What may pass was tried again, what will not was not.
    assert letter.attempts == (1 if BROKEN[path] == "bad-response" else 2)


@pytest.mark.parametrize("path", ODD)
def test_an_odd_body_is_taken_up_to_the_limit(visited, path):
    site, after = visited
    assert after.fate(site.url(path)) == ("done", "")
    record = after.record(site.url(path))
    assert (record["size"], record["cut"]) == ODD[path]


def test_half_of_a_packed_body_is_better_than_nothing(visited):
    site, after = visited
    cut = after.record(site.url("/truncated?with=gzip"))
    assert cut["cut"]
    assert 0 < cut["size"] < 60_000
    damaged = after.record(site.url("/damaged-gzip"))
    assert (damaged["title"], damaged["cut"]) == ("Plain", True)


def test_a_charset_that_does_not_exist_does_not_garble_the_text(visited):
    site, after = visited
    assert "café – 日本" in after.record(site.url("/wrong-charset"))["text"]


def test_the_message_names_the_setting_that_was_in_the_way(visited):
    site, after = visited
    assert "fetch.max_header" in after.letters[site.url("/huge-header")].message
    assert "fetch.max_header" in after.letters[site.url("/wide-headers")].message


@pytest.mark.parametrize(
    "path", ["/endless", "/endless-chunked", "/endless-gzip", "/huge-header", "/huge-status-line", "/many-headers"]
)
def test_nobody_reads_what_is_not_wanted(visited, path):
    site, _ = visited
    assert 0 < site.sent_for[path] < 20_000_000  # what fits into the buffers of the sockets


@pytest.mark.parametrize(
    ("paths", "limit"),
    [
        (["/silence"], "fetch.read_timeout"),
        # A byte now and then never is silence; what ends it is the time for the whole page.
        (["/drip", "/drip-headers"], "fetch.total_timeout"),
    ],
)
async def test_an_answer_that_never_comes_ends_at_the_limit_which_the_message_names(tmp_path, paths, limit):
    # Nothing here is expected to answer within the limit: it may be as short as one likes.
    short = {limit.replace(".", "__"): "300ms"}
    async with hostile_site(drip=timedelta(milliseconds=100)) as site:
        spider = Curious()
        spider.start_urls = [site.url(path) for path in paths]
        flags = {"fetch__allow_hosts": ["127.0.0.1"], "politeness__robots": False, **short}
        after = await crawled(spider, settings_for(tmp_path, **flags))

        for url in spider.start_urls:
            assert after.fate(url) == ("dead", "timeout")
            assert limit in after.letters[url].message
            assert after.letters[url].attempts == 2
        after.assert_adds_up()


async def test_a_million_nested_divs_are_one_page(tmp_path):
    async with hostile_site() as site:
        deep = site.url("/nested?deep=1000000")
        after = await among_good_pages(site, tmp_path, [deep], fetch__max_body="20MB")
        assert after.fate(deep) == ("done", "")
        assert (after.record(deep)["title"], after.record(deep)["cut"]) == ("Deep", False)


async def test_hosts_that_are_not_there_say_so(tmp_path):
    async with (
        hostile_site() as site,
        hostile_site(tls=self_signed(tmp_path)) as untrusted,
    ):
        nobody = f"http://127.0.0.1:{closed_port()}/"
        links = ["http://no-such-name.invalid/", "http://also.no-such-name.invalid/x", nobody, untrusted.url("/")]

        after = await among_good_pages(site, tmp_path, links)

        assert [after.fate(link) for link in links] == [("dead", "dns")] * 2 + [("dead", "connect"), ("dead", "tls")]
        assert "no-such-name.invalid does not resolve" in after.letters[links[0]].message
        assert "Connection refused" in after.letters[nobody].message
        assert "certificate" in after.letters[links[3]].message
        assert untrusted.log == []  # not one request was made over a line that cannot be trusted
