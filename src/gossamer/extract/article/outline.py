"""`Outline`: a page as flat lists: every element with its place in the tree and what its names mean, and every
paragraph with its letters and links.

A paragraph is a run of text that no block element and no empty line interrupts, whatever element it stands in. All
later questions are answered from these lists: the tree is walked once, without recursion, and never changed.

The names of an element (class, id, role, itemprop) are split into words ("postShareBar" is post, share, bar), so that
"ad" is found in "ad-slot" and not in "header". Only the sense of common words counts; no name of any one site is known
here.

How it fails: it does not. Of a page with more than MOST_NODES nodes the rest is not read, and of one text no more than
LONGEST_TEXT characters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from itertools import islice

from turbohtml import Element, Node, Text

MOST_NODES = 300_000
LONGEST_TEXT = 1_000_000
GONE = 1  # struck out of text and Markdown
SILENT = 2  # struck out of the text; it stays in Markdown, which can show pictures
UNREAD = frozenset((
    "area", "audio", "button", "canvas", "datalist", "dialog", "embed", "frameset", "head", "iframe", "input",
    "link", "map", "math", "meta", "meter", "object", "option", "progress", "script", "select",
    "source", "style", "svg", "template", "textarea", "title", "track", "video",
))  # fmt: skip
PERMALINKS = frozenset(("#", "¶", "§", "🔗", "⚓", "⚓︎"))  # links of a heading to itself
# A line of code in an element of its own; style sheets begin a new line there.
CODE_LINE = re.compile(r"(?:^|[\s_-])line(?:$|\s)", re.IGNORECASE)
HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
PICTURES = frozenset(("img", "picture", "amp-img", "video", "iframe"))
_INLINE = frozenset((
    "a", "abbr", "acronym", "amp-img", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font",
    "i", "img", "ins", "kbd", "label", "mark", "nobr", "picture", "q", "rb", "rp", "rt", "ruby", "s", "samp",
    "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
))  # fmt: skip
_WIDE = "\u2e80"  # a letter from here on (Chinese, Japanese, Korean) says as much as two or three Latin ones
_COMMAS = ",，、،"

# What the names of an element say about it.
CONTENT = 1  # the words of a body of text
BODY = 2  # it is called the body of an article outright
MARGIN = 4  # share bars, menus, teasers, forms: around a text, or put into it
REPLIES = 8  # comments of readers under a text
HIDDEN = 16  # not shown to the reader
LABEL = 32  # bylines, dates, captions, credits: small print beside a text
PICTURE = 64  # a frame around a picture
CONSENT = 128  # a dialog about cookies and data

_FRAMES = 2  # elements around a <pre>
_CLOSE = 8  # elements around a text among which that of the text before it is searched
_SCRIPTED_SHARE = 0.75  # of the letters of a page; if <noscript> holds more, it holds the content
_CONSENT_SHARE = 0.9  # of the letters of a page; what holds more is all that there is
_NO_DIALOGS = frozenset(("article", "body", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "html", "li", "main", "p"))
_NOTICE = 300  # letters in <noscript> that merely ask for JavaScript
LONGEST_NAMES = 400  # characters of names that are read; meanings are remembered, so names must not be endless
NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SENSES = {
    CONTENT: "article articles blog body content contents entry main page paragraph post story text",
    BODY: "articlebody",
    MARGIN: """
        ad ads adslot adunit advert adverts advertise advertisement advertisements advertising adwrapper affiliate
        addthis addtoany banner billboard breadcrumb breadcrumbs btn button buttons carousel consent cookie cookies
        cta donate donation dropdown footer gdpr hamburger hashtag hashtags infobox inread leaderboard login masthead
        menu menus modal mostread nav navbar navi navigation newsletter newsletters optin outbrain overlay pager
        pagination paginator paywall player poll popover popular popup prefooter prevnext promo promoted promos
        promotion promotional rail readmore readnext recirc recirculation recommend recommendation recommendations
        recommended register related relatedarticles relatedcontent relatedposts reklama share sharebar sharebuttons
        shared sharedaddy shares sharethis sharing sidebar sidebars signin signup skip skyscraper slideshow sociable
        social socials sponsor sponsored sponsors subscribe subscription subscriptions survey taboola tag tagbox
        taglist tags teaser teasers toc toolbar toolbox tools tooltip trend trending upsell widget widgets
    """,
    REPLIES: "comment comments commenting commentlist discussion disqus livefyre replies respond reviews",
    HIDDEN: "hidden hide invisible offscreen sronly noprint visuallyhidden",
    LABEL: """
        author authors avatar bio byline bylines caption captions copyright credit credits date dateline datetime
        figcaption legend meta metadata postdate postmeta pubdate published source timestamp updated vcard writer
    """,
    CONSENT: "cookiebot cookieconsent onetrust usercentrics didomi",
    PICTURE: "figure gallery image images img photo photos pic pics picture pictures thumb thumbnail",
}
_PAIRED_SENSES = {
    BODY: "article body, article content, article text, entry content, post body, post content, story body",
    MARGIN: """
        also like, call out, editors picks, email signup, follow us, in read, key points, latest news, log in,
        more articles, more from, more news, more on, more stories, most popular, most read, most viewed,
        next article, next prev, next up, prev next, pull quote, read also, read more, read next, see also, sign in,
        sign up, story package, top stories, up next, you may
    """,
    CONSENT: """
        consent banner, consent dialog, consent layer, consent manager, consent modal, consent popup, cookie banner,
        cookie bar, cookie consent, cookie dialog, cookie message, cookie modal, cookie notice, cookie notification,
        cookie popup, cookies banner, cookies bar, cookies consent, cookies notice, cookies popup, gdpr banner,
        gdpr cookie, gdpr modal, gdpr popup
    """,
    HIDDEN: "d none, no print, print only, screen reader, sr only, visually hidden",
}


class Paragraph:
    """`pieces` are (element, text) in order; `block` is the element that the paragraph stands in, `linked` counts the
    letters in links. `exact` marks text in <pre>, in which every space counts; `gone` marks a paragraph that is struck
    out though its element is not.
    """

    __slots__ = ("block", "commas", "exact", "gone", "letters", "linked", "pieces")

    def __init__(self, block: int) -> None:
        self.block = block
        self.letters = 0
        self.linked = 0
        self.commas = 0
        self.exact = False
        self.gone = False
        self.pieces: list[tuple[int, str]] = []

    @property
    def link_share(self) -> float:
        return self.linked / self.letters if self.letters else 0.0

    @property
    def weight(self) -> float:
        """How much prose the paragraph is: its letters, far fewer if they are links; nothing for a mere phrase."""
        return self.letters * (1 - self.link_share) ** 2 if self.letters >= 25 else 0.0

    def text(self, struck: bytes | bytearray) -> str:
        """The text without the elements that are struck out; "" for a paragraph that is gone. Line breaks stay."""
        if self.gone:
            return ""
        joined = "".join([piece for element, piece in self.pieces if not struck[element]])
        if self.exact:
            return "\n".join(line.rstrip() for line in joined.split("\n")).strip("\n")
        if "\n" not in joined:
            return " ".join(joined.split())
        return "\n".join(line for part in joined.split("\n") if (line := " ".join(part.split())))


class Outline:
    """Elements are numbers in document order; `parents[i]` is the parent of i, `ends[i]` the first number after its
    subtree.

    `flags[i]` says what the names of i mean, `pictured[i]` whether i contains a picture or film, `struck[i]` whether i
    is struck out (GONE, SILENT or 0). `cut` is True when the page was too large to be read to its end.
    """

    __slots__ = ("cut", "elements", "ends", "flags", "paragraphs", "parents", "pictured", "struck", "tags")

    def __init__(self) -> None:
        self.elements: list[Element] = []
        self.tags: list[str] = []
        self.parents: list[int] = []
        self.ends: list[int] = []
        self.flags: list[int] = []
        self.pictured = bytearray()
        self.struck = bytearray()
        self.paragraphs: list[Paragraph] = []
        self.cut = False

    def within(self, element: int, other: int) -> bool:
        """True when `element` is `other` or inside it."""
        return other <= element < self.ends[other]

    def weights(self) -> list[float]:
        """For every element the weight of the paragraphs in it that are not struck out."""
        weights = [0.0] * len(self.elements)
        for paragraph in self.paragraphs:
            if not self.struck[paragraph.block]:
                weights[paragraph.block] += paragraph.weight
        parents = self.parents
        for element in range(len(weights) - 1, 0, -1):
            weights[parents[element]] += weights[element]
        return weights

    def strike_notices(self) -> None:
        """Strike out what asks for consent, and what is for readers without scripts; unless it is most of the page:
        then scripts make the rest."""
        scriptless = self._outermost([tag == "noscript" for tag in self.tags])
        named = zip(self.flags, self.tags, strict=True)
        consent = self._outermost([flags & CONSENT and tag not in _NO_DIALOGS for flags, tag in named])
        if not scriptless and not consent:
            return
        whole = sum(one.letters for one in self.paragraphs)
        if self._letters_in(scriptless) < max(_SCRIPTED_SHARE * whole, _NOTICE):
            for element in scriptless:
                self.strike(element)
        if self._letters_in(consent) <= _CONSENT_SHARE * whole:
            for element in consent:
                self.strike(element)

    def strike_line_numbers(self) -> None:
        """Strike out the numbers of lines that stand in a <pre> beside the code."""
        for one in self.paragraphs:
            if one.exact and not self.struck[one.block]:
                words = one.text(self.struck).split()
                if len(words) > 1 and words == [str(number) for number in range(1, len(words) + 1)]:
                    self.strike(one.block)

    def _outermost(self, wanted: list[bool | int]) -> list[int]:
        """The elements that are wanted and not inside of another one that is."""
        found, element = [], 0
        while element < len(wanted):
            if wanted[element]:
                found.append(element)
            element = self.ends[element] if wanted[element] else element + 1
        return found

    def _letters_in(self, marked: list[int]) -> int:
        """The letters of the paragraphs in these elements, which are in order and apart from each other."""
        inside = 0
        for one in self.paragraphs if marked else ():
            before = bisect_right(marked, one.block) - 1
            if before >= 0 and self.within(one.block, marked[before]):
                inside += one.letters
        return inside

    def strike(self, element: int, mark: int = GONE) -> None:
        """Strike out an element with everything in it."""
        end = self.ends[element]
        self.struck[element:end] = bytes((mark,)) * (end - element)


def outline_of(root: Element, size: int | None = None) -> Outline:
    """Walk the tree from `root` down. `size` is the length of its page, if it is at hand."""
    walk = _TreeWalk()
    walk.visit(root, is_huge(root, size))
    walk.outline.strike_notices()
    walk.outline.strike_line_numbers()
    return walk.outline


def is_huge(root: Element, size: int | None = None) -> bool:
    """Has the page of that length more nodes than MOST_NODES? A list or a copy of them would take gigabytes."""
    if size is not None and size <= MOST_NODES:  # a node is written with a few bytes at least
        return False
    return next(islice(root.descendants, MOST_NODES, None), None) is not None


def _first_children(node: Element, most: int) -> list[Node]:
    """As `node.children`, which makes all of them at once."""
    first = next(iter(node.descendants), None)
    return [] if first is None else [first, *islice(first.next_siblings, max(most, 0))]


class _TreeWalk:
    """One pass over the tree. The stack holds the nodes still to visit, and the numbers of elements that end there."""

    def __init__(self) -> None:
        self.outline = Outline()
        self.at = -1  # the innermost open element
        self.blocks = [0]
        self.links = 0  # open <a>
        self.exact = False  # in <pre>
        self.breaks = 0  # <br> since the last text
        self.line_ends = False  # in <pre>, where the next text begins a line
        self.paragraph: Paragraph | None = None

    def visit(self, root: Element, huge: bool) -> None:
        stack: list[Node | int] = [root]
        budget = MOST_NODES
        self.outline.cut = huge
        while stack:
            node = stack.pop()
            if isinstance(node, Text):
                self._read(node.data)
            elif isinstance(node, int):
                self._close(node)
            elif isinstance(node, Element):
                if node.tag == "br":
                    self._break()
                elif budget <= 0:
                    self.outline.cut = True
                elif self._open(node):
                    stack.append(self.at)
                    children = _first_children(node, budget) if huge else node.children
                    budget -= len(children) + 1
                    stack.extend(reversed(children))

    def _open(self, element: Element) -> bool:
        outline, tag = self.outline, element.tag
        if tag in PICTURES and outline.elements:
            self._picture()
        if tag in UNREAD and outline.elements and not (tag == "button" and outline.tags[self.at] in HEADINGS):
            return False
        if tag == "a" and is_permalink(element):
            return False
        number = len(outline.elements)
        outline.elements.append(element)
        outline.tags.append(tag)
        outline.parents.append(self.at)
        outline.ends.append(number + 1)
        outline.flags.append(_flags_of(element))
        outline.pictured.append(0)
        outline.struck.append(0)
        self.at = number
        if tag == "a":
            self.links += 1
        elif self.exact:  # code is one paragraph, whatever its lines stand in
            self.line_ends |= tag not in _INLINE or CODE_LINE.search(element.attr("class") or "") is not None
        elif tag not in _INLINE:
            self.blocks.append(number)
            self.paragraph = None
            self.exact = tag == "pre"
            if self.exact:
                self._frame_code()
        return True

    def _close(self, number: int) -> None:
        outline = self.outline
        outline.ends[number] = len(outline.elements)
        tag = outline.tags[number]
        if tag == "a":
            self.links -= 1
        elif self.blocks[-1] == number:
            self.blocks.pop()
            self.paragraph = None
            self.exact = False
        elif self.exact and tag not in _INLINE:
            self.line_ends = True
        self.at = outline.parents[number]

    def _picture(self) -> None:
        pictured, parents, at = self.outline.pictured, self.outline.parents, self.at
        while at >= 0 and not pictured[at]:  # the elements around it were marked with an earlier picture
            pictured[at] = 1
            at = parents[at]

    def _frame_code(self) -> None:
        """The frames around code are no margins: highlighters call them "code-toolbar" and "highlight-source-js"."""
        at = self.at
        for _ in range(_FRAMES):
            at = self.outline.parents[at]
            if at < 0:
                break
            self.outline.flags[at] &= ~(MARGIN | LABEL)

    def _break(self) -> None:
        self.breaks += 1
        if self.paragraph is not None:
            self.paragraph.pieces.append((self.at, "\n"))

    def _read(self, text: str) -> None:
        if len(text) > LONGEST_TEXT:
            text = text[:LONGEST_TEXT]
            self.outline.cut = True
        paragraph = self.paragraph
        plain = " ".join(text.split())
        if not plain:
            if paragraph is not None:
                paragraph.pieces.append((self.at, text if self.exact else " "))
            return
        if paragraph is None or self.breaks > 1:
            paragraph = self.paragraph = Paragraph(self.blocks[-1])
            self.outline.paragraphs.append(paragraph)
        self.breaks = 0
        letters = len(plain)
        paragraph.commas += plain.count(",")
        if not plain.isascii():
            letters += sum(1 for letter in plain[:5000] if letter >= _WIDE)
            paragraph.commas += sum(plain.count(comma) for comma in _COMMAS[1:])
        paragraph.letters += letters
        if self.links:
            paragraph.linked += letters
        if self.exact:
            paragraph.exact = True
            if self.line_ends and paragraph.pieces and not paragraph.pieces[-1][1].endswith("\n"):
                text = f"\n{text}"
            self.line_ends = False
        else:
            # Space at the ends keeps the words of neighbours apart; space inside is as good as one blank.
            apart = text[0].isspace() or self._stands_apart(paragraph, plain)
            text = f"{' ' if apart else ''}{plain}{' ' if text[-1].isspace() else ''}"
        paragraph.pieces.append((self.at, text))

    def _stands_apart(self, paragraph: Paragraph, plain: str) -> bool:
        """True for a text in an element beside that of the text before it: <b>Lamps</b><span>Kind to a room</span>.

        Style sheets draw such elements below each other. Single letters are parts of a word.
        """
        if not paragraph.pieces or len(plain) < 2:
            return False
        before, last = paragraph.pieces[-1]
        at, parents = self.at, self.outline.parents
        if len(last) < 2 or not last[-1].isalnum() or not plain[0].isalnum() or at <= before:
            return False
        for _ in range(_CLOSE):
            if at <= before:
                break
            at = parents[at]
        return at < before


def is_permalink(link: Element) -> bool:
    """True for a sign beside a heading that links to the heading itself."""
    return "#" in (link.attr("href") or "")[:LONGEST_NAMES] and link.text.strip() in PERMALINKS


def is_hidden(element: Element) -> bool:
    if not element.attrs:
        return False
    if element.attr("hidden") is not None or element.attr("aria-hidden") == "true":
        return True
    style = element.attr("style")
    return style is not None and "display:none" in style[:500].replace(" ", "").lower()


def _flags_of(element: Element) -> int:
    if not element.attrs:
        return 0
    names = " ".join([value for name in ("class", "id", "role", "itemprop") if (value := element.attr(name))])
    return _meaning_of(names[:LONGEST_NAMES]) if names else 0


def _flags_by_name() -> dict[str, int]:
    flags: dict[str, int] = {}
    for flag, names in _SENSES.items():
        for name in names.split():
            flags[name] = flags.get(name, 0) | flag
    for flag, names in _PAIRED_SENSES.items():
        for name in names.split(","):
            flags[" ".join(name.split())] = flag
    return flags


_FLAGS = _flags_by_name()


@lru_cache(maxsize=16_384)
def _meaning_of(names: str) -> int:
    """The flags of the words in `names`, and of the pairs of words that follow each other; 0 for words without a flag.

    `names` must be no longer than LONGEST_NAMES.
    """
    words = [word.lower() for word in NAME_WORD.findall(names)]
    flags, before = 0, ""
    for word in words:
        flags |= _FLAGS.get(word, 0) | _FLAGS.get(f"{before} {word}", 0)
        before = word
    return flags
