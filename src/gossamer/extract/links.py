"""Makes links absolute, cheaply and as browsers do. The hottest code of a crawl."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from string import ascii_letters, digits
from typing import cast
from urllib.parse import quote_from_bytes

import turbohtml
from turbohtml import Document, XPath
from url import URL, URLError

from ..errors import InvalidUrl
from ..model.url import origin_of, parse_url

_HREFS = XPath("//a/@href | //area/@href")
_HREFS_TO_FOLLOW = XPath("//a[not(re:test(@rel, '\\bnofollow\\b', 'i'))]/@href | //area/@href")
_WEB = ("http://", "https://")
_LONGEST_KEPT = 500  # characters of a link
# A link that begins with one of these and has no colon is relative to the folder of its page, and to nothing else.
_IN_FOLDER = frozenset(ascii_letters + digits + "._-~")


class LinkBase:
    """The base of a page's relative links. `encoding` is the page's: browsers encode queries in it."""

    __slots__ = ("_base", "_encoding", "_in_folder", "_origin", "href")

    def __init__(self, href: str, encoding: str = "UTF-8") -> None:
        self.href = href
        self._encoding = encoding
        self._origin = origin_of(href)
        self._base: URL | bool | None = False  # False: not parsed yet; many pages have only links from the root
        self._in_folder: dict[str, str] | None = None  # addresses of links that are relative to the page's folder

    @property
    def _url(self) -> URL | None:
        """The base as a parsed URL; None if it is invalid."""
        if isinstance(self._base, bool):
            try:
                self._base = URL.parse(self.href)
            except (URLError, UnicodeError):
                self._base = None
        return self._base

    def join(self, link: str) -> str:
        """The absolute address, fragment included. Raises InvalidUrl."""
        if self._encoding != "UTF-8" and not link.isascii() and "?" in link:
            link = _encode_query(link, self._encoding)
        if link[:1] == "/" and link[1:2] not in ("/", "\\"):
            return _from_root(self._origin, link)
        if (base := self._url) is not None:
            try:
                href = self._joined(base, link)
            except (URLError, UnicodeError):
                return parse_url(link, self.href)  # handles the rare cases and raises the error
            if href.startswith(_WEB):
                return href
        return parse_url(link, self.href)

    def _known(self, base: URL) -> dict[str, str]:
        """The addresses of links that are relative to the page's folder: its pages repeat them."""
        if self._in_folder is None:
            whole = str(base).partition("#")[0].partition("?")[0]
            folder = whole[: whole.rfind("/") + 1]
            self._in_folder = _RELATIVE.of(folder) if len(folder) <= _LONGEST_KEPT else {}
        return self._in_folder

    def _joined(self, base: URL, link: str) -> str:
        """The link below the parsed base."""
        known = self._known(base)
        href = known.get(link)
        if href is None:
            href = str(base.join(link))
            if link[:1] in _IN_FOLDER and ":" not in link and len(href) <= _LONGEST_KEPT:
                _RELATIVE.keep(known, link, href)
        return href

    def absolute(self, links: Iterable[str]) -> Iterator[str]:
        """The absolute address of each link, fragment included; invalid links are left out."""
        for link in links:
            try:
                yield self.join(link)
            except InvalidUrl:
                continue

    def all_absolute(self, links: Sequence[str]) -> list[str]:
        """Like `absolute`, in bulk: links repeated across a site's pages cost next to nothing."""
        if self._encoding != "UTF-8":
            return list(self.absolute(links))
        found = list(map(_ROOTED.of(self._origin).get, links))
        if all(found):
            return cast("list[str]", found)
        if (base := self._url) is not None:
            in_folder = self._known(base)
            found = [url or in_folder.get(link) for link, url in zip(links, found, strict=True)]
            if all(found):
                return cast("list[str]", found)
        urls: list[str] = []
        for link, url in zip(links, found, strict=True):
            if url is None:
                try:
                    url = self.join(link)
                except InvalidUrl:
                    continue
            urls.append(url)
        return urls

    def web_links(self, links: Iterable[str]) -> list[str]:
        """The http(s) addresses among `links`, absolute, without fragments and duplicates, in order.

        Links that no browser would follow and links to a place in the same page are left out.
        """
        base = self._url
        if base is None or self._encoding != "UTF-8":
            joined = [href for link in links if (href := self._join_or_none(link)) is not None]
        else:
            origin = self._origin
            joined = []
            for link in links:
                try:
                    if link[:1] == "/" and link[1:2] not in ("/", "\\"):
                        joined.append(_from_root(origin, link))
                    elif link and link[0] != "#":
                        joined.append(self._joined(base, link))
                except (URLError, UnicodeError, InvalidUrl):
                    href = self._join_or_none(link)
                    if href is not None:
                        joined.append(href)
        web = [href.partition("#")[0] if "#" in href else href for href in joined if href.startswith(_WEB)]
        return list(dict.fromkeys(web))

    def _join_or_none(self, link: str) -> str | None:
        if not link or link[0] == "#":
            return None
        try:
            return self.join(link)
        except InvalidUrl:
            return None


def _from_root(origin: str, link: str) -> str:
    """A link that begins with one slash depends only on the origin, and pages of a site repeat such links, so they are
    cached. Long ones are not: on a hostile page a link may be a megabyte long."""
    if len(link) > _LONGEST_KEPT:
        return parse_url(link, f"{origin}/")
    known = _ROOTED.of(origin)
    url = known.get(link)
    if url is None:
        url = parse_url(link, f"{origin}/")
        _ROOTED.keep(known, link, url)
    return url


class _KnownLinks:
    """A cache of addresses of links, by what they are relative to. When full, it is cleared as a whole."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._by_base: dict[str, dict[str, str]] = {}

    def of(self, base: str) -> dict[str, str]:
        known = self._by_base.get(base)
        if known is None:
            self._make_room()
            known = self._by_base[base] = {}
        return known

    def keep(self, known: dict[str, str], link: str, url: str) -> None:
        self._make_room()
        known[link] = url

    def _make_room(self) -> None:
        self._count += 1
        if self._count > self._most:
            self._count = 0
            self._by_base.clear()


_ROOTED = _KnownLinks(16_384)  # links that begin with one slash, by origin
_RELATIVE = _KnownLinks(8_192)  # by the folder of the page


def hrefs(document: Document, *, nofollow: bool = True) -> list[str]:
    """The href of every <a> and <area>; `nofollow=False` leaves out those marked rel=nofollow."""
    # An XPath that ends in attributes gives a list of str; the library's types cannot express that.
    return cast("list[str]", (_HREFS if nofollow else _HREFS_TO_FOLLOW)(document))


def make_absolute(element: turbohtml.Element, base: str) -> None:
    """Make all addresses in the element absolute. Invalid ones stay unchanged."""
    try:
        element.resolve_links(base)
    except ValueError:  # the library stops at the first invalid address
        joining = LinkBase(base)
        for name in ("href", "src"):
            for one in element.select(f"[{name}]"):
                with suppress(InvalidUrl):
                    one.attrs[name] = joining.join(one.attr(name) or "")


def base_of(document: Document | None, url: str) -> LinkBase:
    """The base of the page's links: <base href> if it is a web address, else the page's own address."""
    if document is None:
        return LinkBase(url)
    href = url
    # Most pages have no <base>, and `find` notices that faster than `select_one`.
    element = document.select_one("base[href]") if document.find("base") is not None else None
    if isinstance(element, turbohtml.Element):
        try:
            href = parse_url(element.attr("href") or "", url)
        except InvalidUrl:
            href = url
    return LinkBase(href, document.encoding or "UTF-8")


def _encode_query(link: str, encoding: str) -> str:
    """The link with its query percent-encoded in the page's encoding."""
    head, mark, rest = link.partition("?")
    query, sharp, fragment = rest.partition("#")
    try:
        codes = "".join(
            char if char.isascii() else quote_from_bytes(char.encode(encoding, "xmlcharrefreplace")) for char in query
        )
    except LookupError:  # Python does not have this encoding
        return link
    return f"{head}{mark}{codes}{sharp}{fragment}"
