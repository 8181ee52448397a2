"""Makes the requests that follow from a page: the links of the follow rules, the next page, and numbered pages.

How it fails: more links than the limit, and a page count that cannot be read or exceeds `max`, raise ParseFailed for
the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, quote_plus, unquote_plus, urlsplit

import msgspec

from ..errors import InvalidUrl, ParseFailed
from ..model.secret_text import secrets_marked
from ..model.task import Request, fault_of
from ..parse.page import Page
from ..parse.selectors import Selector
from .fields import Note, take_one
from .model import Field, Follow, Numbering, PageKind, Paths, Recipe, RecipeRequest
from .sources import PagePart, PageView, find
from .table import RecipeTable
from .values import excerpt

NO_DATA: Mapping[str, Any] = MappingProxyType({})  # any JSON

REQUEST_KEYS = ("method", "headers", "form", "json", "body", "retry_unsafe")
_NOWHERE = "https://recipe.invalid/"
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,59})\}")


def requests_from(recipe: Recipe, kind: PageKind, view: PageView) -> Iterator[Request]:
    """Every request from a page, in the order of the rules. The next page of a list inherits `page.data`. Raises
    ParseFailed for an implausible page count and for more links than the limit."""
    for rule in kind.follow:
        yield from link_requests(rule, recipe.paths, view)
    if kind.next is not None:
        # The same list, so it inherits the data; a page of another kind does not.
        given = view.page.data if kind.next.to == kind.name else {}
        yield from link_requests(kind.next, recipe.paths, view, given)
    if kind.numbering is not None:
        yield from numbered_requests(kind.numbering, kind.name, view)


def link_requests(rule: Follow, paths: Paths, view: PageView, given: Mapping[str, Any] = NO_DATA) -> list[Request]:
    """The requests for the links of one rule, each address once, with the `given` data and the data of the rule.
    Invalid links and those that a pattern excludes are left out. Raises ParseFailed for more than the limit."""
    page = view.page
    carried = dict(given)
    if rule.data:
        part, notes = PagePart(view), list[Note]()
        carried |= {field.name: take_one(field, part, notes, field.name) for field in rule.data}
    urls: dict[str, None] = {page.url: None} if rule.source is None else {}
    for raw in find(rule.source, PagePart(view)) if rule.source is not None else ():
        href = _href_of(raw)
        if not href:
            continue
        try:
            url = page.urljoin(href).partition("#")[0]
        except InvalidUrl:
            continue
        path = _path_of(url)
        if paths.admit(path) and rule.paths.admit(path):
            urls[url] = None
    made = (Request(url=url, kind=rule.to, priority=rule.priority, data=carried, fetcher=rule.route) for url in urls)
    asked = (fill_request(request, rule.request, carried) for request in made)
    return [request for request in asked if request is not None]


def _href_of(raw: Any) -> str:
    if isinstance(raw, Selector):
        return raw.root if isinstance(raw.root, str) else raw.attrib.get("href", "")
    return raw if isinstance(raw, str) else ""


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"


_DIGITS = re.compile(r"\d{1,9}")
_PAGE_WORD = (
    r"(?:pages?|pag|pg|seiten?|páginas?|pagin(?:a|e|as)|strona|stron|stránk[ay]|sid[ae]r?|sivu[a]?|sayfa|страниц[аы]?"
    r"|стор(?:інка|інки|інок)?|стр)"
)
# `1 / 15`, `page 1 of 15`; not a date (1/15/2024), decimals, or "1 of 500 houses".
_PAGE_OF = re.compile(
    rf"(?P<before>(?<!\w){_PAGE_WORD}[.:]?\s{{0,3}})?(?<![\d/.,])(?P<here>\d{{1,9}})"
    rf"\s{{0,3}}(?:/|of|von|de|di|sur|van|av|af|z|из|з)\s{{0,3}}(?P<count>\d{{1,9}})(?!\d|\s{{0,3}}/|[.,:-]\d)"
    rf"(?:\s{{0,3}}(?P<word>[^\W\d_]{{1,20}}))?",
    re.IGNORECASE,
)
_PAGES = re.compile(_PAGE_WORD, re.IGNORECASE)
_MAYBE_PAGERS = '[class*="pag" i], [id*="pag" i], [aria-label*="pag" i], [role="navigation"]'
_PAGER = re.compile(  # a word in the class, id or label of a pager: not homepage, not page-date
    r"(?<![a-z])(?:pagers?|paging|paginat\w*|paginier\w*|pagina(?:c|ç|z)\w*|pages|pagenavi?\w*"
    r"|page[ _-]?(?:num|nav|count|info|link|list|index|total|status|select|of|switch|control)\w*)"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PAGER_TEXT = 300  # characters; a pager is short
_NAME_TEXT = 500  # characters of class names that are inspected
_MOST_CANDIDATES, _MOST_PAGERS = 2000, 50


def numbered_requests(numbering: Numbering, kind: str, view: PageView) -> Iterator[Request]:
    """The requests for the numbered pages after this one, with its data. Raises ParseFailed."""
    page = view.page
    for number in _numbers_ahead(numbering, view):
        if numbering.request is None:
            url, data = _with_number(page.url, numbering, number), page.data
        else:
            url, data = page.url, {**page.data, numbering.parameter: number}
        request = Request(url=url, kind=kind, priority=numbering.priority, data=data)
        asked = fill_request(request, numbering.request, data)
        if asked is not None:
            yield asked


def _numbers_ahead(numbering: Numbering, view: PageView) -> Sequence[int]:
    """The numbers of these pages. The first page gives all of them; if the count had to be detected, later pages add
    those they link to, as a pager may show only a part. Raises ParseFailed."""
    page = view.page
    first, step = numbering.first, numbering.step
    here = page.data.get(numbering.parameter, first) if numbering.request else _number_in(page.url, numbering)
    if numbering.pages is None and numbering.total is None:
        linked = _linked_numbers(page, numbering)
        if here != first:
            later = [number for number in linked if number > here]
            _check_count(max(later, default=first), numbering, page)
            return later
        last = max([_written_count(page, numbering), *linked], default=here)
    elif here != first:
        return ()
    else:
        last = first + (_stated_count(numbering, view) - 1) * step
    _check_count(last, numbering, page)
    return range(first + step, last + 1, step)


def _check_count(last: int, numbering: Numbering, page: Page) -> None:
    count = (last - numbering.first) // numbering.step + 1
    if count > numbering.max:
        raise ParseFailed(
            f"{page.url} says that it has {count:,} pages, and more than {numbering.max:,} are not believed."
            f" If it is true, set `max` in `next`."
        )


def _stated_count(numbering: Numbering, view: PageView) -> int:
    field = numbering.pages or numbering.total
    assert field is not None
    found = _count(field, view)
    return found if numbering.pages is not None else -(-found // numbering.per_page)


def _count(field: Field, view: PageView) -> int:
    notes: list[Note] = []
    value = take_one(field, PagePart(view), notes, field.name)
    if value is None:
        if notes[-1].found is not None:
            raise ParseFailed(f"The page count cannot be read on {view.page.url}: {notes[-1].sentence()}")
        return 1  # a list of one page often has no count
    if value < 0:
        raise ParseFailed(f"The page count of {view.page.url} is {excerpt(value)}.")
    return int(value)


def _number_in(url: str, numbering: Numbering) -> int:
    for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True):
        if name == numbering.parameter and _DIGITS.fullmatch(value):
            return int(value)
    return numbering.first


def _with_number(url: str, numbering: Numbering, number: int) -> str:
    """The address with that number. The rest stays exactly as written: some sites depend on odd spellings."""
    address, mark, query = url.partition("#")[0].partition("?")
    pairs = query.split("&") if mark and query else []
    there = False
    for index, pair in enumerate(pairs):
        name = pair.partition("=")[0]
        if unquote_plus(name) == numbering.parameter:
            pairs[index] = f"{name}={number}"
            there = True
    if not there:
        pairs.append(f"{quote_plus(numbering.parameter)}={number}")
    return f"{address}?{'&'.join(pairs)}"


def _linked_numbers(page: Page, numbering: Numbering) -> list[int]:
    """The numbers in links to the same path, in order."""
    here = urlsplit(page.url)
    found = set()
    for url in page.links():
        parts = urlsplit(url)
        if parts.netloc == here.netloc and parts.path == here.path and numbering.parameter in parts.query:
            number = _number_in(url, numbering)
            if number > numbering.first and (number - numbering.first) % numbering.step == 0:
                found.add(number)
    return sorted(found)


def _written_count(page: Page, numbering: Numbering) -> int:
    """The number of the last page if a pager says `1 / 15` or `page 1 of 15`; else that of the first page."""
    counts = [1]
    for element in islice(_pagers(page), _MOST_PAGERS):
        text = element.text
        if len(text) <= _PAGER_TEXT:
            counts += [int(match["count"]) for match in _PAGE_OF.finditer(text) if _counts_pages(match)]
    return numbering.first + (max(counts) - 1) * numbering.step


def _pagers(page: Page) -> Iterator[Selector]:
    for element in page.css(_MAYBE_PAGERS)[:_MOST_CANDIDATES]:
        names = " ".join(element.attrib.get(name, "") for name in ("class", "id", "aria-label"))[:_NAME_TEXT]
        if element.attrib.get("role") == "navigation" or _PAGER.search(_HUMP.sub("-", names).lower()):
            yield element


def _counts_pages(match: re.Match[str]) -> bool:
    """True if it counts from page one, and a following word, if any, means pages."""
    word = match["word"]
    return int(match["here"]) == 1 and (match["before"] is not None or word is None or bool(_PAGES.fullmatch(word)))


def read_request(table: RecipeTable) -> RecipeRequest | None:
    """The request in a table with REQUEST_KEYS; None if it has none of these keys. With a body the method is POST."""
    given = {key: table.values[key] for key in REQUEST_KEYS if key in table}
    if not given:
        return None
    if "method" not in given and given.keys() & {"form", "json", "body"}:
        given["method"] = "POST"
    fault = fault_of(Request(url=_NOWHERE, **given))
    if fault:
        table.fault(f"{table.spelled()} {fault}.", *list(given)[:1])
        return None
    return RecipeRequest(**given)


def read_headers(table: RecipeTable) -> dict[str, str]:
    """The headers of every request."""
    fault = fault_of(Request(url=_NOWHERE, headers=table.values)) if table.values else ""
    if fault:
        table.fault(f"{table.spelled()}: a request {fault}.", *list(table.values)[:1])
        return {}
    return {name: secrets_marked(value) for name, value in table.values.items()}


def has_place(how: RecipeRequest, name: str) -> bool:
    """Does it have a placeholder for the value `name`?"""
    return f"{{{name}}}" in msgspec.json.encode(how).decode()


def fill_request(request: Request, how: RecipeRequest | None, values: Mapping[str, Any]) -> Request | None:
    """The request with its placeholders filled in; None if one of the values is missing."""
    if how is None:
        return request
    try:
        fields = _fill(msgspec.structs.asdict(how), values)
    except _Missing:
        return None
    if fields["headers"] is not None:
        fields["headers"] = {name: str(value) for name, value in fields["headers"].items()}
    return msgspec.structs.replace(request, **fields)


class _Missing(Exception):
    """The value of a placeholder is missing."""


def _fill(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return _fill_text(value, values)
    if isinstance(value, Mapping):
        return {name: _fill(one, values) for name, one in value.items()}
    if isinstance(value, Sequence):
        return [_fill(one, values) for one in value]
    return value


def _fill_text(text: str, values: Mapping[str, Any]) -> Any:
    whole = _PLACE.fullmatch(text)
    if whole is not None and whole[1] in values:
        return _value(values, whole[1])

    def put(found: re.Match[str]) -> str:
        return str(_value(values, found[1])) if found[1] in values else found[0]  # GraphQL is full of braces

    # Secrets first: text from a page must not be able to name one.
    return _PLACE.sub(put, secrets_marked(text))


def _value(values: Mapping[str, Any], name: str) -> Any:
    value = values[name]
    if value is None:
        raise _Missing
    return value
