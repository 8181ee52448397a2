"""CSS selectors that will still fit tomorrow: of one element, of the links in a page's list, of the next-page link.

They are made of names that people gave (classes, ids, itemprop), never of positions or of names that a build tool made
up, and each was tried on the page. The work grows with the number of links alone, and that is bounded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec
from turbohtml import Element

from ...errors import InvalidUrl
from ...model.url import site_of
from ..page import Page

_MOST_LINKS, _FEWEST_LINKS = 3000, 3
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_MARGINS = re.compile(
    r"(?:^|[-_ ])(?:nav|menu|navbar|footer|foot|header|top|breadcrumbs?|crumbs|pager|pagination|pages|sidebar|cart"
    r"|login|share|social|lang|legal|cookie|consent|onetrust)(?:$|[-_ ])",
    re.IGNORECASE,
)
PRICE = re.compile(r"(?:[€£$¥₹₽]|\b(?:EUR|USD|GBP|CHF|PLN|SEK)\b)\s?\d|\d\s?(?:[€£$¥₹₽]|\b(?:EUR|USD|GBP|CHF|zł|kr)\b)")
_CARD_TEXT = 1600  # characters; a larger block is no card of a list
_NEXT = ('a[rel~="next"]', "li.next a", "a.next", ".next a", "a.next-page", 'a[aria-label*="next" i]')
_NEXT_WORDS = (
    "Next",
    "next",
    "Weiter",
    "Nächste",
    "Suivant",
    "Siguiente",
    "Volgende",
    "Следующая",
    "次",
    "下一页",
    "›",
)
_MORE = re.compile(
    r"\W*(?:(?:load|show|view|see|get)\s+)?(?:more|older|earlier)(?:\s+[\w-]+){0,2}\W*|»|→|>{1,2}|(?:mehr|ältere|plus|más|еще|ещё)\b.*",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"/?(?:page|p|seite|pagina)?[/-]?\d{1,6}/?$", re.IGNORECASE)
_COUNTED = re.compile(r"(?:^|&)(page|p|pg|paged|seite|pagina)=\d{1,6}(?=&|$)")
# Names that a build tool made up, and those that say how a thing looks and not what it is.
_MADE_UP = re.compile(
    r"\d|^(?:css|sc|jsx|emotion|chakra|svelte|astro|col|row|grid|flex|mt|mb|ml|mr|mx|my|pt|pb|px|py)-|__.*__.*__"
    r"|^(?:align|bg|border|d|float|font|fs|fw|gap|h|leading|lh|overflow|rounded|shadow|space|text|tracking|w|whitespace)-"
    r"|^(?:content|items|justify|object|self)-(?:between|center|contain|cover|end|start|stretch)$"
    r"|^(?:absolute|block|flex|gray|inline|lazy|lazyload|relative|rounded|shadow|truncate|uppercase)$"
    r"|^(?=[A-Z]*[a-z])(?![a-z]{2,}[A-Z]+$)(?=(?:[A-Za-z]*[A-Z]){3}|(?:[A-Za-z]*[a-z][A-Z]){2})[A-Za-z]{5,7}$"  # hKzTyP
)
NAME = re.compile(r"[A-Za-z][A-Za-z_-]{1,29}")
_STATES = frozenset({"active", "selected", "current", "first", "last", "odd", "even", "off", "on", "hidden", "visible"})


def selector_for(page: Page, element: Element) -> str | None:
    """A short selector whose only match is the element; else one whose first match it is; else None."""
    first_match = None
    for selector in _candidates(element):
        found = page.css(selector)
        root = found[0].root if found else None
        if not isinstance(root, Element) or (root is not element and root.css_path != element.css_path):
            continue
        if len(found) == 1:
            return selector
        first_match = first_match or selector
    return first_match


def stable_classes(element: Element) -> list[str]:
    """The classes that a person gave to the kind of thing, in order."""
    names = (element.attr("class") or "").split()
    return [name for name in names[:12] if NAME.fullmatch(name) and not _MADE_UP.search(name) and name not in _STATES]


def _candidates(element: Element) -> Iterator[str]:
    own = list(_own_names(element))
    yield from own
    for ancestor in _ancestors(element, 4):
        for outer in _own_names(ancestor):
            if outer != ancestor.tag:
                yield from (f"{outer} {name}" for name in own)


def _own_names(element: Element) -> Iterator[str]:
    prop, identity = element.attr("itemprop") or "", element.attr("id") or ""
    if NAME.fullmatch(prop):
        yield f'[itemprop="{prop}"]'
    if element.tag == "h1":
        yield "h1"
    if NAME.fullmatch(identity) and not _MADE_UP.search(identity):
        yield f"#{identity}"
    yield from (f".{name}" for name in stable_classes(element))
    if element.tag != "h1":
        yield element.tag


def _ancestors(element: Element, most: int) -> Iterator[Element]:
    """The elements around it, the nearest first, up to `most`; html and body are left out."""
    parent = element.parent
    for _ in range(most):
        if not isinstance(parent, Element) or parent.tag in ("html", "body"):
            return
        yield parent
        parent = parent.parent


class LinkGroup(msgspec.Struct, frozen=True):
    """Links of one kind: the selector that finds them, where they lead, and the share of them beside a price."""

    selector: str
    urls: tuple[str, ...]
    weight: float
    priced: float


class _Link(msgspec.Struct, frozen=True):
    url: str
    shape: str = ""  # alike for pages of the same kind
    good: bool = False  # on this site, and not in a menu or margin
    rich: bool = False  # a heading, a picture or a long text
    priced: bool = False


def best_group(page: Page) -> LinkGroup | None:
    """The links that the page is most likely there for; None when nothing repeats.

    Every link proposes selectors that would find it. Those that find many alike, and little else, are weighed.
    """
    proposed: dict[str, list[_Link]] = {}
    for found in page.css("a[href]")[:_MOST_LINKS]:
        if isinstance(found.root, Element):
            link = _link(page, found.root)
            for selector in dict.fromkeys(_link_selectors(found.root)):
                proposed.setdefault(selector, []).append(link)
    groups = [group for selector, links in proposed.items() if (group := _group(selector, links)) is not None]
    return min(groups, key=lambda group: (-group.weight, len(group.selector)), default=None)


def _group(selector: str, links: list[_Link]) -> LinkGroup | None:
    good = [link for link in links if link.good]
    urls = tuple(dict.fromkeys(link.url for link in good))
    if len(urls) < _FEWEST_LINKS:
        return None
    alike = Counter(link.shape for link in good).most_common(1)[0][1] / len(good)
    pure = len(good) / len(links)
    if alike < 0.6 or pure < 0.8:
        return None
    rich, priced = (sum(marks) / len(good) for marks in zip(*((link.rich, link.priced) for link in good), strict=True))
    weight = min(len(urls), 100) ** 0.5 * alike**2 * pure**2 * (0.5 + rich + 2 * priced)
    return LinkGroup(selector, urls, weight, priced)


def _link(page: Page, element: Element) -> _Link:
    url = _absolute(page, element.attr("href") or "")
    if url is None:
        return _Link("")
    parts = urlsplit(url)
    steps = [step for step in parts.path.split("/") if step]
    ending = re.search(r"\.\w{2,5}$", steps[-1]) if steps else None
    shape = f"{parts.netloc}|{len(steps)}|{steps[:-1][:1]}|{ending[0] if ending else ''}|{bool(parts.query)}"
    around = list(_ancestors(element, 12))
    good = site_of(url) == site_of(page.url) and url != page.url.partition("#")[0]
    good = good and not any(_is_margin(each, around) for each in (element, *around))
    headed = any(each.tag in _HEADINGS for each in around[:2])
    rich = headed or len(element.text.strip()) >= 20 or element.select_one("h1, h2, h3, h4, img, svg") is not None
    return _Link(url, shape, good, rich, good and _names_a_price((element, *around[:3])))


def in_margin(element: Element) -> bool:
    """True for an element in a menu, a footer or another margin of the page."""
    around = list(_ancestors(element, 12))
    return any(_is_margin(each, around) for each in (element, *around))


def _is_margin(element: Element, around: list[Element]) -> bool:
    if element.tag in ("nav", "footer", "aside"):
        return True
    if element.tag == "header":
        return not any(each.tag in ("article", "li", "main", "section") for each in around)
    words = f"{element.attr('class') or ''} {element.attr('id') or ''}"
    return element.tag not in ("article", "li", "main") and _MARGINS.search(words[:200]) is not None


def _names_a_price(blocks: tuple[Element, ...]) -> bool:
    for block in blocks:
        text = block.text if len(block.children) <= 40 else ""
        if len(text) > _CARD_TEXT:
            return False
        if PRICE.search(text):
            return True
    return False


def _link_selectors(element: Element) -> Iterator[str]:
    yield from (f"a.{name}" for name in stable_classes(element))
    heading = next((each.tag for each in _ancestors(element, 2) if each.tag in _HEADINGS), "")
    if heading:
        yield f"{heading} a"
    for ancestor in _ancestors(element, 7):
        outer = [f".{name}" for name in stable_classes(ancestor)]
        for name in [*outer, ancestor.tag] if ancestor.tag in ("article", "main") else outer:
            yield f"{name} a"
            if heading:
                yield f"{name} {heading} a"


def next_selector(page: Page) -> str | None:
    """The selector of the link to the next page, where one can be told from all others: by its name, by a word for
    "next", or by one for "more" that leads to another part of the same list."""
    here = page.url.partition("#")[0]
    for selector in (*_NEXT, *(f'a:contains("{word}")' for word in _NEXT_WORDS)):
        links = page.css(selector)
        targets = {_absolute(page, link.attrib.get("href", "")) for link in links[:4]} - {None}
        if 1 <= len(links) <= 3 and len(targets) == 1:
            target = targets.pop() or ""
            if target != here and site_of(target) == site_of(page.url):
                return selector
    for link in page.css("a[href]")[:_MOST_LINKS]:
        element, target = link.root, _absolute(page, link.attrib["href"]) or ""
        if isinstance(element, Element) and _MORE.fullmatch(link.text[:40]) and _is_part_of(here, target):
            return _more_selector(page, element, link.text)
    return None


def _more_selector(page: Page, element: Element, text: str) -> str | None:
    """By a class that says so, else by its words, else by what else tells it from all others."""
    named = [f"a.{name}" for name in stable_classes(element) if re.search("more|older|next|load", name, re.IGNORECASE)]
    worded = [f'a:contains("{text}")'] if re.fullmatch(r"[\w .-]{4,40}", text) else []
    return next((one for one in (*named, *worded) if len(page.css(one)) == 1), None) or selector_for(page, element)


def _is_part_of(here: str, target: str) -> bool:
    """True for another part of the list at `here`: the same path with another query, or with a number behind it."""
    this, that = urlsplit(here), urlsplit(target)
    if this.netloc != that.netloc or target == here:
        return False
    behind = that.path.removeprefix(_NUMBERED.sub("", this.path.rstrip("/")))
    return that.path == this.path or (behind != that.path and _NUMBERED.fullmatch(behind) is not None)


def page_parameter(page: Page) -> str | None:
    """The parameter that counts the pages of a list: several links to the same path that differ in its number alone."""
    here = urlsplit(page.url)
    parts = (urlsplit(url) for url in page.links()[:_MOST_LINKS])
    queries = (each.query for each in parts if (each.path, each.netloc) == (here.path, here.netloc))
    counted = Counter(name for query in queries for name in _COUNTED.findall(query))
    name, count = counted.most_common(1)[0] if counted else ("", 0)
    return name if count >= 2 else None


def _absolute(page: Page, href: str) -> str | None:
    try:
        return page.urljoin(href).partition("#")[0]
    except InvalidUrl:
        return None
