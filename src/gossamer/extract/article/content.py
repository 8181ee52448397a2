"""The content of a page, or of chosen parts, as plain text, as Markdown with absolute links and as clean HTML; and its
images.

The page itself is never changed: Markdown and HTML are made from a copy. All are cut at LONGEST characters. Nothing
raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from itertools import chain, islice

from turbohtml import Document, Element, Markdown, Text

from ...model.page_content import WHOLE, PageContent
from ..links import make_absolute
from ..markup import Markup
from .outline import CODE_LINE, GONE, LONGEST_NAMES, UNREAD, Outline, Paragraph, is_permalink

LONGEST = 5_000_000  # characters of text or Markdown
_UNWRITTEN = ", ".join(sorted(UNREAD - {"head", "source"}))
_CELLS = frozenset(("td", "th"))
_STYLED = 300_000  # characters of a page up to which `_emphasis` is used
_HARD_SPACE = "\N{NO-BREAK SPACE}"
_EMPTY_LINE = re.compile(r"  \n((?:> )*)(?:\\\n(?:> )*)+")  # two <br>: people mean a new paragraph
# The language of code in the names of a frame around it. The last form is that of Sphinx.
_LANGUAGE = re.compile(
    r"(?:^|[\s-])(?:(?:language|lang|highlight-source)-|brush:\s?)(?P<name>[\w+#-]+)"
    r"|(?:^|\s)highlight-(?P<sphinx>[\w+#]+) notranslate"
)
_NO_LANGUAGE = frozenset(("default", "none", "plain", "plaintext", "text", "txt"))
_WORD = re.compile(r"[\w+#-]{1,30}")
_FRAMES = 3  # elements around a <pre> that may name its language
_LATE_SOURCES = ("data-src", "data-lazy-src", "data-original", "data-lazy", "data-srcset", "srcset")

_NO_CONTENT = 'script, style, noscript, template, link, meta, iframe, img[src^="data:"]'
# Page furniture around the content, as most sites mark it.
_MARGINS = (
    "header, footer, nav, aside, [role=banner], [role=navigation], [role=contentinfo], [role=complementary], "
    "[role=search], [aria-hidden=true], dialog"
)
MOST_PICTURES = 10_000


def _emphasis(mark: str) -> Callable[[Element, str], str]:
    """Marks around the words, spaces outside of the marks. The converter itself often writes raw HTML instead."""

    def convert(element: Element, inside: str) -> str:
        words = inside.strip()
        if not words or "\n\n" in words or words.startswith(mark):
            return inside
        before, after = inside[: len(inside) - len(inside.lstrip())], inside[len(inside.rstrip()) :]
        return f"{before}{mark}{words}{mark}{after}"

    return convert


_STYLE = Markdown(
    converters={"em": _emphasis("*"), "i": _emphasis("*"), "strong": _emphasis("**"), "b": _emphasis("**")}
)


def text_of(outline: Outline, top: int) -> str:
    """Paragraphs with an empty line between them; the cells of a row of a table are one paragraph."""
    written: list[str] = []
    room, row_before = LONGEST, -1
    for paragraph in outline.paragraphs:
        if not outline.within(paragraph.block, top) or outline.struck[paragraph.block]:
            continue
        text = paragraph.text(outline.struck)
        if not text:
            continue
        row = _row_of(outline, paragraph)
        if row >= 0 and row == row_before:
            written[-1] = f"{written[-1]} | {text}"
        else:
            written.append(text)
        row_before = row
        room -= len(text)
        if room < 0:
            break
    return "\n\n".join(written)[:LONGEST].rstrip()


def _row_of(outline: Outline, paragraph: Paragraph) -> int:
    """The table row whose cell the paragraph is; -1 outside of tables."""
    block = paragraph.block
    for _ in range(2):  # the cell itself, or the one block in it
        if block >= 0 and outline.tags[block] in _CELLS:
            return outline.parents[block]
        block = outline.parents[block] if block >= 0 else -1
    return -1


def markdown_of(outline: Outline, top: int, base: str) -> str:
    """The text as Markdown, with its pictures; plain text for a page that was too large to be read to its end."""
    if outline.cut:
        return text_of(outline, top)
    root = outline.elements[top]
    gone = set()
    element, end = top + 1, outline.ends[top]
    while element < end:
        if outline.struck[element] == GONE:
            gone.add(outline.elements[element])
            element = outline.ends[element]
        else:
            element += 1
    copy = deepcopy(root)
    if gone:
        twins = zip(root.iter_elements(), copy.iter_elements(), strict=True)
        for twin in [twin for one, twin in twins if one in gone]:
            twin.decompose()
    return written_markdown(copy, base)


def whole_markdown(tree: Document, base: str) -> str:
    """The whole page as Markdown, for pages without a main content."""
    body = tree.select_one("body") or tree.root
    return written_markdown(deepcopy(body), base) if body is not None else ""


def written_markdown(copy: Element, base: str) -> str:
    """The element as Markdown. It is changed on the way."""
    copy.remove(_UNWRITTEN)
    for picture in copy.select("img"):
        _load_late(picture)
    for link in copy.select("a"):
        if is_permalink(link) or (link.select_one("img") is None and not link.text.strip()):
            link.decompose()
    for code in copy.select("pre"):
        _prepare_code(code)
    size = 0
    for node in list(copy.descendants):
        if isinstance(node, Text):
            text = node.data
            size += len(text)
            if _HARD_SPACE in text:  # Markdown cannot emphasise beside one
                node.data = text.replace(_HARD_SPACE, " ")
    make_absolute(copy, base)
    # Nested emphasis is converted once per level; on a huge page that would take seconds.
    written = (copy.to_markdown(_STYLE) if size < _STYLED else copy.to_markdown())[:LONGEST]
    if "```" not in written:
        written = _EMPTY_LINE.sub(r"\n\1\n\1", written).replace("****", "")  # bold that ends and begins again
    return _without_last_rules(written.strip())


def _prepare_code(code: Element) -> None:
    """Begin a new line with every line that has an element of its own, say the language where a frame names it, and
    take code out of the table that shows it beside its line numbers."""
    for line in code.select("span[class]"):
        before = line.previous_sibling if CODE_LINE.search(line.attr("class") or "") else None
        if isinstance(before, Element) and not before.text.endswith("\n") and before.select_one("br") is None:
            line.insert_before(Text("\n"))
    if language := _language_of(code):
        code.attrs["class"] = f"language-{language}"
    cell, table = code.closest("td"), code.closest("table")
    row = cell.parent if cell is not None else None
    if cell is None or row is None or table is None or cell.select_one("pre") is not code:
        return
    # The last cell of the only row, and nothing else in that: a long table is looked at once.
    if any(isinstance(one, Element) for one in chain(cell.next_siblings, row.next_siblings, row.previous_siblings)):
        return
    if "".join(row.text.split()) == "".join(code.text.split()):
        table.replace_with(code)


def _language_of(code: Element) -> str | None:
    inner = code.select_one("code")
    frames = [code, *([inner] if inner is not None else []), *islice(code.ancestors, _FRAMES)]
    for frame in (frame for frame in frames if isinstance(frame, Element)):
        named = _LANGUAGE.search((frame.attr("class") or "")[:LONGEST_NAMES])
        found = frame.attr("data-lang") or frame.attr("data-language") or (named and (named["name"] or named["sphinx"]))
        if found:
            return found if _WORD.fullmatch(found) and found not in _NO_LANGUAGE else None
    return None


def _without_last_rules(written: str) -> str:
    """Markdown without horizontal rules at its end."""
    text = written.rstrip("- \n")
    return written[: len(text) + max(written[len(text) :].find("\n"), 0)] if written.endswith("\n---") else written


def _load_late(picture: Element) -> None:
    """Give a lazily loaded picture its address; remove a picture without one."""
    source = picture.attr("src") or ""
    if source and not source.startswith(("data:", "about:", "blob:")):
        return
    for name in _LATE_SOURCES:
        late = (picture.attr(name) or "").split()
        if late and not late[0].startswith("data:"):
            picture.attrs["src"] = late[0].rstrip(",")
            return
    picture.decompose()


def content_markdown(page: Markup, content: PageContent = WHOLE) -> str:
    """The main content as Markdown; on request the whole page, or only the chosen elements."""
    if page.tree is None:
        return ""
    if content.only_main and not (content.include or content.exclude):
        return page.markdown(**content.parts())
    if content == PageContent(only_main=False):
        return whole_markdown(page.tree, page.urljoin(""))
    return "\n\n".join(filter(None, (written_markdown(part, page.urljoin("")) for part in _parts(page, content))))


def content_html(page: Markup, content: PageContent = WHOLE) -> str:
    """The content as HTML without scripts and styles, with absolute URLs."""
    written = []
    for part in _parts(page, content):
        make_absolute(part, page.urljoin(""))
        written.append(part.html)
    return "\n".join(written)[:LONGEST]


def pictures_of(page: Markup) -> list[str]:
    """The URLs of the images of a page, without duplicates."""
    if page.tree is None:
        return []
    found = dict.fromkeys(
        page.urljoin(source)
        for picture in page.tree.select("img[src]")
        if (source := (picture.attr("src") or "").strip()) and not source.startswith("data:")
    )
    return list(found)[:MOST_PICTURES]


def _parts(page: Markup, content: PageContent) -> list[Element]:
    """Copies of the wanted elements, without the unwanted ones inside."""
    body = page.tree.select_one("body") or page.tree.root if page.tree is not None else None
    if body is None:
        return []
    body = deepcopy(body)
    for selector in (_NO_CONTENT, *content.exclude):
        body.remove(selector)
    if content.include:
        chosen = body.select(", ".join(content.include))
        inside = set(chosen)
        return [deepcopy(one) for one in chosen if not inside.intersection(one.ancestors)]
    if content.only_main:
        whole = len(body.text)
        pruned = deepcopy(body)
        pruned.remove(_MARGINS)
        if len(pruned.text) * 20 >= whole:  # if nearly everything was removed, this page uses the markup differently
            body = pruned
    return [body]
