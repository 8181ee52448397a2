"""Every reader that strangers write for, as a function of bytes, with words of its language for a fuzzer to play with.

A reader may raise GossamerError and nothing else.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import msgspec
import zstandard
from warcio.archiveiterator import ArchiveIterator

from gossamer.backends.folder.archive import FolderArchive
from gossamer.clock import VirtualClock
from gossamer.compat.scrapyd.routes import read_form
from gossamer.extract.documents import DocumentKind, DocumentUnreadable, document_html
from gossamer.extract.feeds import parse_feed
from gossamer.extract.links import LinkBase
from gossamer.extract.media import decode
from gossamer.extract.sitemaps import SitemapReader
from gossamer.fetch.body import BodyDecoder, layers_of
from gossamer.fetch.contract import Limits, TransportRequest
from gossamer.fetch.cookies import CookieJar
from gossamer.fetch.managed import Vendor, describe
from gossamer.fetch.managed.answers import MOST_COST, VendorAnswer, failure_of, page_of, tree_of
from gossamer.fetch.retry_after import parse_retry_after
from gossamer.fetch.robots_rules import read_robots
from gossamer.model.file import file_name
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import PageFacts
from gossamer.model.row_filter import row_filter
from gossamer.model.site_part import SitePart
from gossamer.model.task import Request
from gossamer.model.url import UrlRules, bad_port_of, looks_endless, parse_url, shape_of, site_of, without_user
from gossamer.parse.page import Page
from gossamer.parse.site import SitePartSpider
from gossamer.project.jobs.api_requests import CrawlRequest, ScrapeRequest
from gossamer.project.jobs.slices import request_of
from gossamer.project.upkeep.move.backup_file import BackupHeader, _checked, new_backup
from gossamer.recipe.induction.outline import outline_of
from gossamer.recipe.induction.page_fields import page_fields
from gossamer.recipe.reader import read_recipe
from gossamer.schedule.sources.sitemap_walk import sitemaps_in
from gossamer.server.answers import ApiError
from gossamer.settings import load
from gossamer.settings.tables import Managed
from gossamer.store.warc import WarcWriter
from gossamer.units import Secret

URL = "https://shop.example/a/b?c=d"
MOST = 1_000_000  # bytes that one body may have, once unpacked


class Reader(NamedTuple):
    read: Callable[[bytes], object]
    words: tuple[str, ...]


def text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def page(data: bytes, content_type: str = "text/html") -> Page:
    headers = Headers([("Content-Type", content_type)])
    return Page(Snapshot(url=URL, requested_url=URL, status=200, headers=headers, body=data, fetched_at=0.0))


def url(data: bytes) -> None:
    LinkBase(URL).web_links([text(data)])
    href = parse_url(text(data), URL)
    site_of(href), shape_of(href), looks_endless(href, max_segments=30), bad_port_of(href), without_user(href)
    UrlRules().fingerprint(href)


def robots(data: bytes) -> None:
    rules = read_robots(text(data), "gossamer", timedelta(minutes=5))
    rules.allowed(URL), rules.refusal(URL), sitemaps_in(text(data), URL)


def sitemap(data: bytes) -> None:
    reader = SitemapReader(URL, max_bytes=MOST)
    for at in range(0, len(data), 4096):
        list(reader.feed(data[at : at + 4096]))
    list(reader.close())


def feed(data: bytes) -> None:
    parse_feed(page(data, "application/xml"))


def charset(data: bytes) -> None:
    head, _, body = data.partition(b"\n")
    decode(body, f"text/html; charset={text(head)[:100]}")


def cookie(data: bytes) -> None:
    jar = CookieJar(VirtualClock())
    jar.absorb(URL, Headers([("Set-Cookie", line) for line in text(data).split("\n")]))
    jar.header_for(URL)
    parse_retry_after(text(data), 0.0)


def body(data: bytes) -> None:
    names, _, packed = data.partition(b"\n")
    layers, note = layers_of([text(names)])
    decoder = BodyDecoder(layers, MOST, note)
    decoder.feed(packed)
    decoder.finish()


def warc(data: bytes) -> None:
    lines = text(data).split("\n")
    headers = Headers([(line.partition(":")[0] or "x", line.partition(":")[2]) for line in lines])
    snapshot = Snapshot(
        url=lines[0].replace(" ", "+"), requested_url=URL, status=200, headers=headers, body=data, fetched_at=0.0
    )
    facts = PageFacts(fingerprint=b"x" * 16, url=lines[0], job="j", fetched_at=0.0, status=200, failure=lines[-1])
    stream = io.BytesIO()
    WarcWriter(stream, compressed=False).page(snapshot, facts)
    stream.seek(0)
    kinds = [record.rec_type for record in ArchiveIterator(stream, no_record_parse=True)]
    assert kinds == ["response", "metadata"]  # whatever the page says, it makes no record of its own


def office(data: bytes) -> None:
    """A packed document with one part that a stranger wrote. PDFs are read in a child alone (tests/attacks)."""
    name, _, content = data.partition(b"\n")
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:
        packed.writestr("mimetype", "application/vnd.oasis.opendocument.text" if name == b"content.xml" else "x")
        packed.writestr(text(name).encode("ascii", "replace").decode().strip("/\0") or "x", content)
    with suppress(DocumentUnreadable):
        for kind in (DocumentKind.DOCX, DocumentKind.XLSX, DocumentKind.PPTX, DocumentKind.ODT, DocumentKind.EPUB):
            document_html(kind, made.getvalue())
    with suppress(DocumentUnreadable):
        document_html(DocumentKind.MARKDOWN, data)


def scrapyd(data: bytes) -> None:
    with suppress(ApiError):
        form = read_form(data, "application/x-www-form-urlencoded")
        form.get("spider"), form.all("setting")


def recipe(data: bytes) -> None:
    read_recipe(data, "fuzzed.toml")
    read_recipe(data, "fuzzed.yaml")


def archived(data: bytes) -> None:
    """A page of the archive whose frame a stranger wrote, then the same page in a WARC file."""
    page_file = _folder() / "2027-01-15" / "host-1.zst"
    page_file.parent.mkdir(exist_ok=True)
    frame = zstandard.compress(data)
    page_file.write_bytes(frame)
    archive = FolderArchive(_folder(), level=1, writer="fuzz")
    found = archive._get(f"2027-01-15/host-1.zst#0+{len(frame)}")
    facts = PageFacts(fingerprint=b"x" * 16, url=found.url, job="j", fetched_at=0.0, status=200)
    WarcWriter(io.BytesIO(), compressed=False).page(found, facts)


def backup(data: bytes) -> None:
    """A file whose checksum is right, with a row of that kind."""
    kind, _, words = data.partition(b"\n")
    rows = words.decode("utf-8", "ignore").encode("latin-1", "ignore")  # a word stands for the bytes of its characters
    path = _folder() / "fuzzed.backup"
    path.unlink(missing_ok=True)
    header = BackupHeader(format=1, version="9", project="", fingerprints=1, made_at=0.0, counts={})
    with new_backup(path, header) as writer:
        frame = msgspec.msgpack.encode((kind.decode("utf-8", "replace"), zstandard.compress(rows)))
        writer._put(len(frame).to_bytes(4, "big") + frame)
    _checked(path).close()


@cache
def _vendor() -> Vendor:
    table = Managed(preset="finedata", url="https://api.example.com", key=Secret("k3y"), headers_at="headers")
    return describe("acme", table, environ={})


def vendor(data: bytes) -> None:
    status, _, content = data.partition(b"\n")
    code = int(status) if status.isdigit() and len(status) == 3 else 200
    answer = VendorAnswer(status=code, headers=Headers([("Retry-After", text(status)[:99])]), body=content)
    failure = failure_of(_vendor(), answer, 0.0)
    if failure is not None:
        raise failure
    tree = tree_of(_vendor(), answer)
    found = page_of(_vendor(), answer, tree, TransportRequest(url=URL, limits=Limits(max_body=MOST)))
    assert found.cost is None or 0 <= found.cost <= MOST_COST
    warc(found.body)


def message(data: bytes) -> None:
    """Arguments of a Celery task, as the broker's JSON has them."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return  # Celery refuses it itself
    for kind in (CrawlRequest, ScrapeRequest):
        if isinstance(fields, dict):
            request_of(fields, kind)


@cache
def _folder() -> Path:
    return Path(mkdtemp(prefix="gossamer-fuzz-"))


def settings(data: bytes) -> None:
    (_folder() / "gossamer.toml").write_bytes(data)
    load(start=_folder(), environ={})


def outline(data: bytes) -> None:
    half = len(data) // 2
    outline_of(page(data))
    page_fields([page(part) for part in (data, data[half:] + data[:half], data[:half], data[half:])])


def structured(data: bytes) -> None:
    found = page(data)
    for read in (
        found.structured,
        found.product,
        found.article,
        found.metadata,
        found.tables,
        found.markdown,
        found.links,
    ):
        read()
    found.main_text(cards=True, faq=True, comments=True, reviews=True)
    found.markdown(cards=False, faq=True, comments=False, reviews=True)


def forms(data: bytes) -> None:
    for form in page(data).forms:
        form.submission(), form.brief(), form.fields


def pattern(data: bytes) -> None:
    include, _, exclude = text(data).partition("\n")
    part = SitePart(url=URL, include=(include,), exclude=(exclude,), whole_host=True)
    SitePartSpider(part, Request(url=URL)).from_source(Request(url=f"{URL}{'ab' * 500}"))


def condition(data: bytes) -> None:
    """The `where` of an output, and below it what a page gave for the fields that it names."""
    where, _, value = text(data).partition("\n")
    matches = row_filter(where)
    for found in (value, [value], {"amount": value}, None):
        matches({"price": found, "title": value})


def disposition(data: bytes) -> None:
    assert "/" not in file_name(URL, text(data))


_HTML = (
    "<script type='application/ld+json'>", "</script>", '{"@type":"Product","offers":', '"price":', "[", "]", "}", ",",
    "<div itemscope itemtype='https://schema.org/Product'>", "<span itemprop=price content='", "'>", "<a href='",
    "//[x", "<meta property='og:url' content='", "<table>", "<tr>", "<td colspan=9999 rowspan=9999>", "<p>text, more ",
    "<br>", "<base href='", "<h1>", "1.299,00 €", "2024-02-30", "</", "<!--", "&#x110000;", "\x00",
)  # fmt: skip
_FORMS = (
    "<form ", "</form>", "action='", "method=post>", "enctype=multipart/form-data>", "accept-charset=", "<input name=",
    " type=", "number", "value='", "'>", "<select name=a>", "<option ", "<table>", "<tr>", "form=", "id=", "<fieldset>",
    "disabled ", "<legend>", "dirname=", "dir=auto", "<textarea name=", "<button name=", "formaction=", "\x00", "\r",
    "\ud800", "<template>", "<base href='",
)  # fmt: skip
_URL = ("http://", "//", "[", "]", "@", ":", "%", "xn--", "..", "\\", "?", "#", "a.example", "０", "\u202e")
_ROBOTS = ("User-agent: *\n", "Disallow: /", "Allow: ", "*", "$", "\r", "Crawl-delay: 9", "#", "Sitemap: ")
_SITEMAP = (
    "<urlset>", "<url>", "<loc>", "</loc>", "</url>", "<sitemapindex>", "<!DOCTYPE a [", "<!ENTITY b '", "&b;",
    "<![CDATA[", "]]>", "http://[", "\x1f\ufffd", "<lastmod>", "<?xml encoding='",
)  # fmt: skip
_FEED = (
    "<rss><channel>", "<item>", "<link>", "</item>", "<feed>", "<entry>", "<link href='", "xml:base='", "'/>", "{", "}",
    '{"version":"https://jsonfeed.org/version/1","items":[', '"url":', "&#0;", "<![CDATA[",
)  # fmt: skip
_CHARSET = ("utf-16", "iso-2022-jp", "x-user-defined", "\n", "<meta charset=", "\x1b$B", "replacement")
_COOKIE = ("a=b", ";", "Domain=", ".example", "Path=/", "Expires=", "Max-Age=", "-9" * 30, "\n", "Secure")
_BODY = ("gzip", "br", "zstd", "deflate", ",", "\n", "\x1f", "\x28", "identity")
_WARC = ("Content-Length", ":", "\n", "\r\n", "WARC/1.1", "\r\nWARC-Type: x", "chunked", "\x00")
_ARCHIVED = (
    '{"url":"https://shop.example/","requested_url":"https://shop.example/","status":200,"headers":[["a","b"]],',
    '"fetched_at":0.0,', '"length":', '"packed":"gzip","packed_length":', '"screenshot":', "0", "-1", "9" * 30, "}\n",
    "\n", "[", '{"a":', "null", "NaN", '"\\ud800"', "1e999",
)  # fmt: skip
_BACKUP = (
    "spending\n", "url\n", "job\n", "segment\n", "key\n", "trailer\n", "header\n", "\x91", "\x81", "\x82", "\xa4name",
    "\xa1a", "\xa5spent", "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "\xdd\x7f\xff\xff\xff", "\xcb\x7f\xf0", "\xc0",
    "\x90",
)  # fmt: skip
_VENDOR = (
    "200\n", "429\n", "302\n", "{", "}", '"body":', '"content":', '"data":{', '"headers":{', '"cost":', '"credits":',
    "1e308", '"x\\r\\ny"', ":", ",", "[", "]", '"\\ud800"', "-1", "NaN", '"status":', '"error":',
)  # fmt: skip
_MESSAGE = (
    '{"url":"https://shop.example/"', ',"spider":"x"', ',"arguments":', ',"limit":', "}", "9" * 30, "-1", "null", "[",
    "]", "{", '"../x.py"', ',"timeout":', "1e999", ',"formats":["html"]', ',"extract":', '"\\ud800"',
)  # fmt: skip
_RECIPE = (
    'start = ["', '"]\n', "[pages.", "]\n", "fields.", "select = ", "regex = '(a+)+$'", "&a ", "*a", "- ", ": ", "{",
    "\n",
)  # fmt: skip
_SETTINGS = (
    "[fetch]\n", "[domains.'x']\n", "rate = ", "'5/s'", "deny = ['", "']\n", "9" * 400, "[schedules.a]\n", "every = ",
    "state = '", "'\n", "1e999", "none", "=",
)  # fmt: skip
_PATTERN = (
    "a{999}", "{1000}", "(?:", ")", "(?!", "(?P<n>", "\\1", "\\pL", "[^/]", "*", "+?", "|", "^", "$", ".*", "\n",
    "(?i)", "\\Q", "\\x{10ffff}",
)  # fmt: skip
_DISPOSITION = (
    "attachment;",
    "filename*=",
    "filename=",
    "utf-8''",
    "undefined''",
    "idna''",
    "%FF",
    "../",
    '"',
    "\\",
    "\x00",
)
_OFFICE = (
    "word/document.xml\n", "xl/workbook.xml\n", "ppt/presentation.xml\n", "content.xml\n", "META-INF/container.xml\n",
    "<", ">", "<w:tbl>",
    "</w:tbl>", "<!DOCTYPE a [<!ENTITY b 'c'>]>", "&b;", "<table:table-row", "='999999999'", "/>", "\x00",
)  # fmt: skip
_CONDITION = (
    "price.amount", "title", "_key", " == ", " != ", " <= ", " > ", " contains ", " and ", " or ", "not ", "(", ")",
    '"', "'a'", "9.5", "-", "none", "true", ".", "\n", "1e999999999", "9" * 400, "NaN", "sNaN", "\x00",
)  # fmt: skip
READERS = {
    "url": Reader(url, _URL),
    "robots": Reader(robots, _ROBOTS),
    "sitemap": Reader(sitemap, _SITEMAP),
    "feed": Reader(feed, _FEED),
    "charset": Reader(charset, _CHARSET),
    "cookie": Reader(cookie, _COOKIE),
    "body": Reader(body, _BODY),
    "warc": Reader(warc, _WARC),
    "archived page": Reader(archived, _ARCHIVED),
    "backup": Reader(backup, _BACKUP),
    "vendor": Reader(vendor, _VENDOR),
    "message": Reader(message, _MESSAGE),
    "recipe": Reader(recipe, _RECIPE),
    "settings": Reader(settings, _SETTINGS),
    "forms": Reader(forms, _FORMS),
    "pattern": Reader(pattern, _PATTERN),
    "condition": Reader(condition, _CONDITION),
    "office": Reader(office, _OFFICE),
    "scrapyd": Reader(scrapyd, ("project=", "&spider=", "&setting=", "=", "%", "%ff", "+", ";", "&" * 300)),
    "disposition": Reader(disposition, _DISPOSITION),
    "structured data": Reader(structured, _HTML),
    "outline": Reader(outline, _HTML),
}
