"""The outline of a page: its texts in order, each with its label and a name that a field of it could have.

What it does: shows a person what can be chosen on a page, without the markup of its site. How it fails: a page that is
no HTML has no rows. Rows and their texts are limited.
"""

from __future__ import annotations

import msgspec

from ...parse.page import Page
from ..labels import label_words
from ..sources import PagePart, PageView
from .goal import Sample, plain
from .locators import Located, labels_of
from .page_fields import name_of
from .spots import Spot, root_of, spots_of

MOST_ROWS = 400
LONGEST = 300  # characters of a text that is a value for itself; longer ones are cut in the outline
_TAKEN = ("", "::text", "label", "::attr(src)", "::attr(datetime)")


class OutlineRow(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is what a person would write as the example; `label` stands beside it; `data`: no visitor sees it."""

    text: str
    label: str
    name: str
    data: bool


class PageOutline(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of a page that can be chosen; `more`: there are others than these rows."""

    title: str
    rows: list[OutlineRow]
    more: bool


def outline_of(page: Page) -> PageOutline:
    """The texts of the page in its order, those of menus and forms last."""
    sample = Sample(part=PagePart(PageView(page)))
    root = root_of(sample)
    located = Located(root) if root is not None else None
    rows: list[OutlineRow] = []
    seen: set[tuple[str, str]] = set()
    more = False
    spots = [spot for spot in spots_of(sample) if _is_shown(spot)]
    spots.sort(key=lambda spot: spot.element is not None and spot.element.closest("nav, footer, form") is not None)
    for spot in spots:  # menus and forms come last
        text = plain(spot.text)[:LONGEST]
        labels = labels_of(spot.element, root) if spot.element is not None and root is not None else []
        label = next((one for one in (spot.before, *labels) if one and one != text), "")
        if (text, label) in seen or (spot.element is None and any(text == one.text for one in rows)):
            continue  # structured data mostly says what stands on the page too
        if len(rows) >= MOST_ROWS:
            more = True
            break
        seen.add((text, label))
        rows.append(
            OutlineRow(text=text, label=label_words(label)[:80], name=name_of(spot, located), data=spot.element is None)
        )
    return PageOutline(title=(page.title or "")[:LONGEST], rows=rows, more=more)


def _is_shown(spot: Spot) -> bool:
    if spot.take not in _TAKEN or not spot.text.strip() or spot.cents is not None:
        return False
    if spot.element is None:
        return "structured" in dict(spot.base) and len(spot.text) <= LONGEST
    if spot.take == "" and any(one.text.strip() for one in spot.element.select("*")[:40]):
        return False  # its parts are shown
    return spot.element.tag not in ("title", "meta", "link")
