"""Every address that a page leads to, not only its <a> and <area>.

`documents` are what a browser or a search engine would go to from the page: links, redirects by <meta> and by header,
frames, forms that ask nothing, clicks whose address is written out, <link> and the Link header for the pages beside
this one. `everything` adds what a page loads or only mentions: pictures, scripts, films, citations, data-href. Both
give hrefs in the order of the document, those of the headers first.

How it fails: it does not. What is no address is left to the caller, who joins them; of a page with more than
MOST_ELEMENTS such elements the rest is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlencode

from turbohtml import Document, Element

from ..model.page import Headers

MOST_ELEMENTS = 100_000
_LONGEST_HEADER = 16_384
# Relations of <link> and the Link header that name another page for readers, and not a file or a service.
_PAGES = frozenset((
    "next", "prev", "previous", "first", "last", "start", "up", "index", "contents", "canonical", "alternate",
    "amphtml",
))  # fmt: skip
_DOCUMENTS = "a[href], svg a, area[href], meta[http-equiv], frame[src], iframe[src], form, link[rel][href], [onclick]"
_ATTRIBUTES = {  # what else holds an address, by tag; "*" is any tag
    "*": ("data-href", "data-url", "data-src", "data-link", "background", "cite", "longdesc"),
    "a": ("ping",), "audio": ("src",), "button": ("formaction",), "embed": ("src",), "frame": ("longdesc",),
    "image": ("href", "xlink:href"), "img": ("src", "lowsrc", "dynsrc"), "input": ("src", "formaction"),
    "link": ("href",), "object": ("data", "codebase"), "script": ("src", "href", "xlink:href"), "source": ("src",),
    "track": ("src",), "use": ("href", "xlink:href"), "video": ("src", "poster"),
}  # fmt: skip
_SETS = ("srcset", "imagesrcset", "data-srcset")
_OTHERS = ", ".join([
    *(f"{tag.strip('*')}[{name}]" for tag, names in _ATTRIBUTES.items() for name in names if ":" not in name),
    *(f"[{name}]" for name in _SETS),
    "image", "script", "use",
])  # fmt: skip
_REFRESH = re.compile(r"\s*[\d.]*\s*[;,\s]\s*(?:url\s*=\s*)?(.*)", re.IGNORECASE | re.DOTALL)
# A click that leads to another page, written out in the element: onclick="location.href = '/next'".
_CLICK = re.compile(
    r"""(?:\blocation(?:\.href)?\s{0,9}=(?!=)\s{0,9}|\blocation\.(?:assign|replace)\(\s{0,9}|\bwindow\.open\(\s{0,9})"""
    r"""(['"])([^'"<>\s]{1,2000})\1"""
)
_LINK_VALUE = re.compile(r'<([^<>]*)>((?:[^,<>"]|"[^"]*")*)')
_REL = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]+))', re.IGNORECASE)
_TYPE = re.compile(r';\s*type\s*=\s*"?([^\s;,"]+)', re.IGNORECASE)
_CONTROLS = "input[name], select[name], textarea[name], button[name]"


def documents(tree: Document, headers: Headers) -> Iterator[str]:
    """The hrefs that lead to other pages."""
    yield from _from_headers(headers)
    for element in tree.select(_DOCUMENTS)[:MOST_ELEMENTS]:
        yield from _to_documents(element, nofollow=True)


def everything(tree: Document, headers: Headers, *, nofollow: bool) -> Iterator[str]:
    """All hrefs of the page, and those of the files that it loads; `nofollow=False` leaves out those marked so."""
    yield from _from_headers(headers)
    yield from headers.getall("content-location")
    for element in tree.select(f"{_DOCUMENTS}, {_OTHERS}")[:MOST_ELEMENTS]:
        yield from _to_documents(element, nofollow=nofollow)
        for name in (*_ATTRIBUTES["*"], *_ATTRIBUTES.get(element.tag, ())):
            value = element.attr(name)
            if value:
                yield from value.split() if name == "ping" else (value,)
        for name in _SETS:
            yield from addresses_of_set(element.attr(name) or "")


def _from_headers(headers: Headers) -> Iterator[str]:
    for value in headers.getall("refresh"):
        yield from refresh_target(value)
    for value in headers.getall("link"):
        for href, parameters in _LINK_VALUE.findall(value[:_LONGEST_HEADER]):
            rel = _REL.search(parameters)
            kind = _TYPE.search(parameters)
            if rel and _is_page(rel[1] or rel[2], kind[1] if kind else ""):
                yield href


def _to_documents(element: Element, *, nofollow: bool) -> Iterator[str]:
    tag, rel = element.tag, element.attr("rel") or ""
    if not nofollow and "nofollow" in rel.lower().split():
        return
    if clicked := element.attr("onclick"):
        yield from (found[2] for found in _CLICK.finditer(clicked[:_LONGEST_HEADER]))
    if tag in ("a", "area"):
        yield element.attr("href") or element.attr("xlink:href") or ""  # the second in old drawings
    elif tag in ("frame", "iframe"):
        yield element.attr("src") or ""
    elif tag == "meta":
        if (element.attr("http-equiv") or "").strip().lower() == "refresh":
            yield from refresh_target(element.attr("content") or "")
    elif tag == "link":
        if _is_page(rel, element.attr("type") or ""):
            yield element.attr("href") or ""
    elif tag == "form":
        yield from _form_target(element)


def _is_page(rel: str, media_type: str) -> bool:
    """True for a relation to a page; an alternate that is a feed or a PDF is none."""
    words = set(rel.lower().split())
    return bool(words & _PAGES) and "stylesheet" not in words and (not media_type or "html" in media_type.lower())


def refresh_target(content: str) -> Iterator[str]:
    """The address in the content of a refresh: "5; url=/next"."""
    found = _REFRESH.fullmatch(content[:_LONGEST_HEADER])
    target = found[1].strip() if found else ""
    if target[:1] in ("'", '"'):
        target = target[1:].partition(target[0])[0]
    if target:
        yield target


def _form_target(form: Element) -> Iterator[str]:
    """Where a form leads that asks nothing: it is sent by GET, and all its fields are hidden ones."""
    action = (form.attr("action") or "").strip()
    if not action or (form.attr("method") or "get").strip().lower() != "get":
        return
    controls = form.select(_CONTROLS)[:100]
    if all(one.tag == "input" and (one.attr("type") or "").lower() == "hidden" for one in controls):
        query = urlencode([(one.attr("name") or "", one.attr("value") or "") for one in controls])
        yield f"{action.partition('#')[0].partition('?')[0]}?{query}" if query else action


def addresses_of_set(srcset: str) -> Iterator[str]:
    """The addresses of a srcset: "/a.jpg 1x, /b.jpg 2x". Commas inside an address stay."""
    for part in re.split(r",\s+|\s*,\s*(?=https?:|/)", srcset[:_LONGEST_HEADER].strip()):
        words = part.split()
        if words and words[0].strip(","):
            yield words[0].strip(",")
