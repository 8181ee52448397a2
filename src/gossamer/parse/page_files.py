"""What counts as a link of a page, and the methods of `Page` that request files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import turbohtml

from ..errors import ParseFailed
from ..model.download import Download
from ..model.file import File
from ..model.task import FILE_KIND, Request
from ..model.url import without_user
from .selectors import Selector, SelectorList

Link: TypeAlias = str | Selector


class PageFiles:
    """A base of `Page`."""

    __slots__ = ()

    _files: list[Request]

    @property
    def url(self) -> str:
        raise NotImplementedError

    def urljoin(self, href: str) -> str:
        raise NotImplementedError

    def download(
        self,
        link: Link,
        *,
        types: Iterable[str] = (),
        max_size: int | None = None,
        priority: int | None = None,
        fetcher: str | None = None,
        proxy_pool: str | None = None,
        country: str | None = None,
        session: str | None = None,
        max_attempts: int | None = None,
    ) -> Request:
        """A request for a file: it is stored unchanged in the archive, with a record of type File.

        A link is as in `follow`, or an element with a `src`. `types` are the accepted content types: `image/*`,
        `application/pdf`; a file of more than `max_size` bytes is refused. Raises ParseFailed, InvalidUrl.
        """
        try:
            download = Download(types=tuple(types), max_size=max_size, page=self.url)
        except (TypeError, ValueError) as error:
            raise ParseFailed(f"The file cannot be requested: {error}") from error
        return Request(
            url=without_user(self.urljoin(_src_of(link)).partition("#")[0]),
            kind=FILE_KIND,
            priority=priority,
            fetcher=fetcher,
            proxy_pool=proxy_pool,
            country=country,
            session=session,
            max_attempts=max_attempts,
            file=download,
        )

    def file(self, link: Link, *, types: Iterable[str] = (), max_size: int | None = None) -> File:
        """A file for a field of an item: it is requested as by `download` once the callback has succeeded."""
        request = self.download(link, types=types, max_size=max_size)
        self._files.append(request)
        return File(url=request.url)


class NoHref(ParseFailed):
    """An element without an href."""


def href_of(link: Link) -> str:
    if isinstance(link, str):
        return link
    if isinstance(link, SelectorList):
        raise ParseFailed("follow() takes one link, and this is a list of selectors. Use follow_all(), or pick one.")
    if not isinstance(link, Selector):
        raise ParseFailed(f"A link is an address or a selector, not {type(link).__name__}: {link!r:.100}")
    root = link.root
    if isinstance(root, str):
        return root
    href = root.attr("href") if isinstance(root, turbohtml.Element) else None
    if href is None:
        raise NoHref(f"{link.get()[:100]!r} has no href to follow. Select an <a>, or its ::attr(href).")
    return href


def _src_of(link: Link) -> str:
    root = link.root if isinstance(link, Selector) else None
    src = root.attr("src") if isinstance(root, turbohtml.Element) else None
    return src if src is not None else href_of(link)
