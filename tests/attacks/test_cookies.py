"""A site and cookies that are not its own, end to end: the log of the servers is the witness.

Tried, by plain requests, by those with a browser's fingerprint, and in a browser; with the cookies of a session that
lies in the state, so that another worker has them too:

- cookies for a public suffix, for a parent domain, for another site, for an address of numbers
- `Secure`, `__Host-` and `__Secure-` over plain HTTP
- a redirect to another site, which must not bring the cookies there; that site sets cookies for the first one
- a cookie in the state with a line break in it

Tried elsewhere: the whole of RFC 6265bis (tests/unit/test_cookie_conformance.py, test_fetch_cookies.py), what a browser
did to cookies (tests/browser/test_page_cookies.py), headers of a login (tests/journey/test_sessions.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gossamer import Page, Spider
from gossamer.clock import VirtualClock
from gossamer.fetch.cookies import CookieJar
from gossamer.model.session import Cookie
from tests.browser.conftest import chromium as chromium
from tests.journey.crawling import crawled, settings_for
from tests.services.valkey import ValkeyServer
from tests.sites.hostile_server import HostileSite, hostile_site

SHOP, SISTER, EVIL, TWIN = "shop.localhost", "www.shop.localhost", "evil.localhost", "a.evil.localhost"
OWN = ("own=1; Path=/", "family=1; Domain=shop.localhost; Path=/")
FOREIGN = (
    "suffix=1; Domain=localhost; Path=/", "dotted=1; Domain=.localhost; Path=/",
    "other=1; Domain=evil.localhost; Path=/", "number=1; Domain=127.0.0.1; Path=/", "end=1; Domain=localhost.; Path=/",
    "__Host-h=1; Path=/", "=__Host-n=1; Path=/",
)  # fmt: skip
SAFE = ("safe=1; Secure; Path=/", "__Host-s=1; Secure; Path=/", "__Secure-s=1; Secure; Path=/")  # over plain HTTP
GOOD = ("a", "1", "shop.example", "/", True, False, None)
STOLEN = ("own=forged; Domain=shop.localhost; Path=/", "suffix=forged; Domain=localhost; Path=/", "evil=1; Path=/")


class Visitor(Spider):
    allowed_domains = "*"
    session = "visitor"

    def parse(self, page: Page) -> Iterator[Any]:
        yield from page.follow_all("a")


def lay_out(site: HostileSite, lines: Sequence[str]) -> None:
    """The shop's first page leads to its own pages, to a sister of its own, and, by a redirect, to a stranger."""
    set_all = [f"Set-Cookie: {line}" for line in lines]
    links = "".join(
        f'<a href="{url}">x</a>'
        for url in (site.url("/sister", SISTER), site.url("/away", SHOP), site.url("/direct", TWIN))
    )
    site.show("/", links, *set_all)
    site.show("/away", "", f"Location: {site.url('/landed', EVIL)}", status=302)
    site.show("/landed", f'<a href="{site.url("/again", SHOP)}">x</a>', *(f"Set-Cookie: {line}" for line in STOLEN))
    for path in ("/sister", "/direct", "/again", "/later"):
        site.show(path, "<p>here")


def cookies_at(site: HostileSite, path: str) -> list[set[str]]:
    return [set(filter(None, seen.headers.get("cookie", "").split("; "))) for seen in site.seen(path)]


FETCHERS = ["http", "chrome", pytest.param("browser", marks=pytest.mark.long)]


@pytest.mark.parametrize("fetcher", FETCHERS)
async def test_cookies_go_to_the_site_that_set_them_and_nowhere_else(
    tmp_path: Path, fetcher: str, chromium: None, valkey: ValkeyServer
) -> None:
    async with hostile_site() as site:
        # For Chromium, names below localhost are as safe as HTTPS: there it takes these cookies.
        lay_out(site, (*OWN, *FOREIGN, *(() if fetcher == "browser" else SAFE)))
        allowed = {"fetch__allow_hosts": [SHOP, SISTER, EVIL, TWIN], "politeness__robots": False}
        (tmp_path / "gossamer.toml").write_text('[routes.chrome]\ntransport = "profile"\nprofile = "chrome"\n')
        read = settings_for(tmp_path, state=valkey.address(), project=f"cookies-{fetcher}", **allowed)
        spider = Visitor()
        spider.fetcher, spider.start_urls = fetcher, [site.url("/", SHOP)]

        after = await crawled(spider, read)

        assert after.letters == {}
        assert cookies_at(site, "/") == [set()]
        assert cookies_at(site, "/sister") == [{"family=1"}]
        assert cookies_at(site, "/landed") == [set()]  # the redirect brought nothing along
        assert cookies_at(site, "/direct") <= [set()]
        assert cookies_at(site, "/again") == [{"own=1", "family=1"}]

        # Another worker, with nothing but what the state has.
        later = Visitor()
        later.fetcher = fetcher
        later.start_urls = [site.url("/later", host) for host in (SHOP, SISTER, EVIL, TWIN)]
        await crawled(later, read, name="later")
        found = {seen.headers["host"].partition(":")[0]: seen.headers.get("cookie", "") for seen in site.seen("/later")}
        assert set(found[SHOP].split("; ")) == {"own=1", "family=1"}
        assert found[SISTER] == "family=1"
        assert found[EVIL] == "evil=1"
        assert found[TWIN] == ""


def test_a_cookie_of_the_state_that_no_site_can_have_set_is_not_sent() -> None:
    jar = CookieJar(VirtualClock(1_800_000_000.0))
    for value in ("x\r\nX-Injected: 1", "x\0", "x" * 5000):
        jar.replace([Cookie("b", value, "shop.example", "/", True, False, None), Cookie(*GOOD)])
        assert jar.header_for("https://shop.example/") == "a=1"
