"""Cards, questions and answers, comments and reviews: which elements of a page they are, and how they are taken or left
out as a whole.

People disagree whether these belong to the main content. A part is found once for a subtree or for siblings of the same
make, never line by line: by its inside (its names, pictures, prices, links, questions) and by its place (the heading
above it; it holds neither the title of the page nor the text of an article). Of two parts one inside the other, the
earlier in ContentParts is asked first: a testimonial is a review, even if it looks like a card.

How it fails: a part that is not recognized stays as it was. Costs grow with the number of elements and
paragraphs alone.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ...model.page_content import ContentParts
from .kind import KindOfPage
from .outline import GONE, HEADINGS, LONGEST_NAMES, NAME_WORD, is_hidden
from .traits import GROUP_BITS, PRICE, Survey, groups_of

# Headings of what buyers wrote, and of other products and pages, in the languages of many shops.
REVIEWS_HEADING = re.compile(
    r"^\W*(?:\d+ )?(?:(?:customer|product|user|verified|global|top) )*(?:reviews?|ratings?|testimonials)\b"
    r"|write a review|what (?:people|customers|our customers|others) (?:are saying|say|think)|\bavis\b|bewertungen"
    r"|rezensionen|opiniones|reseñas|recensioni|beoordelingen|avaliações|opinie o|recenze|отзывы"
    r"|レビュー|评价|評價|리뷰",
    re.IGNORECASE,
)
CARDS_HEADING = re.compile(
    r"you (?:may|might|could) (?:also|like)|you.ll (?:also )?love|also (?:like|bought|viewed|love|purchased)"
    r"|related (?:products|items|articles|posts)|similar (?:items|products)|recommended|recommendations|customers who"
    r"|people also|frequently bought|bought together|more (?:from|like this|to consider|items|products)"
    r"|complete (?:the|your) (?:look|set)|pairs? (?:well )?with|recently viewed|shop (?:the|our|by|all)"
    r"|explore (?:more|our)|best ?sellers|featured products|trending|add-?ons|accessories$|sponsored"
    r"|produits (?:similaires|associés)|vous aimerez|ähnliche|kunden kauften|das könnte|productos relacionados"
    r"|prodotti correlati|gerelateerde|produtos relacionados|podobne produkty|с этим товаром|похожие|関連商品|相关商品",
    re.IGNORECASE,
)
_FAQ_HEADING = re.compile(
    r"\bfaqs?\b|frequently asked|common questions|questions (?:and|&) answers|^\W*q ?(?:&|and) ?a\b"
    r"|häufig(?:e| gestellte) fragen|fragen und antworten|questions fréquentes"
    r"|preguntas frecuentes|perguntas frequentes"
    r"|domande frequenti|veelgestelde vragen|częste pytania|часто задаваемые|よくある質問|常见问题",
    re.IGNORECASE,
)
_COMMENTS_HEADING = re.compile(
    r"^\W*(?:\d+ |reader |all )?(?:comments?|replies|responses|kommentare?|commentaires?|comentarios?|comentários?"
    r"|commenti|reacties|komentarze|комментарии)(?:\W*\d*\W*$| \()"
    r"|^\W*\d+ (?:thoughts on|responses to|replies to|comments on)\b|leave a (?:comment|reply)|コメント|评论",
    re.IGNORECASE,
)
_HEADINGS = {
    "reviews": REVIEWS_HEADING,
    "comments": _COMMENTS_HEADING,
    "faq": _FAQ_HEADING,
    "cards": CARDS_HEADING,
}
_PARTS = ("reviews", "comments", "faq", "cards")  # in the order in which they are asked; a number is a place in it
_WORDS = {
    **dict.fromkeys(("review", "reviews", "testimonial", "testimonials"), "reviews"),
    **dict.fromkeys(("comment", "comments", "commenting", "commentlist", "disqus", "replies", "respond"), "comments"),
    **dict.fromkeys(("faq", "faqs", "faqpage"), "faq"),
}
_NAMES = ("class", "id", "itemprop", "itemtype", "data-testid")
_ANSWERS = frozenset(("answer", "answers", "reply", "comment"))
_WHOLE = frozenset(("body", "html", "main"))
_ROWS = frozenset(("dd", "dt", "option", "td", "th", "tr"))
_LEAST = 25  # letters of a part; "3 comments" is a link to them
_LEAST_CARDS = 3
_MOST_OF = 0.6  # of the siblings; what holds for so many holds for all
_LONGEST_CARD = 400  # letters, in the mean; longer ones are sections, posts and articles
_PROSE = 200  # letters of a card without a link in its text, from which on it is prose
_FILLED = 0.8  # of the letters of the element around; then that is the part
_LEVELS = 3  # elements around a group of siblings that are tried
_LONGEST_HEADING = 80  # letters
_MOST_SECTIONS = 50
_SMALL = 0.3  # of the letters of the element around; a longer form is a frame of the part


def apply_parts(survey: Survey, kind: KindOfPage, top: int, given: bytes, wanted: ContentParts) -> int:
    """Take the wanted parts of the page as a whole, and strike out the unwanted ones. `top` is the element that holds
    the text, `given` marks what no reader sees. Returns the element that holds the text and the parts."""
    outline, owner = survey.outline, _Parts(survey, kind, top).owner
    taken = frozenset(at for at, name in enumerate(_PARTS, 1) if getattr(wanted, name) is True)
    left = frozenset(at for at, name in enumerate(_PARTS, 1) if getattr(wanted, name) is False)
    if top and any(part in taken and not outline.within(at, top) for at, part in enumerate(owner)):
        _strike_around(survey, top)
        top = 0
    if any(part in taken for part in owner):
        _take(survey, owner, taken, given)
    for element, part in enumerate(owner):
        if part in left:
            outline.struck[element] = GONE
    return top


def _strike_around(survey: Survey, top: int) -> None:
    """Strike out all but `top`, so that it can be shown from the root of the page on."""
    outline, around = survey.outline, set[int]()
    at = outline.parents[top]
    while at >= 0:
        around.add(at)
        at = outline.parents[at]
    for element in range(len(outline.elements)):
        if not outline.within(element, top):
            outline.struck[element] = 0 if element in around else GONE
    for line in survey.lines:
        line.gone = line.gone or line.block in around


def _take(survey: Survey, owner: bytearray, taken: frozenset[int], given: bytes) -> None:
    outline, parents = survey.outline, survey.outline.parents
    opened: set[int] = set()
    whole = survey.sums.letters
    for element, part in enumerate(owner):
        if part not in taken:
            continue
        parent = parents[element]
        if parent >= 0 and owner[parent] == part:
            first = outline.struck[parent] == GONE and parent not in opened
            outline.struck[element] = GONE if first else given[element]
        else:  # the outermost of its part: what stands around it is opened, its own text is not
            outline.struck[element] = given[element]
            while parent >= 0 and outline.struck[parent]:
                outline.struck[parent] = 0
                opened.add(parent)
                parent = parents[parent]
        tag = outline.tags[element]
        folded = part != _PARTS.index("faq") + 1 and is_hidden(outline.elements[element])
        if tag == "nav" or ((folded or tag == "form") and whole[element] <= _SMALL * whole[max(parents[element], 0)]):
            outline.struck[element] = GONE
    before = ""
    for line in survey.lines:
        if line.block in opened:
            line.gone = True
        elif owner[line.block] in taken:
            line.gone = False
            text = line.text(outline.struck)
            line.gone = bool(text) and text == before  # a name that stands twice: for phones, and for desks
            before = text


class _Parts:
    """`owner[element]` is the part that the element belongs to, as its place in _PARTS from 1 on, or 0."""

    def __init__(self, survey: Survey, kind: KindOfPage, top: int) -> None:
        self._survey, self._outline, self._sums = survey, survey.outline, survey.sums
        count = len(self._outline.elements)
        self.owner = bytearray(count)
        self._top = top
        self._title = next((at for at, tag in enumerate(self._outline.tags) if tag == "h1"), -1)
        self._lines, self._priced, self._first = [0] * count, [0] * count, [-1] * count
        nothing = bytes(count)
        self._texts = [one.text(nothing) for one in survey.lines]
        for at in range(len(survey.lines) - 1, -1, -1):
            block = survey.lines[at].block
            self._lines[block] += 1
            self._priced[block] += PRICE.search(self._texts[at][:_LONGEST_HEADING]) is not None
            self._first[block] = at
        for element in range(count - 1, 0, -1):
            parent = self._outline.parents[element]
            self._lines[parent] += self._lines[element]
            self._priced[parent] += self._priced[element]
            if self._first[element] >= 0 and not 0 <= self._first[parent] < self._first[element]:
                self._first[parent] = self._first[element]
        self._heads = [  # element, rank, line
            (at, int(tag[1]), self._first[at])
            for at, tag in enumerate(self._outline.tags)
            if tag in HEADINGS and self._first[at] >= 0
        ]
        alike = self._alike()
        for part, name in enumerate(_PARTS, 1):
            self._by_names(part, name)
            self._by_heading(part, _HEADINGS[name])
            if name == "comments" and kind.name == "forum":
                self._posts(part, alike)
            elif name == "faq":
                self._questions(part, alike)
            elif name == "cards":
                self._cards(part, alike)

    def _alike(self) -> list[list[int]]:
        """Siblings with the same tag and the same first class, in the order of the elements around them."""
        found: dict[tuple[int, str, str], list[int]] = {}
        for number, element in enumerate(self._outline.elements):
            if self._sums.letters[number]:
                css = (element.attr("class") or "")[:60].partition(" ")[0]
                found.setdefault((self._outline.parents[number], self._outline.tags[number], css), []).append(number)
        return [found[key] for key in sorted(found) if len(found[key]) > 1]

    def _may_be(self, element: int) -> bool:
        """False for what holds the title of the page or the text of an article, and for menus and footers."""
        outline, places = self._outline, self._survey.places
        return not (
            element < 0
            or outline.tags[element] in _WHOLE
            or self.owner[element]
            or (self._title >= 0 and outline.within(self._title, element))
            or (self._top and outline.within(self._top, element))
            or places.below[element] & (GROUP_BITS["menu"] | GROUP_BITS["footer"])
        )

    def _claim(self, part: int, element: int) -> None:
        for inner in range(element, self._outline.ends[element]):
            self.owner[inner] = self.owner[inner] or part

    def _by_names(self, part: int, name: str) -> None:
        element, outline, sums = 0, self._outline, self._sums
        while element < len(outline.elements):
            if (
                self._word_of(element) == name
                and sums.letters[element] >= _LEAST
                and sums.link_share(element) < 0.9
                and self._may_be(element)
            ):
                self._claim(part, element)
                element = outline.ends[element]
            else:
                element += 1

    def _class_of(self, element: int) -> str:
        return (self._outline.elements[element].attr("class") or "")[:LONGEST_NAMES]

    def _word_of(self, element: int) -> str | None:
        attr = self._outline.elements[element].attr
        names = " ".join(
            [value for key in ("class", "id", "itemprop", "itemtype", "data-testid") if (value := attr(key))]
        )
        return _part_named(names[:LONGEST_NAMES]) if names else None

    def _by_heading(self, part: int, wanted: re.Pattern[str]) -> None:
        """A section whose heading names the part: the element that begins with it, else what follows up to the next
        heading of the same rank or a higher one."""
        sections = 0
        for at, (element, rank, line) in enumerate(self._heads):
            if rank == 1 or self.owner[element] or sections >= _MOST_SECTIONS:
                continue
            text = self._texts[line]
            if len(text) > _LONGEST_HEADING or not wanted.search(text):
                continue
            sections += 1
            outline, letters = self._outline, self._sums.letters
            inner, outer = element, outline.parents[element]
            while outer >= 0 and letters[outer] == letters[inner] and self._may_be(outer):
                inner, outer = outer, outline.parents[outer]
            end = next((one for one, other, _ in self._heads[at + 1 :] if other <= rank), len(outline.elements))
            if self._may_be(outer) and self._first[outer] == line and outline.ends[outer] <= end:
                self._claim(part, outer)
                continue
            stop = outline.ends[outer] if outer >= 0 else 0
            while inner < min(stop, end) and outline.ends[inner] <= end and self._may_be(inner):
                self._claim(part, inner)
                inner = outline.ends[inner]

    def _posts(self, part: int, alike: list[list[int]]) -> None:
        """The replies of a thread: all of its posts but the first, if they are not called answers."""
        words, sums = GROUP_BITS["message"] | GROUP_BITS["reply"], self._sums
        best: list[int] = []
        for group in alike:
            named = groups_of(self._class_of(group[0])) & words and self._may_be(group[0])
            if named and sum(sums.prose[one] > 0 for one in group) >= _MOST_OF * len(group):
                best = max(best, group, key=lambda one: sum(sums.letters[at] for at in one))
        names = self._class_of(best[0]).lower() if best else ""
        for one in best if _ANSWERS.intersection(NAME_WORD.findall(names)) else best[1:]:
            if self._may_be(one):
                self._claim(part, one)

    def _questions(self, part: int, alike: list[list[int]]) -> None:
        for group in alike:
            tag = self._outline.tags[group[0]]
            fold = tag in ("dt", "summary") or self._survey.places.below[group[0]] & GROUP_BITS["fold"]
            asked = [one for one in group if self._asks(one)]
            if len(asked) < 2 or len(asked) < _MOST_OF * len(group) or tag in HEADINGS:
                continue
            answered = sum(self._lines[one] > 1 for one in asked) >= _MOST_OF * len(asked)
            if answered or fold:
                self._claim_group(part, group, whole=not answered)

    def _asks(self, element: int) -> bool:
        """Is its first line a question, and no link to another page?"""
        line = self._survey.lines[self._first[element]]
        if not self._texts[self._first[element]].endswith(("?", "？", "؟")):
            return False
        if line.link_share < 0.5:
            return True
        at = line.pieces[0][0]
        while at >= line.block and self._outline.tags[at] != "a":
            at = self._outline.parents[at]
        return at >= 0 and (self._outline.elements[at].attr("href") or "#").startswith(("#", "javascript:"))

    def _cards(self, part: int, alike: list[list[int]]) -> None:
        outline, sums = self._outline, self._sums
        for group in alike:
            count = len(group)
            if count < _LEAST_CARDS or outline.tags[group[0]] in _ROWS or not self._may_be(group[0]):
                continue
            if self._survey.places.near[group[0]] & (GROUP_BITS["form"] | GROUP_BITS["pager"] | GROUP_BITS["share"]):
                continue
            letters = sum(sums.letters[one] for one in group)
            linked = sum(sums.linked[one] for one in group)
            if letters > _LONGEST_CARD * count or (letters > _PROSE * count and linked < 0.1 * letters):
                continue
            links = sum(sums.linked[one] > 0 for one in group)
            shaped = sum(bool(outline.pictured[one] or self._priced[one] or self._lines[one] > 1) for one in group)
            if min(links, shaped) >= _MOST_OF * count:
                self._claim_group(part, group, whole=False)

    def _claim_group(self, part: int, group: list[int], *, whole: bool) -> None:
        """The siblings, or the element around them if they fill it. With `whole` the element around them is meant."""
        letters, parents = self._sums.letters, self._outline.parents
        inside, at, best = sum(letters[one] for one in group), parents[group[0]], -1
        for _ in range(_LEVELS):
            if not self._may_be(at) or not ((whole and best < 0) or inside >= _FILLED * letters[at]):
                break
            best, at = at, parents[at]
        for one in (best,) if best >= 0 else group:
            if self._may_be(one):
                self._claim(part, one)


@lru_cache(maxsize=16_384)
def _part_named(names: str) -> str | None:
    found = {_WORDS[word] for name in NAME_WORD.findall(names) if (word := name.lower()) in _WORDS}
    return next((name for name in _PARTS if name in found), None)
