"""Which links of a page are its list: the same kind of block again and again, each leading somewhere of its own.

Every link proposes selectors that would find it; those that find many like it, and little else, are weighed. The work
grows with the number of links alone, and that is bounded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec
from turbohtml import Element

from ....errors import InvalidUrl
from ....model.url import site_of
from ...page import Page
from .pointing import ancestors, stable_classes

_MOST_LINKS = 3000
_LEVELS = 7
_FEWEST = 3
_BLOCK_TEXT = 400  # characters; a larger block is no card
_MARGIN_TAGS = frozenset({"nav", "footer", "aside"})
_MARGINS = re.compile(
    r"(?:^|[-_ ])(?:nav|menu|navbar|footer|foot|header|top|breadcrumbs?|crumbs|pager|pagination|pages|sidebar|cart"
    r"|login|share|social|lang|legal|cookie)(?:$|[-_ ])",
    re.IGNORECASE,
)
_PRICE = re.compile(
    r"(?:[€£$¥₹₽]|\b(?:EUR|USD|GBP|CHF|PLN|SEK)\b)\s?\d|\d\s?(?:[€£$¥₹₽]|\b(?:EUR|USD|GBP|CHF|zł|kr)\b)"
)
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Links of one kind: the selector that finds them, and where they lead."""

    selector: str
    urls: tuple[str, ...]
    weight: float
    priced: float  # share of the blocks that name a price


class _Link(msgspec.Struct, frozen=True):
    url: str
    shape: str  # alike for pages of the same kind
    good: bool  # on this site, and not in the margin
    rich: bool
    priced: bool


def best_group(page: Page) -> Group | None:
    """The group that the page is most likely there for; None when nothing repeats."""
    found = groups(page)
    return found[0] if found else None


def groups(page: Page) -> list[Group]:
    """The groups of links of a page, the weightiest first; each set of addresses once, under its shortest selector."""
    proposed: dict[str, list[_Link]] = {}
    for element in page.css("a[href]")[:_MOST_LINKS]:
        if isinstance(element.root, Element):
            link = _look_at(page, element.root)
            for selector in dict.fromkeys(_selectors(element.root)):
                proposed.setdefault(selector, []).append(link)
    by_urls: dict[tuple[str, ...], Group] = {}
    for selector, links in proposed.items():
        group = _weighed(selector, links)
        if group is None:
            continue
        known = by_urls.get(group.urls)
        if known is None or (-group.weight, len(selector)) < (-known.weight, len(known.selector)):
            by_urls[group.urls] = group
    return sorted(by_urls.values(), key=lambda group: -group.weight)


def headline_has_price(page: Page, group: Group) -> bool:
    """Does a price stand beside the headline, before the list begins?"""
    headline = page.css("h1")
    element = headline[0].root if headline else None
    if not isinstance(element, Element):
        return False
    links = set(group.urls)
    for block in ancestors(element, 5):
        hrefs = [link.attr("href") or "" for link in block.select("a[href]")[:200]]
        if sum(1 for url in _joined(page, hrefs) if url in links) >= _FEWEST:
            return False
        if _PRICE.search(block.text[: _BLOCK_TEXT * 10]):
            return True
    return False


def _joined(page: Page, hrefs: list[str]) -> Iterator[str]:
    for href in hrefs:
        try:
            yield page.urljoin(href).partition("#")[0]
        except InvalidUrl:
            continue


def _weighed(selector: str, links: list[_Link]) -> Group | None:
    good = [link for link in links if link.good]
    urls = tuple(dict.fromkeys(link.url for link in good))
    if len(urls) < _FEWEST:
        return None
    alike = Counter(link.shape for link in good).most_common(1)[0][1] / len(good)
    pure = len(good) / len(links)
    if alike < 0.6 or pure < 0.8:
        return None
    rich = sum(link.rich for link in good) / len(good)
    priced = sum(link.priced for link in good) / len(good)
    weight = min(len(urls), 100) ** 0.5 * alike**2 * pure**2 * (0.5 + rich + 2 * priced)
    return Group(selector=selector, urls=urls, weight=weight, priced=priced)


def _look_at(page: Page, element: Element) -> _Link:
    try:
        url = page.urljoin(element.attr("href") or "").partition("#")[0]
    except InvalidUrl:
        return _Link("", "", False, False, False)
    around = list(ancestors(element, 12))
    own_site = site_of(url) == site_of(page.url) and url != page.url.partition("#")[0]
    good = own_site and not any(_is_margin(one, around) for one in (element, *around))
    text = " ".join(element.text.split())
    headed = any(one.tag in _HEADINGS for one in around[:2]) or element.select_one("h1, h2, h3, h4, h5, h6") is not None
    rich = headed or len(text) >= 20 or element.select_one("img, svg, picture") is not None
    return _Link(url, _shape(url), good, rich, good and _names_a_price(element, around))


def _is_margin(element: Element, around: list[Element]) -> bool:
    if element.tag in _MARGIN_TAGS:
        return True
    if element.tag == "header":
        return not any(one.tag in ("article", "li", "main", "section") for one in around)
    words = f"{element.attr('class') or ''} {element.attr('id') or ''}"
    return bool(_MARGINS.search(words[:200])) and element.tag not in ("article", "li", "main")


def _names_a_price(element: Element, around: list[Element]) -> bool:
    for block in (element, *around[:3]):
        text = block.text if len(block.children) <= 40 else ""
        if len(text) > _BLOCK_TEXT * 4:
            return False
        if _PRICE.search(text):
            return True
    return False


def _shape(url: str) -> str:
    parts = urlsplit(url)
    steps = [step for step in parts.path.split("/") if step]
    first = steps[0] if len(steps) > 1 else ""
    ending = re.sub(r".*(\.\w{2,5})$", r"\1", steps[-1]) if steps and "." in steps[-1] else ""
    return f"{parts.netloc}|{len(steps)}|{first}|{ending}|{'?' if parts.query else ''}"


def _selectors(element: Element) -> Iterator[str]:
    for name in stable_classes(element):
        yield f"a.{name}"
    heading = next((one.tag for one in ancestors(element, 2) if one.tag in _HEADINGS), "")
    if heading:
        yield f"{heading} a"
    for ancestor in ancestors(element, _LEVELS):
        for name in stable_classes(ancestor):
            yield f".{name} a"
            if heading:
                yield f".{name} {heading} a"
        if ancestor.tag in ("article", "main"):
            yield f"{ancestor.tag} a"
            if heading:
                yield f"{ancestor.tag} {heading} a"


_NEXT = (
    'a[rel~="next"]',
    "li.next a",
    "a.next",
    ".next a",
    "a.next-page",
    '.pagination a[aria-label*="next" i]',
    'a[aria-label*="next" i]',
    'a[title*="next" i]',
)
_NEXT_WORDS = (
    "Next",
    "next",
    "Weiter",
    "Nächste",
    "Suivant",
    "Siguiente",
    "Avanti",
    "Volgende",
    "Следующая",
    "次",
    "下一页",
    "›",
    "»",
)


def next_selector(page: Page) -> str | None:
    """The selector of the link to the next page, where there is one that can be told from all others."""
    worded = [f'a:contains("{word}")' for word in _NEXT_WORDS]
    for selector in (*_NEXT, *worded):
        links = page.css(selector)
        if not 1 <= len(links) <= 3:
            continue
        targets = set()
        for link in links:
            try:
                targets.add(page.urljoin(link.attrib.get("href", "")).partition("#")[0])
            except InvalidUrl:
                continue
        if len(targets) == 1:
            (target,) = targets
            if target != page.url.partition("#")[0] and site_of(target) == site_of(page.url):
                return selector
    return None


def page_parameter(page: Page) -> str | None:
    """The parameter that counts the pages of a list: several links to the same path that differ in its number alone."""
    here = urlsplit(page.url)
    counted: Counter[str] = Counter()
    for url in page.links()[:_MOST_LINKS]:
        parts = urlsplit(url)
        if parts.path == here.path and parts.netloc == here.netloc:
            for match in re.finditer(
                r"(?:^|&)(page|p|pg|paged|seite|pagina|start|offset)=(\d{1,6})(?=&|$)", parts.query
            ):
                counted[match[1]] += 1
    name, count = counted.most_common(1)[0] if counted else ("", 0)
    return name if count >= 2 and name not in ("start", "offset") else None
