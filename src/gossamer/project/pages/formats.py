"""A page in the formats that a client requested over HTTP, as JSON values. Pure; run in a child process."""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import Permanent
from ...extract.article.content import content_html, content_markdown, pictures_of
from ...extract.media import Media
from ...extract.schema_values import values_by_schema
from ...model.page_content import WHOLE, PageContent
from ...parse.page import Page


class WantedFormats(msgspec.Struct, frozen=True, kw_only=True):
    """`content` is the part of the page for clean_html and markdown, `schema` the JSON Schema of json."""

    formats: tuple[str, ...]
    content: PageContent | None = None
    schema: dict[str, Any] | None = None


def formatted(page: Page, wanted: WantedFormats) -> dict[str, Any]:
    """The page in each of the formats, as JSON values; None if the page has nothing of the kind. Raises Permanent for a
    part of the page that cannot be chosen so: it may come out of the queue."""
    content = wanted.content or WHOLE
    if fault := content.fault():
        raise Permanent(fault)
    is_html = page.media is Media.HTML and page.tree is not None
    data: dict[str, Any] = {}
    for name in wanted.formats:
        match name:
            case "html":
                data[name] = None if b"\0" in page.body[:1024] else page.text
            case "text":
                data[name] = (page.main_text() or page.selector.text) if is_html else None
            case "markdown":
                data[name] = content_markdown(page, content) if is_html else None
            case "clean_html":
                data[name] = content_html(page, content) if is_html else None
            case "images":
                data[name] = pictures_of(page) if is_html else []
            case "opengraph":
                data[name] = page.structured()["opengraph"] if is_html else {}
            case "json":
                data[name] = values_by_schema(page, wanted.schema or {}) if is_html else None
            case "links":
                data[name] = page.links() if is_html else []
            case "metadata":
                data[name] = _plain(page.metadata()) if is_html else None
            case "product":
                data[name] = _plain(page.product()) if is_html else None
            case "article":
                data[name] = _plain(page.article()) if is_html else None
    return data


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value, enc_hook=str)
