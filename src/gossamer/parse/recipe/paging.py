"""Pages that differ in a number in their address: how many there are, and their addresses.

How it fails: a count that cannot be read, or that nobody would believe, is a ParseFailed for the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from urllib.parse import parse_qsl, quote_plus, unquote_plus, urlsplit

from ...errors import ParseFailed
from ..page import Page
from ..selectors import Selector
from .model import Field, Numbering
from .sources import Look, Place
from .taking import Note, take_one
from .values import shown

_DIGITS = re.compile(r"\d{1,9}")
_PAGE_WORD = (
    r"(?:pages?|pag|pg|seiten?|páginas?|pagin(?:a|e|as)|strona|stron|stránk[ay]|sid[ae]r?|sivu[a]?|sayfa|страниц[аы]?"
    r"|стор(?:інка|інки|інок)?|стр)"
)
# `1 / 15`, `page 1 of 15`; no date (1/15/2024), no decimals, and no "1 of 500 houses".
_PAGE_OF = re.compile(
    rf"(?P<before>(?<!\w){_PAGE_WORD}[.:]?\s{{0,3}})?(?<![\d/.,])(?P<here>\d{{1,9}})"
    rf"\s{{0,3}}(?:/|of|von|de|di|sur|van|av|af|z|из|з)\s{{0,3}}(?P<count>\d{{1,9}})(?!\d|\s{{0,3}}/|[.,:-]\d)"
    rf"(?:\s{{0,3}}(?P<word>[^\W\d_]{{1,20}}))?",
    re.IGNORECASE,
)
_PAGES = re.compile(_PAGE_WORD, re.IGNORECASE)
_PERHAPS = '[class*="pag" i], [id*="pag" i], [aria-label*="pag" i], [role="navigation"]'
_PAGER = re.compile(  # a word in the class, id or label of a pager: not homepage, not page-date
    r"(?<![a-z])(?:pagers?|paging|paginat\w*|paginier\w*|pagina(?:c|ç|z)\w*|pages|pagenavi?\w*"
    r"|page[ _-]?(?:num|nav|count|info|link|list|index|total|status|select|of|switch|control)\w*)"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PAGER_TEXT = 300  # characters; a pager is short
_NAME_TEXT = 500  # characters of classes that are looked at
_MOST_LOOKED_AT, _MOST_PAGERS = 2000, 50


def numbered(numbering: Numbering, look: Look) -> list[str]:
    """The pages that this one leads to. The first page leads to all of them; where the count had to be detected,
    later pages lead to those they link to, as a pager may show only a part. Raises ParseFailed."""
    page = look.page
    first, step = numbering.first, numbering.step
    here = _number_in(page.url, numbering)
    if numbering.pages is None and numbering.total is None:
        linked = _linked_numbers(page, numbering)
        if here != first:
            later = [number for number in linked if number > here]
            _believe(max(later, default=first), numbering, page)
            return [_with_number(page.url, numbering, number) for number in later]
        last = max([_written_count(page, numbering), *linked], default=here)
    elif here != first:
        return []
    else:
        last = first + (_told_count(numbering, look) - 1) * step
    _believe(last, numbering, page)
    return [_with_number(page.url, numbering, number) for number in range(first + step, last + 1, step)]


def _believe(last: int, numbering: Numbering, page: Page) -> None:
    count = (last - numbering.first) // numbering.step + 1
    if count > numbering.max:
        raise ParseFailed(
            f"{page.url} says that it has {count:,} pages, and more than {numbering.max:,} are not believed."
            f" If it is true, set `max` in `next`."
        )


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
    """The address with that number. All else in it stays as it is written: sites read odd spellings in odd ways."""
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
    """The number of the last page where a pager says `1 / 15` or `page 1 of 15`; the first one where it does not."""
    counts = [1]
    for element in islice(_pagers(page), _MOST_PAGERS):
        text = element.text
        if len(text) <= _PAGER_TEXT:
            counts += [int(match["count"]) for match in _PAGE_OF.finditer(text) if _counts_pages(match)]
    return numbering.first + (max(counts) - 1) * numbering.step


def _pagers(page: Page) -> Iterator[Selector]:
    for element in page.css(_PERHAPS)[:_MOST_LOOKED_AT]:
        names = " ".join(element.attrib.get(name, "") for name in ("class", "id", "aria-label"))[:_NAME_TEXT]
        if element.attrib.get("role") == "navigation" or _PAGER.search(_HUMP.sub("-", names).lower()):
            yield element


def _counts_pages(match: re.Match[str]) -> bool:
    """On page one; and if a word follows, it is about pages."""
    word = match["word"]
    return int(match["here"]) == 1 and (match["before"] is not None or word is None or bool(_PAGES.fullmatch(word)))
