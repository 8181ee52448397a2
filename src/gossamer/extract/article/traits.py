"""What can be told of every paragraph of a page: its shape, its neighbours, and the names of the elements around it.

A trait is a number; NAMES says what each one means. likelihood.py weighs them. Names of elements (class, id, role,
itemprop) are split into words as in outline.py, and the words are put into groups: no name of any one site is known
here.

Costs grow with the number of elements and paragraphs alone. Nothing here raises.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from .outline import LONGEST_NAMES, NAME_WORD, Outline, Paragraph, is_hidden

# Words that say in which part of a page an element stands.
_GROUPS = {
    "menu": """
        nav navbar navi navigation menu menus submenu megamenu breadcrumb breadcrumbs hamburger dropdown skip
        sitemap toc
    """,
    "footer": "footer prefooter copyright legal disclaimer colophon bottom",
    "header": "header masthead topbar banner hero toolbar",
    "side": "sidebar sidebars aside rail widget widgets secondary complementary right left",
    "share": "share sharebar sharing social socials follow addthis addtoany sharethis sharedaddy facebook twitter",
    "related": """
        related recommend recommendation recommendations recommended popular trending mostread similar suggested
        suggestions more upsell crosssell recirc recirculation teaser teasers recent latest also readmore readnext
        viewed bought next prev previous upnext
    """,
    "advert": """
        ad ads adslot adunit advert adverts advertisement advertising promo promos promotion promotional promoted
        sponsor sponsored taboola outbrain affiliate
    """,
    "popup": """
        cookie cookies consent gdpr modal popup popover overlay dialog tooltip drawer lightbox notice alert
        toast announcement
    """,
    "form": """
        form newsletter newsletters subscribe subscription signup signin login register optin input search filter
        filters facet facets sort sorting refine cta btn button buttons cart basket wishlist quantity qty checkout
    """,
    "reply": "comment comments commenting commentlist discussion disqus replies reply respond",
    "review": "review reviews rating ratings testimonial testimonials stars",
    "message": "message messages msg post posts thread topic answer answers question bbcode cooked quote quotes forum",
    "user": "user users member profile avatar signature sig poster username usercard reputation badge badges",
    "label": """
        author authors bio byline bylines caption captions credit credits date dateline datetime meta metadata
        published timestamp time updated vcard
    """,
    "card": """
        card cards tile tiles grid item items list listing collection results result catalog catalogue row col
        column
    """,
    "offer": """
        product products sku price prices variant variants option options swatch size stock shipping delivery
        returns
    """,
    "detail": """
        description desc details detail spec specs specification specifications features feature ingredients overview
        summary about intro rte richtext
    """,
    "fold": "faq faqs accordion tab tabs panel collapse collapsible toggle expandable",
    "text": "article articles blog body content contents entry main page paragraph story text prose markdown copy",
    "tag": "tag tags category categories label labels hashtag topics pill chip",
    "pager": "pagination pager paginator pages loadmore",
    "hidden": "hidden hide invisible offscreen sronly noprint visuallyhidden sr visually none",
    "slider": "carousel slider slideshow slick swiper slide gallery",
    "section": "section sections block module component container wrapper",
}  # fmt: skip
GROUP_BITS = {group: 1 << bit for bit, group in enumerate(_GROUPS)}
_WORDS: dict[str, int] = {}
for _bit, _words in enumerate(_GROUPS.values()):
    for _word in _words.split():
        _WORDS[_word] = _WORDS.get(_word, 0) | 1 << _bit
_TAGS = (
    "nav", "header", "footer", "aside", "form", "main", "article", "section", "table", "ul", "ol", "dl", "figure",
    "blockquote", "pre", "details", "a",
)  # fmt: skip
_TAG_BITS = {tag: 1 << bit for bit, tag in enumerate(_TAGS)}
_HIDDEN_BIT = 1 << len(_TAGS)
_ROLES = {
    "navigation": "nav", "banner": "header", "contentinfo": "footer", "complementary": "aside", "main": "main",
    "article": "article", "form": "form",
}  # fmt: skip
_BLOCKS = (
    "p",
    "li",
    "h1",
    "h2",
    "h3",
    "h4",
    "td",
    "th",
    "dd",
    "dt",
    "div",
    "pre",
    "a",
    "span",
    "blockquote",
    "section",
)

# Limits between the traits of a number: a number has every trait whose limit it reaches.
_STEPS: dict[str, tuple[float, ...]] = {
    "letters": (10, 25, 50, 80, 120, 200, 400),
    "linked": (0.01, 0.3, 0.6, 0.95),
    "commas": (1, 3, 6),
    "digits": (0.1, 0.3, 0.6),
    "copies": (2, 3, 5),
    "letters before": (10, 25, 80, 200),
    "linked before": (0.0, 0.3, 0.95),
    "letters after": (10, 25, 80, 200),
    "linked after": (0.0, 0.3, 0.95),
    "links near": (0.1, 0.25, 0.5, 0.8),
    "prose near": (0.1, 0.3, 0.5, 0.7, 0.9),
    "links of parent": (0.1, 0.3, 0.6, 0.9),
    "links of grandparent": (0.1, 0.3, 0.6, 0.9),
    "links of third": (0.1, 0.3, 0.6, 0.9),
    "links of fourth": (0.1, 0.3, 0.6, 0.9),
    "share of parent": (0.01, 0.05, 0.2, 0.5),
    "share of grandparent": (0.01, 0.05, 0.2, 0.5),
    "share of third": (0.01, 0.05, 0.2, 0.5, 0.8),
    "share of fourth": (0.01, 0.05, 0.2, 0.5, 0.8),
    "place": (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95),
    "after heading": (-99.0, 0.0, 1.0, 5.0, 20.0, 60.0),
    "depth": (6, 9, 12, 15, 20),
    "repeats": (2, 3, 6, 12, 25),
    "letters of repeated": (30, 100, 300, 1000),
    "links of repeated": (0.0, 0.3, 0.6, 0.9),
    "page links": (0.15, 0.3, 0.45, 0.6),
    "page prose": (0.2, 0.35, 0.5, 0.65, 0.8),
    "page letters": (1500, 4000, 8000, 16000),
    "main share": (0.01, 0.5, 0.9),
    "winner share": (0.1, 0.3, 0.5, 0.7, 0.9),
}
_ENDS = tuple('.!?…。！？"”’»)')
_OFFERS = re.compile(
    r"©|copyright|all rights reserved|cookie|privacy policy|terms of|sign up|subscribe|log ?in|sign in|add to cart"
    r"|newsletter|read more|learn more|show more|view all|see all|load more",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"\b(?:19|20)\d\d\b|\b\d{1,2}[/.]\d{1,2}[/.]\d{2,4}|\bago\b"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,9}\.? \d",
    re.IGNORECASE,
)
PRICE = re.compile(r"[$€£¥₹]\s?\d|\d\s?(?:€|kr|zł|USD|EUR)")
_LOOK = 120  # characters of a paragraph in which these are searched
_LEVELS = 12  # elements around a paragraph among which the one that repeats most is searched


def _names() -> tuple[str, ...]:
    names = [f"{name} >= {limit:g}" for name, limits in _STEPS.items() for limit in limits]
    names += [f"in <{tag}>" for tag in (*_TAGS, "hidden")]
    names += [f"near {group}" for group in _GROUPS] + [f"below {group}" for group in _GROUPS]
    names += [f"<{tag}>" for tag in _BLOCKS]
    return (*names, "ends a sentence", "capitals", "offers", "dated", "priced", "in winner", "in margin")


NAMES = _names()
_AT = {name: number for number, name in enumerate(NAMES)}
_FIRST = {name: _AT[f"{name} >= {limits[0]:g}"] for name, limits in _STEPS.items()}
_RANGES = {
    name: [tuple(range(_FIRST[name], _FIRST[name] + n)) for n in range(len(s) + 1)] for name, s in _STEPS.items()
}
_IN, _NEAR, _BELOW = _AT["in <nav>"], _AT["near menu"], _AT["below menu"]
_BLOCK_TRAITS = {tag: _AT[f"<{tag}>"] for tag in _BLOCKS}


def _steps(name: str, value: float) -> tuple[int, ...]:
    return _RANGES[name][bisect_right(_STEPS[name], value)]


def limits_reached(steps: dict[str, tuple[float, ...]], name: str, value: float) -> list[str]:
    """The names of the traits that a number has."""
    return [f"{name} >= {limit:g}" for limit in steps[name] if value >= limit]


@lru_cache(maxsize=16_384)
def groups_of(names: str) -> int:
    groups = 0
    for word in NAME_WORD.findall(names):
        groups |= _WORDS.get(word.lower(), 0)
    return groups


@lru_cache(maxsize=16_384)
def _place_traits(tags: int, near: int, below: int) -> tuple[int, ...]:
    found = [_IN + bit for bit in range(len(_TAGS) + 1) if tags >> bit & 1]
    found += [_NEAR + bit for bit in range(len(_GROUPS)) if near >> bit & 1]
    found += [_BELOW + bit for bit in range(len(_GROUPS)) if below >> bit & 1]
    return tuple(found)


class Places:
    """For every element the tags and groups of names around it, its depth, and how often its like stands beside it."""

    def __init__(self, outline: Outline) -> None:
        count = len(outline.elements)
        self.tags, self.near, self.below = [0] * count, [0] * count, [0] * count
        self.depths, self.repeats = [0] * count, [1] * count
        own = [0] * count
        like: list[tuple[int, str, str]] = []
        times: dict[tuple[int, str, str], int] = {}
        parents = outline.parents
        for number, element in enumerate(outline.elements):
            tag, parent = outline.tags[number], parents[number]
            tags, css = _TAG_BITS.get(tag, 0), ""
            if element.attrs:
                role = element.attr("role") or ""
                css = element.attr("class") or ""
                names = " ".join((css, element.attr("id") or "", role, element.attr("itemprop") or ""))
                if tag not in ("html", "body"):
                    own[number] = groups_of(names[:LONGEST_NAMES])
                tags |= _TAG_BITS.get(_ROLES.get(role, ""), 0)
                if is_hidden(element):
                    tags |= _HIDDEN_BIT
            key = (parent, tag, css[:60].partition(" ")[0])
            like.append(key)
            times[key] = times.get(key, 0) + 1
            self.tags[number], self.near[number], self.below[number] = tags, own[number], own[number]
            if parent >= 0:
                self.tags[number] |= self.tags[parent]
                self.below[number] |= self.below[parent]
                self.depths[number] = self.depths[parent] + 1
                self.near[number] |= own[parent] | (own[parents[parent]] if parents[parent] >= 0 else 0)
        self.repeats = [times[key] for key in like]


class Sums:
    """Letters, linked letters and prose of every element with all that is in it."""

    def __init__(self, outline: Outline, lines: list[Paragraph]) -> None:
        count = len(outline.elements)
        self.letters, self.linked, self.prose = [0] * count, [0] * count, [0.0] * count
        for one in lines:
            self.letters[one.block] += one.letters
            self.linked[one.block] += one.linked
            self.prose[one.block] += one.weight
        for element in range(count - 1, 0, -1):
            parent = outline.parents[element]
            self.letters[parent] += self.letters[element]
            self.linked[parent] += self.linked[element]
            self.prose[parent] += self.prose[element]

    def link_share(self, element: int) -> float:
        return self.linked[element] / self.letters[element] if self.letters[element] else 0.0


class Survey:
    """A page seen as a whole: `lines` are its paragraphs, `winner` is the element that holds most of the prose, and
    `margins` marks the elements that look like a margin.
    """

    def __init__(self, outline: Outline, winner: int | None, margins: bytes) -> None:
        self.outline = outline
        self.winner = winner
        self.margins = margins
        self.lines = [one for one in outline.paragraphs if not outline.struck[one.block]]
        self.places, self.sums = Places(outline), Sums(outline, self.lines)
        self.letters = max(self.sums.letters[0], 1)
        prose = max(self.sums.prose[0], 1.0)
        self.winner_share = self.sums.prose[winner] / prose if winner is not None else 0.0
        bit, tags, parents = _TAG_BITS["main"], self.places.tags, outline.parents
        outermost = [n for n, bits in enumerate(tags) if bits & bit and (parents[n] < 0 or not tags[parents[n]] & bit)]
        self.main_share = sum(self.sums.prose[element] for element in outermost) / prose
        self.link_share = self.sums.linked[0] / self.letters
        self.prose_share = self.sums.prose[0] / self.letters

    def common_traits(self) -> list[int]:
        """The traits that all paragraphs of the page have."""
        return [
            *_steps("page links", self.link_share),
            *_steps("page prose", self.prose_share),
            *_steps("page letters", self.letters),
            *_steps("main share", self.main_share),
            *_steps("winner share", self.winner_share),
        ]


def traits_of(survey: Survey) -> Iterator[list[int]]:
    """The traits of every paragraph, without those that all have in common."""
    outline, lines, winner, margins = survey.outline, survey.lines, survey.winner, survey.margins
    whole = survey.letters
    nothing = bytes(len(outline.elements))
    texts = [one.text(nothing) for one in lines]
    copies = Counter(texts)
    heading = next((at for at, one in enumerate(lines) if outline.tags[one.block] == "h1"), None)
    # Sums from the start, so that those of any neighbourhood are a difference.
    letters, linked, weights = [0], [0], [0.0]
    for one in lines:
        letters.append(letters[-1] + one.letters)
        linked.append(linked[-1] + one.linked)
        weights.append(weights[-1] + one.weight)
    around: dict[int, list[int]] = {}
    for at, (one, text) in enumerate(zip(lines, texts, strict=True)):
        block = one.block
        start, end = max(0, at - 6), min(len(lines), at + 7)
        near = max(letters[end] - letters[start], 1)
        traits = [
            *_steps("letters", one.letters),
            *_steps("linked", one.link_share),
            *_steps("commas", one.commas),
            *_steps("digits", sum(map(str.isdigit, text[:60])) / max(1, min(60, len(text)))),
            *_steps("copies", copies[text]),
            *_steps("links near", (linked[end] - linked[start]) / near),
            *_steps("prose near", (weights[end] - weights[start]) / near),
            *_steps("place", letters[at] / whole),
            *_steps("after heading", at - heading if heading is not None else -1000.0),
        ]
        if at:
            traits += _steps("letters before", lines[at - 1].letters)
            traits += _steps("linked before", lines[at - 1].link_share)
        if at + 1 < len(lines):
            traits += _steps("letters after", lines[at + 1].letters)
            traits += _steps("linked after", lines[at + 1].link_share)
        if block not in around:
            around[block] = _around(survey, block)
        traits += around[block]
        if text.endswith(_ENDS):
            traits.append(_AT["ends a sentence"])
        if text.isupper():
            traits.append(_AT["capitals"])
        start_of = text[:_LOOK]
        if _OFFERS.search(start_of):
            traits.append(_AT["offers"])
        if _DATE.search(start_of):
            traits.append(_AT["dated"])
        if PRICE.search(start_of):
            traits.append(_AT["priced"])
        if winner is not None and outline.within(block, winner):
            traits.append(_AT["in winner"])
        if margins[block]:
            traits.append(_AT["in margin"])
        yield traits


def _around(survey: Survey, block: int) -> list[int]:
    """The traits that all paragraphs of a block have in common."""
    outline, places, sums, whole = survey.outline, survey.places, survey.sums, survey.letters
    parents = outline.parents
    traits = [*_place_traits(places.tags[block], places.near[block], places.below[block])]
    traits += _steps("depth", places.depths[block])
    tag = outline.tags[block]
    if tag in _BLOCK_TRAITS:
        traits.append(_BLOCK_TRAITS[tag])
    at = block
    for name in ("parent", "grandparent", "third", "fourth"):
        at = max(parents[at], 0)
        traits += _steps(f"links of {name}", sums.link_share(at))
        traits += _steps(f"share of {name}", sums.letters[at] / whole)
    at, most, repeated = block, 1, None
    for _ in range(_LEVELS):
        if at <= 0:
            break
        if places.repeats[at] > most and outline.tags[at] not in ("td", "tr"):
            most, repeated = places.repeats[at], at
        at = parents[at]
    if repeated is not None:
        traits += _steps("repeats", most)
        traits += _steps("letters of repeated", sums.letters[repeated])
        traits += _steps("links of repeated", sums.link_share(repeated))
    return traits
