"""Finds every address that a page leads to, not only its <a> and <area>.

`documents` are what a browser or a search engine would visit from the page: links, redirects by <meta> and by header,
frames (also inline ones, as srcdoc), forms without input, click handlers with a literal address, menus that go to the
chosen option, <link> and the Link header for related pages. `everything` adds what a page loads or only mentions:
images, scripts, videos, style sheets, addresses in inline styles, citations, data-href, POST forms. Both give hrefs in
document order, those of the headers first.

How it fails: nothing raises. The caller joins the hrefs and must handle invalid ones; elements beyond the first
MOST_ELEMENTS are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from urllib.parse import urlencode

import turbohtml
from turbohtml import Document, Element

from ..model.page import Headers

MOST_ELEMENTS = 100_000
_LONGEST_HEADER = 16_384
# Relations of <link> and the Link header to another page, not to a file or a service.
_PAGES = frozenset((
    "next", "prev", "previous", "first", "last", "start", "up", "index", "contents", "canonical", "alternate",
    "amphtml",
))  # fmt: skip
_DOCUMENTS = (
    "a[href], svg a, area[href], meta[http-equiv], frame[src], iframe[src], iframe[srcdoc], form, link[rel][href], "
    '[onclick], body[onload], select[onchange], object[data][type*="html" i], embed[src][type*="html" i]'
)
_ATTRIBUTES = {  # other attributes with an address, by tag; "*" is any tag
    "*": (
        "data-href", "data-url", "data-src", "data-link", "data-original", "data-lazy-src", "data-bg",
        "data-background", "background", "cite", "longdesc",
    ),
    "a": ("ping",), "applet": ("archive", "codebase"), "area": ("ping",), "audio": ("src",),
    "button": ("formaction",), "embed": ("src",), "form": ("action",),
    "frame": ("longdesc",), "head": ("profile",), "html": ("manifest",), "isindex": ("action",),
    "image": ("href", "xlink:href"), "img": ("src", "lowsrc", "dynsrc"), "input": ("src", "formaction"),
    "link": ("href",), "object": ("data", "codebase"), "script": ("src", "href", "xlink:href"), "source": ("src",),
    "track": ("src",), "use": ("href", "xlink:href"), "video": ("src", "poster"),
}  # fmt: skip
_SETS = ("srcset", "imagesrcset", "data-srcset")
_ADDRESS_PARAMS = frozenset(("movie", "src", "url", "data", "code"))  # names of <param>
_IN_STYLE = re.compile(r"""url\(\s{0,9}(['"]?)([^'"()\s]{1,2000})\1\s{0,9}\)|@import\s{1,9}(['"])([^'"\s]{1,2000})\3""")
_LONGEST_STYLE = 200_000  # characters of a <style>
_OTHERS = ", ".join([
    *(f"{tag.strip('*')}[{name}]" for tag, names in _ATTRIBUTES.items() for name in names if ":" not in name),
    *(f"[{name}]" for name in _SETS),
    "image", "param[value]", "script", "use", "style", '[style*="url("]',
])  # fmt: skip
_REFRESH = re.compile(r"\s*[\d.]*\s*[;,\s]\s*(?:url\s*=\s*)?(.*)", re.IGNORECASE | re.DOTALL)
# A click handler with a literal address: onclick="location.href = '/next'".
_CLICK = re.compile(
    r"""(?:\blocation(?:\.href)?\s{0,9}=(?!=)\s{0,9}|\blocation\.(?:assign|replace)\(\s{0,9}|\bwindow\.open\(\s{0,9})"""
    r"""(['"`])([^'"`<>\s$]{1,2000})\1"""
)
_CHOICE = re.compile(
    r"\b(?:location(?:\.href)?\s{0,9}=|location\.(?:assign|replace)\(|window\.open\()\s{0,9}"
    r"(?:this\.|event\.target\.)?(?:value|options\[)"
)
_LINK_VALUE = re.compile(r'<([^<>]*)>((?:[^,<>"]|"[^"]*")*)')
_PARAMETER = re.compile(r';\s*([\w*-]+)\s*=\s*(?:"([^"]*)"|([^\s;,"]+))')
_MOST_CONTROLS = 100  # of a form, and options of a menu
_LONGEST_FRAME = 200_000  # characters of a srcdoc
# An entry of a srcset: an address that ends with a comma, or one with descriptors up to a comma outside of brackets.
_ENTRY = re.compile(r"[\s,]*+(?:(\S*[^\s,]),++(?!\S)|(\S++)(?:[^,(]++|\([^)]*+\)?)*+)")


def documents(tree: Document, headers: Headers) -> Iterator[str]:
    """The hrefs to other pages."""
    yield from _from_headers(headers, wide=False)
    yield from _from_tree(tree, wide=False, nofollow=True)


def everything(tree: Document, headers: Headers, *, nofollow: bool) -> Iterator[str]:
    """All hrefs of the page, including the files it loads; `nofollow=False` leaves out those marked rel=nofollow."""
    yield from _from_headers(headers, wide=True)
    yield from headers.getall("content-location")
    yield from _from_tree(tree, wide=True, nofollow=nofollow)


def _from_tree(tree: Document, *, wide: bool, nofollow: bool, framed: bool = False) -> Iterator[str]:
    """`framed`: the tree is that of an inline frame. Frames inside such a frame are ignored."""
    fields = _OutsideFields(tree)
    for element in tree.select(f"{_DOCUMENTS}, {_OTHERS}" if wide else _DOCUMENTS)[:MOST_ELEMENTS]:
        if element.tag == "iframe" and (source := element.attr("srcdoc")):
            if not framed:
                inner = turbohtml.parse(source[:_LONGEST_FRAME])
                yield from _from_tree(inner, wide=wide, nofollow=nofollow, framed=True)
            continue
        yield from _to_documents(fields, element, nofollow=nofollow)
        if wide:
            yield from _to_others(element)


def _to_others(element: Element) -> Iterator[str]:
    for name in (*_ATTRIBUTES["*"], *_ATTRIBUTES.get(element.tag, ())):
        value = element.attr(name)
        if value:
            yield from value.split() if name == "ping" else (value,)
    if element.tag == "param" and (element.attr("name") or "").lower() in _ADDRESS_PARAMS:
        yield element.attr("value") or ""
    for name in _SETS:
        yield from addresses_of_set(element.attr(name) or "")
    style = element.text[:_LONGEST_STYLE] if element.tag == "style" else element.attr("style") or ""
    yield from (found[2] or found[4] for found in _IN_STYLE.finditer(style[:_LONGEST_STYLE]))


def _from_headers(headers: Headers, *, wide: bool) -> Iterator[str]:
    for value in headers.getall("refresh"):
        yield from refresh_target(value)
    for value in headers.getall("link"):
        for href, parameters in _LINK_VALUE.findall(value[:_LONGEST_HEADER]):
            told: dict[str, str] = {}
            for name, quoted, bare in _PARAMETER.findall(parameters):
                told.setdefault(name.lower(), quoted or bare)  # the first one counts
            if wide or _is_page(told.get("rel", ""), told.get("type", "")):
                yield href


def _to_documents(fields: _OutsideFields, element: Element, *, nofollow: bool) -> Iterator[str]:
    tag, rel = element.tag, element.attr("rel") or ""
    if not nofollow and "nofollow" in rel.lower().split():
        return
    if clicked := element.attr("onclick"):
        yield from _clicked(clicked)
    if tag in ("a", "area"):
        href = element.attr("href") or element.attr("xlink:href") or ""  # the second in older SVG
        if href.lstrip()[:11].lower() == "javascript:":
            yield from _clicked(href)
        else:
            yield href
    elif tag in ("frame", "iframe"):
        yield element.attr("src") or ""
    elif tag in ("object", "embed"):
        yield element.attr("data" if tag == "object" else "src") or ""
    elif tag == "meta":
        if (element.attr("http-equiv") or "").strip().lower() == "refresh":
            yield from refresh_target(element.attr("content") or "")
    elif tag == "link":
        if _is_page(rel, element.attr("type") or ""):
            yield element.attr("href") or ""
    elif tag == "form":
        yield from _form_target(fields, element)
    elif tag == "body":
        yield from _clicked(element.attr("onload") or "")
    elif tag == "select" and _CHOICE.search((element.attr("onchange") or "")[:_LONGEST_HEADER]):
        yield from (one.attr("value") or "" for one in element.select("option[value]")[:_MOST_CONTROLS])


def _clicked(script: str) -> Iterator[str]:
    """The literal addresses in an element's script, unless it calls confirm(): a click that needs confirmation probably
    deletes or orders something."""
    if "confirm(" not in script:
        yield from (found[2] for found in _CLICK.finditer(script[:_LONGEST_HEADER]))


def _is_page(rel: str, media_type: str) -> bool:
    """True for a relation to a page; an alternate that is a feed or a PDF does not count."""
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


def _form_target(fields: _OutsideFields, form: Element) -> Iterator[str]:
    """The target of a form without input: it is sent by GET, has only hidden fields, and one submit button."""
    controls = [one for one in form.select("button, input, select, textarea")[:_MOST_CONTROLS] if not _is_off(one)]
    kinds = {one: _kind(one) for one in controls}
    buttons = [one for one in controls if kinds[one] in ("submit", "image")]
    if any(one.attr("name") and kinds[one] not in ("hidden", "submit", "image", "button", "reset") for one in controls):
        return
    if any(one.attr("name") or one.attr("formaction") for one in buttons[1:]):
        return  # a choice between buttons is input
    if form.attr("id") and form.attr("id") in fields.forms:
        return
    button = buttons[0] if buttons else form
    method = button.attr("formmethod") or form.attr("method") or "get"
    action = (button.attr("formaction") or form.attr("action") or "").strip()
    sent = [one for one in controls if one.attr("name") and (kinds[one] == "hidden" or one is button)]
    query = urlencode([(one.attr("name") or "", one.attr("value") or "") for one in sent if kinds[one] != "image"])
    if method.strip().lower() == "get" and (action or query):
        yield f"{action.partition('#')[0].partition('?')[0]}?{query}" if query else action


def _kind(control: Element) -> str:
    """The kind of a control: the type of an <input> or <button>, else its tag."""
    usual = {"input": "text", "button": "submit"}.get(control.tag)
    return (control.attr("type") or usual).strip().lower() if usual else control.tag


def _is_off(control: Element) -> bool:
    return control.attr("disabled") is not None or control.closest("fieldset[disabled]") is not None


class _OutsideFields:
    """Fields outside their form: `forms` are the ids of forms that have such fields. Searched once, for the first form
    that needs it: a page may have thousands of forms."""

    def __init__(self, tree: Document) -> None:
        self._tree = tree

    @cached_property
    def forms(self) -> frozenset[str]:
        outside = self._tree.select("input[form][name], select[form][name], textarea[form][name]")[:MOST_ELEMENTS]
        return frozenset(one.attr("form") or "" for one in outside if _kind(one) != "hidden")


def addresses_of_set(srcset: str) -> Iterator[str]:
    """The addresses of a srcset: "/a.jpg 1x, /b.jpg 2x". Commas inside an address stay, as in the standard."""
    for found in _ENTRY.finditer(srcset[:_LONGEST_HEADER].rstrip()):
        yield found[1] or found[2]
