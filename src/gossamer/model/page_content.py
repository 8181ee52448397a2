"""`PageContent`: which part of a page is wanted when its content is requested as text, HTML or Markdown."""

from __future__ import annotations

import re

import msgspec

MOST_SELECTORS = 50
# One element, or one inside another: selectors come from strangers, and must not cost more than one check per element.
_ONE = r"(?:[A-Za-z][\w-]*|\*)?(?:[.#][A-Za-z_][\w-]*|\[[\w-]+(?:[~|^$*]?=\"?[\w\s./:-]*\"?)?\])*"
# Possessive: a run of blanks can be read in one way only, or refusing the selector would take cubic time.
_SELECTOR = re.compile(rf"(?=\S){_ONE}(?:(?:\s*+>\s*+|\s++)(?=\S){_ONE}){{0,3}}")
_LONGEST = 200


class ContentParts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Parts of the main content about which people disagree: True takes each of them as a whole, False leaves it out,
    None decides as the kind of the page suggests."""

    cards: bool | None = None  # entries of lists: other products, related articles
    faq: bool | None = None  # questions with their answers
    comments: bool | None = None  # what readers wrote, and the replies of a thread
    reviews: bool | None = None  # what buyers wrote

    def parts(self) -> dict[str, bool | None]:
        """The arguments of `page.main_text()` and `page.markdown()`."""
        return {"cards": self.cards, "faq": self.faq, "comments": self.comments, "reviews": self.reviews}

    @property
    def chooses(self) -> bool:
        """Is any of them decided?"""
        return any(one is not None for one in self.parts().values())


class PageContent(ContentParts, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`only_main` leaves out menus, margins and footers. With `include`, only these elements; `exclude` is applied
    first."""

    only_main: bool = True
    include: tuple[str, ...] = ()  # CSS: tags, classes, ids and attributes
    exclude: tuple[str, ...] = ()

    def fault(self) -> str:
        """What is wrong with it; "" if nothing."""
        if self.chooses and (not self.only_main or self.include or self.exclude):
            return "cards, faq, comments and reviews are parts of the main content: use no selectors beside them."
        selectors = (*self.include, *self.exclude)
        if len(selectors) > MOST_SELECTORS:
            return f"At most {MOST_SELECTORS} selectors are allowed, not {len(selectors)}."
        for one in selectors:
            if len(one) > _LONGEST or not _SELECTOR.fullmatch(one):
                return (
                    f"{one[:80]!r} is not a selector of tags, classes, ids and attributes: use `nav`, `.menu`, `#top`."
                )
        return ""


WHOLE = PageContent()
