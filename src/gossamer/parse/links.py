r"""Which links a page has beyond <a> and <area>, which of them to follow, and with which callback.

    rules = [Rule(allow=r"/book/\d+", callback="book", priority=5), Rule(restrict="nav", deny="/login")]

`allow` and `deny` are regular expressions, searched in the absolute address, as in Scrapy. How it fails: creating a
rule with an invalid expression raises Misconfigured. Addresses longer than LONGEST are left out, so that no expression
gets a hostile text of any size; the time limit of a page's code stops one that backtracks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias
from urllib.parse import urlencode

import msgspec
import turbohtml
from turbohtml import Document, Element

from ..errors import InvalidUrl, Misconfigured
from ..model.page import Headers
from ..model.task import DEFAULT_KIND, Request
from ..model.url import site_of
from .css import BadSelector, compile_css

LONGEST = 2_000  # characters of an address that is matched against patterns
TAGS, ATTRS = ("a", "area"), ("href",)
IGNORE, FOLLOW, PREFER = CANONICAL = ("ignore", "follow", "prefer")
CANONICAL_OF = "canonical_of"  # key in a request's data: the page that named this address as canonical

Patterns: TypeAlias = str | re.Pattern[str] | Sequence[str | re.Pattern[str]]

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


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Which links to follow: those whose address matches one of `allow` (empty: every address) and none of `deny`,
    inside the elements that the CSS of `restrict` selects. The first rule that matches a link applies to it.

    `callback` names the method that parses these pages; without one, only the rules are applied to them. With `follow`
    False no rules are applied to pages of that callback. `nofollow` False leaves out links marked rel=nofollow, and all
    links of a page that declares nofollow (meta robots, X-Robots-Tag).

    `canonical` is for pages of this rule that name another address of their site as canonical: "ignore" parses the page
    itself, "follow" also requests that address, "prefer" requests it instead.
    """

    allow: Any = ()
    deny: Any = ()
    restrict: str | Sequence[str] = ()
    callback: str | None = None
    follow: bool = True
    priority: int | None = None
    nofollow: bool = True
    tags: Sequence[str] = TAGS
    attrs: Sequence[str] = ATTRS
    canonical: str = IGNORE

    def __post_init__(self) -> None:
        if self.canonical not in CANONICAL:
            raise Misconfigured(f"A rule's canonical is one of {', '.join(CANONICAL)}, not {self.canonical!r:.80}.")
        patterns(self.allow), patterns(self.deny)
        for selector in as_texts(self.restrict):
            try:
                compile_css(selector)
            except BadSelector as error:
                raise Misconfigured(f"A rule's restrict cannot be used. {error}") from error
        if self.callback is not None and not (isinstance(self.callback, str) and self.callback.isidentifier()):
            raise Misconfigured(f"A rule's callback must be the name of a method, not {self.callback!r:.80}.")


def patterns(given: Any) -> list[re.Pattern[str]]:
    """Compile the expressions. Raises Misconfigured for an invalid one."""
    found = []
    for one in [given] if isinstance(given, str | re.Pattern) else given:
        try:
            found.append(re.compile(one))
        except (re.error, TypeError, RecursionError) as error:
            raise Misconfigured(f"{one!r:.100} is not a valid regular expression for links: {error}.") from error
    return found


def as_texts(given: str | Sequence[str]) -> Sequence[str]:
    return (given,) if isinstance(given, str) else given


def filter_links(links: Iterable[str], allow: Any, deny: Any) -> Iterator[str]:
    """The addresses that match one of `allow` and none of `deny`."""
    wanted, unwanted = patterns(allow), patterns(deny)
    for link in links:
        if len(link) > LONGEST or any(one.search(link) for one in unwanted):
            continue
        if not wanted or any(one.search(link) for one in wanted):
            yield link


def hrefs_in(
    tree: Document, restrict: str | Sequence[str], tags: Sequence[str], attrs: Sequence[str], *, nofollow: bool
) -> Iterator[str]:
    """The values of these attributes of these elements, inside the elements that `restrict` selects. Raises
    BadSelector."""
    selector = ", ".join(as_texts(tags))
    areas: list[Any] = [tree]
    if restrict:
        areas = [found for one in as_texts(restrict) for found in compile_css(one).of_document(tree)]
    for area in areas:
        if not isinstance(area, Document | Element):
            continue
        own = [area] if isinstance(area, Element) and area.matches(selector) else []
        for element in [*own, *area.select(selector)]:
            if not nofollow and "nofollow" in (element.attr("rel") or "").lower().split():
                continue
            for name in as_texts(attrs):
                if (value := element.attr(name)) is not None:
                    yield value


def rule_requests(rules: Sequence[Rule], page: Any) -> Iterator[Request]:
    """The requests that the rules make from a page."""
    seen: set[str] = set()
    closed = any(not rule.nofollow for rule in rules) and _says_nofollow(page)
    for rule in rules:
        if closed and not rule.nofollow:
            continue
        links = page.links(
            allow=rule.allow,
            deny=rule.deny,
            restrict=rule.restrict,
            tags=rule.tags,
            attrs=rule.attrs,
            nofollow=rule.nofollow,
        )
        for link in links:
            if link not in seen:
                seen.add(link)
                yield Request(url=link, kind=rule.callback or DEFAULT_KIND, priority=rule.priority)


def are_followed(rules: Sequence[Rule], kind: str) -> bool:
    """Are rules applied to pages of this callback? True for `parse`, and for callbacks of rules with `follow`."""
    return kind == DEFAULT_KIND or any(rule.follow and rule.callback == kind for rule in rules)


def canonical_request(rules: Sequence[Rule], kind: str, page: Any) -> tuple[str, Request] | None:
    """The rules' policy for a page that names another address of its site as canonical, and the request for that
    address. None if the page itself is to be parsed. A page that was requested as canonical is always parsed, even if
    it names yet another address."""
    policy = next((one.canonical for one in rules if (one.callback or DEFAULT_KIND) == kind), IGNORE)
    if policy == IGNORE or CANONICAL_OF in page.data:
        return None
    for href in page.css('link[rel~="canonical" i]::attr(href)').getall()[:1]:
        try:
            url = page.urljoin(href).partition("#")[0]
        except InvalidUrl:
            return None
        if url not in (page.url, page.requested_url) and site_of(url) == site_of(page.url):
            return policy, Request(url=url, kind=kind, data={**page.data, CANONICAL_OF: page.url})
    return None


def _says_nofollow(page: Any) -> bool:
    """Does the page declare nofollow for all its links?"""
    said = [*page.css('meta[name="robots" i]::attr(content)').getall(), *page.headers.getall("x-robots-tag")]
    words = {word.strip() for text in said for word in text.lower().split(",")}
    return bool(words & {"nofollow", "none"})


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
