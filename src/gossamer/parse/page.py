"""`Page`: the argument of a spider's callbacks: what extract/ reads of it (`Markup`), selectors, links, forms, files.

How it fails: bad selectors, invalid JSON and invalid links raise ParseFailed (or InvalidUrl) with the next step.
Content that is not markup has no elements; selecting from it finds nothing. A document (PDF, Word ...) is read as
HTML, so that everything works on it as on a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

import msgspec
import turbohtml

from ..errors import ParseFailed
from ..extract.documents import DocumentKind
from ..extract.links import hrefs
from ..extract.markup import Markup
from ..model.download import Download
from ..model.file import File
from ..model.page import Snapshot
from ..model.route import BROWSER, Render
from ..model.task import FILE_KIND, Request, RequestOptions
from ..model.url import without_user
from .css import compile_css
from .document import read_document
from .links import ATTRS, TAGS, Patterns, documents, everything, filter_links, hrefs_in
from .selectors import Selector, SelectorList, XPathVariable

if TYPE_CHECKING:
    from ..extract.tables import Table
    from .forms import Form, Press, Value

Link: TypeAlias = str | Selector
Callback: TypeAlias = str | Callable[..., Any]  # a method of the spider, or the method's name
_MOST_ALIKE = 100_000  # requests remembered per page


class MadeLinks:
    """The requests that a page made for its spider. They differ only in address and callback, so none needs to be
    validated. They are recognised by identity; those from one `follow_all` also as a run, since most callbacks yield
    all of them."""

    __slots__ = ("_by_id", "_runs")

    def __init__(self) -> None:
        self._by_id: dict[int, Request] = {}
        self._runs: list[list[Request]] = []

    def add(self, links: Iterable[Request]) -> None:
        if len(self._by_id) < _MOST_ALIKE:
            self._by_id.update({id(link): link for link in links})

    def add_run(self, links: list[Request]) -> None:
        if links:
            self._runs.append(links)

    def take_runs(self) -> list[list[Request]]:
        """Return the runs and forget them; their requests count as made here only if they are added again."""
        runs, self._runs = self._runs, []
        return runs

    def __contains__(self, request: Request) -> bool:
        for run in self.take_runs():
            self.add(run)
        return id(request) in self._by_id

    def clear(self) -> None:
        self._by_id.clear()
        self._runs.clear()


class Page(Markup):
    """A fetched page. Callbacks must be methods of `spider`; None accepts any method."""

    __slots__ = (
        "_data",
        "_description",
        "_files",
        "_html",
        "_made",
        "_selector",
        "_stats",
        "_unread",
        "depth",
        "spider",
    )

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        depth: int = 0,
        spider: object | None = None,
        description: object | None = None,
        html: str | ParseFailed | None = None,
    ) -> None:
        super().__init__(snapshot)
        self._html = html  # of a document, if it was read already
        self._description = description  # what another process has read of the page already (site.py)
        self.depth = depth
        self.spider = spider
        self._unread: dict[str, list[str]] = {}  # by item key: values that a recipe found but could not convert
        self._selector: Selector | None = None
        self._data: dict[str, Any] | None = None
        self._files: list[Request] = []
        self._stats: dict[str, int] = {}  # counted by the callback and by steps of the pipeline
        self._made = MadeLinks()

    def _document_html(self, kind: DocumentKind) -> str:
        if self._html is None:
            self._html = read_document(kind, self.body, self.url)
        if isinstance(self._html, ParseFailed):
            raise self._html
        return self._html

    @property
    def requested_url(self) -> str:
        return self._snapshot.requested_url

    @property
    def status(self) -> int:
        return self._snapshot.status

    @property
    def kind(self) -> str:
        """The name of the callback that parses this page."""
        return self._snapshot.kind

    @property
    def job(self) -> str:
        return self._snapshot.job

    @property
    def data(self) -> dict[str, Any]:
        """The data of the request that led here: any JSON."""
        if self._data is None:
            text = self._snapshot.data
            self._data = msgspec.json.decode(text, type=dict[str, Any]) if text else {}
        return self._data

    @property
    def selector(self) -> Selector:
        """The whole page as a selector."""
        if self._selector is None:
            tree = self.tree
            self._selector = Selector(tree if tree is not None else "")
        return self._selector

    def css(self, selector: str) -> SelectorList:
        """Select by CSS: `css("a::attr(href)")`. Raises BadSelector."""
        tree = self.tree
        query = compile_css(selector)
        return SelectorList.of_query(query, tree) if tree is not None else SelectorList()

    def xpath(self, expression: str, **variables: XPathVariable) -> SelectorList:
        """Select by XPath: `xpath("//a[@rel=$rel]/@href", rel="next")`. Raises BadSelector."""
        return self.selector.xpath(expression, **variables)

    @property
    def attrib(self) -> dict[str, str]:
        """The attributes of the root element."""
        tree = self.tree
        return Selector(tree.root).attrib if tree is not None and tree.root is not None else {}

    def links(
        self,
        *,
        allow: Patterns = (),
        deny: Patterns = (),
        restrict: str | Sequence[str] = (),
        tags: Sequence[str] = TAGS,
        attrs: Sequence[str] = ATTRS,
        nofollow: bool = True,
        wide: bool = False,
    ) -> list[str]:
        """The absolute http(s) addresses of <a> and <area>, without fragments and duplicates, in order.

        `allow` and `deny` are regular expressions for addresses, `restrict` is CSS for the parts of the page to search,
        `tags` and `attrs` are the elements and attributes that hold links. `nofollow=False` leaves out links marked
        rel=nofollow. `wide=True` gives every address of the page, on any site: redirects, frames, <link>, headers,
        forms without input, images and other files. Raises Misconfigured, BadSelector.
        """
        tree = self.tree
        if tree is None:
            return []
        if wide:
            found: Iterable[str] = everything(tree, self.headers, nofollow=nofollow)
        elif restrict or tags is not TAGS or attrs is not ATTRS:
            found = hrefs_in(tree, restrict, tags, attrs, nofollow=nofollow)
        else:
            found = hrefs(tree, nofollow=nofollow)
        links = self.link_base.web_links(found)
        return list(filter_links(links, allow, deny)) if allow or deny else links

    def document_links(self) -> list[str]:
        """The addresses that a browser or a search engine would visit from here: `links` and redirects, frames, <link>
        and Link headers to other pages, and forms without input.
        """
        tree = self.tree
        return self.link_base.web_links(documents(tree, self.headers)) if tree is not None else []

    def follow(
        self,
        link: Link,
        callback: Callback | None = None,
        *,
        render: bool | Render = False,
        **options: Unpack[RequestOptions],
    ) -> Request:
        """A request for a link: an address, an <a>, <area> or <link>, or the text of an attribute.

        `callback` is a method of the spider, or its name; the default is the callback of this page. `data` is any JSON
        and comes back as `page.data`. `render` requests a browser; `fetcher` names a route, `proxy_pool` and `country`
        a proxy, and requests with the same `session` share one visitor identity. Other options (`method`, `json`, ...)
        are those of `Request`. Raises ParseFailed, InvalidUrl.
        """
        return self._alike_request(self.urljoin(href_of(link)), self._fields(callback, render, options))

    def follow_all(
        self,
        links: str | Iterable[Link],
        callback: Callback | None = None,
        *,
        render: bool | Render = False,
        **options: Unpack[RequestOptions],
    ) -> Iterator[Request]:
        """Requests for many links: those that a CSS selector finds, or any number of links as in `follow`.

        Unusable links (no href, a mailto: address, an invalid URL) are left out. Raises ParseFailed.
        """
        fields = self._fields(callback, render, options)
        if not isinstance(links, str):
            return (self._alike_request(url, fields) for url in self.link_base.absolute(self._hrefs_in(links)))
        urls = self.link_base.all_absolute(self._hrefs_of(links))
        if len(fields) > 1:
            return iter([Request(url=url, **fields) for url in urls])
        kind = fields["kind"]
        requests = [Request(url=url, kind=kind) for url in urls]
        self._made.add_run(requests)
        return iter(requests)

    def _alike_request(self, url: str, fields: dict[str, Any]) -> Request:
        request = Request(url=url, **fields)
        if len(fields) == 1:
            self._made.add((request,))
        return request

    def submit(
        self,
        which: str | Selector | Form | None = None,
        values: Mapping[str, Value] | None = None,
        callback: Callback | None = None,
        *,
        press: Press = None,
        add: Mapping[str, Value] | None = None,
        render: bool | Render = False,
        **options: Unpack[RequestOptions],
    ) -> Request:
        """A request that submits a form as a browser would. `which` is a form, or the argument of `page.form`.

        `values`, `press` and `add` as in `Form.submission`, the others as in `follow`. Raises ParseFailed.
        """
        from .forms import Form

        form = which if isinstance(which, Form) else self.form(which)
        return form.request(values, press=press, add=add, **self._fields(callback, render, options))

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

    def _hrefs_of(self, selector: str) -> list[str]:
        """The hrefs of the selected elements that have one."""
        tree = self.tree
        return compile_css(selector).attributes_of_document(tree, "href") if tree is not None else []

    def _hrefs_in(self, links: Iterable[Link]) -> Iterator[str]:
        for link in links:
            try:
                yield href_of(link)
            except NoHref:
                continue

    def _fields(self, callback: Callback | None, render: bool | Render, options: RequestOptions) -> dict[str, Any]:
        """The fields of a request for these options, without those that are None."""
        fields = {name: value for name, value in options.items() if value is not None}
        fields["kind"] = self._kind_of(callback)
        if render:
            fields.setdefault("fetcher", BROWSER)
            if isinstance(render, Render):
                fields["render"] = render
        errback = fields.get("errback")
        if errback is not None:
            fields["errback"] = self._kind_of(errback)  # type: ignore[arg-type]
        return fields

    def _kind_of(self, callback: Callback | None) -> str:
        if callback is None:
            return self.kind
        return callback if isinstance(callback, str) else callback_name(callback, self.spider)

    @property
    def forms(self) -> list[Form]:
        """The forms of the page, in order."""
        from .form_reader import forms_of

        return forms_of(self).all()

    def form(self, which: str | Selector | None = None) -> Form:
        """The form that a CSS selector or a Selector matches, or the form around the match; by default the page's only
        form.

        Raises ParseFailed; the message lists the page's forms.
        """
        from .form_reader import form_of

        return form_of(self, which)

    def tables(self, selector: str = "table", *, layout: bool = False) -> list[Table]:
        """The tables of the page, with spans expanded. Layout tables are left out unless `layout` is True."""
        from ..extract.tables import tables_in

        tree = self.tree
        return tables_in(compile_css(selector).of_document(tree), layout=layout) if tree is not None else []

    def __repr__(self) -> str:
        return f"Page({self.url!r}, status={self.status}, {len(self.body)} bytes)"


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


def callback_name(callback: Callable[..., Any], spider: object | None) -> str:
    """The name under which a callback is stored with the task. Raises ParseFailed for other functions."""
    owner = getattr(callback, "__self__", None)
    name: str = getattr(callback, "__name__", "")
    if owner is None or (spider is not None and owner is not spider) or getattr(owner, name, None) != callback:
        shown = name if name.isidentifier() else repr(callback)[:80]
        method = name if name.isidentifier() else "detail"
        raise ParseFailed(
            f"{shown} cannot be a callback: it is stored by name, so it must be a method of the spider."
            f" Write `def {method}(self, page)` in the spider and pass self.{method}."
        )
    return name
