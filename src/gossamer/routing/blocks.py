"""Is this the page, or a block in its place? Pure functions over one response; the signs are a table.

What it does: `judge` returns None for a page, and a `Block` for a refusal, a challenge, a captcha, a login wall, a page
that its scripts have yet to fill, or a page that lost most of its size. It solves nothing.
How it fails: never; any bytes get an answer. In doubt it returns None, because an unseen block gives a page without
data, which the spider notices, while a page taken for a block costs money.
How fast: every page passes here. An ordinary page is recognised by a calm title and a handful of links, and never read
as a whole; only odd-looking pages are read, and reading stops as soon as there is enough text for a real page. No body
takes long, however hostile: reading is bounded, and no pattern scans the same bytes repeatedly.

Only HTML is read. For anything else, such as JSON and images, only the status counts.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from urllib.parse import urlsplit

import msgspec

from ..fetch.contract import Response
from ..model.page import Headers
from . import block_signs as table
from .block_signs import CURE_OF, LOGIN, SHELL, SHRUNK, STATUSES, Signature

LINKS_OF_A_PAGE = 5  # with a calm title and this many links it is a page
GLANCE = 4 * 1024  # bytes searched for links first
TITLE_WITHIN = 8 * 1024  # bytes searched for a title first
LONGEST_WALL = 3500  # characters of text; anything longer is a page, whatever its markup says
LONGEST_HINTED = 1500  # the same if its words, or several hints together, tell
LONGEST_LOGIN = 800
LONGEST_SHELL = 200
BAREST_SHELL = 40  # without an empty root and without a word about scripts
LONGEST_STUB = 2048  # bytes
MOST_PIECES = 2000  # scripts, styles and comments; anything with more is taken for a page
MOST_READ = 256 * 1024  # bytes between them; the same
MOST_ASIDE = 2 * LONGEST_WALL  # bytes of all <noscript> elements together
MARKUP_ENDS = 32 * 1024  # bytes of markup that are searched from the beginning, and as many from the end
SHRUNK_TO = 8  # a page of less than an eighth of its usual size is suspicious ...
SHRUNK_FROM = 8 * 1024  # ... if it usually has at least this many bytes

_REFUSING = frozenset(STATUSES) | {405, 406, 449}  # these count as a hint
_SILENT = frozenset({404, 410})  # the page is gone: its body is no wall
_WIDGETS = ("reCAPTCHA", "hCaptcha", "Turnstile", "GeeTest", "Arkose")

_SIGNS_BY_HEADER: dict[str, list[tuple[Signature, re.Pattern[bytes]]]] = {}
for _sign in table.HEADERS:
    for _pattern in _sign.patterns:
        _name, _, _value = _pattern.decode().partition(": ")
        _SIGNS_BY_HEADER.setdefault(_name, []).append((_sign, re.compile(_value.encode())))

_UNREAD = re.compile(
    rb"<(?:!--|(script|style|noscript|template(?![^<>]{0,200}\bshadowrootmode)|svg|title|textarea|select|iframe)\b)"
)
_TAG = re.compile(rb"(<[^<>]*>?)")
_FIELD = re.compile(
    rb"""<textarea\b|<input\b(?![^<>]{0,500}\btype\s{0,20}=\s{0,20}["']?(?:hidden|submit|button|image|checkbox))"""
)
_THINGS = re.compile(rb"<(?:img|form|frame|frameset|video|audio|table|object|embed|canvas|article|picture)\b")
_REFRESH = re.compile(rb"""<meta\b[^<>]{0,200}http-equiv\s{0,20}=\s{0,20}["']?refresh""")
_LEAVING = re.compile(rb"""location(?:\.href)?\s{0,20}=|location\.(?:replace|assign)\s{0,20}\(""")
_TITLE = re.compile(rb"<title[^>]{0,300}>([^<]{0,500})")
_MACHINERY = re.compile(rb"<(?:script|form|input|i?frame)\b")
_NUMBERED = re.compile(rb"&#0*(\d{1,8})\d*")  # a character reference by number; the largest has seven digits


class Block(msgspec.Struct, frozen=True):
    """What came instead of the page. `words` is one line for people; `cure` is what may help."""

    kind: str
    words: str
    cure: str


def judge(response: Response, *, usual_size: int | None = None, rendered: bool = False) -> Block | None:
    """None if this is the page, or a genuine failure that no other route would fix.

    `usual_size` is how many bytes this page, or the pages of its site, had before. `rendered`: scripts ran, so an empty
    shell is simply an empty page. Redirects are not judged here.
    """
    status, body = response.status, response.body
    told = _by_headers(response.headers, status)
    if told is not None and told.sure:
        return _block(told, status)
    if status < 200 or 300 <= status < 400 or status in _SILENT:
        return None
    if status == 401 and "www-authenticate" in response.headers:
        return None  # a missing password: no other route helps
    fine = status < 300
    if body and _is_html(response.headers.get("content-type"), body):
        shrunk = fine and usual_size is not None and _has_shrunk(len(body), usual_size)
        if fine and not shrunk and _looks_ordinary(body):
            return None
        found = _read(response, rendered=rendered, told=told)
        if found is not None:
            return found
        if shrunk and usual_size is not None and not _is_stub(body[:MARKUP_ENDS].lower()):
            return Block(SHRUNK, f"{len(body):,} bytes instead of the usual {usual_size:,}", CURE_OF[SHRUNK])
    if told is not None:
        return _block(told, status)
    if status in STATUSES:
        kind, words = STATUSES[status]
        return Block(kind, f"status {status}: {words}", CURE_OF[kind])
    return None


def judge_redirect(url: str, to: str) -> Block | None:
    """A login wall if an ordinary page redirects to a login page; None for any other redirect.

    The target's path tells. A request for a login page, or a redirect from one to the next, meets no wall.
    """
    if table.LOGIN_REDIRECT.search(_path_of(to)) is None or table.LOGIN_PATH.search(_path_of(url)) is not None:
        return None
    return Block(LOGIN, f"it redirects to a login page: {to}", CURE_OF[LOGIN])


def _by_headers(headers: Headers, status: int) -> Signature | None:
    """The sign in the headers. Hints in headers also occur in ordinary responses: they need a refusal."""
    if not headers.has_any(_SIGNS_BY_HEADER):
        return None
    for name, signs in _SIGNS_BY_HEADER.items():
        if value := headers.get(name):
            seen = value.lower().encode(errors="replace")
            for sign, pattern in signs:
                if pattern.search(seen) and (sign.sure or status in _REFUSING):
                    return sign
    return None


def _is_html(content_type: str, body: bytes) -> bool:
    label = content_type[:80].lower()
    if label.startswith(("text/html", "application/xhtml")):
        return True
    if label.strip() and not label.startswith(("application/octet-stream", "unknown/", "*/*")):
        return False
    return body[:512].removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith((b"<!doctype html", b"<html"))


def _has_shrunk(size: int, usual: int) -> bool:
    return usual >= SHRUNK_FROM and size * SHRUNK_TO < usual


def _looks_ordinary(body: bytes) -> bool:
    """A calm title and a handful of links? Decided from a few kilobytes."""
    return _is_calm(_title_of(body)) and _has_links(body)


def _title_of(body: bytes) -> bytes:
    start = body.find(b"<title", 0, TITLE_WITHIN)
    if start < 0:
        start = body.find(b"<TITLE", 0, TITLE_WITHIN)
    return body[start : start + 200].partition(b">")[2].partition(b"<")[0].lower() if start >= 0 else b""


def _is_calm(title: bytes) -> bool:
    """Is it free of words that walls use?"""
    return table.HOT_WORDS.isdisjoint(title.split()) and (title.isascii() or not table.HOT_PARTS.search(title))


def _has_links(body: bytes) -> bool:
    """Search first where most pages are past their scripts, then at the top, then in the rest."""
    third = len(body) // 3
    top = min(GLANCE, third)
    missing = LINKS_OF_A_PAGE
    for at, until in ((third, third + GLANCE), (0, top), (third + GLANCE, len(body)), (top, third)):
        while at := body.find(b"<a ", at, until) + 1:
            missing -= 1
            if not missing:
                return True
    return False


# -- reading what looks odd ----------------------------------------------------------------------------------


class _Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A page as a person sees it without scripts."""

    title: bytes
    text: bytes
    aside: bytes  # what <noscript> says
    markup: bytes  # tags and scripts; of very long ones only both ends
    scripts: int
    things: bool  # visible content: pictures, frames, forms, tables

    @property
    def is_short(self) -> bool:
        """Short as walls are: little text, and hardly a link."""
        return len(self.text) <= LONGEST_HINTED and not _has_links(self.markup)


def _read(response: Response, *, rendered: bool, told: Signature | None) -> Block | None:
    status = response.status
    fine = status < 300
    body = response.body.lower()
    title = _title_of(body)
    if fine and title and _is_calm(title) and len(body) <= MOST_READ and not _MACHINERY.search(body):
        return None  # a small page of words: walls and shells have scripts or forms, or a telling title
    page = _reading_of(body)
    if page is None:
        return None
    found = _signs_in(page)
    for sign in found:
        if sign.sure and (sign.where == "markup" or not fine or page.is_short):
            return _block(sign, status)
    if fine and not rendered and _has_empty_root(page, body):
        return Block(SHELL, "an empty element that scripts should fill", CURE_OF[SHELL])
    hinted = _by_hints(found, page, status, told)
    if hinted is not None:
        return hinted
    if _is_login(response, page):
        return Block(LOGIN, f"a page that only asks to log in (status {status})", CURE_OF[LOGIN])
    if fine and not rendered and _is_bare(page):
        return Block(SHELL, f"{page.scripts} scripts and almost no text", CURE_OF[SHELL])
    return None


def _reading_of(body: bytes) -> _Reading | None:
    """Walk from script to script to the end; None if there is more text in between than a wall ever has.

    Linear, even if elements are never closed.
    """
    words: list[bytes] = []
    asides: list[bytes] = []
    markup: list[bytes] = []
    at = size = read = aside = scripts = 0
    things = False
    for _ in range(MOST_PIECES):
        bound = at + MOST_READ - read + 1
        skipped = _UNREAD.search(body, at, bound)
        until = skipped.start() if skipped else min(len(body), bound)
        read += until - at
        if read > MOST_READ:
            return None
        stretch = body[at:until]
        parts = _TAG.split(stretch)
        markup += parts[1::2]
        things = things or _THINGS.search(stretch) is not None
        words.append(b" ".join(b" ".join(parts[::2]).split()))
        size += len(words[-1])
        if size > LONGEST_WALL:
            return None
        if not skipped:
            break
        name = skipped[1]
        end = body.find(b"-->", until) + 3 if name is None else body.find(b"</" + name, until)
        if name is not None:
            inside = body[until : end if end >= until else len(body)]
            markup.append(inside)
            scripts += name == b"script"
            things = things or name == b"iframe"
            if name == b"noscript":
                said = inside[: min(LONGEST_WALL, MOST_ASIDE - aside)]
                aside += len(said)
                asides += _TAG.split(said)[::2]
        if end < until:  # never closed: the rest belongs to it
            break
        at = end
    else:
        return None
    title = _TITLE.search(body[:MARKUP_ENDS])
    return _Reading(
        title=_plain(title[1]) if title else b"",
        text=_plain(b" ".join(words)),
        aside=_plain(b" ".join(asides)),
        markup=_ends_of(b"".join(markup)),
        scripts=scripts,
        things=things,
    )


def _ends_of(markup: bytes) -> bytes:
    return markup if len(markup) <= 2 * MARKUP_ENDS else markup[:MARKUP_ENDS] + b" " + markup[-MARKUP_ENDS:]


def _plain(text: bytes) -> bytes:
    if b"&" in text:
        text = _NUMBERED.sub(rb"&#\1", text)  # Python refuses to parse thousands of digits
        text = html.unescape(text.decode(errors="replace")).lower().encode(errors="replace")
    return b" ".join(text.replace(b"\xe2\x80\x99", b"'").replace(b"\xc2\xa0", b" ").split())


def _signs_in(page: _Reading) -> list[Signature]:
    places = {"title": page.title, "text": page.text + b" " + page.aside, "markup": page.markup}
    return [sign for sign, searches in _signs() if any(search(places[sign.where]) for search in searches)]


@cache
def _signs() -> tuple[tuple[Signature, tuple[Callable[[bytes], object], ...]], ...]:
    """The table of pages with compiled patterns: most crawls never need it."""
    return tuple((sign, tuple(re.compile(one, re.S).search for one in sign.patterns)) for sign in table.PAGES)


def _by_hints(found: list[Signature], page: _Reading, status: int, told: Signature | None) -> Block | None:
    """Two hints make a sign; a hint with a refusing status or a header does too."""
    refusing = status in _REFUSING
    if len(page.text) > LONGEST_HINTED or not (refusing or page.is_short):
        return None
    if len(_FIELD.findall(page.markup)) >= 2:
        found = [sign for sign in found if sign.name not in _WIDGETS]  # a widget among fields belongs to a form
    if len(found) + refusing + (told is not None) < 2:
        return None
    first = told or next(iter(found), None)
    if first is None or (first.name == table.REFUSAL and status in STATUSES):
        return None
    return _block(first, status)


def _is_login(response: Response, page: _Reading) -> bool:
    if response.status >= 300 and response.status not in (401, 403):
        return False
    if len(page.text) > LONGEST_LOGIN or (response.status < 300 and table.LOGIN_PATH.search(_path_of(response.url))):
        return False  # a request for the login page gets it: that is no wall
    named = table.LOGIN_TITLE.search(page.title) is not None
    if table.LOGIN_FIELD.search(page.markup):
        return named or table.LOGIN_TEXT.search(page.text) is not None
    return named and table.NAME_FIELD.search(page.markup) is not None


def _path_of(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


def _has_empty_root(page: _Reading, body: bytes) -> bool:
    return (
        page.scripts > 0
        and len(page.text) <= LONGEST_SHELL
        and table.EMPTY_ROOT.search(_ends_of(body)) is not None
        and not _brings_data(page.markup)
    )


def _brings_data(markup: bytes) -> bool:
    """Does machine-readable data soon name a thing that people look for?"""
    begun = [found.end() for found in table.DATA_BEGINS.finditer(markup)]
    for thing in table.DATA_OF_A_THING.finditer(markup) if begun else ():
        before = bisect_right(begun, thing.start())
        if before and thing.start() - begun[before - 1] <= table.DATA_WITHIN:
            return True
    return False


def _is_bare(page: _Reading) -> bool:
    """Scripts, but no text and no visible content."""
    if not page.scripts or len(page.text) > LONGEST_SHELL or _is_stub(page.markup) or _brings_data(page.markup):
        return False
    if table.NEEDS_SCRIPTS.search(page.aside):
        return len(page.text) <= LONGEST_SHELL // 2
    return page.scripts >= 3 and len(page.text) <= BAREST_SHELL and not page.things


def _is_stub(markup: bytes) -> bool:
    """A page that only redirects its visitor. Long pages mention `location` for other reasons."""
    return _REFRESH.search(markup) is not None or (len(markup) < LONGEST_STUB and _LEAVING.search(markup) is not None)


def _block(sign: Signature, status: int) -> Block:
    place = "its " + sign.where
    if sign.where == "header":
        place = "the header " + sign.patterns[0].decode().partition(":")[0]
    return Block(sign.kind, f"{sign.name}, told by {place} (status {status})", sign.cure or CURE_OF[sign.kind])
