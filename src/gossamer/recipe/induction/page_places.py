"""The places of pages of one kind, and what stands there: for every source that leads to one text of a page, its texts
on all of the pages. Texts of most pages, menus, forms, lists of links and comments are left out."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from urllib.parse import urlsplit

import msgspec
from turbohtml import Document, Element

from ...model.money import first_price
from ..labels import LONGEST, label_text, split_label
from .candidates import SourceTable, tables_of
from .goal import Goal, Sample, plain
from .locators import Located
from .spots import MOST_ELEMENTS, STRUCK, Spot, root_of, spots_of

_MOST_SPOTS = 500  # of a page that differ from those of the others
_MOST_PLACES = 5  # of one spot
_LONGEST = 3_000  # characters of a value
_LEAST_WEIGHT = 0.3
_MOST_LINKS = 500
_DEEPEST = 12
_FEWEST_ALIKE = 3  # blocks beside each other that are a list of other things
_AROUND_CENTS = 4  # elements around a split price whose text runs it together
_MOST_LEAVES = 30  # elements of such a block
_AROUND = frozenset(("aside", "button", "footer", "form", "label", "nav", "option", "select", "textarea"))
_TAKEN = ("", "::text", "label", "::attr(src)", "::attr(data-src)", "::attr(content)", "::attr(datetime)",
          "::attr(data-image)", "::attr(data-bg)", "::attr(class)")  # fmt: skip
_PICTURES = re.compile(r"(?i)\S+\.(?:jpe?g|png|webp|avif|gif)(?:\?\S*)?")


class Place(msgspec.Struct):
    texts: dict[int, str]  # by page
    at: int  # in the order of the first page that has it
    weight: float
    paths: set[tuple[int, str]]  # of its elements, by page; "" for data
    around: set[tuple[int, str]]  # of the elements around these
    is_one: bool = True  # not several texts on one page


def places_of(samples: Sequence[Sample]) -> dict[str, Place]:
    """What stands where, by page, for the spots whose text is not on most of the pages."""
    spots = [_held(spots_of(sample)) for sample in samples]
    common = Counter(text for some in spots for text in {one.text for one in some})
    most = max(2, round(0.9 * len(samples)))
    everywhere = {text for text, count in common.items() if count >= most}
    places: dict[str, Place] = {}
    for number, (sample, some) in enumerate(zip(samples, spots, strict=True)):
        root = root_of(sample)
        located = Located(root) if root is not None else None
        left_out = _LeftOut(root, everywhere)
        seen: dict[str, str] = {}
        fresh = (one for one in some if one.text not in everywhere and not left_out.holds(one.element))
        for at, spot in enumerate(list(fresh)[:_MOST_SPOTS]):
            path = spot.element.css_path() if spot.element is not None else ""
            around = {(number, one.css_path()) for one in _around(spot.element)} if spot.element is not None else set()
            for table, weight in _tables(spot, located):
                key = msgspec.json.encode(table, order="sorted").decode()
                text = _behind(spot.text, table["label"]) if "label" in table else spot.text
                place = places.setdefault(key, Place({}, at, weight, set(), set()))
                place.is_one = place.is_one and seen.setdefault(key, text) == text
                place.texts.setdefault(number, text)
                place.paths.add((number, path))
                place.around |= around
                place.weight = max(place.weight, weight)
    return {key: place for key, place in places.items() if place.is_one}


def _around(element: Element) -> Iterator[Element]:
    here = element.parent
    for _ in range(_DEEPEST):
        if not isinstance(here, Element):
            return
        yield here
        here = here.parent


def _behind(text: str, label: str) -> str:
    """The text without its label: "SKU: LIT-001" is LIT-001."""
    head, _, rest = split_label(text)
    return rest if head and label_text(head) == label_text(label) else text


def _held(spots: Sequence[Spot]) -> list[Spot]:
    """Those that may hold a value; of a split price the whole alone, with the currency that stands beside it."""
    split: set[str] = set()
    for spot in spots:
        if spot.cents is not None and spot.element is not None:
            parts = (spot.cents, spot.element, *list(_around(spot.cents))[:_AROUND_CENTS])
            split.update(one.css_path() for one in parts if len(one.text) <= 2 * LONGEST)
    held = []
    for spot in spots:
        if not _may_hold(spot):
            continue
        if spot.cents is not None and isinstance(spot.cents.parent, Element):
            price = first_price(spot.text) and first_price(spot.cents.parent.text[: 2 * LONGEST])
            held.append(msgspec.structs.replace(spot, text=f"{spot.text} {price[1] if price else ''}".strip()))
        elif spot.element is None:
            held.append(spot)
        elif spot.element.css_path() not in split and spot.element.closest(STRUCK) is None:
            held.append(_unstruck(spot, spot.element))
    return held


def _unstruck(spot: Spot, element: Element) -> Spot:
    """Of a price before a sale and the one after it, the one that holds."""
    if spot.take or len(spot.text) > 2 * LONGEST or not (struck := element.select(STRUCK)[:3]):
        return spot
    text = spot.text
    for one in struck:
        text = text.replace(plain(one.text), " ", 1)
    return msgspec.structs.replace(spot, text=plain(text) or spot.text)


def _may_hold(spot: Spot) -> bool:
    if not 0 < len(spot.text) <= _LONGEST:
        return False
    if spot.take not in _TAKEN:
        return spot.take == "::attr(href)" and _PICTURES.fullmatch(spot.text) is not None
    if spot.take == "::attr(class)" and (spot.element is None or spot.element.text.strip() or len(spot.text) > 60):
        return False  # an icon says something by its class
    return spot.element is None or spot.element.tag != "title"


def _tables(spot: Spot, located: Located | None) -> Iterator[tuple[SourceTable, float]]:
    """The most stable sources that lead to a spot, and one by position."""
    ranked = sorted(tables_of(spot, (), located, _ANY), key=lambda one: -one[1])
    yield from ranked[:1]
    yield from (one for one in ranked[1:_MOST_PLACES] if one[1] >= _LEAST_WEIGHT)
    yield from [one for one in ranked[_MOST_PLACES:] if "-of-type" in str(one[0].get("css"))][:1]


_ANY = Goal(name="any")


def address_shape(url: str) -> tuple[str, int, str]:
    """Equal for pages that are probably of one kind: host, depth and first step of the path."""
    parts = urlsplit(url)
    steps = [step for step in parts.path.split("/") if step]
    return parts.netloc, len(steps), steps[0] if len(steps) > 1 else ""


class _LeftOut:
    """The parts of a page that are not about its own thing: menus, forms, lists of links to other things, and blocks
    that repeat without a label, such as comments. What is around them is no value either."""

    def __init__(self, root: Document | Element | None, everywhere: Set[str]) -> None:
        self._inner: set[str] = set()
        self._outer: set[str] = set()
        blocks: dict[tuple[str, str], list[Element]] = defaultdict(list)
        for link in root.select("a[href]")[:_MOST_LINKS] if root is not None else ():
            block = _block_of(link)
            if isinstance(block.parent, Element):
                blocks[(block.parent.css_path(), block.tag)].append(block)
        lists = list(blocks.values())
        for parent in root.select("*")[:MOST_ELEMENTS] if root is not None else ():
            alike: dict[tuple[str, str], list[Element]] = defaultdict(list)
            for child in parent.children:
                if isinstance(child, Element):
                    alike[(child.tag, child.attr("class") or "")].append(child)
            lists += [some for some in alike.values() if len(some) >= _FEWEST_ALIKE and _unlabelled(some, everywhere)]
        for some in lists:
            paths = {one.css_path() for one in some}
            if len(paths) >= _FEWEST_ALIKE:
                self._inner |= paths
                self._outer.update(one.css_path() for one in _around(some[0]))

    def holds(self, element: Element | None) -> bool:
        if element is None:
            return False
        if element.css_path() in self._outer:
            return True
        return any(one.tag in _AROUND or one.css_path() in self._inner for one in (element, *_around(element)))


def _unlabelled(blocks: Sequence[Element], everywhere: Set[str]) -> bool:
    """Do blocks with several texts each have none that stands on every page?"""
    for block in blocks[:_FEWEST_ALIKE]:
        leaves = [one for one in block.select("*")[:_MOST_LEAVES] if one.select_one("*") is None]
        texts = {text for one in leaves if any(map(str.isalpha, text := plain(one.text)))}
        if len(texts) < 2 or texts & everywhere:
            return False
    return True


def _block_of(link: Element) -> Element:
    """The block around a link: as far up as there is no other link in it."""
    here = link
    for _ in range(5):
        parent = here.parent
        if not isinstance(parent, Element) or parent.tag in ("main", "body", "article"):
            break
        if len({one.attr("href") for one in parent.select("a[href]")[:3]}) > 1 or parent.select_one("h1") is not None:
            break
        here = parent
    return here
