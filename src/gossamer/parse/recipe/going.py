"""Where a page leads: the links of the follow rules, the next page, and pages that are counted in their address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from ...errors import InvalidUrl, ParseFailed
from ...model.task import Request
from ..page import Page
from ..selectors import Selector
from .model import Field, Follow, Numbering, PageKind, Paths, Recipe
from .sources import Look, Place, find
from .taking import Note, take_one
from .values import shown

_DIGITS = re.compile(r"\d{1,9}")
_PAGE_OF = re.compile(
    r"(?<!\d)(\d{1,9})\s{0,3}(?:/|of|von|de|di|sur|van|av|af|z|из|з|/)\s{0,3}(\d{1,9})(?!\d)", re.IGNORECASE
)
_PAGER = '[class*="pag" i], [id*="pag" i], [aria-label*="pag" i], [role="navigation"]'
_PAGER_TEXT = 300  # characters; a pager is short
_MOST_PAGERS = 50


def onward(recipe: Recipe, kind: PageKind, look: Look) -> Iterator[Request]:
    """Every request that a page gives, in the order of the rules. Raises ParseFailed for a senseless page count."""
    for rule in kind.follow:
        yield from followed(rule, recipe.paths, look)
    if kind.next is not None:
        yield from followed(kind.next, recipe.paths, look)
    if kind.numbering is not None:
        for url in numbered(kind.numbering, look):
            yield Request(url=url, kind=kind.name, priority=kind.numbering.priority)


def followed(rule: Follow, paths: Paths, look: Look) -> list[Request]:
    """The links of one rule, each once. What leads nowhere, and what a pattern keeps out, is left out."""
    page = look.page
    carried: dict[str, Any] = {}
    if rule.data:
        place, notes = Place(look), list[Note]()
        carried = {field.name: take_one(field, place, notes, field.name) for field in rule.data}
    urls: dict[str, None] = {}
    for raw in find(rule.source, Place(look)):
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
    return [Request(url=url, kind=rule.to, priority=rule.priority, data=carried, fetcher=rule.route) for url in urls]


def _href_of(raw: Any) -> str:
    if isinstance(raw, Selector):
        return raw.root if isinstance(raw.root, str) else raw.attrib.get("href", "")
    return raw if isinstance(raw, str) else ""


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"


def numbered(numbering: Numbering, look: Look) -> list[str]:
    """The pages that this one leads to. The first page leads to all of them; where the count had to be detected,
    later pages lead to those they link to, as a pager may show only a part."""
    page = look.page
    here = _number_in(page.url, numbering)
    if numbering.pages is None and numbering.total is None:
        linked = _linked_numbers(page, numbering)
        if here != numbering.first:
            return [_with_number(page.url, numbering, number) for number in linked if number > here]
        last = max([_written_count(page, numbering), *linked], default=here)
        count = (last - numbering.first) // numbering.step + 1
    elif here != numbering.first:
        return []
    else:
        count = _told_count(numbering, look)
    if count > numbering.max:
        raise ParseFailed(
            f"{page.url} says that it has {count:,} pages, and more than {numbering.max:,} are not believed."
            f" If it is true, set `max` in `next`."
        )
    numbers = range(numbering.first + numbering.step, numbering.first + count * numbering.step, numbering.step)
    return [_with_number(page.url, numbering, number) for number in numbers]


def _told_count(numbering: Numbering, look: Look) -> int:
    field = numbering.pages or numbering.total
    assert field is not None
    found = _count(field, look)
    return found if numbering.pages is not None else -(-found // numbering.per_page)


def _count(field: Field, look: Look) -> int:
    notes: list[Note] = []
    value = take_one(field, Place(look), notes, field.name)
    if value is None:
        if notes[-1].found is not None:
            raise ParseFailed(f"The page count cannot be read on {look.page.url}: {notes[-1].sentence()}")
        return 1  # a list of one page often does not count itself
    if value < 0:
        raise ParseFailed(f"The page count of {look.page.url} is {shown(value)}.")
    return int(value)


def _number_in(url: str, numbering: Numbering) -> int:
    for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True):
        if name == numbering.parameter and _DIGITS.fullmatch(value):
            return int(value)
    return numbering.first


def _with_number(url: str, numbering: Numbering, number: int) -> str:
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    others = [pair for pair in pairs if pair[0] != numbering.parameter]
    query = urlencode([*others, (numbering.parameter, str(number))])
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))


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
    """The number of the last page where a pager says `1 / 15` or `page 1 of 15`; the first one where it does not."""
    counts = [0]
    for element in page.css(_PAGER)[:_MOST_PAGERS]:
        text = element.text
        if len(text) <= _PAGER_TEXT:
            counts += [int(match[2]) for match in _PAGE_OF.finditer(text) if int(match[1]) == 1]
    return numbering.first + (max(1, *counts) - 1) * numbering.step
