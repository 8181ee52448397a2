"""The content of a page, or of chosen parts, as clean HTML and as Markdown; and its images.

The page itself is never changed. Nothing here raises.
"""

from __future__ import annotations

from copy import deepcopy

from turbohtml import Element

from ..model.page_content import WHOLE, PageContent
from .article.render import LONGEST, whole_markdown, written_markdown
from .links import make_absolute
from .markup import Markup

_NO_CONTENT = 'script, style, noscript, template, link, meta, iframe, img[src^="data:"]'
# Page furniture around the content, as most sites mark it.
_MARGINS = (
    "header, footer, nav, aside, [role=banner], [role=navigation], [role=contentinfo], [role=complementary], "
    "[role=search], [aria-hidden=true], dialog"
)
MOST_PICTURES = 10_000


def markdown_of(page: Markup, content: PageContent = WHOLE) -> str:
    """The main content as Markdown; on request the whole page, or only the chosen elements."""
    if page.tree is None:
        return ""
    if content.only_main and not (content.include or content.exclude):
        return page.markdown()
    if content == PageContent(only_main=False):
        return whole_markdown(page.tree, page.urljoin(""))
    return "\n\n".join(filter(None, (written_markdown(part, page.urljoin("")) for part in _parts(page, content))))


def html_of(page: Markup, content: PageContent = WHOLE) -> str:
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
